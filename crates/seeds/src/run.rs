//! One run of one seed: a scenario is built, faults and people act, then it becomes calm, and what is left must come right by
//! itself or say what blocks it.

use super::faults::{Class, Fault, Field, Plan};
use super::operator::{Bug, Operator};
use super::rules::Rules;
use super::scenario::{Scenario, Setup, all};
use super::store::KindName;
use super::suite::{Outcome, Suite};
use super::time::{HOUR, MINUTE, Millis};
use super::world::{Event, World};

/// How long an upgrade has to come to its end after it became calm.
const LIVENESS: Millis = 36 * HOUR;
/// How long nothing may be written then.
const QUIET: Millis = HOUR;

/// How long it is waited on for a deadline that the operator itself waits for.
const PATIENCE: Millis = 3 * HOUR;

/// Kubeadm clusters.
#[derive(Clone, Copy, Debug)]
pub struct Kubeadm;

/// What to run of them.
pub type Options = super::suite::Options<Kubeadm>;

impl Suite for Kubeadm {
    type Scenario = &'static Scenario;
    type Bug = Bug;
    const FLAG: &'static str = "";
    const CLASSES: &'static [Class] = &Class::KUBEADM;
    const MEASURED: &'static str = "ten-nodes";

    fn scenarios() -> Vec<Self::Scenario> {
        all().to_vec()
    }

    fn name(scenario: Self::Scenario) -> &'static str {
        scenario.name
    }

    fn summary(scenario: Self::Scenario) -> &'static str {
        scenario.summary
    }

    fn bugs() -> Vec<Bug> {
        Bug::ALL.to_vec()
    }

    fn bug_word(bug: Bug) -> &'static str {
        bug.word()
    }

    fn run(options: &Options) -> Outcome {
        run(options)
    }
}

/// Runs it.
pub fn run(options: &Options) -> Outcome {
    let mut world = prepare(options);
    world.run(world.plan.calm_at);
    if world.rules.broken().is_none() {
        come_to_an_end(&mut world);
    }
    if world.rules.broken().is_none() {
        world.clients_end();
        super::ends::check(&mut world);
    }
    if world.trace.is_some()
        && let Some(broken) = world.rules.broken().cloned()
    {
        world.say(&format!("BROKEN    {broken}"));
    }
    Outcome {
        broken: world.rules.broken().cloned(),
        ends: super::ends::words(&world),
        simulated: world.now,
        events: world.events,
        decisions: world.decisions,
        requests: world.requests,
        revision: world.store.revision(),
        faults: std::mem::take(&mut world.plan.faults),
        judged: world.rules.judged,
        clients: world.traffic.clients,
        trace: world.trace.take(),
    }
}

fn prepare(options: &Options) -> World {
    let mut rng = fastrand::Rng::with_seed(options.seed ^ 0x5eed_0000);
    let mut world = World::new(rng.u64(..), Rules::default(), Plan::none());
    if options.trace {
        world.trace = Some(String::new());
    }
    let mut setup = Setup::new(&mut world);
    (options.scenario.build)(&mut setup);
    let (upgrades, workers) = setup.finish();
    world.whole_at = world.store.revision();
    world.clients_look();
    let machines = world.machines.len();
    if options.clean {
        world.plan.calm_at = options.scenario.calm_after;
    } else {
        let allowed = |class: Class| !options.without.contains(&class) && (options.scenario.allows)(class);
        let field = Field {
            classes: Kubeadm::CLASSES,
            machines: machines.max(1),
            kinds: KindName::ALL.len(),
            longest: 90 * MINUTE,
        };
        // What a scenario is about stays.
        let skew = world.plan.skew;
        world.plan = Plan::swarm(&mut rng, &allowed, &field);
        if skew != 0 {
            world.plan.skew = skew;
        }
        world.plan.calm_at = world.plan.calm_at.max(options.scenario.calm_after);
    }
    world.plan.as_asked(&options.left_out, options.crash);
    if world.plan.people {
        world.invent_acts(&upgrades, &workers);
    }
    world.operators = vec![Operator::new(options.bug), Operator::new(options.bug)];
    for index in 0..world.plan.faults.len() {
        if let (_, Fault::At(at, _)) = &world.plan.faults[index] {
            world.queue.push(*at, Event::Fault(index));
        }
    }
    world.plan_acts();
    let calm_at = world.plan.calm_at;
    world.queue.push(calm_at, Event::Calm);
    world.start_operators();
    world
}

/// Goes on until the operator has nothing more to write, or too long.
fn come_to_an_end(world: &mut World) {
    let deadline = world.now + LIVENESS;
    while world.rules.broken().is_none() {
        let quiet_at = world.last_operator_write.max(world.plan.calm_at) + QUIET;
        let waits = world.now < quiet_at + PATIENCE && world.operator_looks_again(deadline);
        if world.now >= quiet_at && !waits {
            return;
        }
        if world.now >= deadline {
            let hours = LIVENESS / HOUR;
            world.rules.breaks(
                12,
                format!("the operator still writes {hours} hours after all became calm"),
            );
            return;
        }
        let next = if world.now < quiet_at {
            quiet_at.min(world.now + 10 * MINUTE)
        } else {
            // Nothing is written, but something is still waited for until a moment.
            world.now + 10 * MINUTE
        };
        world.run(next);
    }
}

#[cfg(test)]
mod tests {
    use super::super::scenario::named;
    use super::super::world::Act;
    use super::*;

    fn prepared(name: &str, seed: u64) -> World {
        let scenario = named(name).unwrap();
        prepare(&Options::new(seed, scenario))
    }

    #[test]
    fn a_clock_that_a_scenario_sets_wrong_is_wrong_under_every_seed() {
        for seed in 0..20 {
            assert_eq!(prepared("clock-skew", seed).plan.skew, 120_000, "{seed}");
        }
        let skews: std::collections::BTreeSet<i64> = (0..20).map(|seed| prepared("ha", seed).plan.skew).collect();
        assert!(skews.len() > 2 && skews.contains(&0), "{skews:?}");
    }

    #[test]
    fn people_pause_abort_delete_and_undo_a_single_node_too() {
        let worlds = (0..200).map(|seed| prepared("single-node", seed));
        let acts: Vec<Act> = worlds.flat_map(|world| world.acts).map(|planned| planned.act).collect();
        let some = |is: &dyn Fn(&Act) -> bool| acts.iter().filter(|act| is(act)).count();
        assert!(some(&|act| matches!(act, Act::Pause(_))) > 5);
        assert!(some(&|act| matches!(act, Act::Abort(_))) > 5);
        assert!(some(&|act| matches!(act, Act::Delete(_))) > 5);
        assert!(some(&|act| matches!(act, Act::Wish(..))) > 5);
        let of_workers = |act: &Act| matches!(act, Act::RemoveNode(_) | Act::ReplaceNode(_));
        assert_eq!(some(&of_workers), 0);
    }
}

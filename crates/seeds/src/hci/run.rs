//! One run of one seed: a scenario is laid, an upgrade is asked for, faults happen, then it becomes calm, and what is left must come to the
//! end that the scenario names, and fall silent.

use afloat_scenes::{Act, Deed, End, HciScenario};

use super::bugs::Bug;
use super::operator::Replica;
use super::store::Shelf;
use super::world::World;
use crate::faults::{Class, Field, Plan};
use crate::suite::{Options, Outcome, Suite};
use crate::time::{HOUR, MINUTE, Millis};
use crate::traffic::Clients;

/// Every upgrade has to be over within this after it became calm, with everything a scenario makes it wait for.
const PATIENCE: Millis = 24 * HOUR;
/// What is waited for without end is waited for at least so long.
const ENDURES: Millis = 2 * HOUR;
/// Until the last virtual machine runs again.
const SETTLES: Millis = 10 * MINUTE;
/// Nothing is written for so long then.
const SILENCE: Millis = HOUR;
/// How often people resume once more, where they have before.
const RESUMES: u32 = 2;
/// How often it is looked whether the end has come.
const STEP: Millis = MINUTE;
const UPGRADE: &str = "hvst-upgrade-1";

/// Harvester-like clusters.
#[derive(Clone, Copy, Debug)]
pub struct Hci;

impl Suite for Hci {
    type Scenario = HciScenario;
    type Bug = Bug;
    const FLAG: &'static str = "--hci";
    const CLASSES: &'static [Class] = &Class::HCI;
    const MEASURED: &'static str = "harvester-three-nodes";

    fn scenarios() -> Vec<HciScenario> {
        HciScenario::all().collect()
    }

    fn name(scenario: HciScenario) -> &'static str {
        scenario.name()
    }

    fn summary(scenario: HciScenario) -> &'static str {
        scenario.summary()
    }

    fn bugs() -> Vec<Bug> {
        Bug::ALL.to_vec()
    }

    fn bug_word(bug: Bug) -> &'static str {
        bug.word()
    }

    fn run(options: &Options<Self>) -> Outcome {
        let mut world = played(options, |_| {});
        if world.trace.is_some()
            && let Some(broken) = world.rules.broken().cloned()
        {
            world.say(&format!("BROKEN         {broken}"));
        }
        Outcome {
            broken: world.rules.broken().cloned(),
            ends: vec![world.end_word()],
            simulated: world.now,
            events: world.events,
            decisions: world.decisions,
            requests: world.requests,
            revision: world.store.revision(),
            faults: std::mem::take(&mut world.plan.faults),
            judged: world.rules.judged,
            clients: Clients::default(),
            trace: world.trace.take(),
        }
    }
}

/// A run from its beginning to its end, of a world that is changed before.
pub(super) fn played(options: &Options<Hci>, change: impl FnOnce(&mut World)) -> World {
    let mut world = prepare(options);
    change(&mut world);
    world.run(world.plan.calm_at);
    come_to_an_end(&mut world);
    world
}

fn prepare(options: &Options<Hci>) -> World {
    let mut rng = fastrand::Rng::with_seed(options.seed ^ 0x5eed_0001);
    let mut script = options.scenario.describe();
    let plain = options.clean && options.crash.is_none();
    // What is said on the way may be missed by whoever was started again; what is said in the end may not.
    if !plain && matches!(script.end, End::Succeeded | End::Gone) {
        script.says.clear();
    }
    let deletes = |act: &Act| act.what.contains(&Deed::DeleteUpgrade);
    let vanishes = script.end == End::Gone || script.people.iter().any(deletes);
    let stubborn = !script.trouble.failing_migrations.is_empty() || !script.trouble.endless_migrations.is_empty();
    let lost = script.trouble.post_copies.iter().filter(|(_, fails)| **fails);
    let may_be_lost = lost.map(|(vm, _)| vm.clone()).collect();
    let machines = usize::try_from(script.ground.nodes).unwrap_or(1);
    let mut world = World::new(rng.u64(..), script, Plan::none());
    world.rules.may_be_lost = may_be_lost;
    if options.trace {
        world.trace = Some(String::new());
    }
    if plain {
        world.heard = Some(std::collections::BTreeSet::new());
        world.rules.plain = true;
    }
    if !options.clean {
        // A machine that refuses to move is tried three times: more that fail would be another scenario.
        // Nobody is left to take back what another replica had on its way when the Upgrade was gone; the lease keeps them apart.
        let fits = |class: Class| match class {
            Class::MigrationFails => !stubborn,
            Class::TwoOperators => !vanishes,
            _ => true,
        };
        let allowed = |class: Class| !options.without.contains(&class) && fits(class);
        let field = Field {
            classes: Hci::CLASSES,
            machines,
            kinds: Shelf::all().count(),
            longest: 2 * HOUR,
        };
        world.plan = Plan::swarm(&mut rng, &allowed, &field);
    }
    world.plan.as_asked(&options.left_out, options.crash);
    world.lay();
    world.whole_at = world.store.revision();
    world.replicas = vec![Replica::new(options.bug), Replica::new(options.bug)];
    if world.plan.people {
        world.invent_acts(&mut rng);
    }
    world.begin();
    let annotations = world.script.annotations();
    world.ask(UPGRADE, true, annotations);
    world
}

/// Goes on until the end has come, or too long; then nobody may have anything to write any more.
fn come_to_an_end(world: &mut World) {
    let deadline = world.now + PATIENCE;
    let mut patience = RESUMES;
    while world.rules.broken().is_none() && !world.has_ended() && world.now < deadline {
        if patience > 0 && world.failed_again() {
            patience -= 1;
            world.does(&Deed::resume());
        }
        world.run(world.now + STEP);
    }
    if world.script.end == End::Waits {
        world.run(world.now + ENDURES);
    }
    // A Rancher that is away does its part when it is back.
    world.run(world.now.max(world.rancher_away) + SETTLES);
    if world.rules.broken().is_some() {
        return;
    }
    world.check_end();
    let writes = world.writes;
    world.run(world.now + SILENCE);
    let more = world.writes - writes;
    world
        .rules
        .judge(12, more == 0, || format!("{more} writes after the end"));
}

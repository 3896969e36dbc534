//! One run of one seed: a scenario is built, faults and people act, then it becomes calm, and what is left must come right by
//! itself or say what blocks it.

use std::collections::BTreeSet;

use super::operator::{Bug, Operator};
use super::rules::{Broken, Rules};
use super::scenario::{Scenario, Setup};
use super::time::{HOUR, MINUTE, Millis};
use super::world::{Class, Event, Fault, Plan, RequestFault, World};

/// How long an upgrade has to come to its end after it became calm.
const LIVENESS: Millis = 36 * HOUR;
/// How long nothing may be written then.
const QUIET: Millis = HOUR;

/// How long it is waited on for a deadline that the operator itself waits for.
const PATIENCE: Millis = 3 * HOUR;

/// What to run.
#[derive(Clone, Debug)]
pub struct Options {
    pub seed: u64,
    pub scenario: &'static Scenario,
    /// Without faults and people.
    pub clean: bool,
    /// Classes that are switched off.
    pub without: BTreeSet<Class>,
    /// Faults that are left out, by their place in the list.
    pub left_out: BTreeSet<usize>,
    /// A crash after the operator's n-th request, and how many revisions back it comes up.
    pub crash: Option<(usize, u64)>,
    pub bug: Option<Bug>,
    pub trace: bool,
}

impl Options {
    pub fn new(seed: u64, scenario: &'static Scenario) -> Self {
        Self {
            seed,
            scenario,
            clean: false,
            without: BTreeSet::new(),
            left_out: BTreeSet::new(),
            crash: None,
            bug: None,
            trace: false,
        }
    }

    pub fn clean(scenario: &'static Scenario) -> Self {
        Self {
            clean: true,
            ..Self::new(0, scenario)
        }
    }
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub broken: Option<Broken>,
    /// How the upgrades of the run ended, in a word each.
    pub ends: Vec<String>,
    pub simulated: Millis,
    pub events: u64,
    pub decisions: u64,
    /// Requests of the operator.
    pub requests: usize,
    pub revision: u64,
    pub faults: Vec<(Class, Fault)>,
    pub judged: [u64; 13],
    pub trace: Option<String>,
}

/// Runs it.
pub fn run(options: &Options) -> Outcome {
    let mut world = prepare(options);
    world.run(world.plan.calm_at);
    if world.rules.broken().is_none() {
        come_to_an_end(&mut world);
    }
    if world.rules.broken().is_none() {
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
    let machines = world.machines.len();
    if options.clean {
        world.plan.calm_at = options.scenario.calm_after;
    } else {
        let allowed = |class: Class| !options.without.contains(&class) && (options.scenario.allows)(class);
        world.plan = Plan::swarm(&mut rng, &allowed, machines.max(1));
        world.plan.calm_at = world.plan.calm_at.max(options.scenario.calm_after);
    }
    let left_out = &options.left_out;
    let mut index = 0;
    world.plan.faults.retain(|_| {
        index += 1;
        !left_out.contains(&(index - 1))
    });
    if let Some((request, back)) = options.crash {
        let fault = Fault::Request(request, RequestFault::CrashAfter { back });
        world.plan.faults.push((Class::Crash, fault));
    }
    world.request_faults = world.plan.of_requests();
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

use super::minimise::command;
use super::run::{Options, run};
use super::scenario::{all, named};

/// Clean runs end as their scenario says, and no rule is broken on the way.
#[test]
fn every_scenario_ends_as_it_should_when_nothing_goes_wrong() {
    let mut wrong = Vec::new();
    for scenario in all() {
        let outcome = run(&Options::clean(scenario));
        let alike = outcome.ends.iter().all(|end| end == scenario.ends);
        let as_told = alike || outcome.ends.join(", ") == scenario.ends;
        if outcome.broken.is_some() || !as_told {
            wrong.push(format!("{}: {:?} {:?}", scenario.name, outcome.ends, outcome.broken));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_same_seed_leaves_the_same_trace_byte_for_byte() {
    for (seed, name) in [(3, "ha"), (8, "node-replaced"), (21, "three-at-once")] {
        let options = Options {
            trace: true,
            ..Options::new(seed, named(name).unwrap())
        };
        let (first, second) = (run(&options), run(&options));
        assert!(first.trace.as_ref().unwrap().lines().count() > 100);
        assert_eq!(first.trace, second.trace, "{}", command(&options));
    }
}

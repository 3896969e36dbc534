//! Tier 1 of Harvester-like clusters as it runs with all tests: thousands of seeds, a crash after every write of every scenario, the seeds
//! that once broke a rule, and eleven operators with a bug each, every one of which must be found out.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by failing")]

use std::fmt::Write as _;

use afloat_scenes::HciScenario;
use afloat_seeds::hci::{Bug, Hci, Options};
use afloat_seeds::minimise::{command, minimise};
use afloat_seeds::suite::Suite as _;
use afloat_seeds::systematic::try_all;

/// A run makes and drops many small objects: a third of its time with the system's allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Into so many tests each is split: the runner starts as many at once as there are processors.
const PARTS: usize = 4;
/// How many seeds one of them tries.
const SEEDS: u64 = 1000;
/// Within so many seeds a bug must be found.
const PATIENCE: u64 = 1000;

/// Seeds that broke a rule before what they found was mended.
const ONCE_BROKEN: &[(&str, u64)] = &[
    // A node that Rancher drained already was to be emptied once more by an operator with old news.
    ("harvester-second-upgrade", 14),
    // A taint stayed whose Job a person had deleted.
    ("harvester-deleted-post-draining", 113),
    ("harvester-old-system", 143),
    // Rancher was never answered about a node whose finished Job a person had deleted.
    ("harvester-hangs", 1263),
    // The Service of a repository came late to an upgrade that was over.
    ("harvester-node-not-ready", 1081),
    // Charts were paused, and Longhorn set, for an upgrade that was gone.
    ("harvester-deleted-failed", 1178),
    ("harvester-deleted-pre-drained", 879),
    // A taint was seen only after its node was put back.
    ("harvester-deleted-pre-draining", 1645),
    // An upgrade was resumed by whoever had not seen that Rancher's part was put back.
    ("harvester-refusing-vm-stopped", 918),
    // A finished Job took the deadline of its node's restart with it when a person deleted it.
    ("harvester-old-system", 5335),
    ("harvester-old-system", 5454),
    // A pause was taken away in the moment in which the Upgrade was written; nobody looked again.
    ("harvester-no-restore", 2274),
    // An old view showed the descheduler switched on: it was taken for one that a person had switched on again, and stayed off.
    ("harvester-aborted-and-resumed", 49_179),
    // A node was emptied again while one that was done still kept virtual machines away.
    ("harvester-rancher-hurries", 833),
];

/// What was broken, and the line that repeats it.
fn told(options: &Options) -> String {
    let (small, outcome) = minimise(options);
    let broken = outcome.broken.map(|broken| broken.to_string()).unwrap_or_default();
    format!("{broken}\n  {}\n  {}\n", command(options), command(&small))
}

fn try_seeds(part: u64) {
    let mut broken = String::new();
    for seed in 1 + part * SEEDS..=(part + 1) * SEEDS {
        let options = Options::new(seed, Hci::scenario_of(seed).unwrap());
        if Hci::run(&options).broken.is_some() {
            broken.push_str(&told(&options));
        }
    }
    assert!(broken.is_empty(), "{broken}");
}

/// A part of all scenarios each, so that they can be tried at once.
fn try_systematically(part: usize) {
    let mut broken = String::new();
    for scenario in HciScenario::all().skip(part).step_by(PARTS) {
        for found in try_all::<Hci>(scenario, false).found {
            let rule = found.outcome.broken.map(|broken| broken.to_string());
            let _ = writeln!(broken, "{}\n  {}", rule.unwrap_or_default(), command(&found.options));
        }
    }
    assert!(broken.is_empty(), "{broken}");
}

macro_rules! parts {
    ($call:ident: $($name:ident $part:literal),+ $(,)?) => {
        $(#[test]
        fn $name() {
            $call($part);
        })+
    };
}

parts!(try_seeds:
    seeds_break_no_rule_first_part 0,
    seeds_break_no_rule_second_part 1,
    seeds_break_no_rule_third_part 2,
    seeds_break_no_rule_last_part 3,
);

parts!(try_systematically:
    a_crash_after_any_write_breaks_no_rule_first_part 0,
    a_crash_after_any_write_breaks_no_rule_second_part 1,
    a_crash_after_any_write_breaks_no_rule_third_part 2,
    a_crash_after_any_write_breaks_no_rule_last_part 3,
);

#[test]
fn seeds_that_once_broke_a_rule_do_not_any_more() {
    let mut broken = String::new();
    for (name, seed) in ONCE_BROKEN {
        let options = Options::new(*seed, HciScenario::named(name).unwrap());
        if let Some(rule) = Hci::run(&options).broken {
            let _ = writeln!(broken, "{rule}\n  {}", command(&options));
        }
    }
    assert!(broken.is_empty(), "{broken}");
}

/// Or the rule it breaks is worth nothing.
#[test]
fn every_bug_put_in_on_purpose_is_found() {
    let mut missed = Vec::new();
    for bug in Bug::ALL {
        let found = (1..=PATIENCE).find(|seed| {
            let options = Options {
                bug: Some(bug),
                ..Options::new(*seed, Hci::scenario_of(*seed).unwrap())
            };
            Hci::run(&options).broken.is_some()
        });
        if found.is_none() {
            missed.push(bug.word());
        }
    }
    assert!(missed.is_empty(), "{missed:?}");
}

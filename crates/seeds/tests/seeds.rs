//! Tier 1 as it runs with all tests: thousands of seeds, a crash after every write of every scenario, the seeds that once
//! broke a rule, and ten operators with a bug each, every one of which must be found out.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by failing")]

use std::fmt::Write as _;

use afloat_seeds::faults::Class;
use afloat_seeds::minimise::{command, minimise};
use afloat_seeds::operator::Bug;
use afloat_seeds::run::{Kubeadm, Options, run};
use afloat_seeds::scenario::{Scenario, all, named};
use afloat_seeds::systematic::try_all;

/// A run makes and drops many small objects: a third of its time with the system's allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Into so many tests each is split: the runner starts as many at once as there are processors.
const PARTS: usize = 8;
/// How many seeds one of them tries.
const SEEDS: u64 = 1250;
/// Within so many seeds a bug must be found.
const PATIENCE: u64 = 10_000;

/// Seeds that broke a rule before what they found was mended.
const ONCE_BROKEN: &[(&str, u64)] = &[
    // A member of etcd was away when another was ended.
    ("ten-nodes", 165),
    ("manual-forgotten", 165),
    ("far", 398),
    ("rollback-verifying", 634),
    // A node was upgraded by a plan made when its peers were not known.
    ("ha", 240),
    ("manual", 224),
    ("ten-nodes", 301),
    // The slot of an upgrade was taken for that of its undoing.
    ("rollback-succeeded", 455),
    ("rollback-succeeded", 515),
    // Steps began on a node with a pod that a lagging watch had not told of.
    ("ten-nodes", 18),
    ("far", 98),
    ("far", 158),
    // A machine that could not be put back was given back when its object was deleted.
    ("dies-half-way", 674),
    ("dies-half-way", 2654),
    // The slot of an object that was deleted counted for the one made in its place.
    ("node-upgrade-deleted", 1189),
    ("node-upgrade-deleted", 2029),
    // An undoing was granted for an earlier hop than the last.
    ("every-minor", 2679),
    ("rollback-succeeded", 2375),
    // A slot was given back because its group was not seen yet.
    ("quarantine", 3736),
    ("rollback-verifying", 3334),
    // The group of the next hop was not woken when a hop ended, or waited for one that was not needed any more.
    ("every-minor", 3999),
    // A worker without power got a slot beyond what its failure domain may miss.
    ("three-at-once", 4130),
    // A node was cordoned again, in the midst of its drain, under a pause.
    ("paused-resumed", 406),
    // A control plane was undone beneath a kubelet that had joined since.
    ("dead-node-accepted", 5233),
    // A node was cordoned in the very turn that found it done.
    ("every-minor", 3699),
    ("operator-evicted", 8722),
    // Work was sent to a node whose cordon was of long ago.
    ("rollback-upgrading", 1833),
    ("share", 8631),
    // Our own cordon, of an attempt that was over, was taken for an outage that costs no further node.
    ("drain-deferred", 5231),
    // The next hop was held back while the pods of a control plane lagged behind, and nothing woke its group.
    ("far", 4238),
    // An undoing was granted behind a closed gate.
    ("gate-opens", 8455),
    // The object of a machine that could not be put back was deleted: it stays cordoned, and the rule did not know.
    ("dies-half-way", 8054),
    ("dies-half-way", 8474),
    // The slot of a machine that an old view does not show was not counted, and a second worker was let go beside it.
    ("ha", 2880),
    // The last machine that was behind was replaced, and an old view in which it was still there ended the upgrade.
    ("dead-node-accepted", 10693),
    // A node whose group was not seen yet was taken for one that stands alone, and begun although its upgrade was being deleted.
    ("node-removed", 1884),
    // The power went between the end of an API server and the swap of its manifest: the new kubelet met the old server.
    ("rollback-upgrading", 4053),
    // A cordon that was sent late came after its node was put back, and stayed.
    ("node-upgrade-deleted", 409),
    // A machine joined after the end, by another clock than that the end was told by: the rule took it for one that was left behind.
    ("quarantine", 1576),
    ("rollback-draining", 6932),
    // A person had written over the pause of the upgrade, whose signature stayed.
    ("manual", 4244),
    // Another replica had written a status from an old view, and nobody looked at it again.
    ("patch", 3100),
    ("gate-opens", 115),
    // A cordon came late, and nothing was written afterwards that would have told that nobody else wanted it.
    ("abort-verifying", 5491),
    // The slot of a machine that had left was counted in the failure domain of the one that came under its name: the rule was wrong.
    ("three-at-once", 21590),
    // A node was paused, on old news, for an upgrade that was gone.
    ("manual", 15164),
    // A slot to undo an upgrade was given back by whoever saw the wish gone and not yet the node told.
    ("rollback-succeeded", 7909),
    ("rollback-succeeded", 8219),
    // A machine was replaced in the two seconds before the end; the rule held that against an upgrade nobody had told of it.
    ("quarantine", 24754),
    // A group that was done was not woken when one of its nodes' upgrades was deleted.
    ("node-upgrade-deleted", 84185),
    // A machine that an old view still showed got a second slot under the name of its successor.
    ("node-replaced", 87321),
    // A node that had failed and was uncordoned by a person is cordoned again to be put back, also after an abort.
    ("quarantine", 87870),
    // A pod of the hop before ran again after a power cut, when the next hop was staged already.
    ("every-minor", 106_803),
    // An old view gave a worker a slot for a hop it had behind it, and the rule took it for one of the next hop.
    ("every-minor", 119_451),
    // A worker was taken as one that is away, whose coming back another replica had seen.
    ("cordoned-by-hand", 143_646),
    ("pdb-overridden", 189_543),
    // A node that could not be put back was given back by the object that was made after its own was deleted.
    ("dies-half-way", 163_074),
    // A deadline came in the very moment in which the end was looked at.
    ("dies-half-way", 167_786),
    // A worker left between a slot and its cordon: the rule measured the share by who was left.
    ("share", 253_261),
    // An upgrade ended on the answer to an own write, before the watch told of a machine that had joined before that.
    ("rollback-draining", 266_508),
    // A machine was replaced that was to be undone: its slot, and the lock with it, was held for ever.
    ("gate-opens", 164_667),
    // The next hop of a node heard the wish that the slot to undo the one before was given for: the slot was held for ever.
    ("far", 403_286),
    // A person opened a node for others after its drain: that is nobody else's fault.
    ("paused-resumed", 7971),
    // The slot to undo a machine that had left before it was told.
    ("rollback-verifying", 1423),
    // Wishes that came when a group was done stayed on their nodes.
    ("abort-draining", 1219),
    ("control-plane-removed", 158),
    // A group that stands alone lost a slot from its ledger to an old list of its nodes' upgrades.
    ("alone-control-plane", 1_001_348),
    // A replica whose watches were silent let a pod go from a node that had been put back.
    ("stuck-pdb-in-drain", 1658),
    // An old view put the slot of a node that was done back into the ledger of its group, beside that of another group.
    ("alone-both", 18),
    ("alone-both", 28),
    // Whoever had not seen that a group was done took the lock once more, and nobody gave it back.
    ("alone-workers", 129),
    ("alone-workers", 645),
    // What a group had brought to a machine was void once an upgrade had brought its own, and what it was at failed.
    ("alone-deleted", 41),
    // A person wanted fewer workers at once between a slot and its cordon: the rule measured by the budget of the moment.
    ("budget-tightened", 2),
    ("budget-tightened", 4),
    // A wish that waited was not looked at again when a machine joined that made it impossible.
    ("single-node", 1664),
];

/// Seeds go through the scenarios in turn.
fn scenario_of(seed: u64) -> &'static Scenario {
    let many = u64::try_from(all().len()).unwrap();
    all()[usize::try_from(seed % many).unwrap()]
}

/// What was broken, and the line that repeats it.
fn told(options: &Options) -> String {
    let (small, outcome) = minimise(options);
    let broken = outcome.broken.map(|broken| broken.to_string()).unwrap_or_default();
    format!("{broken}\n  {}\n  {}\n", command(options), command(&small))
}

fn try_seeds(part: u64) {
    let mut broken = String::new();
    for seed in 1 + part * SEEDS..=(part + 1) * SEEDS {
        let options = Options::new(seed, scenario_of(seed));
        if run(&options).broken.is_some() {
            broken.push_str(&told(&options));
        }
    }
    assert!(broken.is_empty(), "{broken}");
}

/// A part of all scenarios each, so that they can be tried at once.
fn try_systematically(part: usize) {
    let mut broken = String::new();
    for scenario in all().iter().skip(part).step_by(PARTS) {
        for found in try_all::<Kubeadm>(scenario, false).found {
            let rule = found
                .outcome
                .broken
                .map(|broken| broken.to_string())
                .unwrap_or_default();
            let _ = writeln!(broken, "{rule}\n  {}", command(&found.options));
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
    seeds_break_no_rule_fourth_part 3,
    seeds_break_no_rule_fifth_part 4,
    seeds_break_no_rule_sixth_part 5,
    seeds_break_no_rule_seventh_part 6,
    seeds_break_no_rule_last_part 7,
);

parts!(try_systematically:
    a_crash_after_any_write_breaks_no_rule_first_part 0,
    a_crash_after_any_write_breaks_no_rule_second_part 1,
    a_crash_after_any_write_breaks_no_rule_third_part 2,
    a_crash_after_any_write_breaks_no_rule_fourth_part 3,
    a_crash_after_any_write_breaks_no_rule_fifth_part 4,
    a_crash_after_any_write_breaks_no_rule_sixth_part 5,
    a_crash_after_any_write_breaks_no_rule_seventh_part 6,
    a_crash_after_any_write_breaks_no_rule_last_part 7,
);

#[test]
fn seeds_that_once_broke_a_rule_do_not_any_more() {
    let mut broken = String::new();
    // What was found before there was the class of members that are behind was found without it.
    let both = |entry| [[].into(), [Class::EtcdLag].into()].map(|without| (entry, without));
    for ((name, seed), without) in ONCE_BROKEN.iter().flat_map(both) {
        let options = Options {
            without,
            ..Options::new(*seed, named(name).unwrap())
        };
        if let Some(rule) = run(&options).broken {
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
                ..Options::new(*seed, scenario_of(*seed))
            };
            run(&options).broken.is_some()
        });
        if found.is_none() {
            missed.push(bug.word());
        }
    }
    assert!(missed.is_empty(), "{missed:?}");
}

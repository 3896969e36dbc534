//! The Upgrade is deleted, in each state: what was begun is finished or put back, and nothing is left of it.

use super::people::{Deed, Moment};
use super::script::{End, HciScenario, Script};

fn deleted(when: Moment, upgraded: &[&'static str]) -> Script {
    on(Script::small(), when, upgraded)
}

/// The same on a cluster of one node.
fn alone(when: Moment, upgraded: &[&'static str]) -> Script {
    on(Script::new(1, 4), when, upgraded)
}

fn on(script: Script, when: Moment, upgraded: &[&'static str]) -> Script {
    script
        .then(when, 0, vec![Deed::DeleteUpgrade])
        .ends(End::Gone, upgraded)
}

pub(super) const LIST: &[HciScenario] = &[
    HciScenario::new(
        "harvester-deleted-logging",
        "the Upgrade is deleted while the collecting of logs starts",
        || deleted(Moment::Phase("PreparingLoggingInfra"), &[]),
    ),
    HciScenario::new(
        "harvester-deleted-importing",
        "the Upgrade is deleted while its image is imported",
        || deleted(Moment::Condition("ImageReady", "Unknown"), &[]),
    ),
    HciScenario::new(
        "harvester-deleted-repo",
        "the Upgrade is deleted while its repository starts",
        || deleted(Moment::Phase("PreparingRepo"), &[]),
    ),
    HciScenario::new(
        "harvester-deleted-preloading",
        "the Upgrade is deleted while images are brought to the second node",
        || deleted(Moment::Node("node-2", "Images preloading"), &[]).pausing(&["node-1"]),
    ),
    HciScenario::new(
        "harvester-deleted-services",
        "the Upgrade is deleted while Rancher and charts are upgraded",
        || deleted(Moment::Phase("UpgradingSystemServices"), &[]),
    ),
    HciScenario::new(
        "harvester-deleted-paused",
        "the Upgrade is deleted while node-1 is paused",
        || deleted(Moment::Node("node-1", "Node-upgrade paused"), &[]).pausing(&["node-1"]),
    ),
    HciScenario::new(
        "harvester-deleted-pre-draining",
        "the Upgrade is deleted while virtual machines leave node-1: it is put back",
        || deleted(Moment::Node("node-1", "Pre-draining"), &[]),
    ),
    HciScenario::new(
        "harvester-deleted-pre-drained",
        "the Upgrade is deleted while Rancher drains node-1: that node is finished first",
        || deleted(Moment::Node("node-1", "Pre-drained"), &["node-1"]),
    ),
    HciScenario::new(
        "harvester-deleted-post-draining",
        "the Upgrade is deleted while node-1 gets its operating system: that node is finished first",
        || deleted(Moment::Node("node-1", "Post-draining"), &["node-1"]),
    ),
    HciScenario::new(
        "harvester-deleted-rebooting",
        "the Upgrade is deleted while node-1 restarts: that node is finished first",
        || deleted(Moment::Node("node-1", "Waiting Reboot"), &["node-1"]),
    ),
    HciScenario::new(
        "harvester-deleted-single",
        "the Upgrade is deleted while virtual machines are stopped on the only node: its Job is ended, and they run again",
        || alone(Moment::Node("node-1", "Pre-draining"), &[]),
    ),
    HciScenario::new(
        "harvester-deleted-single-late",
        "the Upgrade is deleted while the only node is changed: it is finished first",
        || alone(Moment::Node("node-1", "Post-draining"), &["node-1"]),
    ),
    HciScenario::new(
        "harvester-deleted-between",
        "the Upgrade is deleted between two nodes",
        || deleted(Moment::Node("node-1", "Succeeded"), &["node-1"]),
    ),
    HciScenario::new(
        "harvester-deleted-failed",
        "the Upgrade is deleted after it has failed",
        || {
            let script = deleted(Moment::Over, &[]);
            script.with(|trouble| {
                trouble.failing_jobs.insert("apply-manifests".to_owned(), 1);
            })
        },
    ),
    HciScenario::new(
        "harvester-deleted-done",
        "the Upgrade is deleted after it has succeeded",
        || deleted(Moment::Over, &["node-1", "node-2", "node-3"]),
    ),
];

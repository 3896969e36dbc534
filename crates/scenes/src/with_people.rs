//! Scenarios in which people take part: they pause, move machines by hand, abort, ask for a second upgrade.

use serde_json::json;

use super::people::{Deed, Moment};
use super::script::{End, HciScenario, Script};

const PAUSED: &str = "Node-upgrade paused";

pub(super) const LIST: &[HciScenario] = &[
    HciScenario::new(
        "harvester-paused",
        "node-2 pauses before its turn until you let it go: kubectl annotate node node-2 harvesterhci.io/node-upgrade-pause-",
        || {
            Script::small()
                .pausing(&["node-2"])
                .says(&[
                    PAUSED,
                    "It also holds up node-3",
                    "kubectl annotate node node-2 harvesterhci.io/node-upgrade-pause-",
                ])
                .ends(End::Waits, &["node-1"])
        },
    ),
    HciScenario::new(
        "harvester-paused-twice",
        "node-1 and node-3 pause; a person moves a virtual machine by hand, stops another, and lets them go",
        || {
            Script::small()
                .pausing(&["node-1", "node-3"])
                .then(
                    Moment::Node("node-1", PAUSED),
                    10,
                    vec![Deed::MigrateVm("vm-01"), Deed::StopVm("vm-04")],
                )
                .then(Moment::Node("node-1", PAUSED), 20, vec![Deed::Unpause("node-1")])
                .then(Moment::Node("node-3", PAUSED), 30, vec![Deed::Unpause("node-3")])
                .leaves_off("vm-04")
        },
    ),
    HciScenario::new(
        "harvester-pause-all",
        "every node pauses before its turn, and a person lets one go after the other",
        || {
            Script::small()
                .pausing(&[])
                .then(Moment::Node("node-1", PAUSED), 5, vec![Deed::Unpause("node-1")])
                .then(Moment::Node("node-2", PAUSED), 5, vec![Deed::Unpause("node-2")])
                .then(Moment::Node("node-3", PAUSED), 5, vec![Deed::Unpause("node-3")])
        },
    ),
    HciScenario::new(
        "harvester-pause-map",
        "a person pauses node-3 and lets node-2 go by the map on the Upgrade",
        || {
            Script::small()
                .pausing(&["node-2"])
                .then(
                    Moment::Node("node-2", PAUSED),
                    5,
                    vec![Deed::pause_map(&json!({ "node-2": "unpause", "node-3": "pause" }))],
                )
                .then(
                    Moment::Node("node-3", PAUSED),
                    5,
                    vec![Deed::pause_map(&json!({ "node-2": "unpause", "node-3": "unpause" }))],
                )
        },
    ),
    HciScenario::new(
        "harvester-held",
        "a person holds the whole upgrade amid a node, which is finished, and lets it go an hour later",
        || {
            Script::small()
                .then(Moment::Node("node-1", "Pre-drained"), 1, vec![Deed::hold(true)])
                .then(Moment::Node("node-1", "Succeeded"), 60, vec![Deed::hold(false)])
                .says(&["the upgrade is paused; to go on: afloat resume"])
        },
    ),
    HciScenario::new(
        "harvester-aborted-while-paused",
        "a person aborts while node-1 is paused: no node is changed",
        || {
            Script::small()
                .pausing(&["node-1"])
                .then(Moment::Node("node-1", PAUSED), 5, vec![Deed::abort()])
                .says(&["aborted before a node was drained"])
                .ends(End::Failed, &[])
        },
    ),
    HciScenario::new(
        "harvester-aborted-services",
        "a person aborts while Rancher and charts are upgraded: the Job ends between two of them, and fleet has its charts back",
        || {
            Script::small()
                .then(Moment::Phase("UpgradingSystemServices"), 2, vec![Deed::abort()])
                .says(&["aborted before a node was drained"])
                .ends(End::Failed, &[])
        },
    ),
    HciScenario::new(
        "harvester-aborted-services-and-resumed",
        "a person aborts while Rancher and charts are upgraded, and goes on an hour later",
        || {
            Script::small()
                .then(Moment::Phase("UpgradingSystemServices"), 3, vec![Deed::abort()])
                .then(Moment::Over, 60, vec![Deed::resume()])
        },
    ),
    HciScenario::new(
        "harvester-aborted-half-way",
        "a person aborts while node-2 is drained: it is finished, and node-3 stays as it is",
        || {
            Script::small()
                .then(Moment::Node("node-2", "Pre-drained"), 1, vec![Deed::abort()])
                .says(&["aborted: some nodes are at the target and some are not"])
                .ends(End::Failed, &["node-1", "node-2"])
        },
    ),
    HciScenario::new(
        "harvester-aborted-and-resumed",
        "a person aborts before the first drain, and goes on an hour later",
        || {
            Script::small()
                .then(Moment::Node("node-1", "Pre-draining"), 0, vec![Deed::abort()])
                .then(Moment::Over, 60, vec![Deed::resume()])
        },
    ),
    HciScenario::new(
        "harvester-single-aborted",
        "a person aborts while virtual machines are stopped on the only node: its Job is ended, and they run again",
        || {
            Script::new(1, 4)
                .then(Moment::Node("node-1", "Pre-draining"), 0, vec![Deed::abort()])
                .says(&["aborted before a node was drained"])
                .ends(End::Failed, &[])
        },
    ),
    HciScenario::new(
        "harvester-single-aborted-late",
        "a person aborts while the only node is changed: it is finished first",
        || {
            Script::new(1, 4)
                .then(Moment::Node("node-1", "Post-draining"), 0, vec![Deed::abort()])
                .says(&["aborted after the last node"])
                .ends(End::Failed, &["node-1"])
        },
    ),
    HciScenario::new(
        "harvester-second-upgrade",
        "a second Upgrade is asked for while one is under way, and refused",
        || {
            Script::small()
                .then(Moment::Phase("PreparingNodes"), 1, vec![Deed::AskOnceMore])
                .then(Moment::Node("node-1", "Pre-drained"), 1, vec![Deed::DeleteSecond])
                .says(&["is under way"])
        },
    ),
    HciScenario::new(
        "harvester-own-controller",
        "Harvester's own upgrade controller runs: nothing is touched until a person says that it leaves upgrades alone",
        || {
            Script::small()
                .laid(vec![Deed::RunOwnController])
                .then(Moment::Asked, 30, vec![Deed::LeaveUpgrades])
                .says(&["runs Harvester's own upgrade controller"])
        },
    ),
    HciScenario::new(
        "harvester-job-deleted",
        "a person deletes the Job that empties node-1, and another takes its taint away",
        || {
            Script::small()
                .then(
                    Moment::Node("node-1", "Pre-draining"),
                    0,
                    vec![Deed::DeleteJob("pre-drain-node-1")],
                )
                .then(Moment::Node("node-2", "Pre-draining"), 1, vec![Deed::Untaint("node-2")])
        },
    ),
    HciScenario::new(
        "harvester-no-restore",
        "the setting does not ask for stopped virtual machines to be started again: they stay off, and the report names them",
        || {
            Script::small()
                .setting("restoreVM", json!(false))
                .pausing(&["node-3"])
                .then(Moment::Node("node-3", PAUSED), 1, vec![Deed::Unpause("node-3")])
                .says(&["default/vm-10"])
                .leaves_off("vm-10")
        },
    ),
    HciScenario::new(
        "harvester-no-restore-aborted",
        "the setting does not ask for stopped virtual machines to be started again, and a person aborts while node-1 is emptied: they run again",
        || {
            Script::small()
                .setting("restoreVM", json!(false))
                .pausing(&["node-3"])
                .then(Moment::Node("node-1", "Pre-draining"), 0, vec![Deed::abort()])
                .says(&["aborted before a node was drained"])
                .ends(End::Failed, &[])
        },
    ),
    HciScenario::new(
        "harvester-started-by-hand-aborted",
        "a person aborts while node-1 is emptied of a virtual machine that its run strategy alone does not start: it runs again",
        || {
            // One whose migration never ends keeps the node at it.
            Script::by_hand()
                .with(|trouble| {
                    trouble.endless_migrations.insert("default/vm-01".to_owned(), 1);
                })
                .pausing(&["node-3"])
                .then(Moment::Node("node-1", "Pre-draining"), 1, vec![Deed::abort()])
                .ends(End::Failed, &[])
        },
    ),
    HciScenario::new(
        "harvester-no-restore-half-way",
        "the setting does not ask for stopped virtual machines to be started again, and a person aborts after node-1: who stays off is named",
        || {
            Script::small()
                .setting("restoreVM", json!(false))
                .pausing(&["node-3"])
                .then(Moment::Node("node-2", "Pre-drained"), 1, vec![Deed::abort()])
                .says(&["stay off: default/vm-10"])
                .leaves_off("vm-10")
                .ends(End::Failed, &["node-1", "node-2"])
        },
    ),
];

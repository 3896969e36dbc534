//! Nodes that are at the target before their turn: a first attempt has brought them there, or they joined with the release.

use super::people::{Deed, Moment};
use super::script::{HciScenario, Script};

pub(super) const LIST: &[HciScenario] = &[
    HciScenario::new(
        "harvester-second-attempt",
        "the Upgrade is deleted half-way, and an hour later another one goes on: node-1 is done, and node-2 is cordoned by Rancher since",
        || {
            Script::small()
                .then(Moment::Node("node-2", "Pre-draining"), 0, vec![Deed::DeleteUpgrade])
                .then(Moment::Gone, 60, vec![Deed::AskOnceMore])
                .says(&["is at the target already"])
        },
    ),
    HciScenario::new(
        "harvester-second-attempt-after-abort",
        "a person aborts while node-2 is drained, and an hour later another Upgrade goes on with node-3",
        || {
            Script::small()
                .then(Moment::Node("node-2", "Pre-drained"), 1, vec![Deed::abort()])
                .then(Moment::Over, 60, vec![Deed::AskOnceMore])
                .says(&["are at the target already"])
        },
    ),
    HciScenario::new(
        "harvester-node-joins-upgraded",
        "node-4 joins amid the upgrade with the new release: Rancher never asks about it, and it is done all the same",
        || {
            Script::small()
                .then(
                    Moment::Node("node-1", "Pre-draining"),
                    1,
                    vec![Deed::JoinUpgraded("node-4")],
                )
                .says(&["node-4 is at the target already"])
        },
    ),
];

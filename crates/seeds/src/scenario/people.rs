//! Scenarios in which people do something: nodes come and go, upgrades are aborted, nodes undone or deferred.

use super::Scenario;
use super::setup::{FROM, TO, node};
use super::words::{ABORTED, SUCCEEDED, abort_in, rollback_in, scenario, usual};
use crate::time::{MINUTE, SECOND};
use crate::world::Act;
use afloat_api::NodeState;
use afloat_core::view::Wish;

pub(super) static PEOPLE: &[Scenario] = &[
    scenario("node-added", "a node joins half-way", SUCCEEDED, 30 * MINUTE, |setup| {
        usual(setup);
        setup.upgrade(TO, |_| {});
        setup.when(NodeState::Draining, Some("w-2"), SECOND, Act::AddWorker(node("w-9")));
    }),
    scenario(
        "node-removed",
        "a node is taken out half-way",
        SUCCEEDED,
        30 * MINUTE,
        |setup| {
            usual(setup);
            setup.upgrade(TO, |_| {});
            setup.when(NodeState::Upgrading, Some("w-2"), SECOND, Act::RemoveNode(node("w-2")));
        },
    ),
    scenario(
        "control-plane-removed",
        "a control plane is taken out before its turn",
        SUCCEEDED,
        30 * MINUTE,
        |setup| {
            setup.cluster(5, 2, FROM);
            setup.workloads();
            setup.upgrade(TO, |_| {});
            let act = Act::RemoveNode(node("cp-5"));
            setup.when(NodeState::Upgrading, Some("cp-3"), SECOND, act);
        },
    ),
    scenario(
        "budget-edited",
        "a person lets more workers go at once half-way",
        SUCCEEDED,
        30 * MINUTE,
        |setup| {
            setup.cluster(3, 7, FROM);
            setup.workloads();
            let key = setup.upgrade(TO, |_| {});
            setup.when(NodeState::Draining, Some("w-1"), SECOND, Act::Budget(key, 3));
        },
    ),
    scenario(
        "node-replaced",
        "another machine comes back under the same name",
        SUCCEEDED,
        30 * MINUTE,
        |setup| {
            usual(setup);
            setup.upgrade(TO, |_| {});
            setup.when(NodeState::Draining, Some("w-2"), 50, Act::ReplaceNode(node("w-2")));
            setup.when(NodeState::Staged, Some("w-4"), 50, Act::ReplaceNode(node("w-4")));
        },
    ),
    scenario(
        "abort-staging",
        "aborted before anything is disturbed",
        ABORTED,
        30 * MINUTE,
        |setup| abort_in(setup, NodeState::Staging, None),
    ),
    scenario(
        "abort-staged",
        "aborted as the first node is ready",
        ABORTED,
        30 * MINUTE,
        |setup| abort_in(setup, NodeState::Staged, None),
    ),
    scenario("abort-draining", "aborted in a drain", ABORTED, 30 * MINUTE, |setup| {
        abort_in(setup, NodeState::Draining, Some("w-2"));
    }),
    scenario(
        "abort-standing-aside",
        "aborted as a control plane stands aside",
        ABORTED,
        30 * MINUTE,
        |setup| abort_in(setup, NodeState::StandingAside, None),
    ),
    scenario(
        "abort-upgrading",
        "aborted in the midst of a node's steps",
        ABORTED,
        30 * MINUTE,
        |setup| abort_in(setup, NodeState::Upgrading, None),
    ),
    scenario(
        "abort-verifying",
        "aborted as a node is looked at",
        ABORTED,
        30 * MINUTE,
        |setup| abort_in(setup, NodeState::Verifying, Some("w-2")),
    ),
    scenario(
        "rollback-draining",
        "a person has a node undone in its drain",
        SUCCEEDED,
        30 * MINUTE,
        |setup| rollback_in(setup, NodeState::Draining, "w-2"),
    ),
    scenario(
        "rollback-upgrading",
        "in the midst of its steps",
        SUCCEEDED,
        30 * MINUTE,
        |setup| rollback_in(setup, NodeState::Upgrading, "w-2"),
    ),
    scenario(
        "rollback-verifying",
        "as it is looked at",
        SUCCEEDED,
        30 * MINUTE,
        |setup| rollback_in(setup, NodeState::Verifying, "w-2"),
    ),
    scenario(
        "rollback-succeeded",
        "after it was done",
        SUCCEEDED,
        30 * MINUTE,
        |setup| rollback_in(setup, NodeState::Succeeded, "w-2"),
    ),
    scenario(
        "defer",
        "a person defers a node in its drain",
        SUCCEEDED,
        30 * MINUTE,
        |setup| {
            usual(setup);
            setup.upgrade(TO, |_| {});
            setup.when(
                NodeState::Draining,
                Some("w-2"),
                500,
                Act::Wish(node("w-2"), Wish::Defer),
            );
        },
    ),
];

//! Aborts and undoings in the states that others leave out: of control planes, of nodes that wait or have failed, before anything began and
//! between two hops.

use super::setup::{FROM, TO, node};
use super::words::{ABORTED, FAILED, SUCCEEDED, manual, may_fail, rollback_after, rollback_in, scenario, stuck, usual};
use super::{Scenario, Setup};
use crate::time::{MINUTE, SECOND};
use crate::world::Act;
use afloat_api::NodeState;
use afloat_core::view::Wish;

/// Which control plane: `cp-1` holds the virtual address and goes last.
const FIRST: &str = "cp-2";
const SECOND_ONE: &str = "cp-3";

/// kubeadm fails on a worker, which may be set aside.
fn one_fails(setup: &mut Setup<'_>) -> afloat_core::view::Key {
    usual(setup);
    setup.at(0, Act::KubeadmFails(node("w-2"), 100));
    setup.upgrade(TO, may_fail(1))
}

pub(super) static MOMENTS: &[Scenario] = &[
    scenario(
        "abort-preflight",
        "aborted while a finding holds it back",
        ABORTED,
        30 * MINUTE,
        |setup| {
            stuck(setup);
            let key = setup.upgrade(TO, |_| {});
            setup.at(MINUTE, Act::Abort(key));
        },
    ),
    scenario(
        "abort-paused",
        "aborted while a node waits for a person",
        ABORTED,
        30 * MINUTE,
        |setup| {
            usual(setup);
            let key = setup.upgrade(TO, |spec| manual(spec, &["w-2"]));
            setup.when(NodeState::Paused, Some("w-2"), MINUTE, Act::Abort(key));
        },
    ),
    scenario(
        "abort-rolling-back",
        "aborted while a node that failed is put back",
        ABORTED,
        30 * MINUTE,
        |setup| {
            let key = one_fails(setup);
            setup.when(NodeState::RollingBack, Some("w-2"), 700, Act::Abort(key));
        },
    ),
    scenario(
        "abort-failed",
        "aborted as a node has failed that lost its power and cannot be put back",
        ABORTED,
        30 * MINUTE,
        |setup| {
            usual(setup);
            let key = setup.upgrade(TO, may_fail(1));
            let away = Act::PowerLoss(node("w-2"), None);
            setup.when(NodeState::Upgrading, Some("w-2"), 3 * SECOND, away);
            setup.when(NodeState::Failed, Some("w-2"), 700, Act::Abort(key));
        },
    ),
    scenario(
        "abort-between-hops",
        "aborted when the first of several minor versions is done",
        ABORTED,
        30 * MINUTE,
        |setup| {
            setup.world.far = true;
            setup.cluster(3, 3, FROM);
            setup.workloads();
            let key = setup.upgrade("v1.37.2", |_| {});
            setup.when(NodeState::Succeeded, Some("cp-1"), 50, Act::Abort(key));
        },
    ),
    scenario(
        "rollback-staged",
        "a person has a node undone that is ready and has not begun",
        SUCCEEDED,
        30 * MINUTE,
        |setup| rollback_in(setup, NodeState::Staged, "w-2"),
    ),
    scenario(
        "rollback-paused",
        "while it waits for a person",
        SUCCEEDED,
        30 * MINUTE,
        |setup| {
            usual(setup);
            setup.upgrade(TO, |spec| manual(spec, &["w-2"]));
            let (wish, go) = (Wish::Rollback, Act::Unpause(Some(node("w-2"))));
            setup.when(NodeState::Paused, Some("w-2"), MINUTE, Act::Wish(node("w-2"), wish));
            setup.when(NodeState::Paused, Some("w-2"), 10 * MINUTE, go);
        },
    ),
    scenario(
        "rollback-first-draining",
        "a person has the first control plane undone in its drain",
        FAILED,
        30 * MINUTE,
        |setup| rollback_in(setup, NodeState::Draining, FIRST),
    ),
    scenario(
        "rollback-first-standing-aside",
        "as it stands aside",
        FAILED,
        30 * MINUTE,
        |setup| rollback_in(setup, NodeState::StandingAside, FIRST),
    ),
    scenario(
        "rollback-first-upgrading",
        "in the midst of its steps",
        FAILED,
        30 * MINUTE,
        |setup| rollback_in(setup, NodeState::Upgrading, FIRST),
    ),
    scenario(
        "rollback-first-verifying",
        "as it is looked at",
        FAILED,
        30 * MINUTE,
        |setup| rollback_after(setup, NodeState::Verifying, FIRST, 5),
    ),
    scenario(
        "rollback-first-succeeded",
        "after it was done, when another one has begun, which would have to go back before",
        SUCCEEDED,
        30 * MINUTE,
        |setup| rollback_in(setup, NodeState::Succeeded, FIRST),
    ),
    scenario(
        "rollback-second-draining",
        "a person has a control plane undone that is not the first, in its drain",
        FAILED,
        30 * MINUTE,
        |setup| rollback_in(setup, NodeState::Draining, SECOND_ONE),
    ),
    scenario(
        "rollback-second-standing-aside",
        "as it stands aside",
        FAILED,
        30 * MINUTE,
        |setup| rollback_in(setup, NodeState::StandingAside, SECOND_ONE),
    ),
    scenario(
        "rollback-second-upgrading",
        "in the midst of its steps",
        FAILED,
        30 * MINUTE,
        |setup| rollback_in(setup, NodeState::Upgrading, SECOND_ONE),
    ),
    scenario(
        "rollback-second-verifying",
        "as it is looked at",
        FAILED,
        30 * MINUTE,
        |setup| rollback_after(setup, NodeState::Verifying, SECOND_ONE, 5),
    ),
    scenario(
        "rollback-second-succeeded",
        "after it was done, when the next one is at work: it goes before anybody else is let go",
        FAILED,
        30 * MINUTE,
        |setup| rollback_in(setup, NodeState::Succeeded, SECOND_ONE),
    ),
];

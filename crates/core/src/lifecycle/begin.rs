//! From a new attempt to the drained node: `Staged`, `Paused`, the cordon, `Draining`. Here a disruption starts, so here it is
//! looked once more whether anybody holds the node.

use afloat_api::kubeadm::DesiredNodeState;
use afloat_api::{ConditionType, NodeKubeadmUpgradeStatus, NodeState, ObjectRef, Reason};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::turn::{Turn, before, later};
use super::{drain, upgrading};
use crate::view::{Key, Node};

/// What is only true of one attempt.
const OF_ONE_ATTEMPT: [ConditionType; 5] = [
    ConditionType::Staged,
    ConditionType::Drained,
    ConditionType::StoodAside,
    ConditionType::StepsDone,
    ConditionType::Verified,
];

/// Starts the attempt that is asked for from a clean status; the states of earlier ones stay in the history.
pub(super) fn attempt(turn: &mut Turn<'_>, node: &Node) {
    // Where the last undoing did not work, the node is not what it was: what it was then is still what to go back to.
    let known = match turn.failure_reason() {
        Some(Reason::RollbackFailed) => turn.status.before.take(),
        _ => None,
    };
    let mut seen = known.unwrap_or_else(|| before(node));
    seen.unschedulable = turn.cordoned_by_others(node);
    let ours = turn.status.cordoned_by_afloat && node.cordoned_by.as_ref() == Some(&turn.signature);
    turn.forget(&OF_ONE_ATTEMPT);
    let old = std::mem::take(&mut turn.status);
    turn.status = NodeKubeadmUpgradeStatus {
        attempt: Some(turn.upgrade.spec.attempt),
        history: old.history,
        conditions: old.conditions,
        before: Some(seen),
        cordoned_by_afloat: ours,
        ..NodeKubeadmUpgradeStatus::default()
    };
    turn.enter(NodeState::Pending, None);
}

/// Everything is there. The disruption begins when it may: with the slot, and while nobody holds the node.
pub(super) fn staged(turn: &mut Turn<'_>, node: &Node) {
    let begun =
        turn.old.is_some_and(|old| old.cordoned_by_afloat) && node.cordoned_by.as_ref() == Some(&turn.signature);
    let wanted = turn.upgrade.spec.desired == DesiredNodeState::Upgraded;
    // A cordon that is written already is a disruption that has begun: it is gone through with.
    if !(begun && wanted) && held(turn, node, wanted) {
        return;
    }
    if turn.state() == NodeState::Paused {
        turn.enter(NodeState::Staged, None);
    }
    if !wanted || (turn.settings.aborted && !begun) || turn.settings.unknown {
        return;
    }
    if node.unschedulable && !turn.cordon_is_certain(node) {
        // An old view may still show the cordon of an earlier hop or attempt.
        return;
    }
    if !begun && !turn.may_go(node) {
        return;
    }
    if turn.cordoned_by_others(node) {
        turn.status.cordoned_by_afloat = false;
        if let Some(before) = &mut turn.status.before {
            before.unschedulable = true;
        }
    } else {
        turn.status.cordoned_by_afloat = true;
    }
    if turn.ensure_cordoned(node) {
        turn.enter(NodeState::Draining, Some(turn.settings.drain.timeout));
        turn.status.drain = None;
        drain::count(turn, node);
    }
}

/// Shows who holds the node; `true` where somebody does.
fn held(turn: &mut Turn<'_>, node: &Node, wanted: bool) -> bool {
    let name = &turn.upgrade.spec.node.name;
    let (reason, message, by) = if let Some(why) = &node.pause {
        let why = if &**why == "true" || why.is_empty() {
            String::new()
        } else {
            format!(" ({why})")
        };
        let message = format!("{name} is held{why}: afloat resume {name} lets it go on");
        (Reason::NodePaused, message, Some(turn.node_ref()))
    } else if wanted && turn.settings.paused {
        let by = turn.settings.upgrade.as_ref().map(upgrade_ref);
        let message = "the upgrade is paused: afloat resume lets it go on".to_owned();
        (Reason::PausedByUser, message, by)
    } else {
        return false;
    };
    if turn.state() != NodeState::Paused {
        turn.enter(NodeState::Paused, None);
    }
    turn.wait(reason, &message, by);
    true
}

fn upgrade_ref(key: &Key) -> ObjectRef {
    ObjectRef {
        api_version: Some(format!("{}/{}", afloat_api::GROUP, afloat_api::VERSION)),
        kind: "ClusterUpgrade".to_owned(),
        namespace: Some(key.namespace.to_string()),
        name: key.name.to_string(),
        uid: None,
    }
}

/// Cordoned; its pods leave.
pub(super) fn draining(turn: &mut Turn<'_>, node: &Node) {
    // How long, and whether at all, is for the upgrade to say: an operator that has just started may not have seen it.
    if turn.settings.unknown {
        return;
    }
    let since = turn.status.state_since.as_ref().map_or(turn.now, |since| since.0);
    turn.status.deadline = Some(Time(later(since, turn.settings.drain.timeout)));
    if !turn.ensure_cordoned(node) {
        return;
    }
    if turn.settings.aborted {
        let by = turn.settings.upgrade.as_ref().map(upgrade_ref);
        turn.wait(
            Reason::Aborted,
            "the upgrade was aborted: no further pod is evicted",
            by,
        );
        return;
    }
    if drain::advance(turn, node) {
        upgrading::begin(turn);
    } else if turn.overdue() {
        timed_out(turn);
    }
}

fn timed_out(turn: &mut Turn<'_>) {
    turn.drop_actions();
    if !turn.settings.drain.defer_on_timeout {
        return turn.fail_overdue();
    }
    let wait = turn.status.waiting_for.take();
    let cause = wait
        .as_ref()
        .map_or("its pods have not left", |wait| wait.message.as_str());
    let message = format!("not drained in time: {cause}; it is put back and taken last");
    let blocked_by = wait.as_ref().and_then(|wait| wait.blocked_by.clone());
    turn.record_failure(Reason::Deferred, &message, blocked_by);
    turn.enter(NodeState::RollingBack, Some(super::rollback::ROLLING_BACK));
}

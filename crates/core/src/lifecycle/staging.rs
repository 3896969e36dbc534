//! `Pending` and `Staging`: what the upgrade needs is brought to the node while nothing is disturbed. No slot is needed for it.

use afloat_api::{ConditionType, NodeState, Reason};
use jiff::SignedDuration;

use super::pods::Progress;
use super::turn::Turn;
use crate::action::Task;
use crate::objects::earlier_hop_is_open;
use crate::view::Node;

const STAGING: SignedDuration = SignedDuration::from_mins(30);

pub(super) fn pending(turn: &mut Turn<'_>, node: &Node) {
    if turn.settings.aborted {
        return;
    }
    if turn.upgrade.spec.stage.is_none() {
        return staged(
            turn,
            Reason::NotApplicable,
            "nothing has to be brought to the node beforehand",
        );
    }
    if !node.ready.ready {
        // A machine that is away fails nothing before its turn: it may be back until then.
        let message = format!("node {} is not Ready: nothing can be brought to it", node.name);
        turn.wait(Reason::WaitingForNode, &message, Some(turn.node_ref()));
        return;
    }
    if earlier_hop_is_open(turn.view, turn.upgrade) {
        // One machine has one journal and one bundle: those of the hop before are still needed.
        let message = format!("node {} is not at the version before this one yet", node.name);
        turn.wait(Reason::WaitingForEarlierNode, &message, Some(turn.node_ref()));
        return;
    }
    if !turn.has_cluster() {
        return;
    }
    turn.enter(NodeState::Staging, Some(STAGING));
    turn.create_pod(Task::Stage);
}

pub(super) fn staging(turn: &mut Turn<'_>) {
    match turn.follow(Task::Stage) {
        Progress::Done => staged(turn, Reason::Succeeded, "binaries and images are on the node"),
        Progress::Failed(failure) | Progress::Undone(failure) => {
            turn.fail(Reason::StepFailed, &failure.message, failure.pod);
        }
        Progress::NoPod | Progress::Working if turn.overdue() => turn.fail_overdue(),
        Progress::NoPod => turn.create_pod(Task::Stage),
        Progress::Working => {}
    }
}

fn staged(turn: &mut Turn<'_>, reason: Reason, message: &str) {
    turn.enter(NodeState::Staged, None);
    turn.status.current_step = None;
    turn.status.pod = None;
    turn.condition(ConditionType::Staged, true, reason, message);
}

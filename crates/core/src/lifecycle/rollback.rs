//! Back to how it was: after a failure, or because somebody asks. What was changed on the machine is undone by a pod on it; the
//! cordon is taken back if it is ours. An undoing that does not work is shown, not repeated.

use std::str::FromStr as _;

use afloat_api::kubeadm::Failure;
use afloat_api::{ConditionType, NodeState, Reason, annotations};
use jiff::SignedDuration;

use super::drain;
use super::pods::Progress;
use super::turn::Turn;
use super::verify::{self, Goal};
use crate::action::Task;
use crate::view::Node;

pub(super) const ROLLING_BACK: SignedDuration = SignedDuration::from_mins(30);

/// Somebody asks for it: through `desired`, or by deleting the object.
pub(super) fn begin(turn: &mut Turn<'_>, node: &Node) {
    let was = turn.state();
    let said = turn.upgrade.metadata.annotations.as_ref();
    let said = said.and_then(|annotations| annotations.get(annotations::BECAUSE));
    let reason = said
        .and_then(|word| Reason::from_str(word).ok())
        .unwrap_or(Reason::RolledBack);
    let message = match reason {
        Reason::Deferred => "put back as it was, and taken last, as was asked for",
        Reason::Aborted => "put back because the upgrade was aborted",
        _ => "put back as was asked for",
    };
    turn.record_failure(reason, message, None);
    turn.status.completed = false;
    turn.forget(&[ConditionType::StepsDone, ConditionType::Verified]);
    let mut allowance = ROLLING_BACK;
    if was == NodeState::Succeeded {
        // It is in service again: it has to be drained once more before anything on it is touched.
        turn.forget(&[ConditionType::Drained, ConditionType::StoodAside]);
        turn.status.drain = None;
        allowance = allowance.saturating_add(turn.settings.drain.timeout);
    }
    turn.enter(NodeState::RollingBack, Some(allowance));
    rolling_back(turn, node);
}

/// A failure was recorded: what was done so far is undone.
pub(super) fn failed(turn: &mut Turn<'_>, node: &Node) {
    if !turn.failed_for_good() {
        turn.enter(NodeState::RollingBack, Some(ROLLING_BACK));
        rolling_back(turn, node);
    }
}

pub(super) fn rolling_back(turn: &mut Turn<'_>, node: &Node) {
    if !turn.touched() {
        return give_back(turn, node);
    }
    let undone = turn.failure_reason() == Some(Reason::UndoneByHost) || turn.rolled_back();
    if !undone && !undo(turn, node) {
        return;
    }
    if let Some(pod) = turn.task_pod(Task::Upgrade) {
        turn.remove_pod(pod);
    }
    match verify::problem(turn, node, &Goal::origin(turn)) {
        Some(problem) => {
            turn.wait(problem.reason, &problem.message, problem.by);
            if turn.overdue() {
                not_undone(turn, &problem.message);
            }
        }
        None => give_back(turn, node),
    }
}

/// The pod that undoes; `true` once it has.
fn undo(turn: &mut Turn<'_>, node: &Node) -> bool {
    let ready = turn.ensure_cordoned(node) && drain::advance(turn, node) && upgrade_pod_gone(turn);
    if ready {
        match turn.follow(Task::Rollback) {
            Progress::Done | Progress::Undone(_) => {
                turn.status.current_step = None;
                return true;
            }
            Progress::Failed(failure) => {
                not_undone(turn, &failure.message);
                return false;
            }
            Progress::NoPod if !turn.overdue() => turn.create_pod(Task::Rollback),
            Progress::NoPod | Progress::Working => {}
        }
    }
    if turn.overdue() {
        turn.drop_actions();
        let wait = turn.status.waiting_for.as_ref();
        let cause = wait.map_or_else(|| "it took longer than it may".to_owned(), |wait| wait.message.clone());
        not_undone(turn, &cause);
    }
    false
}

/// Two pods must not have their hands on one machine.
fn upgrade_pod_gone(turn: &mut Turn<'_>) -> bool {
    let Some(pod) = turn.task_pod(Task::Upgrade) else {
        return true;
    };
    turn.remove_pod(pod);
    let message = format!("pod {} has to end before its work is undone", pod.key);
    turn.wait(
        Reason::WaitingForPodTermination,
        &message,
        Some(super::turn::pod_ref(pod)),
    );
    false
}

fn give_back(turn: &mut Turn<'_>, node: &Node) {
    if turn.uncordon(node) {
        return;
    }
    turn.enter(NodeState::RolledBack, None);
    turn.mark_undone();
    turn.forget(&[ConditionType::Drained, ConditionType::StoodAside]);
    turn.status.current_step = None;
    turn.status.pod = None;
    turn.status.drain = None;
}

/// The node stays cordoned: nobody knows what it is good for.
fn not_undone(turn: &mut Turn<'_>, cause: &str) {
    let first = turn.status.failure.take();
    let message = match &first {
        Some(Failure { message, .. }) => format!("it could not be put back: {cause}; before that: {message}"),
        None => format!("it could not be put back: {cause}"),
    };
    let by = turn.status.waiting_for.take().and_then(|wait| wait.blocked_by);
    turn.fail(Reason::RollbackFailed, &message, by.or_else(|| Some(turn.node_ref())));
}

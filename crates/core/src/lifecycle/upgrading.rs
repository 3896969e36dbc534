//! `StandingAside` and `Upgrading`: one pod runs the steps on the drained node, and is followed. The pod may come and go; the
//! journal on the host is what goes on.

use afloat_api::node::steps;
use afloat_api::{ConditionType, NodeState, Reason};
use jiff::SignedDuration;

use super::drain;
use super::pods::Progress;
use super::turn::Turn;
use super::verify;
use crate::action::Task;
use crate::view::Node;

/// For a step that says nothing about how long it takes.
const STEP: i32 = 1800;
/// After which the host undoes its work by itself, where the spec does not say.
const UNDO_AFTER: i32 = 900;
/// By how much the host's own deadline comes before ours: it knows better what to undo.
const AFTER_THE_HOST: i64 = 300;

/// The node is drained: the steps may start.
pub(super) fn begin(turn: &mut Turn<'_>) {
    let first = turn.upgrade.spec.steps.first();
    let state = if first.is_some_and(|step| step.name == steps::STAND_ASIDE) {
        NodeState::StandingAside
    } else {
        NodeState::Upgrading
    };
    turn.enter(state, Some(allowance(turn)));
    turn.create_pod(Task::Upgrade);
}

/// All steps together, and not before the host had its chance to put itself back.
fn allowance(turn: &Turn<'_>) -> SignedDuration {
    let spec = &turn.upgrade.spec;
    let seconds = spec
        .steps
        .iter()
        .map(|step| i64::from(step.timeout_seconds.unwrap_or(STEP)));
    let host = i64::from(spec.undo_after_seconds.unwrap_or(UNDO_AFTER)) + AFTER_THE_HOST;
    SignedDuration::from_secs(seconds.sum::<i64>().max(host))
}

pub(super) fn upgrading(turn: &mut Turn<'_>, node: &Node) {
    let progress = turn.follow(Task::Upgrade);
    if matches!(progress, Progress::Working) && !node.ready.ready && turn.status.waiting_for.is_none() {
        // The pod says nothing then, and its last word is that a step runs.
        let message = format!(
            "node {} is not Ready; its host goes on by itself once it is back",
            node.name
        );
        turn.wait(Reason::WaitingForNode, &message, Some(turn.node_ref()));
    }
    match progress {
        Progress::Done => done(turn, node),
        Progress::Failed(failure) => turn.fail(Reason::StepFailed, &failure.message, failure.pod),
        Progress::Undone(failure) => turn.fail(Reason::UndoneByHost, &failure.message, failure.pod),
        Progress::NoPod | Progress::Working if turn.overdue() => turn.fail_overdue(),
        Progress::NoPod => {
            // It is not there because a pod was still on the node that no watch had told of, or somebody removed it.
            if turn.ensure_cordoned(node) && drain::advance(turn, node) {
                turn.create_pod(Task::Upgrade);
            }
        }
        Progress::Working => {
            // Only while its steps run: where they have ended, the node may be given back in this very turn.
            turn.ensure_cordoned(node);
            pass_on(turn);
        }
    }
}

/// Once the node stands aside, the steps proper run.
fn pass_on(turn: &mut Turn<'_>) {
    let aside = turn.status.current_step.as_deref() == Some(steps::STAND_ASIDE);
    if turn.state() == NodeState::StandingAside && !aside {
        let wait = turn.status.waiting_for.take();
        turn.enter(NodeState::Upgrading, Some(allowance(turn)));
        turn.status.waiting_for = wait;
        stood_aside(turn);
    }
}

fn stood_aside(turn: &mut Turn<'_>) {
    let message = "new API connections go to the other control planes";
    turn.condition(ConditionType::StoodAside, true, Reason::Succeeded, message);
}

fn done(turn: &mut Turn<'_>, node: &Node) {
    if turn.state() == NodeState::StandingAside {
        stood_aside(turn);
    }
    turn.status.current_step = None;
    turn.condition(ConditionType::StepsDone, true, Reason::Succeeded, "every step is done");
    turn.enter(NodeState::Verifying, Some(verify::VERIFYING));
    verify::verifying(turn, node);
}

//! The life of one node, from `Pending` to `Succeeded` or back to how it was: what follows now from what is seen of its
//! NodeKubeadmUpgrade, its Node and its pods. Which node may begin, and when, is the judge's; what a step does on the machine
//! is in `afloat-node`.
//!
//! Whatever is done to a node is preceded by a write to the status of its NodeKubeadmUpgrade in the same turn: that write carries
//! the revision, so that whoever decides on an out-of-date view is refused before it has touched anything.

mod alone;
mod begin;
mod conditions;
pub(crate) mod drain;
mod pods;
mod rollback;
mod staging;
mod turn;
mod upgrading;
mod verify;

pub use drain::has_to_leave;

#[cfg(test)]
mod tests;

use afloat_api::kubeadm::DesiredNodeState;
use afloat_api::{NodeKubeadmUpgrade, NodeState, Reason};
use jiff::Timestamp;

use crate::action::{Action, Decision};
use crate::objects::{Standing, target_of};
use crate::view::{Key, Node, View};
use turn::Turn;

/// What follows for the NodeKubeadmUpgrade with this key.
pub fn decide_node(view: &View, key: &Key, now: Timestamp) -> Decision {
    let Some(upgrade) = view.node_upgrade(key) else {
        return Decision::default();
    };
    if is_settled(view, upgrade) {
        return Decision::default();
    }
    let mut turn = Turn::new(view, upgrade, now);
    live(&mut turn);
    turn.give_lock_back();
    turn.finish()
}

/// Whether all about a node is done and said, and nobody wants anything else: so it is for most nodes whenever an operator starts.
fn is_settled(view: &View, upgrade: &NodeKubeadmUpgrade) -> bool {
    let (spec, meta) = (&upgrade.spec, &upgrade.metadata);
    let Some(status) = &upgrade.status else { return false };
    let ended = match status.state {
        Some(NodeState::Succeeded) => spec.desired != DesiredNodeState::RolledBack,
        Some(NodeState::RolledBack) => true,
        _ => false,
    };
    let said = status.attempt == Some(spec.attempt)
        && status.observed_generation == meta.generation
        && status.deadline.is_none()
        && status.waiting_for.is_none();
    let is_free = |node: &Node| node.uid.as_str() == spec.node.uid && node.cordoned_by.is_none();
    let name = spec.node.name.as_str();
    // Taken by whoever had not seen that it is over: nobody else gives it back.
    let holds_lock = || {
        view.lock
            .as_ref()
            .is_some_and(|lock| meta.uid.as_deref() == Some(lock.holder.as_str()))
    };
    ended
        && said
        && !holds_lock()
        && meta.deletion_timestamp.is_none()
        && view.nodes.get(name).is_some_and(|node| is_free(node))
        && view.tasks_on(name).next().is_none()
}

fn live(turn: &mut Turn<'_>) {
    let Some(node) = turn.node else {
        if turn.nodes_are_current() {
            without_node(turn);
        }
        return;
    };
    if turn.deleting() && turn.at_rest() {
        // Nobody knows what a node is good for that could not be put back: it stays cordoned for whoever looks at it.
        let broken = turn.state() == NodeState::Failed && turn.failure_reason() == Some(Reason::RollbackFailed);
        if broken || !turn.uncordon(node) {
            release(turn);
        }
        return;
    }
    if turn.attempt() < turn.upgrade.spec.attempt && turn.at_rest() {
        begin::attempt(turn, node);
    }
    turn.remove_finished_pods();
    if turn.must_go_back() {
        if turn.state() == NodeState::Succeeded && !turn.may_go_back(node) {
            return;
        }
        return rollback::begin(turn, node);
    }
    match turn.state() {
        NodeState::Pending => staging::pending(turn, node),
        NodeState::Staging => staging::staging(turn),
        NodeState::Staged | NodeState::Paused => begin::staged(turn, node),
        NodeState::Draining => begin::draining(turn, node),
        NodeState::StandingAside | NodeState::Upgrading => upgrading::upgrading(turn, node),
        NodeState::Verifying => verify::verifying(turn, node),
        NodeState::Failed => rollback::failed(turn, node),
        NodeState::RollingBack => rollback::rolling_back(turn, node),
        NodeState::Succeeded | NodeState::RolledBack => take_back_late_cordon(turn, node),
        // The others are Rancher's.
        _ => {}
    }
}

/// A replica that is no longer the one to act may have sent a request that came after the end: the cordon is nobody else's to take back.
fn take_back_late_cordon(turn: &mut Turn<'_>, node: &Node) {
    // Without the second it would be said and unsaid again for a cordon that stays.
    if node.cordoned_by.as_ref() != Some(&turn.signature) || !turn.has_been_staged() {
        return;
    }
    if !turn.upgrades_are_current(node) {
        // Nobody may ever write one of them again, and only what is written is heard of: saying so is such a write.
        let message =
            "a cordon of this upgrade came after its end; it is taken back when nothing else is seen to want it";
        turn.wait(Reason::WaitingForNode, message, Some(turn.node_ref()));
        turn.look_soon();
    } else if turn.cordon_is_ours(node) {
        turn.uncordon(node);
    }
}

/// The machine left the cluster, or another one came under its name: there is nothing to put back, and what we had there must
/// not run on its successor.
fn without_node(turn: &mut Turn<'_>) {
    if turn.deleting() {
        return release(turn);
    }
    turn.remove_all_pods();
    // One that was to be undone has not ended, and never will: whoever keeps a place free for it has to hear of that.
    let asked_again = turn.attempt() < turn.upgrade.spec.attempt;
    if Standing::of(turn.upgrade).ended() && !asked_again {
        return;
    }
    turn.status.attempt = Some(turn.upgrade.spec.attempt);
    turn.status.failure = None;
    let name = &turn.upgrade.spec.node.name;
    let message = format!(
        "node {name} with uid {} is not in the cluster any more; a machine that joins anew gets an upgrade of its own",
        turn.upgrade.spec.node.uid
    );
    turn.fail(Reason::ObjectGone, &message, Some(turn.node_ref()));
}

fn release(turn: &mut Turn<'_>) {
    if turn.let_lock_go() {
        // With its machine gone no change of the lock would lead back here.
        return turn.look_soon();
    }
    let finalizers = turn.upgrade.metadata.finalizers.as_deref().unwrap_or_default();
    if finalizers.iter().any(|name| name == afloat_api::names::FINALIZER) {
        let target = target_of(&turn.upgrade.metadata);
        turn.instead_of_status(Action::RemoveNodeFinalizer { target });
    }
}

impl Turn<'_> {
    /// Undoing is asked for, by whoever: through `desired`, by deleting the object, or by a new attempt while one goes on.
    fn must_go_back(&self) -> bool {
        let ended = match self.state() {
            NodeState::Succeeded => {
                return self.upgrade.spec.desired == DesiredNodeState::RolledBack
                    && self.attempt() == self.upgrade.spec.attempt;
            }
            // What follows on a failure is the same undoing.
            NodeState::RolledBack | NodeState::RollingBack | NodeState::Failed => true,
            _ => false,
        };
        !ended
            && (self.upgrade.spec.desired == DesiredNodeState::RolledBack
                || self.deleting()
                || self.attempt() < self.upgrade.spec.attempt)
    }

    /// Nothing is under way on the machine: not begun, or ended.
    fn at_rest(&self) -> bool {
        match self.state() {
            NodeState::Failed => self.failed_for_good(),
            state => matches!(
                state,
                NodeState::Pending
                    | NodeState::Staging
                    | NodeState::Staged
                    | NodeState::Paused
                    | NodeState::Succeeded
                    | NodeState::RolledBack
            ),
        }
    }
}

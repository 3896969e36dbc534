//! What people ask for single nodes, heard by the group's turn: recorded in the node's own object first, then taken off the Node.

use std::sync::Arc;

use afloat_api::clusterupgrade::Slot;
use afloat_api::kubeadm::DesiredNodeState;
use afloat_api::{Reason, annotations};

use super::group::Turn;
use super::undoing::{is_latest, undo_refused};
use crate::action::{Action, Event, EventObject};
use crate::objects::Standing;
use crate::view::{Node, Wish};

impl Turn<'_> {
    /// What people asked for single nodes.
    pub(super) fn hear_wishes(&mut self, slots: &[Slot]) {
        for (standing, node) in self.members.nodes.with_nodes(self.view) {
            let Some(node) = node.filter(|node| node.uid.as_str() == standing.node_uid()) else {
                continue;
            };
            let holds = slots.iter().any(|slot| slot.undoing && standing.holds(slot));
            let heard = node.wish.filter(|_| is_latest(self.view, standing));
            // A slot to undo it is the wish on record: it stands also when the Node no longer shows it, and when the object of the next hop
            // was made meanwhile and has heard it too.
            let recorded = (holds && standing.succeeded()).then_some(Wish::Rollback);
            match heard.or(recorded) {
                Some(Wish::Defer) => self.defer(standing, node),
                Some(Wish::Rollback) => self.roll_back(standing, node, holds, heard.is_some()),
                None => {}
            }
        }
    }

    fn defer(&mut self, standing: Standing<'_>, node: &Node) {
        let attempt = standing.upgrade.spec.attempt;
        if standing.ended() || !self.at_work() {
            self.tell(node, "there is nothing to defer: the node is not being upgraded");
        } else if standing.in_flight() {
            if standing.desired() != DesiredNodeState::RolledBack {
                self.set_desired(standing, DesiredNodeState::RolledBack, attempt, Some(Reason::Deferred));
            }
        } else if !put_off_already(standing) {
            let because = Some(Reason::Deferred);
            self.set_desired(standing, DesiredNodeState::Staged, attempt + 1, because);
        }
        self.decision.actions.push(Action::ClearWish { node: node.target() });
    }

    /// Undoing is a disruption: it waits for its slot, and for a control plane it ends with the first worker. The wish goes from the Node
    /// where it was heard there.
    fn roll_back(&mut self, standing: Standing<'_>, node: &Node, holds: bool, heard: bool) {
        let attempt = standing.upgrade.spec.attempt;
        if let Some(why) = undo_refused(self.view, standing) {
            if heard {
                self.tell(node, &why);
            }
        } else if standing.desired() != DesiredNodeState::RolledBack {
            if !standing.succeeded() || holds {
                let because = Some(Reason::RolledBack);
                self.set_desired(standing, DesiredNodeState::RolledBack, attempt, because);
            } else if self.upgrade.is_some() || !self.deleting() {
                return;
            } else if heard {
                self.tell(node, "it is not undone any more: its group is being deleted");
            }
        }
        if heard {
            self.decision.actions.push(Action::ClearWish { node: node.target() });
        }
    }

    fn tell(&mut self, node: &Node, message: &str) {
        self.decision.events.push(Event {
            object: EventObject::Node(node.target()),
            warning: true,
            reason: Reason::NotApplicable,
            message: Arc::from(message),
        });
    }
}

/// The wish was recorded and could not be taken off the Node: hearing it again would count as another attempt.
fn put_off_already(standing: Standing<'_>) -> bool {
    let annotations = standing.upgrade.metadata.annotations.as_ref();
    let because = annotations.and_then(|annotations| annotations.get(annotations::BECAUSE));
    standing.upgrade.spec.attempt > 1 && because.is_some_and(|because| *because == Reason::Deferred.to_string())
}

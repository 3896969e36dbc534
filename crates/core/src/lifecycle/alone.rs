//! The upgrade of a control plane that nobody owns. No ledger grants it a slot: it takes the lock of the cluster itself, from before anything
//! is brought to its machine until it is over, and goes behind the same gates as others. That of a worker goes when whoever made it says so.

use std::sync::Arc;

use afloat_api::kubeadm::DesiredNodeState;
use afloat_api::{NodeRole, NodeState};

use super::turn::Turn;
use crate::action::Action;
use crate::gates::{self, Closed};
use crate::judge;
use crate::objects::uid_of;
use crate::settings::controller;
use crate::view::{Lock, Node};

impl Turn<'_> {
    /// Whether things may be brought to the machine: what another brings there makes them void.
    pub fn has_cluster(&mut self) -> bool {
        !self.stands_alone() || self.takes_lock_unless(self.taken_by_another())
    }

    /// Whether its disruption may begin.
    pub fn may_go(&mut self, node: &Node) -> bool {
        // Nobody can accept here that etcd loses its quorum.
        !self.stands_alone() || self.takes_lock_unless(self.closed(node, false))
    }

    /// Whether it may be undone, which disrupts as the upgrade did.
    pub fn may_go_back(&mut self, node: &Node) -> bool {
        !self.stands_alone() || self.takes_lock_unless(self.closed(node, true))
    }

    fn stands_alone(&self) -> bool {
        let owners = self.upgrade.metadata.owner_references.as_deref();
        self.upgrade.spec.role != NodeRole::Worker && controller(owners).is_none()
    }

    fn taken_by_another(&self) -> Option<Closed> {
        judge::taken_by_another(self.view, uid_of(&self.upgrade.metadata).as_str())
    }

    fn closed(&self, node: &Node, downtime_accepted: bool) -> Option<Closed> {
        let gate = || gates::control_plane(self.view, node, downtime_accepted).err();
        self.taken_by_another()
            .or_else(|| judge::wounded(self.view, &self.signature))
            .or_else(|| gate().map(|closed| *closed))
    }

    /// That it is seen to have the lock already proves nothing: it gives it back when it is over, which its watch may not have told.
    fn takes_lock_unless(&mut self, closed: Option<Closed>) -> bool {
        if let Some(closed) = closed {
            self.wait(closed.reason, &closed.message, closed.blocked_by);
            return false;
        }
        let meta = &self.upgrade.metadata;
        self.act_before(Action::TakeLock {
            namespace: Arc::clone(&self.view.home),
            holder: uid_of(meta),
            kind: "NodeKubeadmUpgrade",
            name: Arc::from(meta.name.as_deref().unwrap_or_default()),
        });
        true
    }

    /// At the end of a turn: the lock goes to whoever waits for it, where nothing is under way here nor about to be.
    pub fn give_lock_back(&mut self) {
        if self.lock_held().is_some() && !self.deleting() && !self.has_act_before() && !self.needs_lock() {
            self.let_lock_go();
        }
    }

    /// Gives the lock back; `false` where it has none.
    pub fn let_lock_go(&mut self) -> bool {
        let Some(lock) = self.lock_held().map(|lock| lock.target.clone()) else {
            return false;
        };
        self.act_guarded(Action::ReleaseLock { lock });
        true
    }

    fn lock_held(&self) -> Option<&Lock> {
        let lock = self.view.lock.as_ref()?;
        (self.upgrade.metadata.uid.as_deref() == Some(lock.holder.as_str())).then_some(lock)
    }

    fn needs_lock(&mut self) -> bool {
        match self.state() {
            NodeState::Failed => !self.failed_for_good(),
            NodeState::Staged | NodeState::Paused => {
                self.upgrade.spec.desired == DesiredNodeState::Upgraded || self.may_be_cordoned()
            }
            NodeState::Pending | NodeState::Succeeded | NodeState::RolledBack => self.may_be_cordoned(),
            _ => true,
        }
    }

    /// By this upgrade. An old view may not show it yet.
    fn may_be_cordoned(&mut self) -> bool {
        let Some(node) = self.node else { return false };
        node.cordoned_by.as_ref() == Some(&self.signature)
            || (self.status.cordoned_by_afloat && !self.cordon_is_certain(node))
    }
}

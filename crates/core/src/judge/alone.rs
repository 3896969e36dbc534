//! A group that no ClusterUpgrade stands above: it grants by a ledger of its own, under the lock of the cluster, and gives all of it back.

use std::sync::Arc;

use afloat_api::clusterupgrade::Slot;
use afloat_api::{GroupUpgradeStatus, NodeState, Reason, annotations, names};

use super::group::Turn;
use super::roster::{Group, Roster};
use super::slots::{self, Granted, Granting};
use super::undoing::{is_wished, undo_refused};
use super::{children, lock};
use crate::action::Action;
use crate::gates::Closed;
use crate::objects::Standing;
use crate::plan::{Stage, StageKind};
use crate::view::{NodeName, Uid, View};

/// Held by a group that stands alone from before its first slot: deleted, it puts back what it has in hand before it goes, and the lock of the
/// cluster with it.
pub(super) fn holds_finalizer(group: Group<'_>) -> bool {
    let finalizers = group.meta().finalizers.as_deref().unwrap_or_default();
    finalizers.iter().any(|finalizer| finalizer == names::FINALIZER)
}

/// Whether things may be brought to a group's nodes.
pub(super) enum HasCluster {
    Yes,
    /// What comes first is being done.
    NotYet,
    No,
}

impl Turn<'_> {
    /// Whoever brings things to a machine has the cluster: what another has brought there is void then, and its work would fail.
    pub(super) fn has_cluster(&mut self, slots: &[Slot]) -> HasCluster {
        if self.upgrade.is_some() {
            // Its upgrade had the lock before it made the group.
            return HasCluster::Yes;
        }
        // After a failure nobody goes, and the lock is given back; without room nothing is brought now.
        let goes_on = !self.members.nodes.iter().any(Standing::failed) && self.room_to_stage() > 0;
        let new = goes_on && super::group::missing(self.view, &self.members).next().is_some();
        let Some(stage) = self
            .stage()
            .filter(|_| new && !self.deleting() && !self.group().paused())
        else {
            return HasCluster::No;
        };
        if lock::taken_by_another(self.view, self.group().uid()).is_some() || self.cannot_start(&stage).is_some() {
            return HasCluster::No;
        }
        if self.is_prepared(slots) {
            HasCluster::Yes
        } else {
            HasCluster::NotYet
        }
    }

    /// Whether something is being brought to a machine: another upgrade that has the cluster would bring its own there.
    pub(super) fn is_bringing(&self) -> bool {
        let mut nodes = self.members.nodes.iter();
        nodes.any(|standing| standing.state() == NodeState::Staging)
    }

    /// Who may go next, and where that is nobody, whose upgrade may be undone.
    pub(super) fn grant_alone(&mut self, slots: &[Slot]) -> Granted {
        if self.deleting() {
            return Granted::default();
        }
        if self.group().paused() {
            let standings = || self.members.nodes.iter();
            let goes_on = !self.machines_over() && !standings().any(Standing::failed);
            let undone = standings().any(|standing| is_wished(self.view, standing));
            // Where nobody is to go, nobody is held.
            return if goes_on || undone {
                held_back(NodeName::from(""), paused_by_user())
            } else {
                Granted::default()
            };
        }
        let mut granted = self.grant_next(slots);
        if slots.is_empty() && granted.slots.is_empty() {
            let undoing = self.grant_undoing();
            granted.slots = undoing.slots;
            granted.held.extend(undoing.held);
        }
        granted
    }

    fn grant_next(&mut self, slots: &[Slot]) -> Granted {
        let Some(stage) = self.stage() else {
            return Granted::default();
        };
        if self.members.nodes.iter().any(Standing::failed) || self.machines_over() {
            return Granted::default();
        }
        let closed = lock::taken_by_another(self.view, self.group().uid());
        let closed = closed.or_else(|| self.too_new(&stage)).or_else(|| self.wounded(&stage));
        let mut granted = match closed {
            Some(closed) => held_back(NodeName::from(""), closed),
            None => self.grant_stage(&stage, slots),
        };
        // Said before what ends by itself: only a person ends this. Those that have begun go on.
        if let Some(closed) = self.cannot_start(&stage) {
            granted.held.insert(0, (NodeName::from(""), closed));
        }
        granted
    }

    fn grant_stage(&mut self, stage: &Stage, slots: &[Slot]) -> Granted {
        let roster = Roster::of_groups(self.view, vec![self.group()]);
        let granting = Granting {
            view: self.view,
            roster: &roster,
            stage,
            settings: &self.settings,
            upgrade: None,
            // Nobody can accept it for a group that stands alone.
            downtime_accepted: false,
            ledger_as_of: self.group().target().revision,
            now: self.now,
        };
        let granted = granting.grant(slots);
        if granted.behind {
            self.see_nodes_since_ledger();
        }
        granted
    }

    /// A slot for a node whose upgrade a person wants undone: it is drained once more.
    fn grant_undoing(&mut self) -> Granted {
        let is_wished = |standing: &Standing<'_>| {
            standing.succeeded() && is_wished(self.view, *standing) && undo_refused(self.view, *standing).is_none()
        };
        let wished = self.members.nodes.iter().find(is_wished);
        let there = wished.and_then(|standing| Some((standing, self.view.nodes.get(standing.node())?)));
        let Some((standing, node)) = there else {
            return Granted::default();
        };
        if let Some(closed) = lock::taken_by_another(self.view, self.group().uid()) {
            return held_back(node.name.clone(), closed);
        }
        let ledger_as_of = self.group().target().revision;
        if let Some(closed) = slots::keeps_from_undoing(self.view, node, standing, &self.settings, ledger_as_of) {
            self.see_nodes_since_ledger();
            return held_back(node.name.clone(), closed);
        }
        let slot = Slot {
            undoing: true,
            ..standing.slot(self.now)
        };
        Granted {
            slots: vec![slot],
            ..Granted::default()
        }
    }

    /// Before the first slot of a ledger is written: the finalizer is held, and the lock is this group's. That it is seen to be proves
    /// nothing then: it is given back with an empty ledger, which its watch may not have told yet.
    pub(super) fn is_prepared(&mut self, slots: &[Slot]) -> bool {
        let target = self.group().target();
        if !holds_finalizer(self.group()) {
            self.decision.actions.push(Action::SetGroupFinalizer {
                target,
                of: self.group().kind(),
                present: true,
            });
            return false;
        }
        let asked = |action: &Action| matches!(action, Action::TakeLock { .. });
        if slots.is_empty() && !self.decision.actions.iter().any(asked) {
            self.decision.actions.push(Action::TakeLock {
                namespace: Arc::clone(&self.view.home),
                holder: target.uid,
                kind: self.group().word(),
                name: target.key.name,
            });
        }
        true
    }

    fn wounded(&self, stage: &Stage) -> Option<Closed> {
        let own = &self.group().target().uid;
        wounded(self.view, own).filter(|_| stage.kind == StageKind::ControlPlane)
    }

    /// Gives the lock of the cluster back where nobody is to go any more, and with it a group that is being deleted: by what is on record.
    pub(super) fn give_back(&mut self, status: &GroupUpgradeStatus, nobody_is_to_go: bool) {
        let group = self.group();
        let on_record = status.slots.is_empty() && status.in_flight.is_empty() && group.status() == Some(status);
        if self.upgrade.is_some() || !on_record || !nobody_is_to_go {
            return;
        }
        let lock = self.view.lock.as_ref();
        match lock.filter(|lock| lock.holder.as_str() == group.uid()) {
            Some(lock) => {
                // Says nothing new, and is refused where the group is not as it is seen: one who has seen less may not know of a slot.
                let lock = lock.target.clone();
                self.write_status(status.clone());
                self.decision.actions.push(Action::ReleaseLock { lock });
            }
            None if self.deleting() => self.decision.actions.push(Action::SetGroupFinalizer {
                target: group.target(),
                of: group.kind(),
                present: false,
            }),
            None => {}
        }
    }
}

/// Never on with a wounded control plane: one that another upgrade has cordoned and could not put back.
pub(crate) fn wounded(view: &View, own: &Uid) -> Option<Closed> {
    let mut planes = view.control_plane_nodes();
    let node = planes.find(|node| node.cordoned_by.as_ref().is_some_and(|by| by != own))?;
    Some(Closed {
        reason: Reason::WaitingForNode,
        message: format!(
            "control plane {0} is cordoned by another upgrade, which has not put it back: look at it, then kubectl uncordon {0}, \
             and kubectl annotate node {0} {1}-",
            node.name,
            annotations::CORDONED_BY
        ),
        blocked_by: Some(children::machine(node)),
        until: None,
    })
}

fn held_back(node: NodeName, closed: Closed) -> Granted {
    Granted {
        held: vec![(node, closed)],
        ..Granted::default()
    }
}

fn paused_by_user() -> Closed {
    Closed {
        reason: Reason::PausedByUser,
        message: "spec.paused is true: it goes on when that is taken back".to_owned(),
        blocked_by: None,
        until: None,
    }
}

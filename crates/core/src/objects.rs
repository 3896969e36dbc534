//! Small questions to our own API objects that several decisions ask: which object in which state, owned by whom, how far.

use std::str::FromStr as _;

use afloat_api::clusterupgrade::Slot;
use afloat_api::kubeadm::DesiredNodeState;
use afloat_api::{NodeKubeadmUpgrade, NodeRole, NodeState, Reason};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta, Time};

use crate::settings::{controller, upgrade_uid};
use crate::version::KubernetesVersion;
use crate::view::{Key, Revision, Target, Uid, View};

/// Namespace and name.
pub fn key_of(meta: &ObjectMeta) -> Key {
    Key::new(
        meta.namespace.as_deref().unwrap_or_default(),
        meta.name.as_deref().unwrap_or_default(),
    )
}

pub fn uid_of(meta: &ObjectMeta) -> Uid {
    Uid::from(meta.uid.as_deref().unwrap_or_default())
}

/// The state an object was seen in.
pub fn revision_of(meta: &ObjectMeta) -> Revision {
    let revision = meta.resource_version.as_deref().and_then(|text| text.parse().ok());
    Revision(revision.unwrap_or_default())
}

/// The object in the state it was seen in.
pub fn target_of(meta: &ObjectMeta) -> Target {
    Target {
        key: key_of(meta),
        uid: uid_of(meta),
        revision: revision_of(meta),
    }
}

/// Whether `meta` is controlled by the object with this uid.
pub fn owned_by(meta: &ObjectMeta, uid: &str) -> bool {
    controller(meta.owner_references.as_deref()).is_some_and(|owner| owner.uid == uid)
}

/// How often a node is tried before it counts as failed.
pub const MAX_ATTEMPTS: i32 = 4;

/// How one node's upgrade stands, in the words decisions are made with.
#[derive(Clone, Copy, Debug)]
pub struct Standing<'a> {
    pub upgrade: &'a NodeKubeadmUpgrade,
}

impl<'a> Standing<'a> {
    pub fn of(upgrade: &'a NodeKubeadmUpgrade) -> Self {
        Self { upgrade }
    }

    /// The state of the attempt that is asked for; a status of an earlier attempt says nothing about it.
    pub fn state(self) -> NodeState {
        match &self.upgrade.status {
            Some(status) if status.attempt == Some(self.upgrade.spec.attempt) => status.state.unwrap_or_default(),
            _ => NodeState::Pending,
        }
    }

    /// When it came into this state.
    pub fn since(self) -> Option<Timestamp> {
        self.upgrade.status.as_ref()?.state_since.as_ref().map(|time| time.0)
    }

    pub fn desired(self) -> DesiredNodeState {
        self.upgrade.spec.desired
    }

    pub fn node(self) -> &'a str {
        &self.upgrade.spec.node.name
    }

    pub fn node_uid(self) -> &'a str {
        &self.upgrade.spec.node.uid
    }

    /// Whether an entry of a ledger is about this upgrade: the same machine on the same hop, in whatever attempt.
    pub fn is_meant_by(self, slot: &Slot) -> bool {
        slot.node == self.node()
            && slot.node_uid == self.node_uid()
            && slot.version == self.upgrade.spec.kubelet_version
            && (slot.holder.is_empty() || Some(&slot.holder) == self.upgrade.metadata.uid.as_ref())
    }

    /// An entry of a ledger for this attempt.
    pub fn slot(self, now: Timestamp) -> Slot {
        let meta = &self.upgrade.metadata;
        Slot {
            node: self.node().to_owned(),
            node_uid: self.node_uid().to_owned(),
            role: self.upgrade.spec.role,
            attempt: self.upgrade.spec.attempt,
            version: self.upgrade.spec.kubelet_version.clone(),
            taken_at: Time(now),
            failure_domain: None,
            holder: uid_of(meta).to_string(),
            holder_revision: i64::try_from(revision_of(meta).0).ok(),
            undoing: false,
        }
    }

    /// Whether an entry of a ledger is for this very attempt.
    pub fn holds(self, slot: &Slot) -> bool {
        self.is_meant_by(slot) && slot.attempt == self.upgrade.spec.attempt
    }

    /// Why this attempt failed or was put back.
    pub fn failure_reason(self) -> Option<Reason> {
        let failure = self.upgrade.status.as_ref()?.failure.as_ref()?;
        Reason::from_str(&failure.reason).ok()
    }

    pub fn succeeded(self) -> bool {
        self.state() == NodeState::Succeeded
    }

    /// This attempt is over: at the target, put back, or stuck where only a person can help.
    pub fn ended(self) -> bool {
        match self.state() {
            NodeState::Succeeded => self.desired() != DesiredNodeState::RolledBack,
            NodeState::RolledBack => true,
            NodeState::Failed => self.failure_is_final(),
            _ => false,
        }
    }

    /// Failed and nothing follows by itself.
    fn failure_is_final(self) -> bool {
        matches!(self.failure_reason(), Some(Reason::RollbackFailed | Reason::ObjectGone))
    }

    /// Put back only to be taken later. A node that had to be put back again and again counts as failed instead.
    pub fn deferred(self) -> bool {
        self.state() == NodeState::RolledBack
            && match self.failure_reason() {
                Some(Reason::NodePaused) => true,
                Some(Reason::Deferred) => self.upgrade.spec.attempt < MAX_ATTEMPTS,
                _ => false,
            }
    }

    /// Set aside: it failed, or a person had it undone, and it is not tried again.
    pub fn set_aside(self) -> bool {
        self.ended() && !self.succeeded() && !self.deferred()
    }

    /// Goes before the other control planes, and changes what the cluster shares; one that has left does neither.
    pub fn is_first(self) -> bool {
        self.upgrade.spec.role == NodeRole::FirstControlPlane && !self.lost_its_node()
    }

    /// Its machine was seen to leave the cluster.
    pub fn lost_its_node(self) -> bool {
        self.failure_reason() == Some(Reason::ObjectGone)
    }

    /// Counts against `maxFailed`: what a person asked for, or a machine that left, does not.
    pub fn failed(self) -> bool {
        self.set_aside()
            && !matches!(
                self.failure_reason(),
                Some(Reason::ObjectGone | Reason::RolledBack | Reason::Aborted)
            )
    }

    /// Everything it needs is there and nothing was begun.
    pub fn ready_to_go(self) -> bool {
        matches!(self.state(), NodeState::Staged | NodeState::Paused)
    }

    /// What the node needs is being brought to it, or about to be.
    pub fn is_brought_things(self) -> bool {
        matches!(self.state(), NodeState::Pending | NodeState::Staging)
    }

    /// Something was or may be done to the node in this attempt, and it is not over.
    pub fn in_flight(self) -> bool {
        !self.ended()
            && (self.desired() != DesiredNodeState::Staged
                || !matches!(
                    self.state(),
                    NodeState::Pending | NodeState::Staging | NodeState::Staged | NodeState::Paused
                ))
    }
}

/// Whether the same upgrade has the same machine still to take to an earlier version: hops never overlap on one machine, not
/// even in what is brought to it.
pub fn earlier_hop_is_open(view: &View, upgrade: &NodeKubeadmUpgrade) -> bool {
    let version = |upgrade: &NodeKubeadmUpgrade| upgrade.spec.kubelet_version.parse::<KubernetesVersion>().ok();
    // A node that came to a hop's version otherwise never takes it: its object was deleted and made anew, say.
    let behind = |other: &NodeKubeadmUpgrade| {
        let node = view.nodes.get(upgrade.spec.node.name.as_str());
        let kubelet = node.and_then(|node| node.kubelet_version.as_ref());
        kubelet.is_none_or(|kubelet| version(other).is_some_and(|version| *kubelet < version))
    };
    let others = view.node_upgrades_of(&upgrade.spec.node.name).map(|(_, other)| other);
    others.into_iter().any(|other| {
        other.spec.kubelet_version != upgrade.spec.kubelet_version
            && other.spec.node.uid == upgrade.spec.node.uid
            && upgrade_uid(other) == upgrade_uid(upgrade)
            && version(other) < version(upgrade)
            && !Standing::of(other).ended()
            && (Standing::of(other).in_flight() || behind(other))
    })
}

/// Sets a condition; the time of the last transition stays while the status does.
pub fn set_condition(
    conditions: &mut Vec<Condition>,
    type_: &str,
    status: bool,
    reason: Reason,
    message: &str,
    (now, generation): (Timestamp, Option<i64>),
) {
    let word = if status { "True" } else { "False" };
    let reason: &'static str = reason.into();
    let existing = conditions.iter_mut().find(|existing| existing.type_ == type_);
    let Some(existing) = existing else {
        conditions.push(Condition {
            type_: type_.to_owned(),
            status: word.to_owned(),
            reason: reason.to_owned(),
            message: message.to_owned(),
            last_transition_time: Time(now),
            observed_generation: generation,
        });
        return;
    };
    if existing.status != word {
        existing.last_transition_time = Time(now);
        word.clone_into(&mut existing.status);
    }
    reason.clone_into(&mut existing.reason);
    message.clone_into(&mut existing.message);
    existing.observed_generation = generation;
}

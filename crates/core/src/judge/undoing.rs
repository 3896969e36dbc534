//! Undoing what was done: until when a node's upgrade can be undone, and the slot an undoing needs, since it disrupts as the
//! upgrade did. What a person asked for is heard in [`super::wishes`]; how a node is put back is in [`crate::lifecycle`].

use std::sync::Arc;

use afloat_api::clusterupgrade::Slot;
use afloat_api::kubeadm::DesiredNodeState;
use afloat_api::labels;
use afloat_api::{NodeKubeadmUpgrade, NodeRole, NodeState};

use super::{Turn, slots};
use crate::gates;
use crate::objects::Standing;
use crate::settings::Settings;
use crate::version::KubernetesVersion;
use crate::view::{Node, NodeName, View, Wish};

/// A control plane can be undone until the first worker has started: its kubelets would be newer than the API server. The first one
/// goes back after the others.
pub fn undo_refused(view: &View, standing: Standing<'_>) -> Option<String> {
    if standing.upgrade.spec.role == NodeRole::Worker {
        return None;
    }
    let uid_of = |upgrade: &NodeKubeadmUpgrade| {
        let labels = upgrade.metadata.labels.as_ref();
        labels.and_then(|labels| labels.get(labels::UPGRADE_UID)).cloned()
    };
    let mine = uid_of(standing.upgrade);
    if let Some(refused) = too_new_for(view, standing) {
        return Some(refused);
    }
    let has_begun = |other: &NodeKubeadmUpgrade| {
        uid_of(other) == mine && (other.spec.desired != DesiredNodeState::Staged || other.spec.attempt > 1)
    };
    let others = || view.node_upgrades().values().filter(|other| has_begun(other));
    let worker = others().find(|other| other.spec.role == NodeRole::Worker);
    if let Some(worker) = worker {
        return Some(format!(
            "{} cannot be undone any more: {} has begun, and a kubelet must not be newer than its API server",
            standing.node(),
            worker.spec.node.name
        ));
    }
    if standing.upgrade.spec.role != NodeRole::FirstControlPlane {
        return None;
    }
    // With the first one goes back what kubeadm keeps for the whole cluster: nobody may still be at the version that it is for.
    let other = others().find(|other| {
        other.spec.role == NodeRole::ControlPlane
            && other.spec.kubernetes_version == standing.upgrade.spec.kubernetes_version
            && Standing::of(other).state() != NodeState::RolledBack
    })?;
    let (first, other) = (standing.node(), &other.spec.node.name);
    Some(format!(
        "{first} is undone last: the cluster's kubeadm configuration goes back with it, and {other} is not at the version before: \
         help: afloat rollback {other}"
    ))
}

/// A machine may have joined meanwhile with a kubelet that the older API server is too old for.
fn too_new_for(view: &View, standing: Standing<'_>) -> Option<String> {
    let before = standing.upgrade.status.as_ref()?.before.as_ref()?;
    let before: KubernetesVersion = before.kubelet_version.parse().ok()?;
    let newer = |node: &&Arc<Node>| {
        let kubelet = node.kubelet_version.as_ref();
        kubelet.is_some_and(|kubelet| kubelet.minor_version() > before.minor_version())
    };
    let worker = view.worker_nodes().find(newer)?;
    Some(format!(
        "{} cannot be undone any more: {} has joined with a kubelet that must not be newer than its API server",
        standing.node(),
        worker.name
    ))
}

/// A person asks for this node's upgrade to be undone, and it was not taken up yet.
pub fn is_wished(view: &View, standing: Standing<'_>) -> bool {
    let wished = view
        .nodes
        .get(standing.node())
        .is_some_and(|node| node.wish == Some(Wish::Rollback) && node.uid.as_str() == standing.node_uid());
    wished && is_latest(view, standing)
}

/// A node may have an upgrade for each hop; wishes are about the last one.
pub fn is_latest(view: &View, standing: Standing<'_>) -> bool {
    let born = |upgrade: &NodeKubeadmUpgrade| {
        let created = upgrade.metadata.creation_timestamp.as_ref().map(|time| time.0);
        (
            created,
            upgrade.spec.kubelet_version.clone(),
            upgrade.metadata.name.clone(),
        )
    };
    let mine = born(standing.upgrade);
    view.node_upgrades_of(standing.node())
        .filter(|(_, other)| other.spec.node.uid == standing.node_uid())
        .all(|(_, other)| born(other) <= mine)
}

impl<'a> Turn<'a> {
    /// Nodes whose upgrade a person wants undone, and for which it is not too late.
    fn undoing_wished(&self) -> Vec<Standing<'a>> {
        let standings = self.roster.standings().map(|(_, standing)| standing);
        let wished = standings.filter(|standing| {
            standing.succeeded() && is_wished(self.view, *standing) && undo_refused(self.view, *standing).is_none()
        });
        wished.collect()
    }

    /// Whether a control plane is to be undone: nobody else is let go before, as it is too late for that once a worker has begun.
    pub(super) fn undoes_control_plane_first(&self) -> bool {
        let wished = self.undoing_wished();
        wished.iter().any(|one| one.upgrade.spec.role != NodeRole::Worker)
    }

    /// A slot for a node whose upgrade a person wants undone: alone, under the lock, within the budget and behind open gates.
    pub(super) fn grant_undoing(&mut self, settings: &Settings) {
        if settings.abort || settings.paused || !self.status.slots.is_empty() {
            return;
        }
        let Some(standing) = self.undoing_wished().into_iter().next() else {
            return;
        };
        if let Err(closed) = gates::custom(self.view, self.key, settings) {
            return self.held.push((NodeName::from(standing.node()), *closed));
        }
        let Some(node) = self.view.nodes.get(standing.node()) else {
            return;
        };
        let ledger_as_of = self.target.revision;
        if let Some(closed) = slots::keeps_from_undoing(self.view, node, standing, settings, ledger_as_of) {
            if self.view.nodes_as_of < ledger_as_of {
                // It may be out of service already, which is not certain yet; no watch tells when it is.
                self.see_nodes_since(ledger_as_of);
            }
            return self.held.push((node.name.clone(), closed));
        }
        // Another upgrade may be at work by now, with a ledger of its own.
        if let Err(closed) = self.lock() {
            return self.held.push((node.name.clone(), *closed));
        }
        self.confirm_lock();
        self.status.slots.push(Slot {
            undoing: true,
            ..standing.slot(self.now)
        });
    }
}

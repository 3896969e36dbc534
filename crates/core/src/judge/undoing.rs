//! Undoing what was done: until when a node's upgrade can be undone, and the slot an undoing needs, since it disrupts as the
//! upgrade did. What a person asked for is heard in [`super::wishes`]; how a node is put back is in [`crate::lifecycle`].

use afloat_api::NodeRole;
use afloat_api::clusterupgrade::Slot;
use afloat_api::kubeadm::DesiredNodeState;
use afloat_api::labels;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{Turn, slots};
use crate::objects::Standing;
use crate::settings::Settings;
use crate::view::{View, Wish};

/// A control plane can be undone until the first worker has started: its kubelets would be newer than the API server.
pub fn undo_refused(view: &View, standing: Standing<'_>) -> Option<String> {
    if standing.upgrade.spec.role == NodeRole::Worker {
        return None;
    }
    let uid_of = |upgrade: &afloat_api::NodeKubeadmUpgrade| {
        let labels = upgrade.metadata.labels.as_ref();
        labels.and_then(|labels| labels.get(labels::UPGRADE_UID)).cloned()
    };
    let mine = uid_of(standing.upgrade);
    view.node_upgrades()
        .values()
        .find(|other| {
            other.spec.role == NodeRole::Worker
                && uid_of(other) == mine
                && (other.spec.desired != DesiredNodeState::Staged || other.spec.attempt > 1)
        })
        .map(|worker| {
            format!(
                "{} cannot be undone any more: {} has begun, and a kubelet must not be newer than its API server",
                standing.node(),
                worker.spec.node.name
            )
        })
}

/// A person asks for this node's upgrade to be undone, and it was not taken up yet.
pub fn is_wished(view: &View, standing: Standing<'_>) -> bool {
    view.nodes
        .get(standing.node())
        .is_some_and(|node| node.wish == Some(Wish::Rollback) && node.uid.as_str() == standing.node_uid())
}

impl Turn<'_> {
    /// A slot for a node whose upgrade a person wants undone: alone, under the lock, and within the budget.
    pub(super) fn grant_undoing(&mut self, settings: &Settings) {
        if settings.abort || settings.paused || !self.status.slots.is_empty() {
            return;
        }
        let wished = self.roster.standings().map(|(_, standing)| standing).find(|standing| {
            standing.succeeded() && is_wished(self.view, *standing) && undo_refused(self.view, *standing).is_none()
        });
        let Some(standing) = wished else { return };
        let room = self
            .view
            .nodes
            .get(standing.node())
            .is_some_and(|node| slots::may_be_undone(self.view, node, settings));
        // Another upgrade may be at work by now, with a ledger of its own.
        if !room || self.lock().is_err() {
            return;
        }
        self.status.slots.push(Slot {
            node: standing.node().to_owned(),
            node_uid: standing.node_uid().to_owned(),
            role: standing.upgrade.spec.role,
            attempt: standing.upgrade.spec.attempt,
            version: standing.upgrade.spec.kubelet_version.clone(),
            taken_at: Time(self.now),
            failure_domain: None,
        });
    }
}

//! The same rules across ledgers: a group that stands alone keeps its own, and while a node of one ledger is in hand none of another is
//! taken, whoever owns them.

use std::sync::Arc;

use afloat_api::clusterupgrade::Slot;
use afloat_api::{GroupUpgradeStatus, NodeKubeadmUpgrade, NodeRole};
use afloat_core::KubernetesVersion;
use afloat_core::settings::{controller, upgrade_uid};
use afloat_core::view::{Key, Node};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::Rules;
use super::writes::rank;
use crate::store::{Change, Custom, KindName, Store, Written};

/// A group that no ClusterUpgrade stands above, as the storage has it.
struct Alone<'a> {
    uid: &'a str,
    slots: &'a [Slot],
    /// How many of its nodes may be away at once.
    most: usize,
}

fn alone(store: &Store) -> impl Iterator<Item = Alone<'_>> {
    let planes = store
        .control_planes
        .values()
        .map(|group| (&group.metadata, group.status.as_ref(), None));
    let workers = store
        .workers
        .values()
        .map(|group| (&group.metadata, group.status.as_ref(), group.spec.max_concurrent));
    let unowned = |(meta, ..): &(&ObjectMeta, _, _)| controller(meta.owner_references.as_deref()).is_none();
    planes.chain(workers).filter(unowned).map(|(meta, status, most)| Alone {
        uid: meta.uid.as_deref().unwrap_or_default(),
        slots: status.map(|status| status.slots.as_slice()).unwrap_or_default(),
        most: most.and_then(|most| usize::try_from(most).ok()).unwrap_or(1),
    })
}

/// The uid of a group, and the slots that it has now and had not before.
fn granted<T: Custom<Status = GroupUpgradeStatus>>(change: &Change<Key, T>) -> Option<(String, Vec<Slot>)> {
    let slots = |group: Option<&Arc<T>>| {
        let status = group.and_then(|group| group.status());
        status.map(|status| status.slots.clone()).unwrap_or_default()
    };
    let before = slots(change.before.as_ref());
    let mut granted = slots(change.after.as_ref());
    granted.retain(|slot| {
        !before
            .iter()
            .any(|old| (&old.node_uid, old.attempt) == (&slot.node_uid, slot.attempt))
    });
    let uid = change.after.as_ref()?.meta().uid.clone()?;
    Some((uid, granted))
}

/// Whether something was begun on a node for this upgrade, and is neither done nor undone.
fn is_in_hand(upgrade: &NodeKubeadmUpgrade) -> bool {
    let state = upgrade.status.as_ref().and_then(|status| status.state);
    matches!(state.map(rank), Some(4..=7 | 10))
}

impl Rules {
    /// Rules 1, 2 and 4: one judge a cluster, however many ledgers there are. Whoever made the upgrade of a single worker judges by itself.
    pub(super) fn nobody_else_is_at_work(&mut self, store: &Store, node: &Node, upgrade: &NodeKubeadmUpgrade) {
        let is_judged = |upgrade: &NodeKubeadmUpgrade| {
            let owners = upgrade.metadata.owner_references.as_deref();
            controller(owners).is_some() || upgrade.spec.role != NodeRole::Worker
        };
        if !is_judged(upgrade) {
            return;
        }
        self.judge(1);
        let mine = upgrade_uid(upgrade);
        let taken = |other: &NodeKubeadmUpgrade| {
            let there = store.nodes.get(other.spec.node.name.as_str());
            there.filter(|there| {
                there.uid.as_str() == other.spec.node.uid && there.cordoned_by == Some(upgrade_uid(other))
            })
        };
        let mut others = store.node_upgrades.values().filter(|other| {
            is_judged(other)
                && upgrade_uid(other) != mine
                && other.spec.node.uid != upgrade.spec.node.uid
                && is_in_hand(other)
        });
        let other = others.find_map(|other| taken(other));
        if let Some(other) = other {
            let rule = match (node.control_plane, other.control_plane) {
                (true, true) => 2,
                (false, false) => 1,
                _ => 4,
            };
            let what = format!(
                "{} is taken by one ledger while {} is in hand for another",
                node.name, other.name
            );
            self.breaks(rule, what);
        }
    }

    /// Rule 1: with a slot in the group's own ledger, and no more workers at once than the group says.
    pub(super) fn taken_by_group_alone(&mut self, store: &Store, node: &Node, upgrade: &NodeKubeadmUpgrade) {
        let Some(owner) = controller(upgrade.metadata.owner_references.as_deref()) else {
            return;
        };
        let Some(group) = alone(store).find(|group| group.uid == owner.uid) else {
            return;
        };
        self.judge(1);
        let attempt = upgrade.spec.attempt;
        let recorded = group.slots.iter().any(|slot| {
            slot.node == node.name.as_str() && slot.node_uid == node.uid.as_str() && slot.attempt == attempt
        });
        if !recorded {
            self.breaks(1, format!("{} is taken without a slot of attempt {attempt}", node.name));
        }
        let ours = self.nodes.values().filter(|node| !node.control_plane && node.ours);
        if !node.control_plane && ours.count() > group.most {
            self.breaks(
                1,
                format!("more workers are cordoned with {} than may be away", node.name),
            );
        }
    }

    /// What a group that stands alone writes into its ledger.
    pub(super) fn group_written(&mut self, store: &Store, written: &Written) {
        let granted = match written.kind {
            KindName::ControlPlane => granted(&store.control_planes.changes()[written.index]),
            _ => granted(&store.workers.changes()[written.index]),
        };
        let Some((uid, granted)) = granted.filter(|(_, granted)| !granted.is_empty()) else {
            return;
        };
        if let Some(group) = alone(store).find(|group| *group.uid == uid) {
            let in_hand = group.slots;
            for slot in granted {
                self.slot_of_group_alone(store, &uid, &slot, in_hand);
            }
        }
    }

    /// Rules 2 and 4 where a slot is given: nobody beside a control plane, no worker before the API servers, and no slot of another ledger.
    fn slot_of_group_alone(&mut self, store: &Store, group: &str, slot: &Slot, in_hand: &[Slot]) {
        let is_there = |slot: &&Slot| {
            let node = store.nodes.get(slot.node.as_str());
            node.is_some_and(|node| node.uid.as_str() == slot.node_uid)
        };
        let is_plane = |slot: &Slot| slot.role != NodeRole::Worker;
        let upgrades = store.upgrades.values().filter_map(|upgrade| upgrade.status.as_ref());
        let elsewhere = upgrades.flat_map(|status| &status.slots);
        let groups = alone(store).filter(|other| other.uid != group);
        let elsewhere: Vec<&Slot> = elsewhere
            .chain(groups.flat_map(|other| other.slots))
            .filter(is_there)
            .collect();
        self.judge(2);
        if let Some(other) = elsewhere.first() {
            let rule = if is_plane(slot) && is_plane(other) { 2 } else { 1 };
            let what = format!(
                "{} gets a slot while {} has one in another ledger",
                slot.node, other.node
            );
            return self.breaks(rule, what);
        }
        if is_plane(slot) {
            if in_hand.iter().filter(is_there).filter(|slot| is_plane(slot)).count() > 1 {
                self.breaks(
                    2,
                    format!("{} gets a slot while another control plane has one", slot.node),
                );
            }
            return;
        }
        self.judge(4);
        let seen = self.doing.as_ref().map(|doing| doing.seen.clone()).unwrap_or_default();
        let Ok(target) = slot.version.parse::<KubernetesVersion>() else {
            return;
        };
        // A patch release more than the API server has does a kubelet no harm, and nobody brings the control plane first here.
        let is_older = |node: &Node| {
            let kubelet = node.kubelet_version.as_ref();
            kubelet.is_some_and(|kubelet| kubelet.minor_version() < target.minor_version())
        };
        let mut planes = store.nodes.values().filter(|node| node.control_plane);
        if let Some(plane) = planes.find(|node| is_older(node) && node.revision.0 <= seen.of(KindName::Node)) {
            let what = format!("{} gets a slot for {target} while {} is older", slot.node, plane.name);
            self.breaks(4, what);
        }
    }
}

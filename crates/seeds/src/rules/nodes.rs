//! Rules about nodes that are taken and given back: with a slot, within the budget, not past a pause; and nothing a person
//! cordoned is uncordoned.

use std::collections::BTreeMap;
use std::sync::Arc;

use afloat_api::NodeKubeadmUpgrade;
use afloat_api::kubeadm::DesiredNodeState;
use afloat_core::settings::upgrade_uid;
use afloat_core::view::{Node, NodeName};

use super::writes::{disturbs, rank};
use super::{Most, NodeMemory, Rules};
use crate::machine::Machine;
use crate::store::{Kind as _, KindName, Store, Writer, Written};

impl Rules {
    pub(super) fn node_written(&mut self, store: &Store, written: &Written, machines: &BTreeMap<NodeName, Machine>) {
        let change = &store.nodes.changes()[written.index];
        let Some(after) = change.after.clone() else {
            self.nodes.remove(&change.key);
            return;
        };
        let before = self.nodes.get(&change.key).cloned().unwrap_or_default();
        let mut memory = NodeMemory {
            uid: after.uid.as_str().to_owned(),
            control_plane: after.control_plane,
            zone: after.failure_domain(afloat_api::labels::ZONE).map(str::to_owned),
            ready: after.ready.ready,
            unschedulable: after.unschedulable,
            ..if before.uid == after.uid.as_str() {
                before.clone()
            } else {
                NodeMemory::default()
            }
        };
        let by_operator = matches!(written.writer, Writer::Operator(_));
        let revision = change.revision;
        if after.pause.is_none() {
            memory.paused_since = None;
        } else if memory.paused_since.is_none() {
            memory.paused_since = Some(revision);
        }
        if memory.available() {
            let was_broken = memory.broken_since.take().is_some();
            if was_broken && !by_operator {
                memory.back_since = Some(revision);
            }
        } else if !by_operator && memory.broken_since.is_none() && (!memory.ready || !memory.ours) {
            memory.broken_since = Some(revision);
        }
        let cordoned = after.unschedulable && !before.unschedulable;
        let uncordoned = !after.unschedulable && before.unschedulable;
        let in_the_midst = || store.pods_on(&after.name).any(|pod| disturbs(pod));
        if by_operator && cordoned {
            memory.ours = true;
            // Whoever came while a person had the node open for others, after its drain, is there when its steps begin.
            memory.person_meddled &= in_the_midst();
        }
        if !by_operator && (cordoned || uncordoned) && (memory.ours || after.cordoned_by.is_some() || in_the_midst()) {
            memory.person_meddled = true;
        }
        if uncordoned {
            memory.ours = false;
        }
        self.nodes.insert(change.key.clone(), memory);
        if by_operator && cordoned {
            self.node_is_taken(store, &after);
        }
        if by_operator && uncordoned {
            self.node_is_given_back(&after, &before, machines);
        }
    }

    /// A node is cordoned by the operator: its disruption begins.
    fn node_is_taken(&mut self, store: &Store, node: &Arc<Node>) {
        let seen = self.doing.as_ref().map(|doing| doing.seen.clone()).unwrap_or_default();
        let upgrade = current_upgrade(store, node);
        // Rule 2.
        self.judge(2);
        if node.control_plane {
            let others = self
                .nodes
                .iter()
                .filter(|(name, memory)| **name != node.name && memory.control_plane && memory.ours)
                .count();
            if others > 0 {
                self.breaks(2, format!("{} is taken while another control plane is", node.name));
            }
        }
        // A node that is put back is no new disruption: it is one coming to its end.
        if upgrade
            .as_ref()
            .is_some_and(|upgrade| upgrade.spec.desired == DesiredNodeState::RolledBack)
        {
            return;
        }
        // Nor is one that was begun, or that failed, and that a person has uncordoned in between.
        let state = upgrade.as_ref().and_then(|upgrade| upgrade.status.as_ref()?.state);
        if matches!(state.map(rank), Some(4..=7 | 9 | 10)) {
            return;
        }
        // Rule 6.
        self.judge(6);
        let paused = self.nodes.get(&node.name).and_then(|memory| memory.paused_since);
        if paused.is_some_and(|since| since <= seen.of(KindName::Node)) {
            self.breaks(6, format!("{} is taken although it is paused", node.name));
        }
        let Some(upgrade) = upgrade else { return };
        self.nobody_else_is_at_work(store, node, &upgrade);
        let Some((key, owner)) = owner_of(store, &upgrade) else {
            return self.taken_by_group_alone(store, node, &upgrade);
        };
        if owner
            .held_since(self)
            .is_some_and(|since| since <= seen.of(KindName::Upgrade))
        {
            self.breaks(6, format!("{} is taken although {key} is paused or aborted", node.name));
        }
        // The ledger: a slot for this node, this uid, this attempt, before anything is done to it.
        self.judge(1);
        let slot = (
            node.name.as_str().to_owned(),
            node.uid.as_str().to_owned(),
            upgrade.spec.attempt,
        );
        let recorded = self
            .upgrades
            .get(&key)
            .is_some_and(|memory| memory.slots.contains(&slot));
        if !recorded {
            self.breaks(
                1,
                format!("{} is taken without a slot of attempt {}", node.name, slot.2),
            );
        }
        let all = self.nodes.values().filter(|memory| !memory.control_plane).count();
        let ours = self
            .nodes
            .values()
            .filter(|memory| !memory.control_plane && memory.ours);
        let memory = self.upgrades.get(&key);
        let most = memory.and_then(|memory| memory.max_unavailable);
        // What may be away is decided where slots are given: one that was given stands, also when a machine leaves before its node is cordoned
        // and the share becomes smaller, or a person wants fewer at once. No other is given until they fit again, which is judged there.
        let granted = memory.map_or(0, |memory| memory.granted_under);
        if ours.count() > most.unwrap_or(Most::Count(1)).of(all).max(granted) {
            self.breaks(
                1,
                format!("more workers are cordoned with {} than may be away", node.name),
            );
        }
    }

    /// Rule 7: what a person cordoned stays cordoned; and nothing is given back in the midst of work on it.
    fn node_is_given_back(&mut self, node: &Node, before: &NodeMemory, machines: &BTreeMap<NodeName, Machine>) {
        self.judge(7);
        if !before.ours && !before.person_meddled {
            self.breaks(7, format!("{} is uncordoned although a person cordoned it", node.name));
        }
        if machines.get(&node.name).is_some_and(|machine| machine.facts.working) {
            self.breaks(7, format!("{} is given back while its steps still run", node.name));
        }
    }
}

/// The upgrade of a node that its cordon is signed with.
fn current_upgrade(store: &Store, node: &Node) -> Option<Arc<NodeKubeadmUpgrade>> {
    let mut found = store
        .node_upgrades
        .values()
        .filter(|upgrade| upgrade.spec.node.uid == node.uid.as_str())
        .filter(|upgrade| upgrade.spec.desired != DesiredNodeState::Staged);
    let first = found.next()?;
    // Of several ledgers the one that has cordoned it is meant.
    let signs = |upgrade: &NodeKubeadmUpgrade| node.cordoned_by.as_ref() == Some(&upgrade_uid(upgrade));
    // Several hops have an object each: the newest that may go on is meant.
    Some(Arc::clone(found.fold(first, |newest, upgrade| {
        let order = |upgrade: &NodeKubeadmUpgrade| (signs(upgrade), upgrade.metadata.creation_timestamp.clone());
        if order(upgrade) > order(newest) {
            upgrade
        } else {
            newest
        }
    })))
}

struct Owning {
    key: afloat_core::view::Key,
}

impl Owning {
    fn held_since(&self, rules: &Rules) -> Option<u64> {
        rules.upgrades.get(&self.key).and_then(|memory| memory.held_since)
    }
}

/// The ClusterUpgrade a node's upgrade belongs to, through its group.
fn owner_of(store: &Store, upgrade: &NodeKubeadmUpgrade) -> Option<(afloat_core::view::Key, Owning)> {
    let group = upgrade.metadata.owner_references.as_ref()?.first()?;
    let planes = store.control_planes.values().map(|group| &group.metadata);
    let workers = store.workers.values().map(|group| &group.metadata);
    let meta = planes
        .chain(workers)
        .find(|meta| meta.uid.as_deref() == Some(&group.uid))?;
    let owner = meta.owner_references.as_ref()?.first()?;
    let upgrade = store
        .upgrades
        .values()
        .find(|upgrade| upgrade.metadata.uid.as_deref() == Some(&owner.uid))?;
    let key = upgrade.key();
    Some((key.clone(), Owning { key }))
}

//! Rules about what is written: budgets, order, pauses, ledger, evictions, uids, states that only move on.

use std::collections::BTreeMap;
use std::sync::Arc;

use afloat_api::clusterupgrade::Phase;
use afloat_api::kubeadm::DesiredNodeState;
use afloat_api::{ClusterUpgrade, NodeKubeadmUpgrade, NodeRole, NodeState};
use afloat_core::view::{Node, NodeName, Pod, PodPhase};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::{Most, NodeMemory, Rules, UpgradeMemory, uid_before};
use crate::tier1::machine::Machine;
use crate::tier1::store::{Kind as _, KindName, Store, Writer, Written};
use crate::tier1::time::stamp;

impl Rules {
    /// Rule 10: what is written goes to the object that was decided on.
    pub(super) fn uid_is_the_one(&mut self, store: &Store, written: &Written) {
        self.judge(10);
        let Some(doing) = &self.doing else { return };
        let Some(target) = &doing.target else { return };
        if let Some(before) = uid_before(store, written)
            && before != target.uid
        {
            let what = format!(
                "{} of {} was decided for uid {} and written to uid {before}",
                doing.name, target.key, target.uid
            );
            self.breaks(10, what);
        }
    }

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
            memory.broken_since = None;
        } else if !by_operator && memory.broken_since.is_none() && (!memory.ready || !memory.ours) {
            memory.broken_since = Some(revision);
        }
        let cordoned = after.unschedulable && !before.unschedulable;
        let uncordoned = !after.unschedulable && before.unschedulable;
        if by_operator && cordoned {
            memory.ours = true;
            memory.person_meddled = false;
        }
        if !by_operator && (cordoned || uncordoned) && (memory.ours || after.cordoned_by.is_some()) {
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
        // Nor is one that was begun, and that a person has uncordoned in between.
        let state = upgrade.as_ref().and_then(|upgrade| upgrade.status.as_ref()?.state);
        if matches!(state.map(rank), Some(4..8)) {
            return;
        }
        // Rule 6.
        self.judge(6);
        let paused = self.nodes.get(&node.name).and_then(|memory| memory.paused_since);
        if paused.is_some_and(|since| since <= seen.of(KindName::Node)) {
            self.breaks(6, format!("{} is taken although it is paused", node.name));
        }
        let Some(upgrade) = upgrade else { return };
        let Some((key, owner)) = owner_of(store, &upgrade) else {
            return;
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
        let most = self.upgrades.get(&key).and_then(|memory| memory.max_unavailable);
        if ours.count() > most.unwrap_or(Most::Count(1)).of(all) {
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

    pub(super) fn upgrade_written(&mut self, store: &Store, written: &Written) {
        let change = &store.upgrades.changes()[written.index];
        let Some(after) = change.after.clone() else {
            self.upgrades.remove(&change.key);
            return;
        };
        let before = self.upgrades.get(&change.key).cloned().unwrap_or_default();
        let mut memory = remember(&after, &before, change.revision);
        let status = after.status.clone().unwrap_or_default();
        memory.slots = status
            .slots
            .iter()
            .map(|slot| (slot.node.clone(), slot.node_uid.clone(), slot.attempt))
            .collect();
        memory.ended = matches!(status.phase, Some(Phase::Succeeded | Phase::Failed | Phase::Aborted));
        let granted: Vec<_> = status
            .slots
            .iter()
            .filter(|slot| {
                !before
                    .slots
                    .contains(&(slot.node.clone(), slot.node_uid.clone(), slot.attempt))
            })
            .cloned()
            .collect();
        if before.ended && !memory.ended {
            self.breaks(12, format!("{} had ended and goes on", change.key));
        }
        self.upgrades.insert(change.key.clone(), memory);
        if !granted.is_empty() {
            self.slots_are_granted(store, &after, &granted);
        }
    }

    /// New slots: within the budget, control planes one by one and before all workers, with open gates.
    fn slots_are_granted(
        &mut self,
        store: &Store,
        upgrade: &ClusterUpgrade,
        granted: &[afloat_api::clusterupgrade::Slot],
    ) {
        let key = upgrade.key();
        let seen = self.doing.as_ref().map(|doing| doing.seen.clone()).unwrap_or_default();
        let Some(memory) = self.upgrades.get(&key).cloned() else {
            return;
        };
        let is_control_plane = |name: &str| self.nodes.get(name).is_some_and(|node| node.control_plane);
        // A slot of a machine that has left takes nobody out of service.
        let there = memory
            .slots
            .iter()
            .filter(|slot| self.nodes.get(slot.0.as_str()).is_some_and(|node| node.uid == slot.1));
        let (planes, workers): (Vec<_>, Vec<_>) = there.partition(|slot| is_control_plane(&slot.0));
        let (planes, workers): (usize, usize) = (planes.len(), workers.len());
        self.judge(2);
        if planes > 1 {
            self.breaks(2, format!("{key} gives two control planes a slot"));
        }
        // Custom gates hold every node, whatever it is.
        for gate in &memory.gates {
            let closed = self.closed_gates.get(&(key.clone(), gate.clone()));
            if closed.is_some_and(|since| since + 10_000 < self.now) {
                self.breaks(5, format!("{key} gives a slot although its gate {gate} is closed"));
            }
        }
        let granted_workers: Vec<_> = granted.iter().filter(|slot| slot.role == NodeRole::Worker).collect();
        if granted_workers.is_empty() {
            return;
        }
        self.judge(1);
        let all = self.nodes.values().filter(|node| !node.control_plane).count();
        let broken = self
            .nodes
            .iter()
            .filter(|(name, node)| {
                !node.control_plane
                    && !node.available()
                    && node.broken_since.is_some_and(|since| since <= seen.of(KindName::Node))
                    && !memory.slots.iter().any(|slot| slot.0 == name.as_str())
            })
            .count();
        let most = memory.max_unavailable.unwrap_or(Most::Count(1)).of(all);
        // A broken node may be taken itself, to mend it: the new slots alone decide nothing, so that they must be of nodes in service.
        let healthy_granted = granted_workers
            .iter()
            .any(|slot| self.nodes.get(slot.node.as_str()).is_some_and(NodeMemory::available));
        if healthy_granted && workers + broken > most {
            let what =
                format!("{key} has {workers} workers in hand and {broken} are broken: more than {most} may be away");
            self.breaks(1, what);
        }
        self.domains_hold(&memory, &key.to_string());
        self.judge(4);
        self.control_plane_is_first(store, upgrade, &granted_workers);
    }

    fn domains_hold(&mut self, memory: &UpgradeMemory, key: &str) {
        let Some(most) = memory.per_domain else { return };
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for slot in &memory.slots {
            if let Some(node) = self.nodes.get(slot.0.as_str())
                && !node.control_plane
                && let Some(zone) = &node.zone
            {
                *counts.entry(zone).or_default() += 1;
            }
        }
        let over = counts.into_iter().find(|(_, count)| *count > most);
        let what = over.map(|(zone, count)| format!("{key} has {count} nodes of {zone} in hand, and may have {most}"));
        if let Some(what) = what {
            self.breaks(1, what);
        }
    }

    /// Rule 4: no worker begins before every control plane is at the version of the worker's target and at rest.
    fn control_plane_is_first(
        &mut self,
        store: &Store,
        upgrade: &ClusterUpgrade,
        granted: &[&afloat_api::clusterupgrade::Slot],
    ) {
        let seen = self.doing.as_ref().map(|doing| doing.seen.clone()).unwrap_or_default();
        let in_hand = upgrade.status.iter().flat_map(|status| &status.slots);
        if in_hand.into_iter().any(|slot| slot.role != NodeRole::Worker) {
            let who = granted.first().map(|slot| slot.node.clone()).unwrap_or_default();
            self.breaks(4, format!("{who} gets a slot while a control plane has one"));
            return;
        }
        let target = granted.iter().find_map(|slot| {
            let upgrades = store.node_upgrades.values();
            let mut of_node = upgrades.filter(|upgrade| upgrade.spec.node.uid == slot.node_uid);
            of_node.find_map(|upgrade| {
                upgrade
                    .spec
                    .kubelet_version
                    .parse::<afloat_core::KubernetesVersion>()
                    .ok()
            })
        });
        let Some(target) = target else { return };
        for node in store.nodes.values().filter(|node| node.control_plane) {
            // One that joined or was put back a moment ago may not have been seen.
            if node.revision.0 > seen.of(KindName::Node) {
                continue;
            }
            if node.kubelet_version.as_ref().is_some_and(|version| *version < target) {
                let what = format!(
                    "a worker gets a slot for {target} while {} is at {}",
                    node.name,
                    node.kubelet_version
                        .as_ref()
                        .map(ToString::to_string)
                        .unwrap_or_default()
                );
                self.breaks(4, what);
            }
        }
    }

    /// States only move on within an attempt.
    pub(super) fn node_upgrade_written(&mut self, store: &Store, written: &Written) {
        let change = &store.node_upgrades.changes()[written.index];
        let (Some(before), Some(after)) = (&change.before, &change.after) else {
            return;
        };
        let (Some(old), Some(new)) = (&before.status, &after.status) else {
            return;
        };
        if old.attempt != new.attempt {
            if new.attempt < old.attempt {
                self.breaks(0, format!("{} goes back to attempt {:?}", change.key, new.attempt));
            }
            return;
        }
        let (Some(from), Some(to)) = (old.state, new.state) else {
            return;
        };
        let paused = matches!((from, to), (NodeState::Paused, NodeState::Staged));
        // The undoing itself may fail, and the machine may leave while it goes on: only a person can help then.
        let stuck = (from, to) == (NodeState::RollingBack, NodeState::Failed)
            && new
                .failure
                .as_ref()
                .is_some_and(|failure| matches!(failure.reason.as_str(), "RollbackFailed" | "ObjectGone"));
        if rank(to) < rank(from) && !paused && !stuck {
            self.breaks(
                0,
                format!("{} goes back from {from} to {to} within one attempt", change.key),
            );
        }
    }

    /// Rule 8: a pod that serves goes only by the leave of its budget.
    pub(super) fn pod_written(&mut self, store: &Store, written: &Written) {
        if !matches!(written.writer, Writer::Operator(_)) {
            return;
        }
        let change = &store.pods.changes()[written.index];
        let Some(before) = &change.before else { return };
        let going = change.after.as_ref().is_none_or(|after| after.ending.is_some()) && before.ending.is_none();
        if !going || before.task.is_some() {
            return;
        }
        self.judge(8);
        if before.static_part.is_some() || daemon(before) {
            self.breaks(8, format!("{} is evicted although it comes back at once", before.key));
            return;
        }
        if before.phase != PodPhase::Running || !before.ready {
            return;
        }
        let budgets: Vec<_> = store
            .budgets
            .values()
            .filter(|budget| {
                budget.key.namespace == before.key.namespace && budget.selector.matches(&before.shape.labels)
            })
            .collect();
        for budget in budgets {
            // The handler counts down and marks the pod before it deletes it.
            let allowed = store
                .disrupted
                .get(&budget.key)
                .is_some_and(|pods| pods.contains_key(&before.uid));
            let said = self.doing.as_ref().and_then(|doing| doing.override_of.as_ref()) == Some(&budget.key)
                && overridden(store, &budget.key, store.now);
            if !allowed && !said {
                self.breaks(8, format!("{} goes past its budget {}", before.key, budget.key));
                return;
            }
        }
    }
}

fn overridden(store: &Store, budget: &afloat_core::view::Key, now: u64) -> bool {
    store.upgrades.values().any(|upgrade| {
        let overrides = upgrade.spec.drain.iter().flat_map(|drain| &drain.override_budgets);
        overrides
            .into_iter()
            .any(|said| *said.name == *budget.name && *said.namespace == *budget.namespace && said.until.0 > stamp(now))
    })
}

fn remember(upgrade: &ClusterUpgrade, before: &UpgradeMemory, revision: u64) -> UpgradeMemory {
    let spec = &upgrade.spec;
    let held = spec.paused == Some(true) || spec.abort == Some(true) || upgrade.metadata.deletion_timestamp.is_some();
    let budget = spec.budget.clone().unwrap_or_default();
    UpgradeMemory {
        held_since: held.then(|| before.held_since.unwrap_or(revision)),
        max_unavailable: budget.max_unavailable.map(|most| match most {
            IntOrString::Int(count) => Most::Count(usize::try_from(count).unwrap_or(1)),
            IntOrString::String(text) => Most::Percent(text.trim_end_matches('%').parse().unwrap_or(1)),
        }),
        per_domain: budget.per_failure_domain.and_then(|count| usize::try_from(count).ok()),
        slots: before.slots.clone(),
        ended: before.ended,
        gates: spec.gates.iter().map(|gate| gate.name.clone()).collect(),
    }
}

/// The order of states within an attempt; those of a failure come after all others.
fn rank(state: NodeState) -> u8 {
    match state {
        NodeState::Staging => 1,
        NodeState::Staged => 2,
        NodeState::Paused => 3,
        NodeState::Draining => 4,
        NodeState::StandingAside => 5,
        NodeState::Upgrading => 6,
        NodeState::Verifying => 7,
        NodeState::Succeeded => 8,
        NodeState::Failed => 9,
        NodeState::RollingBack => 10,
        NodeState::RolledBack => 11,
        // Pending, and Rancher's.
        _ => 0,
    }
}

pub(super) fn daemon(pod: &Pod) -> bool {
    pod.shape
        .owner
        .as_ref()
        .is_some_and(|owner| &*owner.kind == "DaemonSet")
}

/// The upgrade of a node that its cordon is signed with.
fn current_upgrade(store: &Store, node: &Node) -> Option<Arc<NodeKubeadmUpgrade>> {
    let mut found = store
        .node_upgrades
        .values()
        .filter(|upgrade| upgrade.spec.node.uid == node.uid.as_str())
        .filter(|upgrade| upgrade.spec.desired != DesiredNodeState::Staged);
    let first = found.next()?;
    // Several hops have an object each: the newest that may go on is meant.
    Some(Arc::clone(found.fold(first, |newest, upgrade| {
        if upgrade.metadata.creation_timestamp > newest.metadata.creation_timestamp {
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

//! Rules about the ledger of an upgrade: slots within the budget and its failure domains, control planes one by one and before
//! all workers, behind open gates.

use std::collections::BTreeMap;
use std::sync::Arc;

use afloat_api::clusterupgrade::Phase;
use afloat_api::{ClusterUpgrade, NodeRole};
use afloat_core::view::Node;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::{Most, NodeMemory, Rules, UpgradeMemory};
use crate::store::{Kind as _, KindName, Store, Written};

impl Rules {
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
        if memory.ended && !before.ended {
            memory.ended_knowing = self.doing.as_ref().map_or(u64::MAX, |doing| doing.seen.newest_node);
        }
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
            let ledger_as_of = change.before.as_ref().map_or(0, |old| old.revision());
            self.slots_are_granted(store, &after, &granted, ledger_as_of);
        }
    }

    /// New slots: within the budget, control planes one by one and before all workers, with open gates.
    fn slots_are_granted(
        &mut self,
        store: &Store,
        upgrade: &ClusterUpgrade,
        granted: &[afloat_api::clusterupgrade::Slot],
        ledger_as_of: u64,
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
        // A share is one of the workers that are seen: one may have left a moment ago.
        let all = self.nodes.values().filter(|node| !node.control_plane).count();
        let all = all.max(workers_at(store, seen.of(KindName::Node)));
        if let Some(kept) = self.upgrades.get_mut(&key) {
            kept.granted_under = kept.max_unavailable.unwrap_or(Most::Count(1)).of(all);
        }
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
        // One that came back a moment ago could only be known by whoever saw it, or saw that the ledger is from after that.
        let known = seen.of(KindName::Node).max(ledger_as_of);
        let in_service = |node: &NodeMemory| node.available() && node.back_since.is_none_or(|since| since <= known);
        let healthy_granted = granted_workers
            .iter()
            .any(|slot| self.nodes.get(slot.node.as_str()).is_some_and(in_service));
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
            // Another machine under the name of one that has left may be of another domain.
            if let Some(node) = self.nodes.get(slot.0.as_str())
                && node.uid == slot.1
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
        // A machine has an upgrade for each hop: the one that was given the slot says where it goes. An old view may give one to
        // a hop that is over, when the next has its object already.
        let holders = granted.iter().filter_map(|slot| {
            let mut upgrades = store.node_upgrades.values();
            upgrades.find(|upgrade| upgrade.metadata.uid.as_deref() == Some(&slot.holder))
        });
        let versions = holders.filter_map(|upgrade| upgrade.spec.kubelet_version.parse().ok());
        let target: Option<afloat_core::KubernetesVersion> = versions.max();
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
}

/// How many workers there were at a revision.
fn workers_at(store: &Store, revision: u64) -> usize {
    let workers = |node: Option<&Arc<Node>>| usize::from(node.is_some_and(|node| !node.control_plane));
    let changes = store.nodes.changes().iter();
    let changes = changes.take_while(|change| change.revision <= revision);
    changes.fold(0, |count, change| {
        count + workers(change.after.as_ref()) - workers(change.before.as_ref())
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
        granted_under: before.granted_under,
        ended: before.ended,
        ended_knowing: before.ended_knowing,
        gates: spec.gates.iter().map(|gate| gate.name.clone()).collect(),
    }
}

//! Findings about what runs on the nodes: what could never leave, and what would find no place.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use afloat_api::clusterupgrade::Severity;
use afloat_api::{ObjectRef, Reason};

use super::{Look, accept_word, short_kind};
use crate::capacity::{Room, workload_of};
use crate::view::{Node, NodeName, Pod, PodBudget, View, WorkloadKind};

/// How many nodes are tried for room, those with the most on them first: the gate looks at every one again, later.
const MOST_TRIED: usize = 50;
/// How many workloads without room are named.
const MOST_WITHOUT_ROOM: usize = 20;

impl Look<'_> {
    pub(super) fn pods(&mut self) {
        let nodes: Vec<Arc<Node>> = self.view.nodes.values().cloned().collect();
        let taken: BTreeSet<NodeName> = nodes
            .iter()
            .filter(|node| self.is_taken(node))
            .map(|node| node.name.clone())
            .collect();
        // A node that is alone keeps its pods.
        if nodes.iter().filter(|node| !node.deleting).count() < 2 {
            return;
        }
        self.kept_pods(&taken);
        self.budgets(&taken);
        self.two_budgets(&taken);
        self.room(&taken);
    }

    /// Pods that the drain leaves alone unless the person says otherwise, by what stands behind them.
    fn kept_pods(&mut self, taken: &BTreeSet<NodeName>) {
        let options = &self.settings.drain;
        let mut kept: BTreeMap<(Reason, ObjectRef), (usize, NodeName)> = BTreeMap::new();
        for pod in self.view.pods() {
            let reason = if pod.shape.owner.is_none() && !options.evict_unmanaged {
                Reason::UnmanagedPod
            } else if pod.shape.local_data && !options.delete_local_data {
                Reason::LocalData
            } else {
                continue;
            };
            // Last, as it costs most: few of 150,000 pods come this far.
            let Some(node) = pod.node.as_ref().filter(|node| taken.contains(*node)) else {
                continue;
            };
            if would_be_evicted(pod) {
                let key = (reason, workload_of(self.view, pod));
                kept.entry(key).or_insert_with(|| (0, node.clone())).0 += 1;
            }
        }
        for ((reason, object), (count, node)) in kept {
            let (message, option) = match (reason, count) {
                (Reason::UnmanagedPod, _) => (
                    format!("no controller would bring it back: {node} could not be drained"),
                    "evictUnmanagedPods",
                ),
                (_, 1) => (
                    format!("has data in an emptyDir that an eviction loses: {node} could not be drained"),
                    "deleteEmptyDirData",
                ),
                _ => (
                    format!(
                        "{count} of its pods have data in an emptyDir that an eviction loses: {node} could not be drained"
                    ),
                    "deleteEmptyDirData",
                ),
            };
            let remedy = self.set_drain(option);
            self.say(Severity::Error, reason, object, &message, Some(&remedy));
        }
    }

    fn set_drain(&self, option: &str) -> String {
        format!(
            "kubectl -n {} patch clusterupgrade {} --type merge -p '{{\"spec\":{{\"drain\":{{\"{option}\":true}}}}}}'",
            self.upgrade.namespace, self.upgrade.name
        )
    }

    /// Budgets that even with every pod healthy allow no eviction.
    fn budgets(&mut self, taken: &BTreeSet<NodeName>) {
        let never = |budget: &&Arc<PodBudget>| {
            budget.up_to_date
                && budget.disruptions_allowed == 0
                && budget.expected_pods > 0
                && budget.desired_healthy >= budget.expected_pods
                && !self.overridden(budget)
        };
        let budgets: Vec<Arc<PodBudget>> = self.view.budgets.values().filter(never).cloned().collect();
        for budget in &budgets {
            let pods: Vec<&Arc<Pod>> = self
                .view
                .pods_in(&budget.key.namespace)
                .filter(|pod| budget.selector.matches(&pod.shape.labels) && would_be_evicted(pod))
                .filter(|pod| pod.node.as_ref().is_some_and(|node| taken.contains(node)))
                .collect();
            let Some(first) = pods.first() else { continue };
            let (message, remedy) = self.blocked(budget, &pods, first);
            let object = budget_ref(budget);
            let reason = Reason::BudgetBlocksDrain;
            self.say(Severity::Error, reason, object, &message, Some(&remedy));
        }
    }

    fn blocked(&self, budget: &PodBudget, pods: &[&Arc<Pod>], first: &Pod) -> (String, String) {
        let nodes: BTreeSet<&str> = pods
            .iter()
            .filter_map(|pod| pod.node.as_ref().map(NodeName::as_str))
            .collect();
        let names = nodes.iter().take(3).copied().collect::<Vec<_>>().join(", ");
        let (on, can) = match (pods.len(), nodes.len()) {
            (1, _) => (format!("one on {names}"), names),
            (2, 1) => (format!("both on {names}"), names),
            (_, 1) => (format!("all on {names}"), names),
            (_, 2..=3) => (format!("on {names}"), format!("none of {names}")),
            (_, more) => (format!("on {more} nodes"), format!("none of the {more} nodes")),
        };
        let message = format!(
            "allows 0 disruptions: {} of {} pods must stay, {on}; {can} can {}be drained, the upgrade would wait for that",
            budget.desired_healthy,
            budget.expected_pods,
            if nodes.len() == 1 { "never " } else { "ever " },
        );
        let namespace = &budget.key.namespace;
        let workload = workload_of(self.view, first);
        let remedy = replicas(self.view, &workload).map_or_else(
            || format!("kubectl -n {namespace} edit pdb {}", budget.key.name),
            |replicas| {
                format!(
                    "kubectl -n {namespace} scale {}/{} --replicas={}",
                    short_kind(&workload.kind),
                    workload.name,
                    replicas + 1
                )
            },
        );
        (message, remedy)
    }

    fn overridden(&self, budget: &PodBudget) -> bool {
        self.settings.drain.overrides.iter().any(|entry| {
            entry.namespace == *budget.key.namespace && entry.name == *budget.key.name && self.now < entry.until.0
        })
    }

    /// The eviction API refuses a pod under two budgets for ever, whatever they allow.
    fn two_budgets(&mut self, taken: &BTreeSet<NodeName>) {
        let mut in_namespace: BTreeMap<&Arc<str>, usize> = BTreeMap::new();
        for key in self.view.budgets.keys() {
            *in_namespace.entry(&key.namespace).or_default() += 1;
        }
        let mut pairs: BTreeMap<ObjectRef, String> = BTreeMap::new();
        for (namespace, _) in in_namespace.into_iter().filter(|(_, budgets)| *budgets > 1) {
            for pod in self.view.pods_in(namespace).filter(|pod| would_be_evicted(pod)) {
                let Some(node) = pod.node.as_ref().filter(|node| taken.contains(*node)) else {
                    continue;
                };
                let budgets: Vec<&Arc<PodBudget>> = self.view.budgets_of(pod).take(2).collect();
                let [first, second] = budgets.as_slice() else { continue };
                if self.overridden(first) && self.overridden(second) {
                    continue;
                }
                let message = || {
                    format!(
                        "and pdb/{} both count for pod {}: the API server evicts no pod under two, so {node} can never be drained",
                        second.key, pod.key
                    )
                };
                pairs.entry(budget_ref(first)).or_insert_with(message);
            }
        }
        for (object, message) in pairs {
            let remedy = format!(
                "kubectl -n {} edit pdb {}",
                object.namespace.as_deref().unwrap_or_default(),
                object.name
            );
            let reason = Reason::SeveralPodDisruptionBudgets;
            self.say(Severity::Error, reason, object, &message, Some(&remedy));
        }
    }

    /// Workloads without a place when a single node is away. Where there are no spare machines that is often so, and a person
    /// may well take that a replica waits: it is a warning, by workload.
    fn room(&mut self, taken: &BTreeSet<NodeName>) {
        let mut nodes: Vec<&Arc<Node>> = taken.iter().filter_map(|name| self.view.nodes.get(name)).collect();
        nodes.sort_by_cached_key(|node| {
            let used = self.view.used_on(&node.name);
            std::cmp::Reverse(used.map_or((0, 0), |used| (used.memory, used.cpu_milli)))
        });
        nodes.truncate(MOST_TRIED);
        let mut known = BTreeSet::new();
        let mut found = Vec::new();
        let mut next = 0;
        while next < nodes.len() && found.len() < MOST_WITHOUT_ROOM {
            let mut room = Room::new(self.view, &known);
            let failed = nodes[next..].iter().enumerate().find_map(|(index, node)| {
                let found = room.could_take(&node.name).err()?;
                Some((index, found))
            });
            let Some((index, without_room)) = failed else { break };
            // Once more from this node on, now that this workload is known: there may be others.
            next += index;
            known.insert(accept_word(&without_room.workload, Reason::NoCapacity));
            found.push(without_room);
        }
        for without_room in found {
            let message = format!("{without_room}; it would wait until {} is back", without_room.node);
            let object = without_room.workload;
            let remedy = format!(
                "make room, or accept it: --accept {}",
                accept_word(&object, Reason::NoCapacity)
            );
            let reason = Reason::NoCapacity;
            self.say(Severity::Warning, reason, object, &message, Some(&remedy));
        }
    }
}

fn would_be_evicted(pod: &Pod) -> bool {
    let of_daemon_set = |pod: &Pod| {
        let owner = pod.shape.owner.as_ref();
        owner.is_some_and(|owner| &*owner.kind == "DaemonSet")
    };
    pod.static_part.is_none() && pod.task.is_none() && !pod.phase.finished() && !of_daemon_set(pod)
}

fn replicas(view: &View, workload: &ObjectRef) -> Option<i64> {
    let kind = match workload.kind.as_str() {
        "Deployment" => WorkloadKind::Deployment,
        "ReplicaSet" => WorkloadKind::ReplicaSet,
        "StatefulSet" => WorkloadKind::StatefulSet,
        _ => return None,
    };
    let key = crate::view::Key::new(workload.namespace.as_deref().unwrap_or_default(), &workload.name);
    view.workloads.get(&(kind, key)).map(|workload| workload.replicas)
}

fn budget_ref(budget: &PodBudget) -> ObjectRef {
    ObjectRef {
        api_version: Some("policy/v1".to_owned()),
        kind: "PodDisruptionBudget".to_owned(),
        namespace: Some(budget.key.namespace.to_string()),
        name: budget.key.name.to_string(),
        uid: Some(budget.uid.to_string()),
    }
}

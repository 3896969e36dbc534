//! DaemonSets: one pod on every node that may have one, pinned there by affinity and placed by the scheduler, renewed
//! within the unavailability the strategy allows.

use super::{BURST, count, health, is_going, of_kind, pod_of, scaled, status_says};
use crate::actor::{Actor, Decision, Turn};
use crate::clock::after;
use crate::hash::{suffix, template_hash};
use crate::object::{Key, Kind, Object, ObjectRef, controller_of, label, name, namespace, uid};
use crate::queue::Queue;
use crate::request::Request;
use crate::select::{pinned_node, repelling_taint, wants_node};
use crate::view::{Change, View, is_active, is_terminal, node_of, ready_since};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{DaemonSet, DaemonSetSpec};
use k8s_openapi::api::core::v1::{Node, Pod, PodSpec, PodTemplateSpec, Toleration};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

const HASH: &str = "controller-revision-hash";
/// A set is looked at as a whole, node by node; its pods change by thousands at once. So: once for a burst.
const GATHER: Duration = Duration::from_millis(20);
/// The same for each node of a large cluster: a look takes some microseconds for each.
const GATHER_BY_NODE: Duration = Duration::from_micros(40);
/// What a daemon stands that others do not (`AddOrUpdateDaemonPodTolerations`).
const TOLERATED: &[(&str, &str)] = &[
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
];

/// The DaemonSet controller.
#[derive(Debug, Default)]
pub struct DaemonSets;

impl Actor for DaemonSets {
    fn name(&self) -> &'static str {
        "daemonset-controller"
    }

    fn observe(&mut self, change: &Change, view: &View, now: Timestamp, queue: &mut Queue) {
        let nodes = u32::try_from(view.nodes.len()).unwrap_or(u32::MAX);
        let soon = after(now, GATHER.max(GATHER_BY_NODE.saturating_mul(nodes)));
        if let Some(set) = of_kind(change, Kind::DaemonSet) {
            queue.add(set.reference());
        } else if let Some(Object::Pod(pod)) = of_kind(change, Kind::Pod) {
            if let Some(owner) = controller_of(&pod.metadata).filter(|owner| owner.kind == "DaemonSet") {
                let key = Key::new(namespace(&pod.metadata), owner.name.clone());
                queue.add_at(ObjectRef::new(Kind::DaemonSet, key), soon);
            }
        } else if let Some(Object::Node(node)) = of_kind(change, Kind::Node) {
            let before = change.old.as_ref().and_then(Object::as_node);
            let same = before.is_some_and(|old| old.spec == node.spec && old.metadata.labels == node.metadata.labels);
            if !same || change.new.is_none() {
                for key in view.daemon_sets.keys() {
                    queue.add_at(ObjectRef::new(Kind::DaemonSet, key.clone()), soon);
                }
            }
        }
    }

    fn decide(&mut self, item: &ObjectRef, turn: &mut Turn<'_>) -> Decision {
        let Some(set) = turn.view.daemon_sets.get(&item.key).cloned() else {
            return Decision::nothing();
        };
        let Some(spec) = set.spec.as_ref().filter(|_| !is_going(&set.metadata)) else {
            return Decision::nothing();
        };
        let template = tolerant(&spec.template);
        let hash = template_hash(&spec.template);
        let places = Places::of(&set, &template, turn.view);
        let mut requests = Vec::new();
        for node in places.missing().take(BURST) {
            let pod_name = format!("{}-{}", name(&set.metadata), suffix(turn.rng));
            let mut pod = pod_of(&template, Kind::DaemonSet, &set.metadata, &pod_name, &[(HASH, &hash)]);
            pin(&mut pod, node);
            requests.push(Request::create(Kind::Pod, namespace(&set.metadata), pod));
        }
        requests.extend(
            places
                .surplus()
                .map(|pod| Request::delete(Kind::Pod, &pod.metadata, None)),
        );
        requests.extend(
            places
                .renewals(spec, &hash)
                .map(|pod| Request::delete(Kind::Pod, &pod.metadata, None)),
        );
        let (status, next) = places.status(&set, spec, &hash, turn.now);
        if !status_says(set.status.as_ref(), &status) {
            requests.push(Request::patch_status(Kind::DaemonSet, &set.metadata, &status));
        }
        Decision::requests(requests).and_at(next)
    }
}

fn tolerant(template: &PodTemplateSpec) -> PodTemplateSpec {
    let mut template = template.clone();
    let spec = template.spec.get_or_insert_with(PodSpec::default);
    let host_network = spec.host_network == Some(true);
    let tolerations = spec.tolerations.get_or_insert_with(Vec::new);
    let network = host_network.then_some(("node.kubernetes.io/network-unavailable", "NoSchedule"));
    for (key, effect) in TOLERATED.iter().copied().chain(network) {
        tolerations.push(Toleration {
            key: Some(key.to_owned()),
            operator: Some("Exists".to_owned()),
            effect: Some(effect.to_owned()),
            ..Toleration::default()
        });
    }
    template
}

fn pin(pod: &mut Value, node: &str) {
    pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] = json!({
        "nodeSelectorTerms": [{ "matchFields": [{ "key": "metadata.name", "operator": "In", "values": [node] }] }],
    });
}

/// The pods of a set by the node they are on or meant for.
struct Places<'a> {
    by_node: BTreeMap<String, Vec<&'a Arc<Pod>>>,
    wanted: Vec<&'a str>,
    /// Where a pod may stay, wanted or not.
    kept: Vec<&'a str>,
}

impl<'a> Places<'a> {
    fn of(set: &DaemonSet, template: &PodTemplateSpec, view: &'a View) -> Self {
        let mut by_node: BTreeMap<String, Vec<&Arc<Pod>>> = BTreeMap::new();
        for pod in view.pods_owned_by(uid(&set.metadata)) {
            let pinned = || pod.spec.as_ref().and_then(pinned_node);
            if let Some(node) = node_of(pod).or_else(pinned) {
                by_node.entry(node.to_owned()).or_default().push(pod);
            }
        }
        let named = |test: fn(&PodTemplateSpec, &Node) -> bool| {
            view.nodes
                .values()
                .filter(|node| test(template, node))
                .map(|node| name(&node.metadata))
                .collect()
        };
        Self {
            by_node,
            wanted: named(should_run),
            kept: named(may_stay),
        }
    }

    fn pods(&self, node: &str) -> &[&'a Arc<Pod>] {
        self.by_node.get(node).map(Vec::as_slice).unwrap_or_default()
    }

    /// Nodes without a pod; one on its way out still holds the place.
    fn missing(&self) -> impl Iterator<Item = &'a str> {
        self.wanted
            .iter()
            .copied()
            .filter(|node| self.pods(node).iter().all(|pod| is_terminal(pod)))
    }

    /// Pods where none should be, a second one on a node, and ended ones.
    fn surplus(&self) -> impl Iterator<Item = &'a Arc<Pod>> {
        self.by_node.iter().flat_map(|(node, pods)| {
            let kept = self.kept.binary_search(&node.as_str()).is_ok();
            let active = pods.iter().filter(|pod| is_active(pod)).skip(usize::from(kept));
            let ended = pods
                .iter()
                .filter(|pod| is_terminal(pod) && pod.metadata.deletion_timestamp.is_none());
            active.chain(ended).copied()
        })
    }

    /// Pods of an older template that may go now.
    fn renewals(&self, spec: &DaemonSetSpec, hash: &str) -> impl Iterator<Item = &'a Arc<Pod>> {
        let strategy = spec.update_strategy.as_ref();
        let on_delete = strategy.and_then(|strategy| strategy.type_.as_deref()) == Some("OnDelete");
        let rolling = strategy.and_then(|strategy| strategy.rolling_update.as_ref());
        let limit = scaled(
            rolling.and_then(|r| r.max_unavailable.as_ref()),
            count(self.wanted.len()),
            true,
            "1",
        )
        .max(1);
        let running = |node: &&str| {
            self.pods(node)
                .iter()
                .any(|pod| is_active(pod) && ready_since(pod).is_some())
        };
        let away = count(self.wanted.iter().filter(|node| !running(node)).count());
        let room = if on_delete {
            0
        } else {
            usize::try_from(limit - away).unwrap_or(0)
        };
        let outdated = self.wanted.iter().flat_map(|node| self.pods(node)).copied();
        let outdated = outdated.filter(|pod| is_active(pod) && label(&pod.metadata, HASH) != Some(hash));
        // One that is not up costs nothing to renew.
        let (broken, healthy): (Vec<_>, Vec<_>) = outdated.partition(|pod| ready_since(pod).is_none());
        broken
            .into_iter()
            .filter(move |_| !on_delete)
            .chain(healthy.into_iter().take(room))
            .collect::<Vec<_>>()
            .into_iter()
    }

    fn status(&self, set: &DaemonSet, spec: &DaemonSetSpec, hash: &str, now: Timestamp) -> (Value, Option<Timestamp>) {
        let placed: Vec<&Arc<Pod>> = self
            .wanted
            .iter()
            .filter_map(|node| self.pods(node).iter().copied().find(|pod| is_active(pod)))
            .collect();
        let health = health(placed.iter().copied(), spec.min_ready_seconds, now);
        let updated = placed
            .iter()
            .filter(|pod| label(&pod.metadata, HASH) == Some(hash))
            .count();
        let stray = self
            .by_node
            .keys()
            .filter(|node| self.wanted.binary_search(&node.as_str()).is_err())
            .count();
        let desired = count(self.wanted.len());
        let status = json!({
            "desiredNumberScheduled": desired,
            "currentNumberScheduled": count(placed.len()),
            "numberMisscheduled": count(stray),
            "numberReady": health.ready,
            "numberAvailable": health.available,
            "numberUnavailable": desired - health.available,
            "updatedNumberScheduled": count(updated),
            "observedGeneration": set.metadata.generation,
        });
        (status, health.next)
    }
}

/// A pod may be made there.
fn should_run(template: &PodTemplateSpec, node: &Node) -> bool {
    let Some(spec) = &template.spec else { return false };
    wants_node(spec, node) && repelling_taint(spec.tolerations.as_deref().unwrap_or_default(), node).is_none()
}

/// A pod that is there may stay: a node that turned unready or was tainted since keeps its daemons.
fn may_stay(template: &PodTemplateSpec, node: &Node) -> bool {
    let Some(spec) = &template.spec else { return false };
    let mut tolerations = spec.tolerations.clone().unwrap_or_default();
    tolerations.push(Toleration {
        operator: Some("Exists".to_owned()),
        effect: Some("NoSchedule".to_owned()),
        ..Toleration::default()
    });
    wants_node(spec, node) && repelling_taint(&tolerations, node).is_none()
}

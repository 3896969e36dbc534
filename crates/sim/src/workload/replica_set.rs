//! ReplicaSets: as many active pods as asked for, made from the template, ended in upstream's order.

use super::{BURST, active, count, health, is_going, observe_owner, pod_of, status_says};
use crate::actor::{Actor, Decision, Turn};
use crate::events::Happening;
use crate::hash::suffix;
use crate::object::{Kind, Object, ObjectRef, annotation, name, namespace, uid};
use crate::queue::Queue;
use crate::request::Request;
use crate::select::selects;
use crate::view::{Change, View, node_of, phase, ready_since};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The ReplicaSet controller.
#[derive(Debug, Default)]
pub struct ReplicaSets;

impl Actor for ReplicaSets {
    fn name(&self) -> &'static str {
        "replicaset-controller"
    }

    fn observe(&mut self, change: &Change, _view: &View, _now: Timestamp, queue: &mut Queue) {
        observe_owner(Kind::ReplicaSet, Kind::Pod, change, queue);
    }

    fn decide(&mut self, item: &ObjectRef, turn: &mut Turn<'_>) -> Decision {
        let Some(set) = turn.view.replica_sets.get(&item.key).cloned() else {
            return Decision::nothing();
        };
        if is_going(&set.metadata) {
            return Decision::nothing();
        }
        let pods = active(turn.view.pods_owned_by(uid(&set.metadata)));
        let wanted = usize::try_from(set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1)).unwrap_or(0);
        let mut requests = Vec::new();
        if pods.len() < wanted {
            requests.extend(births(&set, (wanted - pods.len()).min(BURST), turn));
        } else if pods.len() > wanted {
            requests.extend(deaths(&pods, (pods.len() - wanted).min(BURST)));
        }
        let (status, next) = status(&set, &pods, turn.now);
        if !status_says(set.status.as_ref(), &status) {
            requests.push(Request::patch_status(Kind::ReplicaSet, &set.metadata, &status));
        }
        Decision::requests(requests).and_at(next)
    }
}

fn births(set: &Arc<ReplicaSet>, how_many: usize, turn: &mut Turn<'_>) -> Vec<Request> {
    let Some(template) = set.spec.as_ref().and_then(|spec| spec.template.as_ref()) else {
        return Vec::new();
    };
    let object = Object::ReplicaSet(Arc::clone(set));
    let mut requests = Vec::with_capacity(how_many + 1);
    let mut last = String::new();
    for _ in 0..how_many {
        last = format!("{}-{}", name(&set.metadata), suffix(turn.rng));
        let pod = pod_of(template, Kind::ReplicaSet, &set.metadata, &last, &[]);
        requests.push(Request::create(Kind::Pod, namespace(&set.metadata), pod));
    }
    let message = if how_many == 1 {
        format!("Created pod: {last}")
    } else {
        format!("Created {how_many} pods")
    };
    let event = Happening {
        object: &object,
        component: "replicaset-controller",
        host: "",
        reason: "SuccessfulCreate",
        message,
        warning: false,
    };
    requests.push(event.request(turn.now, turn.rng));
    requests
}

/// Who goes first: not placed, not running, not ready, cheap by annotation, crowded on its node, young.
fn deaths(pods: &[&Arc<Pod>], how_many: usize) -> Vec<Request> {
    let mut crowd: BTreeMap<&str, usize> = BTreeMap::new();
    for pod in pods {
        *crowd.entry(node_of(pod).unwrap_or_default()).or_default() += 1;
    }
    let rank = |pod: &Pod| {
        let cost: i64 = annotation(&pod.metadata, "controller.kubernetes.io/pod-deletion-cost")
            .and_then(|cost| cost.parse().ok())
            .unwrap_or(0);
        let node = node_of(pod).unwrap_or_default();
        (
            !node.is_empty(),
            phase(pod) == "Running",
            ready_since(pod).is_some(),
            cost,
            std::cmp::Reverse(crowd.get(node).copied().unwrap_or(0)),
            std::cmp::Reverse(ready_since(pod)),
            std::cmp::Reverse(pod.metadata.creation_timestamp.clone()),
        )
    };
    let mut ranked: Vec<&&Arc<Pod>> = pods.iter().collect();
    ranked.sort_by_cached_key(|pod| (rank(pod), name(&pod.metadata).to_owned()));
    ranked
        .into_iter()
        .take(how_many)
        .map(|pod| Request::delete(Kind::Pod, &pod.metadata, None))
        .collect()
}

fn status(set: &ReplicaSet, pods: &[&Arc<Pod>], now: Timestamp) -> (serde_json::Value, Option<Timestamp>) {
    let spec = set.spec.as_ref();
    let health = health(pods.iter().copied(), spec.and_then(|spec| spec.min_ready_seconds), now);
    let template = spec
        .and_then(|spec| spec.template.as_ref())
        .and_then(|template| template.metadata.as_ref());
    let template_labels = template.and_then(|meta| meta.labels.clone()).unwrap_or_default();
    let exact = k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector {
        match_labels: Some(template_labels),
        match_expressions: None,
    };
    let labelled = pods
        .iter()
        .filter(|pod| selects(&exact, pod.metadata.labels.as_ref()))
        .count();
    let status = json!({
        "replicas": count(pods.len()),
        "fullyLabeledReplicas": count(labelled),
        "readyReplicas": health.ready,
        "availableReplicas": health.available,
        "observedGeneration": set.metadata.generation,
    });
    (status, health.next)
}

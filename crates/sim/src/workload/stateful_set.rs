//! StatefulSets: pods with fixed names, made in order and renewed from the last to the first. Claims are not made:
//! nothing here provides storage.

use super::{count, health, is_going, observe_owner, pod_of, status_says};
use crate::actor::{Actor, Decision, Turn};
use crate::hash::template_hash;
use crate::object::{Key, Kind, ObjectRef, label, name, namespace, uid};
use crate::queue::Queue;
use crate::request::Request;
use crate::view::{Change, View, is_active, is_ready, is_terminal};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{StatefulSet, StatefulSetSpec};
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;
use std::sync::Arc;

const HASH: &str = "controller-revision-hash";

/// The StatefulSet controller.
#[derive(Debug, Default)]
pub struct StatefulSets;

impl Actor for StatefulSets {
    fn name(&self) -> &'static str {
        "statefulset-controller"
    }

    fn observe(&mut self, change: &Change, _view: &View, _now: Timestamp, queue: &mut Queue) {
        observe_owner(Kind::StatefulSet, Kind::Pod, change, queue);
    }

    fn decide(&mut self, item: &ObjectRef, turn: &mut Turn<'_>) -> Decision {
        let Some(set) = turn.view.stateful_sets.get(&item.key).cloned() else {
            return Decision::nothing();
        };
        let Some(spec) = set.spec.as_ref().filter(|_| !is_going(&set.metadata)) else {
            return Decision::nothing();
        };
        let revision = format!("{}-{}", name(&set.metadata), template_hash(&spec.template));
        let mut requests = next_step(&set, spec, &revision, turn.view);
        let pods: Vec<&Arc<Pod>> = turn
            .view
            .pods_owned_by(uid(&set.metadata))
            .filter(|pod| is_active(pod))
            .collect();
        let (status, next) = status(&set, spec, &revision, &pods, turn.now);
        if !status_says(set.status.as_ref(), &status) {
            requests.push(Request::patch_status(Kind::StatefulSet, &set.metadata, &status));
        }
        Decision::requests(requests).and_at(next)
    }
}

fn wanted(spec: &StatefulSetSpec) -> i32 {
    spec.replicas.unwrap_or(1)
}

/// What to do next; in order, one pod at a time, unless the set is managed in parallel.
fn next_step(set: &StatefulSet, spec: &StatefulSetSpec, revision: &str, view: &View) -> Vec<Request> {
    let parallel = spec.pod_management_policy.as_deref() == Some("Parallel");
    let home = namespace(&set.metadata);
    let pod_at = |ordinal: i32| {
        view.pods
            .get(&Key::new(home, format!("{}-{ordinal}", name(&set.metadata))))
    };
    let mut requests = Vec::new();
    for ordinal in 0..wanted(spec) {
        match pod_at(ordinal) {
            None => {
                let pod_name = format!("{}-{ordinal}", name(&set.metadata));
                let index = ordinal.to_string();
                let labels = [
                    ("statefulset.kubernetes.io/pod-name", pod_name.as_str()),
                    ("apps.kubernetes.io/pod-index", index.as_str()),
                    (HASH, revision),
                ];
                let mut pod = pod_of(&spec.template, Kind::StatefulSet, &set.metadata, &pod_name, &labels);
                pod["spec"]["hostname"] = pod_name.as_str().into();
                pod["spec"]["subdomain"] = spec.service_name.clone().into();
                requests.push(Request::create(Kind::Pod, home, pod));
            }
            Some(pod) if is_terminal(pod) && pod.metadata.deletion_timestamp.is_none() => {
                requests.push(Request::delete(Kind::Pod, &pod.metadata, None));
            }
            Some(pod) if is_active(pod) && is_ready(pod) => continue,
            Some(_) => {}
        }
        if !parallel {
            return requests;
        }
    }
    if !requests.is_empty() {
        return requests;
    }
    let beyond = (wanted(spec)..).map_while(pod_at).last();
    if let Some(pod) = beyond {
        return if is_active(pod) {
            vec![Request::delete(Kind::Pod, &pod.metadata, None)]
        } else {
            Vec::new()
        };
    }
    renewal(spec, revision, pod_at).into_iter().collect()
}

/// The next pod of an older template to end: the last one first, and only while all others are up.
fn renewal<'a>(
    spec: &StatefulSetSpec,
    revision: &str,
    pod_at: impl Fn(i32) -> Option<&'a Arc<Pod>>,
) -> Option<Request> {
    let strategy = spec.update_strategy.as_ref();
    if strategy.and_then(|strategy| strategy.type_.as_deref()) == Some("OnDelete") {
        return None;
    }
    let partition = strategy
        .and_then(|s| s.rolling_update.as_ref())
        .and_then(|r| r.partition)
        .unwrap_or(0);
    for ordinal in (partition..wanted(spec)).rev() {
        let pod = pod_at(ordinal)?;
        if is_active(pod) && label(&pod.metadata, HASH) != Some(revision) {
            return Some(Request::delete(Kind::Pod, &pod.metadata, None));
        }
        if !is_active(pod) || !is_ready(pod) {
            return None;
        }
    }
    None
}

fn status(
    set: &StatefulSet,
    spec: &StatefulSetSpec,
    revision: &str,
    pods: &[&Arc<Pod>],
    now: Timestamp,
) -> (serde_json::Value, Option<Timestamp>) {
    let health = health(pods.iter().copied(), spec.min_ready_seconds, now);
    let updated = count(
        pods.iter()
            .filter(|pod| label(&pod.metadata, HASH) == Some(revision))
            .count(),
    );
    let known = set.status.as_ref().and_then(|status| status.current_revision.clone());
    // The update is over, and its revision the current one, when every pod has it and is up.
    let over = updated == wanted(spec) && health.ready == wanted(spec);
    let current = if over {
        revision.to_owned()
    } else {
        known.unwrap_or_else(|| revision.to_owned())
    };
    let at_current = count(
        pods.iter()
            .filter(|pod| label(&pod.metadata, HASH) == Some(&current))
            .count(),
    );
    let status = json!({
        "observedGeneration": set.metadata.generation,
        "replicas": count(pods.len()),
        "readyReplicas": health.ready,
        "availableReplicas": health.available,
        "updatedReplicas": updated,
        "currentReplicas": at_current,
        "currentRevision": current,
        "updateRevision": revision,
        "collisionCount": 0,
    });
    (status, health.next)
}

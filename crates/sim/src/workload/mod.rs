//! The workload controllers: Deployments keep ReplicaSets, ReplicaSets, DaemonSets, StatefulSets and Jobs keep pods.
//! On a cluster with a kube-controller-manager none of them runs. Here: what they share.

mod daemon_set;
mod deployment;
mod job;
mod replica_set;
mod stateful_set;

pub use daemon_set::DaemonSets;
pub use deployment::Deployments;
pub use job::Jobs;
pub use replica_set::ReplicaSets;
pub use stateful_set::StatefulSets;

use crate::clock::after;
use crate::object::{Key, Kind, Object, ObjectRef, controller_of, controller_reference};
use crate::queue::Queue;
use crate::view::{Change, is_active, ready_since};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// The most pods made or ended in one turn of a controller, as upstream's burst.
const BURST: usize = 500;

/// A pod made from a template for its controller.
fn pod_of(template: &PodTemplateSpec, kind: Kind, owner: &ObjectMeta, pod_name: &str, extra: &[(&str, &str)]) -> Value {
    let meta = template.metadata.clone().unwrap_or_default();
    let mut labels = meta.labels.unwrap_or_default();
    labels.extend(
        extra
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned())),
    );
    let mut metadata = json!({
        "name": pod_name,
        "namespace": owner.namespace,
        "labels": labels,
        "ownerReferences": [controller_reference(kind, owner)],
    });
    if let Some(annotations) = meta.annotations {
        metadata["annotations"] = json!(annotations);
    }
    if pod_name.ends_with('-') {
        metadata["generateName"] = metadata["name"].take();
        if let Some(map) = metadata.as_object_mut() {
            map.remove("name");
        }
    }
    json!({ "metadata": metadata, "spec": template.spec })
}

/// Marks the controlling object of kind `kind` when a pod of it changed, and the object itself when that changed.
fn observe_owner(kind: Kind, dependents: Kind, change: &Change, queue: &mut Queue) {
    let Some(object) = change.latest() else { return };
    if object.kind() == kind {
        queue.add(object.reference());
        return;
    }
    if object.kind() != dependents {
        return;
    }
    for object in [&change.old, &change.new].into_iter().flatten() {
        let Some(owner) = controller_of(object.meta()) else {
            continue;
        };
        if owner.kind == kind.type_meta().1 {
            let namespace = object.meta().namespace.clone().unwrap_or_default();
            queue.add(ObjectRef::new(kind, Key::new(namespace, owner.name.clone())));
        }
    }
}

/// How many pods are ready, how many of them long enough, and when the next one will have been.
#[derive(Debug, Default, PartialEq, Eq)]
struct Health {
    ready: i32,
    available: i32,
    next: Option<Timestamp>,
}

fn health<'a>(pods: impl IntoIterator<Item = &'a Arc<Pod>>, min_ready_seconds: Option<i32>, now: Timestamp) -> Health {
    let wait = Duration::from_secs(u64::try_from(min_ready_seconds.unwrap_or(0)).unwrap_or(0));
    let mut health = Health::default();
    for pod in pods {
        let Some(since) = ready_since(pod) else { continue };
        health.ready += 1;
        let available_at = after(since, wait);
        if wait.is_zero() || available_at <= now {
            health.available += 1;
        } else if health.next.is_none_or(|next| available_at < next) {
            health.next = Some(available_at);
        }
    }
    health
}

fn active<'a>(pods: impl Iterator<Item = &'a Arc<Pod>>) -> Vec<&'a Arc<Pod>> {
    pods.filter(|pod| is_active(pod)).collect()
}

/// An absolute number, or a share of `total` in percent.
fn scaled(value: Option<&IntOrString>, total: i32, round_up: bool, default: &str) -> i32 {
    let read = |text: &str| {
        let number: i64 = text.trim_end_matches('%').parse().unwrap_or(0);
        let share = number.saturating_mul(i64::from(total));
        let whole = match (text.ends_with('%'), round_up) {
            (false, _) => number,
            (true, true) => (share + 99) / 100,
            (true, false) => share / 100,
        };
        i32::try_from(whole).unwrap_or(i32::MAX)
    };
    match value {
        Some(IntOrString::Int(number)) => *number,
        Some(IntOrString::String(text)) => read(text),
        None => read(default),
    }
}

/// The object is being deleted: the garbage collector's, no longer its controller's.
fn is_going(meta: &ObjectMeta) -> bool {
    meta.deletion_timestamp.is_some()
}

fn count(number: usize) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

/// Whether `status` has everything `wanted` says; fields the API leaves out when zero count as equal to zero.
fn status_says(status: Option<&impl serde::Serialize>, wanted: &Value) -> bool {
    let current = status
        .and_then(|status| serde_json::to_value(status).ok())
        .unwrap_or_default();
    wanted.as_object().is_some_and(|fields| {
        fields.iter().all(|(field, value)| {
            let now = current.get(field);
            now == Some(value) || (now.is_none() && (value == &json!(0) || value.is_null() || value == &json!([])))
        })
    })
}

/// The object of a change, for controllers that only look at one kind.
fn of_kind(change: &Change, kind: Kind) -> Option<&Object> {
    change.latest().filter(|object| object.kind() == kind)
}

#[cfg(test)]
mod tests;

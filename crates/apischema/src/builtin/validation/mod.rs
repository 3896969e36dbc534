//! What built-in kinds accept, with the words in which the real server refuses: metadata, then the kind's own rules for
//! creation, replacement and status. The commonly hit rules are here; exotic volume sources and Windows settings pass.

mod autoscaling;
mod common;
mod container;
mod core;
mod ephemeral;
mod event;
mod ingress;
mod jobs;
mod limits;
mod network;
mod pod;
mod policies;
mod scheduling;
mod service;
mod volumes;
mod workloads;

use serde_json::Value;

use crate::field_error::{FieldError, Path};
use crate::structural::NameRule;
use crate::structural::object_meta::{validate_object_meta, validate_object_meta_update};
use common::Errors;

fn name_rule(group: &str, kind: &str) -> NameRule {
    match (group, kind) {
        ("", "Namespace" | "Service") => NameRule::DnsLabel,
        ("rbac.authorization.k8s.io", _) => NameRule::PathSegment,
        _ => NameRule::DnsSubdomain,
    }
}

/// The kinds with finalizers, labels and so on whose metadata upstream checks; stored events have rules of their own.
fn metadata(errors: &mut Errors, group: &str, kind: &str, object: &Value) {
    let namespaced = crate::builtin::kind(group, kind).is_none_or(|known| known.namespaced);
    let path = Path::new("metadata");
    let meta = &object["metadata"];
    errors.extend(validate_object_meta(meta, namespaced, name_rule(group, kind), &path));
    short_finalizers(errors, group, meta, &path);
}

/// Metadata on replacement. Upstream looks at it more than once, by rules for all kinds and by rules of the kind, and
/// every look adds its own cause to a refusal.
fn metadata_update(group: &str, kind: &str, object: &Value, old: &Value) -> Errors {
    let namespaced = crate::builtin::kind(group, kind).is_none_or(|known| known.namespaced);
    let path = Path::new("metadata");
    let (meta, old_meta) = (&object["metadata"], &old["metadata"]);
    let mut errors = validate_object_meta(meta, namespaced, NameRule::PathSegment, &path);
    errors.extend(validate_object_meta_update(meta, old_meta, &path));
    // The exceptions leave the rules for all kinds to speak alone.
    if !matches!((group, kind), ("policy", "PodDisruptionBudget") | ("", "Event")) {
        errors.extend(validate_object_meta_update(meta, old_meta, &path));
        short_finalizers(&mut errors, group, meta, &path);
    }
    errors
}

/// Kinds whose replacements go through the rules for new objects too.
fn checks_as_new(group: &str, kind: &str) -> bool {
    match group {
        "" => matches!(
            kind,
            "Pod"
                | "Node"
                | "ConfigMap"
                | "Secret"
                | "ServiceAccount"
                | "Endpoints"
                | "PersistentVolume"
                | "PersistentVolumeClaim"
        ),
        "apps" => kind == "ControllerRevision",
        "batch" => kind == "Job",
        "storage.k8s.io" => kind == "StorageClass",
        "rbac.authorization.k8s.io" | "node.k8s.io" => true,
        _ => false,
    }
}

/// Built-in kinds ask for finalizers with a domain, unless they are upstream's own.
fn short_finalizers(errors: &mut Errors, group: &str, meta: &Value, path: &Path) {
    const OWN: [&str; 3] = ["kubernetes", "orphan", "foregroundDeletion"];
    // Leases and disruption budgets are checked by the rules for any object alone.
    if matches!(group, "coordination.k8s.io" | "policy") {
        return;
    }
    let at = path.child("finalizers");
    for (index, finalizer) in crate::builtin::fields::list(meta, "finalizers").iter().enumerate() {
        let finalizer = finalizer.as_str().unwrap_or_default();
        if !finalizer.contains('/') && !OWN.contains(&finalizer) {
            let detail = "name is neither a standard finalizer name nor is it fully qualified";
            errors.push(FieldError::invalid(&at.index(index), finalizer, detail));
        }
    }
}

/// The group that refusals name: events are one internal kind, whichever API they came through.
pub fn group_in_messages(group: &str) -> &str {
    if group == "events.k8s.io" { "" } else { group }
}

/// What is wrong with a new object.
pub fn create(group: &str, kind: &str, object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if (group, kind) != ("", "Event") && group != "events.k8s.io" {
        metadata(&mut errors, group, kind, object);
    }
    let found = &mut errors;
    match (group, kind) {
        ("", "Pod") => pod::create(found, object),
        ("", "Node") => core::node(found, object),
        ("", "Namespace") => core::namespace(found, object),
        ("", "PodTemplate") => pod::template(found, &object["template"], &Path::new("template")),
        ("", "Event") => event::event(found, object, false),
        ("events.k8s.io", "Event") => {
            event::event(found, object, true);
            metadata(found, group, kind, object);
            event::strict_create(found, object);
        }
        ("", "Service") => {
            service::service(found, object);
            service::allocation(found, object);
        }
        ("networking.k8s.io", "Ingress") => ingress::create(found, object),
        ("batch", "Job") => jobs::job(found, object, false),
        ("batch", "CronJob") => jobs::cron_job(found, object, false),
        ("apps", "StatefulSet") => workloads::stateful_set(found, object, false),
        ("scheduling.k8s.io", "PriorityClass") => policies::priority_class(found, object),
        _ => always(found, group, kind, object),
    }
    errors
}

/// Rules that hold on creation and on replacement alike.
fn always(found: &mut Errors, group: &str, kind: &str, object: &Value) {
    match (group, kind) {
        ("", "ConfigMap") => core::config_map(found, object),
        ("", "Secret") => core::secret(found, object),
        ("", "LimitRange") => limits::limit_range(found, object),
        ("", "Endpoints") => core::endpoints(found, object),
        ("", "PersistentVolume") => core::persistent_volume(found, object),
        ("", "PersistentVolumeClaim") => core::persistent_volume_claim(found, object),
        ("", "ReplicationController") => workloads::replication_controller(found, object),
        ("networking.k8s.io", "Ingress") => ingress::ingress(found, object),
        ("networking.k8s.io", "NetworkPolicy") => network::network_policy(found, object, None),
        ("discovery.k8s.io", "EndpointSlice") => network::endpoint_slice(found, object, None),
        ("autoscaling", "HorizontalPodAutoscaler") => autoscaling::autoscaler(found, object, None),
        ("apps", "Deployment") => workloads::deployment(found, object),
        ("apps", "ReplicaSet") => workloads::replica_set(found, object),
        ("apps", "DaemonSet") => workloads::daemon_set(found, object),
        ("policy", "PodDisruptionBudget") => policies::disruption_budget(found, object),
        ("coordination.k8s.io", "Lease") => policies::lease(found, object),
        ("rbac.authorization.k8s.io", "Role") => policies::role(found, object, true),
        ("rbac.authorization.k8s.io", "ClusterRole") => policies::role(found, object, false),
        ("rbac.authorization.k8s.io", "RoleBinding") => policies::role_binding(found, object, true),
        ("rbac.authorization.k8s.io", "ClusterRoleBinding") => policies::role_binding(found, object, false),
        ("storage.k8s.io", "StorageClass") => policies::storage_class(found, object),
        _ => {}
    }
}

/// What is wrong with the replacement of `old`.
pub fn update(group: &str, kind: &str, object: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = metadata_update(group, kind, object, old);
    if checks_as_new(group, kind) {
        metadata(&mut errors, group, kind, object);
    }
    let found = &mut errors;
    match (group, kind) {
        ("", "Pod") => pod::update(found, object, old),
        ("", "Node") => {
            core::node(found, object);
            core::node_update(found, object, old);
        }
        ("", "PersistentVolume") => core::persistent_volume_update(found, object, old),
        ("", "ConfigMap") => core::config_map_update(found, object, old),
        ("", "Secret") => core::secret_update(found, object, old),
        ("", "Service") => service::update(found, object, old),
        ("", "Event") => event::event(found, object, false),
        ("events.k8s.io", "Event") => {
            event::event(found, object, true);
            event::strict_update(found, object, old);
        }
        ("networking.k8s.io", "NetworkPolicy") => network::network_policy(found, object, Some(old)),
        ("discovery.k8s.io", "EndpointSlice") => network::endpoint_slice(found, object, Some(old)),
        ("autoscaling", "HorizontalPodAutoscaler") => autoscaling::autoscaler(found, object, Some(old)),
        ("", "PersistentVolumeClaim") => core::persistent_volume_claim_update(found, object, old),
        ("apps", "Deployment" | "ReplicaSet") => {
            always(found, group, kind, object);
            workloads::same_selector(found, object, old);
        }
        ("apps", "DaemonSet") => {
            workloads::same_selector(found, object, old);
            always(found, group, kind, object);
        }
        ("apps", "StatefulSet") => {
            workloads::stateful_set(found, object, true);
            workloads::stateful_set_update(found, object, old);
        }
        ("batch", "Job") => {
            jobs::job(found, object, true);
            jobs::job_update(found, object, old);
        }
        ("batch", "CronJob") => jobs::cron_job(found, object, true),
        ("scheduling.k8s.io", "PriorityClass") => policies::priority_class_update(found, object, old),
        ("storage.k8s.io", "StorageClass") => policies::storage_class_update(found, object, old),
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => {
            always(found, group, kind, object);
            policies::role_binding_update(found, object, old);
        }
        _ => always(found, group, kind, object),
    }
    errors
}

/// What is wrong with a write through `pods/ephemeralcontainers`.
pub fn ephemeral_containers_update(object: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = metadata_update("", "Pod", object, old);
    metadata(&mut errors, "", "Pod", object);
    pod::ephemeral_containers_update(&mut errors, object, old);
    errors
}

/// What is wrong with a write through the status subresource.
pub fn status_update(group: &str, kind: &str, object: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = metadata_update(group, kind, object, old);
    let found = &mut errors;
    match (group, kind) {
        ("", "Pod") => pod::status_update(found, object, old),
        ("", "Node") => core::node_update(found, object, old),
        ("", "Namespace") => core::namespace_status(found, object),
        ("autoscaling", "HorizontalPodAutoscaler") => autoscaling::status(found, object),
        ("apps", "Deployment") => workloads::deployment_status(found, object),
        ("apps", "ReplicaSet") => workloads::replica_set_status(found, object),
        ("policy", "PodDisruptionBudget") => policies::disruption_budget_status(found, object),
        _ => {}
    }
    errors
}

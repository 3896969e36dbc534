//! What the registry does with an object before it is validated and stored: which fields a request may set at all, when
//! the generation rises, what is generated. Only fields of the object are touched; names, uids, timestamps and
//! resource versions belong to the server.

mod pod;
mod service;

use serde_json::{Value, json};

use super::fields::{child, copy, flag, int, list_mut, map, present, remove, set, set_missing, text};
use super::normalise::reset_field;

pub use pod::{deletion_grace_period, quality_of_service};

/// What the server knows and a new object may need.
pub struct CreateContext<'a> {
    pub uid: &'a str,
    /// RFC 3339, whole seconds.
    pub now: &'a str,
    pub allocate_cluster_ip: &'a mut dyn FnMut() -> String,
    pub allocate_node_port: &'a mut dyn FnMut() -> i64,
}

/// When the generation of a kind rises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Generation {
    None,
    /// Set once, never raised.
    Fixed,
    /// Raised with every change of these top-level fields.
    Follows(&'static [&'static str]),
    /// Deployments: spec or annotations.
    FollowsSpecAndAnnotations,
    /// EndpointSlices: everything but metadata, and labels.
    FollowsContentAndLabels,
    /// CSI drivers: raised with the spec, but not set on creation.
    FollowsSpecFromZero,
}

fn generation(group: &str, kind: &str) -> Generation {
    match (group, kind) {
        ("", "Pod" | "ReplicationController")
        | ("apps", "DaemonSet" | "StatefulSet" | "ReplicaSet")
        | ("batch", "Job" | "CronJob")
        | ("policy", "PodDisruptionBudget")
        | ("networking.k8s.io", "Ingress" | "IngressClass" | "NetworkPolicy")
        | ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy" | "ValidatingAdmissionPolicyBinding")
        | ("apiextensions.k8s.io", "CustomResourceDefinition") => Generation::Follows(&["spec"]),
        ("", "PodTemplate") => Generation::Follows(&["template"]),
        ("admissionregistration.k8s.io", _) => Generation::Follows(&["webhooks"]),
        ("apps", "Deployment") => Generation::FollowsSpecAndAnnotations,
        ("discovery.k8s.io", "EndpointSlice") => Generation::FollowsContentAndLabels,
        ("scheduling.k8s.io", "PriorityClass") => Generation::Fixed,
        ("storage.k8s.io", "CSIDriver") => Generation::FollowsSpecFromZero,
        _ => Generation::None,
    }
}

/// Whether objects of the kind get `metadata.generation` when they are created.
pub fn has_generation(group: &str, kind: &str) -> bool {
    !matches!(
        generation(group, kind),
        Generation::None | Generation::FollowsSpecFromZero
    )
}

fn has_status(group: &str, kind: &str) -> bool {
    super::kind(group, kind).is_some_and(|known| known.subresources.iter().any(|sub| sub.name == "status"))
}

/// Makes nothing of empty lists. Decoding keeps those that are always printed, because whoever sends one owns it; to
/// everything after that, and to storage, an empty list and none are the same. Metadata has no such lists, and objects
/// within a `ControllerRevision` are nobody's business.
fn forget_empty_lists(kind: &str, object: &mut Value) {
    fn walk(value: &mut Value) {
        match value {
            Value::Array(items) if items.is_empty() => *value = Value::Null,
            Value::Array(items) => items.iter_mut().for_each(walk),
            Value::Object(fields) => fields.values_mut().for_each(walk),
            _ => {}
        }
    }
    if kind == "ControllerRevision" {
        return;
    }
    let fields = object.as_object_mut().into_iter().flatten();
    fields
        .filter(|(name, _)| *name != "metadata")
        .for_each(|(_, value)| walk(value));
}

/// Prepares a new object.
pub fn prepare_for_create(group: &str, kind: &str, object: &mut Value, context: &mut CreateContext<'_>) {
    forget_empty_lists(kind, object);
    // Custom resource definitions have a module of their own; nodes may bring their status with them.
    if has_status(group, kind) && kind != "Node" && kind != "CustomResourceDefinition" {
        reset_field(group, kind, object, "status");
    }
    match (group, kind) {
        ("", "Pod") => pod::prepare_for_create(object, context.now),
        ("", "Namespace") => new_namespace(object),
        ("", "Secret") => fold_string_data(object),
        ("", "Service") => service::prepare_for_create(object, context),
        ("", "PersistentVolume") => {
            object["status"] = json!({"phase": "Pending", "lastPhaseTransitionTime": context.now});
        }
        ("", "PersistentVolumeClaim") => {
            object["status"] = json!({"phase": "Pending"});
            data_sources(object);
        }
        ("apps", "DaemonSet") => {
            let given = template_generation(object).filter(|given| *given >= 1);
            set_template_generation(object, given.unwrap_or(1));
        }
        ("apps", "StatefulSet") => drop_disabled_max_unavailable(object),
        ("batch", "Job") => job_selector(object, context.uid),
        ("discovery.k8s.io", "EndpointSlice") => drop_topology(object),
        ("coordination.k8s.io", "Lease") => drop_coordinated_election(object),
        _ => {}
    }
    if has_generation(group, kind) {
        set(child(object, "metadata"), "generation", 1);
    }
}

/// Prepares the replacement of an object.
pub fn prepare_for_update(group: &str, kind: &str, object: &mut Value, old: &Value) {
    forget_empty_lists(kind, object);
    copy(&old["metadata"], child(object, "metadata"), "generation");
    if has_status(group, kind) && kind != "CustomResourceDefinition" {
        copy(old, object, "status");
    }
    match (group, kind) {
        ("", "Namespace") => copy(&old["spec"], child(object, "spec"), "finalizers"),
        ("", "Secret") => fold_string_data(object),
        ("", "Service") => service::prepare_for_update(object, old),
        ("", "PersistentVolumeClaim") => data_sources(object),
        ("apps", "DaemonSet") => {
            let before = template_generation(old).unwrap_or(1);
            let raised = i64::from(old["spec"]["template"] != object["spec"]["template"]);
            set_template_generation(object, before + raised);
        }
        ("apps", "StatefulSet") => drop_disabled_max_unavailable(object),
        ("coordination.k8s.io", "Lease") => drop_coordinated_election(object),
        ("discovery.k8s.io", "EndpointSlice") => drop_topology(object),
        _ => {}
    }
    if changed(group, kind, object, old) {
        let before = int(&old["metadata"], "generation").unwrap_or_default();
        set(child(object, "metadata"), "generation", before + 1);
    }
}

/// Whether an update changes what the kind's generation counts.
fn changed(group: &str, kind: &str, new: &Value, old: &Value) -> bool {
    let differs = |field: &str| new.get(field) != old.get(field);
    let metadata_differs = |field: &str| map(&new["metadata"], field) != map(&old["metadata"], field);
    match generation(group, kind) {
        Generation::None | Generation::Fixed => false,
        Generation::Follows(fields) => fields.iter().any(|field| differs(field)),
        Generation::FollowsSpecAndAnnotations => differs("spec") || metadata_differs("annotations"),
        Generation::FollowsSpecFromZero => differs("spec"),
        Generation::FollowsContentAndLabels => {
            ["addressType", "endpoints", "ports"].into_iter().any(differs) || metadata_differs("labels")
        }
    }
}

/// What subresources that are strict about metadata do not let a request change.
const METADATA_KEPT_FROM_SUBRESOURCES: [&str; 6] = [
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "labels",
    "annotations",
    "finalizers",
    "ownerReferences",
];

/// Prepares a write through the `status` subresource: everything else stays as it was.
pub fn prepare_for_status_update(group: &str, kind: &str, object: &mut Value, old: &Value, now: &str) {
    forget_empty_lists(kind, object);
    copy(&old["metadata"], child(object, "metadata"), "generation");
    copy(old, object, "spec");
    match (group, kind) {
        ("", "Pod") => pod::prepare_for_status_update(object, old),
        ("", "PersistentVolume") => phase_transition(object, old, now),
        ("apps", "Deployment") => copy(&old["metadata"], child(object, "metadata"), "labels"),
        ("storage.k8s.io", "VolumeAttachment") | ("admissionregistration.k8s.io", _) => {
            for field in METADATA_KEPT_FROM_SUBRESOURCES {
                copy(&old["metadata"], child(object, "metadata"), field);
            }
        }
        _ => {}
    }
}

/// Prepares a write through `pods/ephemeralcontainers`: nothing but those containers changes, and labels and the like
/// stay too.
pub fn prepare_for_ephemeral_containers_update(object: &mut Value, old: &Value) {
    forget_empty_lists("Pod", object);
    let given = object["spec"].get("ephemeralContainers").cloned();
    copy(old, object, "spec");
    copy(old, object, "status");
    for field in METADATA_KEPT_FROM_SUBRESOURCES.into_iter().chain(["generation"]) {
        copy(&old["metadata"], child(object, "metadata"), field);
    }
    match given {
        Some(given) => set(child(object, "spec"), "ephemeralContainers", given),
        None => {
            remove(child(object, "spec"), "ephemeralContainers");
        }
    }
    if object["spec"] != old["spec"] {
        let before = int(&old["metadata"], "generation").unwrap_or_default();
        set(child(object, "metadata"), "generation", before + 1);
    }
}

/// Prepares a write through `namespaces/finalize`.
pub fn prepare_for_finalize(object: &mut Value, old: &Value) {
    copy(old, object, "status");
}

/// The fields that an endpoint resets whatever is sent, as dotted paths: applying them gives no ownership.
pub fn reset_fields(group: &str, kind: &str, subresource: &str) -> &'static [&'static str] {
    match (group, kind, subresource) {
        ("", "Pod", "status") => &["spec", "metadata.deletionTimestamp", "metadata.ownerReferences"],
        ("apps", "Deployment", "status") => &["spec", "metadata.labels"],
        ("storage.k8s.io", "VolumeAttachment", "status")
        | ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy", "status")
        | ("apiextensions.k8s.io", "CustomResourceDefinition", "status") => &["metadata", "spec"],
        (_, _, "status") if has_status(group, kind) => &["spec"],
        ("", "Namespace", "finalize") => &["status"],
        (_, _, "") if has_status(group, kind) => &["status"],
        _ => &[],
    }
}

/// Whether a `PUT` to a name that is not there creates it.
pub fn allows_create_on_update(group: &str, kind: &str) -> bool {
    matches!(
        (group, kind),
        ("", "Endpoints" | "Event" | "LimitRange" | "Service")
            | ("events.k8s.io", "Event")
            | ("rbac.authorization.k8s.io", _)
            | ("coordination.k8s.io", "Lease")
            | ("node.k8s.io", "RuntimeClass")
    )
}

/// Whether a `PUT` may leave out the resource version.
pub fn allows_unconditional_update(group: &str, kind: &str) -> bool {
    !matches!(
        (group, kind),
        ("policy", "PodDisruptionBudget")
            | ("storage.k8s.io", "CSIDriver" | "CSINode" | "VolumeAttachment")
            | ("coordination.k8s.io", "Lease")
            | ("node.k8s.io", "RuntimeClass")
            | (
                "admissionregistration.k8s.io" | "apiextensions.k8s.io" | "apiregistration.k8s.io",
                _
            )
    )
}

fn new_namespace(object: &mut Value) {
    object["status"] = json!({"phase": "Active"});
    let spec = child(object, "spec");
    match spec.get_mut("finalizers").and_then(Value::as_array_mut) {
        Some(finalizers) if finalizers.iter().any(|known| known == "kubernetes") => {}
        Some(finalizers) => finalizers.push(Value::from("kubernetes")),
        None => set(spec, "finalizers", json!(["kubernetes"])),
    }
}

/// `stringData` is written only: its texts become bytes of `data`.
pub fn fold_string_data(object: &mut Value) {
    use base64::Engine as _;
    let Some(texts) = remove(object, "stringData") else {
        return;
    };
    for (key, text) in texts.as_object().into_iter().flatten() {
        let bytes = base64::engine::general_purpose::STANDARD.encode(text.as_str().unwrap_or_default());
        set(child(object, "data"), key, bytes);
    }
}

/// The old and the new field for the source of a claim's data are kept alike.
fn data_sources(claim: &mut Value) {
    let spec = child(claim, "spec");
    let without_namespace = |source: &Value| text(source, "namespace").is_empty();
    match (
        present(spec, "dataSource").cloned(),
        present(spec, "dataSourceRef").cloned(),
    ) {
        (Some(source), None) => set(spec, "dataSourceRef", source),
        (None, Some(source)) if without_namespace(&source) => set(spec, "dataSource", source),
        _ => {}
    }
}

const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

/// How often a DaemonSet's template changed; `apps/v1` shows it as an annotation only.
fn template_generation(object: &Value) -> Option<i64> {
    text(&object["metadata"]["annotations"], TEMPLATE_GENERATION)
        .parse()
        .ok()
}

fn set_template_generation(object: &mut Value, value: i64) {
    set(
        child(child(object, "metadata"), "annotations"),
        TEMPLATE_GENERATION,
        value.to_string(),
    );
}

/// `MaxUnavailableStatefulSet` is off by default: the field is dropped.
fn drop_disabled_max_unavailable(object: &mut Value) {
    if let Some(rolling) = object.pointer_mut("/spec/updateStrategy/rollingUpdate") {
        remove(rolling, "maxUnavailable");
    }
}

/// Topology is what `v1beta1` had; `v1` takes none.
fn drop_topology(slice: &mut Value) {
    for endpoint in list_mut(slice, "endpoints") {
        remove(endpoint, "deprecatedTopology");
    }
}

/// `CoordinatedLeaderElection` is off by default: its fields are dropped.
fn drop_coordinated_election(object: &mut Value) {
    let spec = child(object, "spec");
    remove(spec, "strategy");
    remove(spec, "preferredHolder");
}

/// Jobs that do not choose their own selector find their pods by the job's uid.
fn job_selector(object: &mut Value, uid: &str) {
    if flag(&object["spec"], "manualSelector") {
        return;
    }
    let name = text(&object["metadata"], "name").to_owned();
    // Defaulting lets a job without labels share its template's; upstream that is one map, seen from both places.
    let shared = map(&object["metadata"], "labels") == map(&object["spec"]["template"]["metadata"], "labels");
    let spec = child(object, "spec");
    let labels = child(child(child(spec, "template"), "metadata"), "labels");
    for (key, value) in [
        ("job-name", name.as_str()),
        ("batch.kubernetes.io/job-name", &name),
        ("controller-uid", uid),
        ("batch.kubernetes.io/controller-uid", uid),
    ] {
        set_missing(labels, key, value);
    }
    let labels = labels.clone();
    set_missing(
        child(child(spec, "selector"), "matchLabels"),
        "batch.kubernetes.io/controller-uid",
        uid,
    );
    if shared {
        set(child(object, "metadata"), "labels", labels);
    }
}

fn phase_transition(object: &mut Value, old: &Value, now: &str) {
    const TIME: &str = "lastPhaseTransitionTime";
    let same_phase = text(&old["status"], "phase") == text(&object["status"], "phase");
    let given = present(&object["status"], TIME).cloned();
    let status = child(object, "status");
    if same_phase && given.is_none() {
        copy(&old["status"], status, TIME);
    } else if !same_phase && (given.is_none() || given.as_ref() == old["status"].get(TIME)) {
        set(status, TIME, now);
    }
}

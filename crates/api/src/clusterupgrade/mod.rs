//! `ClusterUpgrade`: what a person creates to upgrade a cluster. Here is what they may ask for; what the operator
//! answers is in [`status`]. The work on single nodes lives in [`crate::kubeadm`].
//!
//! The kind is namespaced. A Cluster API cluster is, and whoever may edit that namespace may already replace its
//! machines; a reference across namespaces would hand out more than that. For the cluster the operator itself runs in
//! (no `clusterRef`) the operator heeds only objects in its own namespace.

mod options;
mod status;

use kube_derive::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{Display, EnumIter, EnumString, IntoStaticStr};

pub use options::*;
pub use status::*;

use crate::rules;

/// What is to be upgraded, to what, and how.
#[derive(Clone, CustomResource, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[kube(
    group = "afloat.dev",
    version = "v1alpha1",
    kind = "ClusterUpgrade",
    namespaced,
    status = "ClusterUpgradeStatus",
    schema = "manual",
    derive = "PartialEq",
    shortname = "cu",
    category = "all",
    category = "afloat",
    crates(kube_core = "::kube_core"),
    printcolumn(
        name = "Cluster",
        type_ = "string",
        json_path = ".spec.clusterRef.name",
        description = "Cluster API cluster; empty for the cluster the operator runs in"
    ),
    printcolumn(name = "From", type_ = "string", json_path = ".status.fromVersion"),
    printcolumn(name = "To", type_ = "string", json_path = ".spec.kubernetesVersion"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(
        name = "Nodes",
        type_ = "string",
        json_path = ".status.progress",
        description = "Nodes at the target, of all nodes"
    ),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ),
    printcolumn(
        name = "Message",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].message",
        priority = 1
    ),
    printcolumn(name = "Paused", type_ = "boolean", json_path = ".spec.paused", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    crates(kube_core = "::kube_core"),
    validation = rules::unchanged_optional("clusterRef", "clusterRef cannot change: create another ClusterUpgrade for the other cluster"),
    validation = rules::unchanged_optional("os", "os cannot change: create another ClusterUpgrade with the other os"),
    validation = rules::unchanged_optional("bundle", "bundle cannot change: create another ClusterUpgrade with the other bundle"),
    validation = rules::unchanged_optional("etcdVersion", "etcdVersion cannot change: create another ClusterUpgrade with the other tag"),
    validation = rules::unchanged_optional("coreDNSVersion", "coreDNSVersion cannot change: create another ClusterUpgrade with the other tag"),
    validation = rules::unchanged_optional("strategy", "strategy cannot change: abort this ClusterUpgrade and create another one"),
    validation = rules::unchanged_optional(
        "nodeUpgradeOption",
        "nodeUpgradeOption is read when the upgrade starts and cannot change: to let a paused node go on, run \"afloat resume NODE\"",
    ),
    validation = Rule::new("!has(self.strategy) || self.strategy != 'RollingUpdate' || has(self.clusterRef)").message(
        "strategy RollingUpdate needs clusterRef, because only Cluster API can replace machines: name the cluster, or write strategy: InPlace",
    ),
    validation = Rule::new(
        "!has(self.fallbackRolling) || !self.fallbackRolling || (has(self.strategy) && self.strategy == 'InPlace' && has(self.clusterRef))",
    )
    .message("fallbackRolling needs strategy: InPlace and clusterRef: add both, or leave fallbackRolling out"),
    validation = Rule::new(
        "!has(self.controlPlane) || !has(self.controlPlane.proceedAfter) || self.controlPlane.proceedAfter != 'FirstNode' || has(self.clusterRef)",
    )
    .message("controlPlane.proceedAfter: FirstNode needs clusterRef: name the cluster, or write proceedAfter: AllNodes"),
    validation = Rule::new("!has(oldSelf.abort) || !oldSelf.abort || (has(self.abort) && self.abort)").message(
        "an abort cannot be taken back: leave abort: true and create another ClusterUpgrade to try again",
    )
)]
pub struct ClusterUpgradeSpec {
    /// The Cluster API cluster to upgrade, in the same namespace. Leave it out to upgrade the cluster the operator runs
    /// in; that is heeded in the operator's own namespace only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_ref: Option<ClusterRef>,
    /// The version of Kubernetes to arrive at, as `v1.36.3`. Control planes go there one minor version at a time, by
    /// themselves. The version the cluster already has is fine where `bundle` or `os` brings something new.
    #[schemars(length(max = 64))]
    #[x_kube(
        validation = rules::version(),
        validation = rules::unchanged("kubernetesVersion cannot change: create another ClusterUpgrade for the other version")
    )]
    pub kubernetes_version: String,
    /// The operating system to arrive at, where Afloat is to upgrade it too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub os: Option<OperatingSystem>,
    /// The bundle that holds everything the nodes need. Leave it out to take the one known for the version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bundle: Option<Bundle>,
    /// Image tag of etcd, where the bundle brings another than kubeadm of that version asks for. It is written into kubeadm's configuration,
    /// where it stays for this version of Kubernetes. Left out, what is written there, or else kubeadm's own.
    #[schemars(length(min = 1, max = 128))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = rules::image_tag())]
    pub etcd_version: Option<String>,
    /// The same of CoreDNS.
    #[schemars(length(min = 1, max = 128))]
    #[serde(default, rename = "coreDNSVersion", skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = rules::image_tag())]
    pub core_dns_version: Option<String>,
    /// Whether machines are upgraded in place or replaced. Left out, machines of Cluster API that can be replaced are,
    /// and all others are upgraded in place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strategy: Option<UpgradeStrategy>,
    /// With `strategy: InPlace`, whether Cluster API may replace machines that cannot be upgraded in place. Otherwise the
    /// upgrade stops there and says why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fallback_rolling: Option<bool>,
    /// How the control plane is taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control_plane: Option<ControlPlaneOption>,
    /// Which nodes wait for a person before they are disrupted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_upgrade_option: Option<NodeUpgradeOption>,
    /// How images are brought to the nodes before the first of them is disrupted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_preload_option: Option<ImagePreloadOption>,
    /// Whether virtual machines that had to be stopped are started again after their node.
    #[serde(default, rename = "restoreVM", skip_serializing_if = "Option::is_none")]
    pub restore_vm: Option<bool>,
    /// Whether virtual machines that were migrated away are migrated back after their node. Off where left out: each
    /// move costs them a moment.
    #[serde(default, rename = "migrateBackVM", skip_serializing_if = "Option::is_none")]
    pub migrate_back_vm: Option<bool>,
    /// How nodes are drained.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain: Option<DrainOption>,
    /// How many nodes may be out of service, and how many may fail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<Budget>,
    /// When nodes may be disrupted; at any time where left out. A node that has begun is finished.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<Window>,
    /// How workers are taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workers: Option<WorkersOption>,
    /// After this time without an API server and a kubelet that answer, a node that is being upgraded undoes its work by
    /// itself. 15 minutes where left out.
    #[schemars(range(min = 60, max = 86400))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undo_after_seconds: Option<i32>,
    /// Conditions of your own on any objects: while one is not met, no further node starts.
    #[schemars(length(max = 8))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ::kube_core::ListMerge::Map(vec!["name".into()]))]
    pub gates: Vec<Gate>,
    /// Warnings of the preflight that are accepted, each as `kind/name:Reason` or `kind/namespace/name:Reason`, as the
    /// preflight prints them.
    #[schemars(length(max = 32), inner(length(max = 512)))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(
        merge_strategy = ::kube_core::ListMerge::Set,
        validation = Rule::new("self.all(x, x.matches('^[a-z]+(/[a-z0-9.-]+){1,2}:[A-Za-z]+$'))").message(
            "write an accepted warning as kind/name:Reason, as in node/worker-5:Cordoned",
        )
    )]
    pub accept: Vec<String>,
    /// While true no new disruption starts. A node that has begun is finished.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
    /// Ends the upgrade: nodes in flight are put back as they were, the others stay as they are. It cannot be taken back,
    /// and it also ends an upgrade that is paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub abort: Option<bool>,
}

impl JsonSchema for ClusterUpgrade {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "ClusterUpgrade".into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        crate::schema::root_schema::<ClusterUpgradeSpec, ClusterUpgradeStatus>(
            generator,
            "Upgrades one cluster in place while it stays in service: control plane first, then workers, each node out of \
             service for as short as can be. Create one per upgrade; it is a record of what was done afterwards.",
            &[rules::name_fits_a_label()],
        )
    }
}

/// Names the cluster to upgrade.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub struct ClusterRef {
    /// Name of the `Cluster` of `cluster.x-k8s.io` in this namespace.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// The operating system to arrive at.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OperatingSystem {
    /// Where the system comes from: an image reference or a URL.
    #[schemars(length(min = 1, max = 1024))]
    pub image: String,
    /// What the node must report afterwards as `status.nodeInfo.osImage`; this is how the upgrade knows that the node has
    /// really booted it.
    #[schemars(length(min = 1, max = 256))]
    pub os_image: String,
}

/// Everything the nodes need, in one image.
#[derive(Clone, Debug, Default, Deserialize, Eq, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(crates(kube_core = "::kube_core"))]
pub struct Bundle {
    /// Reference of the bundle's image; in an air-gapped site that of the mirror.
    #[schemars(length(min = 1, max = 512))]
    pub image: String,
    /// Digest the image must have. Two bundles of one Kubernetes version differ in it.
    #[schemars(length(max = 71))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("self.matches('^sha256:[0-9a-f]{64}$')").message(
        "write the digest as sha256: followed by 64 lower-case hexadecimal digits",
    ))]
    pub digest: Option<String>,
}

/// How machines arrive at the target.
#[derive(
    Clone, Copy, Debug, Deserialize, Display, EnumIter, EnumString, Eq, IntoStaticStr, JsonSchema, PartialEq, Serialize,
)]
pub enum UpgradeStrategy {
    /// Cluster API replaces machines one after the other.
    RollingUpdate,
    /// Machines stay and are upgraded where they are.
    InPlace,
}

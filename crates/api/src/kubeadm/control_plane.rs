//! `ControlPlaneKubeadmUpgrade`: the control plane of one cluster, one node at a time, always.

use kube_derive::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::GroupUpgradeStatus;
use crate::common::ObjectRef;
use crate::rules;

/// Which control-plane machines are upgraded, and to what.
#[derive(Clone, CustomResource, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[kube(
    group = "afloat.dev",
    version = "v1alpha1",
    kind = "ControlPlaneKubeadmUpgrade",
    namespaced,
    status = "GroupUpgradeStatus",
    schema = "manual",
    derive = "PartialEq",
    shortname = "cpku",
    category = "all",
    category = "afloat",
    crates(kube_core = "::kube_core"),
    printcolumn(name = "Cluster", type_ = "string", json_path = ".spec.cluster.name"),
    printcolumn(name = "To", type_ = "string", json_path = ".spec.kubernetesVersion"),
    printcolumn(name = "Require", type_ = "integer", json_path = ".status.requireUpgrade"),
    printcolumn(name = "Upgraded", type_ = "integer", json_path = ".status.upgraded"),
    printcolumn(name = "Ready", type_ = "boolean", json_path = ".status.ready"),
    printcolumn(name = "Now", type_ = "string", json_path = ".status.inFlight", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    crates(kube_core = "::kube_core"),
    validation = rules::kubelet_not_newer(),
    validation = rules::kubelet_not_too_old(),
    validation = rules::unchanged_optional("cluster", "cluster cannot change: create another ControlPlaneKubeadmUpgrade for the other cluster"),
    validation = rules::unchanged_optional("controlPlane", "controlPlane cannot change: create another ControlPlaneKubeadmUpgrade for the other control plane"),
    validation = rules::unchanged_optional("etcdVersion", "etcdVersion cannot change: create another ControlPlaneKubeadmUpgrade"),
    validation = rules::unchanged_optional("coreDNSVersion", "coreDNSVersion cannot change: create another ControlPlaneKubeadmUpgrade"),
    validation = Rule::new("has(self.cluster) == has(self.controlPlane)").message(
        "cluster and controlPlane come together: write both for a cluster of Cluster API, neither for the cluster the operator runs in",
    ),
    validation = rules::machine_kinds()
)]
pub struct ControlPlaneKubeadmUpgradeSpec {
    /// The Cluster API cluster; absent for the cluster the operator runs in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<ObjectRef>,
    /// The object that owns the control-plane machines, as a `KubeadmControlPlane`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control_plane: Option<ObjectRef>,
    /// The machines that have to be upgraded, in any order (they go by name, who holds the virtual address last): `Machine` objects of a cluster of Cluster API,
    /// `Node` objects of the cluster the operator runs in.
    #[schemars(length(max = 15))]
    #[x_kube(merge_strategy = ::kube_core::ListMerge::Map(vec!["name".into()]))]
    pub machines_require_upgrade: Vec<ObjectRef>,
    /// The version of the control-plane parts, as `v1.36.3`.
    #[schemars(length(max = 64))]
    #[x_kube(
        validation = rules::version(),
        validation = rules::unchanged("kubernetesVersion cannot change: create another ControlPlaneKubeadmUpgrade for the other version")
    )]
    pub kubernetes_version: String,
    /// The version of the kubelet on these machines.
    #[schemars(length(max = 64))]
    #[x_kube(
        validation = rules::version(),
        validation = rules::unchanged("kubeletVersion cannot change: create another ControlPlaneKubeadmUpgrade for the other version")
    )]
    pub kubelet_version: String,
    /// Image tag of etcd, which is written into kubeadm's configuration; absent where that has the last word, or etcd is external.
    #[schemars(length(min = 1, max = 128))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = rules::image_tag())]
    pub etcd_version: Option<String>,
    /// The same of CoreDNS.
    #[schemars(length(min = 1, max = 128))]
    #[serde(default, rename = "coreDNSVersion", skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = rules::image_tag())]
    pub core_dns_version: Option<String>,
    /// kubeadm's `ClusterConfiguration` as YAML, as it was when the upgrade began: a later edit does not leak into it.
    #[schemars(length(max = 131_072))]
    #[x_kube(validation = rules::unchanged("kubeadmClusterConfig cannot change: create another ControlPlaneKubeadmUpgrade"))]
    pub kubeadm_cluster_config: String,
    /// While true no further node starts. A node that has begun is finished.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
}

impl JsonSchema for ControlPlaneKubeadmUpgrade {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "ControlPlaneKubeadmUpgrade".into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        crate::schema::root_schema::<ControlPlaneKubeadmUpgradeSpec, GroupUpgradeStatus>(
            generator,
            "Upgrades the control plane of one cluster in place, one node at a time, with a health gate between two nodes. The \
             operator creates it; read it to see how far the control plane is.",
            &[],
        )
    }
}

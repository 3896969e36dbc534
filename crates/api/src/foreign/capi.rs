//! Cluster API v1beta2: clusters, machines and what owns them. The messages of its runtime hooks are not here: they carry whole
//! objects and are read as plain JSON.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde::Deserialize;
use serde_json::Value;

use crate::resource::foreign_kind;

foreign_kind! {
    /// A workload cluster, or the management cluster itself.
    Cluster in "cluster.x-k8s.io" / "v1beta2", "clusters", NamespaceResourceScope, spec: ClusterSpec, status: ClusterStatus
}

foreign_kind! {
    /// One machine of a cluster.
    Machine in "cluster.x-k8s.io" / "v1beta2", "machines", NamespaceResourceScope, spec: MachineSpec, status: MachineStatus
}

foreign_kind! {
    /// A set of machines of one template.
    MachineSet in "cluster.x-k8s.io" / "v1beta2", "machinesets", NamespaceResourceScope, spec: MachineGroupSpec, status: MachineGroupStatus
}

foreign_kind! {
    /// A group of workers.
    MachineDeployment in "cluster.x-k8s.io" / "v1beta2", "machinedeployments", NamespaceResourceScope, spec: MachineGroupSpec, status: MachineGroupStatus
}

foreign_kind! {
    /// The control plane of a cluster, made by kubeadm.
    KubeadmControlPlane in "controlplane.cluster.x-k8s.io" / "v1beta2", "kubeadmcontrolplanes", NamespaceResourceScope, spec: KubeadmControlPlaneSpec, status: MachineGroupStatus
}

foreign_kind! {
    /// What kubeadm is told on one machine.
    KubeadmConfig in "bootstrap.cluster.x-k8s.io" / "v1beta2", "kubeadmconfigs", NamespaceResourceScope, spec: KubeadmConfigSpec, status: ConditionsOnly
}

foreign_kind! {
    /// Machines that are replaced when they are not healthy.
    MachineHealthCheck in "cluster.x-k8s.io" / "v1beta2", "machinehealthchecks", NamespaceResourceScope, spec: MachineHealthCheckSpec, status: ConditionsOnly
}

/// An object of Cluster API named by another; in v1beta2 without namespace and version.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(default, rename_all = "camelCase")]
pub struct ContractRef {
    /// Group of the object.
    pub api_group: String,
    /// Kind of the object.
    pub kind: String,
    /// Name of the object.
    pub name: String,
}

/// What is asked for of a cluster.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default, rename_all = "camelCase")]
pub struct ClusterSpec {
    /// Whether controllers leave it alone.
    pub paused: Option<bool>,
    /// Its control plane.
    pub control_plane_ref: Option<ContractRef>,
    /// Its infrastructure.
    pub infrastructure_ref: Option<ContractRef>,
    /// Address of its API.
    pub control_plane_endpoint: Option<ControlPlaneEndpoint>,
    /// What a ClusterClass makes of it; then versions are to be changed here and nowhere else.
    pub topology: Option<Topology>,
}

/// Address of an API.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(default)]
pub struct ControlPlaneEndpoint {
    /// Host name or address.
    pub host: String,
    /// Port.
    pub port: i32,
}

/// What a ClusterClass makes of a cluster.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(default)]
pub struct Topology {
    /// Version of Kubernetes.
    pub version: String,
}

/// What is true of a cluster.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default, rename_all = "camelCase")]
pub struct ClusterStatus {
    /// Generation that was seen.
    pub observed_generation: Option<i64>,
    /// One word for all.
    pub phase: String,
    /// Conditions.
    pub conditions: Vec<Condition>,
}

/// What is asked for of a machine.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default, rename_all = "camelCase")]
pub struct MachineSpec {
    /// Cluster it belongs to.
    pub cluster_name: String,
    /// Version of Kubernetes.
    pub version: Option<String>,
    /// What the infrastructure calls it.
    #[serde(rename = "providerID")]
    pub provider_id: Option<String>,
    /// Where it stands.
    pub failure_domain: Option<String>,
    /// Where its bootstrap data comes from.
    pub bootstrap: Bootstrap,
    /// Its infrastructure.
    pub infrastructure_ref: ContractRef,
}

/// Where bootstrap data comes from.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(default, rename_all = "camelCase")]
pub struct Bootstrap {
    /// The object it is made from.
    pub config_ref: Option<ContractRef>,
}

/// What is true of a machine.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default, rename_all = "camelCase")]
pub struct MachineStatus {
    /// Generation that was seen.
    pub observed_generation: Option<i64>,
    /// The Node it became.
    pub node_ref: Option<MachineNodeRef>,
    /// What the Node reports about itself.
    pub node_info: Option<MachineNodeInfo>,
    /// One word for all.
    pub phase: String,
    /// Conditions.
    pub conditions: Vec<Condition>,
}

/// The Node a machine became.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(default)]
pub struct MachineNodeRef {
    /// Name of the Node.
    pub name: String,
}

/// What a Node reports about itself, as Cluster API copied it.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(default, rename_all = "camelCase")]
pub struct MachineNodeInfo {
    /// Version of the kubelet.
    pub kubelet_version: String,
    /// Operating system.
    pub os_image: String,
}

/// What is asked for of a MachineSet or MachineDeployment.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default, rename_all = "camelCase")]
pub struct MachineGroupSpec {
    /// Cluster it belongs to.
    pub cluster_name: String,
    /// How many machines.
    pub replicas: Option<i32>,
    /// Whether its controller leaves it alone.
    pub paused: Option<bool>,
    /// What each machine is made from.
    pub template: MachineTemplate,
    /// How machines are changed (MachineDeployment).
    pub rollout: Option<Rollout>,
}

/// What a machine is made from.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub struct MachineTemplate {
    /// The machine's spec.
    pub spec: MachineSpec,
}

/// How machines are changed.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub struct Rollout {
    /// In which way.
    pub strategy: Option<RolloutStrategy>,
}

/// In which way machines are changed.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default, rename_all = "camelCase")]
pub struct RolloutStrategy {
    /// `RollingUpdate` or `OnDelete`.
    #[serde(rename = "type")]
    pub kind: String,
    /// How many at once.
    pub rolling_update: Option<RollingUpdate>,
}

/// How many machines may be missing or too many.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default, rename_all = "camelCase")]
pub struct RollingUpdate {
    /// How many may be added.
    pub max_surge: Option<IntOrString>,
    /// How many may be missing.
    pub max_unavailable: Option<IntOrString>,
}

/// What is true of a MachineSet, MachineDeployment or KubeadmControlPlane.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default, rename_all = "camelCase")]
pub struct MachineGroupStatus {
    /// Generation that was seen: without it being current nothing below is about the present spec.
    pub observed_generation: Option<i64>,
    /// Lowest version among its machines (KubeadmControlPlane).
    pub version: Option<String>,
    /// Machines there are.
    pub replicas: Option<i32>,
    /// Machines that are ready.
    pub ready_replicas: Option<i32>,
    /// Machines that are available.
    pub available_replicas: Option<i32>,
    /// Machines at the present spec.
    pub up_to_date_replicas: Option<i32>,
    /// Conditions.
    pub conditions: Vec<Condition>,
}

/// What is asked for of a control plane.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default, rename_all = "camelCase")]
pub struct KubeadmControlPlaneSpec {
    /// How many machines.
    pub replicas: Option<i32>,
    /// Version of Kubernetes.
    pub version: String,
    /// What kubeadm is told.
    pub kubeadm_config_spec: KubeadmConfigSpec,
    /// How machines are changed.
    pub rollout: Option<Rollout>,
}

/// What kubeadm is told.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default, rename_all = "camelCase")]
pub struct KubeadmConfigSpec {
    /// What holds for the cluster.
    pub cluster_configuration: Option<ClusterConfiguration>,
}

/// What kubeadm is told about the cluster.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default, rename_all = "camelCase")]
pub struct ClusterConfiguration {
    /// Where images come from.
    pub image_repository: Option<String>,
    /// Etcd, local or external.
    pub etcd: Option<Etcd>,
    /// CoreDNS.
    pub dns: Option<ImageMeta>,
    /// Feature gates.
    pub feature_gates: BTreeMap<String, bool>,
}

/// Where etcd runs.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub struct Etcd {
    /// On the control planes themselves.
    pub local: Option<ImageMeta>,
    /// Elsewhere.
    pub external: Option<Value>,
}

/// Repository and tag of an image.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(default, rename_all = "camelCase")]
pub struct ImageMeta {
    /// Repository.
    pub image_repository: Option<String>,
    /// Tag.
    pub image_tag: Option<String>,
}

/// What is asked for of a health check.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default, rename_all = "camelCase")]
pub struct MachineHealthCheckSpec {
    /// Cluster it belongs to.
    pub cluster_name: String,
}

/// A status of which only the conditions are read.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default, rename_all = "camelCase")]
pub struct ConditionsOnly {
    /// Generation that was seen.
    pub observed_generation: Option<i64>,
    /// Conditions.
    pub conditions: Vec<Condition>,
}

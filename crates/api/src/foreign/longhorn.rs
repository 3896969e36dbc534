//! Longhorn v1beta2: volumes, and the engines, replicas and nodes behind them.

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube_core::Resource;
use serde::Deserialize;
use std::collections::BTreeMap;

use crate::resource::foreign_kind;

/// Namespace of Longhorn's objects.
pub const NAMESPACE: &str = "longhorn-system";

foreign_kind! {
    /// A volume.
    Volume in "longhorn.io" / "v1beta2", "volumes", NamespaceResourceScope, spec: VolumeSpec, status: VolumeStatus
}

foreign_kind! {
    /// The engine of a volume; there is one where the volume is attached.
    Engine in "longhorn.io" / "v1beta2", "engines", NamespaceResourceScope, spec: InstanceSpec, status: EngineStatus
}

foreign_kind! {
    /// One replica of a volume.
    Replica in "longhorn.io" / "v1beta2", "replicas", NamespaceResourceScope, spec: ReplicaSpec, status: InstanceStatus
}

foreign_kind! {
    /// A node that stores replicas.
    Node in "longhorn.io" / "v1beta2", "nodes", NamespaceResourceScope, spec: NodeSpec, status: NodeStatus
}

/// What is asked for of a volume.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(default, rename_all = "camelCase")]
pub struct VolumeSpec {
    /// How many replicas it should have.
    pub number_of_replicas: i32,
    /// Node it should be attached to; empty for none.
    #[serde(rename = "nodeID")]
    pub node_id: String,
}

/// What is true of a volume.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default, rename_all = "camelCase")]
pub struct VolumeStatus {
    /// `attached`, `detached`, `attaching`, `detaching`, `creating`, `deleting`.
    pub state: String,
    /// `healthy`, `degraded`, `faulted` or `unknown`.
    pub robustness: String,
    /// Node it is attached to.
    #[serde(rename = "currentNodeID")]
    pub current_node_id: String,
    /// The claim it serves and who uses it.
    pub kubernetes_status: KubernetesStatus,
}

/// The claim a volume serves and who uses it.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(default, rename_all = "camelCase")]
pub struct KubernetesStatus {
    /// Namespace of the claim.
    pub namespace: String,
    /// Name of the claim.
    pub pvc_name: String,
    /// Who uses it.
    pub workloads_status: Option<Vec<WorkloadStatus>>,
}

impl KubernetesStatus {
    /// Whether the volume serves this claim.
    pub fn serves(&self, claim: &PersistentVolumeClaim) -> bool {
        let meta = claim.meta();
        meta.namespace.as_deref() == Some(self.namespace.as_str())
            && meta.name.as_deref() == Some(self.pvc_name.as_str())
    }
}

/// Who uses a volume.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(default, rename_all = "camelCase")]
pub struct WorkloadStatus {
    /// Name of the pod.
    pub pod_name: String,
    /// Its phase.
    pub pod_status: String,
}

/// What is asked for of an engine.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(default, rename_all = "camelCase")]
pub struct InstanceSpec {
    /// Volume it belongs to.
    pub volume_name: String,
    /// Node it is on.
    #[serde(rename = "nodeID")]
    pub node_id: String,
    /// `running` or `stopped`.
    pub desire_state: String,
}

/// What is true of an engine.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(default, rename_all = "camelCase")]
pub struct EngineStatus {
    /// `running`, `stopped`, `starting` and so on.
    pub current_state: String,
    /// Each replica's mode by its name: `RW`, `WO` while it is being rebuilt, `ERR`.
    pub replica_mode_map: Option<BTreeMap<String, String>>,
}

/// What is asked for of a replica.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(default, rename_all = "camelCase")]
pub struct ReplicaSpec {
    /// Volume it belongs to.
    pub volume_name: String,
    /// Node it is on.
    #[serde(rename = "nodeID")]
    pub node_id: String,
    /// When it failed; empty where it has not.
    pub failed_at: String,
    /// When it was last whole; empty where it never was.
    pub healthy_at: String,
}

/// What is true of a replica.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(default, rename_all = "camelCase")]
pub struct InstanceStatus {
    /// `running`, `stopped`, `starting` and so on.
    pub current_state: String,
}

/// What is asked for of a node.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(default, rename_all = "camelCase")]
pub struct NodeSpec {
    /// Whether new replicas may be put there.
    pub allow_scheduling: bool,
    /// Whether replicas are to leave it.
    pub eviction_requested: bool,
}

/// What is true of a node.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(default, rename_all = "camelCase")]
pub struct NodeStatus {
    /// Conditions, `Ready` and `Schedulable` among them.
    pub conditions: Vec<LonghornCondition>,
}

/// A condition as Longhorn writes it: times may be empty strings.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(default)]
pub struct LonghornCondition {
    /// What it is about.
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// Why, in a word.
    pub reason: String,
    /// Why, in a sentence.
    pub message: String,
}

//! Pieces that several of our kinds share: references, what a node waits for, and the words for roles and states.
//! What belongs to one kind alone lives with that kind.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube_derive::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{Display, EnumIter, EnumString, IntoStaticStr};

/// Names one object. The uid, where it is known, makes sure that a namesake born later is not taken for it.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectRef {
    /// Group and version of the object, as `cluster.x-k8s.io/v1beta2`; `v1` for the core group.
    #[schemars(length(max = 317))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// Kind of the object, as `Machine`.
    #[schemars(length(min = 1, max = 63))]
    pub kind: String,
    /// Namespace of the object; absent for objects that have none.
    #[schemars(length(max = 63))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Name of the object.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Uid of the object.
    #[schemars(length(max = 64))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
}

/// A Node, named together with its uid: a machine that was replaced meanwhile under the same name is another node.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeRef {
    /// Name of the Node.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Uid of the Node.
    #[schemars(length(min = 1, max = 64))]
    pub uid: String,
}

/// What a node is in its cluster.
#[derive(
    Clone,
    Copy,
    Debug,
    Deserialize,
    Display,
    EnumIter,
    EnumString,
    Eq,
    IntoStaticStr,
    JsonSchema,
    Ord,
    PartialEq,
    PartialOrd,
    Serialize,
)]
pub enum NodeRole {
    /// The control-plane node that goes first: `kubeadm upgrade apply` runs here and changes what the cluster shares.
    FirstControlPlane,
    /// Any further control-plane node.
    ControlPlane,
    /// A node without control-plane parts.
    Worker,
}

/// Where a node is in its upgrade. States only move forward within an attempt.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    Deserialize,
    Display,
    EnumIter,
    EnumString,
    Eq,
    IntoStaticStr,
    JsonSchema,
    Ord,
    PartialEq,
    PartialOrd,
    Serialize,
)]
pub enum NodeState {
    /// Not begun.
    #[default]
    Pending,
    /// Binaries are copied and checked, images pulled; nothing is disturbed yet (kubeadm).
    Staging,
    /// Everything the upgrade needs is on the node (kubeadm).
    Staged,
    /// Images of the new release are pulled; nothing is disturbed yet (Rancher).
    ImagesPreloading,
    /// Images of the new release are on the node (Rancher).
    ImagesPreloaded,
    /// Ready to go, held back by a person.
    Paused,
    /// Virtual machines leave the node (Rancher).
    PreDraining,
    /// The node is free of virtual machines; Rancher may drain it.
    PreDrained,
    /// The node is cordoned and its pods are evicted.
    Draining,
    /// New API connections go to the other control planes.
    StandingAside,
    /// The steps run.
    Upgrading,
    /// The operating system is upgraded after Rancher's own work (Rancher).
    PostDraining,
    /// The new operating system is written; the node has to come back with it (Rancher).
    WaitingReboot,
    /// Everything was done; now it must be seen to work.
    Verifying,
    /// At the target and seen to work.
    Succeeded,
    /// A step failed or a deadline passed.
    Failed,
    /// What was changed is being undone.
    RollingBack,
    /// As it was before the upgrade.
    RolledBack,
}

/// What a node waits for: the object that blocks, since when, and until when.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Wait {
    /// Stable word for the cause, as `WaitingForPodDisruptionBudget`; each has its line in the reference of conditions.
    #[schemars(length(min = 1, max = 128))]
    pub reason: String,
    /// The cause in a sentence, and what would end it.
    #[schemars(length(max = 512))]
    pub message: String,
    /// When the wait began.
    pub since: Time,
    /// When the wait ends by itself, in failure or otherwise; absent where there is no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Time>,
    /// The object that blocks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked_by: Option<ObjectRef>,
}

/// One environment variable of a step.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub struct StepEnv {
    /// Name of the variable.
    #[schemars(length(min = 1, max = 128))]
    pub name: String,
    /// Its value. Never a secret: specs are readable to whoever may read the object.
    #[schemars(length(max = 512))]
    #[serde(default)]
    pub value: String,
}

fn no_env(env: &Arc<Vec<StepEnv>>) -> bool {
    env.is_empty()
}

/// One step of a node's upgrade, as a container that runs on the node.
#[derive(Clone, Debug, Default, Deserialize, Eq, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(crates(kube_core = "::kube_core"))]
pub struct StepContainer {
    /// Name of the step and of its init container; unique within the node.
    #[schemars(length(min = 1, max = 63))]
    #[x_kube(validation = ::kube_core::Rule::new("self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')").message(
        "a step is named with lower-case letters, digits and dashes, as in \"kubelet\" or \"cni-plugins\"",
    ))]
    pub name: String,
    /// Image that holds what the step needs.
    #[schemars(length(min = 1, max = 512))]
    pub image: String,
    /// Command of the container; the image's own where absent.
    #[schemars(length(max = 8), inner(length(max = 512)))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// Arguments of the command.
    #[schemars(length(max = 24), inner(length(max = 512)))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    // Shared: all steps of a node are told the same, and large clusters have tens of thousands of them.
    /// Environment of the command.
    #[schemars(length(max = 16))]
    #[serde(default, skip_serializing_if = "no_env")]
    #[x_kube(merge_strategy = ::kube_core::ListMerge::Map(vec!["name".into()]))]
    pub env: Arc<Vec<StepEnv>>,
    /// How long the step may take before it counts as failed.
    #[schemars(range(min = 1, max = 86400))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<i32>,
}

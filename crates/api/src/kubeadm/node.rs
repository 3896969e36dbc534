//! `NodeKubeadmUpgrade`: one machine, its steps as containers, and what became of each. Its name carries the uid of the
//! upgrade, so that yesterday's finished object can never pass for today's.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube_derive::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{Display, EnumIter, EnumString, IntoStaticStr};

use crate::common::{NodeRef, NodeRole, NodeState, ObjectRef, StepContainer, Wait};
use crate::rules;

/// Which node is upgraded, by which steps, and how far it may go now.
#[derive(Clone, CustomResource, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[kube(
    group = "afloat.dev",
    version = "v1alpha1",
    kind = "NodeKubeadmUpgrade",
    namespaced,
    status = "NodeKubeadmUpgradeStatus",
    schema = "manual",
    derive = "PartialEq",
    shortname = "nku",
    category = "all",
    category = "afloat",
    selectable = ".spec.node.name",
    crates(kube_core = "::kube_core"),
    printcolumn(name = "Node", type_ = "string", json_path = ".spec.node.name"),
    printcolumn(name = "Role", type_ = "string", json_path = ".spec.role"),
    printcolumn(name = "To", type_ = "string", json_path = ".spec.kubeletVersion"),
    printcolumn(name = "State", type_ = "string", json_path = ".status.state"),
    printcolumn(name = "Step", type_ = "string", json_path = ".status.currentStep"),
    printcolumn(name = "Since", type_ = "date", json_path = ".status.stateSince"),
    printcolumn(
        name = "Waiting",
        type_ = "string",
        json_path = ".status.waitingFor.message",
        priority = 1
    ),
    printcolumn(name = "Attempt", type_ = "integer", json_path = ".spec.attempt", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    crates(kube_core = "::kube_core"),
    validation = rules::kubelet_not_newer(),
    validation = rules::kubelet_not_too_old(),
    validation = rules::unchanged_optional("cluster", "cluster cannot change: create another NodeKubeadmUpgrade for the other cluster"),
    validation = rules::unchanged_optional("machine", "machine cannot change: create another NodeKubeadmUpgrade for the other machine"),
    validation = rules::unchanged_optional("etcdVersion", "etcdVersion cannot change: create another NodeKubeadmUpgrade"),
    validation = Rule::new("has(self.cluster) == has(self.machine)").message(
        "cluster and machine come together: write both for a machine of Cluster API, neither for a node of the cluster the operator runs in",
    ),
    validation = Rule::new("!has(self.etcdVersion) || self.role != 'Worker'").message(
        "etcdVersion is for control planes: leave it out where role is Worker",
    ),
    validation = Rule::new("self.attempt >= oldSelf.attempt").message(
        "attempt only counts up: write the attempt there was, or a higher one",
    ),
    validation = Rule::new(
        "self.attempt > oldSelf.attempt || self.desired == oldSelf.desired || oldSelf.desired == 'Staged' || self.desired == 'RolledBack'",
    )
    .message("desired only moves on from Staged to Upgraded to RolledBack: raise attempt to begin again")
)]
pub struct NodeKubeadmUpgradeSpec {
    /// The Cluster API cluster; absent for the cluster the operator runs in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<ObjectRef>,
    /// The Machine of Cluster API behind the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<ObjectRef>,
    /// The node.
    #[x_kube(validation = rules::unchanged("node cannot change: create another NodeKubeadmUpgrade for the other node"))]
    pub node: NodeRef,
    /// What the node is in its cluster.
    #[x_kube(validation = rules::unchanged("role cannot change: create another NodeKubeadmUpgrade with the other role"))]
    pub role: NodeRole,
    /// The version of the control plane, as `v1.36.3`.
    #[schemars(length(max = 64))]
    #[x_kube(
        validation = rules::version(),
        validation = rules::unchanged("kubernetesVersion cannot change: create another NodeKubeadmUpgrade for the other version")
    )]
    pub kubernetes_version: String,
    /// The version of the kubelet to arrive at.
    #[schemars(length(max = 64))]
    #[x_kube(
        validation = rules::version(),
        validation = rules::unchanged("kubeletVersion cannot change: create another NodeKubeadmUpgrade for the other version")
    )]
    pub kubelet_version: String,
    /// Image tag of etcd to arrive at, on control planes with their own etcd.
    #[schemars(length(min = 1, max = 128))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etcd_version: Option<String>,
    // Shared, as the steps are: they never change, and an object is copied for every status that it gets.
    /// The container that brings binaries and images to the node before it holds a slot; nothing is disturbed by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stage: Option<Arc<StepContainer>>,
    /// The steps, in their order. Each runs as an init container of one pod on the node, after slot and drain.
    #[schemars(length(min = 1, max = 16))]
    #[x_kube(
        merge_strategy = ::kube_core::ListMerge::Map(vec!["name".into()]),
        validation = rules::unchanged("steps cannot change: create another NodeKubeadmUpgrade with the other steps")
    )]
    pub steps: Arc<Vec<StepContainer>>,
    /// Which attempt at this node it is, from 1.
    #[schemars(range(min = 1, max = 1000))]
    #[serde(default = "first_attempt")]
    pub attempt: i32,
    /// How far the node may go now.
    #[serde(default)]
    pub desired: DesiredNodeState,
    /// After this time without an API server and a kubelet that answer, the node undoes its work by itself. 15 minutes where
    /// left out.
    #[schemars(range(min = 60, max = 86400))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undo_after_seconds: Option<i32>,
}

fn first_attempt() -> i32 {
    1
}

/// How far a node may go.
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
pub enum DesiredNodeState {
    /// Bring what is needed to the node, disturb nothing.
    #[default]
    Staged,
    /// The slot is given: drain, run the steps, verify.
    Upgraded,
    /// Undo everything.
    RolledBack,
}

impl JsonSchema for NodeKubeadmUpgrade {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "NodeKubeadmUpgrade".into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        crate::schema::root_schema::<NodeKubeadmUpgradeSpec, NodeKubeadmUpgradeStatus>(
            generator,
            "Upgrades one node in place: the steps run as init containers of one pod on it. The operator creates it; read it to \
             see which step runs, what it waits for, and why it failed.",
            &[],
        )
    }
}

/// Where the node is, step by step.
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(crates(kube_core = "::kube_core"))]
pub struct NodeKubeadmUpgradeStatus {
    /// The generation of the spec this status was decided on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Where the node is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<NodeState>,
    /// Since when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state_since: Option<Time>,
    /// Until when it must have moved on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Time>,
    /// The attempt this status is about.
    #[schemars(range(min = 0))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<i32>,
    /// Whether every step is done and the node was seen to work at the target.
    #[serde(default)]
    pub completed: bool,
    /// The step that runs.
    #[schemars(length(max = 63))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_step: Option<String>,
    /// The steps, in their order.
    #[schemars(length(max = 17))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ::kube_core::ListMerge::Map(vec!["name".into()]))]
    pub steps: Vec<StepStatus>,
    /// What the node waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_for: Option<Wait>,
    /// What went wrong in this attempt, first cause; it stays while the node is put back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
    /// The states so far, with their times; the last 32.
    #[schemars(length(max = 32))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<StateRecord>,
    /// How the drain goes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain: Option<DrainProgress>,
    /// The pod that runs the steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<ObjectRef>,
    /// What the node was before anything was done to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<NodeBefore>,
    /// Whether Afloat cordoned the node: only then it is uncordoned at the end.
    #[serde(default)]
    pub cordoned_by_afloat: bool,
    /// Virtual machines that were stopped for this node. Each is entered here before it is stopped.
    #[schemars(length(max = 500))]
    #[serde(default, rename = "stoppedVMs", skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ::kube_core::ListMerge::Map(vec!["namespace".into(), "name".into()]))]
    pub stopped_vms: Vec<StoppedVm>,
    /// Conditions of the node's upgrade, one per type.
    #[schemars(schema_with = "crate::schema::conditions")]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// What went wrong on a node.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Failure {
    /// The state in which it went wrong.
    pub state: NodeState,
    /// Stable word for the cause; `Deferred` where the node was only put back to be taken later.
    #[schemars(length(min = 1, max = 128))]
    pub reason: String,
    /// The cause in a sentence, and what helps.
    #[schemars(length(max = 1024))]
    pub message: String,
    /// When.
    pub at: Time,
    /// The object to look at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked_by: Option<ObjectRef>,
}

/// What became of one step.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StepStatus {
    /// Name of the step.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// Where it is.
    pub state: StepState,
    /// When it began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Time>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Time>,
    /// How often it was begun.
    #[schemars(range(min = 0))]
    #[serde(default)]
    pub attempt: i32,
    /// What its process ended with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// What it says about itself.
    #[schemars(length(max = 1024))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The last lines of its log, without secrets.
    #[schemars(length(max = 4096))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_tail: Option<String>,
}

/// Where a step is.
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
pub enum StepState {
    /// Not begun.
    #[default]
    Waiting,
    /// Begun.
    Running,
    /// Done.
    Succeeded,
    /// There was nothing to do.
    Skipped,
    /// Ended without success.
    Failed,
    /// Done and undone.
    Undone,
}

/// A state and when the node entered it.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct StateRecord {
    /// The state.
    pub state: NodeState,
    /// When the node entered it.
    pub at: Time,
    /// The attempt it belongs to.
    #[schemars(range(min = 1))]
    pub attempt: i32,
}

/// How a drain goes.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DrainProgress {
    /// Pods that had to leave when the drain began.
    #[schemars(range(min = 0))]
    pub total: i32,
    /// Pods that have left.
    #[schemars(range(min = 0))]
    pub gone: i32,
    /// Pods whose eviction was refused at the last try; at most 20.
    #[schemars(length(max = 20))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<RefusedEviction>,
}

/// A pod that cannot be evicted now, and what refuses it.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RefusedEviction {
    /// The pod.
    pub pod: ObjectRef,
    /// What refuses it, usually a PodDisruptionBudget.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<ObjectRef>,
    /// What the API server said.
    #[schemars(length(max = 512))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// What a node was before anything was done to it.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeBefore {
    /// Version of its kubelet.
    #[schemars(length(max = 64))]
    pub kubelet_version: String,
    /// Version of its container runtime, as the node reports it.
    #[schemars(length(max = 128))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container_runtime_version: Option<String>,
    /// Its operating system, as the node reports it.
    #[schemars(length(max = 256))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub os_image: Option<String>,
    /// Whether it was cordoned.
    #[serde(default)]
    pub unschedulable: bool,
}

/// A virtual machine that was stopped.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StoppedVm {
    /// Its namespace.
    #[schemars(length(min = 1, max = 63))]
    pub namespace: String,
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// When it was entered here.
    pub recorded_at: Time,
    /// When it was started again; absent while it is off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Time>,
}

//! What the operator says about a `ClusterUpgrade`: where it is, who holds a slot, what it waits for, what it recorded.
//! What is true of one node alone lives in that node's object: every list here is capped, so that the object stays far below
//! what etcd accepts (1.5 MiB), also with 5,000 nodes.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube_derive::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{Display, EnumIter, EnumString, IntoStaticStr};

use crate::common::{NodeRole, NodeState, ObjectRef, Wait};

/// Most nodes that can hold a slot at once.
pub const MAX_SLOTS: usize = 400;
/// Most waiting, and most failed, nodes that are listed; the counters know the rest.
pub const MAX_LISTED_NODES: usize = 50;
/// Most findings of the preflight that are listed.
pub const MAX_FINDINGS: usize = 60;
/// Most changes to other objects that are recorded to be undone.
pub const MAX_CHANGES: usize = 50;

/// Where the upgrade is, and what it waits for.
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(crates(kube_core = "::kube_core"))]
pub struct ClusterUpgradeStatus {
    /// The generation of the spec this status was decided on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// What is being done now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// The phases so far, each with its times.
    #[schemars(length(max = 16))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ::kube_core::ListMerge::Map(vec!["name".into()]))]
    pub phases: Vec<PhaseRecord>,
    /// The version the cluster had when the upgrade began.
    #[schemars(length(max = 64))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_version: Option<String>,
    /// The versions the control plane goes through, the last one being the target.
    #[schemars(length(max = 32), inner(length(max = 64)))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub version_path: Vec<String>,
    /// When the first thing was changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Time>,
    /// When the upgrade ended, well or not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Time>,
    /// Nodes at the target and all nodes, as `2/5`.
    #[schemars(length(max = 16))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<String>,
    /// How many nodes there are, in all and by state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<NodeCounters>,
    /// The nodes that may be disrupted now. A node is entered here before anything is done to it.
    #[schemars(length(max = 400))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ::kube_core::ListMerge::Map(vec!["node".into()]))]
    pub slots: Vec<Slot>,
    /// Nodes that wait, those longest first; at most 50, the counters know the rest.
    #[schemars(length(max = 50))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ::kube_core::ListMerge::Map(vec!["node".into()]))]
    pub waiting: Vec<NodeWait>,
    /// Nodes that failed; at most 50, the counters know the rest.
    #[schemars(length(max = 50))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ::kube_core::ListMerge::Map(vec!["node".into()]))]
    pub failed: Vec<NodeFailure>,
    /// What the preflight found, errors first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preflight: Option<Preflight>,
    /// When the upgrade is expected to end; absent until there is something to judge by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimate: Option<Estimate>,
    /// The backup taken before anything was changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backup: Option<BackupRecord>,
    /// The object that holds the plan in full.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<ObjectRef>,
    /// The object that holds the report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report: Option<ObjectRef>,
    /// What was changed on objects that are not nodes of this upgrade, and what was there before. Each entry is written
    /// before its change and goes when the change is undone.
    #[schemars(length(max = 50))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<Change>,
    /// Conditions of the upgrade, one per type.
    #[schemars(schema_with = "crate::schema::conditions")]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// The phases of an upgrade, in their order, and its ends.
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
pub enum Phase {
    /// Not begun.
    #[default]
    Pending,
    /// Everything that could stop the upgrade is looked for; nothing is changed.
    Preflight,
    /// etcd and the objects that describe the cluster are saved, and the copy is tested.
    Backup,
    /// The bundle is published and images are brought to the nodes.
    Prepare,
    /// Components that manage the cluster are upgraded.
    SystemServices,
    /// External etcd is upgraded, first member as the canary.
    Etcd,
    /// Control-plane nodes are upgraded, one by one.
    ControlPlane,
    /// CNI, kube-proxy and CoreDNS are upgraded.
    AddOns,
    /// Workers are upgraded within the budget.
    Workers,
    /// Everything that was changed for the upgrade's sake is put back.
    Cleanup,
    /// At the target, nothing left behind.
    Succeeded,
    /// Stopped short of the target; the conditions say by what.
    Failed,
    /// Ended by a person; nodes in flight were put back.
    Aborted,
}

/// One phase and its times.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PhaseRecord {
    /// The phase.
    pub name: Phase,
    /// When it began.
    pub started_at: Time,
    /// When it ended; absent while it lasts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Time>,
    /// What there is to say about it.
    #[schemars(length(max = 1024))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// How many nodes there are, in all and by state.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeCounters {
    /// All nodes of the cluster that this upgrade is about.
    #[schemars(range(min = 0))]
    pub total: i32,
    /// Nodes at the target and seen to work.
    #[schemars(range(min = 0))]
    pub succeeded: i32,
    /// Nodes that hold a slot.
    #[schemars(range(min = 0))]
    pub in_flight: i32,
    /// Nodes that failed, also those that were rolled back since.
    #[schemars(range(min = 0))]
    pub failed: i32,
    /// How many nodes are in each state; states without a node are left out.
    #[schemars(extend("maxProperties" = 32))]
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub by_state: BTreeMap<String, i32>,
}

/// The leave of one node to be disrupted.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Slot {
    /// Name of the Node.
    #[schemars(length(min = 1, max = 253))]
    pub node: String,
    /// Uid of the Node: a machine that was replaced meanwhile holds no slot.
    #[schemars(length(min = 1, max = 64))]
    pub node_uid: String,
    /// What the node is.
    pub role: NodeRole,
    /// Which attempt at this node it is, from 1.
    #[schemars(range(min = 1))]
    pub attempt: i32,
    /// The version the node goes to: a node on the way to a distant target has a slot for each hop.
    #[schemars(length(max = 64))]
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// When the slot was given.
    pub taken_at: Time,
    /// The failure domain that the slot counts for.
    #[schemars(length(max = 63))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_domain: Option<String>,
    /// Uid of the NodeKubeadmUpgrade the slot was given to: one that is made anew under its name holds nothing.
    #[schemars(length(max = 64))]
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub holder: String,
    /// The resourceVersion of that object the slot was given on: only what was seen later can show that it is gone.
    #[schemars(range(min = 0))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder_revision: Option<i64>,
    /// The slot is for the undoing of what was done, as a person asked, and not for the upgrade itself.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub undoing: bool,
}

/// A node that waits.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeWait {
    /// Name of the Node.
    #[schemars(length(min = 1, max = 253))]
    pub node: String,
    /// The state it waits in.
    pub state: NodeState,
    /// For what, since when, until when.
    #[serde(flatten)]
    pub wait: Wait,
}

/// A node that failed.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeFailure {
    /// Name of the Node.
    #[schemars(length(min = 1, max = 253))]
    pub node: String,
    /// The state in which it failed.
    pub state: NodeState,
    /// Stable word for the cause.
    #[schemars(length(min = 1, max = 128))]
    pub reason: String,
    /// The cause in a sentence.
    #[schemars(length(max = 512))]
    pub message: String,
    /// When it failed.
    pub at: Time,
    /// Which attempt it was, from 1.
    #[schemars(range(min = 1))]
    pub attempt: i32,
    /// Whether the node was put back as it was.
    #[serde(default)]
    pub rolled_back: bool,
    /// The object to look at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked_by: Option<ObjectRef>,
}

/// What the preflight found.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Preflight {
    /// When it looked.
    pub at: Time,
    /// How many findings stop the upgrade.
    #[schemars(range(min = 0))]
    pub errors: i32,
    /// How many findings do not.
    #[schemars(range(min = 0))]
    pub warnings: i32,
    /// The findings, errors first; at most 60.
    #[schemars(length(max = 60))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<Finding>,
}

/// One finding: what, where, what follows, and the way out.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// Whether it stops the upgrade.
    pub severity: Severity,
    /// Stable word for the finding.
    #[schemars(length(min = 1, max = 128))]
    pub reason: String,
    /// The object it is about.
    pub object: ObjectRef,
    /// The fact and what follows from it.
    #[schemars(length(max = 512))]
    pub message: String,
    /// A command that helps.
    #[schemars(length(max = 512))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
    /// Whether a person accepted it in `spec.accept`.
    #[serde(default)]
    pub accepted: bool,
}

/// Whether a finding stops the upgrade.
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
pub enum Severity {
    /// The upgrade does not start.
    Error,
    /// The upgrade does not start until it is accepted.
    Warning,
    /// Good to know.
    Info,
}

/// When the upgrade is expected to end.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Estimate {
    /// The moment.
    pub finish_at: Time,
    /// What it rests on, as `from 4 nodes so far`.
    #[schemars(length(min = 1, max = 256))]
    pub basis: String,
}

/// The backup taken before anything was changed.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BackupRecord {
    /// Where it is.
    #[schemars(length(min = 1, max = 1024))]
    pub location: String,
    /// When it was taken.
    pub taken_at: Time,
    /// Digest of the etcd snapshot.
    #[schemars(length(max = 128))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// Whether it was restored into a throw-away etcd and found equal.
    #[serde(default)]
    pub verified: bool,
}

/// A change to an object that has to be undone.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Change {
    /// The object.
    pub object: ObjectRef,
    /// The field, as a JSON pointer.
    #[schemars(length(min = 1, max = 512))]
    pub path: String,
    /// What was there before, as JSON; absent where the field was.
    #[schemars(length(max = 512))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    /// What was written, as JSON: undone only if it is still there.
    #[schemars(length(max = 512))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}

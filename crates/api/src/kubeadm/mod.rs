//! The kinds that carry an in-place upgrade of kubeadm nodes: one for the control plane, one for each group of workers,
//! one for each node. The operator creates them; a person reads them. What a person writes is in [`crate::clusterupgrade`].

pub mod configuration;
mod control_plane;
mod node;
mod workers;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube_derive::KubeSchema;
use serde::{Deserialize, Serialize};

use crate::clusterupgrade::Slot;

/// How many nodes a group that stands alone may have in hand.
pub const MAX_SLOTS_ALONE: usize = 50;

pub use control_plane::*;
pub use node::*;
pub use workers::*;

/// How far a control plane or a group of workers is.
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(crates(kube_core = "::kube_core"))]
pub struct GroupUpgradeStatus {
    /// The generation of the spec this status was decided on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// How many machines have to be upgraded.
    #[schemars(range(min = 0))]
    #[serde(default)]
    pub require_upgrade: i64,
    /// How many of them are at the target and seen to work.
    #[schemars(range(min = 0))]
    #[serde(default)]
    pub upgraded: i64,
    /// How many failed and were set aside.
    #[schemars(range(min = 0))]
    #[serde(default)]
    pub failed: i64,
    /// Whether all are at the target and seen to work.
    #[serde(default)]
    pub ready: bool,
    /// Names of the nodes that are being upgraded now.
    #[schemars(length(max = 400), inner(length(max = 253)))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ::kube_core::ListMerge::Set)]
    pub in_flight: Vec<String>,
    /// The ledger of a group that stands alone: the nodes that may be disrupted now, each entered before anything is done to it; 50 at the
    /// most, whatever maxConcurrent says. Where a ClusterUpgrade stands above, it is kept there.
    #[schemars(length(max = 50))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ::kube_core::ListMerge::Map(vec!["node".into()]))]
    pub slots: Vec<Slot>,
    /// Conditions, one per type.
    #[schemars(schema_with = "crate::schema::conditions")]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

//! What stands behind pods: their budgets, and the workloads that would bring them back.

use std::sync::Arc;

use super::ids::{Key, Revision, Uid};
use super::scheduling::{Owner, Selector};

/// A PodDisruptionBudget.
#[derive(Clone, Debug, PartialEq)]
pub struct PodBudget {
    pub key: Key,
    pub uid: Uid,
    pub revision: Revision,
    pub selector: Selector,
    /// Its status was made for this generation; otherwise the API server refuses evictions under it.
    pub up_to_date: bool,
    pub disruptions_allowed: i64,
    pub current_healthy: i64,
    pub desired_healthy: i64,
    pub expected_pods: i64,
    /// `unhealthyPodEvictionPolicy: AlwaysAllow`.
    pub unhealthy_may_go: bool,
}

/// A Deployment, ReplicaSet or StatefulSet.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    pub kind: WorkloadKind,
    pub key: Key,
    pub uid: Uid,
    pub revision: Revision,
    pub replicas: i64,
    pub ready: i64,
    pub owner: Option<Owner>,
}

#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum WorkloadKind {
    Deployment,
    ReplicaSet,
    StatefulSet,
}

impl WorkloadKind {
    /// The short word `kubectl` takes.
    pub fn short(self) -> &'static str {
        match self {
            Self::Deployment => "deploy",
            Self::ReplicaSet => "rs",
            Self::StatefulSet => "sts",
        }
    }
}

/// What a custom gate says now.
#[derive(Clone, Debug, PartialEq)]
pub struct GateState {
    pub open: bool,
    /// The object that closes it, and what it says.
    pub message: Arc<str>,
}

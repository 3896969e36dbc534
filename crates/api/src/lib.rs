//! The objects Afloat speaks about: its own kinds, Harvester's front door, and the parts it reads of Cluster API, Rancher,
//! KubeVirt and Longhorn, with the names of labels, annotations, conditions and reasons.
//! Data only: no client, no clock, no decision. What follows from these objects is for `afloat-core` to say.

#![allow(
    clippy::duplicated_attributes,
    reason = "two printer columns of one type are taken for one attribute written twice"
)]

pub mod annotations;
pub mod clusterupgrade;
pub mod common;
pub mod conditions;
pub mod crds;
pub mod foreign;
pub mod harvester;
pub mod kubeadm;
pub mod labels;
pub mod names;
pub mod node;
pub mod reasons;

mod resource;
mod rules;
mod schema;

/// Group of Afloat's own kinds.
pub const GROUP: &str = "afloat.dev";
/// Version of Afloat's own kinds.
pub const VERSION: &str = "v1alpha1";

pub use clusterupgrade::{ClusterUpgrade, ClusterUpgradeSpec, ClusterUpgradeStatus};
pub use common::{NodeRef, NodeRole, NodeState, ObjectRef, StepContainer, Wait};
pub use conditions::ConditionType;
pub use kubeadm::{
    ControlPlaneKubeadmUpgrade, ControlPlaneKubeadmUpgradeSpec, GroupUpgradeStatus, NodeKubeadmUpgrade,
    NodeKubeadmUpgradeSpec, NodeKubeadmUpgradeStatus, WorkersKubeadmUpgrade, WorkersKubeadmUpgradeSpec,
};
pub use reasons::Reason;

//! Types of the conditions that our own kinds carry, each with its meaning; the reference page is generated from here.
//! Reasons are in [`crate::reasons`]; the conditions of Harvester's objects in [`crate::harvester`].

use strum::{Display, EnumIter, EnumMessage, EnumString, IntoStaticStr};

/// A condition type of our own kinds. `True` is good for all but [`ConditionType::Paused`], [`ConditionType::Stalled`] and
/// [`ConditionType::Degraded`].
#[derive(
    Clone, Copy, Debug, Display, EnumIter, EnumMessage, EnumString, Eq, IntoStaticStr, Ord, PartialEq, PartialOrd,
)]
pub enum ConditionType {
    /// The target is reached and seen to work. All kinds; wait for this one.
    Ready,
    /// Work is going on. All kinds.
    Progressing,
    /// Nothing moves until a person acts; the message says which act. All kinds.
    Stalled,
    /// A person holds the upgrade, or this node. All kinds.
    Paused,
    /// Nodes have failed, but the upgrade goes on within its budget. ClusterUpgrade and WorkersKubeadmUpgrade.
    Degraded,
    /// Nothing was found that stops the upgrade, or it was accepted. ClusterUpgrade.
    PreflightPassed,
    /// A backup was taken and tested. ClusterUpgrade.
    BackedUp,
    /// Bundle and images are where they are needed. ClusterUpgrade.
    Prepared,
    /// The components that manage the cluster are at the target. ClusterUpgrade.
    SystemServicesUpgraded,
    /// External etcd is at the target. ClusterUpgrade.
    EtcdUpgraded,
    /// Every control-plane node is at the target. ClusterUpgrade.
    ControlPlaneUpgraded,
    /// CNI, kube-proxy and CoreDNS are at the target. ClusterUpgrade.
    AddOnsUpgraded,
    /// Every worker is at the target or set aside within the budget. ClusterUpgrade.
    WorkersUpgraded,
    /// Nothing that was changed for the upgrade's sake is left. ClusterUpgrade.
    CleanedUp,
    /// What the node needs is on it. NodeKubeadmUpgrade.
    Staged,
    /// No pod is left that has to leave the node, or a policy waived it. NodeKubeadmUpgrade.
    Drained,
    /// New API connections go to the other control planes. NodeKubeadmUpgrade of a control plane.
    StoodAside,
    /// Every step is done. NodeKubeadmUpgrade.
    StepsDone,
    /// The node was seen to work at the target. NodeKubeadmUpgrade.
    Verified,
}

#[cfg(test)]
mod tests {
    use super::*;
    use strum::IntoEnumIterator;

    #[test]
    fn every_condition_type_says_what_it_means() {
        for kind in ConditionType::iter() {
            assert!(
                kind.get_documentation().is_some_and(|text| text.ends_with('.')),
                "{kind} has no sentence"
            );
        }
    }
}

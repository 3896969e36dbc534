//! The words that stand as `reason` in conditions, events, waits and findings: one list, one meaning each, never renamed.
//! The reference page is generated from here; a message may change at any time, a reason may not.

use strum::{Display, EnumIter, EnumMessage, EnumString, IntoStaticStr};

/// Why something is as it is.
#[derive(
    Clone, Copy, Debug, Display, EnumIter, EnumMessage, EnumString, Eq, IntoStaticStr, Ord, PartialEq, PartialOrd,
)]
pub enum Reason {
    // How an upgrade is.
    /// The object was seen and nothing was begun.
    NotStarted,
    /// Work is going on.
    InProgress,
    /// The target is reached.
    Succeeded,
    /// Stopped short of the target.
    Failed,
    /// There was nothing to do: everything is at the target already.
    AlreadyAtTarget,
    /// The phase does not apply to this cluster.
    NotApplicable,
    /// A person ended the upgrade.
    Aborted,
    /// What was changed is being undone.
    RollingBack,
    /// What was changed is undone.
    RolledBack,
    /// The node was put back and is taken last.
    Deferred,

    // What a person holds.
    /// `spec.paused` is true.
    PausedByUser,
    /// The node waits for a person, as `nodeUpgradeOption` or its annotation says.
    NodePaused,
    /// Now is outside the window.
    OutsideWindow,

    // What an upgrade waits for.
    /// Another upgrade of the same cluster is under way.
    WaitingForOtherUpgrade,
    /// No slot is free within the budget.
    WaitingForBudget,
    /// A node before this one is not done.
    WaitingForEarlierNode,
    /// The control plane is not done.
    WaitingForControlPlane,
    /// Binaries or images are still on their way to the node.
    WaitingForStaging,
    /// A PodDisruptionBudget allows no eviction now.
    WaitingForPodDisruptionBudget,
    /// A pod is under two PodDisruptionBudgets, which the eviction API refuses for ever.
    SeveralPodDisruptionBudgets,
    /// A pod was evicted and does not end.
    WaitingForPodTermination,
    /// A virtual machine is being migrated.
    WaitingForVirtualMachine,
    /// A volume has not all its replicas, or cannot be detached yet.
    WaitingForVolume,
    /// An etcd member is behind or not healthy.
    WaitingForEtcd,
    /// The node does not report Ready, or not with the new version.
    WaitingForNode,
    /// The node has to boot.
    WaitingForReboot,
    /// The API server does not answer.
    WaitingForApiServer,
    /// The virtual address has not moved.
    WaitingForVirtualIp,
    /// Cluster API has not done its part.
    WaitingForClusterApi,
    /// Rancher has not done its part.
    WaitingForRancher,
    /// A hook was not acknowledged.
    WaitingForHook,
    /// A custom gate is closed.
    WaitingForGate,
    /// The pods of the node would fit nowhere else now.
    WaitingForCapacity,
    /// A step asked to be tried again.
    WaitingForStep,

    // What went wrong.
    /// The preflight found what stops the upgrade.
    PreflightFailed,
    /// The spec asks for what cannot be.
    InvalidSpec,
    /// A version would go down.
    Downgrade,
    /// kubeadm's configuration names the tag of an image, which stays until another one is named, unless Afloat wrote it for another version.
    ImagePinned,
    /// Versions would be further apart than Kubernetes supports.
    VersionSkew,
    /// The cluster, machine or node is not there, or is another one under the same name.
    ObjectGone,
    /// A deadline passed.
    DeadlineExceeded,
    /// A step ended without success.
    StepFailed,
    /// The node does not work at the target.
    VerificationFailed,
    /// More nodes failed than the budget allows.
    TooManyFailures,
    /// A control-plane node failed; the upgrade stops there.
    ControlPlaneFailed,
    /// The backup could not be taken, or its copy differs.
    BackupFailed,
    /// The undoing did not work; the message says what is left.
    RollbackFailed,
    /// The bundle or an image is not there, or has another digest.
    BundleUnavailable,
    /// The change cannot be made in place.
    NotInPlace,
    /// The host undid its work by itself, because its API server or kubelet did not come back in time.
    UndoneByHost,
    /// An action was held back because it would have broken a rule: a defect of Afloat.
    RuleWouldBreak,
    /// An image cannot be pulled on the node.
    ImagePullFailed,

    // What the preflight finds.
    /// The node does not report Ready.
    NotReady,
    /// The node is cordoned.
    Cordoned,
    /// The node is in maintenance.
    InMaintenance,
    /// The budget allows no disruption, and will not by itself.
    BudgetBlocksDrain,
    /// The workload of the node fits nowhere else.
    NoCapacity,
    /// A certificate ends soon.
    CertificateExpiring,
    /// There is not enough room on a disk.
    DiskFull,
    /// A pod has data on the node that an eviction loses.
    LocalData,
    /// A pod that no controller would bring back.
    UnmanagedPod,
    /// A virtual machine cannot be migrated.
    NotMigratable,
    /// A volume has one replica only.
    SingleReplica,
    /// A volume has not all its replicas.
    VolumeDegraded,
    /// A backup, snapshot or restore is under way.
    BackupInProgress,
    /// Objects are used in a version that the target does not serve.
    RemovedApi,
    /// With fewer than three control planes the API is away while one of them restarts.
    ApiDowntime,
    /// A part of the control plane does not work.
    ControlPlaneUnhealthy,
    /// Another upgrade of the same cluster is under way.
    OtherUpgrade,
    /// Another controller is paused, or not paused, that has to be.
    ControllerPaused,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::str::FromStr;
    use strum::IntoEnumIterator;

    #[test]
    fn every_reason_says_what_it_means_and_reads_back() {
        for reason in Reason::iter() {
            assert!(
                reason.get_documentation().is_some_and(|text| text.ends_with('.')),
                "{reason} has no sentence"
            );
            assert_eq!(Reason::from_str(&reason.to_string()), Ok(reason));
        }
    }

    /// What `metav1.Condition` demands of a reason; an object with another one is refused by a strict schema.
    #[test]
    fn every_reason_is_one_camel_case_word() {
        for reason in Reason::iter() {
            let word = reason.to_string();
            assert!(word.starts_with(|c: char| c.is_ascii_uppercase()), "{word}");
            assert!(word.chars().all(|c| c.is_ascii_alphanumeric()), "{word}");
        }
    }
}

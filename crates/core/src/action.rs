//! Decisions as data: what is to be written, in which order, to which object in which state, and why. Carrying them out is
//! the executor's part (`afloat-operator`), trying every prefix of them the simulator's.

use std::sync::Arc;

use afloat_api::kubeadm::DesiredNodeState;
use afloat_api::{
    ClusterUpgradeStatus, ControlPlaneKubeadmUpgrade, GroupUpgradeStatus, NodeKubeadmUpgrade, NodeKubeadmUpgradeStatus,
    ObjectRef, Reason, StepContainer, WorkersKubeadmUpgrade,
};
use jiff::Timestamp;

use crate::hci::action::HciAction;
use crate::plan::StageKind;
use crate::view::{Key, NodeName, Revision, Target, Uid};

/// What follows from a view. Actions are carried out in their order; the first refusal ends the turn, and the next
/// one decides anew from what the API server then says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decision {
    pub actions: Vec<Action>,
    pub events: Vec<Event>,
    /// When to look again even if nothing changes; `None` where only a change can lead on.
    pub again: Option<Timestamp>,
    /// What was decided hangs on which nodes there are, and they were last seen before this. Whoever carries the decision out asks for
    /// them, and decides anew once they are seen as of then: their watch alone says nothing while nothing happens to any of them.
    pub nodes_since: Option<Revision>,
}

/// One write. Status writes carry the revision they were decided on: a conflict means that the decision is out of date.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Replaces the status of a ClusterUpgrade; the slot ledger is in it, so it comes before what a slot allows.
    WriteUpgradeStatus {
        target: Target,
        status: Box<ClusterUpgradeStatus>,
    },
    WriteControlPlaneStatus {
        target: Target,
        status: Box<GroupUpgradeStatus>,
    },
    WriteWorkersStatus {
        target: Target,
        status: Box<GroupUpgradeStatus>,
    },
    WriteNodeStatus {
        target: Target,
        status: Box<NodeKubeadmUpgradeStatus>,
    },
    /// Children. That one is there already under its name is no refusal if it belongs to the same upgrade.
    CreateControlPlaneUpgrade(Box<ControlPlaneKubeadmUpgrade>),
    CreateWorkersUpgrade(Box<WorkersKubeadmUpgrade>),
    CreateNodeUpgrade(Box<NodeKubeadmUpgrade>),
    /// The finalizer `afloat.dev/cleanup`: held from before the first change until nothing is left of it.
    SetUpgradeFinalizer {
        target: Target,
        present: bool,
    },
    /// The same of a group that stands alone.
    SetGroupFinalizer {
        target: Target,
        of: StageKind,
        present: bool,
    },
    /// Removes it from a NodeKubeadmUpgrade, which is created with it.
    RemoveNodeFinalizer {
        target: Target,
    },
    /// Machines that joined since a group was made are added to it, those that left are taken out.
    SetControlPlaneMachines {
        target: Target,
        machines: Vec<ObjectRef>,
    },
    SetWorkersMachines {
        target: Target,
        machines: Vec<ObjectRef>,
    },
    /// How far a node may go now, and in which attempt.
    SetDesired {
        target: Target,
        desired: DesiredNodeState,
        attempt: i32,
        /// Why a node is put back (annotation `afloat.dev/because`, in the same write); removed where `None`.
        because: Option<Reason>,
    },
    /// One upgrade of a cluster at a time: the lease `afloat-upgrade` says whose, that of a ClusterUpgrade or of a group
    /// that stands alone. Taken by creating it; whoever finds it
    /// there waits.
    TakeLock {
        namespace: Arc<str>,
        holder: Uid,
        /// Kind and name of whoever has this uid, and owns the lock: taken for one that is gone already, it is collected with it.
        kind: &'static str,
        name: Arc<str>,
    },
    /// Gives it back: deletes it.
    ReleaseLock {
        lock: Target,
    },
    /// Makes a node unschedulable and says for which upgrade, in one write.
    Cordon {
        node: Target,
        by: Uid,
    },
    /// Takes both back, in one write.
    Uncordon {
        node: Target,
    },
    /// Puts the pause of `nodeUpgradeOption` on a node. Whoever does looks at the upgrade as it is at that moment, and refuses where it is gone or
    /// goes: nobody would take the pause back.
    PauseNode {
        node: Target,
        /// The upgrade, which signs for it by its uid.
        upgrade: Target,
    },
    /// Removes a pause that the upgrade itself has put there, and its signature.
    UnpauseNode {
        node: Target,
        /// What a person wrote over it, which stays.
        left: Option<Arc<str>>,
    },
    /// Removes a wish that was recorded.
    ClearWish {
        node: Target,
    },
    CreatePod(Box<TaskPod>),
    /// Removes one of Afloat's own pods.
    DeletePod {
        pod: Target,
    },
    /// Asks the eviction API. A refusal by a budget (429) is an answer, not an error: the turn goes on.
    ///
    /// Whoever lets a pod go looks at its node as it is at that moment, and refuses where it is another machine, not cordoned, or not by the
    /// one who was seen to have done so: a replica whose watches are silent would empty a node that was put back long ago.
    Evict {
        pod: Target,
        grace_seconds: Option<i64>,
        from: Place,
    },
    /// Deletes a pod past its budget; only where the person said so for this budget, and its expiry has not passed.
    DeletePastBudget {
        pod: Target,
        grace_seconds: Option<i64>,
        budget: Key,
        from: Place,
    },
    /// Of an upgrade of Harvester.
    Hci(Box<HciAction>),
}

/// The machine that was decided on: its name may be another's by now, and its cordon too.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Place {
    pub node: NodeName,
    pub uid: Uid,
    /// Whose cordon it was, where an upgrade has signed it.
    pub cordoned_by: Option<Uid>,
}

impl Action {
    /// The node that a pod is asked to leave.
    pub fn empties(&self) -> Option<&Place> {
        match self {
            Self::Evict { from, .. } | Self::DeletePastBudget { from, .. } => Some(from),
            _ => None,
        }
    }

    /// One word for logs, metrics and the simulator's trace.
    pub fn name(&self) -> &'static str {
        match self {
            Self::WriteUpgradeStatus { .. } => "write-upgrade-status",
            Self::WriteControlPlaneStatus { .. } => "write-control-plane-status",
            Self::WriteWorkersStatus { .. } => "write-workers-status",
            Self::WriteNodeStatus { .. } => "write-node-status",
            Self::CreateControlPlaneUpgrade(_) => "create-control-plane-upgrade",
            Self::CreateWorkersUpgrade(_) => "create-workers-upgrade",
            Self::CreateNodeUpgrade(_) => "create-node-upgrade",
            Self::SetUpgradeFinalizer { .. } => "set-upgrade-finalizer",
            Self::SetGroupFinalizer { .. } => "set-group-finalizer",
            Self::RemoveNodeFinalizer { .. } => "remove-node-finalizer",
            Self::SetControlPlaneMachines { .. } => "set-control-plane-machines",
            Self::SetWorkersMachines { .. } => "set-workers-machines",
            Self::SetDesired { .. } => "set-desired",
            Self::TakeLock { .. } => "take-lock",
            Self::ReleaseLock { .. } => "release-lock",
            Self::Cordon { .. } => "cordon",
            Self::Uncordon { .. } => "uncordon",
            Self::PauseNode { .. } => "pause-node",
            Self::UnpauseNode { .. } => "unpause-node",
            Self::ClearWish { .. } => "clear-wish",
            Self::CreatePod(_) => "create-pod",
            Self::DeletePod { .. } => "delete-pod",
            Self::Evict { .. } => "evict",
            Self::DeletePastBudget { .. } => "delete-past-budget",
            Self::Hci(action) => action.name(),
        }
    }
}

/// One of Afloat's pods on a node, said in few words; the operator turns it into a privileged pod that is bound to the node.
///
/// Whoever makes one that disturbs the node (any but [`Task::Stage`]) looks at the node as it is at that moment, and refuses where
/// it is another machine or not cordoned: a watch may be far behind, and what was seen may be a cordon of long ago.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskPod {
    /// Name carries node, upgrade, task and attempt: made twice it is the same one.
    pub key: Key,
    pub node: NodeName,
    pub node_uid: Uid,
    pub task: Task,
    pub attempt: i32,
    /// Uid of the upgrade (label `afloat.dev/upgrade-uid`).
    pub upgrade_uid: Uid,
    /// The NodeKubeadmUpgrade that owns it.
    pub owner: Target,
    /// Init containers, in their order. kubelet starts one again that failed (`restartPolicy: OnFailure`).
    pub steps: Vec<StepContainer>,
    /// The node was drained for it. Whoever makes it looks at the node's pods as well, and refuses where one is left that [has to
    /// leave](crate::lifecycle::has_to_leave).
    pub emptied: bool,
}

/// What a pod of Afloat does on a node.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Task {
    /// Brings what is needed; disturbs nothing.
    Stage,
    /// The steps.
    Upgrade,
    /// Undoes them.
    Rollback,
}

impl Task {
    /// The word in names and in the label `afloat.dev/task`.
    pub fn word(self) -> &'static str {
        match self {
            Self::Stage => "stage",
            Self::Upgrade => "upgrade",
            Self::Rollback => "rollback",
        }
    }
}

/// Something a person may want to read later, on an object.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    pub object: EventObject,
    pub warning: bool,
    pub reason: Reason,
    pub message: Arc<str>,
}

/// What an event is about.
#[derive(Clone, Debug, PartialEq)]
pub enum EventObject {
    Upgrade(Target),
    ControlPlane(Target),
    Workers(Target),
    NodeUpgrade(Target),
    Node(Target),
    /// An Upgrade of Harvester.
    Hci(Target),
}

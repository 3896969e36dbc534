//! What people do to a Harvester-like cluster while it is upgraded: each deed at a moment that can be seen from the cluster, in order.
//! The moments are also those at which machines and Rancher are made to go wrong. How a deed is done is for whoever plays it.

use std::time::Duration;

use afloat_api::annotations;
use serde_json::Value;

/// Name of a second Upgrade beside the one that runs.
pub const SECOND_UPGRADE: &str = "hvst-upgrade-second";

/// A moment that can be seen from the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// There is an Upgrade.
    Asked,
    /// Its label says this phase.
    Phase(&'static str),
    /// A node is in this state.
    Node(&'static str, &'static str),
    /// A condition of the Upgrade has this status.
    Condition(&'static str, &'static str),
    /// It has ended and is cleaned up after.
    Over,
    /// There is none any more.
    Gone,
}

/// What somebody does.
#[derive(Clone, Debug, PartialEq)]
pub enum Deed {
    /// Writes an annotation on the Upgrade, or takes it away.
    AnnotateUpgrade(&'static str, Option<String>),
    DeleteUpgrade,
    /// Asks for a second Upgrade, beside the one that runs or after it.
    AskOnceMore,
    /// Takes the second one back.
    DeleteSecond,
    /// Deletes a Job of the Upgrade, by the end of its name.
    DeleteJob(&'static str),
    /// Deletes the Deployment that serves the release.
    DeleteRepo,
    /// Holds a node back, as people of Harvester do it.
    Pause(&'static str),
    /// Lets a paused node go on.
    Unpause(&'static str),
    /// Takes all taints from a node.
    Untaint(&'static str),
    Cordon(&'static str),
    /// A node that was not Ready says that it is.
    ReportReady(&'static str),
    /// Removes a node that is dead, with its machine.
    RemoveNode(&'static str),
    /// A machine joins that was installed with the new release.
    JoinUpgraded(&'static str),
    /// Asks KubeVirt to move a virtual machine.
    MigrateVm(&'static str),
    StopVm(&'static str),
    /// Pauses Harvester's own chart, or lets it go on.
    PauseChart(bool),
    /// Pauses Cluster API's view of the cluster.
    PauseCluster,
    BeginBackup,
    /// Starts Harvester's own controller, as far as it can be seen.
    RunOwnController,
    /// Says that this controller leaves upgrades alone.
    LeaveUpgrades,
    /// Puts a pod on a node, under budgets none of which lets it go.
    Guard(&'static str, &'static [&'static str]),
    /// Removes such a budget.
    Unguard(&'static str),
}

impl Deed {
    pub fn abort() -> Self {
        Self::AnnotateUpgrade("afloat.dev/abort", Some("true".to_owned()))
    }

    /// Goes on after a failure.
    pub fn resume() -> Self {
        Self::AnnotateUpgrade(annotations::WISH, Some("resume".to_owned()))
    }

    /// Holds the whole upgrade, or lets it go.
    pub fn hold(on: bool) -> Self {
        Self::AnnotateUpgrade(annotations::PAUSE, on.then(|| "a person looks at it".to_owned()))
    }

    pub fn pause_map(map: &Value) -> Self {
        Self::AnnotateUpgrade(annotations::HARVESTER_PAUSE_MAP, Some(map.to_string()))
    }
}

/// Deeds at a moment, or so long after it.
#[derive(Clone, Debug, PartialEq)]
pub struct Act {
    pub when: Moment,
    pub after: Duration,
    pub what: Vec<Deed>,
}

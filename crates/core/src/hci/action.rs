//! What a decision about an Upgrade of Harvester may ask for: each names its object in the state it was decided on. How each
//! becomes a request is the executor's part.

use std::collections::BTreeSet;
use std::sync::Arc;

use afloat_api::harvester::{HarvesterCondition, Upgrade, UpgradeComponent};
use serde_json::Value;

use super::view::{Cancelled, Run};
use crate::view::{Key, NodeName, Target, Uid};

/// One write.
#[derive(Clone, Debug, PartialEq)]
pub enum HciAction {
    /// Writes nothing: the Upgrade has to be as it was seen, or the rest of the decision is not carried out.
    Confirm {
        target: Target,
    },
    /// Labels, annotations, finalizers and status of the Upgrade in one write, since it has no status subresource. What else
    /// the object holds stays.
    WriteUpgrade {
        target: Target,
        before: Arc<Upgrade>,
        after: Box<Upgrade>,
    },
    /// Takes the label `latestUpgrade` from an older Upgrade.
    NotLatest {
        target: Target,
    },
    /// Puts an annotation of the front door on a node, or takes it away.
    MarkNode {
        node: Target,
        mark: NodeMark,
        value: Option<Arc<str>>,
    },
    /// Says that a node is not done yet, to whoever looks for a place (`afloat.dev/upgrade-pending`).
    TaintPending {
        node: Target,
        /// All taints of the node with that one, as they are to be.
        taints: Vec<crate::view::Taint>,
    },
    /// Removes what an upgrade and its Jobs have put there, `afloat.dev/upgrade-pending` and `kubevirt.io/drain`; the other taints stay.
    Untaint {
        node: Target,
        /// All taints of the node but those, as they were seen.
        keep: Vec<crate::view::Taint>,
    },
    CreateJob(Box<HciJob>),
    DeleteJob {
        job: Target,
    },
    CreateLog {
        key: Key,
        upgrade: Target,
    },
    /// Tells Harvester's controller of logs that it is enough.
    StopLog {
        log: Target,
        /// All conditions of it with that one, as they are to be.
        conditions: Vec<HarvesterCondition>,
    },
    DeleteLog {
        log: Target,
    },
    /// The ISO as an image, downloaded by Harvester.
    CreateImage {
        key: Key,
        upgrade: Target,
        url: Arc<str>,
        checksum: Arc<str>,
    },
    /// Says for which upgrade an image of the person's own is used; taken away with `None`.
    LabelImage {
        image: Target,
        upgrade: Option<Arc<str>>,
    },
    DeleteImage {
        image: Target,
    },
    CreateRepo(Box<Repo>),
    CreateRepoService {
        key: Key,
        upgrade: Target,
    },
    /// Starts the pods of the repository anew.
    RestartRepo {
        deployment: Target,
        at: jiff::Timestamp,
    },
    DeleteRepo {
        deployment: Target,
    },
    DeleteRepoService {
        service: Target,
    },
    /// Changes the cluster Rancher runs in.
    PatchCluster {
        cluster: Target,
        change: ClusterChange,
    },
    /// Answers a question of Rancher by copying it.
    Answer {
        secret: Target,
        hook: Hook,
        value: Arc<str>,
    },
    /// Pauses a chart and says for which upgrade, or takes both back.
    PauseChart {
        chart: Target,
        by: Option<Uid>,
    },
    /// Writes down which virtual machines will be stopped. Entries are only ever added.
    RecordVms {
        /// The list as it was seen; it is created where there is none.
        list: Option<Target>,
        key: Key,
        upgrade: Target,
        node: NodeName,
        vms: BTreeSet<String>,
    },
    /// KubeVirt renews running machines again as it did before the upgrade.
    RestoreUpdateMethods {
        chart: Target,
        /// JSON; null where the chart's values did not say.
        methods: Arc<str>,
    },
    SetLonghorn {
        setting: Target,
        value: Arc<str>,
    },
    EnableAddon {
        addon: Target,
        enabled: bool,
    },
    /// What the task of a Job writes.
    Task(TaskWrite),
}

/// One write of a task that runs on a node.
#[derive(Clone, Debug, PartialEq)]
pub enum TaskWrite {
    /// Keeps new virtual machines from a node that is about to be emptied (`kubevirt.io/drain`).
    TaintForDrain {
        node: Target,
        /// All taints of the node with that one, as they are to be.
        taints: Vec<crate::view::Taint>,
    },
    /// Stops a virtual machine, and notes on it how it was to run.
    StopVm { vm: Target, off: Run, before: Run },
    /// Lets a virtual machine run as given, and forgets how it was to run before it was stopped; `after` is noted where it is to run otherwise once it does.
    StartVm { vm: Target, run: Run, after: Option<Run> },
    /// Asks KubeVirt to move a running virtual machine: anywhere else, or to one node.
    Migrate {
        key: Key,
        vmi: Arc<str>,
        to: Option<NodeName>,
    },
    /// Notes on the task's own Job which migrations are cancelled, before they are.
    NoteCancelled { job: Target, all: Cancelled },
    /// Asks KubeVirt to give up a migration.
    CancelMigration { migration: Target },
    /// Takes a volume that nobody uses from its node.
    DetachVolume { volume: Target },
    /// Tells Rancher which Kubernetes the cluster it runs in is to have.
    AskForKubernetes { cluster: Target, version: Arc<str> },
    /// Lets a Deployment run another image in its first container.
    SetImage {
        server: Target,
        container: Arc<str>,
        image: Arc<str>,
    },
    /// Lets fleet bring a chart to a version, where the release names one; its values stay.
    RollOutChart {
        chart: Target,
        version: Option<Arc<str>>,
        /// KubeVirt renews no machine by itself until the upgrade is over; this is noted as how it was.
        update_methods_before: Option<Arc<str>>,
    },
    /// Brings an addon to a version; its values stay.
    UpdateAddon { addon: Target, version: Arc<str> },
}

/// An annotation of the front door on a Node.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum NodeMark {
    Pause,
    PendingOsImage,
}

/// A question of Rancher.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Hook {
    PreDrain,
    PostDrain,
}

/// What becomes of the provisioning cluster, in one write.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterChange {
    pub kubernetes_version: Arc<str>,
    pub provision_generation: i64,
    /// `rkeConfig.upgradeStrategy`; null removes it.
    pub strategy: Value,
    /// The same as it is now.
    pub strategy_was: Value,
    /// Uid of the upgrade it is changed for, and what was there before; `None` removes both annotations.
    pub rolled_out_for: Option<Uid>,
    pub before: Option<Arc<str>>,
}

/// What a Job does.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum JobKind {
    Prepare,
    ApplyManifests,
    PreDrain,
    PostDrain,
    SingleNodeUpgrade,
    RestoreVm,
    CleanUp,
    HoldMultus,
    LetMultusGo,
}

impl JobKind {
    /// The word in names, in the label `upgradeJobType`, and on the task's command line.
    pub fn word(self) -> &'static str {
        match self {
            Self::Prepare => "prepare",
            Self::ApplyManifests => "apply-manifests",
            Self::PreDrain => "pre-drain",
            Self::PostDrain => "post-drain",
            Self::SingleNodeUpgrade => "single-node-upgrade",
            Self::RestoreVm => "restore-vm",
            Self::CleanUp => "clean-up",
            Self::HoldMultus => "skip-manifests-apply",
            Self::LetMultusGo => "skip-manifests-remove",
        }
    }

    pub fn component(self) -> UpgradeComponent {
        match self {
            Self::ApplyManifests => UpgradeComponent::Manifest,
            Self::CleanUp => UpgradeComponent::Cleanup,
            Self::HoldMultus => UpgradeComponent::ApplySkipRke2Manifests,
            Self::LetMultusGo => UpgradeComponent::RemoveSkipRke2Manifests,
            _ => UpgradeComponent::Node,
        }
    }

    /// How long it may take, in seconds: no wait is without an end.
    pub fn limit(self) -> i64 {
        match self {
            Self::HoldMultus | Self::LetMultusGo => 600,
            Self::RestoreVm | Self::CleanUp => 3600,
            Self::Prepare | Self::PostDrain | Self::ApplyManifests => 2 * 3600,
            Self::PreDrain | Self::SingleNodeUpgrade => 4 * 3600,
        }
    }

    /// Name of the Job; cut where it would be too long for the label its pods get.
    pub fn name(self, upgrade: &str, node: Option<&NodeName>) -> String {
        let base = node.map_or_else(
            || format!("{upgrade}-{}", self.word()),
            |node| format!("{upgrade}-{}-{node}", self.word()),
        );
        afloat_api::names::cut(&base)
    }
}

/// A Job in few words; the executor knows the rest.
#[derive(Clone, Debug, PartialEq)]
pub struct HciJob {
    pub key: Key,
    pub kind: JobKind,
    pub node: Option<NodeName>,
    pub upgrade: Target,
    pub image: Arc<str>,
    /// Where the release is served.
    pub repo: Arc<str>,
    /// The release before.
    pub previous: Arc<str>,
}

/// The repository of a release.
#[derive(Clone, Debug, PartialEq)]
pub struct Repo {
    pub key: Key,
    pub upgrade: Target,
    pub image: Arc<str>,
    /// The claim that holds the ISO.
    pub claim: Arc<str>,
    pub replicas: i64,
}

impl HciAction {
    /// One word for logs, metrics and the simulator's trace.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Confirm { .. } => "confirm-upgrade",
            Self::WriteUpgrade { .. } => "write-hci-upgrade",
            Self::NotLatest { .. } => "not-latest",
            Self::MarkNode { .. } => "mark-node",
            Self::TaintPending { .. } => "taint-pending",
            Self::Untaint { .. } => "untaint",
            Self::CreateJob(_) => "create-job",
            Self::DeleteJob { .. } => "delete-job",
            Self::CreateLog { .. } => "create-log",
            Self::StopLog { .. } => "stop-log",
            Self::DeleteLog { .. } => "delete-log",
            Self::CreateImage { .. } => "create-image",
            Self::LabelImage { .. } => "label-image",
            Self::DeleteImage { .. } => "delete-image",
            Self::CreateRepo(_) => "create-repo",
            Self::CreateRepoService { .. } => "create-repo-service",
            Self::RestartRepo { .. } => "restart-repo",
            Self::DeleteRepo { .. } => "delete-repo",
            Self::DeleteRepoService { .. } => "delete-repo-service",
            Self::PatchCluster { .. } => "patch-cluster",
            Self::Answer { .. } => "answer-hook",
            Self::PauseChart { .. } => "pause-chart",
            Self::RestoreUpdateMethods { .. } => "restore-update-methods",
            Self::RecordVms { .. } => "record-vms",
            Self::SetLonghorn { .. } => "set-longhorn",
            Self::EnableAddon { .. } => "enable-addon",
            Self::Task(write) => write.name(),
        }
    }
}

impl TaskWrite {
    fn name(&self) -> &'static str {
        match self {
            Self::TaintForDrain { .. } => "taint-for-drain",
            Self::StopVm { .. } => "stop-vm",
            Self::StartVm { .. } => "start-vm",
            Self::Migrate { .. } => "migrate-vm",
            Self::NoteCancelled { .. } => "note-cancelled",
            Self::CancelMigration { .. } => "cancel-migration",
            Self::DetachVolume { .. } => "detach-volume",
            Self::AskForKubernetes { .. } => "ask-for-kubernetes",
            Self::SetImage { .. } => "set-image",
            Self::RollOutChart { .. } => "roll-out-chart",
            Self::UpdateAddon { .. } => "update-addon",
        }
    }
}

//! What is kept of each object of a Harvester-like cluster. Where they are put, and found again, is in the module above.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use afloat_api::harvester::HarvesterCondition;
use jiff::Timestamp;
use serde_json::Value;

use crate::view::{Key, NodeName, Resources, Selector, Uid};

/// What a Node carries for the front door, as it was seen.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct NodeMarks {
    /// `harvesterhci.io/node-upgrade-pause`
    pub pause: Option<Arc<str>>,
    /// `harvesterhci.io/pendingOSImage`
    pub pending_os_image: Option<Arc<str>>,
    /// `harvesterhci.io/maintain-status`
    pub maintenance: Option<Arc<str>>,
}

/// What a repository answered.
#[derive(Clone, Debug, PartialEq)]
pub struct RepoAnswer {
    /// The release file, or why it did not come.
    pub release: Result<Arc<str>, Arc<str>>,
    /// How often in a row it did not come.
    pub failures: u32,
}

/// A collection of logs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Log {
    /// Name of the Upgrade it is for.
    pub upgrade: Arc<str>,
    /// What Harvester's controller of logs says of it, and what is said to that controller.
    pub conditions: Vec<HarvesterCondition>,
}

impl Log {
    /// Its controller has set up what collects.
    pub const STARTED: &'static str = "Started";
    /// `Unknown` as long as its controller collects; `True` tells it to stop.
    pub const STOPPED: &'static str = "Stopped";

    fn says(&self, kind: &str, status: &str) -> bool {
        let mut all = self.conditions.iter();
        all.any(|condition| condition.kind == kind && condition.status == status)
    }

    pub fn started(&self) -> bool {
        self.says(Self::STARTED, "True")
    }

    /// It collects, and would stop if it were told to. Told before that, its controller would not heed it, then or later.
    pub fn can_be_stopped(&self) -> bool {
        self.says(Self::STOPPED, "Unknown")
    }

    pub fn stopped(&self) -> bool {
        self.says(Self::STOPPED, "True")
    }

    /// Its conditions with one of them set.
    #[must_use]
    pub fn with(&self, kind: &str, status: &str, now: Timestamp) -> Vec<HarvesterCondition> {
        let now = format!("{now:.0}");
        let others = self.conditions.iter().filter(|condition| condition.kind != kind);
        let set = HarvesterCondition {
            kind: kind.to_owned(),
            status: status.to_owned(),
            last_update_time: now.clone(),
            last_transition_time: now,
            ..HarvesterCondition::default()
        };
        others.cloned().chain([set]).collect()
    }
}

/// An image of a virtual machine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Image {
    /// Name of the Upgrade it is labelled with.
    pub upgrade: Option<Arc<str>>,
    pub imported: bool,
    /// Why it will not be imported any more.
    pub gave_up: Option<Arc<str>>,
    /// What is told of its download meanwhile.
    pub message: Arc<str>,
}

/// An addon.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Addon {
    pub enabled: bool,
    /// The version of its chart.
    pub version: Arc<str>,
    pub status: Arc<str>,
}

impl Addon {
    /// Being deployed, removed or changed.
    pub fn busy(&self) -> bool {
        match &*self.status {
            "AddonDeploySuccessful" => !self.enabled,
            "AddonDisabled" | "" => self.enabled,
            _ => true,
        }
    }
}

/// A backup, a snapshot or the restore of one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Backup {
    pub snapshot: bool,
    pub under_way: bool,
}

/// Backups or snapshots of a virtual machine by the clock.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Schedule {
    /// None is made any more.
    pub suspended: bool,
}

/// The cluster Rancher runs in.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LocalCluster {
    pub kubernetes_version: Arc<str>,
    pub provision_generation: i64,
    /// `rkeConfig.upgradeStrategy` as it is; null where there is none.
    pub strategy: Value,
    /// Uid of the upgrade it was last changed for (`afloat.dev/rolled-out-for`).
    pub rolled_out_for: Option<Uid>,
    /// Version and strategy before that (`afloat.dev/upgrade-strategy-before`).
    pub before: Option<Arc<str>>,
    /// What Rancher says about the control plane while it is not done.
    pub checkpoint: Option<Arc<str>>,
}

/// Cluster API's view of the local cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CapiCluster {
    pub phase: Arc<str>,
    pub paused: bool,
}

/// A Machine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Machine {
    pub phase: Arc<str>,
    pub node: Option<NodeName>,
}

/// A chart that fleet manages.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Chart {
    pub paused: bool,
    /// Uid of the upgrade that paused it (`afloat.dev/paused-by`).
    pub paused_by: Option<Uid>,
    pub version: Arc<str>,
    /// Why it is not ready, where it says so: as old as what Rancher copied from its bundle.
    pub not_ready: Option<Arc<str>>,
    /// How KubeVirt renews running machines, by the values of the chart; JSON, null where they do not say.
    pub update_methods: Arc<str>,
    /// The same before an upgrade took it away (`afloat.dev/workload-update-methods-before`).
    pub update_methods_before: Option<Arc<str>>,
}

/// A chart as fleet has it. Rancher makes it of the chart, and copies its status back whole: the generation there is this object's, and says
/// nothing about the chart's own.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bundle {
    pub paused: bool,
    pub version: Arc<str>,
    /// Whether what it says of itself is about what it is now.
    pub observed: bool,
    /// Why it is not ready, where it says so.
    pub not_ready: Option<Arc<str>>,
}

/// One revision of a chart that helm has applied, or was applying.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HelmRelease {
    pub revision: u64,
    /// Such as `deployed` or `pending-upgrade`.
    pub status: Arc<str>,
}

/// A Job.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Job {
    /// Uid of the upgrade it was made for.
    pub upgrade_uid: Option<Uid>,
    pub complete: bool,
    /// Why it failed, where it has.
    pub failed: Option<Arc<str>>,
    pub created_at: Option<Timestamp>,
    pub completed_at: Option<Timestamp>,
    /// Migrations that its task has cancelled, by machine (`afloat.dev/cancelled-migrations`).
    pub cancelled: Cancelled,
}

/// Uids of migrations that did not end in time and were cancelled, by machine (`namespace/name`). KubeVirt forgets such a migration with its object:
/// nobody else knows how often it was tried.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Cancelled(pub BTreeMap<String, BTreeSet<Uid>>);

impl Cancelled {
    /// As an annotation keeps it. A text of somebody else's counts as none.
    pub fn from_text(text: &str) -> Self {
        let all: BTreeMap<String, BTreeSet<String>> = serde_json::from_str(text).unwrap_or_default();
        let uids = |uids: BTreeSet<String>| uids.into_iter().map(Uid::from).collect();
        Self(all.into_iter().map(|(vm, all)| (vm, uids(all))).collect())
    }

    pub fn to_text(&self) -> String {
        let all: BTreeMap<&str, BTreeSet<&str>> = self
            .0
            .iter()
            .map(|(vm, uids)| (vm.as_str(), uids.iter().map(Uid::as_str).collect()))
            .collect();
        serde_json::json!(all).to_string()
    }

    /// How many of a machine's.
    pub fn count(&self, vm: &Key) -> usize {
        self.0.get(&vm.to_string()).map_or(0, BTreeSet::len)
    }

    pub fn has(&self, vm: &Key, migration: &Uid) -> bool {
        self.0.get(&vm.to_string()).is_some_and(|uids| uids.contains(migration))
    }
}

/// Virtual machines that were stopped, by node, each `namespace/name`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RestoreList {
    /// Uid of the upgrade it was made for.
    pub upgrade_uid: Option<Uid>,
    pub nodes: BTreeMap<String, BTreeSet<String>>,
}

impl RestoreList {
    /// Where the list of an upgrade is. The name is the contract's as it is: an object may have a longer one than a label.
    pub fn key(upgrade: &str) -> Key {
        Key::new(afloat_api::harvester::NAMESPACE, &format!("{upgrade}-restore-vm"))
    }
}

/// A virtual machine, running or not.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Vm {
    /// What a person sees, as `Running`.
    pub status: Arc<str>,
    /// A volume is being added or taken away.
    pub volume_requests: bool,
    /// Names of the volumes it starts with.
    pub volumes: Vec<Arc<str>>,
    /// When it is to run.
    pub run: Run,
    /// The same before a task stopped it (`afloat.dev/run-before`).
    pub run_before: Option<Run>,
    /// A task starts it by another word than its own, which it gets once it runs (`afloat.dev/run-after`).
    pub run_after: Option<Run>,
}

impl Vm {
    /// A task has stopped it, and it does not run as before yet: it is off, or being started.
    pub fn is_stopped(&self) -> bool {
        (self.run_before.is_some() && self.run.is_off()) || self.being_started().is_some()
    }

    /// Its own word, while a task starts it by another. Whoever has given it any other word since has the last word.
    pub fn being_started(&self) -> Option<&Run> {
        self.run_after.as_ref().filter(|_| self.run == Run::started())
    }

    /// How it is to run by its owner's word.
    pub fn own_run(&self) -> &Run {
        self.being_started().unwrap_or(&self.run)
    }
}

/// When a virtual machine is to run: KubeVirt knows a word for it, and an older switch.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Run {
    /// `spec.runStrategy`
    Strategy(Arc<str>),
    /// `spec.running`
    Switch(bool),
}

impl Default for Run {
    fn default() -> Self {
        Self::Switch(false)
    }
}

impl Run {
    /// The word for a virtual machine that is to be off.
    pub const HALTED: &str = "Halted";

    pub fn is_off(&self) -> bool {
        match self {
            Self::Strategy(word) => &**word == Self::HALTED,
            Self::Switch(on) => !on,
        }
    }

    /// Whether KubeVirt does by itself what this word says. By `Manual` it starts nobody; by `RerunOnFailure` some of its versions start only those that
    /// have failed. Whoever runs is left running by both.
    pub fn suffices(&self) -> bool {
        match self {
            Self::Strategy(word) => !matches!(&**word, "Manual" | "RerunOnFailure"),
            Self::Switch(_) => true,
        }
    }

    /// The word by which KubeVirt starts whoever is off.
    pub fn started() -> Self {
        Self::Strategy(Arc::from("Always"))
    }

    /// The same, off.
    #[must_use]
    pub fn off(&self) -> Self {
        match self {
            Self::Strategy(_) => Self::Strategy(Arc::from(Self::HALTED)),
            Self::Switch(_) => Self::Switch(false),
        }
    }

    /// As an annotation keeps it.
    pub fn to_text(&self) -> String {
        match self {
            Self::Strategy(word) => word.to_string(),
            Self::Switch(on) => format!("running={on}"),
        }
    }

    pub fn from_text(text: &str) -> Self {
        match text.strip_prefix("running=") {
            Some(on) => Self::Switch(on == "true"),
            None => Self::Strategy(Arc::from(text)),
        }
    }
}

/// A virtual machine that runs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Vmi {
    pub phase: Arc<str>,
    pub node: Option<NodeName>,
    pub node_selector: BTreeMap<Arc<str>, Arc<str>>,
    /// Where it may be: one must hold, anywhere where empty.
    pub node_affinity: Vec<Selector>,
    /// It has PCI, USB or GPU devices of its host.
    pub host_devices: bool,
    /// Why KubeVirt says that it cannot be migrated.
    pub not_migratable: Option<Arc<str>>,
    /// It belongs to an upgrade, as the repository did in older releases.
    pub of_upgrade: bool,
    /// `spec.domain.cpu.model`: a model by name, or `host-model`, which KubeVirt also takes where it is empty.
    pub cpu_model: Arc<str>,
    /// What its processor must be able to do.
    pub cpu_features: Vec<Arc<str>>,
    /// What it asks of its node.
    pub requests: Resources,
    /// Names of the claims of its disks.
    pub claims: Vec<Arc<str>>,
    /// Names of volumes that can be plugged in and out while it runs.
    pub plugged: Vec<Arc<str>>,
}

impl Vmi {
    pub fn alive(&self) -> bool {
        !matches!(&*self.phase, "Succeeded" | "Failed")
    }
}

/// A migration.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Migration {
    pub vmi: Arc<str>,
    pub phase: Arc<str>,
    /// Where it was before, as KubeVirt tells it once it has begun.
    pub source: Option<NodeName>,
    /// Where it was asked to go, as far as KubeVirt has kept that.
    pub to: Option<NodeName>,
    pub message: Option<Arc<str>>,
    pub created_at: Option<Timestamp>,
    pub ended_at: Option<Timestamp>,
}

/// A volume of Longhorn.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Volume {
    pub state: Arc<str>,
    pub robustness: Arc<str>,
    pub node: Option<NodeName>,
    /// Where it is to be attached.
    pub wanted: Option<NodeName>,
    pub replicas: i32,
    /// The claim it serves.
    pub claim: Option<Key>,
    /// Pods that use it and run.
    pub users: Vec<Arc<str>>,
}

impl Volume {
    pub fn attached(&self) -> bool {
        matches!(&*self.state, "attached" | "attaching")
    }
}

/// Who wants a volume of Longhorn to be attached: while there is a ticket for a node, it stays there.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Attachment {
    pub volume: Arc<str>,
    pub tickets: Vec<Ticket>,
}

/// One who wants it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Ticket {
    pub id: Arc<str>,
    /// Which part of Longhorn asked, as `csi-attacher`.
    pub kind: Arc<str>,
    pub node: Option<NodeName>,
}

impl Ticket {
    /// Whom it is for: most parts of Longhorn put their own name before that of the object they work on.
    pub fn whose(&self) -> &str {
        let rest = self
            .id
            .strip_prefix(&*self.kind)
            .and_then(|rest| rest.strip_prefix('-'));
        rest.unwrap_or(&self.id)
    }
}

/// An engine of Longhorn.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Engine {
    pub volume: Arc<str>,
    pub node: Option<NodeName>,
    pub running: bool,
    /// Replicas that are whole.
    pub whole: usize,
}

/// Harvester's own controller, which upgrades by itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Upstream {
    pub replicas: i64,
    /// A person said that it leaves upgrades alone (`afloat.dev/harvester-upgrades: off`).
    pub off: bool,
    pub server: Server,
}

/// A Deployment, by its first container.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Server {
    pub container: Arc<str>,
    pub image: Arc<str>,
    /// Every replica is as it is asked to be, and serves.
    pub rolled_out: bool,
}

impl Server {
    /// The tag of its image.
    pub fn tag(&self) -> &str {
        let name = self.image.rsplit('/').next().unwrap_or_default();
        name.split_once(':').map(|(_, tag)| tag).unwrap_or_default()
    }

    /// Its image with another tag.
    pub fn image_at(&self, tag: &str) -> String {
        let without = self.image.strip_suffix(self.tag()).unwrap_or(&self.image);
        format!("{}:{tag}", without.trim_end_matches(':'))
    }
}

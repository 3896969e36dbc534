//! What the Jobs of an upgrade do, most of them on a node, as decisions: one look at the cluster at a time says what is done next, what is waited
//! for, or that it is over. Nothing is remembered between looks but what the cluster and the host show, so that a Job that is killed and
//! started again goes on where it was. Carrying out is for the operator's task runner; what the host does is behind its port.

mod images;
mod manifests;
mod migrations;
mod multus;
mod post_drain;
mod pre_drain;
mod restore_vm;

use std::sync::Arc;

use jiff::Timestamp;

use super::action::{JobKind, TaskWrite};
use super::config;
use super::release::Release;
use super::view::{HciKind, RestoreList, Seen};
use crate::view::{Key, NodeName, View};

pub use images::{clean_up, prepare};
pub use manifests::{RANCHER_NAMESPACE, apply_manifests, at_release};
pub use migrations::ends_until;
pub use multus::{hold_multus, let_multus_go};
pub use post_drain::{post_drain, single_node};
pub use pre_drain::{emptied, pre_drain};
pub use restore_vm::{moved_from, restore_vm, stopped_for_another};

/// Whom a task works for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Errand {
    /// The Upgrade.
    pub upgrade: Key,
    /// Without a name for what concerns the whole cluster.
    pub node: NodeName,
}

/// What is done on the host itself; each can be done again without harm.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum HostWork {
    /// Rancher's agent is taken out of what an earlier upgrade left it in, and runs.
    RecoverAgent,
    /// The network configuration that the new release brings by itself is taken away.
    RemoveCanalConfig,
    /// The old release's own charts are not installed again when its server restarts.
    DisableCharts,
    /// Rancher is the one of the release.
    UpgradeRancher,
    /// The images of the release are there before anything needs them.
    PreloadImages,
    /// Images that only the release before needs go.
    RemoveOldImages,
    /// The server starts with what the release expects of its configuration.
    ConfigureServer,
    /// Archives of images that the server has read go.
    RemoveArchives,
    /// The new operating system lies on the host.
    BringSystem,
    /// The new operating system is what boots next.
    InstallSystem,
    /// The machine restarts, soon after the task has ended.
    RestartSoon,
    /// RKE2 does not bring its own multus when it starts.
    HoldMultus,
    /// It does again.
    LetMultusGo,
}

impl HostWork {
    /// What a person reads about it.
    pub fn words(self) -> &'static str {
        match self {
            Self::RecoverAgent => "recovers Rancher's agent on the host",
            Self::RemoveCanalConfig => "removes the old canal configuration",
            Self::DisableCharts => "keeps the old release's charts from being installed again",
            Self::UpgradeRancher => "brings Rancher to the release, by its chart",
            Self::PreloadImages => "brings the images of the release to the host",
            Self::RemoveOldImages => "removes images that only the release before needs",
            Self::ConfigureServer => "configures RKE2 for the release",
            Self::RemoveArchives => "removes archives of images that RKE2 has read",
            Self::BringSystem => "brings the new operating system to the host",
            Self::InstallSystem => "installs the new operating system beside the running one",
            Self::RestartSoon => "lets the machine restart in half a minute",
            Self::HoldMultus => "keeps RKE2 from bringing its multus",
            Self::LetMultusGo => "lets RKE2 bring its multus again",
        }
    }
}

/// What a look came to.
#[derive(Clone, Debug, PartialEq)]
pub enum Look {
    /// To be written now; then it is looked again.
    Write { what: Vec<TaskWrite>, says: String },
    /// To be done on the host now.
    Host(HostWork),
    /// Something has to happen first; looked at again when anything changes, and at this time at the latest.
    Wait { says: String, again: Option<Timestamp> },
    /// Nothing is left to do.
    Done { says: String },
    /// It cannot go on by itself.
    Failed { says: String },
}

impl Look {
    /// What a person reads about it.
    pub fn words(&self) -> &str {
        match self {
            Self::Write { says, .. } | Self::Wait { says, .. } | Self::Done { says } | Self::Failed { says } => says,
            Self::Host(work) => work.words(),
        }
    }
}

/// What tasks look at that move virtual machines, beside what every cluster has.
const MACHINES: &[HciKind] = &[
    HciKind::Vm,
    HciKind::Vmi,
    HciKind::Migration,
    HciKind::Volume,
    HciKind::Engine,
    HciKind::Attachment,
    HciKind::RestoreList,
];
/// What tasks look at that ask for migrations: their own Job says since when these count.
const MIGRATIONS: &[HciKind] = &[HciKind::Upgrade, HciKind::Job];
/// What tasks look at that bring a release to a node.
const RELEASE: &[HciKind] = &[HciKind::Upgrade, HciKind::Cluster];
/// What the task looks at that brings the services of a release.
const SERVICES: &[HciKind] = &[
    HciKind::Chart,
    HciKind::Bundle,
    HciKind::Addon,
    HciKind::Server,
    HciKind::Upstream,
    HciKind::HelmRelease,
];

/// One look of the task of a Job.
pub fn look(job: JobKind, view: &View, errand: &Errand, host: &HostDone, now: Timestamp) -> Look {
    let look = match job {
        JobKind::ApplyManifests => apply_manifests,
        JobKind::Prepare => prepare,
        JobKind::PreDrain => emptied,
        JobKind::PostDrain => post_drain,
        JobKind::SingleNodeUpgrade => single_node,
        JobKind::RestoreVm => restore_vm,
        JobKind::CleanUp => clean_up,
        JobKind::HoldMultus => hold_multus,
        JobKind::LetMultusGo => let_multus_go,
    };
    look(view, errand, host, now)
}

/// What it looks at, beside nodes and budgets; what nobody looks at is not watched, on any of the nodes.
pub fn watches(job: JobKind) -> impl Iterator<Item = HciKind> {
    let (own, release) = match job {
        JobKind::ApplyManifests => (SERVICES, RELEASE),
        JobKind::Prepare | JobKind::CleanUp | JobKind::LetMultusGo => (&[][..], &[][..]),
        JobKind::HoldMultus => (&[HciKind::Upgrade][..], &[][..]),
        JobKind::PreDrain | JobKind::RestoreVm => (MACHINES, MIGRATIONS),
        JobKind::PostDrain | JobKind::SingleNodeUpgrade => (MACHINES, RELEASE),
    };
    own.iter().chain(release).copied()
}

/// What was done on the host so far by this run of the task.
pub type HostDone = std::collections::BTreeSet<HostWork>;

/// The first of these that is not done yet.
fn first_open(works: &[HostWork], done: &HostDone) -> Option<Look> {
    let open = works.iter().find(|work| !done.contains(work));
    open.copied().map(Look::Host)
}

fn waits(says: String) -> Look {
    Look::Wait { says, again: None }
}

/// Whether a person has ended the upgrade. What was not begun is left alone then; whoever puts things back does not wait until the pod of a Job that
/// was deleted is gone.
fn is_ending(view: &View, errand: &Errand) -> bool {
    let upgrade = view.hci.upgrades.get(&errand.upgrade);
    upgrade.is_some_and(|upgrade| {
        upgrade.deleting || config::annotation(&upgrade.what, config::ABORT).is_some_and(|value| value == "true")
    })
}

/// The release that an upgrade goes to, or what keeps a task from knowing it.
fn release_of(view: &View, errand: &Errand) -> Result<Release, Look> {
    let upgrade = view.hci.upgrades.get(&errand.upgrade);
    let status = upgrade.and_then(|upgrade| upgrade.status.as_ref());
    let recorded = status.map(|status| status.repo_info.as_str()).unwrap_or_default();
    // It was there when the Job was made: what is seen is older than that.
    if recorded.is_empty() {
        let says = format!("waits to see status.repoInfo of upgrade {}", errand.upgrade);
        return Err(waits(says));
    }
    Release::parse(recorded).map_err(|error| Look::Failed {
        says: format!("status.repoInfo of upgrade {}: {error}", errand.upgrade),
    })
}

/// The virtual machines that were written down for a node before they are stopped, each `namespace/name`.
fn recorded(view: &View, errand: &Errand) -> Option<Arc<Seen<RestoreList>>> {
    view.hci.restore_list_of(&errand.upgrade).cloned()
}

#[cfg(test)]
mod migration_tests;
#[cfg(test)]
mod release_tests;
#[cfg(test)]
mod tests;

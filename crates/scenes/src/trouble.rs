//! What goes wrong on a cluster by itself: migrations, volumes, Jobs, machines, Rancher, the repository.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::people::Moment;

/// What goes wrong.
#[derive(Clone, Debug, Default)]
pub struct Trouble {
    /// So many migrations of a virtual machine fail, by `namespace/name`.
    pub failing_migrations: BTreeMap<String, u32>,
    /// So many migrations of a virtual machine begin and never end.
    pub endless_migrations: BTreeMap<String, u32>,
    /// Migrations of a virtual machine that go over to post-copy, and whether that fails: the machine is lost then, and KubeVirt starts it again.
    pub post_copies: BTreeMap<String, bool>,
    pub volumes: VolumeTrouble,
    /// So many Jobs of a kind fail; of a kind on one node as `kind/node`.
    pub failing_jobs: BTreeMap<String, u32>,
    pub machines: MachineTrouble,
    pub parts: PartsTrouble,
    /// When Rancher is restarted, and for how long it is away then.
    pub rancher_restarts: Vec<(Moment, Duration)>,
    /// Rancher asks about two nodes at once, whatever it was told.
    pub rancher_hurries: bool,
    /// How long the budget of a migration that has ended stays, where it does not go soon.
    pub budgets_linger: Option<Duration>,
    /// The repository does not answer the first so many times.
    pub repo_silent: u32,
}

/// What goes wrong with volumes.
#[derive(Clone, Debug, Default)]
pub struct VolumeTrouble {
    /// Volumes that stay attached whatever is asked: for so long, or for ever.
    pub stuck: BTreeMap<String, Option<Duration>>,
    /// How long the rebuilding of a replica takes, where it is not quick.
    pub rebuild: Option<Duration>,
    /// How long an engine takes to say that a replica is whole, where it does not say so soon.
    pub engines_behind: Option<Duration>,
    /// Replicas that fail at a moment, by their volume, and how long it takes to rebuild them.
    pub lost: Vec<(Moment, &'static str, Duration)>,
}

/// What goes wrong with machines.
#[derive(Clone, Debug, Default)]
pub struct MachineTrouble {
    pub power_cuts: Vec<PowerCut>,
    /// Machines that do not restart by themselves when they should.
    pub hanging: BTreeSet<String>,
    /// Machines that boot the old system again, so many times.
    pub old_system: BTreeMap<String, u32>,
}

/// A machine that is without power for a while.
#[derive(Clone, Debug)]
pub struct PowerCut {
    pub node: String,
    pub when: Moment,
    /// After the moment.
    pub after: Duration,
    pub away: Duration,
}

/// What goes wrong with the small parts of Harvester.
#[derive(Clone, Debug, Default)]
pub struct PartsTrouble {
    /// Logs are never collected.
    pub no_logs: bool,
    /// Why no image is imported.
    pub no_images: Option<&'static str>,
}

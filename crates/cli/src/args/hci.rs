//! `afloat hci …`: the tasks that Jobs of a Harvester upgrade run, most of them on their node.

use clap::{Args, Subcommand, ValueEnum};

use super::people::Place;

pub const EXAMPLES: &str = "\
Jobs of an upgrade run these; what they need stands in the environment of their pod.
By hand, as root on the node itself, for instance when its Job was deleted:
  afloat hci pre-drain --upgrade hvst-upgrade-x7f2k --node node-2
  afloat hci prepare --upgrade hvst-upgrade-x7f2k --node node-2 --repo http://10.0.0.5:8080
On a machine with two slots for its system, to boot the other one again:
  afloat hci host put-system-back a node-2

All can be run again: what is done already stays as it is, and nobody is stopped who is not on record.
Exit codes: 0 done, 1 failed; the last line says why";

#[derive(Debug, Subcommand)]
pub enum Hci {
    /// Bring Rancher, charts and addons to the release; on any server of RKE2
    ApplyManifests(Manifests),
    /// Bring the images of the release to the node
    Prepare(Release),
    /// Empty the node: volumes settled, machines moved, those that cannot move stopped by policy and written down
    PreDrain(Errand),
    /// Wait for the node's new Kubernetes, install its new operating system, and restart it
    PostDrain(Release),
    /// All of it for the only node of a cluster
    SingleNodeUpgrade(Release),
    /// Start the machines again that were stopped for the upgrade of the node; bring those back that were moved, where the Upgrade asks for it
    RestoreVm(Errand),
    /// Remove images from the node that only the release before needs
    CleanUp(Release),
    /// Keep RKE2 on the node from bringing its own multus when it starts
    SkipManifestsApply(Errand),
    /// Let it do that again
    SkipManifestsRemove(Errand),
    /// One thing on the host itself, in a process of its own
    #[command(hide = true)]
    Host { order: Order, names: Vec<String> },
}

#[derive(Args, Debug)]
pub struct Whom {
    /// The Upgrade
    #[arg(long, value_name = "NAME", env = "HARVESTER_UPGRADE_NAME")]
    pub upgrade: String,
    /// The namespace of the Upgrade
    #[arg(long, value_name = "NAME", env = "HARVESTER_UPGRADE_NAMESPACE", default_value = afloat_api::harvester::NAMESPACE)]
    pub upgrade_namespace: String,
    #[command(flatten)]
    pub place: Place,
}

#[derive(Args, Debug)]
pub struct Errand {
    #[command(flatten)]
    pub whom: Whom,
    /// The node
    #[arg(long, value_name = "NAME", env = "HARVESTER_UPGRADE_NODE_NAME")]
    pub node: String,
}

#[derive(Args, Debug)]
pub struct Manifests {
    #[command(flatten)]
    pub whom: Whom,
    /// Where the release is served: the address before /harvester-iso/
    #[arg(long, value_name = "URL", env = "AFLOAT_HCI_REPO")]
    pub repo: String,
}

#[derive(Args, Debug)]
pub struct Release {
    #[command(flatten)]
    pub errand: Errand,
    /// Where the release is served: the address before /harvester-iso/
    #[arg(long, value_name = "URL", env = "AFLOAT_HCI_REPO")]
    pub repo: String,
    /// The release before, as v1.6.0
    #[arg(long, value_name = "VERSION", env = "AFLOAT_HCI_PREVIOUS", default_value = "")]
    pub previous: String,
}

/// What a task tells its host.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum Order {
    RecoverAgent,
    RemoveCanalConfig,
    DisableCharts,
    UpgradeRancher,
    ListImages,
    ImportImages,
    RemoveImages,
    ConfigureServer,
    RemoveArchives,
    /// The file of the release that a new system is made from, and the checksums of those whose systems are there
    NameSystem,
    InstallSystem,
    RestartSoon,
    HoldMultus,
    LetMultusGo,
    /// Keep a system that boots for the first time when it is well, or let go of it
    KeepSystem,
    /// Boot another system that is there, by its slot
    PutSystemBack,
}

//! `afloat hci …`: the tasks that Jobs of a Harvester upgrade run on their node.

use afloat_core::hci::task::HostWork;
use clap::{Args, Subcommand};

use super::people::Place;

pub const EXAMPLES: &str = "\
Jobs of an upgrade run these; what they need stands in the environment of their pod.
By hand, as root on the node itself, for instance when its Job was deleted:
  afloat hci pre-drain --upgrade hvst-upgrade-x7f2k --node node-2
  afloat hci restore-vm --upgrade hvst-upgrade-x7f2k --node node-2

Both can be run again: what is done already stays as it is, and nobody is stopped who is not on record.
Exit codes: 0 done, 1 failed; the last line says why";

#[derive(Debug, Subcommand)]
pub enum Hci {
    /// Empty the node: volumes settled, machines moved, those that cannot move stopped by policy and written down
    PreDrain(Errand),
    /// Start the machines again that were stopped for the upgrade of the node
    RestoreVm(Errand),
    /// One thing on the host itself, in a process of its own
    #[command(hide = true)]
    Host { work: HostWork },
}

#[derive(Args, Debug)]
pub struct Errand {
    /// The Upgrade
    #[arg(long, value_name = "NAME", env = "HARVESTER_UPGRADE_NAME")]
    pub upgrade: String,
    /// The namespace of the Upgrade
    #[arg(long, value_name = "NAME", env = "HARVESTER_UPGRADE_NAMESPACE", default_value = afloat_api::harvester::NAMESPACE)]
    pub upgrade_namespace: String,
    /// The node
    #[arg(long, value_name = "NAME", env = "HARVESTER_UPGRADE_NODE_NAME")]
    pub node: String,
    #[command(flatten)]
    pub place: Place,
}

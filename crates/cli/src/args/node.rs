//! `afloat node …`: what runs on a machine, most of it started by step containers and by the unit on the host.

use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;

pub const NODE_EXAMPLES: &str = "\
Examples:
  afloat node status               what Afloat does on this machine, and what happens next
  afloat node status -o json       the same for scripts
  afloat node rollback             put everything back as it was, as root on the machine itself

Afloat's own folder is /var/lib/afloat: journal, bundle, and every file that was replaced.
Steps get their plan from the environment variables AFLOAT_*, as the operator writes them into their pod.
Exit codes of a step: 0 done, 10 later, 20 failed, 30 undone by the host itself";

#[derive(Args, Debug)]
pub struct Node {
    #[command(subcommand)]
    pub command: NodeCommand,
}

#[derive(Debug, Subcommand)]
pub enum NodeCommand {
    /// What Afloat does on this machine
    Status {
        /// How to print it
        #[arg(short, long, value_enum, default_value_t = StatusOutput::Text)]
        output: StatusOutput,
    },
    /// Undo everything, as the journal on this machine says
    Rollback,
    /// Bring binaries, images and the host unit to the machine
    Stage {
        /// Where the bundle is
        #[arg(long, value_name = "FOLDER", default_value = afloat_node::paths::BROUGHT)]
        bundle: PathBuf,
    },
    /// Send new API connections to the other control planes
    StandAside,
    /// Swap the container runtime
    Containerd,
    /// Swap the CNI plugins
    Cni,
    /// Run kubeadm's part
    Kubeadm,
    /// Swap the kubelet
    Kubelet,
    /// Take API connections again
    ComeBack,
    /// Carry on what the journal says, until there is nothing to do: what the unit on the host runs
    Engine,
    /// The end of a task pod
    #[command(hide = true)]
    Done,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StatusOutput {
    Text,
    Json,
}

//! What people can write on the command line, and the help they get. Only commands that work are here.

pub mod bundle;
pub mod hci;
pub mod node;
pub mod people;
pub mod repo;

use afloat_sim::hci::HciScenario;
use afloat_sim::scenario::Scenario;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::net::SocketAddr;
use std::path::PathBuf;

/// The text under `afloat --help`.
const EXAMPLES: &str = "\
Examples:
  afloat upgrade --to v1.36.3          upgrade the cluster of your kubeconfig in place, and follow it
  afloat status                        where it is; explain: why it does not move
  afloat pause | resume | abort        hold it, let it go on, end it
  afloat bundle --help                 what nodes are upgraded with, for sites without a way out
  afloat sandbox                       watch a simulated cluster come up
  afloat sandbox --serve               the same, for kubectl: prints the KUBECONFIG line to copy
  afloat sandbox --once -o json        print its state once, for scripts
  source <(afloat completion bash)     complete commands in this shell

Exit codes: 0 done, 1 failed, 2 bad usage, 3 refused by preflight, 4 timed out but still going on, 5 paused, 130 detached";

const SANDBOX_EXAMPLES: &str = "\
Examples:
  afloat sandbox                                     3 control planes, 5 workers, upgraded in place before your eyes
  afloat sandbox --nodes 3+20 --speed 50             a bigger one, quicker
  afloat sandbox --from v1.33.2 --to v1.36.3         control planes hop by hop, workers once
  afloat sandbox --faults operator-killed            the operator is killed again and again meanwhile
  afloat sandbox --scenario stuck-pdb --serve        for afloat upgrade, status and explain in another shell
  afloat sandbox --scenario harvester-three-nodes    a Harvester-like cluster: 30 virtual machines stay up meanwhile
  afloat sandbox --once                              print the cluster and end
  afloat sandbox --list-scenarios                    what there is to choose from

Nothing leaves this machine and nothing is left on it: the cluster lives in the memory of this process.";

#[derive(Debug, Parser)]
#[command(name = "afloat", version, about = "Kubernetes clusters upgraded in place, while they stay afloat", after_help = EXAMPLES)]
#[command(disable_version_flag = true, arg_required_else_help = true)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Upgrade a cluster in place: look, ask, begin, follow
    #[command(after_help = people::UPGRADE_EXAMPLES)]
    Upgrade(Box<people::Upgrade>),
    /// Where an upgrade is, node by node
    #[command(after_help = people::STATUS_EXAMPLES)]
    Status(people::Status),
    /// Why an upgrade does not move, and what frees it
    #[command(after_help = people::EXPLAIN_EXAMPLES)]
    Explain(people::Explain),
    /// Hold an upgrade, or one node of it
    #[command(after_help = people::PAUSE_EXAMPLES)]
    Pause(people::Hold),
    /// Let an upgrade, or one node of it, go on
    #[command(after_help = people::PAUSE_EXAMPLES)]
    Resume(people::Hold),
    /// Put a node back as it was and take it last
    #[command(after_help = people::WISH_EXAMPLES)]
    Defer(people::Wish),
    /// Undo the upgrade of a node
    #[command(after_help = people::WISH_EXAMPLES)]
    Rollback(people::Wish),
    /// End an upgrade: nodes in flight are put back
    #[command(after_help = people::WISH_EXAMPLES)]
    Abort(people::Abort),
    /// Everything a Kubernetes version needs, as one signed image: make, check, carry and serve it
    #[command(subcommand, after_help = bundle::EXAMPLES)]
    Bundle(bundle::Bundle),
    /// A release for the nodes of a Harvester-like cluster, served from a folder or an ISO image
    #[command(subcommand, after_help = repo::EXAMPLES)]
    Repo(repo::Repo),
    /// Run the operator
    #[command(after_help = people::CONTROLLER_EXAMPLES)]
    Controller(people::Controller),
    /// What runs on a machine that is being upgraded
    #[command(after_help = node::NODE_EXAMPLES)]
    Node(node::Node),
    /// What Jobs of a Harvester upgrade run on their node
    #[command(subcommand, after_help = hci::EXAMPLES)]
    Hci(hci::Hci),
    /// A simulated cluster with an API server of its own, in this process
    #[command(after_help = SANDBOX_EXAMPLES)]
    Sandbox(Sandbox),
    /// Print the completion script of a shell
    Completion {
        /// The shell to complete in
        shell: clap_complete::Shell,
    },
    /// Print the version of afloat
    Version {
        /// How to print it
        #[arg(short, long, value_enum, default_value_t = VersionOutput::Text)]
        output: VersionOutput,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum VersionOutput {
    Text,
    Json,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// A table for people
    Text,
    /// The table with zones, addresses and what is on the nodes
    Wide,
    /// JSON, with --once
    Json,
    /// YAML, with --once
    Yaml,
}

#[derive(Args, Debug)]
pub struct Sandbox {
    /// Control planes [default: as the scenario has it, usually 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=9))]
    pub control_planes: Option<u32>,
    /// Workers [default: as the scenario has it, usually 5]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=5000))]
    pub workers: Option<u32>,
    /// Both at once, as 3+5
    #[arg(long, value_name = "N+N", value_parser = nodes, conflicts_with_all = ["control_planes", "workers"])]
    pub nodes: Option<(u32, u32)>,
    /// The version the cluster has [default: v1.35.4]
    #[arg(long, value_name = "VERSION", value_parser = version)]
    pub from: Option<String>,
    /// The version to upgrade it to [default: v1.36.3; with --serve nothing is begun unless this is given]
    #[arg(long, value_name = "VERSION", value_parser = version)]
    pub to: Option<String>,
    /// A warning of the preflight to accept, as it is printed; may be given several times
    #[arg(long, value_name = "WARNING")]
    pub accept: Vec<String>,
    /// What goes wrong on purpose
    #[arg(long, value_name = "FAULT", value_enum, value_delimiter = ',')]
    pub faults: Vec<crate::sandbox::upgrade::Fault>,
    /// The kind of cluster to make
    #[arg(long, value_name = "NAME", default_value = "default", value_parser = scenario(), hide_possible_values = true)]
    pub scenario: SandboxScenario,
    /// List the scenarios and end
    #[arg(long)]
    pub list_scenarios: bool,
    /// Wait until the cluster has settled, print its state and end
    #[arg(long, conflicts_with = "serve")]
    pub once: bool,
    /// Serve the API over HTTPS and print the KUBECONFIG line to copy
    #[arg(long)]
    pub serve: bool,
    /// Where to listen; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0", requires = "serve")]
    pub listen: SocketAddr,
    /// Where to write the kubeconfig; removed at the end [default: a new file in the temporary folder]
    #[arg(long, value_name = "FILE", requires = "serve")]
    pub kubeconfig: Option<PathBuf>,
    /// Dice of the simulation: the same seed, the same names and durations [default: 1]
    #[arg(long, value_name = "N", default_value_t = 1, hide_default_value = true)]
    pub seed: u64,
    /// How many times as quick as life pods and machines are [default: 20, with --serve 1]
    #[arg(long, value_name = "X", value_parser = speed)]
    pub speed: Option<f64>,
    /// How to print the state
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    pub output: Output,
}

/// A cluster that the sandbox can make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SandboxScenario {
    Kubeadm(Scenario),
    Harvester(HciScenario),
}

impl SandboxScenario {
    pub fn all() -> impl Iterator<Item = Self> {
        let kubeadm = Scenario::ALL.iter().copied().map(Self::Kubeadm);
        kubeadm.chain(HciScenario::all().map(Self::Harvester))
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Kubeadm(scenario) => scenario.name(),
            Self::Harvester(scenario) => scenario.name(),
        }
    }

    pub fn summary(self) -> &'static str {
        match self {
            Self::Kubeadm(scenario) => scenario.summary(),
            Self::Harvester(scenario) => scenario.summary(),
        }
    }
}

/// Reads the name of a scenario; shells complete it.
fn scenario() -> impl TypedValueParser<Value = SandboxScenario> {
    let value = |scenario: SandboxScenario| PossibleValue::new(scenario.name()).help(scenario.summary());
    let named = |name: String| {
        SandboxScenario::all()
            .find(|scenario| scenario.name() == name)
            .ok_or("no such scenario")
    };
    PossibleValuesParser::new(SandboxScenario::all().map(value)).try_map(named)
}

fn nodes(text: &str) -> Result<(u32, u32), String> {
    let help = || "two numbers are needed, control planes and workers, like 3+5".to_owned();
    let (control_planes, workers) = text.split_once('+').ok_or_else(help)?;
    let number = |text: &str| text.trim().parse::<u32>().map_err(|_| help());
    match (number(control_planes)?, number(workers)?) {
        (1..=9, workers @ 0..=5000) => Ok((number(control_planes)?, workers)),
        _ => Err("1 to 9 control planes and up to 5000 workers are possible".to_owned()),
    }
}

fn version(text: &str) -> Result<String, String> {
    text.parse::<afloat_core::KubernetesVersion>()
        .map(|version| version.to_string())
        .map_err(|error| error.to_string())
}

fn speed(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(speed) if (0.01..=1000.0).contains(&speed) => Ok(speed),
        _ => Err("a number between 0.01 and 1000 is needed, like 5 or 0.5".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn h46_every_task_of_a_job_is_a_command() {
        for task in afloat_operator::task::Task::ALL {
            let line = ["afloat", "hci", task.job().word(), "--upgrade", "u"];
            let (node, release) = (["--node", "node-1"], ["--repo", "http://repo"]);
            let ways = [node.to_vec(), release.to_vec(), [node, release].concat()];
            let parsed = |more: &Vec<&str>| Cli::try_parse_from(line.iter().chain(more)).is_ok();
            assert!(ways.iter().any(parsed), "{task:?}");
        }
    }

    #[test]
    fn bad_usage_is_refused() {
        for line in [
            "afloat sandbox --listen 127.0.0.1:1",
            "afloat sandbox --kubeconfig x",
            "afloat sandbox --once --serve",
            "afloat sandbox --control-planes 0",
            "afloat sandbox --speed 0",
            "afloat sandbox --scenario nonsense",
            "afloat upgrade",
            "afloat bundle create",
            "afloat bundle create -d x --kubernetes 1.36=x",
            "afloat bundle create -d x --operator --from y",
            "afloat bundle push x bundle:v1",
            "afloat bundle publish registry.example/b -o yaml",
            "afloat repo serve",
            "afloat repo serve x --listen 8080",
            "afloat repo serve x --at ../y",
            "afloat repo serve x --max-connections 0",
            "afloat repo serve x --stall-timeout soon",
            "afloat hci pre-drain --upgrade x",
            "afloat hci prepare --upgrade x --node y",
            "afloat hci host reboot",
        ] {
            let refused = Cli::try_parse_from(line.split(' '));
            assert_eq!(refused.map_err(|error| error.exit_code()).err(), Some(2), "{line}");
        }
        assert!(Cli::try_parse_from(["afloat", "sandbox", "--serve", "--listen", "127.0.0.1:0"]).is_ok());
    }
}

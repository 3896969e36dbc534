//! The machine a task runs on. Each order to it is a process of its own: entering the machine takes the pod's account out of reach, and a
//! process with threads cannot. What an order does is the node's code.

use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::Stdio;
use std::time::Duration;

use afloat_core::hci::task::HostWork;
use afloat_node::host::Answer;
use afloat_node::real::{RealHost, enter};
use afloat_node::release::{images, rancher_chart, server, system};
use afloat_node::{paths, rancher};
use afloat_operator::task::TaskHost;
use clap::ValueEnum as _;

use super::release::Release;
use crate::args::hci::Order;
use crate::problem::{Code, Problem};
use crate::terminal;

/// The longest of them imports an archive, or writes a system, and is ended by the host itself before.
const ORDER_LIMIT: Duration = Duration::from_mins(65);
/// In the pod of a Job; the pod's name tells one run from another.
const POD: &str = "HARVESTER_UPGRADE_POD_NAME";
/// Where the machine's files are in the pod of a Job.
const MOUNTED: &str = "/host";

/// The machine this process runs on.
pub struct OwnHost {
    program: PathBuf,
    word: &'static str,
    release: Option<Release>,
}

impl OwnHost {
    pub fn new(word: &'static str, release: Option<Release>) -> Result<Self, Problem> {
        let program = std::env::current_exe()
            .map_err(|error| Problem::new(Code::Failed, "cannot find this program itself").source(&error))?;
        Ok(Self { program, word, release })
    }

    /// A path of the machine, from here.
    pub fn path(path: &str) -> PathBuf {
        if std::env::var_os(POD).is_some() {
            return Path::new(MOUNTED).join(path.trim_start_matches('/'));
        }
        PathBuf::from(path)
    }

    pub fn say(&self, message: &str) {
        super::say(self.word, message);
    }

    /// Gives an order and hears what it printed, a line each.
    pub async fn order(&self, order: Order, names: &[String]) -> Result<Vec<String>, String> {
        let value = order.to_possible_value();
        let word = value
            .as_ref()
            .map(clap::builder::PossibleValue::get_name)
            .unwrap_or_default();
        let child = tokio::process::Command::new(&self.program)
            .args(["hci", "host", word])
            .args(names)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .output();
        let output = tokio::time::timeout(ORDER_LIMIT, child)
            .await
            .map_err(|_| format!("not done within {} minutes", ORDER_LIMIT.as_secs() / 60))?
            .map_err(|error| error.to_string())?;
        if output.status.success() {
            let said = String::from_utf8_lossy(&output.stdout);
            return Ok(said.lines().map(str::to_owned).collect());
        }
        let complaint = String::from_utf8_lossy(&output.stderr);
        Err(complaint.trim().trim_start_matches("error: ").to_owned())
    }

    fn release(&self) -> Result<&Release, String> {
        let none = || format!("{} needs the address of the release", self.word);
        self.release.as_ref().ok_or_else(none)
    }

    async fn plain(&self, order: Order) -> Result<(), String> {
        self.order(order, &[]).await.map(|_| ())
    }
}

impl TaskHost for OwnHost {
    fn carry_out(&self, work: HostWork) -> Pin<Box<dyn Future<Output = Result<(), String>> + Send + '_>> {
        Box::pin(async move {
            match work {
                HostWork::RecoverAgent => self.plain(Order::RecoverAgent).await,
                HostWork::RemoveCanalConfig => self.plain(Order::RemoveCanalConfig).await,
                HostWork::DisableCharts => self.plain(Order::DisableCharts).await,
                HostWork::ConfigureServer => self.plain(Order::ConfigureServer).await,
                HostWork::InstallSystem => self.plain(Order::InstallSystem).await,
                HostWork::RestartSoon => self.plain(Order::RestartSoon).await,
                HostWork::UpgradeRancher => self.release()?.upgrade_rancher(self).await,
                HostWork::PreloadImages => self.release()?.preload(self).await,
                HostWork::RemoveOldImages => self.release()?.remove_old(self).await,
                HostWork::RemoveArchives => self.release()?.remove_archives(self).await,
                HostWork::BringSystem => self.release()?.bring_system(self).await,
            }
        })
    }
}

/// Enters the machine and does it; must come before any thread is started.
pub fn work_on_host(order: Order, names: &[String]) -> Result<Code, Problem> {
    let cannot = |error: &dyn std::error::Error| Problem::new(Code::Failed, error.to_string());
    let run = std::env::var(POD).unwrap_or_else(|_| std::process::id().to_string());
    enter::machine(Path::new(paths::BROUGHT)).map_err(|error| cannot(&error))?;
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let said = carry_out(order, &mut RealHost::new(""), &run, &names).map_err(|error| cannot(&error))?;
    for line in said {
        terminal::print(&format!("{line}\n"));
    }
    Ok(Code::Done)
}

fn carry_out(order: Order, host: &mut RealHost, run: &str, names: &[&str]) -> Answer<Vec<String>> {
    match order {
        Order::ListImages => return Ok(images::present(host, run)?.into_iter().collect()),
        Order::RemoveImages => return images::remove(host, run, names),
        Order::UpgradeRancher => {
            let version = names.first().copied().unwrap_or_default();
            return Ok(vec![rancher_chart::upgrade(host, run, version)?]);
        }
        Order::RecoverAgent => rancher::recover_agent(host)?,
        Order::RemoveCanalConfig => rancher::remove_canal_config(host)?,
        Order::DisableCharts => rancher::disable_charts(host)?,
        Order::ImportImages => {
            for archive in names {
                images::import(host, run, archive)?;
            }
        }
        Order::ConfigureServer => server::configure(host)?,
        Order::RemoveArchives => server::remove_archives(host, names)?,
        Order::InstallSystem => system::install(host, run)?,
        Order::RestartSoon => system::restart_soon(host)?,
    }
    Ok(Vec::new())
}

//! The machine a task runs on. Each order to it is a process of its own: entering the machine takes the pod's account out of reach, and a
//! process with threads cannot. What an order does is the node's code.

use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::Stdio;
use std::time::Duration;

use afloat_core::hci::task::HostWork;
use afloat_node::host::{Answer, Host as _, HostError};
use afloat_node::real::{RealHost, enter};
use afloat_node::release::system::{self, Errand, Judge, LOOK_EVERY, Verdict};
use afloat_node::release::{images, multus, rancher_chart, server};
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
    /// The name of its Node.
    node: String,
    release: Option<Release>,
}

impl OwnHost {
    pub fn new(word: &'static str, node: &str, release: Option<Release>) -> Result<Self, Problem> {
        let program = std::env::current_exe()
            .map_err(|error| Problem::new(Code::Failed, "cannot find this program itself").source(&error))?;
        Ok(Self {
            program,
            word,
            node: node.to_owned(),
            release,
        })
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

    /// Installs the system that was brought, and says what became of it.
    async fn install_system(&self) -> Result<(), String> {
        let said = self
            .order(Order::InstallSystem, std::slice::from_ref(&self.node))
            .await?;
        for line in said {
            self.say(&line);
        }
        Ok(())
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
                HostWork::InstallSystem => self.install_system().await,
                HostWork::RestartSoon => self.plain(Order::RestartSoon).await,
                HostWork::UpgradeRancher => self.release()?.upgrade_rancher(self).await,
                HostWork::PreloadImages => self.release()?.preload(self).await,
                HostWork::RemoveOldImages => self.release()?.remove_old(self).await,
                HostWork::RemoveArchives => self.release()?.remove_archives(self).await,
                HostWork::HoldMultus => self.plain(Order::HoldMultus).await,
                HostWork::LetMultusGo => self.plain(Order::LetMultusGo).await,
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
    let said = carry_out(order, &run, &names).map_err(|error| cannot(&error))?;
    for line in said {
        terminal::print(&format!("{line}\n"));
    }
    Ok(Code::Done)
}

fn carry_out(order: Order, run: &str, names: &[&str]) -> Answer<Vec<String>> {
    // Of a system's orders the last name is the Node's; no other one speaks to the API server.
    let host = &mut RealHost::new(names.last().unwrap_or(&""));
    match order {
        Order::NameSystem => {
            let systems = system::of(host)?;
            let mut lines = vec![systems.image().to_owned()];
            if systems.wants_checksum() {
                lines.push(system::checksum_of(systems.image()));
                lines.extend(systems.present(host)?);
            }
            return Ok(lines);
        }
        Order::InstallSystem => {
            let node = names.first().copied().unwrap_or_default();
            return Ok(vec![system::of(host)?.install(host, &Errand { run, node })?]);
        }
        Order::KeepSystem => {
            let node = names.first().copied().unwrap_or_default();
            return Ok(vec![keep_system(host, run, node)?]);
        }
        Order::PutSystemBack => {
            let (slot, node) = (names.first().unwrap_or(&""), names.get(1).copied().unwrap_or_default());
            return put_system_back(host, &Errand { run, node }, slot).map(|said| vec![said]);
        }
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
        Order::RestartSoon => system::restart_soon(host)?,
        Order::HoldMultus => multus::hold(host)?,
        Order::LetMultusGo => multus::let_go(host)?,
    }
    Ok(Vec::new())
}

/// Looks at a system that boots for the first time until it is kept or had its time. Giving it up is an error: systemd restarts the machine
/// for it.
fn keep_system(host: &mut RealHost, run: &str, node: &str) -> Answer<String> {
    let (systems, mut judge) = (system::of(host)?, Judge::default());
    for look in 1_u32.. {
        let run = format!("{run}-{look}");
        match judge.hears(systems.trial(host, &Errand { run: &run, node })) {
            Verdict::Nothing => break,
            Verdict::Wait => std::thread::sleep(Duration::from_secs(LOOK_EVERY)),
            Verdict::Keep => {
                systems.keep(host)?;
                return Ok("this system is well, and stays".to_owned());
            }
            Verdict::GiveUp(reason) => {
                systems.give_up(host, &reason)?;
                host.sync()?;
                return Err(HostError::Failed {
                    action: "keep",
                    object: "this system".to_owned(),
                    message: reason,
                });
            }
        }
    }
    Ok("no system is tried".to_owned())
}

fn put_system_back(host: &mut RealHost, errand: &Errand<'_>, slot: &str) -> Answer<String> {
    match system::of(host)?.put_back(host, errand, slot)? {
        None => Ok(format!("slot {slot} runs, and stays")),
        Some(said) => {
            system::restart_soon(host)?;
            Ok(format!("{said}; the machine restarts in half a minute"))
        }
    }
}

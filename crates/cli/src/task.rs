//! `afloat hci …`: runs the task of a Job on its node. What a task does next is decided in the core and carried out by the operator's code;
//! here are the connection, the host, and what a person reads in the log of the Job.

use crate::args::hci::Errand as Arguments;
use crate::cluster;
use crate::problem::{Code, Problem};
use crate::terminal;
use afloat_core::hci::task::{Errand, HostWork};
use afloat_core::view::{Key, NodeName};
use afloat_node::host::Answer;
use afloat_node::real::{RealHost, enter};
use afloat_node::{paths, rancher};
use afloat_operator::clients::Clients;
use afloat_operator::clock::SystemClock;
use afloat_operator::task::{self, Task, TaskConfig, TaskHost};
use jiff::Timestamp;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

/// systemd gives a unit 90 seconds to stop and again to start, and is asked twice.
const HOST_LIMIT: Duration = Duration::from_mins(5);

pub async fn run(task: Task, arguments: Arguments) -> Result<Code, Problem> {
    let config = cluster::config(&arguments.place).await?;
    let server = config.cluster_url.to_string();
    let clients = Clients::new(config).map_err(|error| cluster::unreachable(&server).root(&error))?;
    let program = std::env::current_exe()
        .map_err(|error| Problem::new(Code::Failed, "cannot find this program itself").source(&error))?;
    let word = task.job().word();
    let config = TaskConfig {
        clients,
        clock: Arc::new(SystemClock),
        task,
        errand: Errand {
            upgrade: Key::new(&arguments.upgrade_namespace, &arguments.upgrade),
            node: NodeName::from(arguments.node.as_str()),
        },
        host: Arc::new(OwnHost { program }),
    };
    let ended = task::run(config, |says| say(word, says)).await;
    ended.map(|_| Code::Done).map_err(|error| {
        Problem::new(Code::Failed, format!("{word} of {} did not succeed", arguments.node))
            .source(&error)
            .help(format!("afloat explain {}", arguments.upgrade))
    })
}

fn say(word: &str, message: &str) {
    let now = Timestamp::now().strftime("%H:%M:%S");
    terminal::print(&format!("{now} {word}: {message}\n"));
}

/// The machine this process runs on. Each work is a process of its own: entering the machine takes the pod's account out of reach, and a process
/// with threads cannot.
struct OwnHost {
    program: PathBuf,
}

impl TaskHost for OwnHost {
    fn carry_out(&self, work: HostWork) -> Pin<Box<dyn Future<Output = Result<(), String>> + Send + '_>> {
        Box::pin(async move {
            let child = tokio::process::Command::new(&self.program)
                .args(["hci", "host", work.word()])
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .kill_on_drop(true)
                .output();
            let output = tokio::time::timeout(HOST_LIMIT, child)
                .await
                .map_err(|_| format!("not done within {} minutes", HOST_LIMIT.as_secs() / 60))?
                .map_err(|error| error.to_string())?;
            if output.status.success() {
                return Ok(());
            }
            let complaint = String::from_utf8_lossy(&output.stderr);
            Err(complaint.trim().trim_start_matches("error: ").to_owned())
        })
    }
}

/// Enters the machine and does it; must come before any thread is started.
pub fn work_on_host(work: HostWork) -> Result<Code, Problem> {
    let cannot = |error: &dyn std::error::Error| Problem::new(Code::Failed, error.to_string());
    enter::machine(Path::new(paths::BROUGHT)).map_err(|error| cannot(&error))?;
    carry_out(work, &mut RealHost::new("")).map_err(|error| cannot(&error))?;
    Ok(Code::Done)
}

fn carry_out(work: HostWork, host: &mut RealHost) -> Answer<()> {
    match work {
        HostWork::RecoverAgent => rancher::recover_agent(host),
        HostWork::RemoveCanalConfig => rancher::remove_canal_config(host),
        HostWork::DisableCharts => rancher::disable_charts(host),
    }
}

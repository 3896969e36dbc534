//! `afloat hci …`: runs the task of a Job on its node. What a task does next is decided in the core and carried out by the operator's code;
//! here are the connection, the host, and what a person reads in the log of the Job.

mod host;
mod release;

use std::sync::Arc;

use afloat_core::hci::task::Errand;
use afloat_core::view::{Key, NodeName};
use afloat_operator::clients::Clients;
use afloat_operator::clock::SystemClock;
use afloat_operator::task::{self, Task, TaskConfig};
use jiff::Timestamp;

use crate::args::hci::{Errand as Arguments, Release};
use crate::cluster;
use crate::problem::{Code, Problem};
use crate::terminal;

pub use host::work_on_host;

/// Runs a task that needs nothing of the release.
pub async fn run(task: Task, arguments: Arguments) -> Result<Code, Problem> {
    carry_out(task, arguments, None).await
}

/// Runs a task that brings something of it.
pub async fn run_with(task: Task, arguments: Release) -> Result<Code, Problem> {
    let release = release::Release::new(&arguments)?;
    carry_out(task, arguments.errand, Some(release)).await
}

async fn carry_out(task: Task, arguments: Arguments, release: Option<release::Release>) -> Result<Code, Problem> {
    let config = cluster::config(&arguments.place).await?;
    let server = config.cluster_url.to_string();
    let clients = Clients::new(config).map_err(|error| cluster::unreachable(&server).root(&error))?;
    let word = task.job().word();
    let config = TaskConfig {
        clients,
        clock: Arc::new(SystemClock),
        task,
        errand: Errand {
            upgrade: Key::new(&arguments.upgrade_namespace, &arguments.upgrade),
            node: NodeName::from(arguments.node.as_str()),
        },
        host: Arc::new(host::OwnHost::new(word, release)?),
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

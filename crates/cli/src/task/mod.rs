//! `afloat hci …`: runs the task of a Job. What a task does next is decided in the core and carried out by the operator's code;
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

use crate::args::hci::{Errand as Arguments, Manifests, Release, Whom};
use crate::cluster;
use crate::problem::{Code, Problem};
use crate::terminal;

pub use host::work_on_host;

/// Runs a task that concerns the whole cluster.
pub async fn run_for_all(task: Task, arguments: Manifests) -> Result<Code, Problem> {
    let release = release::Release::new(&arguments.repo, "")?;
    carry_out(task, arguments.whom, "", Some(release)).await
}

/// Runs a task that needs nothing of the release.
pub async fn run(task: Task, arguments: Arguments) -> Result<Code, Problem> {
    carry_out(task, arguments.whom, &arguments.node, None).await
}

/// Runs a task that brings something of it.
pub async fn run_with(task: Task, arguments: Release) -> Result<Code, Problem> {
    let release = release::Release::new(&arguments.repo, &arguments.previous)?;
    carry_out(task, arguments.errand.whom, &arguments.errand.node, Some(release)).await
}

async fn carry_out(task: Task, whom: Whom, node: &str, release: Option<release::Release>) -> Result<Code, Problem> {
    let config = cluster::config(&whom.place).await?;
    let server = config.cluster_url.to_string();
    let clients = Clients::new(config).map_err(|error| cluster::unreachable(&server).root(&error))?;
    let word = task.job().word();
    let config = TaskConfig {
        clients,
        clock: Arc::new(SystemClock),
        task,
        errand: Errand {
            upgrade: Key::new(&whom.upgrade_namespace, &whom.upgrade),
            node: NodeName::from(node),
        },
        host: Arc::new(host::OwnHost::new(word, node, release)?),
    };
    let ended = task::run(config, |says| say(word, says)).await;
    ended.map(|_| Code::Done).map_err(|error| {
        let of = if node.is_empty() { &whom.upgrade } else { node };
        Problem::new(Code::Failed, format!("{word} of {of} did not succeed"))
            .source(&error)
            .help(format!("afloat explain {}", whom.upgrade))
    })
}

fn say(word: &str, message: &str) {
    let now = Timestamp::now().strftime("%H:%M:%S");
    terminal::print(&format!("{now} {word}: {message}\n"));
}

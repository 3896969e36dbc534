//! Runs the task of one Job: watches what the task looks at, lets the core decide after every change, and carries out what it
//! decides. What is done to the host itself goes through a port. Which tasks there are, and what each does next, is decided in the core.

use std::sync::Arc;
use std::time::Duration;

use afloat_core::action::Action;
use afloat_core::hci::action::{HciAction, JobKind, TaskWrite};
use afloat_core::hci::task::{Errand, HostDone, HostWork, Look, look, watches};
use afloat_core::hci::view::HciKind;
use futures::future::BoxFuture;
use jiff::Timestamp;

use crate::clients::Clients;
use crate::clock::Clock;
use crate::execute::{Outcome, execute};
use crate::hci::kinds_served;
use crate::snapshot::feed::Feed;
use crate::snapshot::{Keeper, Kind};

/// How long a refused write is left alone.
const RETRY: Duration = Duration::from_secs(5);
/// How long nothing may change before it is looked again all the same.
const LOOK_EVERY: Duration = Duration::from_mins(1);
/// What a task does to the host it runs on.
pub trait TaskHost: Send + Sync {
    /// Does it, or says why not. May be asked for the same again.
    fn carry_out(&self, work: HostWork) -> BoxFuture<'_, Result<(), String>>;
}

/// A task: all but that of the manifests run on a node.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Task {
    ApplyManifests,
    Prepare,
    PreDrain,
    PostDrain,
    SingleNode,
    RestoreVm,
    CleanUp,
    HoldMultus,
    LetMultusGo,
}

impl Task {
    pub const ALL: [Self; 9] = [
        Self::ApplyManifests,
        Self::Prepare,
        Self::PreDrain,
        Self::PostDrain,
        Self::SingleNode,
        Self::RestoreVm,
        Self::CleanUp,
        Self::HoldMultus,
        Self::LetMultusGo,
    ];

    /// The Job that runs it.
    pub fn job(self) -> JobKind {
        match self {
            Self::ApplyManifests => JobKind::ApplyManifests,
            Self::Prepare => JobKind::Prepare,
            Self::PreDrain => JobKind::PreDrain,
            Self::PostDrain => JobKind::PostDrain,
            Self::SingleNode => JobKind::SingleNodeUpgrade,
            Self::RestoreVm => JobKind::RestoreVm,
            Self::CleanUp => JobKind::CleanUp,
            Self::HoldMultus => JobKind::HoldMultus,
            Self::LetMultusGo => JobKind::LetMultusGo,
        }
    }
}

/// What a task needs.
pub struct TaskConfig {
    pub clients: Clients,
    pub clock: Arc<dyn Clock>,
    pub task: Task,
    pub errand: Errand,
    pub host: Arc<dyn TaskHost>,
}

/// Why a task ended without having done its work.
#[derive(Debug, thiserror::Error)]
pub enum TaskError {
    #[error("{0}")]
    Failed(String),
    #[error("{}: {problem}", work.words())]
    Host { work: HostWork, problem: String },
    #[error("the API server cannot be asked which kinds it serves: {0}")]
    Discovery(#[from] crate::clients::CallError),
    #[error("the watches of the cluster ended")]
    WatchesEnded,
}

/// Runs it to its end; `says` hears what is done and waited for, each time that changes. Bounded by the deadline of its Job.
pub async fn run(config: TaskConfig, mut says: impl FnMut(&str)) -> Result<String, TaskError> {
    let client = &config.clients.api;
    let served = kinds_served(client.clone()).await?;
    let hci: Vec<HciKind> = watches(config.task.job())
        .filter(|kind| served.contains(kind))
        .collect();
    let mut kinds = vec![Kind::Node, Kind::PodDisruptionBudget];
    let mut feed = Feed::only(client, "", &kinds);
    feed.follow_hci(client, &hci);
    kinds.extend(hci.into_iter().map(Kind::Hci));
    let mut keeper = Keeper::new("");
    while !keeper.complete(kinds.iter().copied()) {
        let news = feed.next().await.ok_or(TaskError::WatchesEnded)?;
        keeper.take(news);
    }
    let (mut host, mut told) = (HostDone::new(), String::new());
    loop {
        let now = config.clock.now();
        let look = look(config.task.job(), keeper.view(), &config.errand, &host, now);
        if look.words() != told {
            says(look.words());
            look.words().clone_into(&mut told);
        }
        let pause = match look {
            Look::Done { says } => return Ok(says),
            Look::Failed { says } => return Err(TaskError::Failed(says)),
            Look::Host(work) => {
                let done = config.host.carry_out(work).await;
                done.map_err(|problem| TaskError::Host { work, problem })?;
                host.insert(work);
                continue;
            }
            Look::Write { what, .. } => {
                if write(&config.clients, &mut keeper, what).await {
                    continue;
                }
                RETRY
            }
            Look::Wait { again, .. } => until(again, now),
        };
        tokio::select! {
            news = feed.next() => {
                keeper.take(news.ok_or(TaskError::WatchesEnded)?);
                while let Some(news) = feed.ready() {
                    keeper.take(news);
                }
            }
            () = tokio::time::sleep(pause) => {}
        }
    }
}

/// Writes what was decided, and takes the answers in. Whether all of it was carried out.
async fn write(clients: &Clients, keeper: &mut Keeper, what: Vec<TaskWrite>) -> bool {
    let mut all = true;
    for write in what {
        let action = Action::Hci(Box::new(HciAction::Task(write)));
        match execute(clients, &action).await {
            Ok(Outcome::Written(object)) => {
                keeper.answered(*object);
            }
            Ok(_) => {}
            Err(refusal) => {
                if refusal.cause.is_expected() {
                    tracing::debug!(%refusal, "decided anew");
                } else {
                    tracing::warn!(%refusal, "tried again");
                }
                all = false;
            }
        }
    }
    all
}

fn until(again: Option<Timestamp>, now: Timestamp) -> Duration {
    let wait = again.map(|again| Duration::try_from(again.duration_since(now)).unwrap_or_default());
    wait.map_or(LOOK_EVERY, |wait| wait.min(LOOK_EVERY)) + Duration::from_millis(1)
}

//! Jobs run the code that runs on real nodes: the task of the operator's crate, with a host that takes its time and writes down what it was
//! asked for. A Job that takes longer than it may is ended, as the Job controller does it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use afloat_api::labels;
use afloat_core::hci::task::{Errand, HostWork, RANCHER_NAMESPACE};
use afloat_core::view::{Key, NodeName};
use afloat_operator::clients::Clients;
use afloat_operator::clock::Clock as OperatorClock;
use afloat_operator::task::{Task, TaskConfig, TaskHost, run as run_task};
use afloat_scenes::NEW_RANCHER;
use futures::StreamExt as _;
use futures::future::BoxFuture;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::Job;
use kube::Api;
use kube::api::{Patch, PatchParams};
use kube::runtime::{WatchStreamExt as _, watcher};
use serde_json::json;
use tokio::task::JoinSet;

use super::Charts;
use super::jobs::{Failing, ended, is_over, kind_of};
use crate::clock::{Clock, after};
use crate::hash::fnv64;
use crate::object::{Kind, label, uid};
use crate::request::Request;

/// What takes long on a host, up to so long.
const TAKES: Duration = Duration::from_mins(2);

/// What the hosts were asked to do, in order: node and work.
#[derive(Clone, Debug, Default)]
pub struct HostLog(Arc<Mutex<Asked>>);

#[derive(Debug, Default)]
struct Asked {
    order: Vec<(String, HostWork)>,
    /// When long work of a Job will be done: it goes on when whoever asked for it is killed.
    due: BTreeMap<(String, HostWork), Timestamp>,
}

impl HostLog {
    pub fn all(&self) -> Vec<(String, HostWork)> {
        self.asked().order.clone()
    }

    fn asked(&self) -> MutexGuard<'_, Asked> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct SimTaskHost {
    pods: Pods,
    job: String,
    kind: String,
    node: String,
}

impl SimTaskHost {
    async fn takes_its_time(&self, work: HostWork) -> Result<(), String> {
        let long = matches!(
            work,
            HostWork::PreloadImages | HostWork::RemoveOldImages | HostWork::InstallSystem | HostWork::UpgradeRancher
        );
        if !long {
            return Ok(());
        }
        let due = {
            let now = self.pods.clock.now();
            let part = fnv64(format!("{} {} {work:?}", self.pods.seed, self.node).as_bytes()) % 1000;
            let takes = TAKES.mul_f64(f64::from(u16::try_from(part).unwrap_or_default()) / 1000.0);
            let mut asked = self.pods.log.asked();
            let key = (self.job.clone(), work);
            *asked
                .due
                .entry(key)
                .or_insert_with(|| after(now, takes.div_f64(self.pods.pace)))
        };
        tokio::time::sleep(self.pods.clock.until(due)).await;
        self.pods.failing.fails(&self.kind, &self.node)?;
        if work == HostWork::UpgradeRancher {
            match &self.pods.charts {
                Some(charts) => charts.upgrade_rancher(NEW_RANCHER).await?,
                None => self.bring_rancher().await?,
            }
        }
        Ok(())
    }

    /// What helm does with Rancher's chart.
    async fn bring_rancher(&self) -> Result<(), String> {
        let container = json!({ "name": "rancher", "image": format!("rancher/rancher:{NEW_RANCHER}") });
        let change = json!({ "spec": { "template": { "spec": { "containers": [container] } } } });
        let servers = Api::<Deployment>::namespaced(self.pods.client.clone(), RANCHER_NAMESPACE);
        let params = PatchParams::default();
        let patched = servers.patch("rancher", &params, &Patch::Merge(&change)).await;
        patched.map(|_| ()).map_err(|error| error.to_string())
    }
}

impl TaskHost for SimTaskHost {
    fn carry_out(&self, work: HostWork) -> BoxFuture<'_, Result<(), String>> {
        self.pods.log.asked().order.push((self.node.clone(), work));
        Box::pin(self.takes_its_time(work))
    }
}

struct TaskClock(Clock);

impl OperatorClock for TaskClock {
    fn now(&self) -> Timestamp {
        self.0.now()
    }
}

/// The task of a kind of Job.
fn task_of(kind: &str) -> Option<Task> {
    Task::ALL.into_iter().find(|task| task.job().word() == kind)
}

/// What tasks run with: the client of the Job controller, and their own.
#[derive(Clone)]
pub(super) struct Pods {
    pub client: kube::Client,
    pub own: kube::Client,
    pub clock: Clock,
    pub pace: f64,
    pub seed: u64,
    pub log: HostLog,
    pub failing: Failing,
    /// Who applies Rancher's chart for real, where somebody does.
    pub charts: Option<Arc<dyn Charts>>,
}

/// Runs the tasks of Jobs until it is dropped.
pub(super) async fn run(pods: Pods) {
    let client = pods.client.clone();
    let config = watcher::Config::default().labels(labels::HARVESTER_UPGRADE);
    let mut jobs = std::pin::pin!(watcher(Api::<Job>::all(client.clone()), config).default_backoff());
    let mut running = JoinSet::new();
    let mut known: BTreeMap<String, tokio::task::AbortHandle> = BTreeMap::new();
    while let Some(event) = jobs.next().await {
        match event {
            Ok(watcher::Event::Apply(job) | watcher::Event::InitApply(job)) => {
                let started = known.contains_key(uid(&job.metadata));
                let Some(task) = task_of(kind_of(&job)).filter(|_| !started && !is_over(&job)) else {
                    continue;
                };
                let work = run_job(pods.clone(), task, job.clone());
                known.insert(uid(&job.metadata).to_owned(), running.spawn(work));
            }
            // A Job that is deleted takes its pod with it.
            Ok(watcher::Event::Delete(job)) => {
                if let Some(handle) = known.remove(uid(&job.metadata)) {
                    handle.abort();
                }
            }
            _ => {}
        }
        while running.try_join_next().is_some() {}
    }
}

async fn run_job(pods: Pods, task: Task, job: Job) {
    let text = |key: &str| label(&job.metadata, key).unwrap_or_default().to_owned();
    let node = text(labels::HARVESTER_NODE);
    let namespace = job.metadata.namespace.clone().unwrap_or_default();
    let config = TaskConfig {
        clients: Clients::of(pods.own.clone()),
        clock: Arc::new(TaskClock(pods.clock)),
        task,
        errand: Errand {
            upgrade: Key::new(&namespace, &text(labels::HARVESTER_UPGRADE)),
            node: NodeName::from(node.as_str()),
        },
        host: Arc::new(SimTaskHost {
            pods: pods.clone(),
            job: uid(&job.metadata).to_owned(),
            kind: kind_of(&job).to_owned(),
            node,
        }),
    };
    let job_name = job.metadata.name.clone().unwrap_or_default();
    let started = job.metadata.creation_timestamp.as_ref().map(|time| time.0);
    let limit = job
        .spec
        .as_ref()
        .and_then(|spec| spec.active_deadline_seconds)
        .unwrap_or(i64::MAX);
    let limit = Duration::from_secs(u64::try_from(limit).unwrap_or_default());
    let left = pods
        .clock
        .until(after(started.unwrap_or_else(|| pods.clock.now()), limit));
    let result = tokio::time::timeout(left, run_task(config, |says| tracing::info!(job = job_name, says))).await;
    let result = match result {
        Ok(result) => result.map_err(|error| error.to_string()),
        Err(_) => Err("Job was active longer than specified deadline".to_owned()),
    };
    let status = ended(&result, started, pods.clock.now());
    let request = Request::patch_status(Kind::Job, &job.metadata, &status);
    if let Err(failure) = request.send(&pods.client).await {
        tracing::warn!(%failure, "the end of a Job could not be written");
    }
}

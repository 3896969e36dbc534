//! The parts of a Harvester-like cluster that are not Afloat's: Rancher's planner, KubeVirt, Longhorn, the importers of images, the
//! machines under the Jobs. Each is a state machine without I/O like every other actor; the tasks of Jobs before a drain and after a
//! reboot are the real ones. Pods of virtual machines are not simulated, and nothing here was compared with the real components.

mod fleet;
mod ground;
mod jobs;
mod kubevirt;
mod longhorn;
mod machines;
mod parts;
mod people;
mod rancher;
mod replicas;
mod takes;
mod tasks;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use afloat_operator::hci::{HciOptions, Place, ReleaseSource};
use afloat_operator::snapshot::hci::has_status;
use futures::future::BoxFuture;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

pub use afloat_scenes::{Act, End, Ground, HciScenario, SYSTEM, Script, Trouble, VmShape};
pub use ground::run_of;
pub use parts::LOG_STATE;
pub use tasks::HostLog;

use crate::actor::Actor;
use crate::clock::{Clock, Timings};
use crate::driver::Driver;
use crate::object::Kind;
use crate::request::{Failure, Request};
use afloat_core::hci::view::HciKind;

/// What the actors need to know.
const WATCHED: &[Kind] = &[
    Kind::Node,
    Kind::Job,
    Kind::Deployment,
    Kind::Pod,
    Kind::Hci(HciKind::Upgrade),
    Kind::Hci(HciKind::Plan),
    Kind::Hci(HciKind::Cluster),
    Kind::Hci(HciKind::Vm),
    Kind::Hci(HciKind::Vmi),
    Kind::Hci(HciKind::Migration),
    Kind::Hci(HciKind::Volume),
    Kind::Hci(HciKind::Engine),
    Kind::Hci(HciKind::Image),
    Kind::Hci(HciKind::UpgradeLog),
    Kind::Hci(HciKind::Chart),
    Kind::Hci(HciKind::Bundle),
];

/// Whoever applies charts for real, on a cluster that can take it.
pub trait Charts: Send + Sync {
    /// Brings Rancher to this version, as the machine of a Job does it.
    fn upgrade_rancher(&self, version: &str) -> BoxFuture<'static, Result<(), String>>;
    /// Brings the release of a `ManagedChart` to what its spec says, as fleet does it.
    fn roll_out(&self, chart: &Value) -> BoxFuture<'static, Result<(), String>>;
}

/// What is said of an object, where the owner of its kind keeps it.
fn told(kind: HciKind, meta: &ObjectMeta, status: &Value) -> Request {
    if has_status(kind) {
        return Request::patch_status(Kind::Hci(kind), meta, status);
    }
    Request::patch(Kind::Hci(kind), meta, json!({ "status": status }))
}

/// How the world behaves.
#[derive(Clone)]
pub struct HciWorldOptions {
    pub seed: u64,
    pub clock: Clock,
    pub timings: Timings,
    pub trouble: Trouble,
    /// What people do meanwhile.
    pub people: Vec<Act>,
    /// The client of the tasks; the world's own where there is none.
    pub task_client: Option<kube::Client>,
    /// Who applies charts. With somebody who does, Deployments are rolled out elsewhere too: helm believes only what
    /// the ReplicaSets of a real controller say.
    pub charts: Option<Arc<dyn Charts>>,
}

/// A running world; it ends when this is dropped.
pub struct HciWorld {
    pods: tasks::Pods,
    actors: JoinHandle<()>,
    tasks: JoinHandle<()>,
    /// What is played only where charts are applied for real.
    for_real: Vec<JoinHandle<()>>,
    pub host: HostLog,
}

impl Drop for HciWorld {
    fn drop(&mut self) {
        self.actors.abort();
        self.tasks.abort();
        for part in &self.for_real {
            part.abort();
        }
    }
}

impl HciWorld {
    /// Lays the ground, and starts the actors on it.
    pub async fn start(client: kube::Client, ground: &Ground, options: HciWorldOptions) -> Result<Self, Failure> {
        ground::Laid(ground).lay(&client).await?;
        let trouble = options.trouble;
        let kubevirt = Box::new(kubevirt::KubeVirt::new(&trouble, options.seed));
        let failing = jobs::Failing::new(trouble.failing_jobs);
        let for_real = options.charts.is_some();
        let fleet = (!for_real).then(|| Box::new(fleet::Fleet::default()) as Box<dyn Actor>);
        let mut actors: Vec<Box<dyn Actor>> = vec![
            Box::new(rancher::Planner::new(trouble.rancher_restarts, trouble.rancher_hurries)),
            kubevirt,
            Box::new(longhorn::Longhorn::new(trouble.volumes)),
            Box::new(parts::Importers::new(trouble.parts, !for_real)),
        ];
        actors.extend(fleet);
        actors.push(Box::new(machines::Machines::new(trouble.machines)));
        actors.push(Box::new(people::People::new(options.people)));
        let (pace, seed) = (options.timings.pace, options.seed);
        let driver = Driver::new(client.clone(), options.clock, options.timings, seed, actors);
        let host = HostLog::default();
        let pods = tasks::Pods {
            own: options.task_client.unwrap_or_else(|| client.clone()),
            client: client.clone(),
            clock: options.clock,
            pace,
            seed,
            log: host.clone(),
            failing,
            charts: options.charts.clone(),
        };
        Ok(Self {
            for_real: options.charts.map_or_else(Vec::new, |charts| {
                vec![
                    tokio::spawn(replicas::run(client.clone())),
                    tokio::spawn(fleet::for_real(client, charts)),
                ]
            }),
            actors: tokio::spawn(driver.run(WATCHED)),
            tasks: tokio::spawn(tasks::run(pods.clone())),
            pods,
            host,
        })
    }

    /// Every task ends wherever it is, as when its pod is killed, and its Job starts it anew.
    pub fn kill_tasks(&mut self) {
        self.tasks.abort();
        self.tasks = tokio::spawn(tasks::run(self.pods.clone()));
    }
}

/// What an operator needs to find the release of this world.
pub fn operator_options(ground: &Ground, trouble: &Trouble) -> HciOptions {
    let source = Served {
        release: ground.release(),
        silent: Arc::new(AtomicU32::new(trouble.repo_silent)),
    };
    HciOptions {
        source: Some(Arc::new(source)),
        ..HciOptions::default()
    }
}

struct Served {
    release: String,
    /// It does not answer so many times more.
    silent: Arc<AtomicU32>,
}

impl ReleaseSource for Served {
    fn fetch(&self, _: &Place) -> BoxFuture<'static, Result<String, String>> {
        let left = |left: u32| {
            if left == u32::MAX {
                Some(left)
            } else {
                left.checked_sub(1)
            }
        };
        let silent = self
            .silent
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, left)
            .is_ok();
        let answer = if silent {
            Err("no answer within 15s".to_owned())
        } else {
            Ok(self.release.clone())
        };
        Box::pin(async move { answer })
    }
}

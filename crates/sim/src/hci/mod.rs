//! The parts of a Harvester-like cluster that are not Afloat's: Rancher's planner, KubeVirt, Longhorn, the importers of images, the
//! machines under the Jobs. Each is a state machine without I/O like every other actor; the tasks of Jobs before a drain and after a
//! reboot are the real ones. Pods of virtual machines are not simulated, and nothing here was compared with the real components.

mod ground;
mod jobs;
mod kubevirt;
mod longhorn;
mod machines;
mod parts;
mod rancher;
mod takes;
mod tasks;

use std::collections::BTreeMap;
use std::sync::Arc;

use afloat_operator::hci::{HciOptions, Place, ReleaseSource};
use futures::future::BoxFuture;
use tokio::task::JoinHandle;

pub use ground::{Ground, SYSTEM, VmShape};
pub use tasks::HostLog;

use crate::actor::Actor;
use crate::clock::{Clock, Timings};
use crate::driver::Driver;
use crate::object::Kind;
use crate::request::Failure;
use afloat_core::hci::view::HciKind;

/// What the actors need to know.
const WATCHED: &[Kind] = &[
    Kind::Node,
    Kind::Job,
    Kind::Deployment,
    Kind::Hci(HciKind::Plan),
    Kind::Hci(HciKind::Cluster),
    Kind::Hci(HciKind::Vm),
    Kind::Hci(HciKind::Vmi),
    Kind::Hci(HciKind::Migration),
    Kind::Hci(HciKind::Volume),
    Kind::Hci(HciKind::Image),
    Kind::Hci(HciKind::UpgradeLog),
];

/// What goes wrong.
#[derive(Clone, Debug, Default)]
pub struct Trouble {
    /// So many migrations of a virtual machine fail, by `namespace/name`.
    pub failing_migrations: BTreeMap<String, u32>,
    /// Volumes that stay attached whatever is asked.
    pub stuck_volumes: Vec<String>,
    /// So many Jobs of a kind fail.
    pub failing_jobs: BTreeMap<String, u32>,
}

/// How the world behaves.
#[derive(Clone, Debug)]
pub struct HciWorldOptions {
    pub seed: u64,
    pub clock: Clock,
    pub timings: Timings,
    pub trouble: Trouble,
}

/// A running world; it ends when this is dropped.
pub struct HciWorld {
    client: kube::Client,
    clock: Clock,
    actors: JoinHandle<()>,
    tasks: JoinHandle<()>,
    pub host: HostLog,
}

impl Drop for HciWorld {
    fn drop(&mut self) {
        self.actors.abort();
        self.tasks.abort();
    }
}

impl HciWorld {
    /// Lays the ground, and starts the actors on it.
    pub async fn start(client: kube::Client, ground: &Ground, options: HciWorldOptions) -> Result<Self, Failure> {
        ground.lay(&client).await?;
        let trouble = options.trouble;
        let actors: Vec<Box<dyn Actor>> = vec![
            Box::new(rancher::Planner::default()),
            Box::new(kubevirt::KubeVirt::new(trouble.failing_migrations)),
            Box::new(longhorn::Longhorn::new(trouble.stuck_volumes)),
            Box::new(parts::Importers::default()),
            Box::new(jobs::Jobs::new(trouble.failing_jobs)),
            Box::new(machines::Machines::new(
                ground.release_os(),
                ground.release_kubernetes(),
            )),
        ];
        let driver = Driver::new(client.clone(), options.clock, options.timings, options.seed, actors);
        let host = HostLog::default();
        Ok(Self {
            actors: tokio::spawn(driver.run(WATCHED)),
            tasks: tokio::spawn(tasks::run(client.clone(), options.clock, host.clone())),
            client,
            clock: options.clock,
            host,
        })
    }

    /// Every task ends wherever it is, as when its pod is killed, and its Job starts it anew.
    pub fn kill_tasks(&mut self) {
        self.tasks.abort();
        self.tasks = tokio::spawn(tasks::run(self.client.clone(), self.clock, self.host.clone()));
    }
}

/// What an operator needs to find the release of this world.
pub fn operator_options(ground: &Ground) -> HciOptions {
    HciOptions {
        source: Some(Arc::new(Served(ground.release()))),
        ..HciOptions::default()
    }
}

struct Served(String);

impl ReleaseSource for Served {
    fn fetch(&self, _: &Place) -> BoxFuture<'static, Result<String, String>> {
        let text = self.0.clone();
        Box::pin(async move { Ok(text) })
    }
}

/// A Harvester-like cluster that can be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HciScenario {
    ThreeNodes,
    Paused,
    StuckVolume,
    StubbornVm,
}

impl HciScenario {
    pub const ALL: &[Self] = &[Self::ThreeNodes, Self::Paused, Self::StuckVolume, Self::StubbornVm];

    pub fn name(self) -> &'static str {
        match self {
            Self::ThreeNodes => "harvester-three-nodes",
            Self::Paused => "harvester-paused",
            Self::StuckVolume => "harvester-stuck-volume",
            Self::StubbornVm => "harvester-stubborn-vm",
        }
    }

    pub fn summary(self) -> &'static str {
        match self {
            Self::ThreeNodes => {
                "three nodes of a Harvester-like cluster with 30 virtual machines, 3 of which cannot move"
            }
            Self::Paused => "the same, and node-2 is to pause before its turn until a person lets it go",
            Self::StuckVolume => "the same, and a volume that never detaches holds node-1",
            Self::StubbornVm => "the same, and a virtual machine whose migrations fail twice",
        }
    }

    /// The cluster in full, and what goes wrong on it.
    pub fn describe(self) -> (Ground, Trouble) {
        let mut config = serde_json::json!({
            "imagePreloadOption": { "strategy": { "type": "sequential" } }, "restoreVM": true, "logReadyTimeout": "5",
        });
        let mut trouble = Trouble::default();
        match self {
            Self::ThreeNodes => {}
            Self::Paused => {
                let strategy = serde_json::json!({ "strategy": { "mode": "manual", "pauseNodes": ["node-2"] } });
                config["nodeUpgradeOption"] = strategy;
            }
            Self::StuckVolume => trouble.stuck_volumes.push("pvc-vm-10".to_owned()),
            Self::StubbornVm => {
                trouble.failing_migrations.insert("default/vm-01".to_owned(), 2);
            }
        }
        let mut ground = Ground::new(3, 30);
        ground.upgrade_config = Some(config);
        (ground, trouble)
    }
}

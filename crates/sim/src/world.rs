//! Brings a scenario to an API server and keeps its actors running: the one place that knows which actors there are.
//! It talks to the server as any client would, so that the same world lives on the embedded server and on a real one.

use crate::actor::Actor;
use crate::clock::{Clock, Timings};
use crate::disruption::Disruption;
use crate::driver::Driver;
use crate::feed::{Feed, Intake};
use crate::kubelet::{HealthBoard, Kubelets, PowerBoard, Site};
use crate::machine::Machine;
use crate::node_lifecycle::NodeLifecycle;
use crate::object::Kind;
use crate::request::Failure;
use crate::scenario::{Cluster, DEFAULT_VERSION, Trouble, creation};
use crate::scheduler::Scheduler;
use crate::view::{View, is_node_ready};
use crate::workload::{DaemonSets, Deployments, Jobs, ReplicaSets, StatefulSets};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::task::JoinHandle;

/// What the actors need to know.
const WATCHED: &[Kind] = &[
    Kind::Node,
    Kind::Pod,
    Kind::Lease,
    Kind::Deployment,
    Kind::ReplicaSet,
    Kind::DaemonSet,
    Kind::StatefulSet,
    Kind::Job,
    Kind::PodDisruptionBudget,
];

/// Which actors take part. On a cluster with real control-plane components those play their own part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cast {
    pub kubelets: bool,
    /// As kube-scheduler.
    pub scheduler: bool,
    /// As kube-controller-manager: workloads, budgets, node lifecycle.
    pub controllers: bool,
}

impl Default for Cast {
    fn default() -> Self {
        Self {
            kubelets: true,
            scheduler: true,
            controllers: true,
        }
    }
}

/// How the world behaves.
#[derive(Clone, Debug)]
pub struct WorldOptions {
    pub seed: u64,
    pub clock: Clock,
    pub timings: Timings,
    pub cast: Cast,
    pub machines: Machines,
}

/// What the machines can become, and what is wrong with them.
#[derive(Clone, Debug, Default)]
pub struct Machines {
    /// The versions a bundle brings.
    pub versions: Vec<String>,
    pub trouble: Trouble,
}

/// Why a scenario could not be brought to the server.
#[derive(Debug, thiserror::Error)]
#[error("the API server refused {object}")]
pub struct PopulateError {
    /// Kind, namespace and name.
    pub object: String,
    #[source]
    pub failure: Failure,
}

/// A running world; it ends when this is dropped.
pub struct World {
    client: kube::Client,
    objects: Vec<Value>,
    nodes: BTreeSet<String>,
    health: HealthBoard,
    power: PowerBoard,
    without_power: BTreeSet<String>,
    task: JoinHandle<()>,
}

impl Drop for World {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl World {
    /// Starts the actors: the machines come up, nothing runs on them yet but what is on their disks.
    pub fn start(client: kube::Client, cluster: Cluster, options: WorldOptions) -> Self {
        let nodes = cluster
            .machines
            .iter()
            .filter(|_| options.cast.kubelets)
            .map(|machine| machine.name.clone())
            .collect();
        let objects = cluster.objects;
        let version = cluster
            .machines
            .first()
            .map_or(DEFAULT_VERSION, |machine| &machine.version);
        let mut site = Site::new(version, &options.machines.versions, options.timings.pace);
        site.rest = options.timings.rest;
        let power = site.power.clone();
        let without_power = options.machines.trouble.without_power.clone();
        site.trouble = options.machines.trouble;
        let health = site.health.clone();
        let actors = cast(cluster.machines, options.cast, site);
        let driver = Driver::new(client.clone(), options.clock, options.timings, options.seed, actors);
        Self {
            client,
            objects,
            nodes,
            health,
            power,
            without_power,
            task: tokio::spawn(driver.run(WATCHED)),
        }
    }

    /// How the control planes are, for whoever probes them.
    pub fn health(&self) -> HealthBoard {
        self.health.clone()
    }

    /// The machines that the scenario says so of lose their power, for good; comes back once all have seen it.
    pub async fn lose_power(&self) {
        if self.without_power.is_empty() {
            return;
        }
        self.power.cut(&self.without_power);
        let is_lost = |view: &View, name: &String| view.node(name).is_some_and(|node| !is_node_ready(node));
        let lost = |view: &View| self.without_power.iter().all(|name| is_lost(view, name));
        self.nodes_until(lost, NODES_READY).await;
    }

    /// Makes the objects of the scenario that do not exist yet. First the machines come up, as in life: pods would
    /// otherwise crowd on the one that happened to be first.
    pub async fn populate(&self) -> Result<(), PopulateError> {
        for name in SYSTEM_NAMESPACES {
            make(
                &self.client,
                &json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } }),
            )
            .await?;
        }
        let (system, others): (Vec<&Value>, Vec<&Value>) = self
            .objects
            .iter()
            .partition(|object| object["metadata"]["namespace"] == "kube-system");
        for object in system {
            make(&self.client, object).await?;
        }
        self.nodes_ready().await;
        for object in others {
            make(&self.client, object).await?;
        }
        Ok(())
    }

    /// Waits until every machine is a Ready node, or long enough.
    async fn nodes_ready(&self) {
        let ready = |view: &View, name: &String| view.node(name).is_some_and(|node| is_node_ready(node));
        self.nodes_until(|view| self.nodes.iter().all(|name| ready(view, name)), NODES_READY)
            .await;
    }

    async fn nodes_until(&self, what: impl Fn(&View) -> bool, longest: Duration) {
        let wait = async {
            let (mut feed, mut intake, mut view) = (
                Feed::start(&self.client, &[Kind::Node]),
                Intake::default(),
                View::default(),
            );
            while !what(&view) {
                let Some(news) = feed.next().await else { return };
                intake.take(news, &mut view);
            }
        };
        if tokio::time::timeout(longest, wait).await.is_err() {
            tracing::warn!("not all nodes are as they should be, going on all the same");
        }
    }
}

fn cast(machines: Vec<Machine>, cast: Cast, site: Site) -> Vec<Box<dyn Actor>> {
    let mut actors: Vec<Box<dyn Actor>> = Vec::new();
    if cast.kubelets {
        actors.push(Box::new(Kubelets::new(machines, site)));
    }
    if cast.controllers {
        actors.push(Box::new(NodeLifecycle));
        actors.push(Box::new(Deployments));
        actors.push(Box::new(ReplicaSets));
        actors.push(Box::new(DaemonSets));
        actors.push(Box::new(StatefulSets));
        actors.push(Box::new(Jobs));
        actors.push(Box::new(Disruption));
    }
    if cast.scheduler {
        actors.push(Box::new(Scheduler::default()));
    }
    actors
}

/// The namespaces every API server makes for itself, asked for in case this one does not.
const SYSTEM_NAMESPACES: [&str; 4] = ["default", "kube-system", "kube-public", "kube-node-lease"];

/// The wait for machines before workloads are made all the same.
const NODES_READY: Duration = Duration::from_mins(1);

async fn make(client: &kube::Client, object: &Value) -> Result<(), PopulateError> {
    let Some(request) = creation(object) else { return Ok(()) };
    match request.send(client).await {
        Ok(_) => Ok(()),
        Err(failure) if failure.code == 409 && failure.reason == "AlreadyExists" => Ok(()),
        Err(failure) => {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let (kind, metadata) = (text(&object["kind"]), &object["metadata"]);
            let object = format!("{kind} {}/{}", text(&metadata["namespace"]), text(&metadata["name"]));
            Err(PopulateError { object, failure })
        }
    }
}

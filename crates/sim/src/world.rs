//! Brings a scenario to an API server and keeps its actors running: the one place that knows which actors there are.
//! It talks to the server as any client would, so that the same world lives on the embedded server and on a real one.

use crate::actor::Actor;
use crate::clock::{Clock, Timings};
use crate::disruption::Disruption;
use crate::driver::Driver;
use crate::kubelet::Kubelets;
use crate::node_lifecycle::NodeLifecycle;
use crate::object::Kind;
use crate::request::Failure;
use crate::scenario::{Cluster, creation};
use crate::scheduler::Scheduler;
use crate::workload::{DaemonSets, Deployments, Jobs, ReplicaSets, StatefulSets};
use serde_json::json;
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
    task: JoinHandle<()>,
}

impl Drop for World {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl World {
    /// Makes the objects of `cluster` that do not exist yet and starts the actors.
    pub async fn start(client: kube::Client, cluster: Cluster, options: WorldOptions) -> Result<Self, PopulateError> {
        populate(&client, &cluster).await?;
        let actors = cast(cluster, options.cast);
        let driver = Driver::new(client, options.clock, options.timings, options.seed, actors);
        Ok(Self {
            task: tokio::spawn(driver.run(WATCHED)),
        })
    }
}

fn cast(cluster: Cluster, cast: Cast) -> Vec<Box<dyn Actor>> {
    let mut actors: Vec<Box<dyn Actor>> = Vec::new();
    if cast.kubelets {
        actors.push(Box::new(Kubelets::new(cluster.machines)));
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

async fn populate(client: &kube::Client, cluster: &Cluster) -> Result<(), PopulateError> {
    let system =
        SYSTEM_NAMESPACES.map(|name| json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } }));
    for object in system.iter().chain(&cluster.objects) {
        let Some(request) = creation(object) else { continue };
        match request.send(client).await {
            Ok(_) => {}
            Err(failure) if failure.code == 409 && failure.reason == "AlreadyExists" => {}
            Err(failure) => {
                let metadata = &object["metadata"];
                let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
                let object = format!(
                    "{} {}/{}",
                    text(&object["kind"]),
                    text(&metadata["namespace"]),
                    text(&metadata["name"])
                );
                return Err(PopulateError { object, failure });
            }
        }
    }
    Ok(())
}

//! The cluster that is upgraded: the simulator's default one in any size, with Deployments that fill every worker to so many pods, each
//! with a budget and in a namespace of its own.

use std::time::{Duration, Instant};

use afloat_sim::scenario::{Cluster, Scenario, Shape};
use anyhow::bail;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::ListParams;
use serde_json::{Value, json};

pub const CONTROL_PLANES: u32 = 3;
/// Pods of a Deployment, at most.
const REPLICAS: u32 = 90;
/// DaemonSets of the default cluster, each with a pod on every node.
const DAEMONS: u32 = 3;

pub fn shape(nodes: u32) -> Shape {
    Shape {
        control_planes: CONTROL_PLANES,
        workers: nodes.saturating_sub(CONTROL_PLANES).max(1),
        ..Shape::default()
    }
}

/// A cluster whose workers have so many pods each, those of DaemonSets included.
pub fn cluster(shape: &Shape, pods: u32) -> Cluster {
    let mut cluster = Scenario::Default.describe(shape);
    let mut left = shape.workers * pods.saturating_sub(DAEMONS);
    let mut number = 0;
    while left > 0 {
        number += 1;
        let replicas = left.min(REPLICAS);
        left -= replicas;
        cluster.objects.extend(service(number, replicas));
    }
    cluster
}

fn service(number: u32, replicas: u32) -> [Value; 3] {
    let namespace = format!("load-{number}");
    let labels = json!({ "app": namespace });
    let container = json!({
        "name": "app", "image": "registry.example/app:1.2.3",
        "env": [{ "name": "MODE", "value": "production" }],
        "resources": { "requests": { "cpu": "50m", "memory": "64Mi" } },
    });
    [
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } }),
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": { "name": "app", "namespace": namespace },
            "spec": {
                "replicas": replicas, "selector": { "matchLabels": labels },
                "template": { "metadata": { "labels": labels }, "spec": { "containers": [container] } },
            },
        }),
        json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
            "metadata": { "name": "app", "namespace": namespace },
            "spec": { "maxUnavailable": "25%", "selector": { "matchLabels": labels } },
        }),
    ]
}

/// Waits until every Deployment and DaemonSet is as it was asked for.
pub async fn settled(client: &kube::Client, within: Duration) -> anyhow::Result<()> {
    let deadline = Instant::now() + within;
    let deployments: Api<Deployment> = Api::all(client.clone());
    let daemons: Api<DaemonSet> = Api::all(client.clone());
    loop {
        let all = deployments.list(&ListParams::default()).await?;
        let short = all.items.iter().filter(|one| !is_complete(one)).count();
        let all = daemons.list(&ListParams::default()).await?;
        let short = short + all.items.iter().filter(|one| !is_everywhere(one)).count();
        if short == 0 {
            return Ok(());
        }
        if Instant::now() > deadline {
            bail!("{short} workloads are not ready within {}s", within.as_secs());
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

fn is_complete(deployment: &Deployment) -> bool {
    let wanted = deployment.spec.as_ref().and_then(|spec| spec.replicas);
    let ready = deployment.status.as_ref().and_then(|status| status.ready_replicas);
    wanted.unwrap_or(1) == ready.unwrap_or(0)
}

fn is_everywhere(set: &DaemonSet) -> bool {
    let status = set.status.as_ref();
    status.is_some_and(|status| {
        status.desired_number_scheduled > 0 && status.number_ready == status.desired_number_scheduled
    })
}

/// How many pods there are.
pub async fn pods(client: &kube::Client) -> anyhow::Result<u64> {
    let pods: Api<Pod> = Api::all(client.clone());
    let page = pods.list_metadata(&ListParams::default().limit(1)).await?;
    let left = page.metadata.remaining_item_count.unwrap_or_default();
    Ok(page.items.len() as u64 + u64::try_from(left).unwrap_or_default())
}

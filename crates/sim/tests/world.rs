//! The whole world on the embedded API server, under paused time: it converges, it survives a drain, it stays calm.

use afloat_apisim::{ApiServer, Clock as ServerClock, Options};
use afloat_sim::clock::{Clock, Timings};
use afloat_sim::scenario::{Scenario, Shape};
use afloat_sim::view::{is_ready, phase};
use afloat_sim::world::{Cast, Machines, World, WorldOptions};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{EvictParams, ListParams};
use kube::{Api, Client, ResourceExt};
use std::sync::Arc;
use std::time::Duration;

/// The server tells the time of the world.
struct Shared(Clock);

impl ServerClock for Shared {
    fn now(&self) -> jiff::Timestamp {
        self.0.now()
    }
}

fn start(shape: &Shape) -> (ApiServer, Client, World) {
    let epoch = jiff::Timestamp::from_second(1_800_000_000).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    let clock = Clock::starting_at(epoch);
    let server = ApiServer::new(Options {
        clock: Arc::new(Shared(clock)),
        seed: 7,
        ..Options::default()
    });
    let client = server.client();
    let options = WorldOptions {
        seed: 7,
        clock,
        timings: Timings::default(),
        cast: Cast::default(),
        machines: Machines::default(),
    };
    let world = World::start(client.clone(), Scenario::Default.describe(shape), options);
    (server, client, world)
}

async fn pods(client: &Client) -> Vec<Pod> {
    Api::<Pod>::all(client.clone())
        .list(&ListParams::default())
        .await
        .map(|list| list.items)
        .unwrap_or_default()
}

fn is_up(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_none() && (is_ready(pod) || phase(pod) == "Succeeded")
}

/// Lets time pass until every pod is up; how many there are then.
async fn settle(client: &Client) -> Result<usize, String> {
    for _ in 0..120 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let pods = pods(client).await;
        if pods.len() > 20 && pods.iter().all(is_up) {
            return Ok(pods.len());
        }
    }
    let unsettled: Vec<String> = pods(client)
        .await
        .iter()
        .filter(|pod| !is_up(pod))
        .map(ResourceExt::name_any)
        .collect();
    Err(format!("not settled in two minutes: {unsettled:?}"))
}

#[tokio::test(start_paused = true)]
async fn the_default_cluster_comes_up_and_stays_calm() {
    let (server, client, world) = start(&Shape::default());
    world.populate().await.unwrap();
    settle(&client).await.unwrap();
    // Long enough for the last ReplicaSet and budget to be counted, and for the Job to end.
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(pods(&client).await.len(), 53);
    for budget in Api::<PodDisruptionBudget>::all(client.clone())
        .list(&ListParams::default())
        .await
        .unwrap()
    {
        assert_eq!(
            budget.status.as_ref().map(|status| status.disruptions_allowed),
            Some(1),
            "{}",
            budget.name_any()
        );
    }
    let before = server.revision();
    tokio::time::sleep(Duration::from_secs(40)).await;
    let writes = server.revision() - before;
    // Eight leases renewed four to eight times in 40 s, and nothing else.
    assert!((32..=72).contains(&writes), "{writes} writes in a calm world");
}

#[tokio::test(start_paused = true)]
async fn evicted_pods_find_a_new_home() {
    let (_server, client, world) = start(&Shape::default());
    world.populate().await.unwrap();
    let before = settle(&client).await.unwrap();
    tokio::time::sleep(Duration::from_secs(10)).await;
    let nodes: Api<Node> = Api::all(client.clone());
    nodes.cordon("worker-1").await.unwrap();
    for _ in 0..30 {
        let mut left = 0;
        for pod in pods(&client).await {
            let on_it = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) == Some("worker-1");
            let daemon = pod.owner_references().iter().any(|owner| owner.kind == "DaemonSet");
            if on_it && !daemon && phase(&pod) == "Running" {
                left += 1;
                let api: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace().unwrap_or_default());
                // A budget may say no for now; the next round asks again.
                let _refused_for_now = api.evict(&pod.name_any(), &EvictParams::default()).await;
            }
        }
        if left == 0 {
            break;
        }
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
    settle(&client).await.unwrap();
    let after = pods(&client).await;
    assert!(
        (before - 1..=before).contains(&after.len()),
        "only a bare pod may be lost"
    );
    let still_there: Vec<String> = after
        .iter()
        .filter(|pod| pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) == Some("worker-1"))
        .filter(|pod| phase(pod) == "Running" && !pod.owner_references().iter().any(|owner| owner.kind == "DaemonSet"))
        .map(ResourceExt::name_any)
        .collect();
    assert!(still_there.is_empty(), "{still_there:?}");
}

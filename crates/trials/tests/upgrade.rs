//! A whole upgrade by the real operator on a simulated cluster, over the embedded API server, under paused time.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by failing")]

use afloat_api::clusterupgrade::{DrainOption, Phase};
use afloat_api::{ClusterUpgrade, ClusterUpgradeSpec, NodeKubeadmUpgrade};
use afloat_apisim::{ApiServer, Clock as ServerClock, Options};
use afloat_sim::clock::{Clock, Timings};
use afloat_sim::scenario::{Scenario, Shape};
use afloat_sim::tier2;
use afloat_sim::world::{Cast, Machines, World, WorldOptions};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{ListParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use std::sync::Arc;
use std::time::Duration;

/// The server tells the time of the world.
struct Shared(Clock);

impl ServerClock for Shared {
    fn now(&self) -> jiff::Timestamp {
        self.0.now()
    }
}

struct Play {
    client: Client,
    _world: World,
    operator: tokio::task::JoinHandle<()>,
    start_operator: Box<dyn Fn() -> tokio::task::JoinHandle<()>>,
}

const FROM: &str = "v1.35.4";
const TO: &str = "v1.36.3";

async fn play(scenario: Scenario, shape: Shape, machines: Machines) -> Play {
    let epoch = jiff::Timestamp::from_second(1_800_000_000).unwrap();
    let clock = Clock::starting_at(epoch);
    let server = ApiServer::new(Options {
        clock: Arc::new(Shared(clock)),
        seed: 7,
        ..Options::default()
    });
    let client = server.client();
    let definitions = Api::all(client.clone());
    for definition in afloat_api::crds::all() {
        definitions.create(&PostParams::default(), &definition).await.unwrap();
    }
    let options = WorldOptions {
        seed: 7,
        clock,
        timings: Timings::default(),
        cast: Cast::default(),
        machines: machines.clone(),
    };
    let world = World::start(client.clone(), scenario.describe(&shape), options);
    world.populate().await.unwrap();
    tier2::lay_ground(&client, &shape.version, &machines.versions)
        .await
        .unwrap();
    tokio::time::sleep(Duration::from_mins(1)).await;
    let health = world.health();
    let for_operator = client.clone();
    let start_operator = Box::new(move || {
        let config = tier2::operator(for_operator.clone(), clock, health.clone(), "afloat-0");
        tokio::spawn(async move {
            let _ended = afloat_operator::run(config, std::future::pending()).await;
        })
    });
    Play {
        client,
        _world: world,
        operator: start_operator(),
        start_operator,
    }
}

impl Play {
    async fn ask(&self, spec: ClusterUpgradeSpec) {
        let upgrade = ClusterUpgrade::new("edge-1", spec);
        self.upgrades().create(&PostParams::default(), &upgrade).await.unwrap();
    }

    fn upgrades(&self) -> Api<ClusterUpgrade> {
        Api::namespaced(self.client.clone(), tier2::HOME)
    }

    async fn phase(&self) -> (Phase, String) {
        let upgrade = self.upgrades().get("edge-1").await.unwrap();
        let status = upgrade.status.unwrap_or_default();
        let ready = status.conditions.iter().find(|condition| condition.type_ == "Ready");
        let message = ready.map(|condition| condition.message.clone()).unwrap_or_default();
        (status.phase.unwrap_or_default(), message)
    }

    /// Waits for an end; says how it ended and when.
    async fn ended(&self, within: Duration) -> (Phase, String) {
        let start = tokio::time::Instant::now();
        loop {
            let (phase, message) = self.phase().await;
            if matches!(phase, Phase::Succeeded | Phase::Failed | Phase::Aborted) || start.elapsed() > within {
                return (phase, message);
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }

    async fn told(&self) -> String {
        let api: Api<NodeKubeadmUpgrade> = Api::namespaced(self.client.clone(), tier2::HOME);
        let all = api.list(&ListParams::default()).await.unwrap();
        let line = |upgrade: &NodeKubeadmUpgrade| {
            let status = upgrade.status.clone().unwrap_or_default();
            format!(
                "{} {:?} {:?} {:?} {:?}\n",
                upgrade.name_any(),
                upgrade.spec.desired,
                status.state,
                status.waiting_for.map(|wait| wait.message),
                status.failure.map(|failure| failure.message),
            )
        };
        all.items.iter().map(line).collect()
    }

    async fn assert_clean(&self, version: &str) {
        let nodes: Api<Node> = Api::all(self.client.clone());
        for node in nodes.list(&ListParams::default()).await.unwrap() {
            let info = node
                .status
                .as_ref()
                .and_then(|status| status.node_info.as_ref())
                .unwrap();
            assert_eq!(info.kubelet_version, version, "{}", node.name_any());
            let spec = node.spec.clone().unwrap();
            assert!(
                !spec.unschedulable.unwrap_or(false),
                "{} is left cordoned",
                node.name_any()
            );
            let ours = node.annotations().keys().any(|key| key.starts_with("afloat.dev/"));
            assert!(!ours, "{} keeps {:?}", node.name_any(), node.annotations());
        }
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), tier2::HOME);
        let left = pods.list(&ListParams::default()).await.unwrap();
        assert!(left.items.is_empty(), "pods are left behind");
    }
}

fn spec() -> ClusterUpgradeSpec {
    ClusterUpgradeSpec {
        kubernetes_version: TO.to_owned(),
        drain: Some(DrainOption {
            delete_empty_dir_data: Some(true),
            evict_unmanaged_pods: Some(true),
            ..DrainOption::default()
        }),
        ..ClusterUpgradeSpec::default()
    }
}

fn machines() -> Machines {
    Machines {
        versions: tier2::releases(FROM, TO),
        ..Machines::default()
    }
}

#[tokio::test(start_paused = true)]
async fn p1_p3_a_cluster_is_upgraded_in_place_from_the_first_preflight_to_the_last_uncordon() {
    let play = play(Scenario::Default, Shape::default(), machines()).await;
    play.ask(spec()).await;
    let (phase, message) = play.ended(Duration::from_hours(4)).await;
    assert_eq!(phase, Phase::Succeeded, "{message}\n{}", play.told().await);
    tokio::time::sleep(Duration::from_secs(30)).await;
    play.assert_clean(TO).await;
}

#[tokio::test(start_paused = true)]
async fn p36_a_single_node_is_upgraded_without_another_machine() {
    let play = play(Scenario::SingleNode, Scenario::SingleNode.default_shape(), machines()).await;
    play.ask(spec()).await;
    let (phase, message) = play.ended(Duration::from_hours(4)).await;
    assert_eq!(phase, Phase::Succeeded, "{message}\n{}", play.told().await);
    tokio::time::sleep(Duration::from_secs(30)).await;
    play.assert_clean(TO).await;
}

#[tokio::test(start_paused = true)]
async fn an_operator_that_is_killed_again_and_again_still_ends_the_upgrade() {
    let mut play = play(Scenario::Default, Shape::default(), machines()).await;
    play.ask(spec()).await;
    for _ in 0..12 {
        tokio::time::sleep(Duration::from_secs(23)).await;
        play.operator.abort();
        tokio::time::sleep(Duration::from_secs(2)).await;
        play.operator = (play.start_operator)();
    }
    let (phase, message) = play.ended(Duration::from_hours(4)).await;
    assert_eq!(phase, Phase::Succeeded, "{message}\n{}", play.told().await);
    tokio::time::sleep(Duration::from_secs(30)).await;
    play.assert_clean(TO).await;
}

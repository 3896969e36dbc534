//! The same simulated cluster on a real kube-apiserver and etcd, upgraded by the operator as a process of its own that is
//! killed (SIGKILL) again and again: nothing is lost or repeated, and the upgrade ends.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on says so by failing"
)]

mod real;

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use afloat_api::clusterupgrade::{DrainOption, Phase};
use afloat_api::{ClusterUpgrade, ClusterUpgradeSpec, NodeKubeadmUpgrade};
use afloat_realparts::{ControlPlane, Options};
use afloat_sim::clock::{Clock, Timings};
use afloat_sim::scenario::{Scenario, Shape};
use afloat_sim::tier2;
use afloat_sim::world::{Cast, Machines, World, WorldOptions};
use k8s_openapi::api::core::v1::Node;
use kube::api::{ListParams, PostParams};
use kube::{Api, Client, ResourceExt as _};

const TO: &str = "v1.36.3";
/// How much quicker than life the machines are.
const SPEED: f64 = 60.0;

/// The operator; ended with the test, however that ends.
struct Operator(Child);

impl Operator {
    fn start(kubeconfig: &Path) -> Self {
        let child = Command::new(env!("CARGO_BIN_EXE_afloat"))
            .args([
                "controller",
                "--probe",
                "mirrors",
                "--no-leader-election",
                "--listen",
                "127.0.0.1:0",
            ])
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self(child)
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        // SIGKILL, and the corpse is taken away.
        let _gone = self.0.kill();
        let _ended = self.0.wait();
    }
}

async fn phase(client: &Client) -> (Phase, String) {
    let api: Api<ClusterUpgrade> = Api::namespaced(client.clone(), tier2::HOME);
    let status = api.get("edge-1").await.unwrap().status.unwrap_or_default();
    let ready = status.conditions.iter().find(|condition| condition.type_ == "Ready");
    let message = ready.map(|condition| condition.message.clone()).unwrap_or_default();
    (status.phase.unwrap_or_default(), message)
}

/// Where each node is and what it waits for: whoever reads that the upgrade did not end wants to know that next.
async fn nodes(client: &Client) -> String {
    let api: Api<NodeKubeadmUpgrade> = Api::namespaced(client.clone(), tier2::HOME);
    let all = api.list(&ListParams::default()).await.unwrap();
    let told = all.iter().map(|upgrade| {
        let status = upgrade.status.clone().unwrap_or_default();
        let wait = status.waiting_for.map(|wait| wait.message).unwrap_or_default();
        let (desired, state) = (upgrade.spec.desired, status.state.unwrap_or_default());
        format!(
            "\n  {} {desired:?} {state:?} {:?} {wait}",
            upgrade.name_any(),
            status.current_step
        )
    });
    told.collect()
}

async fn definitions(client: &Client) {
    let api: Api<k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition> =
        Api::all(client.clone());
    for definition in afloat_api::crds::all() {
        api.create(&PostParams::default(), &definition).await.unwrap();
    }
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let served: kube::Result<_> = Api::<ClusterUpgrade>::all(client.clone())
            .list(&ListParams::default())
            .await;
        if served.is_ok() {
            return;
        }
        assert!(Instant::now() < deadline, "the definitions are not served");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_killed_again_and_again_upgrades_a_cluster_on_a_real_api_server() {
    let plane = ControlPlane::start(&Options::default()).unwrap();
    let client = real::client(&plane).await;
    definitions(&client).await;
    let shape = Shape {
        workers: 4,
        ..Shape::default()
    };
    let versions = tier2::releases(&shape.version, TO);
    let options = WorldOptions {
        seed: 3,
        clock: Clock::starting_at(jiff::Timestamp::now()),
        timings: Timings::default().faster(SPEED),
        cast: Cast::default(),
        machines: Machines {
            versions: versions.clone(),
            ..Machines::default()
        },
    };
    let world = World::start(client.clone(), Scenario::Default.describe(&shape), options);
    world.populate().await.unwrap();
    tier2::lay_ground(&client, &shape.version, &versions).await.unwrap();
    tokio::time::sleep(Duration::from_secs(3)).await;
    let spec = ClusterUpgradeSpec {
        kubernetes_version: TO.to_owned(),
        drain: Some(DrainOption {
            delete_empty_dir_data: Some(true),
            evict_unmanaged_pods: Some(true),
            ..DrainOption::default()
        }),
        ..ClusterUpgradeSpec::default()
    };
    let upgrades: Api<ClusterUpgrade> = Api::namespaced(client.clone(), tier2::HOME);
    upgrades
        .create(&PostParams::default(), &ClusterUpgrade::new("edge-1", spec))
        .await
        .unwrap();

    let kubeconfig = plane.kubeconfig_path();
    let mut operator = Operator::start(&kubeconfig);
    let deadline = Instant::now() + Duration::from_mins(8);
    let mut killed = 0;
    let (last, message) = loop {
        // Long enough for it to have read everything and begun something, however quick the machine is.
        tokio::time::sleep(Duration::from_secs(2)).await;
        let (phase, message) = phase(&client).await;
        if matches!(phase, Phase::Succeeded | Phase::Failed | Phase::Aborted) || Instant::now() > deadline {
            break (phase, message);
        }
        if killed < 5 && phase > Phase::Preflight {
            killed += 1;
            drop(operator);
            operator = Operator::start(&kubeconfig);
        }
    };
    assert_eq!(last, Phase::Succeeded, "{message}{}", nodes(&client).await);
    assert!(killed > 1, "it was over before anything could be killed");
    let nodes: Api<Node> = Api::all(client.clone());
    for node in nodes.list(&ListParams::default()).await.unwrap() {
        let info = node
            .status
            .as_ref()
            .and_then(|status| status.node_info.as_ref())
            .unwrap();
        assert_eq!(info.kubelet_version, TO, "{}", node.name_any());
        let cordoned = node.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or(false);
        assert!(!cordoned, "{} is left cordoned", node.name_any());
    }
}

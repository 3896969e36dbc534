//! Whole upgrades by the real operator with nothing wrong but what the test names.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by failing")]

use afloat_api::clusterupgrade::Phase;
use afloat_sim::scenario::Scenario;
use afloat_sim::tier2;
use afloat_trials::play::{Play, Setting, spec};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};
use std::time::Duration;

const FROM: &str = "v1.35.4";
const TO: &str = "v1.36.3";
const PATIENCE: Duration = Duration::from_hours(4);

async fn asked(setting: &Setting) -> Play {
    let mut play = Play::start(setting).await.unwrap();
    play.start_operator(0);
    play.ask(spec(TO)).await.unwrap();
    play
}

async fn assert_upgraded(play: &Play) {
    let (phase, message) = play.ended(PATIENCE).await.unwrap().unwrap();
    assert_eq!(phase, Phase::Succeeded, "{message}\n{}", play.told().await.unwrap());
    tokio::time::sleep(Duration::from_secs(30)).await;
    let nodes: Api<Node> = Api::all(play.client.clone());
    for node in nodes.list(&ListParams::default()).await.unwrap() {
        let name = node.name_any();
        let info = node.status.as_ref().and_then(|status| status.node_info.as_ref());
        assert_eq!(info.unwrap().kubelet_version, TO, "{name}");
        let cordoned = node.spec.as_ref().and_then(|spec| spec.unschedulable);
        assert!(!cordoned.unwrap_or(false), "{name} is left cordoned");
        let ours = node.annotations().keys().any(|key| key.starts_with("afloat.dev/"));
        assert!(!ours, "{name} keeps {:?}", node.annotations());
    }
    let pods: Api<Pod> = Api::namespaced(play.client.clone(), tier2::HOME);
    let left = pods.list(&ListParams::default()).await.unwrap();
    assert!(left.items.is_empty(), "pods are left behind");
}

#[tokio::test(start_paused = true)]
async fn p1_p3_a_cluster_is_upgraded_in_place_from_the_first_preflight_to_the_last_uncordon() {
    let play = asked(&Setting::new(Scenario::Default, FROM, TO)).await;
    assert_upgraded(&play).await;
}

#[tokio::test(start_paused = true)]
async fn p36_a_single_node_is_upgraded_without_another_machine() {
    let play = asked(&Setting::new(Scenario::SingleNode, FROM, TO)).await;
    assert_upgraded(&play).await;
}

#[tokio::test(start_paused = true)]
async fn an_operator_that_is_killed_again_and_again_still_ends_the_upgrade() {
    let mut play = asked(&Setting::new(Scenario::Default, FROM, TO)).await;
    for _ in 0..12 {
        tokio::time::sleep(Duration::from_secs(23)).await;
        play.kill_operator(0);
        tokio::time::sleep(Duration::from_secs(2)).await;
        play.start_operator(0);
    }
    assert_upgraded(&play).await;
}

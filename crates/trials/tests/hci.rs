//! Whole upgrades of a Harvester-like cluster by the real operator, its Jobs' real tasks included, under paused time, looked at more
//! closely than a scenario's end says: nobody's virtual machine is lost, whoever was stopped runs again as before.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by failing")]

use std::collections::BTreeSet;
use std::time::Duration;

use afloat_core::hci::task::HostWork;
use afloat_core::hci::view::HciKind;
use afloat_sim::hci::{HciScenario, SYSTEM, Script};
use afloat_trials::hci::HciPlay;
use afloat_trials::hci::play::{UPGRADE, is_over};
use afloat_trials::hci::verdict::{PATIENCE, judged, running};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

const PAUSE: &str = "harvesterhci.io/node-upgrade-pause";
const NOBODY: Vec<String> = Vec::new();

fn script(name: &str) -> Script {
    HciScenario::named(name).unwrap().describe()
}

fn state(upgrade: &Value, node: &str) -> String {
    let state = &upgrade["status"]["nodeStatuses"][node]["state"];
    state.as_str().unwrap_or_default().to_owned()
}

#[tokio::test(start_paused = true)]
async fn h22_h27_h46_three_nodes_with_thirty_machines_lose_none_and_move_most_of_them_once() {
    let play = HciPlay::start(script("harvester-three-nodes"), 7).await.unwrap();
    let before = running(&play).await.unwrap();
    assert_eq!(before.len(), 30);
    play.ask().await.unwrap();
    assert!(play.until(PATIENCE, |upgrade| is_over(upgrade, true)).await.unwrap());
    assert_eq!(judged(&play, &before).await.unwrap(), NOBODY);
    let vms = &play.script.ground.vms;
    let bound: BTreeSet<&str> = vms
        .iter()
        .filter(|vm| vm.bound.is_some())
        .map(|vm| vm.name.as_str())
        .collect();
    let after = running(&play).await.unwrap();
    for name in &bound {
        assert_ne!(before[*name], after[*name], "{name} cannot have moved");
    }
    let migrations = play.all(HciKind::Migration).await.unwrap();
    let least = vms.len() - bound.len();
    // Every machine that can move has to leave its node once; those that went to a node not done yet move again.
    println!("{} migrations; at least {least} are needed", migrations.len());
    assert!(migrations.len() <= 2 * least, "{}", migrations.len());
    for node in ["node-1", "node-2", "node-3"] {
        let asked = play.world.host.all().into_iter().filter(|(host, _)| host == node);
        let works: Vec<HostWork> = asked.map(|(_, work)| work).collect();
        assert_eq!(works, ON_EVERY_HOST, "each once, and in this order, on {node}");
    }
    assert_eq!(play.watchman.stops(), bound.len());
}

/// What is done on each host, from the first Job to the last.
const ON_EVERY_HOST: [HostWork; 12] = [
    HostWork::PreloadImages,
    HostWork::HoldMultus,
    HostWork::RecoverAgent,
    HostWork::RemoveCanalConfig,
    HostWork::DisableCharts,
    HostWork::ConfigureServer,
    HostWork::RemoveArchives,
    HostWork::BringSystem,
    HostWork::InstallSystem,
    HostWork::RestartSoon,
    HostWork::LetMultusGo,
    HostWork::RemoveOldImages,
];

#[tokio::test(start_paused = true)]
async fn an_operator_and_tasks_that_are_killed_again_and_again_lose_nobody_and_stop_nobody_twice() {
    let mut play = HciPlay::start(script("harvester-at-once"), 7).await.unwrap();
    let before = running(&play).await.unwrap();
    play.ask().await.unwrap();
    let mut kills = 0;
    // Odd, so that it meets every moment of the work.
    let between = Duration::from_secs(37);
    while !play.until(between, |upgrade| is_over(upgrade, true)).await.unwrap() {
        assert!(
            kills < 600,
            "{:#}",
            play.upgrade().await.unwrap()["status"]["nodeStatuses"]
        );
        play.kill();
        kills += 1;
    }
    assert_eq!(judged(&play, &before).await.unwrap(), NOBODY);
    assert_eq!(play.watchman.stops(), 1, "the one that cannot move");
    assert!(kills > 10, "{kills}");
}

#[tokio::test(start_paused = true)]
async fn h6_h7_a_paused_node_waits_and_goes_on_when_the_annotation_is_gone() {
    let mut script = script("harvester-paused");
    script.end = afloat_sim::hci::End::Succeeded;
    script.upgraded = None;
    let play = HciPlay::start(script, 7).await.unwrap();
    let before = running(&play).await.unwrap();
    play.ask().await.unwrap();
    let paused = |upgrade: &Value| state(upgrade, "node-2") == "Node-upgrade paused";
    assert!(play.until(PATIENCE, paused).await.unwrap());
    tokio::time::sleep(Duration::from_hours(1)).await;
    let upgrade = play.upgrade().await.unwrap();
    assert!(paused(&upgrade), "for as long as the person wants");
    let jobs: Api<Job> = Api::namespaced(play.client.clone(), SYSTEM);
    let name = format!("{UPGRADE}-pre-drain-node-2");
    assert!(jobs.get_opt(&name).await.unwrap().is_none());
    let nodes: Api<Node> = Api::all(play.client.clone());
    let unpause = json!({ "metadata": { "annotations": { PAUSE: null } } });
    nodes
        .patch("node-2", &PatchParams::default(), &Patch::Merge(unpause))
        .await
        .unwrap();
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(jobs.get_opt(&name).await.unwrap().is_some());
    assert!(play.until(PATIENCE, |upgrade| is_over(upgrade, true)).await.unwrap());
    assert_eq!(judged(&play, &before).await.unwrap(), NOBODY);
}

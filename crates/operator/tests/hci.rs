//! Upgrades of Harvester by the whole operator, on an API server in memory: Rancher, the Jobs and the people are played by the test,
//! through the API as they would be.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;
mod hci_world;

use std::time::Duration;

use hci_world::{HciCluster, NAME, PAUSE, RELEASE};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

#[tokio::test]
async fn h6_h7_h12_three_nodes_with_a_pause_go_through_with_kubectl_alone() {
    let world = HciCluster::new(3).await;
    world
        .set(
            "upgrade-config",
            &json!({
                "imagePreloadOption": {"strategy": {"type": "parallel"}},
                "nodeUpgradeOption": {"mode": "manual", "pauseNodes": ["node-2"]},
                "restoreVM": true,
            })
            .to_string(),
        )
        .await;
    world.create_upgrade().await;
    for node in ["node-1", "node-2", "node-3"] {
        world.complete(&format!("{NAME}-prepare-{node}")).await;
    }
    assert_eq!(world.node_annotation("node-2", PAUSE).await.as_deref(), Some(NAME));
    world.complete(&format!("{NAME}-apply-manifests")).await;
    world.multus("apply").await;
    world
        .until("Rancher is asked", async || {
            let cluster = world
                .get("provisioning.cattle.io/v1", "clusters", "fleet-local", "local")
                .await;
            cluster["spec"]["kubernetesVersion"] == "v1.34.1+rke2r1"
                && cluster["spec"]["rkeConfig"]["provisionGeneration"] == 4
        })
        .await;
    world.take_through("node-1").await;
    world.rancher_asks("node-2").await;
    world.until_state("node-2", "Node-upgrade paused").await;
    assert!(!world.has_job(&format!("{NAME}-pre-drain-node-2")).await);
    world.unpause("node-2").await;
    world.finish("node-2").await;
    world.take_through("node-3").await;
    world.multus("remove").await;
    for node in ["node-1", "node-2", "node-3"] {
        world.complete(&format!("{NAME}-clean-up-{node}")).await;
    }
    world
        .until("the end", async || {
            let upgrade = world.upgrade().await;
            upgrade["metadata"]["labels"]["harvesterhci.io/upgradeCleanup"] == "Succeeded"
        })
        .await;
    assert_as_it_was(&world).await;
    world.stop().await;
}

/// What was changed for the upgrade's sake is as it was before.
async fn assert_as_it_was(world: &HciCluster) {
    let upgrade = world.upgrade().await;
    assert_eq!(
        upgrade["metadata"]["labels"]["harvesterhci.io/upgradeState"],
        "Succeeded"
    );
    assert!(
        upgrade["metadata"]["finalizers"].as_array().is_none_or(Vec::is_empty),
        "{upgrade}"
    );
    for node in ["node-1", "node-2", "node-3"] {
        assert_eq!(world.node_annotation(node, PAUSE).await, None);
        assert_eq!(
            world.node_annotation(node, "harvesterhci.io/pendingOSImage").await,
            None
        );
    }
    let cluster = world
        .get("provisioning.cattle.io/v1", "clusters", "fleet-local", "local")
        .await;
    assert_eq!(
        cluster["spec"]["rkeConfig"]["upgradeStrategy"],
        json!({"workerConcurrency": "3"}),
        "as it was"
    );
    assert_eq!(
        cluster["spec"]["rkeConfig"]["registries"],
        json!({"kept": true}),
        "nobody's business"
    );
}

#[tokio::test]
async fn h9_an_upgrade_deleted_during_preload_leaves_nothing() {
    let world = HciCluster::new(3).await;
    let setting = json!({
        "imagePreloadOption": {"strategy": {"type": "sequential"}},
        "nodeUpgradeOption": {"strategy": {"mode": "manual"}},
    });
    world.set("upgrade-config", &setting.to_string()).await;
    world.create_upgrade().await;
    world
        .until("a Job", async || world.has_job(&format!("{NAME}-prepare-node-1")).await)
        .await;
    for node in ["node-1", "node-2", "node-3"] {
        assert!(world.node_annotation(node, PAUSE).await.is_some());
    }
    world.delete_upgrade().await;
    world
        .until("it is gone", async || world.upgrade().await.is_null())
        .await;
    for node in ["node-1", "node-2", "node-3"] {
        assert_eq!(world.node_annotation(node, PAUSE).await, None, "{node}");
    }
    world.stop().await;
}

/// One event away, and no look at the clock between: under paused time nothing that waits for a next look would come about at
/// once.
#[tokio::test(start_paused = true)]
async fn h7_resuming_a_node_makes_its_job_at_once() {
    let world = HciCluster::new(3).await;
    let setting = json!({
        "imagePreloadOption": {"strategy": {"type": "skip"}},
        "nodeUpgradeOption": {"strategy": {"mode": "manual"}},
    });
    world.set("upgrade-config", &setting.to_string()).await;
    world.create_upgrade().await;
    world.complete(&format!("{NAME}-apply-manifests")).await;
    world.multus("apply").await;
    world.rancher_asks("node-1").await;
    world.until_state("node-1", "Node-upgrade paused").await;
    let watch = world.watch_job(&format!("{NAME}-pre-drain-node-1")).await;
    let start = tokio::time::Instant::now();
    world.unpause("node-1").await;
    watch.await.unwrap();
    assert!(start.elapsed() < Duration::from_millis(50), "{:?}", start.elapsed());
    world.stop().await;
}

/// Serves a release file outside of the cluster; what was asked for first.
async fn repository() -> (String, tokio::sync::oneshot::Receiver<String>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/release", listener.local_addr().unwrap());
    let (first, asked) = tokio::sync::oneshot::channel();
    let mut first = Some(first);
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = vec![0; 1024];
            let length = stream.read(&mut request).await.unwrap();
            if let Some(first) = first.take() {
                let _heard = first.send(String::from_utf8_lossy(&request[..length]).into_owned());
            }
            let answer = format!("HTTP/1.0 200 OK\r\nContent-Type: text/yaml\r\n\r\n{RELEASE}");
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    });
    (url, asked)
}

#[tokio::test]
async fn h21_a_repository_outside_is_read_by_its_address_and_nothing_is_made_for_it() {
    let world = HciCluster::reading_for_real(3).await;
    let (url, asked) = repository().await;
    world.create_upgrade_with(json!({"afloat.dev/repo-url": url})).await;
    let prepare = format!("{NAME}-prepare-node-1");
    world
        .until("images are brought from there", async || world.has_job(&prepare).await)
        .await;
    let asked = asked.await.unwrap();
    assert!(
        asked.starts_with("GET /release/harvester-iso/harvester-release.yaml HTTP/1.0\r\n"),
        "{asked}"
    );
    assert!(
        world.upgrade().await["status"]["repoInfo"]
            .as_str()
            .unwrap()
            .contains("Harvester v1.7.0")
    );
    let job = world.job(&prepare).await;
    let env = job["spec"]["template"]["spec"]["containers"][0]["env"]
        .as_array()
        .unwrap();
    assert!(
        env.contains(&json!({"name": "AFLOAT_HCI_REPO", "value": url})),
        "{env:?}"
    );
    let repo = format!("upgrade-repo-{NAME}");
    for (version, plural, name) in [
        ("apps/v1", "deployments", repo.as_str()),
        ("v1", "services", repo.as_str()),
        ("harvesterhci.io/v1beta1", "virtualmachineimages", NAME),
    ] {
        assert!(
            world.get(version, plural, "harvester-system", name).await.is_null(),
            "{plural}"
        );
    }
    world.stop().await;
}

#[tokio::test]
async fn harvesters_own_controller_is_left_alone_until_it_is_off() {
    let world = HciCluster::new(1).await;
    world.run_upstream().await;
    world.create_upgrade().await;
    world
        .until("an event", async || {
            world.has_event("runs Harvester's own upgrade controller").await
        })
        .await;
    assert!(world.upgrade().await["status"].is_null(), "nothing was written");
    world.switch_upstream_off().await;
    world
        .until("it begins", async || {
            world.upgrade().await["status"]["conditions"].is_array()
        })
        .await;
    world.stop().await;
}

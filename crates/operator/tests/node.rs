//! One node through the whole operator: the real core, the embedded API server, and a kubelet that does as it is told.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on says so by failing"
)]

mod common;

use std::time::Duration;

use afloat_api::node::exit;
use afloat_api::{NodeKubeadmUpgrade, NodeState, annotations, labels};
use afloat_operator::run;
use common::{Cluster, HOME, node_upgrade_body};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use tokio::sync::oneshot;

/// Runs task pods to their end and lets go of pods that have to end, until it is dropped.
async fn kubelet(cluster: Cluster, exit_code: i32) {
    let all: Api<Pod> = Api::all(cluster.client.clone());
    loop {
        tokio::time::sleep(Duration::from_millis(20)).await;
        for pod in all.list(&ListParams::default()).await.unwrap().items {
            let pods = cluster.api::<Pod>(&pod.namespace().unwrap());
            if pod.metadata.deletion_timestamp.is_some() {
                let _gone = pods
                    .delete(&pod.name_any(), &DeleteParams::default().grace_period(0))
                    .await;
            } else if let Some(task) = pod.labels().get(labels::TASK)
                && pod
                    .status
                    .as_ref()
                    .is_none_or(|status| status.init_container_statuses.is_none())
            {
                let code = if task == "upgrade" { exit_code } else { exit::DONE };
                let status = Patch::Merge(json!({ "status": ran(&pod, code) }));
                let _told = pods
                    .patch_status(&pod.name_any(), &PatchParams::default(), &status)
                    .await;
                if task == "upgrade" && code == exit::DONE {
                    report_version(&cluster, pod.spec.as_ref().unwrap().node_name.as_deref().unwrap()).await;
                }
            }
        }
    }
}

/// The status of a pod whose steps have all ended, each saying so.
fn ran(pod: &Pod, code: i32) -> Value {
    let now = jiff::Timestamp::now();
    let outcome = if code == exit::DONE { "Done" } else { "Failed" };
    let report = json!({"outcome": outcome, "message": "no space left on /var"}).to_string();
    let ended = |name: &str| {
        json!({"name": name, "image": "", "imageID": "", "ready": false, "restartCount": 0,
            "state": {"terminated": {"exitCode": code, "message": report, "startedAt": now, "finishedAt": now}}})
    };
    let steps = pod.spec.as_ref().unwrap().init_containers.as_ref().unwrap();
    let steps: Vec<Value> = steps.iter().map(|step| ended(&step.name)).collect();
    let phase = if code == exit::DONE { "Succeeded" } else { "Pending" };
    json!({"phase": phase, "initContainerStatuses": steps, "containerStatuses": [ended("done")]})
}

async fn report_version(cluster: &Cluster, node: &str) {
    let status = json!({"status": {"nodeInfo": {"kubeletVersion": "v1.36.3"}}});
    cluster
        .nodes()
        .patch_status(node, &PatchParams::default(), &Patch::Merge(status))
        .await
        .unwrap();
}

struct Ended {
    upgrade: NodeKubeadmUpgrade,
    node: Node,
    web_is_there: bool,
}

/// Two nodes, a pod on the first, and that node upgraded by itself until it is in `state`.
async fn upgrade_until(state: NodeState, exit_code: i32) -> Ended {
    let cluster = Cluster::new().await;
    let node = cluster.node("worker-1", json!({})).await;
    cluster.node("worker-2", json!({})).await;
    let web = json!({
        "metadata": {"name": "web-1", "labels": {"app": "web"}, "ownerReferences": [
            {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "rs", "controller": true}]},
        "spec": {"nodeName": "worker-1", "containers": [{"name": "main", "image": "registry.example/web:1"}]},
    });
    cluster.make::<Pod>("shop", web).await;
    let mut body = node_upgrade_body("worker-1-up", &node);
    body["metadata"]["finalizers"] = json!(["afloat.dev/cleanup"]);
    body["spec"]["desired"] = json!("Upgraded");
    body["spec"]["stage"] = json!({"name": "stage", "image": "registry.example/afloat:1", "args": ["node", "stage"]});
    cluster.make::<NodeKubeadmUpgrade>(HOME, body).await;

    let twin = cluster.clone();
    let kubelet = tokio::spawn(kubelet(twin, exit_code));
    let (stop, stopped) = oneshot::channel::<()>();
    let operator = tokio::spawn(run(cluster.operator(), async {
        let _told = stopped.await;
    }));
    let api = cluster.api::<NodeKubeadmUpgrade>(HOME);
    let mut upgrade = api.get("worker-1-up").await.unwrap();
    for _ in 0..600 {
        if upgrade.status.as_ref().and_then(|status| status.state) == Some(state) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        upgrade = api.get("worker-1-up").await.unwrap();
    }
    stop.send(()).unwrap();
    operator.await.unwrap().unwrap();
    kubelet.abort();
    Ended {
        upgrade,
        node: cluster.nodes().get("worker-1").await.unwrap(),
        web_is_there: cluster.api::<Pod>("shop").get_opt("web-1").await.unwrap().is_some(),
    }
}

fn untouched(node: &Node) -> bool {
    node.spec.as_ref().and_then(|spec| spec.unschedulable) != Some(true)
        && !node.annotations().contains_key(annotations::CORDONED_BY)
}

#[tokio::test]
async fn p24_p27_a_node_is_staged_drained_upgraded_and_put_back_in_service() {
    let ended = upgrade_until(NodeState::Succeeded, exit::DONE).await;
    let status = ended.upgrade.status.unwrap();
    assert_eq!(status.state, Some(NodeState::Succeeded), "{status:?}");
    let passed: Vec<NodeState> = status.history.iter().map(|record| record.state).collect();
    for state in [
        NodeState::Staged,
        NodeState::Draining,
        NodeState::Upgrading,
        NodeState::Verifying,
    ] {
        assert!(passed.contains(&state), "{state} is not in {passed:?}");
    }
    assert!(!ended.web_is_there, "it was evicted by the operator");
    assert!(untouched(&ended.node), "{:?}", ended.node);
}

#[tokio::test]
async fn p24_a_step_that_fails_says_why_and_the_node_is_put_back() {
    let ended = upgrade_until(NodeState::RolledBack, exit::FAILED).await;
    let status = ended.upgrade.status.unwrap();
    assert_eq!(status.state, Some(NodeState::RolledBack), "{status:?}");
    let failure = status.failure.unwrap();
    assert!(failure.message.contains("no space left on /var"), "{failure:?}");
    assert!(untouched(&ended.node), "{:?}", ended.node);
}

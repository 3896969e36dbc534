//! A whole cluster through the whole operator: three control planes and two workers, the real core, the embedded API server,
//! and kubelets that do as they are told. Time is tokio's, so that waiting costs nothing.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on says so by failing"
)]

mod common;

use std::sync::Arc;
use std::time::Duration;

use afloat_api::clusterupgrade::Phase;
use afloat_api::{ClusterUpgrade, annotations, labels};
use afloat_operator::clock::{Clock, TokioClock};
use afloat_operator::{OperatorConfig, run};
use common::{Cluster, HOME};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use tokio::sync::oneshot;

const PARTS: [&str; 4] = ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"];
const CONTROL_PLANES: [&str; 3] = ["cp-1", "cp-2", "cp-3"];
const WORKERS: [&str; 2] = ["worker-1", "worker-2"];

struct Kubelets {
    cluster: Cluster,
    clock: TokioClock,
}

impl Kubelets {
    async fn furnish(&self) {
        for name in CONTROL_PLANES {
            self.cluster.node(name, json!({labels::CONTROL_PLANE_NODE: ""})).await;
            for part in PARTS {
                self.cluster.make::<Pod>("kube-system", static_pod(part, name)).await;
                self.run_part(part, name, "v1.35.4").await;
            }
        }
        for name in WORKERS {
            self.cluster.node(name, json!({})).await;
        }
        let config = json!({"metadata": {"name": "kubeadm-config"}, "data": {"ClusterConfiguration":
            "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\nkubernetesVersion: v1.35.4\n"}});
        self.cluster.make::<ConfigMap>("kube-system", config).await;
        let images = json!({"metadata": {"name": "afloat-upgrader-images"}, "data": {"v1.36.3": "registry.example/afloat:v1.36.3"}});
        self.cluster.make::<ConfigMap>(HOME, images).await;
    }

    /// A static part of `version` has just been started and is Ready.
    async fn run_part(&self, part: &str, node: &str, version: &str) {
        let pods = self.cluster.api::<Pod>("kube-system");
        let (name, params, now) = (format!("{part}-{node}"), PatchParams::default(), self.clock.now());
        let spec = json!({"spec": {"containers": [{"name": part, "image": image(part, version)}]}});
        pods.patch(&name, &params, &Patch::Strategic(spec)).await.unwrap();
        let status = json!({"status": {"phase": "Running", "startTime": now,
            "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [{"name": part, "image": image(part, version), "imageID": "", "ready": true, "restartCount": 0,
                "state": {"running": {"startedAt": now}}}]}});
        pods.patch_status(&name, &params, &Patch::Merge(status)).await.unwrap();
    }

    async fn run(self) {
        let all: Api<Pod> = Api::all(self.cluster.client.clone());
        loop {
            tokio::time::sleep(Duration::from_millis(200)).await;
            for pod in all.list(&ListParams::default()).await.unwrap().items {
                let pods = self.cluster.api::<Pod>(&pod.namespace().unwrap());
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
                    if task == "upgrade" {
                        self.upgrade(pod.spec.as_ref().unwrap().node_name.as_deref().unwrap())
                            .await;
                    }
                    let status = Patch::Merge(json!({ "status": self.ran(&pod) }));
                    pods.patch_status(&pod.name_any(), &PatchParams::default(), &status)
                        .await
                        .unwrap();
                }
            }
        }
    }

    async fn upgrade(&self, node: &str) {
        if CONTROL_PLANES.contains(&node) {
            for part in PARTS {
                self.run_part(part, node, "v1.36.3").await;
            }
        }
        let status = json!({"status": {"nodeInfo": {"kubeletVersion": "v1.36.3"}}});
        let nodes = self.cluster.nodes();
        nodes
            .patch_status(node, &PatchParams::default(), &Patch::Merge(status))
            .await
            .unwrap();
    }

    /// The status of a pod whose steps have all ended well.
    fn ran(&self, pod: &Pod) -> Value {
        let now = self.clock.now();
        let report = json!({"outcome": "Done"}).to_string();
        let ended = |name: &str| {
            json!({"name": name, "image": "", "imageID": "", "ready": false, "restartCount": 0,
                "state": {"terminated": {"exitCode": 0, "message": report, "startedAt": now, "finishedAt": now}}})
        };
        let steps = pod.spec.as_ref().unwrap().init_containers.as_ref().unwrap();
        let steps: Vec<Value> = steps.iter().map(|step| ended(&step.name)).collect();
        json!({"phase": "Succeeded", "initContainerStatuses": steps, "containerStatuses": [ended("done")]})
    }
}

fn static_pod(part: &str, node: &str) -> Value {
    json!({
        "metadata": {"name": format!("{part}-{node}"), "labels": {"component": part},
            "annotations": {"kubernetes.io/config.mirror": "x"}},
        "spec": {"nodeName": node, "containers": [{"name": part, "image": image(part, "v1.35.4")}]},
    })
}

fn image(part: &str, version: &str) -> String {
    match part {
        "etcd" => format!(
            "registry.k8s.io/etcd:{}",
            if version == "v1.35.4" { "3.6.6-0" } else { "3.6.8-0" }
        ),
        part => format!("registry.k8s.io/{part}:{version}"),
    }
}

fn config(cluster: &Cluster, clock: TokioClock) -> OperatorConfig {
    OperatorConfig {
        clock: Arc::new(clock),
        ..cluster.operator()
    }
}

#[tokio::test(start_paused = true)]
async fn p32_a_cluster_is_upgraded_nothing_is_left_behind_and_then_nothing_is_written() {
    let cluster = Cluster::new().await;
    let clock = TokioClock::starting_at(jiff::Timestamp::now());
    let twin = cluster.clone();
    let kubelets = Kubelets { cluster: twin, clock };
    kubelets.furnish().await;
    let kubelets = tokio::spawn(kubelets.run());
    let (stop, stopped) = oneshot::channel::<()>();
    let operator = tokio::spawn(run(config(&cluster, clock), async {
        let _told = stopped.await;
    }));
    cluster.upgrade().await;
    let api = cluster.api::<ClusterUpgrade>(HOME);
    let mut upgrade = api.get("edge-1").await.unwrap();
    for _ in 0..3600 {
        if upgrade
            .status
            .as_ref()
            .is_some_and(|status| status.finished_at.is_some())
        {
            break;
        }
        assert!(!operator.is_finished() && !kubelets.is_finished());
        tokio::time::sleep(Duration::from_secs(1)).await;
        upgrade = api.get("edge-1").await.unwrap();
    }
    let status = upgrade.status.unwrap();
    assert_eq!(status.phase, Some(Phase::Succeeded), "{status:#?}");
    for node in cluster.nodes().list(&ListParams::default()).await.unwrap().items {
        let info = node.status.as_ref().unwrap().node_info.as_ref().unwrap();
        assert_eq!(info.kubelet_version, "v1.36.3", "{}", node.name_any());
        assert_ne!(
            node.spec.as_ref().unwrap().unschedulable,
            Some(true),
            "{}",
            node.name_any()
        );
        assert!(
            !node.annotations().contains_key(annotations::CORDONED_BY),
            "{}",
            node.name_any()
        );
    }
    // The revision counts every write to any object of the server.
    let revision = async || {
        cluster
            .nodes()
            .list(&ListParams::default())
            .await
            .unwrap()
            .metadata
            .resource_version
    };
    tokio::time::sleep(Duration::from_mins(1)).await;
    kubelets.abort();
    let ended = revision().await;
    tokio::time::sleep(Duration::from_hours(1)).await;
    assert_eq!(revision().await, ended, "when it is over nothing is written any more");
    stop.send(()).unwrap();
    operator.await.unwrap().unwrap();
}

//! A cluster in memory for the tests of commands: Afloat's definitions, five nodes, and the objects an operator would have
//! written, put there by hand.

use crate::args::{Cli, Command};
use crate::cluster::Cluster;
use crate::screen::Screen;
use afloat_api::{ClusterUpgrade, NodeKubeadmUpgrade, annotations, labels};
use afloat_apisim::{ApiServer, Options};
use clap::Parser as _;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Patch, PatchParams, PostParams};
use kube::core::NamespaceResourceScope;
use kube::{Api, Resource, ResourceExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};

pub const HOME: &str = "afloat-system";
pub const NODES: [&str; 5] = ["cp-1", "cp-2", "cp-3", "worker-1", "worker-2"];

/// The command as a person writes it.
pub fn command(line: &str) -> Command {
    Cli::try_parse_from(line.split(' ')).unwrap().command
}

/// A screen, and what was said on it.
pub fn listening() -> (Screen, Arc<Mutex<String>>) {
    let said = Arc::new(Mutex::new(String::new()));
    (Screen::Memory(Arc::clone(&said)), said)
}

/// A moment so many seconds ago.
pub fn ago(seconds: i64) -> Timestamp {
    Timestamp::now() - SignedDuration::from_secs(seconds)
}

pub struct World {
    pub cluster: Cluster,
    _server: ApiServer,
}

impl World {
    /// Three control planes and two workers at v1.35.4, with everything an upgrade to v1.36.3 needs.
    pub async fn new() -> Self {
        let server = ApiServer::new(Options::default());
        let world = Self {
            cluster: Cluster::of(server.client(), HOME),
            _server: server,
        };
        for definition in afloat_api::crds::own() {
            let api: Api<CustomResourceDefinition> = Api::all(world.cluster.client.clone());
            api.create(&PostParams::default(), &definition).await.unwrap();
        }
        for namespace in [HOME, "kube-system", "shop"] {
            let api: Api<Namespace> = Api::all(world.cluster.client.clone());
            let body = serde_json::from_value(json!({"metadata": {"name": namespace}})).unwrap();
            // Some are there from the start.
            let _there = api.create(&PostParams::default(), &body).await;
        }
        for name in NODES {
            world.node(name).await;
        }
        let config = json!({"metadata": {"name": "kubeadm-config"},
            "data": {"ClusterConfiguration": "etcd:\n  local:\n    dataDir: /var/lib/etcd\n"}});
        world.make::<ConfigMap>("kube-system", config).await;
        let images =
            json!({"metadata": {"name": "afloat-upgrader-images"}, "data": {"v1.36.3": "registry.example/up:1"}});
        world.make::<ConfigMap>(HOME, images).await;
        world
    }

    pub fn api<K>(&self, namespace: &str) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.cluster.client.clone(), namespace)
    }

    pub fn nodes(&self) -> Api<Node> {
        Api::all(self.cluster.client.clone())
    }

    pub async fn make<K>(&self, namespace: &str, body: Value) -> K
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + DeserializeOwned
            + Serialize
            + std::fmt::Debug,
    {
        let body = serde_json::from_value(body).unwrap();
        self.api::<K>(namespace)
            .create(&PostParams::default(), &body)
            .await
            .unwrap()
    }

    /// Writes the status of an object of ours.
    pub async fn say<K>(&self, name: &str, status: Value)
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned + std::fmt::Debug,
    {
        let patch = Patch::Merge(json!({ "status": status }));
        let api = self.api::<K>(HOME);
        api.patch_status(name, &PatchParams::default(), &patch).await.unwrap();
    }

    async fn node(&self, name: &str) {
        let role = if name.starts_with("cp-") {
            json!({"node-role.kubernetes.io/control-plane": "", "kubernetes.io/hostname": name})
        } else {
            json!({"kubernetes.io/hostname": name})
        };
        let body = serde_json::from_value(json!({"metadata": {"name": name, "labels": role}})).unwrap();
        self.nodes().create(&PostParams::default(), &body).await.unwrap();
        self.kubelet(name, "v1.35.4").await;
        // As a real API server does, the one in memory taints a node that has not reported yet.
        let untaint = Patch::Merge(json!({"spec": {"taints": null}}));
        self.nodes()
            .patch(name, &PatchParams::default(), &untaint)
            .await
            .unwrap();
    }

    /// What the kubelet of a node reports.
    pub async fn kubelet(&self, name: &str, version: &str) {
        let status = json!({"status": {
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-02T03:04:05Z"}],
            "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
            "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"},
            "nodeInfo": {"kubeletVersion": version, "containerRuntimeVersion": "containerd://2.0.1", "osImage": "Linux",
                "machineID": "", "systemUUID": "", "bootID": "", "kernelVersion": "", "kubeProxyVersion": "",
                "operatingSystem": "", "architecture": ""},
        }});
        let params = PatchParams::default();
        self.nodes()
            .patch_status(name, &params, &Patch::Merge(status))
            .await
            .unwrap();
    }

    pub async fn annotation(&self, node: &str, key: &str) -> Option<String> {
        let node = self.nodes().get(node).await.unwrap();
        node.annotations().get(key).cloned()
    }

    pub async fn cordon(&self, node: &str) {
        let patch = Patch::Merge(json!({"spec": {"unschedulable": true}}));
        self.nodes().patch(node, &PatchParams::default(), &patch).await.unwrap();
    }

    /// As the operator does for the upgrade of this uid.
    pub async fn cordon_by_afloat(&self, node: &str, by: &str) {
        let patch = Patch::Merge(json!({
            "metadata": {"annotations": {annotations::CORDONED_BY: by}}, "spec": {"unschedulable": true},
        }));
        self.nodes().patch(node, &PatchParams::default(), &patch).await.unwrap();
    }

    pub async fn upgrade(&self, name: &str) -> ClusterUpgrade {
        self.make(
            HOME,
            json!({"metadata": {"name": name}, "spec": {"kubernetesVersion": "v1.36.3"}}),
        )
        .await
    }

    /// A node's part of an upgrade, in a state.
    pub async fn node_upgrade(
        &self,
        of: &ClusterUpgrade,
        node: &str,
        desired: &str,
        status: Value,
    ) -> NodeKubeadmUpgrade {
        let uid = self.nodes().get(node).await.unwrap().uid();
        let role = if node.starts_with("cp-") {
            "ControlPlane"
        } else {
            "Worker"
        };
        let made = json!({
            "metadata": {"name": format!("{node}-up"), "labels": {labels::UPGRADE_UID: of.uid()}},
            "spec": {"node": {"name": node, "uid": uid}, "role": role, "kubernetesVersion": "v1.36.3",
                "kubeletVersion": "v1.36.3", "attempt": 1, "desired": desired,
                "steps": [{"name": "kubelet", "image": "registry.example/up:1", "args": ["node", "kubelet"]}]},
        });
        let made = self.make(HOME, made).await;
        let mut status = status;
        status["attempt"] = json!(1);
        self.say::<NodeKubeadmUpgrade>(&format!("{node}-up"), status).await;
        made
    }

    /// Two pods of one Deployment on worker-2, under a budget that wants both.
    pub async fn stuck_budget(&self) {
        let labels = json!({"app": "checkout"});
        let template =
            json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "shop:1"}]}});
        let spec = json!({"replicas": 2, "selector": {"matchLabels": labels}, "template": template});
        let deployment = json!({"metadata": {"name": "checkout"}, "spec": spec});
        let deployment: Deployment = self.make("shop", deployment).await;
        let ready = json!({"status": {"replicas": 2, "readyReplicas": 2}});
        let params = PatchParams::default();
        let deployments = self.api::<Deployment>("shop");
        deployments
            .patch_status("checkout", &params, &Patch::Merge(&ready))
            .await
            .unwrap();
        let owner = |kind: &str, name: &str, uid: Option<String>| json!([{"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": uid, "controller": true}]);
        let set = json!({"metadata": {"name": "checkout-7d9f", "ownerReferences": owner("Deployment", "checkout", deployment.uid())}, "spec": spec});
        let set: ReplicaSet = self.make("shop", set).await;
        for name in ["checkout-7d9f-aaaaa", "checkout-7d9f-bbbbb"] {
            let pod = json!({
                "metadata": {"name": name, "labels": labels, "ownerReferences": owner("ReplicaSet", "checkout-7d9f", set.uid())},
                "spec": {"nodeName": "worker-2", "containers": [{"name": "main", "image": "shop:1"}]},
            });
            self.make::<Pod>("shop", pod).await;
            let running = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
            let pods = self.api::<Pod>("shop");
            pods.patch_status(name, &params, &Patch::Merge(running)).await.unwrap();
        }
        let budget =
            json!({"metadata": {"name": "checkout"}, "spec": {"minAvailable": 2, "selector": {"matchLabels": labels}}});
        self.make::<PodDisruptionBudget>("shop", budget).await;
        let says = json!({"status": {"observedGeneration": 1, "disruptionsAllowed": 0, "currentHealthy": 2, "desiredHealthy": 2, "expectedPods": 2}});
        let budgets = self.api::<PodDisruptionBudget>("shop");
        budgets
            .patch_status("checkout", &params, &Patch::Merge(says))
            .await
            .unwrap();
    }
}

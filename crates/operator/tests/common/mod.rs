//! A cluster in memory with our definitions, and objects to act on.

#![allow(dead_code, reason = "each test file takes what it needs")]

use afloat_api::{
    ClusterUpgrade, ControlPlaneKubeadmUpgrade, NodeKubeadmUpgrade, WorkersKubeadmUpgrade, labels, names,
};
use afloat_apisim::{ApiServer, Options};
use afloat_core::objects::target_of;
use afloat_core::view::{NodeName, Target};
use afloat_operator::OperatorConfig;
use afloat_operator::clients::Clients;
use afloat_operator::clock::SystemClock;
use afloat_operator::hci::HciOptions;
use afloat_operator::metrics::Metrics;
use afloat_operator::mind::Core;
use afloat_operator::prober::Prober;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Patch, PatchParams, PostParams};
use kube::core::NamespaceResourceScope;
use kube::{Api, Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::sync::Arc;

pub const HOME: &str = "afloat";

/// Control planes that always answer.
pub struct Healthy;

impl Prober for Healthy {
    fn ready(&self, _: NodeName, _: String) -> BoxFuture<'_, bool> {
        Box::pin(async { true })
    }
}

#[derive(Clone)]
pub struct Cluster {
    pub server: ApiServer,
    pub client: Client,
    pub clients: Clients,
}

impl Cluster {
    /// An operator of its own, alone: renewing a lease would be a write that no test is about.
    pub fn operator(&self) -> OperatorConfig {
        OperatorConfig {
            clients: self.clients.clone(),
            home: HOME.to_owned(),
            identity: "operator-0".to_owned(),
            clock: Arc::new(SystemClock),
            mind: Arc::new(Core),
            prober: Arc::new(Healthy),
            listen: None,
            leader_election: false,
            metrics: Metrics::default(),
            hci: HciOptions::default(),
        }
    }

    pub async fn new() -> Self {
        let server = ApiServer::new(Options::default());
        let client = server.client();
        let cluster = Self {
            clients: Clients::of(client.clone()),
            server,
            client,
        };
        for definition in afloat_api::crds::own() {
            let api: Api<CustomResourceDefinition> = Api::all(cluster.client.clone());
            api.create(&PostParams::default(), &definition).await.unwrap();
        }
        for namespace in [HOME, "shop"] {
            let api: Api<Namespace> = Api::all(cluster.client.clone());
            let body = serde_json::from_value(json!({"metadata": {"name": namespace}})).unwrap();
            api.create(&PostParams::default(), &body).await.unwrap();
        }
        cluster
    }

    pub fn api<K>(&self, namespace: &str) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), namespace)
    }

    pub fn nodes(&self) -> Api<Node> {
        Api::all(self.client.clone())
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

    pub async fn node(&self, name: &str, labels: Value) -> Node {
        let body = serde_json::from_value(json!({"metadata": {"name": name, "labels": labels}})).unwrap();
        self.nodes().create(&PostParams::default(), &body).await.unwrap();
        let status = json!({"status": {
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-02T03:04:05Z"}],
            "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
            "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"},
            "nodeInfo": {"kubeletVersion": "v1.35.4", "containerRuntimeVersion": "containerd://2.0.1", "osImage": "Linux",
                "machineID": "", "systemUUID": "", "bootID": "", "kernelVersion": "", "kubeProxyVersion": "",
                "operatingSystem": "", "architecture": ""},
        }});
        let params = PatchParams::default();
        self.nodes()
            .patch_status(name, &params, &Patch::Merge(status))
            .await
            .unwrap()
    }

    pub async fn pod(&self, namespace: &str, name: &str, node: &str) -> Pod {
        let body = json!({
            "metadata": {"name": name, "labels": {"app": "web"}},
            "spec": {"nodeName": node, "containers": [{"name": "main", "image": "registry.example/web:1"}]},
        });
        self.make(namespace, body).await
    }

    pub async fn upgrade(&self) -> ClusterUpgrade {
        let body = json!({"metadata": {"name": "edge-1"}, "spec": {"kubernetesVersion": "v1.36.3"}});
        self.make(HOME, body).await
    }

    pub async fn control_plane(&self) -> ControlPlaneKubeadmUpgrade {
        self.make(HOME, serde_json::to_value(control_plane_body("edge-1-cp")).unwrap())
            .await
    }

    pub async fn workers(&self) -> WorkersKubeadmUpgrade {
        self.make(HOME, workers_body("edge-1-workers")).await
    }

    pub async fn node_upgrade(&self, node: &Node) -> NodeKubeadmUpgrade {
        self.make(HOME, node_upgrade_body("worker-1-up", node)).await
    }
}

pub fn control_plane_body(name: &str) -> Value {
    json!({
        "apiVersion": "afloat.dev/v1alpha1", "kind": "ControlPlaneKubeadmUpgrade",
        "metadata": {"name": name, "namespace": HOME, "labels": {labels::UPGRADE_UID: "u-1"}},
        "spec": {"kubernetesVersion": "v1.36.3", "kubeletVersion": "v1.36.3", "machinesRequireUpgrade": [],
                 "kubeadmClusterConfig": "kind: ClusterConfiguration"},
    })
}

pub fn workers_body(name: &str) -> Value {
    let mut body = control_plane_body(name);
    body["kind"] = json!("WorkersKubeadmUpgrade");
    body["spec"].as_object_mut().unwrap().remove("kubeadmClusterConfig");
    body
}

pub fn node_upgrade_body(name: &str, node: &Node) -> Value {
    json!({
        "apiVersion": "afloat.dev/v1alpha1", "kind": "NodeKubeadmUpgrade",
        "metadata": {"name": name, "namespace": HOME, "labels": {labels::UPGRADE_UID: "u-1"},
                     "finalizers": [names::FINALIZER, "example.com/other"]},
        "spec": {
            "node": {"name": node.metadata.name, "uid": node.metadata.uid}, "role": "Worker",
            "kubernetesVersion": "v1.36.3", "kubeletVersion": "v1.36.3", "attempt": 1, "desired": "Staged",
            "steps": [{"name": "kubelet", "image": "registry.example/afloat:1", "args": ["node", "kubelet"]}],
        },
    })
}

pub fn target(object: &impl Resource<DynamicType = ()>) -> Target {
    target_of(object.meta())
}

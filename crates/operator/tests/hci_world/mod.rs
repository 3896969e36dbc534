//! A cluster of Harvester on an API server in memory, with an operator at work on it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use afloat_operator::hci::{HciOptions, Place, ReleaseSource};
use afloat_operator::snapshot::hci::foreign_definitions;
use afloat_operator::{OperatorConfig, OperatorError, run};
use futures::StreamExt as _;
use futures::future::BoxFuture;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::runtime::{WatchStreamExt as _, watcher};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::common::Cluster;

pub const NAME: &str = "hvst-upgrade-x7k2p";
pub const PAUSE: &str = "harvesterhci.io/node-upgrade-pause";
const SYSTEM: &str = "harvester-system";
pub const RELEASE: &str = "harvester: v1.7.0\nos: Harvester v1.7.0\nkubernetes: v1.34.1+rke2r1\nrancher: v2.12.2\n";

struct Served;

impl ReleaseSource for Served {
    fn fetch(&self, _: &Place) -> BoxFuture<'static, Result<String, String>> {
        Box::pin(async { Ok(RELEASE.to_owned()) })
    }
}

pub struct HciCluster {
    nodes: usize,
    cluster: Cluster,
    stop: oneshot::Sender<()>,
    operator: tokio::task::JoinHandle<Result<(), OperatorError>>,
}

impl HciCluster {
    pub async fn new(nodes: usize) -> Self {
        Self::with(nodes, Some(Arc::new(Served))).await
    }

    /// Repositories are read as they are outside of tests.
    pub async fn reading_for_real(nodes: usize) -> Self {
        Self::with(nodes, None).await
    }

    async fn with(nodes: usize, source: Option<Arc<dyn ReleaseSource>>) -> Self {
        let cluster = Cluster::new().await;
        let definitions: Api<CustomResourceDefinition> = Api::all(cluster.client.clone());
        for definition in afloat_api::crds::harvester().into_iter().chain(foreign_definitions()) {
            definitions.create(&PostParams::default(), &definition).await.unwrap();
        }
        for namespace in [SYSTEM, "fleet-local", "longhorn-system"] {
            let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
            create(&cluster, "v1", "namespaces", "", body).await;
        }
        for number in 1..=nodes {
            let name = format!("node-{number}");
            cluster.node(&name, json!({"harvesterhci.io/managed": "true"})).await;
            let info =
                json!({"status": {"nodeInfo": {"osImage": "Harvester v1.6.0", "kubeletVersion": "v1.33.5+rke2r1"}}});
            cluster
                .nodes()
                .patch_status(&name, &PatchParams::default(), &Patch::Merge(info))
                .await
                .unwrap();
            machine(&cluster, &name).await;
        }
        let local = json!({
            "metadata": {"name": "local"},
            "spec": {"kubernetesVersion": "v1.33.5+rke2r1", "rkeConfig": {
                "provisionGeneration": 3, "registries": {"kept": true}, "upgradeStrategy": {"workerConcurrency": "3"},
            }},
        });
        create(&cluster, "provisioning.cattle.io/v1", "clusters", "fleet-local", local).await;
        let capi = json!({"metadata": {"name": "local"}, "spec": {}, "status": {"phase": "Provisioned"}});
        create(&cluster, "cluster.x-k8s.io/v1beta1", "clusters", "fleet-local", capi).await;
        let version = json!({"metadata": {"name": "v1.7.0"}, "spec": {"isoURL": "https://example.com/harvester.iso"}});
        create(&cluster, "harvesterhci.io/v1beta1", "versions", SYSTEM, version).await;
        let runs = json!({"metadata": {"name": "server-version"}, "value": "v1.6.0"});
        create(&cluster, "harvesterhci.io/v1beta1", "settings", "", runs).await;
        let (stop, stopped) = oneshot::channel::<()>();
        let config = OperatorConfig {
            hci: HciOptions {
                source,
                ..HciOptions::default()
            },
            ..cluster.operator()
        };
        let operator = tokio::spawn(run(config, async {
            let _told = stopped.await;
        }));
        Self {
            nodes,
            cluster,
            stop,
            operator,
        }
    }

    pub async fn stop(self) {
        self.stop.send(()).unwrap();
        self.operator.await.unwrap().unwrap();
    }

    pub async fn get(&self, version: &str, plural: &str, namespace: &str, name: &str) -> Value {
        let object = dynamic(&self.cluster, version, plural, namespace)
            .get_opt(name)
            .await
            .unwrap();
        object.map_or(Value::Null, |object| serde_json::to_value(object).unwrap())
    }

    async fn patch(&self, version: &str, plural: &str, namespace: &str, name: &str, body: Value) {
        let api = dynamic(&self.cluster, version, plural, namespace);
        api.patch(name, &PatchParams::default(), &Patch::Merge(body))
            .await
            .unwrap();
    }

    /// Waits until something is so.
    pub async fn until(&self, what: &str, holds: impl AsyncFn() -> bool) {
        for _ in 0..600 {
            if holds().await {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!(
            "not reached: {what}; the upgrade is {:#}",
            self.upgrade().await["status"]
        );
    }

    pub async fn set(&self, name: &str, value: &str) {
        let body = json!({"metadata": {"name": name}, "value": value});
        create(&self.cluster, "harvesterhci.io/v1beta1", "settings", "", body).await;
    }

    /// Creates the Upgrade, and plays Harvester's parts until the repository stands: the log, the image, the Deployment.
    pub async fn create_upgrade(&self) {
        self.create_upgrade_with(json!({})).await;
        let (client, repo) = (self.cluster.client.clone(), format!("upgrade-repo-{NAME}"));
        tokio::spawn(async move {
            let images: Api<DynamicObject> = Api::namespaced_with(
                client.clone(),
                SYSTEM,
                &resource("harvesterhci.io/v1beta1", "virtualmachineimages"),
            );
            let imported = json!({"status": {"conditions": [{"type": "Imported", "status": "True"}]}});
            eventually(&images, NAME, &imported, false).await;
            let deployments: Api<DynamicObject> =
                Api::namespaced_with(client, SYSTEM, &resource("apps/v1", "deployments"));
            let ready = json!({"status": {"replicas": 2, "readyReplicas": 2}});
            eventually(&deployments, &repo, &ready, true).await;
        });
    }

    /// Creates the Upgrade with annotations, and plays nobody.
    pub async fn create_upgrade_with(&self, annotations: Value) {
        let metadata = json!({"name": NAME, "annotations": annotations});
        let body = json!({"metadata": metadata, "spec": {"version": "v1.7.0", "logEnabled": false}});
        create(&self.cluster, "harvesterhci.io/v1beta1", "upgrades", SYSTEM, body).await;
    }

    pub async fn job(&self, name: &str) -> Value {
        self.get("batch/v1", "jobs", SYSTEM, name).await
    }

    pub async fn delete_upgrade(&self) {
        let api = dynamic(&self.cluster, "harvesterhci.io/v1beta1", "upgrades", SYSTEM);
        api.delete(NAME, &DeleteParams::default()).await.unwrap();
    }

    pub async fn upgrade(&self) -> Value {
        self.get("harvesterhci.io/v1beta1", "upgrades", SYSTEM, NAME).await
    }

    pub async fn until_state(&self, node: &str, state: &str) {
        self.until(&format!("{node} {state}"), async || {
            self.upgrade().await["status"]["nodeStatuses"][node]["state"] == state
        })
        .await;
    }

    fn jobs(&self) -> Api<Job> {
        Api::namespaced(self.cluster.client.clone(), SYSTEM)
    }

    pub async fn has_job(&self, name: &str) -> bool {
        self.jobs().get_opt(name).await.unwrap().is_some()
    }

    /// A Job does its work, once it is there.
    pub async fn complete(&self, name: &str) {
        self.until(name, async || self.has_job(name).await).await;
        let now = format!("{:.0}", jiff::Timestamp::now());
        let status = json!({"status": {
            "succeeded": 1, "startTime": now, "completionTime": now,
            "conditions": [
                {"type": "SuccessCriteriaMet", "status": "True", "lastTransitionTime": now},
                {"type": "Complete", "status": "True", "lastTransitionTime": now},
            ],
        }});
        self.jobs()
            .patch_status(name, &PatchParams::default(), &Patch::Merge(status))
            .await
            .unwrap();
    }

    /// The Jobs that hold multus on all nodes (`apply`), or let it go (`remove`), do their work.
    pub async fn multus(&self, what: &str) {
        for number in 1..=self.nodes {
            self.complete(&format!("{NAME}-skip-manifests-{what}-node-{number}"))
                .await;
        }
    }

    /// Ends when a Job of this name appears.
    pub async fn watch_job(&self, name: &str) -> oneshot::Receiver<()> {
        let (appeared, waits) = oneshot::channel();
        let (ready, listed) = oneshot::channel::<()>();
        let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
        let jobs = self.jobs();
        tokio::spawn(async move {
            let mut ready = Some(ready);
            let mut events = std::pin::pin!(watcher(jobs, config).default_backoff());
            while let Some(event) = events.next().await {
                match event {
                    Ok(watcher::Event::InitDone) => {
                        if let Some(ready) = ready.take() {
                            let _listens = ready.send(());
                        }
                    }
                    Ok(watcher::Event::Apply(_)) => {
                        let _waits = appeared.send(());
                        return;
                    }
                    _ => {}
                }
            }
        });
        listed.await.unwrap();
        waits
    }

    pub async fn node_annotation(&self, node: &str, key: &str) -> Option<String> {
        let node: Node = self.cluster.nodes().get(node).await.unwrap();
        let all: BTreeMap<String, String> = node.metadata.annotations.unwrap_or_default();
        all.get(key).cloned()
    }

    pub async fn unpause(&self, node: &str) {
        let body = json!({"metadata": {"annotations": {PAUSE: null}}});
        self.cluster
            .nodes()
            .patch(node, &PatchParams::default(), &Patch::Merge(body))
            .await
            .unwrap();
    }

    async fn secret(&self, node: &str, key: &str, value: &str) {
        let body = json!({"metadata": {"annotations": {key: value}}});
        self.patch(
            "v1",
            "secrets",
            "fleet-local",
            &format!("custom-{node}-machine-plan"),
            body,
        )
        .await;
    }

    async fn until_answered(&self, node: &str, key: &str) {
        self.until(&format!("{key} of {node}"), async || {
            let name = format!("custom-{node}-machine-plan");
            let secret = self.get("v1", "secrets", "fleet-local", &name).await;
            secret["metadata"]["annotations"][key] == "drain-1"
        })
        .await;
    }

    pub async fn rancher_asks(&self, node: &str) {
        self.until("the node phase", async || {
            self.upgrade().await["metadata"]["labels"]["harvesterhci.io/upgradeState"] == "UpgradingNodes"
        })
        .await;
        let cordon = json!({"spec": {"unschedulable": true}});
        self.cluster
            .nodes()
            .patch(node, &PatchParams::default(), &Patch::Merge(cordon))
            .await
            .unwrap();
        self.secret(node, "rke.cattle.io/pre-drain", "drain-1").await;
    }

    pub async fn take_through(&self, node: &str) {
        self.rancher_asks(node).await;
        self.finish(node).await;
    }

    async fn reports(&self, node: &str, info: Value) {
        let body = json!({"status": {"nodeInfo": info}});
        self.cluster
            .nodes()
            .patch_status(node, &PatchParams::default(), &Patch::Merge(body))
            .await
            .unwrap();
    }

    pub async fn finish(&self, node: &str) {
        self.complete(&format!("{NAME}-pre-drain-{node}")).await;
        self.until_answered(node, "harvesterhci.io/pre-hook").await;
        self.reports(node, json!({"kubeletVersion": "v1.34.1+rke2r1"})).await;
        self.secret(node, "rke.cattle.io/post-drain", "drain-1").await;
        self.complete(&format!("{NAME}-post-drain-{node}")).await;
        self.until_state(node, "Waiting Reboot").await;
        self.until("the mark", async || {
            self.node_annotation(node, "harvesterhci.io/pendingOSImage")
                .await
                .as_deref()
                == Some("Harvester v1.7.0")
        })
        .await;
        self.reports(node, json!({"osImage": "Harvester v1.7.0"})).await;
        self.until_answered(node, "harvesterhci.io/post-hook").await;
        let uncordon = json!({"spec": {"unschedulable": null}});
        self.cluster
            .nodes()
            .patch(node, &PatchParams::default(), &Patch::Merge(uncordon))
            .await
            .unwrap();
        self.until_state(node, "Succeeded").await;
    }

    pub async fn run_upstream(&self) {
        let labels = json!({"app": "harvester"});
        let body = json!({
            "metadata": {"name": "harvester"},
            "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": {
                "metadata": {"labels": labels}, "spec": {"containers": [{"name": "apiserver", "image": "harvester"}]},
            }},
        });
        create(&self.cluster, "apps/v1", "deployments", SYSTEM, body).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
    }

    pub async fn switch_upstream_off(&self) {
        let body = json!({"metadata": {"annotations": {"afloat.dev/harvester-upgrades": "off"}}});
        self.patch("apps/v1", "deployments", SYSTEM, "harvester", body).await;
    }

    pub async fn has_event(&self, words: &str) -> bool {
        let api = dynamic(&self.cluster, "events.k8s.io/v1", "events", SYSTEM);
        let events = api.list(&kube::api::ListParams::default()).await.unwrap();
        events
            .items
            .iter()
            .any(|event| event.data["note"].as_str().is_some_and(|note| note.contains(words)))
    }
}

async fn eventually(api: &Api<DynamicObject>, name: &str, body: &Value, subresource: bool) {
    for _ in 0..600 {
        let (params, patch) = (PatchParams::default(), Patch::Merge(body));
        let done = if subresource {
            api.patch_status(name, &params, &patch).await
        } else {
            api.patch(name, &params, &patch).await
        };
        if done.is_ok() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn machine(cluster: &Cluster, node: &str) {
    let name = format!("custom-{node}");
    let body =
        json!({"metadata": {"name": name}, "spec": {}, "status": {"phase": "Running", "nodeRef": {"name": node}}});
    create(cluster, "cluster.x-k8s.io/v1beta1", "machines", "fleet-local", body).await;
    let secret = json!({
        "metadata": {"name": format!("{name}-machine-plan"), "labels": {"rke.cattle.io/machine-name": name}},
        "type": "rke.cattle.io/machine-plan",
        "data": {"plan": "c2VjcmV0"},
    });
    create(cluster, "v1", "secrets", "fleet-local", secret).await;
}

fn resource(version: &str, plural: &str) -> ApiResource {
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    let kind = match plural {
        "settings" => "Setting",
        "versions" => "Version",
        "upgrades" => "Upgrade",
        "clusters" => "Cluster",
        "machines" => "Machine",
        "namespaces" => "Namespace",
        "secrets" => "Secret",
        "deployments" => "Deployment",
        "events" => "Event",
        _ => "VirtualMachineImage",
    };
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural)
}

fn dynamic(cluster: &Cluster, version: &str, plural: &str, namespace: &str) -> Api<DynamicObject> {
    let resource = resource(version, plural);
    match namespace {
        "" => Api::all_with(cluster.client.clone(), &resource),
        namespace => Api::namespaced_with(cluster.client.clone(), namespace, &resource),
    }
}

async fn create(cluster: &Cluster, version: &str, plural: &str, namespace: &str, mut body: Value) {
    body["apiVersion"] = json!(version);
    body["kind"] = json!(resource(version, plural).kind);
    let status = body["status"].take();
    let object: DynamicObject = serde_json::from_value(body).unwrap();
    let api = dynamic(cluster, version, plural, namespace);
    api.create(&PostParams::default(), &object).await.unwrap();
    if !status.is_null() {
        let (params, patch) = (PatchParams::default(), json!({ "status": status }));
        let name = object.metadata.name.unwrap();
        api.patch_status(&name, &params, &Patch::Merge(patch)).await.unwrap();
    }
}

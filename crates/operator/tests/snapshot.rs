//! What the watches make of a cluster: objects come, change and go, and the view follows.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on says so by failing"
)]

mod common;

use std::time::Duration;

use afloat_core::view::{Key, NodeName, PodPhase, View, WorkloadKind};
use afloat_operator::snapshot::feed::Feed;
use afloat_operator::snapshot::{Keeper, Kind, News};
use common::{Cluster, HOME};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::core::DynamicObject;
use serde_json::{Value, json};
use strum::IntoEnumIterator as _;

struct Seen {
    feed: Feed,
    keeper: Keeper,
    unreadable: Vec<String>,
}

impl Seen {
    fn start(cluster: &Cluster) -> Self {
        Self {
            feed: Feed::start(&cluster.client, HOME),
            keeper: Keeper::new(HOME),
            unreadable: Vec::new(),
        }
    }

    /// Takes in what the watches say until `wanted` holds.
    async fn until(&mut self, what: &str, wanted: impl Fn(&Keeper) -> bool) {
        let waiting = async {
            while !wanted(&self.keeper) {
                let news = self.feed.next().await.unwrap();
                if let News::Unreadable { problem, .. } = &news {
                    self.unreadable.push(problem.to_string());
                }
                self.keeper.take(news);
            }
        };
        let ended = tokio::time::timeout(Duration::from_secs(20), waiting).await;
        assert!(ended.is_ok(), "{what} was not seen");
    }

    fn view(&self) -> &View {
        self.keeper.view()
    }
}

async fn furnish(cluster: &Cluster) {
    let selector = json!({"matchLabels": {"app": "web"}});
    let template =
        json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "main", "image": "web:1"}]}});
    let workload = |name: &str| json!({"metadata": {"name": name}, "spec": {"replicas": 2, "serviceName": "web", "selector": selector, "template": template}});
    let mut plain = workload("web");
    plain["spec"].as_object_mut().unwrap().remove("serviceName");
    cluster.make::<Deployment>("shop", plain.clone()).await;
    cluster.make::<ReplicaSet>("shop", plain).await;
    cluster.make::<StatefulSet>("shop", workload("db")).await;
    let budget = json!({"metadata": {"name": "web"}, "spec": {"minAvailable": 1, "selector": selector}});
    cluster.make::<PodDisruptionBudget>("shop", budget).await;
    let volume: PersistentVolume = serde_json::from_value(json!({
        "metadata": {"name": "pv-1"},
        "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "local": {"path": "/data"},
            "claimRef": {"namespace": "shop", "name": "data"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions":
                [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["worker-1"]}]}]}}},
    }))
    .unwrap();
    let volumes: Api<PersistentVolume> = Api::all(cluster.client.clone());
    volumes.create(&PostParams::default(), &volume).await.unwrap();
    let claim = json!({"metadata": {"name": "data"}, "spec": {"volumeName": "pv-1", "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}}}});
    cluster.make::<PersistentVolumeClaim>("shop", claim).await;
    let lease = json!({"metadata": {"name": "plndr-cp-lock"}, "spec": {"holderIdentity": "cp-1"}});
    cluster.make::<Lease>("kube-system", lease).await;
    let images = json!({"metadata": {"name": "afloat-upgrader-images"}, "data": {"v1.36.3": "registry.example/afloat:v1.36.3", "new": "x"}});
    cluster.make::<ConfigMap>(HOME, images).await;
    let config =
        json!({"metadata": {"name": "kubeadm-config"}, "data": {"ClusterConfiguration": "kind: ClusterConfiguration"}});
    cluster.make::<ConfigMap>("kube-system", config).await;
}

#[tokio::test]
async fn everything_that_is_there_is_seen() {
    let cluster = Cluster::new().await;
    let node = cluster
        .node("worker-1", json!({"node-role.kubernetes.io/control-plane": ""}))
        .await;
    cluster.pod("shop", "web-1", "worker-1").await;
    furnish(&cluster).await;
    cluster.upgrade().await;
    cluster.control_plane().await;
    cluster.workers().await;
    cluster.node_upgrade(&node).await;

    let mut seen = Seen::start(&cluster);
    seen.until("every kind", |keeper| keeper.complete(Kind::iter())).await;
    let view = seen.view();
    let node = &view.nodes["worker-1"];
    assert!(node.control_plane && node.ready.ready && node.allocatable.cpu_milli == 4000);
    assert_eq!(node.kubelet_version.as_ref().unwrap().to_string(), "v1.35.4");
    assert_eq!(view.pods_on(&NodeName::from("worker-1")).count(), 1);
    assert_eq!(view.budgets.len(), 1);
    for (kind, name) in [
        (WorkloadKind::Deployment, "web"),
        (WorkloadKind::ReplicaSet, "web"),
        (WorkloadKind::StatefulSet, "db"),
    ] {
        assert_eq!(view.workloads[&(kind, Key::new("shop", name))].replicas, 2, "{kind:?}");
    }
    assert_eq!(view.claims[&Key::new("shop", "data")].node_affinity.len(), 1);
    assert_eq!(&*view.namespaces["shop"]["kubernetes.io/metadata.name"], "shop");
    assert_eq!(view.vip_holder, Some(NodeName::from("cp-1")));
    assert_eq!(view.images.len(), 1, "the line that is no version is left out");
    assert_eq!(view.kubeadm_config.as_deref(), Some("kind: ClusterConfiguration"));
    let ours = (
        view.upgrades.len(),
        view.control_planes.len(),
        view.workers.len(),
        view.node_upgrades().len(),
    );
    assert_eq!(ours, (1, 1, 1, 1));
    assert!(seen.unreadable.is_empty(), "{:?}", seen.unreadable);
}

#[tokio::test]
async fn the_view_follows_what_happens() {
    let cluster = Cluster::new().await;
    let mut seen = Seen::start(&cluster);
    seen.until("every kind", |keeper| keeper.complete(Kind::iter())).await;
    cluster.pod("shop", "web-1", "worker-1").await;
    let key = Key::new("shop", "web-1");
    seen.until("the pod", |keeper| keeper.view().pod(&key).is_some()).await;
    let running = json!({"status": {"phase": "Running"}});
    let pods = cluster.api::<Pod>("shop");
    pods.patch_status("web-1", &PatchParams::default(), &Patch::Merge(running))
        .await
        .unwrap();
    seen.until("that it runs", |keeper| {
        keeper.view().pod(&key).unwrap().phase == PodPhase::Running
    })
    .await;
    pods.delete("web-1", &DeleteParams::default().grace_period(0))
        .await
        .unwrap();
    seen.until("its end", |keeper| keeper.view().pod(&key).is_none()).await;
}

/// An upgrade that the definition accepted in earlier days, and that cannot be read now.
async fn store_unreadable(cluster: &Cluster, name: &str) {
    use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
    let definitions: Api<CustomResourceDefinition> = Api::all(cluster.client.clone());
    let mut definition = definitions.get("clusterupgrades.afloat.dev").await.unwrap();
    let strict = definition.spec.versions[0].schema.clone();
    let open: Value = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    definition.spec.versions[0].schema = serde_json::from_value(open).unwrap();
    definition.spec.versions[0].selectable_fields = None;
    let mut definition = definitions
        .replace("clusterupgrades.afloat.dev", &PostParams::default(), &definition)
        .await
        .unwrap();
    let resource = kube::core::ApiResource::erase::<afloat_api::ClusterUpgrade>(&());
    let api: Api<DynamicObject> = Api::namespaced_with(cluster.client.clone(), HOME, &resource);
    let mut odd = DynamicObject::new(name, &resource);
    odd.data = json!({"spec": {"kubernetesVersion": 36}});
    api.create(&PostParams::default(), &odd).await.unwrap();
    definition.spec.versions[0].schema = strict;
    definitions
        .replace("clusterupgrades.afloat.dev", &PostParams::default(), &definition)
        .await
        .unwrap();
}

#[tokio::test]
async fn an_object_that_cannot_be_read_breaks_nothing() {
    let cluster = Cluster::new().await;
    store_unreadable(&cluster, "odd").await;
    let mut seen = Seen::start(&cluster);
    seen.until("every kind", |keeper| keeper.complete(Kind::iter())).await;
    assert_eq!(seen.unreadable.len(), 1, "{:?}", seen.unreadable);
    assert!(
        seen.unreadable[0].starts_with("afloat/odd cannot be read"),
        "{:?}",
        seen.unreadable
    );
    assert!(seen.view().upgrades.is_empty());
    cluster.upgrade().await;
    seen.until("the one after it", |keeper| keeper.view().upgrades.len() == 1)
        .await;
}

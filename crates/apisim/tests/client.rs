//! The server under a real `kube::Client`: what our controllers will do all day.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by failing")]

use std::sync::Arc;

use afloat_apisim::gc::Collector;
use afloat_apisim::{ApiServer, ManualClock, Options};
use futures::TryStreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{DeleteParams, EvictParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::{Api, Resource, ResourceExt};
use serde_json::json;

fn server() -> ApiServer {
    let clock = ManualClock::new("2026-01-02T03:04:05Z".parse().unwrap());
    ApiServer::new(Options {
        clock: Arc::new(clock),
        seed: 7,
        ..Options::default()
    })
}

fn pod(name: &str, labels: &serde_json::Value) -> Pod {
    serde_json::from_value(json!({
        "metadata": {"name": name, "labels": labels},
        "spec": {"containers": [{"name": "main", "image": "registry.example/app:1"}]},
    }))
    .unwrap()
}

#[tokio::test]
async fn an_object_is_created_read_patched_and_deleted() {
    let pods: Api<Pod> = Api::default_namespaced(server().client());
    let made = pods
        .create(&PostParams::default(), &pod("web", &json!({"app": "web"})))
        .await
        .unwrap();
    assert_eq!(
        made.spec.as_ref().unwrap().restart_policy.as_deref(),
        Some("Always"),
        "defaults are filled in"
    );
    assert_eq!(made.status.as_ref().unwrap().phase.as_deref(), Some("Pending"));
    let patch = Patch::Merge(json!({"metadata": {"labels": {"tier": "front"}}}));
    let patched = pods.patch("web", &PatchParams::default(), &patch).await.unwrap();
    assert_eq!(patched.labels()["tier"], "front");
    assert_ne!(patched.resource_version(), made.resource_version());
    let again = pods.patch("web", &PatchParams::default(), &patch).await.unwrap();
    assert_eq!(
        again.resource_version(),
        patched.resource_version(),
        "a change of nothing is no write"
    );
    pods.delete("web", &DeleteParams::default()).await.unwrap();
    assert!(
        pods.get_opt("web").await.unwrap().is_none(),
        "an unscheduled pod goes at once"
    );
}

#[tokio::test]
async fn a_stale_version_is_refused() {
    let maps: Api<ConfigMap> = Api::default_namespaced(server().client());
    let config = |value: &str| -> ConfigMap {
        serde_json::from_value(json!({"metadata": {"name": "c"}, "data": {"k": value}})).unwrap()
    };
    let first = maps.create(&PostParams::default(), &config("1")).await.unwrap();
    let mut second = config("2");
    second.meta_mut().resource_version = first.resource_version();
    maps.replace("c", &PostParams::default(), &second).await.unwrap();
    let refused = maps.replace("c", &PostParams::default(), &second).await.unwrap_err();
    assert!(matches!(refused, kube::Error::Api(status) if status.is_conflict()));
}

#[tokio::test]
async fn a_watch_sees_what_happens() {
    let maps: Api<ConfigMap> = Api::default_namespaced(server().client());
    let mut events = Box::pin(
        maps.watch(&WatchParams::default().labels("watched"), "0")
            .await
            .unwrap(),
    );
    for (name, labels) in [("a", json!({"watched": "yes"})), ("b", json!({}))] {
        let config = serde_json::from_value(json!({"metadata": {"name": name, "labels": labels}})).unwrap();
        maps.create(&PostParams::default(), &config).await.unwrap();
    }
    let unlabel = Patch::Merge(json!({"metadata": {"labels": {"watched": null}}}));
    maps.patch("a", &PatchParams::default(), &unlabel).await.unwrap();
    let added = events.try_next().await.unwrap().unwrap();
    assert!(matches!(added, WatchEvent::Added(config) if config.name_any() == "a"));
    let gone = events.try_next().await.unwrap().unwrap();
    assert!(
        matches!(gone, WatchEvent::Deleted(config) if config.name_any() == "a"),
        "it went out of sight"
    );
}

#[tokio::test]
async fn pages_show_one_consistent_state() {
    let maps: Api<ConfigMap> = Api::default_namespaced(server().client());
    for index in 0..5 {
        let config = serde_json::from_value(json!({"metadata": {"name": format!("c{index}")}})).unwrap();
        maps.create(&PostParams::default(), &config).await.unwrap();
    }
    let first = maps.list(&ListParams::default().limit(2)).await.unwrap();
    assert_eq!(first.metadata.remaining_item_count, Some(3));
    maps.delete("c4", &DeleteParams::default()).await.unwrap();
    let token = first.metadata.continue_.unwrap();
    let rest = maps.list(&ListParams::default().continue_token(&token)).await.unwrap();
    let names: Vec<String> = rest.items.iter().map(ResourceExt::name_any).collect();
    assert_eq!(names, ["c2", "c3", "c4"], "the deletion came after the first page");
}

#[tokio::test]
async fn a_budget_holds_back_an_eviction() {
    let server = server();
    let pods: Api<Pod> = Api::default_namespaced(server.client());
    let budgets: Api<PodDisruptionBudget> = Api::default_namespaced(server.client());
    pods.create(&PostParams::default(), &pod("web", &json!({"app": "web"})))
        .await
        .unwrap();
    let running = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
    pods.patch_status("web", &PatchParams::default(), &Patch::Merge(running))
        .await
        .unwrap();
    let budget = serde_json::from_value(json!({
        "metadata": {"name": "web"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}},
    }))
    .unwrap();
    budgets.create(&PostParams::default(), &budget).await.unwrap();
    let observed = |allowed: i32| {
        Patch::Merge(json!({"status": {
            "observedGeneration": 1, "disruptionsAllowed": allowed, "currentHealthy": 1, "desiredHealthy": 1,
            "expectedPods": 1,
        }}))
    };
    budgets
        .patch_status("web", &PatchParams::default(), &observed(0))
        .await
        .unwrap();
    let refused = pods.evict("web", &EvictParams::default()).await.unwrap_err();
    assert!(
        matches!(&refused, kube::Error::Api(status) if status.code == 429),
        "{refused}"
    );
    budgets
        .patch_status("web", &PatchParams::default(), &observed(1))
        .await
        .unwrap();
    pods.evict("web", &EvictParams::default()).await.unwrap();
    assert!(pods.get_opt("web").await.unwrap().is_none());
    let left = budgets.get("web").await.unwrap().status.unwrap();
    assert_eq!(left.disruptions_allowed, 0, "the eviction was taken from the budget");
    assert!(left.disrupted_pods.unwrap().contains_key("web"));
}

#[tokio::test]
async fn dependents_follow_their_owner() {
    let server = server();
    let maps: Api<ConfigMap> = Api::default_namespaced(server.client());
    let owner = serde_json::from_value(json!({"metadata": {"name": "owner"}})).unwrap();
    let owner: ConfigMap = maps.create(&PostParams::default(), &owner).await.unwrap();
    let reference = owner.owner_ref(&()).unwrap();
    for name in ["one", "two"] {
        let dependent =
            serde_json::from_value(json!({"metadata": {"name": name, "ownerReferences": [reference]}})).unwrap();
        maps.create(&PostParams::default(), &dependent).await.unwrap();
    }
    let mut collector = Collector::new(server.clone());
    assert_eq!(collector.settle(10), 0, "owned objects stay");
    maps.delete("owner", &DeleteParams::default()).await.unwrap();
    assert_eq!(collector.settle(10), 2);
    assert!(maps.list(&ListParams::default()).await.unwrap().items.is_empty());
}

#[tokio::test]
async fn an_owner_deleted_in_the_foreground_waits_for_its_dependents() {
    let server = server();
    let maps: Api<ConfigMap> = Api::default_namespaced(server.client());
    let owner = serde_json::from_value(json!({"metadata": {"name": "owner"}})).unwrap();
    let owner: ConfigMap = maps.create(&PostParams::default(), &owner).await.unwrap();
    let mut reference = owner.owner_ref(&()).unwrap();
    reference.block_owner_deletion = Some(true);
    let dependent = serde_json::from_value(json!({
        "metadata": {"name": "held", "ownerReferences": [reference], "finalizers": ["example.com/hold"]},
    }))
    .unwrap();
    maps.create(&PostParams::default(), &dependent).await.unwrap();
    maps.delete("owner", &DeleteParams::foreground()).await.unwrap();
    let mut collector = Collector::new(server.clone());
    collector.settle(10);
    assert!(maps.get("owner").await.unwrap().metadata.deletion_timestamp.is_some());
    assert!(maps.get("held").await.unwrap().metadata.deletion_timestamp.is_some());
    let release = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    maps.patch("held", &PatchParams::default(), &release).await.unwrap();
    collector.settle(10);
    assert!(maps.list(&ListParams::default()).await.unwrap().items.is_empty());
}

#[tokio::test]
async fn a_namespace_goes_with_its_content() {
    let server = server();
    let namespaces: Api<Namespace> = Api::all(server.client());
    let namespace = serde_json::from_value(json!({"metadata": {"name": "shop"}})).unwrap();
    namespaces.create(&PostParams::default(), &namespace).await.unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(server.client(), "shop");
    let config = serde_json::from_value(json!({"metadata": {"name": "c"}})).unwrap();
    maps.create(&PostParams::default(), &config).await.unwrap();
    namespaces.delete("shop", &DeleteParams::default()).await.unwrap();
    let refused = maps.create(&PostParams::default(), &config).await.unwrap_err();
    assert!(matches!(refused, kube::Error::Api(status) if status.is_forbidden()));
    Collector::new(server.clone()).settle(10);
    assert!(namespaces.get_opt("shop").await.unwrap().is_none());
}

#[tokio::test]
async fn the_same_seed_gives_the_same_bytes() {
    async fn run() -> String {
        let nodes: Api<Node> = Api::all(server().client());
        let node = serde_json::from_value(json!({"metadata": {"generateName": "n-"}})).unwrap();
        serde_json::to_string(&nodes.create(&PostParams::default(), &node).await.unwrap()).unwrap()
    }
    assert_eq!(run().await, run().await);
}

#[tokio::test]
async fn real_clients_reach_it_over_https_with_the_token_only() {
    let running = afloat_apisim::https::serve(
        server(),
        afloat_apisim::https::Options {
            listen: "127.0.0.1:0".parse().unwrap(),
            token: "secret".into(),
        },
    )
    .await
    .unwrap();
    let connect = |text: String| async move {
        let kubeconfig = kube::config::Kubeconfig::from_yaml(&text).unwrap();
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &kube::config::KubeConfigOptions::default())
            .await
            .unwrap();
        kube::Client::try_from(config).unwrap()
    };
    let namespaces: Api<Namespace> = Api::all(connect(running.kubeconfig("test")).await);
    assert_eq!(namespaces.list(&ListParams::default()).await.unwrap().items.len(), 4);
    let stranger: Api<Namespace> = Api::all(connect(running.kubeconfig("test").replace("secret", "guess")).await);
    let refused = stranger.list(&ListParams::default()).await.unwrap_err();
    assert!(
        matches!(&refused, kube::Error::Api(status) if status.code == 401),
        "{refused}"
    );
    running.shutdown().await;
}

/// Sends a request as it is, and gives the body of the answer.
fn send(
    server: &ApiServer,
    method: &str,
    path: &str,
    content_type: &str,
    body: &serde_json::Value,
) -> serde_json::Value {
    let request = http::Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", content_type)
        .header("user-agent", "tester")
        .body(bytes::Bytes::from(body.to_string()))
        .unwrap();
    serde_json::from_slice(server.handle(request).bytes().unwrap()).unwrap()
}

const THINGS: &str = "/apis/example.com/v1/namespaces/default/things";

/// A server that knows a custom resource with a default and a scale, and one object of it.
fn server_with_a_thing() -> (ApiServer, serde_json::Value) {
    let server = server();
    let spec = json!({"type": "object", "properties": {
        "a": {"type": "string", "default": "b"}, "replicas": {"type": "integer", "default": 1},
    }});
    let status = json!({"type": "object", "properties": {"replicas": {"type": "integer"}}});
    let schema = json!({"type": "object", "properties": {"spec": spec, "status": status}});
    let scale = json!({"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"});
    let version = json!({
        "name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}, "scale": scale},
    });
    let definition = json!({
        "metadata": {"name": "things.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
            "versions": [version],
        },
    });
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    send(&server, "POST", path, "application/json", &definition);
    let thing = json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "t"}, "spec": {"a": "b"}});
    let made = send(
        &server,
        "POST",
        &format!("{THINGS}?fieldManager=zoe"),
        "application/json",
        &thing,
    );
    (server, made)
}

#[test]
fn an_unknown_field_in_a_patch_of_a_custom_resource_changes_nothing() {
    let (server, made) = server_with_a_thing();
    let patch = json!({"spec": {"unknown": 1}});
    let thing = format!("{THINGS}/t");
    let patched = send(&server, "PATCH", &thing, "application/merge-patch+json", &patch);
    assert_eq!(patched, made);
}

#[test]
fn after_a_scale_a_change_of_nothing_is_still_none() {
    let (server, _) = server_with_a_thing();
    let scale =
        json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": {"name": "t"}, "spec": {"replicas": 5}});
    let scaled = send(&server, "PUT", &format!("{THINGS}/t/scale"), "application/json", &scale);
    assert_eq!(scaled["spec"]["replicas"], 5, "{scaled}");
    let thing = format!("{THINGS}/t");
    let before = send(&server, "GET", &thing, "", &serde_json::Value::Null);
    let patch = json!([{"op": "remove", "path": "/spec/a"}]);
    let patched = send(
        &server,
        "PATCH",
        &format!("{thing}?fieldManager=zoe"),
        "application/json-patch+json",
        &patch,
    );
    assert_eq!(patched, before);
}

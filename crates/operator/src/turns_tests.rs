//! What becomes of a turn whose actions are refused.

use super::*;
use afloat_apisim::{ApiServer, Options};
use afloat_core::objects::target_of;
use afloat_core::view::{Key, Target, Uid};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;

async fn pod(client: &kube::Client, name: &str) -> Target {
    let api: Api<Pod> = Api::default_namespaced(client.clone());
    let body = json!({"metadata": {"name": name, "labels": {"app": name}},
        "spec": {"nodeName": "worker-1", "containers": [{"name": "main", "image": "web:1"}]}});
    let body = serde_json::from_value(body).unwrap();
    api.create(&PostParams::default(), &body).await.unwrap();
    let running = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
    let (params, patch) = (PatchParams::default(), Patch::Merge(running));
    target_of(&api.patch_status(name, &params, &patch).await.unwrap().metadata)
}

/// The eviction API refuses a pod under two budgets whatever they allow.
async fn budget(client: &kube::Client, name: &str, app: &str) {
    let body =
        json!({"metadata": {"name": name}, "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": app}}}});
    let api: Api<PodDisruptionBudget> = Api::default_namespaced(client.clone());
    api.create(&PostParams::default(), &serde_json::from_value(body).unwrap())
        .await
        .unwrap();
}

#[tokio::test]
async fn a_pod_that_cannot_be_evicted_keeps_none_after_it_but_ends_the_turn() {
    let client = ApiServer::new(Options::default()).client();
    let (stuck, free) = (pod(&client, "stuck").await, pod(&client, "free").await);
    budget(&client, "one", "stuck").await;
    budget(&client, "two", "stuck").await;
    let nodes: Api<Node> = Api::all(client.clone());
    let node = serde_json::from_value(json!({"metadata": {"name": "worker-1"}})).unwrap();
    let node = nodes.create(&PostParams::default(), &node).await.unwrap();
    let evict = |pod: &Target| Action::Evict {
        pod: pod.clone(),
        grace_seconds: None,
    };
    let cordon = Action::Cordon {
        node: target_of(&node.metadata),
        by: Uid::from("u"),
    };
    let decision = Decision {
        actions: vec![evict(&stuck), evict(&free), cordon],
        ..Decision::default()
    };
    let (sender, mut answers) = mpsc::unbounded_channel();
    let subject = Subject::Node(Key::new("afloat", "worker-1"));
    let finished = carry_out(Clients::of(client), Metrics::default(), sender, subject, decision).await;
    let refusal = finished.refusal.unwrap();
    assert_eq!((refusal.action, &*refusal.object.name), ("evict", "stuck"), "{refusal}");
    assert!(matches!(answers.recv().await, Some(Outcome::Evicting { pod, .. }) if pod == free));
    assert!(
        answers.recv().await.is_none(),
        "nothing but evictions comes after a refusal"
    );
}

//! What becomes of a turn whose actions are refused.

use super::*;
use afloat_apisim::{ApiServer, Options};
use afloat_core::action::Place;
use afloat_core::objects::target_of;
use afloat_core::view::{Key, NodeName, Target, Uid};
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

async fn node(client: &kube::Client, cordoned: bool) -> Target {
    let nodes: Api<Node> = Api::all(client.clone());
    let node = json!({"metadata": {"name": "worker-1"}, "spec": {"unschedulable": cordoned}});
    let node = serde_json::from_value(node).unwrap();
    target_of(&nodes.create(&PostParams::default(), &node).await.unwrap().metadata)
}

/// From a node that was seen cordoned, and by which upgrade.
fn evict_from(node: &Target, cordoned_by: Option<&str>, pod: &Target) -> Action {
    Action::Evict {
        pod: pod.clone(),
        grace_seconds: None,
        from: Place {
            node: NodeName::from(&*node.key.name),
            uid: node.uid.clone(),
            cordoned_by: cordoned_by.map(Uid::from),
        },
    }
}

fn evict(pod: &Target, node: &Target) -> Action {
    evict_from(node, None, pod)
}

async fn carried_out(client: kube::Client, actions: Vec<Action>) -> (Finished, mpsc::Receiver<Outcome>) {
    let decision = Decision {
        actions,
        ..Decision::default()
    };
    let (sender, answers) = mpsc::channel(ANSWERS);
    let subject = Subject::Node(Key::new("afloat", "worker-1"));
    let finished = carry_out(Clients::of(client), Metrics::default(), sender, subject, decision).await;
    (finished, answers)
}

#[tokio::test]
async fn a_pod_that_cannot_be_evicted_keeps_none_after_it_but_ends_the_turn() {
    let client = ApiServer::new(Options::default()).client();
    let (stuck, free) = (pod(&client, "stuck").await, pod(&client, "free").await);
    budget(&client, "one", "stuck").await;
    budget(&client, "two", "stuck").await;
    let node = node(&client, true).await;
    let cordon = Action::Cordon {
        node: node.clone(),
        by: Uid::from("u"),
    };
    let actions = vec![evict(&stuck, &node), evict(&free, &node), cordon];
    let (finished, mut answers) = carried_out(client, actions).await;
    let refusal = finished.refusal.unwrap();
    assert_eq!((refusal.action, &*refusal.object.name), ("evict", "stuck"), "{refusal}");
    assert!(matches!(answers.recv().await, Some(Outcome::Evicting { pod, .. }) if pod == free));
    assert!(
        answers.recv().await.is_none(),
        "nothing but evictions comes after a refusal"
    );
}

#[tokio::test]
async fn nobody_is_asked_to_leave_a_node_that_was_put_back_is_another_machine_or_is_cordoned_by_a_person() {
    let decided_on = |node: &Target| Target {
        uid: Uid::from("the one before"),
        ..node.clone()
    };
    for (cordoned, another, by, why) in [
        (false, false, None, "worker-1 is not cordoned any more"),
        (true, true, None, "worker-1 is another machine by now"),
        (true, false, Some("u"), "worker-1 is cordoned by somebody else by now"),
    ] {
        let client = ApiServer::new(Options::default()).client();
        let there = node(&client, cordoned).await;
        let pods = [pod(&client, "one").await, pod(&client, "two").await];
        let meant = if another { decided_on(&there) } else { there };
        let actions = pods.iter().map(|pod| evict_from(&meant, by, pod)).collect();
        let (finished, mut answers) = carried_out(client.clone(), actions).await;
        let refusal = finished.refusal.unwrap().to_string();
        assert!(refusal.contains(why), "{refusal}");
        assert!(answers.recv().await.is_none());
        let api: Api<Pod> = Api::default_namespaced(client);
        for name in ["one", "two"] {
            assert_eq!(api.get(name).await.unwrap().metadata.deletion_timestamp, None);
        }
    }
}

#[tokio::test]
async fn nobody_is_asked_to_leave_once_a_write_before_was_refused() {
    let client = ApiServer::new(Options::default()).client();
    let free = pod(&client, "free").await;
    let node = node(&client, true).await;
    let another = Target {
        uid: Uid::from("the one before"),
        ..node.clone()
    };
    let cordon = Action::Cordon {
        node: another,
        by: Uid::from("u"),
    };
    let (finished, mut answers) = carried_out(client, vec![cordon, evict(&free, &node)]).await;
    let refusal = finished.refusal.unwrap();
    assert_eq!(
        (refusal.action, &*refusal.object.name),
        ("cordon", "worker-1"),
        "{refusal}"
    );
    assert!(answers.recv().await.is_none(), "what was decided rests on that write");
}

#[tokio::test]
async fn a_turn_goes_on_as_its_answers_are_taken_in_and_keeps_no_more_of_them() {
    let client = ApiServer::new(Options::default()).client();
    let names = ["one", "two", "three"];
    let mut pods = Vec::new();
    for name in names {
        pods.push(pod(&client, name).await);
    }
    let node = node(&client, true).await;
    let decision = Decision {
        actions: pods.iter().map(|pod| evict(pod, &node)).collect(),
        ..Decision::default()
    };
    let (sender, mut answers) = mpsc::channel(1);
    let subject = Subject::Node(Key::new("afloat", "worker-1"));
    let turn = carry_out(Clients::of(client), Metrics::default(), sender, subject, decision);
    let taken_in = async {
        let mut count = 0;
        while answers.recv().await.is_some() {
            count += 1;
        }
        count
    };
    let (finished, count) = tokio::join!(turn, taken_in);
    assert!(finished.refusal.is_none());
    assert_eq!(count, names.len());
}

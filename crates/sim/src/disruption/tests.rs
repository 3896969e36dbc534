use super::*;
use crate::testing::{Stage, pod};

fn budget(rule: &str, value: &Value) -> Value {
    json!({
        "metadata": { "name": "web", "namespace": "shop" },
        "spec": { rule: value, "selector": { "matchLabels": { "app": "web" } } },
    })
}

fn deployment_of(replicas: i32) -> [(Kind, Value); 2] {
    let set = json!({ "metadata": {
        "name": "rs", "namespace": "shop",
        "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "deploy", "controller": true }],
    }, "spec": { "replicas": replicas, "selector": {} } });
    let deployment = json!({
        "metadata": { "name": "web", "namespace": "shop", "uid": "deploy" },
        "spec": { "replicas": replicas, "selector": {}, "template": {} },
    });
    [(Kind::ReplicaSet, set), (Kind::Deployment, deployment)]
}

/// What is written for a budget over `ready` ready and `unready` other pods of a Deployment with `replicas`.
fn status(rule: &str, value: &Value, replicas: i32, ready: usize, unready: usize) -> Value {
    let mut stage = Stage::new(Disruption);
    for (kind, object) in deployment_of(replicas) {
        stage.put(kind, object);
    }
    for index in 0..ready + unready {
        stage.put(
            Kind::Pod,
            pod(&format!("web-{index}"), "n1", index < ready, Some(("ReplicaSet", "rs"))),
        );
    }
    stage.put(Kind::PodDisruptionBudget, budget(rule, value));
    let mut requests = stage.look(Kind::PodDisruptionBudget, "shop", "web").requests;
    requests
        .pop()
        .and_then(|request| request.body)
        .map(|body| body["status"].clone())
        .unwrap_or_default()
}

#[test]
fn the_arithmetic_is_upstreams() {
    // rule, value, replicas, ready, unready -> expected, desired, allowed
    let cases = [
        ("minAvailable", json!(1), 2, 2, 0, (2, 1, 1)),
        ("minAvailable", json!(2), 2, 2, 0, (2, 2, 0)),
        ("minAvailable", json!(3), 2, 2, 0, (2, 3, 0)),
        ("minAvailable", json!("60%"), 3, 3, 0, (3, 2, 1)),
        ("minAvailable", json!("50%"), 3, 3, 0, (3, 2, 1)),
        ("maxUnavailable", json!(1), 3, 3, 0, (3, 2, 1)),
        ("maxUnavailable", json!(1), 3, 2, 1, (3, 2, 0)),
        ("maxUnavailable", json!("25%"), 4, 4, 0, (4, 3, 1)),
        // A share of an unavailability is rounded up as well: 1 of 3, not 0.
        ("maxUnavailable", json!("25%"), 3, 3, 0, (3, 2, 1)),
        // Pods that are not there yet count as expected, not as healthy.
        ("maxUnavailable", json!(1), 5, 3, 0, (5, 4, 0)),
        ("minAvailable", json!(0), 0, 0, 0, (0, 0, 0)),
    ];
    for (rule, value, replicas, ready, unready, (expected, desired, allowed)) in cases {
        let status = status(rule, &value, replicas, ready, unready);
        let found = (
            &status["expectedPods"],
            &status["desiredHealthy"],
            &status["disruptionsAllowed"],
        );
        assert_eq!(
            found,
            (&json!(expected), &json!(desired), &json!(allowed)),
            "{rule}={value} of {replicas}"
        );
        assert_eq!(status["currentHealthy"], json!(ready));
        let reason = if allowed > 0 {
            "SufficientPods"
        } else {
            "InsufficientPods"
        };
        assert_eq!(status["conditions"][0]["reason"], reason);
    }
}

#[test]
fn an_evicted_pod_counts_as_gone_for_two_minutes() {
    let mut stage = Stage::new(Disruption);
    for index in 0..3 {
        stage.put(Kind::Pod, pod(&format!("web-{index}"), "n1", true, None));
    }
    let mut evicted = budget("minAvailable", &json!(1));
    evicted["status"] = json!({
        "currentHealthy": 3, "desiredHealthy": 1, "disruptionsAllowed": 1, "expectedPods": 3, "observedGeneration": 1,
        "disruptedPods": { "web-0": "2026-11-15T11:59:00Z", "long-gone": "2026-11-15T11:59:00Z" },
    });
    stage.put(Kind::PodDisruptionBudget, evicted);
    let decision = stage.look(Kind::PodDisruptionBudget, "shop", "web");
    let body = decision.requests[0].body.clone().unwrap();
    assert_eq!(body["status"]["currentHealthy"], 2);
    assert_eq!(
        body["status"]["disruptedPods"],
        json!({ "web-0": "2026-11-15T11:59:00Z", "long-gone": null })
    );
    assert!(
        body["metadata"]["resourceVersion"].is_string(),
        "an eviction in between must not be overwritten"
    );
    let recheck: Timestamp = "2026-11-15T12:01:00Z".parse().unwrap();
    assert_eq!(decision.again, Some(recheck));

    stage.now = recheck;
    let body = stage.look(Kind::PodDisruptionBudget, "shop", "web").requests[0]
        .body
        .clone()
        .unwrap();
    assert_eq!(
        body["status"]["currentHealthy"], 3,
        "an eviction that came to nothing is forgotten"
    );
}

#[test]
fn what_is_written_already_is_not_written_again() {
    let mut stage = Stage::new(Disruption);
    stage.put(Kind::Pod, pod("web-0", "n1", true, None));
    stage.put(Kind::PodDisruptionBudget, budget("minAvailable", &json!(0)));
    let status = stage.look(Kind::PodDisruptionBudget, "shop", "web").requests[0]
        .body
        .clone()
        .unwrap()["status"]
        .clone();
    let mut written = budget("minAvailable", &json!(0));
    written["status"] = status;
    stage.put(Kind::PodDisruptionBudget, written);
    assert!(stage.look(Kind::PodDisruptionBudget, "shop", "web").requests.is_empty());
}

use super::*;
use crate::request::Verb;
use crate::testing::{Stage, pod};
use serde_json::Value;

fn node(name: &str, cpu: &str) -> Value {
    json!({
        "metadata": { "name": name, "labels": { "kubernetes.io/hostname": name, "zone": &name[..1] } },
        "status": { "allocatable": { "cpu": cpu, "memory": "4Gi", "pods": "10" } },
    })
}

fn asking(name: &str, cpu: &str) -> Value {
    let mut value = pod(name, "", false, Some(("ReplicaSet", "rs")));
    value["spec"]["containers"][0]["resources"] = json!({ "requests": { "cpu": cpu } });
    value
}

/// The node a pod is bound to, or the reason it is not.
fn placement(stage: &mut Stage<Scheduler>, name: &str) -> Result<String, String> {
    let decision = stage.look(Kind::Pod, "shop", name);
    let request = decision.requests.first().unwrap();
    let body = request.body.clone().unwrap();
    if request.subresource == Some("binding") {
        assert_eq!(request.verb, Verb::Create);
        Ok(body["target"]["name"].as_str().unwrap().to_owned())
    } else {
        Err(body["status"]["conditions"][0]["message"].as_str().unwrap().to_owned())
    }
}

#[test]
fn siblings_are_spread_and_promises_are_kept_in_mind() {
    let mut stage = Stage::new(Scheduler::default());
    for name in ["a1", "a2", "b1"] {
        stage.put(Kind::Node, node(name, "1"));
    }
    let mut places = Vec::new();
    for index in 0..3 {
        let name = format!("web-{index}");
        stage.put(Kind::Pod, asking(&name, "600m"));
        places.push(placement(&mut stage, &name).unwrap());
    }
    places.sort();
    assert_eq!(
        places,
        ["a1", "a2", "b1"],
        "bound pods count before the view shows them"
    );
    stage.put(Kind::Pod, asking("web-3", "600m"));
    let refused = placement(&mut stage, "web-3").unwrap_err();
    assert_eq!(refused, "0/3 nodes are available: 3 Insufficient cpu.");
}

#[test]
fn a_refused_binding_frees_what_was_promised() {
    let mut stage = Stage::new(Scheduler::default());
    stage.put(Kind::Node, node("a1", "1"));
    stage.put(Kind::Pod, asking("web-0", "600m"));
    placement(&mut stage, "web-0").unwrap();
    let item = ObjectRef::new(Kind::Pod, Key::new("shop", "web-0"));
    stage.actor.refused(
        &item,
        &Failure {
            code: 409,
            reason: String::new(),
            message: String::new(),
        },
    );
    assert_eq!(placement(&mut stage, "web-0").unwrap(), "a1");
    assert_eq!(stage.actor.books["a1"].pods, 1);
}

#[test]
fn a_pod_without_a_place_is_tried_again_when_a_node_changes() {
    let mut stage = Stage::new(Scheduler::default());
    let mut cordoned = node("a1", "1");
    cordoned["spec"] = json!({ "unschedulable": true });
    stage.put(Kind::Node, cordoned);
    stage.put(Kind::Pod, asking("web-0", "100m"));
    let taken = stage.queue.take(stage.now).unwrap();
    stage.queue.done(&taken);
    assert_eq!(
        placement(&mut stage, "web-0").unwrap_err(),
        "0/1 nodes are available: 1 node(s) were unschedulable."
    );
    assert_eq!(stage.queue.next_due(), None);
    stage.put(Kind::Node, node("a1", "1"));
    let due = stage.queue.next_due().unwrap();
    assert!(due > stage.now && stage.queue.take(due).is_some());
    assert_eq!(placement(&mut stage, "web-0").unwrap(), "a1");
}

#[test]
fn rules_about_other_pods_hold() {
    let anti = json!({ "podAntiAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [
        { "labelSelector": { "matchLabels": { "app": "web" } }, "topologyKey": "kubernetes.io/hostname" },
    ] } });
    let mut stage = Stage::new(Scheduler::default());
    stage.put(Kind::Node, node("a1", "4"));
    stage.put(Kind::Node, node("b1", "4"));
    for (name, expected) in [("web-0", true), ("web-1", true), ("web-2", false)] {
        let mut apart = asking(name, "100m");
        apart["spec"]["affinity"] = anti.clone();
        stage.put(Kind::Pod, apart);
        assert_eq!(placement(&mut stage, name).is_ok(), expected, "{name}");
    }

    let spread = json!([{ "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": { "matchLabels": { "app": "web" } } }]);
    let mut stage = Stage::new(Scheduler::default());
    stage.put(Kind::Node, node("a1", "4"));
    stage.put(Kind::Node, node("b1", "150m"));
    let mut places = Vec::new();
    for name in ["web-0", "web-1"] {
        let mut even = asking(name, "100m");
        even["spec"]["topologySpreadConstraints"] = spread.clone();
        stage.put(Kind::Pod, even);
        places.push(placement(&mut stage, name).unwrap());
    }
    places.sort();
    assert_eq!(places, ["a1", "b1"], "one in each zone");
}

#[test]
fn deleted_and_ended_pods_give_their_place_back() {
    let mut stage = Stage::new(Scheduler::default());
    stage.put(Kind::Node, node("a1", "1"));
    let mut running = pod("old", "a1", true, None);
    running["spec"]["containers"][0]["resources"] = json!({ "requests": { "cpu": "900m" } });
    stage.put(Kind::Pod, running.clone());
    stage.put(Kind::Pod, asking("web-0", "600m"));
    assert!(placement(&mut stage, "web-0").is_err());
    running["status"]["phase"] = "Succeeded".into();
    stage.put(Kind::Pod, running);
    assert_eq!(placement(&mut stage, "web-0").unwrap(), "a1");
}

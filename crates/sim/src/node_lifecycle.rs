//! The node lifecycle controller: a node whose lease is not renewed becomes Unknown, and conditions and cordons show
//! up as NoSchedule taints. Evicting the pods of a lost node (NoExecute) is not simulated.

use crate::actor::{Actor, Decision, Turn};
use crate::clock::after;
use crate::events::second;
use crate::object::{Key, Kind, Object, ObjectRef, name};
use crate::queue::Queue;
use crate::request::Request;
use crate::view::{Change, View};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Taint};
use serde_json::{Value, json};

/// Condition, its bad status, and the taint it means (upstream's `nodeConditionToTaintKeyStatusMap`).
const TAINTS: &[(&str, &str, &str)] = &[
    ("Ready", "False", "node.kubernetes.io/not-ready"),
    ("Ready", "Unknown", "node.kubernetes.io/unreachable"),
    ("MemoryPressure", "True", "node.kubernetes.io/memory-pressure"),
    ("DiskPressure", "True", "node.kubernetes.io/disk-pressure"),
    ("PIDPressure", "True", "node.kubernetes.io/pid-pressure"),
    ("NetworkUnavailable", "True", "node.kubernetes.io/network-unavailable"),
];
const CORDON: &str = "node.kubernetes.io/unschedulable";

/// The node lifecycle controller.
#[derive(Debug, Default)]
pub struct NodeLifecycle;

impl Actor for NodeLifecycle {
    fn name(&self) -> &'static str {
        "node-controller"
    }

    fn observe(&mut self, change: &Change, _view: &View, _now: Timestamp, queue: &mut Queue) {
        // A renewed lease needs no look: when the old one would have run out, the new one is seen.
        if let Some(node @ Object::Node(_)) = &change.new {
            queue.add(node.reference());
        }
    }

    fn decide(&mut self, item: &ObjectRef, turn: &mut Turn<'_>) -> Decision {
        let Some(node) = turn.view.nodes.get(&item.key) else {
            return Decision::nothing();
        };
        let mut requests: Vec<Request> = taint(node).into_iter().collect();
        let lost_at = last_sign(node, turn.view).map(|sign| after(sign, turn.timings.node_grace));
        let is_lost = lost_at.is_some_and(|lost_at| lost_at <= turn.now);
        if is_lost && condition(node, "Ready") != Some("Unknown") {
            let status = json!({ "conditions": unknown(node, turn.now) });
            requests.push(Request::patch_status_unchanged(Kind::Node, &node.metadata, &status));
        }
        Decision::requests(requests).and_at(lost_at.filter(|_| !is_lost))
    }
}

fn condition<'a>(node: &'a Node, kind: &str) -> Option<&'a str> {
    let conditions = node.status.as_ref()?.conditions.as_ref()?;
    conditions
        .iter()
        .find(|condition| condition.type_ == kind)
        .map(|condition| condition.status.as_str())
}

/// The last time the kubelet was heard of.
fn last_sign(node: &Node, view: &View) -> Option<Timestamp> {
    let lease = view.leases.get(&Key::new("kube-node-lease", name(&node.metadata)));
    let renewed = lease
        .and_then(|lease| lease.spec.as_ref()?.renew_time.as_ref())
        .map(|time| time.0);
    let created = node.metadata.creation_timestamp.as_ref().map(|time| time.0);
    renewed.max(created)
}

fn unknown(node: &Node, now: Timestamp) -> Vec<Value> {
    let conditions = node
        .status
        .as_ref()
        .and_then(|status| status.conditions.clone())
        .unwrap_or_default();
    let watched = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"];
    conditions
        .into_iter()
        .filter_map(|condition| {
            let lost = watched.contains(&condition.type_.as_str()) && condition.status != "Unknown";
            let mut value = serde_json::to_value(condition).ok()?;
            if lost {
                value["status"] = "Unknown".into();
                value["reason"] = "NodeStatusUnknown".into();
                value["message"] = "Kubelet stopped posting node status.".into();
                value["lastTransitionTime"] = second(now).into();
            }
            Some(value)
        })
        .collect()
}

/// Brings the NoSchedule taints in line with conditions and cordon; those of others stay as they are.
fn taint(node: &Node) -> Option<Request> {
    let spec = node.spec.clone().unwrap_or_default();
    let have = spec.taints.unwrap_or_default();
    let mut wanted: Vec<&str> = TAINTS
        .iter()
        .filter(|(kind, bad, _)| condition(node, kind) == Some(*bad))
        .map(|(.., taint)| *taint)
        .collect();
    if spec.unschedulable == Some(true) {
        wanted.push(CORDON);
    }
    let ours = |taint: &Taint| {
        taint.effect == "NoSchedule" && (taint.key == CORDON || TAINTS.iter().any(|(.., key)| *key == taint.key))
    };
    let stays = |taint: &&Taint| !ours(taint) || wanted.contains(&taint.key.as_str());
    let mut taints: Vec<Value> = have.iter().filter(stays).map(|taint| json!(taint)).collect();
    let kept = taints.len();
    for key in &wanted {
        if !have.iter().any(|taint| ours(taint) && taint.key == *key) {
            taints.push(json!({ "key": key, "effect": "NoSchedule" }));
        }
    }
    if kept == have.len() && taints.len() == kept {
        return None;
    }
    let patch = json!({
        "metadata": { "resourceVersion": node.metadata.resource_version },
        "spec": { "taints": taints },
    });
    Some(Request::patch(Kind::Node, &node.metadata, patch))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Stage, noon};
    use std::time::Duration;

    fn node(ready: &str, unschedulable: bool, taints: &Value) -> Value {
        json!({
            "metadata": { "name": "w1", "creationTimestamp": "2026-11-15T11:00:00Z" },
            "spec": { "unschedulable": unschedulable, "taints": taints },
            "status": { "conditions": [{ "type": "Ready", "status": ready }] },
        })
    }

    #[test]
    fn taints_follow_conditions_and_cordon_and_leave_others_alone() {
        let own = |key: &str| json!({ "key": key, "effect": "NoSchedule" });
        let foreign = json!({ "key": "team", "value": "a", "effect": "NoExecute" });
        let cases = [
            ("True", false, json!([]), None),
            ("True", true, json!([]), Some(json!([own(CORDON)]))),
            ("True", true, json!([own(CORDON)]), None),
            ("True", false, json!([foreign, own(CORDON)]), Some(json!([foreign]))),
            (
                "False",
                false,
                json!([foreign]),
                Some(json!([foreign, own("node.kubernetes.io/not-ready")])),
            ),
            (
                "Unknown",
                false,
                json!([own("node.kubernetes.io/not-ready")]),
                Some(json!([own("node.kubernetes.io/unreachable")])),
            ),
        ];
        for (ready, cordoned, taints, expected) in cases {
            let mut stage = Stage::new(NodeLifecycle);
            stage.put(Kind::Node, node(ready, cordoned, &taints));
            let written = taint(stage.view.node("w1").unwrap()).and_then(|request| request.body);
            assert_eq!(
                written.map(|body| body["spec"]["taints"].clone()),
                expected,
                "{ready} {cordoned} {taints}"
            );
        }
    }

    #[test]
    fn a_node_is_lost_when_its_lease_runs_out_and_not_before() {
        let mut stage = Stage::new(NodeLifecycle);
        stage.put(Kind::Node, node("True", false, &json!([])));
        stage.put(
            Kind::Lease,
            json!({
                "metadata": { "name": "w1", "namespace": "kube-node-lease" },
                "spec": { "renewTime": "2026-11-15T11:59:50.000000Z" },
            }),
        );
        let alive = stage.look(Kind::Node, "", "w1");
        assert!(alive.requests.is_empty());
        let lost_at = alive.again.unwrap();
        assert_eq!(lost_at, after(noon(), Duration::from_secs(40)));
        stage.now = lost_at;
        let lost = stage.look(Kind::Node, "", "w1");
        let condition = &lost.requests[0].body.as_ref().unwrap()["status"]["conditions"][0];
        assert_eq!(
            (&condition["status"], &condition["reason"]),
            (&json!("Unknown"), &json!("NodeStatusUnknown"))
        );
    }
}

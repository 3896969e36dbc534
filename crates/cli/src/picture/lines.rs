//! One line per change, for pipes and logs: what was it before, what is it now. Changes that mean nothing to people
//! (heartbeats, managed fields) have no line.

use super::text::clock;
use afloat_sim::object::{Object, name, namespace};
use afloat_sim::view::{Change, is_ready, node_of, phase};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};

/// The line of a change, if it deserves one.
pub fn line(change: &Change, now: Timestamp) -> Option<String> {
    let object = change.latest()?;
    let (subject, before, after, note) = match object {
        Object::Node(node) => {
            let state =
                |object: &Option<Object>| object.as_ref().and_then(Object::as_node).map(|node| node_state(node));
            (
                name(&node.metadata).to_owned(),
                state(&change.old),
                state(&change.new),
                String::new(),
            )
        }
        Object::Pod(pod) => {
            let state = |object: &Option<Object>| object.as_ref().and_then(Object::as_pod).map(|pod| pod_state(pod));
            let subject = format!("{}/{}", namespace(&pod.metadata), name(&pod.metadata));
            let note = node_of(pod).map(|node| format!("on {node}")).unwrap_or_default();
            (subject, state(&change.old), state(&change.new), note)
        }
        Object::PodDisruptionBudget(budget) => {
            let state = |object: &Option<Object>| match object {
                Some(Object::PodDisruptionBudget(budget)) => budget
                    .status
                    .as_ref()
                    .map(|status| format!("allows {}", status.disruptions_allowed)),
                _ => None,
            };
            let subject = format!("pdb/{}/{}", namespace(&budget.metadata), name(&budget.metadata));
            (subject, state(&change.old), state(&change.new), String::new())
        }
        _ => return None,
    };
    let step = match (before, after) {
        (None, Some(after)) => format!("new → {after}"),
        (Some(before), None) => format!("{before} → gone"),
        (Some(before), Some(after)) if before != after => format!("{before} → {after}"),
        _ => return None,
    };
    Some(
        format!("{} {subject:<40} {step:<24} {note}", clock(now))
            .trim_end()
            .to_owned(),
    )
}

fn node_state(node: &Node) -> String {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    let ready = conditions
        .into_iter()
        .flatten()
        .find(|condition| condition.type_ == "Ready");
    let state = match ready.map(|condition| condition.status.as_str()) {
        Some("True") => "Ready",
        Some("Unknown") => "Unknown",
        Some(_) => "NotReady",
        None => "Starting",
    };
    let cordoned = node.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or(false);
    if cordoned {
        format!("{state},Cordoned")
    } else {
        state.to_owned()
    }
}

fn pod_state(pod: &Pod) -> String {
    let state = match phase(pod) {
        _ if pod.metadata.deletion_timestamp.is_some() => "Terminating",
        "Running" if is_ready(pod) => "Ready",
        "Pending" if node_of(pod).is_some() => "Starting",
        other => other,
    };
    state.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use afloat_sim::object::Kind;
    use serde_json::json;

    fn node(ready: &str, cordoned: bool, revision: u64) -> Option<Object> {
        Kind::Node.parse(json!({
            "metadata": { "name": "worker-1", "resourceVersion": revision.to_string() },
            "spec": { "unschedulable": cordoned },
            "status": { "conditions": [{ "type": "Ready", "status": ready }] },
        }))
    }

    #[test]
    fn heartbeats_have_no_line_and_cordons_do() {
        let now = Timestamp::UNIX_EPOCH;
        let change = |old, new| Change { old, new };
        assert_eq!(line(&change(node("True", false, 1), node("True", false, 2)), now), None);
        let cordon = line(&change(node("True", false, 1), node("True", true, 2)), now).unwrap();
        assert!(
            cordon.contains("worker-1") && cordon.ends_with("Ready → Ready,Cordoned"),
            "{cordon}"
        );
        assert!(
            line(&change(node("Unknown", false, 1), None), now)
                .unwrap()
                .ends_with("Unknown → gone")
        );
    }
}

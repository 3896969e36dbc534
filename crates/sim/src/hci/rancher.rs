//! Rancher's planner: takes one node after the other through the drain and the new version of RKE2, and asks before and after each drain
//! through the annotations of the machine's plan secret. Which node is next is its own decision, in the order of names.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::core::DynamicObject;
use serde_json::json;

use super::takes::Takes;
use crate::actor::{Actor, Decision, Turn};
use crate::object::{Key, Kind, ObjectRef, annotation, name};
use crate::queue::Queue;
use crate::request::Request;
use crate::view::{Change, View};
use afloat_core::hci::view::HciKind;

const PRE_DRAIN: &str = "rke.cattle.io/pre-drain";
const POST_DRAIN: &str = "rke.cattle.io/post-drain";
const PRE_HOOK: &str = "harvesterhci.io/pre-hook";
const POST_HOOK: &str = "harvesterhci.io/post-hook";
/// On a plan secret: the node it is for. Rancher knows by the Machine; here it is written down.
pub(super) const NODE: &str = "afloat.dev/sim-node";
/// Drain and the new RKE2 on one node.
const RKE2: Duration = Duration::from_mins(4);

/// Rancher's planner.
#[derive(Debug, Default)]
pub struct Planner {
    /// Drains with the new version after them.
    takes: Takes,
}

fn local() -> ObjectRef {
    ObjectRef::new(Kind::Hci(HciKind::Cluster), Key::new("fleet-local", "local"))
}

impl Actor for Planner {
    fn name(&self) -> &'static str {
        "rancher"
    }

    fn observe(&mut self, change: &Change, _: &View, _: Timestamp, queue: &mut Queue) {
        let concerns = matches!(
            change.kind(),
            Some(Kind::Node | Kind::Hci(HciKind::Plan | HciKind::Cluster))
        );
        if concerns {
            queue.add(local());
        }
    }

    fn decide(&mut self, item: &ObjectRef, turn: &mut Turn<'_>) -> Decision {
        let Some(cluster) = turn.view.one_of(HciKind::Cluster, &item.key) else {
            return Decision::nothing();
        };
        let config = &cluster.data["spec"]["rkeConfig"];
        let hooked = config["upgradeStrategy"]["workerDrainOptions"]["preDrainHooks"]
            .as_array()
            .is_some_and(|hooks| !hooks.is_empty());
        if let Some(request) = uncordon(turn.view) {
            return Decision::request(request);
        }
        if !hooked {
            return Decision::nothing();
        }
        let wanted = cluster.data["spec"]["kubernetesVersion"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        let token = format!("drain-{}", config["provisionGeneration"]);
        let cluster = cluster.clone();
        for node in turn.view.nodes.values() {
            let Some(secret) = plan_of(turn.view, name(&node.metadata)) else {
                continue;
            };
            let (node, secret) = (node.clone(), secret.clone());
            if let Some(decision) = self.take(&node, &secret, &wanted, &token, turn) {
                return tell(decision, &cluster, Some(name(&node.metadata)));
            }
        }
        tell(Decision::nothing(), &cluster, None)
    }
}

impl Planner {
    /// What is next for a node; nothing when it is done.
    fn take(
        &mut self,
        node: &Node,
        secret: &DynamicObject,
        wanted: &str,
        token: &str,
        turn: &mut Turn<'_>,
    ) -> Option<Decision> {
        let says = |key: &str| annotation(&secret.metadata, key) == Some(token);
        let at_version = kubelet(node) == wanted;
        let asks = |key: &str| {
            let body = json!({ "metadata": { "annotations": { key: token } } });
            Request::patch(Kind::Hci(HciKind::Plan), &secret.metadata, body)
        };
        if !says(PRE_DRAIN) {
            if at_version {
                return None;
            }
            return Some(Decision::requests(vec![cordon(node, true), asks(PRE_DRAIN)]));
        }
        if !says(PRE_HOOK) {
            return Some(Decision::nothing());
        }
        if !at_version {
            let item = ObjectRef::cluster(Kind::Node, name(&node.metadata));
            if let Err(due) = self.takes.done(&item, RKE2, turn) {
                return Some(Decision::at(due));
            }
            let mut info = node
                .status
                .as_ref()
                .and_then(|status| status.node_info.clone())
                .unwrap_or_default();
            wanted.clone_into(&mut info.kubelet_version);
            let status = json!({ "nodeInfo": info });
            return Some(Decision::request(Request::patch_status(
                Kind::Node,
                &node.metadata,
                &status,
            )));
        }
        if !says(POST_DRAIN) {
            return Some(Decision::request(asks(POST_DRAIN)));
        }
        (!says(POST_HOOK)).then(Decision::nothing)
    }
}

fn cordon(node: &Node, on: bool) -> Request {
    let body = json!({ "spec": { "unschedulable": on.then_some(true) } });
    Request::patch(Kind::Node, &node.metadata, body)
}

/// A node whose last question was answered comes back, also when the upgrade is over by then.
fn uncordon(view: &View) -> Option<Request> {
    let done = |node: &&std::sync::Arc<Node>| {
        let cordoned = node.spec.as_ref().is_some_and(|spec| spec.unschedulable == Some(true));
        cordoned
            && plan_of(view, name(&node.metadata)).is_some_and(|secret| {
                let asked = annotation(&secret.metadata, PRE_DRAIN);
                asked.is_some() && annotation(&secret.metadata, POST_HOOK) == asked
            })
    };
    view.nodes.values().find(done).map(|node| cordon(node, false))
}

/// Rancher's own words about where it is (H50).
fn tell(mut decision: Decision, cluster: &DynamicObject, at: Option<&str>) -> Decision {
    let (status, message) = at.map_or(("True", String::new()), |node| {
        (
            "Unknown",
            format!("configuring bootstrap node(s) custom-{node}: waiting for plan to be applied"),
        )
    });
    let said = &cluster.data["status"]["conditions"][0];
    if said["status"] != status || said["message"] != message {
        let condition = json!([{ "type": "ControlPlaneReady", "status": status, "message": message }]);
        let body = json!({ "status": { "conditions": condition } });
        let kind = Kind::Hci(HciKind::Cluster);
        decision.requests.push(Request::patch(kind, &cluster.metadata, body));
    }
    decision
}

fn plan_of<'a>(view: &'a View, node: &str) -> Option<&'a std::sync::Arc<DynamicObject>> {
    view.all_of(HciKind::Plan)
        .find(|secret| annotation(&secret.metadata, NODE) == Some(node))
}

fn kubelet(node: &Node) -> &str {
    let info = node.status.as_ref().and_then(|status| status.node_info.as_ref());
    info.map_or("", |info| info.kubelet_version.as_str())
}

//! Rancher's planner: takes one node after the other through the drain and the new version of RKE2, and asks before and after each drain
//! through the annotations of the machine's plan secret. Which node is next is its own decision, in the order of names. It may be
//! restarted, and then begins anew what it was at.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::core::DynamicObject;
use serde_json::json;

use super::people::has_come;
use super::takes::Takes;
use super::told;
use crate::actor::{Actor, Decision, Turn};
use crate::clock::after;
use crate::object::{Key, Kind, ObjectRef, annotation, controller_of, name};
use crate::queue::Queue;
use crate::request::Request;
use crate::view::{Change, View, is_active};
use afloat_core::hci::view::HciKind;
use afloat_scenes::Moment;

const PRE_DRAIN: &str = "rke.cattle.io/pre-drain";
const POST_DRAIN: &str = "rke.cattle.io/post-drain";
const PRE_HOOK: &str = "harvesterhci.io/pre-hook";
const POST_HOOK: &str = "harvesterhci.io/post-hook";
/// On a plan secret: the node it is for. Rancher knows by the Machine; here it is written down. On a budget: the node its machine leaves.
pub(super) const NODE: &str = "afloat.dev/sim-node";
/// Drain and the new RKE2 on one node.
const RKE2: Duration = Duration::from_mins(4);
/// How long a pod that cannot be evicted is left alone.
const EVICT_AGAIN: Duration = Duration::from_secs(20);

/// Rancher's planner.
#[derive(Debug)]
pub struct Planner {
    /// New versions after drains.
    takes: Takes,
    /// When it will be restarted, and how long it is away then.
    restarts: Vec<(Moment, Duration)>,
    away_until: Option<Timestamp>,
    /// So many nodes it asks about at once.
    at_once: usize,
}

impl Planner {
    pub fn new(restarts: Vec<(Moment, Duration)>, hurries: bool) -> Self {
        Self {
            at_once: if hurries { 2 } else { 1 },
            takes: Takes::default(),
            restarts,
            away_until: None,
        }
    }

    /// Until when it is away.
    fn away(&mut self, turn: &Turn<'_>) -> Option<Timestamp> {
        if let Some(index) = self.restarts.iter().position(|(when, _)| has_come(*when, turn.view)) {
            let (_, away) = self.restarts.remove(index);
            self.takes = Takes::default();
            self.away_until = Some(after(turn.now, away.div_f64(turn.timings.pace)));
        }
        self.away_until.filter(|until| *until > turn.now)
    }
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
            Some(Kind::Node | Kind::Hci(HciKind::Plan | HciKind::Cluster | HciKind::Upgrade))
        );
        if concerns {
            queue.add(local());
        }
    }

    fn decide(&mut self, item: &ObjectRef, turn: &mut Turn<'_>) -> Decision {
        if let Some(until) = self.away(turn) {
            return Decision::at(until);
        }
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
        let wanted = cluster.data["spec"]["kubernetesVersion"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        if !hooked {
            let cluster = cluster.clone();
            if let Some(decision) = self.take_alone(&wanted, turn) {
                return decision;
            }
            return tell(called_off(turn.view, &wanted), &cluster, None);
        }
        let token = format!("drain-{}", config["provisionGeneration"]);
        let cluster = cluster.clone();
        let mut busy: Vec<&str> = Vec::new();
        let mut all = Decision::nothing();
        for node in turn.view.nodes.values() {
            if busy.len() == self.at_once {
                break;
            }
            let Some(secret) = plan_of(turn.view, name(&node.metadata)) else {
                continue;
            };
            if let Some(decision) = self.take(node, secret, &wanted, &token, turn) {
                busy.push(name(&node.metadata));
                all.requests.extend(decision.requests);
                all.again = all.again.into_iter().chain(decision.again).min();
            }
        }
        tell(all, &cluster, busy.first().copied())
    }
}

impl Planner {
    /// The only node of a cluster gets its new version without a drain, and without a question.
    fn take_alone(&mut self, wanted: &str, turn: &mut Turn<'_>) -> Option<Decision> {
        let mut nodes = turn.view.nodes.values();
        let (only, None) = (nodes.next()?.clone(), nodes.next()) else {
            return None;
        };
        (kubelet(&only) != wanted).then(|| self.new_version(&only, wanted, turn))
    }

    fn new_version(&mut self, node: &Node, wanted: &str, turn: &mut Turn<'_>) -> Decision {
        let item = ObjectRef::cluster(Kind::Node, name(&node.metadata));
        if let Err(due) = self.takes.done(&item, RKE2, turn) {
            return Decision::at(due);
        }
        let info = node.status.as_ref().and_then(|status| status.node_info.clone());
        let mut info = info.unwrap_or_default();
        wanted.clone_into(&mut info.kubelet_version);
        let status = json!({ "nodeInfo": info });
        Decision::request(Request::patch_status(Kind::Node, &node.metadata, &status))
    }

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
            let pods = evictions(turn.view, name(&node.metadata));
            if !pods.is_empty() {
                return Some(Decision::requests(pods).and_at(Some(after(turn.now, EVICT_AGAIN))));
            }
            return Some(self.new_version(node, wanted, turn));
        }
        if !says(POST_DRAIN) {
            return Some(Decision::request(asks(POST_DRAIN)));
        }
        (!says(POST_HOOK)).then(Decision::nothing)
    }
}

/// Everything that leaves a node in a drain is evicted, as its budgets allow.
fn evictions(view: &View, node: &str) -> Vec<Request> {
    let leaves = |pod: &&std::sync::Arc<k8s_openapi::api::core::v1::Pod>| {
        is_active(pod) && controller_of(&pod.metadata).is_none_or(|owner| owner.kind != "DaemonSet")
    };
    let pods = view.pods_on(node).filter(leaves);
    pods.map(|pod| Request::evict(&pod.metadata, 0).best_effort()).collect()
}

/// Nobody wants the nodes changed any more that it had asked about: they come back, and the questions go.
fn called_off(view: &View, wanted: &str) -> Decision {
    let asked = view.nodes.values().find_map(|node| {
        let secret = plan_of(view, name(&node.metadata))?;
        let asked = annotation(&secret.metadata, PRE_DRAIN);
        let open = asked.is_some() && annotation(&secret.metadata, PRE_HOOK) != asked;
        (open && kubelet(node) == wanted).then_some((node, secret))
    });
    let Some((node, secret)) = asked else {
        return Decision::nothing();
    };
    let forgotten = json!({ "metadata": { "annotations": { PRE_DRAIN: null } } });
    let forgets = Request::patch(Kind::Hci(HciKind::Plan), &secret.metadata, forgotten);
    Decision::requests(vec![cordon(node, false), forgets])
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
        let condition = json!([{ "type": "Updated", "status": status, "message": message }]);
        let status = json!({ "conditions": condition });
        decision
            .requests
            .push(told(HciKind::Cluster, &cluster.metadata, &status));
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

//! The kubelets of all machines as one actor, so that one watch serves them all; each machine still has a state of
//! its own and decides by itself. Here: which kubelet an object concerns, and its life as a node. How a pod runs is
//! in `pod`, what its status then says in `status`.

mod pod;
mod status;

use crate::actor::{Actor, Decision, Turn};
use crate::clock::{after, dice};
use crate::events::{Happening, micro, second};
use crate::machine::Machine;
use crate::object::{Key, Kind, Object, ObjectRef, uid};
use crate::queue::Queue;
use crate::request::Request;
use crate::view::{Change, View, node_of};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

const LEASE_NAMESPACE: &str = "kube-node-lease";
/// The kubelet's `nodeLeaseDurationSeconds`.
const LEASE_SECONDS: u32 = 40;

/// One machine's kubelet.
#[derive(Debug)]
struct Kubelet {
    machine: Machine,
    /// When it will be up; decided when it is first looked at.
    up_at: Option<Timestamp>,
    /// A kubelet registers once; a Node deleted afterwards stays away, as upstream.
    registered: bool,
    ready: bool,
    renew_at: Option<Timestamp>,
    report_at: Option<Timestamp>,
    pods: pod::Pods,
}

/// All kubelets.
#[derive(Debug)]
pub struct Kubelets {
    kubelets: BTreeMap<String, Kubelet>,
    /// Static pods by the key of their mirror pod: machine and place in its list.
    mirrors: BTreeMap<Key, (String, usize)>,
}

impl Kubelets {
    pub fn new(machines: impl IntoIterator<Item = Machine>) -> Self {
        let mut mirrors = BTreeMap::new();
        let mut kubelets = BTreeMap::new();
        for machine in machines {
            for (index, static_pod) in machine.static_pods.iter().enumerate() {
                mirrors.insert(
                    Key::new("kube-system", static_pod.name_on(&machine)),
                    (machine.name.clone(), index),
                );
            }
            kubelets.insert(machine.name.clone(), Kubelet::new(machine));
        }
        Self { kubelets, mirrors }
    }

    fn decide_pod(&mut self, item: &ObjectRef, turn: &mut Turn<'_>) -> Decision {
        if let Some(pod) = turn.view.pods.get(&item.key) {
            let kubelet = node_of(pod).and_then(|node| self.kubelets.get_mut(node));
            return kubelet.map_or_else(Decision::nothing, |kubelet| {
                kubelet.pods.decide(pod, &kubelet.machine, turn)
            });
        }
        let Some((machine, index)) = self.mirrors.get(&item.key) else {
            return Decision::nothing();
        };
        let Some(kubelet) = self.kubelets.get(machine) else {
            return Decision::nothing();
        };
        let mirror = turn
            .view
            .node(machine)
            .and_then(|node| kubelet.mirror(*index, node, turn.now));
        mirror.map_or_else(Decision::nothing, Decision::request)
    }
}

impl Actor for Kubelets {
    fn name(&self) -> &'static str {
        "kubelet"
    }

    fn start(&mut self, queue: &mut Queue) {
        for name in self.kubelets.keys() {
            queue.add(ObjectRef::cluster(Kind::Node, name));
        }
    }

    fn observe(&mut self, change: &Change, _view: &View, _now: Timestamp, queue: &mut Queue) {
        let Some(pod) = change.latest().and_then(Object::as_pod) else {
            return;
        };
        let Some(kubelet) = node_of(pod).and_then(|node| self.kubelets.get_mut(node)) else {
            return;
        };
        let key = Key::of(&pod.metadata);
        if change.new.is_none() {
            kubelet.pods.forget(&key, uid(&pod.metadata));
        }
        queue.add(ObjectRef::new(Kind::Pod, key));
    }

    fn decide(&mut self, item: &ObjectRef, turn: &mut Turn<'_>) -> Decision {
        match item.kind {
            Kind::Node => match self.kubelets.get_mut(&item.key.name) {
                Some(kubelet) => kubelet.decide_node(turn),
                None => Decision::nothing(),
            },
            Kind::Pod => self.decide_pod(item, turn),
            _ => Decision::nothing(),
        }
    }
}

impl Kubelet {
    fn new(machine: Machine) -> Self {
        Self {
            machine,
            up_at: None,
            registered: false,
            ready: false,
            renew_at: None,
            report_at: None,
            pods: pod::Pods::default(),
        }
    }

    fn decide_node(&mut self, turn: &mut Turn<'_>) -> Decision {
        let now = turn.now;
        let up_at = *self
            .up_at
            .get_or_insert_with(|| after(now, dice(turn.rng, turn.timings.node_boot)));
        let Some(node) = turn.view.node(&self.machine.name).cloned() else {
            return if self.registered {
                Decision::nothing()
            } else {
                Decision::request(Request::create(Kind::Node, "", self.machine.node())).and_at(Some(now))
            };
        };
        let mut requests = Vec::new();
        if !self.registered {
            self.registered = true;
            requests.extend((0..self.machine.static_pods.len()).filter_map(|index| self.mirror(index, &node, now)));
            requests.push(self.report(&node, up_at <= now, now));
        }
        if up_at <= now && !self.ready {
            self.ready = true;
            requests.push(self.report(&node, true, now));
            let ready = Happening {
                object: &Object::Node(Arc::clone(&node)),
                component: "kubelet",
                host: &self.machine.name,
                reason: "NodeReady",
                message: format!("Node {} status is now: NodeReady", self.machine.name),
                warning: false,
            };
            requests.push(ready.request(now, turn.rng));
            self.report_at = Some(after(now, dice(turn.rng, turn.timings.node_status)));
        }
        if self.report_at.is_some_and(|at| at <= now) {
            requests.push(self.report(&node, true, now));
            self.report_at = Some(after(now, turn.timings.node_status));
        }
        if self.renew_at.is_none_or(|at| at <= now) {
            requests.push(self.renewal(turn.view, &node, now));
            // Renewals spread out by themselves: no two machines booted at the same instant.
            self.renew_at = Some(after(now, dice(turn.rng, turn.timings.lease_renewal)));
        }
        let boot = (!self.ready).then_some(up_at);
        let again = [boot, self.renew_at, self.report_at].into_iter().flatten().min();
        Decision::requests(requests).and_at(again)
    }

    fn report(&self, node: &Node, ready: bool, now: Timestamp) -> Request {
        let mut status = self.machine.status();
        status["conditions"] = node_conditions(node, ready, now);
        Request::patch_status(Kind::Node, &node.metadata, &status)
    }

    fn renewal(&self, view: &View, node: &Node, now: Timestamp) -> Request {
        let spec = json!({
            "holderIdentity": self.machine.name,
            "leaseDurationSeconds": LEASE_SECONDS,
            "renewTime": micro(now),
        });
        if let Some(lease) = view.leases.get(&Key::new(LEASE_NAMESPACE, &self.machine.name)) {
            return Request::patch(Kind::Lease, &lease.metadata, json!({ "spec": spec }));
        }
        let owner =
            json!({ "apiVersion": "v1", "kind": "Node", "name": self.machine.name, "uid": uid(&node.metadata) });
        let metadata = json!({ "name": self.machine.name, "namespace": LEASE_NAMESPACE, "ownerReferences": [owner] });
        Request::create(
            Kind::Lease,
            LEASE_NAMESPACE,
            json!({ "metadata": metadata, "spec": spec }),
        )
    }

    fn mirror(&self, index: usize, node: &Node, now: Timestamp) -> Option<Request> {
        let mirror = self
            .machine
            .static_pods
            .get(index)?
            .mirror(&self.machine, uid(&node.metadata), &second(now));
        Some(Request::create(Kind::Pod, "kube-system", mirror).best_effort())
    }
}

/// The node's conditions with the kubelet's own brought up to date, those of others left alone.
fn node_conditions(node: &Node, ready: bool, now: Timestamp) -> Value {
    let known = node
        .status
        .as_ref()
        .and_then(|status| status.conditions.clone())
        .unwrap_or_default();
    let own = [
        (
            "MemoryPressure",
            "False",
            "KubeletHasSufficientMemory",
            "kubelet has sufficient memory available",
        ),
        (
            "DiskPressure",
            "False",
            "KubeletHasNoDiskPressure",
            "kubelet has no disk pressure",
        ),
        (
            "PIDPressure",
            "False",
            "KubeletHasSufficientPID",
            "kubelet has sufficient PID available",
        ),
        if ready {
            ("Ready", "True", "KubeletReady", "kubelet is posting ready status")
        } else {
            (
                "Ready",
                "False",
                "KubeletNotReady",
                "container runtime network not ready: cni plugin not initialized",
            )
        },
    ];
    let mut conditions: Vec<Value> = known
        .iter()
        .filter(|condition| own.iter().all(|(kind, ..)| *kind != condition.type_))
        .filter_map(|condition| serde_json::to_value(condition).ok())
        .collect();
    for (kind, status, reason, message) in own {
        let before = known
            .iter()
            .find(|condition| condition.type_ == kind && condition.status == status);
        let since = before
            .and_then(|condition| condition.last_transition_time.as_ref())
            .map_or(now, |time| time.0);
        conditions.push(json!({
            "type": kind,
            "status": status,
            "reason": reason,
            "message": message,
            "lastHeartbeatTime": second(now),
            "lastTransitionTime": second(since),
        }));
    }
    Value::Array(conditions)
}

#[cfg(test)]
mod tests;

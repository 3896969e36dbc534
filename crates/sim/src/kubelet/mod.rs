//! The kubelets of all machines as one actor, so that one watch serves them all; each machine still has a state of
//! its own and decides by itself. Here: which kubelet an object concerns, and its life as a node. How a pod runs is
//! in `pod`, what its status then says in `status`.

mod hosted;
mod parts;
mod pod;
mod status;
mod task;

use crate::actor::{Actor, Decision, Turn};
use crate::clock::{after, dice};
use crate::events::{Happening, micro, second};
use crate::machine::Machine;
use crate::object::{Key, Kind, Object, ObjectRef, uid};
use crate::queue::Queue;
use crate::request::{Failure, Request};
use crate::view::{Change, View, node_of};
use hosted::Hosted;
pub use hosted::{HealthBoard, PlaneHealth, PowerBoard, Site};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use task::TaskRun;

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
    /// The machine's insides, from the moment somebody works on it.
    hosted: Option<Hosted>,
    tasks: BTreeMap<Key, TaskRun>,
    /// What was last told of the static pods.
    told: parts::Told,
    power: PowerBoard,
}

/// A kubelet that is down is looked for so often.
const DOWN: Duration = Duration::from_millis(250);

/// All kubelets.
#[derive(Debug)]
pub struct Kubelets {
    by_machine: BTreeMap<String, Kubelet>,
    /// Static pods by the key of their mirror pod: machine and place in its list.
    mirrors: BTreeMap<Key, (String, usize)>,
    /// The control planes: they are few, and see each other.
    planes: BTreeSet<String>,
    site: Site,
}

impl Kubelets {
    pub fn new(machines: impl IntoIterator<Item = Machine>, site: Site) -> Self {
        let mut mirrors = BTreeMap::new();
        let mut kubelets = BTreeMap::new();
        let mut planes = BTreeSet::new();
        for machine in machines {
            if machine.control_plane {
                planes.insert(machine.name.clone());
            }
            for (index, static_pod) in machine.static_pods.iter().enumerate() {
                mirrors.insert(
                    Key::new("kube-system", static_pod.name_on(&machine)),
                    (machine.name.clone(), index),
                );
            }
            kubelets.insert(machine.name.clone(), Kubelet::new(machine, site.power.clone()));
        }
        Self {
            by_machine: kubelets,
            mirrors,
            planes,
            site,
        }
    }

    fn decide_pod(&mut self, item: &ObjectRef, turn: &mut Turn<'_>) -> Decision {
        let mirror = self.mirrors.get(&item.key).cloned();
        if let Some(pod) = turn.view.pods.get(&item.key) {
            let Some(name) = node_of(pod) else {
                return Decision::nothing();
            };
            if task::is_task(pod) {
                return self.decide_task(name, &item.key, pod, turn);
            }
            let Some(kubelet) = self.by_machine.get_mut(name) else {
                return Decision::nothing();
            };
            if kubelet.is_down() {
                return Decision::at(after(turn.now, DOWN));
            }
            if mirror.is_some() && kubelet.hosted.is_some() {
                return self.decide_machine(name, turn);
            }
            return kubelet.pods.decide(pod, &kubelet.machine, turn);
        }
        let Some((machine, index)) = mirror else {
            return Decision::nothing();
        };
        let Some(kubelet) = self.by_machine.get(&machine) else {
            return Decision::nothing();
        };
        if kubelet.is_down() {
            return Decision::at(after(turn.now, DOWN));
        }
        let mirror = turn
            .view
            .node(&machine)
            .and_then(|node| kubelet.mirror(index, node, turn.now));
        mirror.map_or_else(Decision::nothing, Decision::request)
    }

    /// One of Afloat's pods: from now on the machine has insides.
    fn decide_task(&mut self, name: &str, key: &Key, pod: &Pod, turn: &mut Turn<'_>) -> Decision {
        let site = self.site.clone();
        let Some(kubelet) = self.by_machine.get_mut(name) else {
            return Decision::nothing();
        };
        let hosted = kubelet
            .hosted
            .get_or_insert_with(|| Hosted::new(&kubelet.machine, &site, turn.now));
        let _next = hosted.advance(turn.now);
        self.introduce(name);
        let machine = self.decide_machine(name, turn);
        let Some(kubelet) = self.by_machine.get_mut(name) else {
            return machine;
        };
        if kubelet.is_down() {
            return machine.and_at(Some(after(turn.now, DOWN)));
        }
        let run = kubelet
            .tasks
            .entry(key.clone())
            .or_insert_with(|| TaskRun::new(pod, turn.now));
        if run.uid != uid(&pod.metadata) {
            *run = TaskRun::new(pod, turn.now);
        }
        let Some(hosted) = &mut kubelet.hosted else {
            return machine;
        };
        let mut decision = run.decide(pod, &kubelet.machine, hosted, turn);
        decision.requests.extend(machine.requests);
        let again = [decision.again, machine.again].into_iter().flatten().min();
        decision.and_at(again)
    }

    /// What the machine's insides have become, told to the API server by its kubelet.
    fn decide_machine(&mut self, name: &str, turn: &mut Turn<'_>) -> Decision {
        let Some(kubelet) = self.by_machine.get_mut(name) else {
            return Decision::nothing();
        };
        let Some(hosted) = &mut kubelet.hosted else {
            return Decision::nothing();
        };
        let next = hosted.advance(turn.now);
        self.introduce(name);
        let Some(kubelet) = self.by_machine.get_mut(name) else {
            return Decision::nothing();
        };
        let requests = kubelet.reflect(turn);
        Decision::requests(requests).and_at(next)
    }

    /// After a look at a control plane; nobody else's state is of interest to them.
    fn introduce(&mut self, looked_at: &str) {
        if !self.planes.contains(looked_at) {
            return;
        }
        let mut planes: BTreeMap<String, Option<&mut Hosted>> = self
            .by_machine
            .iter_mut()
            .filter(|(_, kubelet)| kubelet.machine.control_plane)
            .map(|(name, kubelet)| (name.clone(), kubelet.hosted.as_mut()))
            .collect();
        hosted::introduce(&mut planes, &self.site);
    }

    /// The machine that was decided about with an object.
    fn behind(&mut self, item: &ObjectRef) -> Option<&mut Kubelet> {
        match (item.kind, self.mirrors.get(&item.key)) {
            (Kind::Node, _) => self.by_machine.get_mut(&item.key.name),
            (_, Some((machine, _))) => self.by_machine.get_mut(machine),
            (_, None) => {
                let mut all = self.by_machine.values_mut();
                all.find(|kubelet| kubelet.tasks.contains_key(&item.key))
            }
        }
    }
}

impl Actor for Kubelets {
    fn name(&self) -> &'static str {
        "kubelet"
    }

    fn start(&mut self, queue: &mut Queue) {
        for name in self.by_machine.keys() {
            queue.add(ObjectRef::cluster(Kind::Node, name));
        }
    }

    fn observe(&mut self, change: &Change, _view: &View, _now: Timestamp, queue: &mut Queue) {
        let Some(pod) = change.latest().and_then(Object::as_pod) else {
            return;
        };
        let Some(kubelet) = node_of(pod).and_then(|node| self.by_machine.get_mut(node)) else {
            return;
        };
        let key = Key::of(&pod.metadata);
        if change.new.is_none() {
            kubelet.pods.forget(&key, uid(&pod.metadata));
            kubelet.tasks.remove(&key);
            kubelet.told.forget(&key);
        }
        queue.add(ObjectRef::new(Kind::Pod, key));
    }

    /// What was refused was not told, nor what would have followed: it is said again.
    fn refused(&mut self, item: &ObjectRef, _failure: &Failure) {
        let Some(kubelet) = self.behind(item).filter(|kubelet| kubelet.hosted.is_some()) else {
            return;
        };
        kubelet.told.clear();
        for run in kubelet.tasks.values_mut() {
            run.tell_again();
        }
    }

    fn decide(&mut self, item: &ObjectRef, turn: &mut Turn<'_>) -> Decision {
        match item.kind {
            Kind::Node => {
                let machine = self.decide_machine(&item.key.name, turn);
                let Some(kubelet) = self.by_machine.get_mut(&item.key.name) else {
                    return Decision::nothing();
                };
                if kubelet.is_down() {
                    return machine.and_at(Some(after(turn.now, DOWN)));
                }
                let mut decision = kubelet.decide_node(turn);
                decision.requests.extend(machine.requests);
                let again = [decision.again, machine.again].into_iter().flatten().min();
                decision.and_at(again)
            }
            Kind::Pod => self.decide_pod(item, turn),
            _ => Decision::nothing(),
        }
    }
}

impl Kubelet {
    fn new(machine: Machine, power: PowerBoard) -> Self {
        Self {
            machine,
            up_at: None,
            registered: false,
            ready: false,
            renew_at: None,
            report_at: None,
            pods: pod::Pods::default(),
            hosted: None,
            tasks: BTreeMap::new(),
            told: parts::Told::default(),
            power,
        }
    }

    /// Nothing is heard from a kubelet that does not run.
    fn is_down(&self) -> bool {
        let runs_not = self
            .hosted
            .as_ref()
            .is_some_and(|hosted| !hosted.host.kubelet_running());
        runs_not || self.power.is_cut(&self.machine.name)
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
            // As upstream, which looks at all its pods again and again: a mirror may be refused, or be lost on its way.
            if self.renew_at.is_some() {
                requests.extend(self.missing_mirrors(turn.view, &node, now));
            }
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

    fn missing_mirrors(&self, view: &View, node: &Node, now: Timestamp) -> Vec<Request> {
        let pods = self.machine.static_pods.iter().enumerate();
        let missing = pods.filter(|(_, pod)| {
            let key = Key::new("kube-system", pod.name_on(&self.machine));
            !view.pods.contains_key(&key)
        });
        missing.filter_map(|(index, _)| self.mirror(index, node, now)).collect()
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

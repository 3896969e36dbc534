//! A world around one node that is upgraded: does to its view what a decision says, as an API server and its controllers would.

use std::collections::BTreeMap;
use std::sync::Arc;

use afloat_api::kubeadm::DesiredNodeState;
use afloat_api::node::{StepOutcome, StepReport, exit};
use afloat_api::{NodeKubeadmUpgrade, NodeKubeadmUpgradeStatus, NodeRole, NodeState, annotations, names};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{HOME, OLD, at, control_plane, made, node, node_upgrade, said, static_pod};
use crate::action::{Action, Decision, Task};
use crate::lifecycle::decide_node;
use crate::objects::{key_of, target_of};
use crate::view::{
    Component, ContainerEnd, ContainerReport, ControlPlaneHealth, Ending, EtcdMember, Key, Lock, Node, NodeName, Pod,
    PodBudget, Revision, Target, TaskReport, View,
};

/// A cluster and a moment, around one node that is upgraded.
pub struct World {
    pub view: View,
    pub now: Timestamp,
    pub key: Key,
    /// Every state that was written, in order, without repetitions.
    pub states: Vec<NodeState>,
    /// Names of all that was done.
    pub done: Vec<&'static str>,
}

impl World {
    /// Two workers; the first, `worker-1`, is upgraded.
    pub fn worker() -> Self {
        Self::new(NodeRole::Worker, "worker-1", &[node("worker-1"), node("worker-2")])
    }

    /// Three control planes with etcd and kube-vip; the first, `cp-1`, is upgraded.
    pub fn control_plane() -> Self {
        let nodes = ["cp-1", "cp-2", "cp-3"].map(control_plane);
        let mut world = Self::new(NodeRole::FirstControlPlane, "cp-1", &nodes);
        world.run_parts(OLD, at(-1000));
        world
    }

    pub fn new(role: NodeRole, name: &str, nodes: &[Node]) -> Self {
        let mut view = View::default();
        view.home = Arc::from(HOME);
        view.nodes_as_of = Revision(u64::MAX);
        for node in nodes {
            view.nodes.insert(node.name.clone(), Arc::new(node.clone()));
        }
        let upgrade = node_upgrade(name, role);
        let key = key_of(&upgrade.metadata);
        view.put_node_upgrade(key.clone(), Arc::new(upgrade));
        Self {
            view,
            now: at(0),
            key,
            states: Vec::new(),
            done: Vec::new(),
        }
    }

    pub fn upgrade(&self) -> NodeKubeadmUpgrade {
        (**self.view.node_upgrade(&self.key).unwrap()).clone()
    }

    pub fn status(&self) -> NodeKubeadmUpgradeStatus {
        self.upgrade().status.unwrap_or_default()
    }

    pub fn state(&self) -> NodeState {
        self.status().state.unwrap_or_default()
    }

    pub fn waits_for(&self) -> String {
        self.status().waiting_for.map(|wait| wait.reason).unwrap_or_default()
    }

    pub fn failure(&self) -> String {
        self.status().failure.map(|failure| failure.reason).unwrap_or_default()
    }

    pub fn node(&self) -> Node {
        let name = self.upgrade().spec.node.name;
        (**self.view.nodes.get(name.as_str()).unwrap()).clone()
    }

    /// Changes the node that is upgraded.
    pub fn with_node(&mut self, change: impl FnOnce(&mut Node)) {
        let mut node = self.node();
        change(&mut node);
        node.revision.0 += 1;
        self.view.nodes.insert(node.name.clone(), Arc::new(node));
    }

    /// Changes its NodeKubeadmUpgrade.
    pub fn with_upgrade(&mut self, change: impl FnOnce(&mut NodeKubeadmUpgrade)) {
        let mut upgrade = self.upgrade();
        change(&mut upgrade);
        let revision = target_of(&upgrade.metadata).revision.0 + 1;
        upgrade.metadata.resource_version = Some(revision.to_string());
        self.view.put_node_upgrade(self.key.clone(), Arc::new(upgrade));
    }

    pub fn desire(&mut self, desired: DesiredNodeState) {
        self.with_upgrade(|upgrade| upgrade.spec.desired = desired);
    }

    pub fn delete_upgrade(&mut self) {
        let now = Time(self.now);
        self.with_upgrade(|upgrade| upgrade.metadata.deletion_timestamp = Some(now));
    }

    pub fn put(&mut self, pod: Pod) {
        self.view.put_pod(Arc::new(pod));
    }

    pub fn put_budget(&mut self, budget: PodBudget) {
        self.view.budgets.insert(budget.key.clone(), Arc::new(budget));
    }

    pub fn pass(&mut self, seconds: i64) {
        self.now += SignedDuration::from_secs(seconds);
    }

    pub fn decide(&self) -> Decision {
        decide_node(&self.view, &self.key, self.now)
    }

    /// Decides once and does it. What is done to a node follows a write that an out-of-date view is refused.
    pub fn turn(&mut self) -> Decision {
        let decision = self.decide();
        let mut actions = decision.actions.iter();
        let first = actions.find(|action| !matches!(action, Action::TakeLock { .. }));
        let guarded = matches!(first, Some(Action::WriteNodeStatus { .. }));
        let touches = |action: &Action| {
            let names = ["cordon", "uncordon", "create-pod"];
            names.contains(&action.name())
        };
        assert!(
            guarded || !decision.actions.iter().any(touches),
            "{:?}",
            decision.actions
        );
        for action in &decision.actions {
            assert!(self.apply(action), "refused: {action:?}");
        }
        decision
    }

    /// Decides until nothing follows, and looks that then nothing follows indeed.
    pub fn settle(&mut self) {
        for _ in 0..20 {
            let decision = self.turn();
            if decision.actions.is_empty() {
                assert!(decision.events.is_empty(), "told again: {:?}", decision.events);
                assert!(decision.again.is_none_or(|again| again > self.now));
                return;
            }
        }
        panic!("no rest: {:?}", self.decide().actions);
    }

    /// Does what an action says, as an API server would; `false` where it refuses.
    pub fn apply(&mut self, action: &Action) -> bool {
        self.done.push(action.name());
        match action {
            Action::WriteNodeStatus { target, status } => {
                if *target != target_of(&self.upgrade().metadata) {
                    return false;
                }
                let state = status.state.unwrap();
                if self.states.last() != Some(&state) {
                    self.states.push(state);
                }
                self.with_upgrade(|upgrade| upgrade.status = Some((**status).clone()));
            }
            Action::RemoveNodeFinalizer { target } => {
                return *target == target_of(&self.upgrade().metadata)
                    && self.view.remove_node_upgrade(&self.key).is_some();
            }
            Action::Cordon { node, by } => {
                let fits = *node == self.node().target();
                self.with_node(|node| {
                    node.unschedulable = true;
                    node.cordoned_by = Some(by.clone());
                });
                return fits;
            }
            Action::Uncordon { node } => {
                let fits = *node == self.node().target();
                self.with_node(|node| {
                    node.unschedulable = false;
                    node.cordoned_by = None;
                });
                return fits;
            }
            Action::TakeLock { namespace, holder, .. } => {
                let lock = self.view.lock.get_or_insert_with(|| Lock {
                    target: Target {
                        key: Key::new(namespace, names::LOCK),
                        uid: "lock".into(),
                        revision: Revision(1),
                    },
                    holder: holder.clone(),
                });
                return lock.holder == *holder;
            }
            Action::ReleaseLock { .. } => self.view.lock = None,
            Action::CreatePod(task) => self.put(made(task, self.now)),
            Action::DeletePod { pod } => {
                self.view.remove_pod(&pod.key);
            }
            Action::Evict { pod, .. } | Action::DeletePastBudget { pod, .. } => {
                let by = self.now + SignedDuration::from_secs(30);
                self.charge(&pod.key, -1);
                self.with_pod(&pod.key, |pod| {
                    pod.ending = Some(Ending {
                        by,
                        held_by_finalizer: false,
                    });
                });
            }
            other => panic!("not of a node's life: {other:?}"),
        }
        true
    }

    pub fn with_pod(&mut self, key: &Key, change: impl FnOnce(&mut Pod)) {
        let mut pod = (**self.view.pod(key).unwrap()).clone();
        change(&mut pod);
        pod.revision.0 += 1;
        self.put(pod);
    }

    /// A pod that goes costs its budgets one disruption, until another has come for it.
    fn charge(&mut self, pod: &Key, change: i64) {
        let pod = Arc::clone(self.view.pod(pod).unwrap());
        let budgets: Vec<PodBudget> = self.view.budgets_of(&pod).map(|budget| (**budget).clone()).collect();
        for mut budget in budgets {
            budget.disruptions_allowed += change;
            self.put_budget(budget);
        }
    }

    /// Lets every pod go that was asked to; what replaces it is ready elsewhere.
    pub fn end_pods(&mut self) {
        let ending: Vec<Key> = self
            .view
            .pods()
            .filter(|pod| pod.ending.is_some())
            .map(|pod| pod.key.clone())
            .collect();
        for key in ending {
            self.charge(&key, 1);
            self.view.remove_pod(&key);
        }
    }

    /// The pod of a task of the present attempt.
    pub fn task_key(&self, task: Task) -> Key {
        let attempt = self.status().attempt.unwrap_or(1);
        Key::new(HOME, &names::task_pod(&self.key.name, task.word(), attempt))
    }

    pub fn has_pod(&self, task: Task) -> bool {
        self.view.pod(&self.task_key(task)).is_some()
    }

    /// A container of a task ends now, having begun ten seconds ago.
    pub fn end_step(&mut self, task: Task, step: &str, code: i32, report: &StepReport) {
        let now = self.now;
        let end = ContainerEnd {
            exit_code: code,
            started_at: now - SignedDuration::from_secs(10),
            finished_at: now,
            message: Arc::from(serde_json::to_string(report).unwrap()),
        };
        self.with_container(task, step, |container| container.ended = Some(end));
    }

    pub fn with_container(&mut self, task: Task, step: &str, change: impl FnOnce(&mut ContainerReport)) {
        self.with_report(task, |report| {
            change(report.containers.entry(Arc::from(step)).or_default());
        });
    }

    pub fn with_report(&mut self, task: Task, change: impl FnOnce(&mut TaskReport)) {
        let key = self.task_key(task);
        self.with_pod(&key, |pod| {
            let mut report = (**pod.task.as_ref().unwrap()).clone();
            change(&mut report);
            pod.task = Some(Arc::new(report));
        });
    }

    /// All containers of a task's pod end well, one after the other.
    pub fn finish(&mut self, task: Task) {
        let report = self.view.pod(&self.task_key(task)).unwrap().task.clone().unwrap();
        let spec = self.upgrade().spec;
        let order: Vec<String> = match task {
            Task::Upgrade => spec.steps.iter().map(|step| step.name.clone()).collect(),
            _ => report.containers.keys().map(ToString::to_string).collect(),
        };
        for step in order {
            self.pass(10);
            self.end_step(task, &step, exit::DONE, &said(StepOutcome::Done, "done"));
        }
    }

    /// The static parts of the node run at a version since a moment, and its API server and etcd are well.
    pub fn run_parts(&mut self, version: &str, since: Timestamp) {
        let name = self.upgrade().spec.node.name;
        let parts = [
            (Component::Etcd, "etcd", "3.6.8-0"),
            (Component::ApiServer, "kube-apiserver", version),
            (Component::ControllerManager, "kube-controller-manager", version),
            (Component::Scheduler, "kube-scheduler", version),
            (Component::KubeVip, "kube-vip", "v1.0.4"),
        ];
        for (component, word, tag) in parts {
            let mut pod = static_pod(component, word, &name, tag);
            pod.started_at = Some(since);
            self.put(pod);
        }
        let health = ControlPlaneHealth {
            readyz_in_a_row: 3,
            etcd: Some(EtcdMember { healthy: true }),
        };
        self.view.health.insert(NodeName::from(name.as_str()), health);
    }

    /// The kubelet reports a version.
    pub fn kubelet(&mut self, version: &str) {
        self.with_node(|node| node.kubelet_version = version.parse().ok());
    }

    pub fn annotate_because(&mut self, word: &str) {
        self.with_upgrade(|upgrade| {
            let because = (annotations::BECAUSE.to_owned(), word.to_owned());
            upgrade.metadata.annotations = Some(BTreeMap::from([because]));
        });
    }
}

//! Small clusters for the tests of decisions: builders with defaults that work, and a world that does to its view what a
//! decision says, as an API server and its controllers would. Tests change what they are about.

use std::collections::BTreeMap;
use std::sync::Arc;

use afloat_api::kubeadm::DesiredNodeState;
use afloat_api::node::{StepOutcome, StepReport, exit, steps};
use afloat_api::{
    NodeKubeadmUpgrade, NodeKubeadmUpgradeSpec, NodeKubeadmUpgradeStatus, NodeRef, NodeRole, NodeState, StepContainer,
    annotations, labels, names,
};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};

use crate::action::{Action, Decision, Task, TaskPod};
use crate::lifecycle::decide_node;
use crate::objects::{key_of, target_of};
use crate::view::{
    Component, ContainerEnd, ContainerReport, ControlPlaneHealth, Ending, EtcdMember, Key, Labels, Node, NodeName,
    Operator, Owner, Pod, PodBudget, PodPhase, PodShape, Ready, Requirement, Resources, Revision, Selector, StaticPart,
    TaskReport, Uid, View,
};

pub const HOME: &str = "afloat-system";
pub const OLD: &str = "v1.35.4";
pub const NEW: &str = "v1.36.3";
pub const UPGRADE: &str = "0b2f4c6e-1111-4222-8333-444455556666";

/// So many seconds after the beginning of all tests.
pub fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_790_000_000 + seconds).unwrap()
}

pub fn uid(name: &str) -> Uid {
    Uid::from(format!("uid-of-{name}"))
}

/// A worker that is in service.
pub fn node(name: &str) -> Node {
    Node {
        name: NodeName::from(name),
        uid: uid(name),
        revision: Revision(1),
        created_at: at(-1_000_000),
        deleting: false,
        labels: Arc::default(),
        control_plane: false,
        pause: None,
        cordoned_by: None,
        wish: None,
        unschedulable: false,
        taints: Vec::new(),
        ready: Ready {
            ready: true,
            since: at(-1_000_000),
        },
        kubelet_version: OLD.parse().ok(),
        container_runtime_version: Arc::from("containerd://2.2.1"),
        os_image: Arc::from("Debian GNU/Linux 13"),
        internal_ip: None,
        allocatable: Resources {
            cpu_milli: 4000,
            memory: 8 << 30,
            pods: 110,
            others: BTreeMap::new(),
        },
        attached_volumes: Vec::new(),
    }
}

pub fn control_plane(name: &str) -> Node {
    Node {
        control_plane: true,
        labels: Arc::new(map(&[(labels::CONTROL_PLANE_NODE, "")])),
        ..node(name)
    }
}

pub fn map(pairs: &[(&str, &str)]) -> Labels {
    let pairs = pairs.iter().map(|(key, value)| (Arc::from(*key), Arc::from(*value)));
    pairs.collect()
}

/// A pod of a Deployment, running and ready, with the label `app`.
pub fn pod(namespace: &str, name: &str, node: &str, app: &str) -> Pod {
    Pod {
        key: Key::new(namespace, name),
        uid: uid(name),
        revision: Revision(1),
        node: Some(NodeName::from(node)),
        phase: PodPhase::Running,
        ready: true,
        started_at: Some(at(-1000)),
        ending: None,
        shape: Arc::new(PodShape {
            labels: map(&[("app", app)]),
            owner: Some(owner("ReplicaSet", app)),
            ..PodShape::default()
        }),
        static_part: None,
        task: None,
    }
}

pub fn owner(kind: &str, name: &str) -> Owner {
    Owner {
        kind: Arc::from(kind),
        name: Arc::from(name),
        uid: uid(name),
    }
}

/// The mirror of a static pod, Ready.
pub fn static_pod(component: Component, word: &str, node: &str, tag: &str) -> Pod {
    let mut pod = pod("kube-system", &format!("{word}-{node}"), node, word);
    pod.shape = Arc::new(PodShape {
        owner: Some(owner("Node", node)),
        ..(*pod.shape).clone()
    });
    pod.static_part = Some(StaticPart {
        component,
        version: tag.parse().ok(),
        tag: Arc::from(tag),
    });
    pod
}

/// A budget over the pods with the label `app`.
pub fn budget(namespace: &str, name: &str, app: &str, allowed: i64) -> PodBudget {
    PodBudget {
        key: Key::new(namespace, name),
        uid: uid(name),
        revision: Revision(1),
        selector: Selector {
            requirements: vec![Requirement {
                key: Arc::from("app"),
                operator: Operator::In,
                values: vec![Arc::from(app)],
            }],
        },
        up_to_date: true,
        disruptions_allowed: allowed,
        current_healthy: 2,
        desired_healthy: 2 - allowed,
        expected_pods: 2,
        unhealthy_may_go: false,
    }
}

pub fn step(name: &str) -> StepContainer {
    StepContainer {
        name: name.to_owned(),
        image: "upgrader:v1.36.3".to_owned(),
        args: vec!["node".to_owned(), name.to_owned()],
        ..StepContainer::default()
    }
}

/// The upgrade of a node to [`NEW`], labelled with [`UPGRADE`], with staging and all steps of its role.
pub fn node_upgrade(node: &str, role: NodeRole) -> NodeKubeadmUpgrade {
    let name = names::node_upgrade(node, UPGRADE, uid(node).as_str());
    let mut words = vec![steps::CONTAINERD, steps::CNI, steps::KUBEADM, steps::KUBELET];
    if role != NodeRole::Worker {
        words.insert(0, steps::STAND_ASIDE);
        words.push(steps::COME_BACK);
    }
    NodeKubeadmUpgrade {
        metadata: ObjectMeta {
            namespace: Some(HOME.to_owned()),
            uid: Some(uid(&name).to_string()),
            name: Some(name),
            resource_version: Some("1".to_owned()),
            generation: Some(1),
            finalizers: Some(vec![names::FINALIZER.to_owned()]),
            labels: Some(BTreeMap::from([(labels::UPGRADE_UID.to_owned(), UPGRADE.to_owned())])),
            ..ObjectMeta::default()
        },
        spec: NodeKubeadmUpgradeSpec {
            cluster: None,
            machine: None,
            node: NodeRef {
                name: node.to_owned(),
                uid: uid(node).to_string(),
            },
            role,
            kubernetes_version: NEW.to_owned(),
            kubelet_version: NEW.to_owned(),
            etcd_version: None,
            stage: Some(step(steps::STAGE)),
            steps: words.into_iter().map(step).collect(),
            attempt: 1,
            desired: DesiredNodeState::Upgraded,
            undo_after_seconds: None,
        },
        status: None,
    }
}

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

    /// Decides once and does it.
    pub fn turn(&mut self) -> Decision {
        let decision = self.decide();
        for action in &decision.actions {
            assert!(self.apply(action), "refused: {action:?}");
        }
        decision
    }

    /// Decides until nothing follows, and looks that then nothing follows indeed.
    pub fn settle(&mut self) {
        for _ in 0..20 {
            if self.turn().actions.is_empty() {
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
            Action::CreatePod(task) => self.put(made(task, self.now)),
            Action::DeletePod { pod } => {
                self.view.remove_pod(&pod.key);
            }
            Action::Evict { pod, .. } | Action::DeletePastBudget { pod, .. } => {
                let by = self.now + SignedDuration::from_secs(30);
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

    /// Lets every pod go that was asked to.
    pub fn end_pods(&mut self) {
        let ending: Vec<Key> = self
            .view
            .pods()
            .filter(|pod| pod.ending.is_some())
            .map(|pod| pod.key.clone())
            .collect();
        for key in ending {
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
            change(report.containers.entry(Arc::from(step)).or_default())
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
            Task::Upgrade => spec.steps.into_iter().map(|step| step.name).collect(),
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
            etcd: Some(EtcdMember {
                healthy: true,
                behind: Some(0),
            }),
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

pub fn said(outcome: StepOutcome, message: &str) -> StepReport {
    StepReport {
        outcome,
        message: message.to_owned(),
        ..StepReport::default()
    }
}

/// The pod the operator makes of a task; its first container runs.
fn made(task: &TaskPod, now: Timestamp) -> Pod {
    let mut containers: BTreeMap<Arc<str>, ContainerReport> = BTreeMap::new();
    for (index, step) in task.steps.iter().enumerate() {
        let report = ContainerReport {
            running_since: (index == 0).then_some(now),
            ..ContainerReport::default()
        };
        containers.insert(Arc::from(step.name.as_str()), report);
    }
    let attempt = task.attempt.to_string();
    Pod {
        key: task.key.clone(),
        uid: uid(&task.key.name),
        revision: Revision(1),
        node: Some(task.node.clone()),
        phase: PodPhase::Pending,
        ready: false,
        started_at: Some(now),
        ending: None,
        shape: Arc::new(PodShape {
            labels: map(&[
                (labels::TASK, task.task.word()),
                (labels::ATTEMPT, &attempt),
                (labels::UPGRADE_UID, task.upgrade_uid.as_str()),
            ]),
            owner: Some(Owner {
                kind: Arc::from("NodeKubeadmUpgrade"),
                name: Arc::clone(&task.owner.key.name),
                uid: task.owner.uid.clone(),
            }),
            ..PodShape::default()
        }),
        static_part: None,
        task: Some(Arc::new(TaskReport {
            task: Arc::from(task.task.word()),
            attempt: task.attempt,
            containers,
            image_problem: None,
        })),
    }
}

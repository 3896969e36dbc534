//! Kubelets: they start and end pods, run Afloat's step containers one after the other, and tell the API server what they
//! see. What a kubelet cannot tell while it or the API server is away, it tells when both are back.

use std::sync::Arc;

use afloat_api::node::{NodePlan, exit};
use afloat_core::action::Task;
use afloat_core::view::{
    Component, ContainerEnd, ContainerReport, Key, NodeName, Pod, PodPhase, PodShape, Ready, Revision, StaticPart,
    TaskReport, Uid,
};

use super::{Event, World};
use crate::machine::{Ended, Part, TaskRun};
use crate::store::{Meant, Writer};
use crate::time::{MINUTE, Millis, SECOND, stamp};

/// The kubelet's back-off between two starts of a container: from ten seconds, doubled, to five minutes.
fn back_off(restarts: i32) -> Millis {
    let doubled = (10 * SECOND) << u32::try_from(restarts).unwrap_or_default().min(5);
    doubled.min(5 * MINUTE)
}

impl World {
    /// What a kubelet does about a pod of its node.
    pub(super) fn kubelet_sees(&mut self, pod: &Arc<Pod>, before: Option<&Arc<Pod>>) {
        let Some(node) = &pod.node else { return };
        if pod.static_part.is_some() || !self.kubelet_runs(node) {
            return;
        }
        let bound = before.is_none_or(|before| before.node.is_none());
        if bound && pod.phase == PodPhase::Pending {
            let after = self.some(200, 2 * SECOND);
            self.later(after, Event::PodStart(pod.key.clone(), pod.uid.clone()));
        }
        if pod.ending.is_some() && before.is_none_or(|before| before.ending.is_none()) {
            self.end_later(pod);
        }
    }

    fn end_later(&mut self, pod: &Pod) {
        let grace = self.store.pods_more.get(&pod.uid).map_or(0, |more| more.grace);
        let after = self.some(100, grace.max(100));
        self.later(after, Event::PodGone(pod.key.clone(), pod.uid.clone()));
    }

    pub(super) fn kubelet_runs(&self, node: &NodeName) -> bool {
        self.machines.get(node).is_some_and(|machine| machine.facts.kubelet)
    }

    /// The pod, where it is still this one and its kubelet runs.
    fn on_kubelet(&self, key: &Key, uid: &Uid) -> Option<(Arc<Pod>, NodeName)> {
        let pod = self.store.pods.get(key).filter(|pod| pod.uid == *uid)?;
        let node = pod.node.clone()?;
        self.kubelet_runs(&node).then(|| (Arc::clone(pod), node))
    }

    pub(super) fn pod_starts(&mut self, key: &Key, uid: &Uid) {
        let Some((pod, node)) = self.on_kubelet(key, uid) else {
            return;
        };
        if pod.phase != PodPhase::Pending || pod.ending.is_some() {
            return;
        }
        let task = self.store.pods_more.get(uid).and_then(|more| more.task.clone());
        if let Some(task) = task {
            let Some(machine) = self.machines.get_mut(&node) else {
                return;
            };
            let epoch = machine.epoch;
            machine.tasks.entry(uid.clone()).or_insert_with(|| TaskRun {
                key: key.clone(),
                task,
                current: 0,
                running_since: None,
                containers: std::collections::BTreeMap::default(),
                image_problem: None,
                finished: false,
            });
            self.later(300, Event::Container(node, uid.clone(), epoch));
            return;
        }
        let ready_after = self
            .keeper_of_pod(&pod)
            .map_or(SECOND, |keeper| self.keepers[keeper].start);
        let started = Some(stamp(self.now));
        let started = self
            .store
            .update::<Pod>(Writer::Kubelet, "start", &Meant::named(key), |pod| {
                pod.phase = PodPhase::Running;
                pod.started_at = started;
            });
        if started.is_ok() {
            let after = self.some(ready_after / 2, ready_after * 2);
            self.later(after, Event::PodReady(key.clone(), uid.clone()));
        }
    }

    pub(super) fn pod_is_ready(&mut self, key: &Key, uid: &Uid) {
        let Some((pod, _)) = self.on_kubelet(key, uid) else {
            return;
        };
        if pod.phase == PodPhase::Running && pod.ending.is_none() {
            let _ = self
                .store
                .update::<Pod>(Writer::Kubelet, "ready", &Meant::named(key), |pod| pod.ready = true);
        }
    }

    pub(super) fn pod_goes(&mut self, key: &Key, uid: &Uid) {
        let Some((pod, node)) = self.on_kubelet(key, uid) else {
            return;
        };
        if pod.ending.is_none_or(|ending| ending.held_by_finalizer) {
            return;
        }
        if let Some(machine) = self.machines.get_mut(&node) {
            machine.tasks.remove(uid);
        }
        self.store.remove_pod(Writer::Kubelet, key);
    }

    /// A step container starts, or is started again.
    pub(super) fn container(&mut self, node: &NodeName, uid: &Uid, epoch: u32) {
        let now = self.now;
        let Some(machine) = self.machines.get_mut(node) else {
            return;
        };
        if machine.epoch != epoch || !machine.facts.kubelet_runs {
            return;
        }
        let pull_fails = machine.pull_fails > 0;
        let Some(run) = machine.tasks.get_mut(uid) else { return };
        if run.finished || run.running_since.is_some() {
            return;
        }
        if pull_fails {
            machine.pull_fails = machine.pull_fails.saturating_sub(1);
            run.image_problem = Some(Arc::from("the image cannot be pulled: not found"));
            self.later(back_off(1), Event::Container(node.clone(), uid.clone(), epoch));
            self.tell_soon(node);
            return;
        }
        run.image_problem = None;
        let Some(step) = run.task.steps.get(run.current).cloned() else {
            run.finished = true;
            self.tell_soon(node);
            return;
        };
        run.running_since = Some(now);
        let report = run.containers.entry(Arc::from(step.name.as_str())).or_default();
        report.running_since = Some(stamp(now));
        let env = |name: &str| {
            step.env
                .iter()
                .find(|env| env.name == name)
                .map(|env| env.value.clone())
        };
        let before = machine.facts.clone();
        let ended = match NodePlan::from_env(env) {
            Ok(plan) => machine.begin(&plan, &step.name, now),
            Err(error) => Some(Ended {
                exit_code: exit::FAILED,
                message: error.to_string(),
            }),
        };
        if let Some(ended) = ended {
            self.end_container(node, uid, ended.exit_code, &ended.message);
        }
        self.wake(node, now + 1);
        self.machine_moved(node, &before);
        self.follow(node);
        self.tell_soon(node);
    }

    /// The machine wants to be called at this time, unless it is called earlier.
    pub(super) fn wake(&mut self, node: &NodeName, at: Millis) {
        let Some(machine) = self.machines.get_mut(node) else {
            return;
        };
        if machine.wake_at.is_none_or(|planned| at < planned) {
            machine.wake_at = Some(at);
            let epoch = machine.epoch;
            self.queue.push(at, Event::Engine(node.clone(), epoch));
        }
    }

    /// Time passes on a host, and its engine does one thing.
    pub(super) fn engine(&mut self, node: &NodeName, epoch: u32) {
        let now = self.now;
        let Some(machine) = self.machines.get_mut(node) else {
            return;
        };
        if machine.epoch != epoch || machine.wake_at != Some(now) {
            return;
        }
        machine.wake_at = None;
        let before = machine.facts.clone();
        let next = machine.advance(now);
        self.machine_moved(node, &before);
        self.follow(node);
        if let Some(at) = next {
            self.wake(node, at);
        }
    }

    /// Containers end when the step they follow has.
    pub(super) fn follow(&mut self, node: &NodeName) {
        let now = self.now;
        let Some(machine) = self.machines.get_mut(node) else {
            return;
        };
        let running = machine.tasks.iter().filter_map(|(uid, run)| {
            run.running_since?;
            Some((uid.clone(), Arc::clone(&run.task), run.current))
        });
        let running: Vec<_> = running.collect();
        for (uid, task, current) in running {
            let Some(step) = task.steps.get(current) else { continue };
            let machine = self.machines.get_mut(node);
            if let Some(ended) = machine.and_then(|machine| machine.follow(&step.name, now)) {
                self.end_container(node, &uid, ended.exit_code, &ended.message);
            }
        }
    }

    fn end_container(&mut self, node: &NodeName, uid: &Uid, exit_code: i32, message: &str) {
        let now = self.now;
        let Some(machine) = self.machines.get_mut(node) else {
            return;
        };
        let epoch = machine.epoch;
        let Some(run) = machine.tasks.get_mut(uid) else { return };
        let Some(since) = run.running_since.take() else { return };
        let Some(step) = run.task.steps.get(run.current) else {
            return;
        };
        let report = run.containers.entry(Arc::from(step.name.as_str())).or_default();
        report.running_since = None;
        report.ended = Some(ContainerEnd {
            exit_code,
            started_at: stamp(since),
            finished_at: stamp(now),
            message: Arc::from(message),
        });
        let mut rests = exit_code == exit::UNDONE;
        let after = if exit_code == exit::DONE {
            run.current += 1;
            rests |= run.current == run.task.steps.len() && run.task.task != Task::Stage;
            300
        } else {
            report.restarts += 1;
            back_off(report.restarts - 1)
        };
        if rests {
            machine.rests();
        }
        self.later(after, Event::Container(node.clone(), uid.clone(), epoch));
        self.tell_soon(node);
    }

    fn tell_soon(&mut self, node: &NodeName) {
        let after = self.some(50, 1000);
        self.later(after, Event::Tell(node.clone()));
    }

    /// Everything the API server does not know yet.
    pub(crate) fn tell(&mut self, node: &NodeName) {
        let Some(machine) = self.machines.get(node) else { return };
        if !machine.facts.kubelet {
            return;
        }
        let facts = machine.facts.clone();
        let told = self.told.get(node);
        let back = told.is_none_or(|told| !told.kubelet);
        let changed = told != Some(&facts);
        let node_uid = machine.node_uid.clone();
        self.tell_tasks(node);
        if !changed {
            return;
        }
        self.tell_node(node, &node_uid);
        let parts: Vec<Part> = facts.parts.clone();
        for part in &parts {
            self.tell_part(node, part);
        }
        self.told.insert(node.clone(), facts);
        if back {
            self.kubelet_is_back(node);
        }
    }

    fn tell_node(&mut self, name: &NodeName, uid: &Uid) {
        let Some(machine) = self.machines.get(name) else { return };
        let facts = machine.facts.clone();
        let now = stamp(self.now);
        let meant = Meant {
            key: name,
            uid: Some(uid.as_str()),
            revision: None,
        };
        let _ = self.store.update(
            Writer::Kubelet,
            "status",
            &meant,
            |node: &mut afloat_core::view::Node| {
                node.kubelet_version = Some(facts.kubelet_version.clone());
                node.container_runtime_version = Arc::clone(&facts.runtime_version);
                if !node.ready.ready {
                    node.ready = Ready {
                        ready: true,
                        since: now,
                    };
                }
            },
        );
    }

    fn tell_part(&mut self, node: &NodeName, part: &Part) {
        let name = format!("{}-{node}", part_word(part.component));
        let key = Key::new("kube-system", &name);
        let started = stamp(part.started_at);
        let static_part = StaticPart {
            component: part.component,
            version: part.version.clone(),
            tag: Arc::clone(&part.tag),
        };
        if self.store.pods.get(&key).is_some() {
            let _ = self
                .store
                .update::<Pod>(Writer::Kubelet, "status", &Meant::named(&key), |pod| {
                    pod.ready = part.ready;
                    pod.started_at = Some(started);
                    pod.static_part = Some(static_part);
                });
            return;
        }
        let uid = self.store.new_uid();
        let pod = Pod {
            key,
            uid,
            revision: Revision(0),
            node: Some(node.clone()),
            phase: PodPhase::Running,
            ready: part.ready,
            started_at: Some(started),
            ending: None,
            shape: Arc::new(PodShape::default()),
            static_part: Some(static_part),
            task: None,
        };
        self.store.put(Writer::Kubelet, "mirror", pod);
    }

    /// A kubelet that is back looks at all its pods.
    fn kubelet_is_back(&mut self, node: &NodeName) {
        let pods: Vec<Arc<Pod>> = self.store.pods_on(node).cloned().collect();
        for pod in pods {
            if pod.static_part.is_some() {
                continue;
            }
            if pod.ending.is_some() {
                self.end_later(&pod);
            } else if pod.phase == PodPhase::Pending {
                let after = self.some(200, 2 * SECOND);
                self.later(after, Event::PodStart(pod.key.clone(), pod.uid.clone()));
            } else if pod.phase == PodPhase::Running && !pod.ready {
                let after = self.some(SECOND, 5 * SECOND);
                self.later(after, Event::PodReady(pod.key.clone(), pod.uid.clone()));
            }
        }
        let Some(machine) = self.machines.get(node) else { return };
        let epoch = machine.epoch;
        let tasks: Vec<Uid> = machine.tasks.keys().cloned().collect();
        for uid in tasks {
            self.later(500, Event::Container(node.clone(), uid, epoch));
        }
    }

    fn tell_tasks(&mut self, node: &NodeName) {
        let Some(machine) = self.machines.get(node) else { return };
        let mut reports = Vec::new();
        for (uid, run) in &machine.tasks {
            let report = TaskReport {
                task: Arc::from(run.task.task.word()),
                attempt: run.task.attempt,
                containers: run.containers.clone(),
                image_problem: run.image_problem.clone(),
            };
            reports.push((run.key.clone(), uid.clone(), report, run.finished));
        }
        let now = stamp(self.now);
        for (key, uid, report, finished) in reports {
            let meant = Meant {
                key: &key,
                uid: Some(uid.as_str()),
                revision: None,
            };
            let _ = self.store.update::<Pod>(Writer::Kubelet, "status", &meant, |pod| {
                pod.started_at.get_or_insert(now);
                if finished {
                    pod.phase = PodPhase::Succeeded;
                }
                if pod.task.as_deref() != Some(&report) {
                    pod.task = Some(Arc::new(report));
                }
            });
        }
    }

    /// All containers of a machine end with its power.
    pub(super) fn containers_die(&mut self, node: &NodeName) {
        let now = stamp(self.now);
        let Some(machine) = self.machines.get_mut(node) else {
            return;
        };
        for run in machine.tasks.values_mut() {
            if run.running_since.take().is_some()
                && let Some(step) = run.task.steps.get(run.current)
            {
                let report: &mut ContainerReport = run.containers.entry(Arc::from(step.name.as_str())).or_default();
                let started_at = report.running_since.take().unwrap_or(now);
                report.ended = Some(ContainerEnd {
                    exit_code: 137,
                    started_at,
                    finished_at: now,
                    message: Arc::from(""),
                });
            }
        }
    }
}

pub(super) fn part_word(component: Component) -> &'static str {
    match component {
        Component::Etcd => "etcd",
        Component::ApiServer => "kube-apiserver",
        Component::ControllerManager => "kube-controller-manager",
        Component::Scheduler => "kube-scheduler",
        Component::KubeVip => "kube-vip",
        Component::Other => "other",
    }
}

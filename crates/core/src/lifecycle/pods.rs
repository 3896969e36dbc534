//! Afloat's own pods on a node: making them, removing them, and reading from their containers what became of each step. What they
//! do there is in `afloat-node`; how they look as Kubernetes objects is the operator's.

use std::str::FromStr as _;
use std::sync::Arc;

use afloat_api::common::StepEnv;
use afloat_api::kubeadm::{StepState, StepStatus};
use afloat_api::node::{StepOutcome, StepReport, exit, steps};
use afloat_api::{NodeState, ObjectRef, Reason, StepContainer, names};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::drain;
use super::turn::{LONG_MESSAGE, Turn, pod_ref, short};
use crate::action::{Action, Task, TaskPod};
use crate::objects::{target_of, uid_of};
use crate::view::{ContainerEnd, ContainerReport, Key, NodeName, Pod, TaskReport, Uid};

/// As many steps as the CRD takes, with the staging.
const STEPS: usize = 17;
const ATTEMPT: &str = "AFLOAT_ATTEMPT";
const UPGRADE: &str = "AFLOAT_UPGRADE";

/// Where a pod is with its steps.
pub(super) enum Progress {
    /// There is none: not made yet, or somebody removed it.
    NoPod,
    Working,
    Done,
    Failed(StepFailure),
    /// The host has undone its work by itself.
    Undone(StepFailure),
}

pub(super) struct StepFailure {
    pub message: String,
    pub pod: Option<ObjectRef>,
}

impl<'a> Turn<'a> {
    fn key_of_pod(&self, task: Task) -> Key {
        let name = self.upgrade.metadata.name.as_deref().unwrap_or_default();
        Key {
            namespace: Arc::clone(&self.view.home),
            name: Arc::from(names::task_pod(name, task.word(), self.attempt())),
        }
    }

    pub fn task_pod(&self, task: Task) -> Option<&'a Pod> {
        self.view.pod(&self.key_of_pod(task)).map(|pod| &**pod)
    }

    /// A namesake whose owner is another object is a leftover, however its name reads.
    fn is_ours(&self, pod: &Pod) -> bool {
        let uid = uid_of(&self.upgrade.metadata);
        pod.shape.owner.as_ref().is_none_or(|owner| owner.uid == uid)
    }

    pub fn create_pod(&mut self, task: Task) {
        let key = self.key_of_pod(task);
        self.status.pod = Some(ObjectRef {
            api_version: Some("v1".to_owned()),
            kind: "Pod".to_owned(),
            namespace: Some(key.namespace.to_string()),
            name: key.name.to_string(),
            uid: None,
        });
        let mut steps = self.steps_of(task);
        for step in &mut steps {
            // An object that was deleted and made anew counts its attempts anew: its uid keeps the journals apart.
            set_variable(step, UPGRADE, self.upgrade.metadata.uid.clone().unwrap_or_default());
            set_variable(step, ATTEMPT, self.attempt().to_string());
        }
        let node = NodeName::from(self.upgrade.spec.node.name.as_str());
        let drained = |node| !drain::waived(self.view, node);
        let emptied = task != Task::Stage && self.view.nodes.get(&node).map(AsRef::as_ref).is_some_and(drained);
        self.act_guarded(Action::CreatePod(Box::new(TaskPod {
            key,
            node,
            node_uid: Uid::from(self.upgrade.spec.node.uid.as_str()),
            task,
            attempt: self.attempt(),
            upgrade_uid: self.signature.clone(),
            owner: target_of(&self.upgrade.metadata),
            steps,
            emptied,
        })));
    }

    fn names_of(&self, task: Task) -> Vec<String> {
        let spec = &self.upgrade.spec;
        let name = |step: &StepContainer| step.name.clone();
        match task {
            Task::Stage => spec.stage.as_deref().map(name).into_iter().collect(),
            Task::Upgrade => spec.steps.iter().map(name).collect(),
            Task::Rollback => {
                let undoes = !spec.steps.is_empty();
                undoes.then(|| steps::ROLLBACK.to_owned()).into_iter().collect()
            }
        }
    }

    fn steps_of(&self, task: Task) -> Vec<StepContainer> {
        let spec = &self.upgrade.spec;
        match task {
            Task::Stage => spec.stage.as_deref().into_iter().cloned().collect(),
            Task::Upgrade => spec.steps.to_vec(),
            Task::Rollback => spec.steps.last().map(rollback_step).into_iter().collect(),
        }
    }

    pub fn remove_pod(&mut self, pod: &Pod) {
        if pod.ending.is_none() {
            self.act(Action::DeletePod { pod: pod.target() });
        }
    }

    /// Removes the pods whose work is recorded, and those of earlier attempts.
    pub fn remove_finished_pods(&mut self) {
        let state = self.old.and_then(|old| old.state).unwrap_or_default();
        let attempt = self.attempt();
        self.remove_pods(|report| {
            report.attempt != attempt
                || match state {
                    NodeState::Pending | NodeState::Staging => false,
                    NodeState::Succeeded | NodeState::RolledBack => true,
                    _ => &*report.task == Task::Stage.word(),
                }
        });
    }

    pub fn remove_all_pods(&mut self) {
        self.remove_pods(|_| true);
    }

    fn remove_pods(&mut self, which: impl Fn(&TaskReport) -> bool) {
        let uid = uid_of(&self.upgrade.metadata);
        let view = self.view;
        for pod in view.tasks_on(&self.upgrade.spec.node.name) {
            let ours = pod.shape.owner.as_ref().is_some_and(|owner| owner.uid == uid);
            if ours && pod.task.as_ref().is_some_and(|report| which(report)) {
                self.remove_pod(pod);
            }
        }
    }

    /// Records what the containers of a pod say, and what it comes to.
    pub fn follow(&mut self, task: Task) -> Progress {
        let pod = self.task_pod(task);
        let ours = pod.filter(|pod| self.is_ours(pod));
        let names = self.names_of(task);
        if let Some(report) = ours.and_then(|pod| pod.task.as_deref()) {
            self.record(&names, report);
        }
        if let Some(ended) = self.verdict(&names, ours) {
            return ended;
        }
        self.status.current_step = self.current(&names);
        let Some(pod) = pod else { return Progress::NoPod };
        if ours.is_none() {
            self.remove_pod(pod);
            return Progress::Working;
        }
        // It was evicted or its machine was shut down: the journal on the host knows where to go on.
        if pod.phase.finished() {
            self.remove_pod(pod);
        }
        self.explain_wait(pod);
        Progress::Working
    }

    fn step(&self, name: &str) -> Option<&StepStatus> {
        self.status.steps.iter().find(|step| step.name == name)
    }

    fn current(&self, names: &[String]) -> Option<String> {
        let unfinished = names.iter().find(|name| !self.step(name).is_some_and(finished));
        unfinished.cloned()
    }

    fn verdict(&self, names: &[String], pod: Option<&Pod>) -> Option<Progress> {
        let failure = |step: &StepStatus| StepFailure {
            message: format!(
                "step {}: {}",
                step.name,
                step.message
                    .as_deref()
                    .unwrap_or("it ended without saying why; see the log of its container")
            ),
            pod: pod.map(pod_ref),
        };
        let steps = names.iter().filter_map(|name| self.step(name));
        for step in steps.clone() {
            match step.state {
                StepState::Failed => return Some(Progress::Failed(failure(step))),
                StepState::Undone => return Some(Progress::Undone(failure(step))),
                _ => {}
            }
        }
        (steps.filter(|step| finished(step)).count() == names.len()).then_some(Progress::Done)
    }

    fn record(&mut self, names: &[String], report: &TaskReport) {
        // A step is taken to run from the moment the one before it ended, which spares a write for each.
        let mut free_since = None;
        for name in names {
            let known = self.step(name).cloned();
            let step = match known {
                Some(step) if finished(&step) => step,
                known => {
                    let known = known.unwrap_or_else(|| waiting(name));
                    observe(known, report.containers.get(name.as_str()), free_since.take())
                }
            };
            free_since = step.finished_at.clone().filter(|_| finished(&step));
            self.put_step(step);
        }
    }

    fn put_step(&mut self, step: StepStatus) {
        let steps = &mut self.status.steps;
        if let Some(known) = steps.iter_mut().find(|known| known.name == step.name) {
            *known = step;
            return;
        }
        if steps.len() == STEPS {
            steps.remove(0);
        }
        steps.push(step);
    }

    /// What was done is undone.
    pub fn mark_undone(&mut self) {
        for step in &mut self.status.steps {
            if step.state == StepState::Succeeded && step.name != steps::STAGE && step.name != steps::ROLLBACK {
                step.state = StepState::Undone;
            }
        }
    }

    /// Whether the pod that undoes has ended with success in this attempt.
    pub fn rolled_back(&self) -> bool {
        self.step(steps::ROLLBACK)
            .is_some_and(|step| finished(step) || step.state == StepState::Undone)
    }

    fn explain_wait(&mut self, pod: &Pod) {
        let Some(report) = &pod.task else { return };
        let by = Some(pod_ref(pod));
        if let Some(problem) = &report.image_problem {
            let message = format!("an image cannot be pulled on the node: {problem}");
            return self.wait(Reason::ImagePullFailed, &message, by);
        }
        let Some(step) = self.status.current_step.clone() else {
            return;
        };
        let ended = report
            .containers
            .get(step.as_str())
            .and_then(|container| container.ended.as_ref());
        let Some(end) = ended else { return };
        let said = read(end);
        let reason = said.reason.as_deref().and_then(|word| Reason::from_str(word).ok());
        let message = if said.message.is_empty() {
            format!(
                "step {step} ended with exit code {} and is started again",
                end.exit_code
            )
        } else {
            format!("step {step}: {}", said.message)
        };
        self.wait(reason.unwrap_or(Reason::WaitingForStep), &message, by);
    }

    /// The state took too long; what it waited for is the cause.
    pub fn fail_overdue(&mut self) {
        let state = self.state();
        let wait = self.status.waiting_for.take();
        let (reason, cause, by) = match wait {
            Some(wait) if wait.reason == Reason::ImagePullFailed.to_string() => {
                (Reason::ImagePullFailed, wait.message, wait.blocked_by)
            }
            Some(wait) => (Reason::DeadlineExceeded, wait.message, wait.blocked_by),
            None => {
                let pod = self.status.pod.clone();
                let step = self.status.current_step.as_deref();
                let cause = step.map_or_else(
                    || "nothing moved".to_owned(),
                    |step| format!("step {step} has not ended"),
                );
                (Reason::DeadlineExceeded, cause, pod)
            }
        };
        let limit = if state == NodeState::Verifying {
            Reason::VerificationFailed
        } else {
            reason
        };
        self.fail(limit, &format!("{state} took longer than it may: {cause}"), by);
    }
}

fn finished(step: &StepStatus) -> bool {
    matches!(step.state, StepState::Succeeded | StepState::Skipped)
}

fn waiting(name: &str) -> StepStatus {
    StepStatus {
        name: name.to_owned(),
        state: StepState::Waiting,
        started_at: None,
        finished_at: None,
        attempt: 0,
        exit_code: None,
        message: None,
        log_tail: None,
    }
}

fn observe(mut step: StepStatus, report: Option<&ContainerReport>, free_since: Option<Time>) -> StepStatus {
    if step.started_at.is_none() && free_since.is_some() {
        step.state = StepState::Running;
        step.started_at = free_since;
        step.attempt = step.attempt.max(1);
    }
    let Some(report) = report else { return step };
    let ended = report.ended.as_ref();
    let Some(began) = ended.map(|end| end.started_at).or(report.running_since) else {
        return step;
    };
    step.state = StepState::Running;
    step.started_at.get_or_insert(Time(began));
    step.attempt = step.attempt.max(report.restarts.saturating_add(1));
    let Some(end) = ended else { return step };
    let said = read(end);
    step.exit_code = Some(end.exit_code);
    step.message = Some(short(&said.message, LONG_MESSAGE)).filter(|text| !text.is_empty());
    let state = match end.exit_code {
        exit::DONE if said.outcome == StepOutcome::Skipped => StepState::Skipped,
        exit::DONE => StepState::Succeeded,
        exit::FAILED => StepState::Failed,
        exit::UNDONE => StepState::Undone,
        // Asked to be started again, or ended by what it does to the kubelet and the runtime.
        _ => return step,
    };
    step.state = state;
    step.finished_at = Some(Time(end.finished_at));
    step
}

/// What a container said at its end; one that ended without our words is quoted as it is.
/// What a step said at its end. One that was killed said nothing, and the kubelet gives the end of its log: the last line tells where it was.
fn read(end: &ContainerEnd) -> StepReport {
    serde_json::from_str(&end.message).unwrap_or_else(|_| StepReport {
        message: end.message.trim_end().lines().last().unwrap_or_default().to_owned(),
        ..StepReport::default()
    })
}

fn set_variable(step: &mut StepContainer, name: &str, value: String) {
    let env = Arc::make_mut(&mut step.env);
    match env.iter_mut().find(|variable| variable.name == name) {
        Some(variable) => variable.value = value,
        None => env.push(StepEnv {
            name: name.to_owned(),
            value,
        }),
    }
}

/// The undoing is done by the image and with the environment of a step.
fn rollback_step(step: &StepContainer) -> StepContainer {
    let as_rollback = |word: &String| {
        if *word == step.name {
            steps::ROLLBACK.to_owned()
        } else {
            word.clone()
        }
    };
    let mut rollback = StepContainer {
        name: steps::ROLLBACK.to_owned(),
        command: step.command.iter().map(as_rollback).collect(),
        args: step.args.iter().map(as_rollback).collect(),
        timeout_seconds: None,
        ..step.clone()
    };
    if rollback.command == step.command && rollback.args == step.args {
        rollback.args = vec!["node".to_owned(), steps::ROLLBACK.to_owned()];
    }
    rollback
}

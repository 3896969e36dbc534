//! `Verifying`: the node is seen to work at its target before it is given back. Nothing is taken from a step's word, nor from the
//! Node's Ready condition alone.

use afloat_api::node::steps;
use afloat_api::{ConditionType, NodeRole, NodeState, ObjectRef, Reason};
use jiff::{SignedDuration, Timestamp};

use super::turn::{Turn, pod_ref};
use crate::gates::{READY_IN_A_ROW, expected_parts};
use crate::version::KubernetesVersion;
use crate::view::{Component, Node, Pod, StaticPart};

pub(super) const VERIFYING: SignedDuration = SignedDuration::from_mins(10);

pub(super) fn verifying(turn: &mut Turn<'_>, node: &Node) {
    if !turn.holds(ConditionType::Verified) {
        if let Some(problem) = problem(turn, node, &Goal::target(turn)) {
            turn.wait(problem.reason, &problem.message, problem.by);
            if turn.overdue() {
                turn.fail_overdue();
            }
            return;
        }
        let message = format!("seen to work at {}", turn.upgrade.spec.kubelet_version);
        turn.condition(ConditionType::Verified, true, Reason::Succeeded, &message);
    }
    if !turn.uncordon(node) {
        turn.enter(NodeState::Succeeded, None);
        turn.status.completed = true;
        turn.status.pod = None;
    }
}

/// What a node has to be.
pub(super) struct Goal {
    kubelet: Option<KubernetesVersion>,
    /// Version of the API server, controller manager and scheduler.
    parts: Option<KubernetesVersion>,
    etcd: Option<String>,
    /// Every static part was started after this.
    restarted_since: Option<Timestamp>,
}

impl Goal {
    pub fn target(turn: &Turn<'_>) -> Self {
        let spec = &turn.upgrade.spec;
        let kubelet: Option<KubernetesVersion> = spec.kubelet_version.parse().ok();
        let before = turn.status.before.as_ref();
        let before: Option<KubernetesVersion> = before.and_then(|before| before.kubelet_version.parse().ok());
        // A kubelet of another minor version restarts every static pod, etcd among them, while the Node still says Ready.
        // One of the same minor version leaves those alone whose manifest has not changed.
        let restarts = match (&before, &kubelet) {
            (Some(before), Some(kubelet)) => before.minor_version() != kubelet.minor_version(),
            _ => false,
        };
        let swapped = turn
            .status
            .steps
            .iter()
            .filter(|step| [steps::KUBEADM, steps::KUBELET].contains(&step.name.as_str()))
            .filter_map(|step| step.started_at.as_ref())
            .map(|time| time.0)
            .min();
        Self {
            kubelet,
            parts: spec.kubernetes_version.parse().ok(),
            etcd: spec.etcd_version.clone(),
            restarted_since: swapped.filter(|_| restarts),
        }
    }

    /// As it was. Parts that were never changed are not asked for a version: a healthy etcd member keeps its new one.
    pub fn origin(turn: &Turn<'_>) -> Self {
        let before = turn.status.before.as_ref();
        Self {
            kubelet: before.and_then(|before| before.kubelet_version.parse().ok()),
            parts: None,
            etcd: None,
            restarted_since: None,
        }
    }
}

/// What keeps a node from counting as verified.
pub(super) struct Problem {
    pub reason: Reason,
    pub message: String,
    pub by: Option<ObjectRef>,
}

pub(super) fn problem(turn: &Turn<'_>, node: &Node, goal: &Goal) -> Option<Problem> {
    let on_node = |reason, message: String| Problem {
        reason,
        message,
        by: Some(turn.node_ref()),
    };
    if let Some(version) = &goal.kubelet
        && node.kubelet_version.as_ref() != Some(version)
    {
        let message = format!("the kubelet of {} does not report {version}", node.name);
        return Some(on_node(Reason::WaitingForNode, message));
    }
    if !node.ready.ready {
        return Some(on_node(
            Reason::WaitingForNode,
            format!("node {} is not Ready", node.name),
        ));
    }
    if turn.upgrade.spec.role == NodeRole::Worker {
        return None;
    }
    if let Some(problem) = parts_problem(turn, node, goal) {
        return Some(problem);
    }
    let health = turn.view.health.get(&node.name);
    if health.is_none_or(|health| health.readyz_in_a_row < READY_IN_A_ROW) {
        let message = format!(
            "/readyz of the API server on {} has not answered ok {READY_IN_A_ROW} times in a row",
            node.name
        );
        return Some(on_node(Reason::WaitingForApiServer, message));
    }
    let has_member = turn
        .view
        .static_parts(&node.name)
        .any(|(_, part)| part.component == Component::Etcd);
    let member = health.and_then(|health| health.etcd.as_ref());
    if member.map_or(has_member, |member| !member.healthy) {
        let message = format!("the etcd member on {} is not healthy", node.name);
        return Some(on_node(Reason::WaitingForEtcd, message));
    }
    None
}

fn parts_problem(turn: &Turn<'_>, node: &Node, goal: &Goal) -> Option<Problem> {
    let mut seen = Vec::new();
    for (pod, part) in turn.view.static_parts(&node.name) {
        seen.push(part.component);
        if let Some(message) = part_problem(pod, part, goal) {
            return Some(Problem {
                reason: reason_of(part.component),
                message,
                by: Some(pod_ref(pod)),
            });
        }
    }
    let etcd = goal.etcd.as_ref().map(|_| Component::Etcd);
    let missing = expected_parts(turn.view)
        .chain(etcd)
        .find(|component| !seen.contains(component))?;
    Some(Problem {
        reason: reason_of(missing),
        message: format!("{} on {} is not to be seen", word(missing), node.name),
        by: Some(turn.node_ref()),
    })
}

fn part_problem(pod: &Pod, part: &StaticPart, goal: &Goal) -> Option<String> {
    let of_kubernetes = matches!(
        part.component,
        Component::ApiServer | Component::ControllerManager | Component::Scheduler
    );
    if of_kubernetes
        && let Some(version) = &goal.parts
        && part.version.as_ref() != Some(version)
    {
        return Some(format!("pod {} is not at {version} but at {}", pod.key, part.tag));
    }
    if part.component == Component::Etcd
        && let Some(tag) = &goal.etcd
        && *tag != *part.tag
    {
        return Some(format!("pod {} is not at {tag} but at {}", pod.key, part.tag));
    }
    if let Some(since) = goal.restarted_since
        && pod.started_at.is_none_or(|started| started < since)
    {
        return Some(format!("pod {} was not started by the new kubelet yet", pod.key));
    }
    (!pod.ready).then(|| format!("pod {} is not Ready", pod.key))
}

fn reason_of(component: Component) -> Reason {
    match component {
        Component::Etcd => Reason::WaitingForEtcd,
        Component::ApiServer => Reason::WaitingForApiServer,
        Component::KubeVip => Reason::WaitingForVirtualIp,
        Component::ControllerManager | Component::Scheduler | Component::Other => Reason::WaitingForNode,
    }
}

fn word(component: Component) -> &'static str {
    match component {
        Component::Etcd => "etcd",
        Component::ApiServer => "kube-apiserver",
        Component::ControllerManager => "kube-controller-manager",
        Component::Scheduler => "kube-scheduler",
        Component::KubeVip => "kube-vip",
        Component::Other => "a static pod",
    }
}

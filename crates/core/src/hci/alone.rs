//! The node phase of a cluster of one: nobody drains the node and nobody asks about it, so one Job does it all (H10, H42). Its states are those of
//! any other node. While it is emptied it can be put back; then its Job is let go on, and from there on it is finished. That word and a
//! person's wish to end the upgrade are written on the same object, so that only one of them can come first.

use std::sync::Arc;

use afloat_api::Reason;
use afloat_api::harvester::{HarvesterNodeState as State, PAUSED_REASON, UpgradeCondition as Is, UpgradeState};

use super::action::JobKind;
use super::task::{self, Errand, HostDone, HostWork, Look};
use super::turn::{Tri, Turn};
use super::{cleanup, flow, image, nodes, pause, vms, waits};
use crate::view::{Node, NodeName};

const KIND: JobKind = JobKind::SingleNodeUpgrade;

/// The phase as a whole.
pub fn go(turn: &mut Turn<'_>, name: &NodeName) {
    let Some(node) = turn.view.nodes.get(name).map(Arc::clone) else {
        let message = "the node of this cluster is gone";
        return turn.set(Is::NodesUpgraded, Tri::False, &Reason::ObjectGone.to_string(), message);
    };
    match turn.node_state(name.as_str()) {
        Some(State::PreDraining) => emptying(turn, &node),
        Some(State::PostDraining) => changing(turn, &node),
        Some(State::WaitingReboot) => nodes::rebooting(turn, &node),
        Some(State::Succeeded) => nodes::done(turn, &node),
        Some(State::Failed) => {}
        _ => begin(turn, &node),
    }
}

fn begin(turn: &mut Turn<'_>, node: &Node) {
    let name = node.name.as_str();
    if cleanup::ending(turn) {
        return;
    }
    if pause::holds(turn, node) {
        let message = nodes::held_message(turn, name);
        return turn.set_node(name, State::Paused, PAUSED_REASON, &message);
    }
    turn.set_node(name, State::ImagesPreloaded, "", "");
    let bound = vms::bound(turn.view, &node.name);
    if flow::held(turn) || nodes::record(turn, node, &bound) {
        return;
    }
    turn.state_label(UpgradeState::UpgradingNodes);
    turn.set(Is::NodesUpgraded, Tri::Unknown, "", "");
    turn.set_node(name, State::PreDraining, "", "");
    if turn.job_missing(KIND, &node.name) {
        turn.create_job(KIND, Some(&node.name));
    }
}

/// Its virtual machines are stopped; nothing of its system is changed before it is let go on.
fn emptying(turn: &mut Turn<'_>, node: &Node) {
    let (reason, message) = waits::emptying(turn.view, node);
    if !at_work(turn, node, &message) {
        return;
    }
    if is_empty(turn, node) {
        let (reason, message) = changes(turn, node);
        return turn.set_node(node.name.as_str(), State::PostDraining, &reason, &message);
    }
    let (_, message) = nodes::emptying(turn, node, KIND);
    turn.set_node(node.name.as_str(), State::PreDraining, reason, &message);
}

/// It gets its Kubernetes and its operating system.
fn changing(turn: &mut Turn<'_>, node: &Node) {
    let (reason, message) = changes(turn, node);
    if at_work(turn, node, &message) {
        turn.set_node(node.name.as_str(), State::PostDraining, &reason, &message);
    }
}

fn changes(turn: &Turn<'_>, node: &Node) -> (String, String) {
    let kubelet = image::release(turn).map(|release| waits::kubelet_at_target(node, &release));
    let message = match kubelet {
        Some(Err(text)) => format!("waits for its new Kubernetes: {text}"),
        _ => "gets the operating system of the release".to_owned(),
    };
    (Reason::InProgress.to_string(), message)
}

/// Whether its Job is at work; makes it where there is none, and takes up what has become of it.
fn at_work(turn: &mut Turn<'_>, node: &Node, waited: &str) -> bool {
    match turn.job(KIND, Some(&node.name)) {
        None if turn.job_in_the_way(KIND, Some(&node.name)) => false,
        None => {
            turn.create_job(KIND, Some(&node.name));
            false
        }
        Some(job) if job.complete => {
            nodes::changed(turn, node);
            false
        }
        Some(job) if job.failed.is_some() => {
            nodes::job_failed(turn, &node.name, &job, waited);
            false
        }
        Some(_) => {
            // Who was started here since.
            let bound = vms::bound(turn.view, &node.name);
            nodes::record(turn, node, &bound);
            true
        }
    }
}

/// Whether the Job has emptied the node, by the same look at the same objects.
fn is_empty(turn: &Turn<'_>, node: &Node) -> bool {
    let errand = Errand {
        upgrade: turn.target.key.clone(),
        node: node.name.clone(),
    };
    let host = HostDone::from([
        HostWork::RecoverAgent,
        HostWork::RemoveCanalConfig,
        HostWork::DisableCharts,
    ]);
    let look = task::pre_drain(turn.view, &errand, &host, turn.now);
    matches!(look, Look::Done { .. })
}

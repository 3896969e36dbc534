//! The node phase: Rancher asks through a node's plan secret, and the answer is given when the work before or after the drain is
//! done. One node at a time, whatever Rancher does; a pause, a volume that is not whole or a node that is not Ready holds the next
//! one back, and the state of the node says which.

use std::sync::Arc;

use afloat_api::Reason;
use afloat_api::harvester::{HarvesterNodeState as State, PAUSED_MESSAGE, PAUSED_REASON, UpgradeCondition as Is};

use super::action::{HciAction, Hook, JobKind, NodeMark};
use super::release::Release;
use super::turn::{Tri, Turn, minutes_after, moment};
use super::view::{Job, RestoreList, Seen};
use super::{alone, cleanup, deadlines, image, pause, pending, rollout, tidy, unasked, vms, waits};
use crate::view::{Node, NodeName};

/// How long a node may take from the end of its Job until it is back with the new system.
const REBOOT_MINUTES: i64 = 60;
/// Names that are told before the rest is counted.
const NAMED: usize = 6;

/// Brings the images to the nodes, so many at once; whether all are there.
pub fn preload(turn: &mut Turn<'_>, at_once: usize) -> bool {
    let names: Vec<NodeName> = turn.view.nodes.keys().cloned().collect();
    let mut waiting = Vec::new();
    let mut busy = 0;
    for node in &names {
        match turn.node_state(node.as_str()) {
            Some(State::ImagesPreloading) => busy += usize::from(preloading(turn, node)),
            None if at_once == 0 => turn.set_node(node.as_str(), State::ImagesPreloaded, "", ""),
            None => waiting.push(node),
            Some(_) => {}
        }
    }
    for node in waiting.iter().take(at_once.saturating_sub(busy)) {
        if !turn.job_in_the_way(JobKind::Prepare, Some(node)) {
            turn.set_node(node.as_str(), State::ImagesPreloading, "", "");
            turn.create_job(JobKind::Prepare, Some(node));
        }
    }
    let all = names
        .iter()
        .all(|node| turn.node_state(node.as_str()) == Some(State::ImagesPreloaded));
    if all {
        turn.set(Is::NodesPrepared, Tri::True, "", "");
    }
    all
}

/// One node whose Job is at work; whether it still is.
fn preloading(turn: &mut Turn<'_>, node: &NodeName) -> bool {
    match turn.job(JobKind::Prepare, Some(node)) {
        None if turn.job_in_the_way(JobKind::Prepare, Some(node)) => true,
        None => {
            turn.create_job(JobKind::Prepare, Some(node));
            true
        }
        Some(job) if job.complete => {
            turn.set_node(node.as_str(), State::ImagesPreloaded, "", "");
            false
        }
        Some(job) => {
            let failed = job.failed.is_some();
            if failed {
                job_failed(turn, node, &job, "");
            }
            !failed
        }
    }
}

/// What the node still waited for is said too: the Job controller knows only that the Job took too long, or failed too often.
pub fn job_failed(turn: &mut Turn<'_>, node: &NodeName, job: &Seen<Job>, waited: &str) {
    let why = job.failed.as_deref().unwrap_or_default();
    let waited = if waited.is_empty() {
        String::new()
    } else {
        format!("; in the end it {waited}")
    };
    let message = format!("job/{} failed: {why}{waited}", job.target.key.name);
    node_failed(turn, node, Reason::StepFailed, &message);
}

/// A node that failed fails the upgrade, which can be resumed.
pub fn node_failed(turn: &mut Turn<'_>, node: &NodeName, reason: Reason, message: &str) {
    turn.set_node(node.as_str(), State::Failed, &reason.to_string(), message);
    let whole = format!("node {node}: {message}");
    turn.set(Is::NodesUpgraded, Tri::False, &reason.to_string(), &whole);
}

/// The phase as a whole.
pub fn go(turn: &mut Turn<'_>) {
    if turn.condition(Is::NodesUpgraded) == Some(Tri::True) {
        return;
    }
    let single = turn.status().single_node.clone();
    if single.is_empty() {
        if rollout::begun(turn) {
            several(turn);
        }
    } else {
        alone::go(turn, &NodeName::from(single));
    }
    complete(turn);
}

fn complete(turn: &mut Turn<'_>) {
    let statuses = &turn.status().node_statuses;
    let word = State::Succeeded.to_string();
    let done = !statuses.is_empty() && statuses.values().all(|status| status.state == word);
    if done && turn.condition(Is::NodesUpgraded) == Some(Tri::Unknown) {
        turn.set(Is::NodesUpgraded, Tri::True, "", "");
    }
}

/// Nodes that joined are taken along, nodes that are gone hold nobody up any more.
fn roster(turn: &mut Turn<'_>) {
    let joined = turn
        .view
        .nodes
        .values()
        .filter(|node| !turn.status().node_statuses.contains_key(node.name.as_str()));
    for node in joined.cloned().collect::<Vec<_>>() {
        if cleanup::is_amid(turn, node.name.as_str()) {
            // Its Node was deleted and made anew: Rancher has drained it, and waits to be answered after that.
            turn.set_node(node.name.as_str(), State::PreDrained, "", "");
            continue;
        }
        if !cleanup::ending(turn) && !pending::tells(turn, &node) {
            continue;
        }
        turn.set_node(
            node.name.as_str(),
            State::ImagesPreloaded,
            "",
            "joined after the images were brought",
        );
    }
    let there = |node: &String| turn.view.nodes.contains_key(node.as_str());
    let gone: Vec<String> = turn
        .status()
        .node_statuses
        .keys()
        .filter(|node| !there(node))
        .cloned()
        .collect();
    for node in gone {
        turn.status_mut().node_statuses.remove(&node);
        turn.tell(
            true,
            Reason::ObjectGone,
            &format!("node {node} is gone; the upgrade goes on without it"),
        );
    }
}

fn several(turn: &mut Turn<'_>) {
    roster(turn);
    let nodes: Vec<Arc<Node>> = turn.view.nodes.values().cloned().collect();
    // Whoever is done comes first, or who leaves another node would not find a place there.
    for node in &nodes {
        if turn.node_state(node.name.as_str()) == Some(State::Succeeded) {
            done(turn, node);
        }
    }
    // Then whoever is at work: what it ends makes room within the same turn.
    for node in &nodes {
        match turn.node_state(node.name.as_str()) {
            Some(State::PreDraining) => pre_draining(turn, node),
            Some(State::PreDrained) => pre_drained(turn, node),
            Some(State::PostDraining) => post_draining(turn, node),
            Some(State::WaitingReboot) => rebooting(turn, node),
            _ => {}
        }
    }
    for node in &nodes {
        if matches!(
            turn.node_state(node.name.as_str()),
            Some(State::ImagesPreloaded | State::Paused)
        ) {
            before_its_turn(turn, node);
        }
    }
    if turn.condition(Is::NodesUpgraded) == Some(Tri::Unknown) {
        unasked::say(turn);
    }
}

/// A node that was not begun: held, waiting, or on its way.
fn before_its_turn(turn: &mut Turn<'_>, node: &Node) {
    let name = node.name.as_str();
    let asked = turn
        .view
        .hci
        .plan_of(&node.name)
        .is_some_and(|plan| plan.asks_pre_drain());
    if !asked || cleanup::ending(turn) {
        turn.times.goes_on(name, turn.now);
        return turn.set_node(name, State::ImagesPreloaded, "", "");
    }
    if pause::holds(turn, node) {
        let message = held_message(turn, name);
        return turn.set_node(name, State::Paused, PAUSED_REASON, &message);
    }
    if let Err((reason, message)) = waits::open(turn, node) {
        return deadlines::kept_waiting(turn, node, reason, &message);
    }
    turn.times.goes_on(name, turn.now);
    let bound = vms::bound(turn.view, &node.name);
    if record(turn, node, &bound) {
        return;
    }
    turn.set_node(name, State::PreDraining, "", "");
    if turn.job_missing(JobKind::PreDrain, &node.name) {
        turn.create_job(JobKind::PreDrain, Some(&node.name));
    }
}

/// Whom a paused node holds up, and how to go on.
pub fn held_message(turn: &Turn<'_>, name: &str) -> String {
    let word = State::Succeeded.to_string();
    let statuses = turn.status().node_statuses.iter();
    let held = statuses.filter(|(other, status)| *other != name && status.state != word);
    let held: Vec<&str> = held.map(|(other, _)| other.as_str()).collect();
    let others = if held.is_empty() {
        String::new()
    } else {
        format!(" It also holds up {}: Rancher takes one node at a time.", some(&held))
    };
    format!("{PAUSED_MESSAGE}.{others} To go on: {}", pause::way_on(name))
}

/// Some names, and how many more.
pub fn some(names: &[&str]) -> String {
    let head = names.iter().take(NAMED).copied().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(NAMED) {
        0 => head,
        more => format!("{head} and {more} more"),
    }
}

/// Writes down who will be stopped before anybody is. Whether that is still to be done.
pub fn record(turn: &mut Turn<'_>, node: &Node, bound: &[vms::Bound]) -> bool {
    let list = turn.view.hci.restore_list_of(&turn.key).map(Arc::clone);
    let known = list
        .as_ref()
        .and_then(|list| list.nodes.get(node.name.as_str()).cloned())
        .unwrap_or_default();
    let vms: std::collections::BTreeSet<String> = bound.iter().map(|bound| bound.vm.to_string()).collect();
    if vms.is_subset(&known) {
        return false;
    }
    for bound in bound.iter().filter(|bound| !known.contains(&bound.vm.to_string())) {
        let message = format!("virtual machine {} will be shut down: {}", bound.vm, bound.reasons());
        turn.tell(false, Reason::NotMigratable, &message);
    }
    turn.first(HciAction::RecordVms {
        list: list.map(|list| list.target.clone()),
        key: RestoreList::key(turn.name()),
        upgrade: turn.target.clone(),
        node: node.name.clone(),
        vms: known.into_iter().chain(vms).collect(),
    });
    true
}

fn pre_draining(turn: &mut Turn<'_>, node: &Node) {
    let name = node.name.as_str();
    // Whoever wrote this state had not seen the answer: Rancher drains the node by now, and what follows is finished.
    if cleanup::answered(turn, name) {
        return turn.set_node(name, State::PreDrained, "", "");
    }
    match turn.job(JobKind::PreDrain, Some(&node.name)) {
        None if turn.job_in_the_way(JobKind::PreDrain, Some(&node.name)) => {}
        None => turn.create_job(JobKind::PreDrain, Some(&node.name)),
        Some(job) if job.complete && !vms::left(turn.view, &node.name) => empty_again(turn, node, &job),
        Some(job) if job.complete => {
            turn.set_node(name, State::PreDrained, "", "");
            answer(turn, node, Hook::PreDrain);
        }
        Some(job) if job.failed.is_some() => {
            let (_, waited) = waits::emptying(turn.view, node);
            job_failed(turn, &node.name, &job, &waited);
        }
        Some(_) => {
            // Who came to be bound since. Other nodes that are away for a moment are no reason to stop anybody.
            let mut bound = vms::bound(turn.view, &node.name);
            bound.retain(vms::Bound::lasts);
            record(turn, node, &bound);
            let (reason, message) = emptying(turn, node, JobKind::PreDrain);
            turn.set_node(name, State::PreDraining, reason, &message);
        }
    }
}

/// What a node that is being emptied waits for, since when, and until when its Job may take.
pub fn emptying(turn: &Turn<'_>, node: &Node, kind: JobKind) -> (&'static str, String) {
    let (reason, message) = waits::emptying(turn.view, node);
    let Some(job) = turn.job(kind, Some(&node.name)) else {
        return (reason, message);
    };
    let name = &job.target.key.name;
    let message = if message.is_empty() {
        format!("job/{name} is at work")
    } else {
        message
    };
    let Some(since) = job.created_at else {
        return (reason, message);
    };
    let until = minutes_after(since, kind.limit() / 60);
    let (since, until) = (moment(since), moment(until));
    (reason, format!("{message} (since {since}, until {until})"))
}

/// Somebody is on a node whose Job has ended: they came back since, or the Job had looked at a cluster of the past. Rancher's drain would
/// take them away, so the node is emptied once more.
fn empty_again(turn: &mut Turn<'_>, node: &Node, job: &Seen<Job>) {
    let (reason, message) = waits::emptying(turn.view, node);
    turn.set_node(node.name.as_str(), State::PreDraining, reason, &message);
    let job = job.target.clone();
    turn.first(HciAction::DeleteJob { job });
}

/// Copies Rancher's question into our answer, where it is not there.
pub fn answer(turn: &mut Turn<'_>, node: &Node, hook: Hook) {
    let Some(plan) = turn.view.hci.plan_of(&node.name) else {
        return;
    };
    let (asks, value) = match hook {
        Hook::PreDrain => (plan.asks_pre_drain(), plan.pre_drain.clone()),
        Hook::PostDrain => (plan.asks_post_drain(), plan.post_drain.clone()),
    };
    if let (true, Some(value)) = (asks, value) {
        let (secret, value) = (plan.target.clone(), Arc::from(value));
        turn.then(HciAction::Answer { secret, hook, value });
    }
}

/// Rancher drains the node and upgrades RKE2.
fn pre_drained(turn: &mut Turn<'_>, node: &Node) {
    let name = node.name.as_str();
    let plan = turn.view.hci.plan_of(&node.name);
    let (again, asked) = plan.map_or((false, false), |plan| (plan.asks_pre_drain(), plan.asks_post_drain()));
    if let Some(job) = turn.job(JobKind::PreDrain, Some(&node.name)).filter(|_| again)
        && !vms::left(turn.view, &node.name)
    {
        return empty_again(turn, node, &job);
    }
    answer(turn, node, Hook::PreDrain);
    if asked {
        turn.set_node(name, State::PostDraining, "", "");
        if turn.job_missing(JobKind::PostDrain, &node.name) {
            turn.create_job(JobKind::PostDrain, Some(&node.name));
        }
        return;
    }
    let (reason, message) = waits::draining(turn.view, node);
    let message = deadlines::drain(turn, name, &message);
    turn.set_node(name, State::PreDrained, &reason.to_string(), &message);
}

fn post_draining(turn: &mut Turn<'_>, node: &Node) {
    match turn.job(JobKind::PostDrain, Some(&node.name)) {
        None if turn.job_in_the_way(JobKind::PostDrain, Some(&node.name)) => {}
        None => turn.create_job(JobKind::PostDrain, Some(&node.name)),
        Some(job) if job.complete => changed(turn, node),
        Some(job) if job.failed.is_some() => job_failed(turn, &node.name, &job, ""),
        Some(_) => {}
    }
}

/// The work on the node is done: it is at the target, or has to boot for it.
pub fn changed(turn: &mut Turn<'_>, node: &Node) {
    let Some(release) = image::release(turn) else {
        return;
    };
    match waits::at_target(node, &release) {
        Ok(()) => succeeded(turn, node),
        Err(message) => {
            mark(turn, node, &release);
            let reason = Reason::WaitingForReboot.to_string();
            turn.set_node(node.name.as_str(), State::WaitingReboot, &reason, &message);
        }
    }
}

/// What it has to come back with, for whoever looks at the node (H47).
fn mark(turn: &mut Turn<'_>, node: &Node, release: &Release) {
    let value = Some(Arc::from(release.os.as_str()));
    if node.hci.pending_os_image != value {
        let (node, mark) = (node.target(), NodeMark::PendingOsImage);
        turn.then(HciAction::MarkNode { node, mark, value });
    }
}

pub fn rebooting(turn: &mut Turn<'_>, node: &Node) {
    let Some(release) = image::release(turn) else {
        return;
    };
    let Err(message) = waits::at_target(node, &release) else {
        return succeeded(turn, node);
    };
    let single = !turn.status().single_node.is_empty();
    let kind = if single {
        JobKind::SingleNodeUpgrade
    } else {
        JobKind::PostDrain
    };
    let Some(job) = turn.job(kind, Some(&node.name)) else {
        return work_again(turn, node, kind, &message);
    };
    let until = minutes_after(job.completed_at.unwrap_or(turn.now), REBOOT_MINUTES);
    if turn.now >= until {
        let message = format!(
            "did not come back at the target within {REBOOT_MINUTES} minutes: {message}. Look at its console; the old system \
             may have booted again"
        );
        return node_failed(turn, &node.name, Reason::VerificationFailed, &message);
    }
    turn.look_at(until);
    // Whoever wrote this state may have ended before it was marked.
    mark(turn, node, &release);
    let reason = Reason::WaitingForReboot.to_string();
    turn.set_node(node.name.as_str(), State::WaitingReboot, &reason, &message);
}

/// The Job of a node that restarts was deleted, and with it is gone since when the node does: what was left undone is done by another
/// one, which has an end.
fn work_again(turn: &mut Turn<'_>, node: &Node, kind: JobKind, message: &str) {
    let message = format!("its Job was deleted while it restarted, and is run again: {message}");
    let reason = Reason::InProgress.to_string();
    turn.set_node(node.name.as_str(), State::PostDraining, &reason, &message);
    if !turn.job_in_the_way(kind, Some(&node.name)) {
        turn.create_job(kind, Some(&node.name));
    }
}

fn succeeded(turn: &mut Turn<'_>, node: &Node) {
    turn.set_node(node.name.as_str(), State::Succeeded, "", "");
    turn.tell(
        false,
        Reason::Succeeded,
        &format!("node {} is at the target", node.name),
    );
    done(turn, node);
}

/// What a node that is done still owes: the answer, its mark and taints, and its virtual machines.
pub fn done(turn: &mut Turn<'_>, node: &Node) {
    if turn.status().single_node.is_empty() {
        answer(turn, node, Hook::PostDrain);
    }
    if node.hci.pending_os_image.is_some() {
        let (node, mark) = (node.target(), NodeMark::PendingOsImage);
        turn.then(HciAction::MarkNode {
            node,
            mark,
            value: None,
        });
    }
    // The next nodes' machines have to go somewhere: to the ones that are done first of all.
    tidy::untaint(turn, node);
    cleanup::start_vms(turn, &node.name);
}

//! The end of an upgrade, whichever: virtual machines started again, what was changed for its sake put back ([`super::tidy`]), one report.
//! A node that was drained is finished first; one that was only being emptied is put back.

use std::sync::Arc;

use afloat_api::annotations::{PENDING_AS_OF, RUN_AFTER, WISH};
use afloat_api::foreign::rancher::LOCAL_NAMESPACE;
use afloat_api::harvester::{HarvesterNodeState as State, UpgradeCondition as Is, UpgradeState};
use afloat_api::{Reason, labels};

use super::action::{HciAction, Hook, JobKind};
use super::config::{self, ABORT};
use super::rollout::{self, Ended};
use super::turn::{PREFLIGHT_PASSED, Tri, Turn, condition_of, minutes_after, moment};
use super::{image, multus, nodes, report, task, tidy, waits};
use crate::view::{Key, Node, NodeName};

/// Charts that fleet has to leave alone while the manifests are applied.
const CHARTS: [&str; 4] = [
    "harvester",
    "harvester-crd",
    "rancher-monitoring-crd",
    "rancher-logging-crd",
];

/// What is said of a node that was being emptied, and is not any more.
pub(super) const PUT_BACK: &str = "put back before it was drained";

/// On an Upgrade: images of the release before were removed; `false` where some could not be.
const IMAGES_REMOVED: &str = "harvesterhci.io/image-cleanup-plan-completed";

/// How long the Job that brings Rancher and charts may take to end what it is at: as long as a helm is waited for on the host, and then some.
const SERVICES_MINUTES: i64 = 30;

/// Pauses the charts that are not; whether that is still to be done.
pub fn pause_charts(turn: &mut Turn<'_>) -> bool {
    let mut pausing = Vec::new();
    for name in CHARTS {
        let chart = turn.view.hci.charts.get(&Key::new(LOCAL_NAMESPACE, name));
        if let Some(chart) = chart.filter(|chart| !chart.paused) {
            pausing.push(chart.target.clone());
        }
    }
    let by = turn.target.uid.clone();
    let some = !pausing.is_empty();
    for chart in pausing {
        turn.then(HciAction::PauseChart {
            chart,
            by: Some(by.clone()),
        });
    }
    some
}

/// No new disruption: the upgrade is being deleted or was aborted.
pub fn ending(turn: &Turn<'_>) -> bool {
    turn.before.metadata.deletion_timestamp.is_some() || turn.annotation(ABORT).is_some_and(|value| value == "true")
}

/// The Upgrade is being deleted.
pub fn deleted(turn: &mut Turn<'_>) {
    if !turn.has_finalizer() {
        return;
    }
    if turn.condition(Is::Completed) == Some(Tri::Unknown) && !at_rest(turn) {
        return;
    }
    if tidy::all(turn) {
        if turn.condition(Is::Completed) == Some(Tri::Unknown) {
            tell_who_stays_off(turn);
        }
        turn.finalizer(false);
    }
}

/// A person ended the upgrade and keeps the object.
pub fn abort(turn: &mut Turn<'_>) {
    if !at_rest(turn) {
        return;
    }
    let message = match how_far(turn) {
        Ended::HalfWay if !turn.status().single_node.is_empty() => {
            "aborted: the node has got a part of the release and is not at the target. Resume this Upgrade, or create another \
             to the same version, to go on"
                .to_owned()
        }
        Ended::HalfWay => {
            "aborted: some nodes are at the target and some are not; Rancher's drain hooks stay, so that it goes on with none. \
             Create an Upgrade to the same version to go on"
                .to_owned()
        }
        Ended::AtTarget => "aborted after the last node".to_owned(),
        Ended::Untouched => format!("aborted before a node was drained: {}", what_stays(turn)),
    };
    let message = message.as_str();
    turn.set(Is::Completed, Tri::False, &Reason::Aborted.to_string(), message);
    turn.label(labels::HARVESTER_UPGRADE_CLEANUP, Some("Pending"));
    turn.state_label(UpgradeState::Failed);
    turn.tell(true, Reason::Aborted, message);
}

/// What an upgrade that has changed no node leaves as it is: nobody takes Rancher or a chart back to an older version, which their owners do not
/// support.
fn what_stays(turn: &Turn<'_>) -> String {
    let release = image::release(turn);
    let services = match (turn.condition(Is::SystemServicesUpgraded), release) {
        (None, _) | (_, None) => Vec::new(),
        (Some(_), Some(release)) => task::at_release(turn.view, &release),
    };
    if services.is_empty() {
        return "everything is as it was".to_owned();
    }
    format!(
        "the nodes are as they were; at the release, and staying there: {}",
        services.join(", ")
    )
}

/// A person ended it while it was refused, or before anybody had looked: there is nothing to take back.
pub fn never_begun(turn: &mut Turn<'_>) {
    let message = "aborted before it began: nothing was changed";
    turn.set(Is::Completed, Tri::False, &Reason::Aborted.to_string(), message);
    turn.label(labels::HARVESTER_UPGRADE_CLEANUP, Some("Succeeded"));
    turn.state_label(UpgradeState::Failed);
    turn.tell(true, Reason::Aborted, message);
}

/// Whether nothing is under way on a node any more; leads there where something is.
fn at_rest(turn: &mut Turn<'_>) -> bool {
    let nodes: Vec<Arc<Node>> = turn.view.nodes.values().cloned().collect();
    for node in &nodes {
        if turn.node_state(node.name.as_str()) == Some(State::PreDraining) {
            unwind(turn, node);
        }
    }
    let flying = |node: &Arc<Node>| turn.node_state(node.name.as_str()).is_some_and(waits::in_flight);
    if nodes.iter().any(flying) {
        // Whoever is finished needs the release.
        image::serving(turn);
        nodes::go(turn);
        return false;
    }
    services_rest(turn) && turn.idle()
}

/// Whether nobody works on Rancher and its charts any more. The Job ends by itself between two steps, once it sees that the upgrade is being ended:
/// a helm that it had asked for goes on without it, and would bring Rancher to the release after everything was put back. A Job that was ended this
/// way has not done its work, and is not kept: it would pass for one that has.
fn services_rest(turn: &mut Turn<'_>) -> bool {
    const KIND: JobKind = JobKind::ApplyManifests;
    let kind = Is::SystemServicesUpgraded;
    if matches!(turn.condition(kind), None | Some(Tri::True)) {
        return true;
    }
    let Some(job) = turn.job(KIND, None) else {
        let uid = Some(&turn.target.uid);
        let going = turn.view.hci.jobs.get(&turn.job_key(KIND, None));
        return going.is_none_or(|job| job.upgrade_uid.as_ref() != uid);
    };
    let reason = Reason::Aborted.to_string();
    let since = turn.said_since(kind, &reason).unwrap_or(turn.now);
    let until = minutes_after(since, SERVICES_MINUTES);
    if job.complete || job.failed.is_some() || turn.now >= until {
        let job = job.target.clone();
        turn.first(HciAction::DeleteJob { job });
    } else {
        let (name, until_word) = (&job.target.key.name, moment(until));
        let message = format!("waits until job/{name} has ended what it is at, or until {until_word}");
        turn.set(kind, Tri::Unknown, &reason, &message);
        turn.look_at(until);
    }
    false
}

/// A node that was being emptied, and that Rancher was not answered about, or whose only Job was not let go on, is put back.
fn unwind(turn: &mut Turn<'_>, node: &Node) {
    let kind = if turn.status().single_node.is_empty() {
        JobKind::PreDrain
    } else {
        JobKind::SingleNodeUpgrade
    };
    let job = turn.job(kind, Some(&node.name));
    if job.as_ref().is_some_and(|job| job.complete) {
        // The answer may be on its way: what follows is finished.
        return;
    }
    if let Some(job) = job {
        let job = job.target.clone();
        turn.first(HciAction::DeleteJob { job });
    }
    turn.set_node(node.name.as_str(), State::ImagesPreloaded, "", PUT_BACK);
    // Before that is said: nobody would know any more that the taint is ours.
    if let Some(action) = tidy::untainted(node, true) {
        turn.first(action);
    }
}

/// How far an upgrade came, and one before it that it took over. A node that failed was drained if Rancher was answered about it; a single one was changed if
/// its Job was let go on.
pub fn how_far(turn: &Turn<'_>) -> Ended {
    let statuses = &turn.status().node_statuses;
    let state = |node: &str| turn.node_state(node);
    if !statuses.is_empty() && statuses.keys().all(|node| state(node) == Some(State::Succeeded)) {
        return Ended::AtTarget;
    }
    let touched = statuses.keys().any(|node| is_changed(turn, node));
    if touched || rollout::would_go_back(turn) {
        Ended::HalfWay
    } else {
        Ended::Untouched
    }
}

/// Whether a node can only be finished, and not be put back.
fn is_changed(turn: &Turn<'_>, node: &str) -> bool {
    if !turn.status().single_node.is_empty() {
        return turn.times.0.get(node).is_some_and(|times| times.drained.is_some());
    }
    match turn.node_state(node) {
        Some(State::Failed) => answered(turn, node),
        Some(state) => state > State::PreDraining,
        None => false,
    }
}

/// Rancher was told that it may drain a node.
pub fn answered(turn: &Turn<'_>, node: &str) -> bool {
    let plan = turn.view.hci.plan_of(&NodeName::from(node));
    plan.is_some_and(|plan| plan.pre_hook.is_some() && plan.pre_hook == plan.pre_drain)
}

/// The same, and it was not told yet that the work after the drain is done.
pub fn is_amid(turn: &Turn<'_>, node: &str) -> bool {
    let plan = turn.view.hci.plan_of(&NodeName::from(node));
    answered(turn, node) && plan.is_some_and(|plan| plan.post_hook != plan.pre_drain)
}

/// Every node is at the target.
pub fn succeeded(turn: &mut Turn<'_>) {
    if super::over(&turn.before) {
        return tidy::late(turn);
    }
    if !multus::let_go(turn) || !swept(turn) {
        owed(turn);
        return settle(turn);
    }
    let done = if image_stays(turn).is_none() { "true" } else { "false" };
    turn.annotate(IMAGES_REMOVED, Some(done));
    if tidy::all(turn) {
        let report = report::of(turn);
        turn.set(Is::Completed, Tri::True, "", &report);
        turn.tell(false, Reason::Succeeded, &report);
        close(turn);
    }
}

/// Rancher waits for the answer about a node that is done, also where the write of it was lost with whoever made it: nobody looks at
/// such a node any more once all are done.
pub(super) fn owed(turn: &mut Turn<'_>) {
    if !turn.status().single_node.is_empty() {
        return;
    }
    let view = turn.view;
    for node in view.nodes.values() {
        if turn.node_state(node.name.as_str()) == Some(State::Succeeded) {
            nodes::answer(turn, node, Hook::PostDrain);
        }
    }
}

/// Of the last node the taints and its virtual machines: another write to it in the same turn lets theirs be refused, and images take minutes to
/// be removed.
fn settle(turn: &mut Turn<'_>) {
    let nodes: Vec<Arc<Node>> = turn.view.nodes.values().cloned().collect();
    for node in nodes {
        if turn.node_state(node.name.as_str()) != Some(State::Succeeded) {
            continue;
        }
        if let Some(action) = tidy::untainted(&node, tidy::has_emptied(turn, &node)) {
            turn.first(action);
        }
        start_vms(turn, &node.name);
    }
}

/// Stopped short. It stays so until a person asks to go on.
pub fn failed(turn: &mut Turn<'_>) {
    if super::over(&turn.before) {
        if turn.annotation(WISH) == Some("resume") {
            return again(turn);
        }
        return tidy::late(turn);
    }
    if tidy::all(turn) {
        let mut message = turn.message(Is::Completed);
        for more in [multus::stays(turn), tell_who_stays_off(turn)].into_iter().flatten() {
            message = format!("{message}. {more}");
        }
        let reason = turn.reason(Is::Completed);
        turn.set(Is::Completed, Tri::False, &reason, &message);
        close(turn);
    }
}

/// Names whoever was stopped and is not started again: the setting does not ask for it, or it could not be done.
fn tell_who_stays_off(turn: &mut Turn<'_>) -> Option<String> {
    let off = report::stays_off(turn.view, &turn.key);
    if off.is_empty() {
        return None;
    }
    let being_started = |name: &&str| report::named(turn.view, name).is_some_and(|vm| vm.being_started().is_some());
    let until_then = if off.iter().any(being_started) {
        format!(
            ". One annotated with {RUN_AFTER} was started and does not run yet: give it that runStrategy once it does, and remove the annotation"
        )
    } else {
        String::new()
    };
    let text = format!(
        "Virtual machines that were stopped stay off: {}. To start one: virtctl start NAME -n NAMESPACE{until_then}",
        report::all(&off)
    );
    turn.tell(true, Reason::NotMigratable, &text);
    Some(text)
}

fn close(turn: &mut Turn<'_>) {
    turn.label(labels::HARVESTER_UPGRADE_CLEANUP, Some("Succeeded"));
    turn.finalizer(false);
}

/// Images of the release before are removed from the nodes; what cannot be done is told in the report and holds nobody up. Where nobody knows which
/// release that was, none is.
fn swept(turn: &mut Turn<'_>) -> bool {
    if turn.status().previous_version.is_empty() {
        return true;
    }
    let nodes: Vec<NodeName> = turn.view.nodes.keys().cloned().collect();
    let mut open = false;
    for node in &nodes {
        match turn.job(JobKind::CleanUp, Some(node)) {
            None if turn.job_in_the_way(JobKind::CleanUp, Some(node)) => open = true,
            None => {
                turn.create_job(JobKind::CleanUp, Some(node));
                open = true;
            }
            Some(job) => open |= !job.complete && job.failed.is_none(),
        }
    }
    !open
}

/// What stays on nodes, and why.
pub fn unswept(turn: &Turn<'_>) -> Option<String> {
    let all: Vec<String> = [image_stays(turn), multus::stays(turn)].into_iter().flatten().collect();
    (!all.is_empty()).then(|| all.join("; "))
}

/// Where images of the release before stay, and why.
fn image_stays(turn: &Turn<'_>) -> Option<String> {
    if turn.status().previous_version.is_empty() {
        return Some("images of the release before stay: nobody knows which it was".to_owned());
    }
    let failed = turn.view.nodes.keys().filter_map(|node| {
        let job = turn.job(JobKind::CleanUp, Some(node))?;
        let why = job.failed.as_ref()?;
        Some(format!("{node} ({why})"))
    });
    let failed: Vec<String> = failed.collect();
    let failed: Vec<&str> = failed.iter().map(String::as_str).collect();
    (!failed.is_empty()).then(|| format!("images of the release before stay: {}", nodes::some(&failed)))
}

/// Starts what was stopped on a node, and brings back what was moved from it, where that is asked for. Whoever was stopped for a node that is put
/// back is started in any case: the setting is about nodes that were upgraded. Whether it is under way.
pub fn start_vms(turn: &mut Turn<'_>, node: &NodeName) -> bool {
    let list = turn.view.hci.restore_list_of(&turn.key);
    let stopped = list.is_some_and(|list| list.nodes.get(node.as_str()).is_some_and(|vms| !vms.is_empty()));
    let comes_back = config::migrate_back(&turn.after).unwrap_or_default()
        && task::moved_from(turn.view, &turn.key, node).next().is_some();
    // Read only where it says something: a node that is done is looked at in every turn.
    let restores = stopped && config::config(turn.view, &turn.after).is_ok_and(|config| config.restore_vm);
    let in_vain = !is_changed(turn, node.as_str()) && waits_to_start(turn, node);
    let starts = stopped && (restores || in_vain);
    if !starts && !comes_back {
        return false;
    }
    match turn.job(JobKind::RestoreVm, Some(node)) {
        None if turn.job_in_the_way(JobKind::RestoreVm, Some(node)) => true,
        None => {
            turn.create_job(JobKind::RestoreVm, Some(node));
            true
        }
        // The Job had looked at a cluster of the past.
        Some(job) if job.complete && waits_to_start(turn, node) => {
            let job = job.target.clone();
            turn.first(HciAction::DeleteJob { job });
            true
        }
        Some(job) => !job.complete && job.failed.is_none(),
    }
}

/// Somebody on record for a node still bears the note of the task that stopped it, and does not run as before.
fn waits_to_start(turn: &Turn<'_>, node: &NodeName) -> bool {
    let Some(list) = turn.view.hci.restore_list_of(&turn.key) else {
        return false;
    };
    let off = |name: &String| {
        report::named(turn.view, name).is_some_and(|vm| vm.is_stopped())
            && !task::stopped_for_another(list, &turn.status().node_statuses, node, name)
    };
    list.nodes.get(node.as_str()).into_iter().flatten().any(off)
}

/// Work on a node that ended well and did not bring it to the target is done again, or it would fail at once for the same reason.
fn undo_in_vain(turn: &mut Turn<'_>, name: &NodeName) {
    let (Some(node), Some(release)) = (turn.view.nodes.get(name), image::release(turn)) else {
        return;
    };
    if waits::at_target(node, &release).is_ok() {
        return;
    }
    for kind in [JobKind::PostDrain, JobKind::SingleNodeUpgrade] {
        if let Some(job) = turn.job(kind, Some(name)).filter(|job| job.complete) {
            let job = job.target.clone();
            turn.first(HciAction::DeleteJob { job });
        }
    }
}

/// Goes on where the upgrade stopped: what is done stays done, what failed is tried once more.
fn again(turn: &mut Turn<'_>) {
    if condition_of(&turn.after, PREFLIGHT_PASSED) != Some(Tri::True) {
        // It has not begun: the next turn looks at all of it, as if it were new.
        turn.annotate(WISH, None);
        turn.annotate(ABORT, None);
        turn.label(labels::HARVESTER_UPGRADE_CLEANUP, None);
        turn.label(labels::HARVESTER_UPGRADE_STATE, None);
        return turn.unset(Is::Completed);
    }
    for kind in [Is::ImageReady, Is::RepoReady] {
        turn.unset(kind);
    }
    if turn.condition(Is::LogReady) == Some(Tri::Unknown) {
        turn.unset(Is::LogReady);
    }
    for kind in [Is::NodesPrepared, Is::SystemServicesUpgraded, Is::NodesUpgraded] {
        if turn.condition(kind) != Some(Tri::True) {
            turn.unset(kind);
        }
    }
    let failed: Vec<String> = turn
        .status()
        .node_statuses
        .keys()
        .filter(|node| turn.node_state(node) == Some(State::Failed))
        .cloned()
        .collect();
    let prepared = turn.condition(Is::NodesPrepared) == Some(Tri::True);
    for node in failed {
        undo_in_vain(turn, &NodeName::from(node.as_str()));
        if !prepared {
            turn.status_mut().node_statuses.remove(&node);
        } else if answered(turn, &node) {
            turn.set_node(&node, State::PreDrained, "", "");
        } else {
            turn.set_node(&node, State::ImagesPreloaded, "", "");
        }
    }
    let uid = turn.target.uid.clone();
    // Whoever was started again when it stopped is stopped once more when the node has its turn, and has to be started once more.
    let started = |key: &Key| {
        let mut nodes = turn.view.nodes.keys();
        nodes.any(|node| {
            let undone = turn.node_state(node.as_str()) != Some(State::Succeeded);
            undone && *key == turn.job_key(JobKind::RestoreVm, Some(node))
        })
    };
    let multus = tidy::names_of(turn.view, &turn.before, &[JobKind::HoldMultus, JobKind::LetMultusGo]);
    let jobs = turn.view.hci.jobs.values().filter(|job| {
        let (ours, key) = (job.upgrade_uid.as_ref() == Some(&uid), &job.target.key);
        ours && (job.failed.is_some() || started(key) || multus.contains(&*key.name))
    });
    for job in jobs.map(|job| job.target.clone()).collect::<Vec<_>>() {
        turn.first(HciAction::DeleteJob { job });
    }
    turn.annotate(WISH, None);
    turn.annotate(ABORT, None);
    turn.annotate(PENDING_AS_OF, None);
    multus::forget(turn);
    turn.finalizer(true);
    turn.label(labels::HARVESTER_UPGRADE_CLEANUP, None);
    turn.state_label(UpgradeState::LoggingInfraPrepared);
    turn.set(Is::Completed, Tri::Unknown, "", "");
    turn.tell(false, Reason::InProgress, "the upgrade goes on where it stopped");
}

//! The end of an upgrade, whichever: virtual machines started again, everything put back that was changed for its sake, one report.
//! A node that was drained is finished first; one that was only being emptied is put back.

use std::cell::LazyCell;
use std::collections::BTreeSet;
use std::sync::Arc;

use afloat_api::annotations::{KUBEVIRT_DRAIN_TAINT, PENDING_AS_OF, RUN_AFTER, WISH};
use afloat_api::foreign::rancher::LOCAL_NAMESPACE;
use afloat_api::harvester::{HarvesterNodeState as State, NAMESPACE, Upgrade, UpgradeCondition as Is, UpgradeState};
use afloat_api::{Reason, annotations, labels, names};
use jiff::Timestamp;

use super::action::{HciAction, Hook, JobKind, NodeMark};
use super::config::{self, ABORT};
use super::rollout::{self, Ended};
use super::turn::{PREFLIGHT_PASSED, Tri, Turn, condition_of, minutes_after, moment};
use super::view::{Job, Seen};
use super::{image, logs, multus, nodes, pending, report, task, waits};
use crate::view::{Key, Node, NodeName, Taint, Target, Uid, View, WorkloadKind};

/// Charts that fleet has to leave alone while the manifests are applied.
const CHARTS: [&str; 4] = [
    "harvester",
    "harvester-crd",
    "rancher-monitoring-crd",
    "rancher-logging-crd",
];

/// What is said of a node that was being emptied, and is not any more.
const PUT_BACK: &str = "put back before it was drained";

/// On an Upgrade: images of the release before were removed; `false` where some could not be.
const IMAGES_REMOVED: &str = "harvesterhci.io/image-cleanup-plan-completed";

/// How long the Job that brings Rancher and charts may take to end what it is at: as long as a helm is waited for on the host, and then some.
const SERVICES_MINUTES: i64 = 30;

/// How long after the end of an upgrade a task may still write what it was at.
const LATE_MINUTES: i64 = 10;

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
    if tidy(turn) {
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
    if let Some(action) = untainted(node, true) {
        turn.first(action);
    }
}

/// Lets virtual machines come to a node again.
pub fn untaint(turn: &mut Turn<'_>, node: &Node) {
    if let Some(action) = untainted(node, true) {
        turn.then(action);
    }
}

/// Takes our own taint from a node, and KubeVirt's where this upgrade has emptied it: that one may be somebody else's.
fn untainted(node: &Node, emptied: bool) -> Option<HciAction> {
    let is_ours = |taint: &Taint| pending::is_ours(taint) || (emptied && &*taint.key == KUBEVIRT_DRAIN_TAINT);
    let keep = node.taints.iter().filter(|taint| !is_ours(taint)).cloned().collect();
    let node_target = node.target();
    node.taints.iter().any(is_ours).then_some(HciAction::Untaint {
        node: node_target,
        keep,
    })
}

/// Whether this upgrade has emptied a node, or begun to: the Job that did may be gone, by a person's hand or because it was in vain.
fn has_emptied(turn: &Turn<'_>, node: &Node) -> bool {
    let emptying = [JobKind::PreDrain, JobKind::SingleNodeUpgrade];
    let has_job = emptying.iter().any(|kind| turn.job(*kind, Some(&node.name)).is_some());
    let prepared = turn.condition(Is::NodesPrepared) == Some(Tri::True);
    let state = turn.node_state(node.name.as_str());
    let status = turn.status().node_statuses.get(node.name.as_str());
    // Its taint may have been seen only since.
    let put_back = status.is_some_and(|status| status.message == PUT_BACK);
    has_job || put_back || state.is_some_and(|state| state > State::Paused && (state != State::Failed || prepared))
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
        return late(turn);
    }
    if !multus::let_go(turn) || !swept(turn) {
        owed(turn);
        return settle(turn);
    }
    let done = if image_stays(turn).is_none() { "true" } else { "false" };
    turn.annotate(IMAGES_REMOVED, Some(done));
    if tidy(turn) {
        let report = report::of(turn);
        turn.set(Is::Completed, Tri::True, "", &report);
        turn.tell(false, Reason::Succeeded, &report);
        close(turn);
    }
}

/// Rancher waits for the answer about a node that is done, also where the write of it was lost with whoever made it: nobody looks at
/// such a node any more once all are done.
fn owed(turn: &mut Turn<'_>) {
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
        if let Some(action) = untainted(&node, has_emptied(turn, &node)) {
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
        return late(turn);
    }
    if tidy(turn) {
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

/// What came late to an upgrade that is over goes too.
fn late(turn: &mut Turn<'_>) {
    call_off(turn);
    unserve(turn);
    logs::end(turn);
    logs::forget_dismissed(turn);
    let (view, upgrade) = (turn.view, Arc::clone(&turn.before));
    let emptied: Vec<&Arc<Node>> = drained_late(turn).collect();
    let left = pending::left(view, &upgrade).filter(|node| !emptied.iter().any(|other| other.name == node.name));
    let left: Vec<HciAction> = left.filter_map(|node| untainted(node, false)).collect();
    let emptied: Vec<HciAction> = emptied.into_iter().filter_map(|node| untainted(node, true)).collect();
    for action in left.into_iter().chain(emptied) {
        turn.first(action);
    }
}

/// Nodes that a task has tainted which did not know yet that its upgrade was over. Later, or while another upgrade is at work or a person maintains the
/// node, that taint is somebody else's.
fn drained_late<'a>(turn: &Turn<'a>) -> impl Iterator<Item = &'a Arc<Node>> + use<'a> {
    let ended = turn.since(Is::Completed).unwrap_or(Timestamp::MIN);
    let latest = config::label(&turn.before, labels::HARVESTER_LATEST_UPGRADE) == Some("true");
    let may_be_ours = latest && turn.now < minutes_after(ended, LATE_MINUTES);
    let ours =
        |taint: &Taint| &*taint.key == KUBEVIRT_DRAIN_TAINT && *taint.value == *annotations::KUBEVIRT_DRAIN_TAINT_VALUE;
    let nodes = turn.view.nodes.values().filter(|_| may_be_ours);
    let of_ours: Vec<&'a Arc<Node>> = nodes
        .filter(|node| node.hci.maintenance.is_none() && node.taints.iter().any(ours) && has_emptied(turn, node))
        .collect();
    of_ours.into_iter()
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

/// Puts everything back, whether or not it was changed by this turn's upgrade in the end. Whether nothing is left to do.
fn tidy(turn: &mut Turn<'_>) -> bool {
    let ended = how_far(turn);
    call_off(turn);
    let let_go = multus::let_go(turn);
    owed(turn);
    let nodes: Vec<Arc<Node>> = turn.view.nodes.values().cloned().collect();
    let mut starting = false;
    for node in &nodes {
        starting |= start_vms(turn, &node.name);
        for (mark, there) in [
            (NodeMark::Pause, node.hci.pause.is_some()),
            (NodeMark::PendingOsImage, node.hci.pending_os_image.is_some()),
        ] {
            if there {
                let node = node.target();
                turn.first(HciAction::MarkNode {
                    node,
                    mark,
                    value: None,
                });
            }
        }
        if let Some(action) = untainted(node, has_emptied(turn, node)) {
            turn.first(action);
        }
    }
    let all_seen = pending::all_seen(turn);
    rollout::put_back(turn, ended);
    let uid = turn.target.uid.clone();
    let paused: Vec<Target> = turn
        .view
        .hci
        .charts
        .values()
        .filter(|chart| chart.paused_by.as_ref() == Some(&uid))
        .map(|chart| chart.target.clone())
        .collect();
    for chart in paused {
        turn.first(HciAction::PauseChart { chart, by: None });
    }
    let noted: Vec<(Target, Arc<str>)> = turn
        .view
        .hci
        .charts
        .values()
        .filter(|chart| chart.paused_by.as_ref() != Some(&uid))
        .filter_map(|chart| Some((chart.target.clone(), chart.update_methods_before.clone()?)))
        .collect();
    for (chart, methods) in noted {
        turn.first(HciAction::RestoreUpdateMethods { chart, methods });
    }
    unserve(turn);
    logs::end(turn);
    turn.idle() && let_go && !starting && all_seen
}

/// Names of the Jobs of these kinds on all nodes.
fn names_of(view: &View, upgrade: &Upgrade, kinds: &[JobKind]) -> BTreeSet<String> {
    let name = upgrade.metadata.name.as_deref().unwrap_or_default();
    let of = |kind: JobKind| view.nodes.keys().map(move |node| kind.name(name, Some(node)));
    kinds.iter().copied().flat_map(of).collect()
}

/// Jobs of an upgrade that go on, but for those that put back what it has changed.
fn going_on<'a>(view: &'a View, upgrade: &'a Upgrade) -> impl Iterator<Item = &'a Arc<Seen<Job>>> {
    let uid = &upgrade.metadata.uid;
    let ours = |job: &Job| job.upgrade_uid.as_ref().map(Uid::as_str) == uid.as_deref();
    let kept = LazyCell::new(move || names_of(view, upgrade, &[JobKind::RestoreVm, JobKind::LetMultusGo]));
    view.hci.jobs.values().filter(move |job| {
        let over = job.complete || job.failed.is_some() || job.deleting;
        ours(job) && !over && !kept.contains(&*job.target.key.name)
    })
}

/// Ends what would go on after the upgrade. A Job that was on its way when the upgrade ended is seen only later.
fn call_off(turn: &mut Turn<'_>) {
    let jobs: Vec<Target> = going_on(turn.view, &turn.before)
        .map(|job| job.target.clone())
        .collect();
    for job in jobs {
        turn.first(HciAction::DeleteJob { job });
    }
}

/// Whether something is left of an upgrade that is over: what it had served its release with, a Job, its taint on a node, or logs that are collected.
pub fn lingers(view: &View, upgrade: &Upgrade) -> bool {
    let drained = |node: &Node| node.taints.iter().any(|taint| &*taint.key == KUBEVIRT_DRAIN_TAINT);
    let tainted = pending::left(view, upgrade).next().is_some() || view.nodes.values().any(|node| drained(node));
    tainted || logs::linger(view, upgrade) || serves(view, upgrade) || going_on(view, upgrade).next().is_some()
}

fn serves(view: &View, upgrade: &Upgrade) -> bool {
    let name = upgrade.metadata.name.as_deref().unwrap_or_default();
    let repo = Key::new(NAMESPACE, &names::cut(&format!("upgrade-repo-{name}")));
    let mut images = view.hci.images.values();
    view.hci.services.get(&repo).is_some_and(|service| !service.deleting)
        || view.workloads.contains_key(&(WorkloadKind::Deployment, repo))
        || images.any(|image| image.upgrade.as_deref() == Some(name) && !image.deleting)
}

/// The repository goes, and the image where it was made for this upgrade; an image of the person's own stays.
fn unserve(turn: &mut Turn<'_>) {
    let key = Key::new(NAMESPACE, &turn.repo_name());
    if let Some(service) = turn.view.hci.services.get(&key).filter(|service| !service.deleting) {
        let service = service.target.clone();
        turn.first(HciAction::DeleteRepoService { service });
    }
    if let Some(deployment) = turn.view.workloads.get(&(WorkloadKind::Deployment, key)) {
        let deployment = Target {
            key: deployment.key.clone(),
            uid: deployment.uid.clone(),
            revision: deployment.revision,
        };
        turn.first(HciAction::DeleteRepo { deployment });
    }
    let named: Vec<_> = turn
        .view
        .hci
        .images
        .values()
        .filter(|image| image.upgrade.as_deref() == Some(turn.name()) && !image.deleting)
        .cloned()
        .collect();
    for image in named {
        let own = turn.after.spec.image.is_empty() && *image.target.key.name == *turn.name();
        let image = image.target.clone();
        turn.first(if own {
            HciAction::DeleteImage { image }
        } else {
            HciAction::LabelImage { image, upgrade: None }
        });
    }
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
    let multus = names_of(turn.view, &turn.before, &[JobKind::HoldMultus, JobKind::LetMultusGo]);
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

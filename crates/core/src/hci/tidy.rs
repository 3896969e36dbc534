//! What an upgrade has changed for its own sake is put back: taints, marks, charts, the repository, Jobs that would go on; and what comes late to one
//! that is over goes too. When that is, and what becomes of a node that was begun, is decided in [`super::cleanup`].

use std::cell::LazyCell;
use std::collections::BTreeSet;
use std::sync::Arc;

use afloat_api::annotations::KUBEVIRT_DRAIN_TAINT;
use afloat_api::harvester::{HarvesterNodeState as State, NAMESPACE, Upgrade, UpgradeCondition as Is};
use afloat_api::{annotations, labels, names};
use jiff::Timestamp;

use super::action::{HciAction, JobKind, NodeMark};
use super::cleanup::{PUT_BACK, how_far, owed, start_vms};
use super::turn::{Tri, Turn, minutes_after};
use super::view::{Job, Seen};
use super::{config, logs, multus, pending, rollout};
use crate::view::{Key, Node, Taint, Target, Uid, View, WorkloadKind};

/// How long after the end of an upgrade a task may still write what it was at.
const LATE_MINUTES: i64 = 10;

/// Lets virtual machines come to a node again.
pub fn untaint(turn: &mut Turn<'_>, node: &Node) {
    if let Some(action) = untainted(node, true) {
        turn.then(action);
    }
}

/// Takes our own taint from a node, and KubeVirt's where this upgrade has emptied it: that one may be somebody else's.
pub fn untainted(node: &Node, emptied: bool) -> Option<HciAction> {
    let is_ours = |taint: &Taint| pending::is_ours(taint) || (emptied && &*taint.key == KUBEVIRT_DRAIN_TAINT);
    let keep = node.taints.iter().filter(|taint| !is_ours(taint)).cloned().collect();
    let node_target = node.target();
    node.taints.iter().any(is_ours).then_some(HciAction::Untaint {
        node: node_target,
        keep,
    })
}

/// Whether this upgrade has emptied a node, or begun to: the Job that did may be gone, by a person's hand or because it was in vain.
pub fn has_emptied(turn: &Turn<'_>, node: &Node) -> bool {
    let emptying = [JobKind::PreDrain, JobKind::SingleNodeUpgrade];
    let has_job = emptying.iter().any(|kind| turn.job(*kind, Some(&node.name)).is_some());
    let prepared = turn.condition(Is::NodesPrepared) == Some(Tri::True);
    let state = turn.node_state(node.name.as_str());
    let status = turn.status().node_statuses.get(node.name.as_str());
    // Its taint may have been seen only since.
    let put_back = status.is_some_and(|status| status.message == PUT_BACK);
    has_job || put_back || state.is_some_and(|state| state > State::Paused && (state != State::Failed || prepared))
}

/// What came late to an upgrade that is over goes too.
pub fn late(turn: &mut Turn<'_>) {
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

/// Puts everything back, whether or not it was changed by this turn's upgrade in the end. Whether nothing is left to do.
pub fn all(turn: &mut Turn<'_>) -> bool {
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
pub fn names_of(view: &View, upgrade: &Upgrade, kinds: &[JobKind]) -> BTreeSet<String> {
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

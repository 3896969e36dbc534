//! The rules that must never break, asserted before an action leaves the core. Every one of them should hold by the way
//! decisions are made; here it is looked at once more, from the action alone, so that a mistake in a decision stops the
//! upgrade instead of a cluster. The simulator checks the same rules from outside, with code of its own.

use std::collections::BTreeSet;
use std::sync::Arc;

use afloat_api::clusterupgrade::Slot;
use afloat_api::kubeadm::DesiredNodeState;
use afloat_api::{ClusterUpgradeStatus, GroupUpgradeStatus, NodeKubeadmUpgrade, NodeRole, Reason};
use jiff::{SignedDuration, Timestamp};

use crate::action::{Action, Decision, Event, EventObject, Task, TaskPod};
use crate::hci::{self, action::HciAction};
use crate::judge::{self, Group};
use crate::objects::Standing;
use crate::plan;
use crate::settings::{self, Settings};
use crate::version::KubernetesVersion;
use crate::view::{Key, Target, View};

/// A rule an action would have broken.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Violation {
    /// The number of the rule in the design.
    pub rule: u8,
    pub what: String,
}

/// How soon it is looked again at what was held back: where an old view was to blame, no change need come for this very object.
const LOOK_AGAIN: SignedDuration = SignedDuration::from_secs(30);

/// Lets actions through up to the first that would break a rule; what is held back is told as an event on its object.
pub fn guard(view: &View, decision: Decision, now: Timestamp) -> Decision {
    let mut decision = decision;
    let broken = decision
        .actions
        .iter()
        .enumerate()
        .find_map(|(index, action)| check(view, action, now).err().map(|violation| (index, violation)));
    let Some((index, violation)) = broken else {
        return decision;
    };
    let object = object_of(&decision.actions[index]);
    decision.actions.truncate(index);
    let again = now + LOOK_AGAIN;
    decision.again = Some(decision.again.map_or(again, |at| at.min(again)));
    if let Some(object) = object {
        decision.events.push(Event {
            object,
            warning: true,
            reason: Reason::RuleWouldBreak,
            message: Arc::from(format!(
                "held back, it would break rule {}: {}; this is a defect of Afloat",
                violation.rule, violation.what
            )),
        });
    }
    decision
}

fn object_of(action: &Action) -> Option<EventObject> {
    match action {
        Action::WriteUpgradeStatus { target, .. } => Some(EventObject::Upgrade(target.clone())),
        Action::SetDesired { target, .. } => Some(EventObject::NodeUpgrade(target.clone())),
        Action::Cordon { node, .. } | Action::Uncordon { node } => Some(EventObject::Node(node.clone())),
        Action::CreatePod(pod) => Some(EventObject::NodeUpgrade(pod.owner.clone())),
        Action::Hci(action) => match &**action {
            HciAction::CreateJob(job) => Some(EventObject::Hci(job.upgrade.clone())),
            HciAction::WriteUpgrade { target, .. } => Some(EventObject::Hci(target.clone())),
            _ => None,
        },
        _ => None,
    }
}

fn broken(rule: u8, what: String) -> Result<(), Violation> {
    Err(Violation { rule, what })
}

/// Whether one action keeps the rules.
pub fn check(view: &View, action: &Action, now: Timestamp) -> Result<(), Violation> {
    match action {
        Action::WriteUpgradeStatus { target, status } => ledger(view, target, status),
        Action::WriteControlPlaneStatus { target, status } => {
            let group = judge::control_plane(view, &target.key);
            group.map_or(Ok(()), |group| ledger_alone(view, group, status))
        }
        Action::WriteWorkersStatus { target, status } => {
            let group = judge::workers(view, &target.key);
            group.map_or(Ok(()), |group| ledger_alone(view, group, status))
        }
        Action::SetDesired { target, desired, .. } if *desired == DesiredNodeState::Upgraded => go(view, target),
        Action::CreateNodeUpgrade(upgrade) => versions(view, upgrade),
        Action::CreatePod(pod) if pod.task != Task::Stage => work_on_node(view, pod),
        Action::Uncordon { node } => uncordon(view, node),
        Action::Evict { pod, .. } => eviction(view, pod),
        Action::DeletePod { pod } => own_pod(view, pod),
        Action::DeletePastBudget { pod, budget, .. } => past_budget(view, pod, budget, now),
        Action::Hci(action) => hci::rules::check(view, action),
        _ => Ok(()),
    }
}

/// Rules 1, 2, 4 and 6: what the ledger grants beyond what it held.
fn ledger(view: &View, target: &Target, status: &ClusterUpgradeStatus) -> Result<(), Violation> {
    let Some(upgrade) = view.upgrades.get(&target.key) else {
        return Ok(());
    };
    let held = upgrade
        .status
        .as_ref()
        .map(|status| status.slots.as_slice())
        .unwrap_or_default();
    let fresh = granted(held, &status.slots);
    if fresh.is_empty() {
        return Ok(());
    }
    one_plane_by_itself(&status.slots)?;
    let Ok(settings) = Settings::read(&upgrade.spec) else {
        return Ok(());
    };
    if settings.paused || settings.abort {
        return broken(6, format!("{} would start while paused or aborted", fresh[0].node));
    }
    budget(view, &settings, &status.slots, &fresh)
}

/// The same of a group that keeps its own.
fn ledger_alone(view: &View, group: Group<'_>, status: &GroupUpgradeStatus) -> Result<(), Violation> {
    let held = group.status().map(|status| status.slots.as_slice()).unwrap_or_default();
    let fresh = granted(held, &status.slots);
    let Some(first) = fresh.first() else {
        return Ok(());
    };
    one_plane_by_itself(&status.slots)?;
    if group.paused() || group.meta().deletion_timestamp.is_some() {
        return broken(
            6,
            format!("{} would start while its group is held or deleted", first.node),
        );
    }
    match judge::settings_alone(group) {
        Ok(settings) => budget(view, &settings, &status.slots, &fresh),
        Err(_) => Ok(()),
    }
}

/// Slots that were not held before.
fn granted<'a>(held: &[Slot], slots: &'a [Slot]) -> Vec<&'a Slot> {
    let same = |one: &Slot, other: &Slot| {
        (&one.node, one.attempt, &one.version) == (&other.node, other.attempt, &other.version)
    };
    let fresh = slots.iter().filter(|slot| !held.iter().any(|old| same(old, slot)));
    fresh.collect()
}

fn one_plane_by_itself(slots: &[Slot]) -> Result<(), Violation> {
    let planes = slots.iter().filter(|slot| slot.role != NodeRole::Worker).count();
    if planes > 1 {
        return broken(2, "two control planes at once".to_owned());
    }
    if planes == 1 && slots.len() > 1 {
        return broken(4, "a control plane and a worker at once".to_owned());
    }
    Ok(())
}

fn budget(view: &View, settings: &Settings, slots: &[Slot], fresh: &[&Slot]) -> Result<(), Violation> {
    let workers: BTreeSet<&str> = view.worker_nodes().map(|node| node.name.as_str()).collect();
    let mut out: BTreeSet<&str> = view
        .worker_nodes()
        .filter(|node| !node.available())
        .map(|node| node.name.as_str())
        .collect();
    let adds = fresh
        .iter()
        .any(|slot| workers.contains(slot.node.as_str()) && !out.contains(slot.node.as_str()));
    out.extend(
        slots
            .iter()
            .map(|slot| slot.node.as_str())
            .filter(|name| workers.contains(name)),
    );
    let allowed = settings.max_unavailable.of(workers.len());
    if adds && out.len() > allowed {
        return broken(1, format!("{} of at most {allowed} workers out of service", out.len()));
    }
    Ok(())
}

/// Rule 6 and the ledger: a node goes only with a slot.
fn go(view: &View, target: &Target) -> Result<(), Violation> {
    let Some(node_upgrade) = view.node_upgrade(&target.key) else {
        return Ok(());
    };
    let settings = settings::of_node(view, node_upgrade);
    if settings.aborted {
        return broken(6, format!("{} would start after an abort", node_upgrade.spec.node.name));
    }
    let upgrade = settings.upgrade.as_ref().and_then(|key| view.upgrades.get(key));
    let slots = match (upgrade, keeps_ledger_above(view, node_upgrade)) {
        (Some(upgrade), _) => upgrade.status.as_ref().map(|status| status.slots.as_slice()),
        (None, Some(group)) => group.status().map(|status| status.slots.as_slice()),
        (None, None) => return Ok(()),
    };
    let slots = slots.unwrap_or_default();
    let standing = Standing::of(node_upgrade);
    let holds = slots.iter().any(|slot| standing.holds(slot));
    if holds {
        Ok(())
    } else {
        broken(1, format!("{} would go without a slot", node_upgrade.spec.node.name))
    }
}

/// The group of a node's upgrade, where no ClusterUpgrade stands above that.
fn keeps_ledger_above<'a>(view: &'a View, upgrade: &NodeKubeadmUpgrade) -> Option<Group<'a>> {
    let meta = &upgrade.metadata;
    let owner = settings::controller(meta.owner_references.as_deref())?;
    let key = Key::new(meta.namespace.as_deref().unwrap_or_default(), &owner.name);
    let group = match owner.kind.as_str() {
        "ControlPlaneKubeadmUpgrade" => judge::control_plane(view, &key)?,
        "WorkersKubeadmUpgrade" => judge::workers(view, &key)?,
        _ => return None,
    };
    let alone = settings::controller(group.meta().owner_references.as_deref()).is_none();
    (alone && group.uid() == owner.uid).then_some(group)
}

/// Rule 3: no downgrade, no kubelet newer than the oldest API server once the control plane is done with this version.
fn versions(view: &View, upgrade: &NodeKubeadmUpgrade) -> Result<(), Violation> {
    let Ok(to) = upgrade.spec.kubelet_version.parse::<KubernetesVersion>() else {
        return broken(3, format!("{:?} is no version", upgrade.spec.kubelet_version));
    };
    let Some(node) = view.nodes.get(upgrade.spec.node.name.as_str()) else {
        return Ok(());
    };
    if node.kubelet_version.as_ref().is_some_and(|now| *now > to) {
        return broken(3, format!("{} would go down to {to}", node.name));
    }
    let server = plan::api_server_version(view, node);
    let far = server
        .and_then(|server| server.minors_to(&to))
        .is_some_and(|minors| minors > 1);
    if upgrade.spec.role != NodeRole::Worker && far {
        return broken(
            3,
            format!("{} would take more than one minor version at once", node.name),
        );
    }
    Ok(())
}

/// Rules 3 and 5: what touches a kubelet runs on a cordoned node, and never makes a worker newer than an API server.
fn work_on_node(view: &View, pod: &TaskPod) -> Result<(), Violation> {
    let Some(node) = view.nodes.get(&pod.node) else {
        return Ok(());
    };
    if node.uid != pod.node_uid {
        return broken(10, format!("{} is another machine under the same name", pod.node));
    }
    if !node.unschedulable {
        return broken(5, format!("{} is not cordoned", pod.node));
    }
    let Some(node_upgrade) = view.node_upgrade(&pod.owner.key).filter(|_| pod.task == Task::Upgrade) else {
        return Ok(());
    };
    if node_upgrade.spec.role != NodeRole::Worker {
        return Ok(());
    }
    let to = node_upgrade.spec.kubelet_version.parse::<KubernetesVersion>().ok();
    let oldest = view
        .control_plane_nodes()
        .filter_map(|plane| plan::api_server_version(view, plane))
        .min();
    match (to, oldest) {
        (Some(to), Some(oldest)) if to.minor_version() > oldest.minor_version() => broken(
            3,
            format!("{}'s kubelet would be newer than an API server at {oldest}", pod.node),
        ),
        _ => Ok(()),
    }
}

/// Rule 7: what a person cordoned stays.
fn uncordon(view: &View, target: &Target) -> Result<(), Violation> {
    match view.nodes.get(&*target.key.name) {
        Some(node) if node.cordoned_by.is_none() => broken(7, format!("{} was not cordoned by Afloat", node.name)),
        _ => Ok(()),
    }
}

/// Rule 5: pods are evicted from cordoned nodes only.
fn eviction(view: &View, target: &Target) -> Result<(), Violation> {
    let node = view
        .pod(&target.key)
        .and_then(|pod| pod.node.as_ref())
        .and_then(|name| view.nodes.get(name));
    match node {
        Some(node) if !node.unschedulable => broken(5, format!("{} is not cordoned", node.name)),
        _ => Ok(()),
    }
}

/// Rule 10: only Afloat's own pods are simply deleted.
fn own_pod(view: &View, target: &Target) -> Result<(), Violation> {
    match view.pod(&target.key) {
        Some(pod) if pod.uid == target.uid && pod.task.is_none() => {
            broken(10, format!("{} is not one of Afloat's pods", target.key))
        }
        _ => Ok(()),
    }
}

/// Rule 8: a budget is passed over only where a person said so, for it, until a moment that has not come.
fn past_budget(view: &View, target: &Target, budget: &Key, now: Timestamp) -> Result<(), Violation> {
    eviction(view, target)?;
    let allowed = view.upgrades.values().any(|upgrade| {
        let overrides = upgrade
            .spec
            .drain
            .as_ref()
            .map(|drain| drain.override_budgets.as_slice());
        overrides
            .unwrap_or_default()
            .iter()
            .any(|entry| *entry.namespace == *budget.namespace && *entry.name == *budget.name && entry.until.0 > now)
    });
    if allowed {
        Ok(())
    } else {
        broken(8, format!("nobody allowed to pass over pdb/{budget}"))
    }
}

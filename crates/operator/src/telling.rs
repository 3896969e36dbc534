//! Durations and waits for the metrics, read from what a status says that an earlier one did not. Statuses carry their own times, so
//! that an operator that was away has missed nothing but the end of a wait.

use std::collections::BTreeMap;
use std::time::Duration;

use afloat_api::clusterupgrade::MAX_LISTED_NODES;
use afloat_api::harvester::Upgrade;
use afloat_api::{ClusterUpgradeStatus, GroupUpgradeStatus, NodeKubeadmUpgradeStatus, Reason, labels};
use afloat_core::hci::view::HciObject;
use afloat_core::view::View;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};

use crate::metrics::Metrics;
use crate::snapshot::Object;

const READY: &str = "Ready";

/// Who waits: its reason, and since when where the status says so.
type Waits = BTreeMap<String, (String, Option<Timestamp>)>;

/// Counts what is new in an object that was just written.
pub fn tell(metrics: &Metrics, view: &View, object: &Object, now: Timestamp) {
    let key = object.target().key;
    match object {
        Object::NodeUpgrade(after) => {
            let before = view.node_upgrade(&key).and_then(|before| before.status.as_ref());
            if let Some(after) = &after.status {
                node(metrics, before, after, now);
            }
        }
        Object::Upgrade(after) => {
            let before = view.upgrades.get(&key).and_then(|before| before.status.as_ref());
            if let Some(after) = &after.status {
                upgrade(metrics, before, after);
                let list = |status: &ClusterUpgradeStatus| held_back(view, status);
                let cut_off = after.waiting.len() >= MAX_LISTED_NODES;
                waits(metrics, before.map(list), &list(after), now, !cut_off);
            }
        }
        Object::ControlPlane(after) if alone(&after.metadata) => {
            let before = view.control_planes.get(&key).and_then(|before| before.status.as_ref());
            group(metrics, before, after.status.as_ref(), now);
        }
        Object::Workers(after) if alone(&after.metadata) => {
            let before = view.workers.get(&key).and_then(|before| before.status.as_ref());
            group(metrics, before, after.status.as_ref(), now);
        }
        Object::Hci(object) => {
            if let HciObject::Upgrade(after) = object.as_ref() {
                let before = view.hci.upgrades.get(&key).map(|before| of_nodes(&before.what));
                waits(metrics, before, &of_nodes(&after.what), now, true);
            }
        }
        _ => {}
    }
}

/// No upgrade of a cluster stands above it, which would tell of its waits.
fn alone(meta: &ObjectMeta) -> bool {
    let labels = meta.labels.as_ref();
    labels.is_none_or(|labels| !labels.contains_key(labels::UPGRADE_UID))
}

fn node(
    metrics: &Metrics,
    before: Option<&NodeKubeadmUpgradeStatus>,
    after: &NodeKubeadmUpgradeStatus,
    now: Timestamp,
) {
    if let Some(before) = before
        && before.state != after.state
        && let (Some(state), Some(time)) = (
            before.state,
            between(before.state_since.as_ref(), after.state_since.as_ref()),
        )
    {
        metrics.state_took(state.into(), time);
    }
    let list = |status: &NodeKubeadmUpgradeStatus| -> Waits {
        let wait = status.waiting_for.iter();
        wait.map(|wait| (String::new(), (wait.reason.clone(), Some(wait.since.0))))
            .collect()
    };
    waits(metrics, before.map(list), &list(after), now, true);
    for step in &after.steps {
        let known = before
            .into_iter()
            .flat_map(|before| &before.steps)
            .find(|known| known.name == step.name);
        let ended_before = known.is_some_and(|known| known.finished_at == step.finished_at);
        if !ended_before && let Some(time) = between(step.started_at.as_ref(), step.finished_at.as_ref()) {
            metrics.step_took(&step.name, time);
        }
    }
}

fn upgrade(metrics: &Metrics, before: Option<&ClusterUpgradeStatus>, after: &ClusterUpgradeStatus) {
    for phase in after.phases.iter().filter(|phase| phase.finished_at.is_some()) {
        let mut known = before.into_iter().flat_map(|before| &before.phases);
        let ended_before = known.any(|known| known.name == phase.name && known.finished_at.is_some());
        if !ended_before && let Some(time) = between(Some(&phase.started_at), phase.finished_at.as_ref()) {
            metrics.phase_took(phase.name.into(), time);
        }
    }
}

/// The nodes that are held back before their turn: by budget, capacity, window, gate, another node, a person. Those that wait by themselves
/// are in the list too, and were told of already.
fn held_back(view: &View, status: &ClusterUpgradeStatus) -> Waits {
    let tells_itself = |node: &str, reason: &str| {
        let mut upgrades = view.node_upgrades_of(node).map(|(_, upgrade)| upgrade.status.as_ref());
        upgrades.any(|status| {
            let wait = status.and_then(|status| status.waiting_for.as_ref());
            wait.is_some_and(|wait| wait.reason == reason)
        })
    };
    let listed = status.waiting.iter();
    listed
        .filter(|entry| !tells_itself(&entry.node, &entry.wait.reason))
        .map(|entry| {
            (
                entry.node.clone(),
                (entry.wait.reason.clone(), Some(entry.wait.since.0)),
            )
        })
        .collect()
}

fn group(metrics: &Metrics, before: Option<&GroupUpgradeStatus>, after: Option<&GroupUpgradeStatus>, now: Timestamp) {
    let list = |status: &GroupUpgradeStatus| -> Waits {
        let ready = status.conditions.iter().find(|condition| condition.type_ == READY);
        let reason = ready.map(|ready| ready.reason.clone()).filter(|reason| is_wait(reason));
        reason
            .map(|reason| (String::new(), (reason, None)))
            .into_iter()
            .collect()
    };
    if let Some(after) = after {
        waits(metrics, before.map(list), &list(after), now, true);
    }
}

fn of_nodes(upgrade: &Upgrade) -> Waits {
    let nodes = upgrade.status.iter().flat_map(|status| &status.node_statuses);
    nodes
        .filter(|(_, status)| is_wait(&status.reason))
        .map(|(node, status)| (node.clone(), (status.reason.clone(), None)))
        .collect()
}

/// The condition of a group has one reason for everything, the end included.
fn is_wait(reason: &str) -> bool {
    let others = [
        Reason::PausedByUser,
        Reason::NodePaused,
        Reason::OutsideWindow,
        Reason::Deferred,
        Reason::SeveralPodDisruptionBudgets,
    ];
    reason.starts_with("WaitingFor") || others.iter().any(|other| <&str>::from(other) == reason)
}

/// Counts the waits that have begun, and how long those were that are over. Of a list that was cut off nobody knows what is over.
fn waits(metrics: &Metrics, before: Option<Waits>, after: &Waits, now: Timestamp, whole: bool) {
    let before = before.unwrap_or_default();
    for (who, (reason, _)) in after {
        if before.get(who).is_none_or(|(known, _)| known != reason) {
            metrics.wait(reason);
        }
    }
    for (who, (reason, since)) in before.iter().filter(|_| whole) {
        let lasts = after.get(who).is_some_and(|(known, _)| known == reason);
        let took = since.and_then(|since| Duration::try_from(now.duration_since(since)).ok());
        if let Some(took) = took.filter(|_| !lasts) {
            metrics.waited(reason, took);
        }
    }
}

fn between(from: Option<&Time>, to: Option<&Time>) -> Option<Duration> {
    Duration::try_from(to?.0.duration_since(from?.0)).ok()
}

#[cfg(test)]
#[path = "telling_tests.rs"]
mod tests;

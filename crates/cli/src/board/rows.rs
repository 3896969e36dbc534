//! The nodes of an upgrade, a row each: where the node is in the part of the upgrade it is in now.

use afloat_api::clusterupgrade::Phase;
use afloat_api::kubeadm::StepState;
use afloat_api::{ClusterUpgrade, NodeKubeadmUpgrade, NodeState, labels};
use afloat_core::KubernetesVersion;
use afloat_core::objects::Standing;
use afloat_core::plan;
use afloat_core::view::{Node, View};
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use std::cmp::Ordering;

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeRow {
    pub name: String,
    pub role: &'static str,
    #[serde(skip)]
    pub control_plane: bool,
    /// The version of its kubelet.
    pub version: String,
    /// Where it goes to now, while something is done to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    pub state: NodeState,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub step: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// How long it was out of service, once it is done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub taken: Option<SignedDuration>,
    /// The step that took longest.
    #[serde(skip)]
    pub longest_step: Option<(String, SignedDuration)>,
    pub in_flight: bool,
    pub attempt: i32,
    pub group: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub zone: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub note: String,
}

/// Control planes first, then by name as people count.
pub fn rows(view: &View, upgrade: &ClusterUpgrade) -> Vec<NodeRow> {
    let mut rows: Vec<NodeRow> = view.nodes.values().map(|node| row(view, upgrade, node)).collect();
    rows.sort_by(|one, other| {
        let order = other.control_plane.cmp(&one.control_plane);
        order.then_with(|| natural(&one.name, &other.name))
    });
    rows
}

/// Pods that left their nodes for this upgrade.
pub fn pods_moved(view: &View, upgrade: &ClusterUpgrade) -> i64 {
    let all = view.node_upgrades().values().filter(|one| belongs(one, upgrade));
    all.filter_map(|one| one.status.as_ref()?.drain.as_ref())
        .map(|drain| i64::from(drain.gone))
        .sum()
}

fn belongs(one: &NodeKubeadmUpgrade, upgrade: &ClusterUpgrade) -> bool {
    let labels = one.metadata.labels.as_ref();
    let uid = labels.and_then(|labels| labels.get(labels::UPGRADE_UID));
    uid.is_some() && uid == upgrade.metadata.uid.as_ref()
}

/// The part of the upgrade a node is in now, else the last one.
fn current<'a>(view: &'a View, upgrade: &ClusterUpgrade, node: &Node) -> Option<Standing<'a>> {
    let version = |standing: &Standing<'_>| standing.upgrade.spec.kubelet_version.parse::<KubernetesVersion>().ok();
    let own = view.node_upgrades_of(node.name.as_str()).map(|(_, one)| one.as_ref());
    own.filter(|one| belongs(one, upgrade) && one.spec.node.uid == node.uid.as_str())
        .map(Standing::of)
        .reduce(|best, other| {
            let better = match (best.ended(), other.ended()) {
                (true, false) => true,
                (false, true) => false,
                // Two that are not over: the later hop is only staged ahead.
                (false, false) => version(&other) < version(&best),
                (true, true) => version(&other) > version(&best),
            };
            if better { other } else { best }
        })
}

/// Whether a node at the target may yet be taken: a bundle of its version may bring newer parts, until it is decided whom it does.
fn may_be_taken(upgrade: &ClusterUpgrade) -> bool {
    let phase = upgrade
        .status
        .as_ref()
        .and_then(|status| status.phase)
        .unwrap_or_default();
    upgrade.spec.bundle.is_some() && phase <= Phase::Prepare
}

fn row(view: &View, upgrade: &ClusterUpgrade, node: &Node) -> NodeRow {
    let standing = current(view, upgrade, node);
    let version = node.kubelet_version.as_ref().map(ToString::to_string);
    let version = version.unwrap_or_default();
    let target = &upgrade.spec.kubernetes_version;
    let state = match standing {
        // One hop is done, the next has no object yet.
        Some(standing) if standing.succeeded() && standing.upgrade.spec.kubelet_version != *target => {
            NodeState::Pending
        }
        Some(standing) => standing.state(),
        None if version == *target && !may_be_taken(upgrade) => NodeState::Succeeded,
        None => NodeState::Pending,
    };
    let in_flight = standing.is_some_and(Standing::in_flight);
    let goes_to = standing.filter(|_| in_flight);
    let goes_to = goes_to.map(|standing| standing.upgrade.spec.kubelet_version.clone());
    NodeRow {
        name: node.name.to_string(),
        role: if node.control_plane { "control-plane" } else { "worker" },
        control_plane: node.control_plane,
        target: goes_to.filter(|to| *to != version),
        version,
        state,
        step: standing.map(|standing| step(standing, state)).unwrap_or_default(),
        since: standing
            .and_then(Standing::since)
            .filter(|_| state != NodeState::Pending),
        taken: standing.filter(|standing| standing.succeeded()).and_then(taken),
        longest_step: standing.and_then(longest_step),
        in_flight,
        attempt: standing.map_or(1, |standing| standing.upgrade.spec.attempt),
        group: plan::group_of(node).to_owned(),
        zone: node.failure_domain(labels::ZONE).unwrap_or_default().to_owned(),
        note: note(view, node, standing, state),
    }
}

fn step(standing: Standing<'_>, state: NodeState) -> String {
    let Some(status) = &standing.upgrade.status else {
        return String::new();
    };
    match (state, &status.drain) {
        (NodeState::Draining, Some(drain)) => format!("{} of {} pods gone", drain.gone, drain.total),
        (NodeState::Succeeded | NodeState::Pending | NodeState::Staged | NodeState::Paused, _) => String::new(),
        _ => status.current_step.clone().unwrap_or_default(),
    }
}

/// One thing worth knowing about a node; what it waits for stands above the table.
fn note(view: &View, node: &Node, standing: Option<Standing<'_>>, state: NodeState) -> String {
    let status = standing.and_then(|standing| standing.upgrade.status.as_ref());
    let failure = status.and_then(|status| status.failure.as_ref());
    let name = &node.name;
    let busy = standing.is_some_and(Standing::in_flight);
    let attempt = standing.map_or(1, |standing| standing.upgrade.spec.attempt);
    // Our cordon is seen before the object that says why: the two come by watches of their own.
    let cordoned_by_others = node.unschedulable && node.cordoned_by.is_none();
    let holds_vip = view.vip_holder.as_ref() == Some(name) && view.control_plane_nodes().count() > 1;
    match (state, failure) {
        _ if standing.is_some_and(Standing::deferred) => "put back as it was, is taken last".to_owned(),
        (NodeState::Failed | NodeState::RollingBack | NodeState::RolledBack, Some(failure)) => failure.message.clone(),
        (NodeState::Succeeded, _) if node.unschedulable => "cordoned".to_owned(),
        (NodeState::Succeeded, _) => String::new(),
        _ if node.pause.is_some() => format!("afloat resume {name}"),
        _ if !node.ready.ready && !busy => "not Ready".to_owned(),
        _ if holds_vip && !busy => "holds the VIP: goes last".to_owned(),
        _ if cordoned_by_others && !busy => "cordoned by someone: stays so".to_owned(),
        _ if attempt > 1 => format!("attempt {attempt}"),
        _ => String::new(),
    }
}

/// From the drain to the success of this attempt.
fn taken(standing: Standing<'_>) -> Option<SignedDuration> {
    let status = standing.upgrade.status.as_ref()?;
    let attempt = standing.upgrade.spec.attempt;
    let at = |wanted: NodeState| {
        let mut records = status.history.iter().rev();
        let record = records.find(|record| record.state == wanted && record.attempt == attempt)?;
        Some(record.at.0)
    };
    let begun = at(NodeState::Draining).or_else(|| at(NodeState::Upgrading))?;
    Some(at(NodeState::Succeeded)?.duration_since(begun))
}

fn longest_step(standing: Standing<'_>) -> Option<(String, SignedDuration)> {
    let steps = &standing.upgrade.status.as_ref()?.steps;
    let done = steps.iter().filter(|step| step.state == StepState::Succeeded);
    done.filter_map(|step| {
        let length = step.finished_at.as_ref()?.0.duration_since(step.started_at.as_ref()?.0);
        Some((step.name.clone(), length))
    })
    .max_by_key(|(_, length)| *length)
}

/// `worker-2` before `worker-10`.
fn natural(one: &str, other: &str) -> Ordering {
    let split = |text: &str| {
        let head = text.trim_end_matches(|c: char| c.is_ascii_digit());
        let number = text.get(head.len()..).and_then(|digits| digits.parse::<u64>().ok());
        (head.to_owned(), number)
    };
    split(one).cmp(&split(other)).then_with(|| one.cmp(other))
}

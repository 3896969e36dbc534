//! What a node waits for, in words that name the object: before its turn, while it is emptied, while Rancher drains it, and until it
//! is seen to be at the target.

use std::sync::Arc;

use afloat_api::Reason;
use afloat_api::harvester::HarvesterNodeState as State;

use super::nodes::some;
use super::release::Release;
use super::turn::{Turn, moment};
use super::view::{Seen, Vmi};
use super::{flow, pause, task, vms, volumes};
use crate::view::{Node, NodeName, Pod, PodBudget, View};
use crate::words;

/// Something is being done to a node.
pub fn in_flight(state: State) -> bool {
    matches!(
        state,
        State::PreDraining | State::PreDrained | State::PostDraining | State::WaitingReboot
    )
}

/// Whether a node that Rancher asked for may go, or what holds it back.
pub fn open(turn: &Turn<'_>, node: &Node) -> Result<(), (Reason, String)> {
    if flow::held(turn) {
        let text = format!("the upgrade is paused; to go on: afloat resume {}", turn.name());
        return Err((Reason::PausedByUser, text));
    }
    for (other, status) in &turn.status().node_statuses {
        let state: Option<State> = status.state.parse().ok();
        if *other == node.name.as_str() {
            continue;
        }
        if let Some(state) = state.filter(|state| in_flight(*state)) {
            return Err((
                Reason::WaitingForEarlierNode,
                format!("waits for {other}, which is {state}"),
            ));
        }
        let cordoned = turn
            .view
            .nodes
            .get(other.as_str())
            .is_some_and(|other| other.unschedulable);
        if state == Some(State::Paused) && cordoned {
            let way_on = pause::way_on(other);
            let text = format!("waits for {other}, which is paused and cordoned; to let that go on: {way_on}");
            return Err((Reason::NodePaused, text));
        }
    }
    let away = turn
        .view
        .nodes
        .values()
        .find(|other| other.name != node.name && !other.ready.ready);
    if let Some(away) = away {
        let text = format!(
            "waits for node {}, which is not Ready: two would be away at once",
            away.name
        );
        return Err((Reason::WaitingForNode, text));
    }
    let names = volumes::not_whole(turn.view);
    if !names.is_empty() {
        let text = format!("waits for volumes that have not all their replicas: {}", some(&names));
        return Err((Reason::WaitingForVolume, text));
    }
    Ok(())
}

/// What a node that is being emptied waits for.
pub fn emptying(view: &View, node: &Node) -> (&'static str, String) {
    let degraded = volumes::not_whole(view);
    if !degraded.is_empty() {
        let text = format!(
            "waits for volumes that have not all their replicas: {}",
            some(&degraded)
        );
        return (Reason::WaitingForVolume.into(), text);
    }
    let vmis: Vec<&Arc<Seen<Vmi>>> = view.hci.vmis_on(&node.name).filter(|vmi| !vmi.of_upgrade).collect();
    if !vmis.is_empty() {
        let words: Vec<String> = vmis
            .iter()
            .map(|vmi| format!("{}{}", vmi.target.key, how(view, vmi)))
            .collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let text = format!("waits for virtual machines to leave or to stop: {}", some(&words));
        return (Reason::WaitingForVirtualMachine.into(), text);
    }
    let budgets = vms::evacuation_budgets(view, &node.name);
    if !budgets.is_empty() {
        let text = format!("waits until the budgets of migrations are gone: {}", some(&budgets));
        return (Reason::WaitingForPodDisruptionBudget.into(), text);
    }
    let unused: Vec<String> = volumes::unused_on(view, &node.name)
        .map(|volume| volumes::why_attached(view, volume))
        .collect();
    if unused.is_empty() {
        return (Reason::InProgress.into(), String::new());
    }
    let unused: Vec<&str> = unused.iter().map(String::as_str).collect();
    let text = format!("waits until these volumes can be detached: {}", some(&unused));
    (Reason::WaitingForVolume.into(), text)
}

/// How a virtual machine gets on with leaving.
fn how(view: &View, vmi: &Seen<Vmi>) -> String {
    let key = &vmi.target.key;
    let last = view
        .hci
        .migrations_of(key)
        .max_by_key(|migration| migration.target.revision);
    let jobs = view.hci.jobs.values().filter(|job| !job.complete);
    let cancelled: usize = jobs.map(|job| job.cancelled.count(key)).sum();
    let before = match cancelled {
        0 => String::new(),
        count => format!(
            "; {} did not end in time and {} cancelled",
            words::count(count, "migration", "migrations"),
            if count == 1 { "was" } else { "were" }
        ),
    };
    match last {
        Some(migration) if &*migration.phase == "Failed" => {
            let why = migration.message.as_deref().unwrap_or("KubeVirt does not say why");
            format!(" (migration failed: {why}{before})")
        }
        Some(migration) if &*migration.phase != "Succeeded" => {
            let phase = if migration.phase.is_empty() {
                "Pending"
            } else {
                &*migration.phase
            };
            let until = task::ends_until(migration, Some(&vmi.what));
            let until = until.map_or_else(String::new, |until| format!(", until {} at the latest", moment(until)));
            format!(" (migration {phase}{until}{before})")
        }
        _ if cancelled > 0 => format!(" ({})", before.trim_start_matches("; ")),
        _ => String::new(),
    }
}

/// What Rancher's drain of a node waits for, as far as it can be seen from here, and what Rancher itself says.
pub fn draining(view: &View, node: &Node) -> (Reason, String) {
    let checkpoint = view.hci.local_cluster().and_then(|cluster| cluster.checkpoint.clone());
    let rancher = checkpoint.map_or_else(String::new, |text| format!("Rancher: {text}"));
    match blocked_pod(view, node) {
        Some((reason, text)) if rancher.is_empty() => (reason, text),
        Some((reason, text)) => (reason, format!("{text}. {rancher}")),
        None if rancher.is_empty() => (
            Reason::WaitingForRancher,
            "Rancher drains it and upgrades RKE2".to_owned(),
        ),
        None => (Reason::WaitingForRancher, rancher),
    }
}

/// The first pod on a node that the eviction API would refuse, with its budgets: one that allows nothing, or several.
pub fn guarded<'a>(view: &'a View, node: &NodeName) -> Option<(&'a Arc<Pod>, Vec<&'a Arc<PodBudget>>)> {
    let leaves = |pod: &&Arc<Pod>| {
        let owner = pod.shape.owner.as_ref().map(|owner| &*owner.kind);
        !pod.phase.finished() && pod.static_part.is_none() && owner != Some("DaemonSet")
    };
    let mut pods = view.pods_on(node).filter(leaves);
    pods.find_map(|pod| {
        let budgets: Vec<_> = view.budgets_of(pod).collect();
        match budgets.as_slice() {
            [] => None,
            [only] if only.disruptions_allowed > 0 => None,
            _ => Some((pod, budgets)),
        }
    })
}

fn blocked_pod(view: &View, node: &Node) -> Option<(Reason, String)> {
    let (pod, budgets) = guarded(view, &node.name)?;
    let names: Vec<String> = budgets.iter().map(|budget| format!("pdb/{}", budget.key)).collect();
    Some(if let [only] = names.as_slice() {
        let text = format!("pod {} cannot be evicted: {only} allows no disruption", pod.key);
        (Reason::WaitingForPodDisruptionBudget, text)
    } else {
        let text = format!(
            "pod {} cannot be evicted: it is under {}, and the eviction API refuses that for ever; remove one",
            pod.key,
            names.join(" and ")
        );
        (Reason::SeveralPodDisruptionBudgets, text)
    })
}

/// Whether a node is seen to be at the target, or in what it is not.
pub fn at_target(node: &Node, release: &Release) -> Result<(), String> {
    if *node.os_image != *release.os {
        return Err(format!(
            "it reports {:?} and has to come back with {:?}",
            &*node.os_image, release.os
        ));
    }
    kubelet_at_target(node, release)?;
    if !node.ready.ready {
        return Err("it is not Ready".to_owned());
    }
    Ok(())
}

/// The same of its kubelet alone, which is there before the system is.
pub fn kubelet_at_target(node: &Node, release: &Release) -> Result<(), String> {
    let wanted = without_candidate(&release.kubernetes.to_string());
    let kubelet = node.kubelet_version.as_ref().map(ToString::to_string);
    let kubelet = kubelet.as_deref().map(without_candidate).unwrap_or_default();
    if kubelet == wanted {
        return Ok(());
    }
    Err(format!("its kubelet is at {kubelet:?} and has to be at {wanted:?}"))
}

/// A version without `-rcN`, which release candidates carry in the release file and kubelets do not.
pub fn without_candidate(version: &str) -> String {
    let (head, tail) = version.split_once('+').unwrap_or((version, ""));
    let tail = tail.split_once("-rc").map_or(tail, |(tail, _)| tail);
    let head = head.split_once("-rc").map_or(head, |(head, _)| head);
    if tail.is_empty() {
        head.to_owned()
    } else {
        format!("{head}+{tail}")
    }
}

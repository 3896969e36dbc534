//! What a line of a trace says about an object: the few fields by which one write is told from another.

use std::fmt::Write as _;

use afloat_api::{ClusterUpgrade, GroupUpgradeStatus, NodeKubeadmUpgrade};
use afloat_core::view::{Node, Pod, PodBudget, Workload};

pub fn node(node: &Node) -> String {
    let mut line = format!("uid={} ready={}", short(node.uid.as_str()), node.ready.ready);
    if node.unschedulable {
        line.push_str(" cordoned");
    }
    if let Some(by) = &node.cordoned_by {
        let _ = write!(line, " by={}", short(by.as_str()));
    }
    if let Some(why) = &node.pause {
        let _ = write!(line, " pause={why:?}");
    }
    if let Some(wish) = node.wish {
        let _ = write!(line, " wish={wish:?}");
    }
    if let Some(version) = &node.kubelet_version {
        let _ = write!(line, " {version}");
    }
    line
}

pub fn pod(pod: &Pod) -> String {
    let mut line = format!("uid={} {:?} ready={}", short(pod.uid.as_str()), pod.phase, pod.ready);
    if let Some(node) = &pod.node {
        let _ = write!(line, " on={node}");
    }
    if let Some(ending) = &pod.ending {
        let _ = write!(line, " ends-by={}", ending.by);
    }
    if let Some(part) = &pod.static_part {
        let _ = write!(line, " {}", part.tag);
    }
    for (name, container) in pod.task.iter().flat_map(|task| &task.containers) {
        let ended = container.ended.as_ref().map(|ended| ended.exit_code);
        let running = container.running_since.is_some();
        let _ = write!(
            line,
            " {name}={}",
            ended.map_or_else(String::new, |code| code.to_string())
        );
        if running {
            line.push('+');
        }
    }
    line
}

pub fn budget(budget: &PodBudget) -> String {
    format!(
        "allowed={} healthy={}/{}",
        budget.disruptions_allowed, budget.current_healthy, budget.desired_healthy
    )
}

pub fn workload(workload: &Workload) -> String {
    format!("ready={}/{}", workload.ready, workload.replicas)
}

pub fn upgrade(upgrade: &ClusterUpgrade) -> String {
    let mut line = format!("uid={}", short(upgrade.metadata.uid.as_deref().unwrap_or_default()));
    for (word, on) in [
        ("paused", upgrade.spec.paused == Some(true)),
        ("abort", upgrade.spec.abort == Some(true)),
        ("deleting", upgrade.metadata.deletion_timestamp.is_some()),
        (
            "held",
            upgrade
                .metadata
                .finalizers
                .as_ref()
                .is_some_and(|held| !held.is_empty()),
        ),
    ] {
        if on {
            let _ = write!(line, " {word}");
        }
    }
    let Some(status) = &upgrade.status else { return line };
    if let Some(phase) = status.phase {
        let _ = write!(line, " {phase}");
    }
    if let Some(progress) = &status.progress {
        let _ = write!(line, " {progress}");
    }
    for slot in &status.slots {
        let _ = write!(line, " slot={}#{}", slot.node, slot.attempt);
    }
    for wait in &status.waiting {
        let _ = write!(line, " wait={}:{}", wait.node, wait.wait.reason);
    }
    for failed in &status.failed {
        let _ = write!(line, " failed={}:{}", failed.node, failed.reason);
    }
    for condition in status.conditions.iter().filter(|condition| {
        matches!(condition.type_.as_str(), "Ready" | "Stalled" | "Progressing") && condition.status != "Unknown"
    }) {
        let _ = write!(line, " {}={}/{}", condition.type_, condition.status, condition.reason);
    }
    line
}

pub fn group(status: Option<&GroupUpgradeStatus>) -> String {
    let Some(status) = status else { return String::new() };
    format!(
        "{}/{} failed={} in-flight={:?}",
        status.upgraded, status.require_upgrade, status.failed, status.in_flight
    )
}

pub fn node_upgrade(upgrade: &NodeKubeadmUpgrade) -> String {
    let mut line = format!("desired={}#{}", upgrade.spec.desired, upgrade.spec.attempt);
    if upgrade.metadata.deletion_timestamp.is_some() {
        line.push_str(" deleting");
    }
    let Some(status) = &upgrade.status else { return line };
    if let Some(state) = status.state {
        let _ = write!(line, " {state}#{}", status.attempt.unwrap_or_default());
    }
    if let Some(step) = &status.current_step {
        let _ = write!(line, " step={step}");
    }
    if let Some(wait) = &status.waiting_for {
        let _ = write!(line, " waits={}", wait.reason);
    }
    if let Some(failure) = &status.failure {
        let _ = write!(line, " failure={} ({})", failure.reason, failure.message);
    }
    if let Some(drain) = &status.drain {
        let _ = write!(line, " drain={}/{}", drain.gone, drain.total);
    }
    line
}

fn short(uid: &str) -> &str {
    uid.get(..8).unwrap_or(uid)
}

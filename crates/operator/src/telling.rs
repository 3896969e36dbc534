//! Durations and waits for the metrics, read from what a status says that an earlier one did not. Statuses carry their own times, so
//! that an operator that was away has missed nothing.

use std::time::Duration;

use afloat_api::{ClusterUpgradeStatus, NodeKubeadmUpgradeStatus};
use afloat_core::view::View;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::metrics::Metrics;
use crate::snapshot::Object;

/// Counts what is new in an object that was just written.
pub fn tell(metrics: &Metrics, view: &View, object: &Object) {
    let key = object.target().key;
    match object {
        Object::NodeUpgrade(after) => {
            let before = view.node_upgrade(&key).and_then(|before| before.status.as_ref());
            if let Some(after) = &after.status {
                node(metrics, before, after);
            }
        }
        Object::Upgrade(after) => {
            let before = view.upgrades.get(&key).and_then(|before| before.status.as_ref());
            if let Some(after) = &after.status {
                upgrade(metrics, before, after);
            }
        }
        _ => {}
    }
}

fn node(metrics: &Metrics, before: Option<&NodeKubeadmUpgradeStatus>, after: &NodeKubeadmUpgradeStatus) {
    if let Some(before) = before
        && before.state != after.state
        && let (Some(state), Some(time)) = (
            before.state,
            between(before.state_since.as_ref(), after.state_since.as_ref()),
        )
    {
        metrics.state_took(state.into(), time);
    }
    let reason = |status: &NodeKubeadmUpgradeStatus| status.waiting_for.as_ref().map(|wait| wait.reason.clone());
    if let Some(new) = reason(after).filter(|new| before.and_then(reason).as_ref() != Some(new)) {
        metrics.wait(&new);
    }
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

fn between(from: Option<&Time>, to: Option<&Time>) -> Option<Duration> {
    Duration::try_from(to?.0.duration_since(from?.0)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn status(value: serde_json::Value) -> NodeKubeadmUpgradeStatus {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn a_state_left_a_wait_begun_and_a_step_ended_are_counted_once() {
        let metrics = Metrics::default();
        let before = status(json!({"state": "Draining", "stateSince": "2026-01-01T00:00:00Z"}));
        let after = status(json!({
            "state": "Upgrading", "stateSince": "2026-01-01T00:00:30Z",
            "waitingFor": {"reason": "WaitingForStep", "message": "", "since": "2026-01-01T00:00:30Z"},
            "steps": [{"name": "cni", "state": "Succeeded", "startedAt": "2026-01-01T00:00:30Z", "finishedAt": "2026-01-01T00:00:32Z"}],
        }));
        node(&metrics, Some(&before), &after);
        node(&metrics, Some(&after), &after);
        let text = metrics.text();
        for line in [
            r#"afloat_node_state_duration_seconds_sum{name="Draining"} 30.0"#,
            r#"afloat_node_state_duration_seconds_count{name="Draining"} 1"#,
            r#"afloat_waits_total{name="WaitingForStep"} 1"#,
            r#"afloat_step_duration_seconds_count{name="cni"} 1"#,
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }
}

use std::sync::Arc;

use afloat_api::{ClusterUpgrade, NodeKubeadmUpgrade, WorkersKubeadmUpgrade};
use afloat_core::objects::key_of;
use serde_json::{Value, json};

use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::constant(1_767_225_600 + second, 0)
}

fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn holds(metrics: &Metrics, lines: &[&str]) {
    let text = metrics.text();
    for line in lines {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
}

#[test]
fn a_state_left_a_wait_begun_and_a_step_ended_are_counted_once() {
    let metrics = Metrics::default();
    let before = read(json!({"state": "Draining", "stateSince": "2026-01-01T00:00:00Z"}));
    let after = read(json!({
        "state": "Upgrading", "stateSince": "2026-01-01T00:00:30Z",
        "waitingFor": {"reason": "WaitingForStep", "message": "", "since": "2026-01-01T00:00:30Z"},
        "steps": [{"name": "cni", "state": "Succeeded", "startedAt": "2026-01-01T00:00:30Z", "finishedAt": "2026-01-01T00:00:32Z"}],
    }));
    node(&metrics, Some(&before), &after, at(30));
    node(&metrics, Some(&after), &after, at(31));
    node(&metrics, Some(&after), &before, at(42));
    holds(
        &metrics,
        &[
            r#"afloat_node_state_duration_seconds_sum{name="Draining"} 30.0"#,
            r#"afloat_node_state_duration_seconds_count{name="Draining"} 1"#,
            r#"afloat_waits_total{name="WaitingForStep"} 1"#,
            r#"afloat_wait_duration_seconds_sum{name="WaitingForStep"} 12.0"#,
            r#"afloat_wait_duration_seconds_count{name="WaitingForStep"} 1"#,
            r#"afloat_step_duration_seconds_count{name="cni"} 1"#,
        ],
    );
}

#[test]
fn a_phase_that_ended_is_told_once() {
    let metrics = Metrics::default();
    let phase = |finished: Option<&str>| json!({"name": "Prepare", "startedAt": "2026-01-01T00:00:00Z", "finishedAt": finished});
    let before = read(json!({"phases": [phase(None)]}));
    let after = read(json!({"phases": [
        phase(Some("2026-01-01T00:01:30Z")), {"name": "Workers", "startedAt": "2026-01-01T00:01:30Z"},
    ]}));
    upgrade(&metrics, Some(&before), &after);
    upgrade(&metrics, Some(&after), &after);
    holds(
        &metrics,
        &[
            r#"afloat_phase_duration_seconds_sum{name="Prepare"} 90.0"#,
            r#"afloat_phase_duration_seconds_count{name="Prepare"} 1"#,
        ],
    );
    assert!(!metrics.text().contains("Workers"), "it lasts");
}

fn cluster_upgrade(waiting: &[(&str, &str, &str)]) -> ClusterUpgrade {
    let waiting: Vec<Value> = waiting
        .iter()
        .map(|(node, reason, since)| json!({"node": node, "state": "Staged", "reason": reason, "message": "", "since": since}))
        .collect();
    read(json!({
        "metadata": {"name": "edge", "namespace": "afloat", "uid": "u", "resourceVersion": "1"},
        "spec": {"kubernetesVersion": "v1.36.3"}, "status": {"waiting": waiting},
    }))
}

#[test]
fn nodes_that_are_held_back_are_told_of_by_their_upgrade_and_others_by_themselves() {
    let (metrics, mut view) = (Metrics::default(), View::default());
    let own: NodeKubeadmUpgrade = read(json!({
        "metadata": {"name": "w1", "namespace": "afloat", "uid": "n", "resourceVersion": "1"},
        "spec": {"node": {"name": "w1", "uid": "w"}, "role": "Worker", "kubernetesVersion": "v1", "kubeletVersion": "v1", "steps": []},
        "status": {"waitingFor": {"reason": "WaitingForPodDisruptionBudget", "message": "", "since": "2026-01-01T00:00:00Z"}},
    }));
    view.put_node_upgrade(key_of(&own.metadata), Arc::new(own));
    let begun = "2026-01-01T00:00:10Z";
    let states = [
        vec![
            ("w1", "WaitingForPodDisruptionBudget", "2026-01-01T00:00:00Z"),
            ("w2", "WaitingForBudget", begun),
            ("w3", "OutsideWindow", begun),
        ],
        vec![
            ("w2", "WaitingForCapacity", "2026-01-01T00:00:25Z"),
            ("w3", "OutsideWindow", begun),
        ],
    ];
    for (number, state) in states.iter().enumerate() {
        let upgrade = cluster_upgrade(state);
        let now = at(if number == 0 { 10 } else { 25 });
        tell(&metrics, &view, &Object::Upgrade(Box::new(upgrade.clone())), now);
        view.upgrades
            .insert(key_of(&upgrade.metadata), Arc::new(upgrade.clone()));
        tell(&metrics, &view, &Object::Upgrade(Box::new(upgrade)), now);
    }
    holds(
        &metrics,
        &[
            r#"afloat_waits_total{name="OutsideWindow"} 1"#,
            r#"afloat_waits_total{name="WaitingForBudget"} 1"#,
            r#"afloat_waits_total{name="WaitingForCapacity"} 1"#,
            r#"afloat_wait_duration_seconds_sum{name="WaitingForBudget"} 15.0"#,
        ],
    );
    assert!(
        !metrics.text().contains("WaitingForPodDisruptionBudget"),
        "{}",
        metrics.text()
    );
}

#[test]
fn a_group_alone_and_an_upgrade_of_harvester_are_told_of() {
    let (metrics, view) = (Metrics::default(), View::default());
    let group = |labels: Value, reason: &str| -> WorkersKubeadmUpgrade {
        read(json!({
            "metadata": {"name": "pool", "namespace": "afloat", "uid": "g", "resourceVersion": "1", "labels": labels},
            "spec": {"kubernetesVersion": "v1", "kubeletVersion": "v1", "machinesRequireUpgrade": []},
            "status": {"conditions": [{"type": "Ready", "status": "False", "reason": reason, "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
        }))
    };
    for (labels, reason) in [
        (json!({}), "WaitingForBudget"),
        (json!({}), "InProgress"),
        (json!({labels::UPGRADE_UID: "u"}), "WaitingForGate"),
    ] {
        tell(
            &metrics,
            &view,
            &Object::Workers(Box::new(group(labels, reason))),
            at(0),
        );
    }
    let upgrade: Upgrade = read(json!({
        "metadata": {"name": "hvst", "namespace": "harvester-system"}, "spec": {"version": "v1"},
        "status": {"nodeStatuses": {"a": {"state": "Images preloaded", "reason": "WaitingForVolume"}, "b": {"state": "Succeeded", "reason": ""}}},
    }));
    waits(&metrics, None, &of_nodes(&upgrade), at(0), true);
    holds(
        &metrics,
        &[
            r#"afloat_waits_total{name="WaitingForBudget"} 1"#,
            r#"afloat_waits_total{name="WaitingForVolume"} 1"#,
        ],
    );
    for never in ["InProgress", "WaitingForGate"] {
        assert!(!metrics.text().contains(never), "{}", metrics.text());
    }
}

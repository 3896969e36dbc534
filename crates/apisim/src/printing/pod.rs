//! The pod printer: one word for the state of all containers, and how often they restarted.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::column::{AGE, Column, NAME, text, wide};
use super::duration::human_duration;
use super::view::View;

pub const COLUMNS: &[Column] = &[
    NAME,
    text("Ready"),
    text("Status"),
    text("Restarts"),
    AGE,
    wide("IP"),
    wide("Node"),
    wide("Nominated Node"),
    wide("Readiness Gates"),
];

/// What the containers say together.
struct Summary {
    reason: String,
    restarts: i64,
    last_restart: Option<Timestamp>,
    ready: usize,
    total: usize,
}

pub fn row(pod: View<'_>) -> Vec<Value> {
    let summary = summarise(pod);
    let restarts = match summary.last_restart {
        Some(moment) if summary.restarts != 0 => {
            format!(
                "{} ({} ago)",
                summary.restarts,
                human_duration(pod.now().duration_since(moment))
            )
        }
        _ => summary.restarts.to_string(),
    };
    let ip = match pod.text("/status/podIP") {
        "" => pod.text_or("/status/podIPs/0/ip", "<none>"),
        ip => ip,
    };
    vec![
        json!(pod.name()),
        json!(format!("{}/{}", summary.ready, summary.total)),
        json!(summary.reason),
        json!(restarts),
        json!(pod.age()),
        json!(ip),
        json!(pod.text_or("/spec/nodeName", "<none>")),
        json!(pod.text_or("/status/nominatedNodeName", "<none>")),
        json!(readiness_gates(pod)),
    ]
}

/// `conditions` of the table row: `kubectl get` uses them to leave out what is over.
pub fn conditions(pod: View<'_>) -> Option<Value> {
    let message = match pod.text("/status/phase") {
        "Succeeded" => "The pod has completed successfully.",
        "Failed" => "The pod failed.",
        _ => return None,
    };
    Some(json!([{"type": "Completed", "status": "True", "reason": pod.text("/status/phase"), "message": message}]))
}

fn summarise(pod: View<'_>) -> Summary {
    let phase = pod.text("/status/phase");
    let mut summary = Summary {
        reason: pod.text_or("/status/reason", phase).to_owned(),
        restarts: 0,
        last_restart: None,
        ready: 0,
        total: pod.count("/spec/containers")
            + pod
                .each("/spec/initContainers")
                .filter(|container| restarts_always(*container))
                .count(),
    };
    let gated = |condition: View<'_>| {
        condition.text("/type") == "PodScheduled" && condition.text("/reason") == "SchedulingGated"
    };
    if pod.each("/status/conditions").any(gated) {
        "SchedulingGated".clone_into(&mut summary.reason);
    }
    let mut sidecars = Restarts::default();
    let initializing = read_init_containers(pod, &mut summary, &mut sidecars);
    if !initializing || pod.condition_is_true("/status/conditions", "Initialized") {
        summary.restarts = sidecars.count;
        summary.last_restart = sidecars.last;
        read_containers(pod, &mut summary);
    }
    if pod.is_deleted() {
        if pod.text("/status/reason") == "NodeLost" {
            "Unknown".clone_into(&mut summary.reason);
        } else if !matches!(phase, "Succeeded" | "Failed") {
            "Terminating".clone_into(&mut summary.reason);
        }
    }
    summary
}

#[derive(Default)]
struct Restarts {
    count: i64,
    last: Option<Timestamp>,
}

/// Walks the init containers up to the first that is not done; true while the pod still initializes.
fn read_init_containers(pod: View<'_>, summary: &mut Summary, sidecars: &mut Restarts) -> bool {
    for (index, status) in pod.each("/status/initContainerStatuses").enumerate() {
        let name = status.text("/name");
        let sidecar = pod
            .each("/spec/initContainers")
            .any(|container| container.text("/name") == name && restarts_always(container));
        let restarts = status.integer("/restartCount");
        let last = last_termination(status);
        summary.restarts += restarts;
        summary.last_restart = summary.last_restart.max(last);
        if sidecar {
            sidecars.count += restarts;
            sidecars.last = sidecars.last.max(last);
        }
        let terminated = status.part("/state/terminated");
        if terminated.is_some_and(|state| state.integer("/exitCode") == 0) {
            continue;
        }
        if sidecar && status.flag("/started") == Some(true) {
            summary.ready += usize::from(status.flag("/ready") == Some(true));
            continue;
        }
        let waiting = status.text("/state/waiting/reason");
        summary.reason = match terminated {
            Some(state) => format!("Init:{}", termination_reason(state)),
            None if !waiting.is_empty() && waiting != "PodInitializing" => format!("Init:{waiting}"),
            None => format!("Init:{index}/{}", pod.count("/spec/initContainers")),
        };
        return true;
    }
    false
}

fn read_containers(pod: View<'_>, summary: &mut Summary) {
    let mut running = false;
    let mut failure = String::new();
    for status in pod.each("/status/containerStatuses").rev() {
        summary.restarts += status.integer("/restartCount");
        summary.last_restart = summary.last_restart.max(last_termination(status));
        let waiting = status.text("/state/waiting/reason");
        if !waiting.is_empty() {
            waiting.clone_into(&mut summary.reason);
        } else if let Some(state) = status.part("/state/terminated") {
            summary.reason = termination_reason(state);
            if state.integer("/exitCode") != 0 {
                failure.clone_from(&summary.reason);
            }
        } else if status.flag("/ready") == Some(true) && status.at("/state/running").is_some() {
            running = true;
            summary.ready += 1;
        }
    }
    // One container that is done does not make the pod done while another still runs.
    if summary.reason == "Completed" {
        let ready = || {
            pod.each("/status/conditions")
                .any(|condition| condition.text("/type") == "Ready" && condition.text("/status") == "True")
        };
        if running && ready() {
            "Running".clone_into(&mut summary.reason);
        } else if !failure.is_empty() {
            summary.reason = failure;
        } else if running {
            "NotReady".clone_into(&mut summary.reason);
        }
    }
}

fn restarts_always(container: View<'_>) -> bool {
    container.text("/restartPolicy") == "Always"
}

fn last_termination(status: View<'_>) -> Option<Timestamp> {
    status.moment("/lastState/terminated/finishedAt")
}

fn termination_reason(state: View<'_>) -> String {
    match (state.text("/reason"), state.integer("/signal")) {
        ("", 0) => format!("ExitCode:{}", state.integer("/exitCode")),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}

fn readiness_gates(pod: View<'_>) -> String {
    let gates = pod.count("/spec/readinessGates");
    if gates == 0 {
        return "<none>".to_owned();
    }
    let open = pod
        .each("/spec/readinessGates")
        .filter(|gate| pod.condition_is_true("/status/conditions", gate.text("/conditionType")))
        .count();
    format!("{open}/{gates}")
}

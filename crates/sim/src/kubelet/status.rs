//! What a pod's status says at each stage, in the words of the kubelet. Pure functions of the pod and its run.

use super::pod::{Run, Stage, is_sidecar};
use crate::events::second;
use crate::machine::Machine;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod};
use serde_json::{Value, json};

/// The status of a pod that starts, runs or has ended by itself.
pub(super) fn pod_status(pod: &Pod, run: &Run, machine: &Machine, now: Timestamp) -> Value {
    let (phase, up) = match run.stage {
        Stage::SettingUp | Stage::Initializing(_) | Stage::Stopping => ("Pending", false),
        Stage::Running | Stage::Ready => ("Running", true),
        Stage::Ended => ("Succeeded", false),
    };
    let network = run.stage != Stage::SettingUp;
    let mut status = json!({
        "phase": phase,
        "hostIP": machine.address,
        "hostIPs": [{ "ip": machine.address }],
        "startTime": second(run.started),
        "conditions": conditions(pod, run, network, now),
        "containerStatuses": containers(pod).iter().enumerate().map(|(index, c)| container_status(c, index, run, now)).collect::<Vec<_>>(),
    });
    if let Some(generation) = pod.metadata.generation {
        status["observedGeneration"] = generation.into();
    }
    let init = init_containers(pod);
    if !init.is_empty() {
        status["initContainerStatuses"] = init
            .iter()
            .enumerate()
            .map(|(index, c)| init_status(c, index, run, now))
            .collect();
    }
    if network && (up || run.stage != Stage::Ended) {
        status["podIP"] = run.address.clone().into();
        status["podIPs"] = json!([{ "ip": run.address }]);
    }
    status
}

/// The last status of a pod that was told to end.
pub(super) fn ended_status(pod: &Pod, run: &Run, machine: &Machine, now: Timestamp) -> Value {
    let mut ended = run.clone();
    ended.stage = Stage::Ended;
    pod_status(pod, &ended, machine, now)
}

fn containers(pod: &Pod) -> &[Container] {
    pod.spec
        .as_ref()
        .map(|spec| spec.containers.as_slice())
        .unwrap_or_default()
}

fn init_containers(pod: &Pod) -> &[Container] {
    pod.spec
        .as_ref()
        .and_then(|spec| spec.init_containers.as_deref())
        .unwrap_or_default()
}

fn conditions(pod: &Pod, run: &Run, network: bool, now: Timestamp) -> Vec<Value> {
    let ended = run.stage == Stage::Ended;
    let initialized = matches!(run.stage, Stage::Running | Stage::Ready | Stage::Ended)
        || (run.stage == Stage::SettingUp && init_containers(pod).is_empty());
    let names = |list: &[Container]| list.iter().map(|c| c.name.clone()).collect::<Vec<_>>().join(" ");
    let unready = if ended {
        ("PodCompleted", String::new())
    } else {
        (
            "ContainersNotReady",
            format!("containers with unready status: [{}]", names(containers(pod))),
        )
    };
    let uninitialized = (
        "ContainersNotInitialized",
        format!("containers with incomplete status: [{}]", names(init_containers(pod))),
    );
    let ready = run.stage == Stage::Ready;
    [
        ("PodReadyToStartContainers", network && !ended, None),
        ("Initialized", initialized, Some(uninitialized)),
        ("Ready", ready, Some(unready.clone())),
        ("ContainersReady", ready, Some(unready)),
        ("PodScheduled", true, None),
    ]
    .into_iter()
    .map(|(kind, holds, excuse)| condition(pod, kind, holds, excuse.filter(|_| !holds), now))
    .collect()
}

fn condition(pod: &Pod, kind: &str, holds: bool, excuse: Option<(&str, String)>, now: Timestamp) -> Value {
    let status = if holds { "True" } else { "False" };
    let known = pod
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_ref())
        .into_iter()
        .flatten();
    let before = known
        .into_iter()
        .find(|condition| condition.type_ == kind && condition.status == status);
    let since = before
        .and_then(|condition| condition.last_transition_time.as_ref())
        .map_or(now, |time| time.0);
    let mut value =
        json!({ "type": kind, "status": status, "lastProbeTime": null, "lastTransitionTime": second(since) });
    if let Some((reason, message)) = excuse {
        value["reason"] = reason.into();
        if !message.is_empty() {
            value["message"] = message.into();
        }
    }
    value
}

/// The id of the container at `place`; the same for as long as it runs.
fn container_id(run: &Run, place: usize) -> String {
    let mut rng = fastrand::Rng::with_seed(run.id.wrapping_add(place as u64));
    let [a, b, c, d] = [rng.u64(..), rng.u64(..), rng.u64(..), rng.u64(..)];
    format!("containerd://{a:016x}{b:016x}{c:016x}{d:016x}")
}

fn image_id(container: &Container) -> String {
    let image = container.image.clone().unwrap_or_default();
    let digest = crate::hash::fnv64(image.as_bytes());
    format!(
        "{}@sha256:{}",
        image.split(':').next().unwrap_or_default(),
        format!("{digest:016x}").repeat(4)
    )
}

fn described(container: &Container, place: usize, run: &Run, started: bool, ready: bool, state: &Value) -> Value {
    let waiting = state.get("waiting").is_some();
    json!({
        "name": container.name,
        "image": container.image,
        "imageID": if waiting { String::new() } else { image_id(container) },
        "containerID": if waiting { Value::Null } else { container_id(run, place).into() },
        "restartCount": 0,
        "started": started,
        "ready": ready,
        "state": state,
    })
}

fn terminated(run: &Run, place: usize, started: Timestamp, now: Timestamp) -> Value {
    json!({ "terminated": {
        "exitCode": 0,
        "reason": "Completed",
        "startedAt": second(started),
        "finishedAt": second(now),
        "containerID": container_id(run, place),
    } })
}

fn container_status(container: &Container, place: usize, run: &Run, now: Timestamp) -> Value {
    match run.stage {
        Stage::SettingUp | Stage::Stopping => described(
            container,
            place,
            run,
            false,
            false,
            &json!({ "waiting": { "reason": "ContainerCreating" } }),
        ),
        Stage::Initializing(_) => described(
            container,
            place,
            run,
            false,
            false,
            &json!({ "waiting": { "reason": "PodInitializing" } }),
        ),
        Stage::Running | Stage::Ready => {
            let state = json!({ "running": { "startedAt": second(run.containers_started) } });
            described(container, place, run, true, run.stage == Stage::Ready, &state)
        }
        Stage::Ended => described(
            container,
            place,
            run,
            false,
            false,
            &terminated(run, place, run.containers_started, now),
        ),
    }
}

fn init_status(container: &Container, index: usize, run: &Run, now: Timestamp) -> Value {
    // Places of init containers come after those of the containers, so that ids never collide.
    let place = index + 1000;
    let current = match run.stage {
        Stage::SettingUp | Stage::Stopping => None,
        Stage::Initializing(current) => Some(current),
        Stage::Running | Stage::Ready | Stage::Ended => Some(usize::MAX),
    };
    let running = || json!({ "running": { "startedAt": second(run.started) } });
    match current {
        Some(current) if index < current && is_sidecar(container) && run.stage != Stage::Ended => {
            described(container, place, run, true, true, &running())
        }
        Some(current) if index < current => described(
            container,
            place,
            run,
            false,
            true,
            &terminated(run, place, run.started, now),
        ),
        Some(current) if index == current => described(container, place, run, true, false, &running()),
        _ => described(
            container,
            place,
            run,
            false,
            false,
            &json!({ "waiting": { "reason": "PodInitializing" } }),
        ),
    }
}

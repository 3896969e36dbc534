//! How a kubelet runs a pod: set-up, init containers in order, containers, readiness, the end of batch work, and a
//! graceful end when it is deleted. The stages carry the time they last; writing them as a status is `status`'s.

use super::status::{ended_status, pod_status};
use crate::actor::{Decision, Turn};
use crate::clock::{after, dice};
use crate::events::Happening;
use crate::machine::Machine;
use crate::object::{Key, Kind, Object, uid};
use crate::request::Request;
use crate::view::{is_ready, is_terminal, phase};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// Where a pod is in its life on the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Sandbox, volumes, images.
    SettingUp,
    /// The init container of this index works.
    Initializing(usize),
    /// Containers are up, their probes not yet.
    Running,
    Ready,
    /// All containers ended by themselves.
    Ended,
    /// Containers were told to end.
    Stopping,
}

/// A pod on its node.
#[derive(Clone, Debug)]
pub(super) struct Run {
    pub uid: String,
    pub stage: Stage,
    /// When the stage is over; nothing ends it when empty.
    pub until: Option<Timestamp>,
    pub address: String,
    host_part: Option<u8>,
    pub started: Timestamp,
    pub containers_started: Timestamp,
    /// The number container ids of this run are made from.
    pub id: u64,
}

/// The pods of one kubelet.
#[derive(Debug, Default)]
pub(super) struct Pods {
    runs: BTreeMap<Key, Run>,
    taken: BTreeSet<u8>,
}

impl Pods {
    pub(super) fn forget(&mut self, key: &Key, gone: &str) {
        if self.runs.get(key).is_some_and(|run| run.uid == gone)
            && let Some(run) = self.runs.remove(key)
            && let Some(part) = run.host_part
        {
            self.taken.remove(&part);
        }
    }

    pub(super) fn decide(&mut self, pod: &Arc<Pod>, machine: &Machine, turn: &mut Turn<'_>) -> Decision {
        let key = Key::of(&pod.metadata);
        if let Some(other) = self.runs.get(&key).map(|run| run.uid.clone())
            && other != uid(&pod.metadata)
        {
            self.forget(&key, &other);
        }
        let is_new = !self.runs.contains_key(&key);
        if is_new {
            let run = self.adopt(pod, machine, turn);
            self.runs.insert(key.clone(), run);
        }
        let Some(run) = self.runs.get_mut(&key) else {
            return Decision::nothing();
        };
        if pod.metadata.deletion_timestamp.is_some() {
            return stop(run, pod, machine, turn);
        }
        if is_terminal(pod) {
            return Decision::nothing();
        }
        let before = run.stage;
        while run.until.is_some_and(|until| until <= turn.now) {
            advance(run, pod, turn);
        }
        let mut requests = Vec::new();
        let unreported = is_new && run.stage == Stage::SettingUp;
        if unreported || run.stage != before {
            requests.push(Request::patch_status(
                Kind::Pod,
                &pod.metadata,
                &pod_status(pod, run, machine, turn.now),
            ));
            if before == Stage::SettingUp && run.stage != before {
                let message = format!("Started {}", container_names(pod));
                requests.push(happening(pod, machine, "Started", message).request(turn.now, turn.rng));
            }
        }
        Decision::requests(requests).and_at(run.until)
    }

    /// Takes a pod on: a fresh one starts from the beginning, one that already ran (the kubelet restarted) goes on.
    fn adopt(&mut self, pod: &Pod, machine: &Machine, turn: &mut Turn<'_>) -> Run {
        let host_network = pod.spec.as_ref().and_then(|spec| spec.host_network).unwrap_or(false);
        let host_part = if host_network {
            None
        } else {
            (2..=254).find(|part| !self.taken.contains(part))
        };
        self.taken.extend(host_part);
        let address = match host_part {
            Some(part) => format!("{}.{part}", machine.pod_prefix),
            None => machine.address.clone(),
        };
        let (stage, until) = match phase(pod) {
            "Running" if is_ready(pod) => (Stage::Ready, batch_end(pod, turn)),
            "Running" => (Stage::Running, Some(turn.now)),
            "Succeeded" | "Failed" => (Stage::Ended, None),
            _ => {
                let setup = dice(turn.rng, turn.timings.pod_setup) + dice(turn.rng, turn.timings.container_start);
                (Stage::SettingUp, Some(after(turn.now, setup)))
            }
        };
        Run {
            uid: uid(&pod.metadata).to_owned(),
            stage,
            until,
            address,
            host_part,
            started: turn.now,
            containers_started: turn.now,
            id: turn.rng.u64(..),
        }
    }
}

fn advance(run: &mut Run, pod: &Pod, turn: &mut Turn<'_>) {
    let init_containers = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.init_containers.as_deref())
        .unwrap_or_default();
    let next_init = match run.stage {
        Stage::SettingUp => 0,
        Stage::Initializing(index) => index + 1,
        Stage::Running => {
            run.stage = Stage::Ready;
            run.until = batch_end(pod, turn);
            return;
        }
        Stage::Ready => {
            run.stage = Stage::Ended;
            run.until = None;
            return;
        }
        Stage::Ended | Stage::Stopping => {
            run.until = None;
            return;
        }
    };
    if let Some(container) = init_containers.get(next_init) {
        run.stage = Stage::Initializing(next_init);
        let work = if is_sidecar(container) {
            turn.timings.container_start
        } else {
            turn.timings.init_container
        };
        run.until = Some(after(turn.now, dice(turn.rng, work)));
        return;
    }
    run.containers_started = turn.now;
    let probe = probe_delay(pod);
    if probe.is_zero() {
        run.stage = Stage::Ready;
        run.until = batch_end(pod, turn);
    } else {
        run.stage = Stage::Running;
        run.until = Some(after(turn.now, probe.min(turn.timings.pod_setup)));
    }
}

/// An init container that stays (KEP-753).
pub(super) fn is_sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

/// When a pod that is meant to end will have ended.
fn batch_end(pod: &Pod, turn: &mut Turn<'_>) -> Option<Timestamp> {
    let restart = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.restart_policy.as_deref())
        .unwrap_or("Always");
    (restart != "Always").then(|| after(turn.now, dice(turn.rng, turn.timings.batch_work)))
}

fn probe_delay(pod: &Pod) -> Duration {
    let containers = pod
        .spec
        .as_ref()
        .map(|spec| spec.containers.as_slice())
        .unwrap_or_default();
    let delay = |container: &Container| {
        let probe = container.readiness_probe.as_ref()?;
        u64::try_from(probe.initial_delay_seconds.unwrap_or(0).max(1))
            .ok()
            .map(Duration::from_secs)
    };
    containers.iter().filter_map(delay).max().unwrap_or_default()
}

/// Ends a pod that was deleted: containers get their time, then the last status and the final deletion are written.
fn stop(run: &mut Run, pod: &Arc<Pod>, machine: &Machine, turn: &mut Turn<'_>) -> Decision {
    let meta = &pod.metadata;
    if is_terminal(pod) {
        // Held by a finalizer after the kubelet's last word: nothing left to do for it.
        let finished = meta.deletion_grace_period_seconds == Some(0);
        return if finished {
            Decision::nothing()
        } else {
            Decision::request(Request::delete(Kind::Pod, meta, Some(0)))
        };
    }
    if run.stage != Stage::Stopping {
        let running = matches!(run.stage, Stage::Running | Stage::Ready);
        let grace =
            u64::try_from(meta.deletion_grace_period_seconds.unwrap_or(0)).map_or(Duration::ZERO, Duration::from_secs);
        let needed = if running {
            dice(turn.rng, turn.timings.termination).min(grace)
        } else {
            Duration::ZERO
        };
        run.stage = Stage::Stopping;
        run.until = Some(after(turn.now, needed));
        if running {
            let message = format!("Stopping {}", container_names(pod));
            let killing = happening(pod, machine, "Killing", message).request(turn.now, turn.rng);
            return Decision::request(killing).and_at(run.until);
        }
    }
    if run.until.is_some_and(|until| until > turn.now) {
        return Decision::at(run.until.unwrap_or(turn.now));
    }
    Decision::requests(vec![
        Request::patch_status(Kind::Pod, meta, &ended_status(pod, run, machine, turn.now)),
        Request::delete(Kind::Pod, meta, Some(0)),
    ])
}

fn container_names(pod: &Pod) -> String {
    let containers = pod
        .spec
        .as_ref()
        .map(|spec| spec.containers.as_slice())
        .unwrap_or_default();
    let names: Vec<&str> = containers.iter().map(|container| container.name.as_str()).collect();
    format!(
        "{} {}",
        if names.len() == 1 { "container" } else { "containers" },
        names.join(", ")
    )
}

fn happening<'a>(pod: &Arc<Pod>, machine: &'a Machine, reason: &'static str, message: String) -> PodHappening<'a> {
    PodHappening {
        object: Object::Pod(Arc::clone(pod)),
        machine,
        reason,
        message,
    }
}

struct PodHappening<'a> {
    object: Object,
    machine: &'a Machine,
    reason: &'static str,
    message: String,
}

impl PodHappening<'_> {
    fn request(self, now: Timestamp, rng: &mut fastrand::Rng) -> Request {
        let happening = Happening {
            object: &self.object,
            component: "kubelet",
            host: &self.machine.name,
            reason: self.reason,
            message: self.message,
            warning: false,
        };
        happening.request(now, rng)
    }
}

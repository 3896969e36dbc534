//! How a kubelet runs one of Afloat's own pods: its init containers ask the engine on the machine for their step and
//! follow it through the journal, as `afloat node <step>` does; what they say comes back as termination message and exit code.
//! Containers that fail are started again, as `restartPolicy: OnFailure` says.

use std::time::Duration;

use afloat_api::labels;
use afloat_api::node::{NodePlan, exit};
use afloat_node::engine::Followed;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod};
use serde_json::{Value, json};

use super::hosted::Hosted;
use crate::actor::{Decision, Turn};
use crate::clock::{Timings, after};
use crate::events::second;
use crate::machine::Machine;
use crate::object::{Kind, uid};
use crate::request::Request;

/// How often a step is looked at.
const LOOK: Duration = Duration::from_millis(200);
/// The kubelet's first wait before it starts a failed container again.
const FIRST_BACK_OFF: Duration = Duration::from_secs(2);
const LONGEST_BACK_OFF: Duration = Duration::from_mins(1);

/// Whether a pod is one of Afloat's.
pub(super) fn is_task(pod: &Pod) -> bool {
    pod.metadata
        .labels
        .as_ref()
        .is_some_and(|labels| labels.contains_key(labels::TASK))
}

/// The end of a container.
#[derive(Clone, Debug)]
struct End {
    exit_code: i32,
    started: Timestamp,
    finished: Timestamp,
    message: String,
}

#[derive(Clone, Debug, Default)]
struct Init {
    running_since: Option<Timestamp>,
    restarts: i32,
    ended: Option<End>,
    /// Not before.
    again_at: Option<Timestamp>,
}

/// A task pod on its machine.
#[derive(Clone, Debug)]
pub(super) struct TaskRun {
    pub uid: String,
    started: Timestamp,
    current: usize,
    inits: Vec<Init>,
    done: bool,
    reported: Option<Value>,
}

fn init_containers(pod: &Pod) -> &[Container] {
    pod.spec
        .as_ref()
        .and_then(|spec| spec.init_containers.as_deref())
        .unwrap_or_default()
}

impl TaskRun {
    pub fn new(pod: &Pod, now: Timestamp) -> Self {
        Self {
            uid: uid(&pod.metadata).to_owned(),
            started: now,
            current: 0,
            inits: vec![Init::default(); init_containers(pod).len()],
            done: false,
            reported: None,
        }
    }

    /// The last status did not arrive.
    pub fn tell_again(&mut self) {
        self.reported = None;
    }

    /// One look at the pod: the kubelet is up, the machine was brought to now.
    pub fn decide(&mut self, pod: &Pod, machine: &Machine, hosted: &mut Hosted, turn: &Turn<'_>) -> Decision {
        if pod.metadata.deletion_timestamp.is_some() {
            return Decision::request(Request::delete(Kind::Pod, &pod.metadata, Some(0)));
        }
        let now = turn.now;
        let mut again = None;
        if !self.done {
            again = Some(self.work(pod, hosted, now, turn.timings));
        }
        let status = self.status(pod, machine);
        if self.reported.as_ref() == Some(&status) {
            return Decision::nothing().and_at(again);
        }
        let request = Request::patch_status(Kind::Pod, &pod.metadata, &status);
        self.reported = Some(status);
        Decision::request(request).and_at(again)
    }

    /// Starts, follows and ends init containers as far as it goes now. Says when to look again.
    fn work(&mut self, pod: &Pod, hosted: &mut Hosted, now: Timestamp, timings: &Timings) -> Timestamp {
        let scaled = |wait: Duration| after(now, wait.div_f64(timings.pace.max(1.0)).max(timings.rest));
        while let Some(container) = init_containers(pod).get(self.current) {
            let Some(init) = self.inits.get_mut(self.current) else {
                break;
            };
            if let Some(at) = init.again_at.filter(|at| *at > now) {
                return at;
            }
            let began = init.running_since.is_some();
            let since = *init.running_since.get_or_insert(now);
            match look(container, hosted, began, now) {
                None => return scaled(LOOK),
                Some((exit_code, message)) => {
                    hosted.attended = false;
                    init.running_since = None;
                    init.ended = Some(End {
                        exit_code,
                        started: since,
                        finished: now,
                        message,
                    });
                    if exit_code == exit::DONE {
                        self.current += 1;
                        continue;
                    }
                    let wait = FIRST_BACK_OFF
                        .saturating_mul(1 << init.restarts.clamp(0, 5))
                        .min(LONGEST_BACK_OFF);
                    init.restarts += 1;
                    let at = scaled(wait);
                    init.again_at = Some(at);
                    return at;
                }
            }
        }
        self.done = true;
        now
    }

    fn status(&self, pod: &Pod, machine: &Machine) -> Value {
        let inits: Vec<Value> = init_containers(pod)
            .iter()
            .zip(&self.inits)
            .map(|(container, init)| init_status(container, init))
            .collect();
        let phase = if self.done { "Succeeded" } else { "Pending" };
        json!({
            "phase": phase,
            "hostIP": machine.address,
            "startTime": second(self.started),
            "initContainerStatuses": inits,
        })
    }
}

fn init_status(container: &Container, init: &Init) -> Value {
    let terminated = |end: &End| {
        json!({ "terminated": {
            "exitCode": end.exit_code,
            "reason": if end.exit_code == 0 { "Completed" } else { "Error" },
            "message": end.message,
            "startedAt": second(end.started),
            "finishedAt": second(end.finished),
        } })
    };
    let failed = init.ended.as_ref().is_some_and(|end| end.exit_code != 0);
    let state = match (&init.running_since, &init.ended) {
        (Some(since), _) => json!({ "running": { "startedAt": second(*since) } }),
        (None, Some(end)) if end.exit_code == 0 => terminated(end),
        (None, Some(_)) => json!({ "waiting": { "reason": "CrashLoopBackOff" } }),
        (None, None) => json!({ "waiting": { "reason": "PodInitializing" } }),
    };
    json!({
        "name": container.name,
        "image": container.image,
        "imageID": "",
        "restartCount": init.restarts,
        "ready": init.ended.as_ref().is_some_and(|end| end.exit_code == 0),
        "started": init.running_since.is_some(),
        "state": state,
        "lastState": init.ended.as_ref().filter(|_| failed).map_or_else(|| json!({}), terminated),
    })
}

/// What the program in a step container does: asks for its step once, then follows it. `None` while it runs.
fn look(container: &Container, hosted: &mut Hosted, began: bool, now: Timestamp) -> Option<(i32, String)> {
    let step = container
        .args
        .as_ref()
        .and_then(|args| args.last())
        .map_or("", String::as_str);
    let lookup = |name: &str| {
        let mut env = container.env.iter().flatten();
        env.find(|entry| entry.name == name)
            .and_then(|entry| entry.value.clone())
    };
    let plan = match NodePlan::from_env(lookup) {
        Ok(plan) => plan,
        Err(error) => return Some((exit::FAILED, error.to_string())),
    };
    if !began {
        let inside = hosted.host.now();
        if let Err(error) = hosted.engine.begin(&mut hosted.host, &plan, step, inside) {
            return Some((exit::LATER, error.to_string()));
        }
        hosted.attended = true;
        hosted.wake(now);
        return None;
    }
    match hosted.engine.follow(&mut hosted.host, step) {
        Ok(Followed::Running { .. }) => None,
        Ok(Followed::Ended { exit_code, report }) => {
            Some((exit_code, serde_json::to_string(&report).unwrap_or_default()))
        }
        Err(error) => Some((exit::LATER, error.to_string())),
    }
}

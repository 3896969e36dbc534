//! Jobs: pods until enough of them succeeded. Indexed jobs, pod failure policies and the tracking finalizer are not
//! simulated.

use super::{BURST, count, health, is_going, observe_owner, pod_of, status_says};
use crate::actor::{Actor, Decision, Turn};
use crate::events::second;
use crate::hash::suffix;
use crate::object::{Kind, ObjectRef, name, namespace, uid};
use crate::queue::Queue;
use crate::request::Request;
use crate::view::{Change, View, is_active, phase};
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{Job, JobSpec};
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;
use std::sync::Arc;

/// The Job controller.
#[derive(Debug, Default)]
pub struct Jobs;

impl Actor for Jobs {
    fn name(&self) -> &'static str {
        "job-controller"
    }

    fn observe(&mut self, change: &Change, _view: &View, _now: Timestamp, queue: &mut Queue) {
        observe_owner(Kind::Job, Kind::Pod, change, queue);
    }

    fn decide(&mut self, item: &ObjectRef, turn: &mut Turn<'_>) -> Decision {
        let Some(job) = turn.view.jobs.get(&item.key).cloned() else {
            return Decision::nothing();
        };
        let Some(spec) = job.spec.as_ref().filter(|_| !is_going(&job.metadata)) else {
            return Decision::nothing();
        };
        if is_over(&job) || spec.suspend == Some(true) {
            return Decision::nothing();
        }
        let tally = Tally::of(&job, turn.view);
        let wanted = spec.completions.or(spec.parallelism).unwrap_or(1);
        let mut requests = Vec::new();
        let over = tally.succeeded >= wanted || tally.failed > spec.backoff_limit.unwrap_or(6);
        if !over {
            let parallel = spec.parallelism.unwrap_or(1).min(wanted - tally.succeeded);
            let missing = usize::try_from(parallel - count(tally.active.len()))
                .unwrap_or(0)
                .min(BURST);
            requests.extend((0..missing).map(|_| birth(&job, spec, turn)));
        }
        let status = tally.status(&job, wanted, over, turn.now);
        if !status_says(job.status.as_ref(), &status) {
            requests.push(Request::patch_status(Kind::Job, &job.metadata, &status));
        }
        Decision::requests(requests)
    }
}

fn is_over(job: &Job) -> bool {
    let conditions = job.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions
        .into_iter()
        .flatten()
        .any(|c| matches!(c.type_.as_str(), "Complete" | "Failed") && c.status == "True")
}

fn birth(job: &Job, spec: &JobSpec, turn: &mut Turn<'_>) -> Request {
    let pod_name = format!("{}-{}", name(&job.metadata), suffix(turn.rng));
    let labels = [
        ("batch.kubernetes.io/job-name", name(&job.metadata)),
        ("batch.kubernetes.io/controller-uid", uid(&job.metadata)),
        ("job-name", name(&job.metadata)),
        ("controller-uid", uid(&job.metadata)),
    ];
    let pod = pod_of(&spec.template, Kind::Job, &job.metadata, &pod_name, &labels);
    Request::create(Kind::Pod, namespace(&job.metadata), pod)
}

struct Tally<'a> {
    active: Vec<&'a Arc<Pod>>,
    succeeded: i32,
    failed: i32,
}

impl<'a> Tally<'a> {
    fn of(job: &Job, view: &'a View) -> Self {
        let mut tally = Self {
            active: Vec::new(),
            succeeded: 0,
            failed: 0,
        };
        for pod in view.pods_owned_by(uid(&job.metadata)) {
            match phase(pod) {
                "Succeeded" => tally.succeeded += 1,
                "Failed" => tally.failed += 1,
                _ if is_active(pod) => tally.active.push(pod),
                _ => {}
            }
        }
        tally
    }

    fn status(&self, job: &Job, wanted: i32, over: bool, now: Timestamp) -> serde_json::Value {
        let known = job.status.as_ref();
        let started = known
            .and_then(|status| status.start_time.as_ref())
            .map_or(now, |time| time.0);
        let mut status = json!({
            "startTime": second(started),
            "active": count(self.active.len()),
            "ready": health(self.active.iter().copied(), None, now).ready,
            "succeeded": self.succeeded,
            "failed": self.failed,
        });
        if over && self.active.is_empty() {
            let condition = |kind: &str, reason: &str, message: &str| {
                json!({
                    "type": kind, "status": "True", "reason": reason, "message": message,
                    "lastProbeTime": second(now), "lastTransitionTime": second(now),
                })
            };
            if self.succeeded >= wanted {
                let (reason, message) = ("CompletionsReached", "Reached expected number of succeeded pods");
                status["completionTime"] = second(now).into();
                status["conditions"] = json!([
                    condition("SuccessCriteriaMet", reason, message),
                    condition("Complete", reason, message)
                ]);
            } else {
                let (reason, message) = ("BackoffLimitExceeded", "Job has reached the specified backoff limit");
                status["conditions"] = json!([
                    condition("FailureTarget", reason, message),
                    condition("Failed", reason, message)
                ]);
            }
        }
        status
    }
}

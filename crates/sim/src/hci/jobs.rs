//! The Job whose work is not code yet, that of the manifests: it takes its time and ends well, or fails as told. All others run the real
//! tasks (see `tasks`), and what the work does to the machine is `machines`' part.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use afloat_api::labels;
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use serde_json::{Value, json};

use super::takes::Takes;
use super::tasks::task_of;
use crate::actor::{Actor, Decision, Turn};
use crate::events::second;
use crate::object::{Kind, ObjectRef, label};
use crate::queue::Queue;
use crate::request::Request;
use crate::view::{Change, View};

const TAKES: Duration = Duration::from_mins(2);

/// So many Jobs of a kind will fail; of a kind on one node as `kind/node`.
#[derive(Clone, Debug, Default)]
pub(super) struct Failing(Arc<Mutex<BTreeMap<String, u32>>>);

impl Failing {
    pub fn new(failing: BTreeMap<String, u32>) -> Self {
        Self(Arc::new(Mutex::new(failing)))
    }

    /// Whether this one fails, which is then one less.
    pub fn fails(&self, kind: &str, node: &str) -> Result<(), String> {
        let here = format!("{kind}/{node}");
        let mut failing = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut wanted = failing.iter_mut();
        let Some((_, left)) = wanted.find(|(key, left)| **left > 0 && (**key == kind || **key == here)) else {
            return Ok(());
        };
        *left -= 1;
        Err(format!("{kind} was made to fail"))
    }
}

/// Runs Jobs.
#[derive(Debug)]
pub struct Jobs {
    failing: Failing,
    takes: Takes,
}

impl Jobs {
    pub(super) fn new(failing: Failing) -> Self {
        Self {
            failing,
            takes: Takes::default(),
        }
    }
}

/// What a Job does, by its label.
pub(super) fn kind_of(job: &Job) -> &str {
    label(&job.metadata, labels::HARVESTER_UPGRADE_JOB_TYPE).unwrap_or_default()
}

pub(super) fn is_complete(job: &Job) -> bool {
    has(job, "Complete")
}

pub(super) fn is_over(job: &Job) -> bool {
    has(job, "Complete") || has(job, "Failed")
}

fn has(job: &Job, kind: &str) -> bool {
    let conditions = job.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions
        .into_iter()
        .flatten()
        .any(|condition| condition.type_ == kind && condition.status == "True")
}

/// The status of a Job that has ended: well, or with what it said.
pub(super) fn ended(result: &Result<String, String>, started: Option<Timestamp>, now: Timestamp) -> Value {
    let condition = |kind: &str, reason: &str, message: &str| {
        json!({
            "type": kind, "status": "True", "reason": reason, "message": message,
            "lastProbeTime": second(now), "lastTransitionTime": second(now),
        })
    };
    let started = second(started.unwrap_or(now));
    match result {
        Ok(_) => json!({
            "startTime": started, "completionTime": second(now), "succeeded": 1,
            "conditions": [
                condition("SuccessCriteriaMet", "CompletionsReached", ""),
                condition("Complete", "CompletionsReached", ""),
            ],
        }),
        Err(why) => json!({
            "startTime": started, "failed": 1,
            "conditions": [
                condition("FailureTarget", "BackoffLimitExceeded", why),
                condition("Failed", "BackoffLimitExceeded", why),
            ],
        }),
    }
}

impl Actor for Jobs {
    fn name(&self) -> &'static str {
        "jobs"
    }

    fn observe(&mut self, change: &Change, _: &View, _: Timestamp, queue: &mut Queue) {
        if let Some(reference) = change.reference().filter(|reference| reference.kind == Kind::Job) {
            queue.add(reference);
        }
    }

    fn decide(&mut self, item: &ObjectRef, turn: &mut Turn<'_>) -> Decision {
        let Some(job) = turn.view.jobs.get(&item.key) else {
            return Decision::nothing();
        };
        let kind = kind_of(job).to_owned();
        if kind.is_empty() || task_of(&kind).is_some() || is_over(job) {
            return Decision::nothing();
        }
        if let Err(due) = self.takes.done(item, TAKES, turn) {
            return Decision::at(due);
        }
        let node = label(&job.metadata, labels::HARVESTER_NODE).unwrap_or_default();
        let result = self.failing.fails(&kind, node).map(|()| String::new());
        let started = job.metadata.creation_timestamp.as_ref().map(|time| time.0);
        let status = ended(&result, started, turn.now);
        Decision::request(Request::patch_status(Kind::Job, &job.metadata, &status))
    }
}

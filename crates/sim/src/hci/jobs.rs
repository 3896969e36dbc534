//! Jobs of an upgrade: what kind one is, how it ended, and which are made to fail. Their work is that of the real tasks (see `tasks`);
//! what it does to the machine is `machines`' part.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use afloat_api::labels;
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use serde_json::{Value, json};

use crate::events::second;
use crate::object::label;

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

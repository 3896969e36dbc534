//! Small parts of Harvester that answer what an upgrade asks for: the image is imported, the logs are collected, the repository, Rancher and
//! its charts are served.

use std::time::Duration;

use jiff::Timestamp;
use kube::ResourceExt;
use kube::core::DynamicObject;
use serde_json::{Value, json};

use super::takes::Takes;
use crate::actor::{Actor, Decision, Turn};
use crate::object::{Kind, ObjectRef};
use crate::queue::Queue;
use crate::request::Request;
use crate::view::{Change, View};
use afloat_core::hci::task::RANCHER_NAMESPACE;
use afloat_core::hci::view::{HciKind, Log};
use afloat_scenes::PartsTrouble;

const TAKES: Duration = Duration::from_secs(30);
/// On a log: whether its controller collects.
pub const LOG_STATE: &str = "harvesterhci.io/upgradeLogState";

/// Whoever imports images, collects logs and starts repositories.
#[derive(Debug)]
pub struct Importers {
    trouble: PartsTrouble,
    /// Whether Deployments are rolled out here.
    deploys: bool,
    takes: Takes,
}

impl Importers {
    pub fn new(trouble: PartsTrouble, deploys: bool) -> Self {
        Self {
            trouble,
            deploys,
            takes: Takes::default(),
        }
    }

    /// What an object becomes when the work for it is done; nothing where there is none, or it is never done.
    fn outcome(&self, kind: HciKind, object: &DynamicObject) -> Option<Value> {
        let said = object.data["status"]["conditions"].as_array();
        let said: Vec<&Value> = said.into_iter().flatten().collect();
        if kind == HciKind::UpgradeLog {
            return if self.trouble.no_logs {
                None
            } else {
                collect(object, &said)
            };
        }
        let condition = match self.trouble.no_images {
            Some(why) => json!({ "type": "Imported", "status": "False", "message": why }),
            None => json!({ "type": "Imported", "status": "True" }),
        };
        let is_done = said.iter().any(|said| said["type"] == condition["type"]);
        (!is_done).then(|| json!({ "status": { "conditions": [condition] } }))
    }
}

/// The next step of Harvester's controller of logs: it starts what collects, collects until it is told to stop, and takes down what it had set up.
/// Told before it collects, it heeds nothing.
fn collect(log: &DynamicObject, said: &[&Value]) -> Option<Value> {
    let status = |kind: &str| {
        let condition = said.iter().find(|said| said["type"] == kind)?;
        condition["status"].as_str()
    };
    let state = log.annotations().get(LOG_STATE).map(String::as_str);
    let with = |kind: &str, status: &str| {
        let set = json!({ "type": kind, "status": status });
        let all: Vec<&Value> = said.iter().copied().chain([&set]).collect();
        json!({ "conditions": all })
    };
    match (status(Log::STARTED), status(Log::STOPPED), state) {
        (None, _, _) => Some(json!({ "status": with(Log::STARTED, "True") })),
        (Some("True"), None, _) => Some(json!({
            "metadata": { "annotations": { LOG_STATE: "Collecting" } },
            "status": with(Log::STOPPED, "Unknown"),
        })),
        (_, Some("True"), Some("Collecting")) => {
            Some(json!({ "metadata": { "annotations": { LOG_STATE: "Stopped" } } }))
        }
        _ => None,
    }
}

impl Actor for Importers {
    fn name(&self) -> &'static str {
        "harvester"
    }

    fn observe(&mut self, change: &Change, _: &View, _: Timestamp, queue: &mut Queue) {
        let Some(reference) = change.reference() else { return };
        let ours = match reference.kind {
            Kind::Hci(HciKind::Image | HciKind::UpgradeLog) => true,
            Kind::Deployment if !self.deploys => false,
            Kind::Deployment => {
                reference.key.name.starts_with("upgrade-repo-")
                    || reference.key.name == "harvester"
                    || *reference.key.namespace == *RANCHER_NAMESPACE
            }
            _ => false,
        };
        if ours {
            queue.add(reference);
        }
    }

    fn decide(&mut self, item: &ObjectRef, turn: &mut Turn<'_>) -> Decision {
        let (is_done, change) = match item.kind {
            Kind::Deployment => {
                let Some(repo) = turn.view.deployments.get(&item.key) else {
                    return Decision::nothing();
                };
                let wanted = repo.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
                let said = repo.status.as_ref();
                let observed = said.and_then(|status| status.observed_generation);
                let ready = said.and_then(|status| status.ready_replicas);
                let status = json!({
                    "replicas": wanted, "readyReplicas": wanted, "availableReplicas": wanted, "updatedReplicas": wanted,
                    "observedGeneration": repo.metadata.generation,
                });
                (ready == Some(wanted) && observed == repo.metadata.generation, status)
            }
            Kind::Hci(kind) => {
                let Some(object) = turn.view.one_of(kind, &item.key) else {
                    return Decision::nothing();
                };
                let Some(change) = self.outcome(kind, object) else {
                    return Decision::nothing();
                };
                (false, change)
            }
            _ => return Decision::nothing(),
        };
        if is_done {
            return Decision::nothing();
        }
        if let Err(due) = self.takes.done(item, TAKES, turn) {
            return Decision::at(due);
        }
        let Some(object) = turn.view.get(item) else {
            return Decision::nothing();
        };
        Decision::request(match item.kind {
            kind @ Kind::Hci(_) => Request::patch(kind, object.meta(), change),
            kind => Request::patch_status(kind, object.meta(), &change),
        })
    }
}

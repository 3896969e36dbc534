//! Small parts of Harvester that answer what an upgrade asks for: the image is imported, the logs are collected, the repository, Rancher and
//! its charts are served.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::takes::Takes;
use super::told;
use crate::actor::{Actor, Decision, Turn};
use crate::object::{Kind, ObjectRef};
use crate::queue::Queue;
use crate::request::Request;
use crate::view::{Change, View};
use afloat_core::hci::task::RANCHER_NAMESPACE;
use afloat_core::hci::view::HciKind;
use afloat_scenes::PartsTrouble;

const TAKES: Duration = Duration::from_secs(30);

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

    /// The condition an object gets when the work for it is done; nothing where it never is.
    fn outcome(&self, kind: HciKind) -> Option<Value> {
        let condition = match (kind, self.trouble.no_images) {
            (HciKind::Image, Some(why)) => json!({ "type": "Imported", "status": "False", "message": why }),
            (HciKind::Image, None) => json!({ "type": "Imported", "status": "True" }),
            _ if self.trouble.no_logs => return None,
            _ => json!({ "type": "Started", "status": "True" }),
        };
        Some(condition)
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
        let (is_done, status) = match item.kind {
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
                let Some(condition) = self.outcome(kind) else {
                    return Decision::nothing();
                };
                let said = object.data["status"]["conditions"].as_array();
                let is_done = said.into_iter().flatten().any(|said| said["type"] == condition["type"]);
                (is_done, json!({ "conditions": [condition] }))
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
            Kind::Hci(kind) => told(kind, object.meta(), &status),
            kind => Request::patch_status(kind, object.meta(), &status),
        })
    }
}

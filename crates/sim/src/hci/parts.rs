//! Small parts of Harvester that answer what an upgrade asks for: the image is imported, the logs are collected, the repository serves.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::takes::Takes;
use crate::actor::{Actor, Decision, Turn};
use crate::object::{Kind, ObjectRef};
use crate::queue::Queue;
use crate::request::Request;
use crate::view::{Change, View};
use afloat_core::hci::view::HciKind;

const TAKES: Duration = Duration::from_secs(30);

/// Whoever imports images, collects logs and starts repositories.
#[derive(Debug, Default)]
pub struct Importers {
    takes: Takes,
}

fn condition(kind: &str) -> Value {
    json!({ "conditions": [{ "type": kind, "status": "True" }] })
}

impl Actor for Importers {
    fn name(&self) -> &'static str {
        "harvester"
    }

    fn observe(&mut self, change: &Change, _: &View, _: Timestamp, queue: &mut Queue) {
        let Some(reference) = change.reference() else { return };
        let ours = match reference.kind {
            Kind::Hci(HciKind::Image | HciKind::UpgradeLog) => true,
            Kind::Deployment => reference.key.name.starts_with("upgrade-repo-"),
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
                let ready = repo.status.as_ref().and_then(|status| status.ready_replicas);
                let status = json!({
                    "replicas": wanted, "readyReplicas": wanted, "availableReplicas": wanted,
                    "observedGeneration": repo.metadata.generation,
                });
                (ready == Some(wanted), status)
            }
            Kind::Hci(kind) => {
                let Some(object) = turn.view.one_of(kind, &item.key) else {
                    return Decision::nothing();
                };
                let word = if kind == HciKind::Image { "Imported" } else { "Started" };
                let said = object.data["status"]["conditions"].as_array();
                let is_done = said.into_iter().flatten().any(|condition| condition["type"] == word);
                (is_done, condition(word))
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
        Decision::request(if item.kind == Kind::Deployment {
            Request::patch_status(item.kind, object.meta(), &status)
        } else {
            Request::patch(item.kind, object.meta(), json!({ "status": status }))
        })
    }
}

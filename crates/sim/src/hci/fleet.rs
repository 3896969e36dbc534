//! Fleet: rolls out the charts that are not paused, each time one is changed, and says which of its generations it has looked at. What a
//! chart is made of is not simulated, but for the Deployment of Harvester itself where there is one.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::json;

use super::SYSTEM;
use super::takes::Takes;
use crate::actor::{Actor, Decision, Turn};
use crate::object::{Key, Kind, ObjectRef};
use crate::queue::Queue;
use crate::request::Request;
use crate::view::{Change, View};
use afloat_core::hci::view::HciKind;

const TAKES: Duration = Duration::from_mins(1);

/// Whoever brings charts to their versions.
#[derive(Debug, Default)]
pub struct Fleet {
    takes: Takes,
}

impl Actor for Fleet {
    fn name(&self) -> &'static str {
        "fleet"
    }

    fn observe(&mut self, change: &Change, _: &View, _: Timestamp, queue: &mut Queue) {
        let chart = Kind::Hci(HciKind::Chart);
        if let Some(reference) = change.reference().filter(|reference| reference.kind == chart) {
            queue.add(reference);
        }
    }

    fn decide(&mut self, item: &ObjectRef, turn: &mut Turn<'_>) -> Decision {
        let Some(chart) = turn.view.one_of(HciKind::Chart, &item.key) else {
            return Decision::nothing();
        };
        let generation = chart.metadata.generation;
        let observed = chart.data["status"]["observedGeneration"].as_i64();
        if chart.data["spec"]["paused"] == true || observed == generation {
            self.takes.forget(item);
            return Decision::nothing();
        }
        if let Err(due) = self.takes.done(item, TAKES, turn) {
            return Decision::at(due);
        }
        let ready = json!({ "type": "Ready", "status": "True" });
        let status = json!({ "observedGeneration": generation, "conditions": [ready] });
        let told = Request::patch_status(item.kind, &chart.metadata, &status);
        let version = chart.data["spec"]["version"].as_str().unwrap_or_default();
        let of_chart = Key::new(SYSTEM, &item.key.name);
        // Of what a chart is made of, only the Deployment of Harvester itself is looked at.
        let server = turn.view.deployments.get(&of_chart);
        let server = server.map(|server| {
            let container =
                json!({ "name": item.key.name, "image": format!("example.org/{}:v{version}", item.key.name) });
            let change = json!({ "spec": { "template": { "spec": { "containers": [container] } } } });
            Request::patch(Kind::Deployment, &server.metadata, change)
        });
        Decision::requests(server.into_iter().chain([told]).collect())
    }
}

//! Fleet: rolls out the charts that are not paused, each time one is changed, and says which of its generations it has looked at. What a
//! chart is made of is not simulated.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::json;

use super::takes::Takes;
use crate::actor::{Actor, Decision, Turn};
use crate::object::{Kind, ObjectRef};
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
        let Some(object) = turn.view.get(item) else {
            return Decision::nothing();
        };
        Decision::request(Request::patch_status(item.kind, object.meta(), &status))
    }
}

//! Since when: what the states of the contract have no place for, kept in an annotation of the Upgrade. From it come the deadlines of
//! waits that belong to no Job, and the times in the report. It changes only together with a state, so that it costs no write.

use std::collections::BTreeMap;

use afloat_api::annotations;
use afloat_api::harvester::{HarvesterNodeState as State, Upgrade};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value};

use super::config;
use super::turn::moment;

/// Times of one node.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct NodeTimes {
    /// When it began to be emptied, the last time.
    pub begun: Option<Timestamp>,
    /// Since when Rancher may drain it; since when the only node of a cluster may be changed.
    pub drained: Option<Timestamp>,
    /// It was told that the drain takes too long.
    pub overdue: bool,
    /// When it was seen to be at the target.
    pub done: Option<Timestamp>,
    /// Since when something in the cluster, not a person, keeps it from its turn.
    pub held: Option<Timestamp>,
    /// How long that was before, in seconds.
    pub waited: i64,
    /// Since when Rancher could ask about it, or about another one, and asks about none.
    pub unasked: Option<Timestamp>,
}

impl NodeTimes {
    /// From the first thing that was done to it until it was at the target.
    pub fn took(&self) -> Option<SignedDuration> {
        Some(self.done?.duration_since(self.begun?)).filter(SignedDuration::is_positive)
    }
}

/// Times of all nodes, by name.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Times(pub BTreeMap<String, NodeTimes>);

impl Times {
    /// What is kept on an Upgrade. A text of somebody else's counts as none: times are worth less than an upgrade that goes on.
    pub fn of(upgrade: &Upgrade) -> Self {
        let text = config::annotation(upgrade, annotations::NODE_TIMES).unwrap_or("{}");
        let all: Map<String, Value> = serde_json::from_str(text).unwrap_or_default();
        let read = |one: &Value| {
            let time = |key: &str| one[key].as_str().and_then(|text| text.parse().ok());
            NodeTimes {
                begun: time("begun"),
                drained: time("drained"),
                overdue: one["overdue"] == true,
                done: time("done"),
                held: time("held"),
                waited: one["waited"].as_i64().unwrap_or_default(),
                unasked: time("unasked"),
            }
        };
        Self(all.iter().map(|(node, one)| (node.clone(), read(one))).collect())
    }

    /// As the annotation holds it.
    pub fn written(&self) -> String {
        let write = |one: &NodeTimes| {
            let mut all = Map::new();
            let times = [
                ("begun", one.begun),
                ("drained", one.drained),
                ("done", one.done),
                ("held", one.held),
                ("unasked", one.unasked),
            ];
            for (key, time) in times {
                if let Some(time) = time {
                    all.insert(key.to_owned(), Value::from(moment(time)));
                }
            }
            if one.overdue {
                all.insert("overdue".to_owned(), Value::from(true));
            }
            if one.waited > 0 {
                all.insert("waited".to_owned(), Value::from(one.waited));
            }
            Value::Object(all)
        };
        let all: Map<String, Value> = self.0.iter().map(|(node, one)| (node.clone(), write(one))).collect();
        Value::Object(all).to_string()
    }

    /// A node comes to another state.
    pub fn enters(&mut self, node: &str, state: State, now: Timestamp) {
        let tells = matches!(
            state,
            State::PreDraining | State::PreDrained | State::PostDraining | State::Succeeded
        );
        if !tells && !self.0.contains_key(node) {
            return;
        }
        self.goes_on(node, now);
        let times = self.0.entry(node.to_owned()).or_default();
        match state {
            State::PreDraining => times.begun = Some(now),
            State::PreDrained => {
                times.begun.get_or_insert(now);
                (times.drained, times.overdue) = (Some(now), false);
            }
            State::PostDraining => {
                times.drained.get_or_insert(now);
            }
            State::Succeeded => times.done = Some(now),
            _ => {}
        }
    }

    /// Something keeps a node from its turn; since when.
    pub fn is_held(&mut self, node: &str, now: Timestamp) -> Timestamp {
        let times = self.0.entry(node.to_owned()).or_default();
        *times.held.get_or_insert(now)
    }

    /// Nothing does any more, or a person does.
    pub fn goes_on(&mut self, node: &str, now: Timestamp) {
        if let Some(times) = self.0.get_mut(node)
            && let Some(held) = times.held.take()
        {
            let length: SignedDuration = now.duration_since(held);
            times.waited = times.waited.saturating_add(length.as_secs().max(0));
        }
    }
}

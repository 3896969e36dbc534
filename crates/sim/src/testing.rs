//! Help for the tests of actors: views from manifests, and one look of an actor at one object.

use crate::actor::{Actor, Decision, Turn};
use crate::clock::Timings;
use crate::object::{Key, Kind, Object, ObjectRef};
use crate::queue::Queue;
use crate::view::View;
use jiff::Timestamp;
use serde_json::{Value, json};

/// An instant to reckon from.
pub fn noon() -> Timestamp {
    "2026-11-15T12:00:00Z".parse().unwrap()
}

/// An object with what the server would have added: uid (its name unless given), revision, generation.
pub fn object(kind: Kind, revision: u64, mut value: Value) -> Object {
    let meta = &mut value["metadata"];
    if meta["uid"].is_null() {
        meta["uid"] = meta["name"].clone();
    }
    meta["resourceVersion"] = revision.to_string().into();
    if meta["generation"].is_null() {
        meta["generation"] = 1.into();
    }
    kind.parse(value).unwrap()
}

/// A world of one actor and a view.
pub struct Stage<A> {
    pub actor: A,
    pub view: View,
    pub queue: Queue,
    pub now: Timestamp,
    rng: fastrand::Rng,
    revision: u64,
}

impl<A: Actor> Stage<A> {
    pub fn new(actor: A) -> Self {
        Self {
            actor,
            view: View::default(),
            queue: Queue::default(),
            now: noon(),
            rng: fastrand::Rng::with_seed(1),
            revision: 1,
        }
    }

    /// Puts an object into the view, as if the server had it so.
    pub fn put(&mut self, kind: Kind, value: Value) {
        self.revision += 1;
        let change = self.view.apply(object(kind, self.revision, value)).unwrap();
        self.actor.observe(&change, &self.view, self.now, &mut self.queue);
    }

    pub fn look(&mut self, kind: Kind, namespace: &str, name: &str) -> Decision {
        let item = ObjectRef::new(kind, Key::new(namespace, name));
        let timings = Timings::default();
        let mut turn = Turn {
            view: &self.view,
            now: self.now,
            rng: &mut self.rng,
            timings: &timings,
        };
        self.actor.decide(&item, &mut turn)
    }
}

/// A pod as a manifest.
pub fn pod(name: &str, node: &str, ready: bool, owner: Option<(&str, &str)>) -> Value {
    let owners: Vec<Value> = owner
        .map(
            |(kind, uid)| json!({ "apiVersion": "apps/v1", "kind": kind, "name": uid, "uid": uid, "controller": true }),
        )
        .into_iter()
        .collect();
    let status = if ready { "True" } else { "False" };
    json!({
        "metadata": { "name": name, "namespace": "shop", "labels": { "app": "web" }, "ownerReferences": owners },
        "spec": { "nodeName": node, "containers": [{ "name": "c", "image": "i" }] },
        "status": {
            "phase": if node.is_empty() { "Pending" } else { "Running" },
            "conditions": [{ "type": "Ready", "status": status, "lastTransitionTime": "2026-11-15T11:00:00Z" }],
        },
    })
}

//! One random request at a time: each verb, with the content, options and revisions that it can come with. Knows the randomness and the number of
//! the step; which verb is next, and what is thought to exist, is `generate`'s.

use fastrand::Rng;
use serde_json::{Map, Value, json};

use super::universe::{Kind, put};
use crate::case::Step;

/// What a write goes to.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) kind: &'a Kind,
    pub(super) name: &'a str,
}

impl Place<'_> {
    pub(super) fn object_name(&self) -> String {
        if self.kind.cluster_wide {
            format!("$ns-{}", self.name)
        } else {
            self.name.to_owned()
        }
    }

    pub(super) fn path(&self) -> String {
        format!("{}/{}", self.kind.collection, self.object_name())
    }

    /// Answers are kept in two places in turn, so that some are stale.
    fn slot(&self, turn: usize) -> String {
        format!("{}-{}-{}", self.kind.name, self.name, turn % 2)
    }
}

/// The path of all objects of this sequence: other sequences share the cluster.
pub(super) fn everything(kind: &Kind, query: &str) -> String {
    let own = if kind.cluster_wide {
        "labelSelector=run%3D$ns"
    } else {
        ""
    };
    let both: Vec<&str> = [own, query].into_iter().filter(|part| !part.is_empty()).collect();
    let mark = if both.is_empty() { "" } else { "?" };
    format!("{}{mark}{}", kind.collection, both.join("&"))
}

/// A whole object around its content.
pub(super) fn named(place: Place<'_>, mut content: Value) -> Value {
    content["apiVersion"] = Value::from(place.kind.api_version.clone());
    content["kind"] = Value::from(place.kind.name.clone());
    content["metadata"]["name"] = Value::from(place.object_name());
    if place.kind.cluster_wide {
        content["metadata"]["labels"]["run"] = Value::from("$ns");
    }
    content
}

/// Draws what goes into requests.
pub(super) struct Draw {
    rng: Rng,
    /// Number of the step that is being drawn.
    step: usize,
}

impl Draw {
    pub(super) fn new(rng: Rng) -> Self {
        Self { rng, step: 0 }
    }

    pub(super) fn next_step(&mut self) {
        self.step += 1;
    }

    pub(super) fn number(&mut self, below: usize) -> usize {
        self.rng.usize(..below)
    }

    pub(super) fn one_in(&mut self, chances: usize) -> bool {
        self.rng.usize(..chances) == 0
    }

    pub(super) fn pick<'b, T>(&mut self, from: &'b [T]) -> &'b T {
        &from[self.rng.usize(..from.len())]
    }

    fn request(&mut self, place: Place<'_>, method: &str, path: &str, query: &[String]) -> Step {
        let mut query: Vec<String> = query.to_vec();
        if self.one_in(12) {
            query.push("dryRun=All".to_owned());
        }
        if self.one_in(8) {
            query.push(format!("fieldValidation={}", self.pick(&["Strict", "Warn", "Ignore"])));
        }
        let mark = if query.is_empty() { "" } else { "?" };
        let action = format!("{method} {path}{mark}{}", query.join("&"));
        Step {
            action,
            keep: Some(place.slot(self.step)),
            ..Step::default()
        }
    }

    fn manager(&mut self) -> Vec<String> {
        if self.one_in(3) {
            Vec::new()
        } else {
            vec![format!("fieldManager=m{}", self.rng.usize(1..=3))]
        }
    }

    /// Some pieces on top of a base; `clear` lets some become null.
    fn content(&mut self, base: &Value, kind: &Kind, clear: bool) -> Value {
        let mut content = base.clone();
        if content.is_null() {
            content = json!({});
        }
        let places: Vec<&String> = kind.pieces.keys().collect();
        for _ in 0..self.rng.usize(..4) {
            let place = *self.pick(&places);
            let value = if clear && self.one_in(4) {
                Value::Null
            } else {
                self.pick(&kind.pieces[place]).clone()
            };
            put(&mut content, place, value);
        }
        self.metadata(&mut content, clear);
        content
    }

    fn metadata(&mut self, content: &mut Value, clear: bool) {
        for (key, values) in [("app", ["x", "y"]), ("tier", ["front", "back"])] {
            if self.one_in(3) {
                let value = if clear && self.one_in(3) {
                    Value::Null
                } else {
                    json!(self.pick(&values))
                };
                put(content, &format!("/metadata/labels/{key}"), value);
            }
        }
        if self.one_in(6) {
            let value = *self.pick(&["1", "2"]);
            put(content, "/metadata/annotations/note", json!(value));
        }
        if self.one_in(8) {
            let finalizers = self
                .pick(&[
                    json!(["x.y/one"]),
                    json!(["x.y/one", "x.y/two"]),
                    json!([]),
                    json!(["bad"]),
                ])
                .clone();
            put(content, "/metadata/finalizers", finalizers);
        }
        if self.one_in(30) {
            put(content, "/surplus", json!(1));
        }
    }

    /// The revision of an earlier answer, mostly the last one.
    fn revision(&mut self, place: Place<'_>) -> Value {
        let turn = self.rng.usize(..2);
        Value::from(format!("${{{}.metadata.resourceVersion}}", place.slot(turn)))
    }

    pub(super) fn create(&mut self, place: Place<'_>) -> Step {
        let body = self.content(&place.kind.required, place.kind, false);
        let query = self.manager();
        let step = self.request(place, "POST", &place.kind.collection, &query);
        Step {
            body: Some(named(place, body)),
            ..step
        }
    }

    pub(super) fn update(&mut self, place: Place<'_>) -> Step {
        let query = self.manager();
        let step = self.request(place, "PUT", &place.path(), &query);
        // As a controller does it: what was read, changed, and sent back whole.
        let body = if self.one_in(2) {
            let change = self.content(&json!({}), place.kind, true);
            json!({"$of": place.slot(self.rng.usize(..2)), "$with": change})
        } else {
            let mut body = self.content(&place.kind.required, place.kind, false);
            if self.one_in(2) {
                body["metadata"]["resourceVersion"] = self.revision(place);
            }
            named(place, body)
        };
        Step {
            body: Some(body),
            ..step
        }
    }

    pub(super) fn merge(&mut self, place: Place<'_>) -> Step {
        let query = self.manager();
        let mut patch = self.content(&json!({}), place.kind, true);
        if self.one_in(6) {
            patch["metadata"]["resourceVersion"] = self.revision(place);
        }
        let step = self.request(place, "PATCH", &place.path(), &query);
        Step {
            merge: Some(patch),
            ..step
        }
    }

    pub(super) fn json(&mut self, place: Place<'_>) -> Step {
        let query = self.manager();
        let patch = if self.one_in(2) {
            self.pick(&place.kind.json).clone()
        } else {
            let pieces: Vec<_> = place.kind.pieces.iter().collect();
            let operations = (0..self.rng.usize(1..=2)).map(|_| {
                let (at, values) = *self.pick(&pieces);
                let value = self.pick(values).clone();
                match self.rng.usize(..6) {
                    0 => json!({"op": "remove", "path": at}),
                    1 => json!({"op": "test", "path": at, "value": value}),
                    2 => json!({"op": "replace", "path": at, "value": value}),
                    _ => json!({"op": "add", "path": at, "value": value}),
                }
            });
            operations.collect()
        };
        let step = self.request(place, "PATCH", &place.path(), &query);
        Step {
            json: Some(patch),
            ..step
        }
    }

    pub(super) fn strategic(&mut self, place: Place<'_>) -> Step {
        let query = self.manager();
        let patch = if self.one_in(2) {
            self.pick(&place.kind.strategic).clone()
        } else {
            self.content(&json!({}), place.kind, true)
        };
        let step = self.request(place, "PATCH", &place.path(), &query);
        Step {
            strategic: Some(patch),
            ..step
        }
    }

    fn apply_query(&mut self) -> Vec<String> {
        let mut query = vec![format!("fieldManager=m{}", self.rng.usize(1..=3))];
        if self.one_in(3) {
            query.push("force=true".to_owned());
        }
        query
    }

    pub(super) fn apply(&mut self, place: Place<'_>) -> Step {
        let query = self.apply_query();
        let base = if self.one_in(3) {
            json!({})
        } else {
            place.kind.applied.clone()
        };
        let mut body = self.content(&base, place.kind, false);
        if self.one_in(12) {
            body["metadata"]["resourceVersion"] = self.revision(place);
        }
        let step = self.request(place, "PATCH", &place.path(), &query);
        Step {
            apply: Some(named(place, body)),
            ..step
        }
    }

    pub(super) fn status(&mut self, place: Place<'_>) -> Step {
        let target = format!("{}/status", place.path());
        let mut content = json!({});
        let pieces: Vec<_> = place.kind.status.iter().collect();
        for _ in 0..self.rng.usize(1..=3) {
            let (at, values) = *self.pick(&pieces);
            let value = if self.one_in(8) {
                Value::Null
            } else {
                self.pick(values).clone()
            };
            put(&mut content, at, value);
        }
        if self.one_in(6) {
            // Must stay without effect.
            content = merged(content, self.content(&json!({}), place.kind, false));
        }
        let manager = self.manager();
        match self.rng.usize(..10) {
            0..3 => {
                let query = self.apply_query();
                Step {
                    apply: Some(named(place, content)),
                    ..self.request(place, "PATCH", &target, &query)
                }
            }
            3..5 => {
                let body = json!({"$of": place.slot(self.rng.usize(..2)), "$with": content});
                Step {
                    body: Some(body),
                    ..self.request(place, "PUT", &target, &manager)
                }
            }
            5..7 if !place.kind.strategic_status.is_empty() => {
                let patch = self.pick(&place.kind.strategic_status).clone();
                Step {
                    strategic: Some(patch),
                    ..self.request(place, "PATCH", &target, &manager)
                }
            }
            _ => Step {
                merge: Some(content),
                ..self.request(place, "PATCH", &target, &manager)
            },
        }
    }

    pub(super) fn special(&mut self, place: Place<'_>) -> Step {
        let mut step = self.pick(&place.kind.special).clone();
        let fill = |text: &str| {
            text.replace("$object", &place.path())
                .replace("$name", &place.object_name())
        };
        step.action = fill(&step.action);
        let refill = |value: &Value| serde_json::from_str(&fill(&value.to_string())).unwrap_or(Value::Null);
        step.body = step.body.as_ref().map(refill);
        step
    }

    pub(super) fn delete(&mut self, place: Place<'_>) -> Step {
        let mut options = Map::new();
        if self.one_in(4) {
            options.insert("gracePeriodSeconds".to_owned(), json!(*self.pick(&[0, 5, -1])));
        }
        if self.one_in(5) {
            let policy = *self.pick(&["Background", "Foreground", "Orphan", "Sometimes"]);
            options.insert("propagationPolicy".to_owned(), json!(policy));
        }
        if self.one_in(5) {
            let turn = self.rng.usize(..2);
            let preconditions = if self.one_in(2) {
                json!({"resourceVersion": self.revision(place)})
            } else {
                json!({"uid": format!("${{{}.metadata.uid}}", place.slot(turn))})
            };
            options.insert("preconditions".to_owned(), preconditions);
        }
        let query = if self.one_in(12) { "?dryRun=All" } else { "" };
        let body = (!options.is_empty()).then_some(Value::Object(options));
        Step {
            action: format!("DELETE {}{query}", place.path()),
            body,
            ..Step::default()
        }
    }

    pub(super) fn list(&mut self, place: Place<'_>) -> Step {
        let own = if place.kind.cluster_wide { "run%3D$ns," } else { "" };
        let mut query = vec![match self.rng.usize(..5) {
            0 => format!("labelSelector={own}app%3Dx"),
            1 => format!("labelSelector={own}app%20notin%20%28x%29"),
            2 => format!("labelSelector={own}tier"),
            _ => everything(place.kind, "")
                .split_once('?')
                .map_or(String::new(), |(_, query)| query.to_owned()),
        }];
        // Other sequences run at the same time: whether there is more behind a page of cluster-wide objects is chance.
        if self.one_in(3) && !place.kind.cluster_wide {
            query.push("limit=1".to_owned());
        }
        if self.one_in(3) {
            query.push(format!("fieldSelector=metadata.name%3D{}", place.object_name()));
        }
        query.retain(|part| !part.is_empty());
        Step {
            action: format!("GET {}?{}", place.kind.collection, query.join("&")),
            ..Step::default()
        }
    }
}

fn merged(mut below: Value, above: Value) -> Value {
    if let (Value::Object(below), Value::Object(above)) = (&mut below, above) {
        below.extend(above);
    }
    below
}

//! Masks what two equal servers must differ in: uids (numbered in order of appearance), resourceVersions of objects (ranked, so that order and
//! equality stay visible), times of this run (those to come with their distance in half minutes), continue tokens, ages in tables, random name suffixes, addresses
//! that a server picks. Everything else is left as it is.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use regex::{Captures, Regex};
use serde_json::{Map, Value};

use crate::Error;

/// The expressions, compiled once a run.
#[derive(Debug)]
pub(crate) struct Patterns {
    uid: Regex,
    time: Regex,
    age: Regex,
    suffix: Regex,
    revisions_in_text: Regex,
    too_old: Regex,
    service_address: Regex,
    node_port: Regex,
}

impl Patterns {
    pub(crate) fn new() -> Result<Self, Error> {
        let compile = |text: &str| Regex::new(text).map_err(|error| Error::Target(error.to_string()));
        Ok(Self {
            uid: compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")?,
            time: compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")?,
            age: compile(r"^\d+(y|d|h|m|s|ms)(\d+(d|h|m|s))?$")?,
            // The generated part of names whose generateName is `gen-`, or `Bad_`: the alphabet is that of `k8s.io/apimachinery/pkg/util/rand`.
            suffix: compile(r"\b(gen-|Bad_)[bcdfghjklmnpqrstvwxz2456789]{5}\b")?,
            revisions_in_text: compile(
                r"(current: |ResourceVersion in object meta: |ResourceVersion in precondition: |ResourceVersion in the precondition \(|ResourceVersion in record \()\d+",
            )?,
            too_old: compile(r"too old resource version: \d+ \(\d+\)")?,
            service_address: compile(r"\b10\.0\.0\.\d+\b")?,
            node_port: compile(r":3[0-2]\d{3}/(TCP|UDP|SCTP)")?,
        })
    }
}

/// Masks all answers of one case from one server.
pub(crate) struct Masker<'a> {
    patterns: &'a Patterns,
    uids: BTreeMap<String, usize>,
    ranks: BTreeMap<u64, usize>,
    now: Timestamp,
}

impl<'a> Masker<'a> {
    /// Looks at all answers first: the rank of a revision is known only then.
    pub(crate) fn new<'b>(patterns: &'a Patterns, now: Timestamp, bodies: impl Iterator<Item = &'b Value>) -> Self {
        let mut revisions = BTreeSet::new();
        bodies.for_each(|body| collect_revisions(body, &mut revisions));
        let ranks = revisions
            .into_iter()
            .enumerate()
            .map(|(rank, revision)| (revision, rank + 1))
            .collect();
        Self {
            patterns,
            uids: BTreeMap::new(),
            ranks,
            now,
        }
    }

    pub(crate) fn value(&mut self, value: &Value) -> Value {
        match value {
            Value::Object(fields) => self.object(fields),
            Value::Array(items) => items.iter().map(|item| self.value(item)).collect(),
            Value::String(text) => Value::String(self.text(text)),
            other => other.clone(),
        }
    }

    fn object(&mut self, fields: &Map<String, Value>) -> Value {
        let mut out = Map::new();
        for (key, field) in fields {
            let masked = match (key.as_str(), field) {
                ("metadata", Value::Object(metadata)) => self.metadata(metadata, is_collection(fields)),
                ("rows", Value::Array(rows)) => self.rows(rows, fields),
                ("nodePort" | "healthCheckNodePort", Value::Number(_)) => Value::from("<port>"),
                // Where the server itself listens, in the Service `kubernetes`.
                ("targetPort", Value::Number(port))
                    if port.as_u64().is_some_and(|port| port == 6443 || port > 32_767) =>
                {
                    Value::from("<port>")
                }
                ("causes", Value::Array(causes)) => self.causes(causes),
                _ => self.value(field),
            };
            // The keys of field sets name list items, by uid in the case of owners.
            out.insert(self.text(key), masked);
        }
        let mut out = Value::Object(out);
        if out["kind"] == "Status" {
            Self::in_order(&mut out);
        }
        out
    }

    /// Much is checked in the order of a Go map (the properties of a custom resource, labels), so that which of several problems is told
    /// first is chance; and nobody reads more into it where it is not.
    fn in_order(status: &mut Value) {
        let message = status["message"].as_str().unwrap_or_default();
        let Some((start, _)) = message.split_once(" is invalid: [") else {
            return;
        };
        let start = start.to_owned();
        let Some(causes) = status["details"]["causes"].as_array_mut() else {
            return;
        };
        let field = |cause: &Value| cause["field"].as_str().unwrap_or_default().to_owned();
        causes.sort_by_key(ToString::to_string);
        let told = causes
            .iter()
            .map(|cause| format!("{}: {}", field(cause), cause["message"].as_str().unwrap_or_default()));
        let mut told: Vec<String> = told.collect();
        told.dedup();
        status["message"] = Value::from(format!("{start} is invalid: [{}]", told.join(", ")));
    }

    /// Conflicts with several managers come in the order of a Go map, which is chance.
    fn causes(&mut self, causes: &[Value]) -> Value {
        let mut masked: Vec<Value> = causes.iter().map(|cause| self.value(cause)).collect();
        if masked.iter().all(|cause| cause["reason"] == "FieldManagerConflict") {
            masked.sort_by_key(ToString::to_string);
        }
        Value::Array(masked)
    }

    fn metadata(&mut self, metadata: &Map<String, Value>, of_collection: bool) -> Value {
        let mut out = Map::new();
        for (key, field) in metadata {
            let masked = match (key.as_str(), field) {
                ("resourceVersion", Value::String(text)) => Value::from(self.revision(text, of_collection)),
                ("continue", Value::String(token)) if !token.is_empty() => Value::from("<continue>"),
                ("managedFields", Value::Array(entries)) => self.managers(entries),
                _ => self.value(field),
            };
            out.insert(key.clone(), masked);
        }
        Value::Object(out)
    }

    /// A collection's revision is that of the whole store, which on the real server moves by itself.
    fn revision(&self, text: &str, of_collection: bool) -> String {
        match text.parse::<u64>() {
            Ok(0) | Err(_) => text.to_owned(),
            Ok(_) if of_collection => "<revision>".to_owned(),
            Ok(revision) => self
                .ranks
                .get(&revision)
                .map_or_else(|| text.to_owned(), |rank| format!("<revision {rank}>")),
        }
    }

    /// The real server sorts managers by time in whole seconds first: which second a write falls into is chance.
    fn managers(&mut self, entries: &[Value]) -> Value {
        let mut masked: Vec<Value> = entries.iter().map(|entry| self.value(entry)).collect();
        let text = |entry: &Value, key: &str| entry[key].as_str().unwrap_or_default().to_owned();
        masked.sort_by_key(|entry| ["operation", "manager", "subresource", "apiVersion"].map(|key| text(entry, key)));
        Value::Array(masked)
    }

    /// Ages in the cells of a Table.
    fn rows(&mut self, rows: &[Value], table: &Map<String, Value>) -> Value {
        let columns: Vec<&str> = table
            .get("columnDefinitions")
            .and_then(Value::as_array)
            .map(|columns| columns.iter().filter_map(|column| column["name"].as_str()).collect())
            .unwrap_or_default();
        let mut masked: Vec<Value> = rows.iter().map(|row| self.value(row)).collect();
        for row in &mut masked {
            for (index, cell) in row["cells"].as_array_mut().into_iter().flatten().enumerate() {
                // Without columns (all but the first Table of a watch) any duration is taken for an age.
                let aged = columns.is_empty()
                    || columns
                        .get(index)
                        .is_some_and(|name| ["Age", "Last Seen", "First Seen", "Duration"].contains(name));
                if aged && cell.as_str().is_some_and(|text| self.patterns.age.is_match(text)) {
                    *cell = Value::from("<age>");
                }
            }
        }
        Value::Array(masked)
    }

    pub(crate) fn text(&mut self, text: &str) -> String {
        let patterns = self.patterns;
        let numbered = patterns.uid.replace_all(text, |found: &Captures<'_>| {
            let next = self.uids.len() + 1;
            format!("<uid {}>", self.uids.entry(found[0].to_owned()).or_insert(next))
        });
        let timed = patterns
            .time
            .replace_all(&numbered, |found: &Captures<'_>| self.time(&found[0]));
        let named = patterns.suffix.replace_all(&timed, "$1<random>");
        let revised = patterns.revisions_in_text.replace_all(&named, "$1<revision>");
        let revised = patterns
            .too_old
            .replace_all(&revised, "too old resource version: <revision> (<revision>)");
        let addressed = patterns.service_address.replace_all(&revised, "<service address>");
        patterns.node_port.replace_all(&addressed, ":<port>/$1").into_owned()
    }

    /// A time of this run, one that is to come in steps of half a minute, in the form it had; any other is data.
    fn time(&self, text: &str) -> String {
        let Ok(time) = text.parse::<Timestamp>() else {
            return text.to_owned();
        };
        let form = if text.contains('.') { " micro" } else { "" };
        match time.as_second() - self.now.as_second() {
            // How long ago within this run says nothing: one server may be slower than the other.
            -3600..=14 => format!("<now{form}>"),
            distance @ 15..=600 => format!("<now{:+}{form}>", (distance + 15) / 30 * 30),
            _ => text.to_owned(),
        }
    }
}

/// Lists, Tables and bookmarks carry the revision of the store.
fn is_collection(object: &Map<String, Value>) -> bool {
    let kind = object.get("kind").and_then(Value::as_str).unwrap_or_default();
    let bookmark = object
        .get("metadata")
        .is_some_and(|metadata| metadata.get("uid").is_none() && metadata.get("name").is_none());
    kind.ends_with("List") || kind == "Table" || bookmark
}

fn collect_revisions(value: &Value, into: &mut BTreeSet<u64>) {
    match value {
        Value::Object(fields) => {
            for (key, field) in fields {
                let revision: Option<u64> = (key == "metadata" && !is_collection(fields))
                    .then(|| field["resourceVersion"].as_str().and_then(|text| text.parse().ok()))
                    .flatten();
                into.extend(revision.filter(|revision| *revision != 0));
                collect_revisions(field, into);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect_revisions(item, into)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn masked(value: &Value) -> Value {
        let patterns = Patterns::new().unwrap();
        let now: Timestamp = "2026-01-02T03:04:05Z".parse().unwrap();
        Masker::new(&patterns, now, [value].into_iter()).value(value)
    }

    #[test]
    fn what_must_differ_is_masked_and_the_rest_is_not() {
        let object = json!({"kind": "Pod", "metadata": {
            "name": "gen-x5f2k", "uid": "0a1b2c3d-0000-4000-8000-000000000001", "resourceVersion": "17",
            "creationTimestamp": "2026-01-02T03:04:01Z", "deletionTimestamp": "2026-01-02T03:04:35Z",
        }, "spec": {"when": "2001-01-01T00:00:00Z", "resourceVersion": "17"}});
        let expected = json!({"kind": "Pod", "metadata": {
            "name": "gen-<random>", "uid": "<uid 1>", "resourceVersion": "<revision 1>",
            "creationTimestamp": "<now>", "deletionTimestamp": "<now+30>",
        }, "spec": {"when": "2001-01-01T00:00:00Z", "resourceVersion": "17"}});
        assert_eq!(masked(&object), expected);
    }

    #[test]
    fn revisions_keep_their_order() {
        let object = |revision: &str| json!({"kind": "Pod", "metadata": {"name": "a", "resourceVersion": revision}});
        let list = json!({"kind": "PodList", "metadata": {"resourceVersion": "50"}, "items": [object("9"), object("30"), object("9")]});
        let list = masked(&list);
        let ranks = ["/items/0", "/items/1", "/items/2"]
            .map(|item| list.pointer(item).unwrap()["metadata"]["resourceVersion"].clone());
        assert_eq!(ranks, ["<revision 1>", "<revision 2>", "<revision 1>"]);
        assert_eq!(list["metadata"]["resourceVersion"], "<revision>");
    }

    #[test]
    fn problems_have_no_order() {
        let status = |first: &str, second: &str, group: &str| {
            json!({"kind": "Status", "message": format!("W \"a\" is invalid: [{first}: no, {second}: no]"), "details": {
                "group": group, "causes": [{"field": first, "message": "no"}, {"field": second, "message": "no"}],
            }})
        };
        assert_eq!(masked(&status("a", "b", "x.dev")), masked(&status("b", "a", "x.dev")));
        assert_ne!(masked(&status("a", "b", "apps")), masked(&status("a", "c", "apps")));
    }
}

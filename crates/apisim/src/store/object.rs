//! One stored object: immutable, shared by the table, the history and everyone who reads it. Its JSON is made once,
//! however many watchers and lists send it. An object that nobody has written for a while is kept as that JSON alone:
//! as a tree it takes ten times the memory.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use serde::Serialize;
use serde_json::Value;

use super::cold;

/// A stored object with its revision.
#[derive(Debug)]
pub struct Object {
    /// With folded field sets: see [`afloat_apischema::apply::unfold`]. Missing until it is asked for where `cold` says what the
    /// body does not.
    value: OnceLock<Value>,
    cold: Option<Box<Beside>>,
    revision: u64,
    /// The JSON without `apiVersion` and `kind`: lists of built-in kinds leave them out, and custom resources are
    /// sent in whichever version was asked for.
    body: OnceLock<Bytes>,
}

/// What is kept beside the text of a cold object: what the text leaves out, and what those read who walk whole tables.
#[derive(Debug)]
struct Beside {
    api_version: Option<Value>,
    kind: Option<Value>,
    name: Box<str>,
    namespace: Box<str>,
    uid: Box<str>,
    node: Box<str>,
    owners: Box<[Box<str>]>,
    terminating: bool,
}

impl Beside {
    fn of(object: &Object, value: &Value) -> Self {
        Self {
            api_version: value.get("apiVersion").cloned(),
            kind: value.get("kind").cloned(),
            name: object.name().into(),
            namespace: object.namespace().into(),
            uid: object.uid().into(),
            node: object.node().into(),
            owners: object.owner_uids().map(Box::from).collect(),
            terminating: object.is_terminating(),
        }
    }

    fn thaw(&self, body: &[u8]) -> Value {
        let mut value = cold::read(body);
        if let Some(fields) = value.as_object_mut() {
            let type_meta = [("apiVersion", &self.api_version), ("kind", &self.kind)];
            fields.extend(
                type_meta
                    .into_iter()
                    .filter_map(|(key, text)| Some((key.to_owned(), text.clone()?))),
            );
        }
        value
    }
}

impl Object {
    pub fn new(value: Value, revision: u64) -> Arc<Self> {
        Arc::new(Self {
            value: OnceLock::from(value),
            cold: None,
            revision,
            body: OnceLock::new(),
        })
    }

    /// The same object as text alone; nothing for one that is.
    pub(super) fn cooled(&self) -> Option<Arc<Self>> {
        let value = self.value.get()?;
        Some(Arc::new(Self {
            value: OnceLock::new(),
            cold: Some(Box::new(Beside::of(self, value))),
            revision: self.revision,
            body: OnceLock::from(self.body().clone()),
        }))
    }

    /// Whether somebody has asked for its text.
    pub(super) fn has_text(&self) -> bool {
        self.body.get().is_some()
    }

    /// Whether it is text alone at this moment.
    #[cfg(test)]
    pub fn is_cold(&self) -> bool {
        self.value.get().is_none()
    }

    /// The tree, which is kept from now on: for those who read this object and few others.
    pub fn value(&self) -> &Value {
        self.value.get_or_init(|| self.thawed())
    }

    /// Looks at the tree of an object that may be one of very many: that of a cold one is not kept.
    pub fn read<T>(&self, look: impl FnOnce(&Value) -> T) -> T {
        match self.value.get() {
            Some(value) => look(value),
            None => look(&self.thawed()),
        }
    }

    fn thawed(&self) -> Value {
        match (&self.cold, self.body.get()) {
            (Some(beside), Some(body)) => beside.thaw(body),
            _ => Value::Null,
        }
    }

    pub fn revision(&self) -> u64 {
        self.revision
    }

    pub fn metadata(&self, key: &str) -> Option<&Value> {
        self.value().get("metadata")?.get(key)
    }

    /// A text of the metadata, which a cold object has beside its own.
    fn named<'o>(&'o self, key: &str, beside: impl FnOnce(&'o Beside) -> &'o str) -> &'o str {
        match (&self.cold, self.value.get()) {
            (Some(cold), None) => beside(cold),
            _ => self.metadata(key).and_then(Value::as_str).unwrap_or_default(),
        }
    }

    pub fn api_version(&self) -> &str {
        let stored = match (&self.cold, self.value.get()) {
            (Some(cold), None) => cold.api_version.as_ref(),
            _ => self.value().get("apiVersion"),
        };
        stored.and_then(Value::as_str).unwrap_or_default()
    }

    pub fn name(&self) -> &str {
        self.named("name", |beside| &beside.name)
    }

    pub fn namespace(&self) -> &str {
        self.named("namespace", |beside| &beside.namespace)
    }

    pub fn uid(&self) -> &str {
        self.named("uid", |beside| &beside.uid)
    }

    /// The node it names in `spec.nodeName`.
    pub fn node(&self) -> &str {
        if let (Some(cold), None) = (&self.cold, self.value.get()) {
            return &cold.node;
        }
        let spec = self.value().get("spec");
        spec.and_then(|spec| spec.get("nodeName"))
            .and_then(Value::as_str)
            .unwrap_or_default()
    }

    /// The uids of its owners.
    pub fn owner_uids(&self) -> impl Iterator<Item = &str> {
        let cold = self.cold.as_ref().filter(|_| self.value.get().is_none());
        let tree = match cold {
            Some(_) => None,
            None => self.metadata("ownerReferences").and_then(Value::as_array),
        };
        let beside = cold.into_iter().flat_map(|cold| cold.owners.iter().map(AsRef::as_ref));
        let named = tree.into_iter().flatten();
        beside.chain(named.filter_map(|owner| owner.get("uid")?.as_str()))
    }

    pub fn is_terminating(&self) -> bool {
        match (&self.cold, self.value.get()) {
            (Some(cold), None) => cold.terminating,
            _ => self.metadata("deletionTimestamp").is_some(),
        }
    }

    /// The same object as of another revision: what a watcher is shown when it stops matching.
    pub fn at_revision(&self, revision: u64) -> Arc<Self> {
        let mut value = self.value.get().map_or_else(|| self.thawed(), Value::clone);
        set_resource_version(&mut value, revision);
        Self::new(value, revision)
    }

    /// The JSON object without `apiVersion` and `kind`.
    pub fn body(&self) -> &Bytes {
        self.body.get_or_init(|| untyped_json(self.value()))
    }
}

/// Serialises an object without its `apiVersion` and `kind`. Field sets are folded in storage and not in what is sent.
pub fn untyped_json(value: &Value) -> Bytes {
    let mut body = Vec::with_capacity(2048);
    let Some(fields) = value.as_object() else {
        push_json(&mut body, value);
        return Bytes::from(body);
    };
    let shown = fields.iter().filter(|(key, _)| *key != "apiVersion" && *key != "kind");
    push_fields(&mut body, shown, |body, key, field| match field {
        Value::Object(metadata) if key == "metadata" => push_fields(body, metadata, push_metadata),
        other => push_json(body, other),
    });
    Bytes::from(body)
}

fn push_metadata(body: &mut Vec<u8>, key: &str, field: &Value) {
    let Some(entries) = field.as_array().filter(|_| key == "managedFields") else {
        return push_json(body, field);
    };
    body.push(b'[');
    for (index, entry) in entries.iter().enumerate() {
        if index > 0 {
            body.push(b',');
        }
        push_fields(
            body,
            entry.as_object().into_iter().flatten(),
            |body, key, field| match field {
                Value::String(folded) if key == "fieldsV1" => body.extend_from_slice(folded.as_bytes()),
                other => push_json(body, other),
            },
        );
    }
    body.push(b']');
}

fn push_fields<'v>(
    body: &mut Vec<u8>,
    fields: impl IntoIterator<Item = (&'v String, &'v Value)>,
    push: impl Fn(&mut Vec<u8>, &str, &Value),
) {
    body.push(b'{');
    for (index, (key, field)) in fields.into_iter().enumerate() {
        if index > 0 {
            body.push(b',');
        }
        push_json(body, key);
        body.push(b':');
        push(body, key, field);
    }
    body.push(b'}');
}

/// Into memory, so that there is nothing to fail: keys are texts and numbers finite.
fn push_json(body: &mut Vec<u8>, value: &(impl Serialize + ?Sized)) {
    let _ = serde_json::to_writer(body, value);
}

/// Puts `kind` and `apiVersion` in front of an untyped JSON object.
pub fn typed_json(body: &[u8], kind: &str, api_version: &str, into: &mut Vec<u8>) {
    into.extend_from_slice(b"{\"kind\":\"");
    into.extend_from_slice(kind.as_bytes());
    into.extend_from_slice(b"\",\"apiVersion\":\"");
    into.extend_from_slice(api_version.as_bytes());
    into.push(b'"');
    if body.len() > 2 {
        into.push(b',');
    }
    into.extend_from_slice(&body[1.min(body.len())..]);
}

pub fn set_resource_version(value: &mut Value, revision: u64) {
    if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("resourceVersion".into(), revision.to_string().into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn folded_field_sets_are_sent_unfolded() {
        let folded = json!({"metadata": {"managedFields": [
            {"manager": "a", "fieldsV1": "{\"f:x\":{\".\":{}}}"}, {"manager": "b", "fieldsV1": "{}"},
        ]}, "spec": {"fieldsV1": "{}"}});
        let sent: Value = serde_json::from_slice(&untyped_json(&folded)).unwrap();
        let mut unfolded = folded.clone();
        afloat_apischema::apply::unfold(&mut unfolded);
        assert_eq!(sent, unfolded);
        assert_eq!(
            sent["metadata"]["managedFields"][0]["fieldsV1"],
            json!({"f:x": {".": {}}})
        );
        assert_eq!(sent["spec"]["fieldsV1"], "{}");
    }

    #[test]
    fn an_object_kept_as_text_reads_as_before() {
        let value = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "resourceVersion": "3", "managedFields": [
            {"manager": "a", "fieldsV1": "{\"f:z\":{},\"f:a\":{\".\":{}}}", "time": "2026-01-01T00:00:00Z"}, {"manager": "b"},
        ]}, "spec": {"fieldsV1": {"a": 1}, "x": 0.1, "y": 5e-324, "z": u64::MAX, "text": "\u{7f} \"\n", "metadata": {"managedFields": [{"fieldsV1": {}}]}}});
        let object = Object::new(value.clone(), 3);
        let body = object.body().clone();
        let cold = object.cooled().unwrap();
        assert!(cold.cooled().is_none(), "it is cold");
        assert_eq!((cold.body(), cold.revision()), (&body, 3));
        assert_eq!(cold.value(), &value);
        let bare = Object::new(json!({"metadata": {"name": "a"}}), 1);
        assert_eq!(bare.cooled().unwrap().value(), bare.value());
    }

    #[test]
    fn whoever_walks_a_table_leaves_cold_objects_cold() {
        let owners = json!([{"kind": "ReplicaSet", "uid": "u-1"}, {"kind": "Nothing"}, {"uid": "u-2"}]);
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {
            "name": "a", "namespace": "n", "uid": "u", "ownerReferences": owners, "deletionTimestamp": "2026-01-01T00:00:00Z",
        }, "spec": {"nodeName": "w"}});
        let look = |object: &Object| {
            let owners: Vec<String> = object.owner_uids().map(str::to_owned).collect();
            let names = [object.name(), object.namespace(), object.uid(), object.node()].map(str::to_owned);
            let gone = object.at_revision(9).value().clone();
            (names, owners, object.is_terminating(), object.read(Value::clone), gone)
        };
        let bare = json!({"metadata": {"name": "a"}, "spec": {}});
        for value in [pod, bare] {
            let object = Object::new(value, 3);
            let cold = object.cooled().unwrap();
            assert_eq!(look(&cold), look(&object));
            assert!(cold.cooled().is_none(), "it has no tree");
        }
    }

    #[test]
    fn kind_and_version_are_put_in_front_of_the_shared_body() {
        let object = Object::new(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}), 1);
        let mut typed = Vec::new();
        typed_json(object.body(), "Pod", "v1", &mut typed);
        let read: Value = serde_json::from_slice(&typed).unwrap();
        assert_eq!(&read, object.value());
        let mut empty = Vec::new();
        typed_json(b"{}", "Pod", "v1", &mut empty);
        assert_eq!(
            serde_json::from_slice::<Value>(&empty).unwrap(),
            json!({"apiVersion": "v1", "kind": "Pod"})
        );
    }
}

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
    cold: Option<TypeMeta>,
    revision: u64,
    /// The JSON without `apiVersion` and `kind`: lists of built-in kinds leave them out, and custom resources are
    /// sent in whichever version was asked for.
    body: OnceLock<Bytes>,
}

/// What an object's body leaves out.
#[derive(Debug)]
struct TypeMeta {
    api_version: Option<Value>,
    kind: Option<Value>,
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

    /// The same object as text alone, where the text was made already.
    pub(super) fn cooled(&self) -> Option<Arc<Self>> {
        let (value, body) = (self.value.get()?, self.body.get()?);
        Some(Arc::new(Self {
            value: OnceLock::new(),
            cold: Some(TypeMeta {
                api_version: value.get("apiVersion").cloned(),
                kind: value.get("kind").cloned(),
            }),
            revision: self.revision,
            body: OnceLock::from(body.clone()),
        }))
    }

    pub fn value(&self) -> &Value {
        self.value.get_or_init(|| {
            let mut value = self.body.get().map(|body| cold::read(body)).unwrap_or_default();
            if let (Some(left_out), Some(fields)) = (&self.cold, value.as_object_mut()) {
                let type_meta = [("apiVersion", &left_out.api_version), ("kind", &left_out.kind)];
                fields.extend(
                    type_meta
                        .into_iter()
                        .filter_map(|(key, text)| Some((key.to_owned(), text.clone()?))),
                );
            }
            value
        })
    }

    pub fn revision(&self) -> u64 {
        self.revision
    }

    pub fn metadata(&self, key: &str) -> Option<&Value> {
        self.value().get("metadata")?.get(key)
    }

    pub fn name(&self) -> &str {
        self.metadata("name").and_then(Value::as_str).unwrap_or_default()
    }

    pub fn namespace(&self) -> &str {
        self.metadata("namespace").and_then(Value::as_str).unwrap_or_default()
    }

    pub fn uid(&self) -> &str {
        self.metadata("uid").and_then(Value::as_str).unwrap_or_default()
    }

    pub fn is_terminating(&self) -> bool {
        self.metadata("deletionTimestamp").is_some()
    }

    /// The same object as of another revision: what a watcher is shown when it stops matching.
    pub fn at_revision(&self, revision: u64) -> Arc<Self> {
        let mut value = self.value().clone();
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
        assert!(object.cooled().is_none(), "nobody has asked for its text");
        let body = object.body().clone();
        let cold = object.cooled().unwrap();
        assert!(cold.cooled().is_none(), "it is cold");
        assert_eq!((cold.body(), cold.revision()), (&body, 3));
        assert_eq!(cold.value(), &value);
        let bare = Object::new(json!({"metadata": {"name": "a"}}), 1);
        bare.body();
        assert_eq!(bare.cooled().unwrap().value(), bare.value());
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

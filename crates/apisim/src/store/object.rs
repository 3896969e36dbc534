//! One stored object: immutable, shared by the table, the history and everyone who reads it. Its JSON is made once,
//! however many watchers and lists send it.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::Value;

/// A stored object with its revision.
#[derive(Debug)]
pub struct Object {
    value: Value,
    revision: u64,
    /// The JSON without `apiVersion` and `kind`: lists of built-in kinds leave them out, and custom resources are
    /// sent in whichever version was asked for.
    body: OnceLock<Bytes>,
}

impl Object {
    pub fn new(value: Value, revision: u64) -> Arc<Self> {
        Arc::new(Self {
            value,
            revision,
            body: OnceLock::new(),
        })
    }

    pub fn value(&self) -> &Value {
        &self.value
    }

    pub fn revision(&self) -> u64 {
        self.revision
    }

    pub fn metadata(&self, key: &str) -> Option<&Value> {
        self.value.get("metadata")?.get(key)
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
        let mut value = self.value.clone();
        set_resource_version(&mut value, revision);
        Self::new(value, revision)
    }

    /// The JSON object without `apiVersion` and `kind`.
    pub fn body(&self) -> &Bytes {
        self.body.get_or_init(|| untyped_json(&self.value))
    }
}

/// Serialises an object without its `apiVersion` and `kind`.
pub fn untyped_json(value: &Value) -> Bytes {
    serde_json::to_vec(&Untyped(value)).map_or_else(|_| Bytes::from_static(b"{}"), Bytes::from)
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

struct Untyped<'a>(&'a Value);

impl Serialize for Untyped<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Some(fields) = self.0.as_object() else {
            return self.0.serialize(serializer);
        };
        let mut map = serializer.serialize_map(None)?;
        for (key, value) in fields.iter().filter(|(key, _)| *key != "apiVersion" && *key != "kind") {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

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

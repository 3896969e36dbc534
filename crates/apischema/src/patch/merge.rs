//! Merge patches (RFC 7386) as evanphx/json-patch v4 applies them, which differs from the RFC in one thing: nulls go
//! from objects inside of lists too when a list is new.

use serde_json::{Map, Value};

use super::{PatchError, not_an_object};
use crate::decode::{Format, parse};

/// Applies a merge patch to an object.
///
/// # Errors
/// `BadRequest` when the patch is not a JSON object.
pub fn merge_patch(doc: &Value, patch: &[u8]) -> Result<Value, PatchError> {
    let bad = |why: String| PatchError::BadRequest(format!("error decoding patch: {why}"));
    let patch = parse(patch, Format::Json).map_err(|error| bad(error.0))?.value;
    match &patch {
        Value::Object(fields) => {
            let mut doc = doc.clone();
            if !doc.is_object() {
                doc = Value::Object(Map::new());
            }
            merge_fields(&mut doc, fields);
            Ok(doc)
        }
        Value::Null => Err(PatchError::BadRequest("Invalid JSON Patch".to_owned())),
        other => Err(bad(not_an_object(other))),
    }
}

/// Merges a patch that is parsed already into a document.
pub fn merge_values(doc: &mut Value, patch: &Value) {
    match patch {
        Value::Object(fields) if doc.is_object() => merge_fields(doc, fields),
        // Only a patch that meets a map is merged; one that meets something else takes its place without its nulls.
        Value::Object(_) => *doc = without_nulls(patch),
        other if doc.is_object() => *doc = other.clone(),
        other => *doc = without_nulls(other),
    }
}

fn merge_fields(doc: &mut Value, patch: &Map<String, Value>) {
    let Some(doc) = doc.as_object_mut() else { return };
    for (name, value) in patch {
        if value.is_null() {
            doc.remove(name);
            continue;
        }
        match doc.get_mut(name).filter(|current| !current.is_null()) {
            Some(current) => merge_values(current, value),
            None => {
                doc.insert(name.clone(), without_nulls(value));
            }
        }
    }
}

/// The value without null fields at any depth; null items of lists stay.
fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let kept = fields.iter().filter(|(_, value)| !value.is_null());
            Value::Object(kept.map(|(name, value)| (name.clone(), without_nulls(value))).collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(without_nulls).collect()),
        other => other.clone(),
    }
}

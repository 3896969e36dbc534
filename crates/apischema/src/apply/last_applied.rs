//! The way from client-side apply to server-side apply: `kubectl` may take over, without force, the fields that its
//! own last-applied annotation names and that still have the values it gave them; and the annotation is kept up.

use serde_json::{Map, Value};

use super::Manager;
use super::compare::compare;
use super::fieldset::FieldSet;
use super::fieldsv1::escape_html;
use super::server_side::Conflict;
use super::types::Type;
use super::walk::{field_set, validate};
use crate::schema::SchemaRef;

/// The only manager that all this is for.
pub(super) const MANAGER: &str = "kubectl";
const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// What all annotations of an object may come to.
const MOST_ANNOTATION_BYTES: usize = 256 * 1024;

/// The conflicts that the annotation does not allow to take over.
pub(super) fn forgive(
    schema: SchemaRef<'_>,
    live: &Value,
    who: &Manager<'_>,
    conflicts: Vec<Conflict>,
) -> Vec<Conflict> {
    match allowed(schema, live, who) {
        Some(allowed) => conflicts
            .into_iter()
            .filter(|conflict| !allowed.has(&conflict.path))
            .collect(),
        None => conflicts,
    }
}

fn allowed(schema: SchemaRef<'_>, live: &Value, who: &Manager<'_>) -> Option<FieldSet> {
    let last: Value = serde_json::from_str(annotation(live)?).ok()?;
    if last.get("apiVersion").and_then(Value::as_str) != Some(who.api_version) {
        return None;
    }
    if last.get("kind").and_then(Value::as_str) != Some(who.kind) {
        return None;
    }
    let root = Type::root(schema);
    if !validate(root, &last, false).is_empty() || !validate(root, live, false).is_empty() {
        return None;
    }
    let changed = compare(root, &last, live).ok()?;
    let set = field_set(root, &last);
    Some(
        set.difference(&changed.modified)
            .difference(&changed.added)
            .difference(&changed.removed),
    )
}

fn annotation(object: &Value) -> Option<&str> {
    let annotations = object.pointer("/metadata/annotations")?;
    annotations
        .get(ANNOTATION)
        .and_then(Value::as_str)
        .filter(|text| !text.is_empty())
}

/// Writes the applied configuration into the annotation of an object that has one.
pub(super) fn refresh(object: &mut Value, applied: &Value) {
    if annotation(object).is_none() {
        return;
    }
    let mut last = applied.clone();
    if let Some(annotations) = last.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
        annotations.remove(ANNOTATION);
    }
    let text = format!("{}\n", escape_html(&last.to_string()));
    let Some(annotations) = object
        .pointer_mut("/metadata/annotations")
        .and_then(Value::as_object_mut)
    else {
        return;
    };
    annotations.insert(ANNOTATION.to_owned(), Value::String(text));
    if annotation_bytes(annotations) > MOST_ANNOTATION_BYTES {
        annotations.remove(ANNOTATION);
    }
}

fn annotation_bytes(annotations: &Map<String, Value>) -> usize {
    annotations
        .iter()
        .map(|(key, value)| key.len() + value.as_str().map_or(0, str::len))
        .sum()
}

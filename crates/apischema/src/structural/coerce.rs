//! Embedded metadata: `apiVersion`, `kind` and `metadata` of the root and of embedded resources must have the types
//! of the real ones; unknown fields of the latter are dropped, and embedded resources are checked as objects are.

use serde_json::{Value, json};

use super::names::{self, NameRule};
use super::object_meta::validate_object_meta;
use crate::builtin;
use crate::field_error::{FieldError, Path};
use crate::schema::SchemaRef;

/// Brings the object metadata of the root into its typed form; gives the paths of unknown fields, or the text with
/// which the API server refuses to decode the object.
pub fn coerce_metadata(object: &mut Value) -> Result<Vec<String>, String> {
    let Some(metadata) = object.get_mut("metadata") else {
        return Ok(Vec::new());
    };
    if metadata.is_null() {
        *metadata = json!({});
    }
    typed_metadata(metadata, &Path::root())
}

/// The same for the type and object metadata of embedded resources.
pub fn coerce_embedded(object: &mut Value, schema: SchemaRef<'_>) -> Result<Vec<String>, String> {
    let mut unknown = Vec::new();
    coerce(object, schema, &Path::root(), true, &mut unknown).map_err(|error| error.to_string())?;
    unknown.sort_unstable();
    Ok(unknown)
}

fn coerce(
    value: &mut Value,
    schema: SchemaRef<'_>,
    path: &Path,
    is_root: bool,
    unknown: &mut Vec<String>,
) -> Result<(), FieldError> {
    match value {
        Value::Object(fields) => {
            for (key, child) in fields.iter_mut() {
                if schema.embedded_resource && !is_root {
                    if matches!(key.as_str(), "apiVersion" | "kind") && !child.is_string() {
                        return Err(FieldError::invalid(&path.child(key), child.clone(), "must be a string"));
                    }
                    if key == "metadata" {
                        let before = child.clone();
                        let at = path.child(key);
                        let found =
                            typed_metadata(child, path).map_err(|text| FieldError::invalid(&at, before, text))?;
                        unknown.extend(found);
                    }
                }
                if !child.is_object() && !child.is_array() {
                    continue;
                }
                if let Some(id) = schema.node().properties.get(key) {
                    coerce(child, schema.child(*id), &path.child(key), false, unknown)?;
                } else if let Some(additional) = schema.additional() {
                    coerce(child, additional, &path.key(key), false, unknown)?;
                }
            }
        }
        Value::Array(items) => {
            let Some(item_schema) = schema.items() else {
                return Ok(());
            };
            for (index, item) in items.iter_mut().enumerate() {
                coerce(item, item_schema, &path.index(index), false, unknown)?;
            }
        }
        _ => {}
    }
    Ok(())
}

/// Decodes `metadata` as Go decodes the struct. A built-in kind with nothing else in it lends its metadata, hence the
/// rewriting of the texts: here the struct is decoded on its own.
fn typed_metadata(metadata: &mut Value, parent: &Path) -> Result<Vec<String>, String> {
    let mut holder = json!({"metadata": metadata.take()});
    let unknown = builtin::normalise("", "v1", "ConfigMap", &mut holder).map_err(|failure| {
        failure
            .0
            .replace("Go struct field ConfigMap.metadata of type", "Go value of type")
            .replacen(".metadata.", ".", 1)
    })?;
    *metadata = holder.get_mut("metadata").map_or_else(|| json!({}), Value::take);
    Ok(unknown
        .into_iter()
        .map(|path| parent.child(&path).to_string())
        .collect())
}

/// Checks of embedded resources: they must say what they are, and their metadata must be valid.
pub fn validate_embedded(value: &Value, schema: SchemaRef<'_>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    walk(value, schema, &Path::root(), &mut errors);
    errors
}

fn walk(value: &Value, schema: SchemaRef<'_>, path: &Path, errors: &mut Vec<FieldError>) {
    match value {
        Value::Object(fields) => {
            if schema.embedded_resource {
                check_embedded(value, path, errors);
            }
            for (key, child) in fields {
                if !child.is_object() && !child.is_array() {
                    continue;
                }
                if let Some(id) = schema.node().properties.get(key) {
                    walk(child, schema.child(*id), &path.child(key), errors);
                } else if let Some(additional) = schema.additional() {
                    walk(child, additional, &path.key(key), errors);
                }
            }
        }
        Value::Array(items) => {
            let Some(item_schema) = schema.items() else { return };
            for (index, item) in items.iter().enumerate() {
                walk(item, item_schema, &path.index(index), errors);
            }
        }
        _ => {}
    }
}

fn check_embedded(value: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    for key in ["apiVersion", "kind"] {
        let at = path.child(key);
        match value.get(key) {
            None => errors.push(FieldError::required(&at, "")),
            Some(Value::String(text)) if text.is_empty() => {
                errors.push(FieldError::invalid(&at, "", "must not be empty"));
            }
            Some(Value::String(text)) if key == "kind" => {
                let complaints = names::dns_1035_label(&text.to_lowercase());
                if !complaints.is_empty() {
                    let detail = format!(
                        "may have mixed case, but should otherwise match: {}",
                        complaints.join(",")
                    );
                    errors.push(FieldError::invalid(&at, text.as_str(), detail));
                }
            }
            Some(Value::String(text)) if text.matches('/').count() > 1 => {
                let detail = format!("unexpected GroupVersion string: {text}");
                errors.push(FieldError::invalid(&at, text.as_str(), detail));
            }
            Some(Value::String(_)) => {}
            Some(other) => errors.push(FieldError::invalid(&at, other.clone(), "must be a string")),
        }
    }
    if let Some(metadata) = value.get("metadata") {
        let mut metadata = metadata.clone();
        if metadata
            .get("name")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .is_empty()
            && metadata.is_object()
        {
            metadata["name"] = json!("fakename");
        }
        let namespaced = metadata
            .get("namespace")
            .and_then(Value::as_str)
            .is_some_and(|name| !name.is_empty());
        errors.extend(validate_object_meta(
            &metadata,
            namespaced,
            NameRule::PathSegment,
            &path.child("metadata"),
        ));
    }
}

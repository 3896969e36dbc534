//! What `x-kubernetes-list-type` and `x-kubernetes-map-type` ask of a schema: the right type beside them, elements that
//! can be compared, keys that are always there.

use serde_json::Value;

use super::schema_rules::flag;
use super::{list, text};
use crate::field_error::{FieldError, Path};

pub(super) fn list_and_map_types(schema: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let own_type = text(schema, "type");
    for (key, wanted, known) in [
        ("x-kubernetes-map-type", "object", &["atomic", "granular"][..]),
        ("x-kubernetes-list-type", "array", &["atomic", "set", "map"][..]),
    ] {
        let Some(found) = schema.get(key).and_then(Value::as_str) else {
            continue;
        };
        if own_type != wanted {
            let detail = format!("must be {wanted} if {key} is specified");
            errors.push(match own_type.as_str() {
                "" => FieldError::required(&path.child("type"), detail),
                other => FieldError::invalid(&path.child("type"), other, detail),
            });
        } else if found == "set" && known.contains(&"set") {
            set_items(schema, path, errors);
        }
        if !known.contains(&found) {
            errors.push(FieldError::not_supported(&path.child(key), found, known));
        }
    }
}

/// Elements of a set are compared as a whole, so they cannot be merged.
fn set_items(schema: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let Some(items) = schema.get("items") else { return };
    let detail = "must be atomic as item of a list with x-kubernetes-list-type=set";
    let list_type = items.get("x-kubernetes-list-type").cloned().unwrap_or(Value::Null);
    match text(items, "type").as_str() {
        "array" if !list_type.is_null() && list_type != "atomic" => {
            errors.push(FieldError::invalid(
                &path.child("items").child("x-kubernetes-list-type"),
                list_type,
                detail,
            ));
        }
        "object" if text(items, "x-kubernetes-map-type") != "atomic" => {
            errors.push(FieldError::invalid(
                &path.child("items").child("x-kubernetes-map-type"),
                list_type,
                detail,
            ));
        }
        _ => {}
    }
}

pub(super) fn map_keys(schema: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let list_type = text(schema, "x-kubernetes-list-type");
    let keys = list(schema, "x-kubernetes-list-map-keys");
    let keys_at = path.child("x-kubernetes-list-map-keys");
    if !keys.is_empty() && list_type != "map" {
        let at = path.child("x-kubernetes-list-type");
        let detail = "must be map if x-kubernetes-list-map-keys is non-empty";
        errors.push(match list_type.as_str() {
            "" => FieldError::required(&at, detail),
            other => FieldError::invalid(&at, other, detail),
        });
    }
    let items_at = path.child("items");
    let items = schema.get("items");
    if matches!(list_type.as_str(), "map" | "set") && items.is_some_and(|items| flag(items, "nullable")) {
        let detail = format!("cannot be nullable when x-kubernetes-list-type is {list_type}");
        errors.push(FieldError::forbidden(&items_at.child("nullable"), detail));
    }
    if list_type != "map" {
        return;
    }
    if keys.is_empty() {
        errors.push(FieldError::required(
            &keys_at,
            "must not be empty if x-kubernetes-list-type is map",
        ));
    }
    let Some(items) = items else {
        errors.push(FieldError::required(
            &items_at,
            "must have a schema if x-kubernetes-list-type is map",
        ));
        return;
    };
    let item_type = text(items, "type");
    if item_type != "object" {
        let detail = "must be object if parent array's x-kubernetes-list-type is map";
        errors.push(FieldError::invalid(&items_at.child("type"), item_type, detail));
        return;
    }
    check_keys(items, keys, path, errors);
}

/// Every key must be a scalar property of the items that is always there.
fn check_keys(items: &Value, keys: &[Value], path: &Path, errors: &mut Vec<FieldError>) {
    let keys_at = path.child("x-kubernetes-list-map-keys");
    let items_at = path.child("items");
    let item_type = text(items, "type");
    for (index, key) in keys.iter().enumerate() {
        let name = key.as_str().unwrap_or_default();
        let at = items_at.child("properties").key(name);
        if keys[..index].contains(key) {
            errors.push(FieldError::invalid(
                &keys_at,
                Value::from(keys),
                "must not contain duplicate entries",
            ));
        }
        let Some(property) = items.get("properties").and_then(|properties| properties.get(name)) else {
            errors.push(FieldError::invalid(
                &keys_at,
                Value::from(keys),
                "entries must all be names of item properties",
            ));
            continue;
        };
        if matches!(text(property, "type").as_str(), "array" | "object") {
            let detail = "must be a scalar type if parent array's x-kubernetes-list-type is map";
            errors.push(FieldError::invalid(&at.child("type"), item_type.as_str(), detail));
        }
        if !list(items, "required").contains(key) && property.get("default").is_none() {
            let detail =
                "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
            errors.push(FieldError::required(&at.child("default"), detail));
        }
        if flag(property, "nullable") {
            let detail = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
            errors.push(FieldError::forbidden(&at.child("nullable"), detail));
        }
    }
}

//! Lists that promise to be sets or maps: no element, or no key, twice.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::field_error::{FieldError, Path, go_json};
use crate::schema::{ListType, SchemaRef};

/// Duplicates in the `set` and `map` lists anywhere in the value.
pub fn validate_lists(value: &Value, schema: SchemaRef<'_>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    walk(value, schema, &Path::root(), &mut errors);
    errors
}

fn walk(value: &Value, schema: SchemaRef<'_>, path: &Path, errors: &mut Vec<FieldError>) {
    match value {
        Value::Object(fields) => {
            for (key, child) in fields {
                if !child.is_object() && !child.is_array() {
                    continue;
                }
                // A declared property is visited by its own schema only, unlike upstream's maps, which cannot have any.
                if let Some(id) = schema.node().properties.get(key) {
                    walk(child, schema.child(*id), &path.child(key), errors);
                } else if let Some(additional) = schema.additional() {
                    walk(child, additional, &path.key(key), errors);
                }
            }
        }
        Value::Array(items) => {
            match &schema.node().list_type {
                ListType::Atomic => {}
                ListType::Set => {
                    for index in repeated(items.iter().map(go_json)) {
                        errors.push(FieldError::duplicate(&path.index(index), items[index].clone()));
                    }
                }
                ListType::Map(keys) => check_keys(items, keys, path, errors),
            }
            if let Some(item_schema) = schema.items() {
                for (index, item) in items.iter().enumerate() {
                    walk(item, item_schema, &path.index(index), errors);
                }
            }
        }
        _ => {}
    }
}

fn check_keys(items: &[Value], keys: &[String], path: &Path, errors: &mut Vec<FieldError>) {
    if let Some(index) = items.iter().position(|item| !item.is_null() && !item.is_object()) {
        let detail = "must be an object for an array of list-type map";
        errors.push(FieldError::invalid(&path.index(index), items[index].clone(), detail));
        return;
    }
    let key_of = |item: &Value| -> Value {
        let present = keys
            .iter()
            .filter_map(|key| item.get(key).map(|value| (key.clone(), value.clone())));
        Value::Object(present.collect::<Map<_, _>>())
    };
    let found: Vec<Value> = items.iter().map(key_of).collect();
    for index in repeated(found.iter().map(go_json)) {
        errors.push(FieldError::duplicate(&path.index(index), found[index].clone()));
    }
}

/// Where something appears for the second time; a third time is not reported again.
fn repeated(items: impl Iterator<Item = String>) -> Vec<usize> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mut second = Vec::new();
    for (index, item) in items.enumerate() {
        let times = seen.entry(item).or_default();
        *times += 1;
        if *times == 2 {
            second.push(index);
        }
    }
    second
}

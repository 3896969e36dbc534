//! Filling in the defaults of a structural schema, and what happens to nulls where the schema does not want any.

use serde_json::Value;

use crate::schema::SchemaRef;

/// Puts the schema's defaults where a field is absent, or is null although the schema does not allow null.
pub fn default(value: &mut Value, schema: SchemaRef<'_>) {
    match value {
        Value::Object(fields) => {
            for (name, id) in &schema.node().properties {
                let property = schema.child(*id);
                let Some(default) = &property.node().default else {
                    continue;
                };
                if default.is_null() {
                    continue;
                }
                let wanted = fields
                    .get(name)
                    .is_none_or(|present| present.is_null() && !property.nullable);
                if wanted {
                    fields.insert(name.clone(), default.clone());
                }
            }
            for (name, child) in fields.iter_mut() {
                if let Some(id) = schema.node().properties.get(name) {
                    default_child(child, schema.child(*id), false);
                } else if let Some(additional) = schema.additional() {
                    default_child(child, additional, true);
                }
            }
        }
        Value::Array(items) => {
            let Some(item_schema) = schema.items() else { return };
            for item in items {
                default_child(item, item_schema, true);
            }
        }
        _ => {}
    }
}

fn default_child(value: &mut Value, schema: SchemaRef<'_>, replace_null: bool) {
    if replace_null && value.is_null() && !schema.nullable {
        *value = schema.node().default.clone().unwrap_or(Value::Null);
    }
    default(value, schema);
}

/// Removes fields that are null although the schema neither allows null nor has a default to put there.
pub fn prune_nulls(value: &mut Value, schema: SchemaRef<'_>) {
    match value {
        Value::Object(fields) => fields.retain(|name, child| {
            let Some(child_schema) = schema.property(name) else {
                return true;
            };
            let has_default = child_schema
                .node()
                .default
                .as_ref()
                .is_some_and(|default| !default.is_null());
            if child.is_null() && !child_schema.nullable && !has_default {
                return false;
            }
            prune_nulls(child, child_schema);
            true
        }),
        Value::Array(items) => {
            if let Some(item_schema) = schema.items() {
                for item in items {
                    prune_nulls(item, item_schema);
                }
            }
        }
        _ => {}
    }
}

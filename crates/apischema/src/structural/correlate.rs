//! Which part of the old object a part of the new one goes on from. Validation on update forgives what has not
//! changed, and transition rules see the old value, only where the two can be told to be the same thing: fields by
//! name, items of `map` lists by their keys, items of other lists not at all.

use serde_json::Value;

use crate::schema::{ListType, SchemaRef};

/// The old item that has the same keys as `item`, in a list of type `map`.
pub fn correlated_item<'o>(schema: SchemaRef<'_>, old_list: &'o [Value], item: &Value) -> Option<&'o Value> {
    let ListType::Map(keys) = &schema.node().list_type else {
        return None;
    };
    if keys.is_empty() || !item.is_object() {
        return None;
    }
    let item_schema = schema.items();
    let key = |item: &Value, name: &String| -> Option<Value> {
        let default = || {
            item_schema
                .and_then(|items| items.property(name))
                .and_then(|key| key.node().default.clone())
        };
        item.get(name).cloned().or_else(default)
    };
    old_list
        .iter()
        .find(|old| old.is_object() && keys.iter().all(|name| key(old, name) == key(item, name)))
}

/// Equality as ratcheting sees it: a field that the schema does not declare makes its parent unequal.
pub fn correlated_equal(value: &Value, old: &Value, schema: SchemaRef<'_>) -> bool {
    match (value, old) {
        (Value::Object(fields), Value::Object(old_fields)) => {
            fields.len() == old_fields.len()
                && fields.iter().all(|(name, child)| {
                    let pair = old_fields.get(name).zip(schema.property(name));
                    pair.is_some_and(|(old_child, child_schema)| correlated_equal(child, old_child, child_schema))
                })
        }
        (Value::Array(items), Value::Array(old_items)) => {
            let ListType::Map(_) = &schema.node().list_type else {
                return items == old_items;
            };
            let Some(item_schema) = schema.items() else {
                return items == old_items;
            };
            items.len() == old_items.len()
                && items.iter().all(|item| {
                    correlated_item(schema, old_items, item)
                        .is_some_and(|old_item| correlated_equal(item, old_item, item_schema))
                })
        }
        _ => value == old,
    }
}

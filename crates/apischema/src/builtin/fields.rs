//! Small ways to read and fill fields of a JSON object, as Go code does with typed ones: what is missing, null or of
//! another type reads as the zero value. Nothing here knows a kind.

use serde_json::{Map, Value};

const NO_VALUES: &[Value] = &[];

/// A text field; `""` when there is none.
pub fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// The items of a list field.
pub fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value
        .get(key)
        .and_then(Value::as_array)
        .map_or(NO_VALUES, Vec::as_slice)
}

/// The items of a list field, to change.
pub fn list_mut<'a>(value: &'a mut Value, key: &str) -> &'a mut [Value] {
    match value.get_mut(key).and_then(Value::as_array_mut) {
        Some(items) => items,
        None => &mut [],
    }
}

/// The entries of a map field, when it has any.
pub fn map<'a>(value: &'a Value, key: &str) -> Option<&'a Map<String, Value>> {
    value
        .get(key)
        .and_then(Value::as_object)
        .filter(|entries| !entries.is_empty())
}

pub fn int(value: &Value, key: &str) -> Option<i64> {
    value.get(key).and_then(Value::as_i64)
}

pub fn flag(value: &Value, key: &str) -> bool {
    value.get(key).and_then(Value::as_bool).unwrap_or(false)
}

/// A field that is there and not null.
pub fn present<'a>(value: &'a Value, key: &str) -> Option<&'a Value> {
    value.get(key).filter(|field| !field.is_null())
}

/// A field that is there and not null, to change.
pub fn present_mut<'a>(value: &'a mut Value, key: &str) -> Option<&'a mut Value> {
    value.get_mut(key).filter(|field| !field.is_null())
}

pub fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
    }
}

/// Sets a field that is missing or null (a nil pointer in Go).
pub fn set_missing(value: &mut Value, key: &str, default: impl Into<Value>) {
    if let Some(fields) = value.as_object_mut()
        && fields.get(key).is_none_or(Value::is_null)
    {
        fields.insert(key.to_owned(), default.into());
    }
}

/// Sets a field that is missing or a zero value.
pub fn set_empty(value: &mut Value, key: &str, default: impl Into<Value>) {
    if let Some(fields) = value.as_object_mut()
        && fields.get(key).is_none_or(is_zero)
    {
        fields.insert(key.to_owned(), default.into());
    }
}

pub fn set(value: &mut Value, key: &str, new: impl Into<Value>) {
    if let Some(fields) = value.as_object_mut() {
        fields.insert(key.to_owned(), new.into());
    }
}

pub fn remove(value: &mut Value, key: &str) -> Option<Value> {
    value.as_object_mut().and_then(|fields| fields.remove(key))
}

/// Makes a field equal to another object's: its value, or its absence.
pub fn copy(from: &Value, to: &mut Value, key: &str) {
    match from.get(key) {
        // Most writes leave most of an object alone: looking is cheaper than copying.
        Some(value) if to.get(key) == Some(value) => {}
        Some(value) => set(to, key, value.clone()),
        None => {
            remove(to, key);
        }
    }
}

/// An object field, made empty when it is missing.
pub fn child<'a>(value: &'a mut Value, key: &str) -> &'a mut Value {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    let field = &mut value[key];
    if !field.is_object() {
        *field = Value::Object(Map::new());
    }
    field
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_is_missing_is_filled() {
        let mut value = json!({"pointer": 0, "nothing": null, "text": ""});
        set_missing(&mut value, "pointer", 1);
        set_missing(&mut value, "nothing", 1);
        set_empty(&mut value, "text", "x");
        set(child(&mut value, "deep"), "leaf", true);
        assert_eq!(
            value,
            json!({"pointer": 0, "nothing": 1, "text": "x", "deep": {"leaf": true}})
        );
    }
}

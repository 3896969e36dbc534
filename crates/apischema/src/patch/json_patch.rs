//! JSON patches (RFC 6902) as evanphx/json-patch v4 applies them: negative indices count from the end, an added or
//! copied value may be missing (and is null then), and a replaced field need not exist.

use serde_json::{Map, Value};

use super::{PatchError, json_kind};
use crate::decode::{Format, parse};

/// The most operations in one patch.
const MOST_OPERATIONS: usize = 10_000;

/// Applies a JSON patch.
///
/// # Errors
/// `BadRequest` when it is no JSON patch, `TooLarge` with too many operations, `Unprocessable` when it does not apply.
pub fn json_patch(doc: &Value, patch: &[u8]) -> Result<Value, PatchError> {
    let bad = |why: String| PatchError::BadRequest(format!("error decoding patch: {why}"));
    let patch = parse(patch, Format::Json).map_err(|error| bad(error.0))?.value;
    let operations = match &patch {
        Value::Null => &[][..],
        Value::Array(operations) => operations.as_slice(),
        other => {
            let kind = json_kind(other);
            return Err(bad(format!(
                "json: cannot unmarshal {kind} into Go value of type []handlers.jsonPatchOp"
            )));
        }
    };
    for operation in operations {
        check_operation(operation).map_err(bad)?;
    }
    if operations.len() > MOST_OPERATIONS {
        let count = operations.len();
        return Err(PatchError::TooLarge(format!(
            "The allowed maximum operations in a JSON patch is {MOST_OPERATIONS}, got {count}"
        )));
    }
    let mut doc = doc.clone();
    for operation in operations {
        apply_operation(&mut doc, operation).ok_or(PatchError::Unprocessable)?;
    }
    Ok(doc)
}

/// The fields of operations that mean nothing, as strict decoding words them: `json patch unknown field "[0].x"`.
pub fn unknown_operation_fields(patch: &Value) -> Vec<String> {
    const KNOWN: [&str; 4] = ["op", "path", "from", "value"];
    let operations = patch.as_array().into_iter().flatten().enumerate();
    operations
        .flat_map(|(position, operation)| {
            let names = operation.as_object().into_iter().flatten().map(|(name, _)| name);
            names
                .filter(|name| !KNOWN.contains(&name.as_str()))
                .map(move |name| format!("json patch unknown field \"[{position}].{name}\""))
        })
        .collect()
}

fn check_operation(operation: &Value) -> Result<(), String> {
    let fields = match operation {
        Value::Null => return Ok(()),
        Value::Object(fields) => fields,
        other => {
            let kind = json_kind(other);
            return Err(format!(
                "json: cannot unmarshal {kind} into Go value of type handlers.jsonPatchOp"
            ));
        }
    };
    for name in ["op", "path", "from"] {
        if let Some(value) = fields.get(name)
            && !value.is_string()
            && !value.is_null()
        {
            let kind = json_kind(value);
            return Err(format!(
                "json: cannot unmarshal {kind} into Go struct field jsonPatchOp.{name} of type string"
            ));
        }
    }
    Ok(())
}

/// Applies one operation; `None` when it does not apply.
fn apply_operation(doc: &mut Value, operation: &Value) -> Option<()> {
    let operation = operation.as_object()?;
    let path = || operation.get("path").and_then(Value::as_str);
    let from = || operation.get("from").and_then(Value::as_str);
    let value = || operation.get("value").cloned().unwrap_or_default();
    match operation.get("op").and_then(Value::as_str)? {
        "add" => add(doc, path()?, value()),
        "remove" => {
            let (parent, key) = locate(doc, path()?)?;
            remove(parent, &key)
        }
        "replace" => replace(doc, path()?, value()),
        "move" => {
            let (parent, key) = locate(doc, from()?)?;
            let moved = get(parent, &key)?.clone();
            remove(parent, &key)?;
            add(doc, path()?, moved)
        }
        "copy" => {
            let (parent, key) = locate(doc, from()?)?;
            let copied = get(parent, &key)?.clone();
            add(doc, path()?, copied)
        }
        "test" => test(doc, path()?, operation),
        _ => None,
    }
}

fn add(doc: &mut Value, path: &str, value: Value) -> Option<()> {
    let (parent, key) = locate(doc, path)?;
    match parent {
        Value::Object(fields) => {
            fields.insert(key, value);
        }
        Value::Array(items) if key == "-" => items.push(value),
        Value::Array(items) => {
            let at = index(&key, items.len() + 1)?;
            items.insert(at, value);
        }
        _ => return None,
    }
    Some(())
}

fn replace(doc: &mut Value, path: &str, value: Value) -> Option<()> {
    if path.is_empty() {
        if !value.is_object() && !value.is_array() {
            return None;
        }
        *doc = value;
        return Some(());
    }
    let (parent, key) = locate(doc, path)?;
    match parent {
        Value::Object(fields) => {
            fields.insert(key, value);
        }
        Value::Array(items) => {
            let at = index(&key, items.len())?;
            *items.get_mut(at)? = value;
        }
        _ => return None,
    }
    Some(())
}

fn remove(parent: &mut Value, key: &str) -> Option<()> {
    match parent {
        Value::Object(fields) => fields.remove(key).map(|_| ()),
        Value::Array(items) => {
            let at = index(key, items.len())?;
            items.remove(at);
            Some(())
        }
        _ => None,
    }
}

/// A missing value and null are the same to a test.
fn test(doc: &mut Value, path: &str, operation: &Map<String, Value>) -> Option<()> {
    let wanted = operation.get("value").unwrap_or(&Value::Null);
    let found = if path.is_empty() {
        &*doc
    } else {
        let (parent, key) = locate(doc, path)?;
        get(parent, &key)?
    };
    (found == wanted).then_some(())
}

/// What is at a key; a field that is not there is null. `None` when the key cannot be one.
fn get<'v>(parent: &'v Value, key: &str) -> Option<&'v Value> {
    match parent {
        Value::Object(fields) => Some(fields.get(key).unwrap_or(&Value::Null)),
        Value::Array(items) => items.get(index(key, items.len())?),
        _ => None,
    }
}

/// The position that a key names in a list of this length.
fn index(key: &str, length: usize) -> Option<usize> {
    let index: i64 = key.parse().ok()?;
    let length = i64::try_from(length).ok()?;
    let index = if index < 0 { index + length } else { index };
    usize::try_from(index).ok().filter(|_| index < length)
}

/// The container that a path ends in, and the last key. What stands before the first slash does not matter.
fn locate<'v>(doc: &'v mut Value, path: &str) -> Option<(&'v mut Value, String)> {
    let (_, steps) = path.split_once('/')?;
    let (parents, last) = match steps.rsplit_once('/') {
        Some((parents, last)) => (Some(parents), last),
        None => (None, steps),
    };
    let mut container = doc;
    for step in parents.into_iter().flat_map(|parents| parents.split('/')) {
        let key = decode_key(step);
        container = match container {
            Value::Object(fields) => fields.get_mut(&key)?,
            Value::Array(items) => {
                let at = index(&key, items.len())?;
                items.get_mut(at)?
            }
            _ => return None,
        };
    }
    let is_container = container.is_object() || container.is_array();
    is_container.then(|| (container, decode_key(last)))
}

fn decode_key(key: &str) -> String {
    if !key.contains('~') {
        return key.to_owned();
    }
    // Both escapes in one pass from the left: `~01` is `~1`.
    let mut out = String::with_capacity(key.len());
    let mut rest = key;
    while let Some(at) = rest.find('~') {
        out.push_str(&rest[..at]);
        let (decoded, length) = match rest.as_bytes().get(at + 1) {
            Some(b'1') => ('/', 2),
            Some(b'0') => ('~', 2),
            _ => ('~', 1),
        };
        out.push(decoded);
        rest = &rest[at + length..];
    }
    out.push_str(rest);
    out
}

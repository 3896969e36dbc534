//! Strategic merge patches: maps merge, lists merge by key where the schema says so, and directives inside of the patch
//! delete, replace, reorder and retain. How lists merge and are ordered is in the sibling module.

use serde_json::{Map, Value};

use super::strategic_lists::{
    check_element_order, element_kind, merge_lists, order_elements, partition_by_presence, without_directives,
};
use super::{PatchError, not_an_object};
use crate::apply::gofmt;
use crate::decode::{Format, parse};
use crate::schema::{PatchStrategy, SchemaRef};

pub(super) const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_FROM_LIST: &str = "$deleteFromPrimitiveList";
pub(super) const ELEMENT_ORDER: &str = "$setElementOrder";

/// What a patch cannot say, in upstream's words.
const BAD_PRIMITIVE_LIST: &str = "invalid patch format of primitive list";
const BAD_RETAIN_KEYS: &str = "invalid patch format of retainKeys";
const BAD_ELEMENT_ORDER: &str = "invalid patch format of setElementOrder list";

/// Applies a strategic merge patch to an object of a built-in kind.
///
/// # Errors
/// `BadRequest` when the patch is no JSON object or a directive is malformed; `Unprocessable` and `Internal` when it
/// does not fit the object, as the API server has it.
pub fn strategic_merge(schema: SchemaRef<'_>, doc: &Value, patch: &[u8]) -> Result<Value, PatchError> {
    let patch = parse(patch, Format::Json)
        .map_err(|error| PatchError::BadRequest(error.0))?
        .value;
    strategic_merge_values(schema, doc, &patch)
}

/// Applies a strategic merge patch that is parsed already.
///
/// # Errors
/// As [`strategic_merge`].
pub fn strategic_merge_values(schema: SchemaRef<'_>, doc: &Value, patch: &Value) -> Result<Value, PatchError> {
    let fields = match patch {
        Value::Null => return Ok(doc.clone()),
        Value::Object(fields) => fields.clone(),
        other => return Err(PatchError::BadRequest(not_an_object(other))),
    };
    let original = doc.as_object().cloned().unwrap_or_default();
    merge_maps(Some(schema), original, fields).map(Value::Object)
}

pub(super) fn merge_maps(
    schema: Option<SchemaRef<'_>>,
    mut original: Map<String, Value>,
    mut patch: Map<String, Value>,
) -> Result<Map<String, Value>, PatchError> {
    if let Some(directive) = patch.get(DIRECTIVE) {
        return match directive.as_str() {
            Some("replace") => {
                patch.remove(DIRECTIVE);
                Ok(patch)
            }
            Some("delete") => Ok(Map::new()),
            _ => Err(unknown_directive(directive, &patch)),
        };
    }
    retain_keys(&mut original, &mut patch)?;
    merge_ordered_lists(schema, &mut original, &mut patch)?;
    for (key, value) in patch {
        match key.strip_prefix(DELETE_FROM_LIST) {
            None => merge_field(schema, &mut original, key, value, false)?,
            Some(rest) => {
                let name = rest.strip_prefix('/');
                let name = name.ok_or_else(|| PatchError::BadRequest(BAD_PRIMITIVE_LIST.to_owned()))?;
                merge_field(schema, &mut original, name.to_owned(), value, true)?;
            }
        }
    }
    Ok(original)
}

pub(super) fn unknown_directive(directive: &Value, patch: &Map<String, Value>) -> PatchError {
    let map = gofmt::plain(&Value::Object(patch.clone()));
    PatchError::Internal(format!("unknown patch type: {} in map: {map}", gofmt::plain(directive)))
}

/// `$retainKeys`: fields of the original that the list does not name go.
fn retain_keys(original: &mut Map<String, Value>, patch: &mut Map<String, Value>) -> Result<(), PatchError> {
    let Some(retained) = patch.remove(RETAIN_KEYS) else {
        return Ok(());
    };
    let bad = || PatchError::BadRequest(BAD_RETAIN_KEYS.to_owned());
    let retained = retained.as_array().ok_or_else(bad)?;
    let is_retained = |key: &str| retained.iter().any(|name| name.as_str() == Some(key));
    let is_directive = |key: &str| key.starts_with(DELETE_FROM_LIST) || key.starts_with(ELEMENT_ORDER);
    if patch
        .iter()
        .any(|(key, value)| !value.is_null() && !is_directive(key) && !is_retained(key))
    {
        return Err(bad());
    }
    original.retain(|key, _| is_retained(key));
    Ok(())
}

fn merge_field(
    schema: Option<SchemaRef<'_>>,
    original: &mut Map<String, Value>,
    key: String,
    value: Value,
    deletes_items: bool,
) -> Result<(), PatchError> {
    if value.is_null() {
        original.remove(&key);
        return Ok(());
    }
    let current = original.get_mut(&key).map(std::mem::take);
    match (current, value) {
        (Some(Value::Object(current)), Value::Object(patch)) => {
            let (below, strategy) = lookup(schema, &key)?;
            let merged = if strategy.is_some_and(|strategy| strategy.replace) {
                patch
            } else {
                merge_maps(below, current, patch)?
            };
            original.insert(key, Value::Object(merged));
        }
        (Some(Value::Array(current)), Value::Array(patch)) => {
            let (below, strategy) = lookup(schema, &key)?;
            let merged = if deletes_items || strategy.is_some_and(|strategy| strategy.merge) {
                let merge_key = strategy.and_then(|strategy| strategy.merge_key.as_deref());
                merge_lists(
                    below.and_then(SchemaRef::items),
                    current,
                    patch,
                    merge_key,
                    deletes_items,
                )?
            } else {
                patch
            };
            original.insert(key, Value::Array(merged));
        }
        (Some(current), _) if deletes_items => {
            original.insert(key, current);
        }
        (None, _) if deletes_items => {}
        (current, value) => {
            // Nulls go from what replaces a value of another type, and from what is new.
            let same_scalar = current.is_some_and(|current| gofmt::type_name(&current) == gofmt::type_name(&value));
            let value = if same_scalar { value } else { without_null_fields(value) };
            match without_directives(value) {
                Some(value) => original.insert(key, value),
                None => original.remove(&key),
            };
        }
    }
    Ok(())
}

/// What the schema says about a field: its own node, and how it merges.
fn lookup<'a>(
    schema: Option<SchemaRef<'a>>,
    key: &str,
) -> Result<(Option<SchemaRef<'a>>, Option<&'a PatchStrategy>), PatchError> {
    let Some(schema) = schema else { return Ok((None, None)) };
    let node = schema.node();
    if node.properties.is_empty() {
        let why = "merging an object in json but data type is not struct, instead is: map";
        return Err(PatchError::Internal(why.to_owned()));
    }
    // Upstream looks for the exact name first, then for one that differs in case only.
    let id = node.properties.get(key).or_else(|| {
        node.properties
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(key))
            .map(|(_, id)| id)
    });
    let Some(id) = id else {
        let name = node
            .name
            .as_deref()
            .and_then(|name| name.rsplit('.').next())
            .unwrap_or_default();
        let key = gofmt::quoted(key);
        return Err(PatchError::Internal(format!(
            "unable to find api field in struct {name} for the json field {key}"
        )));
    };
    let field = schema.child(*id);
    Ok((Some(field), Some(&field.node().patch)))
}

/// `$setElementOrder/…` together with the list that it orders.
fn merge_ordered_lists(
    schema: Option<SchemaRef<'_>>,
    original: &mut Map<String, Value>,
    patch: &mut Map<String, Value>,
) -> Result<(), PatchError> {
    let directives: Vec<String> = patch
        .keys()
        .filter(|key| key.starts_with(ELEMENT_ORDER))
        .cloned()
        .collect();
    for directive in directives {
        let order = list_of(patch.remove(&directive).unwrap_or_default())?;
        let name = directive
            .strip_prefix(ELEMENT_ORDER)
            .and_then(|rest| rest.strip_prefix('/'));
        let name = name.ok_or_else(|| PatchError::BadRequest(BAD_ELEMENT_ORDER.to_owned()))?;
        let current = original.get(name).cloned().map(list_of).transpose()?;
        let patched = patch.get(name).cloned().map(list_of).transpose()?;
        let (below, strategy) = lookup(schema, name)?;
        let merge_key = strategy.and_then(|strategy| strategy.merge_key.as_deref());
        check_element_order(patched.as_deref().unwrap_or_default(), &order, merge_key)?;
        let merged = match (current.clone(), patched.clone()) {
            (None, None) => continue,
            (Some(current), None) => current,
            (None, Some(patched)) => patched.into_iter().filter_map(without_directives).collect(),
            (Some(current), Some(patched)) if strategy.is_some_and(|strategy| strategy.merge) => {
                merge_lists(below.and_then(SchemaRef::items), current, patched, merge_key, false)?
            }
            (Some(_), Some(patched)) => patched,
        };
        let (from_patch, server_only) = partition_by_presence(merged, &order, merge_key)?;
        let (current, patched) = (current.unwrap_or_default(), patched.unwrap_or_default());
        let are_maps = element_kind(&current, &patched)?;
        let ordered = order_elements(from_patch, server_only, &order, &current, merge_key, are_maps)?;
        original.insert(name.to_owned(), Value::Array(ordered));
        patch.remove(name);
    }
    Ok(())
}

fn list_of(value: Value) -> Result<Vec<Value>, PatchError> {
    match value {
        Value::Array(items) => Ok(items),
        other => Err(wrong_type("[]interface {}", &other)),
    }
}

pub(super) fn wrong_type(expected: &str, actual: &Value) -> PatchError {
    let actual = if actual.is_null() {
        "%!s(<nil>)"
    } else {
        gofmt::type_name(actual)
    };
    PatchError::Internal(format!("expected a {expected}, but received a {actual}"))
}

fn without_null_fields(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let kept = fields.into_iter().filter(|(_, value)| !value.is_null());
            Value::Object(kept.map(|(name, value)| (name, without_null_fields(value))).collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(without_null_fields).collect()),
        other => other,
    }
}

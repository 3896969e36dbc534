//! Lists under strategic merge: items by merge key, scalars as sets, and the order of the result, which keeps the
//! patch's order, then the server's.

use serde_json::{Map, Value};

use super::PatchError;
use super::strategic::{DIRECTIVE, ELEMENT_ORDER, merge_maps, unknown_directive, wrong_type};
use crate::apply::gofmt;
use crate::schema::SchemaRef;

const MAP_TYPE: &str = "map[string]interface {}";
/// What the API server answers when Go code meets a value that it was not written for.
const PANIC: &str = "This request caused apiserver to panic. Look in the logs for details.";

/// Merges a list that the schema merges (or that items are deleted from).
pub(super) fn merge_lists(
    items: Option<SchemaRef<'_>>,
    original: Vec<Value>,
    patch: Vec<Value>,
    merge_key: Option<&str>,
    deletes_items: bool,
) -> Result<Vec<Value>, PatchError> {
    if original.is_empty() && patch.is_empty() {
        return Ok(original);
    }
    let are_maps = element_kind(&original, &patch)?;
    if !are_maps {
        if deletes_items {
            return Ok(original.into_iter().filter(|item| !patch.contains(item)).collect());
        }
        let mut both = original.clone();
        both.extend(patch.iter().cloned());
        let (from_patch, server_only) = partition_by_presence(deduplicated(both), &patch, None)?;
        return order_elements(from_patch, server_only, &patch, &original, None, false);
    }
    let Some(merge_key) = merge_key else {
        let why = "cannot merge lists without merge key for struct";
        return Err(PatchError::Internal(why.to_owned()));
    };
    let (original, patch) = apply_item_directives(original, patch, merge_key)?;
    let merged = merge_items(items, original.clone(), &patch, merge_key)?;
    let (from_patch, server_only) = partition_by_presence(merged, &patch, Some(merge_key))?;
    order_elements(from_patch, server_only, &patch, &original, Some(merge_key), true)
}

/// Whether the elements of both lists are maps; all must be of one type.
pub(super) fn element_kind(original: &[Value], patch: &[Value]) -> Result<bool, PatchError> {
    let mut first: Option<&Value> = None;
    for item in original.iter().chain(patch) {
        match first {
            None if item.is_null() => return Err(PatchError::Internal(PANIC.to_owned())),
            None if item.is_array() => return Err(PatchError::Unprocessable),
            None => first = Some(item),
            Some(first) if gofmt::type_name(first) != gofmt::type_name(item) => {
                let lists = format!("[{} {}]", gofmt::plain_list(original), gofmt::plain_list(patch));
                return Err(PatchError::Internal(format!(
                    "list element types are not identical: {lists}"
                )));
            }
            Some(_) => {}
        }
    }
    match first {
        Some(first) => Ok(first.is_object()),
        None => Err(PatchError::Internal(
            "no elements in any of the given slices".to_owned(),
        )),
    }
}

/// Upstream's way to drop repeated scalars: the last one takes the place of the repeated one.
fn deduplicated(mut items: Vec<Value>) -> Vec<Value> {
    let mut i = 0;
    while i < items.len() {
        let mut j = i + 1;
        while j < items.len() {
            if items[i] == items[j] {
                items.swap_remove(j);
            } else {
                j += 1;
            }
        }
        i += 1;
    }
    items
}

/// Handles items with `$patch`; gives the original and the patch without them.
fn apply_item_directives(
    mut original: Vec<Value>,
    patch: Vec<Value>,
    merge_key: &str,
) -> Result<(Vec<Value>, Vec<Value>), PatchError> {
    let mut plain = Vec::with_capacity(patch.len());
    let mut replaces = false;
    for item in patch {
        let fields = item.as_object().ok_or_else(|| wrong_type(MAP_TYPE, &item))?;
        let Some(directive) = fields.get(DIRECTIVE) else {
            plain.push(item);
            continue;
        };
        match directive.as_str() {
            Some("delete") => {
                let wanted = fields.get(merge_key).ok_or_else(|| no_merge_key(fields, merge_key))?;
                original.retain(|item| item.get(merge_key) != Some(wanted));
            }
            Some("replace") => replaces = true,
            Some("merge") => {
                let why = "merging lists cannot yet be specified in the patch";
                return Err(PatchError::Internal(why.to_owned()));
            }
            _ => return Err(unknown_directive(directive, fields)),
        }
    }
    Ok(if replaces {
        (plain, Vec::new())
    } else {
        (original, plain)
    })
}

fn no_merge_key(fields: &Map<String, Value>, merge_key: &str) -> PatchError {
    let map = gofmt::plain(&Value::Object(fields.clone()));
    PatchError::Internal(format!("map: {map} does not contain declared merge key: {merge_key}"))
}

fn merge_items(
    items: Option<SchemaRef<'_>>,
    mut original: Vec<Value>,
    patch: &[Value],
    merge_key: &str,
) -> Result<Vec<Value>, PatchError> {
    for item in patch {
        let fields = item.as_object().ok_or_else(|| wrong_type(MAP_TYPE, item))?;
        let wanted = fields.get(merge_key).ok_or_else(|| no_merge_key(fields, merge_key))?;
        match original.iter_mut().find(|known| known.get(merge_key) == Some(wanted)) {
            Some(known) => {
                let current = known.as_object().cloned().unwrap_or_default();
                *known = Value::Object(merge_maps(items, current, fields.clone())?);
            }
            None => original.push(item.clone()),
        }
    }
    Ok(original)
}

/// Splits elements into those that another list has too and those that it has not.
pub(super) fn partition_by_presence(
    elements: Vec<Value>,
    others: &[Value],
    merge_key: Option<&str>,
) -> Result<(Vec<Value>, Vec<Value>), PatchError> {
    if let Some(merge_key) = merge_key {
        for element in &elements {
            let fields = element.as_object().ok_or_else(|| wrong_type(MAP_TYPE, element))?;
            if !fields.contains_key(merge_key) {
                return Err(no_merge_key(fields, merge_key));
            }
        }
        if let Some(position) = others
            .iter()
            .position(|other| !other.is_object())
            .filter(|_| !elements.is_empty())
        {
            return Err(PatchError::Internal(format!("value for key {position} is not a map")));
        }
    }
    Ok(elements
        .into_iter()
        .partition(|element| position_of(others, element, merge_key).is_some()))
}

/// Where a list has an element: by merge key for maps, by value for scalars.
fn position_of(list: &[Value], element: &Value, merge_key: Option<&str>) -> Option<usize> {
    match merge_key {
        Some(key) => list.iter().position(|other| other.get(key) == element.get(key)),
        None => list.iter().position(|other| other == element),
    }
}

/// Puts elements of the patch into the patch's order and all others into the server's, then interleaves them: an
/// element of the server comes before the first one of the patch that it precedes on the server.
pub(super) fn order_elements(
    from_patch: Vec<Value>,
    server_only: Vec<Value>,
    patch_order: &[Value],
    server_order: &[Value],
    merge_key: Option<&str>,
    are_maps: bool,
) -> Result<Vec<Value>, PatchError> {
    if are_maps {
        for item in from_patch
            .iter()
            .chain(patch_order)
            .chain(&server_only)
            .chain(server_order)
        {
            let fields = item.as_object().ok_or_else(|| wrong_type(MAP_TYPE, item))?;
            let merge_key = merge_key.unwrap_or_default();
            if !fields.contains_key(merge_key) {
                return Err(no_merge_key(fields, merge_key));
            }
        }
    }
    let sorted = |mut items: Vec<Value>, order: &[Value]| {
        items.sort_by_key(|item| position_of(order, item, merge_key).unwrap_or(0));
        items
    };
    let mut right = sorted(from_patch, patch_order).into_iter().peekable();
    let mut left = sorted(server_only, server_order).into_iter().peekable();
    let mut out = Vec::with_capacity(left.len() + right.len());
    while let (Some(l), Some(r)) = (left.peek(), right.peek()) {
        let positions = (
            position_of(server_order, l, merge_key),
            position_of(server_order, r, merge_key),
        );
        let left_first = matches!(positions, (Some(l), Some(r)) if l < r);
        out.extend(if left_first { left.next() } else { right.next() });
    }
    out.extend(right);
    out.extend(left);
    Ok(out)
}

/// Checks that a patch list has its elements in the order, and only those, that `$setElementOrder` names.
pub(super) fn check_element_order(patch: &[Value], order: &[Value], merge_key: Option<&str>) -> Result<(), PatchError> {
    if patch.is_empty() || order.is_empty() {
        return Ok(());
    }
    let mut wanted = order.iter();
    for item in patch {
        if merge_key.is_some() && !item.is_object() {
            return Err(wrong_type(MAP_TYPE, item));
        }
        if item.get(DIRECTIVE).is_some() {
            continue;
        }
        loop {
            let Some(next) = wanted.next() else {
                let (patch, order) = (gofmt::plain_list(patch), gofmt::plain_list(order));
                return Err(PatchError::Internal(format!(
                    "The order in patch list:\n{patch}\n doesn't match {ELEMENT_ORDER} list:\n{order}\n"
                )));
            };
            if same_key(item, next, merge_key)? {
                break;
            }
        }
    }
    Ok(())
}

fn same_key(left: &Value, right: &Value, merge_key: Option<&str>) -> Result<bool, PatchError> {
    let Some(merge_key) = merge_key else {
        return Ok(left == right);
    };
    let key = |item: &Value| -> Result<Value, PatchError> {
        let fields = item.as_object().ok_or_else(|| wrong_type(MAP_TYPE, item))?;
        fields
            .get(merge_key)
            .cloned()
            .ok_or_else(|| no_merge_key(fields, merge_key))
    };
    Ok(key(left)? == key(right)?)
}

/// A value without maps that carry a directive; `None` when it is one itself.
pub(super) fn without_directives(value: Value) -> Option<Value> {
    match value {
        Value::Object(fields) if fields.contains_key(DIRECTIVE) => None,
        Value::Object(fields) => {
            let kept = fields
                .into_iter()
                .filter_map(|(name, value)| without_directives(value).map(|kept| (name, kept)));
            Some(Value::Object(kept.collect()))
        }
        Value::Array(items) => Some(Value::Array(items.into_iter().filter_map(without_directives).collect())),
        other => Some(other),
    }
}

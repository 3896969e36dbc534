//! The merge of an applied configuration into a live object: granular parts field by field and item by item, the
//! applied value wins in every leaf, and nothing is ever removed. Removal of dropped fields is the caller's.

use serde_json::{Map, Value};

use super::compare::admits_scalar;
use super::fieldset::PathElement;
use super::types::{Form, Type};

/// The merged value; `None` when neither side leaves anything.
///
/// # Errors
/// When neither side of a scalar has its type, with upstream's words.
pub(super) fn merge(ty: Type<'_>, live: Option<&Value>, applied: Option<&Value>) -> Result<Option<Value>, String> {
    let (live_form, applied_form) = (live.map(|value| ty.form(value)), applied.map(|value| ty.form(value)));
    let Some(form) = applied_form.or(live_form) else {
        return Ok(None);
    };
    match form {
        Form::Nothing => Err("schema error: invalid atom: inlined".to_owned()),
        Form::Scalar => {
            let wrong = |value: Option<&Value>| value.is_some_and(|value| !admits_scalar(ty.scalar(), value));
            if wrong(live) && wrong(applied) {
                return Err("expected a scalar on one side".to_owned());
            }
            Ok(applied.or(live).cloned())
        }
        Form::Map => {
            let (live_map, applied_map) = (live.and_then(Value::as_object), applied.and_then(Value::as_object));
            let nothing = |map: Option<&Map<String, Value>>| map.is_none_or(Map::is_empty);
            if ty.whole_map() || (nothing(live_map) && nothing(applied_map)) {
                return Ok(applied.or(live).cloned());
            }
            merge_maps(ty, live_map, applied_map)
        }
        Form::List => {
            let (live_list, applied_list) = (live.and_then(Value::as_array), applied.and_then(Value::as_array));
            let nothing = |list: Option<&Vec<Value>>| list.is_none_or(Vec::is_empty);
            if ty.whole_list() || (nothing(live_list) && nothing(applied_list)) {
                return Ok(applied.or(live).cloned());
            }
            merge_lists(
                ty,
                live_list.map_or(&[][..], Vec::as_slice),
                applied_list.map_or(&[][..], Vec::as_slice),
            )
        }
    }
}

fn merge_maps(
    ty: Type<'_>,
    live: Option<&Map<String, Value>>,
    applied: Option<&Map<String, Value>>,
) -> Result<Option<Value>, String> {
    let mut out = Map::new();
    for (name, value) in live.into_iter().flatten() {
        let theirs = applied.and_then(|applied| applied.get(name));
        let merged = if theirs.is_none() {
            Some(value.clone())
        } else {
            merge(ty.field(name), Some(value), theirs)?
        };
        if let Some(merged) = merged {
            out.insert(name.clone(), merged);
        }
    }
    for (name, value) in applied.into_iter().flatten() {
        if live.is_none_or(|live| !live.contains_key(name))
            && let Some(merged) = merge(ty.field(name), None, Some(value))?
        {
            out.insert(name.clone(), merged);
        }
    }
    Ok(if out.is_empty() { None } else { Some(Value::Object(out)) })
}

/// The items of a list by path element. Items that share an element are not merged: they count as `None`.
struct Indexed<'v> {
    order: Vec<PathElement>,
    sorted: Vec<(PathElement, Option<&'v Value>)>,
}

impl<'v> Indexed<'v> {
    fn of(ty: Type<'_>, list: &'v [Value], allow_duplicates: bool) -> Result<Self, String> {
        let mut indexed = Self {
            order: Vec::new(),
            sorted: Vec::new(),
        };
        for (position, item) in list.iter().enumerate() {
            let element = ty
                .item_element(item)
                .map_err(|why| format!("element {position}: {why}"))?;
            match indexed.sorted.binary_search_by(|(own, _)| own.cmp(&element)) {
                Ok(_) if !allow_duplicates => return Err(format!("duplicate entries for key {element}")),
                Ok(at) => indexed.sorted[at].1 = None,
                Err(at) => indexed.sorted.insert(at, (element.clone(), Some(item))),
            }
            indexed.order.push(element);
        }
        Ok(indexed)
    }

    fn has(&self, element: &PathElement) -> bool {
        self.sorted.binary_search_by(|(own, _)| own.cmp(element)).is_ok()
    }

    fn get(&self, element: &PathElement) -> Option<&'v Value> {
        self.sorted
            .binary_search_by(|(own, _)| own.cmp(element))
            .ok()
            .and_then(|at| self.sorted[at].1)
    }
}

/// Interleaves both lists: the order of the applied list where it says something, the live order elsewhere.
fn merge_lists(ty: Type<'_>, live: &[Value], applied: &[Value]) -> Result<Option<Value>, String> {
    let theirs = Indexed::of(ty, applied, false)?;
    let own = Indexed::of(ty, live, true)?;
    // Upstream drops the faults of single items and keeps the item that cannot be merged out.
    let merged = |live: Option<&Value>, applied: Option<&Value>| merge(ty.item(), live, applied).ok().flatten();
    let mut shared = theirs.order.iter().filter(|element| own.has(element));
    let mut next_shared = shared.next();
    let mut out = Vec::with_capacity(live.len().max(applied.len()));
    let mut done: Vec<&PathElement> = Vec::new();
    let (mut l, mut r) = (0, 0);
    while l < own.order.len() || r < theirs.order.len() {
        if let (Some(left), Some(right)) = (own.order.get(l), theirs.order.get(r)) {
            if left == right {
                done.push(left);
                out.extend(merged(own.get(left), theirs.get(left)));
                (l, r) = (l + 1, r + 1);
                next_shared = shared.next();
                continue;
            }
            if theirs.has(left) && next_shared.is_some_and(|next| next != left) {
                l += 1;
                continue;
            }
        }
        if let Some(left) = own.order.get(l) {
            if !theirs.has(left) {
                out.extend(merged(live.get(l), None));
                l += 1;
                continue;
            }
            if done.contains(&left) {
                l += 1;
            }
        }
        if let Some(right) = theirs.order.get(r) {
            done.push(right);
            out.extend(merged(own.get(right), theirs.get(right)));
            r += 1;
            if next_shared == Some(right) {
                next_shared = shared.next();
            }
        }
    }
    Ok(if out.is_empty() { None } else { Some(Value::Array(out)) })
}

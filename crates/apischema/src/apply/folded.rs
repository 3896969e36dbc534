//! Folded field sets: inside the server `fieldsV1` is the text of the notation and not a tree of maps, because most
//! writes copy, compare and print the sets of all managers and look into none. Clients see them unfolded. The text is
//! always written by this crate, so that its form (no blanks, `.` first) is known here.

use serde_json::Value;

use super::fieldset::{FieldSet, PathElement, Subset};
use super::fieldsv1::{is_plain, parse_element, push_element};

fn entries(object: &mut Value) -> impl Iterator<Item = &mut Value> {
    let entries = object
        .get_mut("metadata")
        .and_then(|metadata| metadata.get_mut("managedFields"));
    entries.and_then(Value::as_array_mut).into_iter().flatten()
}

/// Turns the folded sets of a stored object into the trees that clients know.
pub fn unfold(object: &mut Value) {
    entries(object).for_each(unfold_entry);
}

pub(super) fn unfold_entry(entry: &mut Value) {
    if let Some(fields) = entry.get_mut("fieldsV1")
        && let Some(text) = fields.as_str()
        && let Ok(tree @ Value::Object(_)) = serde_json::from_str(text)
    {
        *fields = tree;
    }
}

/// The reverse of [`unfold`], for objects that did not come out of this module's siblings.
#[cfg(test)]
pub(super) fn fold(object: &mut Value) {
    for entry in entries(object) {
        if let Some(fields) = entry.get_mut("fieldsV1").filter(|fields| fields.is_object())
            && let Ok(set) = FieldSet::from_json(fields)
        {
            *fields = Value::String(set.to_json_string());
        }
    }
}

/// The keys of one level, as they stand in the text, each with the text of what is below it.
struct Level<'t> {
    rest: &'t str,
}

impl<'t> Level<'t> {
    /// `text` is one object, braces included.
    fn of(text: &'t str) -> Self {
        Self {
            rest: text.get(1..text.len().saturating_sub(1)).unwrap_or_default(),
        }
    }
}

impl<'t> Iterator for Level<'t> {
    type Item = (&'t str, &'t str);

    fn next(&mut self) -> Option<Self::Item> {
        let from_key = self.rest.strip_prefix(',').unwrap_or(self.rest).strip_prefix('"')?;
        let (key, below) = (
            from_key.get(..end_of_text(from_key))?,
            from_key.get(end_of_text(from_key)..)?,
        );
        let below = below.strip_prefix("\":")?;
        let length = length_of_object(below);
        self.rest = below.get(length..)?;
        Some((key, below.get(..length)?))
    }
}

/// Where the quote is that ends a text whose first quote has been read.
fn end_of_text(text: &str) -> usize {
    let bytes = text.as_bytes();
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => break,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    at
}

fn length_of_object(text: &str) -> usize {
    let bytes = text.as_bytes();
    let (mut at, mut depth) = (0, 0_usize);
    while let Some(byte) = bytes.get(at) {
        at += 1;
        match byte {
            b'"' => at += end_of_text(text.get(at..).unwrap_or_default()) + 1,
            b'{' => depth += 1,
            b'}' if depth == 1 => break,
            b'}' => depth -= 1,
            _ => {}
        }
    }
    at.min(bytes.len())
}

/// A node that says nothing below itself is a member even without the `.`.
fn is_member(below: &str) -> bool {
    below == "{}" || below.starts_with("{\".\":")
}

/// What a level has below one of its keys.
fn below<'t>(level: &[(&'t str, &'t str)], element: &PathElement) -> Option<&'t str> {
    let found = match element {
        // Nearly all keys are of this form, and can be compared as they stand.
        PathElement::Field(name) if is_plain(name) => {
            level.iter().find(|(key, _)| key.strip_prefix("f:") == Some(name))
        }
        other => {
            let mut quoted = String::new();
            push_element(&mut quoted, other);
            let wanted = quoted.get(1..quoted.len() - 1)?;
            level.iter().find(|(key, _)| *key == wanted)
        }
    };
    found.map(|(_, below)| *below)
}

/// Whether a folded set has any member of `set`.
pub(super) fn intersects(text: &str, set: &FieldSet) -> bool {
    if set.is_empty() {
        return false;
    }
    let level: Vec<_> = Level::of(text).collect();
    set.nodes.iter().any(|(element, subset)| {
        below(&level, element)
            .is_some_and(|below| (subset.member && is_member(below)) || intersects(below, &subset.children))
    })
}

/// Whether a folded set has every member of `set`.
pub(super) fn contains(text: &str, set: &FieldSet) -> bool {
    if set.is_empty() {
        return true;
    }
    let level: Vec<_> = Level::of(text).collect();
    set.nodes.iter().all(|(element, subset)| {
        below(&level, element)
            .is_some_and(|below| (!subset.member || is_member(below)) && contains(below, &subset.children))
    })
}

/// Reads a folded set.
pub(super) fn read(text: &str) -> FieldSet {
    let mut set = FieldSet::default();
    for (key, below) in Level::of(text) {
        let element = if key.contains('\\') {
            serde_json::from_str(&format!("\"{key}\"")).map_or(Ok(None), |key: String| parse_element(&key))
        } else {
            parse_element(key)
        };
        // `.` is no element, and is told by whoever holds this level.
        if let Ok(Some(element)) = element {
            let children = read(below);
            let member = is_member(below);
            set.push(element, Subset { member, children });
        }
    }
    set
}

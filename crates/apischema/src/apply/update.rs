//! Ownership after writes that are not applies: whoever changed a field owns it, and everybody else who owned it does
//! not any more. Also the server's rule that a write which changes nothing leaves no trace.

use std::sync::LazyLock;

use serde_json::{Map, Value};

use super::Manager;
use super::compare::{Comparison, compare};
use super::fieldset::FieldSet;
use super::managed::{self, Entry};
use super::types::Type;
use crate::builtin;
use crate::schema::SchemaRef;

/// Sets `metadata.managedFields` of `new` as the server does for a create, an update or a patch that is not an apply; the
/// sets in it are folded, see [`super::unfold`].
///
/// `live` is the stored object, none for a create. What `new` carries as `managedFields` is what the request said.
/// `reset` are the fields that the resource's strategy takes back from this request (`status` on the main resource).
/// Never fails: where upstream cannot tell ownership it writes none, and so does this.
pub fn track_update(
    schema: SchemaRef<'_>,
    live: Option<&Value>,
    new: &mut Value,
    who: &Manager<'_>,
    reset: Option<&FieldSet>,
) {
    let Some(metadata) = new.get_mut("metadata").and_then(Value::as_object_mut) else {
        return;
    };
    let sent = match metadata.remove("managedFields") {
        Some(Value::Array(entries)) => Some(entries),
        _ => None,
    };
    let entries = starting_entries(live, sent, who);
    if entries.is_empty() && live.is_some() {
        // Without any manager there is nothing to keep up: tracking starts on create or with the first apply.
        return;
    }
    if let Ok(entries) = tracked(schema, live, new, entries, who.name, who, reset) {
        managed::write(entries, new);
    }
}

/// The entries to start from: the request's when it may and does say some, else the stored ones.
fn starting_entries(live: Option<&Value>, sent: Option<Vec<Value>>, who: &Manager<'_>) -> Vec<Entry> {
    let stored = live
        .and_then(|live| live.pointer("/metadata/managedFields"))
        .and_then(Value::as_array);
    if let Some(sent) = sent
        && who.subresource.is_none()
    {
        if managed::is_reset(&sent) {
            return Vec::new();
        }
        // What was read and is written back unchanged needs no second check.
        if Some(&sent) == stored {
            return managed::read_stored(sent).unwrap_or_default();
        }
        if let Ok(entries) = managed::read_sent(&sent) {
            return entries;
        }
    }
    stored
        .map(|stored| managed::read_stored(stored.clone()).unwrap_or_default())
        .unwrap_or_default()
}

/// The entries after `name` changed `live` into `new` (which carries no `managedFields` any more).
///
/// # Errors
/// When an object does not have its schema's shape.
pub(super) fn tracked(
    schema: SchemaRef<'_>,
    live: Option<&Value>,
    new: &Value,
    mut entries: Vec<Entry>,
    name: &str,
    who: &Manager<'_>,
    reset: Option<&FieldSet>,
) -> Result<Vec<Entry>, String> {
    who.drop_unknown_versions(schema, &mut entries)?;
    let live = live.unwrap_or_else(|| empty_object(who));
    let mut comparison = compare(Type::root(schema), live, new)?;
    if let Some(reset) = reset {
        comparison.exclude(reset);
    }
    let is_writer = |entry: &Entry| entry.is_update_of(name, who);
    // What the writer changed it owns afterwards in any case: it need not go and come back.
    take_from(&mut entries, &[&comparison.removed], is_writer);
    take_from(&mut entries, &comparison.all(), |entry| !is_writer(entry));
    let gain = Entry::new(name, false, who, without_identity(gained(comparison)));
    if !gain.owns_nothing() {
        give(&mut entries, gain, who.time);
    }
    managed::cap_updaters(&mut entries);
    Ok(entries)
}

/// The object before anything is set: for a built-in kind, the fields that its Go type always writes.
///
/// Ownership on create is the difference from this, which is why `f:template` carries no `.` but `f:volumes` does.
fn empty_object(who: &Manager<'_>) -> &'static Value {
    static NOTHING: LazyLock<Value> = LazyLock::new(|| Value::Object(Map::new()));
    let (group, version) = who.api_version.split_once('/').unwrap_or(("", who.api_version));
    builtin::empty_object(group, version, who.kind).unwrap_or(&NOTHING)
}

fn gained(comparison: Comparison) -> FieldSet {
    if comparison.added.is_empty() {
        comparison.modified
    } else if comparison.modified.is_empty() {
        comparison.added
    } else {
        comparison.modified.union(&comparison.added)
    }
}

/// Takes fields from all entries that `whom` names; entries that own nothing any more go.
pub(super) fn take_from(entries: &mut Vec<Entry>, sets: &[&FieldSet], whom: impl Fn(&Entry) -> bool) {
    for entry in entries.iter_mut().filter(|entry| whom(entry)) {
        for changed in sets {
            if !changed.is_empty() && entry.owns_any(changed) {
                let rest = entry.fields().difference(changed);
                entry.set_fields(rest);
            }
        }
    }
    entries.retain(|entry| !entry.owns_nothing());
}

/// Adds fields to the entry of their manager.
fn give(entries: &mut Vec<Entry>, mut gain: Entry, time: &str) {
    let Some(own) = entries.iter_mut().find(|entry| entry.is_same_manager(&gain)) else {
        gain.set_time(time);
        entries.push(gain);
        return;
    };
    if !own.owns_all(&gain.fields()) {
        let both = gain.fields().union(&own.fields());
        own.set_fields(both);
    }
    own.set_time(time);
}

/// The set without the fields that identify an object: nobody owns them.
pub(super) fn without_identity(mut set: FieldSet) -> FieldSet {
    const OF_METADATA: [&str; 9] = [
        "name",
        "namespace",
        "creationTimestamp",
        "selfLink",
        "uid",
        "clusterName",
        "generation",
        "managedFields",
        "resourceVersion",
    ];
    set.retain_fields(|name, subset| match name {
        "apiVersion" | "kind" => subset.member = false,
        "metadata" => {
            subset.member = false;
            subset.children.retain_fields(|name, subset| {
                if OF_METADATA.contains(&name) {
                    subset.member = false;
                }
            });
        }
        _ => {}
    });
    set
}

/// Puts the old times back into `managedFields` when nothing but times changed, so that a write without effect is
/// seen as one. For every update, after defaulting and admission; both objects carry the stored `resourceVersion`.
pub fn keep_times_of_noop(live: &Value, new: &mut Value) {
    let entries = |object: &'_ Value| {
        object
            .pointer("/metadata/managedFields")
            .and_then(Value::as_array)
            .cloned()
    };
    if only_times_differ(live, new)
        && let Some(old) = entries(live)
        && let Some(metadata) = new.get_mut("metadata").and_then(Value::as_object_mut)
    {
        metadata.insert("managedFields".to_owned(), Value::Array(old));
    }
}

fn only_times_differ(live: &Value, new: &Value) -> bool {
    let (Some(old), Some(fresh)) = (
        live.pointer("/metadata/managedFields"),
        new.pointer("/metadata/managedFields"),
    ) else {
        return false;
    };
    let (Some(old), Some(fresh)) = (old.as_array(), fresh.as_array()) else {
        return false;
    };
    let same_entries =
        old.len() == fresh.len() && old.iter().zip(fresh).all(|(old, new)| same_except(old, new, "time"));
    same_entries && old != fresh && same_with(live, new, "metadata", |old, new| same_except(old, new, "managedFields"))
}

/// Whether two maps are the same but for one field.
fn same_except(left: &Value, right: &Value, field: &str) -> bool {
    let (Some(left), Some(right)) = (left.as_object(), right.as_object()) else {
        return false;
    };
    let rest = |map: &Map<String, Value>| map.len() - usize::from(map.contains_key(field));
    rest(left) == rest(right)
        && left
            .iter()
            .all(|(key, value)| key == field || right.get(key) == Some(value))
}

/// Whether two maps have the same keys and values, with one field judged by `judge`.
fn same_with(left: &Value, right: &Value, field: &str, judge: impl Fn(&Value, &Value) -> bool) -> bool {
    let (Some(left), Some(right)) = (left.as_object(), right.as_object()) else {
        return false;
    };
    left.len() == right.len()
        && left.iter().all(|(key, value)| {
            right.get(key).is_some_and(|other| {
                if key == field {
                    judge(value, other)
                } else {
                    value == other
                }
            })
        })
}

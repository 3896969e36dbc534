//! Server-side apply: the applied configuration is merged into the live object, fields that the manager applied before
//! and dropped now are removed unless somebody else owns them, and fields that others own are conflicts.

use serde_json::{Map, Value};

use super::compare::{compare, same_value};
use super::fieldset::{FieldSet, path_string};
use super::managed::{self, Entry};
use super::types::Type;
use super::update::{take_from, tracked, without_identity};
use super::walk::{fault_message, field_set, reconcile, remove_items, validate, with_named_fields};
use super::{ApplyError, ConflictCause, Manager, last_applied, merge};
use crate::schema::SchemaRef;

/// Who owned what an object had before the first apply.
const BEFORE_APPLIES: &str = "before-first-apply";

/// A conflict: who owns which field.
pub(super) struct Conflict {
    pub owner: Entry,
    pub path: Vec<super::PathElement>,
}

/// What stops an apply inside; conflicts may still be forgiven.
pub(super) enum Stopped {
    Conflicts(Vec<Conflict>),
    Failed(ApplyError),
}

impl From<ApplyError> for Stopped {
    fn from(error: ApplyError) -> Self {
        Self::Failed(error)
    }
}

/// Applies a configuration and gives the merged object with its `managedFields`, not yet defaulted.
///
/// `live` is the stored object, none when the apply creates it.
///
/// # Errors
/// [`ApplyError::Conflict`] without `force` when others own what the configuration changes; otherwise what is wrong
/// with the configuration.
pub fn apply(
    schema: SchemaRef<'_>,
    live: Option<&Value>,
    applied: &Value,
    who: &Manager<'_>,
    force: bool,
    reset: Option<&FieldSet>,
) -> Result<Value, ApplyError> {
    check_kind(applied, who)?;
    let request = Request {
        schema,
        applied,
        who,
        reset,
    };
    let (live, entries) = request.live_object(live)?;
    let outcome = match request.apply(&live, entries.clone(), force) {
        Err(Stopped::Conflicts(conflicts)) if who.name == last_applied::MANAGER => {
            // kubectl upgrades from client-side apply: what it applied that way it may take over.
            match last_applied::forgive(schema, &live, who, conflicts) {
                conflicts if conflicts.is_empty() => request.apply(&live, entries, true),
                conflicts => Err(Stopped::Conflicts(conflicts)),
            }
        }
        outcome => outcome,
    };
    let (mut object, entries) = outcome.map_err(|stopped| match stopped {
        Stopped::Conflicts(conflicts) => conflict_error(&conflicts),
        Stopped::Failed(error) => error,
    })?;
    if who.name == last_applied::MANAGER {
        last_applied::refresh(&mut object, applied);
    }
    managed::write(entries, &mut object);
    Ok(object)
}

struct Request<'a> {
    schema: SchemaRef<'a>,
    applied: &'a Value,
    who: &'a Manager<'a>,
    reset: Option<&'a FieldSet>,
}

impl Request<'_> {
    /// The live object without its entries, and the entries; an object without any gets one for all it has.
    fn live_object(&self, live: Option<&Value>) -> Result<(Value, Vec<Entry>), ApplyError> {
        let Some(live) = live else {
            let mut object = Map::new();
            object.insert("apiVersion".to_owned(), Value::String(self.who.api_version.to_owned()));
            object.insert("kind".to_owned(), Value::String(self.who.kind.to_owned()));
            return Ok((Value::Object(object), Vec::new()));
        };
        let mut object = live.clone();
        let stored = object.get_mut("metadata").and_then(Value::as_object_mut);
        let entries = match stored.and_then(|metadata| metadata.remove("managedFields")) {
            Some(Value::Array(stored)) => managed::read_live(stored)
                .map_err(|why| ApplyError::Internal(format!("failed to decode managed fields: {why}")))?,
            _ => Vec::new(),
        };
        if !entries.is_empty() {
            return Ok((object, entries));
        }
        let entries = tracked(
            self.schema,
            None,
            &object,
            Vec::new(),
            BEFORE_APPLIES,
            self.who,
            self.reset,
        )
        .map_err(|why| ApplyError::Internal(format!("failed to create manager for existing fields: {why}")))?;
        Ok((object, entries))
    }

    fn apply(&self, live: &Value, mut entries: Vec<Entry>, force: bool) -> Result<(Value, Vec<Entry>), Stopped> {
        let root = Type::root(self.schema);
        if self
            .applied
            .pointer("/metadata/managedFields")
            .is_some_and(Value::is_array)
        {
            return Err(ApplyError::BadRequest("metadata.managedFields must be nil".to_owned()).into());
        }
        let faults = validate(root, self.applied, false);
        if !faults.is_empty() {
            let (object, why) = (self.described(self.applied), fault_message(&faults));
            let message = format!("failed to create typed patch object ({object}): {why}");
            return Err(ApplyError::Internal(message).into());
        }
        let faults = validate(root, live, true);
        if !faults.is_empty() {
            let (object, why) = (self.described(live), fault_message(&faults));
            return Err(ApplyError::Internal(format!("failed to create typed live object ({object}): {why}")).into());
        }
        self.who
            .drop_unknown_versions(self.schema, &mut entries)
            .map_err(ApplyError::Internal)?;
        for entry in &mut entries {
            let reconciled = reconcile(root, &entry.fields());
            entry.set_fields(reconciled);
        }
        let merged = merge::merge(root, Some(live), Some(self.applied))
            .map_err(|why| ApplyError::Internal(format!("failed to merge config: {why}")))?
            .unwrap_or_default();
        let mut set = field_set(root, self.applied);
        if let Some(reset) = self.reset {
            set = set.recursive_difference(reset);
        }
        let own = Entry::new(self.who.name, true, self.who, set);
        let before = replace_own(&mut entries, &own);
        let object = match &before {
            Some(before) => prune(root, &merged, &entries, &before.fields()),
            None => merged,
        };
        self.settle(live, object, entries, &own, force)
    }

    /// Takes the changed fields from their owners, or says that they object.
    fn settle(
        &self,
        live: &Value,
        object: Value,
        mut entries: Vec<Entry>,
        own: &Entry,
        force: bool,
    ) -> Result<(Value, Vec<Entry>), Stopped> {
        let mut comparison = compare(Type::root(self.schema), live, &object)
            .map_err(|why| ApplyError::Internal(format!("failed to compare objects: {why}")))?;
        if let Some(reset) = self.reset {
            comparison.exclude(reset);
        }
        let is_other = |entry: &Entry| !entry.is_same_manager(own);
        if !force {
            let changed = comparison.modified.union(&comparison.added);
            let conflicts = conflicts_with(entries.iter().filter(|entry| is_other(entry)), &changed);
            if !conflicts.is_empty() {
                return Err(Stopped::Conflicts(conflicts));
            }
        }
        take_from(&mut entries, &comparison.all(), is_other);
        // A configuration that changes nothing gets no time: upstream then returns the live object as it is.
        let is_noop = same_value(live, &object);
        for entry in entries.iter_mut().filter(|entry| entry.is_same_manager(own)) {
            let owned = without_identity(entry.fields().into_owned());
            entry.set_fields(owned);
            if !is_noop {
                entry.set_time(self.who.time);
            }
        }
        entries.retain(|entry| !entry.owns_nothing());
        Ok((if is_noop { live.clone() } else { object }, entries))
    }

    /// Namespace, name and kind of an object, as messages have it.
    fn described(&self, object: &Value) -> String {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let (namespace, name) = (text("/metadata/namespace"), text("/metadata/name"));
        format!("{namespace}/{name}; {}", kind_text(self.who.api_version, self.who.kind))
    }
}

/// Puts the manager's new entry in the place of its old one, which it gives back. The old time stays for now.
fn replace_own(entries: &mut Vec<Entry>, own: &Entry) -> Option<Entry> {
    let Some(known) = entries.iter_mut().find(|entry| entry.is_same_manager(own)) else {
        entries.push(own.clone());
        return None;
    };
    let mut fresh = own.clone();
    fresh.set_time(known.time());
    Some(std::mem::replace(known, fresh))
}

/// Removes what the manager applied last time and not this time, unless somebody owns it.
fn prune(root: Type<'_>, merged: &Value, entries: &[Entry], before: &FieldSet) -> Value {
    if before.is_empty() {
        return merged.clone();
    }
    let named = |set: &FieldSet| with_named_fields(Some(root), set);
    let last = named(before);
    let pruned = remove_items(root, merged, &last).unwrap_or_default();
    let owned = entries
        .iter()
        .fold(FieldSet::default(), |all, entry| all.union(&entry.fields()));
    let merged_set = named(&field_set(root, merged));
    let kept = named(&field_set(root, &pruned)).union(&named(&owned));
    let pruned = remove_items(root, merged, &merged_set.difference(&kept)).unwrap_or_default();
    let gone = merged_set
        .difference(&named(&field_set(root, &pruned)))
        .intersection(&last);
    remove_items(root, merged, &gone).unwrap_or_default()
}

/// The conflicts of others with a set of changes, by upstream's order of managers.
fn conflicts_with<'e>(others: impl Iterator<Item = &'e Entry>, changed: &FieldSet) -> Vec<Conflict> {
    let mut found: Vec<(String, &Entry)> = others.map(|entry| (entry.identifier(), entry)).collect();
    found.sort_by(|left, right| left.0.cmp(&right.0));
    let mut conflicts = Vec::new();
    for (_, owner) in found {
        for path in owner.fields().intersection(changed).paths() {
            conflicts.push(Conflict {
                owner: owner.clone(),
                path,
            });
        }
    }
    conflicts
}

fn conflict_error(conflicts: &[Conflict]) -> ApplyError {
    let causes = conflicts
        .iter()
        .map(|conflict| ConflictCause {
            message: format!("conflict with {}", conflict.owner.description()),
            field: path_string(&conflict.path),
        })
        .collect();
    let message = if let [only] = conflicts {
        let (owner, path) = (only.owner.description(), path_string(&only.path));
        format!("Apply failed with 1 conflict: conflict with {owner}: {path}")
    } else {
        let mut lines: Vec<String> = Vec::new();
        let mut last: Option<&Entry> = None;
        for conflict in conflicts {
            if last.is_none_or(|last| !last.is_same_manager(&conflict.owner)) {
                lines.push(format!("conflicts with {}:", conflict.owner.description()));
                last = Some(&conflict.owner);
            }
            lines.push(format!("- {}", path_string(&conflict.path)));
        }
        format!("Apply failed with {} conflicts: {}", conflicts.len(), lines.join("\n"))
    };
    ApplyError::Conflict { message, causes }
}

fn check_kind(applied: &Value, who: &Manager<'_>) -> Result<(), ApplyError> {
    let text = |key: &str| applied.get(key).and_then(Value::as_str).unwrap_or_default();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    if api_version == who.api_version && kind == who.kind {
        return Ok(());
    }
    Err(ApplyError::BadRequest(format!(
        "invalid object type: {}",
        kind_text(api_version, kind)
    )))
}

/// `apps/v1, Kind=Deployment`; the core group is empty.
fn kind_text(api_version: &str, kind: &str) -> String {
    let slash = if api_version.contains('/') { "" } else { "/" };
    format!("{slash}{api_version}, Kind={kind}")
}

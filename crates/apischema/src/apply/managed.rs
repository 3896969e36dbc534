//! `metadata.managedFields` as a table: reading what a request or a stored object carries, writing it back in
//! upstream's order, and folding old updaters together. Who gains or loses fields is decided elsewhere.

use std::borrow::Cow;
use std::cmp::Ordering;

use serde_json::{Map, Value, json};

use super::Manager;
use super::fieldset::FieldSet;
use super::fieldsv1::{escape_html, written_contains, written_intersects};
use super::gofmt;

/// The most entries of updaters that an object keeps.
const MOST_UPDATERS: usize = 10;
/// The name of the entry that the oldest updaters are folded into.
const OLD_UPDATERS: &str = "ancient-changes";

/// The fields of an entry: as written until somebody has to change them.
#[derive(Clone, Debug)]
pub(super) enum Fields {
    Written(Value),
    Read(FieldSet),
}

impl Fields {
    pub fn intersects(&self, set: &FieldSet) -> bool {
        match self {
            Self::Written(written) => written_intersects(written, set),
            Self::Read(own) => !own.intersection(set).is_empty(),
        }
    }

    pub fn contains(&self, set: &FieldSet) -> bool {
        match self {
            Self::Written(written) => written_contains(written, set),
            Self::Read(own) => set.difference(own).is_empty(),
        }
    }

    pub fn is_empty(&self) -> bool {
        match self {
            Self::Written(written) => written.as_object().is_none_or(Map::is_empty),
            Self::Read(set) => set.is_empty(),
        }
    }

    /// The set itself. What was stored was readable when it was stored; anything else owns nothing.
    pub fn set(&self) -> Cow<'_, FieldSet> {
        match self {
            Self::Written(written) => Cow::Owned(FieldSet::from_json(written).unwrap_or_default()),
            Self::Read(set) => Cow::Borrowed(set),
        }
    }

    fn into_value(self) -> Value {
        match self {
            Self::Written(written) => written,
            Self::Read(set) => set.to_json(),
        }
    }
}

/// One manager's entry.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub manager: String,
    pub applied: bool,
    pub api_version: String,
    pub subresource: String,
    /// Seconds in RFC 3339; empty when the entry has none.
    pub time: String,
    pub fields: Fields,
}

impl Entry {
    pub fn new(name: &str, applied: bool, who: &Manager<'_>, fields: FieldSet) -> Self {
        Self {
            manager: if name.is_empty() {
                "unknown".to_owned()
            } else {
                name.to_owned()
            },
            applied,
            api_version: who.api_version.to_owned(),
            subresource: who.subresource.unwrap_or_default().to_owned(),
            time: String::new(),
            fields: Fields::Read(fields),
        }
    }

    /// Whether two entries are the same manager's. Appliers are the same across versions.
    pub fn is_same_manager(&self, other: &Self) -> bool {
        self.applied == other.applied
            && self.manager == other.manager
            && self.subresource == other.subresource
            && (self.applied || self.api_version == other.api_version)
    }

    /// Upstream's identifier of the manager, by which conflicts are sorted.
    pub fn identifier(&self) -> String {
        let text = |text: &str| escape_html(&Value::String(text.to_owned()).to_string());
        let mut parts = Vec::with_capacity(4);
        if !self.manager.is_empty() {
            parts.push(format!("\"manager\":{}", text(&self.manager)));
        }
        parts.push(format!("\"operation\":\"{}\"", self.operation()));
        if !self.applied {
            parts.push(format!("\"apiVersion\":{}", text(&self.api_version)));
        }
        if !self.subresource.is_empty() {
            parts.push(format!("\"subresource\":{}", text(&self.subresource)));
        }
        format!("{{{}}}", parts.join(","))
    }

    fn operation(&self) -> &'static str {
        if self.applied { "Apply" } else { "Update" }
    }

    /// The manager as conflict messages name it.
    pub fn description(&self) -> String {
        let mut out = gofmt::quoted(&self.manager);
        if !self.subresource.is_empty() {
            out.push_str(" with subresource ");
            out.push_str(&gofmt::quoted(&self.subresource));
        }
        if !self.applied {
            out.push_str(" using ");
            out.push_str(&self.api_version);
        }
        out
    }

    fn order(&self, other: &Self) -> Ordering {
        // "Apply" before "Update".
        other
            .applied
            .cmp(&self.applied)
            .then_with(|| self.time.cmp(&other.time))
            .then_with(|| self.manager.cmp(&other.manager))
            .then_with(|| self.api_version.cmp(&other.api_version))
            .then_with(|| self.subresource.cmp(&other.subresource))
    }

    fn into_value(self) -> Value {
        let operation = self.operation().to_owned();
        let mut out = Map::new();
        out.insert("apiVersion".to_owned(), Value::String(self.api_version));
        out.insert("fieldsType".to_owned(), Value::String("FieldsV1".to_owned()));
        out.insert("fieldsV1".to_owned(), self.fields.into_value());
        if !self.manager.is_empty() {
            out.insert("manager".to_owned(), Value::String(self.manager));
        }
        out.insert("operation".to_owned(), Value::String(operation));
        if !self.subresource.is_empty() {
            out.insert("subresource".to_owned(), Value::String(self.subresource));
        }
        if !self.time.is_empty() {
            out.insert("time".to_owned(), Value::String(self.time));
        }
        Value::Object(out)
    }
}

/// Whether the entries say "forget all managers": `[]`, or one entry that says nothing.
pub(super) fn is_reset(entries: &[Value]) -> bool {
    let says_nothing = |entry: &Value| {
        let nothing = |value: &Value| value.is_null() || value.as_str().is_some_and(str::is_empty);
        entry.as_object().is_some_and(|fields| fields.values().all(nothing))
    };
    match entries {
        [] => true,
        [only] => says_nothing(only),
        _ => false,
    }
}

/// Reads entries that a stored object carries: their field sets stay as written.
pub(super) fn read_stored(entries: Vec<Value>) -> Result<Vec<Entry>, String> {
    entries
        .into_iter()
        .enumerate()
        .map(|(position, entry)| read_entry(position, entry))
        .collect()
}

/// Reads entries that a client sent: all field sets are checked, and the last of two entries of a manager counts.
pub(super) fn read_sent(entries: &[Value]) -> Result<Vec<Entry>, String> {
    let mut out: Vec<Entry> = Vec::with_capacity(entries.len());
    for (position, entry) in entries.iter().enumerate() {
        let mut entry = read_entry(position, entry.clone())?;
        if let Fields::Written(written) = &entry.fields {
            let set = FieldSet::from_json(written).map_err(|why| format!("error decoding set: {why}"))?;
            entry.fields = Fields::Read(set);
        }
        match out.iter_mut().find(|known| known.is_same_manager(&entry)) {
            Some(known) => *known = entry,
            None => out.push(entry),
        }
    }
    Ok(out)
}

fn read_entry(position: usize, entry: Value) -> Result<Entry, String> {
    let Value::Object(mut entry) = entry else {
        return Err("operation must be `Apply` or `Update`".to_owned());
    };
    let mut text = |key: &str| match entry.remove(key) {
        Some(Value::String(text)) => text,
        _ => String::new(),
    };
    let applied = match text("operation").as_str() {
        "Apply" => true,
        "Update" => false,
        _ => return Err("operation must be `Apply` or `Update`".to_owned()),
    };
    let api_version = text("apiVersion");
    if api_version.is_empty() {
        return Err("apiVersion must not be empty".to_owned());
    }
    match text("fieldsType").as_str() {
        "FieldsV1" => {}
        "" => return Err(format!("missing fieldsType in managed fields entry {position}")),
        other => {
            let other = gofmt::quoted(other);
            return Err(format!("invalid fieldsType {other} in managed fields entry {position}"));
        }
    }
    let (manager, subresource, time) = (text("manager"), text("subresource"), canonical_time(text("time")));
    let fields = entry
        .remove("fieldsV1")
        .filter(|fields| !fields.is_null())
        .unwrap_or_else(|| json!({}));
    Ok(Entry {
        manager,
        applied,
        api_version,
        subresource,
        time,
        fields: Fields::Written(fields),
    })
}

/// Times are kept in UTC and seconds: then they sort as text.
fn canonical_time(time: String) -> String {
    if time.is_empty() || (time.len() == 20 && time.ends_with('Z')) {
        return time;
    }
    time.parse::<jiff::Timestamp>()
        .map(|time| time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
        .unwrap_or_default()
}

/// Writes the entries in upstream's order; nothing at all when there are none.
pub(super) fn write(mut entries: Vec<Entry>, object: &mut Value) {
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else {
        return;
    };
    if entries.is_empty() {
        metadata.remove("managedFields");
        return;
    }
    entries.sort_by(Entry::order);
    let entries = entries.into_iter().map(Entry::into_value).collect();
    metadata.insert("managedFields".to_owned(), Value::Array(entries));
}

/// Folds the oldest updaters of one version together until few enough are left.
pub(super) fn cap_updaters(entries: &mut Vec<Entry>) {
    let mut count = entries.iter().filter(|entry| !entry.applied).count();
    if count <= MOST_UPDATERS {
        return;
    }
    let mut updaters: Vec<Entry> = entries.iter().filter(|entry| !entry.applied).cloned().collect();
    updaters.sort_by(|left, right| {
        left.time
            .cmp(&right.time)
            .then_with(|| left.identifier().cmp(&right.identifier()))
    });
    let mut first_of_version: Vec<Entry> = Vec::new();
    for updater in updaters {
        if count <= MOST_UPDATERS {
            return;
        }
        let Some(first) = first_of_version
            .iter()
            .find(|first| first.api_version == updater.api_version)
        else {
            first_of_version.push(updater);
            continue;
        };
        let is_bucket = |entry: &Entry| {
            !entry.applied
                && entry.manager == OLD_UPDATERS
                && entry.api_version == updater.api_version
                && entry.subresource.is_empty()
        };
        if !entries.iter().any(is_bucket)
            && let Some(entry) = entries.iter_mut().find(|entry| entry.is_same_manager(first))
        {
            OLD_UPDATERS.clone_into(&mut entry.manager);
            entry.subresource.clear();
        }
        if let Some(bucket) = entries.iter_mut().find(|entry| is_bucket(entry)) {
            let both = updater.fields.set().union(&bucket.fields.set());
            bucket.fields = Fields::Read(both);
            bucket.time.clone_from(&updater.time);
        }
        entries.retain(|entry| is_bucket(entry) || !entry.is_same_manager(&updater));
        count -= 1;
    }
}

//! `metadata.managedFields` as a table: reading what a request or a stored object carries, writing it back in
//! upstream's order with folded sets, and uniting old updaters. Who gains or loses fields is decided elsewhere.

use std::borrow::Cow;
use std::cmp::Ordering;

use serde_json::{Map, Value};

use super::Manager;
use super::fieldset::FieldSet;
use super::fieldsv1::escape_html;
use super::folded;
use super::gofmt;

/// The most entries of updaters that an object keeps.
const MOST_UPDATERS: usize = 10;
/// The name of the entry that the oldest updaters are folded into.
const OLD_UPDATERS: &str = "ancient-changes";

const APPLY: &str = "Apply";
const UPDATE: &str = "Update";
const FIELDS_TYPE: &str = "FieldsV1";

/// One manager's entry, in the notation of `managedFields`. Its fields stay as written until somebody changes them:
/// most writes leave most entries alone.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    written: Map<String, Value>,
    /// The fields once they were read; `fieldsV1` of the notation does not count any more then.
    read: Option<FieldSet>,
}

impl Entry {
    pub fn new(name: &str, applied: bool, who: &Manager<'_>, fields: FieldSet) -> Self {
        let mut entry = Self {
            written: Map::new(),
            read: Some(fields),
        };
        entry.put("manager", manager_name(name));
        entry.put("operation", if applied { APPLY } else { UPDATE });
        entry.put("apiVersion", who.api_version);
        entry.put("subresource", who.subresource.unwrap_or_default());
        entry.put("fieldsType", FIELDS_TYPE);
        entry
    }

    fn text(&self, key: &str) -> &str {
        self.written.get(key).and_then(Value::as_str).unwrap_or_default()
    }

    /// Sets a text; an empty one is left out.
    fn put(&mut self, key: &str, text: &str) {
        if text.is_empty() {
            self.written.remove(key);
        } else {
            self.written.insert(key.to_owned(), Value::String(text.to_owned()));
        }
    }

    pub fn manager(&self) -> &str {
        self.text("manager")
    }

    pub fn is_applier(&self) -> bool {
        self.text("operation") == APPLY
    }

    pub fn api_version(&self) -> &str {
        self.text("apiVersion")
    }

    fn subresource(&self) -> &str {
        self.text("subresource")
    }

    /// Seconds in RFC 3339; empty when the entry has none.
    pub fn time(&self) -> &str {
        self.text("time")
    }

    pub fn set_time(&mut self, time: &str) {
        self.put("time", time);
    }

    fn written_fields(&self) -> &Value {
        self.written.get("fieldsV1").unwrap_or(&Value::Null)
    }

    /// Whether the entry owns any of these fields.
    pub fn owns_any(&self, set: &FieldSet) -> bool {
        match &self.read {
            None => match self.written_fields() {
                Value::String(folded) => folded::intersects(folded, set),
                _ => !self.fields().intersection(set).is_empty(),
            },
            Some(own) => !own.intersection(set).is_empty(),
        }
    }

    /// Whether the entry owns all of these fields.
    pub fn owns_all(&self, set: &FieldSet) -> bool {
        match &self.read {
            None => match self.written_fields() {
                Value::String(folded) => folded::contains(folded, set),
                _ => set.difference(&self.fields()).is_empty(),
            },
            Some(own) => set.difference(own).is_empty(),
        }
    }

    pub fn owns_nothing(&self) -> bool {
        match &self.read {
            None => match self.written_fields() {
                Value::String(folded) => folded == "{}",
                tree => tree.as_object().is_none_or(Map::is_empty),
            },
            Some(set) => set.is_empty(),
        }
    }

    /// The fields. What was stored was readable when it was stored; anything else owns nothing.
    pub fn fields(&self) -> Cow<'_, FieldSet> {
        match &self.read {
            None => Cow::Owned(match self.written_fields() {
                Value::String(folded) => folded::read(folded),
                tree => FieldSet::from_json(tree).unwrap_or_default(),
            }),
            Some(set) => Cow::Borrowed(set),
        }
    }

    pub fn set_fields(&mut self, set: FieldSet) {
        self.read = Some(set);
    }

    /// Whether this is the entry of a writer that does not apply.
    pub fn is_update_of(&self, name: &str, who: &Manager<'_>) -> bool {
        self.manager() == manager_name(name)
            && !self.is_applier()
            && self.subresource() == who.subresource.unwrap_or_default()
            && self.api_version() == who.api_version
    }

    /// Whether two entries are the same manager's. Appliers are the same across versions.
    pub fn is_same_manager(&self, other: &Self) -> bool {
        self.manager() == other.manager()
            && self.is_applier() == other.is_applier()
            && self.subresource() == other.subresource()
            && (self.is_applier() || self.api_version() == other.api_version())
    }

    /// Upstream's identifier of the manager, by which conflicts are sorted.
    pub fn identifier(&self) -> String {
        let version = if self.is_applier() { "" } else { self.api_version() };
        let parts = [
            ("manager", self.manager()),
            ("operation", self.text("operation")),
            ("apiVersion", version),
            ("subresource", self.subresource()),
        ];
        let parts: Vec<String> = parts
            .iter()
            .filter(|(_, text)| !text.is_empty())
            .map(|(key, text)| format!("\"{key}\":{}", escape_html(&Value::from(*text).to_string())))
            .collect();
        format!("{{{}}}", parts.join(","))
    }

    /// The manager as conflict messages name it.
    pub fn description(&self) -> String {
        let mut out = gofmt::quoted(self.manager());
        if !self.subresource().is_empty() {
            out.push_str(" with subresource ");
            out.push_str(&gofmt::quoted(self.subresource()));
        }
        if !self.is_applier() {
            out.push_str(" using ");
            out.push_str(self.api_version());
        }
        out
    }

    fn order(&self, other: &Self) -> Ordering {
        ["operation", "time", "manager", "apiVersion", "subresource"]
            .iter()
            .map(|key| self.text(key).cmp(other.text(key)))
            .find(|order| *order != Ordering::Equal)
            .unwrap_or(Ordering::Equal)
    }

    fn into_value(self) -> Value {
        let folded = match (&self.read, self.written_fields()) {
            (None, Value::String(_)) => None,
            _ => Some(self.fields().to_json_string()),
        };
        let mut written = self.written;
        if let Some(folded) = folded {
            written.insert("fieldsV1".to_owned(), Value::String(folded));
        }
        Value::Object(written)
    }
}

/// Whoever does not say who he is.
fn manager_name(name: &str) -> &str {
    if name.is_empty() { "unknown" } else { name }
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

/// The same with all field sets read, for an apply, which looks at all of them.
pub(super) fn read_live(mut entries: Vec<Value>) -> Result<Vec<Entry>, String> {
    entries.iter_mut().for_each(folded::unfold_entry);
    read_sent(&entries)
}

/// Reads entries that a client sent: all field sets are checked, and the last of two entries of a manager counts.
pub(super) fn read_sent(entries: &[Value]) -> Result<Vec<Entry>, String> {
    const KNOWN: [&str; 7] = [
        "manager",
        "operation",
        "apiVersion",
        "time",
        "fieldsType",
        "fieldsV1",
        "subresource",
    ];
    let mut out: Vec<Entry> = Vec::with_capacity(entries.len());
    for (position, entry) in entries.iter().enumerate() {
        let mut entry = read_entry(position, entry.clone())?;
        let fields = entry.written.get("fieldsV1").filter(|fields| !fields.is_null());
        let set = fields.map_or(Ok(FieldSet::default()), FieldSet::from_json);
        entry.read = Some(set.map_err(|why| format!("error decoding set: {why}"))?);
        entry
            .written
            .retain(|key, value| KNOWN.contains(&key.as_str()) && value.as_str() != Some(""));
        let time = canonical_time(entry.time());
        entry.set_time(&time);
        match out.iter_mut().find(|known| known.is_same_manager(&entry)) {
            Some(known) => *known = entry,
            None => out.push(entry),
        }
    }
    Ok(out)
}

fn read_entry(position: usize, entry: Value) -> Result<Entry, String> {
    let Value::Object(written) = entry else {
        return Err("operation must be `Apply` or `Update`".to_owned());
    };
    let entry = Entry { written, read: None };
    if !matches!(entry.text("operation"), APPLY | UPDATE) {
        return Err("operation must be `Apply` or `Update`".to_owned());
    }
    if entry.api_version().is_empty() {
        return Err("apiVersion must not be empty".to_owned());
    }
    match entry.text("fieldsType") {
        FIELDS_TYPE => Ok(entry),
        "" => Err(format!("missing fieldsType in managed fields entry {position}")),
        other => {
            let other = gofmt::quoted(other);
            Err(format!("invalid fieldsType {other} in managed fields entry {position}"))
        }
    }
}

/// Times are kept in UTC and seconds: then they sort as text.
fn canonical_time(time: &str) -> String {
    if time.is_empty() || (time.len() == 20 && time.ends_with('Z')) {
        return time.to_owned();
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
    let mut count = entries.iter().filter(|entry| !entry.is_applier()).count();
    if count <= MOST_UPDATERS {
        return;
    }
    let mut updaters: Vec<Entry> = entries.iter().filter(|entry| !entry.is_applier()).cloned().collect();
    updaters.sort_by_cached_key(|updater| (updater.time().to_owned(), updater.identifier()));
    let mut first_of_version: Vec<Entry> = Vec::new();
    for updater in updaters {
        if count <= MOST_UPDATERS {
            return;
        }
        let Some(first) = first_of_version
            .iter()
            .find(|first| first.api_version() == updater.api_version())
        else {
            first_of_version.push(updater);
            continue;
        };
        let is_bucket = |entry: &Entry| {
            !entry.is_applier()
                && entry.manager() == OLD_UPDATERS
                && entry.api_version() == updater.api_version()
                && entry.subresource().is_empty()
        };
        if !entries.iter().any(is_bucket)
            && let Some(entry) = entries.iter_mut().find(|entry| entry.is_same_manager(first))
        {
            entry.put("manager", OLD_UPDATERS);
            entry.put("subresource", "");
        }
        if let Some(bucket) = entries.iter_mut().find(|entry| is_bucket(entry)) {
            let both = updater.fields().union(&bucket.fields());
            bucket.set_fields(both);
            bucket.set_time(updater.time());
        }
        entries.retain(|entry| is_bucket(entry) || !entry.is_same_manager(&updater));
        count -= 1;
    }
}

//! Storage: tables of objects under one global revision, and the history of changes that watches, consistent pages
//! and stale reads are served from. Knows nothing of kinds, schemas or requests.

mod cold;
mod object;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::task::Waker;

use serde_json::Value;

pub use object::{Object, set_resource_version, typed_json, untyped_json};

/// A table's name: group and plural of the stored resource. Both APIs of events share one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TableKey {
    pub group: String,
    pub plural: String,
}

/// What happened to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    Added,
    Modified,
    Deleted,
}

/// One entry of the history. `object` is the state after the change (for a deletion: the last state, at the revision
/// of the deletion), `previous` the one before.
#[derive(Clone, Debug)]
pub struct Change {
    pub revision: u64,
    pub kind: ChangeKind,
    pub key: Arc<str>,
    pub object: Arc<Object>,
    pub previous: Option<Arc<Object>>,
}

/// Objects in the order of their keys, as etcd gives them: `namespace/name` compared as bytes.
pub type Objects = BTreeMap<Arc<str>, Arc<Object>>;

/// How many written objects of a table stay trees: whoever writes an object is likely to read or write it again soon.
const WARM: usize = 512;

#[derive(Debug, Default)]
struct Table {
    objects: Objects,
    /// Who names which node in `spec.nodeName`: what is on a node is asked for again and again, and pods are many.
    by_node: BTreeMap<Box<str>, BTreeSet<Arc<str>>>,
    changes: VecDeque<Change>,
    /// What was written last, with the revision of it.
    warm: VecDeque<(Arc<str>, u64)>,
    /// Changes up to here have been forgotten.
    forgotten: u64,
    wakers: Vec<Waker>,
}

/// All tables.
#[derive(Debug)]
pub struct Store {
    revision: u64,
    compacted: u64,
    history: usize,
    tables: BTreeMap<TableKey, Table>,
}

/// `namespace/name`, or the name alone.
pub fn object_key(namespace: &str, name: &str) -> Arc<str> {
    if namespace.is_empty() {
        Arc::from(name)
    } else {
        Arc::from(format!("{namespace}/{name}"))
    }
}

impl Store {
    /// An empty store that remembers at most `history` changes of each table.
    pub fn new(history: usize) -> Self {
        Self {
            revision: 1,
            compacted: 0,
            history: history.max(1),
            tables: BTreeMap::new(),
        }
    }

    pub fn revision(&self) -> u64 {
        self.revision
    }

    pub fn get(&self, table: &TableKey, key: &str) -> Option<&Arc<Object>> {
        self.tables.get(table)?.objects.get(key)
    }

    pub fn objects(&self, table: &TableKey) -> impl DoubleEndedIterator<Item = &Arc<Object>> {
        self.tables
            .get(table)
            .into_iter()
            .flat_map(|table| table.objects.values())
    }

    pub fn tables(&self) -> impl Iterator<Item = &TableKey> {
        self.tables.keys()
    }

    /// The revision that the next write gets.
    pub fn next_revision(&self) -> u64 {
        self.revision + 1
    }

    /// Writes an object; `value` gets the new revision as its `resourceVersion`.
    pub fn put(&mut self, table: &TableKey, key: Arc<str>, mut value: Value) -> Change {
        self.revision += 1;
        set_resource_version(&mut value, self.revision);
        let object = Object::new(value, self.revision);
        let revision = self.revision;
        let history = self.history;
        let table = self.table_mut(table);
        let previous = table.objects.insert(key.clone(), object.clone());
        table.index(&key, previous.as_ref(), Some(&object));
        let kind = if previous.is_some() {
            ChangeKind::Modified
        } else {
            ChangeKind::Added
        };
        let change = Change {
            revision,
            kind,
            key,
            object,
            previous,
        };
        table.record(change.clone(), history);
        table.cool();
        change
    }

    /// Changes what is read of the objects of a table without changing them: no revision, nothing to watch. For
    /// defaults that a later schema brings.
    pub fn rewrite(&mut self, table: &TableKey, mut change: impl FnMut(&mut Value)) {
        let Some(table) = self.tables.get_mut(table) else {
            return;
        };
        let mut rewritten = Vec::new();
        for (key, object) in &table.objects {
            let before = object.read(Value::clone);
            let mut value = before.clone();
            change(&mut value);
            if value != before {
                rewritten.push((key.clone(), Object::new(value, object.revision())));
            }
        }
        for (key, object) in rewritten {
            let previous = table.objects.insert(key.clone(), object.clone());
            table.index(&key, previous.as_ref(), Some(&object));
        }
    }

    /// Removes an object; the watchers see it with the revision of the removal.
    pub fn remove(&mut self, table: &TableKey, key: &str) -> Option<Change> {
        let history = self.history;
        let revision = self.revision + 1;
        let table = self.tables.get_mut(table)?;
        let (key, previous) = table.objects.remove_entry(key)?;
        table.index(&key, Some(&previous), None);
        self.revision = revision;
        let object = previous.at_revision(revision);
        let change = Change {
            revision,
            kind: ChangeKind::Deleted,
            key,
            object,
            previous: Some(previous),
        };
        table.record(change.clone(), history);
        Some(change)
    }

    /// Forgets changes up to `revision`, as etcd's compaction does: older watches and pages are answered with 410.
    pub fn compact(&mut self, revision: u64) {
        self.compacted = self.compacted.max(revision.min(self.revision));
        let compacted = self.compacted;
        for table in self.tables.values_mut() {
            while table.changes.front().is_some_and(|change| change.revision <= compacted) {
                table.changes.pop_front();
            }
            table.forgotten = table.forgotten.max(compacted);
            table.wake();
        }
    }

    /// Whether everything after `revision` is still known.
    pub fn remembers(&self, table: &TableKey, revision: u64) -> bool {
        revision
            >= self
                .tables
                .get(table)
                .map_or(self.compacted, |table| table.forgotten.max(self.compacted))
    }

    /// The oldest revision that a watch of this table can start after.
    pub fn oldest(&self, table: &TableKey) -> u64 {
        self.tables
            .get(table)
            .map_or(self.compacted, |table| table.forgotten.max(self.compacted))
    }

    /// The changes of a table after `revision`, oldest first.
    pub fn changes_after(&self, table: &TableKey, revision: u64) -> impl Iterator<Item = &Change> {
        let changes = self.tables.get(table).map(|table| &table.changes);
        let start = changes.map_or(0, |changes| {
            changes.partition_point(|change| change.revision <= revision)
        });
        changes.into_iter().flat_map(move |changes| changes.range(start..))
    }

    /// The table as it was at `revision`, or `None` when that is forgotten.
    pub fn at(&self, table: &TableKey, revision: u64) -> Option<Objects> {
        if !self.remembers(table, revision) {
            return None;
        }
        let Some(table) = self.tables.get(table) else {
            return Some(Objects::new());
        };
        let mut objects = table.objects.clone();
        for change in table
            .changes
            .iter()
            .rev()
            .take_while(|change| change.revision > revision)
        {
            match &change.previous {
                Some(previous) => objects.insert(change.key.clone(), previous.clone()),
                None => objects.remove(&change.key),
            };
        }
        Some(objects)
    }

    /// Whether a table has changed since `revision`; a page of an unchanged table needs no reconstruction.
    pub fn changed_after(&self, table: &TableKey, revision: u64) -> bool {
        self.tables
            .get(table)
            .and_then(|table| table.changes.back())
            .is_some_and(|change| change.revision > revision)
    }

    /// Current objects from `start` on, in key order.
    pub fn range_from(&self, table: &TableKey, start: &str) -> impl Iterator<Item = (&Arc<str>, &Arc<Object>)> {
        let start: Arc<str> = Arc::from(start);
        self.tables
            .get(table)
            .into_iter()
            .flat_map(move |table| table.objects.range(start.clone()..))
    }

    /// Current objects that name a node in `spec.nodeName`, in key order.
    pub fn on_node(&self, table: &TableKey, node: &str) -> impl Iterator<Item = (&Arc<str>, &Arc<Object>)> + use<'_> {
        let table = self.tables.get(table);
        let keys = table.and_then(|table| table.by_node.get(node)).into_iter().flatten();
        keys.filter_map(move |key| table?.objects.get_key_value(key))
    }

    /// Asks to be woken at the next change of a table.
    pub fn wake_on_change(&mut self, table: &TableKey, waker: &Waker) {
        let table = self.table_mut(table);
        if !table.wakers.iter().any(|known| known.will_wake(waker)) {
            table.wakers.push(waker.clone());
        }
    }

    /// Wakes every watcher of every table, for changes that are not writes (dropped watches).
    pub fn wake_all(&mut self) {
        self.tables.values_mut().for_each(Table::wake);
    }

    fn table_mut(&mut self, key: &TableKey) -> &mut Table {
        if !self.tables.contains_key(key) {
            let forgotten = self.compacted;
            self.tables.insert(
                key.clone(),
                Table {
                    forgotten,
                    ..Table::default()
                },
            );
        }
        // Inserted above when it was missing.
        self.tables.entry(key.clone()).or_default()
    }
}

impl Table {
    fn index(&mut self, key: &Arc<str>, before: Option<&Arc<Object>>, now: Option<&Arc<Object>>) {
        let (left, entered) = (
            before.map_or("", |object| object.node()),
            now.map_or("", |object| object.node()),
        );
        if left == entered {
            return;
        }
        if let Some(keys) = self.by_node.get_mut(left) {
            keys.remove(key);
            if keys.is_empty() {
                self.by_node.remove(left);
            }
        }
        if !entered.is_empty() {
            self.by_node.entry(entered.into()).or_default().insert(key.clone());
        }
    }

    fn record(&mut self, mut change: Change, history: usize) {
        if let Some(previous) = &mut change.previous
            && previous.has_text()
            && let Some(cold) = previous.cooled()
        {
            self.cool_history(&cold);
            *previous = cold;
        }
        self.changes.push_back(change);
        while self.changes.len() > history {
            if let Some(forgotten) = self.changes.pop_front() {
                self.forgotten = forgotten.revision;
            }
        }
        self.wake();
    }

    /// Keeps as text what has not been written for a while.
    fn cool(&mut self) {
        if let Some(newest) = self.changes.back() {
            self.warm.push_back((newest.key.clone(), newest.revision));
        }
        while self.warm.len() > WARM {
            let Some((key, revision)) = self.warm.pop_front() else {
                return;
            };
            let unchanged = self
                .objects
                .get_mut(&key)
                .filter(|object| object.revision() == revision);
            if let Some(object) = unchanged
                && let Some(cold) = object.cooled()
            {
                *object = Arc::clone(&cold);
                self.cool_history(&cold);
            }
        }
    }

    /// The history holds the same object.
    fn cool_history(&mut self, cold: &Arc<Object>) {
        let at = self.changes.partition_point(|change| change.revision < cold.revision());
        if let Some(change) = self.changes.get_mut(at)
            && change.object.revision() == cold.revision()
            && change.revision == cold.revision()
        {
            change.object = Arc::clone(cold);
        }
    }

    fn wake(&mut self) {
        for waker in self.wakers.drain(..) {
            waker.wake();
        }
    }
}

#[cfg(test)]
mod tests;

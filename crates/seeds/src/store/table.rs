//! One kind of objects and everything that ever happened to it: what lagging views and stale restarts are read from.

use std::collections::BTreeMap;
use std::sync::Arc;

/// One write: the object after it (none where it was removed) and before it (none where it was made).
#[derive(Clone, Debug)]
pub struct Change<K, O> {
    pub revision: u64,
    pub key: K,
    pub after: Option<Arc<O>>,
    pub before: Option<Arc<O>>,
}

/// All objects of one kind, and all changes, oldest first.
#[derive(Clone, Debug)]
pub struct Table<K, O> {
    objects: BTreeMap<K, Arc<O>>,
    changes: Vec<Change<K, O>>,
}

impl<K, O> Default for Table<K, O> {
    fn default() -> Self {
        Self {
            objects: BTreeMap::new(),
            changes: Vec::new(),
        }
    }
}

impl<K: Ord + Clone, O> Table<K, O> {
    pub fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&Arc<O>>
    where
        K: std::borrow::Borrow<Q>,
    {
        self.objects.get(key)
    }

    pub fn contains(&self, key: &K) -> bool {
        self.objects.contains_key(key)
    }

    pub fn values(&self) -> impl ExactSizeIterator<Item = &Arc<O>> {
        self.objects.values()
    }

    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&K, &Arc<O>)> {
        self.objects.iter()
    }

    /// A copy of what is there, the objects shared.
    pub fn all(&self) -> BTreeMap<K, Arc<O>> {
        self.objects.clone()
    }

    pub fn len(&self) -> usize {
        self.objects.len()
    }

    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    pub fn changes(&self) -> &[Change<K, O>] {
        &self.changes
    }

    /// Records the object, or its removal, and says which change it was.
    pub(super) fn record(&mut self, revision: u64, key: K, after: Option<Arc<O>>) -> usize {
        let before = match &after {
            Some(object) => self.objects.insert(key.clone(), Arc::clone(object)),
            None => self.objects.remove(&key),
        };
        self.changes.push(Change {
            revision,
            key,
            after,
            before,
        });
        self.changes.len() - 1
    }
}

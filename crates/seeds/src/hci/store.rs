//! Storage of a Harvester-like cluster: nodes, pods, budgets and Deployments as kubeadm clusters have them ([`crate::store`]), and beside
//! them everything of the core's HCI view, with the history of every kind. One revision counts the writes of both.

use std::collections::BTreeMap;
use std::sync::Arc;

use afloat_core::hci::view::{Hci, HciKind, HciObject, Seen};
use afloat_core::view::{Key, Revision, Target, Uid, WorkloadKind};

use crate::store::{Change, Refused, Store as Base, Writer};

/// A kind that is watched.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Shelf {
    Node,
    Pod,
    Budget,
    Workload,
    Hci(HciKind),
}

impl Shelf {
    const PLAIN: [Self; 4] = [Self::Node, Self::Pod, Self::Budget, Self::Workload];

    pub fn all() -> impl Iterator<Item = Self> {
        Self::PLAIN.into_iter().chain(HciKind::all().map(Self::Hci))
    }

    pub fn index(self) -> usize {
        match self {
            Self::Node => 0,
            Self::Pod => 1,
            Self::Budget => 2,
            Self::Workload => 3,
            Self::Hci(kind) => Self::PLAIN.len() + kind as usize,
        }
    }

    pub fn word(self) -> &'static str {
        match self {
            Self::Node => "Node",
            Self::Pod => "Pod",
            Self::Budget => "Budget",
            Self::Workload => "Deployment",
            Self::Hci(kind) => kind.word(),
        }
    }
}

/// One write of the HCI part.
#[derive(Clone, Debug)]
pub struct HciChange {
    pub revision: u64,
    pub key: Key,
    pub before: Option<HciObject>,
    pub after: Option<HciObject>,
}

/// What one write was: its kind, and its place in that kind's history.
#[derive(Clone, Copy, Debug)]
pub struct Note {
    pub place: Shelf,
    pub index: usize,
    pub writer: Writer,
    pub verb: &'static str,
}

/// A cluster's storage.
#[derive(Debug, Default)]
pub struct Store {
    pub base: Base,
    /// Everything of the HCI part as it is now.
    pub hci: Hci,
    histories: Vec<Vec<HciChange>>,
    /// Uid of the upgrade that owns an object.
    owners: BTreeMap<(Shelf, Key), Uid>,
}

impl Store {
    pub fn revision(&self) -> u64 {
        self.base.revision()
    }

    /// Names a new object.
    pub fn born(&mut self, namespace: &str, name: &str) -> Target {
        Target {
            key: Key::new(namespace, name),
            uid: self.base.new_uid(),
            revision: Revision(0),
        }
    }

    pub fn history(&self, kind: HciKind) -> &[HciChange] {
        self.histories.get(kind as usize).map_or(&[], Vec::as_slice)
    }

    fn record(&mut self, kind: HciKind, change: HciChange) -> usize {
        let place = kind as usize;
        if self.histories.len() <= place {
            self.histories.resize_with(place + 1, Vec::new);
        }
        let history = &mut self.histories[place];
        history.push(change);
        history.len() - 1
    }

    /// Writes an object, with a new revision; nothing where it changes nothing.
    pub fn put(&mut self, mut object: HciObject) -> Option<usize> {
        let (kind, key) = (object.kind(), object.target().key.clone());
        let before = self.hci.get(kind, &key);
        if before.as_ref().is_some_and(|before| before.says_the_same(&object)) {
            return None;
        }
        let revision = self.base.next_revision();
        object.at_revision(Revision(revision));
        if let HciObject::Upgrade(upgrade) = &mut object {
            // Decisions read who it is from the object itself.
            let upgrade = Arc::make_mut(upgrade);
            upgrade.what.metadata.resource_version = Some(revision.to_string());
            upgrade.what.metadata.uid = Some(upgrade.target.uid.as_str().to_owned());
        }
        self.hci.take(object.clone());
        let change = HciChange {
            revision,
            key,
            before,
            after: Some(object),
        };
        Some(self.record(kind, change))
    }

    /// Removes an object at once, whatever holds it.
    pub fn remove(&mut self, kind: HciKind, key: &Key) -> Option<usize> {
        let before = self.hci.get(kind, key)?;
        self.hci.remove(kind, key);
        self.owners.remove(&(Shelf::Hci(kind), key.clone()));
        let change = HciChange {
            revision: self.base.next_revision(),
            key: key.clone(),
            before: Some(before),
            after: None,
        };
        Some(self.record(kind, change))
    }

    pub fn own(&mut self, place: Shelf, key: &Key, upgrade: &Uid) {
        self.owners.insert((place, key.clone()), upgrade.clone());
    }

    pub fn owner(&self, place: Shelf, key: &Key) -> Option<&Uid> {
        self.owners.get(&(place, key.clone()))
    }

    /// What an upgrade owns.
    pub fn owned_by(&self, upgrade: &Uid) -> Vec<(Shelf, Key)> {
        let owned = self.owners.iter().filter(|(_, owner)| *owner == upgrade);
        owned.map(|(what, _)| what.clone()).collect()
    }

    /// The Deployment that serves a release.
    pub fn repo(&self, key: &Key) -> Option<&Arc<afloat_core::view::Workload>> {
        self.base.workloads.get(&(WorkloadKind::Deployment, key.clone()))
    }

    /// How many changes of a kind there are.
    pub fn length(&self, place: Shelf) -> usize {
        match place {
            Shelf::Node => self.base.nodes.changes().len(),
            Shelf::Pod => self.base.pods.changes().len(),
            Shelf::Budget => self.base.budgets.changes().len(),
            Shelf::Workload => self.base.workloads.changes().len(),
            Shelf::Hci(kind) => self.history(kind).len(),
        }
    }

    /// How many of them were made up to a revision.
    pub fn length_at(&self, place: Shelf, revision: u64) -> usize {
        fn of<K, O>(changes: &[Change<K, O>], revision: u64) -> usize {
            changes.partition_point(|change| change.revision <= revision)
        }
        match place {
            Shelf::Node => of(self.base.nodes.changes(), revision),
            Shelf::Pod => of(self.base.pods.changes(), revision),
            Shelf::Budget => of(self.base.budgets.changes(), revision),
            Shelf::Workload => of(self.base.workloads.changes(), revision),
            Shelf::Hci(kind) => self.history(kind).partition_point(|change| change.revision <= revision),
        }
    }

    /// The revision up to which whoever has seen so many changes of a kind knows it.
    pub fn seen_up_to(&self, kind: HciKind, cursor: usize) -> u64 {
        let next = self.history(kind).get(cursor);
        next.map_or(u64::MAX, |change| change.revision.saturating_sub(1))
    }

    /// The revision of the last of so many changes of nodes.
    pub fn node_revision(&self, cursor: usize) -> u64 {
        let last = cursor
            .checked_sub(1)
            .and_then(|last| self.base.nodes.changes().get(last));
        last.map_or(0, |change| change.revision)
    }
}

/// Whether an object that is there is the very one that is meant, in the very state.
pub fn meant<T>(there: Option<&Arc<Seen<T>>>, target: &Target, loose: Loose) -> Result<Arc<Seen<T>>, Refused> {
    let there = there.ok_or(Refused::NotFound)?;
    let another = !loose.uid && there.target.uid != target.uid;
    let changed = !loose.revision && there.target.revision != target.revision;
    if another || changed {
        return Err(Refused::Conflict);
    }
    Ok(Arc::clone(there))
}

/// Which preconditions are left out.
#[derive(Clone, Copy, Debug, Default)]
pub struct Loose {
    pub uid: bool,
    pub revision: bool,
}

//! What an operator or a task sees of the cluster: a view of its own, fed from the storage's history, each kind as far as its watch has
//! come, and never further back than it was, except where it starts anew from an API server that lags.

use std::collections::BTreeMap;
use std::sync::Arc;

use afloat_core::Changed;
use afloat_core::hci::view::HciKind;
use afloat_core::view::{Key, Node, Revision, View, Workload};

use super::execute::Answer;
use super::store::{Shelf, Store};
use crate::store::Change;
use crate::time::Millis;

pub struct Eyes {
    pub view: View,
    watched: Vec<Shelf>,
    /// The next change to be seen, by kind.
    cursors: Vec<usize>,
    /// A watch says nothing until then.
    held: Vec<Millis>,
    /// Deleted by an own write at this revision: a watch that still shows it is behind.
    buried: BTreeMap<(Shelf, Key), u64>,
}

impl Eyes {
    /// Reads everything as it was at a revision.
    pub fn open(store: &Store, watched: Vec<Shelf>, revision: u64) -> Self {
        let many = Shelf::all().count();
        let mut eyes = Self {
            view: View::default(),
            watched: Vec::new(),
            cursors: vec![0; many],
            held: vec![0; many],
            buried: BTreeMap::new(),
        };
        for place in &watched {
            eyes.list(store, *place, revision);
        }
        eyes.watched = watched;
        eyes
    }

    pub fn watches(&self, place: Shelf) -> bool {
        self.watched.contains(&place)
    }

    pub fn hold(&mut self, place: Shelf, until: Millis) {
        let held = &mut self.held[place.index()];
        *held = (*held).max(until);
    }

    pub fn hold_none(&mut self) {
        self.held.fill(0);
    }

    /// The revision up to which nodes were seen.
    pub fn nodes_seen(&self, store: &Store) -> u64 {
        store.node_revision(self.cursors[Shelf::Node.index()])
    }

    /// The revision up to which volumes and their engines were seen.
    pub fn storage_seen(&self, store: &Store) -> u64 {
        let seen = |kind| store.seen_up_to(kind, self.cursors[Shelf::Hci(kind).index()]);
        seen(HciKind::Volume).min(seen(HciKind::Engine))
    }

    fn list(&mut self, store: &Store, place: Shelf, revision: u64) {
        let upto = store.length_at(place, revision);
        match place {
            Shelf::Hci(kind) if upto == store.length(place) => {
                for key in store.hci.keys(kind) {
                    if let Some(object) = store.hci.get(kind, &key) {
                        self.view.hci.take(object);
                    }
                }
                self.cursors[place.index()] = upto;
            }
            _ => self.advance(store, place, upto, &mut Vec::new()),
        }
    }

    /// Watches deliver, each as far as it has come: all of it, or by `partly` some of it. When it is worth looking again.
    pub fn sync(
        &mut self,
        store: &Store,
        now: Millis,
        mut partly: impl FnMut(usize, usize) -> usize,
        changed: &mut Vec<Changed>,
    ) -> Option<Millis> {
        let mut behind: Option<Millis> = None;
        let mut later = |at: Millis| behind = Some(behind.map_or(at, |other| other.min(at)));
        for place in self.watched.clone() {
            let (length, from) = (store.length(place), self.cursors[place.index()]);
            if length == from {
                continue;
            }
            let held = self.held[place.index()];
            if held > now {
                later(held);
                continue;
            }
            let upto = partly(from, length);
            if upto < length {
                later(now);
            }
            self.advance(store, place, upto, changed);
        }
        behind
    }

    fn advance(&mut self, store: &Store, place: Shelf, upto: usize, changed: &mut Vec<Changed>) {
        let from = self.cursors[place.index()];
        if upto <= from {
            return;
        }
        self.cursors[place.index()] = upto;
        match place {
            Shelf::Node => {
                for change in &store.base.nodes.changes()[from..upto] {
                    self.node(change, changed);
                }
                self.view.nodes_as_of = Revision(store.node_revision(upto));
            }
            Shelf::Pod => {
                for change in &store.base.pods.changes()[from..upto] {
                    match &change.after {
                        Some(pod) => self.view.put_pod(Arc::clone(pod)),
                        None => drop(self.view.remove_pod(&change.key)),
                    }
                    let pod = change.after.as_ref().or(change.before.as_ref());
                    changed.push(Changed::Pod(pod.and_then(|pod| pod.node.clone())));
                }
            }
            Shelf::Budget => {
                for change in &store.base.budgets.changes()[from..upto] {
                    match &change.after {
                        Some(budget) => drop(self.view.budgets.insert(change.key.clone(), Arc::clone(budget))),
                        None => drop(self.view.budgets.remove(&change.key)),
                    }
                    changed.push(Changed::Budget(change.key.clone()));
                }
            }
            Shelf::Workload => {
                for change in &store.base.workloads.changes()[from..upto] {
                    if self.is_buried(place, &change.key.1, change.revision) {
                        continue;
                    }
                    if let Some(workload) = &change.after {
                        self.workload(workload, changed);
                    } else {
                        let gone = self.view.workloads.remove(&change.key);
                        changed.extend(gone.map(|_| Changed::Surroundings));
                    }
                }
            }
            Shelf::Hci(kind) => self.hci(store, kind, (from, upto), changed),
        }
    }

    fn is_buried(&self, place: Shelf, key: &Key, revision: u64) -> bool {
        let buried = self.buried.get(&(place, key.clone()));
        buried.is_some_and(|buried| revision <= *buried)
    }

    fn node(&mut self, change: &Change<afloat_core::view::NodeName, Node>, changed: &mut Vec<Changed>) {
        let known = self.view.nodes.get(&change.key).map(|node| node.revision.0);
        if known.is_some_and(|known| change.revision <= known) {
            return;
        }
        if let Some(node) = &change.after {
            changed.extend(self.put_node(node));
        } else {
            self.view.nodes.remove(&change.key);
            changed.push(Changed::Node(change.key.clone()));
        }
    }

    /// A kubelet reports again and again what it has reported before: nobody is woken.
    fn put_node(&mut self, after: &Arc<Node>) -> Option<Changed> {
        let before = self.view.nodes.insert(after.name.clone(), Arc::clone(after));
        let same = before.as_ref().is_some_and(|before| {
            let mut before = Node::clone(before);
            before.revision = after.revision;
            before == **after
        });
        (!same).then(|| Changed::node(before.as_deref(), after))
    }

    fn workload(&mut self, after: &Arc<Workload>, changed: &mut Vec<Changed>) {
        let slot = (after.kind, after.key.clone());
        let known = self.view.workloads.get(&slot);
        if known.is_some_and(|known| known.revision >= after.revision) {
            return;
        }
        let before = self.view.workloads.insert(slot, Arc::clone(after));
        let told = |workload: &Workload| (workload.uid.clone(), workload.replicas, workload.ready);
        if before.is_none_or(|before| told(&before) != told(after)) {
            changed.push(Changed::Surroundings);
        }
    }

    fn hci(&mut self, store: &Store, kind: HciKind, range: (usize, usize), changed: &mut Vec<Changed>) {
        for change in &store.history(kind)[range.0..range.1] {
            let known = self.view.hci.known(kind, &change.key);
            let old = known.is_some_and(|(_, revision)| change.revision <= revision.0);
            if old || self.is_buried(Shelf::Hci(kind), &change.key, change.revision) {
                continue;
            }
            let news = match &change.after {
                Some(object) => self.view.hci.take(object.clone()),
                None => self.view.hci.remove(kind, &change.key),
            };
            if news {
                changed.push(Changed::Hci(kind));
            }
        }
    }

    /// The answer to an own write is taken in at once.
    pub fn answered(&mut self, answer: &Answer) -> Option<Changed> {
        match answer {
            Answer::Nothing => None,
            Answer::Node(node) => {
                let known = self.view.nodes.get(&node.name);
                if known.is_some_and(|known| known.revision >= node.revision) {
                    return None;
                }
                self.put_node(node)
            }
            Answer::Workload(workload) => {
                let mut changed = Vec::new();
                self.workload(workload, &mut changed);
                changed.pop()
            }
            Answer::Hci(object) => {
                let (kind, target) = (object.kind(), object.target());
                let known = self.view.hci.known(kind, &target.key);
                if known.is_some_and(|(_, revision)| revision >= target.revision) {
                    return None;
                }
                let news = self.view.hci.take(object.clone());
                news.then_some(Changed::Hci(kind))
            }
            Answer::Gone(place, target, revision) => self.bury(*place, target, *revision),
        }
    }

    /// An own write has deleted an object: gone at once, also while a watch still tells of it.
    fn bury(&mut self, place: Shelf, target: &afloat_core::view::Target, revision: u64) -> Option<Changed> {
        self.buried.insert((place, target.key.clone()), revision);
        match place {
            Shelf::Hci(kind) => {
                let (uid, _) = self.view.hci.known(kind, &target.key)?;
                let gone = uid == target.uid && self.view.hci.remove(kind, &target.key);
                gone.then_some(Changed::Hci(kind))
            }
            Shelf::Workload => {
                let slot = (afloat_core::view::WorkloadKind::Deployment, target.key.clone());
                self.view.workloads.remove(&slot).map(|_| Changed::Surroundings)
            }
            _ => None,
        }
    }
}

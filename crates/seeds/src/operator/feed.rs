//! A replica's own view of the cluster: fed from the storage's history, each kind as far as its watch has come, never
//! further back than it was, except where the replica starts anew from an API server that lags.

use std::collections::BTreeMap;
use std::sync::Arc;

use afloat_api::{ClusterUpgrade, ControlPlaneKubeadmUpgrade, NodeKubeadmUpgrade, WorkersKubeadmUpgrade};
use afloat_core::Changed;
use afloat_core::view::{Key, Lock, Node, Revision, View};

use super::execute::Answer;
use crate::store::{Change, Kind, KindName, Store};

/// How far the watch of each kind has come: the next change to be seen.
pub type Cursors = [usize; KindName::ALL.len()];

/// Takes in the changes of one kind up to `upto`, and tells what changed.
pub fn advance(
    view: &mut View,
    store: &Store,
    cursors: &mut Cursors,
    kind: KindName,
    upto: usize,
    changed: &mut Vec<Changed>,
) {
    let from = cursors[kind.index()];
    if upto <= from {
        return;
    }
    cursors[kind.index()] = upto;
    match kind {
        KindName::Node => view.nodes_as_of = view.nodes_as_of.max(Revision(revision_at(store, kind, upto))),
        KindName::NodeUpgrade => view.node_upgrades_as_of = Revision(revision_at(store, kind, upto)),
        _ => {}
    }
    match kind {
        KindName::Node => each(store.nodes.changes(), from, upto, |change| {
            let known = view.nodes.get(&change.key).map(|node| node.revision.0);
            if newer(change, known) {
                changed.push(if let Some(node) = &change.after {
                    put_node(view, node)
                } else {
                    view.nodes.remove(&change.key);
                    Changed::Node(change.key.clone())
                });
            }
        }),
        KindName::Pod => each(store.pods.changes(), from, upto, |change| {
            let known = view.pod(&change.key).map(|pod| pod.revision.0);
            if newer(change, known) {
                match &change.after {
                    Some(pod) => view.put_pod(Arc::clone(pod)),
                    None => {
                        view.remove_pod(&change.key);
                    }
                }
                let pod = change.after.as_ref().or(change.before.as_ref());
                changed.push(Changed::Pod(pod.and_then(|pod| pod.node.clone())));
            }
        }),
        KindName::Budget => each(store.budgets.changes(), from, upto, |change| {
            match &change.after {
                Some(budget) => view.budgets.insert(change.key.clone(), Arc::clone(budget)),
                None => view.budgets.remove(&change.key),
            };
            changed.push(Changed::Budget(change.key.clone()));
        }),
        KindName::Workload => each(store.workloads.changes(), from, upto, |change| {
            match &change.after {
                Some(workload) => view.workloads.insert(change.key.clone(), Arc::clone(workload)),
                None => view.workloads.remove(&change.key),
            };
            changed.push(Changed::Workload);
        }),
        KindName::Lock => each(store.locks.changes(), from, upto, |change| {
            let known = view.lock.as_ref().map(|lock| lock.target.revision.0);
            if newer(change, known) {
                view.lock = change.after.as_ref().map(|lock| Lock::clone(lock));
                changed.push(Changed::Lock);
            }
        }),
        _ => own_kinds(view, store, kind, (from, upto), changed),
    }
}

/// Reads all objects of a kind as they were at a revision. The newest state is at hand; any other is what came of the changes.
pub fn list(view: &mut View, store: &Store, cursors: &mut Cursors, kind: KindName, revision: u64) {
    let upto = length_at(store, kind, revision);
    if upto < length(store, kind) {
        if kind == KindName::Pod {
            // What most changes are about: those since are taken back.
            let mut pods = store.pods.all();
            for change in store.pods.changes()[upto..].iter().rev() {
                match &change.before {
                    Some(pod) => pods.insert(change.key.clone(), Arc::clone(pod)),
                    None => pods.remove(&change.key),
                };
            }
            view.put_all_pods(pods);
            cursors[kind.index()] = upto;
            return;
        }
        return advance(view, store, cursors, kind, upto, &mut Vec::new());
    }
    cursors[kind.index()] = upto;
    let as_of = Revision(revision_at(store, kind, upto));
    match kind {
        KindName::Node => {
            view.nodes_as_of = as_of;
            view.nodes = store.nodes.all();
        }
        KindName::Pod => view.put_all_pods(store.pods.all()),
        KindName::Budget => view.budgets = store.budgets.all(),
        KindName::Workload => view.workloads = store.workloads.all(),
        KindName::Lock => view.lock = store.locks.values().next().map(|lock| Lock::clone(lock)),
        KindName::Upgrade => view.upgrades = store.upgrades.all(),
        KindName::ControlPlane => view.control_planes = store.control_planes.all(),
        KindName::Workers => view.workers = store.workers.all(),
        KindName::NodeUpgrade => {
            view.node_upgrades_as_of = as_of;
            for (key, upgrade) in store.node_upgrades.iter() {
                view.put_node_upgrade(key.clone(), Arc::clone(upgrade));
            }
        }
    }
}

fn own_kinds(view: &mut View, store: &Store, kind: KindName, range: (usize, usize), changed: &mut Vec<Changed>) {
    let (from, upto) = range;
    match kind {
        KindName::Upgrade => each(store.upgrades.changes(), from, upto, |change| {
            let known = view.upgrades.get(&change.key).map(|object| object.revision());
            if newer(change, known) {
                changed.push(put_upgrade(view, &change.key, change.after.as_ref()));
            }
        }),
        KindName::ControlPlane => each(store.control_planes.changes(), from, upto, |change| {
            let known = view.control_planes.get(&change.key).map(|object| object.revision());
            if newer(change, known) {
                changed.push(put_control_plane(view, &change.key, change.after.as_ref()));
            }
        }),
        KindName::Workers => each(store.workers.changes(), from, upto, |change| {
            let known = view.workers.get(&change.key).map(|object| object.revision());
            if newer(change, known) {
                changed.push(put_workers(view, &change.key, change.after.as_ref()));
            }
        }),
        KindName::NodeUpgrade => each(store.node_upgrades.changes(), from, upto, |change| {
            let known = view.node_upgrade(&change.key).map(|object| object.revision());
            if newer(change, known) {
                changed.push(put_node_upgrade(view, &change.key, change.after.as_ref()));
            }
        }),
        _ => {}
    }
}

fn put_node(view: &mut View, after: &Arc<Node>) -> Changed {
    let before = view.nodes.insert(after.name.clone(), Arc::clone(after));
    Changed::node(before.as_deref(), after)
}

/// Takes in one of Afloat's objects that is kept by its key, or its end; `told` says what the change means.
fn put<T>(
    objects: &mut BTreeMap<Key, Arc<T>>,
    key: &Key,
    after: Option<&Arc<T>>,
    told: fn(&Key, Option<&T>, &T) -> Changed,
    gone: fn(Key) -> Changed,
) -> Changed {
    let Some(after) = after else {
        objects.remove(key);
        return gone(key.clone());
    };
    let before = objects.insert(key.clone(), Arc::clone(after));
    told(key, before.as_deref(), after)
}

fn put_upgrade(view: &mut View, key: &Key, after: Option<&Arc<ClusterUpgrade>>) -> Changed {
    put(&mut view.upgrades, key, after, Changed::upgrade, Changed::Upgrade)
}

fn put_control_plane(view: &mut View, key: &Key, after: Option<&Arc<ControlPlaneKubeadmUpgrade>>) -> Changed {
    let told = Changed::control_plane;
    put(&mut view.control_planes, key, after, told, Changed::ControlPlane)
}

fn put_workers(view: &mut View, key: &Key, after: Option<&Arc<WorkersKubeadmUpgrade>>) -> Changed {
    put(&mut view.workers, key, after, Changed::workers, Changed::Workers)
}

fn put_node_upgrade(view: &mut View, key: &Key, after: Option<&Arc<NodeKubeadmUpgrade>>) -> Changed {
    let Some(after) = after else {
        view.remove_node_upgrade(key);
        return Changed::NodeUpgrade(key.clone());
    };
    let before = view.put_node_upgrade(key.clone(), Arc::clone(after));
    Changed::node_upgrade(key, before.as_deref(), after)
}

fn each<K, O>(changes: &[Change<K, O>], from: usize, upto: usize, take: impl FnMut(&Change<K, O>)) {
    let upto = upto.min(changes.len());
    changes[from.min(upto)..upto].iter().for_each(take);
}

/// What the answer to an own write brought is not taken back by an older event.
fn newer<K, O>(change: &Change<K, O>, known: Option<u64>) -> bool {
    known.is_none_or(|known| change.revision > known)
}

/// How many changes of a kind there are.
pub fn length(store: &Store, kind: KindName) -> usize {
    match kind {
        KindName::Node => store.nodes.changes().len(),
        KindName::Pod => store.pods.changes().len(),
        KindName::Budget => store.budgets.changes().len(),
        KindName::Workload => store.workloads.changes().len(),
        KindName::Upgrade => store.upgrades.changes().len(),
        KindName::ControlPlane => store.control_planes.changes().len(),
        KindName::Workers => store.workers.changes().len(),
        KindName::NodeUpgrade => store.node_upgrades.changes().len(),
        KindName::Lock => store.locks.changes().len(),
    }
}

/// The revision a kind's watch has come to.
pub fn revision_at(store: &Store, kind: KindName, cursor: usize) -> u64 {
    fn of<K, O>(changes: &[Change<K, O>], cursor: usize) -> u64 {
        cursor
            .checked_sub(1)
            .and_then(|last| changes.get(last))
            .map_or(0, |change| change.revision)
    }
    match kind {
        KindName::Node => of(store.nodes.changes(), cursor),
        KindName::Pod => of(store.pods.changes(), cursor),
        KindName::Budget => of(store.budgets.changes(), cursor),
        KindName::Workload => of(store.workloads.changes(), cursor),
        KindName::Upgrade => of(store.upgrades.changes(), cursor),
        KindName::ControlPlane => of(store.control_planes.changes(), cursor),
        KindName::Workers => of(store.workers.changes(), cursor),
        KindName::NodeUpgrade => of(store.node_upgrades.changes(), cursor),
        KindName::Lock => of(store.locks.changes(), cursor),
    }
}

/// How many changes of a kind were made up to a revision.
pub fn length_at(store: &Store, kind: KindName, revision: u64) -> usize {
    fn of<K, O>(changes: &[Change<K, O>], revision: u64) -> usize {
        changes.partition_point(|change| change.revision <= revision)
    }
    match kind {
        KindName::Node => of(store.nodes.changes(), revision),
        KindName::Pod => of(store.pods.changes(), revision),
        KindName::Budget => of(store.budgets.changes(), revision),
        KindName::Workload => of(store.workloads.changes(), revision),
        KindName::Upgrade => of(store.upgrades.changes(), revision),
        KindName::ControlPlane => of(store.control_planes.changes(), revision),
        KindName::Workers => of(store.workers.changes(), revision),
        KindName::NodeUpgrade => of(store.node_upgrades.changes(), revision),
        KindName::Lock => of(store.locks.changes(), revision),
    }
}

/// Takes the answer to an own write into the view, and tells what changed by it. One that brings nothing new (the write
/// changed nothing) tells nothing, or a decision that writes the same again would never rest.
pub fn take_answer(view: &mut View, answer: &Answer) -> Option<Changed> {
    let changed = match answer {
        Answer::Nothing => None,
        Answer::Node(node) => {
            let new = is_new(view.nodes.get(&node.name), node);
            let changed = put_node(view, node);
            new.then_some(changed)
        }
        Answer::Upgrade(object) => {
            let new = is_new(view.upgrades.get(&object.key()), object);
            let changed = put_upgrade(view, &object.key(), Some(object));
            new.then_some(changed)
        }
        Answer::ControlPlane(object) => {
            let new = is_new(view.control_planes.get(&object.key()), object);
            let changed = put_control_plane(view, &object.key(), Some(object));
            new.then_some(changed)
        }
        Answer::Workers(object) => {
            let new = is_new(view.workers.get(&object.key()), object);
            let changed = put_workers(view, &object.key(), Some(object));
            new.then_some(changed)
        }
        Answer::NodeUpgrade(object) => {
            let key = object.key();
            let new = is_new(view.node_upgrade(&key), object);
            let changed = put_node_upgrade(view, &key, Some(object));
            new.then_some(changed)
        }
        Answer::Pod(pod) => {
            let new = is_new(view.pod(&pod.key), pod);
            view.put_pod(Arc::clone(pod));
            new.then(|| Changed::Pod(pod.node.clone()))
        }
        Answer::Lock(lock) => {
            let new = view.lock.as_ref() != Some(lock);
            view.lock = Some(Lock::clone(lock));
            new.then_some(Changed::Lock)
        }
    };
    changed.filter(|changed| !changed.is_known_to_its_writer())
}

fn is_new<O: Kind>(before: Option<&Arc<O>>, after: &O) -> bool {
    before.is_none_or(|before| before.revision() < after.revision())
}

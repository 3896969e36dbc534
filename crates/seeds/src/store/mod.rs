//! Storage with the API server's semantics, on typed objects: one global revision, uids, preconditions, generations, status
//! apart from spec, finalizers, graceful deletion, eviction under budgets, and the history of every kind. Single-threaded and
//! free of JSON; what is served over HTTP is `afloat-apisim`. Who writes what, and when, is for the actors.

mod evict;
mod kinds;
mod table;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use afloat_api::{ClusterUpgrade, ControlPlaneKubeadmUpgrade, NodeKubeadmUpgrade, WorkersKubeadmUpgrade};
use afloat_core::action::TaskPod;
use afloat_core::view::{Ending, Key, Lock, Node, NodeName, Pod, PodBudget, Uid, Workload, WorkloadKind};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

pub use kinds::{Custom, Kind, KindName};
pub use table::{Change, Table};

use super::time::{Millis, stamp};

/// Why a request was refused.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Refused {
    /// 404
    NotFound,
    /// 409: another revision or another uid.
    Conflict,
    /// 409: the name is taken.
    AlreadyExists,
    /// 422
    Invalid,
    /// 429: a budget allows no disruption.
    TooManyRequests,
    /// 500
    Internal,
    /// 503, or no answer at all.
    Unavailable,
}

/// Who writes.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Writer {
    Setup,
    Operator(u8),
    Kubelet,
    NodeLifecycle,
    Scheduler,
    Workloads,
    Disruption,
    Collector,
    Person,
    Task,
    Jobs,
    Rancher,
    KubeVirt,
    Longhorn,
    Fleet,
    Harvester,
    Machine,
}

impl Writer {
    pub fn word(self) -> &'static str {
        match self {
            Self::Setup => "setup",
            Self::Operator(0) => "operator-a",
            Self::Operator(_) => "operator-b",
            Self::Kubelet => "kubelet",
            Self::NodeLifecycle => "node-lifecycle",
            Self::Scheduler => "scheduler",
            Self::Workloads => "workloads",
            Self::Disruption => "disruption",
            Self::Collector => "collector",
            Self::Person => "person",
            Self::Task => "task",
            Self::Jobs => "jobs",
            Self::Rancher => "rancher",
            Self::KubeVirt => "kubevirt",
            Self::Longhorn => "longhorn",
            Self::Fleet => "fleet",
            Self::Harvester => "harvester",
            Self::Machine => "machine",
        }
    }
}

/// What one write was: its kind, and its place in that kind's history.
#[derive(Clone, Copy, Debug)]
pub struct Written {
    pub kind: KindName,
    pub index: usize,
    pub writer: Writer,
    pub verb: &'static str,
}

/// The one object that is meant: by name, and where given only this very one, in this very state.
#[derive(Clone, Copy, Debug)]
pub struct Meant<'a, K> {
    pub key: &'a K,
    pub uid: Option<&'a str>,
    pub revision: Option<u64>,
}

impl<'a, K> Meant<'a, K> {
    pub fn named(key: &'a K) -> Self {
        Self {
            key,
            uid: None,
            revision: None,
        }
    }
}

/// What is known of a pod beyond the view of it.
#[derive(Clone, Debug, Default)]
pub struct PodMore {
    /// The steps, where it is one of Afloat's.
    pub task: Option<Arc<TaskPod>>,
    pub grace: Millis,
    /// Uid of the object that owns it.
    pub owner: Option<Uid>,
}

/// What a PodDisruptionBudget asks for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum BudgetSpec {
    MinAvailable(i64),
    MaxUnavailable(i64),
}

/// A cluster's storage.
#[derive(Clone, Debug, Default)]
pub struct Store {
    pub now: Millis,
    revision: u64,
    last_uid: u32,
    pub nodes: Table<NodeName, Node>,
    pub pods: Table<Key, Pod>,
    pub budgets: Table<Key, PodBudget>,
    pub workloads: Table<(WorkloadKind, Key), Workload>,
    pub upgrades: Table<Key, ClusterUpgrade>,
    pub control_planes: Table<Key, ControlPlaneKubeadmUpgrade>,
    pub workers: Table<Key, WorkersKubeadmUpgrade>,
    pub node_upgrades: Table<Key, NodeKubeadmUpgrade>,
    pub locks: Table<Key, Lock>,
    /// Beyond the view of a pod, by its uid.
    pub pods_more: BTreeMap<Uid, PodMore>,
    pub pods_by_node: BTreeMap<NodeName, BTreeSet<Key>>,
    pub budget_specs: BTreeMap<Key, BudgetSpec>,
    /// Pods whose eviction a budget has allowed and that its controller has not seen going (`status.disruptedPods`).
    pub disrupted: BTreeMap<Key, BTreeMap<Uid, Millis>>,
    /// Writes that nobody has looked at yet.
    pub fresh: Vec<Written>,
}

impl Store {
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// The revision of a write that is recorded elsewhere.
    pub fn next_revision(&mut self) -> u64 {
        self.revision += 1;
        self.revision
    }

    /// A uid that no object has had. Its first eight digits tell it apart: names are made from them.
    pub fn new_uid(&mut self) -> Uid {
        self.last_uid += 1;
        // Spread, so that neighbours do not look alike in a trace.
        let spread = self.last_uid.wrapping_mul(0x9e37_79b1);
        Uid::from(format!("{spread:08x}-0000-4000-8000-{:012x}", self.last_uid))
    }

    /// Writes an object as it is, with a new revision.
    pub fn put<T: Kind>(&mut self, writer: Writer, verb: &'static str, mut object: T) -> Arc<T> {
        self.revision += 1;
        object.set_revision(self.revision);
        let object = Arc::new(object);
        let revision = self.revision;
        let index = T::table_mut(self).record(revision, object.key(), Some(Arc::clone(&object)));
        self.note::<T>(writer, verb, index);
        object
    }

    /// Removes an object at once, whatever holds it.
    pub fn remove<T: Kind>(&mut self, writer: Writer, key: &T::Key) -> bool {
        if !T::table(self).contains(key) {
            return false;
        }
        self.revision += 1;
        let revision = self.revision;
        let index = T::table_mut(self).record(revision, key.clone(), None);
        self.note::<T>(writer, "remove", index);
        true
    }

    fn note<T: Kind>(&mut self, writer: Writer, verb: &'static str, index: usize) {
        if T::NAME == KindName::Pod {
            self.index_pod(index);
        }
        self.fresh.push(Written {
            kind: T::NAME,
            index,
            writer,
            verb,
        });
    }

    fn index_pod(&mut self, index: usize) {
        let change = &self.pods.changes()[index];
        let before = change.before.as_ref().and_then(|pod| pod.node.as_ref());
        let after = change.after.as_ref().and_then(|pod| pod.node.as_ref());
        if before == after {
            return;
        }
        if let Some(node) = before
            && let Some(keys) = self.pods_by_node.get_mut(node)
        {
            keys.remove(&change.key);
        }
        if let Some(node) = after {
            let keys = self.pods_by_node.entry(node.clone()).or_default();
            keys.insert(change.key.clone());
        }
    }

    /// The pods of one node.
    pub fn pods_on(&self, node: &NodeName) -> impl Iterator<Item = &Arc<Pod>> {
        let keys = self.pods_by_node.get(node);
        keys.into_iter().flatten().filter_map(|key| self.pods.get(key))
    }

    /// The object that is meant, or why it is not there.
    pub fn meant<T: Kind>(&self, meant: &Meant<'_, T::Key>) -> Result<&Arc<T>, Refused> {
        let object = T::table(self).get(meant.key).ok_or(Refused::NotFound)?;
        if meant.uid.is_some_and(|uid| uid != object.uid()) {
            return Err(Refused::Conflict);
        }
        if meant.revision.is_some_and(|revision| revision != object.revision()) {
            return Err(Refused::Conflict);
        }
        Ok(object)
    }

    /// Changes an object. A change that changes nothing writes nothing, as in the API server.
    pub fn update<T: Kind>(
        &mut self,
        writer: Writer,
        verb: &'static str,
        meant: &Meant<'_, T::Key>,
        change: impl FnOnce(&mut T),
    ) -> Result<Arc<T>, Refused> {
        let before = Arc::clone(self.meant::<T>(meant)?);
        let mut after = T::clone(&before);
        change(&mut after);
        if after == *before {
            return Ok(before);
        }
        Ok(self.put(writer, verb, after))
    }

    /// Makes an object; its uid must be set already.
    pub fn create<T: Kind>(&mut self, writer: Writer, verb: &'static str, object: T) -> Result<Arc<T>, Refused> {
        if T::table(self).contains(&object.key()) {
            return Err(Refused::AlreadyExists);
        }
        Ok(self.put(writer, verb, object))
    }

    /// Makes one of Afloat's objects as the API server does: uid, generation 1, time, no status.
    pub fn create_custom<T: Custom>(
        &mut self,
        writer: Writer,
        verb: &'static str,
        mut object: T,
    ) -> Result<Arc<T>, Refused> {
        if T::table(self).contains(&object.key()) {
            return Err(Refused::AlreadyExists);
        }
        let uid = self.new_uid();
        let meta = object.meta_mut();
        meta.uid = Some(uid.as_str().to_owned());
        meta.generation = Some(1);
        meta.creation_timestamp = Some(Time(stamp(self.now)));
        meta.deletion_timestamp = None;
        *object.status_mut() = None;
        Ok(self.put(writer, verb, object))
    }

    /// Changes metadata and spec; the generation counts changes of the spec, and the status stays as it is. An object that is
    /// being deleted goes once its last finalizer has.
    pub fn update_custom<T: Custom>(
        &mut self,
        writer: Writer,
        verb: &'static str,
        meant: &Meant<'_, Key>,
        change: impl FnOnce(&mut T),
    ) -> Result<Option<Arc<T>>, Refused> {
        let before = Arc::clone(self.meant::<T>(meant)?);
        let mut after = T::clone(&before);
        change(&mut after);
        *after.status_mut() = before.status().cloned();
        if after == *before {
            return Ok(Some(before));
        }
        if after.spec() != before.spec() {
            let meta = after.meta_mut();
            meta.generation = Some(meta.generation.unwrap_or_default() + 1);
        }
        let meta = after.meta();
        if meta.deletion_timestamp.is_some() && meta.finalizers.as_ref().is_none_or(Vec::is_empty) {
            self.remove::<T>(writer, meant.key);
            return Ok(None);
        }
        Ok(Some(self.put(writer, verb, after)))
    }

    /// Changes the status and nothing else.
    pub fn update_status<T: Custom>(
        &mut self,
        writer: Writer,
        verb: &'static str,
        meant: &Meant<'_, Key>,
        status: T::Status,
    ) -> Result<Arc<T>, Refused> {
        let before = self.meant::<T>(meant)?;
        if before.status() == Some(&status) {
            return Ok(Arc::clone(before));
        }
        let after = before.with_status(Some(status));
        Ok(self.put(writer, verb, after))
    }

    /// Deletes one of Afloat's objects: at once, or with a mark while finalizers hold it.
    pub fn delete_custom<T: Custom>(&mut self, writer: Writer, meant: &Meant<'_, Key>) -> Result<(), Refused> {
        let object = Arc::clone(self.meant::<T>(meant)?);
        let meta = object.meta();
        if meta.finalizers.as_ref().is_none_or(Vec::is_empty) {
            self.remove::<T>(writer, meant.key);
            return Ok(());
        }
        if meta.deletion_timestamp.is_none() {
            let mut after = T::clone(&object);
            let meta = after.meta_mut();
            meta.deletion_timestamp = Some(Time(stamp(self.now)));
            meta.generation = Some(meta.generation.unwrap_or_default() + 1);
            self.put(writer, "delete", after);
        }
        Ok(())
    }

    /// Deletes a pod: one that runs nowhere goes at once, any other gets its grace period.
    pub fn delete_pod(
        &mut self,
        writer: Writer,
        verb: &'static str,
        meant: &Meant<'_, Key>,
        grace: Option<Millis>,
    ) -> Result<(), Refused> {
        let pod = Arc::clone(self.meant::<Pod>(meant)?);
        let own = self.pods_more.get(&pod.uid).map_or(0, |more| more.grace);
        let grace = grace.unwrap_or(own);
        if pod.node.is_none() || grace == 0 || pod.phase.finished() {
            self.remove_pod(writer, meant.key);
            return Ok(());
        }
        let by = stamp(self.now + grace);
        if pod.ending.is_some_and(|ending| ending.by <= by) {
            return Ok(());
        }
        let mut after = Pod::clone(&pod);
        after.ending = Some(Ending {
            by,
            held_by_finalizer: false,
        });
        self.put(writer, verb, after);
        Ok(())
    }

    /// Removes a pod and what was kept beside it.
    pub fn remove_pod(&mut self, writer: Writer, key: &Key) {
        if let Some(uid) = self.pods.get(key).map(|pod| pod.uid.clone()) {
            self.remove::<Pod>(writer, key);
            self.pods_more.remove(&uid);
        }
    }
}

#[cfg(test)]
mod tests;

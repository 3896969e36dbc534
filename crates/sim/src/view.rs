//! What the world knows of the API server at an instant: every watched object, with the indexes the actors look
//! things up by, so that no decision walks all pods. Fed by watches and by the answers to the actors' own writes;
//! how either gets here is `feed`'s and `driver`'s business.

use crate::object::{Key, Kind, Object, ObjectRef, controller_of, uid};
use afloat_core::hci::view::HciKind;
use k8s_openapi::api::{
    apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet},
    batch::v1::Job,
    coordination::v1::Lease,
    core::v1::{Event, Namespace, Node, Pod},
    policy::v1::PodDisruptionBudget,
};
use kube::core::DynamicObject;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

type Table<K> = BTreeMap<Key, Arc<K>>;
type Index = BTreeMap<String, BTreeSet<Key>>;

/// An object before and after; one of the two is always there.
#[derive(Clone, Debug)]
pub struct Change {
    pub old: Option<Object>,
    pub new: Option<Object>,
}

impl Change {
    pub fn kind(&self) -> Option<Kind> {
        self.new.as_ref().or(self.old.as_ref()).map(Object::kind)
    }

    pub fn reference(&self) -> Option<ObjectRef> {
        self.new.as_ref().or(self.old.as_ref()).map(Object::reference)
    }

    /// The object after, or before when it is gone.
    pub fn latest(&self) -> Option<&Object> {
        self.new.as_ref().or(self.old.as_ref())
    }
}

/// All watched objects.
#[derive(Debug, Default)]
pub struct View {
    pub nodes: Table<Node>,
    pub namespaces: Table<Namespace>,
    pub pods: Table<Pod>,
    pub leases: Table<Lease>,
    pub deployments: Table<Deployment>,
    pub replica_sets: Table<ReplicaSet>,
    pub daemon_sets: Table<DaemonSet>,
    pub stateful_sets: Table<StatefulSet>,
    pub jobs: Table<Job>,
    pub budgets: Table<PodDisruptionBudget>,
    pub events: Table<Event>,
    pub hci: BTreeMap<HciKind, Table<DynamicObject>>,
    pods_by_node: Index,
    /// Pods and ReplicaSets by the uid of the controller that manages them.
    pods_by_owner: Index,
    replica_sets_by_owner: Index,
}

macro_rules! each_table {
    ($view:expr, $object:expr, $table:ident, $value:ident => $body:expr) => {
        match $object {
            Object::Node($value) => {
                let $table = &mut $view.nodes;
                $body
            }
            Object::Namespace($value) => {
                let $table = &mut $view.namespaces;
                $body
            }
            Object::Pod($value) => {
                let $table = &mut $view.pods;
                $body
            }
            Object::Lease($value) => {
                let $table = &mut $view.leases;
                $body
            }
            Object::Deployment($value) => {
                let $table = &mut $view.deployments;
                $body
            }
            Object::ReplicaSet($value) => {
                let $table = &mut $view.replica_sets;
                $body
            }
            Object::DaemonSet($value) => {
                let $table = &mut $view.daemon_sets;
                $body
            }
            Object::StatefulSet($value) => {
                let $table = &mut $view.stateful_sets;
                $body
            }
            Object::Job($value) => {
                let $table = &mut $view.jobs;
                $body
            }
            Object::PodDisruptionBudget($value) => {
                let $table = &mut $view.budgets;
                $body
            }
            Object::Event($value) => {
                let $table = &mut $view.events;
                $body
            }
            Object::Hci(kind, $value) => {
                let $table = $view.hci.entry(kind.to_owned()).or_default();
                $body
            }
        }
    };
}

impl View {
    pub fn get(&self, reference: &ObjectRef) -> Option<Object> {
        let key = &reference.key;
        match reference.kind {
            Kind::Node => self.nodes.get(key).cloned().map(Object::Node),
            Kind::Namespace => self.namespaces.get(key).cloned().map(Object::Namespace),
            Kind::Pod => self.pods.get(key).cloned().map(Object::Pod),
            Kind::Lease => self.leases.get(key).cloned().map(Object::Lease),
            Kind::Deployment => self.deployments.get(key).cloned().map(Object::Deployment),
            Kind::ReplicaSet => self.replica_sets.get(key).cloned().map(Object::ReplicaSet),
            Kind::DaemonSet => self.daemon_sets.get(key).cloned().map(Object::DaemonSet),
            Kind::StatefulSet => self.stateful_sets.get(key).cloned().map(Object::StatefulSet),
            Kind::Job => self.jobs.get(key).cloned().map(Object::Job),
            Kind::PodDisruptionBudget => self.budgets.get(key).cloned().map(Object::PodDisruptionBudget),
            Kind::Event => self.events.get(key).cloned().map(Object::Event),
            Kind::Hci(kind) => {
                let object = self.hci.get(&kind)?.get(key)?;
                Some(Object::Hci(kind, Arc::clone(object)))
            }
        }
    }

    /// The keys of all objects of a kind.
    pub fn keys(&self, kind: Kind) -> Vec<Key> {
        match kind {
            Kind::Node => self.nodes.keys().cloned().collect(),
            Kind::Namespace => self.namespaces.keys().cloned().collect(),
            Kind::Pod => self.pods.keys().cloned().collect(),
            Kind::Lease => self.leases.keys().cloned().collect(),
            Kind::Deployment => self.deployments.keys().cloned().collect(),
            Kind::ReplicaSet => self.replica_sets.keys().cloned().collect(),
            Kind::DaemonSet => self.daemon_sets.keys().cloned().collect(),
            Kind::StatefulSet => self.stateful_sets.keys().cloned().collect(),
            Kind::Job => self.jobs.keys().cloned().collect(),
            Kind::PodDisruptionBudget => self.budgets.keys().cloned().collect(),
            Kind::Event => self.events.keys().cloned().collect(),
            Kind::Hci(kind) => self
                .hci
                .get(&kind)
                .into_iter()
                .flat_map(|table| table.keys().cloned())
                .collect(),
        }
    }

    /// Takes in an object as seen. A revision that is not newer than the known one changes nothing: own writes are
    /// taken in at once, and the watch tells of them again later.
    pub fn apply(&mut self, object: Object) -> Option<Change> {
        let reference = object.reference();
        let old = self.get(&reference);
        if let Some(known) = &old
            && known.revision() >= object.revision()
        {
            return None;
        }
        if let Some(known) = &old {
            self.unindex(known, &reference.key);
        }
        self.index(&object, &reference.key);
        let new = object.clone();
        each_table!(self, object, table, value => { table.insert(reference.key, value); });
        Some(Change { old, new: Some(new) })
    }

    /// Takes out an object that is gone; a namesake with another uid stays.
    pub fn remove(&mut self, reference: &ObjectRef, gone_uid: &str) -> Option<Change> {
        let old = self.get(reference)?;
        if uid(old.meta()) != gone_uid {
            return None;
        }
        self.unindex(&old, &reference.key);
        each_table!(self, &old, table, _value => { table.remove(&reference.key); });
        Some(Change {
            old: Some(old),
            new: None,
        })
    }

    fn index(&mut self, object: &Object, key: &Key) {
        match object {
            Object::Pod(pod) => {
                if let Some(node) = node_of(pod) {
                    self.pods_by_node
                        .entry(node.to_owned())
                        .or_default()
                        .insert(key.clone());
                }
                if let Some(owner) = controller_of(&pod.metadata) {
                    self.pods_by_owner
                        .entry(owner.uid.clone())
                        .or_default()
                        .insert(key.clone());
                }
            }
            Object::ReplicaSet(set) => {
                if let Some(owner) = controller_of(&set.metadata) {
                    self.replica_sets_by_owner
                        .entry(owner.uid.clone())
                        .or_default()
                        .insert(key.clone());
                }
            }
            _ => {}
        }
    }

    fn unindex(&mut self, object: &Object, key: &Key) {
        match object {
            Object::Pod(pod) => {
                if let Some(node) = node_of(pod) {
                    forget(&mut self.pods_by_node, node, key);
                }
                if let Some(owner) = controller_of(&pod.metadata) {
                    forget(&mut self.pods_by_owner, &owner.uid, key);
                }
            }
            Object::ReplicaSet(set) => {
                if let Some(owner) = controller_of(&set.metadata) {
                    forget(&mut self.replica_sets_by_owner, &owner.uid, key);
                }
            }
            _ => {}
        }
    }

    /// Objects of a kind that is held without a type.
    pub fn all_of(&self, kind: HciKind) -> impl Iterator<Item = &Arc<DynamicObject>> {
        self.hci.get(&kind).into_iter().flat_map(|table| table.values())
    }

    pub fn one_of(&self, kind: HciKind, key: &Key) -> Option<&Arc<DynamicObject>> {
        self.hci.get(&kind)?.get(key)
    }

    pub fn node(&self, name: &str) -> Option<&Arc<Node>> {
        self.nodes.get(&Key::new("", name))
    }

    pub fn pods_on<'a>(&'a self, node: &str) -> impl Iterator<Item = &'a Arc<Pod>> + use<'a> {
        self.pods_by_node
            .get(node)
            .into_iter()
            .flatten()
            .filter_map(|key| self.pods.get(key))
    }

    pub fn pods_owned_by<'a>(&'a self, owner_uid: &str) -> impl Iterator<Item = &'a Arc<Pod>> + use<'a> {
        self.pods_by_owner
            .get(owner_uid)
            .into_iter()
            .flatten()
            .filter_map(|key| self.pods.get(key))
    }

    pub fn replica_sets_owned_by<'a>(&'a self, owner_uid: &str) -> impl Iterator<Item = &'a Arc<ReplicaSet>> + use<'a> {
        self.replica_sets_by_owner
            .get(owner_uid)
            .into_iter()
            .flatten()
            .filter_map(|key| self.replica_sets.get(key))
    }

    pub fn pods_in<'a>(&'a self, namespace: &'a str) -> impl Iterator<Item = &'a Arc<Pod>> {
        within(&self.pods, namespace)
    }

    pub fn budgets_in<'a>(&'a self, namespace: &'a str) -> impl Iterator<Item = &'a Arc<PodDisruptionBudget>> {
        within(&self.budgets, namespace)
    }
}

fn within<'a, K>(table: &'a Table<K>, namespace: &'a str) -> impl Iterator<Item = &'a Arc<K>> {
    table
        .range(Key::new(namespace, "")..)
        .take_while(move |(key, _)| key.namespace == namespace)
        .map(|(_, value)| value)
}

fn forget(index: &mut Index, name: &str, key: &Key) {
    if let Some(keys) = index.get_mut(name) {
        keys.remove(key);
        if keys.is_empty() {
            index.remove(name);
        }
    }
}

/// The node a pod is bound to.
pub fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref().filter(|node| !node.is_empty())
}

/// The pod's phase; a pod without one is pending.
pub fn phase(pod: &Pod) -> &str {
    pod.status
        .as_ref()
        .and_then(|status| status.phase.as_deref())
        .unwrap_or("Pending")
}

/// The pod will never run again.
pub fn is_terminal(pod: &Pod) -> bool {
    matches!(phase(pod), "Succeeded" | "Failed")
}

/// Neither ended nor on its way out: what controllers count.
pub fn is_active(pod: &Pod) -> bool {
    !is_terminal(pod) && pod.metadata.deletion_timestamp.is_none()
}

/// Since when the pod is Ready, if it is.
pub fn ready_since(pod: &Pod) -> Option<jiff::Timestamp> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let ready = conditions.iter().find(|c| c.type_ == "Ready" && c.status == "True")?;
    Some(
        ready
            .last_transition_time
            .as_ref()
            .map_or(jiff::Timestamp::UNIX_EPOCH, |time| time.0),
    )
}

pub fn is_ready(pod: &Pod) -> bool {
    ready_since(pod).is_some()
}

/// The node's kubelet says it is ready.
pub fn is_node_ready(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions
        .into_iter()
        .flatten()
        .any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(revision: u64, uid: &str, node: &str) -> Object {
        Kind::Pod
            .parse(json!({
                "metadata": {
                    "name": "a", "namespace": "shop", "uid": uid, "resourceVersion": revision.to_string(),
                    "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "owner", "controller": true }],
                },
                "spec": { "nodeName": node, "containers": [] },
            }))
            .unwrap()
    }

    #[test]
    fn older_news_changes_nothing() {
        let mut view = View::default();
        assert!(view.apply(pod(5, "u", "n1")).is_some());
        assert!(view.apply(pod(4, "u", "n0")).is_none());
        assert!(view.apply(pod(5, "u", "n0")).is_none());
        assert_eq!(view.pods_on("n1").count(), 1);
    }

    #[test]
    fn indexes_follow_moves_and_removals() {
        let mut view = View::default();
        view.apply(pod(5, "u", ""));
        assert_eq!(view.pods_owned_by("owner").count(), 1);
        view.apply(pod(6, "u", "n1"));
        assert_eq!(view.pods_on("n1").count(), 1);
        let reference = pod(6, "u", "n1").reference();
        assert!(view.remove(&reference, "another").is_none(), "a namesake stays");
        assert!(view.remove(&reference, "u").is_some());
        assert_eq!(view.pods_on("n1").count(), 0);
        assert_eq!(view.pods_owned_by("owner").count(), 0);
        assert!(view.pods_by_node.is_empty() && view.pods_by_owner.is_empty());
    }
}

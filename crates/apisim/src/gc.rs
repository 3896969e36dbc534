//! The garbage collector and the namespace controller: actors beside the server, as in a real cluster, where the
//! controller manager runs them. They look at what is stored and send ordinary requests; one turn is a plain function,
//! so that the simulator decides when it happens.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use serde_json::{Value, json};

use crate::resource::ResourceType;
use crate::server::{ApiServer, State};
use crate::store::{ChangeKind, Object, TableKey};

const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";

/// Where an object is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    table: TableKey,
    key: Arc<str>,
}

/// Collects what nobody owns any more.
pub struct Collector {
    server: ApiServer,
    /// Everything up to this revision is in the graph.
    seen: u64,
    /// Who is where, by uid.
    places: BTreeMap<String, Place>,
    /// Who names an owner, by the owner's uid.
    dependents: BTreeMap<String, BTreeSet<String>>,
    /// Whom each names as its owners: storage would have to read them out of the text of the object before.
    owners: BTreeMap<String, Vec<String>>,
    /// Uids to look at in the next turn.
    dirty: BTreeSet<String>,
}

/// What one turn wants done.
enum Task {
    Delete {
        object: Arc<Object>,
        resource: Arc<ResourceType>,
        propagation: &'static str,
    },
    /// Replaces one list of an object's metadata.
    Metadata {
        object: Arc<Object>,
        resource: Arc<ResourceType>,
        field: &'static str,
        value: Value,
    },
    Finalize {
        namespace: Arc<Object>,
    },
}

impl Collector {
    pub fn new(server: ApiServer) -> Self {
        Self {
            server,
            seen: 0,
            places: BTreeMap::new(),
            dependents: BTreeMap::new(),
            owners: BTreeMap::new(),
            dirty: BTreeSet::new(),
        }
    }

    /// Takes turns whenever something changed, until the task is dropped.
    pub async fn run(mut self, period: Duration) {
        let mut interval = tokio::time::interval(period);
        interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            interval.tick().await;
            self.turn();
        }
    }

    /// Takes turns until nothing is left to do, `most` at the most; tells how many requests were sent.
    pub fn settle(&mut self, most: usize) -> usize {
        let mut sent = 0;
        for _ in 0..most {
            match self.turn() {
                0 => break,
                requests => sent += requests,
            }
        }
        sent
    }

    /// Looks at what changed and sends the requests that follow from it; tells how many.
    pub fn turn(&mut self) -> usize {
        let server = self.server.clone();
        let tasks = {
            let state = server.state();
            // Nothing was written, and nothing refused, since the last turn.
            if self.seen == state.store.revision() && self.dirty.is_empty() {
                return 0;
            }
            self.learn(&state);
            let looked_at = std::mem::take(&mut self.dirty);
            let mut tasks: Vec<Task> = looked_at.iter().filter_map(|uid| self.judge(&state, uid)).collect();
            tasks.extend(terminating_namespaces(&state));
            tasks
        };
        tasks.into_iter().filter(|task| self.carry_out(task)).count()
    }

    /// Takes the changes since the last turn into the graph.
    fn learn(&mut self, state: &State) {
        let tables: Vec<TableKey> = state.store.tables().cloned().collect();
        let forgotten = tables.iter().any(|table| !state.store.remembers(table, self.seen));
        if forgotten || self.seen == 0 {
            self.rebuild(state, &tables);
        } else {
            for table in &tables {
                for change in state.store.changes_after(table, self.seen) {
                    let place = Place {
                        table: table.clone(),
                        key: change.key.clone(),
                    };
                    self.note(&change.object, place, change.kind == ChangeKind::Deleted);
                }
            }
        }
        self.seen = state.store.revision();
    }

    fn rebuild(&mut self, state: &State, tables: &[TableKey]) {
        self.places.clear();
        self.dependents.clear();
        self.owners.clear();
        for table in tables {
            for object in state.store.objects(table) {
                let key = crate::store::object_key(object.namespace(), object.name());
                let table = table.clone();
                self.note(object, Place { table, key }, false);
            }
        }
    }

    fn note(&mut self, object: &Object, place: Place, deleted: bool) {
        let uid = object.uid().to_owned();
        for owner in self.owners.remove(&uid).into_iter().flatten() {
            if let Some(dependents) = self.dependents.get_mut(&owner) {
                dependents.remove(&uid);
            }
            // Its owner may have waited for it.
            self.dirty.insert(owner);
        }
        if deleted {
            self.places.remove(&uid);
            self.dirty
                .extend(self.dependents.get(&uid).into_iter().flatten().cloned());
            return;
        }
        let named: Vec<String> = object.owner_uids().map(str::to_owned).collect();
        for owner in &named {
            self.dependents.entry(owner.clone()).or_default().insert(uid.clone());
            self.dirty.insert(uid.clone());
        }
        if !named.is_empty() {
            self.owners.insert(uid.clone(), named);
        }
        if object.is_terminating() {
            self.dirty
                .extend(self.dependents.get(&uid).into_iter().flatten().cloned());
            self.dirty.insert(uid.clone());
        }
        self.places.insert(uid, place);
    }

    fn find<'s>(&self, state: &'s State, uid: &str) -> Option<&'s Arc<Object>> {
        let place = self.places.get(uid)?;
        state
            .store
            .get(&place.table, &place.key)
            .filter(|object| object.uid() == uid)
    }

    fn resource(&self, state: &State, uid: &str) -> Option<Arc<ResourceType>> {
        let table = &self.places.get(uid)?.table;
        let matches = |resource: &&Arc<ResourceType>| State::table_of(resource) == *table;
        state.registry.all().find(matches).cloned()
    }

    /// What is to be done about one object.
    fn judge(&self, state: &State, uid: &str) -> Option<Task> {
        let object = self.find(state, uid)?.clone();
        if object.is_terminating() {
            let resource = self.resource(state, uid)?;
            return self.judge_deleted_owner(state, object, resource);
        }
        // Nearly always: no need to read a text for it.
        let is_solid = |owner: &str| {
            let found = self.find(state, owner).filter(|found| may_own(found, &object));
            found.is_some_and(|found| !found.is_terminating())
        };
        if object.owner_uids().all(is_solid) {
            return None;
        }
        let (mut solid, mut loose) = (Vec::new(), 0);
        let mut waiting = false;
        for owner in owners(&object) {
            match self.find(state, owner.uid).filter(|found| may_own(found, &object)) {
                Some(found) if found.is_terminating() && has_finalizer(found, FOREGROUND) => {
                    waiting = true;
                    loose += 1;
                }
                Some(_) => solid.push(owner.value.clone()),
                None => loose += 1,
            }
        }
        if loose == 0 {
            return None;
        }
        let resource = self.resource(state, uid)?;
        if !solid.is_empty() {
            let value = Value::from(solid);
            return Some(Task::Metadata {
                object,
                resource,
                field: "ownerReferences",
                value,
            });
        }
        let has_dependents = self
            .dependents
            .get(uid)
            .is_some_and(|dependents| !dependents.is_empty());
        let propagation = match (has_finalizer(&object, ORPHAN), waiting && has_dependents) {
            (true, _) => "Orphan",
            (false, true) => "Foreground",
            (false, false) => "Background",
        };
        Some(Task::Delete {
            object,
            resource,
            propagation,
        })
    }

    /// An owner that waits to be gone: its dependents are freed, or waited for.
    fn judge_deleted_owner(&self, state: &State, object: Arc<Object>, resource: Arc<ResourceType>) -> Option<Task> {
        let dependents = || {
            let uids = self.dependents.get(object.uid()).into_iter().flatten();
            uids.filter_map(|uid| self.find(state, uid))
        };
        if has_finalizer(&object, ORPHAN) {
            if let Some(dependent) = dependents().next() {
                let left: Vec<Value> = owners(dependent)
                    .filter(|owner| owner.uid != object.uid())
                    .map(|owner| owner.value.clone())
                    .collect();
                let resource = self.resource(state, dependent.uid())?;
                let object = dependent.clone();
                return Some(Task::Metadata {
                    object,
                    resource,
                    field: "ownerReferences",
                    value: left.into(),
                });
            }
            return Some(without_finalizer(object, resource, ORPHAN));
        }
        if has_finalizer(&object, FOREGROUND) {
            let blocked = dependents().any(|dependent| {
                owners(dependent)
                    .any(|owner| owner.uid == object.uid() && owner.value["blockOwnerDeletion"] == json!(true))
            });
            return (!blocked).then(|| without_finalizer(object, resource, FOREGROUND));
        }
        None
    }

    /// Sends one request; whether it did something.
    fn carry_out(&mut self, task: &Task) -> bool {
        let (method, path, content_type, body, uid) = match task {
            Task::Delete {
                object,
                resource,
                propagation,
            } => {
                let preconditions = json!({"uid": object.uid(), "resourceVersion": object.revision().to_string()});
                let body = json!({
                    "kind": "DeleteOptions", "apiVersion": "v1",
                    "preconditions": preconditions, "propagationPolicy": propagation,
                });
                (
                    "DELETE",
                    path_of(resource, object),
                    "application/json",
                    body,
                    object.uid(),
                )
            }
            Task::Metadata {
                object,
                resource,
                field,
                value,
            } => {
                let emptied = value.as_array().is_some_and(Vec::is_empty);
                let value = if emptied { &Value::Null } else { value };
                let metadata =
                    json!({"uid": object.uid(), "resourceVersion": object.revision().to_string(), *field: value});
                let body = json!({"metadata": metadata});
                (
                    "PATCH",
                    path_of(resource, object),
                    "application/merge-patch+json",
                    body,
                    object.uid(),
                )
            }
            Task::Finalize { namespace } => {
                let mut body = namespace.value().clone();
                body["spec"]["finalizers"] = json!([]);
                let path = format!("/api/v1/namespaces/{}/finalize", namespace.name());
                ("PUT", path, "application/json", body, namespace.uid())
            }
        };
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", content_type)
            .header("user-agent", "generic-garbage-collector/1")
            .body(Bytes::from(body.to_string()));
        let Ok(request) = request else { return false };
        let done = self.server.handle(request).status.is_success();
        if !done {
            // Refused or overtaken: look at it again.
            self.dirty.insert(uid.to_owned());
        }
        done
    }
}

struct Owner<'o> {
    uid: &'o str,
    value: &'o Value,
}

fn owners(object: &Object) -> impl Iterator<Item = Owner<'_>> {
    let references = object
        .metadata("ownerReferences")
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    references.filter_map(|value| {
        Some(Owner {
            uid: value["uid"].as_str()?,
            value,
        })
    })
}

/// An owner lives in the same namespace, or in none.
fn may_own(owner: &Object, dependent: &Object) -> bool {
    owner.namespace().is_empty() || owner.namespace() == dependent.namespace()
}

fn has_finalizer(object: &Object, wanted: &str) -> bool {
    let finalizers = object.metadata("finalizers").and_then(Value::as_array);
    finalizers.is_some_and(|finalizers| finalizers.iter().any(|finalizer| finalizer == wanted))
}

fn without_finalizer(object: Arc<Object>, resource: Arc<ResourceType>, done: &str) -> Task {
    let finalizers = object.metadata("finalizers").and_then(Value::as_array);
    let left: Vec<Value> = finalizers
        .into_iter()
        .flatten()
        .filter(|finalizer| *finalizer != done)
        .cloned()
        .collect();
    Task::Metadata {
        object,
        resource,
        field: "finalizers",
        value: left.into(),
    }
}

fn path_of(resource: &ResourceType, object: &Object) -> String {
    let root = if resource.gv.group.is_empty() { "/api" } else { "/apis" };
    let place = if resource.namespaced {
        format!("/namespaces/{}", object.namespace())
    } else {
        String::new()
    };
    format!(
        "{root}/{}{place}/{}/{}",
        resource.gv.api_version(),
        resource.plural,
        object.name()
    )
}

/// The namespace controller's part: content of terminating namespaces is deleted, then they are finalized.
fn terminating_namespaces(state: &State) -> Vec<Task> {
    let table = TableKey {
        group: String::new(),
        plural: "namespaces".into(),
    };
    let mut tasks = Vec::new();
    for namespace in state
        .store
        .objects(&table)
        .filter(|namespace| namespace.is_terminating())
    {
        let mut empty = true;
        for resource in state.registry.all().filter(|resource| resource.namespaced) {
            let table = State::table_of(resource);
            let prefix = format!("{}/", namespace.name());
            let content = state
                .store
                .range_from(&table, &prefix)
                .take_while(|(key, _)| key.starts_with(&prefix));
            for (_, object) in content {
                empty = false;
                if !object.is_terminating() {
                    let (object, resource) = (object.clone(), resource.clone());
                    tasks.push(Task::Delete {
                        object,
                        resource,
                        propagation: "Background",
                    });
                }
            }
        }
        let finalizers = namespace.value()["spec"]["finalizers"].as_array();
        if empty && finalizers.is_some_and(|finalizers| !finalizers.is_empty()) {
            tasks.push(Task::Finalize {
                namespace: namespace.clone(),
            });
        }
    }
    tasks
}

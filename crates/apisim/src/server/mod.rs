//! The server: one lock around storage and registry, requests in, answers out, no I/O. Routing and the non-resource
//! endpoints are here; what each verb does is in `verbs`, what each kind asks for in `rules`.

mod answer;
mod definitions;
mod field_selector;
pub(crate) mod present;
mod route;
mod rules;
mod verbs;
mod watch;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use afloat_apischema::builtin;
use afloat_apischema::crd::CrdVersion;
use bytes::Bytes;
use serde_json::{Value, json};

pub use answer::{Reply, ReplyBody};
pub(crate) use present::Encoding;
pub(crate) use route::REQUEST_LIMIT;
pub use watch::Watch;

use crate::clock::{Clock, Identities, SystemClock};
use crate::hooks::{Faults, PodLogs, WriteObserver};
use crate::registry::Registry;
use crate::resource::{GroupVersion, Origin, ResourceType, Subresource};
use crate::store::{Change, ChangeKind, Store, TableKey, object_key};

/// How a server is made.
#[derive(Clone)]
pub struct Options {
    pub clock: Arc<dyn Clock>,
    /// Seed of uids, generated names and allocated addresses.
    pub seed: u64,
    /// Changes remembered per table; older watches and pages get 410.
    pub history: usize,
    /// The version that `/version` tells.
    pub git_version: String,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            clock: Arc::new(SystemClock),
            seed: 0,
            history: 20_000,
            git_version: "v1.36.3".into(),
        }
    }
}

/// A handle to a server; clones share it.
#[derive(Clone)]
pub struct ApiServer {
    shared: Arc<Shared>,
}

struct Shared {
    options: Options,
    state: Mutex<State>,
}

/// Everything behind the lock.
pub(crate) struct State {
    pub store: Store,
    pub registry: Registry,
    /// The compiled rules of custom resources by group, version and plural.
    custom: BTreeMap<(String, String, String), Arc<CrdVersion>>,
    /// The version that objects of a custom resource are stored in, by group and plural.
    storage_versions: BTreeMap<(String, String), Arc<CrdVersion>>,
    pub identities: Identities,
    documents: BTreeMap<String, (u64, Bytes)>,
    observers: Vec<Arc<dyn WriteObserver>>,
    faults: Option<Arc<dyn Faults>>,
    pod_logs: Option<Arc<dyn PodLogs>>,
    /// Raised to end all open watches.
    watch_epoch: u64,
    allocated_addresses: u32,
}

impl ApiServer {
    pub fn new(options: Options) -> Self {
        let mut registry = Registry::default();
        builtin::kinds()
            .iter()
            .filter_map(builtin_resource)
            .for_each(|resource| registry.add(resource));
        let state = State {
            store: Store::new(options.history),
            registry,
            custom: BTreeMap::new(),
            storage_versions: BTreeMap::new(),
            identities: Identities::new(options.seed),
            documents: BTreeMap::new(),
            observers: Vec::new(),
            faults: None,
            pod_logs: None,
            watch_epoch: 0,
            allocated_addresses: 0,
        };
        let server = Self {
            shared: Arc::new(Shared {
                options,
                state: Mutex::new(state),
            }),
        };
        server.create_standing_objects();
        server
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        // A panic in a hook must not take the server with it: every write is whole before a hook sees it.
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn now(&self) -> jiff::Timestamp {
        self.shared.options.clock.now()
    }

    pub fn git_version(&self) -> &str {
        &self.shared.options.git_version
    }

    /// The latest revision.
    pub fn revision(&self) -> u64 {
        self.state().store.revision()
    }

    /// Forgets history up to a revision, as etcd's compaction does.
    pub fn compact(&self, revision: u64) {
        self.state().store.compact(revision);
    }

    /// Shows every later write to `observer`.
    pub fn observe(&self, observer: Arc<dyn WriteObserver>) {
        self.state().observers.push(observer);
    }

    /// Lets `faults` decide about every later request; `None` ends it.
    pub fn inject(&self, faults: Option<Arc<dyn Faults>>) {
        self.state().faults = faults;
    }

    pub fn set_pod_logs(&self, logs: Arc<dyn PodLogs>) {
        self.state().pod_logs = Some(logs);
    }

    /// Ends every open watch, as a restarting server does.
    pub fn drop_watches(&self) {
        let mut state = self.state();
        state.watch_epoch += 1;
        state.store.wake_all();
    }

    /// What a stock server makes for itself when it starts: namespaces, priority classes, its own service.
    fn create_standing_objects(&self) {
        for name in ["kube-system", "kube-public", "default", "kube-node-lease"] {
            self.create_own("/api/v1/namespaces", &json!({"metadata": {"name": name}}));
        }
        let classes = [
            (
                "system-node-critical",
                2_000_001_000,
                "Pods that a node cannot do without.",
            ),
            (
                "system-cluster-critical",
                2_000_000_000,
                "Pods that the cluster cannot do without, on any node.",
            ),
        ];
        for (name, value, description) in classes {
            let class = json!({"metadata": {"name": name}, "value": value, "description": description});
            self.create_own("/apis/scheduling.k8s.io/v1/priorityclasses", &class);
        }
        let service = json!({
            "metadata": {"name": "kubernetes", "labels": {"component": "apiserver", "provider": "kubernetes"}},
            "spec": {
                "type": "ClusterIP", "clusterIP": "10.0.0.1", "ipFamilyPolicy": "SingleStack", "sessionAffinity": "None",
                "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": 6443}],
            },
        });
        self.create_own("/api/v1/namespaces/default/services", &service);
    }

    fn create_own(&self, path: &str, object: &Value) {
        let request = http::Request::post(path)
            .header("user-agent", "kube-apiserver/v1")
            .body(Bytes::from(object.to_string()));
        match request.map(|request| self.handle(request).status) {
            Ok(status) if status.is_success() => {}
            outcome => tracing::error!(?outcome, path, "an object of the server itself could not be made"),
        }
    }
}

impl State {
    /// Commits an object and tells the observers.
    pub fn write(&mut self, table: &TableKey, namespace: &str, name: &str, value: Value) -> Change {
        let change = self.store.put(table, object_key(namespace, name), value);
        self.committed(table, &change);
        change
    }

    pub fn remove(&mut self, table: &TableKey, namespace: &str, name: &str) -> Option<Change> {
        let change = self.store.remove(table, &object_key(namespace, name))?;
        self.committed(table, &change);
        Some(change)
    }

    fn committed(&mut self, table: &TableKey, change: &Change) {
        if table.plural == "customresourcedefinitions" {
            self.definition_changed(change);
        }
        for observer in &self.observers {
            observer.on_write(table, change);
        }
        if change.kind == ChangeKind::Deleted && table.group.contains('.') {
            self.remove_finished_definition(table);
        }
    }

    /// Where objects of a resource are kept. Both APIs of events share one table.
    pub fn table_of(resource: &ResourceType) -> TableKey {
        let group = if resource.gv.group == "events.k8s.io" {
            ""
        } else {
            &resource.gv.group
        };
        TableKey {
            group: group.to_owned(),
            plural: resource.plural.clone(),
        }
    }

    pub fn rules_of(&self, resource: &Arc<ResourceType>) -> rules::Rules {
        let custom = resource.is_custom().then(|| {
            let gv = &resource.gv;
            self.custom
                .get(&(gv.group.clone(), gv.version.clone(), resource.plural.clone()))
                .cloned()
        });
        let custom = custom.flatten();
        rules::Rules::new(resource.clone(), custom)
    }
}

fn builtin_resource(kind: &builtin::BuiltinKind) -> Option<ResourceType> {
    let schema = builtin::schema_of(&kind.group, &kind.version, &kind.kind)?;
    let subresources = kind.subresources.iter().map(|subresource| Subresource {
        name: subresource.name.clone(),
        group_version: (!subresource.version.is_empty())
            .then(|| GroupVersion::new(subresource.group.clone(), subresource.version.clone())),
        kind: subresource.kind.clone(),
        verbs: subresource.verbs.clone(),
    });
    Some(ResourceType {
        gv: GroupVersion::new(kind.group.clone(), kind.version.clone()),
        kind: kind.kind.clone(),
        list_kind: format!("{}List", kind.kind),
        plural: kind.plural.clone(),
        singular: kind.singular.clone(),
        short_names: kind.short_names.clone(),
        categories: kind.categories.clone(),
        namespaced: kind.namespaced,
        verbs: kind.verbs.clone(),
        subresources: subresources.collect(),
        schema,
        storage_hash: kind.storage_version_hash.clone().unwrap_or_default(),
        origin: Origin::BuiltIn,
    })
}

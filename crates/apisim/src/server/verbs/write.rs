//! The last steps of every write: identity, preparation, validation, size, commit. Creation and change each have one
//! way through here, whichever verb they came from.

use std::sync::Arc;

use afloat_apischema::apply::{self, Manager};
use afloat_apischema::builtin::admission::Lookup;
use afloat_apischema::builtin::validation;
use afloat_apischema::crd::{self, Verdict};
use afloat_apischema::field_error::{FieldError, Path, go_quote};
use serde_json::{Map, Value};

use crate::status::{ApiError, ApiResult};
use crate::store::{Object, Store, TableKey, set_resource_version};

use super::super::rules::{CreateNeeds, generation, set_generation};
use super::Call;
use super::body::WriteOptions;

/// Etcd's limit on one request, which is what a stored object must fit in.
const ETCD_LIMIT: usize = 3 * 512 * 1024;

/// The first node port, and how many there are.
const NODE_PORTS: (i64, u64) = (30_000, 2768);

/// How often a generated name is tried.
const NAME_ATTEMPTS: usize = 8;

/// Storage as the admission plugins see it.
struct StoredObjects<'a>(&'a Store);

impl Lookup for StoredObjects<'_> {
    fn get(&self, group: &str, kind: &str, name: &str) -> Option<&Value> {
        let table = TableKey {
            group: group.into(),
            plural: plural_of(kind),
        };
        self.0.get(&table, name).map(|object| object.value())
    }

    fn list(&self, group: &str, kind: &str) -> Vec<&Value> {
        let table = TableKey {
            group: group.into(),
            plural: plural_of(kind),
        };
        self.0.objects(&table).map(|object| object.value()).collect()
    }
}

/// The plural of the few kinds that admission looks up.
fn plural_of(kind: &str) -> String {
    let lower = kind.to_lowercase();
    if lower.ends_with('s') {
        format!("{lower}es")
    } else {
        format!("{lower}s")
    }
}

/// The revision that an object claims to be of; none is zero.
pub(super) fn parse_revision(text: &str) -> ApiResult<u64> {
    if text.is_empty() {
        return Ok(0);
    }
    text.parse()
        .map_err(|_| ApiError::raw_internal(format!("strconv.ParseUint: parsing {}: invalid syntax", go_quote(text))))
}

pub(super) fn metadata_mut(value: &mut Value) -> Option<&mut Map<String, Value>> {
    let fields = value.as_object_mut()?;
    fields
        .entry("metadata")
        .or_insert_with(|| Value::Object(Map::new()))
        .as_object_mut()
}

pub(super) fn metadata_text<'v>(value: &'v Value, key: &str) -> &'v str {
    value
        .get("metadata")
        .and_then(|metadata| metadata.get(key))
        .and_then(Value::as_str)
        .unwrap_or_default()
}

impl Call<'_> {
    pub(super) fn manager<'m>(&'m self, options: &'m WriteOptions, api_version: &'m str, time: &'m str) -> Manager<'m> {
        Manager {
            name: &options.manager,
            api_version,
            kind: &self.resource.kind,
            subresource: Some(self.path.subresource.as_str()).filter(|subresource| !subresource.is_empty()),
            time,
            other_versions: &[],
        }
    }

    /// Records who owns which field, for everything but an apply.
    pub(super) fn track(&self, live: Option<&Value>, new: &mut Value, options: &WriteOptions) {
        let (api_version, time) = (self.resource.gv.api_version(), self.timestamp());
        let reset = self.rules.reset_fields(&self.path.subresource);
        let manager = self.manager(options, &api_version, &time);
        let live = live.map(|live| self.rules.shown(live));
        apply::track_update(
            self.resource.schema.root(),
            live.as_deref(),
            new,
            &manager,
            reset.as_ref(),
        );
    }

    /// Creates an object that has been decoded and whose ownership is recorded.
    pub(super) fn store_new(&mut self, mut value: Value, options: &WriteOptions) -> ApiResult<Arc<Object>> {
        self.check_namespace(&value)?;
        self.rules.to_stored(&mut value);
        // Whatever it is: an apply or a put that creates was based on nothing.
        parse_revision(metadata_text(&value, "resourceVersion"))?;
        let uid = self.state.identities.uid();
        let now = self.timestamp();
        self.identify(&mut value, &uid, &now);
        self.prepare_new(&mut value, &uid, &now)?;
        let name = metadata_text(&value, "name").to_owned();
        self.heed(&name, self.rules.validate_create(&value))?;
        self.rules.settle(&mut value, None);
        if self.lookup(&name).is_some() {
            return Err(self.taken(&value, &name));
        }
        self.check_size(&value)?;
        let object = self.commit(&name, value, options.dry_run);
        self.establish(&object, options.dry_run);
        Ok(self.state.in_version(&self.resource, &object))
    }

    fn taken(&self, value: &Value, name: &str) -> ApiError {
        if self.lookup(name).is_some_and(|object| object.is_terminating()) {
            return ApiError::being_deleted(&self.resource, name);
        }
        if metadata_text(value, "generateName").is_empty() {
            ApiError::already_exists(&self.resource, name)
        } else {
            ApiError::generate_name_exhausted(&self.resource, name)
        }
    }

    pub(super) fn invalid(&self, name: &str, errors: &[FieldError]) -> ApiError {
        let group = validation::group_in_messages(&self.resource.gv.group);
        ApiError::invalid(group, &self.resource.kind, name, errors)
    }

    /// Refuses what validation refuses, and passes its warnings on.
    fn heed(&mut self, name: &str, verdict: Verdict) -> ApiResult<()> {
        if !verdict.errors.is_empty() {
            return Err(self.invalid(name, &verdict.errors));
        }
        self.warnings.extend(verdict.warnings);
        Ok(())
    }

    /// Gives a new object what only the server gives: uid, time, name.
    fn identify(&mut self, value: &mut Value, uid: &str, now: &str) {
        let generated = self.generated_name(value);
        let namespace = self.path.namespace.clone();
        let namespaced = self.resource.namespaced;
        let Some(metadata) = metadata_mut(value) else { return };
        metadata.insert("uid".into(), uid.into());
        metadata.insert("creationTimestamp".into(), now.into());
        if let Some(name) = generated {
            metadata.insert("name".into(), name.into());
        }
        if namespaced {
            metadata.insert("namespace".into(), namespace.into());
        }
        for server_owned in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"] {
            metadata.remove(server_owned);
        }
    }

    fn generated_name(&mut self, value: &Value) -> Option<String> {
        let base = metadata_text(value, "generateName");
        if base.is_empty() || !metadata_text(value, "name").is_empty() {
            return None;
        }
        // Upstream cuts the base so that the whole fits a label value.
        let base: String = base.chars().take(58).collect();
        let mut name = String::new();
        for _ in 0..NAME_ATTEMPTS {
            name = format!("{base}{}", self.state.identities.name_suffix());
            if self.lookup(&name).is_none() {
                break;
            }
        }
        Some(name)
    }

    fn prepare_new(&mut self, value: &mut Value, uid: &str, now: &str) -> ApiResult<()> {
        let mut identities = self.state.identities.clone();
        let mut allocated = self.state.allocated_addresses;
        let lookup = StoredObjects(&self.state.store);
        let mut needs = CreateNeeds {
            uid,
            now,
            lookup: &lookup,
            allocate_cluster_ip: &mut || {
                allocated += 1;
                service_address(allocated)
            },
            allocate_node_port: &mut || {
                NODE_PORTS.0 + i64::try_from(identities.next_number() % NODE_PORTS.1).unwrap_or_default()
            },
        };
        self.rules.admit_create(value, &needs)?;
        self.rules.prepare_create(value, &mut needs);
        self.state.identities = identities;
        self.state.allocated_addresses = allocated;
        Ok(())
    }

    /// Content lives in namespaces that exist and are not going away.
    fn check_namespace(&self, value: &Value) -> ApiResult<()> {
        if !self.resource.namespaced {
            return Ok(());
        }
        let table = TableKey {
            group: String::new(),
            plural: "namespaces".into(),
        };
        let namespace = &self.path.namespace;
        let found = self.state.store.get(&table, namespace);
        let found = found.ok_or_else(|| ApiError::not_found_named("", "namespaces", namespace))?;
        let going = found.is_terminating() || found.value()["status"]["phase"] == "Terminating";
        if going {
            let name = metadata_text(value, "name");
            return Err(ApiError::namespace_terminating(&self.resource, name, namespace));
        }
        Ok(())
    }

    /// Changes an object: `new` has been decoded and its ownership recorded.
    pub(super) fn store_changed(
        &mut self,
        old: &Arc<Object>,
        mut new: Value,
        options: &WriteOptions,
    ) -> ApiResult<Arc<Object>> {
        let name = old.name().to_owned();
        self.rules.to_stored(&mut new);
        self.check_precondition(old, &mut new)?;
        {
            let lookup = StoredObjects(&self.state.store);
            self.rules.admit_update(&mut new, old.value(), &lookup)?;
        }
        set_generation_of(&mut new, old.value());
        let now = self.timestamp();
        let endpoint = self.path.subresource.as_str();
        self.rules.prepare_update(endpoint, &mut new, old.value(), &now);
        keep_identity(&mut new, old.value());
        let verdict = self.rules.validate_update(endpoint, &new, old.value());
        self.heed(&name, verdict)?;
        self.rules.settle(&mut new, Some(old.value()));
        apply::keep_times_of_noop(old.value(), &mut new);
        if new == *old.value() {
            return Ok(old.clone());
        }
        self.check_size(&new)?;
        if ends_deletion(&new, old.value()) {
            return Ok(self.finish_deletion(&name, new, options.dry_run));
        }
        let object = self.commit(&name, new, options.dry_run);
        self.establish(&object, options.dry_run);
        Ok(self.state.in_version(&self.resource, &object))
    }

    /// An update says which version it is based on, or, for most built-in kinds, nothing.
    fn check_precondition(&self, old: &Object, new: &mut Value) -> ApiResult<()> {
        let given = metadata_text(new, "resourceVersion").to_owned();
        let current = old.revision();
        let parsed = parse_revision(&given)?;
        if parsed == 0 && !self.rules.updates_unconditionally() {
            let path = Path::new("metadata").child("resourceVersion");
            let error = FieldError::invalid(&path, 0, "must be specified for an update");
            // Upstream puts the plural where the kind belongs.
            return Err(ApiError::invalid(
                &self.resource.gv.group,
                &self.resource.plural,
                old.name(),
                &[error],
            ));
        }
        if parsed != 0 && parsed != current {
            return Err(ApiError::modified(&self.resource, old.name()));
        }
        set_resource_version(new, current);
        Ok(())
    }

    pub(super) fn commit(&mut self, name: &str, mut value: Value, dry_run: bool) -> Arc<Object> {
        self.state.to_storage_version(&self.resource, &mut value);
        if dry_run {
            let revision = self.lookup(name).map_or(0, |object| object.revision());
            return Object::new(value, revision);
        }
        let namespace = if self.resource.namespaced {
            self.path.namespace.as_str()
        } else {
            ""
        };
        self.state.write(&self.table, namespace, name, value).object
    }

    /// The last finalizer is gone from an object that is being deleted: so is the object.
    fn finish_deletion(&mut self, name: &str, value: Value, dry_run: bool) -> Arc<Object> {
        if dry_run {
            return Object::new(value, 0);
        }
        let namespace = if self.resource.namespaced {
            self.path.namespace.clone()
        } else {
            String::new()
        };
        let revision = self.state.store.revision();
        let object = Object::new(value, revision);
        self.state.remove(&self.table, &namespace, name);
        object
    }

    pub(super) fn check_size(&self, value: &Value) -> ApiResult<()> {
        // Most writes come out of a request and a stored object that are both small, and are not measured: defaults and
        // ownership add some hundred bytes to an item of twenty, not 64 times its size. Patches that copy, and aliases of
        // YAML, can make anything of little.
        let is_small = |size: usize| size < ETCD_LIMIT / 64;
        let multiplies = self.content_type.contains("json-patch") || self.content_type.contains("yaml");
        let of_small = |old: Option<&Arc<Object>>| old.is_none_or(|old| is_small(old.body().len()));
        if self.path.subresource.is_empty()
            && is_small(self.body.len())
            && !multiplies
            && of_small(self.lookup(metadata_text(value, "name")))
        {
            return Ok(());
        }
        let size = crate::store::untyped_json(value).len();
        if size > ETCD_LIMIT {
            return Err(ApiError::raw_internal("etcdserver: request is too large"));
        }
        Ok(())
    }

    /// The names and establishing controllers run inside the real server: right after a definition is written they
    /// write it again, accepted and established.
    fn establish(&mut self, definition: &Object, dry_run: bool) {
        if dry_run || self.resource.kind != "CustomResourceDefinition" {
            return;
        }
        let others = self
            .state
            .store
            .objects(&self.table)
            .filter(|object| object.name() != definition.name());
        let others: Vec<Value> = others.map(|object| object.value().clone()).collect();
        let mut value = definition.value().clone();
        let now = self.timestamp();
        if crd::establish(&mut value, &others, &now) {
            let api_version = self.resource.gv.api_version();
            let manager = Manager {
                name: "kube-apiserver",
                api_version: &api_version,
                kind: &self.resource.kind,
                subresource: Some("status"),
                time: &now,
                other_versions: &[],
            };
            let reset = self.rules.reset_fields("status");
            let schema = self.resource.schema.root();
            apply::track_update(schema, Some(definition.value()), &mut value, &manager, reset.as_ref());
            self.state.write(&self.table, "", definition.name(), value);
        }
    }
}

/// The n-th address of the real server's default service network; the first is its own.
fn service_address(number: u32) -> String {
    let host = number + 1;
    format!("10.0.{}.{}", (host >> 8) & 0xff, host & 0xff)
}

fn set_generation_of(new: &mut Value, old: &Value) {
    let before = generation(old);
    if before > 0 {
        set_generation(new, before);
    } else if let Some(metadata) = metadata_mut(new) {
        metadata.remove("generation");
    }
}

/// What no update can change, whatever it says.
fn keep_identity(new: &mut Value, old: &Value) {
    let Some(metadata) = metadata_mut(new) else { return };
    let before = |key: &str| old.get("metadata").and_then(|metadata| metadata.get(key)).cloned();
    if !metadata.contains_key("uid")
        && let Some(uid) = before("uid")
    {
        metadata.insert("uid".into(), uid);
    }
    for key in ["creationTimestamp", "deletionTimestamp"] {
        if let Some(value) = before(key) {
            metadata.insert(key.into(), value);
        }
    }
    if !metadata.contains_key("deletionGracePeriodSeconds")
        && let Some(period) = before("deletionGracePeriodSeconds")
    {
        metadata.insert("deletionGracePeriodSeconds".into(), period);
    }
    metadata.remove("selfLink");
}

/// Whether an update empties the finalizers of an object that is being deleted and has no grace left.
fn ends_deletion(new: &Value, old: &Value) -> bool {
    let deleting = old["metadata"].get("deletionTimestamp").is_some();
    let grace = old["metadata"]["deletionGracePeriodSeconds"]
        .as_i64()
        .unwrap_or_default();
    let left = new["metadata"]["finalizers"]
        .as_array()
        .is_some_and(|finalizers| !finalizers.is_empty());
    let namespace_left = new["kind"] == "Namespace"
        && new["spec"]["finalizers"]
            .as_array()
            .is_some_and(|finalizers| !finalizers.is_empty());
    deleting && grace == 0 && !left && !namespace_left
}

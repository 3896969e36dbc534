//! Deletion: preconditions, grace periods, finalizers and the finalizers that stand for a propagation policy. The
//! garbage collector, which acts on those, is an actor of its own (`gc`).

use std::sync::Arc;

use afloat_apischema::builtin::{self, strategy};
use afloat_apischema::decode;
use afloat_apischema::field_error::{FieldError, Path};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::clock::rfc3339_seconds;
use crate::request::ListOptions;
use crate::status::{ApiError, ApiResult};
use crate::store::{Object, object_key};

use super::super::answer::Answer;
use super::super::definitions::CLEANUP_FINALIZER;
use super::super::field_selector::FieldSelector;
use super::super::rules::{generation, set_generation};
use super::super::watch::Selection;
use super::Call;
use super::body::dry_run_errors;
use super::eviction::set_condition;
use super::write::metadata_mut;

pub(super) const ORPHAN: &str = "orphan";
pub(super) const FOREGROUND: &str = "foregroundDeletion";

/// Options of a deletion.
#[derive(Clone, Debug, Default)]
pub(super) struct DeleteOptions {
    pub dry_run: bool,
    pub grace_period: Option<i64>,
    pub uid: Option<String>,
    pub resource_version: Option<String>,
    pub orphan_dependents: Option<bool>,
    pub propagation: Option<String>,
}

/// What became of the object.
pub(super) enum Deletion {
    /// Gone; the last state of it.
    Gone(Arc<Object>),
    /// Marked; it goes when its grace period or its finalizers end.
    Pending(Arc<Object>),
}

impl DeleteOptions {
    pub(super) fn from_value(value: &Value) -> Self {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        Self {
            dry_run: value["dryRun"].as_array().is_some_and(|list| !list.is_empty()),
            grace_period: value["gracePeriodSeconds"].as_i64(),
            uid: text(&value["preconditions"]["uid"]),
            resource_version: text(&value["preconditions"]["resourceVersion"]),
            orphan_dependents: value["orphanDependents"].as_bool(),
            propagation: text(&value["propagationPolicy"]),
        }
    }

    fn validate(&self, dry_run: &[&str]) -> ApiResult<()> {
        let mut errors = Vec::new();
        let policy = Path::new("propagationPolicy");
        if self.propagation.is_some() && self.orphan_dependents.is_some() {
            let why = "orphanDependents and deletionPropagation cannot be both set";
            errors.push(FieldError::invalid(&policy, json!(self.propagation), why));
        }
        if let Some(given) = &self.propagation
            && !matches!(given.as_str(), "Foreground" | "Background" | "Orphan")
        {
            errors.push(FieldError::not_supported(
                &policy,
                given.as_str(),
                &["Foreground", "Background", "Orphan", "nil"],
            ));
        }
        errors.extend(dry_run_errors(dry_run));
        if errors.is_empty() {
            return Ok(());
        }
        Err(ApiError::invalid("meta.k8s.io", "DeleteOptions", "", &errors))
    }
}

impl Call<'_> {
    /// The body's options, or, without a body, the query's.
    pub(super) fn delete_options(&self) -> ApiResult<DeleteOptions> {
        if !self.body.is_empty() {
            return self.delete_options_in_body();
        }
        let dry_run: Vec<&str> = self.query.all("dryRun").collect();
        let options = DeleteOptions {
            dry_run: !dry_run.is_empty(),
            grace_period: self.query.integer("gracePeriodSeconds")?,
            propagation: self.query.get("propagationPolicy").map(str::to_owned),
            orphan_dependents: self
                .query
                .get("orphanDependents")
                .map(|_| self.query.flag("orphanDependents")),
            ..DeleteOptions::default()
        };
        options.validate(&dry_run)?;
        Ok(options)
    }

    fn delete_options_in_body(&self) -> ApiResult<DeleteOptions> {
        let format = self.body_format()?;
        let mut value = decode::parse(self.checked_body()?, format)
            .map_err(|why| ApiError::bad_request(format!("couldn't get version/kind; json parse error: {why}")))?
            .value;
        let kind = value["kind"].as_str().unwrap_or_default();
        if !matches!(kind, "" | "DeleteOptions") {
            let version = value["apiVersion"].as_str().unwrap_or("v1");
            return Err(ApiError::bad_request(format!(
                "no kind \"{kind}\" is registered for version \"{version}\" in scheme \"pkg/runtime/scheme.go:111\""
            )));
        }
        builtin::normalise("", "v1", "DeleteOptions", &mut value).map_err(|why| ApiError::bad_request(why.0))?;
        let options = DeleteOptions::from_value(&value);
        let dry_run = value["dryRun"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str);
        options.validate(&dry_run.collect::<Vec<_>>())?;
        Ok(options)
    }

    pub(super) fn delete(&mut self) -> ApiResult<Answer> {
        let options = self.delete_options()?;
        let object = self.existing(&self.path.name)?;
        self.check_deletable(&object)?;
        let asked_to_cascade = options.orphan_dependents == Some(false);
        Ok(match self.delete_object(&object, &options)? {
            Deletion::Gone(object) if self.returns_deleted() => Answer::Object {
                code: 200,
                resource: self.resource.clone(),
                object,
            },
            Deletion::Gone(object) => Answer::ok(self.deleted_status(&object)),
            Deletion::Pending(object) => {
                let code = if asked_to_cascade { 202 } else { 200 };
                Answer::Object {
                    code,
                    resource: self.resource.clone(),
                    object,
                }
            }
        })
    }

    /// Namespaces that the system needs cannot be deleted.
    fn check_deletable(&self, object: &Object) -> ApiResult<()> {
        let immortal = matches!(object.name(), "default" | "kube-system" | "kube-public");
        if self.is_namespace() && immortal {
            let why = "this namespace may not be deleted";
            return Err(ApiError::forbidden(&self.resource, object.name(), why));
        }
        Ok(())
    }

    fn is_namespace(&self) -> bool {
        self.resource.gv.group.is_empty() && self.resource.plural == "namespaces"
    }

    /// Kinds whose deletion answers with the object instead of a `Status`.
    fn returns_deleted(&self) -> bool {
        let returning = [
            "pods",
            "services",
            "serviceaccounts",
            "persistentvolumes",
            "persistentvolumeclaims",
            "podtemplates",
            "resourcequotas",
        ];
        self.resource.gv.group.is_empty() && returning.contains(&self.resource.plural.as_str())
    }

    fn deleted_status(&self, object: &Object) -> Value {
        let mut details = json!({"name": object.name(), "kind": self.resource.plural, "uid": object.uid()});
        if !self.resource.gv.group.is_empty() {
            details["group"] = self.resource.gv.group.as_str().into();
        }
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
    }

    /// Deletes one object of this resource as far as grace periods and finalizers allow now.
    pub(super) fn delete_object(&mut self, object: &Arc<Object>, options: &DeleteOptions) -> ApiResult<Deletion> {
        self.check_delete_preconditions(object, options)?;
        if self.is_namespace() {
            return Ok(self.delete_namespace(object, options));
        }
        if self.resource.kind == "CustomResourceDefinition" && !object.is_terminating() {
            return Ok(self.delete_definition(object, options));
        }
        let mut value = object.value().clone();
        let grace = match self.grace(&mut value, options) {
            Grace::Waiting => return Ok(Deletion::Pending(object.clone())),
            Grace::Unsupported => None,
            Grace::Period(seconds) => Some(seconds),
        };
        self.mark_propagation(&mut value, options);
        let finalizers = value["metadata"]["finalizers"]
            .as_array()
            .is_some_and(|list| !list.is_empty());
        if finalizers && grace.is_none() {
            mark_deleting(&mut value, self.now);
        }
        if grace.is_some() || finalizers {
            let marked = self.write_marked(object, value, options.dry_run);
            if finalizers || grace.is_some_and(|seconds| seconds > 0) {
                return Ok(Deletion::Pending(marked));
            }
            return Ok(self.remove_now(&marked, options.dry_run));
        }
        Ok(self.remove_now(object, options.dry_run))
    }

    fn write_marked(&mut self, object: &Arc<Object>, value: Value, dry_run: bool) -> Arc<Object> {
        if value == *object.value() {
            return object.clone();
        }
        if dry_run {
            return Object::new(value, object.revision());
        }
        let (namespace, name) = (object.namespace().to_owned(), object.name().to_owned());
        self.state.write(&self.table, &namespace, &name, value).object
    }

    fn remove_now(&mut self, object: &Arc<Object>, dry_run: bool) -> Deletion {
        if dry_run {
            return Deletion::Gone(object.clone());
        }
        let removed = self.state.remove(&self.table, object.namespace(), object.name());
        Deletion::Gone(removed.map_or_else(|| object.clone(), |change| change.object))
    }

    fn check_delete_preconditions(&self, object: &Object, options: &DeleteOptions) -> ApiResult<()> {
        // Namespaces and definitions have deletion handlers of their own, with words of their own.
        let own = self.is_namespace() || self.resource.kind == "CustomResourceDefinition";
        let refuse = |what: &str, given: &str, found: &str, aftermath: &str| {
            if own {
                let why =
                    format!("Precondition failed: {what} in precondition: {given}, {what} in object meta: {found}");
                return Err(ApiError::conflict(&self.resource, object.name(), &why));
            }
            let why = format!(
                "the {what} in the precondition ({given}) does not match the {what} in record ({found}). The object \
                 might have been {aftermath}"
            );
            Err(ApiError::precondition(&self.resource, object.name(), &why))
        };
        if let Some(uid) = options.uid.as_deref().filter(|uid| *uid != object.uid()) {
            return refuse("UID", uid, object.uid(), "deleted and then recreated");
        }
        let revision = object.revision().to_string();
        if let Some(version) = options
            .resource_version
            .as_deref()
            .filter(|version| *version != revision)
        {
            return refuse("ResourceVersion", version, &revision, "modified");
        }
        Ok(())
    }

    /// Decides the grace period and marks the object with it, as upstream's `BeforeDelete` does.
    fn grace(&self, value: &mut Value, options: &DeleteOptions) -> Grace {
        let is_pod = self.resource.gv.group.is_empty() && self.resource.plural == "pods";
        if !is_pod {
            return Grace::Unsupported;
        }
        let metadata = &value["metadata"];
        if let Some(marked) = metadata["deletionTimestamp"].as_str() {
            let Some(before) = metadata["deletionGracePeriodSeconds"].as_i64() else {
                return Grace::Unsupported;
            };
            return match options.grace_period {
                Some(period) if period < before => {
                    let shortened = shift(marked, period - before);
                    set_deletion(value, &shortened, period);
                    Grace::Period(period)
                }
                _ => Grace::Waiting,
            };
        }
        let period = strategy::deletion_grace_period(value, options.grace_period);
        let end = self
            .now
            .checked_add(SignedDuration::from_secs(period))
            .unwrap_or(self.now);
        set_deletion(value, &rfc3339_seconds(end), period);
        raise_generation(value);
        Grace::Period(period)
    }

    /// Puts the finalizers that tell the garbage collector what to do with dependents.
    fn mark_propagation(&self, value: &mut Value, options: &DeleteOptions) {
        let present: Vec<String> = value["metadata"]["finalizers"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|finalizer| finalizer.as_str().map(str::to_owned))
            .collect();
        let has = |wanted: &str| present.iter().any(|finalizer| finalizer == wanted);
        let policy = options.propagation.as_deref();
        // Jobs keep the default of their first version: their pods are orphaned unless the client says otherwise.
        let orphan_by_default = self.resource.gv.group == "batch" && self.resource.plural == "jobs"
            || self.resource.plural == "replicationcontrollers";
        let orphan = match (options.orphan_dependents, policy) {
            (Some(orphan), _) => orphan,
            (None, Some(policy)) => policy == "Orphan",
            (None, None) if has(ORPHAN) => true,
            (None, None) if has(FOREGROUND) => false,
            (None, None) => orphan_by_default,
        };
        let foreground = match (options.orphan_dependents, policy) {
            (Some(_), _) => false,
            (None, Some(policy)) => policy == "Foreground",
            (None, None) => has(FOREGROUND) && !has(ORPHAN),
        };
        let mut finalizers: Vec<String> = present
            .iter()
            .filter(|finalizer| *finalizer != ORPHAN && *finalizer != FOREGROUND)
            .cloned()
            .collect();
        finalizers.extend(orphan.then(|| ORPHAN.to_owned()));
        finalizers.extend(foreground.then(|| FOREGROUND.to_owned()));
        if finalizers == present {
            return;
        }
        if let Some(metadata) = metadata_mut(value) {
            if finalizers.is_empty() {
                metadata.remove("finalizers");
            } else {
                metadata.insert("finalizers".into(), finalizers.into());
            }
        }
    }

    /// A namespace first turns to Terminating; it goes when its content is gone and it is finalized.
    fn delete_namespace(&mut self, object: &Arc<Object>, options: &DeleteOptions) -> Deletion {
        let value = object.value();
        let finalizers = |path: &str| {
            value[path]["finalizers"]
                .as_array()
                .is_some_and(|list| !list.is_empty())
        };
        if object.is_terminating() {
            if finalizers("spec") || finalizers("metadata") {
                return Deletion::Pending(object.clone());
            }
            return self.remove_now(object, options.dry_run);
        }
        let mut value = value.clone();
        if let Some(metadata) = metadata_mut(&mut value) {
            metadata.insert("deletionTimestamp".into(), rfc3339_seconds(self.now).into());
        }
        value["status"]["phase"] = "Terminating".into();
        Deletion::Pending(self.write_marked(object, value, options.dry_run))
    }

    /// A definition goes after its objects; the answer shows it on its way.
    fn delete_definition(&mut self, object: &Arc<Object>, options: &DeleteOptions) -> Deletion {
        let now = self.timestamp();
        let mut value = object.value().clone();
        if let Some(metadata) = metadata_mut(&mut value) {
            metadata.insert("deletionTimestamp".into(), now.as_str().into());
            let finalizers = metadata.entry("finalizers").or_insert_with(|| json!([]));
            if let Some(list) = finalizers
                .as_array_mut()
                .filter(|list| !list.contains(&json!(CLEANUP_FINALIZER)))
            {
                list.push(CLEANUP_FINALIZER.into());
            }
        }
        let condition = json!({
            "type": "Terminating", "status": "True", "reason": "InstanceDeletionPending", "lastTransitionTime": now,
            "message": "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
        });
        set_condition(&mut value, condition);
        let marked = self.write_marked(object, value, options.dry_run);
        if !options.dry_run {
            self.state.finalize_definition(&marked, &now);
        }
        Deletion::Pending(marked)
    }

    pub(super) fn delete_collection(&mut self) -> ApiResult<Answer> {
        let options = self.delete_options()?;
        let list = ListOptions::read(self.query)?;
        let fields = FieldSelector::parse(&list.field_text, &self.resource).map_err(ApiError::bad_request)?;
        let selection = Selection {
            namespace: self.path.namespace.clone(),
            labels: list.labels.clone(),
            fields,
        };
        let chosen: Vec<Arc<Object>> = self
            .state
            .store
            .objects(&self.table)
            .filter(|object| selection.matches(object))
            .cloned()
            .collect();
        let revision = self.state.store.revision();
        let mut items = Vec::new();
        for object in chosen {
            let current = self
                .state
                .store
                .get(&self.table, &object_key(object.namespace(), object.name()))
                .cloned();
            let Some(current) = current else { continue };
            self.delete_object(&current, &options)?;
            items.push(current);
        }
        let mut metadata = json!({"resourceVersion": revision.to_string()});
        if self.resource.is_custom() {
            metadata["continue"] = "".into();
        }
        Ok(Answer::List {
            resource: self.resource.clone(),
            items,
            metadata,
        })
    }
}

enum Grace {
    /// The kind has no graceful deletion.
    Unsupported,
    /// Marked already, and not to be shortened.
    Waiting,
    Period(i64),
}

fn set_deletion(value: &mut Value, timestamp: &str, period: i64) {
    if let Some(metadata) = metadata_mut(value) {
        metadata.insert("deletionTimestamp".into(), timestamp.into());
        metadata.insert("deletionGracePeriodSeconds".into(), period.into());
    }
}

/// Marks an object whose finalizers are waited for.
fn mark_deleting(value: &mut Value, now: Timestamp) {
    if value["metadata"].get("deletionTimestamp").is_none() {
        raise_generation(value);
        set_deletion(value, &rfc3339_seconds(now), 0);
    } else if let Some(metadata) = metadata_mut(value) {
        metadata.insert("deletionGracePeriodSeconds".into(), 0.into());
    }
}

fn raise_generation(value: &mut Value) {
    let before = generation(value);
    if before > 0 {
        set_generation(value, before + 1);
    }
}

fn shift(timestamp: &str, seconds: i64) -> String {
    let moved = timestamp.parse::<Timestamp>().ok();
    let moved = moved.and_then(|time| time.checked_add(SignedDuration::from_secs(seconds)).ok());
    moved.map_or_else(|| timestamp.to_owned(), rfc3339_seconds)
}

//! What a kind asks for on its way into storage: decoding, defaults, preparation and validation. Built-in kinds,
//! custom resources and CustomResourceDefinitions come together here, so that the verbs are written once.

use std::borrow::Cow;
use std::sync::Arc;

use afloat_apischema::apply::fieldset::FieldSet;
use afloat_apischema::builtin::{self, admission, defaults, event, strategy, validation};
use afloat_apischema::crd::{self, CrdVersion, Verdict};
use afloat_apischema::decode::{self, Reporter};
use afloat_apischema::field_error::FieldError;
use afloat_apischema::structural::object_meta;
use serde_json::Value;

use crate::resource::ResourceType;
use crate::status::{ApiError, ApiResult};

/// The rules of one kind.
#[derive(Clone)]
pub struct Rules {
    pub resource: Arc<ResourceType>,
    kind: KindRules,
}

#[derive(Clone)]
enum KindRules {
    BuiltIn,
    Definition,
    Custom(Arc<CrdVersion>),
}

/// What creation needs from outside the object.
pub struct CreateNeeds<'a> {
    pub uid: &'a str,
    pub now: &'a str,
    pub lookup: &'a dyn admission::Lookup,
    pub allocate_cluster_ip: &'a mut dyn FnMut() -> String,
    pub allocate_node_port: &'a mut dyn FnMut() -> i64,
}

impl Rules {
    pub fn new(resource: Arc<ResourceType>, custom: Option<Arc<CrdVersion>>) -> Self {
        let kind = match custom {
            Some(version) => KindRules::Custom(version),
            None if resource.gv.group == "apiextensions.k8s.io" => KindRules::Definition,
            None => KindRules::BuiltIn,
        };
        Self { resource, kind }
    }

    fn group(&self) -> &str {
        &self.resource.gv.group
    }

    fn kind(&self) -> &str {
        &self.resource.kind
    }

    /// An object as this API shows it. Events are stored in their core form and shown in two.
    pub fn shown<'v>(&self, stored: &'v Value) -> Cow<'v, Value> {
        if !self.is_second_event_api() {
            return Cow::Borrowed(stored);
        }
        let mut value = stored.clone();
        event::core_to_events(&mut value);
        Cow::Owned(value)
    }

    /// The reverse of `shown`.
    pub fn to_stored(&self, value: &mut Value) {
        if self.is_second_event_api() {
            event::events_to_core(value);
        }
    }

    fn is_second_event_api(&self) -> bool {
        self.resource.gv.group == "events.k8s.io"
    }

    /// Turns what a client sent into what the server works with: unknown fields gone (their names are given back),
    /// canonical values, defaults filled in. What is still as it was `stored` needs none of that.
    pub fn decode(&self, value: &mut Value, stored: Option<&Value>) -> Result<Vec<String>, String> {
        // An explicitly empty list of managers takes all ownership away; decoding would drop it.
        let forgets_managers = value["metadata"]["managedFields"].as_array().is_some_and(Vec::is_empty);
        let unknown = match &self.kind {
            KindRules::Custom(version) => version.decode(value)?,
            KindRules::BuiltIn | KindRules::Definition => {
                let version = &self.resource.gv.version;
                let stored = stored.filter(|_| !self.is_second_event_api());
                let read = builtin::normalise_changed(self.group(), version, self.kind(), value, stored);
                read.map_err(|why| why.0)?
            }
        };
        self.default(value);
        if forgets_managers && let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.insert("managedFields".into(), Value::Array(Vec::new()));
        }
        Ok(unknown)
    }

    /// The same for the result of a server-side apply, which was checked against the schema already.
    pub fn decode_applied(&self, value: &mut Value) -> ApiResult<()> {
        match &self.kind {
            KindRules::Custom(version) => version.default_applied(value),
            KindRules::BuiltIn | KindRules::Definition => {
                self.decode(value, None)
                    .map_err(|why| self.unconvertible(value, &why))?;
            }
        }
        Ok(())
    }

    fn default(&self, value: &mut Value) {
        match &self.kind {
            KindRules::BuiltIn => {
                defaults::apply(self.group(), self.kind(), value);
                convert_to_internal(self.group(), self.kind(), value);
            }
            KindRules::Definition => crd::default_crd(value),
            KindRules::Custom(_) => {}
        }
    }

    /// The body is an object, but not one of this kind.
    pub fn undecodable(&self, why: &str) -> ApiError {
        let version = &self.resource.gv.version;
        ApiError::bad_request(decode::cannot_be_handled(self.kind(), version, self.kind(), why))
    }

    /// A merged object that is not one of this kind: upstream finds out when it turns it into its Go type.
    fn unconvertible(&self, value: &Value, why: &str) -> ApiError {
        // Upstream names the configuration that was applied, which has no namespace here.
        let name = value["metadata"]["name"].as_str().unwrap_or_default();
        let kind = format!("{}/{}, Kind={}", self.group(), self.resource.gv.version, self.kind());
        let decoder = if why.starts_with("illegal base64") {
            "error decoding from json: "
        } else {
            ""
        };
        ApiError::raw_internal(format!(
            "failed to convert new object (/{name}; {kind}) to proper version: unable to convert unstructured object to \
             {kind}: {decoder}{why}"
        ))
    }

    pub fn reporter(&self) -> Reporter {
        match self.kind {
            KindRules::Custom(_) => Reporter::CustomResource,
            KindRules::BuiltIn | KindRules::Definition => Reporter::Typed,
        }
    }

    /// Changes that admission plugins of a stock server make.
    pub fn admit_create(&self, value: &mut Value, needs: &CreateNeeds<'_>) -> ApiResult<()> {
        if !matches!(self.kind, KindRules::BuiltIn) {
            return Ok(());
        }
        let admitted = admission::mutate_on_create(self.group(), self.kind(), value, needs.lookup);
        admitted.map_err(|refused| self.refused(value, &refused.0))
    }

    pub fn admit_update(&self, value: &mut Value, old: &Value, lookup: &dyn admission::Lookup) -> ApiResult<()> {
        if !matches!(self.kind, KindRules::BuiltIn) {
            return Ok(());
        }
        let admitted = admission::mutate_on_update(self.group(), self.kind(), value, old, lookup);
        admitted.map_err(|refused| self.refused(value, &refused.0))
    }

    fn refused(&self, value: &Value, why: &str) -> ApiError {
        let name = value["metadata"]["name"].as_str().unwrap_or_default();
        ApiError::forbidden(&self.resource, name, why)
    }

    pub fn prepare_create(&self, value: &mut Value, needs: &mut CreateNeeds<'_>) {
        match &self.kind {
            KindRules::BuiltIn => {
                let mut context = strategy::CreateContext {
                    uid: needs.uid,
                    now: needs.now,
                    allocate_cluster_ip: needs.allocate_cluster_ip,
                    allocate_node_port: needs.allocate_node_port,
                };
                strategy::prepare_for_create(self.group(), self.kind(), value, &mut context);
            }
            KindRules::Definition => crd::prepare_create(value),
            KindRules::Custom(version) => version.prepare_create(value),
        }
    }

    /// Prepares a change made through an endpoint: what it may not touch is put back.
    pub fn prepare_update(&self, subresource: &str, value: &mut Value, old: &Value, now: &str) {
        let status = subresource == "status";
        match &self.kind {
            KindRules::BuiltIn if status => {
                strategy::prepare_for_status_update(self.group(), self.kind(), value, old, now);
            }
            KindRules::BuiltIn if subresource == "finalize" => strategy::prepare_for_finalize(value, old),
            KindRules::BuiltIn if subresource == "ephemeralcontainers" => {
                strategy::prepare_for_ephemeral_containers_update(value, old);
            }
            KindRules::BuiltIn if subresource == "resize" => keep_but(value, old, &["containers", "initContainers"]),
            KindRules::BuiltIn => strategy::prepare_for_update(self.group(), self.kind(), value, old),
            KindRules::Definition if status => crd::prepare_status_update(value, old),
            KindRules::Definition => crd::prepare_update(value, old),
            KindRules::Custom(version) if status => version.prepare_status_update(value, old),
            KindRules::Custom(version) => version.prepare_update(value, old),
        }
    }

    pub fn validate_create(&self, value: &Value) -> Verdict {
        match &self.kind {
            KindRules::BuiltIn => plain(validation::create(self.group(), self.kind(), value)),
            KindRules::Definition => plain(crd::validate_crd(value)),
            KindRules::Custom(version) => {
                let mut verdict = version.validate_create(value);
                verdict
                    .warnings
                    .extend(object_meta::finalizer_warnings(&value["metadata"], None));
                verdict
            }
        }
    }

    pub fn validate_update(&self, subresource: &str, value: &Value, old: &Value) -> Verdict {
        let mut verdict = self.validate_own_update(subresource, value, old);
        if !matches!(self.kind, KindRules::BuiltIn) {
            // Upstream checks what holds for every kind before what the kind itself asks for, and reports both; the
            // checks of built-in kinds do that themselves.
            let (meta, old_meta) = (&value["metadata"], &old["metadata"]);
            let mut errors = object_meta::validate_common_update(meta, old_meta, self.resource.namespaced);
            errors.append(&mut verdict.errors);
            verdict.errors = errors;
        }
        verdict
    }

    fn validate_own_update(&self, subresource: &str, value: &Value, old: &Value) -> Verdict {
        let status = subresource == "status";
        match &self.kind {
            KindRules::BuiltIn if status => plain(validation::status_update(self.group(), self.kind(), value, old)),
            KindRules::BuiltIn if subresource == "ephemeralcontainers" => {
                plain(validation::ephemeral_containers_update(value, old))
            }
            // The endpoint exists to change what updates may not.
            KindRules::BuiltIn if subresource == "resize" => {
                plain(validation::create(self.group(), self.kind(), value))
            }
            KindRules::BuiltIn => plain(validation::update(self.group(), self.kind(), value, old)),
            KindRules::Definition if status => plain(Vec::new()),
            KindRules::Definition => plain(crd::validate_crd_update(value, old)),
            KindRules::Custom(version) if status => version.validate_status_update(value, old),
            KindRules::Custom(version) => {
                let mut verdict = version.validate_update(value, old);
                let before = Some(&old["metadata"]);
                verdict
                    .warnings
                    .extend(object_meta::finalizer_warnings(&value["metadata"], before));
                verdict
            }
        }
    }

    /// Brings the result of a write into the form that a reader gets; `stored` is what it takes the place of.
    pub fn settle(&self, value: &mut Value, stored: Option<&Value>) {
        match &self.kind {
            KindRules::Custom(version) => version.default_stored(value),
            KindRules::BuiltIn if self.is_second_event_api() => builtin::as_read_back("", "v1", "Event", value, stored),
            KindRules::BuiltIn | KindRules::Definition => {
                builtin::as_read_back(self.group(), &self.resource.gv.version, self.kind(), value, stored);
            }
        }
    }

    /// Fields whose ownership a request on this endpoint never claims.
    pub fn reset_fields(&self, subresource: &str) -> Option<FieldSet> {
        match &self.kind {
            KindRules::BuiltIn | KindRules::Definition => {
                let paths = strategy::reset_fields(self.group(), self.kind(), subresource);
                (!paths.is_empty()).then(|| FieldSet::from_paths(paths))
            }
            KindRules::Custom(version) if !version.has_status => None,
            KindRules::Custom(_) if subresource == "status" => Some(FieldSet::from_paths(&["spec", "metadata"])),
            KindRules::Custom(_) => Some(FieldSet::from_paths(&["status"])),
        }
    }

    pub fn creates_on_update(&self) -> bool {
        matches!(self.kind, KindRules::BuiltIn) && strategy::allows_create_on_update(self.group(), self.kind())
    }

    pub fn updates_unconditionally(&self) -> bool {
        match self.kind {
            KindRules::BuiltIn => strategy::allows_unconditional_update(self.group(), self.kind()),
            KindRules::Definition | KindRules::Custom(_) => false,
        }
    }
}

pub fn set_generation(value: &mut Value, generation: i64) {
    if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("generation".into(), generation.into());
    }
}

pub fn generation(value: &Value) -> i64 {
    value["metadata"]["generation"].as_i64().unwrap_or_default()
}

/// What upstream's conversion to its internal types does before anyone looks at the object: fields that exist in the
/// public version only are turned into what they stand for, and owned as that.
fn convert_to_internal(group: &str, kind: &str, value: &mut Value) {
    match (group, kind) {
        ("", "Secret") => strategy::fold_string_data(value),
        ("apps", "DaemonSet") => {
            let generation = "deprecated.daemonset.template.generation";
            if value["metadata"]["annotations"].get(generation).is_none() {
                value["metadata"]["annotations"][generation] = "0".into();
            }
        }
        _ => {}
    }
}

/// A write that may change some fields of the spec alone, and raises the generation when it does.
fn keep_but(value: &mut Value, old: &Value, changed: &[&str]) {
    let mut spec = old["spec"].clone();
    for field in changed {
        if let Some(new) = value["spec"].get(*field) {
            spec[*field] = new.clone();
        }
    }
    let raised = spec != old["spec"];
    value["spec"] = spec;
    value["status"] = old["status"].clone();
    set_generation(value, generation(old) + i64::from(raised));
}

/// Built-in kinds give no warnings of their own.
fn plain(errors: Vec<FieldError>) -> Verdict {
    Verdict {
        errors,
        warnings: Vec::new(),
    }
}

//! Update: the whole object is replaced, under the version it was read at.

use serde_json::Value;

use crate::resource::ResourceType;
use crate::status::{ApiError, ApiResult};
use crate::store::Object;

use super::super::answer::Answer;
use super::Call;
use super::write::metadata_text;

impl Call<'_> {
    pub(super) fn update(&mut self) -> ApiResult<Answer> {
        let options = self.write_options("UpdateOptions")?;
        let mut value = self.read_object(&options)?;
        self.check_object_namespace(&mut value)?;
        self.check_object_name(&value)?;
        let Ok(old) = self.existing(&self.path.name) else {
            return self.create_by_update(value);
        };
        self.check_uid(&old, &value, options.dry_run)?;
        if self.path.subresource == "finalize" {
            value = finalized(old.value(), &value);
        }
        self.track(Some(old.value()), &mut value, &options);
        let object = self.store_changed(&old, value, &options)?;
        Ok(Answer::Object {
            code: 200,
            resource: self.resource.clone(),
            object,
        })
    }

    /// A few kinds are created when they are not there.
    fn create_by_update(&mut self, mut value: Value) -> ApiResult<Answer> {
        if !self.rules.creates_on_update() || !self.path.subresource.is_empty() {
            return Err(ApiError::not_found(&self.resource, &self.path.name));
        }
        let options = self.write_options("UpdateOptions")?;
        let uid = metadata_text(&value, "uid").to_owned();
        if !uid.is_empty() {
            return Err(self.uid_mismatch(&uid, "", options.dry_run));
        }
        self.track(None, &mut value, &options);
        let object = self.store_new(value, &options)?;
        Ok(Answer::Object {
            code: 201,
            resource: self.resource.clone(),
            object,
        })
    }

    /// An update that names a uid is meant for that object and no other of its name.
    fn check_uid(&self, old: &Object, value: &Value, dry_run: bool) -> ApiResult<()> {
        let given = metadata_text(value, "uid");
        if given.is_empty() || given == old.uid() {
            return Ok(());
        }
        Err(self.uid_mismatch(given, old.uid(), dry_run))
    }

    fn uid_mismatch(&self, given: &str, found: &str, dry_run: bool) -> ApiError {
        // A dry run does not get as far as etcd, and names the object without etcd's prefix.
        let prefix = if dry_run { "" } else { "/registry" };
        let key = storage_path(&self.resource, &self.path.namespace, &self.path.name);
        let why = format!(
            "StorageError: invalid object, Code: 4, Key: {prefix}{key}, ResourceVersion: 0, AdditionalErrorMsg: \
             Precondition failed: UID in precondition: {given}, UID in object meta: {found}"
        );
        ApiError::conflict(&self.resource, &self.path.name, &why)
    }
}

/// Where the real server keeps an object, below its prefix in etcd: some refusals name it.
pub(super) fn storage_path(resource: &ResourceType, namespace: &str, name: &str) -> String {
    let place = match (resource.gv.group.as_str(), resource.plural.as_str()) {
        ("", "nodes") => "minions".to_owned(),
        ("", "services") => "services/specs".to_owned(),
        ("", "endpoints") => "services/endpoints".to_owned(),
        (group @ ("apiextensions.k8s.io" | "apiregistration.k8s.io"), plural) => format!("{group}/{plural}"),
        (group, plural) if resource.is_custom() => format!("{group}/{plural}"),
        (_, plural) => plural.to_owned(),
    };
    if namespace.is_empty() {
        format!("/{place}/{name}")
    } else {
        format!("/{place}/{namespace}/{name}")
    }
}

/// A namespace whose `spec.finalizers` alone may change.
fn finalized(old: &Value, new: &Value) -> Value {
    let mut value = old.clone();
    match new["spec"].get("finalizers") {
        Some(finalizers) => value["spec"]["finalizers"] = finalizers.clone(),
        None => {
            if let Some(spec) = value.get_mut("spec").and_then(Value::as_object_mut) {
                spec.remove("finalizers");
            }
        }
    }
    value
}

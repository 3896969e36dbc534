//! The four kinds of patch. Three of them make a new object out of the stored one, which then goes the way of an
//! update; the fourth, server-side apply, also decides about ownership, and creates what is not there.

use afloat_apischema::apply::{self, ApplyError};
use afloat_apischema::decode::{self, FieldValidation, Format};
use afloat_apischema::field_error::{FieldError, Path};
use afloat_apischema::patch::{self, PatchError};
use serde_json::Value;

use crate::status::{ApiError, ApiResult};

use super::super::answer::Answer;
use super::Call;
use super::body::WriteOptions;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PatchKind {
    Json,
    Merge,
    Strategic,
    Apply,
}

impl Call<'_> {
    pub(super) fn patch(&mut self) -> ApiResult<Answer> {
        let kind = self.patch_kind()?;
        let options = self.patch_options(kind)?;
        self.checked_body()?;
        if kind == PatchKind::Apply {
            return self.apply(&options);
        }
        let old = self.existing(&self.path.name)?;
        let mut value = self.patched(kind, &self.rules.shown(old.value()))?;
        self.decode_patched(&mut value, &options)?;
        self.check_object_namespace(&mut value)?;
        self.check_object_name(&value)?;
        self.track(Some(old.value()), &mut value, &options);
        let object = self.store_changed(&old, value, &options)?;
        Ok(Answer::Object { code: 200, resource: self.resource.clone(), object })
    }

    fn patch_kind(&self) -> ApiResult<PatchKind> {
        let media = self.content_type.split(';').next().unwrap_or_default().trim();
        let custom = self.resource.is_custom();
        match media {
            "application/json-patch+json" => Ok(PatchKind::Json),
            "application/merge-patch+json" => Ok(PatchKind::Merge),
            "application/strategic-merge-patch+json" if !custom => Ok(PatchKind::Strategic),
            "application/apply-patch+yaml" => Ok(PatchKind::Apply),
            _ => {
                let strategic = if custom { "" } else { "application/strategic-merge-patch+json, " };
                Err(ApiError::unsupported_media_type(format!(
                    "the body of the request was in an unknown format - accepted media types include: \
                     application/json-patch+json, application/merge-patch+json, {strategic}application/apply-patch+yaml"
                )))
            }
        }
    }

    fn patch_options(&self, kind: PatchKind) -> ApiResult<WriteOptions> {
        let options = self.write_options("PatchOptions")?;
        let mut errors = Vec::new();
        if kind == PatchKind::Apply {
            if self.query.get("fieldManager").unwrap_or_default().is_empty() {
                errors.push(FieldError::required(&Path::new("fieldManager"), "is required for apply patch"));
            }
        } else if self.query.get("force").is_some() {
            errors.push(FieldError::forbidden(&Path::new("force"), "may not be specified for non-apply patch"));
        }
        if errors.is_empty() { Ok(options) } else { Err(ApiError::invalid("meta.k8s.io", "PatchOptions", "", &errors)) }
    }

    fn patched(&self, kind: PatchKind, old: &Value) -> ApiResult<Value> {
        let result = match kind {
            PatchKind::Json => patch::json_patch(old, self.body),
            PatchKind::Merge => patch::merge_patch(old, self.body),
            PatchKind::Strategic | PatchKind::Apply => {
                patch::strategic_merge(self.resource.schema.root(), old, self.body)
            }
        };
        result.map_err(|error| patch_refused(&error))
    }

    fn apply(&mut self, options: &WriteOptions) -> ApiResult<Answer> {
        let applied = self.applied_object(options)?;
        let live = self.lookup(&self.path.name).cloned();
        if live.is_none() && !self.path.subresource.is_empty() {
            return Err(ApiError::not_found(&self.resource, &self.path.name));
        }
        let merged = {
            let (api_version, time) = (self.resource.gv.api_version(), self.timestamp());
            let manager = self.manager(options, &api_version, &time);
            let reset = self.rules.reset_fields(&self.path.subresource);
            let schema = self.resource.schema.root();
            let live = live.as_ref().map(|object| self.rules.shown(object.value()));
            apply::apply(schema, live.as_deref(), &applied, &manager, options.force, reset.as_ref())
        };
        let mut value = merged.map_err(apply_refused)?;
        // Unknown fields were refused above; what decoding finds now is nobody's doing.
        self.rules.decode(&mut value)?;
        self.check_object_namespace(&mut value)?;
        let (code, object) = match live {
            Some(old) => (200, self.store_changed(&old, value, options)?),
            None => (201, self.store_new(value, options)?),
        };
        Ok(Answer::Object { code, resource: self.resource.clone(), object })
    }

    /// The configuration that is applied: YAML, of the right kind and name.
    fn applied_object(&mut self, options: &WriteOptions) -> ApiResult<Value> {
        let read = decode::parse(self.body, Format::Yaml)
            .map_err(|error| ApiError::bad_request(format!("error decoding YAML: {error}")))?;
        let mut applied = read.value;
        if let Some(duplicates) = read.yaml_duplicates {
            match options.validation {
                FieldValidation::Strict => {
                    return Err(ApiError::bad_request(format!("error strict decoding YAML: {duplicates}")));
                }
                FieldValidation::Warn => self.warnings.push(duplicates),
                FieldValidation::Ignore => {}
            }
        }
        self.check_applied_type(&applied)?;
        self.check_object_namespace(&mut applied)?;
        self.check_object_name(&applied)?;
        if let Some(metadata) = applied.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.insert("name".into(), self.path.name.as_str().into());
        }
        Ok(applied)
    }

    fn check_applied_type(&self, applied: &Value) -> ApiResult<()> {
        let text = |key: &str| applied.get(key).and_then(Value::as_str).unwrap_or_default();
        let expected = self.resource.gv.api_version();
        if !applied.is_object() || text("kind").is_empty() || text("apiVersion").is_empty() {
            let missing = if text("kind").is_empty() { "Kind" } else { "apiVersion" };
            let quoted = afloat_apischema::field_error::go_quote(&applied.to_string());
            return Err(ApiError::bad_request(format!("Object '{missing}' is missing in {quoted}")));
        }
        if text("apiVersion") != expected || text("kind") != self.resource.kind {
            return Err(ApiError::bad_request(format!(
                "invalid object type: /{}, Kind={}",
                text("apiVersion").replace('/', ", Version="),
                text("kind")
            )));
        }
        Ok(())
    }
}

pub(super) fn patch_refused(error: &PatchError) -> ApiError {
    let message = error.to_string();
    match error {
        PatchError::BadRequest(_) => ApiError::bad_request(message),
        PatchError::TooLarge(_) => ApiError::too_large(message),
        PatchError::Unprocessable => ApiError::unprocessable(message),
        PatchError::Internal(_) => ApiError::raw_internal(message),
    }
}

fn apply_refused(error: ApplyError) -> ApiError {
    match error {
        ApplyError::BadRequest(why) => ApiError::bad_request(why),
        ApplyError::Conflict { message, causes } => {
            let causes = causes.into_iter().map(|cause| (cause.message, cause.field)).collect();
            ApiError::apply_conflict(message, causes)
        }
        ApplyError::Internal(why) => ApiError::raw_internal(why),
    }
}

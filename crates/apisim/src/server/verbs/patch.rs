//! The four kinds of patch. Three of them make a new object out of the stored one, which then goes the way of an
//! update; the fourth, server-side apply, also decides about ownership, and creates what is not there.

use std::borrow::Cow;

use afloat_apischema::apply::{self, ApplyError};
use afloat_apischema::decode::{self, FieldValidation, Format};
use afloat_apischema::field_error::{FieldError, Path};
use afloat_apischema::patch::{self, PatchError};
use serde_json::{Value, json};

use crate::status::{ApiError, ApiResult};

use super::super::answer::Answer;
use super::Call;
use super::body::WriteOptions;
use super::write::metadata_text;

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
        let mut value = self.patched(kind, &self.unfolded_for_patch(kind, self.rules.shown(old.value())))?;
        self.decode_patched(&mut value, old.value(), kind == PatchKind::Strategic, &options)?;
        self.check_object_namespace(&mut value)?;
        self.check_object_name(&value)?;
        self.track(Some(old.value()), &mut value, &options);
        let object = self.store_changed(&old, value, &options)?;
        Ok(Answer::Object {
            code: 200,
            resource: self.resource.clone(),
            object,
        })
    }

    fn patch_kind(&self) -> ApiResult<PatchKind> {
        let media = self.content_type.split(';').next().unwrap_or_default().trim();
        let custom = self.resource.is_custom();
        match media {
            "application/json-patch+json" => Ok(PatchKind::Json),
            "application/merge-patch+json" => Ok(PatchKind::Merge),
            "application/strategic-merge-patch+json" if !custom => Ok(PatchKind::Strategic),
            "application/apply-patch+yaml" => Ok(PatchKind::Apply),
            _ if custom => Err(ApiError::unsupported_media_type(
                "the body of the request was in an unknown format - accepted media types include: \
                 application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
            )),
            _ => Err(ApiError::unsupported_by_router()),
        }
    }

    fn patch_options(&self, kind: PatchKind) -> ApiResult<WriteOptions> {
        let options = self.write_options("PatchOptions")?;
        let mut errors = Vec::new();
        if kind == PatchKind::Apply {
            if self.query.get("fieldManager").unwrap_or_default().is_empty() {
                errors.push(FieldError::required(
                    &Path::new("fieldManager"),
                    "is required for apply patch",
                ));
            }
        } else if self.query.get("force").is_some() {
            errors.push(FieldError::forbidden(
                &Path::new("force"),
                "may not be specified for non-apply patch",
            ));
        }
        if errors.is_empty() {
            Ok(options)
        } else {
            Err(ApiError::invalid("meta.k8s.io", "PatchOptions", "", &errors))
        }
    }

    /// A patch that may be about the sets of managers must find them as clients know them. The word cannot hide but behind
    /// an escape; JSON patches can name it in parts of a path, or copy all of the metadata.
    fn unfolded_for_patch<'v>(&self, kind: PatchKind, mut old: Cow<'v, Value>) -> Cow<'v, Value> {
        if kind == PatchKind::Json || self.may_name_managers() {
            apply::unfold(old.to_mut());
        }
        old
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
        let live = self.existing(&self.path.name).ok();
        if live.is_none() && !self.path.subresource.is_empty() {
            return Err(ApiError::not_found(&self.resource, &self.path.name));
        }
        let uid = metadata_text(&applied, "uid");
        if live.is_none() && !uid.is_empty() {
            let why =
                format!("uid mismatch: the provided object specified uid {uid}, and no existing object was found");
            return Err(ApiError::conflict(&self.resource, &self.path.name, &why));
        }
        let merged = {
            let (api_version, time) = (self.resource.gv.api_version(), self.timestamp());
            let manager = self.manager(options, &api_version, &time);
            let reset = self.rules.reset_fields(&self.path.subresource);
            let schema = self.resource.schema.root();
            let live = live.as_ref().map(|object| self.rules.shown(object.value()));
            apply::apply(
                schema,
                live.as_deref(),
                &applied,
                &manager,
                options.force,
                reset.as_ref(),
            )
        };
        let mut value = merged.map_err(apply_refused)?;
        self.rules.decode_applied(&mut value)?;
        self.check_object_namespace(&mut value)?;
        let (code, object) = match live {
            Some(old) => (200, self.store_changed(&old, value, options)?),
            None => (201, self.store_new(value, options)?),
        };
        Ok(Answer::Object {
            code,
            resource: self.resource.clone(),
            object,
        })
    }

    /// The configuration that is applied: YAML, of the right kind and name.
    fn applied_object(&mut self, options: &WriteOptions) -> ApiResult<Value> {
        let read = decode::parse(self.body, Format::Yaml).map_err(|error| {
            ApiError::bad_request(format!("error decoding YAML: error converting YAML to JSON: {error}"))
        })?;
        let applied = if read.value.is_null() { json!({}) } else { read.value };
        if !applied.is_object() {
            let found = match applied {
                Value::Array(_) => "array",
                Value::String(_) => "string",
                Value::Bool(_) => "bool",
                _ => "number",
            };
            return Err(ApiError::bad_request(format!(
                "error decoding YAML: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {found} into \
                 Go value of type map[string]interface {{}}"
            )));
        }
        if let Some(duplicates) = read.yaml_duplicates {
            match options.validation {
                FieldValidation::Strict => {
                    return Err(ApiError::bad_request(format!(
                        "error strict decoding YAML: {duplicates}"
                    )));
                }
                FieldValidation::Warn => self.warnings.push(duplicates),
                FieldValidation::Ignore => {}
            }
        }
        self.check_applied_type(&applied)?;
        self.check_object_name(&applied)?;
        // Only looked at: what is applied stays as it was sent, the namespace is filled in after the merge.
        self.check_object_namespace(&mut applied.clone())?;
        Ok(applied)
    }

    fn check_applied_type(&self, applied: &Value) -> ApiResult<()> {
        let text = |key: &str| applied[key].as_str().unwrap_or_default();
        let (api_version, kind) = (text("apiVersion"), text("kind"));
        if api_version == self.resource.gv.api_version() && kind == self.resource.kind {
            return Ok(());
        }
        let group = if api_version.contains('/') { "" } else { "/" };
        Err(ApiError::bad_request(format!(
            "invalid object type: {group}{api_version}, Kind={kind}"
        )))
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

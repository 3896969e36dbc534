//! The scale subresource: replicas of a workload or of a custom resource, read and written as a `Scale`.

use afloat_apischema::decode::{self, Format};
use afloat_apischema::field_error::{FieldError, Path};
use afloat_apischema::patch;
use afloat_apischema::{apply, builtin};
use serde_json::{Value, json};

use crate::request::Verb;
use crate::resource::ScalePaths;
use crate::status::{ApiError, ApiResult};
use crate::store::Object;

use super::super::answer::Answer;
use super::Call;
use super::write::metadata_text;

impl Call<'_> {
    fn scale_paths(&self) -> ScalePaths {
        self.resource
            .custom()
            .and_then(|custom| custom.scale.clone())
            .unwrap_or_else(|| ScalePaths {
                spec_replicas: ".spec.replicas".into(),
                status_replicas: ".status.replicas".into(),
                label_selector: None,
            })
    }

    pub(super) fn get_scale(&mut self) -> ApiResult<Answer> {
        let object = self.existing(&self.path.name)?;
        Ok(Answer::ok(self.scale_of(&object)))
    }

    fn scale_of(&self, object: &Object) -> Value {
        let paths = self.scale_paths();
        let value = object.value();
        let mut metadata = json!({"name": object.name()});
        for key in ["namespace", "uid", "resourceVersion", "creationTimestamp"] {
            if let Some(found) = object.metadata(key) {
                metadata[key] = found.clone();
            }
        }
        let mut spec = json!({});
        if let Some(replicas) = at(value, &paths.spec_replicas)
            .and_then(Value::as_i64)
            .filter(|count| *count != 0)
        {
            spec["replicas"] = replicas.into();
        }
        let mut status = json!({
            "replicas": at(value, &paths.status_replicas).and_then(Value::as_i64).unwrap_or_default(),
        });
        let selector = match (&paths.label_selector, self.resource.is_custom()) {
            (Some(path), _) => at(value, path).and_then(Value::as_str).map(str::to_owned),
            (None, false) => Some(selector_text(&value["spec"]["selector"])),
            (None, true) => None,
        };
        if let Some(selector) = selector.filter(|selector| !selector.is_empty()) {
            status["selector"] = selector.into();
        }
        json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata, "spec": spec, "status": status})
    }

    pub(super) fn write_scale(&mut self, verb: Verb) -> ApiResult<Answer> {
        let options = self.write_options(if verb == Verb::Patch {
            "PatchOptions"
        } else {
            "UpdateOptions"
        })?;
        let old = self.existing(&self.path.name)?;
        let mut scale = if verb == Verb::Patch {
            self.patched_scale(&old)?
        } else {
            self.sent_scale()?
        };
        builtin::normalise("autoscaling", "v1", "Scale", &mut scale)
            .map_err(|why| ApiError::bad_request(decode::cannot_be_handled("Scale", "v1", "Scale", &why.0)))?;
        let replicas = scale["spec"]["replicas"].as_i64().unwrap_or_default();
        if replicas < 0 && !self.resource.is_custom() {
            let path = Path::new("spec").child("replicas");
            let error = FieldError::invalid(&path, replicas, "must be greater than or equal to 0");
            return Err(ApiError::invalid("autoscaling", "Scale", &self.path.name, &[error]));
        }
        let given = metadata_text(&scale, "resourceVersion");
        if !given.is_empty() && given != old.revision().to_string() {
            return Err(ApiError::modified(&self.resource, &self.path.name));
        }
        let mut value = old.value().clone();
        let place = self.scale_paths().spec_replicas;
        set_at(&mut value, &place, replicas.into());
        if replicas < 0 {
            let errors = self.rules.validate_update("scale", &value, old.value()).errors;
            return Err(self.invalid(&self.path.name, &errors));
        }
        self.track(Some(old.value()), &mut value, &options);
        let tracked = replicas != 0 && anyone_owns(old.value(), &place);
        forget_scale_entries(&mut value, &options.manager, tracked);
        let object = self.store_changed(&old, value, &options)?;
        Ok(Answer::ok(self.scale_of(&object)))
    }

    fn sent_scale(&self) -> ApiResult<Value> {
        let read = self.parse_body("Scale")?;
        let name = metadata_text(&read.value, "name");
        if !name.is_empty() && name != self.path.name {
            self.check_object_name(&read.value)?;
        }
        Ok(read.value)
    }

    fn patched_scale(&self, old: &Object) -> ApiResult<Value> {
        let scale = self.scale_of(old);
        let body = self.checked_body()?;
        let media = self.content_type.split(';').next().unwrap_or_default().trim();
        let patched = match media {
            "application/json-patch+json" => patch::json_patch(&scale, body),
            "application/merge-patch+json" | "application/strategic-merge-patch+json" => {
                patch::merge_patch(&scale, body)
            }
            "application/apply-patch+yaml" => {
                let read = decode::parse(body, Format::Yaml).map_err(|why| ApiError::bad_request(why.to_string()))?;
                patch::merge_patch(&scale, read.value.to_string().as_bytes())
            }
            other => {
                let why = format!("the body of the request was in an unknown format: {other}");
                return Err(ApiError::unsupported_media_type(why));
            }
        };
        patched.map_err(|error| super::patch::patch_refused(&error))
    }
}

fn at<'v>(value: &'v Value, path: &str) -> Option<&'v Value> {
    path.split('.')
        .filter(|key| !key.is_empty())
        .try_fold(value, |value, key| value.get(key))
}

fn set_at(value: &mut Value, path: &str, new: Value) {
    let mut place = value;
    for key in path.split('.').filter(|key| !key.is_empty()) {
        if !place.is_object() {
            *place = json!({});
        }
        place = &mut place[key];
    }
    *place = new;
}

/// Whether anybody owned the replicas before: upstream starts to keep track of a scale only then.
fn anyone_owns(object: &Value, place: &str) -> bool {
    let path: Vec<String> = place
        .split('.')
        .filter(|key| !key.is_empty())
        .map(|key| format!("f:{key}"))
        .collect();
    let mut owners = json!({"metadata": {"managedFields": object["metadata"]["managedFields"]}});
    apply::unfold(&mut owners);
    let entries = owners["metadata"]["managedFields"].as_array().into_iter().flatten();
    entries
        .map(|entry| &entry["fieldsV1"])
        .any(|fields| path.iter().try_fold(fields, |fields, key| fields.get(key)).is_some())
}

/// Upstream maps ownership between the scale and its object, and does not carry the time over; a scale of zero has no
/// field that could be owned.
fn forget_scale_entries(value: &mut Value, manager: &str, tracked: bool) {
    let Some(entries) = value["metadata"]["managedFields"].as_array_mut() else {
        return;
    };
    let of_scale = |entry: &Value| entry["subresource"] == "scale";
    entries.retain(|entry| tracked || !of_scale(entry) || entry["manager"] != manager);
    for entry in entries.iter_mut().filter(|entry| of_scale(entry)) {
        if let Some(fields) = entry.as_object_mut() {
            fields.remove("time");
        }
    }
    // Managers are in the order of their times, and those without one come first.
    entries.sort_by_key(|entry| (entry["operation"].to_string(), entry.get("time").is_some()));
}

/// A label selector in its text form; replication controllers have a plain map.
fn selector_text(selector: &Value) -> String {
    let plain = selector.get("matchLabels").is_none() && selector.get("matchExpressions").is_none();
    let labels = if plain { selector } else { &selector["matchLabels"] };
    let labels = labels.as_object().into_iter().flatten();
    let mut terms: Vec<String> = labels
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    for expression in selector["matchExpressions"].as_array().into_iter().flatten() {
        let key = expression["key"].as_str().unwrap_or_default();
        let values = expression["values"].as_array().into_iter().flatten();
        let mut values: Vec<&str> = values.filter_map(Value::as_str).collect();
        values.sort_unstable();
        let values = values.join(",");
        terms.push(match expression["operator"].as_str() {
            Some("In") => format!("{key} in ({values})"),
            Some("NotIn") => format!("{key} notin ({values})"),
            Some("DoesNotExist") => format!("!{key}"),
            _ => key.to_owned(),
        });
    }
    terms.sort_unstable();
    terms.join(",")
}

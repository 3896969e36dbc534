//! A custom resource object on its way in: decoding by its version's schema, and the checks on create, update and
//! update of the status, in upstream's order.

use serde_json::Value;

use super::CrdVersion;
use crate::field_error::{ErrorKind, FieldError, Path};
use crate::structural::object_meta::{validate_object_meta, validate_object_meta_update};
use crate::structural::{
    self, NameRule, coerce_embedded, coerce_metadata, prune, prune_nulls, validate_at, validate_embedded,
    validate_lists,
};

/// What validation says: errors refuse the object, warnings go to the client.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Verdict {
    pub errors: Vec<FieldError>,
    pub warnings: Vec<String>,
}

impl CrdVersion {
    /// Brings a parsed object into the form in which it is stored: metadata typed, unknown fields dropped, defaults
    /// filled in. Gives the paths of what was dropped, or the text that follows `… cannot be handled as a Foo: `.
    pub fn decode(&self, object: &mut Value) -> Result<Vec<String>, String> {
        let schema = self.structural.root();
        let mut unknown = coerce_metadata(object)?;
        unknown.extend(prune(object, schema, true));
        prune_nulls(object, schema);
        structural::default(object, schema);
        unknown.extend(coerce_embedded(object, schema)?);
        Ok(unknown)
    }

    /// What an object gains when it comes out of storage: defaults that did not exist when it was stored, or that stand
    /// in a status which the create endpoint had taken away.
    pub fn default_stored(&self, object: &mut Value) {
        let schema = self.structural.root();
        prune_nulls(object, schema);
        structural::default(object, schema);
    }

    /// Fills in what a server-side apply left open. Unlike a body that is read, an applied `null` stays, and is refused
    /// where it is not allowed.
    pub fn default_applied(&self, object: &mut Value) {
        // The merge kept to the schema, so that metadata cannot be of another type now.
        let _coerced = coerce_metadata(object);
        structural::default(object, self.structural.root());
    }

    /// What a new object starts with: no status where that has its own endpoint, and generation 1.
    pub fn prepare_create(&self, object: &mut Value) {
        let Some(fields) = object.as_object_mut() else { return };
        if self.has_status {
            fields.remove("status");
        }
        set_generation(object, 1);
    }

    /// What an update may not touch: the status, where that has its own endpoint. Any change outside of the metadata
    /// counts as a new generation.
    pub fn prepare_update(&self, object: &mut Value, old: &Value) {
        let Some(fields) = object.as_object_mut() else { return };
        if self.has_status {
            match old.get("status") {
                Some(status) => fields.insert("status".to_owned(), status.clone()),
                None => fields.remove("status"),
            };
        }
        let without_metadata = |object: &Value| {
            let mut fields = object.as_object().cloned().unwrap_or_default();
            fields.remove("metadata");
            fields
        };
        let generation = metadata(old)
            .get("generation")
            .and_then(Value::as_i64)
            .unwrap_or_default();
        let changed = without_metadata(object) != without_metadata(old);
        set_generation(object, if changed { generation + 1 } else { generation });
    }

    /// An update of the status changes nothing else, except who manages what.
    pub fn prepare_status_update(&self, object: &mut Value, old: &Value) {
        let status = object.get_mut("status").map(Value::take);
        let managed = object.pointer_mut("/metadata/managedFields").map(Value::take);
        *object = old.clone();
        if let Some(fields) = object.as_object_mut() {
            match status {
                Some(status) => fields.insert("status".to_owned(), status),
                None => fields.remove("status"),
            };
        }
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            match managed {
                Some(managed) => metadata.insert("managedFields".to_owned(), managed),
                None => metadata.remove("managedFields"),
            };
        }
    }

    /// Checks a new object.
    pub fn validate_create(&self, object: &Value) -> Verdict {
        let errors = self.type_errors(object);
        if !errors.is_empty() {
            return Verdict {
                errors,
                warnings: Vec::new(),
            };
        }
        let schema = self.structural.root();
        let path = Path::new("metadata");
        let mut errors = validate_object_meta(metadata(object), self.namespaced, NameRule::DnsSubdomain, &path);
        errors.extend(structural::validate(object, schema));
        errors.extend(self.scale_spec(object));
        errors.extend(self.scale_status(object));
        errors.extend(validate_embedded(object, schema));
        errors.extend(validate_lists(object, schema));
        self.with_rules(errors, object, None)
    }

    /// Checks an object that replaces `old`.
    pub fn validate_update(&self, object: &Value, old: &Value) -> Verdict {
        let errors = self.type_errors(object);
        if !errors.is_empty() {
            return Verdict {
                errors,
                warnings: Vec::new(),
            };
        }
        let schema = self.structural.root();
        let path = Path::new("metadata");
        let mut errors = validate_object_meta_update(metadata(object), metadata(old), &path);
        errors.extend(structural::validate_update(object, old, schema));
        errors.extend(self.scale_spec(object));
        errors.extend(self.scale_status(object));
        errors.extend(validate_embedded(object, schema));
        if validate_lists(old, schema).is_empty() {
            errors.extend(validate_lists(object, schema));
        }
        self.with_rules(errors, object, Some(old))
    }

    /// Checks an object of which only the status may have changed.
    pub fn validate_status_update(&self, object: &Value, old: &Value) -> Verdict {
        let errors = self.type_errors(object);
        if !errors.is_empty() {
            return Verdict {
                errors,
                warnings: Vec::new(),
            };
        }
        let schema = self.structural.root();
        let path = Path::new("metadata");
        let mut errors = validate_object_meta_update(metadata(object), metadata(old), &path);
        if let (Some(status), Some(status_schema)) = (object.get("status"), schema.property("status")) {
            errors.extend(validate_at(
                status,
                old.get("status"),
                status_schema,
                &Path::new("status"),
            ));
        }
        errors.extend(self.scale_status(object));
        if validate_lists(old, schema).is_empty() {
            errors.extend(validate_lists(object, schema));
        }
        self.with_rules(errors, object, Some(old))
    }

    fn type_errors(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let expected = [
            ("kind", self.kind.clone()),
            ("apiVersion", format!("{}/{}", self.group, self.name)),
        ];
        for (key, expected) in expected {
            let found = object.get(key).and_then(Value::as_str).unwrap_or_default();
            if found != expected {
                errors.push(FieldError::invalid(
                    &Path::new(key),
                    found,
                    format!("must be {expected}"),
                ));
            }
        }
        errors
    }

    /// Rules are not run over objects that are wrong in ways that rules may stumble over.
    fn with_rules(&self, mut errors: Vec<FieldError>, object: &Value, old: Option<&Value>) -> Verdict {
        if self.rules.is_empty() {
            return Verdict {
                errors,
                warnings: Vec::new(),
            };
        }
        let blocking = errors.iter().any(|error| {
            matches!(
                error.kind,
                ErrorKind::NotSupported
                    | ErrorKind::Required
                    | ErrorKind::TooLong
                    | ErrorKind::TooMany
                    | ErrorKind::TypeInvalid
            )
        });
        if blocking {
            errors.push(FieldError::invalid(
                &Path::root(),
                Value::Null,
                "some validation rules were not checked because the object was invalid; correct the existing errors to \
                 complete validation",
            ));
            return Verdict {
                errors,
                warnings: Vec::new(),
            };
        }
        let evaluation = self.rules.evaluate(&self.structural, object, old);
        errors.extend(evaluation.errors);
        Verdict {
            errors,
            warnings: evaluation.warnings,
        }
    }

    fn scale_spec(&self, object: &Value) -> Option<FieldError> {
        check_replicas(object, &self.scale.as_ref()?.spec_replicas_path)
    }

    fn scale_status(&self, object: &Value) -> Vec<FieldError> {
        let Some(scale) = &self.scale else { return Vec::new() };
        let mut errors: Vec<FieldError> = check_replicas(object, &scale.status_replicas_path)
            .into_iter()
            .collect();
        if let Some(path) = &scale.label_selector_path
            && let Err(text) = nested(object, path, "string", Value::is_string)
        {
            errors.push(FieldError::invalid(&Path::new(path), "", text));
        }
        errors
    }
}

fn set_generation(object: &mut Value, generation: i64) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("generation".to_owned(), Value::from(generation));
    }
}

fn metadata(object: &Value) -> &Value {
    object.get("metadata").unwrap_or(&Value::Null)
}

fn check_replicas(object: &Value, path: &str) -> Option<FieldError> {
    let at = Path::new(path);
    match nested(object, path, "int64", Value::is_i64) {
        Err(text) => Some(FieldError::invalid(&at, 0, text)),
        Ok(found) => match found.and_then(Value::as_i64).unwrap_or_default() {
            count if count < 0 => Some(FieldError::invalid(&at, count, "should be a non-negative integer")),
            count if count > i64::from(i32::MAX) => Some(FieldError::invalid(
                &at,
                count,
                format!("should be less than or equal to {}", i32::MAX),
            )),
            _ => None,
        },
    }
}

/// The value at a path of names; an error in Go's words when something on the way has the wrong type.
fn nested<'v>(
    object: &'v Value,
    path: &str,
    wanted: &str,
    fits: fn(&Value) -> bool,
) -> Result<Option<&'v Value>, String> {
    let path = path.trim_start_matches('.');
    let mut current = object;
    for name in path.split('.') {
        let Value::Object(fields) = current else {
            return Err(format!(
                ".{path} accessor error: {} is of the type {}, expected map[string]interface{{}}",
                crate::field_error::go_print(current),
                go_type(current)
            ));
        };
        match fields.get(name) {
            None => return Ok(None),
            Some(child) => current = child,
        }
    }
    if fits(current) {
        return Ok(Some(current));
    }
    let shown = current
        .as_str()
        .map_or_else(|| crate::field_error::go_print(current), str::to_owned);
    Err(format!(
        ".{path} accessor error: {shown} is of the type {}, expected {wanted}",
        go_type(current)
    ))
}

fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

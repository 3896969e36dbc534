//! What `metadata` may hold: the checks that every kind, built-in or custom, goes through on create and on update.
//! The object has been decoded already, so types are right; what is checked here is meaning.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::names::{self, NameRule};
use crate::field_error::{FieldError, Path, go_quote};

const ANNOTATIONS_LIMIT: usize = 256 * 1024;

fn text<'a>(meta: &'a Value, key: &str) -> &'a str {
    meta.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn list<'a>(meta: &'a Value, key: &str) -> &'a [Value] {
    meta.get(key)
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default()
}

fn map<'a>(meta: &'a Value, key: &str) -> Option<&'a Map<String, Value>> {
    meta.get(key).and_then(Value::as_object)
}

/// Checks the `metadata` of an object about to be created.
pub fn validate_object_meta(meta: &Value, namespaced: bool, name_rule: NameRule, path: &Path) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let generate = text(meta, "generateName");
    if !generate.is_empty() {
        let at = path.child("generateName");
        errors.extend(
            name_rule
                .complaints(generate, true)
                .into_iter()
                .map(|text| FieldError::invalid(&at, generate, text)),
        );
    }
    let name = text(meta, "name");
    if name.is_empty() {
        errors.push(FieldError::required(
            &path.child("name"),
            "name or generateName is required",
        ));
    } else {
        let at = path.child("name");
        errors.extend(
            name_rule
                .complaints(name, false)
                .into_iter()
                .map(|text| FieldError::invalid(&at, name, text)),
        );
    }
    let namespace = text(meta, "namespace");
    let at = path.child("namespace");
    match (namespaced, namespace.is_empty()) {
        (true, true) => errors.push(FieldError::required(&at, "")),
        (true, false) => errors.extend(
            NameRule::DnsLabel
                .complaints(namespace, false)
                .into_iter()
                .map(|text| FieldError::invalid(&at, namespace, text)),
        ),
        (false, false) => errors.push(FieldError::forbidden(&at, "not allowed on this type")),
        (false, true) => {}
    }
    if let Some(generation) = meta.get("generation").and_then(Value::as_i64)
        && generation < 0
    {
        errors.push(FieldError::invalid(
            &path.child("generation"),
            generation,
            "must be greater than or equal to 0",
        ));
    }
    validate_attached(meta, true, path, &mut errors);
    errors
}

/// What creation and replacement check alike. Upstream does not look at finalizers that are replaced.
fn validate_attached(meta: &Value, is_new: bool, path: &Path, errors: &mut Vec<FieldError>) {
    // A path is made for what is there only: this runs several times for every write.
    if let Some(labels) = map(meta, "labels") {
        errors.extend(validate_labels(Some(labels), &path.child("labels")));
    }
    if let Some(annotations) = map(meta, "annotations") {
        errors.extend(validate_annotations(Some(annotations), &path.child("annotations")));
    }
    let (owners, finalizers) = (list(meta, "ownerReferences"), list(meta, "finalizers"));
    if !owners.is_empty() {
        errors.extend(validate_owner_references(owners, &path.child("ownerReferences")));
    }
    if is_new && !finalizers.is_empty() {
        errors.extend(validate_finalizers(finalizers, &path.child("finalizers")));
    }
    let managers = list(meta, "managedFields");
    if !managers.is_empty() {
        errors.extend(validate_managed_fields(managers, &path.child("managedFields")));
    }
}

/// Checks the `metadata` of an object about to replace `old`.
pub fn validate_object_meta_update(meta: &Value, old: &Value, path: &Path) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if old.get("deletionTimestamp").is_some_and(|time| !time.is_null()) {
        errors.extend(new_finalizers(meta, old, &path.child("finalizers")));
    }
    if text(meta, "resourceVersion").is_empty() {
        errors.push(FieldError::invalid(
            &path.child("resourceVersion"),
            "",
            "must be specified for an update",
        ));
    }
    let generation = |meta: &Value| meta.get("generation").and_then(Value::as_i64).unwrap_or_default();
    if generation(meta) < generation(old) {
        errors.push(FieldError::invalid(
            &path.child("generation"),
            generation(meta),
            "must not be decremented",
        ));
    }
    for key in ["name", "namespace", "uid"] {
        if text(meta, key) != text(old, key) {
            errors.push(FieldError::invalid(
                &path.child(key),
                text(meta, key),
                "field is immutable",
            ));
        }
    }
    for key in ["creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        let new_value = meta.get(key).unwrap_or(&Value::Null);
        if new_value != old.get(key).unwrap_or(&Value::Null) {
            errors.push(FieldError::invalid(
                &path.child(key),
                new_value.clone(),
                "field is immutable",
            ));
        }
    }
    validate_attached(meta, false, path, &mut errors);
    errors
}

/// What every update goes through before its kind's own checks, built-in or not. The kind's checks then repeat the second
/// half, so that a bad label shows up in three causes, as it does upstream.
pub fn validate_common_update(meta: &Value, old: &Value, namespaced: bool) -> Vec<FieldError> {
    let path = Path::new("metadata");
    let mut errors = validate_object_meta(meta, namespaced, NameRule::PathSegment, &path);
    errors.extend(validate_object_meta_update(meta, old, &path));
    errors
}

/// Warnings about finalizers that a write adds to a custom resource.
pub fn finalizer_warnings(meta: &Value, old: Option<&Value>) -> Vec<String> {
    let known = old.map(|old| list(old, "finalizers")).unwrap_or_default();
    let added: BTreeSet<&str> = list(meta, "finalizers")
        .iter()
        .filter(|finalizer| !known.contains(finalizer))
        .filter_map(Value::as_str)
        .collect();
    let mut warnings = Vec::new();
    for name in added {
        let head = format!("metadata.finalizers: {}", go_quote(name));
        warnings.extend(
            names::qualified_name(name)
                .into_iter()
                .map(|complaint| format!("{head}: {complaint}")),
        );
        if name.contains('/') || matches!(name, "orphan" | "foregroundDeletion" | "kubernetes") {
            continue;
        }
        let path = if name.contains('.') {
            " including a path (/)"
        } else {
            ""
        };
        warnings.push(format!(
            "{head}: prefer a domain-qualified finalizer name{path} to avoid accidental conflicts with other finalizer \
             writers"
        ));
    }
    warnings
}

/// Labels, also those of selectors and pod templates.
pub fn validate_labels(labels: Option<&Map<String, Value>>, path: &Path) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (key, value) in labels.into_iter().flatten() {
        errors.extend(
            names::qualified_name(key)
                .into_iter()
                .map(|text| FieldError::invalid(path, key.as_str(), text)),
        );
        let value = value.as_str().unwrap_or_default();
        errors.extend(
            names::label_value(value)
                .into_iter()
                .map(|text| FieldError::invalid(path, value, text)),
        );
    }
    errors
}

pub fn validate_annotations(annotations: Option<&Map<String, Value>>, path: &Path) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut size = 0;
    for (key, value) in annotations.into_iter().flatten() {
        let complaints = names::qualified_name(&key.to_lowercase());
        errors.extend(
            complaints
                .into_iter()
                .map(|text| FieldError::invalid(path, key.as_str(), text)),
        );
        size += key.len() + value.as_str().map_or(0, str::len);
    }
    if size > ANNOTATIONS_LIMIT {
        errors.push(FieldError::too_long(path, ANNOTATIONS_LIMIT as u64));
    }
    errors
}

pub fn validate_owner_references(references: &[Value], path: &Path) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut controller: Option<String> = None;
    for reference in references {
        let api_version = text(reference, "apiVersion");
        let kind = text(reference, "kind");
        let version = api_version.rsplit('/').next().unwrap_or_default();
        // More than one slash does not parse as a group and version at all.
        if version.is_empty() || api_version.matches('/').count() > 1 {
            errors.push(FieldError::invalid(
                &path.child("apiVersion"),
                api_version,
                "version must not be empty",
            ));
        }
        for key in ["kind", "name", "uid"] {
            if text(reference, key).is_empty() {
                errors.push(FieldError::invalid(&path.child(key), "", "must not be empty"));
            }
        }
        if api_version == "v1" && kind == "Event" {
            let detail = "/v1, Kind=Event is disallowed from being an owner";
            errors.push(FieldError::invalid(path, reference.clone(), detail));
        }
        if reference.get("controller").and_then(Value::as_bool) == Some(true) {
            let name = format!("{kind}/{}", text(reference, "name"));
            match &controller {
                Some(first) => errors.push(FieldError::invalid(
                    path,
                    json!(references),
                    format!(
                        "Only one reference can have Controller set to true. Found \"true\" in references for {first} \
                         and {name}"
                    ),
                )),
                None => controller = Some(name),
            }
        }
    }
    errors
}

pub fn validate_finalizers(finalizers: &[Value], path: &Path) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for finalizer in finalizers.iter().filter_map(Value::as_str) {
        let complaints = names::qualified_name(finalizer);
        errors.extend(
            complaints
                .into_iter()
                .map(|text| FieldError::invalid(path, finalizer, text)),
        );
    }
    let has = |name: &str| finalizers.iter().any(|finalizer| finalizer == name);
    if has("orphan") && has("foregroundDeletion") {
        let detail = "finalizer orphan and foregroundDeletion cannot be both set";
        errors.push(FieldError::invalid(path, json!(finalizers), detail));
    }
    errors
}

fn new_finalizers(meta: &Value, old: &Value, path: &Path) -> Option<FieldError> {
    let old_finalizers = list(old, "finalizers");
    let mut extra: Vec<&str> = list(meta, "finalizers")
        .iter()
        .filter(|finalizer| !old_finalizers.contains(finalizer))
        .filter_map(Value::as_str)
        .collect();
    extra.sort_unstable();
    extra.dedup();
    if extra.is_empty() {
        return None;
    }
    let listed: Vec<String> = extra.into_iter().map(go_quote).collect();
    Some(FieldError::forbidden(
        path,
        format!(
            "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
            listed.join(", ")
        ),
    ))
}

pub fn validate_managed_fields(entries: &[Value], path: &Path) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (index, entry) in entries.iter().enumerate() {
        let at = path.index(index);
        let operation = text(entry, "operation");
        if !matches!(operation, "Apply" | "Update") {
            errors.push(FieldError::invalid(
                &at.child("operation"),
                operation,
                "must be `Apply` or `Update`",
            ));
        }
        let fields_type = text(entry, "fieldsType");
        if !matches!(fields_type, "" | "FieldsV1") {
            errors.push(FieldError::invalid(
                &at.child("fieldsType"),
                fields_type,
                "must be `FieldsV1`",
            ));
        }
        errors.extend(validate_field_manager(text(entry, "manager"), &at.child("manager")));
        if text(entry, "subresource").len() > 256 {
            errors.push(FieldError::too_long(&at.child("subresource"), 256));
        }
    }
    errors
}

/// The name a client gives itself as a field manager.
pub fn validate_field_manager(manager: &str, path: &Path) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if manager.len() > 128 {
        errors.push(FieldError::too_long(path, 128));
    }
    if manager.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
        return errors;
    }
    for (position, character) in manager.char_indices() {
        // Go's %q escapes exactly what is not printable.
        let quoted = go_quote(character.encode_utf8(&mut [0; 4]));
        if quoted.starts_with("\"\\") && !matches!(character, '"' | '\\') {
            let detail = format!(
                "invalid character U+{:04X} (at position {position})",
                u32::from(character)
            );
            errors.push(FieldError::invalid(path, manager, detail));
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(errors: &[FieldError]) -> Vec<String> {
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn create_checks_read_as_upstream() {
        let path = Path::new("metadata");
        let meta = json!({"generateName": "x", "namespace": "default", "labels": {"a": "b c"}});
        let errors = validate_object_meta(&meta, false, NameRule::DnsSubdomain, &path);
        assert_eq!(
            texts(&errors),
            [
                "metadata.name: Required value: name or generateName is required",
                "metadata.namespace: Forbidden: not allowed on this type",
                "metadata.labels: Invalid value: \"b c\": a valid label must be an empty string or consist of \
                 alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. \
                 'MyValue',  or 'my_value',  or '12345', regex used for validation is \
                 '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')",
            ]
        );
        let owners = json!({"name": "a", "ownerReferences": [
            {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": true},
            {"apiVersion": "", "kind": "Pod", "name": "q", "uid": "", "controller": true},
        ]});
        let found = texts(&validate_object_meta(&owners, false, NameRule::DnsSubdomain, &path));
        assert_eq!(
            found[..2],
            [
                "metadata.ownerReferences.apiVersion: Invalid value: \"\": version must not be empty",
                "metadata.ownerReferences.uid: Invalid value: \"\": must not be empty",
            ]
        );
        assert!(
            found[2].ends_with("Found \"true\" in references for Pod/p and Pod/q"),
            "{}",
            found[2]
        );
    }

    #[test]
    fn update_checks_read_as_upstream() {
        let path = Path::new("metadata");
        let old = json!({"name": "a", "uid": "1", "generation": 2, "resourceVersion": "5",
                         "deletionTimestamp": "2024-01-01T00:00:00Z", "finalizers": ["a.io/x"]});
        let mut new = old.clone();
        assert!(validate_object_meta_update(&new, &old, &path).is_empty());
        new["finalizers"] = json!(["a.io/x", "a.io/y"]);
        new["uid"] = json!("2");
        new["generation"] = json!(1);
        new["resourceVersion"] = json!("");
        assert_eq!(
            texts(&validate_object_meta_update(&new, &old, &path)),
            [
                "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found \
                 new finalizers []string{\"a.io/y\"}",
                "metadata.resourceVersion: Invalid value: \"\": must be specified for an update",
                "metadata.generation: Invalid value: 1: must not be decremented",
                "metadata.uid: Invalid value: \"2\": field is immutable",
            ]
        );
    }

    #[test]
    fn new_finalizers_are_warned_about_as_recorded() {
        let meta = json!({"finalizers": ["x", "a.b", "a.b/c", "old"]});
        assert_eq!(
            finalizer_warnings(&meta, Some(&json!({"finalizers": ["old"]}))),
            [
                "metadata.finalizers: \"a.b\": prefer a domain-qualified finalizer name including a path (/) to avoid \
                 accidental conflicts with other finalizer writers",
                "metadata.finalizers: \"x\": prefer a domain-qualified finalizer name to avoid accidental conflicts \
                 with other finalizer writers",
            ]
        );
    }

    #[test]
    fn managed_fields_entries_are_checked() {
        let path = Path::new("metadata");
        let meta = json!({"name": "a", "managedFields": [{"operation": "x", "fieldsType": "F", "manager": "a\nb"}]});
        assert_eq!(
            texts(&validate_object_meta(&meta, false, NameRule::DnsSubdomain, &path)),
            [
                "metadata.managedFields[0].operation: Invalid value: \"x\": must be `Apply` or `Update`",
                "metadata.managedFields[0].fieldsType: Invalid value: \"F\": must be `FieldsV1`",
                "metadata.managedFields[0].manager: Invalid value: \"a\\nb\": invalid character U+000A (at position 1)",
            ]
        );
    }
}

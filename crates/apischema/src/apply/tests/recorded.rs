//! Requests that were sent to a real kube-apiserver v1.36.3, with what it answered. `recorded.json` holds, for each, the
//! object before, the write, and the `managedFields` (or the status) after.

use serde_json::Value;

use crate::apply::folded::fold;
use crate::apply::{ApplyError, FieldSet, Manager, apply, keep_times_of_noop, track_update, unfold};
use crate::builtin;
use crate::schema::TypeSchema;
use crate::structural;

const RECORDED: &str = include_str!("recorded.json");
const RECORDED_CUSTOM: &str = include_str!("recorded_custom.json");

pub(super) fn kind_schema(kind: &str) -> TypeSchema {
    let group = if kind == "Deployment" { "apps" } else { "" };
    builtin::schema_of(group, "v1", kind).unwrap()
}

fn text<'v>(case: &'v Value, key: &str) -> &'v str {
    case[key].as_str().unwrap_or_default()
}

/// The time of the request, as far as the answer shows it.
fn request_time(case: &Value) -> &str {
    const NEVER: &str = "2099-01-01T00:00:00Z";
    let stored = &case["live"]["metadata"]["managedFields"];
    if *stored == case["expect"] {
        return NEVER;
    }
    let entries = case["expect"].as_array().into_iter().flatten();
    entries
        .filter_map(|entry| entry["time"].as_str())
        .max()
        .unwrap_or(NEVER)
}

fn reset_fields(case: &Value) -> Option<FieldSet> {
    let paths: Vec<&str> = case["reset"].as_array()?.iter().filter_map(Value::as_str).collect();
    Some(FieldSet::from_paths(&paths))
}

#[test]
fn writes_leave_the_managed_fields_that_the_real_server_left() {
    let cases: Vec<Value> = serde_json::from_str(RECORDED).unwrap();
    compare_all(&cases, |case| kind_schema(text(case, "kind")));
}

#[test]
fn writes_of_custom_resources_leave_what_the_real_server_left() {
    let recorded: Value = serde_json::from_str(RECORDED_CUSTOM).unwrap();
    let schema = TypeSchema::from_inline(&recorded["schema"]);
    compare_all(recorded["cases"].as_array().unwrap(), |_| schema.clone());
}

fn compare_all(cases: &[Value], schema: impl Fn(&Value) -> TypeSchema) {
    let mut wrong = Vec::new();
    for case in cases {
        compare_one(case, &schema(case), &mut wrong);
    }
    assert!(
        wrong.is_empty(),
        "{} of {} differ\n{}",
        wrong.len(),
        cases.len(),
        wrong.join("\n")
    );
}

fn compare_one(case: &Value, schema: &TypeSchema, wrong: &mut Vec<String>) {
    let who = Manager {
        name: text(case, "manager"),
        api_version: text(case, "apiVersion"),
        kind: text(case, "kind"),
        subresource: case["subresource"].as_str(),
        time: request_time(case),
        other_versions: &["ssa.test/v1", "ssa.test/v1beta1"],
    };
    // As it would be in storage; what the request carries stays as a client writes it.
    let mut stored = case["live"].clone();
    fold(&mut stored);
    let live = Some(&stored).filter(|live| !live.is_null());
    let reset = reset_fields(case);
    let outcome = if text(case, "op") == "update" {
        let mut new = case["new"].clone();
        track_update(schema.root(), live, &mut new, &who, reset.as_ref());
        Ok(new)
    } else {
        let force = case["force"].as_bool().unwrap();
        apply(schema.root(), live, &case["applied"], &who, force, reset.as_ref())
    };
    match outcome {
        Ok(mut object) => {
            if let Some(live) = live {
                keep_times_of_noop(live, &mut object);
            }
            unfold(&mut object);
            let found = object["metadata"].get("managedFields").cloned().unwrap_or_default();
            if found != case["expect"] {
                wrong.push(format!(
                    "{}:\n  found {found}\n  real  {}",
                    text(case, "name"),
                    case["expect"]
                ));
            }
            check_object(case, schema, object, wrong);
        }
        Err(error) => check_status(case, &error, wrong),
    }
}

/// The whole object must be the real one, where this crate can finish it here.
fn check_object(case: &Value, schema: &TypeSchema, mut object: Value, wrong: &mut Vec<String>) {
    if text(case, "kind") == "Deployment" || text(case, "op") != "apply" || case["live"].is_null() {
        return;
    }
    if text(case, "kind") == "Thing" {
        structural::prune(&mut object, schema.root(), true);
        structural::default(&mut object, schema.root());
    }
    let mut real = case["object"].clone();
    for object in [&mut object, &mut real] {
        let metadata = object["metadata"].as_object_mut().unwrap();
        metadata.remove("managedFields");
        metadata.remove("resourceVersion");
        metadata.remove("generation");
    }
    if object != real {
        wrong.push(format!("{}:\n  found {object}\n  real  {real}", text(case, "name")));
    }
}

fn check_status(case: &Value, error: &ApplyError, wrong: &mut Vec<String>) {
    let status = &case["status"];
    let (code, reason) = match error {
        ApplyError::BadRequest(_) => (400, Some("BadRequest")),
        ApplyError::Conflict { .. } => (409, Some("Conflict")),
        ApplyError::Internal(_) => (500, None),
    };
    let causes = |status: &Value| -> Vec<(String, String)> {
        let causes = status["details"]["causes"].as_array().cloned().unwrap_or_default();
        causes
            .iter()
            .map(|cause| (text(cause, "message").to_owned(), text(cause, "field").to_owned()))
            .collect()
    };
    let found_causes: Vec<(String, String)> = match error {
        ApplyError::Conflict { causes, .. } => causes
            .iter()
            .map(|cause| (cause.message.clone(), cause.field.clone()))
            .collect(),
        _ => Vec::new(),
    };
    let same = status["code"] == code
        && status.get("reason").and_then(Value::as_str) == reason
        && status["message"] == error.to_string().as_str()
        && (found_causes.is_empty() || causes(status) == found_causes);
    if !same {
        wrong.push(format!("{}:\n  found {error:?}\n  real  {status}", text(case, "name")));
    }
}

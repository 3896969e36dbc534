//! Events, in the one form in which they are stored. `v1` asks for little, `events.k8s.io/v1` for more.

use serde_json::Value;

use super::common::{Errors, immutable, printed, qualified_name};
use crate::builtin::fields::{int, map, present, text};
use crate::field_error::{ErrorKind, FieldError, Path};

/// An event in its stored form; `strict` where it came through `events.k8s.io/v1`.
pub fn event(errors: &mut Errors, event: &Value, strict: bool) {
    const MISMATCH: &str = "does not match event.namespace";
    let namespace = text(&event["metadata"], "namespace");
    let about = text(&event["involvedObject"], "namespace");
    let at = Path::new("involvedObject").child("namespace");
    if present(event, "eventTime").is_none() {
        let agrees = if about.is_empty() {
            matches!(namespace, "" | "default")
        } else {
            namespace == about
        };
        if !agrees {
            errors.push(FieldError::invalid(&at, about, MISMATCH));
        }
    } else {
        if about.is_empty() && !matches!(namespace, "default" | "kube-system") {
            errors.push(FieldError::invalid(&at, about, MISMATCH));
        }
        new_event(errors, event, strict);
    }
}

/// Events with a time of their own say who reports what.
fn new_event(errors: &mut Errors, event: &Value, strict: bool) {
    let reporter = text(event, "reportingComponent");
    let field = if strict {
        "reportingController"
    } else {
        "reportingComponent"
    };
    if reporter.is_empty() {
        errors.push(FieldError::required(&Path::new(field), ""));
    }
    qualified_name(errors, &Path::new(field), reporter);
    for key in ["reportingInstance", "action", "reason"] {
        match text(event, key) {
            "" => errors.push(FieldError::required(&Path::new(key), "")),
            long if long.len() > 128 => {
                errors.push(FieldError::invalid(
                    &Path::new(key),
                    "",
                    "can have at most 128 characters",
                ));
            }
            _ => {}
        }
    }
    if text(event, "message").len() > 1024 {
        errors.push(FieldError::invalid(
            &Path::new("message"),
            "",
            "can have at most 1024 characters",
        ));
    }
}

/// What `events.k8s.io/v1` asks of new events beyond that.
pub fn strict_create(errors: &mut Errors, event: &Value) {
    series(errors, event);
    if present(event, "eventTime").is_none() {
        errors.push(FieldError::required(&Path::new("eventTime"), ""));
    }
    let kind = text(event, "type");
    if !matches!(kind, "Normal" | "Warning") {
        errors.push(FieldError::invalid(
            &Path::new("type"),
            "",
            format!("has invalid value: {kind}"),
        ));
    }
    for key in ["firstTimestamp", "lastTimestamp", "count"] {
        if present(event, key).is_some() {
            errors.push(FieldError::invalid(&Path::new(key), "", "needs to be unset"));
        }
    }
    if map(event, "source").is_some() {
        errors.push(FieldError::invalid(&Path::new("source"), "", "needs to be unset"));
    }
}

/// What `events.k8s.io/v1` asks of a replacement: only the series may go on.
pub fn strict_update(errors: &mut Errors, new: &Value, old: &Value) {
    if new.get("series") != old.get("series") {
        series(errors, new);
    }
    same_struct(errors, new, old, "involvedObject", &REFERENCE);
    same_text(errors, new, old, "reason", "reason");
    same_text(errors, new, old, "message", "message");
    same_struct(
        errors,
        new,
        old,
        "source",
        &[("Component", "component"), ("Host", "host")],
    );
    for key in ["firstTimestamp", "lastTimestamp"] {
        immutable(errors, new.get(key), old.get(key), &Path::new(key));
    }
    let count = |event: &Value| int(event, "count").unwrap_or_default();
    if count(new) != count(old) {
        errors.push(FieldError::invalid(&Path::new("count"), count(new), UNCHANGED));
    }
    // Upstream asks for the reason twice.
    same_text(errors, new, old, "reason", "reason");
    same_text(errors, new, old, "type", "type");
    immutable(
        errors,
        new.get("eventTime"),
        old.get("eventTime"),
        &Path::new("eventTime"),
    );
    same_text(errors, new, old, "action", "action");
    same_struct(errors, new, old, "related", &REFERENCE);
    same_text(errors, new, old, "reportingComponent", "reportingController");
    same_text(errors, new, old, "reportingInstance", "reportingInstance");
}

const UNCHANGED: &str = "field is immutable";

/// Fields of an object reference as Go prints them.
const REFERENCE: [(&str, &str); 7] = [
    ("Kind", "kind"),
    ("Namespace", "namespace"),
    ("Name", "name"),
    ("UID", "uid"),
    ("APIVersion", "apiVersion"),
    ("ResourceVersion", "resourceVersion"),
    ("FieldPath", "fieldPath"),
];

fn same_text(errors: &mut Errors, new: &Value, old: &Value, key: &str, shown: &str) {
    if text(new, key) != text(old, key) {
        errors.push(FieldError::invalid(&Path::new(shown), text(new, key), UNCHANGED));
    }
}

fn same_struct(errors: &mut Errors, new: &Value, old: &Value, key: &str, fields: &[(&str, &str)]) {
    let (after, before) = (present(new, key), present(old, key));
    if after == before {
        return;
    }
    let shown = match after {
        None => "null".to_owned(),
        Some(value) => {
            let field = |(name, key): &(&str, &str)| format!("\"{name}\":{}", Value::from(text(value, key)));
            format!("{{{}}}", fields.iter().map(field).collect::<Vec<_>>().join(","))
        }
    };
    errors.push(printed(ErrorKind::Invalid, &Path::new(key), &shown, UNCHANGED));
}

fn series(errors: &mut Errors, event: &Value) {
    let Some(series) = present(event, "series") else {
        return;
    };
    if int(series, "count").unwrap_or_default() < 2 {
        errors.push(FieldError::invalid(
            &Path::new("series.count"),
            "",
            "should be at least 2",
        ));
    }
    if present(series, "lastObservedTime").is_none() {
        errors.push(FieldError::required(&Path::new("series.lastObservedTime"), ""));
    }
}

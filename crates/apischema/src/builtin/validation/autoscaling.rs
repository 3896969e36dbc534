//! Horizontal pod autoscalers.

use serde_json::Value;

use super::common::{
    Errors, NOT_NEGATIVE, container_resource_name, dns_label, not_negative, quantity, required_segment,
};
use crate::builtin::fields::{int, list, present, text};
use crate::field_error::{FieldError, Path};

/// In the order in which upstream looks at them.
const SOURCES: [(&str, &str); 5] = [
    ("object", "Object"),
    ("external", "External"),
    ("pods", "Pods"),
    ("resource", "Resource"),
    ("containerResource", "ContainerResource"),
];
const KINDS: [&str; 5] = ["ContainerResource", "External", "Object", "Pods", "Resource"];

pub fn autoscaler(errors: &mut Errors, object: &Value, old: Option<&Value>) {
    let (spec, path) = (&object["spec"], Path::new("spec"));
    let least = int(spec, "minReplicas");
    let was_at_zero = old.is_some_and(|old| int(&old["spec"], "minReplicas") == Some(0));
    if let Some(least) = least.filter(|least| *least < i64::from(!was_at_zero)) {
        let detail = format!("must be greater than or equal to {}", i64::from(!was_at_zero));
        errors.push(FieldError::invalid(&path.child("minReplicas"), least, detail));
    }
    let (most, at) = (int(spec, "maxReplicas").unwrap_or_default(), path.child("maxReplicas"));
    if most == 0 {
        errors.push(FieldError::required(&at, "must be set and greater than 0"));
    } else if most < 0 {
        errors.push(FieldError::invalid(&at, most, "must be greater than or equal to 1"));
    }
    if least.is_some_and(|least| most < least) {
        errors.push(FieldError::invalid(
            &at,
            most,
            "must be greater than or equal to `minReplicas`",
        ));
    }
    let target = &spec["scaleTargetRef"];
    let same = |key: &str| old.is_some_and(|old| text(&old["spec"]["scaleTargetRef"], key) == text(target, key));
    let version = if same("apiVersion") && same("kind") {
        ApiVersion::Any
    } else if text(target, "kind") == "ReplicationController" {
        ApiVersion::WellFormed
    } else {
        ApiVersion::Grouped
    };
    reference(errors, target, &path.child("scaleTargetRef"), version);
    metrics(errors, spec, &path.child("metrics"), least);
    for direction in ["scaleUp", "scaleDown"] {
        if let Some(rules) = present(&spec["behavior"], direction) {
            scaling_rules(errors, rules, &path.child("behavior").child(direction));
        }
    }
}

pub fn status(errors: &mut Errors, object: &Value) {
    let counts = ["currentReplicas", "desiredReplicas"];
    not_negative(errors, &object["status"], &Path::new("status"), &counts);
}

/// What is asked of a reference's `apiVersion`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ApiVersion {
    Any,
    WellFormed,
    Grouped,
}

fn reference(errors: &mut Errors, reference: &Value, path: &Path, asked: ApiVersion) {
    for key in ["kind", "name"] {
        required_segment(errors, reference, path, key);
    }
    let version = text(reference, "apiVersion");
    let at = path.child("apiVersion");
    if asked == ApiVersion::Any {
        return;
    }
    if version.matches('/').count() > 1 {
        let detail = format!("unexpected GroupVersion string: {version}");
        errors.push(FieldError::invalid(&at, version, detail));
    } else if asked == ApiVersion::Grouped && version.split_once('/').is_none_or(|(group, _)| group.is_empty()) {
        errors.push(FieldError::invalid(&at, version, "apiVersion must specify API group"));
    }
}

fn metrics(errors: &mut Errors, spec: &Value, path: &Path, least: Option<i64>) {
    let metrics = list(spec, "metrics");
    for (index, metric) in metrics.iter().enumerate() {
        self::metric(errors, metric, &path.index(index));
    }
    let wakes = metrics
        .iter()
        .any(|metric| matches!(text(metric, "type"), "Object" | "External"));
    if least == Some(0) && !wakes {
        let detail = "must specify at least one Object or External metric to support scaling to zero replicas";
        errors.push(FieldError::forbidden(path, detail));
    }
}

fn metric(errors: &mut Errors, metric: &Value, path: &Path) {
    let (kind, at) = (text(metric, "type"), path.child("type"));
    if kind.is_empty() {
        errors.push(FieldError::required(&at, "must specify a metric source type"));
    }
    if !KINDS.contains(&kind) {
        errors.push(FieldError::not_supported(&at, kind, &KINDS));
    }
    let given: Vec<&str> = SOURCES
        .iter()
        .map(|(field, _)| *field)
        .filter(|field| present(metric, field).is_some())
        .collect();
    if let Some(first) = given.first() {
        source(errors, &metric[*first], first, &path.child(first));
    }
    let Some((expected, _)) = SOURCES.iter().find(|(_, known)| *known == kind) else {
        errors.push(FieldError::not_supported(&at, kind, &KINDS));
        others(errors, &given, "", path);
        return;
    };
    if !given.contains(expected) {
        let detail = "must populate information for the given metric source";
        errors.push(FieldError::required(&path.child(expected), detail));
    }
    others(errors, &given, expected, path);
}

/// Where several sources are given, all but the expected one are too many.
fn others(errors: &mut Errors, given: &[&str], expected: &str, path: &Path) {
    if given.len() < 2 {
        return;
    }
    for field in given.iter().filter(|field| **field != expected) {
        let detail = "must populate the given metric source only";
        errors.push(FieldError::forbidden(&path.child(field), detail));
    }
}

fn source(errors: &mut Errors, source: &Value, kind: &str, path: &Path) {
    match kind {
        "object" => {
            let described = path.child("describedObject");
            reference(errors, &source["describedObject"], &described, ApiVersion::WellFormed);
            identifier(errors, source, path);
        }
        "external" | "pods" => identifier(errors, source, path),
        _ => resource(errors, source, kind, path),
    }
    let (target, at) = (&source["target"], path.child("target"));
    self::target(errors, target, &at);
    let has = |key: &str| present(target, key).is_some();
    let (needed, other, missing) = match kind {
        "object" => (
            "averageValue",
            "value",
            "must set either a target value or averageValue",
        ),
        "external" => (
            "averageValue",
            "value",
            "must set either a target value for metric or a per-pod target",
        ),
        "pods" => (
            "averageValue",
            "averageValue",
            "must specify a positive target averageValue",
        ),
        _ => (
            "averageUtilization",
            "averageValue",
            "must set either a target raw value or a target utilization",
        ),
    };
    if !has(needed) && !has(other) {
        errors.push(FieldError::required(&at.child(needed), missing));
    }
    let both = match kind {
        "external" => "may not set both a target value for metric and a per-pod target",
        "resource" | "containerResource" => "may not set both a target raw value and a target utilization",
        _ => return,
    };
    if has(needed) && has(other) {
        errors.push(FieldError::forbidden(&at.child(other), both));
    }
}

fn resource(errors: &mut Errors, source: &Value, kind: &str, path: &Path) {
    match text(source, "name") {
        "" => errors.push(FieldError::required(
            &path.child("name"),
            "must specify a resource name",
        )),
        name if kind == "containerResource" => container_resource_name(errors, &path.child("name"), name),
        _ => {}
    }
    if kind == "containerResource" {
        match text(source, "container") {
            "" => errors.push(FieldError::required(
                &path.child("container"),
                "must specify a container",
            )),
            name => dns_label(errors, &path.child("container"), name),
        }
    }
}

fn identifier(errors: &mut Errors, source: &Value, path: &Path) {
    let at = path.child("metric");
    if text(&source["metric"], "name").is_empty() {
        errors.push(FieldError::required(&at.child("name"), "must specify a metric name"));
    } else {
        required_segment(errors, &source["metric"], &at, "name");
    }
}

fn target(errors: &mut Errors, target: &Value, path: &Path) {
    let (kind, at) = (text(target, "type"), path.child("type"));
    if kind.is_empty() {
        errors.push(FieldError::required(&at, "must specify a metric target type"));
    }
    if !matches!(kind, "Utilization" | "Value" | "AverageValue") {
        let detail = "must be either Utilization, Value, or AverageValue";
        errors.push(FieldError::invalid(&at, kind, detail));
    }
    for key in ["value", "averageValue"] {
        let given = target.get(key);
        if quantity(given).is_some_and(|amount| amount.is_negative() || amount.is_zero()) {
            let shown = given.cloned().unwrap_or_default();
            errors.push(FieldError::invalid(&path.child(key), shown, "must be positive"));
        }
    }
    if let Some(share) = int(target, "averageUtilization").filter(|share| *share < 1) {
        errors.push(FieldError::invalid(
            &path.child("averageUtilization"),
            share,
            "must be greater than 0",
        ));
    }
}

fn scaling_rules(errors: &mut Errors, rules: &Value, path: &Path) {
    const LONGEST_WINDOW: i64 = 3600;
    const LONGEST_PERIOD: i64 = 1800;
    let at = path.child("stabilizationWindowSeconds");
    match int(rules, "stabilizationWindowSeconds") {
        Some(window) if window < 0 => {
            errors.push(FieldError::invalid(
                &at,
                window,
                "must be greater than or equal to zero",
            ));
        }
        Some(window) if window > LONGEST_WINDOW => {
            let detail = format!("must be less than or equal to {LONGEST_WINDOW}");
            errors.push(FieldError::invalid(&at, window, detail));
        }
        _ => {}
    }
    super::common::one_of(errors, rules, path, "selectPolicy", &["Disabled", "Max", "Min"]);
    let at = path.child("policies");
    if list(rules, "policies").is_empty() {
        errors.push(FieldError::required(&at, "must specify at least one Policy"));
    }
    for (index, policy) in list(rules, "policies").iter().enumerate() {
        let at = at.index(index);
        super::common::one_of(errors, policy, &at, "type", &["Percent", "Pods"]);
        for key in ["value", "periodSeconds"] {
            let given = int(policy, key).unwrap_or_default();
            if given <= 0 {
                errors.push(FieldError::invalid(&at.child(key), given, "must be greater than zero"));
            } else if key == "periodSeconds" && given > LONGEST_PERIOD {
                let detail = format!("must be less than or equal to {LONGEST_PERIOD}");
                errors.push(FieldError::invalid(&at.child(key), given, detail));
            }
        }
    }
    let tolerance = rules.get("tolerance");
    if quantity(tolerance).is_some_and(|amount| amount.is_negative()) {
        let shown = tolerance.cloned().unwrap_or_default();
        errors.push(FieldError::invalid(&path.child("tolerance"), shown, NOT_NEGATIVE));
    }
}

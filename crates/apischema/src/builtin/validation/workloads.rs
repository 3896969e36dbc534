//! Kinds that make pods: selectors that fit their templates, counts, strategies, and what stays as it was.

use serde_json::Value;

use super::common::{
    Errors, complain, immutable, is_empty_selector, is_none, is_usable_selector, label_selector, not_more_than_all,
    not_negative, number_or_percent, one_of, printed, selects,
};
use super::container::labels;
use super::pod::template;
use crate::builtin::fields::{copy, int, list, present, text};
use crate::field_error::{ErrorKind, FieldError, Path};
use crate::structural::names;

const NO_MATCH: &str = "`selector` does not match template `labels`";

pub(super) fn spec_path() -> Path {
    Path::new("spec")
}

pub(super) fn mismatch(errors: &mut Errors, spec: &Value, path: &Path) {
    let at = path.child("template").child("metadata").child("labels");
    let given = spec["template"]["metadata"].get("labels").cloned().unwrap_or_default();
    errors.push(FieldError::invalid(&at, given, NO_MATCH));
}

/// The selector of a kind that must have one. `kind` and `unusable` are the words of the messages.
fn selector(errors: &mut Errors, spec: &Value, path: &Path, kind: &str, unusable: &str) -> bool {
    let at = path.child("selector");
    let Some(selector) = present(spec, "selector") else {
        errors.push(FieldError::required(&at, ""));
        return true;
    };
    label_selector(errors, selector, &at);
    if is_empty_selector(selector) {
        errors.push(FieldError::invalid(
            &at,
            selector.clone(),
            format!("empty selector is invalid for {kind}"),
        ));
    }
    let usable = is_usable_selector(selector);
    if !usable {
        errors.push(printed(ErrorKind::Invalid, &at, &go_selector(selector), unusable));
    }
    usable
}

/// A selector in the order of its Go fields.
fn go_selector(selector: &Value) -> String {
    let mut parts = Vec::new();
    if let Some(labels) = present(selector, "matchLabels") {
        parts.push(format!("\"matchLabels\":{labels}"));
    }
    if let Some(expressions) = present(selector, "matchExpressions") {
        parts.push(format!("\"matchExpressions\":{expressions}"));
    }
    format!("{{{}}}", parts.join(","))
}

/// The template of a kind whose pods run for ever. `owner` is the word of the messages.
fn running_template(errors: &mut Errors, spec: &Value, path: &Path, owner: &str) {
    let chosen = present(spec, "selector");
    let is_empty = chosen.is_some_and(is_empty_selector);
    if !is_empty && !selects(chosen, labels(&spec["template"])) {
        mismatch(errors, spec, path);
    }
    template(errors, &spec["template"], &path.child("template"));
    always_running(errors, spec, path, owner);
}

fn always_running(errors: &mut Errors, spec: &Value, path: &Path, owner: &str) {
    let at = path.child("template").child("spec");
    let policy = text(&spec["template"]["spec"], "restartPolicy");
    if policy != "Always" {
        errors.push(FieldError::not_supported(
            &at.child("restartPolicy"),
            policy,
            &["Always"],
        ));
    }
    if present(&spec["template"]["spec"], "activeDeadlineSeconds").is_some() {
        let detail = format!("activeDeadlineSeconds in {owner} is not Supported");
        errors.push(FieldError::forbidden(&at.child("activeDeadlineSeconds"), detail));
    }
}

pub fn deployment(errors: &mut Errors, object: &Value) {
    let (spec, path) = (&object["spec"], spec_path());
    not_negative(errors, spec, &path, &["replicas"]);
    if selector(errors, spec, &path, "deployment", "invalid label selector") {
        running_template(errors, spec, &path, "ReplicaSet");
    }
    deployment_strategy(errors, &spec["strategy"], &path.child("strategy"));
    not_negative(
        errors,
        spec,
        &path,
        &["minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds"],
    );
    let ready = int(spec, "minReadySeconds").unwrap_or_default();
    if let Some(deadline) = int(spec, "progressDeadlineSeconds").filter(|deadline| *deadline <= ready) {
        let detail = "must be greater than minReadySeconds";
        errors.push(FieldError::invalid(
            &path.child("progressDeadlineSeconds"),
            deadline,
            detail,
        ));
    }
}

fn deployment_strategy(errors: &mut Errors, strategy: &Value, path: &Path) {
    match text(strategy, "type") {
        "Recreate" => {
            if present(strategy, "rollingUpdate").is_some() {
                let detail = "may not be specified when strategy `type` is 'Recreate'";
                errors.push(FieldError::forbidden(&path.child("rollingUpdate"), detail));
            }
        }
        "RollingUpdate" => {
            let at = path.child("rollingUpdate");
            let rolling = &strategy["rollingUpdate"];
            let (unavailable, surge) = (rolling.get("maxUnavailable"), rolling.get("maxSurge"));
            number_or_percent(errors, &at.child("maxUnavailable"), unavailable);
            number_or_percent(errors, &at.child("maxSurge"), surge);
            if is_none(unavailable) && is_none(surge) {
                errors.push(FieldError::invalid(
                    &at.child("maxUnavailable"),
                    unavailable.cloned().unwrap_or_default(),
                    "may not be 0 when `maxSurge` is 0",
                ));
            }
            not_more_than_all(errors, &at.child("maxUnavailable"), unavailable);
        }
        other => errors.push(unsupported_strategy(
            path,
            other,
            "supported values: \"Recreate\", \"RollingUpdate\"",
        )),
    }
}

fn unsupported_strategy(path: &Path, given: &str, detail: &str) -> FieldError {
    printed(ErrorKind::NotSupported, path, &go_strategy(given), detail)
}

fn go_strategy(given: &str) -> String {
    format!("{{\"Type\":{},\"RollingUpdate\":null}}", Value::from(given))
}

pub fn replica_set(errors: &mut Errors, object: &Value) {
    let (spec, path) = (&object["spec"], spec_path());
    not_negative(errors, spec, &path, &["replicas", "minReadySeconds"]);
    if selector(errors, spec, &path, "deployment", "invalid label selector") {
        running_template(errors, spec, &path, "ReplicaSet");
    }
}

pub fn daemon_set(errors: &mut Errors, object: &Value) {
    let (spec, path) = (&object["spec"], spec_path());
    let chosen = present(spec, "selector");
    if let Some(chosen) = chosen {
        label_selector(errors, chosen, &path.child("selector"));
    }
    if chosen.is_none_or(is_usable_selector) && !selects(chosen, labels(&spec["template"])) {
        mismatch(errors, spec, &path);
    }
    if let Some(chosen) = chosen.filter(|chosen| is_empty_selector(chosen)) {
        let detail = "empty selector is invalid for daemonset";
        errors.push(FieldError::invalid(&path.child("selector"), chosen.clone(), detail));
    }
    template(errors, &spec["template"], &path.child("template"));
    always_running(errors, spec, &path, "DaemonSet");
    not_negative(errors, spec, &path, &["minReadySeconds"]);
    daemon_strategy(errors, &spec["updateStrategy"], &path.child("updateStrategy"));
    not_negative(errors, spec, &path, &["revisionHistoryLimit"]);
}

fn daemon_strategy(errors: &mut Errors, strategy: &Value, path: &Path) {
    match text(strategy, "type") {
        "OnDelete" => {}
        "RollingUpdate" => {
            let at = path.child("rollingUpdate");
            let rolling = &strategy["rollingUpdate"];
            let (unavailable, surge) = (rolling.get("maxUnavailable"), rolling.get("maxSurge"));
            for (key, value) in [("maxUnavailable", unavailable), ("maxSurge", surge)] {
                number_or_percent(errors, &at.child(key), value);
                not_more_than_all(errors, &at.child(key), value);
            }
            match (is_none(unavailable), is_none(surge)) {
                (true, true) => {
                    let detail = "cannot be 0 when maxSurge is 0";
                    errors.push(FieldError::required(&at.child("maxUnavailable"), detail));
                }
                (false, false) => errors.push(FieldError::invalid(
                    &at.child("maxSurge"),
                    surge.cloned().unwrap_or_default(),
                    "may not be set when maxUnavailable is non-zero",
                )),
                _ => {}
            }
        }
        other => errors.push(unsupported_strategy(
            path,
            other,
            "supported values: \"RollingUpdate\", \"OnDelete\"",
        )),
    }
}

pub fn stateful_set(errors: &mut Errors, object: &Value, is_update: bool) {
    let (spec, path) = (&object["spec"], spec_path());
    let policy = text(spec, "podManagementPolicy");
    if !matches!(policy, "OrderedReady" | "Parallel") {
        let detail = "must be 'OrderedReady' or 'Parallel'";
        errors.push(FieldError::invalid(&path.child("podManagementPolicy"), policy, detail));
    }
    stateful_strategy(errors, &spec["updateStrategy"], &path.child("updateStrategy"));
    let retention = path.child("persistentVolumeClaimRetentionPolicy");
    for key in ["whenDeleted", "whenScaled"] {
        one_of(
            errors,
            &spec["persistentVolumeClaimRetentionPolicy"],
            &retention,
            key,
            &["Delete", "Retain"],
        );
    }
    not_negative(errors, spec, &path, &["replicas", "minReadySeconds"]);
    let service = text(spec, "serviceName");
    if !is_update && !service.is_empty() {
        complain(errors, &path.child("serviceName"), service, names::dns_label(service));
    }
    if selector(errors, spec, &path, "statefulset", "") {
        let chosen = present(spec, "selector");
        if !chosen.is_some_and(is_empty_selector) && !selects(chosen, labels(&spec["template"])) {
            mismatch(errors, spec, &path);
        }
        template(errors, &with_claims(spec), &path.child("template"));
    }
    always_running(errors, spec, &path, "StatefulSet");
}

/// The template with a volume for every claim template, as its pods will have.
fn with_claims(spec: &Value) -> Value {
    let mut template = spec["template"].clone();
    let claims = list(spec, "volumeClaimTemplates");
    let name = |claim: &Value| text(&claim["metadata"], "name").to_owned();
    let mut volumes: Vec<Value> = claims
        .iter()
        .map(|claim| serde_json::json!({"name": name(claim), "persistentVolumeClaim": {"claimName": name(claim)}}))
        .collect();
    let own = list(&template["spec"], "volumes");
    volumes.extend(
        own.iter()
            .filter(|own| !claims.iter().any(|claim| name(claim) == text(own, "name")))
            .cloned(),
    );
    if !volumes.is_empty() {
        template["spec"]["volumes"] = Value::Array(volumes);
    }
    template
}

fn stateful_strategy(errors: &mut Errors, strategy: &Value, path: &Path) {
    let at = path.child("rollingUpdate");
    match (text(strategy, "type"), present(strategy, "rollingUpdate")) {
        ("RollingUpdate", Some(rolling)) => not_negative(errors, rolling, &at, &["partition"]),
        ("RollingUpdate" | "OnDelete", None) => {}
        ("OnDelete", Some(rolling)) => {
            let partition = int(rolling, "partition").unwrap_or_default();
            let shown = format!("{{\"Partition\":{partition},\"MaxUnavailable\":null}}");
            let detail = "only allowed for updateStrategy 'RollingUpdate'";
            errors.push(printed(ErrorKind::Invalid, &at, &shown, detail));
        }
        (other, _) => errors.push(printed(
            ErrorKind::Invalid,
            path,
            &go_strategy(other),
            "must be 'RollingUpdate' or 'OnDelete'",
        )),
    }
}

pub fn replication_controller(errors: &mut Errors, object: &Value) {
    let (spec, path) = (&object["spec"], spec_path());
    not_negative(errors, spec, &path, &["minReadySeconds"]);
    if crate::builtin::fields::map(spec, "selector").is_none() {
        errors.push(FieldError::required(&path.child("selector"), ""));
    }
    not_negative(errors, spec, &path, &["replicas"]);
    let Some(pods) = present(spec, "template") else {
        errors.push(FieldError::required(&path.child("template"), ""));
        return;
    };
    let as_selector = serde_json::json!({"matchLabels": spec["selector"]});
    if !selects(Some(&as_selector), labels(pods)) {
        mismatch(errors, spec, &path);
    }
    template(errors, pods, &path.child("template"));
    always_running(errors, spec, &path, "ReplicationController");
}

/// The selector of Deployments, ReplicaSets and DaemonSets stays.
pub fn same_selector(errors: &mut Errors, new: &Value, old: &Value) {
    immutable(
        errors,
        new["spec"].get("selector"),
        old["spec"].get("selector"),
        &spec_path().child("selector"),
    );
}

pub fn stateful_set_update(errors: &mut Errors, new: &Value, old: &Value) {
    let mut munged = new["spec"].clone();
    for field in [
        "replicas",
        "template",
        "updateStrategy",
        "minReadySeconds",
        "ordinals",
        "revisionHistoryLimit",
        "persistentVolumeClaimRetentionPolicy",
    ] {
        copy(&old["spec"], &mut munged, field);
    }
    if munged != old["spec"] {
        let detail = "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden";
        errors.push(FieldError::forbidden(&spec_path(), detail));
    }
}

/// Counts in the status of a Deployment fit together.
pub fn deployment_status(errors: &mut Errors, object: &Value) {
    let (status, path) = (&object["status"], Path::new("status"));
    let counts = [
        "observedGeneration",
        "replicas",
        "updatedReplicas",
        "readyReplicas",
        "availableReplicas",
        "unavailableReplicas",
        "terminatingReplicas",
        "collisionCount",
    ];
    not_negative(errors, status, &path, &counts);
    let count = |key: &str| int(status, key).unwrap_or_default();
    for key in ["updatedReplicas", "readyReplicas", "availableReplicas"] {
        if count(key) > count("replicas") {
            let detail = "cannot be greater than status.replicas";
            errors.push(FieldError::invalid(&path.child(key), count(key), detail));
        }
    }
    if count("availableReplicas") > count("readyReplicas") {
        let at = path.child("availableReplicas");
        errors.push(FieldError::invalid(
            &at,
            count("availableReplicas"),
            "cannot be greater than readyReplicas",
        ));
    }
}

/// Counts in the status of a ReplicaSet fit together.
pub fn replica_set_status(errors: &mut Errors, object: &Value) {
    let (status, path) = (&object["status"], Path::new("status"));
    let counts = [
        "replicas",
        "fullyLabeledReplicas",
        "readyReplicas",
        "availableReplicas",
        "terminatingReplicas",
        "observedGeneration",
    ];
    not_negative(errors, status, &path, &counts);
    let count = |key: &str| int(status, key).unwrap_or_default();
    for key in ["fullyLabeledReplicas", "readyReplicas", "availableReplicas"] {
        if count(key) > count("replicas") {
            let detail = "cannot be greater than status.replicas";
            errors.push(FieldError::invalid(&path.child(key), count(key), detail));
        }
    }
    if count("availableReplicas") > count("readyReplicas") {
        let at = path.child("availableReplicas");
        errors.push(FieldError::invalid(
            &at,
            count("availableReplicas"),
            "cannot be greater than readyReplicas",
        ));
    }
}

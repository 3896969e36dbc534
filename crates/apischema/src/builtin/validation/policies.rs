//! Budgets, leases, priorities, roles and storage classes.

use serde_json::Value;

use super::common::{
    Errors, NOT_NEGATIVE, complain, dns_subdomain, immutable, label_selector, not_more_than_all, number_or_percent,
    one_of, printed, qualified_name,
};
use crate::builtin::fields::{int, list, present, text};
use crate::field_error::{ErrorKind, FieldError, Path};
use crate::structural::names;

const RBAC: &str = "rbac.authorization.k8s.io";

pub fn disruption_budget(errors: &mut Errors, object: &Value) {
    let (spec, path) = (&object["spec"], Path::new("spec"));
    let (available, unavailable) = (present(spec, "minAvailable"), present(spec, "maxUnavailable"));
    if let (Some(available), Some(unavailable)) = (available, unavailable) {
        let shown = format!(
            "{{\"MinAvailable\":{available},\"Selector\":{},\"MaxUnavailable\":{unavailable},\"UnhealthyPodEvictionPolicy\":{}}}",
            spec.get("selector").unwrap_or(&Value::Null),
            spec.get("unhealthyPodEvictionPolicy").unwrap_or(&Value::Null)
        );
        errors.push(printed(
            ErrorKind::Invalid,
            &path,
            &shown,
            "minAvailable and maxUnavailable cannot be both set",
        ));
    }
    for (key, value) in [("minAvailable", available), ("maxUnavailable", unavailable)] {
        number_or_percent(errors, &path.child(key), value);
        not_more_than_all(errors, &path.child(key), value);
    }
    if let Some(selector) = present(spec, "selector") {
        label_selector(errors, selector, &path.child("selector"));
    }
    one_of(
        errors,
        spec,
        &path,
        "unhealthyPodEvictionPolicy",
        &["AlwaysAllow", "IfHealthyBudget"],
    );
}

pub fn disruption_budget_status(errors: &mut Errors, object: &Value) {
    let path = Path::new("status");
    let counts = ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"];
    super::common::not_negative(errors, &object["status"], &path, &counts);
}

pub fn lease(errors: &mut Errors, object: &Value) {
    let (spec, path) = (&object["spec"], Path::new("spec"));
    if let Some(seconds) = int(spec, "leaseDurationSeconds").filter(|seconds| *seconds <= 0) {
        errors.push(FieldError::invalid(
            &path.child("leaseDurationSeconds"),
            seconds,
            "must be greater than 0",
        ));
    }
    if let Some(count) = int(spec, "leaseTransitions").filter(|count| *count < 0) {
        errors.push(FieldError::invalid(
            &path.child("leaseTransitions"),
            count,
            NOT_NEGATIVE,
        ));
    }
}

pub fn priority_class(errors: &mut Errors, object: &Value) {
    const HIGHEST: i64 = 1_000_000_000;
    let name = text(&object["metadata"], "name");
    let is_system = matches!(name, "system-cluster-critical" | "system-node-critical");
    if name.starts_with("system-") && !is_system {
        let detail = format!(
            "priority class names with 'system-' prefix are reserved for system use only. error: {name} is not a known system priority class"
        );
        errors.push(FieldError::forbidden(&Path::new("metadata").child("name"), detail));
    } else if !is_system && int(object, "value").unwrap_or_default() > HIGHEST {
        let detail = format!("maximum allowed value of a user defined priority is {HIGHEST}");
        errors.push(FieldError::forbidden(&Path::new("value"), detail));
    }
    one_of(
        errors,
        object,
        &Path::root(),
        "preemptionPolicy",
        &["PreemptLowerPriority", "Never"],
    );
}

pub fn priority_class_update(errors: &mut Errors, new: &Value, old: &Value) {
    if int(new, "value") != int(old, "value") {
        errors.push(FieldError::forbidden(
            &Path::new("value"),
            "may not be changed in an update.",
        ));
    }
    let path = Path::new("preemptionPolicy");
    immutable(errors, new.get("preemptionPolicy"), old.get("preemptionPolicy"), &path);
}

pub fn role(errors: &mut Errors, object: &Value, is_namespaced: bool) {
    for (index, rule) in list(object, "rules").iter().enumerate() {
        let at = Path::new("rules").index(index);
        if list(rule, "verbs").is_empty() {
            errors.push(FieldError::required(
                &at.child("verbs"),
                "verbs must contain at least one value",
            ));
        }
        let urls = list(rule, "nonResourceURLs");
        if !urls.is_empty() {
            let url_path = at.child("nonResourceURLs");
            if is_namespaced {
                let detail = "namespaced rules cannot apply to non-resource URLs";
                errors.push(FieldError::invalid(&url_path, urls.to_vec(), detail));
            }
            let has_resources = ["apiGroups", "resources", "resourceNames"]
                .iter()
                .any(|key| !list(rule, key).is_empty());
            if has_resources {
                let detail = "rules cannot apply to both regular resources and non-resource URLs";
                errors.push(FieldError::invalid(&url_path, urls.to_vec(), detail));
            }
            continue;
        }
        if list(rule, "apiGroups").is_empty() {
            let detail = "resource rules must supply at least one api group";
            errors.push(FieldError::required(&at.child("apiGroups"), detail));
        }
        if list(rule, "resources").is_empty() {
            let detail = "resource rules must supply at least one resource";
            errors.push(FieldError::required(&at.child("resources"), detail));
        }
    }
}

pub fn role_binding(errors: &mut Errors, object: &Value, is_namespaced: bool) {
    let (role, path) = (&object["roleRef"], Path::new("roleRef"));
    one_of(errors, role, &path, "apiGroup", &[RBAC]);
    let kinds: &[&str] = if is_namespaced {
        &["Role", "ClusterRole"]
    } else {
        &["ClusterRole"]
    };
    one_of(errors, role, &path, "kind", kinds);
    match text(role, "name") {
        "" => errors.push(FieldError::required(&path.child("name"), "")),
        name => complain(errors, &path.child("name"), name, names::path_segment(name, false)),
    }
    for (index, subject) in list(object, "subjects").iter().enumerate() {
        self::subject(errors, subject, &Path::new("subjects").index(index), is_namespaced);
    }
}

fn subject(errors: &mut Errors, subject: &Value, path: &Path, is_namespaced: bool) {
    let name = text(subject, "name");
    if name.is_empty() {
        errors.push(FieldError::required(&path.child("name"), ""));
    }
    let group = text(subject, "apiGroup");
    match text(subject, "kind") {
        "ServiceAccount" => {
            if !name.is_empty() {
                dns_subdomain(errors, &path.child("name"), name);
            }
            if !group.is_empty() {
                errors.push(FieldError::not_supported(&path.child("apiGroup"), group, &[""]));
            }
            if !is_namespaced && text(subject, "namespace").is_empty() {
                errors.push(FieldError::required(&path.child("namespace"), ""));
            }
        }
        "User" | "Group" => {
            if group != RBAC {
                errors.push(FieldError::not_supported(&path.child("apiGroup"), group, &[RBAC]));
            }
        }
        other => {
            let kinds = ["ServiceAccount", "User", "Group"];
            errors.push(FieldError::not_supported(&path.child("kind"), other, &kinds));
        }
    }
}

pub fn role_binding_update(errors: &mut Errors, new: &Value, old: &Value) {
    if new.get("roleRef") != old.get("roleRef") {
        let role = |key: &str| text(&new["roleRef"], key).to_owned();
        let shown = format!(
            "{{\"APIGroup\":{},\"Kind\":{},\"Name\":{}}}",
            Value::from(role("apiGroup")),
            Value::from(role("kind")),
            Value::from(role("name"))
        );
        errors.push(printed(
            ErrorKind::Invalid,
            &Path::new("roleRef"),
            &shown,
            "cannot change roleRef",
        ));
    }
}

pub fn storage_class(errors: &mut Errors, object: &Value) {
    let root = Path::root();
    match text(object, "provisioner") {
        "" => errors.push(FieldError::required(&root.child("provisioner"), "")),
        provisioner => qualified_name(errors, &root.child("provisioner"), &provisioner.to_lowercase()),
    }
    one_of(errors, object, &root, "reclaimPolicy", &["Delete", "Retain"]);
    one_of(
        errors,
        object,
        &root,
        "volumeBindingMode",
        &["Immediate", "WaitForFirstConsumer"],
    );
}

pub fn storage_class_update(errors: &mut Errors, new: &Value, old: &Value) {
    for key in ["parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"] {
        immutable(errors, new.get(key), old.get(key), &Path::new(key));
    }
}

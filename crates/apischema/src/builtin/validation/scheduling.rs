//! Where pods may go: affinity, tolerations, spread, gates; and the taints of nodes.

use std::collections::BTreeSet;

use serde_json::Value;

use super::common::{Errors, complain, label_selector, one_of, printed, qualified_name};
use crate::builtin::fields::{int, list, present, text};
use crate::field_error::{ErrorKind, FieldError, Path};
use crate::structural::names;

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

pub fn affinity(errors: &mut Errors, affinity: &Value, path: &Path) {
    if let Some(nodes) = present(affinity, "nodeAffinity") {
        node_affinity(errors, nodes, &path.child("nodeAffinity"));
    }
    for kind in ["podAffinity", "podAntiAffinity"] {
        let Some(pods) = present(affinity, kind) else { continue };
        let at = path.child(kind);
        for (index, term) in list(pods, REQUIRED).iter().enumerate() {
            pod_term(errors, term, &at.child(REQUIRED).index(index));
        }
        for (index, weighted) in list(pods, PREFERRED).iter().enumerate() {
            let here = at.child(PREFERRED).index(index);
            weight(errors, weighted, &here);
            pod_term(errors, &weighted["podAffinityTerm"], &here.child("podAffinityTerm"));
        }
    }
}

fn weight(errors: &mut Errors, weighted: &Value, path: &Path) {
    let weight = int(weighted, "weight").unwrap_or_default();
    if !(1..=100).contains(&weight) {
        errors.push(FieldError::invalid(
            &path.child("weight"),
            weight,
            "must be in the range 1-100",
        ));
    }
}

fn pod_term(errors: &mut Errors, term: &Value, path: &Path) {
    for selector in ["labelSelector", "namespaceSelector"] {
        if let Some(given) = present(term, selector) {
            label_selector(errors, given, &path.child(selector));
        }
    }
    let key = text(term, "topologyKey");
    if key.is_empty() {
        errors.push(FieldError::required(&path.child("topologyKey"), "can not be empty"));
    }
    qualified_name(errors, &path.child("topologyKey"), key);
}

fn node_affinity(errors: &mut Errors, affinity: &Value, path: &Path) {
    if let Some(required) = present(affinity, REQUIRED) {
        let at = path.child(REQUIRED).child("nodeSelectorTerms");
        let terms = list(required, "nodeSelectorTerms");
        if terms.is_empty() {
            errors.push(FieldError::required(&at, "must have at least one node selector term"));
        }
        for (index, term) in terms.iter().enumerate() {
            node_term(errors, term, &at.index(index));
        }
    }
    for (index, preferred) in list(affinity, PREFERRED).iter().enumerate() {
        let at = path.child(PREFERRED).index(index);
        weight(errors, preferred, &at);
        node_term(errors, &preferred["preference"], &at.child("preference"));
    }
}

fn node_term(errors: &mut Errors, term: &Value, path: &Path) {
    for (index, expression) in list(term, "matchExpressions").iter().enumerate() {
        let at = path.child("matchExpressions").index(index);
        let values = list(expression, "values");
        match text(expression, "operator") {
            "In" | "NotIn" if values.is_empty() => errors.push(FieldError::required(
                &at.child("values"),
                "must be specified when `operator` is 'In' or 'NotIn'",
            )),
            "Exists" | "DoesNotExist" if !values.is_empty() => errors.push(FieldError::forbidden(
                &at.child("values"),
                "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            )),
            "Gt" | "Lt" if values.len() != 1 => errors.push(FieldError::required(
                &at.child("values"),
                "must be specified single value when `operator` is 'Lt' or 'Gt'",
            )),
            "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
            other => errors.push(FieldError::invalid(
                &at.child("operator"),
                other,
                "not a valid selector operator",
            )),
        }
        qualified_name(errors, &at.child("key"), text(expression, "key"));
        for (position, value) in values.iter().filter_map(Value::as_str).enumerate() {
            complain(
                errors,
                &at.child("values").index(position),
                value,
                names::label_value(value),
            );
        }
    }
}

pub fn tolerations(errors: &mut Errors, spec: &Value, path: &Path) {
    for (index, toleration) in list(spec, "tolerations").iter().enumerate() {
        let at = path.index(index);
        let (key, operator) = (text(toleration, "key"), text(toleration, "operator"));
        let (value, effect) = (text(toleration, "value"), text(toleration, "effect"));
        if !key.is_empty() {
            qualified_name(errors, &at.child("key"), key);
        } else if operator != "Exists" {
            let detail = "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
            errors.push(FieldError::invalid(&at.child("operator"), operator, detail));
        }
        if present(toleration, "tolerationSeconds").is_some() && effect != "NoExecute" {
            let detail = "effect must be 'NoExecute' when `tolerationSeconds` is set";
            errors.push(FieldError::invalid(&at.child("effect"), effect, detail));
        }
        match operator {
            "" | "Equal" => {
                let complaints = names::label_value(value);
                if !complaints.is_empty() {
                    errors.push(FieldError::invalid(&at.child("operator"), value, complaints.join(";")));
                }
            }
            "Exists" if value.is_empty() => {}
            "Exists" => {
                let detail = "value must be empty when `operator` is 'Exists'";
                errors.push(FieldError::invalid(&at.child("operator"), value, detail));
            }
            other => errors.push(FieldError::not_supported(
                &at.child("operator"),
                other,
                &["Equal", "Exists"],
            )),
        }
        taint_effect(errors, effect, true, &at.child("effect"));
    }
}

fn taint_effect(errors: &mut Errors, effect: &str, may_be_empty: bool, path: &Path) {
    match effect {
        "NoSchedule" | "PreferNoSchedule" | "NoExecute" => {}
        "" if may_be_empty => {}
        "" => errors.push(FieldError::required(path, "")),
        other => {
            let supported = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
            errors.push(FieldError::not_supported(path, other, &supported));
        }
    }
}

/// Tolerations of a pod may only be added, or get another duration.
pub fn tolerations_update(errors: &mut Errors, new: &Value, old: &Value, path: &Path) {
    let kept = |toleration: &Value| {
        let mut toleration = toleration.clone();
        if text(&toleration, "effect") == "NoExecute" {
            crate::builtin::fields::remove(&mut toleration, "tolerationSeconds");
        }
        toleration
    };
    let new_ones: Vec<Value> = list(new, "tolerations").iter().map(kept).collect();
    if list(old, "tolerations")
        .iter()
        .any(|toleration| !new_ones.contains(&kept(toleration)))
    {
        let detail = "existing toleration can not be modified except its tolerationSeconds";
        errors.push(FieldError::forbidden(path, detail));
    }
}

pub fn gates(errors: &mut Errors, spec: &Value, path: &Path) {
    let mut seen = BTreeSet::new();
    for (index, gate) in list(spec, "schedulingGates").iter().enumerate() {
        let name = text(gate, "name");
        qualified_name(errors, &path.index(index), name);
        if !seen.insert(name) {
            errors.push(FieldError::duplicate(&path.index(index), name));
        }
    }
}

/// Gates of a pod may only be opened.
pub fn gates_update(errors: &mut Errors, new: &Value, old: &Value, path: &Path) {
    let before = list(old, "schedulingGates");
    for (index, gate) in list(new, "schedulingGates").iter().enumerate() {
        if !before.contains(gate) {
            let detail = format!(
                "only deletion is allowed, but found new scheduling gate '{}'",
                text(gate, "name")
            );
            errors.push(FieldError::forbidden(&path.index(index).child("name"), detail));
        }
    }
}

pub fn topology_spread(errors: &mut Errors, spec: &Value, path: &Path) {
    for (index, constraint) in list(spec, "topologySpreadConstraints").iter().enumerate() {
        let at = path.index(index);
        let skew = int(constraint, "maxSkew").unwrap_or_default();
        if skew <= 0 {
            errors.push(FieldError::invalid(
                &at.child("maxSkew"),
                skew,
                "must be greater than zero",
            ));
        }
        if text(constraint, "topologyKey").is_empty() {
            errors.push(FieldError::required(&at.child("topologyKey"), "can not be empty"));
        }
        one_of(
            errors,
            constraint,
            &at,
            "whenUnsatisfiable",
            &["DoNotSchedule", "ScheduleAnyway"],
        );
        if let Some(selector) = present(constraint, "labelSelector") {
            label_selector(errors, selector, &at.child("labelSelector"));
        }
    }
}

/// Taints of a node. Upstream names them as if they were part of the metadata.
pub fn taints(errors: &mut Errors, node: &Value) {
    let path = Path::new("metadata").child("taints");
    let mut seen = BTreeSet::new();
    for (index, taint) in list(&node["spec"], "taints").iter().enumerate() {
        let at = path.index(index);
        let (key, value, effect) = (text(taint, "key"), text(taint, "value"), text(taint, "effect"));
        qualified_name(errors, &at.child("key"), key);
        let complaints = names::label_value(value);
        if !complaints.is_empty() {
            errors.push(FieldError::invalid(&at.child("value"), value, complaints.join(";")));
        }
        taint_effect(errors, effect, false, &at.child("effect"));
        if !seen.insert((key, effect)) {
            let added = taint
                .get("timeAdded")
                .map_or_else(|| "null".to_owned(), Value::to_string);
            let shown = format!(
                "{{\"Key\":{},\"Value\":{},\"Effect\":{},\"TimeAdded\":{added}}}",
                Value::from(key),
                Value::from(value),
                Value::from(effect)
            );
            errors.push(printed(
                ErrorKind::Duplicate,
                &at,
                &shown,
                "taints must be unique by key and effect pair",
            ));
            return;
        }
    }
}

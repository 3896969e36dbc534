//! Limit ranges.

use std::collections::BTreeSet;

use serde_json::Value;

use super::common::{Errors, container_resource_name, overcommits, qualified_name, quantity, resource_name};
use crate::builtin::fields::{list, map, text};
use crate::builtin::quantity::Quantity;
use crate::field_error::{FieldError, Path};

pub fn limit_range(errors: &mut Errors, object: &Value) {
    let path = Path::new("spec").child("limits");
    let mut kinds = BTreeSet::new();
    for (index, limit) in list(&object["spec"], "limits").iter().enumerate() {
        let at = path.index(index);
        let kind = text(limit, "type");
        kind_name(errors, kind, &at.child("type"));
        if !kinds.insert(kind) {
            errors.push(FieldError::duplicate(&at.child("type"), kind));
        }
        resource_names(errors, limit, kind, &at, &["max", "min"]);
        if kind == "Pod" {
            for field in ["default", "defaultRequest"] {
                if map(limit, field).is_some() {
                    let detail = "may not be specified when `type` is 'Pod'";
                    errors.push(FieldError::forbidden(&at.child(field), detail));
                }
            }
        } else {
            resource_names(errors, limit, kind, &at, &["default", "defaultRequest"]);
        }
        let names_storage = |field: &str| map(limit, field).is_some_and(|amounts| amounts.contains_key("storage"));
        if kind == "PersistentVolumeClaim" && !names_storage("min") && !names_storage("max") {
            let detail = "either minimum or maximum storage value is required, but neither was provided";
            errors.push(FieldError::required(&at.child("limits"), detail));
        }
        resource_names(errors, limit, kind, &at, &["maxLimitRequestRatio"]);
        amounts(errors, limit, kind, &at);
    }
}

fn kind_name(errors: &mut Errors, kind: &str, path: &Path) {
    let before = errors.len();
    qualified_name(errors, path, kind);
    let is_standard = matches!(kind, "Pod" | "Container" | "PersistentVolumeClaim");
    if errors.len() == before && !kind.contains('/') && !is_standard {
        let detail = "must be a standard limit type or fully qualified";
        errors.push(FieldError::invalid(path, kind, detail));
    }
}

fn resource_names(errors: &mut Errors, limit: &Value, kind: &str, path: &Path, fields: &[&str]) {
    for field in fields {
        for name in map(limit, field).into_iter().flatten().map(|(name, _)| name) {
            let at = path.child(field).key(name);
            if matches!(kind, "Pod" | "Container") {
                container_resource_name(errors, &at, name);
            } else {
                resource_name(errors, &at, name);
            }
        }
    }
}

/// One of the amounts that a limit gives for a resource.
struct Amount<'a> {
    text: &'a str,
    value: Quantity,
}

/// Minimum ≤ default request ≤ default ≤ maximum. Upstream shows the other side's amount in two of these refusals.
fn amounts(errors: &mut Errors, limit: &Value, kind: &str, path: &Path) {
    let is_pod = kind == "Pod";
    let fields = ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"];
    let counted = fields.iter().filter(|field| !is_pod || !field.starts_with("default"));
    let names: BTreeSet<&String> = counted
        .filter_map(|field| map(limit, field))
        .flat_map(|amounts| amounts.keys())
        .collect();
    for name in names {
        let get = |field: &str| {
            let given = map(limit, field).and_then(|amounts| amounts.get(name));
            quantity(given).map(|value| Amount {
                text: given.and_then(Value::as_str).unwrap_or_default(),
                value,
            })
        };
        let (min, max, ratio) = (get("min"), get("max"), get("maxLimitRequestRatio"));
        let (default, request) = if is_pod {
            (None, None)
        } else {
            (get("default"), get("defaultRequest"))
        };
        let mut ordered =
            |field: &str, low: &Option<Amount<'_>>, high: &Option<Amount<'_>>, show_low: bool, words: [&str; 2]| {
                if let (Some(low), Some(high)) = (low, high)
                    && low.value > high.value
                {
                    let shown = if show_low { low.text } else { high.text };
                    let detail = format!(
                        "{} value {} is greater than {} value {}",
                        words[0], low.text, words[1], high.text
                    );
                    errors.push(FieldError::invalid(&path.child(field).key(name), shown, detail));
                }
            };
        ordered("min", &min, &max, true, ["min", "max"]);
        ordered("defaultRequest", &min, &request, false, ["min", "default request"]);
        ordered("defaultRequest", &request, &max, true, ["default request", "max"]);
        ordered(
            "defaultRequest",
            &request,
            &default,
            true,
            ["default request", "default limit"],
        );
        ordered("default", &min, &default, true, ["min", "default"]);
        ordered("default", &default, &max, false, ["default", "max"]);
        if let Some(ratio) = ratio {
            self::ratio(errors, &ratio, min, max, &path.child("maxLimitRequestRatio").key(name));
        }
        if let (Some(default), Some(request)) = (default, request)
            && !overcommits(name)
            && default.value != request.value
        {
            let detail = format!(
                "default value {} must equal to defaultRequest value {} in {name}",
                default.text, request.text
            );
            errors.push(FieldError::invalid(
                &path.child("defaultRequest").key(name),
                request.text,
                detail,
            ));
        }
    }
}

fn ratio(errors: &mut Errors, ratio: &Amount<'_>, min: Option<Amount<'_>>, max: Option<Amount<'_>>, path: &Path) {
    if ratio.value.milli() < 1000 {
        let detail = format!("ratio {} is less than 1", ratio.text);
        errors.push(FieldError::invalid(path, ratio.text, detail));
    }
    let (Some(min), Some(max)) = (min, max) else { return };
    let (least, most) = (min.value.milli(), max.value.milli());
    // ratio > max / min, in whole numbers; nothing is more than what a minimum of nothing allows.
    if least > 0 && ratio.value.milli() * least > most * 1000 {
        let micros = most.saturating_mul(10_000_000).div_euclid(least);
        let rounded = (micros + 5) / 10;
        let bound = format!("{}.{:06}", rounded / 1_000_000, rounded % 1_000_000);
        let detail = format!("ratio {} is greater than max/min = {bound}", ratio.text);
        errors.push(FieldError::invalid(path, ratio.text, detail));
    }
}

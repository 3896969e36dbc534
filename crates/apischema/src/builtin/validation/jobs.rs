//! Jobs and cron jobs: counts, the selector that the server makes, schedules, and what stays as it was. The kinds whose
//! pods run for good are the sibling's.

use serde_json::Value;

use super::common::{Errors, immutable, is_usable_selector, label_selector, not_negative, one_of, selects};
use super::container::labels;
use super::pod::template;
use super::workloads::{mismatch, spec_path};
use crate::builtin::fields::{flag, int, present, text};
use crate::field_error::{FieldError, Path};

pub fn job(errors: &mut Errors, object: &Value, is_update: bool) {
    let (spec, path) = (&object["spec"], spec_path());
    if !is_update {
        generated_selector(errors, object, &path);
    }
    job_spec(errors, spec, &path);
    let chosen = present(spec, "selector");
    match chosen {
        None => errors.push(FieldError::required(&path.child("selector"), "")),
        Some(chosen) => label_selector(errors, chosen, &path.child("selector")),
    }
    if chosen.is_none_or(is_usable_selector) && !selects(chosen, labels(&spec["template"])) {
        mismatch(errors, spec, &path);
    }
}

fn generated_selector(errors: &mut Errors, job: &Value, path: &Path) {
    let spec = &job["spec"];
    if flag(spec, "manualSelector") {
        return;
    }
    let uid = text(&job["metadata"], "uid");
    let chosen = &spec["selector"]["matchLabels"];
    let is_ours = chosen.as_object().is_some_and(|labels| labels.len() == 1)
        && text(chosen, "batch.kubernetes.io/controller-uid") == uid;
    if !is_ours {
        let given = spec["selector"].clone();
        errors.push(FieldError::invalid(
            &path.child("selector"),
            given,
            "`selector` not auto-generated",
        ));
    }
}

fn job_spec(errors: &mut Errors, spec: &Value, path: &Path) {
    let counts = [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ];
    not_negative(errors, spec, path, &counts);
    one_of(errors, spec, path, "completionMode", &["NonIndexed", "Indexed"]);
    if text(spec, "completionMode") == "Indexed" && int(spec, "completions").is_none() {
        errors.push(FieldError::required(
            &path.child("completions"),
            "when completion mode is Indexed",
        ));
    }
    if text(spec, "completionMode") == "NonIndexed" {
        for key in ["backoffLimitPerIndex", "maxFailedIndexes"] {
            if let Some(given) = int(spec, key) {
                errors.push(FieldError::invalid(
                    &path.child(key),
                    given,
                    "requires indexed completion mode",
                ));
            }
        }
    }
    template(errors, &spec["template"], &path.child("template"));
    let at = path.child("template").child("spec").child("restartPolicy");
    match text(&spec["template"]["spec"], "restartPolicy") {
        "OnFailure" | "Never" => {}
        "" | "Always" => errors.push(FieldError::required(&at, "valid values: \"OnFailure\", \"Never\"")),
        other => errors.push(FieldError::not_supported(&at, other, &["OnFailure", "Never"])),
    }
}

pub fn cron_job(errors: &mut Errors, object: &Value, is_update: bool) {
    let (spec, path) = (&object["spec"], spec_path());
    schedule(errors, text(spec, "schedule"), &path.child("schedule"));
    not_negative(errors, spec, &path, &["startingDeadlineSeconds"]);
    one_of(
        errors,
        spec,
        &path,
        "concurrencyPolicy",
        &["Allow", "Forbid", "Replace"],
    );
    job_spec(
        errors,
        &spec["jobTemplate"]["spec"],
        &path.child("jobTemplate").child("spec"),
    );
    not_negative(
        errors,
        spec,
        &path,
        &["successfulJobsHistoryLimit", "failedJobsHistoryLimit"],
    );
    let name = text(&object["metadata"], "name");
    if !is_update && name.len() > 52 {
        let at = Path::new("metadata").child("name");
        errors.push(FieldError::invalid(&at, name, "must be no more than 52 characters"));
    }
}

fn schedule(errors: &mut Errors, schedule: &str, path: &Path) {
    if schedule.is_empty() {
        errors.push(FieldError::required(path, ""));
        return;
    }
    let parts: Vec<&str> = schedule.split_whitespace().collect();
    if !schedule.starts_with('@') && parts.len() != 5 {
        let detail = format!(
            "expected exactly 5 fields, found {}: [{}]",
            parts.len(),
            parts.join(" ")
        );
        errors.push(FieldError::invalid(path, schedule, detail));
    }
}

pub fn job_update(errors: &mut Errors, new: &Value, old: &Value) {
    let path = spec_path();
    let (new, old) = (&new["spec"], &old["spec"]);
    let is_elastic = text(new, "completionMode") == "Indexed" && int(new, "completions") == int(new, "parallelism");
    let mut fields = vec![
        "selector",
        "template",
        "completionMode",
        "podFailurePolicy",
        "backoffLimitPerIndex",
    ];
    if !is_elastic {
        fields.insert(0, "completions");
    }
    // A suspended job that has not started may still change where its pods go.
    if flag(old, "suspend") {
        fields.retain(|field| *field != "template");
    }
    for field in fields.into_iter().chain(["managedBy", "successPolicy"]) {
        immutable(errors, new.get(field), old.get(field), &path.child(field));
    }
}

//! Defaults of the kinds that make pods.

use serde_json::{Value, json};

use super::cluster::claim_spec;
use super::pod::template;
use crate::builtin::fields::{child, is_zero, list_mut, map, present, present_mut, set_empty, set_missing, text};

pub fn replication_controller(object: &mut Value) {
    let spec = child(object, "spec");
    set_missing(spec, "replicas", 1);
    template(spec, "template");
    let labels = present(spec, "template")
        .and_then(|t| t["metadata"].get("labels"))
        .cloned();
    if let Some(labels) = labels {
        set_empty(spec, "selector", labels.clone());
        set_empty(child(object, "metadata"), "labels", labels);
    }
}

pub fn replica_set(object: &mut Value) {
    let spec = child(object, "spec");
    set_missing(spec, "replicas", 1);
    template(spec, "template");
}

pub fn deployment(object: &mut Value) {
    let spec = child(object, "spec");
    set_missing(spec, "replicas", 1);
    let strategy = child(spec, "strategy");
    set_empty(strategy, "type", "RollingUpdate");
    if text(strategy, "type") == "RollingUpdate" {
        let rolling = child(strategy, "rollingUpdate");
        set_missing(rolling, "maxUnavailable", "25%");
        set_missing(rolling, "maxSurge", "25%");
    }
    set_missing(spec, "revisionHistoryLimit", 10);
    set_missing(spec, "progressDeadlineSeconds", 600);
    template(spec, "template");
}

pub fn daemon_set(object: &mut Value) {
    let spec = child(object, "spec");
    let strategy = child(spec, "updateStrategy");
    set_empty(strategy, "type", "RollingUpdate");
    if text(strategy, "type") == "RollingUpdate" {
        let rolling = child(strategy, "rollingUpdate");
        set_missing(rolling, "maxUnavailable", 1);
        set_missing(rolling, "maxSurge", 0);
    }
    set_missing(spec, "revisionHistoryLimit", 10);
    template(spec, "template");
}

pub fn stateful_set(object: &mut Value) {
    let spec = child(object, "spec");
    set_empty(spec, "podManagementPolicy", "OrderedReady");
    let strategy = child(spec, "updateStrategy");
    if text(strategy, "type").is_empty() {
        set_empty(strategy, "type", "RollingUpdate");
        child(strategy, "rollingUpdate");
    }
    if text(strategy, "type") == "RollingUpdate"
        && let Some(rolling) = present_mut(strategy, "rollingUpdate")
    {
        set_missing(rolling, "partition", 0);
    }
    let retention = child(spec, "persistentVolumeClaimRetentionPolicy");
    set_empty(retention, "whenDeleted", "Retain");
    set_empty(retention, "whenScaled", "Retain");
    set_missing(spec, "replicas", 1);
    set_missing(spec, "revisionHistoryLimit", 10);
    template(spec, "template");
    for claim in list_mut(spec, "volumeClaimTemplates") {
        // Upstream's conversion names the type of these embedded objects.
        set_empty(claim, "apiVersion", "v1");
        set_empty(claim, "kind", "PersistentVolumeClaim");
        claim_spec(child(claim, "spec"));
        set_empty(child(claim, "status"), "phase", "Pending");
    }
}

pub fn job(object: &mut Value) {
    let spec = child(object, "spec");
    job_spec(spec);
    let labels = map(&spec["template"]["metadata"], "labels").cloned();
    if let Some(labels) = labels {
        set_empty(child(object, "metadata"), "labels", labels);
    }
}

fn job_spec(spec: &mut Value) {
    if present(spec, "completions").is_none() && present(spec, "parallelism").is_none() {
        set_missing(spec, "completions", 1);
    }
    set_missing(spec, "parallelism", 1);
    let limit = if present(spec, "backoffLimitPerIndex").is_some() {
        i32::MAX
    } else {
        6
    };
    set_missing(spec, "backoffLimit", limit);
    set_missing(spec, "completionMode", "NonIndexed");
    set_missing(spec, "suspend", false);
    let replacement = if present(spec, "podFailurePolicy").is_some() {
        "Failed"
    } else {
        "TerminatingOrFailed"
    };
    set_missing(spec, "podReplacementPolicy", replacement);
    set_missing(spec, "manualSelector", false);
    failure_policy(spec);
    template(spec, "template");
}

fn failure_policy(spec: &mut Value) {
    let Some(policy) = present_mut(spec, "podFailurePolicy") else {
        return;
    };
    for rule in list_mut(policy, "rules") {
        for pattern in list_mut(rule, "onPodConditions") {
            set_empty(pattern, "status", "True");
        }
    }
}

pub fn cron_job(object: &mut Value) {
    let spec = child(object, "spec");
    set_empty(spec, "concurrencyPolicy", "Allow");
    set_missing(spec, "suspend", false);
    set_missing(spec, "successfulJobsHistoryLimit", 3);
    set_missing(spec, "failedJobsHistoryLimit", 1);
    let job_template = child(child(spec, "jobTemplate"), "spec");
    failure_policy(job_template);
    template(job_template, "template");
}

pub fn autoscaler(object: &mut Value) {
    let spec = child(object, "spec");
    set_missing(spec, "minReplicas", 1);
    if spec.get("metrics").is_none_or(is_zero) {
        spec["metrics"] = json!([{
            "type": "Resource",
            "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}},
        }]);
    }
    let Some(behavior) = present_mut(spec, "behavior") else {
        return;
    };
    let policy = |kind: &str, value: i64| json!({"type": kind, "value": value, "periodSeconds": 15});
    let up = child(behavior, "scaleUp");
    set_missing(up, "stabilizationWindowSeconds", 0);
    set_missing(up, "selectPolicy", "Max");
    set_missing(up, "policies", json!([policy("Pods", 4), policy("Percent", 100)]));
    let down = child(behavior, "scaleDown");
    set_missing(down, "selectPolicy", "Max");
    set_missing(down, "policies", json!([policy("Percent", 100)]));
}

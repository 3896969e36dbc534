//! Pods: status on creation, quality of service, what the status subresource keeps, how long deletion waits.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::builtin::fields::{child, copy, int, list, list_mut, map, present, set, text};
use crate::builtin::quantity::Quantity;

pub fn prepare_for_create(pod: &mut Value, now: &str) {
    let class = quality_of_service(pod);
    pod["status"] = json!({"phase": "Pending", "qosClass": class});
    if !list(&pod["spec"], "schedulingGates").is_empty() {
        pod["status"]["conditions"] = json!([{
            "type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "lastProbeTime": null,
            "lastTransitionTime": now, "message": "Scheduling is blocked due to non-empty scheduling gates",
        }]);
    }
}

pub fn prepare_for_status_update(pod: &mut Value, old: &Value) {
    let metadata = child(pod, "metadata");
    // Kubelets send the object as they know it; deletion is not theirs to undo.
    for field in ["deletionTimestamp", "deletionGracePeriodSeconds", "ownerReferences"] {
        copy(&old["metadata"], metadata, field);
    }
    let status = child(pod, "status");
    for field in ["qosClass", "observedGeneration"] {
        if present(status, field).is_none() {
            copy(&old["status"], status, field);
        }
    }
    let mut before: BTreeMap<&str, Vec<i64>> = BTreeMap::new();
    for condition in list(&old["status"], "conditions") {
        let seen = int(condition, "observedGeneration").unwrap_or_default();
        before.entry(text(condition, "type")).or_default().push(seen);
    }
    for condition in list_mut(status, "conditions") {
        let known = before
            .get_mut(text(condition, "type"))
            .filter(|seen| !seen.is_empty())
            .map(|seen| seen.remove(0));
        if int(condition, "observedGeneration").is_none()
            && let Some(known) = known.filter(|known| *known != 0)
        {
            set(condition, "observedGeneration", known);
        }
    }
}

/// How long the deletion of a pod waits for it: what was asked for, else what the pod says; not at all for pods that
/// run nowhere or have ended.
pub fn deletion_grace_period(pod: &Value, asked: Option<i64>) -> i64 {
    let has_ended = matches!(text(&pod["status"], "phase"), "Failed" | "Succeeded");
    if text(&pod["spec"], "nodeName").is_empty() || has_ended {
        return 0;
    }
    match asked
        .or_else(|| int(&pod["spec"], "terminationGracePeriodSeconds"))
        .unwrap_or(0)
    {
        negative if negative < 0 => 1,
        period => period,
    }
}

/// `Guaranteed`, `Burstable` or `BestEffort`, by requests and limits of cpu and memory.
pub fn quality_of_service(pod: &Value) -> &'static str {
    let spec = &pod["spec"];
    let (mut requests, mut limits) = (BTreeMap::new(), BTreeMap::new());
    let mut guaranteed = true;
    if let Some(whole) = present(spec, "resources") {
        sum(whole, "requests", &mut requests);
        let found = sum(whole, "limits", &mut limits);
        guaranteed = found == 2 || map(whole, "limits").is_none();
    } else {
        for container in list(spec, "containers").iter().chain(list(spec, "initContainers")) {
            sum(&container["resources"], "requests", &mut requests);
            guaranteed &= sum(&container["resources"], "limits", &mut limits) == 2;
        }
    }
    if requests.is_empty() && limits.is_empty() {
        "BestEffort"
    } else if guaranteed && requests == limits {
        "Guaranteed"
    } else {
        "Burstable"
    }
}

/// Adds up cpu and memory of a list; gives how many of the two are more than nothing.
fn sum<'a>(resources: &'a Value, key: &str, into: &mut BTreeMap<&'a str, i128>) -> usize {
    let mut found = 0;
    for (name, quantity) in map(resources, key).into_iter().flatten() {
        let counted = matches!(name.as_str(), "cpu" | "memory");
        let amount = quantity
            .as_str()
            .filter(|_| counted)
            .and_then(|text| Quantity::parse(text).ok());
        if let Some(milli) = amount.map(|amount| amount.milli()).filter(|milli| *milli > 0) {
            *into.entry(name).or_default() += milli;
            found += 1;
        }
    }
    found
}

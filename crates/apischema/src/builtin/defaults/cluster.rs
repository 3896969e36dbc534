//! Defaults of everything that is neither a pod nor makes pods.

use serde_json::{Value, json};

use crate::builtin::fields::{
    child, int, is_zero, list, list_mut, map, present, present_mut, remove, set, set_empty, set_missing, text,
};

pub fn core(kind: &str, object: &mut Value) {
    match kind {
        "Namespace" => namespace(object),
        "Node" => node(object),
        "Secret" => set_empty(object, "type", "Opaque"),
        "Service" => service(object),
        "Endpoints" => endpoints(object),
        "LimitRange" => limit_range(object),
        _ => {}
    }
}

fn namespace(object: &mut Value) {
    let name = text(&object["metadata"], "name").to_owned();
    if !name.is_empty() {
        set(
            child(child(object, "metadata"), "labels"),
            "kubernetes.io/metadata.name",
            name,
        );
    }
    set_empty(child(object, "status"), "phase", "Active");
}

fn node(object: &mut Value) {
    if let Some(spec) = present_mut(object, "spec") {
        pod_ranges(spec);
    }
    let capacity = map(&object["status"], "capacity").cloned();
    if let Some(capacity) = capacity {
        set_missing(child(object, "status"), "allocatable", capacity);
    }
}

/// The one range and the list of ranges are kept alike; upstream's internal type has only the list.
fn pod_ranges(spec: &mut Value) {
    let first = list(spec, "podCIDRs")
        .first()
        .and_then(Value::as_str)
        .map(str::to_owned);
    match (text(spec, "podCIDR"), first) {
        ("", Some(first)) => set(spec, "podCIDR", first),
        (single, first) if !single.is_empty() && first.as_deref() != Some(single) => {
            let single = single.to_owned();
            set(spec, "podCIDRs", json!([single]));
        }
        _ => {}
    }
}

fn service(object: &mut Value) {
    let spec = child(object, "spec");
    set_empty(spec, "sessionAffinity", "None");
    if text(spec, "sessionAffinity") == "None" {
        remove(spec, "sessionAffinityConfig");
    }
    if text(spec, "sessionAffinity") == "ClientIP"
        && spec.pointer("/sessionAffinityConfig/clientIP/timeoutSeconds").is_none()
    {
        spec["sessionAffinityConfig"] = json!({"clientIP": {"timeoutSeconds": 10800}});
    }
    set_empty(spec, "type", "ClusterIP");
    for port in list_mut(spec, "ports") {
        set_empty(port, "protocol", "TCP");
        let number = int(port, "port").unwrap_or_default();
        set_empty(port, "targetPort", number);
    }
    let kind = text(spec, "type").to_owned();
    let reachable_from_outside = matches!(kind.as_str(), "NodePort" | "LoadBalancer")
        || (kind == "ClusterIP" && !list(spec, "externalIPs").is_empty());
    if reachable_from_outside {
        set_empty(spec, "externalTrafficPolicy", "Cluster");
    }
    if kind != "ExternalName" {
        set_missing(spec, "internalTrafficPolicy", "Cluster");
    }
    if kind == "LoadBalancer" {
        set_missing(spec, "allocateLoadBalancerNodePorts", true);
        let status = child(child(object, "status"), "loadBalancer");
        for ingress in list_mut(status, "ingress") {
            if !text(ingress, "ip").is_empty() {
                set_missing(ingress, "ipMode", "VIP");
            }
        }
    }
}

fn endpoints(object: &mut Value) {
    for subset in list_mut(object, "subsets") {
        for port in list_mut(subset, "ports") {
            set_empty(port, "protocol", "TCP");
        }
    }
}

fn limit_range(object: &mut Value) {
    for item in list_mut(child(object, "spec"), "limits") {
        if text(item, "type") != "Container" {
            continue;
        }
        for (from, to) in [
            ("max", "default"),
            ("default", "defaultRequest"),
            ("min", "defaultRequest"),
        ] {
            let Some(values) = map(item, from).cloned() else {
                continue;
            };
            let target = child(item, to);
            values
                .into_iter()
                .for_each(|(name, value)| set_missing(target, &name, value));
        }
    }
}

pub fn persistent_volume(object: &mut Value) {
    set_empty(child(object, "status"), "phase", "Pending");
    let spec = child(object, "spec");
    set_empty(spec, "persistentVolumeReclaimPolicy", "Retain");
    set_missing(spec, "volumeMode", "Filesystem");
    if let Some(path) = present_mut(spec, "hostPath") {
        set_missing(path, "type", "");
    }
}

pub fn persistent_volume_claim(object: &mut Value) {
    set_empty(child(object, "status"), "phase", "Pending");
    claim_spec(child(object, "spec"));
}

pub fn claim_spec(spec: &mut Value) {
    set_missing(spec, "volumeMode", "Filesystem");
}

pub fn role_binding(object: &mut Value) {
    const GROUP: &str = "rbac.authorization.k8s.io";
    set_empty(child(object, "roleRef"), "apiGroup", GROUP);
    for subject in list_mut(object, "subjects") {
        if matches!(text(subject, "kind"), "User" | "Group") {
            set_empty(subject, "apiGroup", GROUP);
        }
    }
}

pub fn storage_class(object: &mut Value) {
    set_missing(object, "reclaimPolicy", "Delete");
    set_missing(object, "volumeBindingMode", "Immediate");
}

pub fn csi_driver(object: &mut Value) {
    let spec = child(object, "spec");
    set_missing(spec, "attachRequired", true);
    for off in ["podInfoOnMount", "storageCapacity", "requiresRepublish", "seLinuxMount"] {
        set_missing(spec, off, false);
    }
    set_missing(spec, "fsGroupPolicy", "ReadWriteOnceWithFSType");
    set_empty(spec, "volumeLifecycleModes", json!(["Persistent"]));
}

pub fn priority_class(object: &mut Value) {
    set_missing(object, "preemptionPolicy", "PreemptLowerPriority");
}

pub fn network_policy(object: &mut Value) {
    let spec = child(object, "spec");
    for rules in ["ingress", "egress"] {
        for rule in list_mut(spec, rules) {
            for port in list_mut(rule, "ports") {
                set_missing(port, "protocol", "TCP");
            }
        }
    }
    if spec.get("policyTypes").is_none_or(is_zero) {
        let egress = !list(spec, "egress").is_empty();
        spec["policyTypes"] = if egress {
            json!(["Ingress", "Egress"])
        } else {
            json!(["Ingress"])
        };
    }
}

pub fn ingress_class(object: &mut Value) {
    if let Some(parameters) = present_mut(child(object, "spec"), "parameters") {
        set_missing(parameters, "scope", "Cluster");
    }
}

pub fn endpoint_slice(object: &mut Value) {
    for port in list_mut(object, "ports") {
        set_missing(port, "name", "");
        set_missing(port, "protocol", "TCP");
    }
}

pub fn admission_registration(kind: &str, object: &mut Value) {
    for webhook in list_mut(object, "webhooks") {
        set_missing(webhook, "failurePolicy", "Fail");
        match_selectors(webhook);
        set_missing(webhook, "timeoutSeconds", 10);
        if kind == "MutatingWebhookConfiguration" {
            set_missing(webhook, "reinvocationPolicy", "Never");
        }
        for rule in list_mut(webhook, "rules") {
            set_missing(rule, "scope", "*");
        }
        if let Some(service) = present_mut(webhook, "clientConfig").and_then(|client| present_mut(client, "service")) {
            set_missing(service, "port", 443);
        }
    }
    let constraints = match kind {
        "ValidatingAdmissionPolicy" => {
            set_missing(child(object, "spec"), "failurePolicy", "Fail");
            "matchConstraints"
        }
        "ValidatingAdmissionPolicyBinding" => "matchResources",
        _ => return,
    };
    if present(&object["spec"], constraints).is_some() {
        let resources = child(child(object, "spec"), constraints);
        match_selectors(resources);
        for rules in ["resourceRules", "excludeResourceRules"] {
            for rule in list_mut(resources, rules) {
                set_missing(rule, "scope", "*");
            }
        }
    }
}

fn match_selectors(holder: &mut Value) {
    set_missing(holder, "matchPolicy", "Equivalent");
    set_missing(holder, "namespaceSelector", json!({}));
    set_missing(holder, "objectSelector", json!({}));
}

//! Defaults of pods and of the pod templates inside workloads.

use serde_json::{Value, json};

use crate::builtin::fields::{child, flag, int, list, list_mut, present_mut, set, set_empty, set_missing, text};

/// A Pod: what templates get, plus what only real pods get (requests from limits, host ports, service links).
pub fn pod(pod: &mut Value) {
    let spec = child(pod, "spec");
    pod_spec(spec);
    for containers in ["containers", "initContainers"] {
        list_mut(spec, containers).iter_mut().for_each(requests_from_limits);
    }
    pod_level_requests(spec);
    // Read from callers that meant "at once"; upstream's conversion has no room for it.
    if int(spec, "terminationGracePeriodSeconds").is_some_and(|period| period < 0) {
        spec["terminationGracePeriodSeconds"] = Value::from(1);
    }
    set_missing(spec, "enableServiceLinks", true);
    host_ports(spec);
    if let Some(status) = present_mut(pod, "status") {
        pod_addresses(status);
    }
}

/// The one address and the list of addresses are kept alike; upstream's internal type has only the list.
fn pod_addresses(status: &mut Value) {
    let first = list(status, "podIPs")
        .first()
        .map(|address| text(address, "ip").to_owned());
    match (text(status, "podIP"), first) {
        ("", Some(first)) => set(status, "podIP", first),
        (single, first) if !single.is_empty() && first.as_deref() != Some(single) => {
            let single = single.to_owned();
            set(status, "podIPs", json!([{"ip": single}]));
        }
        _ => {}
    }
}

/// On the host's network a container's ports are the host's.
fn host_ports(spec: &mut Value) {
    if flag(spec, "hostNetwork") {
        for containers in ["containers", "initContainers"] {
            for container in list_mut(spec, containers) {
                for port in list_mut(container, "ports") {
                    let container_port = port.get("containerPort").cloned().unwrap_or_default();
                    set_empty(port, "hostPort", container_port);
                }
            }
        }
    }
}

/// The pod template under `key`.
pub fn template(holder: &mut Value, key: &str) {
    if let Some(template) = present_mut(holder, key) {
        pod_spec(child(template, "spec"));
    }
}

fn requests_from_limits(container: &mut Value) {
    let Some(resources) = present_mut(container, "resources") else {
        return;
    };
    let Some(limits) = resources.get("limits").and_then(Value::as_object).cloned() else {
        return;
    };
    let requests = child(resources, "requests");
    for (name, limit) in limits {
        set_missing(requests, &name, limit);
    }
}

/// Requests of the pod as a whole (`spec.resources`) from its limits. Sums over containers are not taken: they only
/// matter for pods that set pod-level limits and leave container requests to be counted.
fn pod_level_requests(spec: &mut Value) {
    let Some(resources) = present_mut(spec, "resources") else {
        return;
    };
    let Some(limits) = resources
        .get("limits")
        .and_then(Value::as_object)
        .filter(|limits| !limits.is_empty())
        .cloned()
    else {
        return;
    };
    let requests = child(resources, "requests");
    for (name, limit) in limits {
        if matches!(name.as_str(), "cpu" | "memory") || name.starts_with("hugepages-") {
            set_missing(requests, &name, limit);
        }
    }
}

fn pod_spec(spec: &mut Value) {
    set_empty(spec, "dnsPolicy", "ClusterFirst");
    set_empty(spec, "restartPolicy", "Always");
    set_missing(spec, "securityContext", json!({}));
    set_missing(spec, "terminationGracePeriodSeconds", 30);
    set_empty(spec, "schedulerName", "default-scheduler");
    // The old name of the field is always printed beside the new one, and read where the new one is not given.
    let account = match text(spec, "serviceAccountName") {
        "" => text(spec, "serviceAccount"),
        account => account,
    };
    if !account.is_empty() {
        let account = account.to_owned();
        spec["serviceAccount"] = Value::from(account.as_str());
        spec["serviceAccountName"] = Value::from(account);
    }
    list_mut(spec, "volumes").iter_mut().for_each(volume);
    for containers in ["containers", "initContainers", "ephemeralContainers"] {
        list_mut(spec, containers).iter_mut().for_each(container);
    }
}

fn container(container: &mut Value) {
    if text(container, "imagePullPolicy").is_empty() {
        let policy = pull_policy(text(container, "image"));
        container["imagePullPolicy"] = Value::from(policy);
    }
    set_empty(container, "terminationMessagePath", "/dev/termination-log");
    set_empty(container, "terminationMessagePolicy", "File");
    for port in list_mut(container, "ports") {
        set_empty(port, "protocol", "TCP");
    }
    for variable in list_mut(container, "env") {
        let Some(source) = present_mut(variable, "valueFrom") else {
            continue;
        };
        if let Some(field) = present_mut(source, "fieldRef") {
            set_empty(field, "apiVersion", "v1");
        }
        if let Some(file) = present_mut(source, "fileKeyRef") {
            set_missing(file, "optional", false);
        }
    }
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = present_mut(container, probe) {
            self::probe(probe);
        }
    }
    for hook in ["postStart", "preStop"] {
        let lifecycle = present_mut(container, "lifecycle");
        if let Some(get) = lifecycle
            .and_then(|l| present_mut(l, hook))
            .and_then(|h| present_mut(h, "httpGet"))
        {
            http_get(get);
        }
    }
}

/// `Always` for images whose tag is `latest` (also by not naming one), else `IfNotPresent`.
fn pull_policy(image: &str) -> &'static str {
    let unnamed = !image.is_empty() && !image.contains('@');
    let last = image.rsplit('/').next().unwrap_or_default();
    let tag = image
        .split('@')
        .next()
        .and_then(|named| named.rsplit('/').next())
        .and_then(|named| named.split_once(':'));
    match tag {
        Some((_, "latest")) => "Always",
        None if unnamed && is_reference(last) => "Always",
        _ => "IfNotPresent",
    }
}

/// Upstream's parser gives no tag at all for a name it cannot read.
fn is_reference(name: &str) -> bool {
    !name.is_empty()
        && name
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"._-".contains(&byte))
}

fn probe(probe: &mut Value) {
    set_empty(probe, "timeoutSeconds", 1);
    set_empty(probe, "periodSeconds", 10);
    set_empty(probe, "successThreshold", 1);
    set_empty(probe, "failureThreshold", 3);
    if let Some(get) = present_mut(probe, "httpGet") {
        http_get(get);
    }
    if let Some(grpc) = present_mut(probe, "grpc") {
        set_missing(grpc, "service", "");
    }
}

fn http_get(action: &mut Value) {
    set_empty(action, "path", "/");
    set_empty(action, "scheme", "HTTP");
}

fn volume(volume: &mut Value) {
    let has_source = volume
        .as_object()
        .is_some_and(|fields| fields.iter().any(|(key, value)| key != "name" && !value.is_null()));
    if !has_source {
        volume["emptyDir"] = json!({});
    }
    for source in ["secret", "configMap", "downwardAPI", "projected"] {
        if let Some(source) = present_mut(volume, source) {
            set_missing(source, "defaultMode", 0o644);
            downward_items(source);
        }
    }
    if let Some(path) = present_mut(volume, "hostPath") {
        set_missing(path, "type", "");
    }
    if let Some(projected) = present_mut(volume, "projected") {
        list_mut(projected, "sources").iter_mut().for_each(projection);
    }
    if let Some(image) = present_mut(volume, "image")
        && text(image, "pullPolicy").is_empty()
    {
        let policy = pull_policy(text(image, "reference"));
        image["pullPolicy"] = Value::from(policy);
    }
    if let Some(claim) = present_mut(volume, "ephemeral").and_then(|source| present_mut(source, "volumeClaimTemplate"))
    {
        set_missing(child(claim, "spec"), "volumeMode", "Filesystem");
    }
    block_sources(volume);
}

fn block_sources(volume: &mut Value) {
    if let Some(source) = present_mut(volume, "iscsi") {
        set_empty(source, "iscsiInterface", "default");
    }
    if let Some(source) = present_mut(volume, "rbd") {
        set_empty(source, "pool", "rbd");
        set_empty(source, "user", "admin");
        set_empty(source, "keyring", "/etc/ceph/keyring");
    }
    if let Some(source) = present_mut(volume, "azureDisk") {
        set_missing(source, "cachingMode", "ReadWrite");
        set_missing(source, "kind", "Shared");
        set_missing(source, "fsType", "ext4");
        set_missing(source, "readOnly", false);
    }
    if let Some(source) = present_mut(volume, "scaleIO") {
        set_empty(source, "storageMode", "ThinProvisioned");
        set_empty(source, "fsType", "xfs");
    }
}

fn downward_items(source: &mut Value) {
    for item in list_mut(source, "items") {
        if let Some(field) = present_mut(item, "fieldRef") {
            set_empty(field, "apiVersion", "v1");
        }
    }
}

fn projection(projection: &mut Value) {
    if let Some(downward) = present_mut(projection, "downwardAPI") {
        downward_items(downward);
    }
    if let Some(token) = present_mut(projection, "serviceAccountToken") {
        set_missing(token, "expirationSeconds", 3600);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tag_decides_when_images_are_pulled() {
        for (image, policy) in [
            ("nginx", "Always"),
            ("nginx:latest", "Always"),
            ("registry:5000/nginx", "Always"),
            ("nginx:1.27", "IfNotPresent"),
            ("registry:5000/nginx:1", "IfNotPresent"),
            (
                "nginx@sha256:0000000000000000000000000000000000000000000000000000000000000000",
                "IfNotPresent",
            ),
            ("", "IfNotPresent"),
        ] {
            assert_eq!(pull_policy(image), policy, "{image}");
        }
    }
}

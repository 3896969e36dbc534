//! What a client can find out about the server: groups, versions and resources in the legacy and the aggregated form,
//! the server's version, and its health. Everything is a function of the registry; content negotiation and caching
//! belong to whoever serves it.

use std::cmp::{Ordering, Reverse};

use serde_json::{Map, Value, json};

use crate::registry::Registry;
use crate::resource::{GroupVersion, ResourceType, Subresource};

/// The order in which kube-apiserver lists its own groups; the groups of custom resources follow by name. Clients
/// resolve a short name that several groups use by this order.
const GROUP_ORDER: [&str; 20] = [
    "apiregistration.k8s.io",
    "apps",
    "events.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "autoscaling",
    "batch",
    "certificates.k8s.io",
    "networking.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "storage.k8s.io",
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "scheduling.k8s.io",
    "coordination.k8s.io",
    "node.k8s.io",
    "discovery.k8s.io",
    "resource.k8s.io",
    "flowcontrol.apiserver.k8s.io",
];

/// `GET /api`.
pub fn core_versions(server_address: &str) -> Value {
    json!({
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": server_address}],
    })
}

/// `GET /apis`.
pub fn group_list(registry: &Registry) -> Value {
    let mut ordered = groups(registry);
    // Groups of one priority stand in the order of their API services here, whose names begin with the version.
    ordered.sort_by_key(|group| {
        let services = versions(registry, group)
            .into_iter()
            .map(|gv| format!("{}.{}", gv.version, gv.group));
        (rank(group), services.min())
    });
    let groups: Vec<Value> = ordered
        .into_iter()
        .map(|group| Value::Object(group_fields(registry, group)))
        .collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// `GET /apis/<group>`; nothing for a group that is not served.
pub fn group(registry: &Registry, group: &str) -> Option<Value> {
    if group.is_empty() || versions(registry, group).is_empty() {
        return None;
    }
    let mut fields = group_fields(registry, group);
    fields.insert("kind".to_owned(), "APIGroup".into());
    fields.insert("apiVersion".to_owned(), "v1".into());
    Some(Value::Object(fields))
}

fn group_fields(registry: &Registry, group: &str) -> Map<String, Value> {
    let versions: Vec<Value> = versions(registry, group)
        .into_iter()
        .map(|gv| json!({"groupVersion": gv.api_version(), "version": gv.version}))
        .collect();
    let preferred = versions.first().cloned().unwrap_or_default();
    let fields = [
        ("name", group.into()),
        ("versions", Value::Array(versions)),
        ("preferredVersion", preferred),
    ];
    fields
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

/// Groups without the core one, in the order of discovery.
fn groups(registry: &Registry) -> Vec<&str> {
    let mut groups: Vec<&str> = registry.group_versions().map(|gv| gv.group.as_str()).collect();
    groups.retain(|group| !group.is_empty());
    groups.dedup();
    groups.sort_by_key(|group| (rank(group), *group));
    groups
}

fn rank(group: &str) -> usize {
    GROUP_ORDER
        .iter()
        .position(|known| *known == group)
        .unwrap_or(GROUP_ORDER.len())
}

/// The served versions of a group, the preferred one first.
fn versions<'r>(registry: &'r Registry, group: &str) -> Vec<&'r GroupVersion> {
    let mut versions: Vec<&GroupVersion> = registry.group_versions().filter(|gv| gv.group == group).collect();
    versions.sort_by(|one, other| compare_versions(&other.version, &one.version));
    versions
}

/// Kubernetes' order of versions: stable before beta before alpha, then the higher number; anything else last, by
/// name.
pub fn compare_versions(one: &str, other: &str) -> Ordering {
    match (read_version(one), read_version(other)) {
        (Some(one), Some(other)) => one.cmp(&other),
        (Some(_), None) => Ordering::Greater,
        (None, Some(_)) => Ordering::Less,
        (None, None) => Reverse(one).cmp(&Reverse(other)),
    }
}

/// `v2beta3` as (stability, major, minor).
fn read_version(version: &str) -> Option<(u8, u64, u64)> {
    let digits = version.strip_prefix('v')?;
    let end = digits.find(|next: char| !next.is_ascii_digit()).unwrap_or(digits.len());
    let major = number(&digits[..end])?;
    match &digits[end..] {
        "" => Some((2, major, 0)),
        suffix => match (suffix.strip_prefix("beta"), suffix.strip_prefix("alpha")) {
            (Some(minor), _) => Some((1, major, number(minor)?)),
            (None, Some(minor)) => Some((0, major, number(minor)?)),
            (None, None) => None,
        },
    }
}

/// Digits without a leading zero.
fn number(digits: &str) -> Option<u64> {
    if digits.starts_with('0') || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok()
}

/// `GET /api/v1`, `GET /apis/<group>/<version>`; nothing for a version that is not served.
pub fn resource_list(registry: &Registry, gv: &GroupVersion) -> Option<Value> {
    let mut resources = Vec::new();
    for resource in registry.resources_of(gv) {
        resources.push(legacy_resource(resource));
        resources.extend(
            resource
                .subresources
                .iter()
                .map(|subresource| legacy_subresource(resource, subresource)),
        );
    }
    if resources.is_empty() {
        return None;
    }
    let mut list = json!({"kind": "APIResourceList", "groupVersion": gv.api_version(), "resources": resources});
    // The core list is older than the field, and never got it.
    if !gv.group.is_empty() {
        list["apiVersion"] = "v1".into();
    }
    Some(list)
}

fn legacy_resource(resource: &ResourceType) -> Value {
    let mut fields = json!({
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": resource.verbs,
    });
    add_names(&mut fields, resource);
    if !resource.storage_hash.is_empty() {
        fields["storageVersionHash"] = resource.storage_hash.as_str().into();
    }
    fields
}

fn legacy_subresource(resource: &ResourceType, subresource: &Subresource) -> Value {
    let mut fields = json!({
        "name": format!("{}/{}", resource.plural, subresource.name),
        "singularName": "",
        "namespaced": resource.namespaced,
        "kind": subresource.kind,
        "verbs": subresource.verbs,
    });
    if let Some(gv) = foreign_group(resource, subresource) {
        fields["group"] = gv.group.as_str().into();
        fields["version"] = gv.version.as_str().into();
    }
    fields
}

/// The group and version of a subresource's body, where it is not that of the resource.
fn foreign_group<'a>(resource: &ResourceType, subresource: &'a Subresource) -> Option<&'a GroupVersion> {
    subresource.group_version.as_ref().filter(|gv| **gv != resource.gv)
}

fn add_names(fields: &mut Value, resource: &ResourceType) {
    for (name, list) in [
        ("shortNames", &resource.short_names),
        ("categories", &resource.categories),
    ] {
        if !list.is_empty() {
            fields[name] = json!(list);
        }
    }
}

/// `GET /api` as `APIGroupDiscoveryList`.
pub fn aggregated_core(registry: &Registry) -> Value {
    aggregated(vec![aggregated_group(registry, "")])
}

/// `GET /apis` as `APIGroupDiscoveryList`.
pub fn aggregated_groups(registry: &Registry) -> Value {
    aggregated(
        groups(registry)
            .into_iter()
            .map(|group| aggregated_group(registry, group))
            .collect(),
    )
}

fn aggregated(items: Vec<Value>) -> Value {
    let mut list = json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}});
    list["items"] = Value::Array(items);
    list
}

fn aggregated_group(registry: &Registry, group: &str) -> Value {
    let versions: Vec<Value> = versions(registry, group)
        .into_iter()
        .map(|gv| {
            let resources: Vec<Value> = registry
                .resources_of(gv)
                .map(|resource| aggregated_resource(resource))
                .collect();
            json!({"version": gv.version, "resources": resources, "freshness": "Current"})
        })
        .collect();
    let metadata = if group.is_empty() {
        json!({})
    } else {
        json!({"name": group})
    };
    json!({"metadata": metadata, "versions": versions})
}

fn aggregated_resource(resource: &ResourceType) -> Value {
    let subresources: Vec<Value> = resource
        .subresources
        .iter()
        .map(|subresource| {
            json!({
                "subresource": subresource.name,
                "responseKind": response_kind(resource, foreign_group(resource, subresource), &subresource.kind),
                "verbs": subresource.verbs,
            })
        })
        .collect();
    let mut fields = json!({
        "resource": resource.plural,
        "responseKind": response_kind(resource, None, &resource.kind),
        "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": resource.singular,
        "verbs": resource.verbs,
    });
    add_names(&mut fields, resource);
    if !subresources.is_empty() {
        fields["subresources"] = Value::Array(subresources);
    }
    fields
}

/// Built-in kinds leave group and version out when they are the list's own; custom resources always say them.
fn response_kind(resource: &ResourceType, foreign: Option<&GroupVersion>, kind: &str) -> Value {
    let own = if resource.is_custom() { Some(&resource.gv) } else { None };
    match foreign.or(own) {
        Some(gv) => json!({"group": gv.group, "version": gv.version, "kind": kind}),
        None => json!({"group": "", "version": "", "kind": kind}),
    }
}

/// `GET /`: everything that can be asked for at the top.
pub fn root_paths(registry: &Registry) -> Value {
    let mut paths: Vec<String> = [
        "/api",
        "/apis",
        "/healthz",
        "/livez",
        "/openapi/v3",
        "/readyz",
        "/version",
    ]
    .map(str::to_owned)
    .to_vec();
    for gv in registry.group_versions() {
        if gv.group.is_empty() {
            paths.push(format!("/api/{}", gv.version));
        } else {
            paths.push(format!("/apis/{}", gv.group));
            paths.push(format!("/apis/{}/{}", gv.group, gv.version));
        }
    }
    paths.sort();
    paths.dedup();
    json!({"paths": paths})
}

/// `GET /version` of a server that says it is `git_version`, such as `v1.36.3`.
pub fn version_info(git_version: &str) -> Value {
    let mut parts = git_version.trim_start_matches('v').split('.');
    let (major, minor) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let previous = minor
        .parse::<u64>()
        .map_or_else(|_| minor.to_owned(), |minor| minor.saturating_sub(1).to_string());
    json!({
        "major": major,
        "minor": minor,
        "emulationMajor": major,
        "emulationMinor": minor,
        "minCompatibilityMajor": major,
        "minCompatibilityMinor": previous,
        "gitVersion": git_version,
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "",
        "platform": "linux/amd64",
    })
}

/// The body of `GET /healthz`, `/livez` or `/readyz` of a server that is well.
pub fn health(endpoint: &str, verbose: bool) -> String {
    if !verbose {
        return "ok".to_owned();
    }
    let mut checks = vec!["ping", "log", "etcd"];
    if endpoint == "readyz" {
        checks.extend(["etcd-readiness", "informer-sync", "shutdown"]);
    }
    let mut lines: Vec<String> = checks.into_iter().map(|check| format!("[+]{check} ok")).collect();
    lines.push(format!("{endpoint} check passed\n"));
    lines.join("\n")
}

#[cfg(test)]
mod tests;

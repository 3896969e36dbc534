//! Printers of nodes, namespaces, events and plain data.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::column::{AGE, Column, NAME, name, text, wide};
use super::view::{View, or_none};

pub const NODE_COLUMNS: &[Column] = &[
    NAME,
    text("Status"),
    text("Roles"),
    AGE,
    text("Version"),
    wide("Internal-IP"),
    wide("External-IP"),
    wide("OS-Image"),
    wide("Kernel-Version"),
    wide("Container-Runtime"),
];

pub fn node(node: View<'_>) -> Vec<Value> {
    let ready = node
        .each("/status/conditions")
        .rfind(|condition| condition.text("/type") == "Ready");
    let mut status = match ready {
        Some(condition) if condition.text("/status") == "True" => "Ready".to_owned(),
        Some(_) => "NotReady".to_owned(),
        None => "Unknown".to_owned(),
    };
    if node.flag("/spec/unschedulable") == Some(true) {
        status.push_str(",SchedulingDisabled");
    }
    let mut kernel = node.text_or("/status/nodeInfo/kernelVersion", "<unknown>").to_owned();
    let architecture = node.text("/status/nodeInfo/architecture");
    if !architecture.is_empty() {
        kernel = format!("{kernel} ({architecture})");
    }
    vec![
        json!(node.name()),
        json!(status),
        json!(or_none(node_roles(node))),
        json!(node.age()),
        json!(node.text("/status/nodeInfo/kubeletVersion")),
        json!(node_address(node, "InternalIP")),
        json!(node_address(node, "ExternalIP")),
        json!(node.text_or("/status/nodeInfo/osImage", "<unknown>")),
        json!(kernel),
        json!(node.text_or("/status/nodeInfo/containerRuntimeVersion", "<unknown>")),
    ]
}

fn node_roles(node: View<'_>) -> String {
    let labels = node.at("/metadata/labels").and_then(Value::as_object);
    let roles: BTreeSet<&str> = labels
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| match key.strip_prefix("node-role.kubernetes.io/") {
            Some(role) => Some(role),
            None if key == "kubernetes.io/role" => value.as_str(),
            None => None,
        })
        .filter(|role| !role.is_empty())
        .collect();
    roles.into_iter().collect::<Vec<_>>().join(",")
}

fn node_address<'a>(node: View<'a>, kind: &str) -> &'a str {
    node.each("/status/addresses")
        .find(|address| address.text("/type") == kind)
        .map_or("<none>", |address| address.text("/address"))
}

pub const NAMESPACE_COLUMNS: &[Column] = &[NAME, text("Status"), AGE];

pub fn namespace(namespace: View<'_>) -> Vec<Value> {
    vec![
        json!(namespace.name()),
        json!(namespace.text("/status/phase")),
        json!(namespace.age()),
    ]
}

pub const EVENT_COLUMNS: &[Column] = &[
    text("Last Seen"),
    text("Type"),
    text("Reason"),
    text("Object"),
    wide("Subobject"),
    wide("Source"),
    text("Message"),
    wide("First Seen"),
    wide("Count"),
    name("Name", 1),
];

/// Where the two event APIs keep the same facts.
struct EventFields {
    object: &'static str,
    message: &'static str,
    first: &'static str,
    last: &'static str,
    count: &'static str,
    source: &'static str,
    controller: &'static str,
}

const CORE_EVENT: EventFields = EventFields {
    object: "/involvedObject",
    message: "/message",
    first: "/firstTimestamp",
    last: "/lastTimestamp",
    count: "/count",
    source: "/source",
    controller: "/reportingComponent",
};

const GROUP_EVENT: EventFields = EventFields {
    object: "/regarding",
    message: "/note",
    first: "/deprecatedFirstTimestamp",
    last: "/deprecatedLastTimestamp",
    count: "/deprecatedCount",
    source: "/deprecatedSource",
    controller: "/reportingController",
};

pub fn core_event(event: View<'_>) -> Vec<Value> {
    event_row(event, &CORE_EVENT)
}

pub fn group_event(event: View<'_>) -> Vec<Value> {
    event_row(event, &GROUP_EVENT)
}

fn event_row(event: View<'_>, fields: &EventFields) -> Vec<Value> {
    let first = if event.at(fields.first).is_some() {
        event.since(fields.first)
    } else {
        event.since("/eventTime")
    };
    let mut last = if event.at(fields.last).is_some() {
        event.since(fields.last)
    } else {
        first.clone()
    };
    let mut count = event.integer(fields.count);
    if let Some(series) = event.part("/series") {
        last = series.since("/lastObservedTime");
        count = series.integer("/count");
    } else if count == 0 {
        count = 1;
    }
    let object = event.part(fields.object);
    let of_object = |pointer: &str| object.map_or("", |object| object.text(pointer));
    let mut target = of_object("/kind").to_lowercase();
    if !of_object("/name").is_empty() {
        target = format!("{target}/{}", of_object("/name"));
    }
    let of_source = |pointer: &str| event.part(fields.source).map_or("", |source| source.text(pointer));
    let component = match of_source("/component") {
        "" => event.text(fields.controller),
        component => component,
    };
    let instance = match of_source("/host") {
        "" => event.text("/reportingInstance"),
        host => host,
    };
    let source = if instance.is_empty() {
        component.to_owned()
    } else {
        format!("{component}, {instance}")
    };
    vec![
        json!(last),
        json!(event.text("/type")),
        json!(event.text("/reason")),
        json!(target),
        json!(of_object("/fieldPath")),
        json!(source),
        json!(event.text(fields.message).trim()),
        json!(first),
        json!(count),
        json!(event.name()),
    ]
}

pub const CONFIG_MAP_COLUMNS: &[Column] = &[NAME, text("Data"), AGE];

pub fn config_map(map: View<'_>) -> Vec<Value> {
    vec![
        json!(map.name()),
        json!(map.count("/data") + map.count("/binaryData")),
        json!(map.age()),
    ]
}

pub const SECRET_COLUMNS: &[Column] = &[NAME, text("Type"), text("Data"), AGE];

pub fn secret(secret: View<'_>) -> Vec<Value> {
    vec![
        json!(secret.name()),
        json!(secret.text("/type")),
        json!(secret.count("/data")),
        json!(secret.age()),
    ]
}

pub const NAME_AND_AGE_COLUMNS: &[Column] = &[NAME, AGE];

pub fn name_and_age(object: View<'_>) -> Vec<Value> {
    vec![json!(object.name()), json!(object.age())]
}

pub const COMPONENT_STATUS_COLUMNS: &[Column] = &[NAME, text("Status"), text("Message"), text("Error")];

pub fn component_status(component: View<'_>) -> Vec<Value> {
    let condition = component.condition("/conditions", "Healthy");
    let status = match condition.map(|condition| condition.text("/status")) {
        Some("True") => "Healthy",
        Some(_) => "Unhealthy",
        None => "Unknown",
    };
    let of_condition = |pointer: &str| condition.map_or("", |condition| condition.text(pointer));
    vec![
        json!(component.name()),
        json!(status),
        json!(of_condition("/message")),
        json!(of_condition("/error")),
    ]
}

pub const QUOTA_COLUMNS: &[Column] = &[NAME, text("Request"), text("Limit"), AGE];

pub fn quota(quota: View<'_>) -> Vec<Value> {
    let used = |resource: &str| {
        let used = quota.at("/status/used").and_then(|used| used.get(resource));
        used.and_then(Value::as_str).unwrap_or("0").to_owned()
    };
    let mut columns = [Vec::new(), Vec::new()];
    for (resource, hard) in quota
        .at("/status/hard")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        let text = format!("{resource}: {}/{}", used(resource), hard.as_str().unwrap_or("0"));
        columns[usize::from(resource.starts_with("limits."))].push(text);
    }
    for column in &mut columns {
        column.sort();
    }
    vec![
        json!(quota.name()),
        json!(columns[0].join(", ")),
        json!(columns[1].join(", ")),
        json!(quota.age()),
    ]
}

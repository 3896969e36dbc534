//! Services: cluster addresses and node ports on creation, and what an update keeps of them. One address family (IPv4),
//! as the embedded server has.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::CreateContext;
use crate::builtin::fields::{
    child, copy, flag, int, list, list_mut, map, present, remove, set, set_empty, set_missing, text,
};

fn needs_cluster_ip(service: &Value) -> bool {
    text(&service["spec"], "type") != "ExternalName"
}

fn needs_node_port(service: &Value) -> bool {
    let spec = &service["spec"];
    match text(spec, "type") {
        "NodePort" => true,
        "LoadBalancer" => {
            present(spec, "allocateLoadBalancerNodePorts").is_none() || flag(spec, "allocateLoadBalancerNodePorts")
        }
        _ => false,
    }
}

fn needs_health_port(service: &Value) -> bool {
    let spec = &service["spec"];
    text(spec, "type") == "LoadBalancer" && text(spec, "externalTrafficPolicy") == "Local"
}

pub fn prepare_for_create(service: &mut Value, context: &mut CreateContext<'_>) {
    if !needs_cluster_ip(service) {
        return;
    }
    let spec = child(service, "spec");
    let is_headless = text(spec, "clusterIP") == "None";
    let is_headless_without_selector = is_headless && map(spec, "selector").is_none();
    if text(spec, "clusterIP").is_empty() && list(spec, "clusterIPs").is_empty() {
        set(spec, "clusterIP", (context.allocate_cluster_ip)());
    }
    let address = spec["clusterIP"].clone();
    set_empty(spec, "clusterIPs", json!([address]));
    if is_headless_without_selector {
        // Whoever writes the endpoints decides on the families, so both are open.
        set_missing(spec, "ipFamilyPolicy", "RequireDualStack");
    }
    set_missing(spec, "ipFamilyPolicy", "SingleStack");
    let both = is_headless_without_selector && text(spec, "ipFamilyPolicy") != "SingleStack";
    set_missing(
        spec,
        "ipFamilies",
        if both { json!(["IPv4", "IPv6"]) } else { json!(["IPv4"]) },
    );
    allocate_ports(service, context);
}

/// Ports of the same number for different protocols share one node port.
fn allocate_ports(service: &mut Value, context: &mut CreateContext<'_>) {
    if needs_node_port(service) {
        let mut given: Vec<(i64, String, i64)> = Vec::new();
        for port in list_mut(child(service, "spec"), "ports") {
            let (number, protocol) = (int(port, "port").unwrap_or_default(), text(port, "protocol").to_owned());
            let mut node_port = int(port, "nodePort").unwrap_or_default();
            if node_port == 0 {
                let shared = given.iter().find(|(other, by, _)| *other == number && *by != protocol);
                node_port = shared.map_or_else(|| (context.allocate_node_port)(), |(_, _, node_port)| *node_port);
                set(port, "nodePort", node_port);
            }
            given.push((number, protocol, node_port));
        }
    }
    if needs_health_port(service) && int(&service["spec"], "healthCheckNodePort").unwrap_or_default() == 0 {
        let port = (context.allocate_node_port)();
        set(child(service, "spec"), "healthCheckNodePort", port);
    }
}

pub fn prepare_for_update(service: &mut Value, old: &Value) {
    drop_type_dependent(service, old);
    keep_allocated(service, old);
}

/// What a former type needed goes with it, unless the caller changed it in the same write.
fn drop_type_dependent(service: &mut Value, old: &Value) {
    let same = |new: &Value, field: &str| new["spec"].get(field) == old["spec"].get(field);
    if needs_cluster_ip(old) && !needs_cluster_ip(service) {
        let addresses = same(service, "clusterIP") && same(service, "clusterIPs");
        for field in ["clusterIP", "clusterIPs"].into_iter().filter(|_| addresses) {
            remove(child(service, "spec"), field);
        }
        for field in ["ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy"] {
            if same(service, field) {
                remove(child(service, "spec"), field);
            }
        }
    }
    let node_ports = |of: &Value| {
        list(&of["spec"], "ports")
            .iter()
            .map(|port| int(port, "nodePort"))
            .collect::<Vec<_>>()
    };
    if needs_node_port(old) && !needs_node_port(service) && node_ports(old) == node_ports(service) {
        for port in list_mut(child(service, "spec"), "ports") {
            remove(port, "nodePort");
        }
    }
    if needs_health_port(old) && !needs_health_port(service) && same(service, "healthCheckNodePort") {
        remove(child(service, "spec"), "healthCheckNodePort");
    }
    let was_balanced = text(&old["spec"], "type") == "LoadBalancer";
    if was_balanced && text(&service["spec"], "type") != "LoadBalancer" {
        for field in ["allocateLoadBalancerNodePorts", "loadBalancerClass"] {
            if same(service, field) {
                remove(child(service, "spec"), field);
            }
        }
        service["status"]["loadBalancer"] = json!({});
    }
    let reachable = |of: &Value| {
        matches!(text(&of["spec"], "type"), "NodePort" | "LoadBalancer") || !list(&of["spec"], "externalIPs").is_empty()
    };
    if reachable(old) && !reachable(service) && same(service, "externalTrafficPolicy") {
        remove(child(service, "spec"), "externalTrafficPolicy");
    }
}

/// What was allocated stays when an update leaves it out.
fn keep_allocated(service: &mut Value, old: &Value) {
    if needs_cluster_ip(old) && needs_cluster_ip(service) {
        let spec = child(service, "spec");
        for field in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
            if present(spec, field).is_none_or(|value| value == "") {
                copy(&old["spec"], spec, field);
            }
        }
        // A client that knows only the one field changes it alone.
        if spec["clusterIP"] != old["spec"]["clusterIP"] && spec.get("clusterIPs") == old["spec"].get("clusterIPs") {
            let address = spec["clusterIP"].clone();
            set(spec, "clusterIPs", json!([address]));
        }
    }
    if needs_node_port(old) && needs_node_port(service) {
        let used = |of: &Value| -> BTreeSet<i64> {
            list(&of["spec"], "ports")
                .iter()
                .filter_map(|port| int(port, "nodePort"))
                .collect()
        };
        let taken: BTreeSet<i64> = used(old).intersection(&used(service)).copied().collect();
        for port in list_mut(child(service, "spec"), "ports") {
            let before = list(&old["spec"], "ports")
                .iter()
                .find(|known| text(known, "name") == text(port, "name"));
            let before = before
                .and_then(|known| int(known, "nodePort"))
                .filter(|before| !taken.contains(before));
            if let Some(before) = before {
                set_empty(port, "nodePort", before);
            }
        }
    }
    if needs_health_port(old) && needs_health_port(service) && int(&service["spec"], "healthCheckNodePort").is_none() {
        copy(&old["spec"], child(service, "spec"), "healthCheckNodePort");
    }
}

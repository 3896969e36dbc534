//! Printers of services, endpoints and ingresses.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::column::{AGE, Column, NAME, text, wide};
use super::view::{View, or_none, with_more};

/// Addresses and hosts are listed up to this many.
const SHOWN: usize = 3;

pub const SERVICE_COLUMNS: &[Column] = &[
    NAME,
    text("Type"),
    text("Cluster-IP"),
    text("External-IP"),
    text("Port(s)"),
    AGE,
    wide("Selector"),
];

pub fn service(service: View<'_>) -> Vec<Value> {
    let cluster_ip = match service.text("/spec/clusterIPs/0") {
        "" => service.text_or("/spec/clusterIP", "<none>"),
        ip => ip,
    };
    let ports: Vec<String> = service
        .each("/spec/ports")
        .map(|port| {
            let (number, protocol) = (port.integer("/port"), port.text_or("/protocol", "TCP"));
            match port.integer("/nodePort") {
                0 => format!("{number}/{protocol}"),
                node_port => format!("{number}:{node_port}/{protocol}"),
            }
        })
        .collect();
    vec![
        json!(service.name()),
        json!(service.text("/spec/type")),
        json!(cluster_ip),
        json!(external_ip(service)),
        json!(or_none(ports.join(","))),
        json!(service.age()),
        json!(service.labels("/spec/selector")),
    ]
}

fn external_ip(service: View<'_>) -> String {
    let own = service.texts("/spec/externalIPs");
    match service.text("/spec/type") {
        "ClusterIP" | "NodePort" => or_none(own.join(",")),
        "LoadBalancer" => {
            let balanced = load_balancer_addresses(service);
            let all: Vec<&str> = balanced
                .split(',')
                .filter(|address| !address.is_empty())
                .chain(own.iter().copied())
                .collect();
            if all.is_empty() {
                "<pending>".to_owned()
            } else {
                all.join(",")
            }
        }
        "ExternalName" => service.text("/spec/externalName").to_owned(),
        _ => "<unknown>".to_owned(),
    }
}

fn load_balancer_addresses(object: View<'_>) -> String {
    let addresses: BTreeSet<&str> = object
        .each("/status/loadBalancer/ingress")
        .map(|ingress| ingress.text_or("/ip", ingress.text("/hostname")))
        .filter(|address| !address.is_empty())
        .collect();
    addresses.into_iter().collect::<Vec<_>>().join(",")
}

pub const ENDPOINTS_COLUMNS: &[Column] = &[NAME, text("Endpoints"), AGE];

pub fn endpoints(endpoints: View<'_>) -> Vec<Value> {
    let listed = if endpoints.count("/subsets") == 0 {
        "<none>".to_owned()
    } else {
        let mut addresses = Vec::new();
        for subset in endpoints.each("/subsets") {
            let ips = || subset.each("/addresses").map(|address| address.text("/ip"));
            if subset.count("/ports") == 0 {
                addresses.extend(ips().map(str::to_owned));
            }
            for port in subset.each("/ports") {
                addresses.extend(ips().map(|ip| host_port(ip, port.integer("/port"))));
            }
        }
        with_more(&addresses, SHOWN, ",")
    };
    vec![json!(endpoints.name()), json!(listed), json!(endpoints.age())]
}

fn host_port(ip: &str, port: i64) -> String {
    if ip.contains(':') {
        format!("[{ip}]:{port}")
    } else {
        format!("{ip}:{port}")
    }
}

pub const ENDPOINT_SLICE_COLUMNS: &[Column] = &[NAME, text("AddressType"), text("Ports"), text("Endpoints"), AGE];

pub fn endpoint_slice(slice: View<'_>) -> Vec<Value> {
    let ports: Vec<String> = slice
        .each("/ports")
        .map(
            |port| match (port.at("/port"), port.at("/name").and_then(Value::as_str)) {
                (Some(number), _) => number.to_string(),
                (None, Some(name)) => name.to_owned(),
                (None, None) => "*".to_owned(),
            },
        )
        .collect();
    let addresses: Vec<String> = slice
        .each("/endpoints")
        .flat_map(|endpoint| endpoint.texts("/addresses"))
        .map(str::to_owned)
        .collect();
    vec![
        json!(slice.name()),
        json!(slice.text("/addressType")),
        json!(or_unset(with_more(&ports, SHOWN, ","))),
        json!(or_unset(with_more(&addresses, SHOWN, ","))),
        json!(slice.age()),
    ]
}

fn or_unset(text: String) -> String {
    if text.is_empty() { "<unset>".to_owned() } else { text }
}

pub const INGRESS_COLUMNS: &[Column] = &[NAME, text("Class"), text("Hosts"), text("Address"), text("Ports"), AGE];

pub fn ingress(ingress: View<'_>) -> Vec<Value> {
    let ports = if ingress.count("/spec/tls") > 0 {
        "80, 443"
    } else {
        "80"
    };
    vec![
        json!(ingress.name()),
        json!(
            ingress
                .at("/spec/ingressClassName")
                .and_then(Value::as_str)
                .unwrap_or("<none>")
        ),
        json!(ingress_hosts(ingress)),
        json!(load_balancer_addresses(ingress)),
        json!(ports),
        json!(ingress.age()),
    ]
}

/// The real server counts *rules* beyond the third listed host, also those without a host.
fn ingress_hosts(ingress: View<'_>) -> String {
    let mut hosts = Vec::new();
    let mut more = false;
    for rule in ingress.each("/spec/rules") {
        more |= hosts.len() == SHOWN;
        let host = rule.text("/host");
        if !more && !host.is_empty() {
            hosts.push(host);
        }
    }
    match (hosts.is_empty(), more) {
        (true, _) => "*".to_owned(),
        (false, false) => hosts.join(","),
        (false, true) => format!("{} + {} more...", hosts.join(","), ingress.count("/spec/rules") - SHOWN),
    }
}

pub const INGRESS_CLASS_COLUMNS: &[Column] = &[NAME, text("Controller"), text("Parameters"), AGE];

pub fn ingress_class(class: View<'_>) -> Vec<Value> {
    let default = class.annotation("ingressclass.kubernetes.io/is-default-class") == Some("true");
    let parameters = class.part("/spec/parameters").map_or_else(
        || "<none>".to_owned(),
        |parameters| {
            let group = parameters.at("/apiGroup").and_then(Value::as_str);
            let group = group.map_or_else(String::new, |group| format!(".{group}"));
            format!("{}{group}/{}", parameters.text("/kind"), parameters.text("/name"))
        },
    );
    vec![
        json!(format!("{}{}", class.name(), if default { " (default)" } else { "" })),
        json!(class.text("/spec/controller")),
        json!(parameters),
        json!(class.age()),
    ]
}

pub const NETWORK_POLICY_COLUMNS: &[Column] = &[NAME, text("Pod-Selector"), AGE];

pub fn network_policy(policy: View<'_>) -> Vec<Value> {
    vec![
        json!(policy.name()),
        json!(or_none(policy.selector("/spec/podSelector"))),
        json!(policy.age()),
    ]
}

pub const SERVICE_CIDR_COLUMNS: &[Column] = &[NAME, text("CIDRs"), AGE];

pub fn service_cidr(cidr: View<'_>) -> Vec<Value> {
    vec![
        json!(cidr.name()),
        json!(cidr.texts("/spec/cidrs").join(",")),
        json!(cidr.age()),
    ]
}

pub const IP_ADDRESS_COLUMNS: &[Column] = &[NAME, text("ParentRef")];

/// The real server gives an age as well, in a cell that has no column.
pub fn ip_address(address: View<'_>) -> Vec<Value> {
    let parent = address.part("/spec/parentRef").map_or_else(
        || "<none>".to_owned(),
        |parent| {
            let mut resource = parent.text("/resource").to_lowercase();
            if !parent.text("/group").is_empty() {
                resource = format!("{resource}.{}", parent.text("/group").to_lowercase());
            }
            match parent.text("/namespace") {
                "" => format!("{resource}/{}", parent.text("/name")),
                namespace => format!("{resource}/{namespace}/{}", parent.text("/name")),
            }
        },
    );
    vec![json!(address.name()), json!(parent), json!(address.age())]
}

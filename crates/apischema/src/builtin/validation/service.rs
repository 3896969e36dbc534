//! Services.

use std::collections::BTreeSet;

use serde_json::Value;

use super::common::{Errors, PORT_RANGE, dns_label, dns_subdomain, one_of, port_number_or_name, printed};
use super::network;
use crate::builtin::fields::{int, list, map, present, text};
use crate::field_error::{ErrorKind, FieldError, Path};
use crate::structural::object_meta::validate_labels;

pub fn service(errors: &mut Errors, object: &Value) {
    let (spec, path) = (&object["spec"], Path::new("spec"));
    let kind = text(spec, "type");
    let is_headless = text(spec, "clusterIP") == "None";
    let ports = list(spec, "ports");
    if ports.is_empty() && !is_headless && kind != "ExternalName" {
        errors.push(FieldError::required(&path.child("ports"), ""));
    }
    if kind == "LoadBalancer" && is_headless {
        let detail = "may not be set to 'None' for LoadBalancer services";
        errors.push(FieldError::invalid(&path.child("clusterIPs").index(0), "None", detail));
    }
    if kind == "NodePort" && is_headless {
        let detail = "may not be set to 'None' for NodePort services";
        errors.push(FieldError::invalid(&path.child("clusterIPs").index(0), "None", detail));
    }
    if kind == "ExternalName" {
        let name = text(spec, "externalName").trim_end_matches('.');
        if name.is_empty() {
            errors.push(FieldError::required(&path.child("externalName"), ""));
        } else {
            dns_subdomain(errors, &path.child("externalName"), name);
        }
    }
    self::ports(errors, ports, &path.child("ports"));
    errors.extend(validate_labels(map(spec, "selector"), &path.child("selector")));
    one_of(errors, spec, &path, "sessionAffinity", &["ClientIP", "None"]);
    cluster_ips(errors, spec, &path, kind);
    external_ips(errors, spec, &path.child("externalIPs"));
    one_of(
        errors,
        spec,
        &path,
        "type",
        &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"],
    );
    node_ports(errors, ports, &path, kind);
    duplicate_ports(errors, ports, &path.child("ports"));
    let reachable = matches!(kind, "NodePort" | "LoadBalancer") || !list(spec, "externalIPs").is_empty();
    let policy = text(spec, "externalTrafficPolicy");
    if !policy.is_empty() && !reachable {
        let detail = "may only be set for externally-accessible services";
        errors.push(FieldError::invalid(
            &path.child("externalTrafficPolicy"),
            policy,
            detail,
        ));
    } else {
        one_of(errors, spec, &path, "externalTrafficPolicy", &["Cluster", "Local"]);
    }
    one_of(errors, spec, &path, "internalTrafficPolicy", &["Cluster", "Local"]);
}

fn ports(errors: &mut Errors, ports: &[Value], path: &Path) {
    let mut names = BTreeSet::new();
    for (index, port) in ports.iter().enumerate() {
        let at = path.index(index);
        let name = text(port, "name");
        if name.is_empty() {
            if ports.len() > 1 {
                errors.push(FieldError::required(&at.child("name"), ""));
            }
        } else {
            dns_label(errors, &at.child("name"), name);
            if !names.insert(name) {
                errors.push(FieldError::duplicate(&at.child("name"), name));
            }
        }
        let number = int(port, "port").unwrap_or_default();
        if !(1..=65535).contains(&number) {
            errors.push(FieldError::invalid(&at.child("port"), number, PORT_RANGE));
        }
        one_of(errors, port, &at, "protocol", &["SCTP", "TCP", "UDP"]);
        port_number_or_name(errors, &at.child("targetPort"), port.get("targetPort"));
    }
}

fn cluster_ips(errors: &mut Errors, spec: &Value, path: &Path, kind: &str) {
    let at = path.child("clusterIPs");
    if kind == "ExternalName" {
        if !list(spec, "clusterIPs").is_empty() {
            errors.push(FieldError::forbidden(
                &at,
                "may not be set when `type` is 'ExternalName'",
            ));
        }
        return;
    }
    let (address, addresses) = (text(spec, "clusterIP"), list(spec, "clusterIPs"));
    if address.is_empty() && !addresses.is_empty() {
        let detail = "must be empty when `clusterIP` is not specified";
        errors.push(FieldError::invalid(&at, addresses.to_vec(), detail));
    } else if !address.is_empty() && addresses.first().is_none_or(|first| first != address) {
        errors.push(match addresses {
            [] => FieldError::required(&at, ""),
            _ => FieldError::invalid(&at, addresses.to_vec(), "first value must match `clusterIP`"),
        });
    }
    for (index, address) in addresses.iter().filter_map(Value::as_str).enumerate() {
        if index > 0 || address != "None" {
            network::address(errors, &at.index(index), address);
        }
    }
}

fn external_ips(errors: &mut Errors, spec: &Value, path: &Path) {
    for (index, address) in list(spec, "externalIPs").iter().filter_map(Value::as_str).enumerate() {
        let at = path.index(index);
        match address.parse::<std::net::IpAddr>() {
            Err(_) => {
                network::address(errors, &at, address);
            }
            Ok(ip) if ip.is_unspecified() => {
                errors.push(FieldError::invalid(
                    &at,
                    address,
                    "may not be unspecified (0.0.0.0 or ::)",
                ));
            }
            Ok(ip) if ip.is_loopback() => {
                let detail = "may not be in the loopback range (127.0.0.0/8, ::1/128)";
                errors.push(FieldError::invalid(&at, address, detail));
            }
            Ok(_) => {}
        }
    }
}

fn node_ports(errors: &mut Errors, ports: &[Value], path: &Path, kind: &str) {
    if kind != "ClusterIP" {
        return;
    }
    for (index, port) in ports.iter().enumerate() {
        if int(port, "nodePort").unwrap_or_default() != 0 {
            let at = path.child("ports").index(index).child("nodePort");
            errors.push(FieldError::forbidden(&at, "may not be used when `type` is 'ClusterIP'"));
        }
    }
}

fn duplicate_ports(errors: &mut Errors, ports: &[Value], path: &Path) {
    let mut seen = BTreeSet::new();
    for (index, port) in ports.iter().enumerate() {
        let (number, protocol) = (int(port, "port").unwrap_or_default(), text(port, "protocol"));
        if !seen.insert((protocol, number)) {
            let shown = format!(
                "{{\"Name\":\"\",\"Protocol\":{},\"AppProtocol\":null,\"Port\":{number},\"TargetPort\":0,\"NodePort\":0}}",
                Value::from(protocol)
            );
            errors.push(printed(ErrorKind::Duplicate, &path.index(index), &shown, ""));
        }
    }
}

/// What only shows when addresses and ports are taken: whether they are there to be taken. Upstream comes to this only
/// with a service that is valid otherwise. The network is wider than the real server's default (10.0.0.0/24), so that a
/// long simulation does not run out of it.
pub fn allocation(errors: &mut Errors, object: &Value) {
    if !errors.is_empty() {
        return;
    }
    let (spec, path) = (&object["spec"], Path::new("spec"));
    let (addresses, at) = (list(spec, "clusterIPs"), path.child("clusterIPs"));
    for (index, address) in addresses.iter().filter_map(Value::as_str).enumerate() {
        match address.parse::<std::net::IpAddr>() {
            Ok(std::net::IpAddr::V6(_)) => {
                let detail = "IPv6 is not configured on this cluster";
                errors.push(FieldError::invalid(&at.index(index), addresses.to_vec(), detail));
            }
            Ok(std::net::IpAddr::V4(given)) if given.octets()[..2] != [10, 0] => {
                let detail =
                    format!("failed to allocate IP {address}: the provided network does not match the current range");
                errors.push(FieldError::invalid(&at, addresses.to_vec(), detail));
            }
            _ => {}
        }
    }
    if !errors.is_empty() {
        return;
    }
    for (index, port) in list(spec, "ports").iter().enumerate() {
        let given = int(port, "nodePort").unwrap_or_default();
        if given != 0 && !(30_000..=32_767).contains(&given) {
            let place = path.child("ports").index(index).child("nodePort");
            let detail = "provided port is not in the valid range. The range of valid ports is 30000-32767";
            errors.push(FieldError::invalid(&place, given, detail));
        }
    }
}

/// A cluster address is given once.
pub fn update(errors: &mut Errors, new: &Value, old: &Value) {
    let mut mismatched = Vec::new();
    cluster_ips(
        &mut mismatched,
        &new["spec"],
        &Path::new("spec"),
        text(&new["spec"], "type"),
    );
    if !mismatched.is_empty() {
        // Upstream looks at these fields before it defaults their relatives, and then at nothing else.
        *errors = mismatched;
        return;
    }
    let needs = |service: &Value| text(&service["spec"], "type") != "ExternalName";
    let (before, after) = (list(&old["spec"], "clusterIPs"), list(&new["spec"], "clusterIPs"));
    if needs(old) && needs(new) && !before.is_empty() && before.first() != after.first() {
        let at = Path::new("spec").child("clusterIPs").index(0);
        let given = present(&new["spec"], "clusterIPs").cloned().unwrap_or_default();
        errors.push(FieldError::invalid(&at, given, "may not change once set"));
    }
    service(errors, new);
    allocation(errors, new);
}

//! Ingresses: hosts, paths and the backends behind them.

use serde_json::Value;

use super::common::{Errors, PORT_RANGE, complain, dns_label, dns_subdomain, port_name};
use crate::builtin::fields::{int, list, present, text};
use crate::field_error::{FieldError, Path};
use crate::structural::names;

pub fn create(errors: &mut Errors, ingress: &Value) {
    const CLASS: &str = "kubernetes.io/ingress.class";
    self::ingress(errors, ingress);
    let annotated = ingress["metadata"]["annotations"].get(CLASS).and_then(Value::as_str);
    let named = ingress["spec"].get("ingressClassName").and_then(Value::as_str);
    if let (Some(annotated), Some(named)) = (annotated, named)
        && annotated != named
    {
        // Upstream names the place so, without the metadata around it.
        let at = Path::new("annotations").child(CLASS);
        let detail = "must match `ingressClassName` when both are specified";
        errors.push(FieldError::invalid(&at, annotated, detail));
    }
}

pub fn ingress(errors: &mut Errors, ingress: &Value) {
    let (spec, path) = (&ingress["spec"], Path::new("spec"));
    let rules = list(spec, "rules");
    let default = present(spec, "defaultBackend");
    if rules.is_empty() && default.is_none() {
        let detail = "either `defaultBackend` or `rules` must be specified";
        errors.push(FieldError::invalid(&path, Value::Null, detail));
    }
    if let Some(default) = default {
        backend(errors, default, &path.child("defaultBackend"));
    }
    for (index, rule) in rules.iter().enumerate() {
        self::rule(errors, rule, &path.child("rules").index(index));
    }
    for (index, tls) in list(spec, "tls").iter().enumerate() {
        let at = path.child("tls").index(index);
        for (position, host) in list(tls, "hosts").iter().filter_map(Value::as_str).enumerate() {
            self::host(errors, host, &at.child("hosts").index(position));
        }
        if !text(tls, "secretName").is_empty() {
            dns_subdomain(errors, &at.child("secretName"), text(tls, "secretName"));
        }
    }
    if let Some(class) = present(spec, "ingressClassName").and_then(Value::as_str) {
        dns_subdomain(errors, &path.child("ingressClassName"), class);
    }
}

fn host(errors: &mut Errors, host: &str, path: &Path) {
    if !host.contains('*') {
        dns_subdomain(errors, path, host);
        return;
    }
    let is_fine = host.len() <= 253
        && host
            .strip_prefix("*.")
            .is_some_and(|rest| names::dns_subdomain(rest).is_empty());
    if !is_fine {
        let complaint = names::regex_complaint(
            "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character",
            r"\*\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*",
            &["*.example.com"],
        );
        errors.push(FieldError::invalid(path, host, complaint));
    }
}

fn rule(errors: &mut Errors, rule: &Value, path: &Path) {
    let name = text(rule, "host");
    if !name.is_empty() {
        let at = path.child("host");
        if name.parse::<std::net::IpAddr>().is_ok() {
            errors.push(FieldError::invalid(&at, name, "must be a DNS name, not an IP address"));
        }
        host(errors, name, &at);
    }
    let Some(http) = present(rule, "http") else { return };
    let at = path.child("http").child("paths");
    if list(http, "paths").is_empty() {
        errors.push(FieldError::required(&at, ""));
    }
    for (index, entry) in list(http, "paths").iter().enumerate() {
        http_path(errors, entry, &at.index(index));
    }
}

fn http_path(errors: &mut Errors, entry: &Value, path: &Path) {
    let at = path.child("path");
    let value = text(entry, "path");
    let Some(kind) = present(entry, "pathType").and_then(Value::as_str) else {
        errors.push(FieldError::required(
            &path.child("pathType"),
            "pathType must be specified",
        ));
        return;
    };
    match kind {
        "Exact" | "Prefix" => {
            if !value.starts_with('/') {
                errors.push(FieldError::invalid(&at, value, "must be an absolute path"));
            }
            for sequence in ["//", "/./", "/../", "%2f", "%2F"] {
                if value.contains(sequence) {
                    errors.push(FieldError::invalid(
                        &at,
                        value,
                        format!("must not contain '{sequence}'"),
                    ));
                }
            }
            for suffix in ["/..", "/."] {
                if value.ends_with(suffix) {
                    errors.push(FieldError::invalid(&at, value, format!("cannot end with '{suffix}'")));
                }
            }
        }
        "ImplementationSpecific" => {
            if !value.is_empty() && !value.starts_with('/') {
                errors.push(FieldError::invalid(&at, value, "must be an absolute path"));
            }
        }
        other => {
            let known = ["Exact", "ImplementationSpecific", "Prefix"];
            errors.push(FieldError::not_supported(&path.child("pathType"), other, &known));
        }
    }
    backend(errors, &entry["backend"], &path.child("backend"));
}

fn backend(errors: &mut Errors, backend: &Value, path: &Path) {
    match (present(backend, "resource"), present(backend, "service")) {
        (Some(_), Some(_)) => {
            errors.push(FieldError::invalid(
                path,
                "",
                "cannot set both resource and service backends",
            ));
        }
        (Some(resource), None) => local_reference(errors, resource, &path.child("resource")),
        (None, Some(service)) => service_backend(errors, service, path),
        (None, None) => errors.push(FieldError::invalid(path, "", "resource or service backend is required")),
    }
}

fn local_reference(errors: &mut Errors, reference: &Value, path: &Path) {
    if let Some(group) = present(reference, "apiGroup").and_then(Value::as_str) {
        dns_subdomain(errors, &path.child("apiGroup"), group);
    }
    for key in ["kind", "name"] {
        super::common::required_segment(errors, reference, path, key);
    }
}

fn service_backend(errors: &mut Errors, service: &Value, path: &Path) {
    let at = path.child("service");
    match text(service, "name") {
        "" => errors.push(FieldError::required(&at.child("name"), "")),
        name => dns_label(errors, &at.child("name"), name),
    }
    let (name, number) = (
        text(&service["port"], "name"),
        int(&service["port"], "number").unwrap_or_default(),
    );
    match (name.is_empty(), number) {
        (true, 0) => errors.push(FieldError::required(path, "port name or number is required")),
        (true, 1..=65535) => {}
        (true, _) => {
            let here = at.child("port").child("number");
            errors.push(FieldError::invalid(&here, number, PORT_RANGE));
        }
        (false, 0) => complain(errors, &at.child("port").child("name"), name, port_name(name)),
        (false, _) => errors.push(FieldError::invalid(path, "", "cannot set both port name & port number")),
    }
}

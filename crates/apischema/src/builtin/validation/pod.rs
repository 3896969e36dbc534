//! Pods and pod templates: the spec beside its containers, and what an update may change.

use serde_json::Value;

use super::common::{Errors, IP_ADDRESS, complain, dns_label, dns_subdomain, is_ip, one_of, qualified_name};
use super::container::{self, Surroundings, user_ids};
use super::{scheduling, volumes};
use crate::builtin::fields::{flag, int, list, list_mut, map, present, remove, set, text};
use crate::field_error::{FieldError, Path};
use crate::structural::names;
use crate::structural::object_meta::{validate_annotations, validate_labels};

pub fn create(errors: &mut Errors, pod: &Value) {
    spec(errors, &pod["spec"], &Path::new("spec"), true);
    if !list(&pod["spec"], "ephemeralContainers").is_empty() {
        let at = Path::new("spec").child("ephemeralContainers");
        errors.push(FieldError::forbidden(&at, "cannot be set on create"));
    }
}

/// A template: its metadata has labels and annotations only, so nothing else is checked there.
pub fn template(errors: &mut Errors, template: &Value, path: &Path) {
    let metadata = path.child("metadata");
    errors.extend(validate_labels(
        map(&template["metadata"], "labels"),
        &metadata.child("labels"),
    ));
    errors.extend(validate_annotations(
        map(&template["metadata"], "annotations"),
        &metadata.child("annotations"),
    ));
    spec(errors, &template["spec"], &path.child("spec"), false);
}

pub fn spec(errors: &mut Errors, spec: &Value, path: &Path, is_pod: bool) {
    let known = volumes::volumes(errors, spec, &path.child("volumes"));
    let around = Surroundings {
        volumes: known.all,
        block_volumes: known.block,
        is_pod,
    };
    container::containers(errors, spec, path, &around);
    host_network(errors, spec, path, is_pod);
    one_of(errors, spec, path, "restartPolicy", &["Always", "OnFailure", "Never"]);
    one_of(
        errors,
        spec,
        path,
        "dnsPolicy",
        &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"],
    );
    errors.extend(validate_labels(map(spec, "nodeSelector"), &path.child("nodeSelector")));
    security_context(errors, spec, path);
    if let Some(affinity) = present(spec, "affinity") {
        scheduling::affinity(errors, affinity, &path.child("affinity"));
    }
    if text(spec, "dnsPolicy") == "None" {
        dns_config(errors, spec, &path.child("dnsConfig"));
    }
    for (index, gate) in list(spec, "readinessGates").iter().enumerate() {
        let at = path.child("readinessGates").index(index).child("conditionType");
        qualified_name(errors, &at, text(gate, "conditionType"));
    }
    scheduling::gates(errors, spec, &path.child("schedulingGates"));
    scheduling::topology_spread(errors, spec, &path.child("topologySpreadConstraints"));
    identity(errors, spec, path);
    scheduling::tolerations(errors, spec, &path.child("tolerations"));
    for (index, alias) in list(spec, "hostAliases").iter().enumerate() {
        let at = path.child("hostAliases").index(index);
        if !is_ip(text(alias, "ip")) {
            errors.push(FieldError::invalid(&at.child("ip"), text(alias, "ip"), IP_ADDRESS));
        }
        for (position, name) in list(alias, "hostnames").iter().filter_map(Value::as_str).enumerate() {
            dns_subdomain(errors, &at.child("hostnames").index(position), name);
        }
    }
    for key in ["priorityClassName", "runtimeClassName"] {
        if !text(spec, key).is_empty() {
            dns_subdomain(errors, &path.child(key), text(spec, key));
        }
    }
    one_of(
        errors,
        spec,
        path,
        "preemptionPolicy",
        &["PreemptLowerPriority", "Never"],
    );
    if let Some(os) = present(spec, "os")
        && !matches!(text(os, "name"), "linux" | "windows")
    {
        errors.push(FieldError::not_supported(
            &path.child("os"),
            text(os, "name"),
            &["linux", "windows"],
        ));
    }
}

fn host_network(errors: &mut Errors, spec: &Value, path: &Path, is_pod: bool) {
    if !flag(spec, "hostNetwork") {
        return;
    }
    for (index, container) in list(spec, "containers").iter().enumerate() {
        for (position, port) in list(container, "ports").iter().enumerate() {
            let host = int(port, "hostPort").unwrap_or_default();
            if (is_pod || host != 0) && host != int(port, "containerPort").unwrap_or_default() {
                let at = path
                    .child("containers")
                    .index(index)
                    .child("ports")
                    .index(position)
                    .child("hostPort");
                errors.push(FieldError::invalid(
                    &at,
                    host,
                    "must match `containerPort` when `hostNetwork` is true",
                ));
            }
        }
    }
}

fn dns_config(errors: &mut Errors, spec: &Value, path: &Path) {
    match present(spec, "dnsConfig") {
        None => errors.push(FieldError::required(
            path,
            "must provide `dnsConfig` when `dnsPolicy` is None",
        )),
        Some(config) if list(config, "nameservers").is_empty() => errors.push(FieldError::required(
            &path.child("nameservers"),
            "must provide at least one DNS nameserver when `dnsPolicy` is None",
        )),
        Some(_) => {}
    }
}

fn security_context(errors: &mut Errors, spec: &Value, path: &Path) {
    let at = path.child("securityContext");
    if flag(spec, "shareProcessNamespace") && flag(spec, "hostPID") {
        let detail = "ShareProcessNamespace and HostPID cannot both be enabled";
        errors.push(FieldError::invalid(&at.child("shareProcessNamespace"), true, detail));
    }
    let Some(context) = present(spec, "securityContext") else {
        return;
    };
    user_ids(errors, context, &at, &["fsGroup", "runAsUser", "runAsGroup"]);
    for (index, group) in list(context, "supplementalGroups")
        .iter()
        .filter_map(Value::as_i64)
        .enumerate()
    {
        if !(0..=i64::from(i32::MAX)).contains(&group) {
            let place = at.child("supplementalGroups").index(index);
            errors.push(FieldError::invalid(&place, group, super::common::ID_RANGE));
        }
    }
    for (index, sysctl) in list(context, "sysctls").iter().enumerate() {
        let name = text(sysctl, "name");
        let place = at.child("sysctls").index(index).child("name");
        if name.is_empty() {
            errors.push(FieldError::required(&place, ""));
        } else if !is_sysctl(name) {
            let detail = format!("must have at most 253 characters and match regex {SYSCTL_REGEX}");
            errors.push(FieldError::invalid(&place, name, detail));
        }
    }
}

const SYSCTL_REGEX: &str = r"^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";

fn is_sysctl(name: &str) -> bool {
    let is_part = |part: &str| {
        part.starts_with(|first: char| first.is_ascii_lowercase() || first.is_ascii_digit())
            && part
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_".contains(&byte))
    };
    name.len() <= 253 && name.split(['.', '/']).all(is_part)
}

fn identity(errors: &mut Errors, spec: &Value, path: &Path) {
    for key in ["serviceAccountName", "nodeName"] {
        if !text(spec, key).is_empty() {
            dns_subdomain(errors, &path.child(key), text(spec, key));
        }
    }
    if let Some(deadline) =
        int(spec, "activeDeadlineSeconds").filter(|value| !(1..=i64::from(i32::MAX)).contains(value))
    {
        let detail = "must be between 1 and 2147483647, inclusive";
        errors.push(FieldError::invalid(
            &path.child("activeDeadlineSeconds"),
            deadline,
            detail,
        ));
    }
    for key in ["hostname", "subdomain"] {
        if !text(spec, key).is_empty() {
            dns_label(errors, &path.child(key), text(spec, key));
        }
    }
}

const UPDATE_REFUSED: &str = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

/// Images may be exchanged, deadlines shortened, tolerations added, gates opened; everything else stays.
pub fn update(errors: &mut Errors, new: &Value, old: &Value) {
    let path = Path::new("spec");
    spec(errors, &new["spec"], &path, true);
    let (new_spec, old_spec) = (&new["spec"], &old["spec"]);
    let mut stopped = false;
    for containers in ["containers", "initContainers"] {
        if list(new_spec, containers).len() != list(old_spec, containers).len() {
            let verb = "pod updates may not add or remove containers";
            errors.push(FieldError::forbidden(&path.child(containers), verb));
            stopped = true;
        }
    }
    if stopped {
        return;
    }
    deadline(errors, new_spec, old_spec, &path);
    scheduling::tolerations_update(errors, new_spec, old_spec, &path.child("tolerations"));
    scheduling::gates_update(errors, new_spec, old_spec, &path.child("schedulingGates"));
    let mut munged = new_spec.clone();
    for containers in ["containers", "initContainers"] {
        let before = list(old_spec, containers);
        for (container, before) in list_mut(&mut munged, containers).iter_mut().zip(before) {
            if let Some(image) = before.get("image") {
                set(container, "image", image.clone());
            }
        }
    }
    for field in [
        "activeDeadlineSeconds",
        "tolerations",
        "schedulingGates",
        "ephemeralContainers",
    ] {
        crate::builtin::fields::copy(old_spec, &mut munged, field);
    }
    if int(old_spec, "terminationGracePeriodSeconds").is_some_and(|period| period < 0)
        && int(new_spec, "terminationGracePeriodSeconds") == Some(1)
    {
        crate::builtin::fields::copy(old_spec, &mut munged, "terminationGracePeriodSeconds");
    }
    if !list(old_spec, "schedulingGates").is_empty() {
        remove(&mut munged, "nodeSelector");
    }
    let mut kept = old_spec.clone();
    if !list(old_spec, "schedulingGates").is_empty() {
        remove(&mut kept, "nodeSelector");
    }
    if munged != kept {
        errors.push(FieldError::forbidden(&path, format!("{UPDATE_REFUSED}\n")));
    }
}

fn deadline(errors: &mut Errors, new: &Value, old: &Value, path: &Path) {
    let at = path.child("activeDeadlineSeconds");
    match (int(new, "activeDeadlineSeconds"), int(old, "activeDeadlineSeconds")) {
        (Some(new), Some(old)) if new > old => {
            let detail = "must be less than or equal to previous value";
            errors.push(FieldError::invalid(&at, new, detail));
        }
        (None, Some(_)) => {
            errors.push(FieldError::invalid(
                &at,
                Value::Null,
                "must not update from a positive integer to nil value",
            ));
        }
        _ => {}
    }
}

/// What the status subresource may not do.
pub fn status_update(errors: &mut Errors, new: &Value, old: &Value) {
    let path = Path::new("status");
    let nominated = text(&new["status"], "nominatedNodeName");
    if !nominated.is_empty() {
        complain(
            errors,
            &path.child("nominatedNodeName"),
            nominated,
            names::dns_subdomain(nominated),
        );
    }
    let (new_class, old_class) = (text(&new["status"], "qosClass"), text(&old["status"], "qosClass"));
    if new_class != old_class {
        errors.push(FieldError::invalid(
            &path.child("qosClass"),
            new_class,
            "field is immutable",
        ));
    }
}

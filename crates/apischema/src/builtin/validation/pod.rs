//! Pods and pod templates: the spec beside its containers, and what an update may change.

use serde_json::Value;

use super::common::{Errors, dns_label, dns_subdomain, one_of, printed, qualified_name};
use super::container::{self, Surroundings, user_ids};
use super::{ephemeral, network, scheduling, volumes};
use crate::builtin::fields::{flag, int, list, list_mut, map, present, remove, set, text};
use crate::field_error::{ErrorKind, FieldError, Path};
use crate::structural::object_meta::{validate_annotations, validate_labels};

pub fn create(errors: &mut Errors, pod: &Value) {
    whole(errors, pod);
    let path = Path::new("spec");
    if !list(&pod["spec"], "ephemeralContainers").is_empty() {
        let at = path.child("ephemeralContainers");
        errors.push(FieldError::forbidden(&at, "cannot be set on create"));
    }
    if !text(&pod["spec"], "nodeName").is_empty() && !list(&pod["spec"], "schedulingGates").is_empty() {
        let detail = "cannot be set until all schedulingGates have been cleared";
        errors.push(FieldError::forbidden(&path.child("nodeName"), detail));
    }
}

/// What holds for a pod at all times: annotations with a meaning, the spec, and what templates may leave open.
fn whole(errors: &mut Errors, pod: &Value) {
    annotations(errors, pod);
    let path = Path::new("spec");
    spec(errors, &pod["spec"], &path, true);
    if !text(&pod["spec"], "serviceAccountName").is_empty() {
        return;
    }
    for (index, volume) in list(&pod["spec"], "volumes").iter().enumerate() {
        for (position, source) in list(&volume["projected"], "sources").iter().enumerate() {
            if present(source, "serviceAccountToken").is_some() {
                let projected = path.child("volumes").index(index).child("projected");
                let at = projected.child("sources").index(position).child("serviceAccountToken");
                let detail = "must not be specified when serviceAccountName is not set";
                errors.push(FieldError::forbidden(&at, detail));
            }
        }
    }
}

const MIRROR: &str = "kubernetes.io/config.mirror";

fn annotations(errors: &mut Errors, pod: &Value) {
    const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
    let path = Path::new("metadata").child("annotations");
    let given = |key: &str| pod["metadata"]["annotations"].get(key).and_then(Value::as_str);
    if let Some(value) = given(MIRROR).filter(|_| text(&pod["spec"], "nodeName").is_empty()) {
        let detail = "must set spec.nodeName if mirror pod annotation is set";
        errors.push(FieldError::invalid(&path.key(MIRROR), value, detail));
    }
    if let Some(cost) = given(DELETION_COST) {
        // Go reads `+5` and `05` too, but upstream wants neither.
        let is_plain = cost == "0" || !cost.trim_start_matches('-').starts_with(['+', '0']);
        if !is_plain || cost.parse::<i32>().is_err() {
            errors.push(FieldError::invalid(
                &path.key(DELETION_COST),
                cost,
                "must be a 32bit integer",
            ));
        }
    }
}

/// Whether a pod mirrors a file on its node is said once. Every update looks at the annotations again.
fn annotations_update(errors: &mut Errors, new: &Value, old: &Value) {
    let at = Path::new("metadata").child("annotations").key(MIRROR);
    let mirror = |pod: &Value| pod["metadata"]["annotations"].get(MIRROR).cloned();
    match (mirror(old), mirror(new)) {
        (Some(before), after) if after.as_ref() != Some(&before) => {
            errors.push(FieldError::forbidden(
                &at,
                "may not remove or update mirror pod annotation",
            ));
        }
        (None, Some(_)) => errors.push(FieldError::forbidden(&at, "may not add mirror pod annotation")),
        _ => {}
    }
    annotations(errors, new);
}

/// A write through `pods/ephemeralcontainers`.
pub fn ephemeral_containers_update(errors: &mut Errors, new: &Value, old: &Value) {
    whole(errors, new);
    annotations_update(errors, new, old);
    if old["metadata"]["annotations"].get(MIRROR).is_some() {
        // Of all that is wrong, upstream reports this alone, and its place prints as an empty list.
        let detail = "static pods do not support ephemeral containers";
        *errors = vec![FieldError::forbidden(&Path::new("[]"), detail)];
        return;
    }
    ephemeral::update(errors, new, old);
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
        network::address(errors, &at.child("ip"), text(alias, "ip"));
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
    whole(errors, new);
    annotations_update(errors, new, old);
    let (new_spec, old_spec) = (&new["spec"], &old["spec"]);
    for containers in ["containers", "initContainers"] {
        if list(new_spec, containers).len() != list(old_spec, containers).len() {
            let verb = "pod updates may not add or remove containers";
            errors.push(FieldError::forbidden(&path.child(containers), verb));
            return;
        }
        images(errors, list(new_spec, containers), &path.child(containers));
    }
    if !deadline(errors, new_spec, old_spec, &path) {
        return;
    }
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
    for field in ["activeDeadlineSeconds", "tolerations", "schedulingGates"] {
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

/// Images are looked at once more than the rest, since they may change; a refusal says so twice.
fn images(errors: &mut Errors, containers: &[Value], path: &Path) {
    for (index, container) in containers.iter().enumerate() {
        let at = path.index(index).child("image");
        let image = text(container, "image");
        if image.is_empty() {
            errors.push(FieldError::required(&at, ""));
        } else if image.trim() != image {
            errors.push(FieldError::invalid(
                &at,
                image,
                "must not have leading or trailing whitespace",
            ));
        }
    }
}

/// Deadlines may come and be shortened. Whether to look further: upstream stops at a bad one.
fn deadline(errors: &mut Errors, new: &Value, old: &Value, path: &Path) -> bool {
    let at = path.child("activeDeadlineSeconds");
    match (int(new, "activeDeadlineSeconds"), int(old, "activeDeadlineSeconds")) {
        (Some(new), _) if !(0..=i64::from(i32::MAX)).contains(&new) => {
            let detail = "must be between 0 and 2147483647, inclusive";
            errors.push(FieldError::invalid(&at, new, detail));
            return false;
        }
        (Some(new), Some(old)) if new > old => {
            errors.push(FieldError::invalid(
                &at,
                new,
                "must be less than or equal to previous value",
            ));
            return false;
        }
        (None, Some(_)) => {
            let detail = "must not update from a positive integer to nil value";
            errors.push(FieldError::invalid(&at, Value::Null, detail));
        }
        _ => {}
    }
    true
}

/// What the status subresource may not do.
pub fn status_update(errors: &mut Errors, new: &Value, old: &Value) {
    annotations_update(errors, new, old);
    let (path, status) = (Path::new("status"), &new["status"]);
    conditions(errors, status, &path.child("conditions"));
    let nominated = text(status, "nominatedNodeName");
    if !nominated.is_empty() && nominated != text(&old["status"], "nominatedNodeName") {
        let at = path.child("nominatedNodeName");
        dns_subdomain(errors, &at, nominated);
        if !text(&old["spec"], "nodeName").is_empty() {
            let detail = "may not be set on pods that are already bound to a node";
            errors.push(FieldError::forbidden(&at, detail));
        }
    }
    generation_seen(errors, status, &path);
    let (new_class, old_class) = (text(status, "qosClass"), text(&old["status"], "qosClass"));
    if new_class != old_class {
        errors.push(FieldError::invalid(
            &path.child("qosClass"),
            new_class,
            "field is immutable",
        ));
    }
    addresses(errors, status, &old["status"], &path.child("podIPs"), "podIPs");
    let host = list(status, "hostIPs").first().map(|first| text(first, "ip"));
    if let Some(first) = host.filter(|first| *first != text(status, "hostIP")) {
        let at = path.child("hostIPs").index(0).child("ip");
        errors.push(FieldError::invalid(&at, first, "must be equal to `hostIP`"));
    }
    addresses(errors, status, &old["status"], &path.child("hostIPs"), "hostIPs");
}

fn generation_seen(errors: &mut Errors, holder: &Value, path: &Path) {
    if let Some(seen) = int(holder, "observedGeneration").filter(|seen| *seen < 0) {
        let at = path.child("observedGeneration");
        errors.push(FieldError::invalid(&at, seen, "must be a non-negative integer"));
    }
}

fn conditions(errors: &mut Errors, status: &Value, path: &Path) {
    for (index, condition) in list(status, "conditions").iter().enumerate() {
        let at = path.index(index);
        generation_seen(errors, condition, &at);
        // Upstream names the Go field here.
        qualified_name(errors, &at.child("Type"), text(condition, "type"));
    }
}

/// One address per family; addresses that were there before may stay whatever they look like.
fn addresses(errors: &mut Errors, status: &Value, old: &Value, path: &Path, field: &str) {
    let known = |ip: &str| list(old, field).iter().any(|known| text(known, "ip") == ip);
    let given: Vec<&str> = list(status, field).iter().map(|entry| text(entry, "ip")).collect();
    for (index, ip) in given.iter().enumerate() {
        if !known(ip) {
            network::address(errors, &path.index(index), ip);
        }
    }
    let families: Vec<bool> = given.iter().map(|ip| ip.contains(':')).collect();
    if families.len() > 2 || (families.len() == 2 && families[0] == families[1]) {
        let shown = given.iter().map(|ip| format!("{{\"IP\":{}}}", Value::from(*ip)));
        let shown = format!("[{}]", shown.collect::<Vec<_>>().join(","));
        let detail = "may specify no more than one IP for each IP family";
        errors.push(printed(ErrorKind::Invalid, path, &shown, detail));
    }
}

//! Nodes, namespaces, config maps, secrets, endpoints and volumes.

use serde_json::Value;

use super::common::{
    Errors, IP_ADDRESS, amounts, complain, config_key, dns_subdomain, immutable, is_ip, one_of, printed, quantity,
};
use super::{scheduling, volumes};
use crate::builtin::fields::{flag, int, list, map, present, text};
use crate::field_error::{ErrorKind, FieldError, Path};
use crate::structural::names;

const MAX_DATA: usize = 1024 * 1024;
const FROZEN: &str = "field is immutable when `immutable` is set";

pub fn node(errors: &mut Errors, node: &Value) {
    scheduling::taints(errors, node);
    let status = Path::new("status");
    amounts(errors, &node["status"], &status, "capacity");
    amounts(errors, &node["status"], &status, "allocatable");
    let ranges = list(&node["spec"], "podCIDRs");
    let path = Path::new("spec").child("podCIDRs");
    for (index, range) in ranges.iter().filter_map(Value::as_str).enumerate() {
        if !is_range(range) {
            errors.push(FieldError::invalid(&path.index(index), range, super::network::IP_RANGE));
        }
    }
    let families: Vec<bool> = ranges
        .iter()
        .filter_map(Value::as_str)
        .map(|range| range.contains(':'))
        .collect();
    if families.len() > 2 || (families.len() == 2 && families[0] == families[1]) {
        let detail = "may specify no more than one CIDR for each IP family";
        errors.push(FieldError::invalid(&path, ranges.to_vec(), detail));
    }
}

fn is_range(value: &str) -> bool {
    let Some((address, bits)) = value.split_once('/') else {
        return false;
    };
    let most = if address.contains(':') { 128 } else { 32 };
    is_ip(address) && bits.parse::<u8>().is_ok_and(|bits| bits <= most)
}

pub fn node_update(errors: &mut Errors, new: &Value, old: &Value) {
    let spec = Path::new("spec");
    let status = Path::new("status");
    amounts(errors, &new["status"], &status, "capacity");
    amounts(errors, &new["status"], &status, "allocatable");
    let addresses = list(&new["status"], "addresses");
    for (index, address) in addresses.iter().enumerate() {
        if addresses[..index].contains(address) {
            let shown = format!("{{\"Type\":{},\"Address\":{}}}", address["type"], address["address"]);
            errors.push(printed(
                ErrorKind::Duplicate,
                &status.child("addresses").index(index),
                &shown,
                "",
            ));
        }
    }
    let before = list(&old["spec"], "podCIDRs");
    if !before.is_empty() && before != list(&new["spec"], "podCIDRs") {
        let detail = "node updates may not change podCIDR except from \"\" to valid";
        errors.push(FieldError::forbidden(&spec.child("podCIDRs"), detail));
    }
    let provider = text(&old["spec"], "providerID");
    if !provider.is_empty() && provider != text(&new["spec"], "providerID") {
        let detail = "node updates may not change providerID except from \"\" to valid";
        errors.push(FieldError::forbidden(&spec.child("providerID"), detail));
    }
    scheduling::taints(errors, new);
}

pub fn namespace(errors: &mut Errors, namespace: &Value) {
    let path = Path::new("spec").child("finalizers");
    for finalizer in list(&namespace["spec"], "finalizers").iter().filter_map(Value::as_str) {
        let complaints = names::qualified_name(finalizer);
        let is_fine = complaints.is_empty();
        complain(errors, &path, finalizer, complaints);
        if is_fine && !finalizer.contains('/') && finalizer != "kubernetes" {
            let detail = "name is neither a standard finalizer name nor is it fully qualified";
            errors.push(FieldError::invalid(&path, finalizer, detail));
        }
    }
}

pub fn namespace_status(errors: &mut Errors, namespace: &Value) {
    let phase = text(&namespace["status"], "phase");
    let is_deleted = present(&namespace["metadata"], "deletionTimestamp").is_some();
    let at = Path::new("status").child("Phase");
    if !is_deleted && phase != "Active" {
        errors.push(FieldError::invalid(
            &at,
            phase,
            "may only be 'Active' if `deletionTimestamp` is empty",
        ));
    } else if is_deleted && phase != "Terminating" {
        errors.push(FieldError::invalid(
            &at,
            phase,
            "may only be 'Terminating' if `deletionTimestamp` is not empty",
        ));
    }
}

pub fn config_map(errors: &mut Errors, object: &Value) {
    let mut size = 0;
    for (key, value) in map(object, "data").into_iter().flatten() {
        let at = Path::new("data").key(key);
        complain(errors, &at, key, config_key(key));
        if map(object, "binaryData").is_some_and(|binary| binary.contains_key(key)) {
            errors.push(FieldError::invalid(
                &at,
                key.as_str(),
                "duplicate of key present in binaryData",
            ));
        }
        size += value.as_str().map_or(0, str::len);
    }
    for (key, value) in map(object, "binaryData").into_iter().flatten() {
        complain(errors, &Path::new("binaryData").key(key), key, config_key(key));
        size += decoded_length(value);
    }
    if size > MAX_DATA {
        errors.push(FieldError::too_long(&Path::root(), MAX_DATA as u64));
    }
}

/// How many bytes a base64 text stands for.
fn decoded_length(value: &Value) -> usize {
    let text = value.as_str().unwrap_or_default();
    text.len() / 4 * 3
        - text
            .bytes()
            .rev()
            .take_while(|byte| *byte == b'=')
            .count()
            .min(text.len())
}

pub fn config_map_update(errors: &mut Errors, new: &Value, old: &Value) {
    frozen(errors, new, old, &["data", "binaryData"]);
    config_map(errors, new);
}

fn frozen(errors: &mut Errors, new: &Value, old: &Value, fields: &[&str]) {
    if !flag(old, "immutable") {
        return;
    }
    if !flag(new, "immutable") {
        errors.push(FieldError::forbidden(&Path::new("immutable"), FROZEN));
    }
    for field in fields {
        if map(new, field) != map(old, field) {
            errors.push(FieldError::forbidden(&Path::new(field), FROZEN));
        }
    }
}

pub fn secret(errors: &mut Errors, object: &Value) {
    let data = map(object, "data");
    let mut size = 0;
    for (key, value) in data.into_iter().flatten() {
        complain(errors, &Path::new("data").key(key), key, config_key(key));
        size += decoded_length(value);
    }
    if size > MAX_DATA {
        errors.push(FieldError::too_long(&Path::new("data"), MAX_DATA as u64));
    }
    let has = |key: &str| data.is_some_and(|data| data.contains_key(key));
    let mut require = |keys: &[&str]| {
        for key in keys.iter().filter(|key| !has(key)) {
            errors.push(FieldError::required(&Path::new("data").key(key), ""));
        }
    };
    match text(object, "type") {
        "kubernetes.io/basic-auth" if !has("username") && !has("password") => require(&["username", "password"]),
        "kubernetes.io/ssh-auth" => require(&["ssh-privatekey"]),
        "kubernetes.io/tls" => require(&["tls.crt", "tls.key"]),
        "kubernetes.io/dockerconfigjson" => docker_config(errors, data, ".dockerconfigjson"),
        "kubernetes.io/dockercfg" => docker_config(errors, data, ".dockercfg"),
        "kubernetes.io/service-account-token" => {
            const ACCOUNT: &str = "kubernetes.io/service-account.name";
            if text(&object["metadata"]["annotations"], ACCOUNT).is_empty() {
                errors.push(FieldError::required(
                    &Path::new("metadata").child("annotations").key(ACCOUNT),
                    "",
                ));
            }
        }
        _ => {}
    }
}

fn docker_config(errors: &mut Errors, data: Option<&serde_json::Map<String, Value>>, key: &str) {
    use base64::Engine as _;
    let at = Path::new("data").key(key);
    let Some(value) = data.and_then(|data| data.get(key)).and_then(Value::as_str) else {
        errors.push(FieldError::required(&at, ""));
        return;
    };
    let bytes = base64::engine::general_purpose::STANDARD
        .decode(value)
        .unwrap_or_default();
    if serde_json::from_slice::<serde_json::Map<String, Value>>(&bytes).is_err() {
        let first = bytes
            .first()
            .map_or_else(String::new, |byte| char::from(*byte).to_string());
        let detail = if first.is_empty() {
            "unexpected end of JSON input".to_owned()
        } else {
            format!("invalid character '{first}' looking for beginning of value")
        };
        errors.push(FieldError::invalid(&at, "<secret contents redacted>", detail));
    }
}

pub fn secret_update(errors: &mut Errors, new: &Value, old: &Value) {
    immutable(errors, new.get("type"), old.get("type"), &Path::new("type"));
    frozen(errors, new, old, &["data"]);
    secret(errors, new);
}

pub fn endpoints(errors: &mut Errors, object: &Value) {
    for (index, subset) in list(object, "subsets").iter().enumerate() {
        let at = Path::new("subsets").index(index);
        if list(subset, "addresses").is_empty() && list(subset, "notReadyAddresses").is_empty() {
            errors.push(FieldError::required(
                &at,
                "must specify `addresses` or `notReadyAddresses`",
            ));
        }
        for kind in ["addresses", "notReadyAddresses"] {
            for (position, address) in list(subset, kind).iter().enumerate() {
                let here = at.child(kind).index(position).child("ip");
                let ip = text(address, "ip");
                if !is_ip(ip) {
                    errors.push(FieldError::invalid(&here, ip, IP_ADDRESS));
                    errors.push(FieldError::invalid(&here, ip, "must be a valid IP address"));
                }
            }
        }
        for (position, port) in list(subset, "ports").iter().enumerate() {
            let here = at.child("ports").index(position);
            let number = int(port, "port").unwrap_or_default();
            if !(1..=65535).contains(&number) {
                errors.push(FieldError::invalid(
                    &here.child("port"),
                    number,
                    super::common::PORT_RANGE,
                ));
            }
            one_of(errors, port, &here, "protocol", &["SCTP", "TCP", "UDP"]);
        }
    }
}

const ACCESS_MODES: [&str; 4] = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];

fn access_modes(errors: &mut Errors, spec: &Value, path: &Path) {
    let modes = list(spec, "accessModes");
    for mode in modes
        .iter()
        .filter_map(Value::as_str)
        .filter(|mode| !ACCESS_MODES.contains(mode))
    {
        errors.push(FieldError::not_supported(path, mode, &ACCESS_MODES));
    }
    if modes.len() > 1 && modes.iter().any(|mode| mode == "ReadWriteOncePod") {
        errors.push(FieldError::forbidden(
            path,
            "may not use ReadWriteOncePod with other access modes",
        ));
    }
}

/// Fields of a volume's spec that are not its source.
const NO_SOURCE: [&str; 9] = [
    "accessModes",
    "capacity",
    "claimRef",
    "mountOptions",
    "nodeAffinity",
    "persistentVolumeReclaimPolicy",
    "storageClassName",
    "volumeAttributesClassName",
    "volumeMode",
];

fn sources(spec: &Value) -> Vec<(&String, &Value)> {
    let fields = spec.as_object().into_iter().flatten();
    fields.filter(|(key, _)| !NO_SOURCE.contains(&key.as_str())).collect()
}

pub fn persistent_volume_update(errors: &mut Errors, new: &Value, old: &Value) {
    persistent_volume(errors, new);
    if sources(&new["spec"]) != sources(&old["spec"]) {
        let at = Path::new("spec").child("persistentvolumesource");
        errors.push(FieldError::forbidden(
            &at,
            "spec.persistentvolumesource is immutable after creation\n",
        ));
    }
    immutable(
        errors,
        new["spec"].get("volumeMode"),
        old["spec"].get("volumeMode"),
        &Path::new("volumeMode"),
    );
}

pub fn persistent_volume(errors: &mut Errors, object: &Value) {
    let (spec, path) = (&object["spec"], Path::new("spec"));
    if list(spec, "accessModes").is_empty() {
        errors.push(FieldError::required(&path.child("accessModes"), ""));
    }
    access_modes(errors, spec, &path.child("accessModes"));
    let capacity = map(spec, "capacity");
    let at = path.child("capacity");
    if capacity.is_none() {
        errors.push(FieldError::required(&at, ""));
    }
    if capacity.is_none_or(|capacity| capacity.len() > 1 || !capacity.contains_key("storage")) {
        let given = spec.get("capacity").cloned().unwrap_or_default();
        errors.push(FieldError::not_supported(&at, given, &["storage"]));
    }
    for (name, amount) in capacity.into_iter().flatten() {
        if quantity(Some(amount)).is_some_and(|amount| amount.is_negative() || amount.is_zero()) {
            errors.push(FieldError::invalid(
                &at.key(name),
                amount.clone(),
                "must be greater than zero",
            ));
        }
    }
    one_of(
        errors,
        spec,
        &path,
        "persistentVolumeReclaimPolicy",
        &["Delete", "Recycle", "Retain"],
    );
    match sources(spec).as_slice() {
        [] => errors.push(FieldError::required(&path, "must specify a volume type")),
        [_] => {}
        [_, rest @ ..] => {
            for (source, _) in rest {
                let detail = "may not specify more than 1 volume type";
                errors.push(FieldError::forbidden(&path.child(source), detail));
            }
        }
    }
    if let Some(host) = present(spec, "hostPath") {
        volumes::host_path(errors, host, &path.child("hostPath"));
    }
    if !text(spec, "storageClassName").is_empty() {
        dns_subdomain(errors, &path.child("storageClassName"), text(spec, "storageClassName"));
    }
    one_of(errors, spec, &path, "volumeMode", &["Block", "Filesystem"]);
}

pub fn persistent_volume_claim(errors: &mut Errors, object: &Value) {
    let (spec, path) = (&object["spec"], Path::new("spec"));
    if list(spec, "accessModes").is_empty() {
        errors.push(FieldError::required(
            &path.child("accessModes"),
            "at least 1 access mode is required",
        ));
    }
    if let Some(selector) = present(spec, "selector") {
        super::common::label_selector(errors, selector, &path.child("selector"));
    }
    access_modes(errors, spec, &path.child("accessModes"));
    let at = path.child("resources").key("storage");
    match spec["resources"]["requests"].get("storage") {
        None => errors.push(FieldError::required(&at, "")),
        Some(amount) => {
            if quantity(Some(amount)).is_some_and(|amount| amount.is_negative() || amount.is_zero()) {
                errors.push(FieldError::invalid(&at, amount.clone(), "must be greater than zero"));
            }
        }
    }
    if !text(spec, "storageClassName").is_empty() {
        dns_subdomain(errors, &path.child("storageClassName"), text(spec, "storageClassName"));
    }
    one_of(errors, spec, &path, "volumeMode", &["Block", "Filesystem"]);
}

pub fn persistent_volume_claim_update(errors: &mut Errors, new: &Value, old: &Value) {
    persistent_volume_claim(errors, new);
    let mut munged = new["spec"].clone();
    let mut kept = old["spec"].clone();
    if text(&kept, "volumeName").is_empty() {
        crate::builtin::fields::copy(&munged, &mut kept, "volumeName");
    }
    if present(&kept, "storageClassName").is_none() {
        crate::builtin::fields::copy(&munged, &mut kept, "storageClassName");
    }
    if text(&new["status"], "phase") == "Bound" {
        munged["resources"]["requests"]["storage"] = kept["resources"]["requests"]["storage"].clone();
        crate::builtin::fields::copy(&kept, &mut munged, "volumeAttributesClassName");
    }
    let path = Path::new("spec");
    if munged != kept {
        let detail = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims\n";
        errors.push(FieldError::forbidden(&path, detail));
    }
    let size = |object: &Value| quantity(object["spec"]["resources"]["requests"].get("storage"));
    let has = quantity(old["status"]["capacity"].get("storage"));
    if let (Some(wanted), Some(before)) = (size(new), size(old))
        && wanted < before
        && has.is_some_and(|has| wanted <= has)
    {
        let at = path.child("resources").child("requests").child("storage");
        errors.push(FieldError::forbidden(&at, "field can not be less than status.capacity"));
    }
    immutable(
        errors,
        new["spec"].get("volumeMode"),
        old["spec"].get("volumeMode"),
        &Path::new("volumeMode"),
    );
}

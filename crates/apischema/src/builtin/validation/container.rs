//! Containers of a pod: names, images, ports, environment, mounts, probes and hooks.

use std::collections::BTreeSet;

use serde_json::Value;

use super::common::{
    Errors, ID_RANGE, PORT_RANGE, complain, config_key, dns_label, dns_subdomain, not_negative, one_of, port_name,
    port_number_or_name, printed, relative_path, resources,
};
use super::ephemeral;
use crate::builtin::fields::{flag, int, list, map, present, text};
use crate::field_error::{ErrorKind, FieldError, Path};

/// What a pod's containers are checked against.
pub struct Surroundings<'a> {
    pub volumes: BTreeSet<&'a str>,
    /// Volumes that may be used as block devices.
    pub block_volumes: BTreeSet<&'a str>,
    pub is_pod: bool,
}

pub fn containers(errors: &mut Errors, spec: &Value, path: &Path, around: &Surroundings<'_>) {
    let at = path.child("containers");
    let regular = list(spec, "containers");
    if regular.is_empty() {
        errors.push(FieldError::required(&at, ""));
    }
    let mut names = BTreeSet::new();
    for (index, container) in regular.iter().enumerate() {
        let at = at.index(index);
        common(errors, container, &at, around);
        let name = text(container, "name");
        if !names.insert(name) {
            errors.push(FieldError::duplicate(&at.child("name"), name));
        }
        hooks_and_probes(errors, container, &at);
    }
    host_ports(errors, regular, &at);
    init_containers(errors, spec, &path.child("initContainers"), around, &mut names);
    ephemeral::containers(errors, spec, &path.child("ephemeralContainers"), around);
}

fn init_containers<'a>(
    errors: &mut Errors,
    spec: &'a Value,
    path: &Path,
    around: &Surroundings<'_>,
    names: &mut BTreeSet<&'a str>,
) {
    for (index, container) in list(spec, "initContainers").iter().enumerate() {
        let at = path.index(index);
        common(errors, container, &at, around);
        let name = text(container, "name");
        if names.contains(name) {
            errors.push(FieldError::duplicate(&at.child("name"), name));
        } else if !name.is_empty() {
            names.insert(name);
        }
        host_ports(errors, std::slice::from_ref(container), path);
        if text(container, "restartPolicy") == "Always" {
            hooks_and_probes(errors, container, &at);
            continue;
        }
        for field in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
            if present(container, field).is_some() {
                let detail = "may not be set for init containers without restartPolicy=Always";
                errors.push(FieldError::forbidden(&at.child(field), detail));
            }
        }
    }
}

pub fn common(errors: &mut Errors, container: &Value, path: &Path, around: &Surroundings<'_>) {
    let name = text(container, "name");
    if name.is_empty() {
        errors.push(FieldError::required(&path.child("name"), ""));
    } else {
        dns_label(errors, &path.child("name"), name);
    }
    let image = text(container, "image");
    // A template may leave the image to whoever fills it in, so only real pods are held to its form.
    if image.is_empty() {
        errors.push(FieldError::required(&path.child("image"), ""));
    } else if around.is_pod && image.trim() != image {
        errors.push(FieldError::invalid(
            &path.child("image"),
            image,
            "must not have leading or trailing whitespace",
        ));
    }
    one_of(
        errors,
        container,
        path,
        "terminationMessagePolicy",
        &["File", "FallbackToLogsOnError"],
    );
    ports(errors, container, &path.child("ports"));
    environment(errors, container, path);
    mounts(errors, container, path, around);
    one_of(
        errors,
        container,
        path,
        "imagePullPolicy",
        &["Always", "IfNotPresent", "Never"],
    );
    if let Some(wanted) = present(container, "resources") {
        resources(errors, wanted, &path.child("resources"));
    }
    if let Some(context) = present(container, "securityContext") {
        security_context(errors, context, &path.child("securityContext"));
    }
}

fn ports(errors: &mut Errors, container: &Value, path: &Path) {
    let mut names = BTreeSet::new();
    for (index, port) in list(container, "ports").iter().enumerate() {
        let at = path.index(index);
        let name = text(port, "name");
        if !name.is_empty() {
            let complaints = port_name(name);
            let is_fine = complaints.is_empty();
            complain(errors, &at.child("name"), name, complaints);
            if is_fine && !names.insert(name) {
                errors.push(FieldError::duplicate(&at.child("name"), name));
            }
        }
        match int(port, "containerPort").unwrap_or_default() {
            0 => errors.push(FieldError::required(&at.child("containerPort"), "")),
            number if !(1..=65535).contains(&number) => {
                errors.push(FieldError::invalid(&at.child("containerPort"), number, PORT_RANGE));
            }
            _ => {}
        }
        let host = int(port, "hostPort").unwrap_or_default();
        if host != 0 && !(1..=65535).contains(&host) {
            errors.push(FieldError::invalid(&at.child("hostPort"), host, PORT_RANGE));
        }
        one_of(errors, port, &at, "protocol", &["SCTP", "TCP", "UDP"]);
    }
}

fn host_ports(errors: &mut Errors, containers: &[Value], path: &Path) {
    let mut taken = BTreeSet::new();
    for (index, container) in containers.iter().enumerate() {
        for (position, port) in list(container, "ports").iter().enumerate() {
            let host = int(port, "hostPort").unwrap_or_default();
            if host == 0 {
                continue;
            }
            let key = format!("{}/{}/{host}", text(port, "protocol"), text(port, "hostIP"));
            let at = path.index(index).child("ports").index(position).child("hostPort");
            if !taken.insert(key.clone()) {
                errors.push(FieldError::duplicate(&at, key));
            }
        }
    }
}

fn environment(errors: &mut Errors, container: &Value, path: &Path) {
    for (index, variable) in list(container, "env").iter().enumerate() {
        let at = path.child("env").index(index);
        let name = text(variable, "name");
        if name.is_empty() {
            errors.push(FieldError::required(&at.child("name"), ""));
        } else {
            variable_name(errors, &at.child("name"), name);
        }
        if let Some(source) = present(variable, "valueFrom") {
            variable_source(errors, source, &at.child("valueFrom"), text(variable, "value"));
        }
    }
    let at = path.child("envFrom");
    for (index, source) in list(container, "envFrom").iter().enumerate() {
        let here = at.index(index);
        let prefix = text(source, "prefix");
        if !prefix.is_empty() {
            variable_name(errors, &here.child("prefix"), prefix);
        }
        let mut sources = 0;
        for kind in ["configMapRef", "secretRef"] {
            let Some(reference) = present(source, kind) else {
                continue;
            };
            sources += 1;
            match text(reference, "name") {
                "" => errors.push(FieldError::required(&here.child(kind).child("name"), "")),
                name => dns_subdomain(errors, &here.child(kind).child("name"), name),
            }
        }
        match sources {
            0 => errors.push(FieldError::invalid(
                &at,
                "",
                "must specify one of: `configMapRef` or `secretRef`",
            )),
            1 => {}
            _ => errors.push(FieldError::invalid(
                &at,
                "",
                "may not have more than one field specified at a time",
            )),
        }
    }
}

fn variable_name(errors: &mut Errors, path: &Path, name: &str) {
    if !name.bytes().all(|byte| (0x20..0x7f).contains(&byte) && byte != b'=') {
        let detail = "a valid environment variable name must consist only of printable ASCII characters other than '='";
        errors.push(FieldError::invalid(path, name, detail));
    }
}

fn variable_source(errors: &mut Errors, source: &Value, path: &Path, value: &str) {
    let mut sources = 0;
    if let Some(field) = present(source, "fieldRef") {
        sources += 1;
        field_selector(errors, field, &path.child("fieldRef"), &DOWNWARD_VARIABLES);
    }
    if let Some(field) = present(source, "resourceFieldRef") {
        sources += 1;
        if text(field, "resource").is_empty() {
            errors.push(FieldError::required(
                &path.child("resourceFieldRef").child("resource"),
                "",
            ));
        }
    }
    for kind in ["configMapKeyRef", "secretKeyRef"] {
        let Some(reference) = present(source, kind) else {
            continue;
        };
        sources += 1;
        let at = path.child(kind);
        dns_subdomain(errors, &at.child("name"), text(reference, "name"));
        match text(reference, "key") {
            "" => errors.push(FieldError::required(&at.child("key"), "")),
            key => complain(errors, &at.child("key"), key, config_key(key)),
        }
    }
    sources += usize::from(present(source, "fileKeyRef").is_some());
    if sources == 0 {
        let detail =
            "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`";
        errors.push(FieldError::invalid(path, "", detail));
    } else if !value.is_empty() {
        errors.push(FieldError::invalid(
            path,
            "",
            "may not be specified when `value` is not empty",
        ));
    } else if sources > 1 {
        errors.push(FieldError::invalid(
            path,
            "",
            "may not have more than one field specified at a time",
        ));
    }
}

const DOWNWARD_VARIABLES: [&str; 9] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.podIP",
    "status.hostIPs",
    "status.podIPs",
];

/// A field of the pod that a variable or file shows.
pub fn field_selector(errors: &mut Errors, field: &Value, path: &Path, supported: &[&str]) {
    let field_path = text(field, "fieldPath");
    let at = path.child("fieldPath");
    if field_path.is_empty() {
        errors.push(FieldError::required(&at, ""));
        return;
    }
    if field_path.starts_with("metadata.labels[") || field_path.starts_with("metadata.annotations[") {
        return;
    }
    let known = [
        "metadata.labels",
        "metadata.annotations",
        "spec.restartPolicy",
        "spec.schedulerName",
        "status.phase",
    ];
    if !DOWNWARD_VARIABLES.contains(&field_path) && !known.contains(&field_path) {
        let detail = format!("error converting fieldPath: field label not supported: {field_path}");
        errors.push(FieldError::invalid(&at, field_path, detail));
    } else if !supported.contains(&field_path) {
        let mut supported = supported.to_vec();
        supported.sort_unstable();
        errors.push(FieldError::not_supported(&at, field_path, &supported));
    }
}

fn mounts(errors: &mut Errors, container: &Value, path: &Path, around: &Surroundings<'_>) {
    let at = path.child("volumeMounts");
    let mut points = BTreeSet::new();
    let devices = list(container, "volumeDevices");
    for (index, mount) in list(container, "volumeMounts").iter().enumerate() {
        let here = at.index(index);
        let (name, point) = (text(mount, "name"), text(mount, "mountPath"));
        if name.is_empty() {
            errors.push(FieldError::required(&here.child("name"), ""));
        }
        if !around.volumes.contains(name) {
            errors.push(FieldError::not_found(&here.child("name"), name));
        }
        if point.is_empty() {
            errors.push(FieldError::required(&here.child("mountPath"), ""));
        }
        if !points.insert(point) {
            errors.push(FieldError::invalid(&here.child("mountPath"), point, "must be unique"));
        }
        if devices.iter().any(|device| text(device, "name") == name) {
            errors.push(FieldError::invalid(
                &here.child("name"),
                name,
                "must not already exist in volumeDevices",
            ));
        }
        // Upstream names no index for these two.
        for key in ["subPath", "subPathExpr"] {
            relative_path(errors, &at.child(key), text(mount, key));
        }
        let propagation = text(mount, "mountPropagation");
        if propagation == "Bidirectional" && !flag(&container["securityContext"], "privileged") {
            let detail = "Bidirectional mount propagation is available only to privileged containers";
            errors.push(FieldError::forbidden(&at.child("mountPropagation"), detail));
        } else {
            one_of(
                errors,
                mount,
                &at,
                "mountPropagation",
                &["Bidirectional", "HostToContainer", "None"],
            );
        }
    }
    for (index, device) in devices.iter().enumerate() {
        let here = path.child("volumeDevices").index(index);
        let name = text(device, "name");
        if !around.volumes.contains(name) {
            errors.push(FieldError::not_found(&here.child("name"), name));
        } else if !around.block_volumes.contains(name) {
            let detail = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode";
            errors.push(FieldError::invalid(&here.child("name"), name, detail));
        }
        if text(device, "devicePath").is_empty() {
            errors.push(FieldError::required(&here.child("devicePath"), ""));
        }
    }
}

fn security_context(errors: &mut Errors, context: &Value, path: &Path) {
    user_ids(errors, context, path, &["runAsUser", "runAsGroup"]);
    let is_privileged = flag(context, "privileged");
    if context.get("allowPrivilegeEscalation") == Some(&Value::Bool(false)) && is_privileged {
        let detail = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true";
        errors.push(printed(ErrorKind::Invalid, path, &go_security_context(context), detail));
    }
}

/// The internal struct as upstream prints it.
fn go_security_context(context: &Value) -> String {
    let shown = |key: &str| context.get(key).map_or_else(|| "null".to_owned(), Value::to_string);
    let fields = [
        ("Capabilities", "capabilities"),
        ("Privileged", "privileged"),
        ("SELinuxOptions", "seLinuxOptions"),
        ("WindowsOptions", "windowsOptions"),
        ("RunAsUser", "runAsUser"),
        ("RunAsGroup", "runAsGroup"),
        ("RunAsNonRoot", "runAsNonRoot"),
        ("ReadOnlyRootFilesystem", "readOnlyRootFilesystem"),
        ("AllowPrivilegeEscalation", "allowPrivilegeEscalation"),
        ("ProcMount", "procMount"),
        ("SeccompProfile", "seccompProfile"),
        ("AppArmorProfile", "appArmorProfile"),
    ];
    let printed: Vec<String> = fields
        .iter()
        .map(|(name, key)| format!("\"{name}\":{}", shown(key)))
        .collect();
    format!("{{{}}}", printed.join(","))
}

/// User and group ids.
pub fn user_ids(errors: &mut Errors, holder: &Value, path: &Path, keys: &[&str]) {
    for key in keys {
        if let Some(id) = int(holder, key).filter(|id| !(0..=i64::from(i32::MAX)).contains(id)) {
            errors.push(FieldError::invalid(&path.child(key), id, ID_RANGE));
        }
    }
}

fn hooks_and_probes(errors: &mut Errors, container: &Value, path: &Path) {
    if let Some(lifecycle) = present(container, "lifecycle") {
        for hook in ["postStart", "preStop"] {
            if let Some(handler) = present(lifecycle, hook) {
                self::handler(errors, handler, &path.child("lifecycle").child(hook));
            }
        }
    }
    for (key, single_success) in [
        ("livenessProbe", true),
        ("readinessProbe", false),
        ("startupProbe", true),
    ] {
        let Some(probe) = present(container, key) else { continue };
        let at = path.child(key);
        self::handler(errors, probe, &at);
        let counts = [
            "initialDelaySeconds",
            "timeoutSeconds",
            "periodSeconds",
            "successThreshold",
            "failureThreshold",
        ];
        not_negative(errors, probe, &at, &counts);
        let grace = int(probe, "terminationGracePeriodSeconds");
        if let Some(grace) = grace.filter(|grace| *grace <= 0) {
            errors.push(FieldError::invalid(
                &at.child("terminationGracePeriodSeconds"),
                grace,
                "must be greater than 0",
            ));
        }
        if single_success {
            if let Some(threshold) = int(probe, "successThreshold").filter(|threshold| *threshold != 1) {
                errors.push(FieldError::invalid(
                    &at.child("successThreshold"),
                    threshold,
                    "must be 1",
                ));
            }
        } else if let Some(grace) = grace {
            let detail = "must not be set for readinessProbes";
            errors.push(FieldError::invalid(
                &at.child("terminationGracePeriodSeconds"),
                grace,
                detail,
            ));
        }
    }
}

fn handler(errors: &mut Errors, handler: &Value, path: &Path) {
    let mut handlers = 0;
    for key in ["exec", "httpGet", "tcpSocket", "grpc", "sleep"] {
        let Some(action) = present(handler, key) else { continue };
        let at = path.child(key);
        handlers += 1;
        if handlers > 1 {
            errors.push(FieldError::forbidden(&at, "may not specify more than 1 handler type"));
            continue;
        }
        match key {
            "exec" if list(action, "command").is_empty() => {
                errors.push(FieldError::required(&at.child("command"), ""));
            }
            "httpGet" => {
                if text(action, "path").is_empty() {
                    errors.push(FieldError::required(&at.child("path"), ""));
                }
                port_number_or_name(errors, &at.child("port"), action.get("port"));
                one_of(errors, action, &at, "scheme", &["HTTP", "HTTPS"]);
            }
            "tcpSocket" => port_number_or_name(errors, &at.child("port"), action.get("port")),
            "grpc" => {
                let port = int(action, "port").unwrap_or_default();
                if !(1..=65535).contains(&port) {
                    errors.push(FieldError::invalid(&at.child("port"), port, PORT_RANGE));
                }
            }
            _ => {}
        }
    }
    if handlers == 0 {
        errors.push(FieldError::required(path, "must specify a handler type"));
    }
}

/// The labels of a pod template or pod, for selectors.
pub fn labels(holder: &Value) -> Option<&serde_json::Map<String, Value>> {
    map(&holder["metadata"], "labels")
}

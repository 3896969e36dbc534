//! Volumes of a pod: names, and one source each.

use std::collections::BTreeSet;

use serde_json::Value;

use super::common::{Errors, dns_label, no_parent, one_of, relative_path};
use super::container::field_selector;
use crate::builtin::fields::{int, list, present, text};
use crate::field_error::{FieldError, Path};

/// The volumes that containers may name.
pub struct Known<'a> {
    pub all: BTreeSet<&'a str>,
    pub block: BTreeSet<&'a str>,
}

/// Sources in the order in which upstream looks at them.
const SOURCES: [&str; 29] = [
    "emptyDir",
    "hostPath",
    "gitRepo",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "secret",
    "nfs",
    "iscsi",
    "glusterfs",
    "flocker",
    "persistentVolumeClaim",
    "rbd",
    "cinder",
    "cephfs",
    "quobyte",
    "downwardAPI",
    "fc",
    "flexVolume",
    "azureFile",
    "configMap",
    "vsphereVolume",
    "portworxVolume",
    "azureDisk",
    "storageos",
    "photonPersistentDisk",
    "projected",
    "scaleIO",
    "csi",
    "ephemeral",
];

pub fn volumes<'a>(errors: &mut Errors, spec: &'a Value, path: &Path) -> Known<'a> {
    let mut known = Known {
        all: BTreeSet::new(),
        block: BTreeSet::new(),
    };
    for (index, volume) in list(spec, "volumes").iter().enumerate() {
        let at = path.index(index);
        let name = text(volume, "name");
        let before = errors.len();
        source(errors, volume, &at);
        if name.is_empty() {
            errors.push(FieldError::required(&at.child("name"), ""));
        } else {
            dns_label(errors, &at.child("name"), name);
        }
        if known.all.contains(name) {
            errors.push(FieldError::duplicate(&at.child("name"), name));
        }
        if errors.len() == before {
            known.all.insert(name);
            let is_block = ["persistentVolumeClaim", "ephemeral"]
                .iter()
                .any(|kind| present(volume, kind).is_some());
            if is_block {
                known.block.insert(name);
            }
        }
    }
    known
}

fn source(errors: &mut Errors, volume: &Value, path: &Path) {
    let mut sources = 0;
    for kind in SOURCES.iter().chain(&["image"]) {
        let Some(source) = present(volume, kind) else { continue };
        sources += 1;
        let at = path.child(kind);
        if sources > 1 {
            errors.push(FieldError::forbidden(&at, "may not specify more than 1 volume type"));
            continue;
        }
        match *kind {
            "hostPath" => host_path(errors, source, &at),
            "secret" => keyed(errors, source, &at, "secretName"),
            "configMap" => keyed(errors, source, &at, "name"),
            "persistentVolumeClaim" if text(source, "claimName").is_empty() => {
                errors.push(FieldError::required(&at.child("claimName"), ""));
            }
            "downwardAPI" => {
                mode(errors, source, &at, "defaultMode");
                downward_items(errors, source, &at);
            }
            "projected" => {
                mode(errors, source, &at, "defaultMode");
                projected(errors, source, &at);
            }
            "nfs" => nfs(errors, source, &at),
            "csi" if text(source, "driver").is_empty() => {
                errors.push(FieldError::required(&at.child("driver"), ""));
            }
            _ => {}
        }
    }
    if sources == 0 {
        errors.push(FieldError::required(path, "must specify a volume type"));
    }
}

pub fn host_path(errors: &mut Errors, source: &Value, path: &Path) {
    match text(source, "path") {
        "" => {
            errors.push(FieldError::required(&path.child("path"), ""));
            return;
        }
        value => no_parent(errors, &path.child("path"), value),
    }
    let types = [
        "",
        "BlockDevice",
        "CharDevice",
        "Directory",
        "DirectoryOrCreate",
        "File",
        "FileOrCreate",
        "Socket",
    ];
    one_of(errors, source, path, "type", &types);
}

fn nfs(errors: &mut Errors, source: &Value, path: &Path) {
    for key in ["server", "path"] {
        if text(source, key).is_empty() {
            errors.push(FieldError::required(&path.child(key), ""));
        }
    }
    let folder = text(source, "path");
    if !folder.is_empty() && !folder.starts_with('/') {
        errors.push(FieldError::invalid(
            &path.child("path"),
            folder,
            "must be an absolute path",
        ));
    }
}

fn mode(errors: &mut Errors, holder: &Value, path: &Path, key: &str) {
    if let Some(mode) = int(holder, key).filter(|mode| !(0..=0o777).contains(mode)) {
        let detail = "must be a number between 0 and 0777 (octal), both inclusive";
        errors.push(FieldError::invalid(&path.child(key), mode, detail));
    }
}

fn keyed(errors: &mut Errors, source: &Value, path: &Path, name: &str) {
    if text(source, name).is_empty() {
        errors.push(FieldError::required(&path.child(name), ""));
    }
    mode(errors, source, path, "defaultMode");
    items(errors, source, path);
}

fn items(errors: &mut Errors, source: &Value, path: &Path) {
    for (index, item) in list(source, "items").iter().enumerate() {
        let at = path.child("items").index(index);
        if text(item, "key").is_empty() {
            errors.push(FieldError::required(&at.child("key"), ""));
        }
        match text(item, "path") {
            "" => errors.push(FieldError::required(&at.child("path"), "")),
            value => file_below(errors, &at.child("path"), value),
        }
        mode(errors, item, &at, "mode");
    }
}

fn file_below(errors: &mut Errors, path: &Path, value: &str) {
    relative_path(errors, path, value);
    if value.starts_with("..") && !value.starts_with("../") {
        errors.push(FieldError::invalid(path, value, "must not start with '..'"));
    }
}

fn downward_items(errors: &mut Errors, source: &Value, path: &Path) {
    const FILES: [&str; 5] = [
        "metadata.name",
        "metadata.namespace",
        "metadata.labels",
        "metadata.annotations",
        "metadata.uid",
    ];
    for (index, item) in list(source, "items").iter().enumerate() {
        let at = path.child("items").index(index);
        match text(item, "path") {
            "" => errors.push(FieldError::required(&at.child("path"), "")),
            value => file_below(errors, &at.child("path"), value),
        }
        if let Some(field) = present(item, "fieldRef") {
            field_selector(errors, field, &at.child("fieldRef"), &FILES);
        } else if present(item, "resourceFieldRef").is_none() {
            errors.push(FieldError::required(
                &at,
                "one of fieldRef and resourceFieldRef is required",
            ));
        }
        mode(errors, item, &at, "mode");
    }
}

fn projected(errors: &mut Errors, source: &Value, path: &Path) {
    for (index, projection) in list(source, "sources").iter().enumerate() {
        let at = path.child("sources").index(index);
        for kind in ["secret", "configMap"] {
            let Some(projection) = present(projection, kind) else {
                continue;
            };
            if text(projection, "name").is_empty() {
                errors.push(FieldError::required(&at.child(kind).child("name"), ""));
            }
            items(errors, projection, &at.child(kind));
        }
        if let Some(downward) = present(projection, "downwardAPI") {
            downward_items(errors, downward, &at.child("downwardAPI"));
        }
        if let Some(token) = present(projection, "serviceAccountToken") {
            let token_path = at.child("serviceAccountToken");
            if int(token, "expirationSeconds").is_some_and(|seconds| seconds < 600) {
                let given = int(token, "expirationSeconds").unwrap_or_default();
                let detail = "may not specify a duration less than 10 minutes";
                errors.push(FieldError::invalid(
                    &token_path.child("expirationSeconds"),
                    given,
                    detail,
                ));
            }
            match text(token, "path") {
                "" => errors.push(FieldError::required(&token_path.child("path"), "")),
                value => file_below(errors, &token_path.child("path"), value),
            }
        }
    }
}

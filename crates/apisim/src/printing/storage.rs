//! Printers of volumes, claims and what provides them.

use serde_json::{Value, json};

use super::column::{AGE, Column, NAME, boolean, integer, name, text, wide};
use super::view::{View, or_none};

const UNSET: &str = "<unset>";

pub const VOLUME_COLUMNS: &[Column] = &[
    NAME,
    text("Capacity"),
    text("Access Modes"),
    text("Reclaim Policy"),
    text("Status"),
    text("Claim"),
    text("StorageClass"),
    text("VolumeAttributesClass"),
    text("Reason"),
    AGE,
    wide("VolumeMode"),
];

pub fn volume(volume: View<'_>) -> Vec<Value> {
    let claim = volume.part("/spec/claimRef").map_or_else(String::new, |claim| {
        format!("{}/{}", claim.text("/namespace"), claim.text("/name"))
    });
    vec![
        json!(volume.name()),
        json!(volume.text_or("/spec/capacity/storage", "0")),
        json!(access_modes(volume, "/spec/accessModes")),
        json!(volume.text("/spec/persistentVolumeReclaimPolicy")),
        json!(phase(volume)),
        json!(claim),
        json!(class(volume)),
        json!(optional(volume, "/spec/volumeAttributesClassName")),
        json!(volume.text("/status/reason")),
        json!(volume.age()),
        json!(optional(volume, "/spec/volumeMode")),
    ]
}

pub const CLAIM_COLUMNS: &[Column] = &[
    NAME,
    text("Status"),
    text("Volume"),
    text("Capacity"),
    text("Access Modes"),
    text("StorageClass"),
    text("VolumeAttributesClass"),
    AGE,
    wide("VolumeMode"),
];

pub fn claim(claim: View<'_>) -> Vec<Value> {
    let bound = !claim.text("/spec/volumeName").is_empty();
    let modes = if bound {
        access_modes(claim, "/status/accessModes")
    } else {
        String::new()
    };
    vec![
        json!(claim.name()),
        json!(phase(claim)),
        json!(claim.text("/spec/volumeName")),
        json!(if bound {
            claim.text_or("/status/capacity/storage", "0")
        } else {
            ""
        }),
        json!(modes),
        json!(class(claim)),
        json!(optional(claim, "/spec/volumeAttributesClassName")),
        json!(claim.age()),
        json!(optional(claim, "/spec/volumeMode")),
    ]
}

fn phase(object: View<'_>) -> &str {
    if object.is_deleted() {
        "Terminating"
    } else {
        object.text("/status/phase")
    }
}

/// The beta annotation still goes before the field.
fn class(object: View<'_>) -> &str {
    object
        .annotation("volume.beta.kubernetes.io/storage-class")
        .unwrap_or_else(|| object.text("/spec/storageClassName"))
}

fn optional<'a>(object: View<'a>, pointer: &str) -> &'a str {
    object.at(pointer).and_then(Value::as_str).unwrap_or(UNSET)
}

fn access_modes(object: View<'_>, pointer: &str) -> String {
    let modes = object.texts(pointer);
    let short = [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ];
    let listed: Vec<&str> = short
        .iter()
        .filter(|(mode, _)| modes.contains(mode))
        .map(|(_, short)| *short)
        .collect();
    listed.join(",")
}

pub const STORAGE_CLASS_COLUMNS: &[Column] = &[
    NAME,
    text("Provisioner"),
    text("ReclaimPolicy"),
    text("VolumeBindingMode"),
    text("AllowVolumeExpansion"),
    AGE,
];

pub fn storage_class(class: View<'_>) -> Vec<Value> {
    let default = [
        "storageclass.kubernetes.io/is-default-class",
        "storageclass.beta.kubernetes.io/is-default-class",
    ]
    .into_iter()
    .any(|key| class.annotation(key) == Some("true"));
    vec![
        json!(format!("{}{}", class.name(), if default { " (default)" } else { "" })),
        json!(class.text("/provisioner")),
        json!(class.text_or("/reclaimPolicy", "Delete")),
        json!(class.text_or("/volumeBindingMode", "Immediate")),
        json!(class.flag("/allowVolumeExpansion").unwrap_or(false)),
        json!(class.age()),
    ]
}

pub const ATTRIBUTES_CLASS_COLUMNS: &[Column] = &[NAME, text("DriverName"), AGE];

pub fn attributes_class(class: View<'_>) -> Vec<Value> {
    vec![
        json!(class.name()),
        json!(class.text("/driverName")),
        json!(class.age()),
    ]
}

pub const ATTACHMENT_COLUMNS: &[Column] = &[
    NAME,
    name("Attacher", 0),
    text("PV"),
    text("Node"),
    boolean("Attached"),
    AGE,
];

pub fn attachment(attachment: View<'_>) -> Vec<Value> {
    vec![
        json!(attachment.name()),
        json!(attachment.text("/spec/attacher")),
        json!(attachment.text("/spec/source/persistentVolumeName")),
        json!(attachment.text("/spec/nodeName")),
        json!(attachment.flag("/status/attached").unwrap_or(false)),
        json!(attachment.age()),
    ]
}

pub const CSI_NODE_COLUMNS: &[Column] = &[NAME, integer("Drivers"), AGE];

pub fn csi_node(node: View<'_>) -> Vec<Value> {
    vec![
        json!(node.name()),
        json!(node.count("/spec/drivers")),
        json!(node.age()),
    ]
}

pub const CSI_DRIVER_COLUMNS: &[Column] = &[
    NAME,
    boolean("AttachRequired"),
    boolean("PodInfoOnMount"),
    boolean("StorageCapacity"),
    text("TokenRequests"),
    boolean("RequiresRepublish"),
    text("Modes"),
    AGE,
];

pub fn csi_driver(driver: View<'_>) -> Vec<Value> {
    let tokens = driver.at("/spec/tokenRequests").map_or_else(
        || UNSET.to_owned(),
        |_| {
            let audiences: Vec<&str> = driver
                .each("/spec/tokenRequests")
                .map(|request| request.text("/audience"))
                .collect();
            audiences.join(",")
        },
    );
    vec![
        json!(driver.name()),
        json!(driver.flag("/spec/attachRequired").unwrap_or(true)),
        json!(driver.flag("/spec/podInfoOnMount").unwrap_or(false)),
        json!(driver.flag("/spec/storageCapacity").unwrap_or(false)),
        json!(tokens),
        json!(driver.flag("/spec/requiresRepublish").unwrap_or(false)),
        json!(or_none(driver.texts("/spec/volumeLifecycleModes").join(","))),
        json!(driver.age()),
    ]
}

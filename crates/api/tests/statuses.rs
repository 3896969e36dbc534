//! Statuses with every field set: each reads and writes without a loss, and its schema knows every field of it. A field that the
//! schema does not know would vanish in the API server without a word.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::path::Path;

use afloat_api::{ClusterUpgradeStatus, GroupUpgradeStatus, NodeKubeadmUpgradeStatus, crds};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

fn sample(file: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/samples").join(file);
    serde_saphyr::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

fn status_schema(kind: &str) -> Value {
    let crd = crds::own().into_iter().find(|crd| crd.spec.names.kind == kind).unwrap();
    let schema = crd.spec.versions[0]
        .schema
        .as_ref()
        .unwrap()
        .open_api_v3_schema
        .clone()
        .unwrap();
    serde_json::to_value(&schema.properties.unwrap()["status"]).unwrap()
}

/// Fields of the value that the schema does not know, and fields of the schema that no value sets.
fn compare(value: &Value, schema: &Value, path: &str, unknown: &mut Vec<String>, unset: &mut Vec<String>) {
    match value {
        Value::Object(fields) if schema["additionalProperties"].is_object() => {
            for (name, field) in fields {
                compare(
                    field,
                    &schema["additionalProperties"],
                    &format!("{path}.{name}"),
                    unknown,
                    unset,
                );
            }
        }
        Value::Object(fields) => {
            let properties = schema["properties"].as_object().unwrap();
            for (name, field) in fields {
                match properties.get(name) {
                    Some(child) => compare(field, child, &format!("{path}.{name}"), unknown, unset),
                    None => unknown.push(format!("{path}.{name}")),
                }
            }
            if !path.contains('[') {
                unset.extend(
                    properties
                        .keys()
                        .filter(|name| !fields.contains_key(*name))
                        .map(|name| format!("{path}.{name}")),
                );
            }
        }
        Value::Array(items) => {
            for item in items {
                compare(item, &schema["items"], &format!("{path}[]"), unknown, unset);
            }
        }
        _ => {}
    }
}

fn check<T: DeserializeOwned + Serialize>(file: &str, kind: &str, optional: &[&str]) {
    let written = sample(file);
    let typed: T = serde_json::from_value(written.clone()).unwrap();
    assert_eq!(serde_json::to_value(&typed).unwrap(), written, "{file}");
    let (mut unknown, mut unset) = (Vec::new(), Vec::new());
    compare(&written, &status_schema(kind), "", &mut unknown, &mut unset);
    assert_eq!(unknown, Vec::<String>::new(), "{kind}: the schema does not know these");
    assert_eq!(unset, optional, "{file} is to set every field");
}

#[test]
fn h8_a_cluster_upgrade_shows_progress_and_what_each_node_waits_for() {
    check::<ClusterUpgradeStatus>("status-clusterupgrade.yaml", "ClusterUpgrade", &[]);
}

#[test]
fn p24_a_node_shows_progress_and_errors_per_step() {
    let absent = [
        ".waitingFor.blockedBy.apiVersion",
        ".waitingFor.blockedBy.namespace",
        ".waitingFor.blockedBy.uid",
        ".waitingFor.until",
    ];
    check::<NodeKubeadmUpgradeStatus>("status-nodekubeadmupgrade.yaml", "NodeKubeadmUpgrade", &absent);
}

#[test]
fn p21_p23_groups_show_how_many_machines_are_done() {
    for kind in ["ControlPlaneKubeadmUpgrade", "WorkersKubeadmUpgrade"] {
        check::<GroupUpgradeStatus>("status-groupupgrade.yaml", kind, &[]);
    }
}

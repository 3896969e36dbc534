//! The examples in `deploy/examples` are what people copy: each must read as its type, without a field lost, and keep its rules.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use afloat_api::{ClusterUpgrade, ControlPlaneKubeadmUpgrade, NodeKubeadmUpgrade, WorkersKubeadmUpgrade, crds};
use kube_cel::Validator;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

fn examples() -> Vec<(String, Value)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/examples");
    let mut files: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    let read = |path: &Path| serde_saphyr::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    files
        .iter()
        .map(|path| (path.display().to_string(), read(path)))
        .collect()
}

fn round_trip<T: DeserializeOwned + Serialize>(object: &Value) -> Value {
    serde_json::to_value(serde_json::from_value::<T>(object.clone()).unwrap()).unwrap()
}

#[test]
fn examples_read_as_their_types_without_a_field_lost() {
    for (file, object) in examples() {
        let back = match object["kind"].as_str().unwrap() {
            "ClusterUpgrade" => round_trip::<ClusterUpgrade>(&object),
            "ControlPlaneKubeadmUpgrade" => round_trip::<ControlPlaneKubeadmUpgrade>(&object),
            "WorkersKubeadmUpgrade" => round_trip::<WorkersKubeadmUpgrade>(&object),
            "NodeKubeadmUpgrade" => round_trip::<NodeKubeadmUpgrade>(&object),
            other => panic!("{file}: {other} is not a kind of ours"),
        };
        assert_eq!(back, object, "{file}");
    }
}

#[test]
fn examples_keep_the_rules_and_there_is_one_for_each_own_kind() {
    let mut without: BTreeSet<String> = crds::own().into_iter().map(|crd| crd.spec.names.kind).collect();
    for (file, object) in examples() {
        let crd = crds::own()
            .into_iter()
            .find(|crd| object["kind"] == crd.spec.names.kind.as_str())
            .unwrap();
        let schema = crd.spec.versions[0]
            .schema
            .as_ref()
            .unwrap()
            .open_api_v3_schema
            .as_ref()
            .unwrap();
        let schema = serde_json::to_value(schema).unwrap();
        if let Err(errors) = Validator::new().validate_with_defaults(&schema, &object, None) {
            panic!("{file}: {errors:?}");
        }
        without.remove(&crd.spec.names.kind);
    }
    assert!(without.is_empty(), "no example of {without:?}");
}

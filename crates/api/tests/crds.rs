//! What holds for all CRDs of Afloat's own: what people type, what etcd can hold, what Harvester's front door must not have.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use afloat_api::{crds, harvester};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{CustomResourceDefinition, JSONSchemaProps};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

fn root(crd: &CustomResourceDefinition) -> &JSONSchemaProps {
    crd.spec.versions[0]
        .schema
        .as_ref()
        .unwrap()
        .open_api_v3_schema
        .as_ref()
        .unwrap()
}

fn kind<'a>(crds: &'a [CustomResourceDefinition], name: &str) -> &'a CustomResourceDefinition {
    crds.iter().find(|crd| crd.spec.names.kind == name).unwrap()
}

fn fields(crd: &CustomResourceDefinition, part: &str) -> Vec<String> {
    root(crd).properties.as_ref().unwrap()[part]
        .properties
        .as_ref()
        .unwrap()
        .keys()
        .cloned()
        .collect()
}

#[test]
fn own_kinds_have_status_short_names_categories_and_columns() {
    for crd in crds::own() {
        let (names, version) = (&crd.spec.names, &crd.spec.versions[0]);
        assert_eq!(
            names.categories,
            Some(vec!["all".to_owned(), "afloat".to_owned()]),
            "{}",
            names.kind
        );
        assert!(
            names.short_names.as_ref().is_some_and(|short| !short.is_empty()),
            "{}",
            names.kind
        );
        assert!(
            version.subresources.as_ref().unwrap().status.is_some(),
            "{}",
            names.kind
        );
        let columns = version.additional_printer_columns.as_ref().unwrap();
        assert!(
            columns.iter().filter(|column| column.priority.is_none()).count() <= 8,
            "{}: too wide",
            names.kind
        );
        assert!(
            fields(&crd, "status").contains(&"observedGeneration".to_owned()),
            "{}",
            names.kind
        );
        let conditions = &root(&crd).properties.as_ref().unwrap()["status"]
            .properties
            .as_ref()
            .unwrap()["conditions"];
        assert_eq!(
            conditions.x_kubernetes_list_map_keys,
            Some(vec!["type".to_owned()]),
            "{}",
            names.kind
        );
    }
}

#[test]
fn columns_lead_to_fields_that_exist() {
    for crd in crds::own() {
        let schema = serde_json::to_value(root(&crd)).unwrap();
        for column in crd.spec.versions[0].additional_printer_columns.iter().flatten() {
            let path = column.json_path.trim_start_matches('.');
            if path.starts_with("metadata.") {
                continue;
            }
            let mut at = &schema;
            for step in path.split('.') {
                let name = step.split('[').next().unwrap();
                at = &at["properties"][name];
                assert!(
                    at.is_object(),
                    "{}: {} leads nowhere",
                    crd.spec.names.kind,
                    column.json_path
                );
                if step.contains('[') {
                    break;
                }
            }
        }
    }
}

#[test]
fn p22_the_control_plane_kind_has_the_fields_of_the_document() {
    let crds = crds::own();
    let crd = kind(&crds, "ControlPlaneKubeadmUpgrade");
    let (spec, status) = (fields(crd, "spec"), fields(crd, "status"));
    for field in "cluster controlPlane machinesRequireUpgrade kubernetesVersion kubeletVersion etcdVersion coreDNSVersion kubeadmClusterConfig".split(' ') {
        assert!(spec.contains(&field.to_owned()), "{field}");
    }
    for field in ["requireUpgrade", "upgraded", "ready"] {
        assert!(status.contains(&field.to_owned()), "{field}");
    }
}

#[test]
fn the_front_door_has_no_status_subresource_and_keeps_what_it_does_not_know() {
    for crd in crds::harvester() {
        assert!(crd.spec.versions[0].subresources.is_none(), "{}", crd.spec.names.kind);
        assert_eq!(
            root(&crd).x_kubernetes_preserve_unknown_fields,
            Some(true),
            "{}",
            crd.spec.names.kind
        );
        let scope = if crd.spec.names.kind == "Setting" {
            "Cluster"
        } else {
            "Namespaced"
        };
        assert_eq!(crd.spec.scope, scope, "{}", crd.spec.names.kind);
    }
}

#[test]
fn a_setting_has_its_fields_beside_metadata() {
    let fields = harvester::SettingFields {
        value: "v".to_owned(),
        default_value: "d".to_owned(),
        customized: true,
        ..Default::default()
    };
    assert_eq!(fields.effective(), "v");
    let setting = harvester::Setting {
        metadata: ObjectMeta::default(),
        spec: fields,
        status: None,
    };
    let written = serde_json::to_value(&setting).unwrap();
    let expected = json!({
        "apiVersion": "harvesterhci.io/v1beta1", "kind": "Setting", "metadata": {}, "value": "v", "default": "d", "customized": true,
    });
    assert_eq!(written, expected);
    let read: harvester::Setting =
        serde_json::from_value(json!({"metadata": {"name": "upgrade-config"}, "default": "d"})).unwrap();
    assert_eq!(read.spec.effective(), "d");
}

/// The largest JSON that the schema admits; fails on anything without a bound.
fn largest(schema: &Value, path: &str) -> u64 {
    let number = |key: &str| schema[key].as_u64();
    if let Some(words) = schema["enum"].as_array() {
        return words.iter().map(|word| word.to_string().len() as u64).max().unwrap();
    }
    match schema["type"].as_str() {
        Some("boolean") => 5,
        Some("integer") => 20,
        Some("string") if schema["format"] == "date-time" => 32,
        Some("string") => number("maxLength").unwrap_or_else(|| panic!("{path} has no maxLength")) + 2,
        Some("array") => {
            let most = number("maxItems").unwrap_or_else(|| panic!("{path} has no maxItems"));
            most * (largest(&schema["items"], &format!("{path}[]")) + 1)
        }
        Some("object") if schema["additionalProperties"].is_object() => {
            let most = number("maxProperties").unwrap_or_else(|| panic!("{path} has no maxProperties"));
            most * (largest(&schema["additionalProperties"], &format!("{path}{{}}")) + 64)
        }
        Some("object") => {
            let properties = schema["properties"]
                .as_object()
                .unwrap_or_else(|| panic!("{path} is an open object"));
            properties
                .iter()
                .map(|(name, child)| name.len() as u64 + 4 + largest(child, &format!("{path}.{name}")))
                .sum()
        }
        None if schema["x-kubernetes-int-or-string"] == true => 20,
        other => panic!("{path} has type {other:?}"),
    }
}

#[test]
fn the_largest_object_of_each_own_kind_fits_into_etcd() {
    const ETCD_LIMIT: u64 = 1_572_864;
    for crd in crds::own() {
        let bytes = largest(&serde_json::to_value(root(&crd)).unwrap(), "");
        // A third is left for metadata, managedFields above all.
        assert!(
            bytes < ETCD_LIMIT * 2 / 3,
            "{} can grow to {bytes} bytes",
            crd.spec.names.kind
        );
    }
}

#[test]
fn the_limits_in_code_are_those_of_the_schema() {
    use afloat_api::clusterupgrade::{MAX_CHANGES, MAX_FINDINGS, MAX_LISTED_NODES, MAX_SLOTS};
    use afloat_api::kubeadm::MAX_SLOTS_ALONE;
    let crds = crds::own();
    let schema = serde_json::to_value(root(kind(&crds, "ClusterUpgrade"))).unwrap();
    let status = &schema["properties"]["status"]["properties"];
    let expected = [
        (&status["slots"], MAX_SLOTS),
        (&status["waiting"], MAX_LISTED_NODES),
        (&status["failed"], MAX_LISTED_NODES),
        (&status["preflight"]["properties"]["findings"], MAX_FINDINGS),
        (&status["changes"], MAX_CHANGES),
    ];
    let schema = serde_json::to_value(root(kind(&crds, "WorkersKubeadmUpgrade"))).unwrap();
    let alone = &schema["properties"]["status"]["properties"]["slots"];
    for (list, most) in expected.into_iter().chain([(alone, MAX_SLOTS_ALONE)]) {
        assert_eq!(list["maxItems"].as_u64(), Some(most as u64), "{}", list["description"]);
    }
}

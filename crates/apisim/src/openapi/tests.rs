//! Documents against what a real kube-apiserver v1.36.3 answered for the same kinds.

use std::collections::{BTreeMap, BTreeSet};

use afloat_apischema::builtin;
use afloat_apischema::schema::TypeSchema;
use serde_json::{Value, json};

use super::{document, index};
use crate::registry::Registry;
use crate::resource::{CustomOrigin, GroupVersion, Origin, ResourceType, Subresource};

fn built_in(kind: &builtin::BuiltinKind) -> ResourceType {
    let subresources = kind.subresources.iter().map(|subresource| Subresource {
        name: subresource.name.clone(),
        group_version: Some(GroupVersion::new(&subresource.group, &subresource.version)),
        kind: subresource.kind.clone(),
        verbs: subresource.verbs.clone(),
    });
    ResourceType {
        gv: GroupVersion::new(&kind.group, &kind.version),
        kind: kind.kind.clone(),
        list_kind: format!("{}List", kind.kind),
        plural: kind.plural.clone(),
        singular: kind.singular.clone(),
        short_names: kind.short_names.clone(),
        categories: kind.categories.clone(),
        namespaced: kind.namespaced,
        verbs: kind.verbs.clone(),
        subresources: subresources.collect(),
        schema: builtin::schema_of(&kind.group, &kind.version, &kind.kind).expect("every kind has a schema"),
        storage_hash: String::new(),
        origin: Origin::BuiltIn,
    }
}

fn custom(group: &str, version: &str, kind: &str, namespaced: bool, schema: &Value) -> ResourceType {
    let verbs = [
        "delete",
        "deletecollection",
        "get",
        "list",
        "patch",
        "create",
        "update",
        "watch",
    ];
    ResourceType {
        gv: GroupVersion::new(group, version),
        kind: kind.to_owned(),
        list_kind: format!("{kind}List"),
        plural: format!("{}s", kind.to_lowercase()),
        singular: kind.to_lowercase(),
        short_names: Vec::new(),
        categories: Vec::new(),
        namespaced,
        verbs: verbs.map(str::to_owned).to_vec(),
        subresources: Vec::new(),
        schema: TypeSchema::from_inline(schema),
        storage_hash: String::new(),
        origin: Origin::Custom(CustomOrigin::default()),
    }
}

fn subresource(name: &str, group: &str, version: &str, kind: &str) -> Subresource {
    Subresource {
        name: name.to_owned(),
        group_version: Some(GroupVersion::new(group, version)),
        kind: kind.to_owned(),
        verbs: ["get", "patch", "update"].map(str::to_owned).to_vec(),
    }
}

fn gadget_schema() -> Value {
    json!({
        "type": "object",
        "description": "A gadget.",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": {
                "type": "object",
                "description": "What is wanted.",
                "required": ["size"],
                "properties": {
                    "size": {"type": "integer", "minimum": 1, "maximum": 9, "default": 3, "description": "How big."},
                    "parts": {
                        "type": "array",
                        "x-kubernetes-list-type": "map",
                        "x-kubernetes-list-map-keys": ["name"],
                        "items": {
                            "type": "object",
                            "required": ["name"],
                            "properties": {
                                "name": {"type": "string", "pattern": "^[a-z]+$"},
                                "mode": {"type": "string", "enum": ["A", "B"]},
                            },
                        },
                    },
                    "any": {"x-kubernetes-int-or-string": true},
                },
                "x-kubernetes-validations": [{"rule": "self.size < 9", "message": "too big"}],
            },
        },
    })
}

fn registry() -> Registry {
    let mut registry = Registry::default();
    for kind in builtin::kinds() {
        registry.add(built_in(kind));
    }
    let mut widget = custom("example.com", "v1", "Widget", true, &json!({"type": "object"}));
    widget.subresources = vec![
        subresource("status", "example.com", "v1", "Widget"),
        subresource("scale", "autoscaling", "v1", "Scale"),
    ];
    registry.add(widget);
    registry.add(custom(
        "alpha.example.com",
        "v1alpha1",
        "Gadget",
        false,
        &gadget_schema(),
    ));
    registry
}

fn recorded() -> Value {
    serde_json::from_str(include_str!("testdata.json")).unwrap()
}

fn references(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                match value.as_str() {
                    Some(target) if name == "$ref" => {
                        found.insert(target.trim_start_matches("#/components/schemas/").to_owned());
                    }
                    _ => references(value, found),
                }
            }
        }
        Value::Array(list) => list.iter().for_each(|value| references(value, found)),
        _ => {}
    }
}

#[test]
fn operations_equal_those_of_the_real_server() {
    let registry = registry();
    let documents: BTreeMap<String, Value> = registry
        .group_versions()
        .map(|gv| {
            (
                gv.api_version(),
                document(&registry, gv).expect("a served version has a document"),
            )
        })
        .collect();
    let recorded = recorded();
    let operations = recorded["operations"].as_array().unwrap();
    assert!(operations.len() > 80);
    for operation in operations {
        let path = operation[0].as_str().unwrap();
        let parts: Vec<&str> = path.split('/').collect();
        let api_version = if parts[1] == "api" {
            parts[2].to_owned()
        } else {
            format!("{}/{}", parts[2], parts[3])
        };
        let ours = &documents[&api_version]["paths"][path][operation[1].as_str().unwrap()];
        assert_eq!(ours["tags"], json!([operation[2]]), "{path}");
        assert_eq!(ours["operationId"], operation[3], "{path}");
        assert_eq!(ours["x-kubernetes-action"], operation[4], "{path}");
        assert_eq!(ours["x-kubernetes-group-version-kind"], operation[5], "{path}");
        if operation[1] == "patch" {
            let bodies: Vec<&String> = ours["requestBody"]["content"].as_object().unwrap().keys().collect();
            assert_eq!(json!(bodies), operation[6], "{path}");
        }
    }
}

#[test]
fn custom_schema_equals_that_of_the_real_server() {
    let document = document(&registry(), &GroupVersion::new("alpha.example.com", "v1alpha1")).unwrap();
    let mut gadget = document["components"]["schemas"]["com.example.alpha.v1alpha1.Gadget"].clone();
    for field in ["apiVersion", "kind", "metadata"] {
        gadget["properties"][field]
            .as_object_mut()
            .unwrap()
            .remove("description");
    }
    assert_eq!(gadget, recorded()["gadget"]);
    let list = &document["components"]["schemas"]["com.example.alpha.v1alpha1.GadgetList"];
    assert_eq!(list["x-kubernetes-group-version-kind"][0]["kind"], "GadgetList");
}

#[test]
fn every_reference_of_every_document_leads_somewhere() {
    let registry = registry();
    let mut documents = 0;
    for gv in registry.group_versions() {
        let document = document(&registry, gv).unwrap();
        let mut found = BTreeSet::new();
        references(&document, &mut found);
        for name in found {
            let schema = &document["components"]["schemas"][&name];
            assert!(schema.is_object(), "{} refers to {name}", gv.api_version());
        }
        documents += 1;
    }
    assert!(documents > 10);
}

#[test]
fn built_in_schema_says_how_lists_merge() {
    let document = document(&registry(), &GroupVersion::new("", "v1")).unwrap();
    let schemas = &document["components"]["schemas"];
    let containers = &schemas["io.k8s.api.core.v1.PodSpec"]["properties"]["containers"];
    assert_eq!(containers["x-kubernetes-patch-strategy"], "merge");
    assert_eq!(containers["x-kubernetes-patch-merge-key"], "name");
    assert_eq!(containers["x-kubernetes-list-type"], "map");
    assert_eq!(
        schemas["io.k8s.api.core.v1.Pod"]["x-kubernetes-group-version-kind"],
        json!([{"group": "", "version": "v1", "kind": "Pod"}])
    );
    let port = &schemas["io.k8s.apimachinery.pkg.util.intstr.IntOrString"];
    assert_eq!(port["oneOf"], json!([{"type": "integer"}, {"type": "string"}]));
}

#[test]
fn index_changes_where_a_schema_changes() {
    let mut registry = registry();
    let before = index(&registry);
    let pods = "/openapi/v3/api/v1?hash=";
    assert!(
        before["paths"]["api/v1"]["serverRelativeURL"]
            .as_str()
            .unwrap()
            .starts_with(pods)
    );
    registry.add(custom(
        "example.com",
        "v1",
        "Widget",
        true,
        &json!({"type": "object", "description": "New."}),
    ));
    let after = index(&registry);
    assert_eq!(before["paths"]["api/v1"], after["paths"]["api/v1"]);
    assert_ne!(
        before["paths"]["apis/example.com/v1"],
        after["paths"]["apis/example.com/v1"]
    );
    assert_eq!(
        document(&registry, &GroupVersion::new("nobody.example.com", "v1")),
        None
    );
}

#[test]
fn built_in_fields_say_what_they_mean() {
    let document = document(&registry(), &GroupVersion::new("", "v1")).unwrap();
    let spec = &document["components"]["schemas"]["io.k8s.api.core.v1.PodSpec"];
    for field in ["containers", "nodeName", "affinity"] {
        let description = spec["properties"][field]["description"].as_str().unwrap_or_default();
        assert!(!description.is_empty(), "{field}");
    }
    assert_eq!(
        spec["properties"]["affinity"]["allOf"],
        json!([{"$ref": "#/components/schemas/io.k8s.api.core.v1.Affinity"}])
    );
}

#[test]
fn protobuf_of_the_empty_document_has_whole_fields() {
    let bytes = super::empty_v2_protobuf();
    let (version, info) = bytes.split_at(5);
    assert_eq!(version, b"\x0a\x032.0");
    assert_eq!(usize::from(info[1]), info.len() - 2);
    assert_eq!(super::empty_v2()["swagger"], "2.0");
}

//! Rows and columns against what a real kube-apiserver v1.36.3 answered (`testdata/`, with the moment of each answer).

use std::collections::BTreeMap;

use afloat_apischema::schema::TypeSchema;
use serde_json::{Value, json};

use super::{IncludeObject, TableOptions, scale_table, table};
use crate::resource::{CustomOrigin, GroupVersion, Origin, PrinterColumn, ResourceType};

fn resource(api_version: &str, kind: &str, origin: Origin) -> ResourceType {
    ResourceType {
        gv: GroupVersion::parse(api_version),
        kind: kind.to_owned(),
        list_kind: format!("{kind}List"),
        plural: String::new(),
        singular: String::new(),
        short_names: Vec::new(),
        categories: Vec::new(),
        namespaced: true,
        verbs: Vec::new(),
        subresources: Vec::new(),
        schema: TypeSchema::anything(),
        storage_hash: String::new(),
        origin,
    }
}

fn options(now: &str) -> TableOptions<'static> {
    TableOptions {
        include: IncludeObject::Metadata,
        headers: true,
        version: "v1",
        now: now.parse().expect("the recorded moment is RFC 3339"),
    }
}

#[test]
fn columns_equal_those_of_the_real_server() {
    let recorded: BTreeMap<String, Value> = serde_json::from_str(include_str!("testdata/columns.json")).unwrap();
    assert!(recorded.len() > 50);
    for (kind, columns) in recorded {
        let (api_version, kind) = kind.rsplit_once('/').unwrap();
        let printed = table(
            &resource(api_version, kind, Origin::BuiltIn),
            &[],
            Some(&json!({"resourceVersion": "1"})),
            &options("2026-01-01T00:00:00Z"),
        );
        let printed: Vec<Value> = printed["columnDefinitions"]
            .as_array()
            .unwrap()
            .iter()
            .map(|column| json!([column["name"], column["type"], column["format"], column["priority"]]))
            .collect();
        assert_eq!(Value::Array(printed), columns, "{api_version} {kind}");
    }
}

#[test]
fn rows_equal_those_of_the_real_server() {
    let recorded: Vec<Value> = serde_json::from_str(include_str!("testdata/rows.json")).unwrap();
    assert!(recorded.len() > 100);
    for case in recorded {
        let object = &case["object"];
        let text = |field: &str| object[field].as_str().unwrap();
        let resource = resource(text("apiVersion"), text("kind"), Origin::BuiltIn);
        let printed = table(
            &resource,
            std::slice::from_ref(object),
            None,
            &options(case["now"].as_str().unwrap()),
        );
        let row = &printed["rows"][0];
        let name = &object["metadata"]["name"];
        assert_eq!(row["cells"], case["cells"], "{} {name}", resource.kind);
        assert_eq!(
            row.get("conditions"),
            case.get("conditions"),
            "{} {name}",
            resource.kind
        );
        assert_eq!(row["object"]["metadata"], object["metadata"]);
        assert_eq!(
            printed["metadata"].get("resourceVersion"),
            object["metadata"].get("resourceVersion")
        );
    }
}

#[test]
fn custom_rows_equal_those_of_the_real_server() {
    let recorded: Value = serde_json::from_str(include_str!("testdata/custom.json")).unwrap();
    let columns = recorded["columns"].as_array().unwrap().iter().map(|column| {
        let text = |field: &str| column[field].as_str().unwrap_or_default().to_owned();
        PrinterColumn {
            name: text("name"),
            column_type: text("type"),
            format: text("format"),
            description: text("description"),
            priority: column["priority"].as_i64().unwrap_or_default(),
            json_path: text("jsonPath"),
        }
    });
    let origin = Origin::Custom(CustomOrigin {
        printer_columns: columns.collect(),
        ..CustomOrigin::default()
    });
    let resource = resource("example.com/v1", "Widget", origin);
    let objects = recorded["objects"].as_array().unwrap();
    let printed = table(
        &resource,
        objects,
        Some(&json!({})),
        &options(recorded["now"].as_str().unwrap()),
    );
    let definitions = printed["columnDefinitions"].as_array().unwrap();
    let expected = recorded["definitions"].as_array().unwrap();
    assert_eq!(definitions.len(), expected.len());
    for (printed, expected) in definitions.iter().zip(expected).skip(1) {
        assert_eq!(printed, expected);
    }
    for (index, cells) in recorded["cells"].as_array().unwrap().iter().enumerate() {
        for (column, cell) in cells.as_array().unwrap().iter().enumerate() {
            let path = &definitions[column]["description"];
            assert_eq!(&printed["rows"][index]["cells"][column], cell, "object {index}, {path}");
        }
    }
}

#[test]
fn custom_kind_without_columns_shows_its_age() {
    let resource = resource("example.com/v1", "Gadget", Origin::Custom(CustomOrigin::default()));
    let object = json!({"metadata": {"name": "g", "creationTimestamp": "2026-01-01T00:00:00Z"}});
    let printed = table(&resource, &[object], None, &options("2026-01-01T00:00:09Z"));
    assert_eq!(printed["rows"][0]["cells"], json!(["g", "9s"]));
    assert_eq!(printed["columnDefinitions"][1]["type"], "date");
}

#[test]
fn column_with_an_unreadable_path_ends_the_columns() {
    let column = |path: &str| PrinterColumn {
        name: path.to_owned(),
        column_type: "string".to_owned(),
        format: String::new(),
        description: String::new(),
        priority: 0,
        json_path: path.to_owned(),
    };
    let printer_columns = vec![column(".a"), column(".b["), column(".c")];
    let origin = Origin::Custom(CustomOrigin {
        printer_columns,
        ..CustomOrigin::default()
    });
    let resource = resource("example.com/v1", "Gadget", origin);
    let object = json!({"metadata": {"name": "g"}, "a": "x", "c": "y"});
    let printed = table(&resource, &[object], None, &options("2026-01-01T00:00:09Z"));
    assert_eq!(printed["rows"][0]["cells"], json!(["g", "x"]));
}

#[test]
fn row_carries_as_much_of_the_object_as_was_asked() {
    let pods = resource("v1", "Pod", Origin::BuiltIn);
    let object = json!({"kind": "Pod", "metadata": {"name": "p", "resourceVersion": "7"}, "spec": {}});
    let shown = |include, object: &Value| {
        let options = TableOptions {
            include,
            headers: false,
            ..options("2026-01-01T00:00:00Z")
        };
        table(&pods, std::slice::from_ref(object), None, &options)["rows"][0]["object"].clone()
    };
    assert_eq!(shown(IncludeObject::None, &object), Value::Null);
    assert_eq!(shown(IncludeObject::Object, &object), object);
    let metadata =
        json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"]});
    assert_eq!(shown(IncludeObject::Metadata, &object), metadata);
    let bookmark = json!({"metadata": {"resourceVersion": "9", "annotations": {"k8s.io/initial-events-end": "true"}}});
    assert_eq!(shown(IncludeObject::None, &bookmark)["metadata"], bookmark["metadata"]);
    assert_eq!(IncludeObject::parse(""), Some(IncludeObject::Metadata));
    assert_eq!(IncludeObject::parse("Everything"), None);
}

#[test]
fn table_takes_over_the_pages_of_its_list() {
    let pods = resource("v1", "Pod", Origin::BuiltIn);
    let list = json!({"resourceVersion": "9", "continue": "x", "remainingItemCount": 3});
    let printed = table(&pods, &[], Some(&list), &options("2026-01-01T00:00:00Z"));
    assert_eq!(printed["metadata"], list);
    assert_eq!(printed["rows"], json!([]));
    let watched = TableOptions {
        headers: false,
        ..options("2026-01-01T00:00:00Z")
    };
    assert_eq!(
        table(&pods, &[], Some(&list), &watched)["columnDefinitions"],
        Value::Null
    );
    let roles = resource("rbac.authorization.k8s.io/v1", "Role", Origin::BuiltIn);
    assert_eq!(
        table(&roles, &[], Some(&list), &options("2026-01-01T00:00:00Z"))["rows"],
        Value::Null
    );
}

#[test]
fn scale_prints_wanted_and_present_replicas() {
    let scale = json!({
        "metadata": {"name": "d", "resourceVersion": "4", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"replicas": 3},
        "status": {"replicas": 2},
    });
    let printed = scale_table(&scale, &options("2026-01-01T00:01:00Z"));
    assert_eq!(printed["rows"][0]["cells"], json!(["d", 3, 2, "60s"]));
    assert_eq!(printed["metadata"], json!({"resourceVersion": "4"}));
}

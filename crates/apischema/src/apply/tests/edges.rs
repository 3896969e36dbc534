//! What the recorded requests do not show: unknown versions, notation, and the border of the field set algebra.

use serde_json::{Value, json};

use crate::apply::fieldset::path_string;
use crate::apply::{ApplyError, FieldSet, Manager, apply, keep_times_of_noop, track_update, unfold};
use crate::schema::TypeSchema;

use super::recorded::kind_schema;

fn who<'a>(name: &'a str, time: &'a str) -> Manager<'a> {
    Manager {
        name,
        api_version: "v1",
        kind: "ConfigMap",
        subresource: None,
        time,
        other_versions: &[],
    }
}

fn config_map(data: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "b"}, "data": data})
}

fn entry(manager: &str, version: &str, fields: &Value) -> Value {
    json!({
        "manager": manager, "operation": "Update", "apiVersion": version, "time": "2020-01-01T00:00:00Z",
        "fieldsType": "FieldsV1", "fieldsV1": fields,
    })
}

#[test]
fn notation_reads_back_and_is_canonical() {
    let written = json!({
        "f:spec": {
            ".": {}, "f:tags": {"v:\"a\"": {}, "v:5": {}, "v:true": {}, "i:3": {}},
            "f:ports": {"k:{\"protocol\":\"TCP\",\"port\":443}": {".": {}}, "k:{\"port\":80,\"protocol\":\"TCP\"}": {"f:x": {}}},
            "x:later": {"f:a": {}},
        },
    });
    let set = FieldSet::from_json(&written).unwrap();
    let text = set.to_json_string();
    assert_eq!(
        text,
        "{\"f:spec\":{\".\":{},\"f:ports\":{\"k:{\\\"port\\\":80,\\\"protocol\\\":\\\"TCP\\\"}\":{\"f:x\":{}},\
         \"k:{\\\"port\\\":443,\\\"protocol\\\":\\\"TCP\\\"}\":{}},\"f:tags\":{\"v:5\":{},\"v:\\\"a\\\"\":{},\
         \"v:true\":{},\"i:3\":{}}}}"
    );
    assert_eq!(FieldSet::from_json(&serde_json::from_str(&text).unwrap()).unwrap(), set);
    let paths: Vec<String> = set.paths().iter().map(|path| path_string(path)).collect();
    assert_eq!(paths[0], ".spec");
    assert!(paths.contains(&".spec.ports[port=443,protocol=\"TCP\"]".to_owned()));
    for bad in [
        json!({"f": {}}),
        json!({"fx": {}}),
        json!({"f:a": 1}),
        json!({"v:{": {}}),
        json!({"i:x": {}}),
    ] {
        assert!(FieldSet::from_json(&bad).is_err(), "{bad}");
    }
}

#[test]
fn sets_follow_upstreams_algebra() {
    let set = FieldSet::from_paths(&["a", "a.b", "a.b.c", "d"]);
    let parent = FieldSet::from_paths(&["a.b"]);
    assert_eq!(set.difference(&parent), FieldSet::from_paths(&["a", "a.b.c", "d"]));
    assert_eq!(set.recursive_difference(&parent), FieldSet::from_paths(&["a", "d"]));
    assert_eq!(set.intersection(&FieldSet::from_paths(&["a.b", "x"])), parent);
    assert_eq!(set.leaves(), FieldSet::from_paths(&["a.b.c", "d"]));
    assert_eq!(
        parent.union(&FieldSet::from_paths(&["a"])),
        FieldSet::from_paths(&["a", "a.b"])
    );
}

#[test]
fn entries_of_unknown_versions_go() {
    let schema = kind_schema("ConfigMap");
    let mut live = config_map(&json!({"x": "1"}));
    let known = entry("known", "v1", &json!({"f:data": {"f:x": {}}}));
    live["metadata"]["managedFields"] = json!([entry("ghost", "v0", &json!({"f:data": {"f:y": {}}})), known]);
    let mut new = live.clone();
    track_update(
        schema.root(),
        Some(&live),
        &mut new,
        &who("m", "2021-01-01T00:00:00Z"),
        None,
    );
    unfold(&mut new);
    assert_eq!(new["metadata"]["managedFields"], json!([known]));

    let custom = TypeSchema::anything();
    let mut new = live.clone();
    track_update(
        custom.root(),
        Some(&live),
        &mut new,
        &who("m", "2021-01-01T00:00:00Z"),
        None,
    );
    assert_eq!(new["metadata"].get("managedFields"), None);
    let outcome = apply(
        custom.root(),
        Some(&live),
        &config_map(&json!({})),
        &who("m", ""),
        false,
        None,
    );
    let why = "request to convert CR to an invalid group/version: v0";
    assert_eq!(outcome, Err(ApplyError::Internal(why.to_owned())));
}

#[test]
fn appliers_keep_their_entry_across_versions() {
    let schema = kind_schema("ConfigMap");
    let mut live = config_map(&json!({"x": "1", "y": "1"}));
    let mut old = entry("app", "v1beta1", &json!({"f:data": {"f:x": {}, "f:y": {}}}));
    old["operation"] = json!("Apply");
    live["metadata"]["managedFields"] = json!([old]);
    let who = Manager {
        other_versions: &["v1beta1"],
        ..who("app", "2021-01-01T00:00:00Z")
    };
    let mut object = apply(
        schema.root(),
        Some(&live),
        &config_map(&json!({"x": "2"})),
        &who,
        false,
        None,
    )
    .unwrap();
    assert_eq!(object["data"], json!({"x": "2"}));
    let mut new = entry("app", "v1", &json!({"f:data": {"f:x": {}}}));
    new["operation"] = json!("Apply");
    new["time"] = json!("2021-01-01T00:00:00Z");
    unfold(&mut object);
    assert_eq!(object["metadata"]["managedFields"], json!([new]));
}

#[test]
fn a_part_that_became_whole_is_owned_as_a_whole() {
    let granular = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "sel": {"type": "object", "additionalProperties": {"type": "string"}, "x-kubernetes-map-type": "atomic"}}}}});
    let schema = TypeSchema::from_inline(&granular);
    let live = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "spec": {"sel": {"a": "1"}},
        "metadata": {"name": "a", "managedFields": [entry("m", "v1", &json!({"f:spec": {"f:sel": {"f:a": {}}}}))]},
    });
    let applied =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "spec": {"sel": {"b": "1"}}});
    let outcome = apply(schema.root(), Some(&live), &applied, &who("app", ""), false, None);
    let Err(ApplyError::Conflict { causes, .. }) = outcome else {
        panic!("no conflict: {outcome:?}")
    };
    assert_eq!(causes[0].field, ".spec.sel");
}

#[test]
fn only_times_are_put_back() {
    let mut live = config_map(&json!({"x": "1"}));
    live["metadata"]["managedFields"] = json!([entry("m", "v1", &json!({"f:data": {}}))]);
    let mut new = live.clone();
    new["metadata"]["managedFields"][0]["time"] = json!("2022-01-01T00:00:00Z");
    let mut changed = new.clone();
    changed["data"]["x"] = json!("2");
    let expected = changed.clone();
    keep_times_of_noop(&live, &mut new);
    keep_times_of_noop(&live, &mut changed);
    assert_eq!(new, live);
    assert_eq!(changed, expected);
}

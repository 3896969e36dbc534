//! Recorded answers of kube-apiserver v1.36.3: `testdata/recorded.json` holds definitions and the message each was
//! refused with (or null). Upstream walks maps in no order, so several errors are compared as a set.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::field_error::{FieldError, invalid_message};

fn refusal(crd: &Value) -> Vec<FieldError> {
    let mut crd = crd.clone();
    default_crd(&mut crd);
    prepare_create(&mut crd);
    validate_crd(&crd)
}

/// Whether the message names exactly these errors, in any order.
fn says(message: &str, errors: &[FieldError]) -> bool {
    let mut texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    texts.sort();
    texts.dedup();
    let Some((_, tail)) = message.split_once(" is invalid: ") else {
        return false;
    };
    let tail = if texts.len() > 1 {
        tail.trim_start_matches('[').trim_end_matches(']')
    } else {
        tail
    };
    let length: usize = texts.iter().map(|text| text.len() + 2).sum();
    texts.iter().all(|text| tail.contains(text.trim_end_matches(']')))
        && length == tail.len() + 2 + brackets(tail, &texts)
}

/// Trimming the brackets of the list also takes those that close the last error.
fn brackets(tail: &str, texts: &[String]) -> usize {
    let last = texts.iter().find(|text| tail.ends_with(text.trim_end_matches(']')));
    last.filter(|_| texts.len() > 1)
        .map_or(0, |text| text.len() - text.trim_end_matches(']').len())
}

#[test]
fn definitions_are_refused_as_recorded() {
    let recorded: Value = serde_json::from_str(include_str!("testdata/recorded.json")).expect("test data");
    let mut wrong = Vec::new();
    for case in recorded.as_array().expect("a list") {
        let crd = json!({"metadata": case["metadata"], "spec": case["spec"]});
        let errors = refusal(&crd);
        let agrees = match case["message"].as_str() {
            None => errors.is_empty(),
            Some(message) => says(message, &errors),
        };
        if !agrees {
            let name = case["metadata"]["name"].as_str().unwrap_or_default();
            let found = invalid_message("apiextensions.k8s.io", "CustomResourceDefinition", name, &errors);
            wrong.push(format!(
                "{}\n  found {found}\n  upstream {}",
                case["case"], case["message"]
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn foo() -> Value {
    serde_json::from_str(include_str!("testdata/foo.json")).expect("test data")
}

#[test]
fn a_good_definition_goes_its_way_as_recorded() {
    let mut crd = foo();
    default_crd(&mut crd);
    assert_eq!(
        crd["spec"]["names"],
        json!({"plural": "foos", "singular": "foo", "kind": "Foo", "listKind": "FooList"})
    );
    assert_eq!(crd["spec"]["conversion"], json!({"strategy": "None"}));
    prepare_create(&mut crd);
    assert_eq!(
        crd["status"],
        json!({"conditions": null, "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": ["v1"]})
    );
    assert_eq!(validate_crd(&crd), []);
    assert!(!is_established(&crd));
    assert!(establish(&mut crd, &[], "2026-01-02T03:04:05Z"));
    assert_eq!(
        crd["status"],
        json!({
            "conditions": [
                {"type": "NamesAccepted", "status": "True", "lastTransitionTime": "2026-01-02T03:04:05Z",
                 "reason": "NoConflicts", "message": "no conflicts found"},
                {"type": "Established", "status": "True", "lastTransitionTime": "2026-01-02T03:04:05Z",
                 "reason": "InitialNamesAccepted", "message": "the initial names have been accepted"},
            ],
            "acceptedNames": {"plural": "foos", "singular": "foo", "kind": "Foo", "listKind": "FooList"},
            "storedVersions": ["v1"],
        })
    );
    assert!(is_established(&crd));
    assert!(!establish(&mut crd, &[], "2027-01-02T03:04:05Z"), "nothing left to do");
}

#[test]
fn names_of_others_are_not_accepted() {
    let mut first = foo();
    default_crd(&mut first);
    prepare_create(&mut first);
    establish(&mut first, &[], "t");
    let mut second = foo();
    second["metadata"]["name"] = json!("bars.ex.io");
    second["spec"]["names"] = json!({"plural": "bars", "kind": "Foo", "shortNames": ["foo"]});
    default_crd(&mut second);
    prepare_create(&mut second);
    establish(&mut second, &[first], "t");
    let condition = &second["status"]["conditions"][0];
    assert_eq!(
        (&condition["status"], &condition["reason"]),
        (&json!("False"), &json!("ListKindConflict"))
    );
    assert_eq!(condition["message"], "\"FooList\" is already in use");
    assert_eq!(second["status"]["conditions"][1]["reason"], "NotAccepted");
    assert_eq!(second["status"]["acceptedNames"]["plural"], "bars");
    assert!(!is_established(&second));
}

#[test]
fn updates_keep_status_and_refuse_new_names() {
    let mut old = foo();
    default_crd(&mut old);
    prepare_create(&mut old);
    establish(&mut old, &[], "t");
    old["metadata"]["resourceVersion"] = json!("5");
    let mut new = old.clone();
    new["spec"]["versions"][0]["storage"] = json!(false);
    let mut second = new["spec"]["versions"][0].clone();
    second["name"] = json!("v2");
    second["storage"] = json!(true);
    new["spec"]["versions"].as_array_mut().expect("a list").push(second);
    new["status"] = json!({});
    prepare_update(&mut new, &old);
    assert_eq!(new["metadata"]["generation"], 2);
    assert_eq!(new["status"]["storedVersions"], json!(["v1", "v2"]));
    assert_eq!(validate_crd_update(&new, &old), []);
    new["spec"]["scope"] = json!("Cluster");
    new["spec"]["versions"].as_array_mut().expect("a list").remove(0);
    let texts: Vec<String> = validate_crd_update(&new, &old)
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(
        texts,
        [
            "spec.scope: Invalid value: \"Cluster\": field is immutable",
            "status.storedVersions[0]: Invalid value: \"v1\": missing from spec.versions; v1 was previously a storage \
             version, and must remain in spec.versions until a storage migration ensures no data remains persisted in v1 \
             and removes v1 from status.storedVersions",
        ]
    );
}

#[test]
fn objects_go_through_decoding_and_validation_as_recorded() {
    let resource = CustomResource::read(&foo());
    let version = resource.version("v1").expect("served");
    assert!(version.has_status && version.served && version.storage && resource.namespaced);
    let mut object = json!({"apiVersion": "ex.io/v1", "kind": "Foo", "metadata": {"name": "a", "namespace": "default"},
        "spec": {"req": "ab", "foo": 2, "m": [{"k": "a", "zz": 1}], "any": {"x": 1}, "dd": {"y": 1},
                 "emb": {"apiVersion": "v1", "kind": "X", "metadata": {"foo": 1}}}});
    assert_eq!(
        version.decode(&mut object),
        Ok(["spec.dd.y", "spec.foo", "spec.m[0].zz", "spec.emb.metadata.foo"]
            .map(str::to_owned)
            .to_vec())
    );
    assert_eq!(version.validate_create(&object), Verdict::default());
    object["spec"]["req"] = json!(5);
    let texts: Vec<String> = version
        .validate_create(&object)
        .errors
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(
        texts,
        [
            "spec.req: Invalid value: \"integer\": spec.req in body must be of type string: \"integer\"",
            "<nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct \
             the existing errors to complete validation",
        ]
    );
    object["kind"] = json!("Fooo");
    let texts: Vec<String> = version
        .validate_create(&object)
        .errors
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(texts, ["kind: Invalid value: \"Fooo\": must be Foo"]);
}

#[test]
fn status_and_generation_follow_the_endpoint() {
    let resource = CustomResource::read(&foo());
    let version = resource.version("v1").expect("served");
    let mut object = json!({"metadata": {"name": "a"}, "spec": {"n": 1}, "status": {"x": 1}});
    version.prepare_create(&mut object);
    assert_eq!(
        object,
        json!({"metadata": {"name": "a", "generation": 1}, "spec": {"n": 1}})
    );
    let old = json!({"metadata": {"name": "a", "generation": 4}, "spec": {"n": 1}, "status": {"x": 1}});
    let mut same = json!({"metadata": {"name": "a", "labels": {"l": "v"}}, "spec": {"n": 1}, "status": {"x": 9}});
    version.prepare_update(&mut same, &old);
    assert_eq!(
        (&same["metadata"]["generation"], &same["status"]["x"]),
        (&json!(4), &json!(1))
    );
    let mut changed = json!({"metadata": {"name": "a"}, "spec": {"n": 2}});
    version.prepare_update(&mut changed, &old);
    assert_eq!(changed["metadata"]["generation"], 5);
    let mut status = json!({"metadata": {"name": "a", "labels": {"l": "v"}}, "spec": {"n": 2}, "status": {"x": 2}});
    version.prepare_status_update(&mut status, &old);
    assert_eq!(
        status,
        json!({"metadata": {"name": "a", "generation": 4}, "spec": {"n": 1}, "status": {"x": 2}})
    );
}

#[test]
fn the_served_schema_has_metadata() {
    let resource = CustomResource::read(&foo());
    let schema = resource.versions[0].schema.root();
    let owners = schema
        .property("metadata")
        .and_then(|meta| meta.property("ownerReferences"))
        .expect("declared");
    assert_eq!(
        owners.node().list_type,
        crate::schema::ListType::Map(vec!["uid".to_owned()])
    );
    assert!(
        schema
            .property("spec")
            .and_then(|spec| spec.property("emb"))
            .and_then(|emb| emb.property("kind"))
            .is_some()
    );
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn no_definition_makes_anything_panic(case in 0usize..80, place in 0usize..400, with in 0usize..6) {
        let recorded: Vec<Value> = serde_json::from_str(include_str!("testdata/recorded.json")).expect("test data");
        let case = &recorded[case % recorded.len()];
        let mut crd = json!({"metadata": case["metadata"], "spec": case["spec"]});
        let replacement = [json!(null), json!("x"), json!(-5), json!([1]), json!({"a": {}}), json!(true)][with].clone();
        let mut left = place;
        replace(&mut crd, &mut left, &replacement);
        let _ = refusal(&crd);
        if with > 0 && crd.is_object() {
            crd["status"] = replacement;
        }
        establish(&mut crd, &[foo()], "t");
        let resource = CustomResource::read(&crd);
        for version in &resource.versions {
            let _ = version.validate_create(&json!({"spec": {"x": 1}}));
        }
    }
}

/// Puts something else at the n-th place of a value.
fn replace(value: &mut Value, left: &mut usize, with: &Value) {
    if *left == 0 {
        *value = with.clone();
        *left = usize::MAX;
        return;
    }
    *left -= 1;
    match value {
        Value::Object(fields) => fields.iter_mut().for_each(|(_, child)| replace(child, left, with)),
        Value::Array(items) => items.iter_mut().for_each(|child| replace(child, left, with)),
        _ => {}
    }
}

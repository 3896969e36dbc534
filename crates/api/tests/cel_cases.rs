//! Runs the cases of `cases/cel.json` through the rules of the generated CRDs, and wants a failing and a passing case for each
//! rule. The conformance suite sends the same cases to API servers; what only a server's schema refuses is judged there.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube_cel::Validator;
use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize)]
struct Case {
    kind: String,
    name: String,
    object: Value,
    old: Option<Value>,
    expect: String,
}

struct Rule {
    path: Vec<String>,
    message: String,
    transition: bool,
}

fn cases() -> Vec<Case> {
    serde_json::from_str(include_str!("../cases/cel.json")).unwrap()
}

fn schema(crd: &CustomResourceDefinition) -> Value {
    serde_json::to_value(
        crd.spec.versions[0]
            .schema
            .as_ref()
            .unwrap()
            .open_api_v3_schema
            .as_ref()
            .unwrap(),
    )
    .unwrap()
}

fn schemas() -> BTreeMap<String, Value> {
    afloat_api::crds::all()
        .iter()
        .map(|crd| (crd.spec.names.kind.clone(), schema(crd)))
        .collect()
}

fn rules(schema: &Value, path: &[String], found: &mut Vec<Rule>) {
    for rule in schema["x-kubernetes-validations"].as_array().into_iter().flatten() {
        found.push(Rule {
            path: path.to_vec(),
            message: rule["message"].as_str().expect("a rule without a message").to_owned(),
            transition: rule["rule"].as_str().unwrap().contains("oldSelf"),
        });
    }
    for (name, child) in schema["properties"].as_object().into_iter().flatten() {
        rules(child, &[path, std::slice::from_ref(name)].concat(), found);
    }
    for (key, step) in [("items", "[]"), ("additionalProperties", "{}")] {
        if schema[key].is_object() {
            rules(&schema[key], &[path, &[step.to_owned()]].concat(), found);
        }
    }
}

fn rules_of(schema: &Value) -> Vec<Rule> {
    let mut found = Vec::new();
    rules(schema, &[], &mut found);
    found
}

/// Whether the object has a value at the path, so that the rule there is evaluated.
fn reaches(object: &Value, path: &[String]) -> bool {
    match path.split_first() {
        None => !object.is_null(),
        Some((step, rest)) if step == "[]" => object
            .as_array()
            .is_some_and(|items| items.iter().any(|item| reaches(item, rest))),
        Some((step, rest)) if step == "{}" => object
            .as_object()
            .is_some_and(|map| map.values().any(|value| reaches(value, rest))),
        Some((step, rest)) => object.get(step).is_some_and(|child| reaches(child, rest)),
    }
}

#[test]
fn every_case_gets_the_answer_it_expects() {
    let schemas = schemas();
    for case in cases() {
        let schema = &schemas[&case.kind];
        let is_rule = rules_of(schema).iter().any(|rule| rule.message == case.expect);
        let from_schema = case.expect != "ok" && !is_rule;
        if from_schema {
            // An object that its schema refuses is not for rules to judge; the field it is about has to be named all the same.
            assert!(
                case.expect.starts_with("spec."),
                "{} / {}: expects {:?}, which no rule says",
                case.kind,
                case.name,
                case.expect
            );
            continue;
        }
        let answer = Validator::new().validate_with_defaults(schema, &case.object, case.old.as_ref());
        let said: Vec<String> = answer
            .err()
            .map(|errors| errors.iter().map(|error| error.message.clone()).collect())
            .unwrap_or_default();
        if case.expect == "ok" {
            assert_eq!(said, Vec::<String>::new(), "{} / {}", case.kind, case.name);
        } else {
            assert_eq!(said, [case.expect.as_str()], "{} / {}", case.kind, case.name);
        }
    }
}

#[test]
fn every_rule_has_a_case_that_breaks_it_and_one_that_keeps_it() {
    let cases = cases();
    let mut missing = Vec::new();
    for (kind, schema) in schemas() {
        for rule in rules_of(&schema) {
            let of_kind = || {
                cases.iter().filter(|case| {
                    case.kind == kind
                        && reaches(&case.object, &rule.path)
                        && (!rule.transition || case.old.as_ref().is_some_and(|old| reaches(old, &rule.path)))
                })
            };
            if !of_kind().any(|case| case.expect == rule.message) {
                missing.push(format!(
                    "{kind} at .{}: no case breaks {:?}",
                    rule.path.join("."),
                    rule.message
                ));
            }
            if !of_kind().any(|case| case.expect == "ok") {
                missing.push(format!(
                    "{kind} at .{}: no case keeps {:?}",
                    rule.path.join("."),
                    rule.message
                ));
            }
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

#[test]
fn names_of_cases_are_unique_within_a_kind() {
    let mut seen = BTreeSet::new();
    for case in cases() {
        let first = seen.insert((case.kind.clone(), case.name.clone()));
        assert!(first, "{} / {} twice", case.kind, case.name);
    }
}

#[test]
fn messages_are_one_line_and_say_what_to_write() {
    for (kind, schema) in schemas() {
        for rule in rules_of(&schema) {
            assert!(
                !rule.message.contains('\n') && rule.message.len() < 200,
                "{kind}: {}",
                rule.message
            );
            let tells = [
                "write",
                "create",
                "name ",
                "leave",
                "choose",
                "raise",
                "run ",
                "holds",
                "is a number",
                "is named",
            ];
            assert!(
                tells.iter().any(|word| rule.message.contains(word)),
                "{kind}: {} does not say what to write",
                rule.message
            );
        }
    }
}

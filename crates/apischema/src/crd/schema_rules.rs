//! What a schema must be like to be structural: a type everywhere, nothing but value checks below `anyOf` and its kin,
//! list and map types that make sense, defaults that the schema itself would accept, rules that compile.

use serde_json::Value;

use super::list_rules::{list_and_map_types, map_keys};
use super::{list, text};
use crate::cel::{CelRules, check_rules};
use crate::field_error::{FieldError, Path};
use crate::schema::{SchemaRef, TypeSchema};
use crate::structural::{compile_pattern, prune, validate_at, validate_embedded};

const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];

/// Words that no schema of a custom resource may use. A schema with any of them is not looked at for structure, as
/// upstream cannot read it as one.
const FORBIDDEN: [&str; 6] = [
    "id",
    "additionalItems",
    "patternProperties",
    "definitions",
    "dependencies",
    "$ref",
];

/// Everything wrong with the schema of a version.
pub(super) fn validate_schema(schema: &Value, path: &Path) -> Vec<FieldError> {
    if schema.is_null() {
        return Vec::new();
    }
    let mut errors = Vec::new();
    if flag(schema, "nullable") {
        errors.push(FieldError::forbidden(
            &path.child("nullable"),
            "nullable cannot be true at the root",
        ));
    }
    let mut structural = Vec::new();
    if !has_forbidden(schema) {
        invariants(schema, Level::Root, path, &mut structural);
        completeness(schema, schema, path, path, &mut structural);
        structural.sort_by_cached_key(ToString::to_string);
    }
    let mut sound = structural.is_empty() && !has_forbidden(schema);
    errors.append(&mut structural);
    let typed = TypeSchema::from_inline(schema);
    if sound {
        let before = errors.len();
        defaults(
            &typed,
            typed.root(),
            path,
            Inside {
                meta: false,
                root: true,
            },
            &mut errors,
        );
        sound = errors.len() == before;
    }
    let context = Context {
        is_root: true,
        inside_meta: false,
        forbid_default: None,
        uncorrelatable: None,
    };
    shape(schema, sound.then(|| typed.root()), path, &context, &mut errors);
    errors
}

pub(super) fn flag(schema: &Value, key: &str) -> bool {
    schema.get(key) == Some(&Value::Bool(true))
}

fn properties(schema: &Value) -> impl Iterator<Item = (&String, &Value)> {
    schema
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
}

fn has_forbidden(schema: &Value) -> bool {
    let own = FORBIDDEN.iter().any(|word| schema.get(word).is_some())
        || schema.get("items").is_some_and(Value::is_array)
        || flag(schema, "uniqueItems");
    own || properties(schema).any(|(_, child)| has_forbidden(child))
        || ["items", "additionalProperties", "not"]
            .iter()
            .filter_map(|key| schema.get(key))
            .any(has_forbidden)
        || ["allOf", "anyOf", "oneOf"]
            .iter()
            .any(|key| list(schema, key).iter().any(has_forbidden))
}

#[derive(Clone, Copy, PartialEq)]
enum Level {
    Root,
    Item,
    Field,
}

fn invariants(schema: &Value, level: Level, path: &Path, errors: &mut Vec<FieldError>) {
    let own_type = text(schema, "type");
    match schema.get("items") {
        Some(items) => invariants(items, Level::Item, &path.child("items"), errors),
        None if own_type == "array" => {
            errors.push(FieldError::required(&path.child("items"), "must be specified"));
        }
        None => {}
    }
    for (name, child) in properties(schema) {
        invariants(child, Level::Field, &path.child("properties").key(name), errors);
    }
    let embedded = flag(schema, "x-kubernetes-embedded-resource");
    if let Some(additional) = schema.get("additionalProperties") {
        let at = path.child("additionalProperties");
        if level == Level::Root {
            errors.push(FieldError::forbidden(&at, "must not be used at the root"));
        }
        if embedded {
            errors.push(FieldError::forbidden(
                &at,
                "must not be used if x-kubernetes-embedded-resource is set",
            ));
        }
        if additional.is_object() {
            invariants(additional, Level::Field, &at, errors);
        }
    }
    let int_or_string = flag(schema, "x-kubernetes-int-or-string");
    for key in ["x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource"] {
        if int_or_string && flag(schema, key) {
            let detail = "must be false if x-kubernetes-int-or-string is true";
            errors.push(FieldError::invalid(&path.child(key), true, detail));
        }
    }
    value_checks(schema, int_or_string, path, errors);
    own_type_checks(schema, level, &own_type, path, errors);
    metadata_checks(schema, level, path, errors);
}

fn own_type_checks(schema: &Value, level: Level, own_type: &str, path: &Path, errors: &mut Vec<FieldError>) {
    let at = path.child("type");
    let embedded = flag(schema, "x-kubernetes-embedded-resource");
    let preserves = flag(schema, "x-kubernetes-preserve-unknown-fields");
    if embedded && own_type != "object" {
        let detail = "must be object if x-kubernetes-embedded-resource is true";
        errors.push(match own_type {
            "" => FieldError::required(&at, detail),
            other => FieldError::invalid(&at, other, detail),
        });
    } else if own_type.is_empty() && !flag(schema, "x-kubernetes-int-or-string") && !preserves {
        errors.push(FieldError::required(
            &at,
            match level {
                Level::Root => "must not be empty at the root",
                Level::Item => "must not be empty for specified array items",
                Level::Field => "must not be empty for specified object fields",
            },
        ));
    }
    if level == Level::Root && !matches!(own_type, "" | "object") {
        errors.push(FieldError::invalid(&at, own_type, "must be object at the root"));
    }
    if embedded && !preserves && properties(schema).next().is_none() {
        let detail = "must not be empty if x-kubernetes-embedded-resource is true without \
                      x-kubernetes-preserve-unknown-fields";
        errors.push(FieldError::required(&path.child("properties"), detail));
    }
}

/// Type and metadata of a resource cannot be anything else than what they are.
fn metadata_checks(schema: &Value, level: Level, path: &Path, errors: &mut Vec<FieldError>) {
    if level != Level::Root && !flag(schema, "x-kubernetes-embedded-resource") {
        return;
    }
    for (name, child) in properties(schema) {
        let at = path.child("properties").key(name);
        let found = text(child, "type");
        match name.as_str() {
            "kind" | "apiVersion" if found != "string" => {
                errors.push(FieldError::invalid(&at.child("type"), found, "must be string"));
            }
            "metadata" => {
                if found != "object" {
                    errors.push(FieldError::invalid(&at.child("type"), found, "must be object"));
                }
                let nothing_else = child.as_object().is_some_and(|fields| {
                    fields
                        .keys()
                        .all(|key| matches!(key.as_str(), "type" | "properties" | "default"))
                }) && properties(child)
                    .all(|(name, _)| matches!(name.as_str(), "name" | "generateName"));
                if level == Level::Root && !nothing_else {
                    let detail = "must not specify anything other than name and generateName, but metadata is implicitly specified";
                    errors.push(FieldError::forbidden(&at, detail));
                }
            }
            _ => {}
        }
    }
}

/// The two alternatives that generators write beside `x-kubernetes-int-or-string`, and that may name types.
fn is_int_or_string(alternatives: &[Value]) -> bool {
    matches!(alternatives, [first, second] if *first == serde_json::json!({"type": "integer"})
        && *second == serde_json::json!({"type": "string"}))
}

fn value_checks(schema: &Value, int_or_string: bool, path: &Path, errors: &mut Vec<FieldError>) {
    for key in ["anyOf", "allOf", "oneOf"] {
        if key == "anyOf" && int_or_string && is_int_or_string(list(schema, key)) {
            continue;
        }
        for (index, nested) in list(schema, key).iter().enumerate() {
            let at = path.child(key).index(index);
            let first_of_all = key == "allOf" && index == 0;
            nested_checks(nested, int_or_string && first_of_all, &at, errors);
        }
    }
    if let Some(nested) = schema.get("not") {
        nested_checks(nested, false, &path.child("not"), errors);
    }
    if let Some(pattern) = schema.get("pattern").and_then(Value::as_str)
        && let Err(complaint) = compile_pattern(pattern)
    {
        let detail = format!("must be a valid regular expression, but isn't: {complaint}");
        errors.push(FieldError::invalid(&path.child("pattern"), pattern, detail));
    }
}

fn nested_checks(schema: &Value, int_or_string: bool, path: &Path, errors: &mut Vec<FieldError>) {
    value_checks(schema, int_or_string, path, errors);
    if let Some(items) = schema.get("items") {
        nested_checks(items, false, &path.child("items"), errors);
    }
    for (name, child) in properties(schema) {
        nested_checks(child, false, &path.child("properties").key(name), errors);
        if name == "metadata" {
            let detail = "must not be specified in a nested context";
            errors.push(FieldError::forbidden(&path.child("properties").key(name), detail));
        }
    }
    for (key, words) in [
        ("type", "must be empty to be structural"),
        ("additionalProperties", "must be undefined to be structural"),
        ("default", "must be undefined to be structural"),
        ("title", "must be empty to be structural"),
        ("description", "must be empty to be structural"),
        ("nullable", "must be false to be structural"),
        ("x-kubernetes-preserve-unknown-fields", "must be false to be structural"),
        ("x-kubernetes-embedded-resource", "must be false to be structural"),
        ("x-kubernetes-int-or-string", "must be false to be structural"),
        ("x-kubernetes-list-map-keys", "must be empty to be structural"),
        ("x-kubernetes-list-type", "must be undefined to be structural"),
        ("x-kubernetes-map-type", "must be undefined to be structural"),
        ("x-kubernetes-validations", "must be empty to be structural"),
    ] {
        let is_set = schema
            .get(key)
            .is_some_and(|value| !value.is_null() && value != false && value != "");
        if is_set {
            errors.push(FieldError::forbidden(&path.child(key), words));
        }
    }
}

/// What is checked in an alternative must be declared outside of it.
fn completeness(nested: &Value, schema: &Value, place: &Path, from: &Path, errors: &mut Vec<FieldError>) {
    let branches = ["allOf", "anyOf", "oneOf"].into_iter().flat_map(|key| {
        list(nested, key)
            .iter()
            .enumerate()
            .map(move |(index, branch)| (from.child(key).index(index), branch))
    });
    let not = nested.get("not").map(|branch| (from.child("not"), branch));
    for (from, branch) in not.into_iter().chain(branches) {
        declared(branch, schema, place, &from, errors);
    }
}

fn declared(nested: &Value, schema: &Value, place: &Path, from: &Path, errors: &mut Vec<FieldError>) {
    completeness(nested, schema, place, from, errors);
    let missing = |place: &Path, from: &Path| FieldError::required(place, format!("because it is defined in {from}"));
    if let Some(items) = nested.get("items") {
        let (place, from) = (place.child("items"), from.child("items"));
        match schema.get("items") {
            Some(outer) => declared(items, outer, &place, &from, errors),
            None => errors.push(missing(&place, &from)),
        }
    }
    for (name, child) in properties(nested) {
        let (place, from) = (place.child("properties").key(name), from.child("properties").key(name));
        match schema.get("properties").and_then(|outer| outer.get(name)) {
            Some(outer) => declared(child, outer, &place, &from, errors),
            None => errors.push(missing(&place, &from)),
        }
    }
}

/// Where the walk over defaults is.
#[derive(Clone, Copy)]
struct Inside {
    meta: bool,
    root: bool,
}

/// Defaults must be what the schema would accept; those inside of metadata are left to the checks of objects.
fn defaults(typed: &TypeSchema, schema: SchemaRef<'_>, path: &Path, inside: Inside, errors: &mut Vec<FieldError>) {
    let node = schema.node();
    if let Some(default) = node
        .default
        .as_ref()
        .filter(|default| !default.is_null() && !inside.meta)
    {
        let at = path.child("default");
        let mut pruned = default.clone();
        prune(&mut pruned, schema, node.embedded_resource);
        if pruned != *default {
            errors.push(FieldError::invalid(
                &at,
                default.clone(),
                "must not have unknown fields",
            ));
        }
        let found = if node.embedded_resource {
            validate_embedded(default, schema)
        } else {
            Vec::new()
        };
        let found = if found.is_empty() {
            validate_at(default, None, schema, &at)
        } else {
            found
        };
        if found.is_empty() && !node.cel.is_empty() {
            let own = TypeSchema::new(typed.set().clone(), schema.id());
            let evaluation = CelRules::compile(&own).evaluate(&own, default, None);
            errors.extend(evaluation.errors.into_iter().map(|error| FieldError {
                path: at.to_string(),
                ..error
            }));
        }
        errors.extend(found);
    }
    if let Some(items) = schema.items() {
        defaults(
            typed,
            items,
            &path.child("items"),
            Inside { root: false, ..inside },
            errors,
        );
    }
    let is_resource = inside.root || node.embedded_resource;
    for (name, id) in &node.properties {
        let meta = inside.meta || is_resource && matches!(name.as_str(), "metadata" | "apiVersion" | "kind");
        let inside = Inside { meta, root: false };
        defaults(
            typed,
            schema.child(*id),
            &path.child("properties").key(name),
            inside,
            errors,
        );
    }
}

#[derive(Clone)]
struct Context {
    is_root: bool,
    inside_meta: bool,
    forbid_default: Option<String>,
    /// The list above whose items cannot be followed from old to new.
    uncorrelatable: Option<Path>,
}

/// The checks that do not need the schema to be structural, and the rules, which need it to be sound (`typed`).
fn shape(schema: &Value, typed: Option<SchemaRef<'_>>, path: &Path, context: &Context, errors: &mut Vec<FieldError>) {
    let before = errors.len();
    words(schema, path, context, errors);
    let inner = Context {
        is_root: false,
        ..context.clone()
    };
    if let Some(additional) = schema.get("additionalProperties") {
        let at = path.child("additionalProperties");
        if properties(schema).next().is_some() && *additional != true {
            errors.push(FieldError::forbidden(
                &at,
                "additionalProperties and properties are mutual exclusive",
            ));
        }
        if additional.is_object() {
            shape(additional, typed.and_then(SchemaRef::additional), &at, &inner, errors);
        }
    }
    for (name, child) in properties(schema) {
        let is_resource = context.is_root || flag(schema, "x-kubernetes-embedded-resource");
        let mut inner = inner.clone();
        if is_resource && matches!(name.as_str(), "apiVersion" | "kind" | "metadata") {
            inner.inside_meta = true;
            if context.is_root {
                inner.forbid_default = Some(format!("in top-level {name}"));
            }
        }
        let child_type = typed.and_then(|typed| typed.property(name));
        shape(child, child_type, &path.child("properties").key(name), &inner, errors);
    }
    for key in ["not", "allOf", "oneOf", "anyOf"] {
        match schema.get(key) {
            Some(Value::Array(branches)) => {
                for (index, branch) in branches.iter().enumerate() {
                    shape(branch, None, &path.child(key).index(index), &inner, errors);
                }
            }
            Some(branch) => shape(branch, None, &path.child(key), &inner, errors),
            None => {}
        }
    }
    if let Some(items) = schema.get("items").filter(|items| items.is_object()) {
        let mut inner = inner;
        if text(schema, "x-kubernetes-list-type") != "map" {
            inner.uncorrelatable.get_or_insert_with(|| path.clone());
        }
        shape(
            items,
            typed.and_then(SchemaRef::items),
            &path.child("items"),
            &inner,
            errors,
        );
    }
    list_and_map_types(schema, path, errors);
    map_keys(schema, path, errors);
    let rules = list(schema, "x-kubernetes-validations");
    if let (Some(typed), true) = (typed, errors.len() == before) {
        let is_resource = context.is_root || typed.embedded_resource;
        errors.extend(check_rules(
            rules,
            typed,
            is_resource,
            context.uncorrelatable.as_ref(),
            path,
        ));
    }
}

fn words(schema: &Value, path: &Path, context: &Context, errors: &mut Vec<FieldError>) {
    let own_type = text(schema, "type");
    if !own_type.is_empty() && !TYPES.contains(&own_type.as_str()) {
        errors.push(FieldError::not_supported(
            &path.child("type"),
            own_type.as_str(),
            &TYPES,
        ));
    }
    if schema.get("default").is_some_and(|default| !default.is_null())
        && let Some(reason) = &context.forbid_default
    {
        errors.push(FieldError::forbidden(
            &path.child("default"),
            format!("must not be set {reason}"),
        ));
    }
    for word in FORBIDDEN {
        if schema.get(word).is_some() {
            errors.push(FieldError::forbidden(
                &path.child(word),
                format!("{word} is not supported"),
            ));
        }
    }
    if own_type == "null" {
        let detail = "type cannot be set to null, use nullable as an alternative";
        errors.push(FieldError::forbidden(&path.child("type"), detail));
    }
    if schema.get("items").is_some_and(Value::is_array) {
        let detail = "items must be a schema object and not an array";
        errors.push(FieldError::forbidden(&path.child("items"), detail));
    }
    if context.inside_meta && flag(schema, "x-kubernetes-embedded-resource") {
        let detail = "must not be used inside of resource meta";
        errors.push(FieldError::forbidden(
            &path.child("x-kubernetes-embedded-resource"),
            detail,
        ));
    }
    if flag(schema, "uniqueItems") {
        let detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        errors.push(FieldError::forbidden(&path.child("uniqueItems"), detail));
    }
    if schema.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(false)) {
        let at = path.child("x-kubernetes-preserve-unknown-fields");
        errors.push(FieldError::invalid(&at, false, "must be true or undefined"));
    }
}

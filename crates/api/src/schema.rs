//! Turns the Rust types of our own kinds into CRD schemas a person can read with `kubectl explain`.
//! The rules themselves live beside the fields they guard; here is only what holds for every schema: no `null`
//! as a value, one list of words for an enumeration, formats the API server knows, limits on every condition.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube_core::{Rule, validate};
use schemars::generate::SchemaGenerator;
use schemars::{JsonSchema, Schema};
use serde_json::{Map, Value, json};

/// The schema of a kind with `spec` and `status`, ready for the API server.
///
/// Deriving it (what kube does by default) would mark every optional field `nullable`, which lets a CEL rule meet a
/// `null` where `has(self.field)` promised a value. Go's generator never does that, and neither do we.
pub(crate) fn root_schema<Spec: JsonSchema, Status: JsonSchema>(
    generator: &mut SchemaGenerator,
    description: &str,
    rules: &[Rule],
) -> Schema {
    let mut schema = schemars::json_schema!({
        "type": "object",
        "description": description,
        "required": ["spec"],
        "properties": {
            "spec": generator.subschema_for::<Spec>(),
            "status": generator.subschema_for::<Status>(),
        },
    });
    for rule in rules {
        // A `Rule` is strings and booleans: it always serialises, and a rule that were lost would be missed by the
        // test that wants a case for each message.
        let _ = validate(&mut schema, rule.clone());
    }
    let mut value = schema.to_value();
    tidy(&mut value);
    Schema::try_from(value).unwrap_or_default()
}

/// A list of conditions, merged by type. Types and reasons are limited as Kubernetes itself does (`metav1.Condition` markers);
/// messages more tightly, since a status full of the longest ones it allows would alone pass what etcd accepts.
pub(crate) fn conditions(generator: &mut SchemaGenerator) -> Schema {
    let mut condition = Condition::json_schema(generator).to_value();
    let limits = [
        ("type", json!({"minLength": 1, "maxLength": 316})),
        ("status", json!({"enum": ["True", "False", "Unknown"]})),
        ("reason", json!({"minLength": 1, "maxLength": 1024})),
        ("message", json!({"maxLength": 2048})),
        ("observedGeneration", json!({"minimum": 0})),
    ];
    for (field, limit) in limits {
        let target = condition
            .pointer_mut(&format!("/properties/{field}"))
            .and_then(Value::as_object_mut);
        if let (Some(target), Value::Object(limit)) = (target, limit) {
            target.extend(limit);
        }
    }
    schemars::json_schema!({
        "type": "array",
        "maxItems": 24,
        "items": condition,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
    })
}

/// A number or a percentage. Without the bound on its length the cost estimate of a rule with a regular expression
/// exceeds what the API server allows for a CRD.
pub(crate) fn int_or_percent(_: &mut SchemaGenerator) -> Schema {
    schemars::json_schema!({ "x-kubernetes-int-or-string": true, "maxLength": 4 })
}

/// Makes every object in a schema keep the fields it does not name.
pub(crate) fn keep_unknown_fields(value: &mut Value) {
    let Value::Object(schema) = value else { return };
    if schema.contains_key("properties") {
        schema.insert("x-kubernetes-preserve-unknown-fields".to_owned(), Value::Bool(true));
    }
    if let Some(Value::Object(children)) = schema.get_mut("properties") {
        children.values_mut().for_each(keep_unknown_fields);
    }
    for key in ["items", "additionalProperties"] {
        if let Some(child) = schema.get_mut(key) {
            keep_unknown_fields(child);
        }
    }
}

/// Applies the house rules to a schema and everything below it.
pub(crate) fn tidy(value: &mut Value) {
    if let Value::Object(schema) = value {
        drop_null(schema);
        hoist_enumeration(schema);
        keep_known_format(schema);
        if schema.get("default").is_some_and(Value::is_null) {
            schema.remove("default");
        }
        if let Some(Value::String(text)) = schema.get_mut("description") {
            *text = reflow(text);
        }
        schema.remove("title");
        if schema.contains_key("x-kubernetes-int-or-string") {
            // Said aloud, because kube marks every optional one of these nullable that says nothing about it.
            schema.insert("nullable".to_owned(), Value::Bool(false));
        }
        for key in ["properties", "patternProperties"] {
            if let Some(Value::Object(children)) = schema.get_mut(key) {
                children.values_mut().for_each(tidy);
            }
        }
        for key in ["items", "additionalProperties"] {
            if let Some(child) = schema.get_mut(key) {
                tidy(child);
            }
        }
    }
}

/// `Option<T>` arrives as `T | null` in one of three spellings.
fn drop_null(schema: &mut Map<String, Value>) {
    schema.remove("nullable");
    if let Some(Value::Array(types)) = schema.get_mut("type") {
        types.retain(|kind| kind != "null");
        if let [only] = types.as_slice() {
            let only = only.clone();
            schema.insert("type".to_owned(), only);
        }
    }
    if let Some(Value::Array(words)) = schema.get_mut("enum") {
        words.retain(|word| !word.is_null());
    }
    let Some(Value::Array(alternatives)) = schema.get("anyOf") else {
        return;
    };
    let kept: Vec<Value> = alternatives.iter().filter(|one| !is_null_type(one)).cloned().collect();
    if let [Value::Object(only)] = kept.as_slice() {
        schema.remove("anyOf");
        for (key, value) in only {
            merge_keyword(schema, key, value);
        }
        drop_null(schema);
    }
}

fn is_null_type(schema: &Value) -> bool {
    schema.get("type").is_some_and(|kind| kind == "null")
}

/// The field's own words win over those of its type; rules add up.
fn merge_keyword(schema: &mut Map<String, Value>, key: &str, value: &Value) {
    match (schema.get_mut(key), value) {
        (Some(Value::Array(mine)), Value::Array(theirs)) if key == "x-kubernetes-validations" => {
            mine.extend(theirs.iter().cloned());
        }
        (Some(_), _) => {}
        (None, _) => {
            schema.insert(key.to_owned(), value.clone());
        }
    }
}

/// An enumeration whose variants are documented arrives as `oneOf` constants: becomes one `enum`, and the meaning of
/// each word goes to the description, where `kubectl explain` shows it.
fn hoist_enumeration(schema: &mut Map<String, Value>) {
    let Some(Value::Array(variants)) = schema.get("oneOf") else {
        return;
    };
    let mut words = Vec::new();
    let mut meanings = Vec::new();
    for variant in variants {
        match (variant.get("const"), variant.get("enum")) {
            (Some(word), _) => {
                if let (Some(word), Some(Value::String(meaning))) = (word.as_str(), variant.get("description")) {
                    meanings.push(format!("`{word}`: {}", reflow(meaning)));
                }
                words.push(word.clone());
            }
            (None, Some(Value::Array(plain))) => words.extend(plain.iter().cloned()),
            _ => return,
        }
    }
    schema.remove("oneOf");
    schema.insert("type".to_owned(), json!("string"));
    schema.insert("enum".to_owned(), Value::Array(words));
    if !meanings.is_empty() {
        let head = schema.get("description").and_then(Value::as_str).unwrap_or_default();
        let text = format!("{head}\n\n{}", meanings.join("\n\n"));
        schema.insert("description".to_owned(), json!(text.trim_start()));
    }
}

/// The API server warns at every apply about formats it does not know (`uint32` and its like).
fn keep_known_format(schema: &mut Map<String, Value>) {
    let known = ["int32", "int64", "date-time", "double", "float"];
    if schema
        .get("format")
        .and_then(Value::as_str)
        .is_some_and(|format| !known.contains(&format))
    {
        schema.remove("format");
    }
}

/// Doc comments are wrapped for the editor; a paragraph is one line here.
fn reflow(text: &str) -> String {
    let paragraphs = text
        .split("\n\n")
        .map(|paragraph| paragraph.split_whitespace().collect::<Vec<_>>().join(" "));
    paragraphs.collect::<Vec<_>>().join("\n\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tidied(mut value: Value) -> Value {
        tidy(&mut value);
        value
    }

    #[test]
    fn an_optional_field_is_absent_or_present_but_never_null() {
        let cases = [
            (json!({"type": ["string", "null"]}), json!({"type": "string"})),
            (
                json!({"anyOf": [{"type": "object"}, {"type": "null"}]}),
                json!({"type": "object"}),
            ),
            (
                json!({"type": ["string", "null"], "enum": ["a", null]}),
                json!({"type": "string", "enum": ["a"]}),
            ),
        ];
        for (before, after) in cases {
            assert_eq!(tidied(before), after);
        }
    }

    #[test]
    fn rules_of_a_field_and_of_its_type_add_up_and_the_nearest_description_wins() {
        let before = json!({
            "description": "field", "x-kubernetes-validations": [{"rule": "a"}],
            "anyOf": [{"description": "type", "x-kubernetes-validations": [{"rule": "b"}], "type": "object"}, {"type": "null"}],
        });
        let after = json!({
            "description": "field", "x-kubernetes-validations": [{"rule": "a"}, {"rule": "b"}], "type": "object",
        });
        assert_eq!(tidied(before), after);
    }

    #[test]
    fn words_of_an_enumeration_keep_their_meaning() {
        let before = json!({"description": "How.", "oneOf": [
            {"const": "auto", "type": "string", "description": "By\nitself."}, {"type": "string", "enum": ["manual"]},
        ]});
        let after = json!({"description": "How.\n\n`auto`: By itself.", "type": "string", "enum": ["auto", "manual"]});
        assert_eq!(tidied(before), after);
    }

    #[test]
    fn formats_unknown_to_the_api_server_go_and_the_others_stay() {
        assert_eq!(tidied(json!({"format": "uint32"})), json!({}));
        assert_eq!(tidied(json!({"format": "int32"})), json!({"format": "int32"}));
    }
}

//! A schema node as OpenAPI v3 JSON. Named components become references; what a node says beside a reference stays
//! beside it.

use afloat_apischema::schema::{CelRule, JsonType, Limits, ListType, Node, PatchStrategy, SchemaRef};
use serde_json::{Map, Value, json};

/// The address of a component inside a document.
pub fn reference(component: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{component}")})
}

/// A schema where it is used: a reference when it is a component of its own, else inline.
pub fn usage(schema: SchemaRef<'_>) -> Value {
    let Some(name) = schema.node().name.as_deref() else {
        return definition(schema);
    };
    let node = schema.node();
    let mut beside = Map::new();
    text(&mut beside, "description", node.description.as_deref());
    if let Some(default) = &node.default {
        beside.insert("default".to_owned(), default.clone());
    }
    patch_strategy(&mut beside, &node.patch);
    if beside.is_empty() {
        return reference(name);
    }
    beside.insert("allOf".to_owned(), json!([reference(name)]));
    Value::Object(beside)
}

/// A schema where it is declared.
pub fn definition(schema: SchemaRef<'_>) -> Value {
    let node = schema.node();
    let mut fields = Map::new();
    text(&mut fields, "description", node.description.as_deref());
    value_type(&mut fields, node);
    if let Some(default) = &node.default {
        fields.insert("default".to_owned(), default.clone());
    }
    if node.nullable {
        fields.insert("nullable".to_owned(), true.into());
    }
    if !node.enum_values.is_empty() {
        fields.insert("enum".to_owned(), json!(node.enum_values));
    }
    children(&mut fields, schema);
    limits(&mut fields, &node.limits);
    extensions(&mut fields, node);
    Value::Object(fields)
}

fn text(fields: &mut Map<String, Value>, name: &str, value: Option<&str>) {
    if let Some(value) = value {
        fields.insert(name.to_owned(), value.into());
    }
}

fn value_type(fields: &mut Map<String, Value>, node: &Node) {
    let name = match node.json_type {
        JsonType::Object => Some("object"),
        JsonType::Array => Some("array"),
        JsonType::String => Some("string"),
        JsonType::Integer => Some("integer"),
        JsonType::Number => Some("number"),
        JsonType::Boolean => Some("boolean"),
        JsonType::IntOrString | JsonType::Any => None,
    };
    text(fields, "type", name);
    text(fields, "format", node.format.as_deref());
    if node.json_type == JsonType::IntOrString {
        let either = json!([{"type": "integer"}, {"type": "string"}]);
        // Built-in kinds say it by format, custom resources by an extension.
        if node.format.is_some() {
            fields.insert("oneOf".to_owned(), either);
        } else {
            fields.insert("x-kubernetes-int-or-string".to_owned(), true.into());
            fields.insert("anyOf".to_owned(), either);
        }
    }
}

fn children(fields: &mut Map<String, Value>, schema: SchemaRef<'_>) {
    let node = schema.node();
    if !node.properties.is_empty() {
        let properties: Map<String, Value> = node
            .properties
            .iter()
            .map(|(name, id)| (name.clone(), usage(schema.child(*id))))
            .collect();
        fields.insert("properties".to_owned(), properties.into());
    }
    if !node.required.is_empty() {
        fields.insert("required".to_owned(), json!(node.required));
    }
    if let Some(items) = schema.items() {
        fields.insert("items".to_owned(), usage(items));
    }
    if let Some(additional) = schema.additional() {
        fields.insert("additionalProperties".to_owned(), usage(additional));
    }
    for (name, members) in [
        ("allOf", &node.all_of),
        ("anyOf", &node.any_of),
        ("oneOf", &node.one_of),
    ] {
        if !members.is_empty() {
            let members: Vec<Value> = members.iter().map(|id| usage(schema.child(*id))).collect();
            fields.insert(name.to_owned(), Value::Array(members));
        }
    }
    if let Some(not) = node.not {
        fields.insert("not".to_owned(), usage(schema.child(not)));
    }
}

fn limits(fields: &mut Map<String, Value>, limits: &Limits) {
    let bounds = [
        ("minimum", limits.minimum),
        ("maximum", limits.maximum),
        ("multipleOf", limits.multiple_of),
    ];
    for (name, bound) in bounds {
        if let Some(bound) = bound {
            fields.insert(name.to_owned(), number(bound));
        }
    }
    let counts = [
        ("minLength", limits.min_length),
        ("maxLength", limits.max_length),
        ("minItems", limits.min_items),
        ("maxItems", limits.max_items),
        ("minProperties", limits.min_properties),
        ("maxProperties", limits.max_properties),
    ];
    for (name, count) in counts {
        if let Some(count) = count {
            fields.insert(name.to_owned(), count.into());
        }
    }
    let flags = [
        ("exclusiveMinimum", limits.exclusive_minimum),
        ("exclusiveMaximum", limits.exclusive_maximum),
        ("uniqueItems", limits.unique_items),
    ];
    for (name, _) in flags.into_iter().filter(|(_, set)| *set) {
        fields.insert(name.to_owned(), true.into());
    }
    text(fields, "pattern", limits.pattern.as_deref());
}

/// Whole bounds are written without a fraction.
fn number(bound: f64) -> Value {
    format!("{bound}")
        .parse::<i64>()
        .map_or_else(|_| json!(bound), Value::from)
}

fn extensions(fields: &mut Map<String, Value>, node: &Node) {
    match &node.list_type {
        ListType::Atomic => {}
        ListType::Set => text(fields, "x-kubernetes-list-type", Some("set")),
        ListType::Map(keys) => {
            text(fields, "x-kubernetes-list-type", Some("map"));
            fields.insert("x-kubernetes-list-map-keys".to_owned(), json!(keys));
        }
    }
    if node.atomic_map {
        text(fields, "x-kubernetes-map-type", Some("atomic"));
    }
    patch_strategy(fields, &node.patch);
    let flags = [
        ("x-kubernetes-preserve-unknown-fields", node.preserve_unknown),
        ("x-kubernetes-embedded-resource", node.embedded_resource),
    ];
    for (name, _) in flags.into_iter().filter(|(_, set)| *set) {
        fields.insert(name.to_owned(), true.into());
    }
    if !node.cel.is_empty() {
        fields.insert(
            "x-kubernetes-validations".to_owned(),
            node.cel.iter().map(cel_rule).collect(),
        );
    }
}

fn patch_strategy(fields: &mut Map<String, Value>, patch: &PatchStrategy) {
    let strategies: Vec<&str> = [
        (patch.merge, "merge"),
        (patch.replace, "replace"),
        (patch.retain_keys, "retainKeys"),
    ]
    .into_iter()
    .filter_map(|(set, name)| set.then_some(name))
    .collect();
    if !strategies.is_empty() {
        fields.insert("x-kubernetes-patch-strategy".to_owned(), strategies.join(",").into());
    }
    text(fields, "x-kubernetes-patch-merge-key", patch.merge_key.as_deref());
}

fn cel_rule(rule: &CelRule) -> Value {
    let mut fields = Map::new();
    text(&mut fields, "rule", Some(&rule.rule));
    text(&mut fields, "message", rule.message.as_deref());
    text(&mut fields, "messageExpression", rule.message_expression.as_deref());
    text(&mut fields, "reason", rule.reason.as_deref());
    text(&mut fields, "fieldPath", rule.field_path.as_deref());
    if rule.optional_old_self {
        fields.insert("optionalOldSelf".to_owned(), true.into());
    }
    Value::Object(fields)
}

//! Values as CEL sees them: typed by the schema, with the field names escaped that CEL could not say.

use std::collections::HashMap;
use std::sync::Arc;

use base64::Engine as _;
use kube_cel::KubeCelExt as _;
use kube_cel::cel::objects::{Key, Map};
use kube_cel::cel::{Context, Program, Value as CelValue};
use serde_json::Value;

use crate::schema::{JsonType, SchemaRef};

const RESERVED: [&str; 21] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

thread_local! {
    /// All functions of the API server; registering them costs more than most rules.
    static FUNCTIONS: Context<'static> = functions();
    static CONVERSIONS: Conversions = Conversions {
        timestamp: Program::compile("timestamp(text)").ok(),
        duration: Program::compile("duration(text)").ok(),
    };
}

fn functions() -> Context<'static> {
    let mut functions = Context::default().with_all();
    // The language has types as values, the engine has not: their names serve, since nothing but equality is asked of
    // them.
    functions.add_function("type", |value: CelValue| Arc::new(type_name(&value).to_owned()));
    for name in [
        "bool",
        "bytes",
        "double",
        "int",
        "list",
        "map",
        "null_type",
        "string",
        "uint",
    ] {
        functions.add_variable_from_value(name, CelValue::String(Arc::new(name.to_owned())));
    }
    functions
}

fn type_name(value: &CelValue) -> &'static str {
    match value {
        CelValue::Bool(_) => "bool",
        CelValue::Bytes(_) => "bytes",
        CelValue::Float(_) => "double",
        CelValue::Int(_) => "int",
        CelValue::List(_) => "list",
        CelValue::Map(_) => "map",
        CelValue::Null => "null_type",
        CelValue::String(_) => "string",
        CelValue::UInt(_) => "uint",
        CelValue::Duration(_) => "google.protobuf.Duration",
        CelValue::Timestamp(_) => "google.protobuf.Timestamp",
        CelValue::Function(..) | CelValue::Opaque(_) => "dyn",
    }
}

/// Texts become times by CEL's own functions, so that this crate needs no types of theirs.
struct Conversions {
    timestamp: Option<Program>,
    duration: Option<Program>,
}

pub(super) fn with_functions<T>(run: impl FnOnce(&Context<'static>) -> T) -> T {
    FUNCTIONS.with(run)
}

/// The name by which CEL selects a declared field.
pub(super) fn escape(name: &str) -> String {
    if RESERVED.contains(&name) {
        return format!("__{name}__");
    }
    if !name.contains(['.', '-', '/']) && !name.contains("__") {
        return name.to_owned();
    }
    name.replace("__", "__underscores__")
        .replace('.', "__dot__")
        .replace('-', "__dash__")
        .replace('/', "__slash__")
}

/// Converts a value; the root of a resource and embedded ones always have their type and metadata.
pub(super) fn to_cel(value: &Value, schema: Option<SchemaRef<'_>>, is_resource: bool) -> CelValue {
    let json_type = schema.map_or(JsonType::Any, |schema| schema.json_type);
    match value {
        Value::Null => CelValue::Null,
        Value::Bool(flag) => CelValue::Bool(*flag),
        Value::Number(number) => match number.as_i64() {
            Some(whole) if json_type != JsonType::Number => CelValue::Int(whole),
            _ => CelValue::Float(number.as_f64().unwrap_or_default()),
        },
        Value::String(text) => text_to_cel(text, schema),
        Value::Array(items) => {
            let item_schema = schema.and_then(SchemaRef::items);
            CelValue::List(Arc::new(
                items.iter().map(|item| item_to_cel(item, item_schema)).collect(),
            ))
        }
        Value::Object(fields) => {
            let mut map = HashMap::with_capacity(fields.len());
            for (name, child) in fields {
                if is_resource && matches!(name.as_str(), "apiVersion" | "kind" | "metadata") {
                    let shown = if name == "metadata" {
                        visible_metadata(child)
                    } else {
                        to_cel(child, None, false)
                    };
                    map.insert(text_key(name.clone()), shown);
                    continue;
                }
                let Some(schema) = schema else {
                    map.insert(text_key(name.clone()), to_cel(child, None, false));
                    continue;
                };
                if let Some(id) = schema.node().properties.get(name) {
                    map.insert(text_key(escape(name)), item_to_cel(child, Some(schema.child(*id))));
                } else if schema.node().additional.is_some() || schema.preserve_unknown {
                    map.insert(text_key(name.clone()), item_to_cel(child, schema.additional()));
                }
            }
            CelValue::Map(Map { map: Arc::new(map) })
        }
    }
}

fn item_to_cel(value: &Value, schema: Option<SchemaRef<'_>>) -> CelValue {
    to_cel(value, schema, schema.is_some_and(|schema| schema.embedded_resource))
}

/// Rules see the name of an object and nothing else of its metadata.
fn visible_metadata(metadata: &Value) -> CelValue {
    let visible = ["name", "generateName"].into_iter().filter_map(|name| {
        let text = metadata.get(name).and_then(Value::as_str)?;
        Some((text_key(name.to_owned()), CelValue::String(Arc::new(text.to_owned()))))
    });
    CelValue::Map(Map {
        map: Arc::new(visible.collect()),
    })
}

fn text_key(name: String) -> Key {
    Key::String(Arc::new(name))
}

fn text_to_cel(text: &str, schema: Option<SchemaRef<'_>>) -> CelValue {
    let plain = || CelValue::String(Arc::new(text.to_owned()));
    let Some(schema) = schema.filter(|schema| schema.json_type == JsonType::String) else {
        return plain();
    };
    let converted = match schema.node().format.as_deref() {
        Some("byte") => {
            let bytes = base64::engine::general_purpose::STANDARD.decode(text).ok();
            bytes.map(|bytes| CelValue::Bytes(Arc::new(bytes)))
        }
        Some("date-time") => CONVERSIONS.with(|conversions| convert(conversions.timestamp.as_ref(), text)),
        Some("date") => {
            CONVERSIONS.with(|conversions| convert(conversions.timestamp.as_ref(), &format!("{text}T00:00:00Z")))
        }
        Some("duration") => CONVERSIONS.with(|conversions| convert(conversions.duration.as_ref(), text)),
        _ => None,
    };
    converted.unwrap_or_else(plain)
}

fn convert(program: Option<&Program>, text: &str) -> Option<CelValue> {
    with_functions(|functions| {
        let mut scope = functions.new_inner_scope();
        scope.add_variable_from_value("text", CelValue::String(Arc::new(text.to_owned())));
        program?.execute(&scope).ok()
    })
}

//! The numbers, names and types of the fields of every built-in message, from `fields.txt`. That file holds what the
//! published `.proto` files of Kubernetes 1.36 say, with the JSON names, for the messages that the built-in kinds need:
//! a line with a message's name, then per field its number, name, shape and type.

use std::collections::BTreeMap;
use std::sync::OnceLock;

/// One field of a message.
#[derive(Debug)]
pub struct Field {
    pub number: u64,
    /// As in JSON.
    pub name: String,
    pub shape: Shape,
    pub value_type: ValueType,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    One,
    Many,
    /// From text to the type.
    Map,
    /// The fields of the message belong to the message around it.
    Inline,
}

#[derive(Debug, PartialEq, Eq)]
pub enum ValueType {
    Boolean,
    Integer,
    Text,
    Bytes,
    /// A message that only wraps a list of texts.
    Texts,
    Quantity,
    IntOrString,
    Time {
        micro: bool,
    },
    /// JSON within the message.
    Json,
    Message(String),
}

/// The fields of a message by the name of its OpenAPI component.
pub fn message(component: &str) -> Option<&'static [Field]> {
    static MESSAGES: OnceLock<BTreeMap<String, Vec<Field>>> = OnceLock::new();
    MESSAGES
        .get_or_init(|| read(include_str!("fields.txt")))
        .get(component)
        .map(Vec::as_slice)
}

/// Lines that are damaged are left out; a test counts them.
fn read(text: &str) -> BTreeMap<String, Vec<Field>> {
    let mut messages: BTreeMap<String, Vec<Field>> = BTreeMap::new();
    let mut current = String::new();
    for line in text.lines() {
        if let Some(field) = line.strip_prefix(' ') {
            messages.entry(current.clone()).or_default().extend(read_field(field));
        } else {
            line.clone_into(&mut current);
            messages.entry(current.clone()).or_default();
        }
    }
    messages
}

fn read_field(line: &str) -> Option<Field> {
    let mut words = line.split(' ');
    let number = words.next()?.parse().ok()?;
    let name = words.next()?.to_owned();
    let shape = match words.next()? {
        "optional" => Shape::One,
        "repeated" => Shape::Many,
        "map" => Shape::Map,
        "inline" => Shape::Inline,
        _ => return None,
    };
    Some(Field {
        number,
        name,
        shape,
        value_type: value_type(words.next()?),
    })
}

fn value_type(name: &str) -> ValueType {
    match name {
        "bool" => ValueType::Boolean,
        "int32" | "int64" => ValueType::Integer,
        "string" => ValueType::Text,
        "bytes" => ValueType::Bytes,
        "strings" => ValueType::Texts,
        "io.k8s.apimachinery.pkg.api.resource.Quantity" => ValueType::Quantity,
        "io.k8s.apimachinery.pkg.util.intstr.IntOrString" => ValueType::IntOrString,
        "io.k8s.apimachinery.pkg.apis.meta.v1.Time" => ValueType::Time { micro: false },
        "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime" => ValueType::Time { micro: true },
        "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1" | "io.k8s.apimachinery.pkg.runtime.RawExtension" => {
            ValueType::Json
        }
        message => ValueType::Message(message.to_owned()),
    }
}

#[test]
fn table_is_whole() {
    let text = include_str!("fields.txt");
    let messages = read(text);
    let fields = text.lines().filter(|line| line.starts_with(' ')).count();
    assert_eq!(messages.values().map(Vec::len).sum::<usize>(), fields);
    for (name, fields) in &messages {
        for field in fields {
            if let ValueType::Message(inner) = &field.value_type {
                assert!(messages.contains_key(inner), "{name}.{} is a {inner}", field.name);
            }
        }
    }
}

//! The Go types behind the schemas: which fields are pointers, which vanish when empty, which are printed always. Read
//! from the `x-go-*` notes in the data. How a value is brought into that form is `normalise`'s.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// Index of a type within [`GoTypes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TypeId(usize);

/// All types of the data.
#[derive(Debug, Default)]
pub struct GoTypes {
    types: Vec<GoType>,
    names: BTreeMap<String, TypeId>,
}

/// What a field holds.
#[derive(Debug)]
pub enum GoType {
    Struct(StructType),
    Map(TypeId),
    List(TypeId),
    Text,
    Bool,
    Int32,
    Int64,
    Float,
    Quantity,
    IntOrString,
    Time,
    MicroTime,
    Bytes,
    /// Any JSON, kept as it is.
    Raw,
}

/// A Go struct; fields in the order of their names.
#[derive(Debug, Default)]
pub struct StructType {
    pub name: String,
    pub fields: Vec<Field>,
}

#[derive(Debug)]
pub struct Field {
    pub name: String,
    pub holds: TypeId,
    pub pointer: bool,
    pub printed: Printed,
    /// Name of the Go type where it is not plain (`v1.Protocol`).
    pub go_type: Option<String>,
    /// The embedded struct that declares the field.
    pub embedded: Option<String>,
}

/// When a field is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Printed {
    /// `omitempty`: not when zero.
    UnlessEmpty,
    /// No `omitempty`, or a struct held by value (which `omitempty` does not reach).
    Always,
}

impl StructType {
    pub fn field(&self, name: &str) -> Option<&Field> {
        let index = self
            .fields
            .binary_search_by(|field| field.name.as_str().cmp(name))
            .ok()?;
        self.fields.get(index)
    }
}

impl GoTypes {
    pub fn read(components: &Map<String, Value>) -> Self {
        let mut types = Self::default();
        for name in components.keys() {
            let id = types.push(GoType::Raw);
            types.names.insert(name.clone(), id);
        }
        for (name, schema) in components {
            let id = types.names[name];
            types.types[id.0] = types.component(name, schema);
        }
        types
    }

    pub fn named(&self, component: &str) -> Option<TypeId> {
        self.names.get(component).copied()
    }

    pub fn get(&self, id: TypeId) -> &GoType {
        &self.types[id.0]
    }

    fn push(&mut self, go_type: GoType) -> TypeId {
        self.types.push(go_type);
        TypeId(self.types.len() - 1)
    }

    fn component(&mut self, name: &str, schema: &Value) -> GoType {
        let short = name.rsplit('.').next().unwrap_or_default();
        match short {
            "Quantity" => GoType::Quantity,
            "IntOrString" => GoType::IntOrString,
            "Time" => GoType::Time,
            "MicroTime" => GoType::MicroTime,
            _ => match schema.get("properties").and_then(Value::as_object) {
                Some(properties) => GoType::Struct(self.structure(short, schema, properties)),
                None => GoType::Raw,
            },
        }
    }

    fn structure(&mut self, name: &str, schema: &Value, properties: &Map<String, Value>) -> StructType {
        let listed = |key: &str, property: &str| {
            schema
                .get(key)
                .and_then(Value::as_array)
                .is_some_and(|list| list.iter().any(|item| item == property))
        };
        let noted = |key: &str, property: &str| {
            schema
                .get(key)
                .and_then(|notes| notes.get(property))
                .and_then(Value::as_str)
                .map(str::to_owned)
        };
        let mut fields: Vec<Field> = properties
            .iter()
            .map(|(property, child)| Field {
                name: property.clone(),
                holds: self.child(child),
                pointer: listed("x-go-pointer", property),
                printed: if listed("x-go-always", property) || listed("x-go-struct", property) {
                    Printed::Always
                } else {
                    Printed::UnlessEmpty
                },
                go_type: noted("x-go-type", property),
                embedded: noted("x-go-embedded", property),
            })
            .collect();
        fields.sort_by(|left, right| left.name.cmp(&right.name));
        StructType {
            name: name.to_owned(),
            fields,
        }
    }

    fn child(&mut self, schema: &Value) -> TypeId {
        let target = schema
            .get("$ref")
            .and_then(Value::as_str)
            .and_then(|path| path.rsplit('/').next());
        if let Some(id) = target.and_then(|name| self.named(name)) {
            return id;
        }
        let text = |key: &str| schema.get(key).and_then(Value::as_str).unwrap_or_default();
        let go_type = match (text("type"), text("format")) {
            ("array", _) => GoType::List(self.child(&schema["items"])),
            ("object", _) => match schema.get("additionalProperties") {
                Some(values) => GoType::Map(self.child(values)),
                None => GoType::Raw,
            },
            ("string", "byte") => GoType::Bytes,
            ("string", _) => GoType::Text,
            ("boolean", _) => GoType::Bool,
            ("integer", "int32") => GoType::Int32,
            ("integer", _) => GoType::Int64,
            ("number", _) => GoType::Float,
            _ => GoType::Raw,
        };
        self.push(go_type)
    }

    /// The name Go prints for a type: `[]string`, `v1.PodSpec`, `map[string]string`.
    pub fn go_name(&self, id: TypeId) -> String {
        match self.get(id) {
            GoType::Struct(structure) => format!("v1.{}", structure.name),
            GoType::Map(values) => format!("map[string]{}", self.go_name(*values)),
            GoType::List(items) => format!("[]{}", self.go_name(*items)),
            GoType::Text | GoType::Time | GoType::MicroTime => "string".to_owned(),
            GoType::Bool => "bool".to_owned(),
            GoType::Int32 | GoType::IntOrString => "int32".to_owned(),
            GoType::Int64 => "int64".to_owned(),
            GoType::Float => "float64".to_owned(),
            GoType::Quantity => "resource.Quantity".to_owned(),
            GoType::Bytes => "[]uint8".to_owned(),
            GoType::Raw => "interface {}".to_owned(),
        }
    }

    /// What a field of this type prints when nothing was put into it.
    pub fn zero(&self, id: TypeId) -> Value {
        match self.get(id) {
            GoType::Struct(structure) => Value::Object(self.zero_struct(structure)),
            GoType::Text => Value::String(String::new()),
            GoType::Bool => Value::Bool(false),
            GoType::Int32 | GoType::Int64 | GoType::Float | GoType::IntOrString => Value::from(0),
            GoType::Quantity => Value::from("0"),
            GoType::Map(_) | GoType::List(_) | GoType::Time | GoType::MicroTime | GoType::Bytes | GoType::Raw => {
                Value::Null
            }
        }
    }

    fn zero_struct(&self, structure: &StructType) -> Map<String, Value> {
        let printed = structure.fields.iter().filter(|field| field.printed == Printed::Always);
        printed
            .map(|field| (field.name.clone(), self.zero_field(field)))
            .collect()
    }

    pub fn zero_field(&self, field: &Field) -> Value {
        if field.pointer {
            Value::Null
        } else {
            self.zero(field.holds)
        }
    }
}

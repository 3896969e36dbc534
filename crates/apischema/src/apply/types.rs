//! Schema nodes as server-side apply sees them: each type is a choice of map, list or scalar, each map and list either
//! granular or owned as a whole. Follows kube-openapi's conversion of schemas for structured-merge-diff; what the walks
//! do with a type is in the sibling modules.

use std::sync::LazyLock;

use serde_json::{Value, json};

use super::fieldset::PathElement;
use super::gofmt;
use crate::schema::{JsonType, ListType, SchemaRef, TypeSchema};

/// The type of a value.
#[derive(Clone, Copy, Debug)]
pub(super) enum Type<'a> {
    Node {
        schema: SchemaRef<'a>,
        /// This node or an inlined ancestor keeps unknown fields.
        preserve: bool,
        /// An object with `apiVersion`, `kind` and `metadata` of its own, which its schema need not declare.
        resource: bool,
    },
    /// Known from the value alone: maps granular, lists whole.
    Deduced,
    /// Owned as a whole, whatever it is.
    Whole,
    /// What a schema does not declare and does not admit.
    Undeclared,
}

/// Which form of a type applies to a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Map,
    List,
    Scalar,
    /// The type admits nothing.
    Nothing,
}

/// The scalars that a type admits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scalar {
    Numeric,
    String,
    Boolean,
    Any,
}

/// The metadata of a custom resource: the API server puts its own schema there, whatever the resource's schema says.
static OBJECT_META: LazyLock<TypeSchema> = LazyLock::new(|| {
    let text = json!({"type": "string"});
    let time = json!({"type": "string", "format": "date-time"});
    let number = json!({"type": "integer", "format": "int64"});
    let texts = json!({"type": "object", "additionalProperties": {"type": "string"}});
    let owner = json!({
        "type": "object",
        "x-kubernetes-map-type": "atomic",
        "properties": {
            "apiVersion": {"type": "string", "default": ""}, "kind": {"type": "string", "default": ""},
            "name": {"type": "string", "default": ""}, "uid": {"type": "string", "default": ""},
            "controller": {"type": "boolean"}, "blockOwnerDeletion": {"type": "boolean"},
        },
    });
    let managed = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let owners = json!({
        "type": "array", "items": owner, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["uid"],
    });
    TypeSchema::from_inline(&json!({
        "type": "object",
        "properties": {
            "annotations": texts, "labels": texts, "creationTimestamp": time, "deletionTimestamp": time,
            "deletionGracePeriodSeconds": number, "generation": number, "generateName": text, "name": text,
            "namespace": text, "resourceVersion": text, "selfLink": text, "uid": text,
            "finalizers": {"type": "array", "items": text, "x-kubernetes-list-type": "set"},
            "ownerReferences": owners,
            "managedFields": {"type": "array", "items": managed, "x-kubernetes-list-type": "atomic"},
        },
    }))
});

/// `apiVersion` and `kind` of a custom resource.
static TEXT: LazyLock<TypeSchema> = LazyLock::new(|| TypeSchema::from_inline(&json!({"type": "string"})));

const QUANTITY: &str = "io.k8s.apimachinery.pkg.api.resource.Quantity";
const RAW_EXTENSION: &str = "io.k8s.apimachinery.pkg.runtime.RawExtension";

impl<'a> Type<'a> {
    /// The type of whole objects. Named roots are built-in kinds, which declare their metadata themselves.
    pub fn root(schema: SchemaRef<'a>) -> Self {
        let builtin = schema.name.is_some();
        Self::Node {
            schema,
            preserve: schema.preserve_unknown,
            resource: !builtin,
        }
    }

    fn of(schema: SchemaRef<'a>, inherited: bool) -> Self {
        let preserve = schema.preserve_unknown || (inherited && schema.name.is_none());
        match schema.name.as_deref() {
            Some(RAW_EXTENSION) => Self::Whole,
            _ => Self::Node {
                schema,
                preserve,
                resource: schema.embedded_resource,
            },
        }
    }

    fn is_quantity(self) -> bool {
        matches!(self, Self::Node { schema, .. } if schema.name.as_deref() == Some(QUANTITY))
    }

    pub fn could_be(self, form: Form) -> bool {
        let Self::Node { schema, .. } = self else {
            return !matches!(self, Self::Undeclared);
        };
        if self.is_quantity() {
            return form == Form::Scalar;
        }
        match schema.json_type {
            JsonType::Object => form == Form::Map,
            JsonType::Array => form == Form::List,
            JsonType::String | JsonType::Integer | JsonType::Number | JsonType::Boolean => form == Form::Scalar,
            JsonType::IntOrString | JsonType::Any => true,
        }
    }

    /// The form for a value: the value's own where the type admits it, else the type's first.
    pub fn form(self, value: &Value) -> Form {
        let own = match value {
            Value::Null => None,
            Value::Bool(_) | Value::Number(_) | Value::String(_) => Some(Form::Scalar),
            Value::Array(_) => Some(Form::List),
            Value::Object(_) => Some(Form::Map),
        };
        let first = || {
            [Form::Map, Form::Scalar, Form::List]
                .into_iter()
                .find(|form| self.could_be(*form))
        };
        own.filter(|form| self.could_be(*form))
            .or_else(first)
            .unwrap_or(Form::Nothing)
    }

    pub fn scalar(self) -> Scalar {
        let Self::Node { schema, .. } = self else {
            return Scalar::Any;
        };
        match schema.json_type {
            JsonType::Integer | JsonType::Number => Scalar::Numeric,
            JsonType::Boolean => Scalar::Boolean,
            JsonType::String if matches!(schema.format.as_deref(), None | Some("byte" | "")) => Scalar::String,
            _ => Scalar::Any,
        }
    }

    /// Whether a map of this type is owned as a whole.
    pub fn whole_map(self) -> bool {
        match self {
            Self::Node { schema, .. } => schema.atomic_map,
            Self::Whole => true,
            Self::Deduced | Self::Undeclared => false,
        }
    }

    /// Whether a list of this type is owned as a whole.
    pub fn whole_list(self) -> bool {
        !matches!(self, Self::Node { schema, .. } if schema.list_type != ListType::Atomic)
    }

    /// The type of a field that the schema declares by name.
    pub fn declared(self, name: &str) -> Option<Self> {
        let Self::Node {
            schema,
            preserve,
            resource,
        } = self
        else {
            return None;
        };
        if resource {
            match name {
                "metadata" => return Some(Self::of(OBJECT_META.root(), false)),
                "apiVersion" | "kind" => return Some(Self::of(TEXT.root(), false)),
                _ => {}
            }
        }
        schema
            .node()
            .properties
            .get(name)
            .map(|id| Self::of(schema.child(*id), preserve))
    }

    /// The type of fields that are not declared.
    pub fn element(self) -> Self {
        match self {
            Self::Node { schema, preserve, .. } => match schema.additional() {
                Some(additional) => Self::of(additional, preserve),
                None if preserve || schema.properties.is_empty() => Self::Deduced,
                None => Self::Undeclared,
            },
            other => other,
        }
    }

    pub fn field(self, name: &str) -> Self {
        self.declared(name).unwrap_or_else(|| self.element())
    }

    /// The type of the items of a list.
    pub fn item(self) -> Self {
        match self {
            Self::Node { schema, preserve, .. } => {
                schema.items().map_or(Self::Whole, |items| Self::of(items, preserve))
            }
            _ => Self::Whole,
        }
    }

    /// A map whose contents are known from values alone; such maps take no part in schema changes.
    pub fn untyped_map(self) -> bool {
        match self {
            Self::Node { schema, resource, .. } => {
                !resource && schema.properties.is_empty() && matches!(self.element(), Self::Deduced)
            }
            Self::Deduced => true,
            Self::Whole | Self::Undeclared => false,
        }
    }

    /// The path element of an item of a list that is not owned as a whole.
    pub fn item_element(self, item: &Value) -> Result<PathElement, String> {
        let Self::Node { schema, .. } = self else {
            return Err("invalid indexing of non-associative list".to_owned());
        };
        match &schema.node().list_type {
            ListType::Atomic => Err("invalid indexing of non-associative list".to_owned()),
            ListType::Map(keys) if !keys.is_empty() => self.keyed_element(keys, item),
            ListType::Map(_) | ListType::Set => match item {
                Value::Object(_) => Err("associative list without keys has an element that's a map type".to_owned()),
                Value::Array(_) => Err("not supported: associative list with lists as elements".to_owned()),
                Value::Null => Err("associative list without keys has an element that's an explicit null".to_owned()),
                scalar => Ok(PathElement::Value(scalar.clone())),
            },
        }
    }

    fn keyed_element(self, keys: &[String], item: &Value) -> Result<PathElement, String> {
        let fields = match item {
            Value::Object(fields) => fields,
            Value::Null => return Err("associative list with keys may not have a null element".to_owned()),
            _ => return Err("associative list with keys may not have non-map elements".to_owned()),
        };
        let item_type = self.item();
        let mut found: Vec<(String, Value)> = Vec::with_capacity(keys.len());
        for key in keys {
            if let Some(value) = fields.get(key) {
                found.push((key.clone(), value.clone()));
            } else if !item_type.could_be(Form::Map) {
                let why = "associative list may not have non-map types";
                return Err(format!("couldn't find default value for {key}: {why}"));
            } else if let Some(Self::Node { schema, .. }) = item_type.declared(key)
                && let Some(default) = &schema.node().default
            {
                found.push((key.clone(), default.clone()));
            }
        }
        if found.is_empty() {
            let names: Vec<String> = keys.iter().map(|key| gofmt::quoted(key)).collect();
            return Err(format!(
                "associative list with keys has an element that omits all key fields [{}] (and doesn't have default \
                 values for any key fields)",
                names.join(" ")
            ));
        }
        found.sort_by(|left, right| left.0.cmp(&right.0));
        Ok(PathElement::Key(found))
    }
}

//! CustomResourceDefinitions: what makes one valid, what the API server adds to it, and what it serves because of it.
//! A [`CustomResource`] is the definition read into the form that requests are handled with; storage and routing are
//! not here.

mod lifecycle;
mod list_rules;
mod object;
mod schema_rules;
mod validate;
mod version_parts;

use std::sync::Arc;

use serde_json::{Value, json};

pub use lifecycle::{default_crd, establish, is_established, prepare_create, prepare_status_update, prepare_update};
pub use object::Verdict;
pub use validate::{validate_crd, validate_crd_update};

use crate::cel::CelRules;
use crate::schema::TypeSchema;

/// The names of a custom resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    pub plural: String,
    pub singular: String,
    pub kind: String,
    pub list_kind: String,
    pub short_names: Vec<String>,
    pub categories: Vec<String>,
}

/// One custom resource with all its versions.
#[derive(Clone, Debug)]
pub struct CustomResource {
    pub group: String,
    pub names: Names,
    pub namespaced: bool,
    pub versions: Vec<CrdVersion>,
}

/// A column that `kubectl get` shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PrinterColumn {
    pub name: String,
    pub column_type: String,
    pub format: String,
    pub description: String,
    pub priority: i64,
    pub json_path: String,
}

/// The paths of the scale subresource, with their leading dots.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scale {
    pub spec_replicas_path: String,
    pub status_replicas_path: String,
    pub label_selector_path: Option<String>,
}

/// One version of a custom resource.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the definition")]
pub struct CrdVersion {
    pub group: String,
    pub kind: String,
    pub namespaced: bool,
    pub name: String,
    pub served: bool,
    pub storage: bool,
    pub deprecated: bool,
    /// The warning that clients of a deprecated version get.
    pub deprecation_warning: Option<String>,
    /// The schema with type and object metadata added, for apply, explain and printing.
    pub schema: TypeSchema,
    /// The same as JSON, as OpenAPI documents show it.
    pub open_api: Value,
    /// The schema as it was written, for pruning, defaulting and validation.
    pub structural: TypeSchema,
    pub rules: Arc<CelRules>,
    pub has_status: bool,
    pub scale: Option<Scale>,
    pub printer_columns: Vec<PrinterColumn>,
    /// Paths with their leading dots.
    pub selectable_fields: Vec<String>,
}

impl CustomResource {
    /// Reads a definition that has been validated and defaulted; rules are compiled here, once.
    pub fn read(crd: &Value) -> Self {
        let spec = &crd["spec"];
        let group = text(spec, "group");
        let names = read_names(&spec["names"]);
        let namespaced = spec["scope"] == "Namespaced";
        let versions = list(spec, "versions")
            .iter()
            .map(|version| CrdVersion::read(version, &group, &names.kind, namespaced))
            .collect();
        Self {
            group,
            names,
            namespaced,
            versions,
        }
    }

    pub fn version(&self, name: &str) -> Option<&CrdVersion> {
        self.versions.iter().find(|version| version.name == name)
    }

    pub fn storage_version(&self) -> Option<&CrdVersion> {
        self.versions.iter().find(|version| version.storage)
    }
}

impl CrdVersion {
    fn read(version: &Value, group: &str, kind: &str, namespaced: bool) -> Self {
        let name = text(version, "name");
        let raw = &version["schema"]["openAPIV3Schema"];
        let structural = TypeSchema::from_inline(raw);
        let open_api = with_metadata(raw);
        let deprecated = version["deprecated"] == true;
        let own_warning = version["deprecationWarning"].as_str().map(str::to_owned);
        let warning = || own_warning.unwrap_or_else(|| format!("{group}/{name} {kind} is deprecated"));
        let subresources = &version["subresources"];
        Self {
            group: group.to_owned(),
            kind: kind.to_owned(),
            namespaced,
            served: version["served"] == true,
            storage: version["storage"] == true,
            deprecated,
            deprecation_warning: deprecated.then(warning),
            schema: TypeSchema::from_inline(&open_api),
            open_api,
            rules: Arc::new(CelRules::compile(&structural)),
            structural,
            has_status: !subresources["status"].is_null(),
            scale: subresources["scale"].is_object().then(|| Scale {
                spec_replicas_path: text(&subresources["scale"], "specReplicasPath"),
                status_replicas_path: text(&subresources["scale"], "statusReplicasPath"),
                label_selector_path: subresources["scale"]["labelSelectorPath"].as_str().map(str::to_owned),
            }),
            printer_columns: list(version, "additionalPrinterColumns")
                .iter()
                .map(read_column)
                .collect(),
            selectable_fields: list(version, "selectableFields")
                .iter()
                .map(|field| text(field, "jsonPath"))
                .collect(),
            name,
        }
    }
}

fn read_column(column: &Value) -> PrinterColumn {
    PrinterColumn {
        name: text(column, "name"),
        column_type: text(column, "type"),
        format: text(column, "format"),
        description: text(column, "description"),
        priority: column["priority"].as_i64().unwrap_or_default(),
        json_path: text(column, "jsonPath"),
    }
}

fn read_names(names: &Value) -> Names {
    let texts = |key: &str| {
        list(names, key)
            .iter()
            .filter_map(|name| name.as_str().map(str::to_owned))
            .collect()
    };
    Names {
        plural: text(names, "plural"),
        singular: text(names, "singular"),
        kind: text(names, "kind"),
        list_kind: text(names, "listKind"),
        short_names: texts("shortNames"),
        categories: texts("categories"),
    }
}

fn text(value: &Value, key: &str) -> String {
    value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value
        .get(key)
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default()
}

/// The schema as it is served: the root and embedded resources have their type and metadata.
fn with_metadata(schema: &Value) -> Value {
    let mut schema = schema.clone();
    if !schema.is_object() {
        schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    }
    add_metadata(&mut schema, true);
    schema
}

fn add_metadata(schema: &mut Value, is_root: bool) {
    let Some(fields) = schema.as_object_mut() else { return };
    let is_resource = is_root || fields.get("x-kubernetes-embedded-resource") == Some(&Value::Bool(true));
    for (key, child) in fields.iter_mut() {
        match key.as_str() {
            "properties" => {
                let children = child.as_object_mut().into_iter().flatten();
                children.for_each(|(_, property)| add_metadata(property, false));
            }
            "items" | "additionalProperties" => add_metadata(child, false),
            _ => {}
        }
    }
    if !is_resource {
        return;
    }
    let properties = fields.entry("properties").or_insert_with(|| json!({}));
    if let Some(properties) = properties.as_object_mut() {
        properties.insert(
            "apiVersion".to_owned(),
            json!({"type": "string", "description": API_VERSION_WORDS}),
        );
        properties.insert("kind".to_owned(), json!({"type": "string", "description": KIND_WORDS}));
        properties.insert("metadata".to_owned(), object_meta());
    }
}

/// The words that the API server puts beside these two fields of every kind.
const API_VERSION_WORDS: &str = "APIVersion defines the versioned schema of this representation of an object. Servers \
    should convert recognized schemas to the latest internal value, and may reject unrecognized values. More info: \
    https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources";
const KIND_WORDS: &str = "Kind is a string value representing the REST resource this object represents. Servers may infer \
    this from the endpoint the client submits requests to. Cannot be updated. In CamelCase. More info: \
    https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds";

/// `metadata` with what apply must know about its lists.
fn object_meta() -> Value {
    let text = json!({"type": "string"});
    let texts = json!({"type": "object", "additionalProperties": {"type": "string"}});
    let time = json!({"type": "string", "format": "date-time"});
    json!({
        "type": "object",
        "description": "Standard object's metadata. More info: \
            https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata",
        "properties": {
            "annotations": texts,
            "creationTimestamp": time,
            "deletionGracePeriodSeconds": {"type": "integer", "format": "int64"},
            "deletionTimestamp": time,
            "finalizers": {"type": "array", "items": text, "x-kubernetes-list-type": "set", "x-kubernetes-patch-strategy": "merge"},
            "generateName": text,
            "generation": {"type": "integer", "format": "int64"},
            "labels": texts,
            "managedFields": {"type": "array", "x-kubernetes-list-type": "atomic", "items": {"type": "object", "properties": {
                "apiVersion": text, "fieldsType": text, "fieldsV1": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                "manager": text, "operation": text, "subresource": text, "time": time}}},
            "name": text,
            "namespace": text,
            "ownerReferences": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["uid"],
                "x-kubernetes-patch-merge-key": "uid", "x-kubernetes-patch-strategy": "merge",
                "items": {"type": "object", "x-kubernetes-map-type": "atomic",
                    "required": ["apiVersion", "kind", "name", "uid"], "properties": {
                    "apiVersion": text, "blockOwnerDeletion": {"type": "boolean"}, "controller": {"type": "boolean"},
                    "kind": text, "name": text, "uid": text}}},
            "resourceVersion": text,
            "selfLink": text,
            "uid": text,
        }
    })
}

#[cfg(test)]
mod tests;

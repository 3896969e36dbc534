//! `components.schemas` of a document: the kinds of the group version, their lists, and everything those refer to.

use std::collections::BTreeMap;
use std::sync::Arc;

use afloat_apischema::builtin;
use serde_json::{Value, json};

use super::{prose, render};
use crate::resource::ResourceType;

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";

/// All schemas that the operations on these resources need, by component name.
pub fn of_resources(resources: &[&Arc<ResourceType>]) -> BTreeMap<String, Value> {
    let mut schemas = BTreeMap::new();
    for resource in resources {
        schemas.insert(component_of(resource), own_schema(resource));
        if resource.verbs.iter().any(|verb| verb == "list") {
            schemas.insert(list_component_of(resource), list_schema(resource));
        }
        for subresource in &resource.subresources {
            let gv = subresource.group_version.as_ref().unwrap_or(&resource.gv);
            if let Some(name) = builtin_component(&gv.group, &gv.version, &subresource.kind) {
                add_component(&mut schemas, &name);
            }
        }
    }
    schemas.insert(format!("{META}.Patch"), json!({"type": "object"}));
    for name in ["DeleteOptions", "Status", "ListMeta", "ObjectMeta"] {
        add_component(&mut schemas, &format!("{META}.{name}"));
    }
    add_referenced(&mut schemas);
    for (name, schema) in &mut schemas {
        prose::describe(name, schema);
    }
    schemas
}

/// The component of a resource's kind: the declared one of a built-in kind; for a custom one the group backwards.
pub fn component_of(resource: &ResourceType) -> String {
    if let Some(name) = &resource.schema.root().node().name {
        return name.to_string();
    }
    let mut parts: Vec<&str> = resource.gv.group.split('.').collect();
    parts.reverse();
    parts.extend([resource.gv.version.as_str(), resource.kind.as_str()]);
    parts.join(".")
}

pub fn list_component_of(resource: &ResourceType) -> String {
    let component = component_of(resource);
    let namespace = component.rsplit_once('.').map_or("", |(namespace, _)| namespace);
    format!("{namespace}.{}", resource.list_kind)
}

/// The declared component of a kind that only subresources use, such as `Scale` and `Eviction`.
pub fn builtin_component(group: &str, version: &str, kind: &str) -> Option<String> {
    let schema = builtin::schema_of(group, version, kind)?;
    schema.root().node().name.as_deref().map(str::to_owned)
}

fn own_schema(resource: &ResourceType) -> Value {
    let mut schema = render::definition(resource.schema.root());
    if resource.is_custom() {
        // Whatever a definition says of them, these three have one meaning everywhere.
        schema["properties"]["apiVersion"] =
            json!({"type": "string", "description": "Group and version of this object."});
        schema["properties"]["kind"] = json!({"type": "string", "description": "Kind of this object."});
        schema["properties"]["metadata"] = beside(&format!("{META}.ObjectMeta"), "Standard metadata of the object.");
    }
    schema["x-kubernetes-group-version-kind"] = kinds(resource, &resource.kind);
    schema
}

fn list_schema(resource: &ResourceType) -> Value {
    json!({
        "description": format!("{} is a list of {}", resource.list_kind, resource.kind),
        "type": "object",
        "required": ["items"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": beside(&format!("{META}.ListMeta"), "Standard metadata of the list."),
            "items": {"type": "array", "items": render::reference(&component_of(resource))},
        },
        "x-kubernetes-group-version-kind": kinds(resource, &resource.list_kind),
    })
}

fn beside(component: &str, description: &str) -> Value {
    json!({"description": description, "allOf": [render::reference(component)]})
}

fn kinds(resource: &ResourceType, kind: &str) -> Value {
    json!([{"group": resource.gv.group, "version": resource.gv.version, "kind": kind}])
}

fn add_component(schemas: &mut BTreeMap<String, Value>, name: &str) {
    if schemas.contains_key(name) {
        return;
    }
    if let Some(id) = builtin::schemas().named(name) {
        schemas.insert(name.to_owned(), render::definition(builtin::schemas().get(id)));
    }
}

/// Follows references until nothing is missing.
fn add_referenced(schemas: &mut BTreeMap<String, Value>) {
    let mut open: Vec<String> = schemas.values().flat_map(references).collect();
    while let Some(name) = open.pop() {
        if !schemas.contains_key(&name) {
            add_component(schemas, &name);
            open.extend(schemas.get(&name).map(references).unwrap_or_default());
        }
    }
}

fn references(schema: &Value) -> Vec<String> {
    match schema {
        Value::Object(fields) => fields
            .iter()
            .flat_map(|(name, value)| match value.as_str() {
                Some(target) if name == "$ref" => target.rsplit('/').next().map(str::to_owned).into_iter().collect(),
                _ => references(value),
            })
            .collect(),
        Value::Array(list) => list.iter().flat_map(references).collect(),
        _ => Vec::new(),
    }
}

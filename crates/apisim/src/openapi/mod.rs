//! OpenAPI v3 documents made from the registry: one per group version, and the index that names them. They hold what
//! kubectl reads — schemas with their patch strategies and kinds, operations with their query parameters and body
//! types — not every word of the real documents. OpenAPI v2 is not served; kubectl does without it.

mod components;
mod paths;
mod prose;
mod render;

#[cfg(test)]
mod tests;

use serde_json::{Value, json};

use crate::registry::Registry;
use crate::resource::GroupVersion;

/// `GET /openapi/v3`. The hash in each address changes with its document, so that clients may keep what they read.
pub fn index(registry: &Registry) -> Value {
    let mut paths = serde_json::Map::new();
    for gv in registry.group_versions() {
        let Some(document) = document(registry, gv) else {
            continue;
        };
        let path = path_of(gv);
        let address = format!("/openapi/v3/{path}?hash={}", hash(&document));
        paths.insert(path, json!({"serverRelativeURL": address}));
    }
    json!({"paths": paths})
}

/// `GET /openapi/v3/api/v1`, `GET /openapi/v3/apis/<group>/<version>`; nothing for a version that is not served.
pub fn document(registry: &Registry, gv: &GroupVersion) -> Option<Value> {
    let resources: Vec<_> = registry.resources_of(gv).collect();
    if resources.is_empty() {
        return None;
    }
    let custom = resources.iter().all(|resource| resource.is_custom());
    let info = if custom {
        json!({"title": "Kubernetes CRD Swagger", "version": "v0.1.0"})
    } else {
        json!({"title": "Kubernetes", "version": "1.36"})
    };
    let paths: serde_json::Map<String, Value> = resources
        .iter()
        .flat_map(|resource| paths::of_resource(resource))
        .collect();
    Some(json!({
        "openapi": "3.0.0",
        "info": info,
        "paths": paths,
        "components": {"schemas": components::of_resources(&resources)},
    }))
}

fn path_of(gv: &GroupVersion) -> String {
    if gv.group.is_empty() {
        format!("api/{}", gv.version)
    } else {
        format!("apis/{}/{}", gv.group, gv.version)
    }
}

/// FNV-1a over the document, twice with different starts: clients compare it, nobody trusts it.
fn hash(document: &Value) -> String {
    let text = document.to_string();
    let fnv = |start: u64| {
        text.bytes().fold(start, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        })
    };
    format!("{:016X}{:016X}", fnv(0xcbf2_9ce4_8422_2325), fnv(0x8422_2325_cbf2_9ce4))
}

//! OpenAPI v3 documents made from the registry: one per group version, and the index that names them. They hold what
//! kubectl reads — schemas with their patch strategies and kinds, operations with their query parameters and body
//! types — not every word of the real documents. OpenAPI v2 describes nothing: kubectl looks there only for what v3 lacks.

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

/// The media type in which Go clients ask for OpenAPI v2.
pub const V2_PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// `GET /openapi/v2`: a document without definitions. Without any, `kubectl apply` would complain about the missing
/// document where it should complain about an unknown kind.
pub fn empty_v2() -> Value {
    json!({"swagger": "2.0", "info": {"title": "Kubernetes", "version": "v1.36.3"}, "paths": {}, "definitions": {}})
}

/// The same for clients that read protobuf: version and title, each a field with its number and length before it.
pub fn empty_v2_protobuf() -> &'static [u8] {
    b"\x0a\x032.0\x12\x15\x0a\x0aKubernetes\x12\x07v1.36.3"
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

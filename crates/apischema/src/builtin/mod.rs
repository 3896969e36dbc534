//! What kube-apiserver v1.36 does in Go code for its built-in kinds, for those that an upgrade operator and kubectl
//! use: which kinds there are, their schemas, decoding, defaults, admission, strategies and validation. Functions take
//! the kind as `(group, kind)`, e.g. `("apps", "Deployment")`, since each group is known in one version. Custom
//! resources live in `crd` and `structural`.

pub mod admission;
pub mod defaults;
pub mod event;
mod fields;
mod go_types;
mod normalise;
mod place;
pub mod quantity;
#[cfg(test)]
mod recorded;
pub mod strategy;
mod time;
pub mod validation;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::schema::{SchemaSet, TypeSchema};

pub use normalise::{DecodeFailure, normalise, normalise_changed};

/// One built-in kind, as discovery of the real server describes it.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BuiltinKind {
    pub group: String,
    pub version: String,
    pub kind: String,
    pub plural: String,
    pub singular: String,
    pub short_names: Vec<String>,
    pub categories: Vec<String>,
    pub namespaced: bool,
    pub verbs: Vec<String>,
    /// Opaque hash of the storage version; virtual kinds (reviews) have none.
    pub storage_version_hash: Option<String>,
    pub subresources: Vec<BuiltinSubresource>,
    /// Name of the OpenAPI component.
    pub schema: String,
}

/// One subresource (`status`, `scale`, `eviction`) with the kind of its bodies.
#[derive(Clone, Debug, Deserialize)]
pub struct BuiltinSubresource {
    pub name: String,
    pub group: String,
    pub version: String,
    pub kind: String,
    pub verbs: Vec<String>,
}

/// The data files, parsed once.
struct Data {
    kinds: Vec<BuiltinKind>,
    /// Where the kinds of a name are: every write asks for its kind many times.
    by_name: BTreeMap<String, Vec<usize>>,
    schemas: Arc<SchemaSet>,
    go: go_types::GoTypes,
    /// What each of `kinds` prints when nothing was put into it.
    empty: Vec<OnceLock<Value>>,
}

fn data() -> &'static Data {
    static DATA: OnceLock<Data> = OnceLock::new();
    DATA.get_or_init(|| {
        // The files are part of the program, and a test reads them: damage cannot get past the tests.
        let kinds: Vec<BuiltinKind> = serde_json::from_str(include_str!("../../data/kinds.json")).unwrap_or_default();
        let mut by_name: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (index, known) in kinds.iter().enumerate() {
            by_name.entry(known.kind.clone()).or_default().push(index);
        }
        let components: Map<String, Value> =
            serde_json::from_str(include_str!("../../data/schemas.json")).unwrap_or_default();
        let go = go_types::GoTypes::read(&components);
        Data {
            empty: kinds.iter().map(|_| OnceLock::new()).collect(),
            kinds,
            by_name,
            schemas: Arc::new(SchemaSet::from_components(&components)),
            go,
        }
    })
}

/// All built-in kinds, grouped by group version in the order of discovery.
pub fn kinds() -> &'static [BuiltinKind] {
    &data().kinds
}

/// The schemas of all built-in kinds and of the types they are made of.
pub fn schemas() -> &'static Arc<SchemaSet> {
    &data().schemas
}

/// One kind by name.
pub fn kind(group: &str, kind: &str) -> Option<&'static BuiltinKind> {
    index_of(group, kind).map(|index| &data().kinds[index])
}

fn index_of(group: &str, kind: &str) -> Option<usize> {
    let data = data();
    let found = data.by_name.get(kind)?.iter();
    found.copied().find(|index| data.kinds[*index].group == group)
}

/// An object of a kind before anything is set: the fields that its Go type always writes.
pub(crate) fn empty_object(group: &str, version: &str, kind: &str) -> Option<&'static Value> {
    let data = data();
    let index = index_of(group, kind).filter(|index| data.kinds[*index].version == version)?;
    Some(data.empty[index].get_or_init(|| {
        let mut object = Value::Object(Map::new());
        // Nothing is in it that could be refused.
        let _ = normalise(group, version, kind, &mut object);
        object
    }))
}

/// The schema of a kind, also of those that only subresources use (`policy/v1` Eviction, `autoscaling/v1` Scale).
pub fn schema_of(group: &str, version: &str, kind: &str) -> Option<TypeSchema> {
    let id = schemas().named(&component_of(group, version, kind)?)?;
    Some(TypeSchema::new(Arc::clone(schemas()), id))
}

/// The OpenAPI component of a kind.
fn component_of(group: &str, version: &str, kind: &str) -> Option<Cow<'static, str>> {
    if let Some(known) = self::kind(group, kind) {
        return (known.version == version).then_some(Cow::Borrowed(known.schema.as_str()));
    }
    match (group, version, kind) {
        (_, "v1", "DeleteOptions" | "Status") => Some(format!("io.k8s.apimachinery.pkg.apis.meta.v1.{kind}").into()),
        ("policy", "v1", "Eviction") => Some("io.k8s.api.policy.v1.Eviction".into()),
        ("autoscaling", "v1", "Scale") => Some("io.k8s.api.autoscaling.v1.Scale".into()),
        ("authentication.k8s.io", "v1", "TokenRequest") => Some("io.k8s.api.authentication.v1.TokenRequest".into()),
        _ => None,
    }
}

/// What reading an object back from storage makes of it: decoded and defaulted once more. The real server answers writes
/// with what it reads back, so this is the last step before an object is stored and shown. Where it takes the place of a
/// `stored` one, what is equal is left as it is.
pub fn as_read_back(group: &str, version: &str, kind: &str, object: &mut Value, stored: Option<&Value>) {
    normalise::normalise_stored(group, version, kind, object, stored);
    defaults::apply(group, kind, object);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_carry_what_discovery_says() {
        let pod = kind("", "Pod").expect("Pod");
        assert_eq!((pod.plural.as_str(), pod.namespaced), ("pods", true));
        assert_eq!(pod.short_names, ["po"]);
        assert_eq!(pod.categories, ["all"]);
        let eviction = pod
            .subresources
            .iter()
            .find(|subresource| subresource.name == "eviction")
            .expect("eviction");
        assert_eq!(
            (eviction.group.as_str(), eviction.kind.as_str()),
            ("policy", "Eviction")
        );
        let virtual_kind = kind("authorization.k8s.io", "SelfSubjectAccessReview").expect("review");
        assert_eq!(virtual_kind.verbs, ["create"]);
        assert_eq!(virtual_kind.storage_version_hash, None);
    }

    #[test]
    fn every_kind_and_subresource_body_has_a_schema() {
        for known in kinds() {
            assert!(
                schema_of(&known.group, &known.version, &known.kind).is_some(),
                "{}",
                known.kind
            );
            for body in &known.subresources {
                let dialog = matches!(body.name.as_str(), "attach" | "exec" | "portforward" | "proxy");
                assert!(
                    dialog || schema_of(&body.group, &body.version, &body.kind).is_some(),
                    "{}",
                    body.kind
                );
            }
        }
    }

    #[test]
    fn defaults_of_list_keys_are_kept() {
        let port = schemas()
            .named("io.k8s.api.core.v1.ContainerPort")
            .expect("ContainerPort");
        let protocol = schemas()
            .get(port)
            .property("protocol")
            .expect("protocol")
            .default
            .clone();
        assert_eq!(protocol, Some(Value::from("TCP")));
    }
}

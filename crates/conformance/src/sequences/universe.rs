//! The small world of random sequences, read from `universe.yaml`: kinds, and for each the values that its fields can take.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use crate::{Error, case::Step};

/// One kind of object.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Kind {
    #[serde(rename = "kind")]
    pub(crate) name: String,
    pub(crate) api_version: String,
    /// The path of its collection.
    pub(crate) collection: String,
    #[serde(default)]
    pub(crate) cluster_wide: bool,
    /// What every whole object has.
    pub(crate) required: Value,
    /// What an applied configuration must have as well to be able to create.
    #[serde(default)]
    pub(crate) applied: Value,
    pub(crate) pieces: BTreeMap<String, Vec<Value>>,
    #[serde(default)]
    pub(crate) status: BTreeMap<String, Vec<Value>>,
    #[serde(default)]
    pub(crate) strategic: Vec<Value>,
    #[serde(default)]
    pub(crate) strategic_status: Vec<Value>,
    #[serde(default)]
    pub(crate) json: Vec<Value>,
    /// Requests that only this kind knows; `$object` and `$name` stand for the object.
    #[serde(default)]
    pub(crate) special: Vec<Step>,
}

pub(crate) fn load() -> Result<Vec<Kind>, Error> {
    let options = serde_saphyr::options! { strict_booleans: true, budget: None };
    serde_saphyr::from_str_with_options(include_str!("universe.yaml"), options).map_err(|error| Error::File {
        path: "universe.yaml".to_owned(),
        message: error.to_string(),
    })
}

/// Puts a value where a JSON pointer says, making the objects on the way.
pub(crate) fn put(object: &mut Value, pointer: &str, value: Value) {
    let mut place = object;
    for part in pointer.split('/').skip(1) {
        if !place.is_object() {
            *place = Value::Object(serde_json::Map::new());
        }
        place = &mut place[part];
    }
    *place = value;
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_kind_has_what_sequences_need() {
        let kinds = load().unwrap();
        assert_eq!(kinds.len(), 6);
        for kind in &kinds {
            assert!(
                kind.pieces
                    .keys()
                    .chain(kind.status.keys())
                    .all(|place| place.starts_with('/')),
                "{}",
                kind.name
            );
            assert!(!kind.json.is_empty() && !kind.strategic.is_empty(), "{}", kind.name);
        }
    }

    #[test]
    fn pointers_make_their_way() {
        let mut object = json!({"spec": {"a": 1}});
        put(&mut object, "/spec/b/c", json!(2));
        assert_eq!(object, json!({"spec": {"a": 1, "b": {"c": 2}}}));
    }
}

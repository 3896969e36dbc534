//! Objects decoded straight from their text, without `managedFields`, which nobody here reads and which is the larger half of many
//! of them. One that cannot be read is named, and does not end the list or the watch it came by.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::core::PartialObjectMeta;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::Unreadable;

/// A watched object, or which one could not be read. As kube's `DeserializeGuard`, which takes the way over a tree of the whole object
/// and a copy of that.
#[derive(Clone, Debug)]
pub struct Lean<K>(pub Result<K, Invalid>);

/// An object that could not be read.
#[derive(Clone, Debug)]
pub struct Invalid {
    metadata: ObjectMeta,
    problem: String,
}

impl<K> Lean<K> {
    pub fn read(self) -> Result<K, Unreadable> {
        self.0
            .map_err(|invalid| Unreadable::new(&invalid.metadata, &invalid.problem))
    }
}

impl<'de, K: DeserializeOwned + Resource> Deserialize<'de> for Lean<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Box::<RawValue>::deserialize(deserializer)?;
        let text = without_managers(text.get());
        let problem = match serde_json::from_str(&text) {
            Ok(object) => return Ok(Self(Ok(object))),
            Err(problem) => problem.to_string(),
        };
        let known: PartialObjectMeta<K> = serde_json::from_str(&text).map_err(D::Error::custom)?;
        let metadata = known.metadata;
        Ok(Self(Err(Invalid { metadata, problem })))
    }
}

impl<K: Resource> Resource for Lean<K> {
    type DynamicType = K::DynamicType;
    type Scope = K::Scope;

    fn kind(types: &Self::DynamicType) -> Cow<'_, str> {
        K::kind(types)
    }

    fn group(types: &Self::DynamicType) -> Cow<'_, str> {
        K::group(types)
    }

    fn version(types: &Self::DynamicType) -> Cow<'_, str> {
        K::version(types)
    }

    fn plural(types: &Self::DynamicType) -> Cow<'_, str> {
        K::plural(types)
    }

    fn meta(&self) -> &ObjectMeta {
        self.0.as_ref().map_or_else(|invalid| &invalid.metadata, K::meta)
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        self.0
            .as_mut()
            .map_or_else(|invalid| &mut invalid.metadata, K::meta_mut)
    }
}

const MANAGERS: &str = "\"managedFields\":[";

/// The text of an object without the list of who manages which field. Text that is laid out in another way than API servers do it
/// stays as it is: it is read all the same.
pub fn without_managers(text: &str) -> Cow<'_, str> {
    cut(text).map_or(Cow::Borrowed(text), Cow::Owned)
}

fn cut(text: &str) -> Option<String> {
    let start = text.find(MANAGERS)?;
    let (before, list) = (text.get(..start)?, text.get(start + MANAGERS.len() - 1..)?);
    let after = list.get(length(list.as_bytes())?..)?;
    // Within a text its quotes would be escaped: only a key stands right behind one of these.
    match before.strip_suffix(',') {
        Some(before) => Some([before, after].concat()),
        None if before.ends_with('{') => Some([before, after.strip_prefix(',').unwrap_or(after)].concat()),
        None => None,
    }
}

/// So many bytes are a list, from its first bracket to its last.
fn length(text: &[u8]) -> Option<usize> {
    let (mut depth, mut quoted, mut escaped) = (0_usize, false, false);
    for (index, byte) in text.iter().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => quoted = !quoted,
            b'[' if !quoted => depth += 1,
            b']' if !quoted => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some(index + 1);
                }
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::{ConfigMap, Pod};
    use kube::core::WatchEvent;
    use serde_json::{Value, json};

    #[test]
    fn managers_are_left_out_wherever_they_stand_and_nothing_else_is() {
        let managers = r#"[{"manager":"a]\"","fieldsV1":{"k:{\"a\":[1]}":{}}},{"x":["]"]}]"#;
        let cases = [
            (
                format!(r#"{{"managedFields":{managers},"name":"a"}}"#),
                r#"{"name":"a"}"#,
            ),
            (
                format!(r#"{{"name":"a","managedFields":{managers}}}"#),
                r#"{"name":"a"}"#,
            ),
            (
                format!(r#"{{"name":"a","managedFields":{managers},"uid":"u"}}"#),
                r#"{"name":"a","uid":"u"}"#,
            ),
            (format!(r#"{{"managedFields":{managers}}}"#), "{}"),
        ];
        for (text, expected) in cases {
            assert!(serde_json::from_str::<Value>(&text).is_ok(), "{text}");
            assert_eq!(without_managers(&text), expected);
        }
        let others = [
            r#"{"name":"a"}"#.to_owned(),
            json!({ "data": { "a": r#"{"name":"a","managedFields":[{}]}"# } }).to_string(),
            json!({ "data": { "a": r#""managedFields":[]"# } }).to_string(),
            r#"{ "managedFields": [] }"#.to_owned(),
        ];
        for text in others {
            assert_eq!(without_managers(&text), text);
        }
    }

    #[test]
    fn an_object_that_cannot_be_read_is_named_and_its_neighbours_are_read() {
        let line = r#"{"type":"ADDED","object":{"metadata":{"name":"a"},"spec":{"containers":"none"}}}"#;
        let read: WatchEvent<Lean<Pod>> = serde_json::from_str(line).unwrap();
        let WatchEvent::Added(pod) = read else { panic!() };
        assert_eq!(pod.meta().name.as_deref(), Some("a"));
        assert_eq!(&*pod.read().unwrap_err().key.name, "a");
        let map: Lean<ConfigMap> = serde_json::from_str(r#"{"metadata":{"name":"b"},"data":{"x":"y"}}"#).unwrap();
        assert_eq!(map.read().unwrap().metadata.name.as_deref(), Some("b"));
    }
}

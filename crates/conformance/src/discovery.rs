//! Discovery documents list everything a server serves, and the simulator serves less: only what both list is compared, entry by entry.

use serde_json::Value;

use crate::run::Answer;

/// The real answer without the entries that the simulator does not have.
pub(crate) fn served_by_both(real: &Answer, sim: &Answer) -> Answer {
    Answer {
        body: common(&real.body, &sim.body),
        ..real.clone()
    }
}

fn common(real: &Value, sim: &Value) -> Value {
    match (real, sim) {
        (Value::Object(left), Value::Object(right)) => Value::Object(
            left.iter()
                .map(|(key, value)| {
                    (
                        key.clone(),
                        right
                            .get(key)
                            .map_or_else(|| value.clone(), |other| common(value, other)),
                    )
                })
                .collect(),
        ),
        // Verbs, short names and categories have no identity and are compared as they are.
        (Value::Array(left), Value::Array(right)) if left.iter().all(|entry| identity(entry).is_some()) => {
            let in_sim = |entry: &Value| {
                identity(entry).and_then(|name| right.iter().find(|other| identity(other) == Some(name)))
            };
            left.iter()
                .filter_map(|entry| in_sim(entry).map(|other| common(entry, other)))
                .collect()
        }
        _ => real.clone(),
    }
}

/// What names an entry: groups and resources have a name, aggregated ones a resource or metadata.
fn identity(entry: &Value) -> Option<&str> {
    ["name", "resource", "subresource", "groupVersion", "version"]
        .iter()
        .find_map(|key| entry[key].as_str())
        .or_else(|| entry["metadata"]["name"].as_str())
        // The core group has no name.
        .or_else(|| entry.get("versions").map(|_| ""))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_common_entries_are_left() {
        let real =
            json!({"kind": "APIResourceList", "resources": [{"name": "pods", "verbs": ["get"]}, {"name": "secrets"}]});
        let sim = json!({"kind": "APIResourceList", "resources": [{"name": "pods", "verbs": ["list"]}]});
        let expected = json!({"kind": "APIResourceList", "resources": [{"name": "pods", "verbs": ["get"]}]});
        assert_eq!(common(&real, &sim), expected);
    }
}

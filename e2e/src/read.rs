//! Reading what kubectl prints as JSON: fields that may not be there, lists, times.

use jiff::Timestamp;
use serde_json::Value;

pub(crate) fn list(value: &Value) -> &[Value] {
    value["items"].as_array().map_or(&[], Vec::as_slice)
}

pub(crate) fn text(value: &Value, pointer: &str) -> String {
    value
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned()
}

pub(crate) fn time(value: &Value, pointer: &str) -> Option<Timestamp> {
    value.pointer(pointer)?.as_str()?.parse().ok()
}

/// Whether it was deleted and has only not gone yet. A pod that ends may say that it is ready.
pub(crate) fn is_ending(object: &Value) -> bool {
    object.pointer("/metadata/deletionTimestamp").is_some()
}

pub(crate) fn ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    conditions
        .into_iter()
        .flatten()
        .any(|one| one["type"] == "Ready" && one["status"] == "True")
}

/// What belongs to one upgrade carries its uid.
const UPGRADE: &str = "/metadata/labels/afloat.dev~1upgrade-uid";

/// The objects of the upgrade that was begun last, of all that are there.
pub(crate) fn of_the_newest_upgrade(objects: &Value) -> Vec<&Value> {
    let made = |object: &&Value| time(object, "/metadata/creationTimestamp");
    let newest = list(objects)
        .iter()
        .max_by_key(made)
        .map(|object| text(object, UPGRADE));
    let own = |object: &&Value| newest.as_ref().is_some_and(|newest| text(object, UPGRADE) == *newest);
    list(objects).iter().filter(own).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_newest_upgrade_is_not_the_last_in_the_list() {
        let object = |name: &str, upgrade: &str, minute: u8| {
            json!({"metadata": {
                "name": name, "labels": {"afloat.dev/upgrade-uid": upgrade}, "creationTimestamp": format!("2026-01-02T03:{minute:02}:00Z"),
            }})
        };
        let objects = json!({"items": [object("cp-1-a", "second", 20), object("cp-1-b", "first", 10), object("w-1-a", "second", 21)]});
        let names: Vec<String> = of_the_newest_upgrade(&objects)
            .into_iter()
            .map(|object| text(object, "/metadata/name"))
            .collect();
        assert_eq!(names, ["cp-1-a", "w-1-a"]);
        assert!(of_the_newest_upgrade(&json!({"items": []})).is_empty());
    }
}

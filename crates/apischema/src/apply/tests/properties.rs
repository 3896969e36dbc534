//! What must hold for any objects: applying twice is applying once, managers that do not meet do not mind their order,
//! the notation loses nothing, and nothing that a client can send makes this panic.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::apply::{FieldSet, Manager, PathElement, apply, folded, track_update};
use crate::patch::{json_patch, merge_patch, strategic_merge};
use crate::schema::TypeSchema;

use super::recorded::kind_schema;

fn who(name: &str) -> Manager<'_> {
    let time = "2026-01-01T00:00:00Z";
    Manager {
        name,
        api_version: "x/v1",
        kind: "Thing",
        subresource: None,
        time,
        other_versions: &[],
    }
}

fn schema() -> TypeSchema {
    TypeSchema::from_inline(
        &json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
            "name": {"type": "string"},
            "labels": {"type": "object", "additionalProperties": {"type": "string"}},
            "tags": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
            "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            "items": {
                "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                "items": {"type": "object", "properties": {"name": {"type": "string"}, "v": {"type": "integer"}}},
            },
        }}}}),
    )
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-1e9..1e9f64).prop_map(Value::from),
        "[a-c$/~.]{0,4}".prop_map(Value::from),
    ];
    let key = prop_oneof![
        "[a-c]{1,2}".boxed(),
        prop::sample::select(vec![
            "metadata",
            "managedFields",
            "spec",
            "status",
            "name",
            "labels",
            "finalizers",
            "ownerReferences",
            "uid",
            "$patch",
            "$retainKeys",
            "$setElementOrder/finalizers",
            "$deleteFromPrimitiveList/finalizers",
            "$setElementOrder/containers",
            "containers",
            "template",
            "op",
            "path",
            "from",
            "value",
            "operation",
            "apiVersion",
            "fieldsType",
            "fieldsV1",
            "tags",
            "items",
            "open",
            "kind",
            "data",
        ])
        .prop_map(str::to_owned)
        .boxed(),
    ];
    leaf.prop_recursive(5, 40, 5, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(key.clone(), inner, 0..5)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

fn names() -> impl Strategy<Value = Vec<String>> {
    prop::collection::btree_set("[a-d]", 0..4)
        .prop_map(|names| names.into_iter().collect::<Vec<_>>())
        .prop_shuffle()
}

fn configuration() -> impl Strategy<Value = Value> {
    let item = (any::<bool>(), 0..3i64);
    let parts = (
        prop::option::of("[a-c]"),
        prop::collection::btree_map("[a-d]", "[x-z]", 0..4),
        names(),
        names().prop_flat_map(move |names| (prop::collection::vec(item.clone(), names.len()), Just(names))),
        prop::collection::btree_map("[a-c]", prop::collection::btree_map("[a-c]", 0..3i64, 0..3), 0..3),
    );
    parts.prop_map(|(name, labels, tags, (values, names), open)| {
        let mut spec = Map::new();
        if let Some(name) = name {
            spec.insert("name".to_owned(), json!(name));
        }
        let items: Vec<Value> = names
            .iter()
            .zip(values)
            .map(|(name, (has_value, v))| {
                if has_value {
                    json!({"name": name, "v": v})
                } else {
                    json!({"name": name})
                }
            })
            .collect();
        let mut set = |key: &str, value: Value, is_empty: bool| {
            if !is_empty {
                spec.insert(key.to_owned(), value);
            }
        };
        set("labels", json!(labels), labels.is_empty());
        set("tags", json!(tags), tags.is_empty());
        set("items", json!(items), items.is_empty());
        set("open", json!(open), open.is_empty());
        json!({"apiVersion": "x/v1", "kind": "Thing", "metadata": {"name": "a"}, "spec": spec})
    })
}

fn path() -> impl Strategy<Value = Vec<PathElement>> {
    let scalar = prop_oneof![
        "[a-z<>\"]{0,3}".prop_map(Value::from),
        (0..500i64).prop_map(Value::from)
    ];
    let element = prop_oneof![
        "[a-z.:]{0,4}".prop_map(PathElement::Field),
        scalar.clone().prop_map(PathElement::Value),
        prop::collection::btree_map("[a-c]", scalar, 1..3)
            .prop_map(|fields| PathElement::Key(fields.into_iter().collect())),
    ];
    prop::collection::vec(element, 1..5)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn notation_loses_nothing(paths in prop::collection::vec(path(), 0..12)) {
        let mut set = FieldSet::default();
        for path in &paths {
            set.insert(path);
        }
        prop_assert!(paths.iter().all(|path| set.has(path)));
        let text = set.to_json_string();
        let tree: Value = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(&FieldSet::from_json(&tree).unwrap(), &set);
        prop_assert_eq!(&folded::read(&text), &set);
        prop_assert!(set.difference(&set).is_empty());
        prop_assert_eq!(set.union(&set), set.clone());
        prop_assert_eq!(set.intersection(&set), set);
    }

    #[test]
    fn folded_sets_answer_as_read_ones(
        own in prop::collection::vec(path(), 0..8),
        other in prop::collection::vec(path(), 0..3),
        shared in 0..3_usize,
    ) {
        let (mut set, mut asked) = (FieldSet::default(), FieldSet::default());
        for path in &own {
            set.insert(path);
        }
        for path in other.iter().chain(own.iter().take(shared)) {
            asked.insert(path);
        }
        let text = set.to_json_string();
        prop_assert_eq!(folded::intersects(&text, &asked), !set.intersection(&asked).is_empty());
        prop_assert_eq!(folded::contains(&text, &asked), asked.difference(&set).is_empty());
    }

    #[test]
    fn applying_twice_is_applying_once(first in configuration(), second in configuration()) {
        let schema = schema();
        let start = apply(schema.root(), None, &first, &who("other"), false, None).unwrap();
        let once = apply(schema.root(), Some(&start), &second, &who("app"), true, None).unwrap();
        let twice = apply(schema.root(), Some(&once), &second, &who("app"), true, None).unwrap();
        prop_assert_eq!(&once, &twice);
        let without_force = apply(schema.root(), Some(&once), &second, &who("app"), false, None).unwrap();
        prop_assert_eq!(once, without_force);
    }

    #[test]
    fn a_dropped_configuration_leaves_nothing_behind(config in configuration()) {
        let schema = schema();
        let empty = json!({"apiVersion": "x/v1", "kind": "Thing", "metadata": {"name": "a"}});
        let start = apply(schema.root(), None, &empty, &who("base"), false, None).unwrap();
        let applied = apply(schema.root(), Some(&start), &config, &who("app"), false, None).unwrap();
        let dropped = apply(schema.root(), Some(&applied), &empty, &who("app"), false, None).unwrap();
        prop_assert_eq!(dropped, start);
    }

    #[test]
    fn managers_that_do_not_meet_may_come_in_any_order(left in configuration(), right in configuration()) {
        let schema = schema();
        let mut right = right;
        // Apart from each other: only maps without an order of their own, under other names.
        let labels = right["spec"].get("labels").cloned().unwrap_or_else(|| json!({"q": "x"}));
        let renamed: Map<String, Value> =
            labels.as_object().unwrap().iter().map(|(name, value)| (format!("right-{name}"), value.clone())).collect();
        right["spec"] = json!({"labels": renamed});
        let run = |first: (&str, &Value), second: (&str, &Value)| {
            let object = apply(schema.root(), None, first.1, &who(first.0), false, None).unwrap();
            let mut object = apply(schema.root(), Some(&object), second.1, &who(second.0), false, None).unwrap();
            // An apply that changes nothing gets no time, and entries sort by time: neither is what this is about.
            let entries = object["metadata"]["managedFields"].as_array_mut().unwrap();
            for entry in entries.iter_mut() {
                drop(entry.as_object_mut().unwrap().remove("time"));
            }
            entries.sort_by_key(|entry| entry["manager"].as_str().unwrap().to_owned());
            object
        };
        prop_assert_eq!(run(("l", &left), ("r", &right)), run(("r", &right), ("l", &left)));
    }

    #[test]
    fn the_one_who_changed_a_field_owns_it(before in configuration(), after in configuration()) {
        let schema = schema();
        let mut live = before;
        track_update(schema.root(), None, &mut live, &who("first"), None);
        let mut new = after;
        track_update(schema.root(), Some(&live), &mut new, &who("second"), None);
        let owned = |manager: &str| {
            let entries = new["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
            let entry = entries.iter().find(|entry| entry["manager"] == manager).cloned().unwrap_or_default();
            entry["fieldsV1"].as_str().map(folded::read).unwrap_or_default()
        };
        prop_assert!(owned("first").intersection(&owned("second")).is_empty());
    }

    #[test]
    fn nothing_panics(a in any_json(), b in any_json(), c in any_json(), force in any::<bool>()) {
        let schemas = [schema(), kind_schema("Deployment"), kind_schema("ConfigMap"), TypeSchema::anything()];
        for schema in &schemas {
            let mut new = b.clone();
            track_update(schema.root(), Some(&a), &mut new, &who("m"), None);
            track_update(schema.root(), None, &mut c.clone(), &who("m"), None);
            let mut applied = b.clone();
            if let Some(fields) = applied.as_object_mut() {
                fields.insert("apiVersion".to_owned(), json!("x/v1"));
                fields.insert("kind".to_owned(), json!("Thing"));
            }
            let _ = apply(schema.root(), Some(&a), &applied, &who("kubectl"), force, None);
            let _ = apply(schema.root(), None, &applied, &who("m"), force, None);
            let _ = strategic_merge(schema.root(), &a, b.to_string().as_bytes());
        }
        let _ = merge_patch(&a, b.to_string().as_bytes());
        let _ = json_patch(&a, b.to_string().as_bytes());
        let _ = json_patch(&a, json!([b]).to_string().as_bytes());
        let _ = FieldSet::from_json(&a);
    }

    #[test]
    fn operations_on_any_document_do_not_panic(
        doc in any_json(),
        operations in prop::collection::vec(
            (prop::sample::select(vec!["add", "remove", "replace", "move", "copy", "test"]), "(/[a-c0-2~-]{0,2}){0,3}", "(/[a-c0-2~-]{0,2}){0,3}", any_json()),
            0..6,
        ),
    ) {
        let operations: Vec<Value> = operations
            .into_iter()
            .map(|(op, path, from, value)| json!({"op": op, "path": path, "from": from, "value": value}))
            .collect();
        let _ = json_patch(&doc, Value::from(operations).to_string().as_bytes());
    }

    /// Not yet at the second time: the API server takes the nulls out of a list that replaces anything but an object (evanphx/json-patch, `merge`).
    #[test]
    fn merging_again_and_again_comes_to_rest(doc in any_json(), patch in any_json()) {
        let patch = patch.to_string();
        if let Ok(once) = merge_patch(&doc, patch.as_bytes()) {
            let twice = merge_patch(&once, patch.as_bytes()).unwrap();
            prop_assert_eq!(&merge_patch(&twice, patch.as_bytes()).unwrap(), &twice);
        }
    }

    #[test]
    fn what_merges_without_lists_merges_twice_as_once(doc in any_json(), patch in any_json()) {
        let patch = patch.to_string();
        if patch.contains('[') {
            return Ok(());
        }
        if let Ok(once) = merge_patch(&doc, patch.as_bytes()) {
            prop_assert_eq!(&merge_patch(&once, patch.as_bytes()).unwrap(), &once);
        }
    }
}

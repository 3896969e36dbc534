use super::*;
use serde_json::json;

fn pods() -> TableKey {
    TableKey {
        group: String::new(),
        plural: "pods".into(),
    }
}

fn put(store: &mut Store, name: &str, n: i64) -> u64 {
    store
        .put(
            &pods(),
            object_key("ns", name),
            json!({"metadata": {"name": name}, "n": n}),
        )
        .revision
}

#[test]
fn every_write_takes_the_next_revision_of_the_whole_store() {
    let mut store = Store::new(10);
    let first = put(&mut store, "a", 1);
    let nodes = TableKey {
        group: String::new(),
        plural: "nodes".into(),
    };
    let second = store
        .put(&nodes, object_key("", "n"), json!({"metadata": {"name": "n"}}))
        .revision;
    assert_eq!(second, first + 1);
    assert_eq!(
        store.get(&nodes, "n").unwrap().metadata("resourceVersion").unwrap(),
        &json!(second.to_string())
    );
}

#[test]
fn a_table_can_be_seen_as_it_was() {
    let mut store = Store::new(10);
    let first = put(&mut store, "a", 1);
    put(&mut store, "a", 2);
    put(&mut store, "b", 1);
    store.remove(&pods(), "ns/a");
    let then = store.at(&pods(), first).unwrap();
    assert_eq!(then.len(), 1);
    assert_eq!(then["ns/a"].value()["n"], 1);
    assert_eq!(store.at(&pods(), store.revision()).unwrap().len(), 1);
}

#[test]
fn history_is_bounded_and_compaction_forgets() {
    let mut store = Store::new(3);
    let revisions: Vec<u64> = (0..5).map(|n| put(&mut store, "a", n)).collect();
    assert!(!store.remembers(&pods(), revisions[0]));
    assert!(store.remembers(&pods(), revisions[1]));
    assert_eq!(store.changes_after(&pods(), revisions[2]).count(), 2);
    store.compact(revisions[3]);
    assert!(store.at(&pods(), revisions[2]).is_none());
    assert_eq!(store.changes_after(&pods(), revisions[3]).count(), 1);
}

#[test]
fn old_objects_are_kept_as_text_and_read_as_before() {
    let (mut store, table) = (Store::new(10_000), pods());
    let is_tree = |object: &Object| object.cooled().is_some();
    for number in 0..=WARM {
        put(&mut store, &format!("a-{number:04}"), 1);
    }
    let trees = store.objects(&table).filter(|object| is_tree(object)).count();
    assert_eq!(trees, WARM, "all but the one that was written first");
    let history = store.changes_after(&table, 0).filter(|change| is_tree(&change.object));
    assert_eq!(history.count(), WARM);
    store.get(&table, "ns/a-0007").unwrap().body();
    put(&mut store, "a-0007", 2);
    let newest = store.changes_after(&table, store.revision() - 1).next().unwrap();
    let previous = newest.previous.as_ref().unwrap();
    assert!(!is_tree(previous), "nobody writes what is over");
    assert_eq!(
        (&previous.value()["n"], &newest.object.value()["n"]),
        (&json!(1), &json!(2))
    );
    let then = store.at(&table, newest.revision - 1).unwrap();
    assert_eq!(
        (then["ns/a-0000"].name(), then["ns/a-0007"].value()["n"].as_i64()),
        ("a-0000", Some(1))
    );
}

#[test]
fn what_is_on_a_node_is_known() {
    let (mut store, table) = (Store::new(10), pods());
    let put = |store: &mut Store, name: &str, node: &str| {
        let pod = json!({"metadata": {"name": name}, "spec": {"nodeName": node}});
        store.put(&table, object_key("ns", name), pod);
    };
    let on = |store: &Store, node: &str| -> Vec<String> {
        let keys = store
            .on_node(&pods(), node)
            .map(|(key, object)| format!("{key}={}", object.node()));
        keys.collect()
    };
    for (name, node) in [("b", "w1"), ("a", "w1"), ("c", ""), ("d", "w2")] {
        put(&mut store, name, node);
    }
    assert_eq!(on(&store, "w1"), ["ns/a=w1", "ns/b=w1"]);
    put(&mut store, "c", "w1");
    store.remove(&pods(), "ns/a");
    store.rewrite(&pods(), |pod| {
        if pod["metadata"]["name"] == "b" {
            pod["spec"]["nodeName"] = "w2".into();
        }
    });
    assert_eq!(on(&store, "w1"), ["ns/c=w1"]);
    assert_eq!(on(&store, "w2"), ["ns/b=w2", "ns/d=w2"]);
    assert!(on(&store, "").is_empty() && on(&store, "w3").is_empty());
}

#[test]
fn keys_sort_as_etcd_sorts_them() {
    let mut store = Store::new(10);
    for namespace in ["a", "a-b"] {
        store.put(
            &pods(),
            object_key(namespace, "x"),
            json!({"metadata": {"namespace": namespace}}),
        );
    }
    let order: Vec<&str> = store.objects(&pods()).map(|object| object.namespace()).collect();
    assert_eq!(order, ["a-b", "a"], "'-' sorts before '/'");
}

//! Ways to bend a request.

use fastrand::Rng;
use serde_json::{Value, json};

use super::seeds::{self, Seed};

/// One of the well-formed requests, bent one to four times.
pub fn bend(random: &mut Rng) -> Seed {
    let seeds = seeds::all();
    let mut seed = seeds[random.usize(..seeds.len())].clone();
    for _ in 0..random.usize(1..5) {
        match random.u8(..12) {
            0..=5 => bend_value(&mut seed, random),
            6 => bend_text(&mut seed, random),
            7 => seed.query = query(random),
            8 => seed.path = path(&seed.path, random),
            9 => seed.content_type = pick(random, &CONTENT_TYPES).into(),
            10 => seed.accept = pick(random, &ACCEPTS).into(),
            _ => seed.method = pick(random, &METHODS).into(),
        }
    }
    if seed.content_type == "application/apply-patch+yaml" && random.u8(..8) > 0 {
        let manager = pick(
            random,
            &[
                "fieldManager=a",
                "fieldManager=b&force=true",
                "fieldManager=c&dryRun=All",
            ],
        );
        seed.query = manager.into();
    }
    seed
}

const SEGMENTS: [&str; 9] = [
    "",
    "status",
    "scale",
    "%2e%2e",
    "%ff",
    "namespaces",
    "a%2Fb",
    "pods",
    "...",
];

const METHODS: [&str; 8] = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "BREW"];

const CONTENT_TYPES: [&str; 9] = [
    "",
    "application/json",
    "application/yaml",
    "text/plain",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
    "application/vnd.kubernetes.protobuf",
];

const ACCEPTS: [&str; 6] = [
    "application/json;as=Table;g=meta.k8s.io;v=v1",
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,*/*",
    "application/yaml",
    "application/json;as=Table;v=v9;g=nobody",
    ";;;,,,=",
    "application/vnd.kubernetes.protobuf",
];

fn pick<'p>(random: &mut Rng, from: &[&'p str]) -> &'p str {
    from[random.usize(..from.len())]
}

fn query(random: &mut Rng) -> String {
    let keys = [
        "limit",
        "continue",
        "resourceVersion",
        "resourceVersionMatch",
        "labelSelector",
        "fieldSelector",
        "watch",
        "dryRun",
        "fieldManager",
        "fieldValidation",
        "force",
        "propagationPolicy",
        "gracePeriodSeconds",
        "pretty",
        "sendInitialEvents",
        "allowWatchBookmarks",
        "timeoutSeconds",
        "container",
        "tailLines",
        "includeObject",
        "orphanDependents",
    ];
    let values = [
        "1",
        "0",
        "-1",
        "99999999999999999999",
        "true",
        "All",
        "Strict",
        "Exact",
        "NotOlderThan",
        "a=b,c!=d",
        "a in (b,c)",
        "spec.nodeName=node-1",
        "metadata.name=p",
        "%00",
        "%zz",
        "%F0%9F%9A%A2",
        "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiJhIn0",
        "((((",
        "=",
        "",
        "Foreground",
        "Orphan",
        "None",
    ];
    let pairs: Vec<String> = (0..random.usize(1..4))
        .map(|_| format!("{}={}", pick(random, &keys), pick(random, &values)))
        .collect();
    pairs.join("&")
}

fn path(from: &str, random: &mut Rng) -> String {
    let mut parts: Vec<String> = from.split('/').map(str::to_owned).collect();
    if parts.len() < 2 {
        return from.to_owned();
    }
    let at = random.usize(1..parts.len());
    match random.u8(..4) {
        0 => parts[at] = pick(random, &SEGMENTS).into(),
        1 => parts.push(pick(random, &["status", "scale", "log", "eviction", "x"]).into()),
        2 => {
            parts.remove(at);
        }
        _ => parts.swap(at, 1),
    }
    parts.join("/")
}

fn bend_text(seed: &mut Seed, random: &mut Rng) {
    let mut bytes = std::mem::take(&mut seed.body).into_bytes();
    match random.u8(..5) {
        0 => bytes.truncate(random.usize(..=bytes.len())),
        1 if !bytes.is_empty() => {
            let at = random.usize(..bytes.len());
            bytes[at] = random.u8(..);
        }
        2 => bytes.extend_from_slice(b"}]\"\\u0000{{[["),
        3 => bytes = "[".repeat(random.usize(1..3000)).into_bytes(),
        _ => {
            let at = random.usize(..=bytes.len());
            bytes.splice(at..at, b"\"x\":1,".iter().copied());
        }
    }
    seed.body = String::from_utf8_lossy(&bytes).into_owned();
}

fn bend_value(seed: &mut Seed, random: &mut Rng) {
    let Ok(mut value) = serde_json::from_str::<Value>(&seed.body) else {
        return;
    };
    let mut place = &mut value;
    // Down to a random depth.
    for _ in 0..random.usize(..9) {
        let size = match place {
            Value::Object(fields) => fields.len(),
            Value::Array(items) => items.len(),
            _ => 0,
        };
        if size == 0 {
            break;
        }
        let at = random.usize(..size);
        place = match place {
            Value::Object(fields) => match fields.values_mut().nth(at) {
                Some(child) => child,
                None => return,
            },
            Value::Array(items) => &mut items[at],
            _ => return,
        };
    }
    match (random.u8(..6), &mut *place) {
        (0, Value::Object(fields)) => {
            fields.insert(pick(random, &KEYS).into(), hostile(random));
        }
        (1, Value::Object(fields)) => {
            let key = fields.keys().nth(random.usize(..fields.len().max(1))).cloned();
            key.map(|key| fields.remove(&key));
        }
        (2, Value::Array(items)) => items.push(hostile(random)),
        (3, Value::Array(items)) if !items.is_empty() => {
            let copy = items[random.usize(..items.len())].clone();
            items.push(copy);
        }
        _ => *place = hostile(random),
    }
    seed.body = value.to_string();
}

const KEYS: [&str; 22] = [
    "",
    "metadata",
    "spec",
    "status",
    "name",
    "uid",
    "resourceVersion",
    "managedFields",
    "finalizers",
    "ownerReferences",
    "deletionTimestamp",
    "generation",
    "$patch",
    "$retainKeys",
    "$deleteFromPrimitiveList/finalizers",
    "$setElementOrder/containers",
    "kind",
    "apiVersion",
    "labels",
    "generateName",
    "unknown",
    "x.y[0]",
];

fn hostile(random: &mut Rng) -> Value {
    let values = [
        json!(null),
        json!(true),
        json!(0),
        json!(-1),
        json!(9_223_372_036_854_775_807_i64),
        json!(u64::MAX),
        json!(1e300),
        json!(0.5),
        json!(""),
        json!("a"),
        json!("delete"),
        json!("\u{0}\u{ffff}🚢"),
        json!("A/B/C"),
        json!("2026-01-01T00:00:00Z"),
        json!("1e9999999999"),
        json!("100m"),
        json!("x".repeat(300)),
        json!([]),
        json!({}),
        json!([[[[[]]]]]),
        json!([null, {}, "a", "a"]),
        json!({"": {"": null}}),
        json!([{"name": "a"}, {"name": "a"}]),
        json!([{"manager": "a", "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {"f:k": {}}}}]),
        json!([{"fieldsV1": {"k:{": 1, "v:": {}, "i:x": {}}}]),
        json!([{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": true}]),
    ];
    values[random.usize(..values.len())].clone()
}

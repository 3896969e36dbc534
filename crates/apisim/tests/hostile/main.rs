//! Hostile requests: well-formed ones, bent in every way, sent to a server that must answer each with a whole reply,
//! never panic, and never write anything for a request that it refuses. Bounded by default; `AFLOAT_FUZZ_SECONDS` makes
//! it go on, `AFLOAT_FUZZ_SEED` repeats a run. Requests that once broke something are in `corpus.json`.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by failing")]
#![recursion_limit = "256"]

mod bend;
mod seeds;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use afloat_apisim::{ApiServer, ManualClock, Options, ReplyBody};
use bytes::Bytes;
use http::Request;
use serde_json::{Value, json};

use seeds::Seed;

/// Requests until the server is made anew.
const ROUND: u64 = 400;

/// Requests of an ordinary test run.
const ORDINARY: u64 = 6_000;

fn server() -> ApiServer {
    let clock = ManualClock::new("2026-01-02T03:04:05Z".parse().unwrap());
    let server = ApiServer::new(Options {
        clock: Arc::new(clock),
        seed: 1,
        ..Options::default()
    });
    for seed in seeds::standing() {
        let reply = server.handle(seed.request());
        assert!(reply.status.is_success(), "{seed:?}: {:?}", reply.bytes());
    }
    server
}

/// Sends one request and checks what must hold of every answer; the text of a failure.
fn send(server: &ApiServer, seed: &Seed) -> Result<(), String> {
    let Some(request) = seed.try_request() else {
        return Ok(());
    };
    let before = server.revision();
    let reply = catch_unwind(AssertUnwindSafe(|| server.handle(request))).map_err(|_| "it panicked".to_owned())?;
    let wrote = server.revision() != before;
    if wrote && !reply.status.is_success() {
        return Err(format!("refused with {}, and written all the same", reply.status));
    }
    if wrote && seed.query.contains("dryRun=All") && !seed.query.contains("dryRun=All%") && seed.method != "DELETE" {
        return Err("a dry run wrote".to_owned());
    }
    let json = reply
        .headers
        .get("content-type")
        .is_some_and(|value| value == "application/json");
    match reply.body {
        ReplyBody::Full(body) => {
            let read = serde_json::from_slice::<Value>(&body);
            if json && read.is_err() {
                return Err(format!("the reply is no JSON: {}", String::from_utf8_lossy(&body)));
            }
            if reply.status.is_server_error() && read.is_ok_and(|status| status["message"] == json!("")) {
                return Err("an error without a word".to_owned());
            }
        }
        ReplyBody::Watch(mut watch) => {
            let lines = catch_unwind(AssertUnwindSafe(|| watch.take_ready())).map_err(|_| "the watch panicked")?;
            if lines.iter().any(|line| serde_json::from_slice::<Value>(line).is_err()) {
                return Err("a watch sent a line that is no JSON".to_owned());
            }
        }
    }
    Ok(())
}

/// What is stored can be read, and writing it back changes nothing.
fn check_stored(server: &ApiServer) -> Result<(), String> {
    for path in seeds::collections() {
        // The definition of a custom resource may have been deleted.
        let Ok(list) = get(server, path) else { continue };
        for item in list["items"].as_array().into_iter().flatten().take(20) {
            let name = item["metadata"]["name"].as_str().unwrap_or_default();
            let object_path = format!("{path}/{name}");
            let object = get(server, &object_path)?;
            let before = server.revision();
            let put = Request::builder()
                .method("PUT")
                .uri(&object_path)
                .header("user-agent", "nobody")
                .body(Bytes::from(object.to_string()))
                .map_err(|error| format!("{object_path}: {error}"))?;
            let reply = server.handle(put);
            if !reply.status.is_success() {
                let why = reply.bytes().map(|body| String::from_utf8_lossy(body).into_owned());
                return Err(format!("what {object_path} gave cannot be put back: {why:?}\n{object}"));
            }
            if server.revision() != before {
                let after = get(server, &object_path)?;
                let changed = differences(&object, &after, "");
                return Err(format!("{object_path} put back as it was is a change: {changed:#?}"));
            }
        }
    }
    Ok(())
}

/// The places where two values differ, with both.
fn differences(left: &Value, right: &Value, place: &str) -> Vec<String> {
    match (left, right) {
        _ if left == right => Vec::new(),
        (Value::Object(some), Value::Object(others)) => {
            let keys: std::collections::BTreeSet<&String> = some.keys().chain(others.keys()).collect();
            let null = Value::Null;
            keys.into_iter()
                .flat_map(|key| {
                    let (left, right) = (some.get(key).unwrap_or(&null), others.get(key).unwrap_or(&null));
                    differences(left, right, &format!("{place}.{key}"))
                })
                .collect()
        }
        _ => vec![format!("{place}: {left} became {right}")],
    }
}

fn get(server: &ApiServer, path: &str) -> Result<Value, String> {
    let request = Request::get(path)
        .body(Bytes::new())
        .map_err(|error| format!("{path}: {error}"))?;
    let reply = server.handle(request);
    let body = reply.bytes().cloned().unwrap_or_default();
    if !reply.status.is_success() {
        return Err(format!("GET {path}: {}", String::from_utf8_lossy(&body)));
    }
    serde_json::from_slice(&body).map_err(|error| format!("GET {path}: {error}"))
}

#[test]
fn bent_requests_are_answered_and_refused_whole() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let limit = number("AFLOAT_FUZZ_SECONDS").map(Duration::from_secs);
    let seed = number("AFLOAT_FUZZ_SEED").unwrap_or(1);
    let started = Instant::now();
    let mut random = fastrand::Rng::with_seed(seed);
    let (mut server, mut sent) = (server(), 0_u64);
    while limit.map_or(sent < ORDINARY, |limit| started.elapsed() < limit) {
        let bent = bend::bend(&mut random);
        let outcome = send(&server, &bent);
        assert_eq!(outcome, Ok(()), "request {sent} of seed {seed}:\n{}", bent.as_json());
        sent += 1;
        if sent % ROUND == 0 {
            assert_eq!(check_stored(&server), Ok(()), "after request {sent} of seed {seed}");
            server = self::server();
        }
    }
    println!("{sent} hostile requests, seed {seed}, {:.0?}", started.elapsed());
}

#[test]
fn what_once_broke_stays_whole() {
    let corpus: Vec<Seed> = serde_json::from_str(include_str!("corpus.json")).unwrap();
    for seed in corpus {
        let server = server();
        assert_eq!(send(&server, &seed), Ok(()), "{seed:?}");
        assert_eq!(check_stored(&server), Ok(()), "{seed:?}");
    }
}

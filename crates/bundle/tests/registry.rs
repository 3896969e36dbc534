//! A bundle served by our own registry and brought from it: what is answered, what is checked on the way, who is let in.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on says so by failing"
)]

mod common;

use std::net::SocketAddr;

use afloat_bundle::Error;
use afloat_bundle::layout::Layout;
use afloat_bundle::progress::silent;
use afloat_bundle::registry::{Access, Repository, pull, push};
use afloat_bundle::serve::router;
use afloat_bundle::verify::{Signature, verify};
use axum::Router;
use axum::extract::Request;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use common::{NEW, OLD, Site};
use http::StatusCode;
use http::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use http_body_util::BodyExt as _;
use std::fs;
use tower::ServiceExt as _;

/// Serves on a free port for as long as the test lasts.
async fn listen(service: Router) -> SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, service).await });
    address
}

fn repository(address: SocketAddr, tag: &str, access: &Access) -> Repository {
    let reference = format!("{address}/afloat/bundle:{tag}").parse().unwrap();
    Repository::new(&reference, access).unwrap()
}

fn plain() -> Access {
    Access {
        plain_http: true,
        ..Access::default()
    }
}

/// A site with a signed bundle in the layout `bundle`.
fn site() -> (Site, Layout) {
    let site = Site::new();
    let layout = site.layout("bundle");
    site.bundle(&layout, &[OLD, NEW]);
    (site, layout)
}

#[tokio::test]
async fn p30_a_layout_is_a_mirror_and_what_comes_from_it_is_the_same_bundle() {
    let (site, layout) = site();
    let address = listen(router(layout.clone())).await;
    let copy = site.layout("copy");
    let pulled = pull(&repository(address, NEW, &plain()), &copy, &silent).await.unwrap();
    assert_eq!(pulled.kubernetes_versions, [OLD, NEW]);
    let (ours, theirs) = (layout.bundle(None).unwrap().0, copy.bundle(None).unwrap().0);
    assert_eq!((ours.digest, theirs.tag()), (theirs.digest, Some(NEW)));
    assert!(pulled.image.ends_with(&format!("@{}", ours.digest)), "{}", pulled.image);
    let verdict = verify(&copy, None, Some(&site.public()), &silent).unwrap();
    assert_eq!(verdict.complaints, []);
    assert_eq!(verdict.bundles[0].signature, Signature::Good(site.key().public()));
    // Again: nothing travels.
    let again = pull(&repository(address, NEW, &plain()), &copy, &silent).await.unwrap();
    assert_eq!(again.brought_bytes, 0);
}

#[tokio::test]
async fn p30_what_was_changed_in_the_registry_does_not_arrive() {
    let (site, layout) = site();
    let (_, manifest) = layout.bundle(None).unwrap();
    let blob = &manifest.layers[0];
    let path = layout.path(blob.digest);
    let mut bytes = fs::read(&path).unwrap();
    bytes[600] ^= 1;
    fs::write(&path, bytes).unwrap();
    let address = listen(router(layout)).await;
    let copy = site.layout("copy");
    let refused = pull(&repository(address, NEW, &plain()), &copy, &silent)
        .await
        .unwrap_err();
    assert!(refused.to_string().contains(&blob.digest.to_string()), "{refused}");
    assert!(copy.size(blob.digest).is_none() && copy.bundles().unwrap().is_empty());
    // A tag that is not there, an image that is no bundle, a registry that is not there.
    let missing = pull(&repository(address, "v9", &plain()), &copy, &silent)
        .await
        .unwrap_err();
    assert!(missing.to_string().ends_with("is not in the registry"), "{missing}");
    let nobody: SocketAddr = "127.0.0.1:1".parse().unwrap();
    let nobody = pull(&repository(nobody, NEW, &plain()), &copy, &silent)
        .await
        .unwrap_err();
    assert!(matches!(nobody, Error::Unreachable { .. }), "{nobody}");
    let read_only = push(
        &site.layout("bundle"),
        None,
        &repository(address, NEW, &plain()),
        &silent,
    )
    .await
    .unwrap_err();
    assert!(read_only.to_string().contains("only to be read from"), "{read_only}");
}

#[tokio::test]
async fn p30_the_mirror_answers_as_registries_do() {
    let (_site, layout) = site();
    let (bundle, manifest) = layout.bundle(None).unwrap();
    let (digest, layer) = (bundle.digest, &manifest.layers[0]);
    let whole = fs::read(layout.path(layer.digest)).unwrap();
    let (blob, size) = (format!("/v2/any/name/at/all/blobs/{}", layer.digest), whole.len());
    let service = router(layout);
    let ask = async |method: &str, path: &str, range: Option<&str>| {
        let mut request = Request::builder().method(method).uri(path);
        if let Some(range) = range {
            request = request.header("range", range);
        }
        let answer: Response = service
            .clone()
            .oneshot(request.body(axum::body::Body::empty()).unwrap())
            .await
            .unwrap();
        let (parts, body) = answer.into_parts();
        (
            parts.status.as_u16(),
            parts.headers,
            body.collect().await.unwrap().to_bytes(),
        )
    };
    for (method, path, range, status, length) in [
        ("GET", "/v2/", None, 200, 2),
        ("GET", "/v2", None, 200, 2),
        (
            "GET",
            &format!("/v2/b/manifests/{NEW}"),
            None,
            200,
            usize::try_from(bundle.size).unwrap(),
        ),
        ("HEAD", &format!("/v2/b/manifests/{digest}"), None, 200, 0),
        ("GET", "/v2/b/manifests/v9", None, 404, 0),
        ("GET", &blob, None, 200, size),
        ("HEAD", &blob, None, 200, 0),
        ("GET", &blob, Some("bytes=10-19"), 206, 10),
        ("GET", &blob, Some("bytes=10-"), 206, size - 10),
        ("GET", &blob, Some("bytes=-7"), 206, 7),
        ("GET", &blob, Some(&format!("bytes={size}-")), 416, 0),
        ("GET", &blob, Some("bytes=9-3"), 416, 0),
        ("GET", &format!("/v2/b/blobs/sha256:{}", "0".repeat(64)), None, 404, 0),
        ("GET", "/v2/b/blobs/..%2F..%2Findex.json", None, 404, 0),
        ("GET", "/v2/b/blobs/../../index.json", None, 404, 0),
        ("POST", "/v2/b/blobs/uploads/", None, 405, 0),
        ("PUT", "/v2/b/manifests/v1", None, 405, 0),
        ("DELETE", &blob, None, 405, 0),
        ("GET", "/", None, 404, 0),
    ] {
        let (found, headers, body) = ask(method, path, range).await;
        assert_eq!(found, status, "{method} {path} {range:?}");
        if status < 300 {
            assert_eq!(body.len(), length, "{method} {path} {range:?}");
            assert_eq!(headers["docker-distribution-api-version"], "registry/2.0");
        }
    }
    assert_eq!(ask("GET", &blob, Some("bytes=10-19")).await.2, whole[10..20]);
    assert_eq!(ask("HEAD", &blob, None).await.1["content-length"], size.to_string());
    let tags = ask("GET", "/v2/b/tags/list?n=1", None).await;
    let listed: serde_json::Value = serde_json::from_slice(&tags.2).unwrap();
    assert_eq!(listed["tags"].as_array().unwrap().len(), 1);
    assert!(tags.1["link"].to_str().unwrap().ends_with("; rel=\"next\""));
    let referrers = ask("GET", &format!("/v2/b/referrers/{digest}"), None).await.2;
    let referrers: serde_json::Value = serde_json::from_slice(&referrers).unwrap();
    assert_eq!(
        referrers["manifests"].as_array().unwrap().len(),
        2,
        "bill of materials and signature"
    );
}

const PASSWORD: &str = "pw-canary";

/// What a request says of who sends it.
fn said(request: &Request) -> Option<&str> {
    request
        .headers()
        .get(AUTHORIZATION)
        .and_then(|value| value.to_str().ok())
}

/// Gives a token for the password of ada.
async fn token(request: Request) -> Response {
    let scope = "service=here&scope=repository%3Aafloat%2Fbundle%3Apull";
    if said(&request) == Some("Basic YWRhOnB3LWNhbmFyeQ==") && request.uri().query() == Some(scope) {
        axum::Json(serde_json::json!({ "token": "t0ken" })).into_response()
    } else {
        StatusCode::UNAUTHORIZED.into_response()
    }
}

/// Lets nobody in without one.
async fn guard(request: Request, next: Next) -> Response {
    if said(&request) == Some("Bearer t0ken") || request.uri().path() == "/token" {
        return next.run(request).await;
    }
    let host = request.headers()["host"].to_str().unwrap();
    let challenge =
        format!("Bearer realm=\"http://{host}/token\",service=\"here\",scope=\"repository:afloat/bundle:pull\"");
    (StatusCode::UNAUTHORIZED, [(WWW_AUTHENTICATE, challenge)]).into_response()
}

#[tokio::test]
async fn p30_a_registry_that_wants_a_token_gets_one_and_the_password_is_never_said() {
    let (site, layout) = site();
    let address = listen(
        Router::new()
            .route("/token", get(token))
            .fallback_service(router(layout))
            .layer(middleware::from_fn(guard)),
    )
    .await;
    for (user, password, enters) in [("ada", PASSWORD, true), ("ada", "wrong-canary", false)] {
        let config =
            serde_json::json!({ "auths": { address.to_string(): { "username": user, "password": password } } });
        site.write("config.json", config.to_string().as_bytes());
        let access = Access {
            docker_config: Some(site.path("config.json")),
            ..plain()
        };
        let copy = site.layout(&format!("copy-{enters}"));
        let brought = pull(&repository(address, NEW, &access), &copy, &silent).await;
        match brought {
            Ok(_) => assert!(enters),
            Err(error) => {
                assert!(!enters, "{error}");
                assert!(error.help().unwrap().contains("docker login"), "{error}");
                assert!(!format!("{error} {error:?}").contains("canary"), "{error}");
            }
        }
    }
}

/// A host that must not be told who we are.
async fn stranger(request: Request, next: Next) -> Response {
    assert_eq!(said(&request), None, "another host was told who we are");
    next.run(request).await
}

/// A registry that keeps its blobs elsewhere, as those in front of object stores do.
#[tokio::test]
async fn p30_where_a_registry_keeps_its_blobs_elsewhere_they_come_from_there_without_our_password() {
    let (site, layout) = site();
    let store = listen(router(layout.clone()).layer(middleware::from_fn(stranger))).await;
    let send_on = move |request: Request, next: Next| async move {
        let path = request.uri().path().to_owned();
        if path.contains("/blobs/") {
            let to = format!("http://{store}{path}");
            return (StatusCode::TEMPORARY_REDIRECT, [("location", to)]).into_response();
        }
        if request.headers().get(AUTHORIZATION).is_none() {
            return (StatusCode::UNAUTHORIZED, [(WWW_AUTHENTICATE, "Basic realm=\"x\"")]).into_response();
        }
        next.run(request).await
    };
    let address = listen(router(layout).layer(middleware::from_fn(send_on))).await;
    let config = serde_json::json!({ "auths": { address.to_string(): { "username": "ada", "password": PASSWORD } } });
    site.write("config.json", config.to_string().as_bytes());
    let access = Access {
        docker_config: Some(site.path("config.json")),
        ..plain()
    };
    let copy = site.layout("copy");
    pull(&repository(address, NEW, &access), &copy, &silent).await.unwrap();
    assert_eq!(
        verify(&copy, None, Some(&site.public()), &silent).unwrap().complaints,
        []
    );
}

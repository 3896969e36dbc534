//! A registry to read from, over a layout: what a mirror in an air-gapped site needs, and nothing more. Whatever name is asked
//! for, the layout answers; nothing can be written.

use std::io::SeekFrom;
use std::sync::Arc;

use afloat_node::digest::Digest;
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use http::header::{ACCEPT_RANGES, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, LINK, RANGE};
use http::{HeaderMap, Method, StatusCode};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncSeekExt as _};
use tokio_util::io::ReaderStream;

use crate::layout::Layout;
use crate::oci::{self, Descriptor, Index};

/// Tags listed at once unless asked otherwise.
const PAGE: usize = 1000;
const PIECE: usize = 256 << 10;

/// The registry as a service.
pub fn router(layout: Layout) -> Router {
    Router::new().fallback(answer).with_state(Arc::new(layout))
}

/// Serves until `ended`.
pub async fn serve(
    layout: Layout,
    listener: tokio::net::TcpListener,
    ended: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    axum::serve(listener, router(layout))
        .with_graceful_shutdown(ended)
        .await
}

async fn answer(State(layout): State<Arc<Layout>>, request: Request) -> Response {
    let head = request.method() == Method::HEAD;
    if !head && request.method() != Method::GET {
        return problem(
            StatusCode::METHOD_NOT_ALLOWED,
            "UNSUPPORTED",
            "this registry is only to be read from",
        );
    }
    let path = request.uri().path().to_owned();
    let Some(rest) = path.strip_prefix("/v2/").or_else(|| path.strip_prefix("/v2")) else {
        return problem(StatusCode::NOT_FOUND, "UNSUPPORTED", "there is nothing but /v2/ here");
    };
    if rest.is_empty() {
        return json_answer("application/json", &json!({}), head);
    }
    let Ok(index) = layout.index() else {
        return problem(
            StatusCode::INTERNAL_SERVER_ERROR,
            "UNKNOWN",
            "the layout cannot be read",
        );
    };
    // The name of a repository may have slashes in it; what follows has not.
    let mut parts = rest.rsplitn(3, '/');
    let (last, kind, name) = (parts.next(), parts.next(), parts.next());
    match (name, kind, last) {
        (Some(_), Some("manifests"), Some(wanted)) => manifest(&layout, &index, wanted, head),
        (Some(_), Some("blobs"), Some(wanted)) => blob(&layout, wanted, request.headers(), head).await,
        (Some(name), Some("tags"), Some("list")) => tags(&index, name, request.uri().query().unwrap_or_default(), head),
        (Some(_), Some("referrers"), Some(wanted)) => referrers(&layout, &index, wanted, head),
        _ => problem(
            StatusCode::NOT_FOUND,
            "NAME_UNKNOWN",
            "there is no such thing in a registry",
        ),
    }
}

fn manifest(layout: &Layout, index: &Index, wanted: &str, head: bool) -> Response {
    let found = index
        .manifests
        .iter()
        .find(|found| found.tag() == Some(wanted) || found.digest.to_string() == wanted);
    let unknown = || problem(StatusCode::NOT_FOUND, "MANIFEST_UNKNOWN", "there is no such manifest");
    let Some(found) = found else {
        return unknown();
    };
    let Ok(bytes) = layout.document_bytes("a manifest", found.digest) else {
        return unknown();
    };
    let response = Response::builder()
        .header(CONTENT_TYPE, &found.media_type)
        .header(CONTENT_LENGTH, bytes.len())
        .header("docker-content-digest", found.digest.to_string());
    finish(response, if head { Body::empty() } else { Body::from(bytes) })
}

async fn blob(layout: &Layout, wanted: &str, headers: &HeaderMap, head: bool) -> Response {
    let unknown = || problem(StatusCode::NOT_FOUND, "BLOB_UNKNOWN", "there is no such blob");
    let Some((digest, size)) = wanted
        .parse::<Digest>()
        .ok()
        .and_then(|digest| Some((digest, layout.size(digest)?)))
    else {
        return unknown();
    };
    let range = headers.get(RANGE).and_then(|value| value.to_str().ok());
    let Ok(range) = range.map(|range| part(range, size)).transpose() else {
        let response = Response::builder().status(StatusCode::RANGE_NOT_SATISFIABLE);
        return finish(response.header(CONTENT_RANGE, format!("bytes */{size}")), Body::empty());
    };
    let (first, length) = range.unwrap_or((0, size));
    let mut response = Response::builder()
        .header(CONTENT_TYPE, "application/octet-stream")
        .header(CONTENT_LENGTH, length)
        .header(ACCEPT_RANGES, "bytes")
        .header("docker-content-digest", digest.to_string());
    if range.is_some() {
        let last = first + length.saturating_sub(1);
        response = response
            .status(StatusCode::PARTIAL_CONTENT)
            .header(CONTENT_RANGE, format!("bytes {first}-{last}/{size}"));
    }
    if head {
        return finish(response, Body::empty());
    }
    let Ok(mut file) = tokio::fs::File::open(layout.path(digest)).await else {
        return unknown();
    };
    if file.seek(SeekFrom::Start(first)).await.is_err() {
        return unknown();
    }
    finish(
        response,
        Body::from_stream(ReaderStream::with_capacity(file.take(length), PIECE)),
    )
}

/// First byte and length of `bytes=A-B`, `bytes=A-` or `bytes=-N`.
fn part(text: &str, size: u64) -> Result<(u64, u64), ()> {
    let (first, last) = text
        .strip_prefix("bytes=")
        .and_then(|range| range.split_once('-'))
        .ok_or(())?;
    let number = |text: &str| text.parse::<u64>().map_err(|_| ());
    let (first, end) = match (first, last) {
        ("", last) => (size.saturating_sub(number(last)?), size),
        (first, "") => (number(first)?, size),
        (first, last) => (number(first)?, number(last)?.saturating_add(1).min(size)),
    };
    if first < end { Ok((first, end - first)) } else { Err(()) }
}

fn tags(index: &Index, name: &str, query: &str, head: bool) -> Response {
    let value = |key: &str| {
        let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        pairs
            .into_iter()
            .find(|(found, _)| *found == key)
            .map(|(_, value)| value.to_owned())
    };
    let mut tags: Vec<&str> = index.manifests.iter().filter_map(Descriptor::tag).collect();
    tags.sort_unstable();
    if let Some(last) = value("last") {
        tags.retain(|tag| *tag > last.as_str());
    }
    let page = value("n").and_then(|n| n.parse().ok()).unwrap_or(PAGE).min(PAGE);
    let more = tags.len() > page;
    tags.truncate(page);
    let mut response = json_answer("application/json", &json!({ "name": name, "tags": tags }), head);
    if more
        && let Some(last) = tags.last()
        && let Ok(link) = format!("</v2/{name}/tags/list?n={page}&last={last}>; rel=\"next\"").parse()
    {
        response.headers_mut().insert(LINK, link);
    }
    response
}

fn referrers(layout: &Layout, index: &Index, wanted: &str, head: bool) -> Response {
    let Ok(digest) = wanted.parse::<Digest>() else {
        return problem(StatusCode::BAD_REQUEST, "DIGEST_INVALID", "this is no digest");
    };
    let refers = |found: &&Descriptor| {
        let manifest = layout.manifest(found.digest).ok();
        let subject = manifest.and_then(|manifest| manifest.subject);
        subject.is_some_and(|subject| subject.digest == digest)
    };
    let found = index.manifests.iter().filter(refers).cloned().collect();
    let list = Index {
        manifests: found,
        ..Index::default()
    };
    json_answer(oci::INDEX, &json!(list), head)
}

fn json_answer(media_type: &str, value: &serde_json::Value, head: bool) -> Response {
    let text = value.to_string();
    let response = Response::builder()
        .header(CONTENT_TYPE, media_type)
        .header(CONTENT_LENGTH, text.len());
    finish(response, if head { Body::empty() } else { Body::from(text) })
}

fn problem(status: StatusCode, code: &str, message: &str) -> Response {
    let text = json!({ "errors": [{ "code": code, "message": message }] }).to_string();
    finish(
        Response::builder()
            .status(status)
            .header(CONTENT_TYPE, "application/json"),
        Body::from(text),
    )
}

fn finish(response: http::response::Builder, body: Body) -> Response {
    let response = response
        .header("docker-distribution-api-version", "registry/2.0")
        .body(body);
    response.unwrap_or_else(|_| Response::new(Body::empty()))
}

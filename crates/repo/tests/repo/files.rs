//! Files whole and in part, conditions, listings, and the server's own pages.

use std::path::Path;

use afloat_repo::Options;
use tempfile::TempDir;

use crate::client::{Answer, ask, repo, start};

const RELEASE: &str = "release:\n  harvester: v1.8.0\n";

fn put(folder: &Path, path: &str, bytes: &[u8]) {
    let path = folder.join(path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, bytes).unwrap();
}

pub fn release() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    put(folder.path(), "harvester-release.yaml", RELEASE.as_bytes());
    put(folder.path(), "digits", b"0123456789");
    put(folder.path(), "empty", b"");
    put(folder.path(), "bundle/metadata.yaml", b"images: []\n");
    put(folder.path(), "bundle/a b&c.txt", b"odd\n");
    folder
}

#[tokio::test]
async fn h21_h51_the_release_is_served_where_upstreams_scripts_look_for_it() {
    let folder = release();
    let running = start(repo(folder.path(), Options::default())).await;
    let answer = running.ask("GET /harvester-iso/harvester-release.yaml", &[]).await;
    assert_eq!((answer.status.as_u16(), answer.text()), (200, RELEASE));
    assert_eq!(answer.header("content-type"), "application/yaml");
    assert_eq!(answer.header("content-length"), RELEASE.len().to_string());
    assert_eq!(answer.header("accept-ranges"), "bytes");
    assert_eq!(answer.header("x-content-type-options"), "nosniff");
    let nested = running.ask("GET /harvester-iso//bundle/metadata.yaml", &[]).await;
    assert_eq!(nested.text(), "images: []\n");
    let odd = running.ask("GET /harvester-iso/bundle/a%20b%26c.txt", &[]).await;
    assert_eq!(odd.text(), "odd\n");
    let head = running.ask("HEAD /harvester-iso/harvester-release.yaml", &[]).await;
    assert_eq!((head.status.as_u16(), head.body.len()), (200, 0));
    assert_eq!(head.header("content-length"), RELEASE.len().to_string());
    assert_eq!(head.header("etag"), answer.header("etag"));
    running.end().await;
}

/// What the operator itself sends.
#[tokio::test]
async fn h51_a_client_of_http_1_0_is_answered_and_let_go() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let folder = release();
    let running = start(repo(folder.path(), Options::default())).await;
    let mut stream = running.connect().await;
    let request = b"GET /harvester-iso/harvester-release.yaml HTTP/1.0\r\nHost: x\r\nConnection: close\r\n\r\n";
    stream.write_all(request).await.unwrap();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).await.unwrap();
    assert_eq!(crate::client::parse(&bytes).text(), RELEASE);
    running.end().await;
}

#[tokio::test]
async fn h51_ranges_over_a_socket() {
    let folder = release();
    let running = start(repo(folder.path(), Options::default())).await;
    for (line, range, status, body, content_range) in [
        ("GET /harvester-iso/digits", "bytes=2-5", 206, "2345", "bytes 2-5/10"),
        ("GET /harvester-iso/digits", "bytes=7-", 206, "789", "bytes 7-9/10"),
        ("GET /harvester-iso/digits", "bytes=-3", 206, "789", "bytes 7-9/10"),
        (
            "GET /harvester-iso/digits",
            "bytes=-30",
            206,
            "0123456789",
            "bytes 0-9/10",
        ),
        ("GET /harvester-iso/digits", "bytes=0-0", 206, "0", "bytes 0-0/10"),
        ("GET /harvester-iso/digits", "bytes=5-2", 200, "0123456789", ""),
        ("GET /harvester-iso/digits", "bytes=0-1,4-5", 200, "0123456789", ""),
        ("GET /harvester-iso/digits", "rows=0-1", 200, "0123456789", ""),
        ("HEAD /harvester-iso/digits", "bytes=2-5", 200, "", ""),
        ("GET /harvester-iso/empty", "bytes=-1", 200, "", ""),
    ] {
        let answer = running.ask(line, &[&format!("Range: {range}")]).await;
        let found = (answer.status.as_u16(), answer.text(), answer.header("content-range"));
        assert_eq!(found, (status, body, content_range), "{line} {range}");
    }
    for (path, range, size) in [
        ("/harvester-iso/digits", "bytes=10-", "bytes */10"),
        ("/harvester-iso/digits", "bytes=-0", "bytes */10"),
        ("/harvester-iso/empty", "bytes=0-", "bytes */0"),
    ] {
        let answer = running.ask(&format!("GET {path}"), &[&format!("Range: {range}")]).await;
        assert_eq!(
            (answer.status.as_u16(), answer.header("content-range")),
            (416, size),
            "{path} {range}"
        );
    }
    let twice = running
        .ask("GET /harvester-iso/digits", &["Range: bytes=0-1", "Range: bytes=4-5"])
        .await;
    assert_eq!(twice.status, 200);
    running.end().await;
}

#[tokio::test]
async fn h51_a_download_goes_on_only_with_the_same_file() {
    let folder = release();
    let repo = repo(folder.path(), Options::default());
    let path = "GET /harvester-iso/digits";
    let first = ask(&repo, path, &[]).await;
    let etag = format!("If-Range: {}", first.header("etag"));
    let date = format!("If-Range: {}", first.header("last-modified"));
    assert!(first.header("last-modified").ends_with(" GMT"), "{first:?}");
    for (condition, status) in [
        (etag.as_str(), 206),
        (date.as_str(), 206),
        ("If-Range: \"another\"", 200),
        ("If-Range: Sun, 06 Nov 1994 08:49:37 GMT", 200),
    ] {
        let answer = ask(&repo, path, &[condition, "Range: bytes=5-"]).await;
        assert_eq!(answer.status, status, "{condition}");
    }
    put(folder.path(), "digits", b"abcdefghijk");
    let changed = ask(&repo, path, &[&etag, "Range: bytes=5-"]).await;
    assert_eq!((changed.status.as_u16(), changed.text()), (200, "abcdefghijk"));
}

#[tokio::test]
async fn h51_what_the_client_has_is_not_sent_again() {
    let folder = release();
    let repo = repo(folder.path(), Options::default());
    let path = "GET /harvester-iso/digits";
    let first = ask(&repo, path, &[]).await;
    let etag = first.header("etag");
    for (condition, status) in [
        (format!("If-None-Match: {etag}"), 304),
        (format!("If-None-Match: \"x\", W/{etag}"), 304),
        ("If-None-Match: \"x\"".to_owned(), 200),
        (format!("If-Modified-Since: {}", first.header("last-modified")), 304),
        ("If-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT".to_owned(), 200),
        (format!("If-Match: {etag}"), 200),
        ("If-Match: \"x\"".to_owned(), 412),
        ("If-Unmodified-Since: Sun, 06 Nov 1994 08:49:37 GMT".to_owned(), 412),
    ] {
        let answer = ask(&repo, path, &[&condition]).await;
        assert_eq!(answer.status, status, "{condition}");
        assert_eq!(answer.header("etag"), etag, "{condition}");
        assert!(status != 304 || (answer.body.is_empty() && answer.header("content-length").is_empty()));
    }
    // A condition comes before a range.
    let both = ask(&repo, path, &[&format!("If-None-Match: {etag}"), "Range: bytes=99-"]).await;
    assert_eq!(both.status, 304);
}

fn names(listing: &Answer) -> Vec<String> {
    let listing: serde_json::Value = serde_json::from_slice(&listing.body).unwrap();
    let entries = listing["entries"].as_array().unwrap();
    let line = |entry: &serde_json::Value| {
        format!(
            "{} {}",
            entry["type"].as_str().unwrap(),
            entry["name"].as_str().unwrap()
        )
    };
    entries.iter().map(line).collect()
}

#[tokio::test]
async fn h51_folders_are_listed_for_people_and_for_programs() {
    let folder = release();
    put(folder.path(), ".hidden", b"x");
    let open = repo(folder.path(), Options::default());
    let json = ask(&open, "GET /harvester-iso/", &["Accept: application/json"]).await;
    assert_eq!(json.header("content-type"), "application/json");
    assert_eq!(json.header("vary"), "accept");
    let expected = [
        "folder bundle",
        "file digits",
        "file empty",
        "file harvester-release.yaml",
    ];
    assert_eq!(names(&json), expected);
    let html = ask(&open, "GET /harvester-iso/bundle/", &["Accept: text/html,*/*;q=0.8"]).await;
    assert_eq!(html.header("content-type"), "text/html; charset=utf-8");
    assert!(
        html.text().contains("href=\"./a%20b%26c.txt\">a b&amp;c.txt</a>"),
        "{}",
        html.text()
    );
    let root = ask(&open, "GET /", &["Accept: application/json"]).await;
    assert_eq!(names(&root), ["folder harvester-iso"]);
    let head = ask(&open, "HEAD /harvester-iso/", &[]).await;
    assert!(head.status == 200 && head.body.is_empty());
    for (path, location) in [
        ("/harvester-iso", "./harvester-iso/"),
        ("/harvester-iso/bundle", "./bundle/"),
    ] {
        let moved = ask(&open, &format!("GET {path}"), &[]).await;
        assert_eq!((moved.status.as_u16(), moved.header("location")), (301, location));
    }
    let all = Options {
        hidden: true,
        place: "/".parse().unwrap(),
        ..Options::default()
    };
    let all = repo(folder.path(), all);
    let json = ask(&all, "GET /", &["Accept: application/json"]).await;
    assert_eq!(names(&json)[0], "file .hidden");
    assert_eq!(ask(&all, "GET /.hidden", &[]).await.text(), "x");
    assert_eq!(ask(&all, "GET /digits", &[]).await.text(), "0123456789");
}

#[tokio::test]
async fn h51_the_server_says_whether_it_can_serve() {
    let folder = release();
    let running = start(repo(folder.path(), Options::default())).await;
    let told = |answer: Answer| (answer.status.as_u16(), answer.text().to_owned());
    for page in ["/healthz", "/readyz"] {
        let answer = running.ask(&format!("GET {page}"), &[]).await;
        assert_eq!(told(answer), (200, "ok\n".to_owned()), "{page}");
    }
    // The release file became a folder: there is nothing a node could begin with.
    std::fs::remove_file(folder.path().join("harvester-release.yaml")).unwrap();
    std::fs::create_dir(folder.path().join("harvester-release.yaml")).unwrap();
    let answer = running.ask("GET /readyz", &[]).await;
    assert_eq!(
        told(answer),
        (503, "harvester-release.yaml: it is a folder\n".to_owned())
    );
    std::fs::remove_dir_all(folder.path()).unwrap();
    let (status, problem) = told(running.ask("GET /readyz", &[]).await);
    assert!(status == 503 && problem.contains("cannot be read"), "{problem}");
    assert_eq!(running.ask("GET /healthz", &[]).await.status, 200);
    running.end().await;
}

/// A folder without a release file is one of other things, and served as well.
#[tokio::test]
async fn a_folder_of_other_things_is_ready() {
    let folder = tempfile::tempdir().unwrap();
    let repo = repo(folder.path(), Options::default());
    assert_eq!(ask(&repo, "GET /readyz", &[]).await.status, 200);
}

#[tokio::test]
async fn h51_requests_are_counted() {
    let folder = release();
    let running = start(repo(folder.path(), Options::default())).await;
    for line in [
        "GET /harvester-iso/digits",
        "GET /harvester-iso/digits",
        "HEAD /harvester-iso/digits",
        "GET /harvester-iso/nothing",
        "DELETE /harvester-iso/digits",
    ] {
        running.ask(line, &[]).await;
    }
    let page = running.ask("GET /metrics", &[]).await;
    assert!(page.header("content-type").starts_with("application/openmetrics-text"));
    for line in [
        "afloat_repo_requests_total{method=\"GET\",code=\"200\"} 2",
        "afloat_repo_requests_total{method=\"HEAD\",code=\"200\"} 1",
        "afloat_repo_requests_total{method=\"GET\",code=\"404\"} 1",
        "afloat_repo_requests_total{method=\"other\",code=\"405\"} 1",
        // This one.
        "afloat_repo_in_flight 1",
        "afloat_repo_cut_off_total 0",
    ] {
        assert!(
            page.text().lines().any(|found| found == line),
            "{line} not in\n{}",
            page.text()
        );
    }
    let refusals = "there is no such file\n".len() + "this server is only to be read from\n".len();
    let sent = format!("afloat_repo_sent_bytes_total {}", 20 + refusals);
    assert!(page.text().contains(&sent), "{sent} not in\n{}", page.text());
    running.end().await;
}

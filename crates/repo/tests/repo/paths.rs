//! What must not be had, however it is asked for.

use std::os::unix::fs::symlink;

use afloat_repo::Options;
use tempfile::TempDir;

use crate::client::{ask, repo, start};

/// A folder beside a secret, with every kind of way to it.
fn guarded() -> TempDir {
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("secret"), "secret").unwrap();
    let root = outside.path().join("root");
    std::fs::create_dir_all(root.join("folder/.git")).unwrap();
    std::fs::write(root.join("folder/file"), "file").unwrap();
    std::fs::write(root.join("folder/.git/config"), "secret").unwrap();
    std::fs::write(root.join(".env"), "secret").unwrap();
    symlink("folder/file", root.join("within")).unwrap();
    symlink("..", root.join("folder/up")).unwrap();
    symlink("../secret", root.join("out")).unwrap();
    symlink("folder/../../secret", root.join("around")).unwrap();
    symlink(outside.path().join("secret"), root.join("absolute")).unwrap();
    symlink("..", root.join("parent")).unwrap();
    symlink("loop", root.join("loop")).unwrap();
    symlink("nothing", root.join("dangling")).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, root.join("pipe"), rustix::fs::Mode::RUSR).unwrap();
    outside
}

#[tokio::test]
async fn h51_no_path_and_no_link_leads_out_of_the_folder() {
    let outside = guarded();
    let root = outside.path().join("root");
    let running = start(repo(&root, Options::default())).await;
    for (path, status) in [
        ("folder/file", 200),
        // Links within are followed.
        ("within", 200),
        ("folder/up/within", 200),
        ("out", 403),
        ("around", 403),
        ("absolute", 403),
        ("parent/secret", 403),
        ("folder/up/parent/secret", 403),
        ("loop", 403),
        ("dangling", 404),
        ("pipe", 404),
        ("nothing", 404),
        ("folder/file/more", 404),
        ("folder/file/", 404),
        (".env", 404),
        (".env.sha512", 404),
        ("folder/.git/config", 404),
        ("folder/.git/", 404),
        ("%2egit", 404),
        ("../secret", 400),
        ("..", 400),
        ("folder/../../secret", 400),
        ("folder/..", 400),
        ("./folder", 400),
        ("%2e%2e/secret", 400),
        ("%2E%2E%2fsecret", 400),
        ("..%2fsecret", 400),
        ("..%5csecret", 400),
        ("..\\secret", 400),
        ("folder%00", 400),
        ("%zz", 400),
        ("%c0%ae%c0%ae/secret", 400),
        // Decoded once, it is a name that is not there.
        ("%252e%252e/secret", 404),
        ("%252e%252e%252fsecret", 404),
    ] {
        let answer = running.ask(&format!("GET /harvester-iso/{path}"), &[]).await;
        assert_eq!(answer.status, status, "{path}: {}", answer.text());
        assert!(!answer.text().contains("secret"), "{path}");
    }
    for (line, status) in [
        ("GET /secret", 404),
        ("GET /../secret", 400),
        ("GET /harvester-isosecret", 404),
        ("GET //harvester-iso/folder/file", 200),
        ("GET http://elsewhere/harvester-iso/folder/file", 200),
        ("GET http://elsewhere/../secret", 400),
        ("OPTIONS *", 405),
        ("PUT /harvester-iso/folder/file", 405),
        ("POST /harvester-iso/", 405),
        ("DELETE /harvester-iso/folder/file", 405),
    ] {
        let answer = running.ask(line, &[]).await;
        assert_eq!(answer.status, status, "{line}: {}", answer.text());
        assert!(status != 405 || answer.header("allow") == "GET, HEAD", "{line}");
    }
    running.end().await;
}

#[tokio::test]
async fn h51_only_what_can_be_had_is_listed() {
    let outside = tempfile::tempdir().unwrap();
    let root = outside.path().join("root");
    std::fs::create_dir_all(root.join("folder")).unwrap();
    std::fs::write(root.join("file"), "file").unwrap();
    symlink("file", root.join("within")).unwrap();
    symlink("..", root.join("parent")).unwrap();
    symlink("nothing", root.join("dangling")).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, root.join("pipe"), rustix::fs::Mode::RUSR).unwrap();
    let repo = repo(&root, Options::default());
    let listing = ask(&repo, "GET /harvester-iso/", &["Accept: application/json"]).await;
    let listing: serde_json::Value = serde_json::from_slice(&listing.body).unwrap();
    let names: Vec<&str> = listing["entries"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["file", "folder", "within"]);
}

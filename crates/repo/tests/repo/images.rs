//! ISO images: names, files of several parts, links, and images that are none.

use std::path::PathBuf;

use afloat_repo::{Options, Repo, Source};
use tempfile::TempDir;

use crate::client::{ask, repo, start};
use crate::iso::Iso;

const RELEASE: &[u8] = b"release:\n  harvester: v1.8.0\n";

fn written(bytes: &[u8]) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk.img");
    std::fs::write(&path, bytes).unwrap();
    (folder, path)
}

fn opened(iso: &Iso) -> (TempDir, Repo) {
    let (folder, path) = written(&iso.bytes());
    let repo = repo(&path, Options::default());
    (folder, repo)
}

fn numbers(length: usize) -> Vec<u8> {
    (0..length).map(|number| u8::try_from(number % 251).unwrap()).collect()
}

async fn names(repo: &Repo, path: &str) -> Vec<String> {
    let listing = ask(repo, &format!("GET {path}"), &["Accept: application/json"]).await;
    assert_eq!(listing.status, 200, "{path}");
    let listing: serde_json::Value = serde_json::from_slice(&listing.body).unwrap();
    let entries = listing["entries"].as_array().unwrap();
    entries
        .iter()
        .map(|entry| entry["name"].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test]
async fn h21_h51_a_release_is_served_from_its_image_without_a_mount() {
    for (rock_ridge, joliet, words) in [
        (true, false, "Rock Ridge"),
        (false, true, "Joliet"),
        (true, true, "Rock Ridge"),
    ] {
        let iso = Iso::new(rock_ridge, joliet)
            .file("harvester-release.yaml", RELEASE)
            .file("rootfs.squashfs", &numbers(700_000))
            .file("empty", b"")
            .file("bundle/harvester/Images-Lists/image list ä.txt", b"one\ntwo\n");
        let (_folder, path) = written(&iso.bytes());
        let source = Source::open(&path).unwrap();
        assert!(
            source.describe().ends_with(&format!("(4 files, {words} names)")),
            "{}",
            source.describe()
        );
        assert!(source.holds_release());
        let running = start(Repo::new(source, Options::default())).await;
        let release = running.ask("GET /harvester-iso/harvester-release.yaml", &[]).await;
        assert_eq!(release.body, RELEASE);
        assert_eq!(release.header("last-modified"), "Mon, 06 May 2024 07:08:09 GMT");
        let whole = running.ask("GET /harvester-iso/rootfs.squashfs", &[]).await;
        assert_eq!(whole.body, numbers(700_000));
        let part = running
            .ask("GET /harvester-iso/rootfs.squashfs", &["Range: bytes=-5"])
            .await;
        assert_eq!(
            (part.status.as_u16(), part.body.as_slice()),
            (206, &numbers(700_000)[699_995..])
        );
        let odd = running
            .ask(
                "GET /harvester-iso/bundle/harvester/Images-Lists/image%20list%20%C3%A4.txt",
                &[],
            )
            .await;
        assert_eq!(odd.text(), "one\ntwo\n", "{words}");
        assert_eq!(running.ask("GET /harvester-iso/empty", &[]).await.status, 200);
        assert_eq!(
            running
                .ask("GET /harvester-iso/HARVESTER-RELEASE.YAML", &[])
                .await
                .status,
            404
        );
        assert_eq!(running.ask("GET /harvester-iso/bundle/..%2f", &[]).await.status, 400);
        assert_eq!(running.ask("GET /readyz", &[]).await.status, 200);
        running.end().await;
    }
}

/// As Linux shows them; the standard knows capitals alone.
#[tokio::test]
async fn plain_names_are_in_small_letters() {
    let iso = Iso::new(false, false)
        .file("README.TXT", b"read me")
        .file("DOCS/A.TXT", b"a");
    let (_folder, repo) = opened(&iso);
    assert_eq!(names(&repo, "/harvester-iso/").await, ["docs", "readme.txt"]);
    assert_eq!(ask(&repo, "GET /harvester-iso/docs/a.txt", &[]).await.text(), "a");
}

/// One of more than 4 GiB lies in an image in several parts; here they are small.
#[tokio::test]
async fn h51_a_file_in_several_parts_is_one_file() {
    let big = numbers(10 * 2048 + 77);
    let iso = Iso::new(true, false)
        .extents_of(2048)
        .file("big", &big)
        .file("next", b"next");
    let (_folder, repo) = opened(&iso);
    assert_eq!(names(&repo, "/harvester-iso/").await, ["big", "next"]);
    let whole = ask(&repo, "GET /harvester-iso/big", &[]).await;
    assert_eq!(whole.header("content-length"), big.len().to_string());
    assert_eq!(whole.body, big);
    for (first, last) in [(0, 0), (2047, 2048), (2000, 7000), (20_480, 20_556)] {
        let part = ask(
            &repo,
            "GET /harvester-iso/big",
            &[&format!("Range: bytes={first}-{last}")],
        )
        .await;
        assert_eq!(part.body, big[first..=last], "{first}-{last}");
    }
}

#[tokio::test]
async fn h51_links_within_an_image_are_followed_and_others_are_not() {
    let iso = Iso::new(true, false)
        .file("folder/file", b"file")
        .link("within", "folder/file")
        .link("folder/up", "../within")
        .link("folders", "./folder")
        .link("out", "../../etc/passwd")
        .link("absolute", "/etc/passwd")
        .link("dangling", "nothing")
        .link("loop", "loop");
    let (_folder, repo) = opened(&iso);
    for (path, status) in [
        ("within", 200),
        ("folder/up", 200),
        ("folders/file", 200),
        ("folders/up", 200),
        ("folders/", 200),
        ("out", 403),
        ("absolute", 403),
        ("loop", 403),
        ("dangling", 404),
        ("within/more", 404),
    ] {
        let answer = ask(&repo, &format!("GET /harvester-iso/{path}"), &[]).await;
        assert_eq!(answer.status, status, "{path}");
    }
    assert_eq!(names(&repo, "/harvester-iso/").await, ["folder", "folders", "within"]);
}

/// A download that one replica began is finished by another.
#[tokio::test]
async fn h51_copies_of_an_image_have_the_same_marks() {
    let iso = Iso::new(true, true).file("file", b"file").file("other", b"elif");
    let ((_one, first), (_other, second)) = (opened(&iso), opened(&iso));
    let tag = |answer: crate::client::Answer| answer.header("etag").to_owned();
    let etag = tag(ask(&first, "GET /harvester-iso/file", &[]).await);
    assert_eq!(tag(ask(&second, "GET /harvester-iso/file", &[]).await), etag);
    assert_ne!(tag(ask(&second, "GET /harvester-iso/other", &[]).await), etag);
    let longer = Iso::new(true, true)
        .file("file", b"file")
        .file("other", b"elif")
        .file("third", b"3");
    let (_third, third) = opened(&longer);
    assert_ne!(tag(ask(&third, "GET /harvester-iso/file", &[]).await), etag);
}

#[tokio::test]
async fn h51_an_image_that_was_replaced_makes_the_server_not_ready() {
    let iso = Iso::new(true, false).file("harvester-release.yaml", RELEASE);
    let (folder, path) = written(&iso.bytes());
    let repo = repo(&path, Options::default());
    assert_eq!(ask(&repo, "GET /readyz", &[]).await.status, 200);
    let new = folder.path().join("new");
    std::fs::write(&new, iso.bytes()).unwrap();
    std::fs::rename(&new, &path).unwrap();
    let answer = ask(&repo, "GET /readyz", &[]).await;
    assert!(
        answer.status == 503 && answer.text().contains("start the server anew"),
        "{}",
        answer.text()
    );
    std::fs::remove_file(&path).unwrap();
    assert_eq!(ask(&repo, "GET /readyz", &[]).await.status, 503);
    // What was opened is still served: nodes in the middle of a download keep it.
    assert_eq!(
        ask(&repo, "GET /harvester-iso/harvester-release.yaml", &[])
            .await
            .status,
        200
    );
}

#[test]
fn h51_what_is_no_whole_image_is_refused_at_the_start() {
    let whole = Iso::new(true, false)
        .file("harvester-release.yaml", RELEASE)
        .file("rootfs.squashfs", &numbers(100_000))
        .bytes();
    let table: &[(&str, Vec<u8>, &str)] = &[
        ("empty", Vec::new(), "no ISO 9660 image"),
        ("text", b"hello".to_vec(), "no ISO 9660 image"),
        ("zeros", vec![0; 100_000], "no ISO 9660 image"),
        ("cut off", whole[..whole.len() - 4096].to_vec(), "not whole"),
        ("cut off in its directory", whole[..19 * 2048].to_vec(), "damaged"),
    ];
    for (name, bytes, problem) in table {
        let (_folder, path) = written(bytes);
        let error = Source::open(&path)
            .map(|source| source.describe())
            .unwrap_err()
            .to_string();
        assert!(error.contains(problem), "{name}: {error}");
    }
    assert!(Source::open("/dev/null".as_ref()).is_err());
    assert!(Source::open("/nothing/there".as_ref()).is_err());
}

/// Whatever bytes are wrong: an image that opens is served, one that does not is refused, and nothing hangs or breaks.
#[tokio::test]
async fn h51_damaged_images_do_no_harm() {
    let whole = Iso::new(true, true)
        .file("a/b/file", b"file")
        .link("a/link", "b/file")
        .extents_of(2048)
        .file("big", &numbers(5000))
        .bytes();
    let mut opened = 0;
    // Every byte of the descriptors and directories that says something, turned over.
    let telling = (16 * 2048..whole.len()).filter(|at| whole[*at] != 0 && at / 2048 != 18);
    for at in telling.step_by(7) {
        let mut bytes = whole.clone();
        bytes[at] ^= 0xff;
        let (_folder, path) = written(&bytes);
        if let Ok(source) = Source::open(&path) {
            opened += 1;
            let repo = Repo::new(source, Options::default());
            for path in [
                "/harvester-iso/",
                "/harvester-iso/a/",
                "/harvester-iso/a/link",
                "/harvester-iso/big",
            ] {
                ask(&repo, &format!("GET {path}"), &[]).await;
            }
        }
    }
    assert!(opened > 0);
}

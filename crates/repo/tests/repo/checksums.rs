//! Checksums: the same by every way, computed once, anew when the file changes.

use std::fmt::Write as _;
use std::time::Duration;

use afloat_repo::Options;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest as _, Sha512};

use crate::client::{ask, repo};
use crate::files::release;

fn sum(bytes: &[u8]) -> (String, String) {
    let digest = Sha512::digest(bytes);
    let mut text = String::new();
    for byte in &digest {
        write!(text, "{byte:02x}").unwrap();
    }
    (text, STANDARD.encode(digest))
}

#[tokio::test]
async fn h51_a_checksum_is_the_same_by_every_way() {
    let folder = release();
    // Several pieces, and one that is not full.
    let big: Vec<u8> = (0..3_000_001u32)
        .map(|number| number.to_le_bytes()[0] ^ number.to_le_bytes()[1])
        .collect();
    std::fs::write(folder.path().join("bundle/big"), &big).unwrap();
    let repo = repo(folder.path(), Options::default());
    for (path, bytes) in [
        ("digits", b"0123456789".as_slice()),
        ("empty", b""),
        ("bundle/big", &big),
    ] {
        let (text, coded) = sum(bytes);
        let name = path.rsplit('/').next().unwrap();
        let line = format!("{text}  {name}\n");
        let path = format!("/harvester-iso/{path}");
        assert_eq!(
            ask(&repo, &format!("GET {path}?checksum=sha512"), &[]).await.text(),
            line
        );
        assert_eq!(ask(&repo, &format!("GET {path}.sha512"), &[]).await.text(), line);
        for (method, range, status) in [("GET", "bytes=0-3", 206), ("GET", "", 200), ("HEAD", "", 200)] {
            if status == 206 && bytes.is_empty() {
                continue;
            }
            let range = format!("Range: {range}");
            let answer = ask(
                &repo,
                &format!("{method} {path}"),
                &["Want-Repr-Digest: sha-256=9, sha-512=1", &range],
            )
            .await;
            assert_eq!(answer.status, status);
            assert_eq!(
                answer.header("repr-digest"),
                format!("sha-512=:{coded}:"),
                "{method} {path}"
            );
            assert_eq!(answer.header("x-checksum-sha512"), text);
        }
        let unasked = ask(&repo, &format!("GET {path}"), &["Want-Repr-Digest: sha-512=0"]).await;
        assert_eq!(unasked.body, bytes);
        assert!(unasked.header("repr-digest").is_empty() && unasked.header("x-checksum-sha512").is_empty());
    }
    // However often it was asked for.
    let metrics = ask(&repo, "GET /metrics", &[]).await;
    assert!(
        metrics
            .text()
            .contains("afloat_repo_checksums_total{result=\"done\"} 3"),
        "{}",
        metrics.text()
    );
}

#[tokio::test]
async fn h51_a_file_that_changed_has_another_checksum() {
    let folder = release();
    let repo = repo(folder.path(), Options::default());
    let line = "GET /harvester-iso/digits.sha512";
    let before = ask(&repo, line, &[]).await;
    std::fs::write(folder.path().join("digits"), "abc").unwrap();
    let after = ask(&repo, line, &[]).await;
    assert_ne!(before.body, after.body);
    assert_eq!(after.text(), format!("{}  digits\n", sum(b"abc").0));
    // A file of that name is the release's own.
    std::fs::write(folder.path().join("digits.sha512"), "as shipped\n").unwrap();
    assert_eq!(ask(&repo, line, &[]).await.text(), "as shipped\n");
}

#[tokio::test]
async fn checksums_that_cannot_be_had_are_refused_in_words() {
    let folder = release();
    let big = std::fs::File::create(folder.path().join("big")).unwrap();
    big.set_len(64 << 20).unwrap();
    let impatient = Options {
        checksum_timeout: Duration::ZERO,
        ..Options::default()
    };
    let impatient = repo(folder.path(), impatient);
    let late = ask(&impatient, "GET /harvester-iso/big.sha512", &[]).await;
    assert_eq!(
        (late.status.as_u16(), late.header("retry-after")),
        (503, "5"),
        "{}",
        late.text()
    );
    let repo = repo(folder.path(), Options::default());
    for (path, status) in [
        ("digits?checksum=md5", 400),
        ("digits?checksum=", 400),
        ("digits?other=1", 200),
        ("nothing.sha512", 404),
        ("bundle.sha512", 404),
        (".sha512", 404),
        ("nothing?checksum=sha512", 404),
    ] {
        let answer = ask(&repo, &format!("GET /harvester-iso/{path}"), &[]).await;
        assert_eq!(answer.status, status, "{path}");
    }
}

#[tokio::test]
async fn h51_many_who_ask_at_once_are_told_by_one_reading() {
    let folder = release();
    std::fs::write(folder.path().join("big"), vec![7; 8 << 20]).unwrap();
    let repo = repo(folder.path(), Options::default());
    let asked: Vec<_> = (0..20)
        .map(|_| {
            let repo = repo.clone();
            tokio::spawn(async move { ask(&repo, "GET /harvester-iso/big.sha512", &[]).await.body })
        })
        .collect();
    let expected = format!("{}  big\n", sum(&vec![7; 8 << 20]).0);
    for one in asked {
        assert_eq!(one.await.unwrap(), expected.as_bytes());
    }
    let metrics = ask(&repo, "GET /metrics", &[]).await;
    assert!(
        metrics
            .text()
            .contains("afloat_repo_checksums_total{result=\"done\"} 1"),
        "{}",
        metrics.text()
    );
}

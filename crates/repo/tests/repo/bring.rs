//! The client that nodes bring files with: from our own server, and from others that break off, change their mind, or lie.

use std::path::Path;

use afloat_repo::{BringError, Client, Options};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::client::{repo, start};
use crate::files::release;

/// A server that gives these answers, one a connection, and closes each; ends with the heads of what it was asked.
async fn scripted(answers: Vec<String>) -> (String, JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let server = tokio::spawn(async move {
        let mut asked = Vec::new();
        for answer in answers {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await.unwrap());
            }
            asked.push(String::from_utf8(head).unwrap().to_ascii_lowercase());
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
        asked
    });
    (url, server)
}

fn answer(status: &str, headers: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\n{headers}Connection: close\r\n\r\n{body}")
}

fn names(folder: &Path) -> Vec<String> {
    let files = std::fs::read_dir(folder).unwrap();
    files
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .collect()
}

#[tokio::test]
async fn h21_a_file_of_our_server_is_whole_in_its_place_and_compared_with_its_checksum() {
    let (folder, to) = (release(), tempfile::tempdir().unwrap());
    let running = start(repo(folder.path(), Options::default())).await;
    let client = Client::new(&format!("http://{}/", running.address)).unwrap();
    let text = client.text("/harvester-iso/bundle/metadata.yaml").await.unwrap();
    assert_eq!(text, "images: []\n");
    let place = to.path().join("images/digits");
    let mut heard = Vec::new();
    let bytes = client
        .bring("/harvester-iso/digits", &place, |bytes, total| {
            heard.push((bytes, total));
        })
        .await
        .unwrap();
    assert_eq!((bytes, heard.last()), (10, Some(&(10, Some(10)))));
    assert_eq!(std::fs::read(&place).unwrap(), b"0123456789");
    let missing = client
        .bring("/harvester-iso/none", &to.path().join("none"), |_, _| {})
        .await;
    assert!(
        matches!(missing, Err(BringError::Refused { status: 404, .. })),
        "{missing:?}"
    );
    assert_eq!(names(to.path()), ["images"], "nothing is left of what did not come");
    running.end().await;
}

#[tokio::test]
async fn a_download_that_breaks_off_goes_on_where_it_was() {
    let to = tempfile::tempdir().unwrap();
    let (url, server) = scripted(vec![
        answer("200 OK", "Content-Length: 10\r\nETag: \"a\"\r\n", "0123"),
        answer("206 Partial Content", "Content-Length: 6\r\nETag: \"a\"\r\n", "456789"),
    ])
    .await;
    let place = to.path().join("digits");
    Client::new(&url)
        .unwrap()
        .bring("/digits", &place, |_, _| {})
        .await
        .unwrap();
    assert_eq!(std::fs::read(&place).unwrap(), b"0123456789");
    let asked = server.await.unwrap();
    assert!(!asked[0].contains("range:"), "{}", asked[0]);
    assert!(asked[1].contains("range: bytes=4-\r\n"), "{}", asked[1]);
    assert!(asked[1].contains("if-range: \"a\"\r\n"), "{}", asked[1]);
}

#[tokio::test]
async fn a_file_that_became_another_meanwhile_is_brought_anew() {
    let to = tempfile::tempdir().unwrap();
    let (url, server) = scripted(vec![
        answer("200 OK", "Content-Length: 10\r\nETag: \"a\"\r\n", "0123"),
        answer("200 OK", "Content-Length: 3\r\nETag: \"b\"\r\n", "new"),
    ])
    .await;
    let place = to.path().join("digits");
    Client::new(&url)
        .unwrap()
        .bring("/digits", &place, |_, _| {})
        .await
        .unwrap();
    assert_eq!(std::fs::read(&place).unwrap(), b"new");
    server.await.unwrap();
}

#[tokio::test]
async fn a_damaged_file_never_comes_into_its_place() {
    let to = tempfile::tempdir().unwrap();
    let wrong = answer("200 OK", "Content-Length: 3\r\nX-Checksum-Sha512: 00ff\r\n", "bad");
    let (url, server) = scripted(vec![wrong; 5]).await;
    let place = to.path().join("digits");
    let said = Client::new(&url).unwrap().bring("/digits", &place, |_, _| {}).await;
    let said = said.unwrap_err().to_string();
    assert!(
        said.contains("its SHA-512 is") && said.contains("should be 00ff"),
        "{said}"
    );
    assert!(names(to.path()).is_empty());
    assert_eq!(server.await.unwrap().len(), 5, "bounded");
}

#[test]
fn what_is_no_address_of_a_repo_is_refused() {
    for wrong in ["", "repo", "https://repo", "ftp://repo", "http://", "http:// x"] {
        let said = Client::new(wrong).unwrap_err().to_string();
        assert!(said.contains("http://10.0.0.5:8080"), "{wrong}: {said}");
    }
}

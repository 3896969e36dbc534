//! What one client, or many, cannot do to the others.

use std::time::{Duration, Instant};

use afloat_repo::Options;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::client::{Running, SOON, ask, parse, read, repo, send, start};
use crate::files::release;

/// More than all buffers between the two ends hold.
const BIG: usize = 64 << 20;

fn with_big() -> tempfile::TempDir {
    let folder = release();
    std::fs::write(folder.path().join("big"), vec![7; BIG]).unwrap();
    folder
}

/// Asks for the big file and reads no more than its beginning.
async fn dawdle(running: &Running) -> TcpStream {
    let mut stream = running.connect().await;
    send(&mut stream, "GET /harvester-iso/big", &[]).await;
    let mut beginning = [0; 15];
    timeout(SOON, stream.read_exact(&mut beginning)).await.unwrap().unwrap();
    assert_eq!(&beginning, b"HTTP/1.1 200 OK");
    stream
}

#[tokio::test]
async fn h51_beyond_the_limit_of_requests_clients_are_told_to_come_again() {
    let folder = with_big();
    let options = Options {
        max_requests: 2,
        ..Options::default()
    };
    let running = start(repo(folder.path(), options)).await;
    let (one, other) = (dawdle(&running).await, dawdle(&running).await);
    let refused = running.ask("GET /harvester-iso/digits", &[]).await;
    assert_eq!((refused.status.as_u16(), refused.header("retry-after")), (503, "5"));
    assert!(refused.text().contains("too many files"), "{}", refused.text());
    // Probes are answered all the same.
    for page in ["/healthz", "/readyz", "/metrics"] {
        assert_eq!(running.ask(&format!("GET {page}"), &[]).await.status, 200, "{page}");
    }
    drop(one);
    let begun = Instant::now();
    while running.ask("GET /harvester-iso/digits", &[]).await.status != 200 {
        assert!(
            begun.elapsed() < SOON,
            "the place of a client that left is not given on"
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    drop(other);
    running.end().await;
}

#[tokio::test]
async fn h51_beyond_the_limit_of_connections_only_probes_are_answered() {
    let folder = release();
    let options = Options {
        max_connections: 2,
        ..Options::default()
    };
    let running = start(repo(folder.path(), options)).await;
    let mut first = running.connect().await;
    send(&mut first, "GET /healthz", &[]).await;
    let mut some = [0; 12];
    first.read_exact(&mut some).await.unwrap();
    let second = running.connect().await;
    let refused = running.ask("GET /harvester-iso/digits", &[]).await;
    assert_eq!(refused.status, 503);
    assert!(refused.text().contains("too many connections"), "{}", refused.text());
    assert_eq!(running.ask("GET /readyz", &[]).await.status, 200);
    running.until_counted("afloat_repo_connections 3").await;
    drop((first, second));
    let begun = Instant::now();
    while running.ask("GET /harvester-iso/digits", &[]).await.status != 200 {
        assert!(
            begun.elapsed() < SOON,
            "the place of a connection that ended is not given on"
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    running.end().await;
}

#[tokio::test]
async fn h51_who_asks_too_slowly_or_nothing_is_let_go() {
    let folder = release();
    let options = Options {
        header_timeout: Duration::from_millis(200),
        ..Options::default()
    };
    let running = start(repo(folder.path(), options)).await;
    for (name, begin) in [
        ("nothing", ""),
        ("half a request", "GET /harvester-iso/digits HTTP/1.1\r\nHost: x\r\n"),
    ] {
        let mut stream = running.connect().await;
        stream.write_all(begin.as_bytes()).await.unwrap();
        let mut rest = Vec::new();
        let ended = timeout(SOON, stream.read_to_end(&mut rest)).await;
        assert!(ended.is_ok(), "{name} keeps its connection");
        assert!(!String::from_utf8_lossy(&rest).starts_with("HTTP/1.1 200"), "{name}");
    }
    // One that was served and then asks nothing more.
    let mut idle = running.connect().await;
    send(&mut idle, "GET /harvester-iso/digits", &[]).await;
    let answer = timeout(SOON, read(&mut idle))
        .await
        .expect("an idle connection is kept for ever");
    assert_eq!(answer.text(), "0123456789");
    running.end().await;
}

#[tokio::test]
async fn h51_who_takes_nothing_of_an_answer_is_let_go() {
    let folder = with_big();
    let options = Options {
        stall_timeout: Duration::from_millis(300),
        ..Options::default()
    };
    let running = start(repo(folder.path(), options)).await;
    let stream = dawdle(&running).await;
    running.until_counted("afloat_repo_cut_off_total 1").await;
    running.until_counted("afloat_repo_in_flight 1").await;
    drop(stream);
    running.end().await;
}

#[tokio::test]
async fn h51_requests_that_are_too_large_are_refused() {
    let folder = release();
    let running = start(repo(folder.path(), Options::default())).await;
    let long = "a".repeat(5000);
    let answer = running.ask(&format!("GET /{long}"), &[]).await;
    assert_eq!(answer.status, 400);
    let header = format!("X-Long: {}", "a".repeat(20_000));
    for headers in [vec![header.as_str()], vec!["X-One: 1"; 100]] {
        let mut stream = running.connect().await;
        send(&mut stream, "GET /healthz", &headers).await;
        let mut bytes = Vec::new();
        // What it did not read resets the connection, at times before its answer is here.
        let _either = timeout(SOON, stream.read_to_end(&mut bytes)).await.unwrap();
        assert!(
            bytes.is_empty() || parse(&bytes).status == 431,
            "{}",
            String::from_utf8_lossy(&bytes)
        );
    }
    assert_eq!(running.ask("GET /healthz", &[]).await.status, 200);
    running.end().await;
}

#[tokio::test]
async fn h51_what_is_under_way_is_finished_at_the_end() {
    let folder = with_big();
    let running = start(repo(folder.path(), Options::default())).await;
    let mut stream = dawdle(&running).await;
    let address = running.address;
    let ended = running.tell();
    let mut rest = b"HTTP/1.1 200 OK".to_vec();
    timeout(SOON, stream.read_to_end(&mut rest)).await.unwrap().unwrap();
    assert_eq!(parse(&rest).body.len(), BIG);
    timeout(SOON, ended).await.unwrap().unwrap();
    assert!(TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn h51_the_end_does_not_wait_for_ever() {
    let folder = with_big();
    let options = Options {
        grace: Duration::from_millis(100),
        ..Options::default()
    };
    let running = start(repo(folder.path(), options)).await;
    let (stream, idle) = (dawdle(&running).await, running.connect().await);
    let begun = Instant::now();
    timeout(SOON, running.tell()).await.unwrap().unwrap();
    assert!(begun.elapsed() >= Duration::from_millis(100));
    drop((stream, idle));
}

/// Half a file must not pass for a whole one.
#[tokio::test]
async fn h51_a_file_that_shrinks_while_it_is_sent_breaks_the_answer_off() {
    let folder = with_big();
    let running = start(repo(folder.path(), Options::default())).await;
    let mut stream = dawdle(&running).await;
    let file = std::fs::File::options()
        .write(true)
        .open(folder.path().join("big"))
        .unwrap();
    file.set_len(1 << 20).unwrap();
    let mut rest = b"HTTP/1.1 200 OK".to_vec();
    // Closed or reset, by how much was on its way.
    let _either = timeout(SOON, stream.read_to_end(&mut rest)).await.unwrap();
    let answer = parse(&rest);
    assert_eq!(answer.header("content-length"), BIG.to_string());
    assert!(answer.body.len() < BIG);
    running.until_counted("afloat_repo_cut_off_total 1").await;
    running.end().await;
}

#[tokio::test]
async fn a_connection_is_used_again() {
    let folder = release();
    let repo = repo(folder.path(), Options::default());
    assert_eq!(ask(&repo, "GET /harvester-iso/digits", &[]).await.status, 200);
    let running = start(repo).await;
    let mut stream = running.connect().await;
    for last in [false, false, true] {
        let headers: &[&str] = if last { &["Connection: close"] } else { &[] };
        send(&mut stream, "GET /harvester-iso/digits", headers).await;
        let mut bytes = Vec::new();
        while !bytes.ends_with(b"0123456789") {
            assert_ne!(stream.read_buf(&mut bytes).await.unwrap(), 0);
        }
    }
    running.end().await;
}

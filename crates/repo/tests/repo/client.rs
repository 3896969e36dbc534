//! What asks: a request to the service in this process, or a line on a socket.

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use afloat_repo::{Arrival, Options, Repo, Source};
use http::{HeaderMap, Request, StatusCode};
use http_body_util::BodyExt as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Longer than anything here takes, on however busy a machine.
pub const SOON: Duration = Duration::from_mins(1);

/// An answer as a whole.
#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }
}

pub fn repo(path: &Path, options: Options) -> Repo {
    Repo::new(Source::open(path).unwrap(), options)
}

/// `GET /path`, with headers as `Name: value`, answered in this process.
pub async fn ask(repo: &Repo, line: &str, headers: &[&str]) -> Answer {
    let (method, path) = line.split_once(' ').unwrap();
    let mut request = Request::builder().method(method).uri(path);
    for header in headers {
        let (name, value) = header.split_once(": ").unwrap();
        request = request.header(name, value);
    }
    let response = repo.answer(request.body(()).unwrap(), Arrival::default()).await;
    let (head, body) = response.into_parts();
    Answer {
        status: head.status,
        headers: head.headers,
        body: body.collect().await.unwrap().to_bytes().to_vec(),
    }
}

/// A server on a port of this machine.
pub struct Running {
    pub address: SocketAddr,
    end: oneshot::Sender<()>,
    ended: JoinHandle<()>,
}

pub async fn start(repo: Repo) -> Running {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (end, told) = oneshot::channel();
    let ended = tokio::spawn(afloat_repo::serve(repo, listener, async { drop(told.await) }));
    Running { address, end, ended }
}

impl Running {
    pub async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// A request on a connection of its own.
    pub async fn ask(&self, line: &str, headers: &[&str]) -> Answer {
        let mut stream = self.connect().await;
        send(&mut stream, line, &[headers, &["Connection: close"]].concat()).await;
        read(&mut stream).await
    }

    /// Waits until a line is among the metrics: what a connection leaves is counted after its client saw it close.
    pub async fn until_counted(&self, line: &str) {
        let begun = Instant::now();
        loop {
            let metrics = self.ask("GET /metrics", &[]).await;
            if metrics.text().lines().any(|found| found == line) {
                return;
            }
            assert!(begun.elapsed() < SOON, "{line} not in\n{}", metrics.text());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Tells it to end, without waiting.
    pub fn tell(self) -> JoinHandle<()> {
        self.end.send(()).unwrap();
        self.ended
    }

    pub async fn end(self) {
        self.tell().await.unwrap();
    }
}

pub async fn send(stream: &mut TcpStream, line: &str, headers: &[&str]) {
    let mut text = format!("{line} HTTP/1.1\r\nHost: repo\r\n");
    for header in headers {
        text.push_str(header);
        text.push_str("\r\n");
    }
    stream.write_all(format!("{text}\r\n").as_bytes()).await.unwrap();
}

/// All that comes until the other end closes.
pub async fn read(stream: &mut TcpStream) -> Answer {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).await.unwrap();
    parse(&bytes)
}

pub fn parse(bytes: &[u8]) -> Answer {
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
    let head = std::str::from_utf8(&bytes[..end]).unwrap();
    let mut lines = head.lines();
    let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    let mut headers = HeaderMap::new();
    for line in lines {
        let (name, value) = line.split_once(": ").unwrap();
        let name: http::HeaderName = name.parse().unwrap();
        headers.append(name, value.parse().unwrap());
    }
    Answer {
        status,
        headers,
        body: bytes[end + 4..].to_vec(),
    }
}

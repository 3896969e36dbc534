//! A small blocking HTTP/1.1 client with TLS and kept-alive connections: enough to ask a kube-apiserver on loopback anything, malformed
//! requests included, and to follow a watch with a bounded wait. No proxies, redirects or compression.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    sync::Arc,
    time::{Duration, Instant},
};

use rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};

use crate::Error;

/// Longest wait for any one answer.
const PATIENCE: Duration = Duration::from_secs(20);

/// A request as it goes over the wire; the path carries the query.
#[derive(Debug, Clone, Default)]
pub struct Request {
    pub method: String,
    pub path: String,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

/// An answer, its body whole.
#[derive(Debug, Clone)]
pub struct Response {
    pub status: u16,
    /// Names in lower case, in the order received.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Response {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
    }
}

/// One connection at a time, opened when needed and kept for the next request.
#[derive(Debug)]
pub struct Client {
    address: SocketAddr,
    tls: Option<Arc<ClientConfig>>,
    token: Option<String>,
    connection: Option<Connection>,
}

impl Client {
    /// TLS, trusting the given authority only, with a bearer token.
    pub fn with_tls(address: SocketAddr, authority_pem: &str, token: &str) -> Result<Self, Error> {
        let failed = |message: String| Error::Http {
            address: address.to_string(),
            message,
        };
        let authority =
            CertificateDer::from_pem_slice(authority_pem.as_bytes()).map_err(|error| failed(error.to_string()))?;
        let mut roots = RootCertStore::empty();
        roots.add(authority).map_err(|error| failed(error.to_string()))?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| failed(error.to_string()))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self {
            address,
            tls: Some(Arc::new(config)),
            token: Some(token.to_owned()),
            connection: None,
        })
    }

    /// No TLS, no token: etcd's own HTTP surface.
    pub fn plain(address: SocketAddr) -> Self {
        Self {
            address,
            tls: None,
            token: None,
            connection: None,
        }
    }

    /// A client of the same server with a connection of its own.
    #[must_use]
    pub fn another(&self) -> Self {
        Self {
            address: self.address,
            tls: self.tls.clone(),
            token: self.token.clone(),
            connection: None,
        }
    }

    /// Sends and waits for the whole answer.
    pub fn send(&mut self, request: &Request) -> Result<Response, Error> {
        let address = self.address;
        self.attempt(request).map_err(|error| Error::Http {
            address: address.to_string(),
            message: format!("{} {}: {error}", request.method, request.path),
        })
    }

    /// Sends on a connection of its own, and gives back the answer's head with a body that is still coming.
    pub fn open(&self, request: &Request) -> Result<Stream, Error> {
        let failed = |error: io::Error| Error::Http {
            address: self.address.to_string(),
            message: format!("{} {}: {error}", request.method, request.path),
        };
        let mut connection = Connection::open(self.address, self.tls.as_ref()).map_err(failed)?;
        connection.write(&self.encode(request)).map_err(failed)?;
        let head = connection.read_head(Instant::now() + PATIENCE).map_err(failed)?;
        let length = head.content_length();
        Ok(Stream {
            status: head.status,
            headers: head.headers,
            length,
            connection,
            chunks: Dechunker::default(),
        })
    }

    fn attempt(&mut self, request: &Request) -> io::Result<Response> {
        let bytes = self.encode(request);
        if let Some(mut kept) = self.connection.take() {
            // The server may have closed it while it was idle: then, and only when nothing was answered, a new one is tried.
            match kept.exchange(&bytes, &request.method) {
                Ok((response, reusable)) => {
                    self.connection = reusable.then_some(kept);
                    return Ok(response);
                }
                Err(error) if kept.buffer.is_empty() && closed_by_peer(&error) => {}
                Err(error) => return Err(error),
            }
        }
        let mut fresh = Connection::open(self.address, self.tls.as_ref())?;
        let (response, reusable) = fresh.exchange(&bytes, &request.method)?;
        self.connection = reusable.then_some(fresh);
        Ok(response)
    }

    fn encode(&self, request: &Request) -> Vec<u8> {
        let mut head = format!(
            "{} {} HTTP/1.1\r\nhost: {}\r\n",
            request.method, request.path, self.address
        );
        if let Some(token) = &self.token {
            head.push_str("authorization: Bearer ");
            head.push_str(token);
            head.push_str("\r\n");
        }
        for (name, value) in &request.headers {
            head.push_str(name);
            head.push_str(": ");
            head.push_str(value);
            head.push_str("\r\n");
        }
        if !request.body.is_empty() || matches!(request.method.as_str(), "POST" | "PUT" | "PATCH") {
            head.push_str("content-length: ");
            head.push_str(&request.body.len().to_string());
            head.push_str("\r\n");
        }
        head.push_str("\r\n");
        let mut bytes = head.into_bytes();
        bytes.extend_from_slice(&request.body);
        bytes
    }
}

/// A body that is still coming, such as a watch.
#[derive(Debug)]
pub struct Stream {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    length: Option<usize>,
    connection: Connection,
    chunks: Dechunker,
}

impl Stream {
    /// The next whole line, or none when the deadline passes or the body ends first.
    pub fn line(&mut self, deadline: Instant) -> Option<Vec<u8>> {
        loop {
            if self.length.is_none() {
                self.chunks.feed(&mut self.connection.buffer);
                if let Some(end) = self.chunks.decoded.iter().position(|byte| *byte == b'\n') {
                    return Some(self.chunks.decoded.drain(..=end).collect());
                }
                if self.chunks.finished {
                    return None;
                }
            } else if self.length.is_some_and(|length| self.connection.buffer.len() >= length) {
                let whole = std::mem::take(&mut self.connection.buffer);
                self.length = Some(usize::MAX);
                return Some(whole);
            }
            if !matches!(self.connection.fill(deadline), Ok(count) if count > 0) {
                return None;
            }
        }
    }

    /// What is left of the body when it comes to its end before the deadline.
    pub fn rest(&mut self, deadline: Instant) -> Vec<u8> {
        let mut all = Vec::new();
        while let Some(line) = self.line(deadline) {
            all.extend_from_slice(&line);
        }
        all.append(&mut self.chunks.decoded);
        all
    }
}

#[derive(Debug)]
enum Transport {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

#[derive(Debug)]
struct Connection {
    transport: Transport,
    /// Received and not yet used.
    buffer: Vec<u8>,
}

struct Head {
    status: u16,
    headers: Vec<(String, String)>,
}

impl Head {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
    }

    fn content_length(&self) -> Option<usize> {
        self.header("content-length").and_then(|value| value.parse().ok())
    }
}

impl Connection {
    fn open(address: SocketAddr, tls: Option<&Arc<ClientConfig>>) -> io::Result<Self> {
        let socket = TcpStream::connect_timeout(&address, Duration::from_secs(5))?;
        socket.set_nodelay(true)?;
        let transport = match tls {
            None => Transport::Plain(socket),
            Some(config) => {
                let name = ServerName::IpAddress(address.ip().into());
                let session = ClientConnection::new(Arc::clone(config), name).map_err(io::Error::other)?;
                Transport::Tls(Box::new(StreamOwned::new(session, socket)))
            }
        };
        Ok(Self {
            transport,
            buffer: Vec::new(),
        })
    }

    fn socket(&self) -> &TcpStream {
        match &self.transport {
            Transport::Plain(socket) => socket,
            Transport::Tls(tls) => &tls.sock,
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.socket().set_read_timeout(Some(PATIENCE))?;
        match &mut self.transport {
            Transport::Plain(socket) => socket.write_all(bytes),
            Transport::Tls(tls) => tls.write_all(bytes).and_then(|()| tls.flush()),
        }
    }

    /// Reads what is there, waiting until the deadline; 0 when the peer has ended.
    fn fill(&mut self, deadline: Instant) -> io::Result<usize> {
        let left = deadline
            .saturating_duration_since(Instant::now())
            .max(Duration::from_millis(1));
        self.socket().set_read_timeout(Some(left))?;
        let mut chunk = [0_u8; 16 * 1024];
        let count = match &mut self.transport {
            Transport::Plain(socket) => socket.read(&mut chunk)?,
            Transport::Tls(tls) => tls.read(&mut chunk)?,
        };
        self.buffer.extend_from_slice(&chunk[..count]);
        Ok(count)
    }

    fn exchange(&mut self, bytes: &[u8], method: &str) -> io::Result<(Response, bool)> {
        // A server that refuses a large body answers and closes before it has read it all: the answer is what counts.
        let written = self.write(bytes);
        let deadline = Instant::now() + PATIENCE;
        let head = match (self.read_head(deadline), written) {
            (Ok(head), _) => head,
            (Err(_), Err(error)) | (Err(error), Ok(())) => return Err(error),
        };
        let chunked = head
            .header("transfer-encoding")
            .is_some_and(|value| value.contains("chunked"));
        let closing = head
            .header("connection")
            .is_some_and(|value| value.eq_ignore_ascii_case("close"));
        let bodiless = method == "HEAD" || matches!(head.status, 204 | 304);
        let body = if bodiless {
            Vec::new()
        } else if chunked {
            self.read_chunks(deadline)?
        } else if let Some(length) = head.content_length() {
            self.read_exactly(length, deadline)?
        } else {
            while self.fill(deadline)? > 0 {}
            std::mem::take(&mut self.buffer)
        };
        Ok((
            Response {
                status: head.status,
                headers: head.headers,
                body,
            },
            !closing,
        ))
    }

    fn read_head(&mut self, deadline: Instant) -> io::Result<Head> {
        loop {
            if let Some(end) = self.buffer.windows(4).position(|window| window == b"\r\n\r\n") {
                let head: Vec<u8> = self.buffer.drain(..end + 4).collect();
                return parse_head(&String::from_utf8_lossy(&head));
            }
            self.fill_or_fail(deadline)?;
        }
    }

    fn read_exactly(&mut self, length: usize, deadline: Instant) -> io::Result<Vec<u8>> {
        while self.buffer.len() < length {
            self.fill_or_fail(deadline)?;
        }
        Ok(self.buffer.drain(..length).collect())
    }

    fn read_chunks(&mut self, deadline: Instant) -> io::Result<Vec<u8>> {
        let mut chunks = Dechunker::default();
        loop {
            chunks.feed(&mut self.buffer);
            if chunks.finished {
                return Ok(chunks.decoded);
            }
            self.fill_or_fail(deadline)?;
        }
    }

    fn fill_or_fail(&mut self, deadline: Instant) -> io::Result<()> {
        match self.fill(deadline)? {
            0 => Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the server closed the connection",
            )),
            _ => Ok(()),
        }
    }
}

/// Takes `Transfer-Encoding: chunked` apart, as far as bytes are there.
#[derive(Debug, Default)]
struct Dechunker {
    decoded: Vec<u8>,
    finished: bool,
}

impl Dechunker {
    fn feed(&mut self, raw: &mut Vec<u8>) {
        while !self.finished {
            let Some(line_end) = raw.windows(2).position(|window| window == b"\r\n") else {
                return;
            };
            let size = String::from_utf8_lossy(&raw[..line_end]);
            let Ok(size) = usize::from_str_radix(size.split(';').next().unwrap_or_default().trim(), 16) else {
                // Not a chunk: nothing sensible can follow.
                self.finished = true;
                return;
            };
            let start = line_end + 2;
            if raw.len() < start + size + 2 {
                return;
            }
            self.decoded.extend_from_slice(&raw[start..start + size]);
            raw.drain(..start + size + 2);
            self.finished = size == 0;
        }
    }
}

fn parse_head(text: &str) -> io::Result<Head> {
    let mut lines = text.split("\r\n");
    let status = lines
        .next()
        .and_then(|line| line.split(' ').nth(1))
        .and_then(|code| code.parse().ok());
    let status = status.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "not an HTTP answer"))?;
    let headers = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.trim().to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    Ok(Head { status, headers })
}

fn closed_by_peer(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    matches!(
        error.kind(),
        BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_joined_across_reads() {
        let mut chunks = Dechunker::default();
        let mut raw = b"5\r\nhel".to_vec();
        chunks.feed(&mut raw);
        assert!(chunks.decoded.is_empty() && !chunks.finished);
        raw.extend_from_slice(b"lo\r\n1;x=y\r\n!\r\n0\r\n\r\n");
        chunks.feed(&mut raw);
        assert_eq!(
            (chunks.decoded.as_slice(), chunks.finished, raw.len()),
            (b"hello!".as_slice(), true, 0)
        );
    }

    #[test]
    fn a_head_gives_status_and_headers() {
        let head =
            parse_head("HTTP/1.1 429 Too Many Requests\r\nRetry-After: 10\r\nContent-Length: 3\r\n\r\n").unwrap();
        assert_eq!(
            (head.status, head.header("retry-after"), head.content_length()),
            (429, Some("10"), Some(3))
        );
        assert!(parse_head("nonsense").is_err());
    }
}

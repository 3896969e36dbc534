//! The little of HTTP that asking a part for its health takes: one request, one answer, bounded in time and size, with TLS where
//! there is some. No client of an API server: whoever asks says which address, which path, and whom to trust.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, Error as TlsError, RootCertStore, SignatureScheme,
    StreamOwned,
};

/// How long an answer may take: a health check that takes longer has failed.
pub const LIMIT: Duration = Duration::from_secs(3);
/// The longest answer that is read.
const MOST_BYTES: usize = 4 << 20;

/// Whom to trust, and as whom to speak.
#[derive(Clone, Debug)]
pub enum Trust {
    /// No TLS at all.
    Plain,
    Tls(Arc<ClientConfig>),
}

/// A question.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Name or address.
    pub host: &'a str,
    pub port: u16,
    pub path: &'a str,
    /// Sent by POST; without one it is a GET.
    pub body: Option<&'a str>,
}

/// An answer.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Answered {
    pub status: u16,
    pub body: Vec<u8>,
}

impl Answered {
    pub fn is_ok(&self) -> bool {
        self.status == 200
    }
}

fn wrong(message: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message.into())
}

/// Asks and hears.
pub fn ask(request: &Request<'_>, trust: &Trust) -> io::Result<Answered> {
    let until = Instant::now() + LIMIT;
    let socket = connect(request.host, request.port)?;
    let raw = match trust {
        Trust::Plain => converse(socket, request, until)?,
        Trust::Tls(config) => {
            let name = ServerName::try_from(request.host.to_owned()).map_err(|error| wrong(error.to_string()))?;
            let connection =
                ClientConnection::new(Arc::clone(config), name).map_err(|error| wrong(error.to_string()))?;
            converse(StreamOwned::new(connection, socket), request, until)?
        }
    };
    parse(&raw)
}

/// Whether nobody listens there. One that is slow to answer may still do so.
pub fn is_refused(host: &str, port: u16) -> bool {
    connect(host, port).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

fn connect(host: &str, port: u16) -> io::Result<TcpStream> {
    let mut last = wrong(format!("{host} has no address"));
    for address in (host, port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, LIMIT) {
            Ok(socket) => {
                socket.set_read_timeout(Some(LIMIT))?;
                socket.set_write_timeout(Some(LIMIT))?;
                return Ok(socket);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn converse(mut stream: impl Read + Write, request: &Request<'_>, until: Instant) -> io::Result<Vec<u8>> {
    let verb = if request.body.is_some() { "POST" } else { "GET" };
    let body = request.body.unwrap_or_default();
    let (host, port, path, length) = (request.host, request.port, request.path, body.len());
    let host = if host.contains(':') {
        format!("[{host}]")
    } else {
        host.to_owned()
    };
    // At once: a server that answers before it has read everything would break the rest of it off.
    let asked = format!(
        "{verb} {path} HTTP/1.1\r\nHost: {host}:{port}\r\nAccept: application/json, */*\r\nUser-Agent: afloat\r\n\
         Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    );
    stream.write_all(asked.as_bytes())?;
    stream.flush()?;
    let mut heard = Vec::new();
    let mut buffer = [0_u8; 16 * 1024];
    while heard.len() < MOST_BYTES && Instant::now() < until {
        match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => heard.extend_from_slice(buffer.get(..count).unwrap_or_default()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // Not every server says goodbye; whether the answer is whole is seen from itself.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => break,
            Err(error) => return Err(error),
        }
    }
    Ok(heard)
}

fn parse(raw: &[u8]) -> io::Result<Answered> {
    let end = raw.windows(4).position(|bytes| bytes == b"\r\n\r\n");
    let end = end.ok_or_else(|| wrong("the answer is not whole"))?;
    let (head, body) = raw.split_at(end + 4);
    let head = String::from_utf8_lossy(head).to_ascii_lowercase();
    let status = head.split_whitespace().nth(1).and_then(|word| word.parse().ok());
    let status = status.ok_or_else(|| wrong("the answer has no status"))?;
    let field = |name: &str| head.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let body = if field("transfer-encoding:") == Some("chunked") {
        unchunk(body)?
    } else {
        let length = field("content-length:").and_then(|length| length.parse::<usize>().ok());
        let whole = body.get(..length.unwrap_or(body.len()));
        whole.ok_or_else(|| wrong("the answer is not whole"))?.to_vec()
    };
    Ok(Answered { status, body })
}

fn unchunk(mut rest: &[u8]) -> io::Result<Vec<u8>> {
    let broken = || wrong("the answer is not whole");
    let mut body = Vec::new();
    loop {
        let line = rest.windows(2).position(|bytes| bytes == b"\r\n").ok_or_else(broken)?;
        let size = String::from_utf8_lossy(rest.get(..line).unwrap_or_default());
        let size = size.split(';').next().unwrap_or_default().trim().to_owned();
        let size = usize::from_str_radix(&size, 16).map_err(|_| broken())?;
        if size == 0 {
            return Ok(body);
        }
        let start = line + 2;
        let end = start.checked_add(size).ok_or_else(broken)?;
        body.extend_from_slice(rest.get(start..end).ok_or_else(broken)?);
        rest = rest.get(end + 2..).ok_or_else(broken)?;
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

fn tls(error: &TlsError) -> io::Error {
    wrong(error.to_string())
}

/// Trusts whoever answers: for health checks of parts on this very machine, most of which sign their certificates themselves. The
/// kubelet's own probes do the same, and nothing is told to them.
pub fn anybody() -> io::Result<Trust> {
    let provider = provider();
    let config = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| tls(&error))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anybody(provider)))
        .with_no_client_auth();
    Ok(Trust::Tls(Arc::new(config)))
}

/// Trusts an authority, and speaks with a certificate of one's own; all of them as PEM.
pub fn known(authority: &[u8], certificate: &[u8], key: &[u8]) -> io::Result<Trust> {
    let pem = |error: rustls::pki_types::pem::Error| wrong(error.to_string());
    let chain = |text: &[u8]| CertificateDer::pem_slice_iter(text).collect::<Result<Vec<_>, _>>();
    let mut roots = RootCertStore::empty();
    for root in chain(authority).map_err(pem)? {
        roots.add(root).map_err(|error| tls(&error))?;
    }
    let key = PrivateKeyDer::from_pem_slice(key).map_err(pem)?;
    let config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| tls(&error))?
        .with_root_certificates(roots)
        .with_client_auth_cert(chain(certificate).map_err(pem)?, key)
        .map_err(|error| tls(&error))?;
    Ok(Trust::Tls(Arc::new(config)))
}

#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, TlsError> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        verify_tls12_signature(message, cert, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        verify_tls13_signature(message, cert, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::thread;

    /// A server that hears one request and says this.
    fn serve(answer: &'static str) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        thread::spawn(move || {
            let (mut socket, _) = listener.accept().unwrap();
            let mut buffer = [0; 4096];
            let _ = socket.read(&mut buffer).unwrap();
            socket.write_all(answer.as_bytes()).unwrap();
        });
        port
    }

    fn body(answer: &'static str) -> io::Result<(u16, String)> {
        let request = Request {
            host: "127.0.0.1",
            port: serve(answer),
            path: "/readyz",
            body: None,
        };
        let answered = ask(&request, &Trust::Plain)?;
        Ok((answered.status, String::from_utf8(answered.body).unwrap()))
    }

    #[test]
    fn a_port_without_a_listener_refuses() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(!is_refused("127.0.0.1", port));
        drop(listener);
        assert!(is_refused("127.0.0.1", port));
    }

    #[test]
    fn answers_are_read_whole_or_refused() {
        let length = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
        assert_eq!(body(length).unwrap(), (200, "ok".to_owned()));
        let chunked = "HTTP/1.1 500 No\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nnot\r\n4;x=y\r\n yet\r\n0\r\n\r\n";
        assert_eq!(body(chunked).unwrap(), (500, "not yet".to_owned()));
        for torn in [
            "",
            "HTTP/1.1 200 OK\r\nContent-Length: 2",
            "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nok",
        ] {
            assert!(body(torn).is_err(), "{torn:?}");
        }
    }
}

//! HTTP as registries want it: streamed bodies, redirects to where blobs really are, and a token fetched when asked for. Every
//! wait has an end. What goes to another host than the registry goes without our credentials.

use std::fmt::Write as _;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures::TryStreamExt as _;
use http::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, LOCATION, USER_AGENT, WWW_AUTHENTICATE};
use http::{Method, Request, Uri};
use http_body_util::{BodyExt as _, Empty, Full, StreamBody, combinators::BoxBody};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustls::RootCertStore;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use serde::Deserialize;
use tokio_util::io::ReaderStream;

use super::Access;
use super::auth::{Challenge, Credentials};
use crate::reference::Reference;
use crate::{Error, Result};

const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// How long an answer may take, beside the time its request takes to send.
const ANSWER_LIMIT: Duration = Duration::from_mins(2);
/// How long nothing may come in the middle of an answer.
const SILENCE_LIMIT: Duration = Duration::from_mins(1);
/// A connection slower than this is taken for dead.
const SLOWEST_BYTES_PER_SECOND: u64 = 50 << 10;
const MOST_REDIRECTS: usize = 5;
/// Documents and error texts; anything longer is none.
const LONGEST_DOCUMENT: usize = 64 << 20;

type Problem = Box<dyn std::error::Error + Send + Sync>;
type Body = BoxBody<Bytes, Problem>;

/// What is sent along.
pub enum Load<'a> {
    Nothing,
    Bytes(&'a [u8]),
    /// A file, read as it is sent; who hears of each piece.
    File(&'a Path, u64, Arc<dyn Fn(u64) + Send + Sync>),
}

/// One request.
pub struct Ask<'a> {
    pub method: Method,
    /// A path at the registry, or a whole address that the registry gave.
    pub place: String,
    pub accept: &'a [&'a str],
    pub content_type: &'a str,
    pub load: Load<'a>,
}

impl<'a> Ask<'a> {
    pub fn new(method: Method, place: impl Into<String>) -> Self {
        Self {
            method,
            place: place.into(),
            accept: &[],
            content_type: "application/octet-stream",
            load: Load::Nothing,
        }
    }

    pub fn accept(mut self, types: &'a [&'a str]) -> Self {
        self.accept = types;
        self
    }

    pub fn load(mut self, content_type: &'a str, load: Load<'a>) -> Self {
        self.content_type = content_type;
        self.load = load;
        self
    }
}

/// What came back.
pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
}

#[derive(Deserialize)]
struct Complaints {
    #[serde(default)]
    errors: Vec<Complaint>,
}

#[derive(Deserialize)]
struct Complaint {
    #[serde(default)]
    code: String,
    #[serde(default)]
    message: String,
}

impl Answer {
    pub fn ok(&self) -> bool {
        (200..300).contains(&self.status)
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// What a registry says went wrong, or nothing.
    pub fn said(&self) -> String {
        let read: Option<Complaints> = serde_json::from_slice(&self.body).ok();
        let said = read.and_then(|all| all.errors.into_iter().next());
        said.map_or_else(String::new, |said| {
            let words = if said.message.is_empty() {
                said.code
            } else {
                said.message
            };
            format!(": {}", words.chars().take(300).collect::<String>())
        })
    }
}

/// A way to one registry.
pub struct Client {
    http: hyper_util::client::legacy::Client<HttpsConnector<HttpConnector>, Body>,
    base: String,
    registry: String,
    credentials: Option<Credentials>,
    /// What the registry accepted last.
    proof: Mutex<Option<String>>,
}

/// An answer whose body is still to come.
pub type Stream = http::Response<hyper::body::Incoming>;

impl Client {
    pub fn new(reference: &Reference, access: &Access, credentials: Option<Credentials>) -> Result<Self> {
        let mut connector = HttpConnector::new();
        connector.enforce_http(false);
        connector.set_connect_timeout(Some(CONNECT_LIMIT));
        let tls = tls(access).map_err(|fact| Error::Unreachable {
            registry: reference.registry.clone(),
            fact,
        })?;
        let connector = hyper_rustls::HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_or_http()
            .enable_http1()
            .wrap_connector(connector);
        let scheme = if access.plain_http { "http" } else { "https" };
        Ok(Self {
            http: hyper_util::client::legacy::Client::builder(TokioExecutor::new()).build(connector),
            base: format!("{scheme}://{}", reference.registry),
            registry: reference.registry.clone(),
            credentials,
            proof: Mutex::new(None),
        })
    }

    pub fn base(&self) -> &str {
        &self.base
    }

    /// Asks, and reads the whole answer.
    pub async fn ask(&self, ask: Ask<'_>) -> Result<Answer> {
        let answer = self.begin(ask).await?;
        self.whole(answer).await
    }

    /// Asks; the body of the answer is the caller's to read. A registry that wants to know who we are is told, once.
    pub async fn begin(&self, ask: Ask<'_>) -> Result<Stream> {
        let mut place = self.whole_address(&ask.place);
        let mut told = false;
        for _ in 0..=MOST_REDIRECTS {
            let answer = self.send(&ask, &place).await?;
            let status = answer.status().as_u16();
            let header = |name| {
                answer
                    .headers()
                    .get(name)
                    .and_then(|value| value.to_str().ok())
                    .map(str::to_owned)
            };
            if status == 401
                && !told
                && self.is_ours(&place)
                && let Some(challenge) = header(WWW_AUTHENTICATE).as_deref().and_then(Challenge::parse)
            {
                told = true;
                let proof = self.prove(&challenge).await?;
                *self.proof.lock().unwrap_or_else(PoisonError::into_inner) = proof;
                continue;
            }
            let moved =
                matches!(status, 301 | 302 | 303 | 307 | 308) && matches!(ask.method, Method::GET | Method::HEAD);
            match header(LOCATION).filter(|_| moved) {
                Some(next) => place = self.resolve(&place, &next),
                None => return Ok(answer),
            }
        }
        Err(self.unreachable("it sends us from one address to the next without end"))
    }

    async fn send(&self, ask: &Ask<'_>, place: &str) -> Result<Stream> {
        let (body, length): (Body, u64) = match &ask.load {
            Load::Nothing => (Empty::new().map_err(Problem::from).boxed(), 0),
            Load::Bytes(bytes) => (
                Full::new(Bytes::copy_from_slice(bytes)).map_err(Problem::from).boxed(),
                bytes.len() as u64,
            ),
            Load::File(path, length, heard) => {
                let file = tokio::fs::File::open(path).await.map_err(Error::file("read", path))?;
                let heard = Arc::clone(heard);
                let pieces = ReaderStream::with_capacity(file, 256 << 10)
                    .map_err(Problem::from)
                    .map_ok(move |piece| {
                        heard(piece.len() as u64);
                        http_body::Frame::data(piece)
                    });
                (StreamBody::new(pieces).boxed(), *length)
            }
        };
        let mut request = Request::builder()
            .method(ask.method.clone())
            .uri(place)
            .header(USER_AGENT, "afloat");
        if !matches!(ask.load, Load::Nothing) {
            request = request.header(CONTENT_TYPE, ask.content_type);
        }
        if matches!(ask.method, Method::POST | Method::PUT) {
            request = request.header(CONTENT_LENGTH, length);
        }
        for accepted in ask.accept {
            request = request.header(http::header::ACCEPT, *accepted);
        }
        let proof = self.proof.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(proof) = proof.filter(|_| self.is_ours(place)) {
            request = request.header(AUTHORIZATION, proof);
        }
        let request = request
            .body(body)
            .map_err(|error| self.unreachable(&error.to_string()))?;
        let limit = ANSWER_LIMIT + Duration::from_secs(length / SLOWEST_BYTES_PER_SECOND);
        match tokio::time::timeout(limit, self.http.request(request)).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(self.unreachable(&root(&error))),
            Err(_) => Err(self.unreachable(&format!("nothing came within {}s", limit.as_secs()))),
        }
    }

    /// Reads the rest of an answer.
    async fn whole(&self, answer: Stream) -> Result<Answer> {
        let (parts, mut body) = answer.into_parts();
        let mut bytes = Vec::new();
        while let Some(piece) = self.piece(&mut body).await? {
            bytes.extend_from_slice(&piece);
            if bytes.len() > LONGEST_DOCUMENT {
                return Err(self.unreachable("its answer does not end"));
            }
        }
        Ok(Answer {
            status: parts.status.as_u16(),
            headers: parts.headers,
            body: bytes,
        })
    }

    /// The next piece of a body, or nothing at its end.
    pub async fn piece(&self, body: &mut hyper::body::Incoming) -> Result<Option<Bytes>> {
        loop {
            let frame = match tokio::time::timeout(SILENCE_LIMIT, Pin::new(&mut *body).frame()).await {
                Err(_) => return Err(self.unreachable(&format!("nothing came for {}s", SILENCE_LIMIT.as_secs()))),
                Ok(None) => return Ok(None),
                Ok(Some(Err(error))) => return Err(self.unreachable(&root(&error))),
                Ok(Some(Ok(frame))) => frame,
            };
            // Trailers are nothing to us.
            if let Ok(data) = frame.into_data() {
                return Ok(Some(data));
            }
        }
    }

    /// What to say to a registry that asks who we are.
    async fn prove(&self, challenge: &Challenge) -> Result<Option<String>> {
        let (realm, service, scope) = match challenge {
            Challenge::Basic => return Ok(self.credentials.as_ref().map(Credentials::basic)),
            Challenge::Bearer { realm, service, scope } => (realm, service, scope),
        };
        let mut place = realm.clone();
        for (name, value) in [("service", service), ("scope", scope)] {
            if let Some(value) = value {
                let mark = if place.contains('?') { '&' } else { '?' };
                place = format!("{place}{mark}{name}={}", encoded(value));
            }
        }
        let mut request = Request::builder()
            .method(Method::GET)
            .uri(&place)
            .header(USER_AGENT, "afloat");
        // A password goes where TLS protects it as well as on the way to the registry itself.
        let safe = place.starts_with("https://") || self.base.starts_with("http://");
        if let Some(credentials) = self.credentials.as_ref().filter(|_| safe) {
            request = request.header(AUTHORIZATION, credentials.basic());
        }
        let body: Body = Empty::new().map_err(Problem::from).boxed();
        let request = request
            .body(body)
            .map_err(|error| self.unreachable(&error.to_string()))?;
        let answer = match tokio::time::timeout(ANSWER_LIMIT, self.http.request(request)).await {
            Ok(Ok(answer)) => self.whole(answer).await?,
            Ok(Err(error)) => return Err(self.unreachable(&root(&error))),
            Err(_) => return Err(self.unreachable("no token came in time")),
        };
        if !answer.ok() {
            return Err(Error::Registry {
                registry: self.registry.clone(),
                action: "let us in".to_owned(),
                status: answer.status,
                fact: answer.said(),
            });
        }
        let token: Token = serde_json::from_slice(&answer.body).unwrap_or_default();
        let token = token.token.or(token.access_token);
        Ok(token.map(|token| format!("Bearer {token}")))
    }

    fn whole_address(&self, place: &str) -> String {
        if place.starts_with('/') {
            format!("{}{place}", self.base)
        } else {
            place.to_owned()
        }
    }

    /// Where a `Location` leads, seen from an address.
    pub fn resolve(&self, from: &str, location: &str) -> String {
        if location.contains("://") {
            return location.to_owned();
        }
        let base = from
            .parse::<Uri>()
            .ok()
            .and_then(|uri| Some(format!("{}://{}", uri.scheme_str()?, uri.authority()?)));
        let base = base.unwrap_or_else(|| self.base.clone());
        format!("{base}/{}", location.trim_start_matches('/'))
    }

    /// Whether an address is the registry's own: only there our credentials go.
    fn is_ours(&self, place: &str) -> bool {
        place.strip_prefix(&self.base).is_some_and(|rest| rest.starts_with('/'))
    }

    pub fn unreachable(&self, fact: &str) -> Error {
        Error::Unreachable {
            registry: self.registry.clone(),
            fact: fact.to_owned(),
        }
    }
}

#[derive(Default, Deserialize)]
struct Token {
    token: Option<String>,
    access_token: Option<String>,
}

/// The first cause: the layers above it only name themselves.
fn root(error: &dyn std::error::Error) -> String {
    let mut last = error;
    while let Some(deeper) = last.source() {
        last = deeper;
    }
    last.to_string()
}

/// A value within a query.
fn encoded(text: &str) -> String {
    let mut whole = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            whole.push(char::from(byte));
        } else {
            let _ = write!(whole, "%{byte:02X}");
        }
    }
    whole
}

fn tls(access: &Access) -> std::result::Result<rustls::ClientConfig, String> {
    let mut roots = RootCertStore::empty();
    // A machine without any is one that needs --ca, or no TLS at all.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if let Some(path) = &access.ca {
        let wrong = |fact: String| format!("the authority in {} cannot be used: {fact}", path.display());
        let certificates = CertificateDer::pem_file_iter(path).map_err(|error| wrong(error.to_string()))?;
        for certificate in certificates {
            let certificate = certificate.map_err(|error| wrong(error.to_string()))?;
            roots.add(certificate).map_err(|error| wrong(error.to_string()))?;
        }
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| error.to_string())?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

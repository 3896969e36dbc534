//! One request as a prober sends it, with a bound on all of it. A kept connection that the server has closed is opened once more before the
//! request counts as failed, as every HTTP client does with a read; and one on which an API server that ends asks to come again is sent
//! again when it says, as every client of Kubernetes does.

use std::{
    cell::RefCell,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use base64::{Engine, prelude::BASE64_STANDARD};
use http_body_util::{BodyExt, Full};
use hyper::{
    Method, Request,
    body::Bytes,
    client::conn::http1::{SendRequest, handshake},
};
use hyper_util::rt::TokioIo;
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
};
use serde::Deserialize;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::Kind;
use crate::Error;

/// A person has given up by then.
const PATIENCE: Duration = Duration::from_secs(5);

type Connection = SendRequest<Full<Bytes>>;

/// The administrator, as the kubeconfig has it.
#[derive(Debug)]
pub(super) struct Identity {
    tls: Arc<ClientConfig>,
}

#[derive(Deserialize)]
struct Kubeconfig {
    clusters: Vec<NamedCluster>,
    users: Vec<NamedUser>,
}

#[derive(Deserialize)]
struct NamedCluster {
    cluster: Cluster,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Cluster {
    certificate_authority_data: String,
}

#[derive(Deserialize)]
struct NamedUser {
    user: User,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct User {
    client_certificate_data: String,
    client_key_data: String,
}

impl Identity {
    pub(super) fn of_kubeconfig(text: &str) -> Result<Self, Error> {
        let unreadable = |message: String| Error::Unreadable {
            what: "the lab's kubeconfig".to_owned(),
            message,
        };
        let config: Kubeconfig = serde_saphyr::from_str(text).map_err(|error| unreadable(error.to_string()))?;
        let (Some(cluster), Some(user)) = (config.clusters.first(), config.users.first()) else {
            return Err(unreadable("it has no cluster or no user".to_owned()));
        };
        let pem = |data: &str| {
            BASE64_STANDARD
                .decode(data)
                .map_err(|error| unreadable(error.to_string()))
        };
        let authority = CertificateDer::from_pem_slice(&pem(&cluster.cluster.certificate_authority_data)?)
            .map_err(|error| unreadable(error.to_string()))?;
        let certificate = CertificateDer::from_pem_slice(&pem(&user.user.client_certificate_data)?)
            .map_err(|error| unreadable(error.to_string()))?;
        let key = PrivateKeyDer::from_pem_slice(&pem(&user.user.client_key_data)?)
            .map_err(|error| unreadable(error.to_string()))?;
        let mut roots = RootCertStore::empty();
        roots.add(authority).map_err(|error| unreadable(error.to_string()))?;
        let tls = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .map(|builder| builder.with_root_certificates(roots))
            .and_then(|builder| builder.with_client_auth_cert(vec![certificate], key))
            .map_err(|error| unreadable(error.to_string()))?;
        Ok(Self { tls: Arc::new(tls) })
    }
}

/// What one prober asks, and its idle connections.
#[derive(Debug)]
pub(super) struct Target {
    address: String,
    /// None: plain HTTP.
    identity: Option<Arc<Identity>>,
    kind: Kind,
    /// Of what a write writes.
    object: String,
    idle: RefCell<Vec<Connection>>,
}

impl Target {
    pub(super) fn api(kind: Kind, address: &str, object: &str, identity: Arc<Identity>) -> Self {
        Self {
            address: address.to_owned(),
            identity: Some(identity),
            kind,
            object: format!("probe-{object}"),
            idle: RefCell::default(),
        }
    }

    pub(super) fn page(address: &str) -> Self {
        Self {
            address: address.to_owned(),
            identity: None,
            kind: Kind::Page,
            object: String::new(),
            idle: RefCell::default(),
        }
    }

    /// One request; how long it took, or why it failed.
    pub(super) async fn ask(&self) -> Result<Answered, String> {
        let started = Instant::now();
        match tokio::time::timeout(PATIENCE, self.attempt()).await {
            Ok(Ok(put_off)) => Ok(Answered {
                took: started.elapsed(),
                put_off,
            }),
            Ok(Err(why)) => Err(why),
            Err(_) => Err(format!("no answer within {}s", PATIENCE.as_secs())),
        }
    }

    /// Whether it was asked to come again first.
    async fn attempt(&self) -> Result<bool, String> {
        let mut put_off = false;
        // A connection may be found closed, or about to be, only once per request.
        let kept = if self.kind == Kind::Kept {
            self.idle.borrow_mut().pop()
        } else {
            None
        };
        if let Some(mut connection) = kept
            && connection.ready().await.is_ok()
        {
            match self.send(connection).await {
                Err(Failure::Unanswered(_)) => {}
                Err(Failure::PutOff(after, _)) => {
                    put_off = true;
                    tokio::time::sleep(after).await;
                }
                other => return other.map(|()| false).map_err(Failure::into_words),
            }
        }
        let connection = self.connect().await?;
        let sent = self.send(connection).await;
        sent.map(|()| put_off).map_err(Failure::into_words)
    }

    async fn connect(&self) -> Result<Connection, String> {
        let address: SocketAddr = self
            .address
            .parse()
            .map_err(|_| format!("{} is no address", self.address))?;
        let stream = TcpStream::connect(address)
            .await
            .map_err(|error| format!("connecting: {error}"))?;
        let _ = stream.set_nodelay(true);
        let Some(identity) = &self.identity else {
            return speak(TokioIo::new(stream)).await;
        };
        let secured = TlsConnector::from(Arc::clone(&identity.tls))
            .connect(ServerName::IpAddress(address.ip().into()), stream)
            .await
            .map_err(|error| format!("TLS: {error}"))?;
        speak(TokioIo::new(secured)).await
    }

    /// Opens a watch and gives it back while it is open.
    pub(super) async fn open(&self) -> Result<Watch, String> {
        let opening = async {
            let mut connection = self.connect().await?;
            let request = self.request()?;
            let response = connection
                .send_request(request)
                .await
                .map_err(|error| error.to_string())?;
            if !response.status().is_success() {
                return Err(response.status().to_string());
            }
            Ok(Watch {
                body: response.into_body(),
                _connection: connection,
            })
        };
        let late = |_| Err(format!("no answer within {}s", PATIENCE.as_secs()));
        tokio::time::timeout(PATIENCE, opening).await.unwrap_or_else(late)
    }

    async fn send(&self, mut connection: Connection) -> Result<(), Failure> {
        let request = self.request().map_err(Failure::Refused)?;
        let response = connection
            .send_request(request)
            .await
            .map_err(|error| Failure::Unanswered(error.to_string()))?;
        let status = response.status();
        let closing = response
            .headers()
            .get("connection")
            .is_some_and(|value| value == "close");
        let again = response
            .headers()
            .get("retry-after")
            .and_then(|value| value.to_str().ok());
        let again = again.and_then(|seconds| seconds.parse().ok()).map(Duration::from_secs);
        let body = response
            .into_body()
            .collect()
            .await
            .map_err(|error| Failure::Refused(format!("{status}, then: {error}")))?
            .to_bytes();
        if !status.is_success() {
            let said = String::from_utf8_lossy(&body[..body.len().min(200)]).into_owned();
            let why = format!("{status}: {said}");
            return Err(match again {
                Some(after) => Failure::PutOff(after, why),
                None => Failure::Refused(why),
            });
        }
        if self.kind == Kind::Kept && !closing {
            self.idle.borrow_mut().push(connection);
        }
        Ok(())
    }

    fn request(&self) -> Result<Request<Full<Bytes>>, String> {
        let builder = Request::builder().header("host", &self.address);
        let built = match self.kind {
            Kind::Page => builder.method(Method::GET).uri("/").body(Full::default()),
            Kind::Read | Kind::Kept => builder
                .method(Method::GET)
                .uri("/api/v1/namespaces/default")
                .body(Full::default()),
            Kind::Watch => builder
                .method(Method::GET)
                .uri("/api/v1/configmaps?watch=true")
                .body(Full::default()),
            Kind::Write => {
                let now = SystemTime::now()
                    .duration_since(UNIX_EPOCH)
                    .map_or(0, |since| since.as_nanos());
                let object = serde_json::json!({
                    "apiVersion": "v1", "kind": "ConfigMap",
                    "metadata": {"name": self.object}, "data": {"written": now.to_string()},
                });
                builder
                    .method(Method::PATCH)
                    .uri(format!(
                        "/api/v1/namespaces/default/configmaps/{}?fieldManager=lab&force=true",
                        self.object
                    ))
                    .header("content-type", "application/apply-patch+yaml")
                    .body(Full::new(Bytes::from(object.to_string())))
            }
        };
        built.map_err(|error| error.to_string())
    }
}

/// A watch that is open.
pub(super) struct Watch {
    body: hyper::body::Incoming,
    _connection: Connection,
}

impl Watch {
    /// Reads all that comes. The server ends every watch some time.
    pub(super) async fn until_it_ends(mut self) {
        while let Some(Ok(_)) = self.body.frame().await {}
    }
}

/// A request that went well.
#[derive(Debug, Clone, Copy)]
pub(super) struct Answered {
    pub(super) took: Duration,
    /// It had to be sent twice: the first server said so.
    pub(super) put_off: bool,
}

enum Failure {
    /// The connection ended before an answer began.
    Unanswered(String),
    /// Nothing was done with it, and it may be sent again after this time.
    PutOff(Duration, String),
    Refused(String),
}

impl Failure {
    fn into_words(self) -> String {
        match self {
            Self::Unanswered(why) => format!("the connection ended before an answer: {why}"),
            Self::PutOff(_, why) | Self::Refused(why) => why,
        }
    }
}

async fn speak<S>(stream: TokioIo<S>) -> Result<Connection, String>
where
    TokioIo<S>: hyper::rt::Read + hyper::rt::Write + Unpin + 'static,
{
    let (sender, connection) = handshake(stream).await.map_err(|error| format!("HTTP: {error}"))?;
    // It ends with the sender, or when the server closes.
    tokio::task::spawn_local(async move {
        let _ = connection.await;
    });
    Ok(sender)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        io::{Read, Write},
        net::TcpListener,
        thread,
    };

    /// Answers each of these requests, one connection per inner list, and closes the connection after it without a word.
    fn server(connections: Vec<Vec<&'static str>>) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        thread::spawn(move || {
            for answers in connections {
                let (mut stream, _) = listener.accept().unwrap();
                for answer in answers {
                    let mut bytes = [0; 2048];
                    let _ = stream.read(&mut bytes).unwrap();
                    stream.write_all(answer.as_bytes()).unwrap();
                }
            }
        });
        address
    }

    /// Of each request: whether it was put off, or why it failed.
    fn asked(target: &Target, times: usize) -> Vec<Result<bool, String>> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        tokio::task::LocalSet::new().block_on(&runtime, async {
            let mut answers = Vec::new();
            for _ in 0..times {
                answers.push(target.ask().await.map(|answered| answered.put_off));
                tokio::time::sleep(Duration::from_millis(30)).await;
            }
            answers
        })
    }

    fn plain(kind: Kind, address: &str) -> Target {
        Target {
            kind,
            ..Target::page(address)
        }
    }

    const FINE: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
    const ENDS: &str = "HTTP/1.1 503 Service Unavailable\r\nretry-after: 0\r\ncontent-length: 0\r\n\r\n";
    const BUSY: &str = "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n";

    #[test]
    fn a_kept_connection_that_was_closed_is_opened_again() {
        let target = plain(Kind::Kept, &server(vec![vec![FINE, FINE], vec![FINE]]));
        assert_eq!(asked(&target, 3), [Ok(false), Ok(false), Ok(false)]);
    }

    #[test]
    fn a_kept_connection_whose_server_ends_is_left_for_another_one_as_it_says() {
        let target = plain(
            Kind::Kept,
            &server(vec![vec![FINE, ENDS], vec![FINE, ENDS], vec![ENDS]]),
        );
        let answers = asked(&target, 3);
        assert_eq!(answers[..2], [Ok(false), Ok(true)]);
        // Twice is more than the end of one server.
        assert!(answers[2].as_ref().is_err_and(|why| why.contains("503")), "{answers:?}");
        // A new connection must not get there at all.
        let new = asked(&plain(Kind::Read, &server(vec![vec![ENDS]])), 1);
        assert!(new[0].is_err(), "{new:?}");
    }

    #[test]
    fn what_is_not_an_answer_has_failed() {
        let refused = asked(&plain(Kind::Read, &server(vec![vec![BUSY]])), 1);
        assert!(refused[0].as_ref().is_err_and(|why| why.contains("503")), "{refused:?}");
        let closed = asked(&plain(Kind::Read, &server(vec![vec![]])), 1);
        assert!(closed[0].is_err(), "{closed:?}");
        let nobody = asked(&plain(Kind::Read, "127.0.0.1:1"), 1);
        assert!(
            nobody[0].as_ref().is_err_and(|why| why.contains("connecting")),
            "{nobody:?}"
        );
    }
}

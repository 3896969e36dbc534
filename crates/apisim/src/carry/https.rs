//! The server over HTTPS on loopback: a certificate made for the occasion, a bearer token, and the kubeconfig that
//! holds both.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{Request, Response, header::AUTHORIZATION};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use crate::server::{ApiServer, Encoding, Reply};
use crate::status::ApiError;

use super::ReplyStream;

/// Connections served at once; more wait to be accepted.
const MOST_CONNECTIONS: usize = 4096;

/// How long a client may take over the TLS handshake.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);

/// How to serve.
#[derive(Clone, Debug)]
pub struct Options {
    pub listen: SocketAddr,
    /// The bearer token that clients must send.
    pub token: String,
}

/// Why serving could not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot listen on {address}")]
    Listen {
        address: SocketAddr,
        #[source]
        source: std::io::Error,
    },
    #[error("cannot make a certificate")]
    Certificate(#[from] rcgen::Error),
    #[error("cannot set up TLS")]
    Tls(#[from] rustls::Error),
}

/// A server that is being served; ends when dropped.
pub struct Running {
    address: SocketAddr,
    ca_pem: String,
    token: String,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Running {
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    pub fn ca_pem(&self) -> &str {
        &self.ca_pem
    }

    pub fn token(&self) -> &str {
        &self.token
    }

    /// A kubeconfig with everything a client needs.
    pub fn kubeconfig(&self, cluster: &str) -> String {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: {cluster}\nclusters:\n- name: {cluster}\n  cluster:\n    \
             server: {}\n    certificate-authority-data: {}\nusers:\n- name: admin\n  user:\n    token: {}\n\
             contexts:\n- name: {cluster}\n  context:\n    cluster: {cluster}\n    user: admin\n",
            self.url(),
            STANDARD.encode(&self.ca_pem),
            self.token
        )
    }

    /// Stops accepting and ends the connections.
    pub async fn shutdown(mut self) {
        self.stop.send_replace(true);
        // The task ends at once; waiting for it is bounded all the same.
        let _ended = tokio::time::timeout(Duration::from_secs(5), &mut self.task).await;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        self.task.abort();
    }
}

/// Serves until the handle is dropped.
pub async fn serve(server: ApiServer, options: Options) -> Result<Running, Error> {
    let listener = TcpListener::bind(options.listen)
        .await
        .map_err(|source| Error::Listen {
            address: options.listen,
            source,
        })?;
    let address = listener.local_addr().map_err(|source| Error::Listen {
        address: options.listen,
        source,
    })?;
    let identity = Identity::make(address)?;
    let acceptor = TlsAcceptor::from(Arc::new(identity.config));
    let (stop, stopped) = watch::channel(false);
    let token: Arc<str> = Arc::from(options.token.as_str());
    let task = tokio::spawn(accept(listener, acceptor, server, token, stopped));
    Ok(Running {
        address,
        ca_pem: identity.ca_pem,
        token: options.token,
        stop,
        task,
    })
}

async fn accept(
    listener: TcpListener,
    acceptor: TlsAcceptor,
    server: ApiServer,
    token: Arc<str>,
    mut stopped: watch::Receiver<bool>,
) {
    let places = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    loop {
        let Ok(place) = places.clone().acquire_owned().await else {
            return;
        };
        let stream = tokio::select! {
            _ = stopped.changed() => return,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                // Out of file descriptors, or the peer is gone already: others may still come.
                Err(error) => {
                    tracing::debug!(%error, "a connection could not be accepted");
                    tokio::time::sleep(Duration::from_millis(10)).await;
                    continue;
                }
            },
        };
        let (acceptor, server, token, stopped) = (acceptor.clone(), server.clone(), token.clone(), stopped.clone());
        tokio::spawn(async move {
            converse(stream, acceptor, server, token, stopped).await;
            drop(place);
        });
    }
}

async fn converse(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    server: ApiServer,
    token: Arc<str>,
    mut stopped: watch::Receiver<bool>,
) {
    // Answers are small and waited for: no delay for the sake of fuller packets.
    let _best_effort = stream.set_nodelay(true);
    let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE_LIMIT, acceptor.accept(stream)).await else {
        return;
    };
    let service = service_fn(move |request| {
        let (server, token) = (server.clone(), token.clone());
        async move { Ok::<_, std::convert::Infallible>(authorised(&server, &token, request).await) }
    });
    let builder = Builder::new(TokioExecutor::new());
    let connection = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
    tokio::select! {
        _ = stopped.wait_for(|stopped| *stopped) => {}
        ended = connection => if let Err(error) = ended {
            tracing::debug!(%error, "a connection ended early");
        },
    }
}

/// Everything but health, version and nothing else asks for the token, as a stock server has it.
async fn authorised(server: &ApiServer, token: &str, request: Request<Incoming>) -> Response<ReplyStream> {
    let public = matches!(request.uri().path(), "/healthz" | "/livez" | "/readyz" | "/version");
    let given = request
        .headers()
        .get(AUTHORIZATION)
        .and_then(|value| value.to_str().ok());
    let known = given
        .and_then(|value| value.strip_prefix("Bearer "))
        .is_some_and(|given| same(given, token));
    if public || known {
        return server.answer(request).await;
    }
    let reply = Reply::refused(&ApiError::unauthorized(), Encoding::default());
    let mut response = Response::new(ReplyStream::new(reply.body));
    *response.status_mut() = reply.status;
    *response.headers_mut() = reply.headers;
    response
}

/// Compares without telling by its duration how much was right.
fn same(given: &str, expected: &str) -> bool {
    let differences = given
        .bytes()
        .zip(expected.bytes())
        .fold(0, |all, (left, right)| all | (left ^ right));
    given.len() == expected.len() && differences == 0
}

/// A certificate authority of one server certificate.
struct Identity {
    ca_pem: String,
    config: rustls::ServerConfig,
}

impl Identity {
    fn make(address: SocketAddr) -> Result<Self, Error> {
        let mut ca_params = CertificateParams::new(Vec::new())?;
        ca_params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        ca_params
            .distinguished_name
            .push(rcgen::DnType::CommonName, "afloat sandbox");
        let ca_key = KeyPair::generate()?;
        let ca = ca_params.self_signed(&ca_key)?;
        let issuer = Issuer::new(ca_params, ca_key);
        let names = vec![
            "localhost".to_owned(),
            "kubernetes".to_owned(),
            "127.0.0.1".to_owned(),
            address.ip().to_string(),
        ];
        let key = KeyPair::generate()?;
        let certificate = CertificateParams::new(names)?.signed_by(&key, &issuer)?;
        let chain = vec![CertificateDer::from(certificate.der().to_vec())];
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(chain, key)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Self {
            ca_pem: ca.pem(),
            config,
        })
    }
}

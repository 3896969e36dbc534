//! HTTPS, as the API server demands it of webhooks. Which certificate is shown is looked up for each connection: one that was renewed is
//! shown from then on, and as long as there is none, nobody is let in.

use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

use axum::Router;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::WebhookError;

/// The certificate that is shown, where there is one.
#[derive(Clone, Debug, Default)]
pub struct Shown(Arc<RwLock<Option<Arc<CertifiedKey>>>>);

impl Shown {
    pub fn show(&self, pair: CertifiedKey) {
        let mut shown = self.0.write().unwrap_or_else(PoisonError::into_inner);
        *shown = Some(Arc::new(pair));
    }

    pub fn now(&self) -> Option<Arc<CertifiedKey>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl ResolvesServerCert for Shown {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.now()
    }
}

/// Certificate and key out of their PEM; an error where either is none, or where they do not belong together.
pub fn pair(certificate: &[u8], key: &[u8]) -> Result<CertifiedKey, String> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certificate).collect();
    let chain = chain.map_err(|error| format!("the certificate cannot be read ({error})"))?;
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| format!("the key cannot be read ({error})"))?;
    CertifiedKey::from_der(chain, key, &aws_lc_rs::default_provider()).map_err(|error| error.to_string())
}

/// The same out of two files.
pub fn files(certificate: &Path, key: &Path) -> Result<CertifiedKey, WebhookError> {
    let wrong = |path: &Path, problem: &dyn std::fmt::Display| WebhookError::Certificate {
        path: path.display().to_string(),
        problem: problem.to_string(),
    };
    let read = |path: &Path| std::fs::read(path).map_err(|error| wrong(path, &error));
    pair(&read(certificate)?, &read(key)?).map_err(|problem| wrong(certificate, &problem))
}

pub fn acceptor(shown: Shown) -> Result<TlsAcceptor, WebhookError> {
    let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(WebhookError::Tls)?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(shown));
    Ok(TlsAcceptor::from(Arc::new(config)))
}

pub async fn serve(listener: TcpListener, acceptor: TlsAcceptor, router: Router) {
    while let Ok((stream, peer)) = listener.accept().await {
        let (acceptor, service) = (acceptor.clone(), TowerToHyperService::new(router.clone()));
        tokio::spawn(async move {
            let stream = match acceptor.accept(stream).await {
                Ok(stream) => stream,
                Err(error) => return tracing::debug!(%peer, %error, "a connection was refused"),
            };
            let builder = Builder::new(TokioExecutor::new());
            if let Err(error) = builder.serve_connection(TokioIo::new(stream), service).await {
                tracing::debug!(%peer, %error, "a connection broke off");
            }
        });
    }
}

//! The two clients of the operator, and the limit on every call. kube's defaults fit neither: a read may last for ever
//! (the usual sight of an API server that is being upgraded), and an eviction refused by a budget is repeated in
//! silence for minutes, while pause and abort wait.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use crate::counting::counting;
use crate::metrics::Metrics;

/// No call that is not a watch takes longer.
pub const CALL_LIMIT: Duration = Duration::from_secs(30);
/// A connection on which nothing came for so long is dead. Longer than a watch lasts (kube asks for 290 s), or quiet
/// watches would be cut.
const SILENCE_LIMIT: Duration = Duration::from_secs(310);

/// The clients of one API server.
#[derive(Clone)]
pub struct Clients {
    /// For everything but evictions: repeats what the server was too busy for.
    pub api: kube::Client,
    /// For evictions: 429 is an answer (a budget says no), not a reason to ask again.
    pub evictions: kube::Client,
    /// Public keys that every pod of ours is told, and that the bundle it brings must be signed with.
    pub bundle_key: Option<Arc<str>>,
}

impl Clients {
    pub fn new(config: kube::Config) -> Result<Self, kube::Error> {
        let mut config = config;
        config.read_timeout = Some(SILENCE_LIMIT);
        config.reset_reader_on_write = true;
        let mut once = config.clone();
        once.default_retry = false;
        Ok(Self {
            api: kube::Client::try_from(config)?,
            evictions: kube::Client::try_from(once)?,
            bundle_key: None,
        })
    }

    /// The same clients, with every request counted.
    #[must_use]
    pub fn counted(self, metrics: &Metrics) -> Self {
        Self {
            api: counting(self.api, metrics),
            evictions: counting(self.evictions, metrics),
            bundle_key: self.bundle_key,
        }
    }

    /// Nodes take only bundles that one of these keys signed.
    #[must_use]
    pub fn with_bundle_key(mut self, key: Option<String>) -> Self {
        self.bundle_key = key.map(Arc::from);
        self
    }

    /// Both of one client that never repeats anything by itself, as those of the embedded API server.
    pub fn of(client: kube::Client) -> Self {
        Self {
            api: client.clone(),
            evictions: client,
            bundle_key: None,
        }
    }
}

/// Why a call brought nothing.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    #[error("no answer within {}s", limit.as_secs())]
    TimedOut { limit: Duration },
    #[error(transparent)]
    Refused(#[from] kube::Error),
}

/// Makes a call that ends: in time, or as timed out.
pub async fn bounded<T>(call: impl Future<Output = kube::Result<T>>) -> Result<T, CallError> {
    match tokio::time::timeout(CALL_LIMIT, call).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(CallError::TimedOut { limit: CALL_LIMIT }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Pod;
    use kube::api::EvictParams;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    const BUDGET_SAYS_NO: &str = r#"{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"TooManyRequests","code":429,"message":"no"}"#;

    /// A server that refuses everything with 429, and counts.
    async fn refuser() -> (String, Arc<AtomicUsize>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let count = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&count);
        tokio::spawn(async move {
            while let Ok((mut connection, _)) = listener.accept().await {
                let mut buffer = [0; 4096];
                let _request = connection.read(&mut buffer).await;
                counter.fetch_add(1, Ordering::SeqCst);
                let head = "HTTP/1.1 429 Too Many Requests\r\ncontent-type: application/json\r\nconnection: close\r\n";
                let answer = format!("{head}content-length: {}\r\n\r\n{BUDGET_SAYS_NO}", BUDGET_SAYS_NO.len());
                let _sent = connection.write_all(answer.as_bytes()).await;
            }
        });
        (url, count)
    }

    #[tokio::test]
    async fn a_refused_eviction_is_asked_for_once() {
        let (url, count) = refuser().await;
        let clients = Clients::new(kube::Config::new(url.parse().unwrap())).unwrap();
        let pods: kube::Api<Pod> = kube::Api::namespaced(clients.evictions, "shop");
        let refused = bounded(pods.evict("web-1", &EvictParams::default())).await;
        assert!(
            matches!(&refused, Err(CallError::Refused(kube::Error::Api(status))) if status.code == 429),
            "{refused:?}"
        );
        assert_eq!(count.load(Ordering::SeqCst), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_without_an_answer_ends() {
        let ended = bounded(std::future::pending::<kube::Result<()>>()).await;
        assert!(matches!(ended, Err(CallError::TimedOut { limit: CALL_LIMIT })));
    }
}

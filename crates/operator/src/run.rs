//! The operator as a whole: stands for election, watches, works, tells how it is, and ends in order. Used by `afloat controller`, and
//! in the same process by the sandbox and the simulator.

use std::net::SocketAddr;
use std::sync::Arc;

use futures::FutureExt as _;
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use crate::clients::Clients;
use crate::clock::Clock;
use crate::elect::{Election, Lost};
use crate::events::EventSink;
use crate::hci::HciOptions;
use crate::metrics::Metrics;
use crate::mind::Mind;
use crate::pages::{self, Readiness};
use crate::prober::Prober;
use crate::turns::{Loop, Parts};
use crate::webhook::{self, Question};

/// The lease by which operators agree on who works.
pub const LEADER_LEASE: &str = "afloat-operator";

/// What an operator needs.
pub struct OperatorConfig {
    pub clients: Clients,
    /// The namespace it runs in.
    pub home: String,
    /// Tells it from others: the name of its pod.
    pub identity: String,
    pub clock: Arc<dyn Clock>,
    pub mind: Arc<dyn Mind>,
    pub prober: Arc<dyn Prober>,
    /// Where `/metrics`, `/healthz` and `/readyz` are served; nowhere where absent.
    pub listen: Option<SocketAddr>,
    /// Off only where there is nobody else, as in the sandbox.
    pub leader_election: bool,
    pub metrics: Metrics,
    /// For upgrades of Harvester.
    pub hci: HciOptions,
}

/// Why an operator ended by itself.
#[derive(Debug, thiserror::Error)]
pub enum OperatorError {
    #[error("cannot listen on {address} ({cause}): choose another address, or end what listens there")]
    Listen { address: SocketAddr, cause: std::io::Error },
    #[error("the webhook cannot be served: {0}")]
    Webhook(#[from] webhook::WebhookError),
    #[error(transparent)]
    Lost(#[from] Lost),
}

/// Runs until `shutdown`, or until another one leads: then the process has to end.
pub async fn run(config: OperatorConfig, shutdown: impl Future<Output = ()> + Send) -> Result<(), OperatorError> {
    let readiness = Readiness::default();
    let _pages = match config.listen {
        Some(address) => Some(serve(address, config.metrics.clone(), readiness.clone()).await?),
        None => None,
    };
    let (desk, questions) = webhook::desk();
    let webhook = match &config.hci.webhook {
        Some(door) => Some(webhook::serve(door, desk, &config.clients, &config.home, &config.clock).await?),
        None => None,
    };
    let questions = Some(questions);
    let shutdown = shutdown.shared();
    let clock = Arc::clone(&config.clock);
    let mut election = config
        .leader_election
        .then(|| Election::new(&config.clients, &config.home, LEADER_LEASE, &config.identity, &*clock));
    if let Some(election) = &mut election {
        // Whoever waits for its turn is in order.
        readiness.set(true);
        tokio::select! {
            () = shutdown.clone() => return Ok(()),
            () = election.won() => {}
        }
        readiness.set(false);
        tracing::info!(identity = config.identity, "this process leads");
    }
    config.metrics.leading(true);
    if let Some(webhook) = &webhook {
        webhook.leads();
    }
    let ended = Box::pin(work(config, readiness, questions, &mut election, shutdown)).await;
    if let (Ok(()), Some(election)) = (&ended, &mut election)
        && let Err(error) = election.release().await
    {
        tracing::warn!(%error, "the lease was not given back; a successor waits until it runs out");
    }
    ended
}

async fn work(
    config: OperatorConfig,
    readiness: Readiness,
    questions: Option<mpsc::Receiver<Question>>,
    election: &mut Option<Election<'_>>,
    shutdown: impl Future<Output = ()>,
) -> Result<(), OperatorError> {
    let (events, writer) = EventSink::new(
        &config.clients,
        Arc::clone(&config.clock),
        &config.identity,
        config.metrics.clone(),
    );
    let turns = Loop::new(Parts {
        clients: config.clients,
        clock: config.clock,
        mind: config.mind,
        prober: config.prober,
        events,
        metrics: config.metrics,
        readiness,
        home: config.home,
        hci: config.hci,
        questions,
    });
    // The writer ends when the loop has and everything is written.
    let working = async { tokio::join!(turns.run(shutdown), writer) };
    match election {
        None => {
            working.await;
            Ok(())
        }
        Some(election) => tokio::select! {
            biased;
            _ = working => Ok(()),
            lost = election.lost() => Err(lost.into()),
        },
    }
}

/// Serves the pages until this is dropped.
async fn serve(address: SocketAddr, metrics: Metrics, readiness: Readiness) -> Result<Serving, OperatorError> {
    let listener = TcpListener::bind(address)
        .await
        .map_err(|cause| OperatorError::Listen { address, cause })?;
    let task = tokio::spawn(async move {
        if let Err(error) = axum::serve(listener, pages::router(metrics, readiness)).await {
            tracing::warn!(%error, "the pages are no longer served");
        }
    });
    Ok(Serving(task))
}

struct Serving(tokio::task::JoinHandle<()>);

impl Drop for Serving {
    fn drop(&mut self) {
        self.0.abort();
    }
}

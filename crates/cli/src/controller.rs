//! `afloat controller`: the operator as a process of its own. What it does lives in `afloat-operator`.

use crate::args::people::{Controller, Probe};
use crate::cluster;
use crate::problem::{Code, Problem};
use crate::screen::interrupted;
use afloat_operator::clients::Clients;
use afloat_operator::clock::SystemClock;
use afloat_operator::hci::HciOptions;
use afloat_operator::metrics::Metrics;
use afloat_operator::mind::Core;
use afloat_operator::prober::{HttpsProber, MirrorProber, Prober};
use afloat_operator::webhook::{Door, Identity};
use afloat_operator::{OperatorConfig, OperatorError};
use std::sync::Arc;

pub async fn run(arguments: Controller) -> Result<Code, Problem> {
    let config = cluster::config(&arguments.place).await?;
    let server = config.cluster_url.to_string();
    let endpoints = HttpsProber::new(&config);
    let clients = Clients::new(config).map_err(|error| cluster::unreachable(&server).root(&error))?;
    let metrics = Metrics::default();
    let clients = clients.with_bundle_key(arguments.bundle_key).counted(&metrics);
    let prober: Arc<dyn Prober> = match arguments.probe {
        Probe::Endpoints => Arc::new(endpoints),
        Probe::Mirrors => Arc::new(MirrorProber::new(clients.api.clone())),
    };
    let mut hci = HciOptions::default();
    if let Some(image) = arguments.image {
        hci.image = image;
    }
    hci.webhook = arguments.webhook_listen.map(|listen| Door {
        listen,
        identity: match arguments.webhook_certificate.zip(arguments.webhook_key) {
            Some((certificate, key)) => Identity::Files { certificate, key },
            None => Identity::Own {
                pod: std::env::var("POD_NAME").ok(),
            },
        },
    });
    let operator = OperatorConfig {
        clients,
        home: arguments.place.namespace,
        identity: identity(),
        clock: Arc::new(SystemClock),
        mind: Arc::new(Core),
        prober,
        listen: Some(arguments.listen),
        leader_election: !arguments.no_leader_election,
        metrics,
        hci,
    };
    let ended = afloat_operator::run(operator, interrupted()).await;
    ended.map(|()| Code::Done).map_err(|error| {
        let problem = Problem::new(Code::Failed, "the operator ended").source(&error);
        match error {
            OperatorError::Listen { .. } => problem.help("afloat controller --listen 127.0.0.1:0"),
            OperatorError::Webhook(_) => {
                problem.help("afloat controller without --webhook-listen works, and checks at the start instead")
            }
            OperatorError::Lost(_) => problem.help("nothing is lost: start it again, another one works meanwhile"),
        }
    })
}

/// Tells this process from other operators: the name of the pod, and the process beside it, for a pod that was restarted.
fn identity() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = std::env::var("POD_NAME").unwrap_or_else(|_| host.trim().to_owned());
    format!("{host}-{}", std::process::id())
}

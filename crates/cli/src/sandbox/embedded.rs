//! The API server in this process: made, filled with Afloat's own kinds, its garbage collector running, and served
//! over HTTPS when asked for.

use super::kubeconfig::Kubeconfig;
use crate::problem::{Code, Problem};
use afloat_apisim::gc::Collector;
use afloat_apisim::hooks::{Fault, Faults, PodLogs, RequestInfo};
use afloat_apisim::{ApiServer, Options, https};
use afloat_sim::kubelet::HealthBoard;
use kube::api::PostParams;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;

/// How often the collector looks whether something changed.
const COLLECT: Duration = Duration::from_millis(200);
/// The name people see in their kubeconfig.
const CLUSTER: &str = "afloat-sandbox";

/// The server and what runs beside it; all of it ends when this is dropped.
pub struct Embedded {
    server: ApiServer,
    collector: JoinHandle<()>,
}

impl Drop for Embedded {
    fn drop(&mut self) {
        self.collector.abort();
    }
}

impl Embedded {
    pub async fn start(version: &str, seed: u64) -> Result<Self, Problem> {
        let server = ApiServer::new(Options {
            seed,
            git_version: version.to_owned(),
            ..Options::default()
        });
        server.set_pod_logs(Arc::new(SimulatedLogs));
        let collector = tokio::spawn(Collector::new(server.clone()).run(COLLECT));
        let embedded = Self { server, collector };
        embedded.install_definitions().await?;
        Ok(embedded)
    }

    pub fn client(&self) -> kube::Client {
        self.server.client()
    }

    /// From here on the API is away whenever every control plane's API server is.
    pub fn depends_on(&self, health: HealthBoard) {
        self.server.inject(Some(Arc::new(Outages(health))));
    }

    async fn install_definitions(&self) -> Result<(), Problem> {
        let api = kube::Api::all(self.client());
        for definition in afloat_api::crds::all() {
            api.create(&PostParams::default(), &definition).await.map_err(|error| {
                let name = definition.metadata.name.clone().unwrap_or_default();
                Problem::new(Code::Failed, format!("the sandbox refused the definition {name}")).source(&error)
            })?;
        }
        Ok(())
    }

    /// Serves over HTTPS with a certificate and a token made for this run.
    pub async fn serve(&self, listen: SocketAddr, kubeconfig: Option<PathBuf>) -> Result<Served, Problem> {
        let options = https::Options {
            listen,
            token: random_token()?,
        };
        let running = https::serve(self.server.clone(), options).await.map_err(|error| {
            Problem::new(Code::Failed, format!("the sandbox cannot be served on {listen}"))
                .source(&error)
                .help("leave --listen away to take a free port")
        })?;
        let kubeconfig = Kubeconfig::write(kubeconfig, &running.kubeconfig(CLUSTER))?;
        Ok(Served { running, kubeconfig })
    }
}

/// Nobody answers while no control plane does, as on a cluster with a single one.
struct Outages(HealthBoard);

impl Faults for Outages {
    fn on_request(&self, _: &RequestInfo<'_>) -> Fault {
        if self.0.api_is_away() {
            Fault::Refuse(503)
        } else {
            Fault::None
        }
    }
}

/// A served sandbox.
pub struct Served {
    running: https::Running,
    kubeconfig: Kubeconfig,
}

impl Served {
    /// The lines to copy: where it is, and what to try there.
    pub fn instructions(&self, commands: &str) -> String {
        let (url, file) = (self.running.url(), self.kubeconfig.shell_path());
        format!("Serving on {url} until Ctrl-C. In another shell:\n\n  export KUBECONFIG={file}\n  {commands}\n\n")
    }

    /// Stops serving; the kubeconfig goes with it.
    pub async fn end(self) {
        self.running.shutdown().await;
    }
}

/// 256 bits of the kernel's randomness, in hexadecimal.
fn random_token() -> Result<String, Problem> {
    let mut bytes = [0_u8; 32];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()).map_err(|error| {
        Problem::new(Code::Failed, "the kernel gave no random numbers for the token").source(&error)
    })?;
    let mut token = String::with_capacity(64);
    for byte in bytes {
        let _infallible = write!(token, "{byte:02x}");
    }
    Ok(token)
}

/// What `kubectl logs` shows: simulated containers run no program, and say so.
struct SimulatedLogs;

impl PodLogs for SimulatedLogs {
    fn read(&self, namespace: &str, pod: &str, container: &str) -> Result<String, String> {
        Ok(format!(
            "container {container} of pod {namespace}/{pod} is simulated: it runs no program and writes no log\n"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_long_and_never_the_same() {
        let (one, other) = (random_token().unwrap(), random_token().unwrap());
        assert_eq!(one.len(), 64);
        assert_ne!(one, other);
    }
}

//! The two servers that sessions run on, each with its kubeconfig.

use std::net::SocketAddr;
use std::sync::Arc;

use afloat_apisim::hooks::PodLogs;
use afloat_apisim::{ApiServer, Options, https};
use afloat_realparts::{ControlPlane, Options as PlaneOptions};

/// The simulated server over HTTPS.
pub struct Simulated {
    server: ApiServer,
    running: Option<https::Running>,
    // Dropped after the server that runs on it.
    _runtime: tokio::runtime::Runtime,
}

impl Simulated {
    pub fn start() -> Self {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let options = https::Options {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            token: "transcript-token".to_owned(),
        };
        let server = ApiServer::new(Options::default());
        let running = runtime
            .block_on(https::serve(server.clone(), options))
            .expect("the simulated server is served");
        Self {
            server,
            running: Some(running),
            _runtime: runtime,
        }
    }

    pub fn kubeconfig(&self) -> String {
        self.running
            .as_ref()
            .map(|running| running.kubeconfig("throwaway"))
            .unwrap_or_default()
    }
}

/// Every container says the same two things.
struct Talking;

impl PodLogs for Talking {
    fn read(&self, namespace: &str, pod: &str, container: &str) -> Result<String, String> {
        Ok(format!(
            "{container} of {namespace}/{pod} says one\n{container} of {namespace}/{pod} says two\n"
        ))
    }
}

impl Simulated {
    /// Gives every pod on a node something to say.
    pub fn play_kubelet(&self) {
        self.server.set_pod_logs(Arc::new(Talking));
    }
}

impl Drop for Simulated {
    fn drop(&mut self) {
        drop(self.running.take());
    }
}

/// A real kube-apiserver with its etcd and no controllers.
pub fn real() -> ControlPlane {
    ControlPlane::start(&PlaneOptions::default()).expect("a real control plane starts")
}

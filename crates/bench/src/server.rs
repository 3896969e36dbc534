//! The API server a cluster lives on: the embedded one served over HTTPS, as the sandbox does it, or a real kube-apiserver with etcd. Both
//! end when they are dropped.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use afloat_apisim::gc::Collector;
use afloat_apisim::{ApiServer, Options, https};
use afloat_realparts::ControlPlane;
use afloat_sim::scenario::DEFAULT_VERSION;
use anyhow::{Context as _, bail};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{ListParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use tokio::task::JoinHandle;

/// How often the collector looks whether something changed, as in the sandbox.
const COLLECT: Duration = Duration::from_millis(200);
/// Changes of each table that are remembered: nobody here is away for long, and at 5,000 nodes each takes memory of this process.
const HISTORY: usize = 2_000;
/// A real API server serves a new definition a moment after it took it.
const SERVED_WITHIN: Duration = Duration::from_secs(30);

/// Which API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    Embedded,
    Real,
}

impl Which {
    pub fn word(self) -> &'static str {
        match self {
            Self::Embedded => "embedded",
            Self::Real => "real",
        }
    }
}

/// The embedded server and its garbage collector, in this process.
pub struct Embedded {
    pub server: ApiServer,
    collector: JoinHandle<()>,
}

impl Drop for Embedded {
    fn drop(&mut self) {
        self.collector.abort();
    }
}

impl Embedded {
    pub fn start() -> Self {
        let server = ApiServer::new(Options {
            git_version: DEFAULT_VERSION.to_owned(),
            history: HISTORY,
            ..Options::default()
        });
        let collector = tokio::spawn(Collector::new(server.clone()).run(COLLECT));
        Self { server, collector }
    }
}

/// What keeps a server up.
enum Kept {
    Embedded {
        _server: Embedded,
        _running: https::Running,
        kubeconfig: tempfile::NamedTempFile,
    },
    Real(ControlPlane),
}

/// A server with Afloat's kinds on it, that other processes can reach.
pub struct Server {
    kept: Kept,
    /// For the world, and for whoever asks for an upgrade.
    pub client: kube::Client,
}

impl Server {
    pub async fn start(which: Which) -> anyhow::Result<Self> {
        let server = match which {
            Which::Embedded => Self::embedded().await?,
            Which::Real => Self::real().await?,
        };
        define(&server.client).await?;
        Ok(server)
    }

    async fn embedded() -> anyhow::Result<Self> {
        let server = Embedded::start();
        let options = https::Options {
            listen: ([127, 0, 0, 1], 0).into(),
            // Nobody but this machine can reach it, and nothing worth hiding is in it.
            token: "bench".to_owned(),
        };
        let running = https::serve(server.server.clone(), options).await?;
        let mut kubeconfig = tempfile::NamedTempFile::new()?;
        kubeconfig.write_all(running.kubeconfig("bench").as_bytes())?;
        Ok(Self {
            client: server.server.client(),
            kept: Kept::Embedded {
                _server: server,
                _running: running,
                kubeconfig,
            },
        })
    }

    async fn real() -> anyhow::Result<Self> {
        let plane = tokio::task::spawn_blocking(|| ControlPlane::start(&afloat_realparts::Options::default()))
            .await?
            .context("the real API server did not start; cargo xtask components builds it")?;
        let config = Kubeconfig::read_from(plane.kubeconfig_path())?;
        let config = kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await?;
        Ok(Self {
            client: kube::Client::try_from(config)?,
            kept: Kept::Real(plane),
        })
    }

    pub fn kubeconfig(&self) -> PathBuf {
        match &self.kept {
            Kept::Embedded { kubeconfig, .. } => Path::to_owned(kubeconfig.path()),
            Kept::Real(plane) => plane.kubeconfig_path(),
        }
    }
}

/// Installs Afloat's own kinds, and waits until they are served.
pub async fn define(client: &kube::Client) -> anyhow::Result<()> {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    for definition in afloat_api::crds::own() {
        definitions.create(&PostParams::default(), &definition).await?;
    }
    let deadline = Instant::now() + SERVED_WITHIN;
    let upgrades: Api<afloat_api::NodeKubeadmUpgrade> = Api::all(client.clone());
    while upgrades.list(&ListParams::default()).await.is_err() {
        if Instant::now() > deadline {
            bail!("the definitions are not served within {}s", SERVED_WITHIN.as_secs());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

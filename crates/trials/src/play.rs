//! A simulated cluster with its API server, its actors, and as many operators as a test wants: started, killed, started again.
//! What goes wrong is in `weather`, what must never happen in `record`.

use std::sync::Arc;
use std::time::Duration;

use afloat_api::clusterupgrade::{DrainOption, Phase, Severity};
use afloat_api::{ClusterUpgrade, ClusterUpgradeSpec, NodeKubeadmUpgrade};
use afloat_apisim::gc::Collector;
use afloat_apisim::{ApiServer, Clock as ServerClock, Options};
use afloat_core::preflight::accept_key;
use afloat_operator::OperatorConfig;
use afloat_sim::clock::{Clock, Timings};
use afloat_sim::kubelet::HealthBoard;
use afloat_sim::scenario::{Scenario, Shape};
use afloat_sim::tier2;
use afloat_sim::world::{Cast, Machines, World, WorldOptions};
use http::HeaderValue;
use http::header::USER_AGENT;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use tokio::task::JoinHandle;
use tower::ServiceExt as _;

/// What an operator calls itself to the server.
pub const OPERATOR: &str = "afloat-operator";
/// The upgrade of a play.
pub const UPGRADE: &str = "edge-1";
/// Until the machines are up and every workload runs.
const SETTLED: Duration = Duration::from_mins(1);
/// How long an operator that ended is away.
const STARTED_AGAIN: Duration = Duration::from_secs(5);
/// How often the collector looks whether something changed.
const COLLECT: Duration = Duration::from_millis(500);
/// 2027-01-15, a Friday; any moment would do, as long as it is the same one.
const EPOCH: i64 = 1_800_000_000;

/// Why a play could not begin, or a question got no answer.
#[derive(Debug, thiserror::Error)]
pub enum PlayError {
    #[error(transparent)]
    Refused(#[from] kube::Error),
    #[error(transparent)]
    World(#[from] afloat_sim::world::PopulateError),
    #[error("the ground of the cluster was refused: {0:?}")]
    Ground(afloat_sim::request::Failure),
    #[error("the epoch is no moment: {0}")]
    Epoch(#[from] jiff::Error),
}

/// What is played.
#[derive(Clone, Debug)]
pub struct Setting {
    pub scenario: Scenario,
    pub shape: Shape,
    pub machines: Machines,
    pub timings: Timings,
    pub seed: u64,
    /// So many operators stand for election; one works without.
    pub operators: usize,
}

impl Setting {
    /// From one version to another, with nothing wrong.
    pub fn new(scenario: Scenario, from: &str, to: &str) -> Self {
        Self {
            scenario,
            shape: Shape {
                version: from.to_owned(),
                ..scenario.default_shape()
            },
            machines: Machines {
                versions: tier2::releases(from, to),
                ..Machines::default()
            },
            timings: Timings::default(),
            seed: 7,
            operators: 1,
        }
    }
}

/// The server tells the time of the world.
struct WorldTime(Clock);

impl ServerClock for WorldTime {
    fn now(&self) -> jiff::Timestamp {
        self.0.now()
    }
}

/// A running cluster; all of it ends when this is dropped.
pub struct Play {
    pub server: ApiServer,
    /// A person's client.
    pub client: Client,
    pub clock: Clock,
    health: HealthBoard,
    operators: Vec<Option<JoinHandle<()>>>,
    collector: JoinHandle<()>,
    _world: World,
}

impl Drop for Play {
    fn drop(&mut self) {
        self.collector.abort();
        for operator in self.operators.iter().flatten() {
            operator.abort();
        }
    }
}

impl Play {
    /// Brings up the cluster; its operators are not started yet.
    pub async fn start(setting: &Setting) -> Result<Self, PlayError> {
        let clock = Clock::starting_at(jiff::Timestamp::from_second(EPOCH)?);
        let server = ApiServer::new(Options {
            clock: Arc::new(WorldTime(clock)),
            seed: setting.seed,
            ..Options::default()
        });
        let collector = tokio::spawn(Collector::new(server.clone()).run(COLLECT));
        let client = server.client();
        let definitions = Api::all(client.clone());
        for definition in afloat_api::crds::all() {
            definitions.create(&PostParams::default(), &definition).await?;
        }
        let options = WorldOptions {
            seed: setting.seed,
            clock,
            timings: setting.timings.clone(),
            cast: Cast::default(),
            machines: setting.machines.clone(),
        };
        let world = World::start(client.clone(), setting.scenario.describe(&setting.shape), options);
        world.populate().await?;
        tier2::lay_ground(&client, &setting.shape.version, &setting.machines.versions)
            .await
            .map_err(PlayError::Ground)?;
        tokio::time::sleep(SETTLED).await;
        let operators = std::iter::repeat_with(|| None).take(setting.operators).collect();
        Ok(Self {
            server,
            client,
            clock,
            health: world.health(),
            operators,
            collector,
            _world: world,
        })
    }

    pub fn health(&self) -> HealthBoard {
        self.health.clone()
    }

    pub fn operators(&self) -> usize {
        self.operators.len()
    }

    /// Starts an operator, or starts it again after killing it.
    pub fn start_operator(&mut self, index: usize) {
        self.kill_operator(index);
        let make = self.operator(index);
        let task = tokio::spawn(async move {
            // One that ends by itself (another took its lease) is started again, as the kubelet does it.
            loop {
                let _ended = afloat_operator::run(make(), std::future::pending()).await;
                tokio::time::sleep(STARTED_AGAIN).await;
            }
        });
        if let Some(seat) = self.operators.get_mut(index) {
            *seat = Some(task);
        }
    }

    /// Dropped in the middle of whatever it does, as a killed process is.
    pub fn kill_operator(&mut self, index: usize) {
        if let Some(task) = self.operators.get_mut(index).and_then(Option::take) {
            task.abort();
        }
    }

    fn operator(&self, index: usize) -> impl Fn() -> OperatorConfig + Send + use<> {
        let named = self.server.service().map_request(|mut request: http::Request<_>| {
            let name = HeaderValue::from_static(OPERATOR);
            request.headers_mut().insert(USER_AGENT, name);
            request
        });
        let client = Client::new(named, "default");
        let (clock, health, leader_election) = (self.clock, self.health.clone(), self.operators.len() > 1);
        move || OperatorConfig {
            leader_election,
            ..tier2::operator(client.clone(), clock, health.clone(), &format!("afloat-{index}"))
        }
    }

    pub fn upgrades(&self) -> Api<ClusterUpgrade> {
        Api::namespaced(self.client.clone(), tier2::HOME)
    }

    /// Asks for the upgrade.
    pub async fn ask(&self, spec: ClusterUpgradeSpec) -> Result<(), PlayError> {
        let upgrade = ClusterUpgrade::new(UPGRADE, spec);
        self.upgrades().create(&PostParams::default(), &upgrade).await?;
        Ok(())
    }

    /// A person looks after a while, and accepts whatever the preflight warns of.
    pub async fn accept_warnings(&self, after: Duration) -> Result<(), PlayError> {
        tokio::time::sleep(after).await;
        // An API that is away by now belongs to an upgrade that has passed its preflight.
        let Ok(Some(upgrade)) = self.upgrades().get_opt(UPGRADE).await else {
            return Ok(());
        };
        let preflight = upgrade.status.unwrap_or_default().preflight;
        let findings = preflight.map(|preflight| preflight.findings).unwrap_or_default();
        let warnings = findings.iter().filter(|finding| finding.severity == Severity::Warning);
        let accept: Vec<String> = warnings.map(accept_key).collect();
        if !accept.is_empty() {
            let patch = serde_json::json!({ "spec": { "accept": accept } });
            let parameters = PatchParams::default();
            self.upgrades()
                .patch(UPGRADE, &parameters, &Patch::Merge(&patch))
                .await?;
        }
        Ok(())
    }

    /// The phase and what is said about it; nothing when the upgrade is gone.
    pub async fn phase(&self) -> Result<Option<(Phase, String)>, PlayError> {
        let Some(upgrade) = self.upgrades().get_opt(UPGRADE).await? else {
            return Ok(None);
        };
        let status = upgrade.status.unwrap_or_default();
        let ready = status.conditions.iter().find(|condition| condition.type_ == "Ready");
        let message = ready.map(|condition| condition.message.clone()).unwrap_or_default();
        Ok(Some((status.phase.unwrap_or_default(), message)))
    }

    /// Waits for an end, for so long at most; says how it ended, or how it stands.
    pub async fn ended(&self, within: Duration) -> Result<Option<(Phase, String)>, PlayError> {
        let start = tokio::time::Instant::now();
        loop {
            let late = start.elapsed() > within;
            match self.phase().await {
                // The API server of a single control plane is away now and then.
                Err(PlayError::Refused(kube::Error::Api(_))) if !late => {}
                Err(error) => return Err(error),
                Ok(Some((phase, _))) if !late && !is_over(phase) => {}
                Ok(now) => return Ok(now),
            }
            tokio::time::sleep(Duration::from_secs(5)).await;
        }
    }

    /// Every node's upgrade in a line, for whoever has to find out why it did not end.
    pub async fn told(&self) -> Result<String, PlayError> {
        let api: Api<NodeKubeadmUpgrade> = Api::namespaced(self.client.clone(), tier2::HOME);
        let line = |upgrade: &NodeKubeadmUpgrade| {
            let status = upgrade.status.clone().unwrap_or_default();
            format!(
                "{} {:?} {:?} {:?} {:?}\n",
                upgrade.name_any(),
                upgrade.spec.desired,
                status.state,
                status.waiting_for.map(|wait| wait.message),
                status.failure.map(|failure| failure.message),
            )
        };
        Ok(api.list(&ListParams::default()).await?.items.iter().map(line).collect())
    }
}

pub fn is_over(phase: Phase) -> bool {
    matches!(phase, Phase::Succeeded | Phase::Failed | Phase::Aborted)
}

/// What a person asks for who accepts what the scenarios lose.
pub fn spec(to: &str) -> ClusterUpgradeSpec {
    ClusterUpgradeSpec {
        kubernetes_version: to.to_owned(),
        drain: Some(DrainOption {
            delete_empty_dir_data: Some(true),
            evict_unmanaged_pods: Some(true),
            ..DrainOption::default()
        }),
        ..ClusterUpgradeSpec::default()
    }
}

//! A Harvester-like cluster with its API server, its actors and an operator that can be killed. What must never happen is in
//! `watchman`, how it must end in `verdict`.

use std::sync::Arc;
use std::time::Duration;

use afloat_api::labels::HARVESTER_LATEST_UPGRADE;
use afloat_apisim::gc::Collector;
use afloat_apisim::hooks::WriteObserver;
use afloat_apisim::{ApiServer, Clock as ServerClock, Options};
use afloat_core::hci::view::HciKind;
use afloat_operator::hci::HciOptions;
use afloat_operator::snapshot::hci::served;
use afloat_operator::{OperatorConfig, OperatorError};
use afloat_sim::clock::{Clock, Timings};
use afloat_sim::hci::{HciWorld, HciWorldOptions, SYSTEM, Script, operator_options};
use afloat_sim::kubelet::HealthBoard;
use afloat_sim::tier2;
use http::HeaderValue;
use http::header::USER_AGENT;
use k8s_openapi::api::core::v1::Node;
use kube::api::{DynamicObject, ListParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tower::ServiceExt as _;

use super::watchman::Watchman;
use crate::play::{OPERATOR, PlayError};

/// The Upgrade of a play.
pub const UPGRADE: &str = "hvst-upgrade-1";
/// The Kubernetes below the simulated Harvester.
const VERSION: &str = "v1.33.5";
const EPOCH: i64 = 1_800_000_000;
/// How often somebody looks.
const LOOK: Duration = Duration::from_secs(30);
/// How often the collector looks whether something changed.
const COLLECT: Duration = Duration::from_secs(5);

/// The server tells the time of the world.
struct WorldTime(Clock);

impl ServerClock for WorldTime {
    fn now(&self) -> jiff::Timestamp {
        self.0.now()
    }
}

/// A running cluster; all of it ends when this is dropped.
pub struct HciPlay {
    pub server: ApiServer,
    /// A person's client.
    pub client: Client,
    pub clock: Clock,
    pub script: Script,
    pub watchman: Arc<Watchman>,
    pub world: HciWorld,
    /// What the operator and the tasks of Jobs use.
    own: Client,
    hci: HciOptions,
    operator: JoinHandle<Result<(), OperatorError>>,
    collector: JoinHandle<()>,
}

impl Drop for HciPlay {
    fn drop(&mut self) {
        self.operator.abort();
        self.collector.abort();
    }
}

impl HciPlay {
    /// Brings up the cluster and its operator; nobody has asked for an upgrade yet.
    pub async fn start(script: Script, seed: u64) -> Result<Self, PlayError> {
        let clock = Clock::starting_at(jiff::Timestamp::from_second(EPOCH)?);
        let server = ApiServer::new(Options {
            clock: Arc::new(WorldTime(clock)),
            seed,
            ..Options::default()
        });
        let collector = tokio::spawn(Collector::new(server.clone()).run(COLLECT));
        let watchman = Arc::new(Watchman::new(clock));
        server.observe(Arc::clone(&watchman) as Arc<dyn WriteObserver>);
        let client = server.client();
        let definitions = Api::all(client.clone());
        for definition in afloat_api::crds::own() {
            definitions.create(&PostParams::default(), &definition).await?;
        }
        let named = server.service().map_request(|mut request: http::Request<_>| {
            let name = HeaderValue::from_static(OPERATOR);
            request.headers_mut().insert(USER_AGENT, name);
            request
        });
        let own = Client::new(named, "default");
        let options = HciWorldOptions {
            seed,
            clock,
            timings: Timings::default(),
            trouble: script.trouble.clone(),
            people: script.people.clone(),
            task_client: Some(own.clone()),
            charts: None,
        };
        let world = HciWorld::start(client.clone(), &script.ground, options)
            .await
            .map_err(PlayError::Ground)?;
        tier2::lay_ground(&client, VERSION, &[])
            .await
            .map_err(PlayError::Ground)?;
        let hci = operator_options(&script.ground, &script.trouble);
        let operator = tokio::spawn(afloat_operator::run(config(&own, clock, &hci), std::future::pending()));
        Ok(Self {
            server,
            client,
            clock,
            script,
            watchman,
            world,
            own,
            hci,
            operator,
            collector,
        })
    }

    /// The operator ends wherever it is.
    pub fn stop_operator(&mut self) {
        self.operator.abort();
    }

    /// The operator ends wherever it is, and begins anew.
    pub fn kill_operator(&mut self) {
        self.stop_operator();
        let config = config(&self.own, self.clock, &self.hci);
        self.operator = tokio::spawn(afloat_operator::run(config, std::future::pending()));
    }

    /// The same with the tasks of Jobs.
    pub fn kill(&mut self) {
        self.kill_operator();
        self.world.kill_tasks();
    }

    pub fn api(&self, kind: HciKind) -> Api<DynamicObject> {
        Api::all_with(self.client.clone(), &served(kind).resource)
    }

    pub fn in_namespace(&self, kind: HciKind, namespace: &str) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), namespace, &served(kind).resource)
    }

    pub fn upgrades(&self) -> Api<DynamicObject> {
        self.in_namespace(HciKind::Upgrade, SYSTEM)
    }

    /// Asks for the upgrade.
    pub async fn ask(&self) -> Result<(), PlayError> {
        let body = json!({ "version": "v1.7.0", "logEnabled": true });
        let mut upgrade = DynamicObject::new(UPGRADE, &served(HciKind::Upgrade).resource).data(json!({ "spec": body }));
        upgrade.metadata.annotations = Some(self.script.annotations());
        self.upgrades().create(&PostParams::default(), &upgrade).await?;
        Ok(())
    }

    /// The Upgrade as it is, or the one that was begun after it; null when it is gone.
    pub async fn upgrade(&self) -> Result<Value, PlayError> {
        let mut all = self.upgrades().list(&ListParams::default()).await?.items;
        let is_latest = |upgrade: &DynamicObject| {
            let labels = upgrade.metadata.labels.as_ref();
            labels.is_some_and(|labels| labels.get(HARVESTER_LATEST_UPGRADE).is_some_and(|word| word == "true"))
        };
        // Of those that were begun the last one, or else the first that was asked for.
        all.retain(|upgrade| upgrade.metadata.name.as_deref() == Some(UPGRADE) || is_latest(upgrade));
        all.sort_by_key(|upgrade| {
            (
                is_latest(upgrade),
                upgrade.metadata.creation_timestamp.as_ref().map(|time| time.0),
            )
        });
        let Some(upgrade) = all.pop() else {
            return Ok(Value::Null);
        };
        let mut value = upgrade.data;
        value["metadata"] = json!(upgrade.metadata);
        Ok(value)
    }

    pub async fn all(&self, kind: HciKind) -> Result<Vec<DynamicObject>, PlayError> {
        Ok(self.api(kind).list(&ListParams::default()).await?.items)
    }

    pub async fn nodes(&self) -> Result<Vec<Node>, PlayError> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        Ok(nodes.list(&ListParams::default()).await?.items)
    }

    /// Lets up to so long of the world pass until the Upgrade is so; whether it came to it.
    pub async fn until(&self, within: Duration, mut holds: impl FnMut(&Value) -> bool) -> Result<bool, PlayError> {
        let end = tokio::time::Instant::now() + within;
        loop {
            if holds(&self.upgrade().await?) {
                return Ok(true);
            }
            if tokio::time::Instant::now() > end {
                return Ok(false);
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}

fn config(client: &Client, clock: Clock, hci: &HciOptions) -> OperatorConfig {
    OperatorConfig {
        hci: hci.clone(),
        ..tier2::operator(client.clone(), clock, HealthBoard::default(), "afloat-1")
    }
}

/// The status of a condition of an Upgrade.
pub fn condition<'a>(upgrade: &'a Value, kind: &str) -> Option<&'a str> {
    let conditions = upgrade["status"]["conditions"].as_array()?;
    conditions.iter().find(|condition| condition["type"] == kind)?["status"].as_str()
}

/// It has ended, well or not, and is cleaned up after.
pub fn is_over(upgrade: &Value, well: bool) -> bool {
    let cleaned = &upgrade["metadata"]["labels"]["harvesterhci.io/upgradeCleanup"];
    condition(upgrade, "Completed") == Some(if well { "True" } else { "False" }) && cleaned == "Succeeded"
}

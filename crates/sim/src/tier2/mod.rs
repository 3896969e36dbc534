//! The real operator on a simulated cluster: what has to be there for it, and how it asks the simulated control planes. The
//! cluster itself is in [`crate::world`]; the simulation without an API server in `afloat-seeds`.

use std::sync::Arc;

use afloat_api::names;
use afloat_core::view::NodeName;
use afloat_operator::OperatorConfig;
use afloat_operator::clients::Clients;
use afloat_operator::clock::Clock as OperatorClock;
use afloat_operator::metrics::Metrics;
use afloat_operator::mind::Core;
use afloat_operator::prober::Prober;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::clock::Clock;
use crate::kubelet::HealthBoard;
use crate::request::Failure;
use crate::scenario::creation;

/// The namespace Afloat runs in.
pub const HOME: &str = "afloat-system";

/// The releases between two versions that a site would have: the newest of each minor version on the way, and the target.
pub fn releases(from: &str, to: &str) -> Vec<String> {
    let minor = |version: &str| version.split('.').nth(1).and_then(|text| text.parse::<u32>().ok());
    let (Some(first), Some(last)) = (minor(from), minor(to)) else {
        return vec![to.to_owned()];
    };
    let between = (first + 1..last).map(|minor| format!("v1.{minor}.4"));
    between.chain([to.to_owned()]).collect()
}

/// What a cluster needs before it can be upgraded: kubeadm's own notes, and which image brings which version.
pub fn ground(from: &str, versions: &[String]) -> Vec<Value> {
    let images: serde_json::Map<String, Value> = versions
        .iter()
        .map(|version| (version.clone(), json!(format!("example.org/afloat/upgrader:{version}"))))
        .collect();
    let config = format!(
        "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\nkubernetesVersion: {from}\netcd:\n  local:\n    dataDir: /var/lib/etcd\n"
    );
    vec![
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": HOME } }),
        json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": { "name": "kubeadm-config", "namespace": "kube-system" },
            "data": { "ClusterConfiguration": config },
        }),
        json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": { "name": names::IMAGES, "namespace": HOME },
            "data": images,
        }),
    ]
}

/// Makes the ground; what is there already stays.
pub async fn lay_ground(client: &kube::Client, from: &str, versions: &[String]) -> Result<(), Failure> {
    for object in ground(from, versions) {
        let Some(request) = creation(&object) else { continue };
        match request.send(client).await {
            Err(failure) if failure.reason != "AlreadyExists" => return Err(failure),
            _ => {}
        }
    }
    Ok(())
}

/// Asks the simulated control planes.
struct BoardProber(HealthBoard);

impl Prober for BoardProber {
    fn ready(&self, node: NodeName, _address: String) -> BoxFuture<'_, bool> {
        let health = self.0.of(node.as_str());
        async move { health.api_server }.boxed()
    }
}

/// The world's time, for the operator.
struct WorldClock(Clock);

impl OperatorClock for WorldClock {
    fn now(&self) -> Timestamp {
        self.0.now()
    }
}

/// An operator for the cluster behind `client`; alone, so without an election.
pub fn operator(client: kube::Client, clock: Clock, health: HealthBoard, identity: &str) -> OperatorConfig {
    let metrics = Metrics::default();
    OperatorConfig {
        clients: Clients::of(client).counted(&metrics),
        home: HOME.to_owned(),
        identity: identity.to_owned(),
        clock: Arc::new(WorldClock(clock)),
        mind: Arc::new(Core),
        prober: Arc::new(BoardProber(health)),
        listen: None,
        leader_election: false,
        metrics,
        hci: afloat_operator::hci::HciOptions::default(),
    }
}

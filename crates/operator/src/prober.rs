//! How the control planes are beyond what API objects say: `/readyz` of each node's own API server, asked directly, and how its
//! etcd member is, from its pod and from what steps reported. Asked only while an upgrade is under way.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Duration;

use afloat_api::clusterupgrade::Phase;
use afloat_core::gates::READY_IN_A_ROW;
use afloat_core::objects::Standing;
use afloat_core::view::{Component, ControlPlaneHealth, EtcdMember, Health, NodeName, PodPhase, View};
use futures::future::{BoxFuture, join_all};
use jiff::{SignedDuration, Timestamp};

use crate::gates::{under_way, undoing_is_asked_for};

/// More in a row say nothing more, and would be a change each time.
const COUNTED: u32 = READY_IN_A_ROW;
/// No answer within this time is no.
const ANSWER_WITHIN: Duration = Duration::from_secs(3);
/// How often is asked while a control plane is being upgraded, or an upgrade is about to begin.
const BUSY: Duration = Duration::from_secs(1);
/// How often otherwise, while an upgrade is under way.
const CALM: Duration = Duration::from_secs(5);
/// Where kubeadm's API servers listen.
const PORT: u16 = 6443;

/// Asks the API server of one control-plane node whether it is ready.
pub trait Prober: Send + Sync {
    fn ready(&self, node: NodeName, address: String) -> BoxFuture<'_, bool>;
}

/// Asks over HTTPS, with the cluster's CA and without any credential: `/readyz` is open to everybody by default.
pub struct HttpsProber {
    config: kube::Config,
    port: u16,
    clients: Mutex<BTreeMap<String, kube::Client>>,
}

impl HttpsProber {
    /// Takes the CA from `config`, and nothing else.
    pub fn new(config: &kube::Config) -> Self {
        let mut bare = kube::Config::new(config.cluster_url.clone());
        bare.root_cert.clone_from(&config.root_cert);
        bare.accept_invalid_certs = config.accept_invalid_certs;
        bare.default_retry = false;
        bare.connect_timeout = Some(ANSWER_WITHIN);
        bare.read_timeout = Some(ANSWER_WITHIN);
        Self {
            config: bare,
            port: PORT,
            clients: Mutex::default(),
        }
    }

    /// For API servers that listen elsewhere than kubeadm has them (`--apiserver-bind-port`).
    #[must_use]
    pub fn at_port(mut self, port: u16) -> Self {
        self.port = port;
        self
    }

    fn client(&self, address: &str) -> Option<kube::Client> {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = clients.get(address) {
            return Some(client.clone());
        }
        let host = if address.contains(':') {
            format!("[{address}]")
        } else {
            address.to_owned()
        };
        let mut config = self.config.clone();
        config.cluster_url = format!("https://{host}:{}", self.port).parse().ok()?;
        let client = kube::Client::try_from(config).ok()?;
        clients.insert(address.to_owned(), client.clone());
        Some(client)
    }
}

impl Prober for HttpsProber {
    fn ready(&self, node: NodeName, address: String) -> BoxFuture<'_, bool> {
        Box::pin(async move {
            let Some(client) = self.client(&address) else {
                return false;
            };
            let Ok(request) = http::Request::get("/readyz").body(Vec::new()) else {
                return false;
            };
            match tokio::time::timeout(ANSWER_WITHIN, client.request_text(request)).await {
                Ok(Ok(_)) => true,
                Ok(Err(error)) => {
                    tracing::debug!(%node, %error, "/readyz did not answer ok");
                    false
                }
                Err(_) => false,
            }
        })
    }
}

/// Asks the API for the mirror of each node's API server instead of the API server itself: for sites where the control planes'
/// own addresses cannot be reached from pods. The kubelet's word comes some seconds later than the endpoint's.
pub struct MirrorProber {
    client: kube::Client,
}

impl MirrorProber {
    pub fn new(client: kube::Client) -> Self {
        Self { client }
    }
}

impl Prober for MirrorProber {
    fn ready(&self, node: NodeName, _address: String) -> BoxFuture<'_, bool> {
        let pods: kube::Api<k8s_openapi::api::core::v1::Pod> =
            kube::Api::namespaced(self.client.clone(), "kube-system");
        Box::pin(async move {
            let name = format!("kube-apiserver-{node}");
            let asked = tokio::time::timeout(ANSWER_WITHIN, pods.get_opt(&name)).await;
            let Ok(Ok(Some(pod))) = asked else { return false };
            let conditions = pod.status.and_then(|status| status.conditions).unwrap_or_default();
            conditions
                .iter()
                .any(|condition| condition.type_ == "Ready" && condition.status == "True")
        })
    }
}

/// Answers that came so long after those before them are not in a row with these: the process slept, or nobody asked meanwhile.
const IN_A_ROW_WITHIN: SignedDuration = SignedDuration::from_mins(1);

/// What is remembered between two rounds.
#[derive(Debug, Default)]
pub struct Probes {
    in_a_row: BTreeMap<NodeName, u32>,
    counted_at: Option<Timestamp>,
}

impl Probes {
    /// Counts the answers of one round. Nodes that were not asked are forgotten.
    pub fn count(&mut self, answers: BTreeMap<NodeName, bool>, now: Timestamp) {
        let last = self.counted_at.replace(now);
        let follows = last.is_some_and(|last| now.duration_since(last) <= IN_A_ROW_WITHIN);
        let before = if follows {
            std::mem::take(&mut self.in_a_row)
        } else {
            BTreeMap::new()
        };
        self.in_a_row = answers
            .into_iter()
            .map(|(node, ready)| {
                let known = before.get(&node).copied().unwrap_or_default();
                (node, if ready { (known + 1).min(COUNTED) } else { 0 })
            })
            .collect();
    }

    /// Nobody is asked any more: what was answered says nothing about whoever begins later.
    pub fn forget(&mut self) {
        *self = Self::default();
    }

    /// Health as far as it is known now.
    pub fn health(&self, view: &View) -> Health {
        view.control_plane_nodes()
            .filter_map(|node| {
                let health = ControlPlaneHealth {
                    readyz_in_a_row: *self.in_a_row.get(&node.name)?,
                    etcd: etcd(view, &node.name),
                };
                Some((node.name.clone(), health))
            })
            .collect()
    }
}

/// What its kubelet says of the member. How far it is behind is known to members alone: nodes ask them before they stand aside and
/// before they come back.
fn etcd(view: &View, node: &NodeName) -> Option<EtcdMember> {
    let (pod, _) = view
        .static_parts(node)
        .find(|(_, part)| part.component == Component::Etcd)?;
    Some(EtcdMember {
        healthy: pod.ready && pod.phase == PodPhase::Running,
    })
}

/// How long until the next round; `None` while nothing needs to be known.
pub fn pause(view: &View) -> Option<Duration> {
    let mut nodes = view.node_upgrades().values();
    let busy = nodes.any(|upgrade| {
        let name = upgrade.spec.node.name.as_str();
        let control_plane = view.nodes.get(name).is_some_and(|node| node.control_plane);
        control_plane && Standing::of(upgrade).in_flight()
    });
    // An upgrade that has not begun waits for these very answers.
    let waits = view.upgrades.values().any(|upgrade| {
        let phase = upgrade
            .status
            .as_ref()
            .and_then(|status| status.phase)
            .unwrap_or_default();
        under_way(upgrade) && phase <= Phase::Preflight
    });
    if busy || waits {
        return Some(BUSY);
    }
    let any = view.upgrades.values().any(|upgrade| under_way(upgrade))
        || undoing_is_asked_for(view)
        || view
            .node_upgrades()
            .values()
            .any(|upgrade| !Standing::of(upgrade).ended());
    any.then_some(CALM)
}

/// The control planes to ask, by their addresses.
pub fn addresses(view: &View) -> Vec<(NodeName, Option<String>)> {
    let nodes = view.control_plane_nodes();
    nodes
        .map(|node| (node.name.clone(), node.internal_ip.as_deref().map(str::to_owned)))
        .collect()
}

/// Asks all at once; whoever has no address does not answer.
pub async fn ask(prober: &dyn Prober, nodes: Vec<(NodeName, Option<String>)>) -> BTreeMap<NodeName, bool> {
    let asked = nodes.into_iter().map(|(node, address)| async move {
        let ready = match address {
            Some(address) => prober.ready(node.clone(), address).await,
            None => false,
        };
        (node, ready)
    });
    join_all(asked).await.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::raw::{RawNode, RawPod};
    use crate::snapshot::{Keeper, reduce};
    use serde_json::{Value, json};

    fn keeper(pods: &[Value]) -> Keeper {
        let mut keeper = Keeper::new("afloat");
        let node = json!({"metadata": {"name": "cp-1", "uid": "n", "resourceVersion": "1",
            "labels": {"node-role.kubernetes.io/control-plane": ""}}});
        keeper.seen(reduce::node(serde_json::from_value::<RawNode>(node).unwrap()).unwrap());
        for pod in pods {
            keeper.seen(reduce::pod(serde_json::from_value::<RawPod>(pod.clone()).unwrap()).unwrap());
        }
        keeper
    }

    fn etcd_pod(ready: &str) -> Value {
        json!({
            "metadata": {"name": "etcd-cp-1", "namespace": "kube-system", "uid": "e", "resourceVersion": "2",
                "labels": {"component": "etcd"}, "annotations": {"kubernetes.io/config.mirror": "x"}},
            "spec": {"nodeName": "cp-1", "containers": [{"image": "etcd:3.6.8-0"}]},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]},
        })
    }

    #[test]
    fn answers_in_a_row_are_counted_up_to_a_bound_and_one_no_begins_anew() {
        let view = keeper(&[]);
        let name = NodeName::from("cp-1");
        let mut probes = Probes::default();
        assert!(probes.health(view.view()).is_empty(), "not asked yet");
        let mut seen = Vec::new();
        for ready in [true, true, false, true] {
            probes.count(BTreeMap::from([(name.clone(), ready)]), Timestamp::UNIX_EPOCH);
            seen.push(probes.health(view.view())[&name].readyz_in_a_row);
        }
        assert_eq!(seen, [1, 2, 0, 1]);
        for _ in 0..2 * COUNTED {
            probes.count(BTreeMap::from([(name.clone(), true)]), Timestamp::UNIX_EPOCH);
        }
        assert_eq!(probes.health(view.view())[&name].readyz_in_a_row, COUNTED);
    }

    /// An API server may flap for hours while nobody looks.
    #[test]
    fn answers_of_long_ago_are_in_no_row() {
        let view = keeper(&[]);
        let name = NodeName::from("cp-1");
        let mut probes = Probes::default();
        let mut asked_at = |second: i64| {
            let answers = BTreeMap::from([(name.clone(), true)]);
            probes.count(answers, Timestamp::from_second(second).unwrap());
            probes.health(view.view())[&name].readyz_in_a_row
        };
        let calm = i64::try_from(CALM.as_secs()).unwrap();
        assert_eq!([0, calm, 2 * calm].map(&mut asked_at), [1, 2, 3]);
        assert_eq!(asked_at(3600), 1);
        assert_eq!(asked_at(3600 + calm), 2);
        probes.forget();
        assert!(probes.health(view.view()).is_empty());
    }

    #[test]
    fn etcd_is_known_from_its_pod() {
        let name = NodeName::from("cp-1");
        let mut probes = Probes::default();
        probes.count(BTreeMap::from([(name.clone(), true)]), Timestamp::UNIX_EPOCH);
        let healthy = |pods: &[Value]| {
            let health = probes.health(keeper(pods).view());
            health[&name].etcd.as_ref().map(|member| member.healthy)
        };
        assert_eq!(healthy(&[]), None);
        assert_eq!(healthy(&[etcd_pod("False")]), Some(false));
        assert_eq!(healthy(&[etcd_pod("True")]), Some(true));
    }

    #[tokio::test]
    async fn an_api_server_is_asked_over_https_without_a_credential() {
        let server = afloat_apisim::ApiServer::new(afloat_apisim::Options::default());
        let options = afloat_apisim::https::Options {
            listen: "127.0.0.1:0".parse().unwrap(),
            token: "secret".into(),
        };
        let running = afloat_apisim::https::serve(server, options).await.unwrap();
        let kubeconfig = kube::config::Kubeconfig::from_yaml(&running.kubeconfig("test")).unwrap();
        let options = kube::config::KubeConfigOptions::default();
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options)
            .await
            .unwrap();
        let prober = HttpsProber::new(&config).at_port(running.address().port());
        let nodes = |address: Option<&str>| vec![(NodeName::from("cp-1"), address.map(str::to_owned))];
        assert!(ask(&prober, nodes(Some("127.0.0.1"))).await["cp-1"]);
        assert!(!ask(&prober, nodes(None)).await["cp-1"], "no address, no answer");
        running.shutdown().await;
        assert!(!ask(&prober, nodes(Some("127.0.0.1"))).await["cp-1"], "nobody is there");
    }

    #[test]
    fn nobody_is_asked_while_nothing_is_under_way() {
        assert_eq!(pause(keeper(&[]).view()), None);
    }
}

//! The cluster a command is about: how it is reached, what it looks like now, and how that is kept true while somebody looks.
//! Everything is read by the operator's own watches, so that both see the same.

use crate::args::people::Place;
use crate::problem::{Code, Problem};
use afloat_api::ClusterUpgrade;
use afloat_core::hci::view::HciKind;
use afloat_core::view::View;
use afloat_operator::clients::{CALL_LIMIT, CallError, Clients, bounded};
use afloat_operator::hci::kinds_served;
use afloat_operator::snapshot::feed::Feed;
use afloat_operator::snapshot::hci::for_tasks_alone;
use afloat_operator::snapshot::{Keeper, Kind, News};
use jiff::{SignedDuration, Timestamp};
use kube::api::ListParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client};
use strum::IntoEnumIterator as _;

/// What the status of an upgrade is made of; pods and workloads, of which there may be very many, are not.
const FEW: &[Kind] = &[
    Kind::Node,
    Kind::ClusterUpgrade,
    Kind::ControlPlaneKubeadmUpgrade,
    Kind::WorkersKubeadmUpgrade,
    Kind::NodeKubeadmUpgrade,
    Kind::VirtualIpLease,
    Kind::UpgradeLock,
];

/// How much of a cluster is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Nodes and upgrades.
    Upgrades,
    /// Everything the core decides by.
    Everything,
}

impl Scope {
    fn kinds(self) -> Vec<Kind> {
        match self {
            Self::Upgrades => FEW.to_vec(),
            Self::Everything => Kind::iter().collect(),
        }
    }
}

/// What the status of an upgrade of Harvester is made of.
const FEW_HCI: &[HciKind] = &[HciKind::Upgrade, HciKind::Upstream, HciKind::Cluster];

impl Scope {
    /// The kinds of Harvester that the cluster has, as far as they are looked at.
    async fn hci(self, cluster: &Cluster) -> Result<Vec<HciKind>, Problem> {
        let served = kinds_served(cluster.client.clone()).await;
        let served = served.map_err(|error| {
            because_of(
                Problem::new(Code::Failed, "cannot learn which kinds the cluster serves"),
                &error,
            )
        })?;
        let looked_at = |kind: &HciKind| match self {
            Self::Everything => !for_tasks_alone(*kind),
            Self::Upgrades => FEW_HCI.contains(kind),
        };
        Ok(served.into_iter().filter(looked_at).collect())
    }
}

/// A cluster that answers and knows Afloat.
#[derive(Clone)]
pub struct Cluster {
    pub client: Client,
    /// The operator's namespace.
    pub home: String,
}

impl Cluster {
    pub async fn connect(place: &Place) -> Result<Self, Problem> {
        let config = config(place).await?;
        let server = config.cluster_url.to_string();
        let clients = Clients::new(config).map_err(|error| unreachable(&server).root(&error))?;
        let cluster = Self::of(clients.api, &place.namespace);
        cluster.greet(&server).await?;
        Ok(cluster)
    }

    pub fn of(client: Client, home: &str) -> Self {
        Self {
            client,
            home: home.to_owned(),
        }
    }

    /// One small question, so that what is wrong is said in one place and in words.
    async fn greet(&self, server: &str) -> Result<(), Problem> {
        let asked = bounded(self.upgrades().list(&ListParams::default().limit(1))).await;
        let Err(error) = asked else {
            return Ok(());
        };
        Err(match &error {
            CallError::Refused(kube::Error::Api(status)) if status.code == 404 => Problem::new(
                Code::Failed,
                format!("Afloat is not installed in the cluster at {server}"),
            )
            .because("it knows no ClusterUpgrade of afloat.dev")
            .help("kubectl apply -f deploy/crds")
            .help("another cluster: --kubeconfig FILE, --context NAME"),
            CallError::Refused(kube::Error::Api(status)) if status.code == 401 => {
                Problem::new(Code::Failed, format!("the cluster at {server} does not know you"))
                    .because(status.message.clone())
                    .help("log in again, or name another kubeconfig: --kubeconfig FILE")
            }
            CallError::Refused(kube::Error::Api(status)) if status.code == 403 => Problem::new(
                Code::Failed,
                format!("you may not read upgrades in the namespace {}", self.home),
            )
            .because(status.message.clone())
            .help(format!(
                "kubectl -n {} auth can-i list clusterupgrades.afloat.dev",
                self.home
            )),
            _ => because_of(unreachable(server), &error),
        })
    }

    pub fn upgrades(&self) -> Api<ClusterUpgrade> {
        Api::namespaced(self.client.clone(), &self.home)
    }

    /// The cluster as it is now.
    pub async fn look(&self, scope: Scope) -> Result<Live, Problem> {
        Live::start(self, scope).await
    }
}

/// Where the cluster is and who asks.
pub async fn config(place: &Place) -> Result<kube::Config, Problem> {
    let options = KubeConfigOptions {
        context: place.context.clone(),
        ..KubeConfigOptions::default()
    };
    let found = match (&place.kubeconfig, &place.context) {
        (Some(file), _) => {
            let read = Kubeconfig::read_from(file).map_err(|error| {
                Problem::new(Code::BadUsage, format!("cannot read the kubeconfig {}", file.display())).root(&error)
            })?;
            kube::Config::from_custom_kubeconfig(read, &options).await
        }
        (None, Some(_)) => kube::Config::from_kubeconfig(&options).await,
        (None, None) => {
            return kube::Config::infer().await.map_err(|error| {
                Problem::new(Code::BadUsage, "no cluster is named")
                    .root(&error)
                    .help("export KUBECONFIG=FILE, or --kubeconfig FILE")
                    .help("to try it without a cluster: afloat sandbox")
            });
        }
    };
    found.map_err(|error| {
        Problem::new(Code::BadUsage, "the kubeconfig names no cluster that can be used")
            .root(&error)
            .help("kubectl config get-contexts")
    })
}

/// Why a call brought nothing: what the API server said, else the first cause.
pub fn because_of(problem: Problem, error: &CallError) -> Problem {
    match error {
        CallError::Refused(kube::Error::Api(status)) => problem.because(status.message.clone()),
        other => problem.root(other),
    }
}

pub fn unreachable(server: &str) -> Problem {
    Problem::new(Code::Failed, format!("the cluster at {server} does not answer"))
        .help("kubectl get --raw /readyz")
        .help("another cluster: --kubeconfig FILE, --context NAME")
}

/// A view of the cluster that follows it.
pub struct Live {
    feed: Feed,
    keeper: Keeper,
    silence: Silence,
}

/// How long nothing was heard. A watch that breaks off says little: the API server behind it may have ended while others serve, and the watch
/// goes on there without a word. Only watches that break off again and again mean that nobody answers.
#[derive(Debug, Default)]
struct Silence {
    /// When the first broke off since something was last heard, and when the last did.
    broken: Option<(Timestamp, Timestamp)>,
}

impl Silence {
    /// Broken off for so long, it counts.
    const COUNTS: SignedDuration = SignedDuration::from_secs(3);
    /// A watch that fails is tried again before that is over: without a word since, it succeeded.
    const TRIED_AGAIN: SignedDuration = SignedDuration::from_secs(40);

    fn broke_off(&mut self, now: Timestamp) {
        let since = match self.broken {
            Some((since, last)) if now.duration_since(last) <= Self::TRIED_AGAIN => since,
            _ => now,
        };
        self.broken = Some((since, now));
    }

    fn heard(&mut self) {
        self.broken = None;
    }

    /// Since when nobody answers.
    fn since(&self) -> Option<Timestamp> {
        let (since, last) = self.broken?;
        (last.duration_since(since) >= Self::COUNTS).then_some(since)
    }
}

impl Live {
    async fn start(cluster: &Cluster, scope: Scope) -> Result<Self, Problem> {
        let kinds = scope.kinds();
        let mut live = Self {
            feed: Feed::only(&cluster.client, &cluster.home, &kinds),
            keeper: Keeper::new(&cluster.home),
            silence: Silence::default(),
        };
        let hci = scope.hci(cluster).await?;
        live.feed.follow_hci(&cluster.client, &hci);
        let mut kinds: Vec<Kind> = kinds.into_iter().chain(hci.into_iter().map(Kind::Hci)).collect();
        while !live.keeper.complete(kinds.iter().copied()) {
            match tokio::time::timeout(CALL_LIMIT, live.feed.next()).await {
                // Somebody who may not see Harvester's objects still sees a ClusterUpgrade.
                Ok(Some(News::Interrupted {
                    kind: kind @ Kind::Hci(_),
                    ..
                })) => kinds.retain(|other| *other != kind),
                Ok(Some(News::Interrupted { kind, problem })) => {
                    return Err(Problem::new(Code::Failed, format!("cannot list {}s", kind.word())).because(problem));
                }
                Ok(Some(news)) => {
                    live.keeper.take(news);
                }
                Ok(None) | Err(_) => {
                    return Err(Problem::new(Code::Failed, "the cluster stopped answering half-way")
                        .help("kubectl get --raw /readyz"));
                }
            }
        }
        Ok(live)
    }

    pub fn view(&self) -> &View {
        self.keeper.view()
    }

    pub fn silent_since(&self) -> Option<Timestamp> {
        self.silence.since()
    }

    /// Waits until something was told and takes in all that was. `false` once nothing more comes.
    pub async fn changed(&mut self) -> bool {
        let Some(first) = self.feed.next().await else {
            return false;
        };
        let mut next = Some(first);
        while let Some(news) = next {
            match &news {
                News::Interrupted { .. } => self.silence.broke_off(Timestamp::now()),
                _ => self.silence.heard(),
            }
            self.keeper.take(news);
            next = self.feed.ready();
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seconds at which watches break off; what is heard in between is a minus.
    fn silent_since(moments: &[i64]) -> Option<i64> {
        let mut silence = Silence::default();
        for moment in moments {
            if *moment < 0 {
                silence.heard();
            } else {
                silence.broke_off(Timestamp::from_second(*moment).unwrap());
            }
        }
        silence.since().map(Timestamp::as_second)
    }

    #[test]
    fn p32_one_api_server_that_ends_is_not_a_silence() {
        for (moments, expected) in [
            // All watches of one server at once.
            (&[10, 10, 11][..], None),
            (&[10, 11, 13], Some(10)),
            (&[10, 13, -1], None),
            (&[10, 13, -1, 20, 21], None),
            // The next server ends a minute later.
            (&[10, 10, 70], None),
            (&[10, 30, 60], Some(10)),
        ] {
            assert_eq!(silent_since(moments), expected, "{moments:?}");
        }
    }
}

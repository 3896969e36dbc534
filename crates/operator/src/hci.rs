//! What upgrades of Harvester need beside watches: which of their kinds the cluster serves, and what their repositories answer. Both
//! are asked again and again outside the loop; what follows from the answers is decided in the core.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use afloat_api::harvester::NAMESPACE;
use afloat_core::hci::view::HciKind;
use afloat_core::hci::{Tri, condition_of, config};
use afloat_core::view::{Key, View, WorkloadKind};
use futures::future::{BoxFuture, join_all};
use jiff::Timestamp;
use kube::{Client, Discovery};
use strum::IntoEnumIterator as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::clients::{CallError, Clients, bounded};
use crate::snapshot::feed::Feed;
use crate::snapshot::hci::{built_in, for_tasks_alone, served};
use crate::snapshot::{Keeper, Kind};
use crate::turns::Errand;
use crate::webhook::Door;

/// How often the cluster is asked which kinds it serves.
const LOOK_EVERY: Duration = Duration::from_mins(1);
/// How often a repository is asked that has not answered yet, and one that has.
const FETCH_OFTEN: Duration = Duration::from_secs(10);
const FETCH_SELDOM: Duration = Duration::from_mins(1);
/// How long a repository may take to answer.
const FETCH_LIMIT: Duration = Duration::from_secs(15);
/// No release file is longer; what is, is none.
const LARGEST: usize = 64 * 1024;
/// Where a repository has the file that describes its release.
const RELEASE_FILE: &str = "/harvester-iso/harvester-release.yaml";

/// What an operator needs to upgrade Harvester.
#[derive(Clone)]
pub struct HciOptions {
    /// Image of its Jobs: its own.
    pub image: String,
    /// How repositories are read; through the API server where absent.
    pub source: Option<Arc<dyn ReleaseSource>>,
    /// Where admission is served; nowhere where absent.
    pub webhook: Option<Door>,
}

impl Default for HciOptions {
    fn default() -> Self {
        Self {
            image: format!("afloat:v{}", env!("CARGO_PKG_VERSION")),
            source: None,
            webhook: None,
        }
    }
}

/// Where a repository is.
#[derive(Clone, Debug, PartialEq)]
pub enum Place {
    /// A Service in the cluster.
    Service { namespace: String, name: String },
    /// Outside, by its address.
    Url(String),
}

/// Reads the release file of a repository.
pub trait ReleaseSource: Send + Sync {
    fn fetch(&self, place: &Place) -> BoxFuture<'static, Result<String, String>>;
}

/// What repositories answered, by the Upgrade they belong to.
pub type Releases = Vec<(Key, Result<Arc<str>, Arc<str>>)>;

/// Reads through the API server, which reaches Services from wherever the operator runs; addresses outside it asks itself.
pub struct ThroughApiServer(pub Client);

impl ReleaseSource for ThroughApiServer {
    fn fetch(&self, place: &Place) -> BoxFuture<'static, Result<String, String>> {
        let (client, place) = (self.0.clone(), place.clone());
        Box::pin(async move {
            let asked = async {
                match place {
                    Place::Service { namespace, name } => through_proxy(client, &namespace, &name).await,
                    Place::Url(url) => plain_get(&url).await,
                }
            };
            let answer = tokio::time::timeout(FETCH_LIMIT, asked).await;
            answer.unwrap_or_else(|_| Err(format!("no answer within {}s", FETCH_LIMIT.as_secs())))
        })
    }
}

async fn through_proxy(client: Client, namespace: &str, name: &str) -> Result<String, String> {
    let path = format!("/api/v1/namespaces/{namespace}/services/http:{name}:80/proxy{RELEASE_FILE}");
    let request = http::Request::get(path)
        .body(Vec::new())
        .map_err(|error| error.to_string())?;
    let text = client.request_text(request).await.map_err(|error| error.to_string())?;
    if text.len() > LARGEST {
        return Err(format!("{RELEASE_FILE} is longer than {LARGEST} bytes"));
    }
    Ok(text)
}

/// Host and port. Colons belong to an address of IPv6 where they are in brackets.
fn address(host: &str) -> String {
    let after = host.rsplit_once(']').map_or(host, |(_, after)| after);
    if after.contains(':') {
        host.to_owned()
    } else {
        format!("{host}:80")
    }
}

/// One request in the oldest form, so that the answer comes in one piece.
async fn plain_get(url: &str) -> Result<String, String> {
    let rest = url.strip_prefix("http://").ok_or("only http:// addresses are read")?;
    let (host, path) = rest
        .split_once('/')
        .map_or((rest, String::new()), |(host, path)| (host, format!("/{path}")));
    let address = address(host);
    let broken = |error: std::io::Error| format!("{address}: {error}");
    let mut stream = TcpStream::connect(&address).await.map_err(broken)?;
    let request = format!("GET {path}{RELEASE_FILE} HTTP/1.0\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.map_err(broken)?;
    let mut answer = Vec::new();
    let limit = u64::try_from(LARGEST).unwrap_or(u64::MAX);
    stream.take(limit).read_to_end(&mut answer).await.map_err(broken)?;
    let answer = String::from_utf8(answer).map_err(|_| "the answer is no text".to_owned())?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or("the answer is no HTTP")?;
    let status = head.split_whitespace().nth(1).unwrap_or_default();
    if status == "200" {
        Ok(body.to_owned())
    } else {
        Err(format!("{url}{RELEASE_FILE} answered {status}"))
    }
}

/// Which kinds of a Harvester-like cluster are served; none where the front door is not.
pub async fn kinds_served(client: Client) -> Result<BTreeSet<HciKind>, CallError> {
    let groups: BTreeSet<String> = HciKind::iter()
        .map(|kind| served(kind).resource.group)
        .filter(|group| !group.is_empty())
        .collect();
    let groups: Vec<&str> = groups.iter().map(String::as_str).collect();
    let discovery = bounded(Discovery::new(client).filter(&groups).run_aggregated()).await?;
    let is_served = |kind: HciKind| {
        let wanted = served(kind).resource;
        let group = discovery.get(&wanted.group);
        group.is_some_and(|group| {
            let there = group.versioned_resources(&wanted.version);
            there.iter().any(|(resource, _)| resource.kind == wanted.kind)
        })
    };
    if !is_served(HciKind::Upgrade) {
        return Ok(BTreeSet::new());
    }
    Ok(HciKind::iter()
        .filter(|kind| built_in(*kind) || is_served(*kind))
        .collect())
}

/// The repositories that somebody waits for and that can answer, and whether they have.
fn wanted(view: &View) -> Vec<(Key, Place, bool)> {
    let mut all = Vec::new();
    for (key, upgrade) in &view.hci.upgrades {
        let running = condition_of(upgrade, "Completed") == Some(Tri::Unknown);
        let Some(ready) = condition_of(upgrade, "RepoReady").filter(|_| running) else {
            continue;
        };
        let place = if let Ok(Some(url)) = config::repo_url(upgrade) {
            Place::Url(url.to_owned())
        } else {
            let name = afloat_api::names::cut(&format!("upgrade-repo-{}", key.name));
            let slot = (WorkloadKind::Deployment, Key::new(NAMESPACE, &name));
            // While its pods start nobody can answer: that would be counted against it.
            if view.workloads.get(&slot).is_none_or(|deployment| deployment.ready == 0) {
                continue;
            }
            Place::Service {
                namespace: NAMESPACE.to_owned(),
                name,
            }
        };
        all.push((key.clone(), place, ready == Tri::True));
    }
    all
}

/// What is asked again and again.
pub(crate) struct HciErrands {
    client: Client,
    source: Arc<dyn ReleaseSource>,
    following: BTreeSet<HciKind>,
    pub looking: Errand<Result<BTreeSet<HciKind>, CallError>>,
    pub fetching: Errand<Releases>,
}

impl HciErrands {
    pub fn new(options: &HciOptions, clients: &Clients) -> Self {
        let source = options.source.clone();
        Self {
            client: clients.api.clone(),
            source: source.unwrap_or_else(|| Arc::new(ThroughApiServer(clients.api.clone()))),
            following: BTreeSet::new(),
            looking: Errand::default(),
            fetching: Errand::default(),
        }
    }

    pub fn kinds(&self) -> impl Iterator<Item = Kind> + use<> {
        self.following.clone().into_iter().map(Kind::Hci)
    }

    /// Whether the front door is there, and everything that belongs to it has been read once.
    pub fn is_read(&self, keeper: &Keeper) -> bool {
        self.following.contains(&HciKind::Upgrade) && keeper.complete(self.kinds())
    }

    pub fn look(&mut self, now: Timestamp) {
        self.looking.due = Some(now);
        self.begin_looking(now);
    }

    fn begin_looking(&mut self, now: Timestamp) {
        if self.looking.take(now) {
            self.looking.under_way = Some(Box::pin(kinds_served(self.client.clone())));
        }
    }

    /// New kinds are watched from now on. One that is gone keeps its watch, which tries again by itself.
    pub fn found(
        &mut self,
        found: Result<BTreeSet<HciKind>, CallError>,
        client: &Client,
        feed: &mut Feed,
        now: Timestamp,
    ) {
        self.looking.under_way = None;
        self.looking.due = now.saturating_add(LOOK_EVERY).ok();
        match found {
            Ok(kinds) => {
                let new = kinds.difference(&self.following).copied();
                let new: Vec<HciKind> = new.filter(|kind| !for_tasks_alone(*kind)).collect();
                if !new.is_empty() {
                    let words: Vec<&str> = new.iter().map(|kind| kind.word()).collect();
                    tracing::info!(kinds = words.join(","), "watches Harvester's front door");
                    feed.follow_hci(client, &new);
                    self.following.extend(new);
                }
            }
            Err(error) => tracing::warn!(%error, "cannot learn which kinds the cluster serves, asked again later"),
        }
    }

    /// An upgrade may have come to want its repository.
    pub fn plan(&mut self, view: &View, now: Timestamp) {
        let wanted = wanted(view);
        // One that could not answer for a while is asked again like one that has never been.
        let idle = self.fetching.due.is_none() && !wanted.is_empty();
        let soon = idle || wanted.iter().any(|(key, _, _)| !view.hci.repos.contains_key(key));
        if soon && self.fetching.under_way.is_none() {
            self.fetching.due = Some(now);
        }
    }

    pub fn due(&self) -> Option<Timestamp> {
        let looking = self.looking.due.filter(|_| self.looking.under_way.is_none());
        let fetching = self.fetching.due.filter(|_| self.fetching.under_way.is_none());
        looking.into_iter().chain(fetching).min()
    }

    pub fn work(&mut self, view: &View, now: Timestamp) {
        self.begin_looking(now);
        if self.fetching.take(now) {
            let source = Arc::clone(&self.source);
            let asked = wanted(view).into_iter().map(|(key, place, _)| {
                let answer = source.fetch(&place);
                async move { (key, answer.await.map(Arc::from).map_err(Arc::from)) }
            });
            self.fetching.under_way = Some(Box::pin(join_all(asked.collect::<Vec<_>>())));
        }
    }

    pub fn fetched(&mut self, view: &View, now: Timestamp) {
        self.fetching.under_way = None;
        let all = wanted(view);
        let pause = if all.iter().any(|(_, _, served)| !served) {
            FETCH_OFTEN
        } else {
            FETCH_SELDOM
        };
        self.fetching.due = now.saturating_add(pause).ok().filter(|_| !all.is_empty());
    }
}

#[cfg(test)]
mod tests {
    use afloat_api::harvester::{HarvesterCondition, Upgrade, UpgradeSpec};
    use afloat_core::hci::view::{HciObject, Seen};
    use afloat_core::objects::target_of;
    use afloat_core::view::{Revision, Uid, Workload};

    use super::*;

    /// An upgrade whose repository has so many pods that serve.
    fn waiting(ready: Option<i64>, url: Option<&str>) -> View {
        let mut upgrade = Upgrade::new("up", UpgradeSpec::default());
        upgrade.metadata.namespace = Some(NAMESPACE.to_owned());
        upgrade.metadata.uid = Some("u-1".to_owned());
        upgrade.metadata.resource_version = Some("1".to_owned());
        let said = url.map(|url| (config::REPO_URL.to_owned(), url.to_owned()));
        upgrade.metadata.annotations = Some(said.into_iter().collect());
        let conditions = ["Completed", "RepoReady"].map(|kind| HarvesterCondition {
            kind: kind.to_owned(),
            status: "Unknown".to_owned(),
            ..HarvesterCondition::default()
        });
        upgrade.status.get_or_insert_default().conditions = conditions.to_vec();
        let mut view = View::default();
        let target = target_of(&upgrade.metadata);
        view.hci.take(HciObject::Upgrade(Arc::new(Seen {
            target,
            deleting: false,
            what: upgrade,
        })));
        if let Some(ready) = ready {
            let key = Key::new(NAMESPACE, "upgrade-repo-up");
            let workload = Workload {
                kind: WorkloadKind::Deployment,
                key: key.clone(),
                uid: Uid::from("u-2"),
                revision: Revision(1),
                replicas: 2,
                ready,
                owner: None,
            };
            let slot = (WorkloadKind::Deployment, key);
            view.workloads.insert(slot, Arc::new(workload));
        }
        view
    }

    #[test]
    fn h21_a_repository_is_asked_once_a_pod_of_it_serves_and_one_outside_at_once() {
        assert!(wanted(&waiting(None, None)).is_empty());
        assert!(wanted(&waiting(Some(0), None)).is_empty(), "its pods start");
        assert_eq!(wanted(&waiting(Some(1), None)).len(), 1);
        assert_eq!(wanted(&waiting(None, Some("http://10.0.0.5"))).len(), 1);
    }

    #[test]
    fn an_address_without_a_port_gets_that_of_http() {
        for (host, whole) in [
            ("mirror.example", "mirror.example:80"),
            ("mirror.example:8080", "mirror.example:8080"),
            ("[fd00::5]", "[fd00::5]:80"),
            ("[fd00::5]:8080", "[fd00::5]:8080"),
        ] {
            assert_eq!(address(host), whole);
        }
    }
}

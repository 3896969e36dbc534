//! What gates look at is watched: a watch says only that something has changed, whereupon the gates are judged anew. Where something may not
//! be watched, or cannot be for now, it is looked at again and again instead.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use afloat_api::clusterupgrade::Gate;
use afloat_core::view::{Key, View};
use futures::StreamExt as _;
use jiff::{SignedDuration, Timestamp};
use kube::core::{DynamicObject, PartialObjectMeta};
use kube::discovery::verbs;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::{GateStates, Judgement, api, find, judge, wanted};
use crate::snapshot::feed::Soon;
use crate::turns::Errand;

/// So many watches of gates at most; what is beyond is looked at again and again.
const MOST: usize = 16;
/// How often gates are judged whose objects are not watched, or that could not be judged.
const POLLED_EVERY: SignedDuration = SignedDuration::from_secs(10);
/// How often all others are: a watch whose connection is dead says nothing for minutes.
const CHECKED_EVERY: SignedDuration = SignedDuration::from_secs(60);
/// The same, for a kind that the cluster may get later.
const FOUND_EVERY: Duration = Duration::from_secs(10);
/// Between two judgements that watches ask for: objects may change all the time.
const AT_MOST_EVERY: SignedDuration = SignedDuration::from_secs(1);
/// And for a judgement that took long, so many times as long: lists of everything are dear.
const REST: i32 = 10;

/// The objects that one gate looks at.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct Watched {
    api_version: String,
    kind: String,
    namespace: Option<String>,
    label_selector: Option<String>,
}

impl Watched {
    fn of(gate: &Gate) -> Self {
        Self {
            api_version: gate.api_version.clone(),
            kind: gate.kind.clone(),
            namespace: gate.namespace.clone(),
            label_selector: gate.label_selector.clone(),
        }
    }
}

struct Watch {
    /// It tells of every change; until then its objects are looked at again and again.
    tells: Arc<AtomicBool>,
    /// Ended with it.
    #[allow(dead_code, reason = "it is dropped")]
    task: JoinSet<()>,
}

/// The watches, ended when nobody needs them any more.
pub struct Watches {
    running: BTreeMap<Watched, Watch>,
    beyond: bool,
    sender: mpsc::Sender<()>,
    news: mpsc::Receiver<()>,
}

impl Default for Watches {
    fn default() -> Self {
        // One piece of news that nobody has heard yet is as good as many.
        let (sender, news) = mpsc::channel(1);
        Self {
            running: BTreeMap::new(),
            beyond: false,
            sender,
            news,
        }
    }
}

impl Watches {
    fn follow(&mut self, client: &Client, gates: &[(Key, Gate)]) {
        let all: BTreeMap<Watched, &Gate> = gates.iter().map(|(_, gate)| (Watched::of(gate), gate)).collect();
        self.beyond = all.len() > MOST;
        let wanted: BTreeSet<Watched> = all.keys().take(MOST).cloned().collect();
        self.running.retain(|watched, _| wanted.contains(watched));
        for (watched, gate) in all.into_iter().take(MOST) {
            let (client, sender) = (client.clone(), self.sender.clone());
            self.running.entry(watched).or_insert_with(|| {
                let tells = Arc::new(AtomicBool::new(false));
                let mut task = JoinSet::new();
                task.spawn(watch(client, gate.clone(), Arc::clone(&tells), sender));
                Watch { tells, task }
            });
        }
    }

    /// Something that a gate looks at has changed.
    pub async fn changed(&mut self) {
        // The sender is kept beside it: it is never closed.
        self.news.recv().await;
    }

    fn all_tell(&self) -> bool {
        !self.beyond && self.running.values().all(|watch| watch.tells.load(Ordering::Relaxed))
    }
}

/// Tells of changes of what a gate looks at for as long as it may.
async fn watch(client: Client, gate: Gate, tells: Arc<AtomicBool>, sender: mpsc::Sender<()>) {
    let (resource, capabilities) = loop {
        match find(&client, &gate).await {
            Ok(found) => break found,
            Err(_) => tokio::time::sleep(FOUND_EVERY).await,
        }
    };
    if !capabilities.supports_operation(verbs::WATCH) {
        // A kind that another API server computes, say.
        tracing::warn!(
            gate = gate.name,
            kind = gate.kind,
            "what the gate looks at cannot be watched, it is looked at every 10 seconds instead"
        );
        return;
    }
    let api: Api<PartialObjectMeta<DynamicObject>> = api(&client, &gate, &resource, &capabilities);
    let mut config = watcher::Config::default();
    config.label_selector.clone_from(&gate.label_selector);
    let mut stream = std::pin::pin!(watcher(api, config).backoff(Soon::default()));
    while let Some(event) = stream.next().await {
        match event {
            Ok(watcher::Event::Init | watcher::Event::InitApply(_)) => continue,
            Ok(_) => tells.store(true, Ordering::Relaxed),
            Err(error) => {
                tells.store(false, Ordering::Relaxed);
                if is_forbidden(&error) {
                    tracing::warn!(
                        gate = gate.name,
                        kind = gate.kind,
                        "what the gate looks at may not be watched, it is looked at every 10 seconds instead: \
                         allow watch beside list in the ClusterRole with the label afloat.dev/aggregate-to-gates"
                    );
                    let _full_is_as_good = sender.try_send(());
                    return;
                }
            }
        }
        let _full_is_as_good = sender.try_send(());
    }
}

fn is_forbidden(error: &watcher::Error) -> bool {
    let code = match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status))
        | watcher::Error::WatchFailed(kube::Error::Api(status))
        | watcher::Error::WatchError(status) => status.code,
        _ => 0,
    };
    code == 401 || code == 403
}

/// Judges gates when what they look at has changed.
#[derive(Default)]
pub struct GateErrand {
    pub(crate) judging: Errand<Judgement>,
    pub watches: Watches,
    wanted: Vec<(Key, Gate)>,
    begun: Option<Timestamp>,
    took: SignedDuration,
    /// Something changed while gates were judged.
    again: bool,
    /// Others are wanted than those that are judged: a name may stand for another expression by now.
    outdated: bool,
}

impl GateErrand {
    /// Judges what is wanted now and was not before. Whether nothing is wanted any more: what was judged says nothing about later then.
    pub fn plan(&mut self, client: &Client, view: &View, now: Timestamp) -> bool {
        let wanted = wanted(view);
        if wanted != self.wanted {
            self.watches.follow(client, &wanted);
            self.wanted = wanted;
            self.again = self.judging.under_way.is_some();
            self.outdated = self.again;
            self.judging.due = Some(now).filter(|_| !self.wanted.is_empty());
        }
        self.wanted.is_empty()
    }

    /// Begins to judge where it is time.
    pub fn begin(&mut self, client: &Client, now: Timestamp) {
        if self.judging.take(now) {
            self.begun = Some(now);
            let (client, wanted) = (client.clone(), self.wanted.clone());
            self.judging.under_way = Some(Box::pin(async move { judge(&client, wanted).await }));
        }
    }

    pub fn heard(&mut self, now: Timestamp) {
        if self.judging.under_way.is_some() {
            self.again = true;
        } else if !self.wanted.is_empty() {
            let at = self.soonest(now);
            self.judging.due = Some(self.judging.due.map_or(at, |due| due.min(at)));
        }
    }

    fn soonest(&self, now: Timestamp) -> Timestamp {
        let rest = self.took.saturating_mul(REST).clamp(AT_MOST_EVERY, POLLED_EVERY);
        let begun = self.begun.and_then(|begun| begun.saturating_add(rest).ok());
        begun.map_or(now, |at| at.max(now))
    }

    /// What counts of a judgement: nothing once nobody wants it any more, or other gates are wanted.
    pub fn judged(&mut self, judgement: Judgement, now: Timestamp) -> GateStates {
        self.judging.under_way = None;
        self.took = self
            .begun
            .map_or(SignedDuration::ZERO, |begun| now.duration_since(begun));
        let every = if judgement.unsure || !self.watches.all_tell() {
            POLLED_EVERY
        } else {
            CHECKED_EVERY
        };
        self.judging.due = if self.wanted.is_empty() {
            None
        } else if std::mem::take(&mut self.again) {
            Some(self.soonest(now))
        } else {
            now.saturating_add(every).ok()
        };
        if std::mem::take(&mut self.outdated) || self.wanted.is_empty() {
            GateStates::new()
        } else {
            judgement.states
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use afloat_apisim::{ApiServer, Options};
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::api::PostParams;
    use serde_json::json;

    fn gate(kind: &str) -> (Key, Gate) {
        let gate = Gate {
            name: "mine".to_owned(),
            api_version: "v1".to_owned(),
            kind: kind.to_owned(),
            namespace: Some("default".to_owned()),
            label_selector: Some("app=shop".to_owned()),
            expression: "true".to_owned(),
        };
        (Key::new("afloat", "up"), gate)
    }

    async fn make(client: &Client, name: &str) {
        let map = json!({"metadata": {"name": name, "labels": {"app": "shop"}}});
        let api: Api<ConfigMap> = Api::default_namespaced(client.clone());
        let map = serde_json::from_value(map).unwrap();
        api.create(&PostParams::default(), &map).await.unwrap();
    }

    async fn heard(watches: &mut Watches) -> bool {
        let news = tokio::time::timeout(Duration::from_secs(5), watches.news.recv());
        news.await.is_ok()
    }

    #[tokio::test]
    async fn what_a_gate_looks_at_is_watched_while_it_is_wanted() {
        let client = ApiServer::new(Options::default()).client();
        let mut watches = Watches::default();
        watches.follow(&client, &[gate("ConfigMap")]);
        assert!(!watches.all_tell(), "it is looked at until its watch tells");
        assert!(heard(&mut watches).await, "all is read");
        assert!(watches.all_tell());
        make(&client, "a").await;
        assert!(heard(&mut watches).await);
        watches.follow(&client, &[]);
        assert!(watches.running.is_empty());
    }

    #[tokio::test]
    async fn what_may_not_be_watched_is_looked_at_again_and_again() {
        let inner = ApiServer::new(Options::default()).client();
        let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let inner = inner.clone();
            async move {
                if !request.uri().query().unwrap_or_default().contains("watch=") {
                    return inner.send(request).await;
                }
                let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 403,
                    "reason": "Forbidden", "message": "watch is forbidden"});
                let body = kube::client::Body::from(status.to_string().into_bytes());
                let answer = http::Response::builder().status(403).body(body);
                answer.map_err(kube::Error::HttpError)
            }
        });
        let client = Client::new(service, "default");
        let mut watches = Watches::default();
        watches.follow(&client, &[gate("ConfigMap")]);
        assert!(heard(&mut watches).await);
        tokio::time::timeout(Duration::from_secs(5), async {
            while !watches
                .running
                .values_mut()
                .all(|watch| watch.task.try_join_next().is_some())
            {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await
        .unwrap();
        assert!(!watches.all_tell());
    }

    #[test]
    fn so_many_watches_and_no_more() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let client = ApiServer::new(Options::default()).client();
            let mut watches = Watches::default();
            let many: Vec<_> = (0..20).map(|number| gate(&format!("Kind{number}"))).collect();
            watches.follow(&client, &many);
            assert_eq!(watches.running.len(), MOST);
            assert!(watches.beyond && !watches.all_tell());
        });
    }

    #[test]
    fn changes_are_judged_at_once_but_not_all_the_time() {
        let second = |number: i64| Timestamp::from_second(number).unwrap();
        let mut errand = GateErrand {
            wanted: vec![gate("ConfigMap")],
            ..GateErrand::default()
        };
        errand.heard(second(100));
        assert_eq!(errand.judging.due, Some(second(100)));
        errand.begun = Some(second(100));
        errand.judging.due = None;
        errand.judged(Judgement::default(), second(101));
        assert_eq!(errand.judging.due, Some(second(161)), "all of its watches tell");
        errand.heard(second(102));
        assert_eq!(errand.judging.due, Some(second(110)), "it took a second");
        errand.heard(second(200));
        assert_eq!(errand.judging.due, Some(second(110)));
        errand.judged(Judgement::default(), second(130));
        errand.heard(second(131));
        assert_eq!(errand.judging.due, Some(second(131)), "thirty seconds are rest enough");
        errand.watches.beyond = true;
        errand.judged(Judgement::default(), second(204));
        assert_eq!(errand.judging.due, Some(second(214)));
    }

    #[test]
    fn rule_12_a_gate_that_could_not_be_judged_is_looked_at_again_though_nothing_changes() {
        let second = |number: i64| Timestamp::from_second(number).unwrap();
        let mut errand = GateErrand {
            wanted: vec![gate("ConfigMap")],
            begun: Some(second(100)),
            ..GateErrand::default()
        };
        assert!(errand.watches.all_tell());
        let judgement = Judgement {
            unsure: true,
            ..Judgement::default()
        };
        errand.judged(judgement, second(101));
        assert_eq!(errand.judging.due, Some(second(111)));
    }

    #[tokio::test]
    async fn what_was_judged_for_gates_that_were_changed_meanwhile_does_not_count() {
        let client = ApiServer::new(Options::default()).client();
        let now = Timestamp::from_second(100).unwrap();
        let mut view = View::default();
        let mut ask = |expression: &str| {
            let mut upgrade = afloat_api::ClusterUpgrade::new("up", afloat_api::ClusterUpgradeSpec::default());
            let (_, gate) = gate("ConfigMap");
            let expression = expression.to_owned();
            upgrade.spec.gates = vec![Gate { expression, ..gate }];
            view.upgrades.insert(Key::new("afloat", "up"), Arc::new(upgrade));
            view.clone()
        };
        let mut errand = GateErrand::default();
        errand.plan(&client, &ask("true"), now);
        errand.begin(&client, now);
        errand.plan(&client, &ask("false"), now);
        let judgement = judge(&client, errand.wanted.clone()).await;
        assert_eq!(judgement.states.len(), 1);
        assert!(errand.judged(judgement, now).is_empty(), "that was another expression");
        assert!(errand.judging.due.is_some());
        errand.begin(&client, errand.judging.due.unwrap());
        let judgement = judge(&client, errand.wanted.clone()).await;
        assert_eq!(errand.judged(judgement, now).len(), 1);
    }
}

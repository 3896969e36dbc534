//! The watches: one per kind and process, shared by all actors. Every event ends up in one channel, in the order it
//! came; what is done with it is the driver's business.

use crate::object::{Held, Kind, Object, ObjectRef};
use crate::view::{Change, View};
use afloat_core::hci::view::HciKind;
use afloat_operator::snapshot::hci::served;
use afloat_operator::snapshot::lean::Lean;
use futures::StreamExt as _;
use k8s_openapi::api::{
    apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet},
    batch::v1::Job,
    coordination::v1::Lease,
    core::v1::{Event, Namespace, Node, Pod},
    policy::v1::PodDisruptionBudget,
};
use k8s_openapi::serde::de::DeserializeOwned;
use kube::core::DynamicObject;
use kube::runtime::{WatchStreamExt as _, watcher};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// The lag a slow reader may have before the watches wait for it.
const CHANNEL: usize = 4096;

/// What a watch said.
#[derive(Debug)]
pub enum News {
    /// A list begins.
    Listing(Kind),
    /// An object in a list, or one that was added or changed.
    Seen {
        object: Object,
        listed: bool,
    },
    /// The list is complete: what was not in it is gone.
    Listed(Kind),
    Gone(Object),
}

/// The watches of a process, ended when this is dropped.
pub struct Feed {
    news: mpsc::Receiver<News>,
    _watches: JoinSet<()>,
}

impl Feed {
    /// Starts watching `kinds`.
    pub fn start(client: &kube::Client, kinds: &[Kind]) -> Self {
        let (sender, news) = mpsc::channel(CHANNEL);
        let mut watches = JoinSet::new();
        for kind in kinds {
            let (client, sender) = (client.clone(), sender.clone());
            match kind {
                Kind::Node => watches.spawn(follow::<Node>(client, sender)),
                Kind::Namespace => watches.spawn(follow::<Namespace>(client, sender)),
                Kind::Pod => watches.spawn(follow::<Pod>(client, sender)),
                Kind::Lease => watches.spawn(follow::<Lease>(client, sender)),
                Kind::Deployment => watches.spawn(follow::<Deployment>(client, sender)),
                Kind::ReplicaSet => watches.spawn(follow::<ReplicaSet>(client, sender)),
                Kind::DaemonSet => watches.spawn(follow::<DaemonSet>(client, sender)),
                Kind::StatefulSet => watches.spawn(follow::<StatefulSet>(client, sender)),
                Kind::Job => watches.spawn(follow::<Job>(client, sender)),
                Kind::PodDisruptionBudget => watches.spawn(follow::<PodDisruptionBudget>(client, sender)),
                Kind::Event => watches.spawn(follow::<Event>(client, sender)),
                Kind::Hci(kind) => watches.spawn(follow_hci(*kind, client, sender)),
            };
        }
        Self {
            news,
            _watches: watches,
        }
    }

    /// The next thing a watch says; nothing once all watches have ended.
    pub async fn next(&mut self) -> Option<News> {
        self.news.recv().await
    }

    /// The next thing a watch has said already.
    pub fn ready(&mut self) -> Option<News> {
        self.news.try_recv().ok()
    }
}

async fn follow<K>(client: kube::Client, sender: mpsc::Sender<News>)
where
    K: Held + kube::Resource<DynamicType = ()> + DeserializeOwned + Clone + Debug,
{
    let hold = |object: K| Arc::new(object).held();
    forward(<K as Held>::kind(), kube::Api::all(client), hold, sender).await;
}

async fn follow_hci(kind: HciKind, client: kube::Client, sender: mpsc::Sender<News>) {
    let api = kube::Api::<Lean<DynamicObject>>::all_with(client, &served(kind).resource);
    let hold = |object: DynamicObject| Object::Hci(kind, Arc::new(object));
    forward(Kind::Hci(kind), api, hold, sender).await;
}

async fn forward<K>(kind: Kind, api: kube::Api<Lean<K>>, hold: impl Fn(K) -> Object, sender: mpsc::Sender<News>)
where
    K: kube::Resource + DeserializeOwned + Clone + Debug + Send + 'static,
{
    let stream = watcher(api, watcher::Config::default()).default_backoff();
    let mut stream = std::pin::pin!(stream);
    while let Some(event) = stream.next().await {
        let read = |object: Lean<K>| object.read().map(&hold);
        let news = match event {
            Ok(watcher::Event::Init) => Ok(News::Listing(kind)),
            Ok(watcher::Event::InitApply(object)) => read(object).map(|object| News::Seen { object, listed: true }),
            Ok(watcher::Event::InitDone) => Ok(News::Listed(kind)),
            Ok(watcher::Event::Apply(object)) => read(object).map(|object| News::Seen { object, listed: false }),
            Ok(watcher::Event::Delete(object)) => read(object).map(News::Gone),
            Err(error) => {
                tracing::debug!(?kind, %error, "watch interrupted, it starts again by itself");
                continue;
            }
        };
        let news = match news {
            Ok(news) => news,
            Err(problem) => {
                tracing::warn!(?kind, %problem, "an object is left out");
                continue;
            }
        };
        if sender.send(news).await.is_err() {
            return;
        }
    }
}

/// Takes news into a view; remembers which kinds were listed once, and what a running list has not shown yet.
#[derive(Debug, Default)]
pub struct Intake {
    unseen: BTreeMap<Kind, BTreeSet<ObjectRef>>,
    listed: BTreeSet<Kind>,
}

impl Intake {
    /// All of `kinds` were listed at least once.
    pub fn complete(&self, kinds: &[Kind]) -> bool {
        kinds.iter().all(|kind| self.listed.contains(kind))
    }

    pub fn take(&mut self, news: News, view: &mut View) -> Vec<Change> {
        match news {
            News::Listing(kind) => {
                let known = view
                    .keys(kind)
                    .into_iter()
                    .map(|key| ObjectRef::new(kind, key))
                    .collect();
                self.unseen.insert(kind, known);
                Vec::new()
            }
            News::Seen { object, listed } => {
                if listed && let Some(unseen) = self.unseen.get_mut(&object.kind()) {
                    unseen.remove(&object.reference());
                }
                view.apply(object).into_iter().collect()
            }
            News::Listed(kind) => {
                self.listed.insert(kind);
                let gone = self.unseen.remove(&kind).unwrap_or_default();
                gone.into_iter()
                    .filter_map(|reference| {
                        let uid = view.get(&reference)?.meta().uid.clone()?;
                        view.remove(&reference, &uid)
                    })
                    .collect()
            }
            News::Gone(object) => {
                let uid = object.meta().uid.clone().unwrap_or_default();
                view.remove(&object.reference(), &uid).into_iter().collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn node(name: &str, revision: u64) -> Object {
        Kind::Node
            .parse(json!({ "metadata": { "name": name, "uid": name, "resourceVersion": revision.to_string() } }))
            .unwrap()
    }

    #[test]
    fn a_second_list_removes_what_it_does_not_show() {
        let (mut intake, mut view) = (Intake::default(), View::default());
        let seen = |name, revision, listed| News::Seen {
            object: node(name, revision),
            listed,
        };
        for news in [
            News::Listing(Kind::Node),
            seen("a", 1, true),
            seen("b", 2, true),
            News::Listed(Kind::Node),
        ] {
            intake.take(news, &mut view);
        }
        assert!(intake.complete(&[Kind::Node]) && !intake.complete(&[Kind::Node, Kind::Pod]));
        intake.take(News::Listing(Kind::Node), &mut view);
        assert!(
            intake.take(seen("b", 2, true), &mut view).is_empty(),
            "nothing new about b"
        );
        let changes = intake.take(News::Listed(Kind::Node), &mut view);
        assert_eq!(changes.len(), 1);
        assert_eq!(view.nodes.len(), 1);
    }
}

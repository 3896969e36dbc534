//! The watches, one per kind: each object is reduced as it comes, and everything ends up in one channel, in order. An object
//! that cannot be read is named and left out; the watch it came by goes on.

use std::fmt::Debug;
use std::time::Duration;

use afloat_api::{ClusterUpgrade, ControlPlaneKubeadmUpgrade, NodeKubeadmUpgrade, WorkersKubeadmUpgrade, names};
use afloat_core::hci::view::HciKind;
use futures::{Stream, StreamExt as _};
use kube::core::{DynamicObject, PartialObjectMeta};
use kube::runtime::utils::Backoff;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use strum::IntoEnumIterator as _;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::lean::Lean;
use super::raw::RawPod;
use super::{Kind, News, Object, Unreadable, hci, identity, reduce};

/// How far a slow reader may fall behind before the watches wait for it.
const CHANNEL: usize = 4096;
/// Namespace of kubeadm's ConfigMap and of kube-vip's lease.
const SYSTEM: &str = "kube-system";
/// kube-vip's lease for the virtual address of the control plane.
const VIRTUAL_IP: &str = "plndr-cp-lock";
const KUBEADM_CONFIG: &str = "kubeadm-config";

/// How long a watch that broke off waits at most before it begins again.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// Waits of a watch that broke off: longer each time, but never for long. Afloat restarts API servers itself, and as long as a watch waits neither the operator
/// goes on nor is a person told what has happened.
#[derive(Default)]
pub(crate) struct Soon(watcher::DefaultBackoff);

impl Iterator for Soon {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        self.0.next().map(|wait| wait.min(LONGEST_WAIT))
    }
}

impl Backoff for Soon {
    fn reset(&mut self) {
        self.0.reset();
    }
}

/// The watches of a process, ended when this is dropped.
pub struct Feed {
    news: mpsc::Receiver<News>,
    sender: mpsc::Sender<News>,
    watches: JoinSet<()>,
}

impl Feed {
    /// Starts to watch everything, for an operator that runs in the namespace `home`.
    pub fn start(client: &Client, home: &str) -> Self {
        Self::only(client, home, &Kind::iter().collect::<Vec<_>>())
    }

    /// Starts to watch these kinds only, for somebody who needs no more and would not read a hundred thousand pods for it.
    pub fn only(client: &Client, home: &str, kinds: &[Kind]) -> Self {
        let (sender, news) = mpsc::channel(CHANNEL);
        let mut starter = Starter {
            client: client.clone(),
            kinds: kinds.to_vec(),
            sender: sender.clone(),
            watches: JoinSet::new(),
        };
        // Pods are many, and all that is decoded of them is optional: their text need not be kept to name one that cannot be read.
        let pods: Api<RawPod> = Api::all(client.clone());
        starter.follow(Kind::Pod, pods, watcher::Config::default(), reduce::pod);
        starter.all(Kind::Node, reduce::node);
        starter.all(Kind::PodDisruptionBudget, reduce::budget);
        starter.all(Kind::Deployment, reduce::deployment);
        starter.all(Kind::ReplicaSet, reduce::replica_set);
        starter.all(Kind::StatefulSet, reduce::stateful_set);
        starter.all(Kind::PersistentVolumeClaim, reduce::claim);
        starter.all(Kind::PersistentVolume, reduce::volume);
        starter.all(Kind::Namespace, reduce::namespace);
        starter.all::<ClusterUpgrade>(Kind::ClusterUpgrade, reduce::upgrade);
        starter.all::<ControlPlaneKubeadmUpgrade>(Kind::ControlPlaneKubeadmUpgrade, reduce::control_plane);
        starter.all::<WorkersKubeadmUpgrade>(Kind::WorkersKubeadmUpgrade, reduce::workers);
        starter.all::<NodeKubeadmUpgrade>(Kind::NodeKubeadmUpgrade, reduce::node_upgrade);
        starter.one(Kind::VirtualIpLease, SYSTEM, VIRTUAL_IP, reduce::virtual_ip);
        starter.one(Kind::UpgradeLock, home, names::LOCK, reduce::lock);
        starter.one(Kind::UpgraderImages, home, names::IMAGES, reduce::images);
        starter.one(Kind::KubeadmConfig, SYSTEM, KUBEADM_CONFIG, reduce::kubeadm_config);
        Self {
            news,
            sender,
            watches: starter.watches,
        }
    }

    /// Starts to watch kinds of a Harvester-like cluster as well.
    pub fn follow_hci(&mut self, client: &Client, kinds: &[HciKind]) {
        for kind in kinds.iter().copied() {
            let sender = self.sender.clone();
            let served = hci::served(kind);
            let mut config = watcher::Config::default();
            config.label_selector.clone_from(&served.labels);
            config.field_selector.clone_from(&served.fields);
            let reduce = move |object: DynamicObject| {
                let object = hci::reduce(kind, &object)?;
                Ok(Object::Hci(Box::new(object)))
            };
            if hci::is_secret(kind) {
                let api = served.api::<PartialObjectMeta<DynamicObject>>(client);
                let stream = watcher(api, config)
                    .map(|event| event.map(bare_event))
                    .backoff(Soon::default());
                self.watches.spawn(forward(sender, Kind::Hci(kind), stream, reduce));
            } else {
                let stream = watcher(served.api::<Lean<DynamicObject>>(client), config).backoff(Soon::default());
                self.watches
                    .spawn(forward(sender, Kind::Hci(kind), stream, lean(reduce)));
            }
        }
    }

    /// The next thing a watch says; nothing once all have ended.
    pub async fn next(&mut self) -> Option<News> {
        self.news.recv().await
    }

    /// The next thing a watch has said already.
    pub fn ready(&mut self) -> Option<News> {
        self.news.try_recv().ok()
    }
}

/// What becomes of a decoded object.
type Reduce<K> = fn(K) -> Result<Object, Unreadable>;

struct Starter {
    client: Client,
    kinds: Vec<Kind>,
    sender: mpsc::Sender<News>,
    watches: JoinSet<()>,
}

impl Starter {
    /// All objects of a kind.
    fn all<K>(&mut self, kind: Kind, reduce: Reduce<K>)
    where
        K: Resource<DynamicType = ()> + DeserializeOwned + Clone + Debug + Send + 'static,
    {
        let api: Api<Lean<K>> = Api::all(self.client.clone());
        self.follow(kind, api, watcher::Config::default(), lean(reduce));
    }

    /// The one object of a name.
    fn one<K>(&mut self, kind: Kind, namespace: &str, name: &str, reduce: Reduce<K>)
    where
        K: Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>
            + DeserializeOwned
            + Clone
            + Debug
            + Send
            + 'static,
    {
        let api: Api<Lean<K>> = Api::namespaced(self.client.clone(), namespace);
        let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
        self.follow(kind, api, config, lean(reduce));
    }

    fn follow<K>(
        &mut self,
        kind: Kind,
        api: Api<K>,
        config: watcher::Config,
        reduce: impl Fn(K) -> Result<Object, Unreadable> + Send + 'static,
    ) where
        K: Resource<DynamicType = ()> + DeserializeOwned + Clone + Debug + Send + 'static,
    {
        if !self.kinds.contains(&kind) {
            return;
        }
        let sender = self.sender.clone();
        let stream = watcher(api, config).backoff(Soon::default());
        self.watches.spawn(forward(sender, kind, stream, reduce));
    }
}

fn lean<K>(reduce: impl Fn(K) -> Result<Object, Unreadable>) -> impl Fn(Lean<K>) -> Result<Object, Unreadable> {
    move |object| object.read().and_then(&reduce)
}

/// Metadata alone, as an object without anything else.
fn bare_event(event: watcher::Event<PartialObjectMeta<DynamicObject>>) -> watcher::Event<DynamicObject> {
    let bare = |partial: PartialObjectMeta<DynamicObject>| DynamicObject {
        types: None,
        metadata: partial.metadata,
        data: serde_json::Value::Null,
    };
    match event {
        watcher::Event::Init => watcher::Event::Init,
        watcher::Event::InitApply(object) => watcher::Event::InitApply(bare(object)),
        watcher::Event::InitDone => watcher::Event::InitDone,
        watcher::Event::Apply(object) => watcher::Event::Apply(bare(object)),
        watcher::Event::Delete(object) => watcher::Event::Delete(bare(object)),
    }
}

async fn forward<K: Resource>(
    sender: mpsc::Sender<News>,
    kind: Kind,
    stream: impl Stream<Item = Result<watcher::Event<K>, watcher::Error>>,
    reduce: impl Fn(K) -> Result<Object, Unreadable>,
) {
    let mut stream = std::pin::pin!(stream);
    while let Some(event) = stream.next().await {
        if sender.send(news(kind, event, &reduce)).await.is_err() {
            return;
        }
    }
}

fn news<K: Resource>(
    kind: Kind,
    event: Result<watcher::Event<K>, watcher::Error>,
    reduce: impl Fn(K) -> Result<Object, Unreadable>,
) -> News {
    let seen = |object: K, listed: bool| match reduce(object) {
        Ok(object) => News::Seen { object, listed },
        Err(problem) => News::Unreadable { kind, problem, listed },
    };
    match event {
        Ok(watcher::Event::Init) => News::Listing(kind),
        Ok(watcher::Event::InitApply(object)) => seen(object, true),
        Ok(watcher::Event::InitDone) => News::Listed(kind),
        Ok(watcher::Event::Apply(object)) => seen(object, false),
        Ok(watcher::Event::Delete(object)) => match identity(object.meta()) {
            Ok(target) => News::Gone { kind, target },
            Err(problem) => News::Unreadable {
                kind,
                problem,
                listed: false,
            },
        },
        Err(error) => News::Interrupted {
            kind,
            problem: error.to_string(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watch_that_broke_off_waits_longer_each_time_but_never_for_long() {
        let waits: Vec<Duration> = Soon::default().take(12).collect();
        assert!(waits[0] < Duration::from_secs(2), "{waits:?}");
        assert!(waits.iter().all(|wait| *wait <= LONGEST_WAIT), "{waits:?}");
        assert_eq!(waits.last(), Some(&LONGEST_WAIT));
    }
}

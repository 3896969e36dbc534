//! Keeps the view up to date. Answers to own writes are taken in at once, so that the next decision knows of them; what a
//! watch says later about an earlier state changes nothing, and a namesake that was deleted is not taken for the one there is.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use afloat_core::Changed;
use afloat_core::hci::view::{HciKind, RepoAnswer};
use afloat_core::view::{
    Claim, ControlPlaneHealth, Ending, GateState, Health, Key, Node, NodeName, Pod, Revision, Target, Uid, View,
    Workload, WorkloadKind,
};
use jiff::Timestamp;

use super::roll::{Lacking, RollCall};
use super::shapes::{Shapes, Texts};
use super::workload::Volume;
use super::{Kind, News, Object};

/// The view and what must be remembered to keep it true.
#[derive(Debug)]
pub struct Keeper {
    view: View,
    shapes: Shapes,
    texts: Texts,
    volumes: BTreeMap<Arc<str>, Volume>,
    /// Handles of attached volumes, and the PersistentVolume each belongs to.
    handles: BTreeMap<Arc<str>, Arc<str>>,
    /// Deleted by an own write: a watch that still shows them is behind.
    buried: BTreeMap<(Kind, Key), Uid>,
    /// Known when a list began and not shown by it so far.
    unseen: BTreeMap<Kind, BTreeSet<Key>>,
    listed: BTreeSet<Kind>,
    /// The newest object of a kind that the list under way has shown.
    newest_listed: BTreeMap<Kind, Revision>,
    /// Up to which revision a kind was seen.
    as_of: BTreeMap<Kind, Revision>,
    /// What the watch of nodes has yet to tell for the view to be as of a roll call.
    lacking: Option<Lacking>,
}

impl Keeper {
    /// An empty view for an operator that runs in the namespace `home`.
    pub fn new(home: &str) -> Self {
        let mut view = View::default();
        view.home = Arc::from(home);
        Self {
            view,
            shapes: Shapes::default(),
            texts: Texts::default(),
            volumes: BTreeMap::new(),
            handles: BTreeMap::new(),
            buried: BTreeMap::new(),
            unseen: BTreeMap::new(),
            listed: BTreeSet::new(),
            newest_listed: BTreeMap::new(),
            as_of: BTreeMap::new(),
            lacking: None,
        }
    }

    pub fn view(&self) -> &View {
        &self.view
    }

    /// All of `kinds` were listed at least once: before that, what is absent may only not have been read yet.
    pub fn complete(&self, mut kinds: impl Iterator<Item = Kind>) -> bool {
        kinds.all(|kind| self.listed.contains(&kind))
    }

    /// Takes in what a watch said.
    pub fn take(&mut self, news: News) -> Vec<Changed> {
        self.note_as_of(&news);
        let node = match &news {
            News::Seen { object, .. } => Some((object.kind(), object.target().key)),
            News::Gone { kind, target } => Some((*kind, target.key.clone())),
            _ => None,
        };
        let changes = self.take_in(news);
        if let (Some((Kind::Node, key)), Some(lacking)) = (node, &mut self.lacking) {
            lacking.told(&self.view, &key.name);
            self.judge_roll_call();
        }
        changes
    }

    fn take_in(&mut self, news: News) -> Vec<Changed> {
        match news {
            News::Listing(kind) => {
                let known = self.keys(kind);
                self.unseen.insert(kind, known);
                Vec::new()
            }
            News::Seen { object, listed } => {
                if listed {
                    self.shown(object.kind(), &object.target().key);
                }
                self.seen(object)
            }
            News::Unreadable { kind, problem, listed } => {
                if listed {
                    self.shown(kind, &problem.key);
                }
                Vec::new()
            }
            News::Listed(kind) => {
                self.listed.insert(kind);
                let gone = self.unseen.remove(&kind).unwrap_or_default();
                self.buried
                    .retain(|(buried, key), _| *buried != kind || !gone.contains(key));
                gone.iter().flat_map(|key| self.remove(kind, key)).collect()
            }
            News::Gone { kind, target } => self.gone(kind, &target),
            News::Interrupted { .. } => Vec::new(),
        }
    }

    /// Up to which revision a kind was seen: every event of its watch says so, and a list once it is whole. Own writes do not:
    /// they tell of one object only.
    fn note_as_of(&mut self, news: &News) {
        let (kind, seen) = match news {
            News::Seen { object, listed: true } => {
                let newest = self.newest_listed.entry(object.kind()).or_default();
                *newest = object.target().revision.max(*newest);
                return;
            }
            News::Seen { object, .. } => (object.kind(), object.target().revision),
            News::Gone { kind, target } => (*kind, target.revision),
            News::Listed(kind) => (*kind, self.newest_listed.remove(kind).unwrap_or_default()),
            _ => return,
        };
        let as_of = self.as_of.entry(kind).or_default();
        *as_of = seen.max(*as_of);
        match kind {
            Kind::Node => self.view.nodes_as_of = *as_of,
            Kind::NodeKubeadmUpgrade => self.view.node_upgrades_as_of = *as_of,
            _ => {}
        }
    }

    /// Nodes were asked who is there. Once the view shows each of them as it was then, or later, it is as of that moment: that a node is
    /// missing from it means something.
    pub fn roll_called(&mut self, roll: RollCall) {
        self.lacking = Some(Lacking::of(roll, &self.view));
        self.judge_roll_call();
    }

    fn judge_roll_call(&mut self) {
        let Some(lacking) = &self.lacking else { return };
        let as_of = self.as_of.entry(Kind::Node).or_default();
        if lacking.is_empty() {
            *as_of = lacking.revision.max(*as_of);
            self.view.nodes_as_of = *as_of;
        }
        // The watch may have come further by itself.
        if *as_of >= lacking.revision {
            self.lacking = None;
        }
    }

    /// The answer to an own write. One that comes later than the watch, or a list, told of the object's end must not bring it back: nobody
    /// would ever take it away again.
    pub fn answered(&mut self, object: Object) -> Vec<Changed> {
        let (kind, target) = (object.kind(), object.target());
        let passed = self.as_of.get(&kind).is_some_and(|as_of| *as_of >= target.revision);
        if passed && self.known(kind, &target.key).is_none() {
            return Vec::new();
        }
        self.seen(object)
    }

    fn shown(&mut self, kind: Kind, key: &Key) {
        let Some(unseen) = self.unseen.get_mut(&kind) else {
            return;
        };
        // Of these there is one at most, whatever its name.
        if matches!(kind, Kind::VirtualIpLease | Kind::UpgraderImages | Kind::KubeadmConfig) {
            unseen.clear();
        }
        unseen.remove(key);
    }

    /// Takes in an object as it is now, unless it is known in a later state.
    pub fn seen(&mut self, object: Object) -> Vec<Changed> {
        let (kind, target) = (object.kind(), object.target());
        if let Some((uid, revision)) = self.known(kind, &target.key)
            && (revision > target.revision || (revision == target.revision && uid == target.uid))
        {
            return Vec::new();
        }
        if let Some(uid) = self.buried.get(&(kind, target.key.clone())) {
            if *uid == target.uid {
                return Vec::new();
            }
            self.buried.remove(&(kind, target.key.clone()));
        }
        self.put(object, target.key)
    }

    /// A watch says that an object is gone; another one under its name stays.
    fn gone(&mut self, kind: Kind, target: &Target) -> Vec<Changed> {
        if self.buried.get(&(kind, target.key.clone())) == Some(&target.uid) {
            self.buried.remove(&(kind, target.key.clone()));
        }
        if self.known(kind, &target.key).is_some_and(|(uid, _)| uid != target.uid) {
            return Vec::new();
        }
        self.remove(kind, &target.key)
    }

    /// An own write has deleted an object: gone at once, also while a watch still tells of it.
    pub fn deleted(&mut self, kind: Kind, target: &Target) -> Vec<Changed> {
        match self.known(kind, &target.key) {
            Some((uid, _)) if uid == target.uid => {
                self.buried.insert((kind, target.key.clone()), uid);
                self.remove(kind, &target.key)
            }
            _ => Vec::new(),
        }
    }

    /// An eviction was granted: the pod ends. The API server answers without the pod, and it must not be evicted again
    /// before the watch tells.
    pub fn evicted(&mut self, target: &Target, by: Timestamp) -> Vec<Changed> {
        let Some(pod) = self.view.pod(&target.key) else {
            return Vec::new();
        };
        if pod.uid != target.uid || pod.ending.is_some() {
            return Vec::new();
        }
        let mut ending = Pod::clone(pod);
        ending.ending = Some(Ending {
            by,
            held_by_finalizer: false,
        });
        let node = ending.node.clone();
        self.view.put_pod(Arc::new(ending));
        vec![Changed::Pod(node)]
    }

    pub fn set_health(&mut self, health: Health) -> Vec<Changed> {
        let before = std::mem::replace(&mut self.view.health, health);
        let after = &self.view.health;
        let nodes: BTreeSet<&NodeName> = before.keys().chain(after.keys()).collect();
        let differ = |node: &&NodeName| !ControlPlaneHealth::says_the_same(before.get(*node), after.get(*node));
        nodes.into_iter().filter(differ).cloned().map(Changed::Health).collect()
    }

    /// The image of the Jobs of upgrades of Harvester.
    pub fn set_image(&mut self, image: &str) {
        self.view.hci.image = Arc::from(image);
    }

    /// What the repository of an Upgrade answered.
    pub fn set_repo(&mut self, upgrade: Key, release: Result<Arc<str>, Arc<str>>) -> Vec<Changed> {
        let before = self.view.hci.repos.get(&upgrade);
        let failures = before.map_or(0, |answer| answer.failures);
        let answer = RepoAnswer {
            failures: if release.is_ok() { 0 } else { failures + 1 },
            release,
        };
        if before == Some(&answer) {
            return Vec::new();
        }
        self.view.hci.repos.insert(upgrade, answer);
        vec![Changed::Hci(HciKind::Upgrade)]
    }

    pub fn set_gates(&mut self, gates: BTreeMap<(Key, Arc<str>), GateState>) -> Vec<Changed> {
        if self.view.gates == gates {
            return Vec::new();
        }
        self.view.gates = gates;
        vec![Changed::Surroundings]
    }

    /// Uid and revision of an object that own writes may have made newer than the watch.
    fn known(&self, kind: Kind, key: &Key) -> Option<(Uid, Revision)> {
        let view = &self.view;
        let of = |meta| {
            let target = afloat_core::objects::target_of(meta);
            (target.uid, target.revision)
        };
        match kind {
            Kind::Node => view.nodes.get(&*key.name).map(|node| (node.uid.clone(), node.revision)),
            Kind::Pod => view.pod(key).map(|pod| (pod.uid.clone(), pod.revision)),
            Kind::PodDisruptionBudget => view
                .budgets
                .get(key)
                .map(|budget| (budget.uid.clone(), budget.revision)),
            Kind::ClusterUpgrade => view.upgrades.get(key).map(|upgrade| of(&upgrade.metadata)),
            Kind::ControlPlaneKubeadmUpgrade => view.control_planes.get(key).map(|group| of(&group.metadata)),
            Kind::WorkersKubeadmUpgrade => view.workers.get(key).map(|group| of(&group.metadata)),
            Kind::NodeKubeadmUpgrade => view.node_upgrade(key).map(|upgrade| of(&upgrade.metadata)),
            Kind::UpgradeLock => {
                let lock = view.lock.as_ref().filter(|lock| lock.target.key == *key)?;
                Some((lock.target.uid.clone(), lock.target.revision))
            }
            Kind::Deployment | Kind::ReplicaSet | Kind::StatefulSet => {
                let workload = view.workloads.get(&(workload_kind(kind)?, key.clone()))?;
                Some((workload.uid.clone(), workload.revision))
            }
            Kind::Hci(kind) => view.hci.known(kind, key),
            // Never written by the operator: the watch alone speaks of them, in order.
            Kind::PersistentVolumeClaim
            | Kind::PersistentVolume
            | Kind::Namespace
            | Kind::VirtualIpLease
            | Kind::UpgraderImages
            | Kind::KubeadmConfig => None,
        }
    }

    fn keys(&self, kind: Kind) -> BTreeSet<Key> {
        let view = &self.view;
        let plain = |name: &str| Key::new("", name);
        let held = |there: bool| there.then(|| plain("")).into_iter().collect();
        match kind {
            Kind::Node => view.nodes.keys().map(|name| plain(name.as_str())).collect(),
            Kind::Pod => view.pods().map(|pod| pod.key.clone()).collect(),
            Kind::PodDisruptionBudget => view.budgets.keys().cloned().collect(),
            Kind::Deployment | Kind::ReplicaSet | Kind::StatefulSet => {
                let of_kind = |workload: &&Arc<Workload>| Some(workload.kind) == workload_kind(kind);
                view.workloads
                    .values()
                    .filter(of_kind)
                    .map(|workload| workload.key.clone())
                    .collect()
            }
            Kind::PersistentVolumeClaim => view.claims.keys().cloned().collect(),
            Kind::PersistentVolume => self.volumes.keys().map(|name| plain(name)).collect(),
            Kind::Namespace => view.namespaces.keys().map(|name| plain(name)).collect(),
            Kind::ClusterUpgrade => view.upgrades.keys().cloned().collect(),
            Kind::ControlPlaneKubeadmUpgrade => view.control_planes.keys().cloned().collect(),
            Kind::WorkersKubeadmUpgrade => view.workers.keys().cloned().collect(),
            Kind::NodeKubeadmUpgrade => view.node_upgrades().keys().cloned().collect(),
            Kind::UpgradeLock => view.lock.iter().map(|lock| lock.target.key.clone()).collect(),
            Kind::VirtualIpLease => held(view.vip_holder.is_some()),
            Kind::UpgraderImages => held(!view.images.is_empty()),
            Kind::KubeadmConfig => held(view.kubeadm_config.is_some()),
            Kind::Hci(kind) => view.hci.keys(kind),
        }
    }

    fn put(&mut self, object: Object, key: Key) -> Vec<Changed> {
        let view = &mut self.view;
        let changed = match object {
            Object::Node(node) => return self.put_node(*node),
            Object::Pod(pod) => return self.put_pod(*pod),
            Object::Volume { volume, .. } => return self.put_volume(key.name, *volume),
            Object::Budget(budget) => {
                view.budgets.insert(key.clone(), Arc::new(*budget));
                Changed::Budget(key)
            }
            Object::Workload(workload) => return self.put_workload(*workload, key),
            Object::Hci(object) => {
                let kind = object.kind();
                let news = view.hci.take(*object);
                return news.then_some(Changed::Hci(kind)).into_iter().collect();
            }
            Object::Claim { volume, .. } => {
                let known = volume.as_ref().and_then(|name| self.volumes.get(name));
                let node_affinity = known.map(|volume| volume.node_affinity.clone()).unwrap_or_default();
                view.claims.insert(key, Arc::new(Claim { volume, node_affinity }));
                Changed::Surroundings
            }
            Object::Namespace { labels, .. } => {
                let before = view.namespaces.insert(key.name, labels.clone());
                let news = before != Some(labels);
                return news.then_some(Changed::Surroundings).into_iter().collect();
            }
            Object::Upgrade(upgrade) => {
                let after = Arc::new(*upgrade);
                let before = view.upgrades.insert(key.clone(), Arc::clone(&after));
                Changed::upgrade(&key, before.as_deref(), &after)
            }
            Object::ControlPlane(group) => {
                let after = Arc::new(*group);
                let before = view.control_planes.insert(key.clone(), Arc::clone(&after));
                Changed::control_plane(&key, before.as_deref(), &after)
            }
            Object::Workers(group) => {
                let after = Arc::new(*group);
                let before = view.workers.insert(key.clone(), Arc::clone(&after));
                Changed::workers(&key, before.as_deref(), &after)
            }
            Object::NodeUpgrade(upgrade) => {
                let after = Arc::new(*upgrade);
                let before = view.put_node_upgrade(key.clone(), Arc::clone(&after));
                Changed::node_upgrade(&key, before.as_deref(), &after)
            }
            Object::Lock(lock) => {
                view.lock = Some(*lock);
                Changed::Lock
            }
            // kube-vip renews its lease every few seconds; only another holder is news.
            Object::VirtualIp { holder, .. } if view.vip_holder == holder => return Vec::new(),
            Object::VirtualIp { holder, .. } => {
                view.vip_holder = holder;
                Changed::Surroundings
            }
            Object::Images { images, .. } => {
                view.images = images;
                Changed::Surroundings
            }
            Object::KubeadmConfig { config, .. } => {
                view.kubeadm_config = config;
                Changed::Surroundings
            }
        };
        vec![changed]
    }

    fn put_pod(&mut self, mut pod: Pod) -> Vec<Changed> {
        pod.shape = self.shapes.shared(pod.shape);
        pod.key.namespace = self.texts.shared(&pod.key.namespace);
        pod.node = pod.node.map(|node| self.shared_node(&node));
        let before = self.view.pod(&pod.key).and_then(|before| before.node.clone());
        let after = pod.node.clone();
        self.view.put_pod(Arc::new(pod));
        // A namesake born elsewhere concerns both nodes.
        let left = before.filter(|before| Some(before) != after.as_ref());
        left.into_iter().map(Some).chain([after]).map(Changed::Pod).collect()
    }

    fn shared_node(&mut self, node: &NodeName) -> NodeName {
        match self.view.nodes.get_key_value(node) {
            Some((known, _)) => known.clone(),
            None => NodeName::from(self.texts.shared(&Arc::from(node.as_str()))),
        }
    }

    /// A kubelet reports again and again what it has reported before; the revision is noted, and nobody is woken.
    fn put_node(&mut self, mut node: Node) -> Vec<Changed> {
        for volume in &mut node.attached_volumes {
            if let Some(name) = self.handles.get(volume) {
                *volume = Arc::clone(name);
            }
        }
        let after = Arc::new(node);
        let before = self.view.nodes.insert(after.name.clone(), Arc::clone(&after));
        let same = before.as_ref().is_some_and(|before| {
            let mut before = Node::clone(before);
            before.revision = after.revision;
            before == *after
        });
        let changed = (!same).then(|| Changed::node(before.as_deref(), &after));
        changed.into_iter().collect()
    }

    fn put_workload(&mut self, workload: Workload, key: Key) -> Vec<Changed> {
        let (slot, after) = ((workload.kind, key), Arc::new(workload));
        let before = self.view.workloads.insert(slot, Arc::clone(&after));
        let told = |workload: &Workload| {
            (
                workload.uid.clone(),
                workload.replicas,
                workload.ready,
                workload.owner.clone(),
            )
        };
        if before.is_some_and(|before| told(&before) == told(&after)) {
            return Vec::new();
        }
        vec![Changed::Workload]
    }

    /// Volumes come before or after their claims; either way the claim knows where it can be used.
    fn put_volume(&mut self, name: Arc<str>, volume: Volume) -> Vec<Changed> {
        if self.volumes.get(&name) == Some(&volume) {
            return Vec::new();
        }
        if let Some(handle) = &volume.attached_as {
            self.handles.insert(Arc::clone(handle), Arc::clone(&name));
        }
        let (claim, node_affinity) = (volume.claim.clone(), volume.node_affinity.clone());
        self.volumes.insert(Arc::clone(&name), volume);
        let Some(known) = claim.and_then(|key| self.view.claims.get_mut(&key)) else {
            return Vec::new();
        };
        if known.volume.as_ref() != Some(&name) || known.node_affinity == node_affinity {
            return Vec::new();
        }
        *known = Arc::new(Claim {
            volume: Some(name),
            node_affinity,
        });
        vec![Changed::Surroundings]
    }

    fn remove(&mut self, kind: Kind, key: &Key) -> Vec<Changed> {
        let view = &mut self.view;
        let around = |there: bool| there.then_some(Changed::Surroundings);
        let changed = match kind {
            Kind::Node => view
                .nodes
                .remove(&*key.name)
                .map(|node| Changed::Node(node.name.clone())),
            Kind::Pod => view.remove_pod(key).map(|pod| Changed::Pod(pod.node.clone())),
            Kind::PodDisruptionBudget => view.budgets.remove(key).map(|_| Changed::Budget(key.clone())),
            Kind::Deployment | Kind::ReplicaSet | Kind::StatefulSet => workload_kind(kind)
                .and_then(|kind| view.workloads.remove(&(kind, key.clone())))
                .map(|_| Changed::Workload),
            Kind::PersistentVolumeClaim => around(view.claims.remove(key).is_some()),
            Kind::PersistentVolume => {
                let volume = self.volumes.remove(&key.name);
                if let Some(handle) = volume.and_then(|volume| volume.attached_as) {
                    self.handles.remove(&handle);
                }
                None
            }
            Kind::Namespace => around(view.namespaces.remove(&key.name).is_some()),
            Kind::ClusterUpgrade => view.upgrades.remove(key).map(|_| Changed::Upgrade(key.clone())),
            Kind::ControlPlaneKubeadmUpgrade => {
                let group = view.control_planes.remove(key);
                group.map(|_| Changed::ControlPlane(key.clone()))
            }
            Kind::WorkersKubeadmUpgrade => view.workers.remove(key).map(|_| Changed::Workers(key.clone())),
            Kind::NodeKubeadmUpgrade => {
                let upgrade = view.remove_node_upgrade(key);
                upgrade.map(|_| Changed::NodeUpgrade(key.clone()))
            }
            Kind::UpgradeLock => view.lock.take().map(|_| Changed::Lock),
            Kind::VirtualIpLease => around(view.vip_holder.take().is_some()),
            Kind::UpgraderImages => around(!std::mem::take(&mut view.images).is_empty()),
            Kind::KubeadmConfig => around(view.kubeadm_config.take().is_some()),
            Kind::Hci(kind) => view.hci.remove(kind, key).then_some(Changed::Hci(kind)),
        };
        changed.into_iter().collect()
    }
}

fn workload_kind(kind: Kind) -> Option<WorkloadKind> {
    match kind {
        Kind::Deployment => Some(WorkloadKind::Deployment),
        Kind::ReplicaSet => Some(WorkloadKind::ReplicaSet),
        Kind::StatefulSet => Some(WorkloadKind::StatefulSet),
        _ => None,
    }
}

#[cfg(test)]
#[path = "keeper_tests.rs"]
mod tests;

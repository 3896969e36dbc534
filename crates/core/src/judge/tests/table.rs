//! A cluster on which the judge's decisions are carried out to the letter, and on which nodes do what a test says. Refuses
//! what the API server would refuse: writes on an old state, a lock that is taken.

use std::sync::Arc;

use afloat_api::clusterupgrade::{Phase, Slot};
use afloat_api::kubeadm::{DesiredNodeState, Failure, NodeKubeadmUpgradeStatus};
use afloat_api::{ClusterUpgrade, ClusterUpgradeSpec, NodeKubeadmUpgrade, NodeState, Reason};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};

use crate::action::{Action, Decision};
use crate::judge;
use crate::objects::{Standing, key_of};
use crate::plan::StageKind;
use crate::plan::fixture::Cluster;
use crate::subject::Subject;
use crate::view::{Key, Lock, Revision, Target, View, Wish};

pub struct Table {
    pub cluster: Cluster,
    pub now: Timestamp,
    revision: u64,
    /// Names of the actions so far.
    pub done: Vec<&'static str>,
}

impl Table {
    pub fn new(cluster: Cluster) -> Self {
        let mut cluster = cluster;
        cluster.view.home = Arc::from("afloat-system");
        Self {
            cluster,
            now: Timestamp::from_second(1_800_000_000).unwrap(),
            revision: 100,
            done: Vec::new(),
        }
    }

    fn next(&mut self) -> String {
        self.revision += 1;
        self.cluster.view.nodes_as_of = Revision(self.revision);
        self.revision.to_string()
    }

    pub fn upgrade(&mut self, name: &str, spec: ClusterUpgradeSpec) -> Key {
        let key = Key::new("afloat-system", name);
        let upgrade = ClusterUpgrade {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                namespace: Some("afloat-system".to_owned()),
                uid: Some(format!("{name}-uid")),
                generation: Some(1),
                resource_version: Some(self.next()),
                creation_timestamp: Some(Time(self.now)),
                ..ObjectMeta::default()
            },
            spec,
            status: None,
        };
        self.cluster.view.upgrades.insert(key.clone(), Arc::new(upgrade));
        key
    }

    pub fn edit(&mut self, key: &Key, change: impl FnOnce(&mut ClusterUpgrade)) {
        let revision = self.next();
        let upgrade = Arc::make_mut(self.cluster.view.upgrades.get_mut(key).unwrap());
        change(upgrade);
        upgrade.metadata.resource_version = Some(revision);
    }

    pub fn view(&self) -> &View {
        &self.cluster.view
    }

    pub fn phase(&self, key: &Key) -> Phase {
        let status = self.view().upgrades[key].status.as_ref();
        status.and_then(|status| status.phase).unwrap_or_default()
    }

    pub fn slots(&self, key: &Key) -> Vec<Slot> {
        let status = self.view().upgrades[key].status.as_ref();
        status.map(|status| status.slots.clone()).unwrap_or_default()
    }

    pub fn slot_nodes(&self, key: &Key) -> Vec<String> {
        self.slots(key).into_iter().map(|slot| slot.node).collect()
    }

    /// Lets the judge decide about everything until it has nothing more to say; nodes do nothing by themselves.
    pub fn settle(&mut self) {
        for _ in 0..200 {
            let mut quiet = true;
            for subject in self.subjects() {
                let decision = self.decide(&subject);
                quiet &= decision.actions.is_empty();
                self.carry_out(&decision);
            }
            if quiet {
                return;
            }
        }
        panic!(
            "the judge never comes to rest: {:?}",
            &self.done[self.done.len() - 12..]
        );
    }

    fn subjects(&self) -> Vec<Subject> {
        let view = self.view();
        let upgrades = view.upgrades.keys().cloned().map(Subject::Upgrade);
        let planes = view.control_planes.keys().cloned().map(Subject::ControlPlane);
        let workers = view.workers.keys().cloned().map(Subject::Workers);
        upgrades.chain(planes).chain(workers).collect()
    }

    pub fn decide(&self, subject: &Subject) -> Decision {
        match subject {
            Subject::Upgrade(key) => judge::decide_upgrade(self.view(), key, self.now),
            Subject::ControlPlane(key) => judge::decide_control_plane(self.view(), key, self.now),
            Subject::Workers(key) => judge::decide_workers(self.view(), key, self.now),
            Subject::Node(_) | Subject::Hci(_) => Decision::default(),
        }
    }

    /// Carries out a decision up to the first refusal.
    pub fn carry_out(&mut self, decision: &Decision) {
        for action in &decision.actions {
            self.done.push(action.name());
            if !self.perform(action) {
                return;
            }
        }
    }

    fn perform(&mut self, action: &Action) -> bool {
        let revision = self.next();
        let number = Revision(self.revision);
        let view = &mut self.cluster.view;
        match action {
            Action::WriteUpgradeStatus { target, status } => {
                let upgrade = Arc::make_mut(view.upgrades.get_mut(&target.key).unwrap());
                if !fresh(&upgrade.metadata, target) {
                    return false;
                }
                upgrade.status = Some(status.as_ref().clone());
                upgrade.metadata.resource_version = Some(revision);
            }
            Action::SetUpgradeFinalizer { target, present } => {
                let upgrade = Arc::make_mut(view.upgrades.get_mut(&target.key).unwrap());
                upgrade.metadata.finalizers = present.then(|| vec![afloat_api::names::FINALIZER.to_owned()]);
                upgrade.metadata.resource_version = Some(revision);
            }
            Action::CreateNodeUpgrade(upgrade) => {
                let mut upgrade = upgrade.as_ref().clone();
                born(&mut upgrade.metadata, &revision, self.now);
                assert!(view.node_upgrade(&key_of(&upgrade.metadata)).is_none(), "made twice");
                view.put_node_upgrade(key_of(&upgrade.metadata), Arc::new(upgrade));
            }
            Action::SetDesired {
                target,
                desired,
                attempt,
                because,
            } => {
                let mut upgrade = NodeKubeadmUpgrade::clone(view.node_upgrade(&target.key).unwrap());
                if !fresh(&upgrade.metadata, target) {
                    return false;
                }
                upgrade.spec.desired = *desired;
                upgrade.spec.attempt = *attempt;
                let because = because.map(|reason| ("afloat.dev/because".to_owned(), reason.to_string()));
                upgrade.metadata.annotations = Some(because.into_iter().collect());
                upgrade.metadata.resource_version = Some(revision);
                view.put_node_upgrade(target.key.clone(), Arc::new(upgrade));
            }
            Action::TakeLock { namespace, holder, .. } => {
                if let Some(lock) = &view.lock {
                    return lock.holder == *holder;
                }
                let target = Target {
                    key: Key::new(namespace, "afloat-upgrade"),
                    uid: "lock".into(),
                    revision: number,
                };
                let holder = holder.clone();
                view.lock = Some(Lock { target, holder });
            }
            Action::ReleaseLock { .. } => view.lock = None,
            Action::PauseNode { node, upgrade } => self.cluster.node(&node.key.name, |node| {
                node.pause = Some("true".into());
                node.paused_by = Some(upgrade.uid.clone());
            }),
            Action::UnpauseNode { node, left } => self.cluster.node(&node.key.name, |node| {
                node.pause.clone_from(left);
                node.paused_by = None;
            }),
            Action::ClearWish { node } => self.cluster.node(&node.key.name, |node| node.wish = None),
            other => self.perform_on_group(other, revision),
        }
        true
    }

    fn perform_on_group(&mut self, action: &Action, revision: String) {
        let view = &mut self.cluster.view;
        match action {
            Action::WriteControlPlaneStatus { target, status } => {
                let group = Arc::make_mut(view.control_planes.get_mut(&target.key).unwrap());
                group.status = Some(status.as_ref().clone());
                group.metadata.resource_version = Some(revision);
            }
            Action::WriteWorkersStatus { target, status } => {
                let group = Arc::make_mut(view.workers.get_mut(&target.key).unwrap());
                group.status = Some(status.as_ref().clone());
                group.metadata.resource_version = Some(revision);
            }
            Action::CreateControlPlaneUpgrade(group) => {
                let mut group = group.as_ref().clone();
                born(&mut group.metadata, &revision, self.now);
                view.control_planes.insert(key_of(&group.metadata), Arc::new(group));
            }
            Action::CreateWorkersUpgrade(group) => {
                let mut group = group.as_ref().clone();
                born(&mut group.metadata, &revision, self.now);
                view.workers.insert(key_of(&group.metadata), Arc::new(group));
            }
            Action::SetWorkersMachines { target, machines } => {
                let group = Arc::make_mut(view.workers.get_mut(&target.key).unwrap());
                group.spec.machines_require_upgrade.clone_from(machines);
                group.metadata.resource_version = Some(revision);
            }
            Action::SetGroupFinalizer { target, of, present } => {
                let finalizers = present.then(|| vec![afloat_api::names::FINALIZER.to_owned()]);
                let meta = match of {
                    StageKind::ControlPlane => {
                        &mut Arc::make_mut(view.control_planes.get_mut(&target.key).unwrap()).metadata
                    }
                    StageKind::Workers => &mut Arc::make_mut(view.workers.get_mut(&target.key).unwrap()).metadata,
                };
                meta.finalizers = finalizers;
                meta.resource_version = Some(revision);
                if meta.deletion_timestamp.is_some() && !present {
                    view.control_planes.remove(&target.key);
                    view.workers.remove(&target.key);
                }
            }
            other => panic!("not the judge's to do: {other:?}"),
        }
    }

    /// The upgrade of a node that was made last, one that is not over before one that is.
    pub fn node_upgrade(&self, node: &str) -> NodeKubeadmUpgrade {
        let of_node = self.view().node_upgrades_of(node).map(|(_, upgrade)| upgrade);
        let latest = of_node.max_by_key(|upgrade| {
            let born = upgrade.metadata.creation_timestamp.as_ref().map(|time| time.0);
            (!Standing::of(upgrade).ended(), born)
        });
        NodeKubeadmUpgrade::clone(latest.expect("the node has an upgrade"))
    }

    /// The node comes into a state, as its lifecycle would say.
    pub fn becomes(&mut self, node: &str, state: NodeState, because: Option<Reason>) {
        let mut upgrade = self.node_upgrade(node);
        let attempt = upgrade.spec.attempt;
        let mut status = match upgrade.status.take() {
            Some(status) if status.attempt == Some(attempt) => status,
            _ => NodeKubeadmUpgradeStatus::default(),
        };
        status.attempt = Some(attempt);
        status.state = Some(state);
        status.state_since = Some(Time(self.now));
        if let Some(reason) = because {
            status.failure = Some(Failure {
                state,
                reason: reason.to_string(),
                message: format!("{reason} on {node}"),
                at: Time(self.now),
                blocked_by: None,
            });
        }
        upgrade.status = Some(status);
        upgrade.metadata.resource_version = Some(self.next());
        if state == NodeState::Succeeded {
            let to = upgrade.spec.kubelet_version.clone();
            self.cluster.upgrade(node, &to);
        }
        self.cluster
            .view
            .put_node_upgrade(key_of(&upgrade.metadata), Arc::new(upgrade));
        self.now += SignedDuration::from_secs(1);
    }

    /// Nodes to which nothing has been brought yet.
    pub fn pending(&self) -> Vec<String> {
        let upgrades = self.view().node_upgrades().values();
        let pending = upgrades.filter(|upgrade| Standing::of(upgrade).state() == NodeState::Pending);
        pending.map(|upgrade| upgrade.spec.node.name.clone()).collect()
    }

    /// Everyone who waits for it is staged.
    pub fn stage_all(&mut self) {
        for _ in 0..20 {
            self.settle();
            let pending = self.pending();
            if pending.is_empty() {
                return;
            }
            for node in pending {
                self.becomes(&node, NodeState::Staged, None);
            }
        }
    }

    /// Nodes with a slot succeed, again and again, until nothing moves. Says who went together, in order.
    pub fn run(&mut self, key: &Key) -> Vec<Vec<String>> {
        let mut rounds = Vec::new();
        for _ in 0..200 {
            self.stage_all();
            let going = self.going();
            if going.is_empty() {
                return rounds;
            }
            assert_eq!(going.len(), self.slots(key).len(), "a node goes only with a slot");
            for node in &going {
                self.becomes(node, NodeState::Succeeded, None);
            }
            rounds.push(going);
        }
        panic!("the upgrade never ends");
    }

    /// Nodes that were let go.
    pub fn going(&self) -> Vec<String> {
        self.view()
            .node_upgrades()
            .values()
            .filter(|upgrade| upgrade.spec.desired == DesiredNodeState::Upgraded && !Standing::of(upgrade).ended())
            .map(|upgrade| upgrade.spec.node.name.clone())
            .collect()
    }

    pub fn wish(&mut self, node: &str, wish: Wish) {
        self.cluster.node(node, |node| node.wish = Some(wish));
    }
}

fn fresh(meta: &ObjectMeta, target: &Target) -> bool {
    meta.resource_version.as_deref() == Some(&target.revision.to_string())
        && meta.uid.as_deref() == Some(target.uid.as_str())
}

fn born(meta: &mut ObjectMeta, revision: &str, now: Timestamp) {
    meta.uid = Some(format!("uid-{revision}"));
    meta.generation = Some(1);
    meta.resource_version = Some(revision.to_owned());
    meta.creation_timestamp = Some(Time(now));
}

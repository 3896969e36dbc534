//! The world: storage, machines, actors, people and faults, moved by one queue of events. What each actor does is in the
//! files beside this one; the operator is in [`super::operator`], what must hold in [`super::rules`].

mod clients;
mod control;
mod kubelet;
mod people;
mod scheduler;
mod telling;
mod trouble;
mod workloads;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use afloat_core::KubernetesVersion;
use afloat_core::view::{Component, GateState, Key, NodeName, PodShape, Uid, WorkloadKind};

pub use people::{Act, PlannedAct, When};

use super::faults::Plan;
use super::machine::{Facts, Machine};
use super::operator::{Operator, OperatorEvent};
use super::queue::Queue;
use super::rules::Rules;
use super::store::{Kind, KindName, Store, Writer, Written};
use super::time::{Millis, SECOND};
use super::traffic::Traffic;
use afloat_node::host::EtcdPeer;
use afloat_simhost::Shared;

/// What happens at a moment.
#[derive(Clone, Debug)]
pub enum Event {
    Schedule,
    Budgets,
    Workload(usize),
    Collect(KindName, Uid),
    /// Pods of a node that is gone are removed.
    Orphans(NodeName),
    PodStart(Key, Uid),
    PodReady(Key, Uid),
    PodGone(Key, Uid),
    /// The next container of one of Afloat's pods.
    Container(NodeName, Uid, u32),
    Engine(NodeName, u32),
    /// The kubelet tells the API server about its node, its static pods, its containers.
    Tell(NodeName),
    NodeLost(NodeName, u32),
    Boot(NodeName, u32),
    /// A member of etcd has caught up.
    EtcdCaughtUp,
    Operator(usize, u32, OperatorEvent),
    Person(usize),
    Fault(usize),
    /// Faults and people end here.
    Calm,
}

/// Something that keeps pods.
#[derive(Clone, Debug)]
pub struct Keeper {
    pub kind: KeeperKind,
    pub key: Key,
    pub uid: Uid,
    pub replicas: usize,
    pub shape: Arc<PodShape>,
    pub grace: Millis,
    pub start: Millis,
    made: u32,
    pods: BTreeSet<Key>,
    planned: bool,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum KeeperKind {
    ReplicaSet,
    StatefulSet,
    DaemonSet,
}

impl KeeperKind {
    pub fn word(self) -> &'static str {
        match self {
            Self::ReplicaSet => "ReplicaSet",
            Self::StatefulSet => "StatefulSet",
            Self::DaemonSet => "DaemonSet",
        }
    }

    pub fn workload(self) -> Option<WorkloadKind> {
        match self {
            Self::ReplicaSet => Some(WorkloadKind::ReplicaSet),
            Self::StatefulSet => Some(WorkloadKind::StatefulSet),
            Self::DaemonSet => None,
        }
    }
}

/// The world.
#[allow(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub struct World {
    pub now: Millis,
    pub store: Store,
    pub rng: fastrand::Rng,
    pub queue: Queue<Event>,
    pub machines: BTreeMap<NodeName, Machine>,
    pub keepers: Vec<Keeper>,
    pub keeper_of: BTreeMap<Uid, usize>,
    pub operators: Vec<Operator>,
    /// The keeper whose pods are the operator's.
    pub operator_keeper: Option<usize>,
    pub rules: Rules,
    /// What clients of the cluster see of its API servers.
    pub traffic: Traffic,
    pub plan: Plan,
    pub acts: Vec<PlannedAct>,
    /// Groups that people have made without a ClusterUpgrade above them.
    pub alone: Vec<(KindName, Key)>,
    pub images: BTreeMap<KubernetesVersion, Arc<str>>,
    pub home: Arc<str>,
    /// What all machines share.
    pub shared: Shared,
    pub gates: BTreeMap<(Key, Arc<str>), GateState>,
    pub vip_holder: Option<NodeName>,
    /// Budgets that no controller ever frees.
    pub frozen_budgets: BTreeSet<Key>,
    /// The revision the cluster was whole at: no view is older.
    pub whole_at: u64,
    /// The upgrade is to a version beyond the next.
    pub far: bool,
    pub calm: bool,
    pub last_operator_write: Millis,
    /// How many mutating requests the operator has made so far.
    pub operator_writes: usize,
    /// How many requests it has sent, refused ones included.
    pub requests: usize,
    pub trace: Option<String>,
    pub events: u64,
    pub decisions: u64,
    waiting_for_api: Vec<Event>,
    schedule_planned: bool,
    budgets_planned: bool,
    pending: BTreeSet<Key>,
    /// Labels used on nodes: kubelet's pods use these.
    used: BTreeMap<NodeName, (i64, i64)>,
    told: BTreeMap<NodeName, Facts>,
}

impl World {
    pub fn new(seed: u64, rules: Rules, plan: Plan) -> Self {
        Self {
            now: 0,
            store: Store::default(),
            rng: fastrand::Rng::with_seed(seed),
            queue: Queue::default(),
            machines: BTreeMap::new(),
            keepers: Vec::new(),
            keeper_of: BTreeMap::new(),
            operators: Vec::new(),
            operator_keeper: None,
            rules,
            traffic: Traffic::default(),
            plan,
            acts: Vec::new(),
            alone: Vec::new(),
            images: BTreeMap::new(),
            home: Arc::from("afloat-system"),
            shared: Shared::new("v1.35.4"),
            gates: BTreeMap::new(),
            vip_holder: None,
            frozen_budgets: BTreeSet::new(),
            whole_at: 0,
            far: false,
            calm: false,
            last_operator_write: 0,
            operator_writes: 0,
            requests: 0,
            trace: None,
            events: 0,
            decisions: 0,
            waiting_for_api: Vec::new(),
            schedule_planned: false,
            budgets_planned: false,
            pending: BTreeSet::new(),
            used: BTreeMap::new(),
            told: BTreeMap::new(),
        }
    }

    pub fn later(&mut self, after: Millis, event: Event) {
        self.queue.push(self.now + after, event);
    }

    /// Some time from `low` to `high`.
    pub fn some(&mut self, low: Millis, high: Millis) -> Millis {
        self.rng.u64(low..=high)
    }

    /// Runs until `until`, or until a rule is broken.
    pub fn run(&mut self, until: Millis) {
        while self.rules.broken().is_none() && self.queue.next_at().is_some_and(|at| at <= until) {
            let Some((at, event)) = self.queue.pop() else { break };
            self.now = self.now.max(at);
            self.store.now = self.now;
            self.events += 1;
            self.handle(event);
            self.settle();
        }
        if self.rules.broken().is_none() {
            self.now = self.now.max(until);
            self.store.now = self.now;
        }
    }

    fn handle(&mut self, event: Event) {
        if event.needs_api() && !self.api_serves() {
            self.waiting_for_api.push(event);
            return;
        }
        match event {
            Event::Schedule => self.schedule(),
            Event::Budgets => self.count_budgets(),
            Event::Workload(index) => self.keep(index),
            Event::Collect(kind, uid) => self.collect(kind, &uid),
            Event::Orphans(node) => self.remove_orphans(&node),
            Event::PodStart(key, uid) => self.pod_starts(&key, &uid),
            Event::PodReady(key, uid) => self.pod_is_ready(&key, &uid),
            Event::PodGone(key, uid) => self.pod_goes(&key, &uid),
            Event::Container(node, uid, epoch) => self.container(&node, &uid, epoch),
            Event::Engine(node, epoch) => self.engine(&node, epoch),
            Event::Tell(node) => self.tell(&node),
            Event::NodeLost(node, epoch) => self.node_is_lost(&node, epoch),
            Event::Boot(node, epoch) => self.boot(&node, epoch),
            Event::EtcdCaughtUp => self.members_hear(),
            Event::Operator(index, incarnation, event) => self.operator_event(index, incarnation, event),
            Event::Person(index) => self.person(index),
            Event::Fault(index) => self.fault(index),
            Event::Calm => self.becomes_calm(),
        }
    }

    /// Lets everyone see what was written: rules first, then actors, whose own writes come next.
    pub fn settle(&mut self) {
        while !self.store.fresh.is_empty() {
            let fresh = std::mem::take(&mut self.store.fresh);
            for written in fresh {
                if let Writer::Operator(_) = written.writer {
                    self.last_operator_write = self.now;
                    self.operator_writes += 1;
                }
                if self.trace.is_some() {
                    self.note(&written);
                }
                self.rules.saw(&self.store, &written, &self.machines);
                self.react(&written);
            }
        }
    }

    fn react(&mut self, written: &Written) {
        match written.kind {
            KindName::Pod => self.pod_changed(written.index),
            KindName::Node => self.node_changed(written.index),
            KindName::Upgrade => self.removed::<afloat_api::ClusterUpgrade>(written.index),
            KindName::ControlPlane => self.removed::<afloat_api::ControlPlaneKubeadmUpgrade>(written.index),
            KindName::Workers => self.removed::<afloat_api::WorkersKubeadmUpgrade>(written.index),
            KindName::NodeUpgrade => {
                self.removed::<afloat_api::NodeKubeadmUpgrade>(written.index);
                self.node_upgrade_changed(written.index);
            }
            KindName::Lock => self.lock_changed(written.index),
            KindName::Budget | KindName::Workload => {}
        }
        self.wake_operators();
    }

    /// An owner is gone: the collector comes by later.
    fn removed<T: Kind>(&mut self, index: usize) {
        let Some(change) = T::table(&self.store).changes().get(index) else {
            return;
        };
        if change.after.is_none()
            && let Some(before) = &change.before
        {
            let uid = Uid::from(before.uid());
            let after = self.some(100, 3 * SECOND);
            self.later(after, Event::Collect(T::NAME, uid));
        }
    }

    /// The machine did something: who sees it, sees it now.
    pub fn machine_moved(&mut self, name: &NodeName, before: &Facts) {
        let Some(machine) = self.machines.get(name) else { return };
        let after = machine.facts.clone();
        if after == *before {
            return;
        }
        let epoch = machine.epoch;
        if self.trace.is_some() {
            self.note_machine(name, before, &after);
        }
        self.rules.machine_moved(&self.store, &self.machines, name, before);
        if before.parts != after.parts || before.powered != after.powered || before.forwards_to != after.forwards_to {
            self.clients_look();
        }
        if before.kubelet && !after.kubelet {
            if let Some(told) = self.told.get_mut(name) {
                told.kubelet = false;
            }
            let after = self.some(40 * SECOND, 50 * SECOND);
            self.later(after, Event::NodeLost(name.clone(), epoch));
        }
        if after.kubelet {
            let after = if before.kubelet {
                self.some(500, 4 * SECOND)
            } else {
                self.some(SECOND, 8 * SECOND)
            };
            self.later(after, Event::Tell(name.clone()));
        }
        if !before.serves(Component::Etcd) && after.serves(Component::Etcd) {
            self.member_falls_behind(name);
        }
        if before.parts != after.parts || before.powered != after.powered {
            self.members_hear();
            self.move_vip();
            self.probe_operators();
            if self.api_serves() {
                for event in std::mem::take(&mut self.waiting_for_api) {
                    let after = self.rng.u64(10..=2000);
                    self.later(after, event);
                }
            }
        }
    }

    /// Members of etcd hear of each other, and all machines of whether the API answers.
    pub(crate) fn members_hear(&mut self) {
        let members: Vec<&Machine> = self.machines.values().filter(|machine| machine.control_plane).collect();
        let up = |machine: &Machine| machine.facts.serves(Component::Etcd);
        let peers: Vec<EtcdPeer> = members
            .iter()
            .map(|machine| EtcdPeer {
                name: machine.name.as_str().to_owned(),
                healthy: up(machine),
                behind: machine.behind(self.now),
            })
            .collect();
        let leader = members.iter().find(|machine| up(machine) && machine.leads_etcd());
        let leader = leader.or_else(|| members.iter().find(|machine| up(machine)));
        let leader = leader.map(|machine| machine.name.clone());
        // They agree on a version only while each of them tells its own.
        let tags: Option<Vec<_>> = members
            .iter()
            .map(|machine| machine.facts.part(Component::Etcd))
            .collect();
        let oldest = tags.and_then(|tags| tags.iter().map(|part| part.tag.to_string()).min());
        let silent = members
            .iter()
            .filter(|machine| !machine.facts.serves(Component::ApiServer));
        let silent: Vec<String> = silent.map(|machine| machine.address().to_owned()).collect();
        for machine in self.machines.values_mut().filter(|machine| machine.control_plane) {
            let leads = leader.as_ref() == Some(&machine.name);
            machine.hear(&peers, leads, oldest.as_deref(), self.now);
            machine.hear_of_servers(&silent);
        }
        let serves = self.api_serves();
        let before = std::mem::replace(&mut self.shared.get().api_reachable, serves);
        // Workers look at the API as a whole.
        let concerned = |machine: &&Machine| machine.control_plane || before != serves;
        let machines = self.machines.values().filter(concerned);
        let names: Vec<NodeName> = machines.map(|machine| machine.name.clone()).collect();
        for name in names {
            let Some(machine) = self.machines.get_mut(&name) else {
                continue;
            };
            let before = machine.facts.clone();
            machine.observe();
            if machine.facts != before {
                self.machine_moved(&name, &before);
            }
        }
    }

    fn move_vip(&mut self) {
        let Some(holder) = &self.vip_holder else { return };
        let serves = |machine: &Machine| machine.facts.serves(Component::ApiServer);
        if self.machines.get(holder).is_some_and(serves) {
            return;
        }
        let next = self.machines.values().find(|machine| serves(machine));
        if let Some(machine) = next {
            self.vip_holder = Some(machine.name.clone());
        }
    }

    /// Whether a request finds an API server that can answer it: one that is ready, and etcd with a majority.
    pub fn api_serves(&self) -> bool {
        let mut planes = self.machines.values().filter(|machine| machine.control_plane);
        planes.any(|machine| machine.facts.serves(Component::ApiServer)) && self.etcd_has_majority()
    }

    pub(crate) fn etcd_has_majority(&self) -> bool {
        let (mut members, mut up) = (0, 0);
        for machine in self.machines.values().filter(|machine| machine.control_plane) {
            members += 1;
            up += usize::from(machine.facts.serves(Component::Etcd));
        }
        up > members / 2
    }

    fn plan_schedule(&mut self) {
        if !self.schedule_planned && !self.pending.is_empty() {
            self.schedule_planned = true;
            let after = self.some(20, 300);
            self.later(after, Event::Schedule);
        }
    }

    fn plan_budgets(&mut self) {
        if !self.budgets_planned {
            self.budgets_planned = true;
            let after = self.some(20, 500);
            self.later(after, Event::Budgets);
        }
    }
}

impl Event {
    fn needs_api(&self) -> bool {
        matches!(
            self,
            Self::Schedule
                | Self::Budgets
                | Self::Workload(_)
                | Self::Collect(..)
                | Self::Orphans(_)
                | Self::PodStart(..)
                | Self::PodReady(..)
                | Self::PodGone(..)
                | Self::Tell(_)
                | Self::NodeLost(..)
                | Self::Person(_)
        )
    }
}

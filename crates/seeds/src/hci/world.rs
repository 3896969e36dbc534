//! The world: storage, machines, actors, people and faults, moved by one queue of events. Whoever has something to do about an object
//! looks at it a moment after it has changed ([`Look`]); what each does then is in the files beside this one.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write as _;
use std::sync::Arc;

use afloat_core::hci::action::HciJob;
use afloat_core::hci::view::{HciKind, HciObject, Seen};
use afloat_core::view::{Key, Node, NodeName, Uid, Workload, WorkloadKind};
use afloat_scenes::{Act, Deed, PowerCut, Script, VmShape};

use super::machines::Machine;
use super::operator::{Replica, ReplicaEvent};
use super::rules::Rules;
use super::store::{Note, Shelf, Store};
use super::tasks::{Task, TaskEvent};
use crate::faults::{Fault, Plan};
use crate::queue::Queue;
use crate::store::{KindName, Meant, Writer};
use crate::time::{MINUTE, Millis, SECOND, clock};

/// How often a kubelet posts a status that has not changed.
const HEARTBEAT: Millis = 5 * MINUTE;

/// What happens at a moment.
#[derive(Clone, Debug)]
pub enum Event {
    Look(Look),
    Replica(usize, u32, ReplicaEvent),
    Task(Uid, u32, TaskEvent),
    /// An owner is gone.
    Collect(Uid),
    Heartbeat(NodeName),
    Fault(usize),
    /// What a person does by chance.
    Chance(Deed),
    /// Faults and people who act by chance end here.
    Calm,
}

/// Somebody looks at something.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Look {
    Rancher,
    Vm(Key),
    Vmi(Key),
    Migration(Key),
    /// At the budget of a migration.
    Budget(Key),
    Volume(Key),
    /// At the engine of a volume.
    Engine(Key),
    Chart(Key),
    Part(Shelf, Key),
    Machine(NodeName),
    People,
}

/// Work that takes its time, by who does it; two kinds of it may be under way on one object.
pub type Work = (Look, u8);

pub struct World {
    pub now: Millis,
    pub store: Store,
    pub rng: fastrand::Rng,
    /// By which the scheduler finds some nodes fuller than others.
    pub seed: u64,
    pub queue: Queue<Event>,
    pub script: Script,
    pub replicas: Vec<Replica>,
    pub tasks: BTreeMap<Uid, Task>,
    /// What Jobs are to do, by their name.
    pub job_specs: BTreeMap<Key, HciJob>,
    pub machines: BTreeMap<NodeName, Machine>,
    pub shapes: BTreeMap<Key, VmShape>,
    /// The scheduler does not hear taints that only ask: to see what they are worth.
    pub deaf: bool,
    /// Where migrations go.
    pub destinations: BTreeMap<Uid, NodeName>,
    /// Migrations that never end.
    pub endless_migrations: BTreeSet<Uid>,
    /// Those that have gone over to post-copy.
    pub post_copied: BTreeSet<Uid>,
    /// Replicas that are rebuilt slowly, by their volume.
    pub slow_rebuilds: BTreeMap<Key, Millis>,
    /// Values of charts that Rancher has handed to fleet.
    pub handed: BTreeMap<Key, Arc<str>>,
    pub power_cuts: Vec<PowerCut>,
    /// Power cuts whose moment has come, and when they are.
    pub cuts: Vec<(Millis, PowerCut)>,
    pub rancher_away: Millis,
    pub acts: VecDeque<Act>,
    /// When the moment of the next act was seen.
    pub act_seen: Option<Millis>,
    pub rules: Rules,
    pub plan: Plan,
    pub calm: bool,
    /// Migrations that will fail by chance.
    pub failing_migrations: u32,
    /// The revision the cluster was whole at: no view is older.
    pub whole_at: u64,
    pub release: Arc<str>,
    /// Writes that are about the upgrade, of anybody.
    pub writes: u64,
    pub requests: usize,
    pub events: u64,
    pub decisions: u64,
    /// What was said, where somebody listens.
    pub heard: Option<BTreeSet<String>>,
    pub trace: Option<String>,
    looks: BTreeMap<Look, Millis>,
    takes: BTreeMap<Work, Millis>,
}

impl World {
    pub fn new(seed: u64, script: Script, plan: Plan) -> Self {
        Self {
            now: 0,
            store: Store::default(),
            rng: fastrand::Rng::with_seed(seed),
            seed,
            queue: Queue::default(),
            replicas: Vec::new(),
            tasks: BTreeMap::new(),
            job_specs: BTreeMap::new(),
            machines: BTreeMap::new(),
            shapes: BTreeMap::new(),
            deaf: false,
            destinations: BTreeMap::new(),
            endless_migrations: BTreeSet::new(),
            post_copied: BTreeSet::new(),
            slow_rebuilds: BTreeMap::new(),
            handed: BTreeMap::new(),
            power_cuts: script.trouble.machines.power_cuts.clone(),
            cuts: Vec::new(),
            rancher_away: 0,
            acts: script.people.clone().into(),
            act_seen: None,
            rules: Rules::default(),
            plan,
            calm: false,
            failing_migrations: 0,
            whole_at: 0,
            release: Arc::from(script.ground.release()),
            writes: 0,
            requests: 0,
            events: 0,
            decisions: 0,
            heard: None,
            trace: None,
            looks: BTreeMap::new(),
            takes: BTreeMap::new(),
            script,
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
            self.store.base.now = self.now;
            self.events += 1;
            self.handle(event);
        }
        if self.rules.broken().is_none() {
            self.now = self.now.max(until);
            self.store.base.now = self.now;
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Look(look) => {
                // One that was planned for a later time, and came earlier, has nothing more to see.
                if self.looks.get(&look).is_some_and(|at| *at <= self.now) {
                    self.looks.remove(&look);
                    self.look(&look);
                }
            }
            Event::Replica(index, incarnation, event) => self.replica_event(index, incarnation, event),
            Event::Task(job, incarnation, event) => self.task_event(&job, incarnation, &event),
            Event::Collect(upgrade) => self.collect(&upgrade),
            Event::Heartbeat(node) => self.heartbeat(&node),
            Event::Fault(index) => self.fault(index),
            Event::Chance(deed) => {
                if !self.calm {
                    self.does(&deed);
                }
            }
            Event::Calm => self.becomes_calm(),
        }
    }

    fn look(&mut self, look: &Look) {
        match look {
            Look::Rancher => self.rancher(),
            Look::Vm(key) => self.vm(key),
            Look::Vmi(key) => self.vmi(key),
            Look::Migration(key) => self.migration(key),
            Look::Budget(key) => self.budget(key),
            Look::Volume(key) => self.volume(key),
            Look::Engine(key) => self.engine(key),
            Look::Chart(key) => self.chart(key),
            Look::Part(place, key) => self.part(*place, key),
            Look::Machine(node) => self.machine(node),
            Look::People => self.people(),
        }
    }

    /// Somebody will look at something, then at the latest.
    pub fn look_at(&mut self, at: Millis, look: Look) {
        let at = at.max(self.now + 1);
        if self.looks.get(&look).is_some_and(|planned| *planned <= at) {
            return;
        }
        self.looks.insert(look.clone(), at);
        self.queue.push(at, Event::Look(look));
    }

    pub fn look_soon(&mut self, look: Look) {
        if self.looks.get(&look).is_none_or(|planned| *planned > self.now + 20) {
            let after = self.some(20, 400);
            self.look_at(self.now + after, look);
        }
    }

    /// Whether work that takes up to so long is done; where it is not, it is looked at again when it will be.
    pub fn takes(&mut self, work: &Work, upper: Millis) -> bool {
        let (now, rng) = (self.now, &mut self.rng);
        let thrown = || now + rng.u64(upper / 2..=upper);
        let due = *self.takes.entry(work.clone()).or_insert_with(thrown);
        if due > self.now {
            self.look_at(due, work.0.clone());
            return false;
        }
        self.takes.remove(work);
        true
    }

    /// Nobody does it any more.
    pub fn forget(&mut self, work: &Work) {
        self.takes.remove(work);
    }

    /// Writes an object of the HCI part, and lets everyone see it.
    pub fn write(&mut self, writer: Writer, verb: &'static str, object: HciObject) {
        let place = Shelf::Hci(object.kind());
        if let Some(index) = self.store.put(object) {
            self.saw(&Note {
                place,
                index,
                writer,
                verb,
            });
        }
    }

    /// Changes an object of the HCI part that is there.
    pub fn change<T: Clone>(
        &mut self,
        writer: Writer,
        wrap: fn(Arc<Seen<T>>) -> HciObject,
        there: &Arc<Seen<T>>,
        change: impl FnOnce(&mut T),
    ) {
        let mut after = Seen::clone(there);
        change(&mut after.what);
        self.write(writer, "change", wrap(Arc::new(after)));
    }

    /// Makes an object of the HCI part.
    pub fn make<T>(&mut self, writer: Writer, at: (&str, &str), what: T, wrap: fn(Arc<Seen<T>>) -> HciObject) {
        let target = self.store.born(at.0, at.1);
        let object = Seen {
            target,
            deleting: false,
            what,
        };
        self.write(writer, "create", wrap(Arc::new(object)));
    }

    pub fn remove(&mut self, writer: Writer, verb: &'static str, kind: HciKind, key: &Key) {
        if let Some(index) = self.store.remove(kind, key) {
            let place = Shelf::Hci(kind);
            self.saw(&Note {
                place,
                index,
                writer,
                verb,
            });
        }
    }

    pub fn remove_repo(&mut self, writer: Writer, key: &Key) {
        let slot = (WorkloadKind::Deployment, key.clone());
        self.store.base.remove::<Workload>(writer, &slot);
        self.settle();
    }

    pub fn change_node(&mut self, writer: Writer, verb: &'static str, name: &NodeName, change: impl FnOnce(&mut Node)) {
        let base = &mut self.store.base;
        // One that is gone meanwhile is nobody's any more.
        let _gone = base.update::<Node>(writer, verb, &Meant::named(name), change);
        self.settle();
    }

    pub fn node(&self, name: &str) -> Option<&Arc<Node>> {
        self.store.base.nodes.get(name)
    }

    /// Lets everyone see what was written to nodes, pods, budgets and Deployments.
    pub fn settle(&mut self) {
        for written in std::mem::take(&mut self.store.base.fresh) {
            let place = match written.kind {
                KindName::Node => Shelf::Node,
                KindName::Pod => Shelf::Pod,
                KindName::Budget => Shelf::Budget,
                KindName::Workload => Shelf::Workload,
                _ => continue,
            };
            self.saw(&Note {
                place,
                index: written.index,
                writer: written.writer,
                verb: written.verb,
            });
        }
    }

    /// A node that is well says so again and again.
    fn heartbeat(&mut self, name: &NodeName) {
        let Some(node) = self.store.base.nodes.get(name.as_str()) else {
            return;
        };
        if node.ready.ready {
            let again = Node::clone(node);
            self.store.base.put(Writer::Kubelet, "heartbeat", again);
            self.settle();
        }
        self.later(HEARTBEAT, Event::Heartbeat(name.clone()));
    }

    /// Begins what goes on by itself.
    pub fn begin(&mut self) {
        for index in 0..self.plan.faults.len() {
            if let (_, Fault::At(at, _)) = &self.plan.faults[index] {
                self.queue.push(*at, Event::Fault(index));
            }
        }
        let nodes: Vec<NodeName> = self.machines.keys().cloned().collect();
        for node in nodes {
            let after = self.some(SECOND, HEARTBEAT);
            self.later(after, Event::Heartbeat(node));
        }
        let charts: Vec<Key> = self.store.hci.charts.keys().cloned().collect();
        for chart in charts {
            self.look_soon(Look::Chart(chart));
        }
        let vms: Vec<Key> = self.store.hci.vms.keys().cloned().collect();
        for vm in vms {
            self.look_soon(Look::Vm(vm));
        }
        let calm_at = self.plan.calm_at;
        self.queue.push(calm_at, Event::Calm);
        self.start_replicas();
    }

    /// How late what was written is seen by whoever watches.
    pub fn lag(&mut self) -> Millis {
        let most = self.plan.lag.max(10);
        self.some(5, most)
    }

    /// Adds a line to the trace.
    pub fn say(&mut self, line: &str) {
        let now = self.now;
        if let Some(trace) = &mut self.trace {
            let _ = writeln!(trace, "{:>12} {line}", clock(now));
        }
    }
}

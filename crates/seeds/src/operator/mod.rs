//! The operator's part, played by the real core: a view that lags, turns that are decided on it, and actions carried out one
//! request at a time, each of which may be refused, lost, or the last one before a crash. Several turns are under way at
//! once, as the controllers' are, but never two of one object.

mod bugs;
mod execute;
mod feed;
mod turns;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use afloat_api::clusterupgrade::Phase;
use afloat_core::action::Action;
use afloat_core::gates;
use afloat_core::view::{Component, ControlPlaneHealth, EtcdMember, Pod, Revision, View};
use afloat_core::{Changed, Subject, affected};

pub use bugs::Bug;
use feed::Cursors;

use super::build::NAMESPACE;
use super::rules::Seen;
use super::store::KindName;
use super::time::{Millis, SECOND};
use super::world::{Event, World};

/// How many turns are under way at once.
const TURNS: usize = 4;
/// What `/readyz` is asked at, and how often in a row an answer is counted at most.
const PROBE: Millis = SECOND;
const PROBES: u64 = gates::READY_IN_A_ROW as u64;

/// What a replica does at a moment.
#[derive(Clone, Debug)]
pub enum OperatorEvent {
    /// Watches deliver.
    Sync,
    /// API servers, etcd and gates are probed.
    Probe,
    /// What has queued up is decided on.
    Turns,
    /// Nodes are asked who is there.
    RollCall,
    /// The time a decision named has come.
    Again(Subject),
    /// The next action of a turn.
    Act(Subject),
    /// The replica starts.
    Start { back: u64 },
}

struct Turn {
    actions: VecDeque<Action>,
    seen: Seen,
}

/// One replica.
#[allow(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub struct Operator {
    pub alive: bool,
    pub incarnation: u32,
    view: View,
    cursors: Cursors,
    held: [Millis; KindName::ALL.len()],
    queue: BTreeSet<Subject>,
    turns: BTreeMap<Subject, Turn>,
    again: BTreeMap<Subject, Millis>,
    failures: BTreeMap<Subject, u32>,
    /// Who has to know which nodes there are, as of when at least.
    unsure: BTreeMap<Subject, Revision>,
    /// When nodes were asked last, where their watch has not come as far yet.
    roll_called: Option<u64>,
    roll_call_planned: bool,
    sync_planned: bool,
    turns_planned: bool,
    pub bug: Option<Bug>,
}

impl Operator {
    pub fn new(bug: Option<Bug>) -> Self {
        Self {
            alive: false,
            incarnation: 0,
            view: View::default(),
            cursors: Cursors::default(),
            held: Default::default(),
            queue: BTreeSet::new(),
            turns: BTreeMap::new(),
            again: BTreeMap::new(),
            failures: BTreeMap::new(),
            unsure: BTreeMap::new(),
            roll_called: None,
            roll_call_planned: false,
            sync_planned: false,
            turns_planned: false,
            bug,
        }
    }

    /// A watch says nothing until then.
    pub fn hold_watch(&mut self, kind: KindName, until: Millis) {
        let held = &mut self.held[kind.index()];
        *held = (*held).max(until);
    }

    pub fn view(&self) -> &View {
        &self.view
    }
}

impl World {
    /// Something was written: the watches of the replicas will deliver it.
    pub(super) fn wake_operators(&mut self) {
        for index in 0..self.operators.len() {
            let operator = &self.operators[index];
            if !operator.alive || operator.sync_planned {
                continue;
            }
            let lag = self.plan.lag.max(10);
            let after = self.some(5, lag).max(all_held(&self.operators[index], self.now));
            self.plan_sync(index, after);
        }
    }

    fn plan_sync(&mut self, index: usize, after: Millis) {
        let operator = &mut self.operators[index];
        operator.sync_planned = true;
        let incarnation = operator.incarnation;
        self.later(after, Event::Operator(index, incarnation, OperatorEvent::Sync));
    }

    /// Probes of API servers, etcd and gates are due: something there has changed.
    pub(super) fn probe_operators(&mut self) {
        for index in 0..self.operators.len() {
            if !self.operators[index].alive {
                continue;
            }
            let incarnation = self.operators[index].incarnation;
            for probe in 1..=PROBES {
                self.later(
                    probe * PROBE + 10,
                    Event::Operator(index, incarnation, OperatorEvent::Probe),
                );
            }
        }
    }

    /// Replicas start; the second one only where both act.
    pub fn start_operators(&mut self) {
        let many = self.operators.len();
        for index in 0..many {
            if index == 0 || self.plan.two_operators {
                self.later(10, Event::Operator(index, 0, OperatorEvent::Start { back: 0 }));
            }
        }
    }

    pub(super) fn calm_operators(&mut self) {
        for index in 0..self.operators.len() {
            for held in &mut self.operators[index].held {
                *held = 0;
            }
            if index > 0 {
                let operator = &mut self.operators[index];
                operator.alive = false;
                operator.incarnation += 1;
            } else if self.operators[index].alive {
                self.plan_sync(index, 10);
            }
        }
    }

    /// Whether a replica is going to look at something by itself before this time: what it waits for may end then. A preflight
    /// looks again for ever, and waits for people, not for a moment.
    pub fn operator_looks_again(&self, before: Millis) -> bool {
        let in_preflight = |subject: &Subject| {
            let Subject::Upgrade(key) = subject else { return false };
            let status = self.store.upgrades.get(key).and_then(|upgrade| upgrade.status.as_ref());
            status.and_then(|status| status.phase) == Some(Phase::Preflight)
        };
        let mut alive = self.operators.iter().filter(|operator| operator.alive);
        alive.any(|operator| {
            let mut again = operator.again.iter();
            // Or it is at something at this very moment.
            !operator.turns.is_empty()
                || operator.turns_planned
                || again.any(|(subject, at)| *at < before && !in_preflight(subject))
        })
    }

    /// The replica ends, with all it knew, and another takes its place.
    pub fn crash_operator(&mut self, index: usize, back: u64) {
        let Some(operator) = self.operators.get_mut(index) else {
            return;
        };
        if !operator.alive {
            return;
        }
        operator.alive = false;
        operator.incarnation += 1;
        let incarnation = operator.incarnation;
        let after = self.some(500, 20 * SECOND);
        self.later(
            after,
            Event::Operator(index, incarnation, OperatorEvent::Start { back }),
        );
        self.say("operator  crashes");
    }

    /// The operator's own pod was evicted or came back.
    pub(super) fn operator_pod_changed(&mut self, before: Option<&Arc<Pod>>, after: Option<&Arc<Pod>>) {
        let serves = |pod: Option<&Arc<Pod>>| pod.is_some_and(|pod| pod.ready && pod.ending.is_none());
        let Some(operator) = self.operators.first_mut() else {
            return;
        };
        if serves(before) && !serves(after) {
            if operator.alive {
                operator.alive = false;
                operator.incarnation += 1;
                self.say("operator  is evicted");
            }
        } else if serves(after) && !serves(before) && !operator.alive {
            let incarnation = operator.incarnation;
            self.later(500, Event::Operator(0, incarnation, OperatorEvent::Start { back: 0 }));
        }
    }

    pub(super) fn operator_event(&mut self, index: usize, incarnation: u32, event: OperatorEvent) {
        if self
            .operators
            .get(index)
            .is_none_or(|operator| operator.incarnation != incarnation)
        {
            return;
        }
        match event {
            OperatorEvent::Start { back } => self.start_operator(index, back),
            _ if !self.operators[index].alive => {}
            OperatorEvent::Sync => self.sync(index),
            OperatorEvent::Probe => {
                let changed = self.probe(index);
                self.take_changes(index, &changed);
                self.plan_turns(index);
            }
            OperatorEvent::RollCall => self.call_roll(index),
            OperatorEvent::Turns => {
                self.operators[index].turns_planned = false;
                self.begin_turns(index);
            }
            OperatorEvent::Again(subject) => {
                let operator = &mut self.operators[index];
                if operator.again.get(&subject).is_some_and(|at| *at <= self.now) {
                    operator.again.remove(&subject);
                    operator.queue.insert(subject);
                    self.plan_turns(index);
                }
            }
            OperatorEvent::Act(subject) => self.act_on(index, &subject),
        }
    }

    /// A new replica reads everything, from an API server that may be `back` revisions behind.
    fn start_operator(&mut self, index: usize, back: u64) {
        if self.operators[index].alive {
            return;
        }
        if !self.api_serves() {
            let incarnation = self.operators[index].incarnation;
            self.later(
                2 * SECOND,
                Event::Operator(index, incarnation, OperatorEvent::Start { back }),
            );
            return;
        }
        let revision = self.store.revision().saturating_sub(back).max(self.whole_at);
        let bug = self.operators[index].bug;
        let incarnation = self.operators[index].incarnation;
        let mut operator = self.reader(revision);
        operator.bug = bug;
        operator.alive = true;
        operator.incarnation = incarnation;
        operator.queue.extend(subjects(&operator.view));
        self.operators[index] = operator;
        self.probe(index);
        self.begin_turns(index);
        let after = self.some(10, 2 * SECOND);
        self.plan_sync(index, after);
        self.probe_operators();
    }

    /// One that has read everything as it was at a revision.
    fn reader(&self, revision: u64) -> Operator {
        let mut operator = Operator::new(None);
        let view = &mut operator.view;
        view.home = Arc::clone(&self.home);
        view.images = self.images.clone();
        for name in [&*self.home, NAMESPACE] {
            let labels = [(Arc::from("kubernetes.io/metadata.name"), Arc::from(name))];
            view.namespaces.insert(Arc::from(name), labels.into());
        }
        view.kubeadm_config = Some(Arc::from("clusterName: sim\n"));
        for kind in KindName::ALL {
            feed::list(view, &self.store, &mut operator.cursors, kind, revision);
        }
        // Whoever lists learns no more of the moment than its newest object tells.
        view.nodes_as_of = view.nodes.values().map(|node| node.revision).max().unwrap_or_default();
        operator
    }

    /// What an operator sees that has read and asked everything now.
    pub fn as_it_is(&mut self) -> View {
        let index = self.operators.len();
        let mut reader = self.reader(self.store.revision());
        reader.view.nodes_as_of = Revision(self.store.revision());
        self.operators.push(reader);
        self.probe(index);
        self.operators.pop().map(|reader| reader.view).unwrap_or_default()
    }

    /// Watches deliver, each as far as it has come.
    fn sync(&mut self, index: usize) {
        let now = self.now;
        self.operators[index].sync_planned = false;
        if !self.api_serves() {
            self.plan_sync(index, 2 * SECOND);
            return;
        }
        let mut changed = Vec::new();
        let mut behind: Option<Millis> = None;
        for kind in KindName::ALL {
            let length = feed::length(&self.store, kind);
            let from = self.operators[index].cursors[kind.index()];
            if length == from {
                continue;
            }
            let held = self.operators[index].held[kind.index()];
            if held > now {
                let wait = held - now;
                behind = Some(behind.map_or(wait, |other| other.min(wait)));
                continue;
            }
            let mut upto = length;
            if self.plan.lag > 200 && self.rng.bool() {
                upto = self.rng.usize(from..=length);
                if upto < length {
                    behind = Some(behind.map_or(self.plan.lag, |other| other.min(self.plan.lag)));
                }
            }
            let operator = &mut self.operators[index];
            feed::advance(
                &mut operator.view,
                &self.store,
                &mut operator.cursors,
                kind,
                upto,
                &mut changed,
            );
        }
        if let Some(wait) = behind {
            let after = self.some(5, wait.max(10));
            self.plan_sync(index, after);
        }
        self.take_changes(index, &changed);
        self.judge_roll_call(index);
        self.plan_turns(index);
    }

    fn take_changes(&mut self, index: usize, changed: &[Changed]) {
        let operator = &mut self.operators[index];
        // What changed several times since concerns the same subjects once.
        let once: BTreeSet<&Changed> = changed.iter().collect();
        for change in once {
            let subjects = affected(&operator.view, change);
            operator.queue.extend(subjects);
        }
    }

    /// What is asked of hosts and other objects directly.
    fn probe(&mut self, index: usize) -> Vec<Changed> {
        let mut changed = Vec::new();
        let now = self.now;
        let operator = &mut self.operators[index];
        for machine in self.machines.values().filter(|machine| machine.control_plane) {
            let since = |component| {
                let part = machine.facts.part(component)?;
                (machine.facts.serves(component)).then_some(part.started_at)
            };
            let readyz = since(Component::ApiServer).map_or(0, |since| {
                if since == 0 {
                    PROBES
                } else {
                    ((now - since) / PROBE).min(PROBES)
                }
            });
            let etcd = machine.facts.part(Component::Etcd).map(|_| EtcdMember {
                healthy: machine.facts.serves(Component::Etcd),
            });
            let health = ControlPlaneHealth {
                readyz_in_a_row: u32::try_from(readyz).unwrap_or_default(),
                etcd,
            };
            let before = operator.view.health.insert(machine.name.clone(), health);
            let after = operator.view.health.get(&machine.name);
            if !ControlPlaneHealth::says_the_same(before.as_ref(), after) {
                changed.push(Changed::Health(machine.name.clone()));
            }
        }
        if operator.view.gates != self.gates {
            operator.view.gates.clone_from(&self.gates);
            changed.push(Changed::Surroundings);
        }
        if operator.view.vip_holder != self.vip_holder {
            operator.view.vip_holder.clone_from(&self.vip_holder);
            changed.push(Changed::Surroundings);
        }
        changed
    }
}

/// Everything there is to decide on.
pub fn subjects(view: &View) -> Vec<Subject> {
    let upgrades = view.upgrades.keys().cloned().map(Subject::Upgrade);
    let planes = view.control_planes.keys().cloned().map(Subject::ControlPlane);
    let workers = view.workers.keys().cloned().map(Subject::Workers);
    let nodes = view.node_upgrades().keys().cloned().map(Subject::Node);
    upgrades.chain(planes).chain(workers).chain(nodes).collect()
}

/// How long every watch is still held: a sync before would bring nothing.
fn all_held(operator: &Operator, now: Millis) -> Millis {
    let still = operator.held.iter().map(|held| held.saturating_sub(now));
    still.min().unwrap_or_default()
}

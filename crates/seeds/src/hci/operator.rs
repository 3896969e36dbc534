//! The operator's part, played by the real core: a view that lags, turns that are decided on it, and actions carried out one request at a
//! time, each of which may be refused, lost, or the last one before a crash. It also asks repositories for their release, as the real
//! one does.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use afloat_core::action::{Action, Event as Told};
use afloat_core::hci::view::{HciKind, RepoAnswer};
use afloat_core::hci::{Tri, condition_of};
use afloat_core::view::{Key, WorkloadKind};
use afloat_core::{Changed, Subject, affected, decide};
use afloat_scenes::SYSTEM;
use jiff::SignedDuration;

use super::bugs::Bug;
use super::execute::{Answer, Executor};
use super::eyes::Eyes;
use super::rules::Doing;
use super::store::Shelf;
use super::world::{Event, World};
use crate::faults::RequestFault;
use crate::store::{Refused, Writer};
use crate::time::{MINUTE, Millis, SECOND, millis, stamp};

/// How long after a change it is decided what follows from it, at most: what comes in between is decided on at once.
const SOON: Millis = 20;
/// How often a repository is asked that has not answered yet, and one that has.
const FETCH_OFTEN: Millis = 10 * SECOND;
const FETCH_SELDOM: Millis = MINUTE;

/// What a replica does at a moment.
#[derive(Clone, Debug)]
pub enum ReplicaEvent {
    /// Watches deliver.
    Sync,
    /// What has queued up is decided on.
    Turns,
    /// The time a decision named has come.
    Again(Subject),
    /// The next action of a turn.
    Act(Subject),
    /// Repositories are asked.
    Fetch,
    Start {
        back: u64,
    },
}

struct Turn {
    actions: VecDeque<Action>,
    events: Vec<Told>,
    doing: Doing,
}

/// One replica.
#[allow(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub struct Replica {
    alive: bool,
    incarnation: u32,
    eyes: Option<Eyes>,
    queue: BTreeSet<Subject>,
    turns: BTreeMap<Subject, Turn>,
    again: BTreeMap<Subject, Millis>,
    failures: BTreeMap<Subject, u32>,
    sync_planned: bool,
    /// Its watches have delivered once: an API server that lags does so with everything.
    caught_up: bool,
    turns_planned: bool,
    fetch_at: Option<Millis>,
    bug: Option<Bug>,
}

impl Replica {
    pub fn bug(&self) -> Option<Bug> {
        self.bug
    }

    pub fn new(bug: Option<Bug>) -> Self {
        Self {
            alive: false,
            incarnation: 0,
            eyes: None,
            queue: BTreeSet::new(),
            turns: BTreeMap::new(),
            again: BTreeMap::new(),
            failures: BTreeMap::new(),
            sync_planned: false,
            caught_up: false,
            turns_planned: false,
            fetch_at: None,
            bug,
        }
    }
}

/// Kinds that an operator watches: all but those that only a task looks at.
fn watched() -> Vec<Shelf> {
    let only_tasks = |place: &Shelf| matches!(place, Shelf::Hci(HciKind::Bundle | HciKind::HelmRelease));
    Shelf::all().filter(|place| !only_tasks(place)).collect()
}

impl World {
    /// Something was written: whoever watches it will hear of it.
    pub(super) fn wake(&mut self, place: Shelf) {
        for index in 0..self.replicas.len() {
            let replica = &self.replicas[index];
            let sees = replica.eyes.as_ref().is_some_and(|eyes| eyes.watches(place));
            if replica.alive && sees && !replica.sync_planned {
                let after = self.lag();
                self.plan_sync(index, after);
            }
        }
        self.wake_tasks(place);
    }

    fn plan_sync(&mut self, index: usize, after: Millis) {
        let replica = &mut self.replicas[index];
        replica.sync_planned = true;
        let incarnation = replica.incarnation;
        self.later(after, Event::Replica(index, incarnation, ReplicaEvent::Sync));
    }

    /// Replicas start; the second one only where both act.
    pub(super) fn start_replicas(&mut self) {
        for index in 0..self.replicas.len() {
            if index == 0 || self.plan.two_operators {
                self.later(10, Event::Replica(index, 0, ReplicaEvent::Start { back: 0 }));
            }
        }
    }

    pub(super) fn calm_replicas(&mut self) {
        for index in 0..self.replicas.len() {
            let replica = &mut self.replicas[index];
            if let Some(eyes) = &mut replica.eyes {
                eyes.hold_none();
            }
            if index > 0 {
                replica.alive = false;
                replica.incarnation += 1;
            } else if replica.alive {
                self.plan_sync(index, 10);
            }
        }
        for task in self.tasks.values_mut() {
            task.hold_none();
        }
    }

    pub(super) fn hold_watches(&mut self, kind: usize, time: Millis) {
        let until = self.now + time;
        let Some(place) = Shelf::all().nth(kind) else { return };
        for eyes in self.replicas.iter_mut().filter_map(|replica| replica.eyes.as_mut()) {
            eyes.hold(place, until);
        }
        for task in self.tasks.values_mut() {
            task.hold(place, until);
        }
    }

    /// The replica ends, with all it knew, and another takes its place.
    pub(super) fn crash_replica(&mut self, index: usize, back: u64) {
        let Some(replica) = self.replicas.get_mut(index).filter(|replica| replica.alive) else {
            return;
        };
        replica.alive = false;
        replica.incarnation += 1;
        let incarnation = replica.incarnation;
        let after = self.some(500, 20 * SECOND);
        self.later(after, Event::Replica(index, incarnation, ReplicaEvent::Start { back }));
        self.say("operator       crashes");
    }

    pub(super) fn replica_event(&mut self, index: usize, incarnation: u32, event: ReplicaEvent) {
        let Some(replica) = self
            .replicas
            .get_mut(index)
            .filter(|one| one.incarnation == incarnation)
        else {
            return;
        };
        match event {
            ReplicaEvent::Start { back } => self.start_replica(index, back),
            _ if !replica.alive => {}
            ReplicaEvent::Sync => self.sync_replica(index),
            ReplicaEvent::Turns => {
                replica.turns_planned = false;
                self.begin_turns(index);
            }
            ReplicaEvent::Again(subject) => {
                if replica.again.get(&subject).is_some_and(|at| *at <= self.now) {
                    replica.again.remove(&subject);
                    replica.queue.insert(subject);
                    self.plan_turns(index);
                }
            }
            ReplicaEvent::Act(subject) => self.act_on(index, &subject),
            ReplicaEvent::Fetch => self.fetch(index),
        }
    }

    /// A new replica reads everything, from an API server that may be `back` revisions behind.
    fn start_replica(&mut self, index: usize, back: u64) {
        let (bug, incarnation) = (self.replicas[index].bug, self.replicas[index].incarnation);
        let revision = self.store.revision().saturating_sub(back).max(self.whole_at);
        let mut eyes = Eyes::open(&self.store, watched(), revision);
        eyes.view.home = Arc::from("afloat-system");
        eyes.view.hci.image = Arc::from("afloat:sim");
        let mut replica = Replica::new(bug);
        replica.alive = true;
        replica.incarnation = incarnation;
        replica.queue = eyes.view.hci.upgrades.keys().cloned().map(Subject::Hci).collect();
        replica.eyes = Some(eyes);
        self.replicas[index] = replica;
        self.begin_turns(index);
        self.plan_fetch(index);
        let after = self.some(10, 2 * SECOND);
        self.plan_sync(index, after);
    }

    fn sync_replica(&mut self, index: usize) {
        self.replicas[index].sync_planned = false;
        let Some(mut eyes) = self.replicas[index].eyes.take() else {
            return;
        };
        let mut changed = Vec::new();
        let lags = self.plan.lag > 200 && std::mem::replace(&mut self.replicas[index].caught_up, true);
        let rng = &mut self.rng;
        let partly = |from, length| {
            if lags && rng.bool() {
                rng.usize(from..=length)
            } else {
                length
            }
        };
        let behind = eyes.sync(&self.store, self.now, partly, &mut changed);
        self.replicas[index].eyes = Some(eyes);
        if let Some(at) = behind {
            let after = at.saturating_sub(self.now) + self.lag();
            self.plan_sync(index, after);
        }
        self.take_changes(index, &changed);
    }

    fn take_changes(&mut self, index: usize, changed: &[Changed]) {
        let replica = &mut self.replicas[index];
        let Some(eyes) = &replica.eyes else { return };
        let once: BTreeSet<&Changed> = changed.iter().collect();
        let mut upgrades = false;
        for change in once {
            upgrades |= matches!(change, Changed::Hci(_) | Changed::Surroundings);
            replica.queue.extend(affected(&eyes.view, change));
        }
        if upgrades {
            self.plan_fetch(index);
        }
        self.plan_turns(index);
    }

    fn plan_turns(&mut self, index: usize) {
        let replica = &self.replicas[index];
        if replica.turns_planned || replica.queue.is_empty() || !replica.alive {
            return;
        }
        let incarnation = replica.incarnation;
        self.replicas[index].turns_planned = true;
        let after = self.some(0, SOON);
        self.later(after, Event::Replica(index, incarnation, ReplicaEvent::Turns));
    }

    fn begin_turns(&mut self, index: usize) {
        let waiting: Vec<Subject> = {
            let replica = &self.replicas[index];
            let free = |subject: &&Subject| !replica.turns.contains_key(*subject);
            replica.queue.iter().filter(free).cloned().collect()
        };
        for subject in waiting {
            self.replicas[index].queue.remove(&subject);
            self.begin_turn(index, subject);
        }
    }

    fn begin_turn(&mut self, index: usize, subject: Subject) {
        let skewed = SignedDuration::from_millis(if index == 0 && !self.calm { self.plan.skew } else { 0 });
        let now = stamp(self.now).checked_add(skewed).unwrap_or_else(|_| stamp(self.now));
        let replica = &mut self.replicas[index];
        let Some(eyes) = &replica.eyes else { return };
        let distorted = replica.bug.and_then(|bug| bug.distort_view(&eyes.view));
        let mut decision = decide(distorted.as_ref().unwrap_or(&eyes.view), &subject, now);
        if let Some(bug) = replica.bug {
            bug.distort_decision(&mut decision, &eyes.view);
        }
        let doing = Doing {
            nodes_seen: eyes.nodes_seen(&self.store),
            storage_seen: eyes.storage_seen(&self.store),
            target: None,
        };
        self.decisions += 1;
        replica.again.remove(&subject);
        let incarnation = replica.incarnation;
        if let Some(at) = decision.again {
            let real = at.checked_sub(skewed).unwrap_or(at);
            let at = millis(real).max(self.now + 1);
            replica.again.insert(subject.clone(), at);
            let again = ReplicaEvent::Again(subject.clone());
            self.queue.push(at, Event::Replica(index, incarnation, again));
        }
        if decision.actions.is_empty() {
            replica.failures.remove(&subject);
            self.publish(&decision.events);
            return;
        }
        let turn = Turn {
            actions: decision.actions.into(),
            events: decision.events,
            doing,
        };
        self.replicas[index].turns.insert(subject.clone(), turn);
        self.act_later(index, subject);
    }

    /// What is told in events.
    fn publish(&mut self, events: &[Told]) {
        if let Some(heard) = &mut self.heard {
            heard.extend(events.iter().map(|event| event.message.to_string()));
        }
    }

    fn act_later(&mut self, index: usize, subject: Subject) {
        let most = self.plan.latency.max(3);
        let after = self.some(2, most);
        let incarnation = self.replicas[index].incarnation;
        self.later(after, Event::Replica(index, incarnation, ReplicaEvent::Act(subject)));
    }

    /// The fault of the next request of anybody's, where it has one.
    pub(super) fn next_request(&mut self) -> Option<RequestFault> {
        let fault = self.plan.of_request(self.requests);
        self.requests += 1;
        fault.filter(|_| !self.calm)
    }

    /// One request.
    fn act_on(&mut self, index: usize, subject: &Subject) {
        let Some(turn) = self.replicas[index].turns.get_mut(subject) else {
            return;
        };
        let Some(Action::Hci(action)) = turn.actions.pop_front() else {
            return self.end_turn(index, subject, None);
        };
        let mut doing = turn.doing.clone();
        let fault = self.next_request();
        if let Some(RequestFault::Refuse(refused)) = fault {
            return self.end_turn(index, subject, Some(refused));
        }
        doing.target = super::rules::target_of(&action).cloned();
        self.rules.about_to(doing);
        let bug = self.replicas[index].bug;
        let writer = Writer::Operator(u8::try_from(index).unwrap_or_default());
        let result = Executor {
            world: self,
            writer,
            verb: action.name(),
            bug,
        }
        .execute(&action);
        self.rules.has_done();
        match (fault, result) {
            (Some(RequestFault::CrashAfter { back }), Ok(_)) => self.crash_replica(index, back),
            (Some(RequestFault::ReplyLost), Ok(_)) => self.end_turn(index, subject, Some(Refused::Unavailable)),
            (_, Ok(answer)) => self.go_on(index, subject, &answer),
            (_, Err(refused)) => self.end_turn(index, subject, Some(refused)),
        }
    }

    fn go_on(&mut self, index: usize, subject: &Subject, answer: &Answer) {
        let replica = &mut self.replicas[index];
        let changed = replica.eyes.as_mut().and_then(|eyes| eyes.answered(answer));
        let more = replica.turns.get(subject).is_some_and(|turn| !turn.actions.is_empty());
        self.take_changes(index, changed.as_slice());
        if more {
            self.act_later(index, subject.clone());
        } else {
            self.end_turn(index, subject, None);
        }
    }

    /// A turn ends; a refused one is decided anew, a little later each time.
    fn end_turn(&mut self, index: usize, subject: &Subject, refused: Option<Refused>) {
        let replica = &mut self.replicas[index];
        let turn = replica.turns.remove(subject);
        if refused.is_none() {
            replica.failures.remove(subject);
            if let Some(turn) = turn {
                self.publish(&turn.events);
            }
        } else {
            let failures = replica.failures.entry(subject.clone()).or_default();
            *failures += 1;
            let at = self.now + (200 << (*failures).min(9)).min(MINUTE);
            replica.again.insert(subject.clone(), at);
            let again = ReplicaEvent::Again(subject.clone());
            let incarnation = replica.incarnation;
            self.queue.push(at, Event::Replica(index, incarnation, again));
        }
        self.plan_turns(index);
    }

    /// The upgrades that wait for a repository that can answer, and whether it has.
    fn wanted(&self, index: usize) -> Vec<(Key, bool)> {
        let Some(eyes) = &self.replicas[index].eyes else {
            return Vec::new();
        };
        let upgrades = eyes.view.hci.upgrades.iter();
        let waiting = upgrades.filter_map(|(key, upgrade)| {
            let running = condition_of(upgrade, "Completed") == Some(Tri::Unknown);
            let ready = condition_of(upgrade, "RepoReady").filter(|_| running)?;
            let repo = Key::new(SYSTEM, &format!("upgrade-repo-{}", key.name));
            // While its pods start nobody can answer; what is served elsewhere is none of theirs.
            let deployment = eyes.view.workloads.get(&(WorkloadKind::Deployment, repo));
            let answers = self.script.external_repo || deployment.is_some_and(|deployment| deployment.ready > 0);
            answers.then(|| (key.clone(), ready == Tri::True))
        });
        waiting.collect()
    }

    fn plan_fetch(&mut self, index: usize) {
        let wanted = self.wanted(index);
        let replica = &self.replicas[index];
        let Some(eyes) = &replica.eyes else { return };
        let unknown = wanted.iter().any(|(key, _)| !eyes.view.hci.repos.contains_key(key));
        let idle = replica.fetch_at.is_none() && !wanted.is_empty();
        if idle || (unknown && replica.fetch_at.is_some_and(|at| at > self.now + SECOND)) {
            self.fetch_later(index, 10);
        }
    }

    fn fetch_later(&mut self, index: usize, after: Millis) {
        let at = self.now + after;
        self.replicas[index].fetch_at = Some(at);
        let incarnation = self.replicas[index].incarnation;
        self.queue
            .push(at, Event::Replica(index, incarnation, ReplicaEvent::Fetch));
    }

    fn fetch(&mut self, index: usize) {
        if self.replicas[index].fetch_at.is_none_or(|at| at > self.now) {
            return;
        }
        self.replicas[index].fetch_at = None;
        let mut changed = Vec::new();
        for (key, _) in self.wanted(index) {
            let release = self.ask_repo(&key);
            let Some(eyes) = &mut self.replicas[index].eyes else {
                return;
            };
            let before = eyes.view.hci.repos.get(&key);
            let failures = before.map_or(0, |answer| answer.failures);
            let answer = RepoAnswer {
                failures: if release.is_ok() { 0 } else { failures + 1 },
                release,
            };
            if before != Some(&answer) {
                eyes.view.hci.repos.insert(key, answer);
                changed.push(Changed::Hci(HciKind::Upgrade));
            }
        }
        self.take_changes(index, &changed);
        let wanted = self.wanted(index);
        if wanted.iter().any(|(_, served)| !served) {
            self.fetch_later(index, FETCH_OFTEN);
        } else if !wanted.is_empty() {
            self.fetch_later(index, FETCH_SELDOM);
        }
    }

    fn ask_repo(&mut self, upgrade: &Key) -> Result<Arc<str>, Arc<str>> {
        let silent = &mut self.script.trouble.repo_silent;
        if *silent > 0 {
            if *silent < u32::MAX {
                *silent -= 1;
            }
            return Err(Arc::from("no answer within 15s"));
        }
        if self.script.external_repo {
            return Ok(Arc::clone(&self.release));
        }
        let key = Key::new(SYSTEM, &format!("upgrade-repo-{}", upgrade.name));
        let served = self.store.repo(&key).is_some_and(|repo| repo.ready > 0);
        if served && self.store.hci.services.contains_key(&key) {
            Ok(Arc::clone(&self.release))
        } else {
            Err(Arc::from("nobody serves it"))
        }
    }
}

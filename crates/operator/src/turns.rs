//! The loop: one task owns the view, takes in what watches and answers say, lets the core decide about one subject at a time, and
//! has the actions carried out, those of different subjects side by side. A subject never has two turns at once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use afloat_api::labels;
use afloat_core::action::{Action, Decision};
use afloat_core::view::{NodeName, Revision};
use afloat_core::{Changed, Subject};
use futures::StreamExt as _;
use futures::future::{BoxFuture, FutureExt as _, OptionFuture};
use futures::stream::FuturesUnordered;
use jiff::Timestamp;
use kube::ResourceExt as _;
use strum::IntoEnumIterator as _;
use tokio::sync::mpsc;
use tracing::Instrument as _;

use crate::clients::Clients;
use crate::clock::Clock;
use crate::events::EventSink;
use crate::execute::{Outcome, Refusal, execute, look_before};
use crate::gates::watches::GateErrand;
use crate::gates::{GateStates, Judgement};
use crate::hci::{HciErrands, HciOptions, Releases};
use crate::metrics::Metrics;
use crate::mind::{Mind, everybody, told};
use crate::pages::Readiness;
use crate::prober::{self, Prober, Probes};
use crate::queue::Queue;
use crate::snapshot::feed::Feed;
use crate::snapshot::roll::{self, RollCall};
use crate::snapshot::{Keeper, Kind, News};
use crate::telling;
use crate::webhook::{Question, asked};

/// Subjects that may have actions under way at once.
const CONCURRENT: usize = 64;
/// Pods of one node that are asked to leave at once.
const LEAVE_AT_ONCE: usize = 10;
/// Answers that wait to be taken in. A turn whose answer finds no room waits for it; the loop takes answers in before anything else.
const ANSWERS: usize = CONCURRENT * LEAVE_AT_ONCE;
/// The wait when nothing is due.
const IDLE: Duration = Duration::from_mins(10);
/// When a subject is looked at again whose kinds are not read yet.
const SOON: Duration = Duration::from_secs(1);
/// How often nodes are asked who is there at most, while somebody has to know.
const ROLL_CALL_EVERY: Duration = Duration::from_secs(1);
/// What a pod gets to end where nobody says: the default of Kubernetes.
const GRACE: i64 = 30;

/// Which control planes answered.
type Answers = std::collections::BTreeMap<NodeName, bool>;

struct Finished {
    subject: Subject,
    decision: Decision,
    refusal: Option<Refusal>,
}

/// What the loop needs from outside.
pub struct Parts {
    pub clients: Clients,
    pub clock: Arc<dyn Clock>,
    pub mind: Arc<dyn Mind>,
    pub prober: Arc<dyn Prober>,
    pub events: EventSink,
    pub metrics: Metrics,
    pub readiness: Readiness,
    pub home: String,
    pub hci: HciOptions,
    /// Questions of the webhook; nobody asks where absent.
    pub questions: Option<mpsc::Receiver<Question>>,
}

/// Something done again and again outside the loop, at most once at a time.
pub(crate) struct Errand<T> {
    pub due: Option<Timestamp>,
    pub under_way: Option<BoxFuture<'static, T>>,
}

impl<T> Default for Errand<T> {
    fn default() -> Self {
        Self {
            due: None,
            under_way: None,
        }
    }
}

impl<T> Errand<T> {
    pub fn idle(&self) -> bool {
        self.due.is_none() && self.under_way.is_none()
    }

    pub fn next(&mut self) -> OptionFuture<&mut BoxFuture<'static, T>> {
        self.under_way.as_mut().into()
    }

    /// Its time has come.
    pub fn take(&mut self, now: Timestamp) -> bool {
        let due = self.under_way.is_none() && self.due.is_some_and(|due| due <= now);
        if due {
            self.due = None;
        }
        due
    }
}

pub struct Loop {
    parts: Parts,
    keeper: Keeper,
    queue: Queue<Subject>,
    under_way: FuturesUnordered<BoxFuture<'static, Finished>>,
    answers: (mpsc::Sender<Outcome>, mpsc::Receiver<Outcome>),
    probes: Probes,
    probing: Errand<Answers>,
    gates: GateErrand,
    calling: Errand<Result<RollCall, String>>,
    /// Who has to know which nodes there are, as of when at least.
    unsure: BTreeMap<Subject, Revision>,
    hci: HciErrands,
    questions: Option<mpsc::Receiver<Question>>,
    /// What is looked at once after a burst, not after each piece of news.
    stale: Stale,
}

#[derive(Default)]
struct Stale {
    errands: bool,
    health: bool,
}

impl Loop {
    pub fn new(mut parts: Parts) -> Self {
        let mut keeper = Keeper::new(&parts.home);
        keeper.set_image(&parts.hci.image);
        Self {
            keeper,
            hci: HciErrands::new(&parts.hci, &parts.clients),
            questions: parts.questions.take(),
            parts,
            queue: Queue::default(),
            under_way: FuturesUnordered::new(),
            answers: mpsc::channel(ANSWERS),
            probes: Probes::default(),
            probing: Errand::default(),
            gates: GateErrand::default(),
            calling: Errand::default(),
            unsure: BTreeMap::new(),
            stale: Stale::default(),
        }
    }

    /// Works until `shutdown`, then ends what was begun.
    pub async fn run(mut self, shutdown: impl Future<Output = ()>) {
        let mut shutdown = std::pin::pin!(shutdown.fuse());
        let mut feed = Feed::start(&self.parts.clients.api, &self.parts.home);
        self.hci.look(self.parts.clock.now());
        while !self.keeper.complete(Kind::iter()) {
            tokio::select! {
                () = &mut shutdown => return,
                Some(found) = self.hci.looking.next() => {
                    let now = self.parts.clock.now();
                    self.hci.found(found, &self.parts.clients.api, &mut feed, now);
                }
                // Nobody is told yet: everybody has a turn once all is read.
                Some(news) = feed.next() => {
                    self.hear(news);
                }
            }
        }
        self.parts.readiness.set(true);
        let now = self.parts.clock.now();
        for subject in everybody(self.keeper.view()) {
            self.queue.add(subject, now);
        }
        self.stale.errands = true;
        loop {
            self.work();
            let pause = self.pause();
            tokio::select! {
                biased;
                () = &mut shutdown => break,
                Some(answer) = self.answers.1.recv() => self.take_in(answer),
                Some(finished) = self.under_way.next(), if !self.under_way.is_empty() => self.finish(finished),
                Some(answers) = self.probing.next() => self.probed(answers),
                Some(judgement) = self.gates.judging.next() => self.judged(judgement),
                () = self.gates.watches.changed() => self.gates.heard(self.parts.clock.now()),
                Some(roll) = self.calling.next() => self.called(roll),
                Some(found) = self.hci.looking.next() => {
                    let now = self.parts.clock.now();
                    self.hci.found(found, &self.parts.clients.api, &mut feed, now);
                }
                Some(answers) = self.hci.fetching.next() => self.fetched(answers),
                // Before all of Harvester is read, a Version that is there would be told to be missing, and a second Upgrade the first.
                Some(question) = asked(self.questions.as_mut()), if self.hci.is_read(&self.keeper) => {
                    question.answer(self.keeper.view());
                }
                Some(news) = feed.next() => {
                    let changes = self.hear(news);
                    self.tell(changes);
                    // A burst is taken in whole before anything is decided: fewer decisions, and better ones.
                    while let Some(news) = feed.ready() {
                        let changes = self.hear(news);
                        self.tell(changes);
                    }
                }
                () = tokio::time::sleep(pause) => {}
            }
        }
        self.parts.readiness.set(false);
        // Turns wait for room for their answers: these are taken in until the last of them has ended.
        while !self.under_way.is_empty() {
            tokio::select! {
                biased;
                Some(answer) = self.answers.1.recv() => self.take_in(answer),
                Some(finished) = self.under_way.next() => self.finish(finished),
            }
        }
    }

    fn hear(&mut self, news: News) -> Vec<Changed> {
        match &news {
            News::Unreadable { kind, problem, .. } => {
                self.parts.metrics.unreadable(kind.word());
                tracing::warn!(kind = kind.word(), %problem, "an object is left out");
            }
            News::Interrupted { kind, problem } => {
                self.parts.metrics.interrupted(kind.word());
                let kind = kind.word();
                // Before everything is read once, nothing is done: then it is worth a word.
                if self.parts.readiness.get() {
                    tracing::debug!(kind, problem, "a watch broke off, it begins again by itself");
                } else {
                    tracing::warn!(
                        kind,
                        problem,
                        "cannot be watched yet, tried again; nothing is done before"
                    );
                }
            }
            _ => {}
        }
        self.keeper.take(news)
    }

    /// Queues whom the changes concern.
    fn tell(&mut self, changes: Vec<Changed>) {
        for changed in changes {
            self.concern(&changed);
            match &changed {
                Changed::Upgrade(_) | Changed::Ledger(_) | Changed::NodeUpgrade(_) | Changed::Hci(_) => {
                    self.stale.errands = true;
                }
                // A repository may be able to answer.
                Changed::Workload if !self.keeper.view().hci.upgrades.is_empty() => self.stale.errands = true,
                // What is asked for after the end of an upgrade waits for its gates and for answers of control planes as well.
                Changed::Node(node) if self.is_wished_for(node) => self.stale.errands = true,
                // Its etcd may have come or gone.
                Changed::Pod(Some(node)) if self.keeper.view().health.contains_key(node) => {
                    self.stale.health = true;
                }
                _ => {}
            }
        }
    }

    fn is_wished_for(&self, node: &NodeName) -> bool {
        let node = self.keeper.view().nodes.get(node);
        node.is_some_and(|node| node.wish.is_some())
    }

    fn concern(&mut self, changed: &Changed) {
        let now = self.parts.clock.now();
        for subject in self.parts.mind.affected(self.keeper.view(), changed) {
            self.queue.add(subject, now);
        }
    }

    fn plan_errands(&mut self) {
        let (now, view) = (self.parts.clock.now(), self.keeper.view());
        if let Some(pause) = prober::pause(view)
            && self.probing.under_way.is_none()
        {
            let soon = now.saturating_add(pause).unwrap_or(Timestamp::MAX);
            self.probing.due = Some(self.probing.due.map_or(now, |due| due.min(soon)));
        }
        self.hci.plan(view, now);
        if self.gates.plan(&self.parts.clients.api, view, now) {
            let changes = self.keeper.set_gates(GateStates::new());
            self.tell(changes);
        }
    }

    fn pause(&self) -> Duration {
        let room = self.under_way.len() < CONCURRENT;
        let turn = self.queue.next_due().filter(|_| room);
        let errands = [
            self.probing.due.filter(|_| self.probing.under_way.is_none()),
            self.gates
                .judging
                .due
                .filter(|_| self.gates.judging.under_way.is_none()),
            self.calling.due.filter(|_| self.calling.under_way.is_none()),
            self.hci.due(),
        ];
        let due = errands.into_iter().flatten().chain(turn).min();
        // Timers have a resolution of a millisecond: rounding up keeps an early waking from spinning.
        due.map_or(IDLE, |due| self.parts.clock.until(due) + Duration::from_millis(1))
    }

    /// Begins errands whose time has come, and turns as long as there is room for them.
    fn work(&mut self) {
        if std::mem::take(&mut self.stale.health) {
            self.update_health();
        }
        if std::mem::take(&mut self.stale.errands) {
            self.plan_errands();
        }
        let now = self.parts.clock.now();
        self.tell_the_sure(now);
        if self.probing.take(now) {
            let (prober, nodes) = (Arc::clone(&self.parts.prober), prober::addresses(self.keeper.view()));
            self.probing.under_way = Some(Box::pin(async move { prober::ask(&*prober, nodes).await }));
        }
        self.gates.begin(&self.parts.clients.api, now);
        self.hci.work(self.keeper.view(), now);
        self.begin_turns(now);
        if self.calling.take(now) && !self.unsure.is_empty() {
            let client = self.parts.clients.api.clone();
            self.calling.under_way = Some(Box::pin(async move { roll::call(&client).await }));
        }
        self.parts.metrics.queue_depth(self.queue.depth());
    }

    fn begin_turns(&mut self, now: Timestamp) {
        while self.under_way.len() < CONCURRENT {
            let Some(subject) = self.queue.take(now) else { break };
            self.begin(subject, now);
        }
    }

    /// Whoever had to know which nodes there are goes on once that is known.
    fn tell_the_sure(&mut self, now: Timestamp) {
        let as_of = self.keeper.view().nodes_as_of;
        for (subject, _) in self.unsure.extract_if(.., |_, since| *since <= as_of) {
            self.queue.add(subject, now);
        }
    }

    fn begin(&mut self, subject: Subject, now: Timestamp) {
        // A kind that is not read yet would be taken for one without objects, a setting for one that nobody set.
        let unread = matches!(subject, Subject::Hci(_)) && !self.keeper.complete(self.hci.kinds());
        let decision = if unread {
            tracing::debug!("waits until every kind of Harvester is read");
            Decision {
                again: now.saturating_add(SOON).ok(),
                ..Decision::default()
            }
        } else {
            self.parts.mind.decide(self.keeper.view(), &subject, now)
        };
        let (kind, object) = told(&subject);
        self.parts.metrics.decision(kind);
        if let Some(again) = decision.again {
            self.queue.add_at(subject.clone(), again);
        }
        match decision.nodes_since {
            Some(since) => {
                self.unsure.insert(subject.clone(), since);
                if self.calling.idle() {
                    self.calling.due = Some(now);
                }
            }
            None => {
                self.unsure.remove(&subject);
            }
        }
        let upgrade = self.upgrade_uid(&subject);
        let span = tracing::info_span!("turn", kind, %object, upgrade);
        let (clients, metrics) = (self.parts.clients.clone(), self.parts.metrics.clone());
        let turn = carry_out(clients, metrics, self.answers.0.clone(), subject, decision);
        self.under_way.push(Box::pin(turn.instrument(span)));
    }

    /// The uid by which everything of one upgrade is found in the log.
    fn upgrade_uid(&self, subject: &Subject) -> String {
        let view = self.keeper.view();
        let label = |all: Option<&std::collections::BTreeMap<String, String>>| {
            all.and_then(|all| all.get(labels::UPGRADE_UID)).cloned()
        };
        let uid = match subject {
            Subject::Upgrade(key) => view.upgrades.get(key).and_then(|upgrade| upgrade.uid()),
            Subject::ControlPlane(key) => view
                .control_planes
                .get(key)
                .and_then(|group| label(group.metadata.labels.as_ref())),
            Subject::Workers(key) => view
                .workers
                .get(key)
                .and_then(|group| label(group.metadata.labels.as_ref())),
            Subject::Node(key) => view
                .node_upgrade(key)
                .and_then(|upgrade| label(upgrade.metadata.labels.as_ref())),
            Subject::Hci(key) => view.hci.upgrades.get(key).and_then(|upgrade| upgrade.what.uid()),
        };
        uid.unwrap_or_default()
    }

    /// The answer to an own write is taken in at once: the next decision knows of it.
    fn take_in(&mut self, answer: Outcome) {
        let changes = match answer {
            Outcome::Written(object) => {
                let now = self.parts.clock.now();
                telling::tell(&self.parts.metrics, self.keeper.view(), &object, now);
                let mut changes = self.keeper.answered(*object);
                changes.retain(|changed| !changed.is_known_to_its_writer());
                changes
            }
            Outcome::Gone { kind, target } => self.keeper.deleted(kind, &target),
            Outcome::Evicting { pod, grace_seconds } => {
                let grace = Duration::from_secs(grace_seconds.unwrap_or(GRACE).unsigned_abs());
                let by = self.parts.clock.now().saturating_add(grace).unwrap_or(Timestamp::MAX);
                self.keeper.evicted(&pod, by)
            }
            Outcome::RefusedByBudget { message } => {
                tracing::debug!(message, "a budget allows no eviction now");
                Vec::new()
            }
        };
        self.tell(changes);
    }

    fn finish(&mut self, finished: Finished) {
        // Its answers first: they were sent before it ended.
        while let Ok(answer) = self.answers.1.try_recv() {
            self.take_in(answer);
        }
        let Finished {
            subject,
            decision,
            refusal,
        } = finished;
        let now = self.parts.clock.now();
        let Some(refusal) = refusal else {
            for event in decision.events {
                self.parts.events.publish(event);
            }
            self.queue.done(&subject, now);
            return;
        };
        let (kind, object) = told(&subject);
        // What was to be told did not come true; the next turn tells what does.
        if refusal.cause.is_expected() {
            tracing::debug!(kind, %object, %refusal, "decided anew");
        } else {
            tracing::warn!(kind, %object, %refusal, "tried again later");
        }
        self.queue.refused(&subject, now);
    }

    fn probed(&mut self, answers: Answers) {
        self.probing.under_way = None;
        let now = self.parts.clock.now();
        let pause = prober::pause(self.keeper.view());
        match pause {
            Some(_) => self.probes.count(answers, now),
            None => self.probes.forget(),
        }
        self.update_health();
        self.probing.due = pause.and_then(|pause| now.saturating_add(pause).ok());
    }

    fn update_health(&mut self) {
        let health = self.probes.health(self.keeper.view());
        for changed in self.keeper.set_health(health) {
            self.concern(&changed);
        }
    }

    /// As long as somebody waits for it nodes are asked again: what is asked for may be newer than the answer, or the watch of nodes
    /// silent.
    fn called(&mut self, roll: Result<RollCall, String>) {
        self.calling.under_way = None;
        match roll {
            Ok(roll) => self.keeper.roll_called(roll),
            Err(problem) => tracing::debug!(problem, "nodes do not say who is there, they are asked again"),
        }
        self.calling.due = self.parts.clock.now().saturating_add(ROLL_CALL_EVERY).ok();
    }

    fn fetched(&mut self, answers: Releases) {
        let now = self.parts.clock.now();
        for (upgrade, release) in answers {
            let changes = self.keeper.set_repo(upgrade, release);
            self.tell(changes);
        }
        self.hci.fetched(self.keeper.view(), now);
    }

    fn judged(&mut self, judgement: Judgement) {
        let states = self.gates.judged(judgement, self.parts.clock.now());
        let changes = self.keeper.set_gates(states);
        self.tell(changes);
    }
}

async fn counted<'a>(
    clients: &Clients,
    metrics: &Metrics,
    action: &'a Action,
) -> (&'a Action, Result<Outcome, Refusal>) {
    let result = execute(clients, action).await;
    metrics.action(action.name(), result.is_err());
    (action, result)
}

/// Carries out actions in their order and stops at the first refusal, but for pods that are asked to leave a node: they do not build on each
/// other, so that several are asked at once, and one that may not go keeps none of those after it.
async fn carry_out(
    clients: Clients,
    metrics: Metrics,
    answers: mpsc::Sender<Outcome>,
    subject: Subject,
    decision: Decision,
) -> Finished {
    let mut refusal = None;
    for actions in decision
        .actions
        .chunk_by(|one, next| one.empties().is_some() && one.empties() == next.empties())
    {
        let empties = actions.iter().all(|action| action.empties().is_some());
        if refusal.is_some() && !empties {
            break;
        }
        if let Some(first) = actions.first().filter(|_| empties)
            && let Err(refused) = look_before(&clients, first).await
        {
            refusal.get_or_insert(refused);
            continue;
        }
        let results: Vec<_> = actions
            .iter()
            .map(|action| counted(&clients, &metrics, action))
            .collect();
        let mut results = futures::stream::iter(results).buffered(LEAVE_AT_ONCE);
        while let Some((action, result)) = results.next().await {
            match result {
                Ok(outcome) => {
                    log(action);
                    // Fails only when the loop is gone, and then nobody has to know.
                    let _sent = answers.send(outcome).await;
                }
                Err(refused) => {
                    refusal.get_or_insert(refused);
                }
            }
        }
        // What comes after a write rests on it, pods that are asked to leave too.
        if refusal.is_some() && !empties {
            break;
        }
    }
    Finished {
        subject,
        decision,
        refusal,
    }
}

fn log(action: &Action) {
    tracing::info!(action = action.name(), "carried out");
}

#[cfg(test)]
#[path = "turns_tests.rs"]
mod tests;

//! Jobs run the code that runs on real nodes: the task of the core, look by look, each with a view of its own, writes that may be refused,
//! lost or the last before its pod is killed, and a host that takes its time. A Job that takes longer than it may is ended.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use afloat_core::hci::action::{HciAction, HciJob, JobKind, TaskWrite};
use afloat_core::hci::task::{self, Errand, HostDone, HostWork, RANCHER_NAMESPACE};
use afloat_core::hci::view::{HciKind, HciObject, Job};
use afloat_core::view::{Key, NodeName, Uid};
use afloat_scenes::NEW_RANCHER;

use super::execute::Executor;
use super::eyes::Eyes;
use super::operator::Replica;
use super::rules::Doing;
use super::store::Shelf;
use super::world::{Event, World};
use crate::faults::RequestFault;
use crate::store::Writer;
use crate::time::{MINUTE, Millis, SECOND, millis, second, stamp};

/// What takes long on a host, up to so long.
const TAKES: Millis = 2 * MINUTE;
/// How long a refused write is left alone.
const RETRY: Millis = 5 * SECOND;
/// How long nothing may change before it is looked again all the same.
const LOOK_EVERY: Millis = MINUTE;

/// What happens to a task.
#[derive(Clone, Debug)]
pub enum TaskEvent {
    Start,
    Look,
    /// The host has done what it was asked for.
    Worked(HostWork),
    Write,
    /// Its Job has taken too long.
    Deadline,
}

/// The task of one Job, and its pod.
pub struct Task {
    job: HciJob,
    key: Key,
    incarnation: u32,
    /// What it sees; nothing while its pod does not run.
    eyes: Option<Eyes>,
    host: HostDone,
    /// When long work of its Job will be done: it goes on when whoever asked for it is killed.
    due: BTreeMap<HostWork, Millis>,
    writes: VecDeque<TaskWrite>,
    /// When it looked last, volumes and engines were seen up to this revision.
    storage_seen: u64,
    /// A write of this look was not carried out.
    refused: bool,
    /// It waits for news, and looks again then at the latest.
    waits_until: Option<Millis>,
}

impl Task {
    pub fn runs_on(&self, node: &NodeName) -> bool {
        self.job.node.as_ref() == Some(node)
    }

    pub fn hold(&mut self, place: Shelf, until: Millis) {
        if let Some(eyes) = &mut self.eyes {
            eyes.hold(place, until);
        }
    }

    pub fn hold_none(&mut self) {
        if let Some(eyes) = &mut self.eyes {
            eyes.hold_none();
        }
    }
}

fn is_long(work: HostWork) -> bool {
    matches!(
        work,
        HostWork::PreloadImages | HostWork::RemoveOldImages | HostWork::InstallSystem | HostWork::UpgradeRancher
    )
}

impl World {
    /// A Job was made, has ended, or is gone.
    pub(super) fn job_changed(&mut self, index: usize) {
        let change = &self.store.history(HciKind::Job)[index];
        match (&change.before, &change.after) {
            (None, Some(HciObject::Job(job))) => {
                let (key, uid) = (job.target.key.clone(), job.target.uid.clone());
                self.begin_task(key, uid);
            }
            (Some(before), None) => {
                let uid = before.target().uid.clone();
                self.tasks.remove(&uid);
            }
            _ => {}
        }
    }

    fn begin_task(&mut self, key: Key, uid: Uid) {
        let Some(job) = self.job_specs.get(&key).cloned() else {
            return;
        };
        let limit = Millis::try_from(job.kind.limit()).unwrap_or_default() * SECOND;
        let task = Task {
            job,
            key,
            incarnation: 0,
            eyes: None,
            host: HostDone::new(),
            due: BTreeMap::new(),
            writes: VecDeque::new(),
            storage_seen: 0,
            refused: false,
            waits_until: None,
        };
        self.tasks.insert(uid.clone(), task);
        let after = self.some(SECOND, 4 * SECOND);
        self.later(after, Event::Task(uid.clone(), 0, TaskEvent::Start));
        self.later(limit, Event::Task(uid, u32::MAX, TaskEvent::Deadline));
    }

    /// Pods are killed, and their Jobs start them anew.
    pub(super) fn kill_tasks(&mut self, which: impl Fn(&Task) -> bool) {
        let killed: Vec<Uid> = self
            .tasks
            .iter()
            .filter(|(_, task)| which(task))
            .map(|(uid, _)| uid.clone())
            .collect();
        for uid in killed {
            self.kill_task(&uid);
        }
    }

    fn kill_task(&mut self, uid: &Uid) {
        let Some(task) = self.tasks.get_mut(uid) else { return };
        task.eyes = None;
        task.host.clear();
        task.writes.clear();
        task.waits_until = None;
        task.incarnation += 1;
        let incarnation = task.incarnation;
        let after = self.some(SECOND, 20 * SECOND);
        self.later(after, Event::Task(uid.clone(), incarnation, TaskEvent::Start));
        self.say("task           is killed");
    }

    pub(super) fn wake_tasks(&mut self, place: Shelf) {
        let sees = |task: &Task| {
            let eyes = task.eyes.as_ref().filter(|_| task.waits_until.is_some());
            eyes.is_some_and(|eyes| eyes.watches(place))
        };
        let woken: Vec<Uid> = self
            .tasks
            .iter()
            .filter(|(_, task)| sees(task))
            .map(|(uid, _)| uid.clone())
            .collect();
        for uid in woken {
            let at = self.now + self.lag();
            self.task_looks_at(&uid, at);
        }
    }

    fn task_looks_at(&mut self, uid: &Uid, at: Millis) {
        let at = at.max(self.now + 1);
        let Some(task) = self.tasks.get_mut(uid) else { return };
        if task.waits_until.is_some_and(|planned| planned <= at) {
            return;
        }
        task.waits_until = Some(at);
        let incarnation = task.incarnation;
        self.queue
            .push(at, Event::Task(uid.clone(), incarnation, TaskEvent::Look));
    }

    pub(super) fn task_event(&mut self, uid: &Uid, incarnation: u32, event: &TaskEvent) {
        let Some(task) = self.tasks.get(uid) else { return };
        if let TaskEvent::Deadline = event {
            return self.end_task(uid, &Err("Job was active longer than specified deadline".to_owned()));
        }
        if task.incarnation != incarnation {
            return;
        }
        match event {
            TaskEvent::Start => self.start_task(uid),
            TaskEvent::Look => {
                if task.waits_until.is_some_and(|at| at <= self.now) {
                    self.task_looks(uid);
                }
            }
            TaskEvent::Worked(work) => self.has_worked(uid, *work),
            TaskEvent::Write => self.task_writes(uid),
            TaskEvent::Deadline => {}
        }
    }

    /// Its pod runs once its node does; then it reads what it looks at.
    fn start_task(&mut self, uid: &Uid) {
        let Some(task) = self.tasks.get(uid) else { return };
        let ready = |node: &NodeName| self.node(node.as_str()).is_some_and(|node| node.ready.ready);
        if task.job.node.as_ref().is_some_and(|node| !ready(node)) {
            let incarnation = task.incarnation;
            return self.later(10 * SECOND, Event::Task(uid.clone(), incarnation, TaskEvent::Start));
        }
        let kinds = task::watches(task.job.kind).map(Shelf::Hci);
        let watched = [Shelf::Node, Shelf::Budget].into_iter().chain(kinds).collect();
        // Its client asks for the newest: a task that fails by old news would fail for good.
        let eyes = Eyes::open(&self.store, watched, self.store.revision());
        if let Some(task) = self.tasks.get_mut(uid) {
            task.eyes = Some(eyes);
        }
        self.task_looks_at(uid, self.now + 1);
    }

    fn task_looks(&mut self, uid: &Uid) {
        let Some(task) = self.tasks.get_mut(uid) else { return };
        task.waits_until = None;
        let Some(mut eyes) = task.eyes.take() else { return };
        let lags = self.plan.lag > 200;
        let rng = &mut self.rng;
        let partly = |from, length| {
            if lags && rng.bool() {
                rng.usize(from..=length)
            } else {
                length
            }
        };
        let behind = eyes.sync(&self.store, self.now, partly, &mut Vec::new());
        let behind = behind.map(|at| at.max(self.now) + self.lag());
        let Some(task) = self.tasks.get_mut(uid) else { return };
        let errand = Errand {
            upgrade: task.job.upgrade.key.clone(),
            node: task.job.node.clone().unwrap_or_default(),
        };
        let bug = self.replicas.first().and_then(Replica::bug);
        let distorted = bug.and_then(|bug| bug.distort_task(&eyes.view));
        let view = distorted.as_ref().unwrap_or(&eyes.view);
        let look = task::look(task.job.kind, view, &errand, &task.host, stamp(self.now));
        task.storage_seen = eyes.storage_seen(&self.store);
        task.eyes = Some(eyes);
        self.decisions += 1;
        if self.trace.is_some() {
            let line = format!("task           {}: {}", self.tasks[uid].key.name, look.words());
            self.say(&line);
        }
        match look {
            task::Look::Done { says } => self.end_task(uid, &Ok(says)),
            task::Look::Failed { says } => self.end_task(uid, &Err(says)),
            task::Look::Host(work) => self.asks_host(uid, work),
            task::Look::Write { what, .. } => {
                if let Some(task) = self.tasks.get_mut(uid) {
                    task.writes = what.into();
                    task.refused = false;
                }
                self.write_later(uid);
            }
            task::Look::Wait { again, .. } => {
                let until = again.map_or(Millis::MAX, millis).min(self.now + LOOK_EVERY);
                self.task_looks_at(uid, until.min(behind.unwrap_or(Millis::MAX)));
            }
        }
    }

    fn asks_host(&mut self, uid: &Uid, work: HostWork) {
        let quick = self.some(50, 500);
        let long = self.some(SECOND, TAKES);
        let now = self.now;
        let Some(task) = self.tasks.get_mut(uid) else { return };
        let due = if is_long(work) {
            *task.due.entry(work).or_insert(now + long)
        } else {
            now + quick
        };
        let incarnation = task.incarnation;
        let event = Event::Task(uid.clone(), incarnation, TaskEvent::Worked(work));
        self.queue.push(due.max(now + 1), event);
    }

    fn has_worked(&mut self, uid: &Uid, work: HostWork) {
        let Some(task) = self.tasks.get_mut(uid) else { return };
        let (kind, node) = (task.job.kind, task.job.node.clone());
        if is_long(work)
            && let Err(why) = self.fails(kind, node.as_ref())
        {
            return self.end_task(uid, &Err(format!("{}: {why}", work.words())));
        }
        let machine = node.as_ref().and_then(|node| self.machines.get_mut(node));
        match (work, machine) {
            (HostWork::InstallSystem, Some(machine)) => machine.installed = true,
            (HostWork::RestartSoon, Some(machine)) => machine.restarts = true,
            (HostWork::HoldMultus, Some(machine)) => machine.holds_multus = true,
            (HostWork::LetMultusGo, Some(machine)) => machine.holds_multus = false,
            (HostWork::UpgradeRancher, _) => self.bring_rancher(),
            _ => {}
        }
        if let Some(task) = self.tasks.get_mut(uid) {
            task.host.insert(work);
        }
        self.task_looks_at(uid, self.now + 1);
    }

    /// Whether this one is made to fail, which is then one less.
    fn fails(&mut self, kind: JobKind, node: Option<&NodeName>) -> Result<(), String> {
        let kind = kind.word();
        let here = node.map(|node| format!("{kind}/{node}"));
        let mut failing = self.script.trouble.failing_jobs.iter_mut();
        let wanted = failing.find(|(key, left)| **left > 0 && (**key == kind || Some(*key) == here.as_ref()));
        let Some((_, left)) = wanted else { return Ok(()) };
        *left -= 1;
        Err(format!("{kind} was made to fail"))
    }

    /// What helm does with Rancher's chart.
    fn bring_rancher(&mut self) {
        let key = Key::new(RANCHER_NAMESPACE, "rancher");
        let Some(server) = self.store.hci.servers.get(&key).cloned() else {
            return;
        };
        let image: Arc<str> = Arc::from(format!("rancher/rancher:{NEW_RANCHER}"));
        self.change(Writer::Rancher, HciObject::Server, &server, |server| {
            server.rolled_out &= server.image == image;
            server.image = image;
        });
    }

    fn write_later(&mut self, uid: &Uid) {
        let most = self.plan.latency.max(3);
        let after = self.some(2, most);
        let Some(task) = self.tasks.get(uid) else { return };
        let incarnation = task.incarnation;
        self.later(after, Event::Task(uid.clone(), incarnation, TaskEvent::Write));
    }

    /// One request. One that is refused does not keep the others of the look.
    fn task_writes(&mut self, uid: &Uid) {
        let Some(task) = self.tasks.get_mut(uid) else { return };
        let storage_seen = task.storage_seen;
        let Some(write) = task.writes.pop_front() else {
            let pause = if std::mem::take(&mut task.refused) { RETRY } else { 1 };
            return self.task_looks_at(uid, self.now + pause);
        };
        let fault = self.next_request();
        if let Some(RequestFault::Refuse(_)) = fault {
            self.was_refused(uid);
            return self.write_later(uid);
        }
        let action = HciAction::Task(write);
        let bug = self.replicas.first().and_then(Replica::bug);
        self.rules.about_to(Doing {
            nodes_seen: self.store.revision(),
            storage_seen,
            target: super::rules::target_of(&action).cloned(),
        });
        let result = Executor {
            world: self,
            writer: Writer::Task,
            verb: action.name(),
            bug,
        }
        .execute(&action);
        self.rules.has_done();
        match (fault, result) {
            (Some(RequestFault::CrashAfter { .. }), Ok(_)) => return self.kill_task(uid),
            (Some(RequestFault::ReplyLost), Ok(_)) | (_, Err(_)) => self.was_refused(uid),
            (_, Ok(answer)) => {
                if let Some(eyes) = self.tasks.get_mut(uid).and_then(|task| task.eyes.as_mut()) {
                    eyes.answered(&answer);
                }
            }
        }
        self.write_later(uid);
    }

    fn was_refused(&mut self, uid: &Uid) {
        if let Some(task) = self.tasks.get_mut(uid) {
            task.refused = true;
        }
    }

    fn end_task(&mut self, uid: &Uid, result: &Result<String, String>) {
        let Some(task) = self.tasks.remove(uid) else { return };
        let now = second(self.now);
        if let Some(job) = self
            .store
            .hci
            .jobs
            .get(&task.key)
            .cloned()
            .filter(|job| job.target.uid == *uid)
        {
            self.change(Writer::Jobs, HciObject::Job, &job, |job: &mut Job| match result {
                Ok(_) => {
                    job.complete = true;
                    job.completed_at = Some(now);
                }
                Err(why) => job.failed = Some(Arc::from(why.as_str())),
            });
        }
        let restarts = matches!(task.job.kind, JobKind::PostDrain | JobKind::SingleNodeUpgrade);
        if let Some(node) = task.job.node.filter(|_| restarts && result.is_ok()) {
            self.work_has_ended(&node);
        }
    }
}

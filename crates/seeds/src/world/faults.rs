//! Faults: which classes a seed has, and the list of single faults that follows from them. The list is made before the run,
//! so that a failing run can be repeated with fewer of them.

use std::collections::BTreeMap;

use afloat_core::view::{Component, NodeName};

use super::{Event, World};
use crate::store::{KindName, Refused};
use crate::time::{MINUTE, Millis, SECOND};

/// A class of faults, on or off for a seed.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Class {
    /// The operator ends after a write, and starts anew.
    Crash,
    /// It starts anew from an API server that lags behind.
    StaleRestart,
    /// Caches lag.
    Lag,
    /// A watch says nothing for a while.
    WatchDrop,
    /// Requests are refused: 409, 429, 500, 503.
    Refusal,
    /// A write is made and its answer lost.
    ReplyLost,
    /// Requests take long.
    Latency,
    /// The operator's clock is wrong.
    ClockSkew,
    /// Both replicas of the operator act.
    TwoOperators,
    /// The host's engine is killed in the midst of its work.
    EngineKill,
    /// A machine loses its power for a while.
    Reboot,
    /// kubeadm fails once.
    KubeadmFails,
    /// An image cannot be pulled for a while.
    PullFails,
    /// People do things.
    People,
}

impl Class {
    pub const ALL: [Self; 14] = [
        Self::Crash,
        Self::StaleRestart,
        Self::Lag,
        Self::WatchDrop,
        Self::Refusal,
        Self::ReplyLost,
        Self::Latency,
        Self::ClockSkew,
        Self::TwoOperators,
        Self::EngineKill,
        Self::Reboot,
        Self::KubeadmFails,
        Self::PullFails,
        Self::People,
    ];

    pub fn word(self) -> &'static str {
        match self {
            Self::Crash => "crash",
            Self::StaleRestart => "stale-restart",
            Self::Lag => "lag",
            Self::WatchDrop => "watch-drop",
            Self::Refusal => "refusal",
            Self::ReplyLost => "reply-lost",
            Self::Latency => "latency",
            Self::ClockSkew => "clock-skew",
            Self::TwoOperators => "two-operators",
            Self::EngineKill => "engine-kill",
            Self::Reboot => "reboot",
            Self::KubeadmFails => "kubeadm-fails",
            Self::PullFails => "pull-fails",
            Self::People => "people",
        }
    }

    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|class| class.word() == word)
    }
}

/// From so many on, an image is not there at all.
const PULLS_FAIL_FOR_GOOD: u32 = 1000;

/// One fault.
#[derive(Clone, Debug, PartialEq)]
pub enum Fault {
    /// At the operator's n-th mutating request.
    Request(usize, RequestFault),
    At(Millis, TimedFault),
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RequestFault {
    Refuse(Refused),
    /// Done, but the operator does not hear of it.
    ReplyLost,
    /// Done, and the operator ends; it comes back from a view so many revisions old.
    CrashAfter {
        back: u64,
    },
}

#[derive(Clone, Debug, PartialEq)]
pub enum TimedFault {
    Crash { back: u64 },
    WatchDrop(KindName, Millis),
    EngineKill(usize),
    PowerLoss(usize, Millis),
    KubeadmFails(usize),
    PullFails(usize),
}

/// All that goes wrong in a run.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    pub faults: Vec<(Class, Fault)>,
    /// How far caches may lag.
    pub lag: Millis,
    /// How long a request takes at most.
    pub latency: Millis,
    pub skew: i64,
    pub two_operators: bool,
    pub people: bool,
    /// When all of it ends.
    pub calm_at: Millis,
}

impl Plan {
    /// A run in which nothing goes wrong.
    pub fn none() -> Self {
        Self {
            latency: 20,
            ..Self::default()
        }
    }

    /// The swarm: about half of the classes, each with a rate of its own.
    pub fn swarm(rng: &mut fastrand::Rng, allowed: &dyn Fn(Class) -> bool, machines: usize) -> Self {
        let mut plan = Self::none();
        plan.calm_at = rng.u64(2 * MINUTE..=90 * MINUTE);
        let none_at_all = rng.u8(0..16) == 0;
        for class in Class::ALL {
            // Drawn for every class, so that switching one off leaves the others as they were.
            let mut own = fastrand::Rng::with_seed(rng.u64(..));
            let on = own.bool() && !none_at_all;
            if on && allowed(class) {
                plan.add(class, &mut own, machines);
            }
        }
        plan
    }

    fn add(&mut self, class: Class, rng: &mut fastrand::Rng, machines: usize) {
        let calm_at = self.calm_at;
        match class {
            Class::Lag => self.lag = [200, 2 * SECOND, 10 * SECOND, MINUTE][rng.usize(0..4)],
            Class::Latency => self.latency = [200, SECOND, 8 * SECOND][rng.usize(0..3)],
            Class::ClockSkew => self.skew = rng.i64(-120_000..=120_000),
            Class::TwoOperators => self.two_operators = true,
            Class::People => self.people = true,
            Class::Crash | Class::StaleRestart => {
                let back = |rng: &mut fastrand::Rng| {
                    if class == Class::StaleRestart {
                        rng.u64(1..200)
                    } else {
                        0
                    }
                };
                self.requests(class, rng, |rng| RequestFault::CrashAfter { back: back(rng) });
                for _ in 0..rng.usize(0..4) {
                    let fault = TimedFault::Crash { back: back(rng) };
                    self.faults.push((class, Fault::At(rng.u64(0..calm_at), fault)));
                }
            }
            Class::Refusal => self.requests(class, rng, |rng| {
                RequestFault::Refuse(
                    [
                        Refused::Conflict,
                        Refused::TooManyRequests,
                        Refused::Internal,
                        Refused::Unavailable,
                    ][rng.usize(0..4)],
                )
            }),
            Class::ReplyLost => self.requests(class, rng, |_| RequestFault::ReplyLost),
            Class::WatchDrop => self.timed(class, rng, 12, |rng| {
                TimedFault::WatchDrop(KindName::ALL[rng.usize(0..9)], rng.u64(SECOND..3 * MINUTE))
            }),
            Class::EngineKill => self.timed(class, rng, 20, |rng| TimedFault::EngineKill(rng.usize(0..machines))),
            Class::Reboot => self.timed(class, rng, 4, |rng| {
                TimedFault::PowerLoss(rng.usize(0..machines), rng.u64(20 * SECOND..8 * MINUTE))
            }),
            Class::KubeadmFails => self.timed(class, rng, 3, |rng| TimedFault::KubeadmFails(rng.usize(0..machines))),
            Class::PullFails => self.timed(class, rng, 4, |rng| TimedFault::PullFails(rng.usize(0..machines))),
        }
    }

    fn timed(
        &mut self,
        class: Class,
        rng: &mut fastrand::Rng,
        most: usize,
        fault: impl Fn(&mut fastrand::Rng) -> TimedFault,
    ) {
        for _ in 0..rng.usize(1..=most) {
            let at = rng.u64(0..self.calm_at);
            let fault = fault(rng);
            self.faults.push((class, Fault::At(at, fault)));
        }
    }

    /// Some of the first requests, by a rate between one in five and one in a hundred.
    fn requests(&mut self, class: Class, rng: &mut fastrand::Rng, fault: impl Fn(&mut fastrand::Rng) -> RequestFault) {
        let rate = [5, 20, 100][rng.usize(0..3)];
        for request in 0..600 {
            if rng.u32(0..rate) == 0 {
                let fault = fault(rng);
                self.faults.push((class, Fault::Request(request, fault)));
            }
        }
    }

    /// The faults of requests by their number; the first in the list counts where one has several.
    pub fn of_requests(&self) -> BTreeMap<usize, RequestFault> {
        let mut faults = BTreeMap::new();
        for (_, fault) in &self.faults {
            if let Fault::Request(number, fault) = fault {
                faults.entry(*number).or_insert(*fault);
            }
        }
        faults
    }
}

impl World {
    pub(super) fn fault(&mut self, index: usize) {
        if self.calm {
            return;
        }
        let Some((_, Fault::At(_, fault))) = self.plan.faults.get(index).cloned() else {
            return;
        };
        if self.trace.is_some() {
            self.say(&format!("fault     {fault:?}"));
        }
        match fault {
            TimedFault::Crash { back } => self.crash_operator(0, back),
            TimedFault::WatchDrop(kind, time) => {
                let until = self.now + time;
                for operator in &mut self.operators {
                    operator.hold_watch(kind, until);
                }
            }
            TimedFault::EngineKill(machine) => {
                let operations = self.rng.u64(1..12);
                if let Some(name) = self.machine_name(machine)
                    && let Some(machine) = self.machines.get_mut(&name)
                {
                    machine.kill_engine(operations);
                }
            }
            TimedFault::PowerLoss(machine, time) => {
                if let Some(name) = self.machine_name(machine)
                    && self.may_lose_power(&name)
                {
                    self.lose_power(&name, Some(time));
                }
            }
            TimedFault::KubeadmFails(machine) => {
                if let Some(name) = self.machine_name(machine)
                    && let Some(machine) = self.machines.get_mut(&name)
                {
                    machine.fail_kubeadm(1);
                }
            }
            TimedFault::PullFails(machine) => {
                if let Some(name) = self.machine_name(machine)
                    && let Some(machine) = self.machines.get_mut(&name)
                {
                    machine.pull_fails = 3;
                }
            }
        }
    }

    fn machine_name(&self, index: usize) -> Option<NodeName> {
        self.machines.keys().nth(index).cloned()
    }

    /// A second control plane that goes while one is away would end the cluster, whoever upgrades it: that teaches nothing.
    fn may_lose_power(&self, name: &NodeName) -> bool {
        let Some(machine) = self.machines.get(name) else {
            return false;
        };
        if !machine.control_plane {
            return true;
        }
        let members = self.machines.values().filter(|machine| machine.control_plane);
        let (mut all, mut up) = (0, 0);
        for member in members {
            all += 1;
            up += usize::from(member.facts.serves(Component::Etcd));
        }
        up > all / 2 + 1
    }

    /// Takes the power from a machine, for a time or for ever.
    pub fn lose_power(&mut self, name: &NodeName, back_after: Option<Millis>) {
        let Some(machine) = self.machines.get_mut(name) else {
            return;
        };
        if !machine.facts.powered {
            return;
        }
        let before = machine.facts.clone();
        machine.lose_power();
        let epoch = machine.epoch;
        self.containers_die(name);
        self.rules.power_lost(name);
        self.machine_moved(name, &before);
        if let Some(after) = back_after {
            self.later(after, Event::Boot(name.clone(), epoch));
        }
    }

    pub(super) fn boot(&mut self, name: &NodeName, epoch: u32) {
        let now = self.now;
        let Some(machine) = self.machines.get_mut(name) else {
            return;
        };
        if machine.facts.powered || machine.epoch != epoch {
            return;
        }
        let before = machine.facts.clone();
        machine.boot(now);
        self.told.remove(name);
        self.machine_moved(name, &before);
        self.wake(name, now + 3 * SECOND);
    }

    /// Faults and people end: the rest must come right by itself.
    pub(super) fn becomes_calm(&mut self) {
        self.calm = true;
        self.say("calm");
        self.plan.lag = self.plan.lag.min(200);
        self.plan.latency = self.plan.latency.min(20);
        for machine in self.machines.values_mut() {
            // What a scenario broke for good stays broken.
            if machine.pull_fails < PULLS_FAIL_FOR_GOOD {
                machine.pull_fails = 0;
            }
        }
        self.calm_operators();
    }
}

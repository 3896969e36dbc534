//! Faults: which classes a seed has, and the list of single faults that follows from them. The list is made before the run,
//! so that a failing run can be repeated with fewer of them. What a fault does is for the world it happens in.

use std::collections::BTreeSet;

use super::store::Refused;
use super::time::{MINUTE, Millis, SECOND};

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
    /// The pods of all tasks are killed.
    TaskKill,
    /// The migration of a virtual machine fails.
    MigrationFails,
    /// Rancher is restarted and away for a while.
    RancherAway,
    /// A member of etcd is behind the others for a while after it was restarted.
    EtcdLag,
}

impl Class {
    /// Those of kubeadm clusters.
    pub const KUBEADM: [Self; 15] = [
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
        Self::EtcdLag,
    ];

    /// Those of Harvester-like clusters.
    pub const HCI: [Self; 13] = [
        Self::Crash,
        Self::StaleRestart,
        Self::Lag,
        Self::WatchDrop,
        Self::Refusal,
        Self::ReplyLost,
        Self::Latency,
        Self::ClockSkew,
        Self::TwoOperators,
        Self::TaskKill,
        Self::MigrationFails,
        Self::RancherAway,
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
            Self::TaskKill => "task-kill",
            Self::MigrationFails => "migration-fails",
            Self::RancherAway => "rancher-away",
            Self::EtcdLag => "etcd-lag",
        }
    }
}

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
    Crash {
        back: u64,
    },
    /// The watch of a kind, by its number.
    WatchDrop(usize, Millis),
    EngineKill(usize),
    PowerLoss(usize, Millis),
    KubeadmFails(usize),
    PullFails(usize),
    TaskKill,
    MigrationFails,
    RancherAway(Millis),
}

impl TimedFault {
    /// As a trace says it; `kind` names what is watched.
    pub fn told(&self, kind: impl Fn(usize) -> String) -> String {
        match self {
            Self::WatchDrop(number, time) => format!("WatchDrop({}, {time})", kind(*number)),
            other => format!("{other:?}"),
        }
    }
}

/// What a swarm may be about.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    pub classes: &'static [Class],
    pub machines: usize,
    /// Kinds that are watched.
    pub kinds: usize,
    /// It becomes calm after so long at the latest.
    pub longest: Millis,
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
    /// How long a member of etcd is behind at most, once it was restarted.
    pub etcd_lag: Millis,
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
    pub fn swarm(rng: &mut fastrand::Rng, allowed: &dyn Fn(Class) -> bool, field: &Field) -> Self {
        let mut plan = Self::none();
        plan.calm_at = rng.u64(2 * MINUTE..=field.longest);
        let none_at_all = rng.u8(0..16) == 0;
        for class in field.classes.iter().copied() {
            // Drawn for every class, so that switching one off leaves the others as they were.
            let mut own = fastrand::Rng::with_seed(rng.u64(..));
            let on = own.bool() && !none_at_all;
            if on && allowed(class) {
                plan.add(class, &mut own, field);
            }
        }
        plan
    }

    fn add(&mut self, class: Class, rng: &mut fastrand::Rng, field: &Field) {
        let (calm_at, machines) = (self.calm_at, field.machines);
        match class {
            Class::Lag => self.lag = [200, 2 * SECOND, 10 * SECOND, MINUTE][rng.usize(0..4)],
            Class::Latency => self.latency = [200, SECOND, 8 * SECOND][rng.usize(0..3)],
            Class::ClockSkew => self.skew = rng.i64(-120_000..=120_000),
            Class::TwoOperators => self.two_operators = true,
            Class::EtcdLag => self.etcd_lag = [5 * SECOND, MINUTE, 5 * MINUTE][rng.usize(0..3)],
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
                TimedFault::WatchDrop(rng.usize(0..field.kinds), rng.u64(SECOND..3 * MINUTE))
            }),
            Class::EngineKill => self.timed(class, rng, 20, |rng| TimedFault::EngineKill(rng.usize(0..machines))),
            Class::Reboot => self.timed(class, rng, 4, |rng| {
                TimedFault::PowerLoss(rng.usize(0..machines), rng.u64(20 * SECOND..8 * MINUTE))
            }),
            Class::KubeadmFails => self.timed(class, rng, 3, |rng| TimedFault::KubeadmFails(rng.usize(0..machines))),
            Class::PullFails => self.timed(class, rng, 4, |rng| TimedFault::PullFails(rng.usize(0..machines))),
            Class::TaskKill => self.timed(class, rng, 8, |_| TimedFault::TaskKill),
            Class::MigrationFails => self.timed(class, rng, 2, |_| TimedFault::MigrationFails),
            Class::RancherAway => self.timed(class, rng, 3, |rng| {
                TimedFault::RancherAway(rng.u64(SECOND..20 * MINUTE))
            }),
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

    /// Without some faults, and with the crash that was asked for.
    pub fn as_asked(&mut self, left_out: &BTreeSet<usize>, crash: Option<(usize, u64)>) {
        let mut index = 0;
        self.faults.retain(|_| {
            index += 1;
            !left_out.contains(&(index - 1))
        });
        if let Some((request, back)) = crash {
            let fault = Fault::Request(request, RequestFault::CrashAfter { back });
            self.faults.push((Class::Crash, fault));
        }
    }

    /// The fault of a request, where it has one.
    pub fn of_request(&self, request: usize) -> Option<RequestFault> {
        self.faults.iter().find_map(|(_, fault)| match fault {
            Fault::Request(number, fault) if *number == request => Some(*fault),
            _ => None,
        })
    }
}

//! A machine's insides, from the moment somebody works on it: its simulated host and the engine of `afloat-node` on it,
//! at the pace of the world. What of it an API server gets to see is in `task` (the pods that do the work) and `parts` (the
//! static pods and the version).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use afloat_api::NodeRole;
use afloat_node::engine::{Engine, Next};
use afloat_node::host::EtcdPeer;
use jiff::{SignedDuration, Timestamp};

use crate::clock::after;
use crate::machine::Machine;
use crate::scenario::Trouble;
use afloat_simhost::{Bundle, Machine as HostMachine, Shared, SimHost};

/// How many instructions are carried out within one look: no engine goes on for ever without waiting.
const AT_ONCE: usize = 500;

/// What all machines have in common, and what is wrong with some.
#[derive(Clone, Debug)]
pub struct Site {
    pub shared: Shared,
    pub bundle: Bundle,
    /// How much quicker than life the work on a machine goes.
    pub pace: f64,
    /// The least time between two looks at what goes on there.
    pub rest: Duration,
    pub trouble: Trouble,
    pub health: HealthBoard,
    pub power: PowerBoard,
}

impl Site {
    /// Machines at one version, and what a bundle would bring them.
    pub fn new(version: &str, versions: &[String], pace: f64) -> Self {
        let versions: Vec<&str> = versions.iter().map(String::as_str).collect();
        Self {
            shared: Shared::new(version),
            bundle: Bundle::of(&versions),
            pace: pace.max(f64::MIN_POSITIVE),
            rest: Duration::ZERO,
            trouble: Trouble::default(),
            health: HealthBoard::default(),
            power: PowerBoard::default(),
        }
    }
}

/// The machines that have lost their power.
#[derive(Clone, Debug, Default)]
pub struct PowerBoard(Arc<Mutex<BTreeSet<String>>>);

impl PowerBoard {
    pub fn cut(&self, machines: &BTreeSet<String>) {
        let mut board = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        board.extend(machines.iter().cloned());
    }

    pub fn is_cut(&self, machine: &str) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains(machine)
    }
}

/// How the control planes are, for whoever probes them.
#[derive(Clone, Debug, Default)]
pub struct HealthBoard(Arc<Mutex<BTreeMap<String, PlaneHealth>>>);

/// One control plane's endpoints.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PlaneHealth {
    pub api_server: bool,
    pub etcd: bool,
}

impl HealthBoard {
    /// A control plane nobody works on is well.
    pub fn of(&self, node: &str) -> PlaneHealth {
        let board = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        board.get(node).copied().unwrap_or(PlaneHealth {
            api_server: true,
            etcd: true,
        })
    }

    /// Whether nobody serves the API: every control plane's server is down.
    pub fn api_is_away(&self) -> bool {
        let board = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        !board.is_empty() && board.values().all(|health| !health.api_server)
    }

    fn put(&self, node: &str, health: PlaneHealth) {
        let mut board = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        board.insert(node.to_owned(), health);
    }
}

/// A machine somebody works on.
#[derive(Debug)]
pub(super) struct Hosted {
    pub host: SimHost,
    pub engine: Engine,
    epoch: Timestamp,
    pace: f64,
    rest: Duration,
    /// The engine waits longer than it asked for: it is called before that when the machine changes.
    rests: bool,
    /// When the engine wants to be called next, in the world's time.
    engine_at: Option<Timestamp>,
    /// A step container is up: it carries the engine on itself where the host's unit is not there yet.
    pub attended: bool,
}

impl Hosted {
    pub fn new(machine: &Machine, site: &Site, now: Timestamp) -> Self {
        let role = if machine.control_plane {
            NodeRole::ControlPlane
        } else {
            NodeRole::Worker
        };
        let inside = HostMachine {
            name: machine.name.clone(),
            role,
            address: machine.address.clone(),
            version: machine.version.clone(),
        };
        let mut host = SimHost::new(inside, &site.bundle, site.shared.clone(), now);
        host.faults.kubeadm_failures = site.trouble.kubeadm_failures.get(&machine.name).copied().unwrap_or(0);
        Self {
            host,
            engine: Engine::default(),
            epoch: now,
            pace: site.pace,
            rest: site.rest,
            rests: false,
            engine_at: None,
            attended: false,
        }
    }

    /// The machine's own time.
    fn inside(&self, now: Timestamp) -> Timestamp {
        let elapsed = now.duration_since(self.epoch).as_secs_f64() * self.pace;
        SignedDuration::try_from_secs_f64(elapsed)
            .ok()
            .and_then(|elapsed| self.epoch.checked_add(elapsed).ok())
            .unwrap_or(now)
    }

    /// A moment of the machine's own time, in the world's.
    pub fn outside(&self, moment: Timestamp) -> Timestamp {
        let elapsed = moment.duration_since(self.epoch).as_secs_f64() / self.pace;
        SignedDuration::try_from_secs_f64(elapsed)
            .ok()
            .and_then(|elapsed| self.epoch.checked_add(elapsed).ok())
            .unwrap_or(moment)
    }

    fn in_the_world(&self, now: Timestamp, moment: Timestamp) -> Timestamp {
        let left = moment.duration_since(self.host.now()).as_secs_f64() / self.pace;
        after(now, Duration::try_from_secs_f64(left.max(0.0)).unwrap_or(Duration::MAX))
    }

    /// Something was asked of the engine.
    pub fn wake(&mut self, now: Timestamp) {
        self.rests = false;
        self.engine_at = Some(now);
    }

    /// Brings the machine to `now` and lets its engine work as far as it can. Says when to look again.
    pub fn advance(&mut self, now: Timestamp) -> Option<Timestamp> {
        let inside = self.inside(now);
        let changed = self.host.next_change().is_some_and(|at| at <= inside);
        self.host.tick(inside);
        if changed && self.rests {
            self.wake(now);
        }
        for _ in 0..AT_ONCE {
            let due = self.engine_at.is_some_and(|at| at <= now);
            if !due || !(self.attended || self.host.engine_running()) {
                break;
            }
            let inside = self.host.now();
            self.engine_at = match self.engine.advance(&mut self.host, inside) {
                Ok(Next::Again { after: wait, .. }) => {
                    let asked = wait.div_f64(self.pace.max(f64::MIN_POSITIVE));
                    self.rests = !wait.is_zero() && asked < self.rest;
                    Some(after(now, if self.rests { self.rest } else { asked }))
                }
                Ok(Next::Idle) => None,
                Err(error) => {
                    tracing::debug!(%error, "the engine stumbled; its unit starts it again");
                    Some(after(now, Duration::from_secs(1).div_f64(self.pace)))
                }
            };
        }
        let change = self.host.next_change().map(|moment| self.in_the_world(now, moment));
        // Timers of the world have a resolution of a millisecond.
        let soon = after(now, Duration::from_millis(2));
        [change, self.engine_at]
            .into_iter()
            .flatten()
            .min()
            .map(|at| at.max(soon))
    }
}

/// Lets control planes see each other: who is well, who leads, whether the API answers at all.
pub(super) fn introduce(planes: &mut BTreeMap<String, Option<&mut Hosted>>, site: &Site) {
    let healths: BTreeMap<String, PlaneHealth> = planes
        .iter()
        .map(|(name, hosted)| {
            let health = hosted.as_ref().map_or(
                PlaneHealth {
                    api_server: true,
                    etcd: true,
                },
                |hosted| PlaneHealth {
                    api_server: hosted.host.api_server_ready(),
                    etcd: hosted
                        .host
                        .static_parts()
                        .iter()
                        .any(|part| part.name == "etcd" && part.ready),
                },
            );
            (name.clone(), health)
        })
        .collect();
    site.shared.get().api_reachable = healths.values().any(|health| health.api_server);
    for (name, health) in &healths {
        site.health.put(name, *health);
    }
    for (name, hosted) in planes.iter_mut() {
        let Some(hosted) = hosted else { continue };
        hosted.host.member.peers = healths
            .iter()
            .filter(|(other, _)| *other != name)
            .map(|(other, health)| EtcdPeer {
                name: other.clone(),
                healthy: health.etcd,
                behind: 0,
            })
            .collect();
    }
}

//! What faults do to machines, watches and operators, and what becomes of it all when it becomes calm.

use afloat_core::view::{Component, NodeName};

use super::{Event, World};
use crate::faults::{Fault, TimedFault};
use crate::machine::Lag;
use crate::store::KindName;
use crate::time::{Millis, SECOND};

/// From so many on, an image is not there at all.
const PULLS_FAIL_FOR_GOOD: u32 = 1000;

/// The kind of this number.
fn watched(kind: usize) -> KindName {
    KindName::ALL[kind % KindName::ALL.len()]
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
            let told = fault.told(|kind| format!("{:?}", watched(kind)));
            self.say(&format!("fault     {told}"));
        }
        match fault {
            TimedFault::Crash { back } => self.crash_operator(0, back),
            TimedFault::WatchDrop(kind, time) => {
                let until = self.now + time;
                for operator in &mut self.operators {
                    operator.hold_watch(watched(kind), until);
                }
            }
            // Faults of other clusters.
            TimedFault::TaskKill | TimedFault::MigrationFails | TimedFault::RancherAway(_) => {}
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
        self.traffic.power_lost(name);
        self.machine_moved(name, &before);
        if let Some(after) = back_after {
            self.later(after, Event::Boot(name.clone(), epoch));
        }
    }

    /// A member that starts has yet to read what was written while it was away.
    pub(super) fn member_falls_behind(&mut self, name: &NodeName) {
        if self.plan.etcd_lag == 0 {
            return;
        }
        let (time, entries) = (self.some(0, self.plan.etcd_lag), self.rng.u64(1..10_000));
        let (now, until) = (self.now, self.now + time);
        if let Some(machine) = self.machines.get_mut(name) {
            machine.lag = Some(Lag {
                since: now,
                until,
                entries,
            });
            self.later(time, Event::EtcdCaughtUp);
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
        self.plan.etcd_lag = self.plan.etcd_lag.min(SECOND);
        for machine in self.machines.values_mut() {
            // What a scenario broke for good stays broken.
            if machine.pull_fails < PULLS_FAIL_FOR_GOOD {
                machine.pull_fails = 0;
            }
        }
        self.calm_operators();
    }
}

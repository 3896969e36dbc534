//! What goes wrong at a moment that the seed chose, and when that ends.

use super::store::Shelf;
use super::world::World;
use crate::faults::{Fault, TimedFault};

impl World {
    pub(super) fn fault(&mut self, index: usize) {
        let Some((_, Fault::At(_, fault))) = self.plan.faults.get(index).cloned() else {
            return;
        };
        if self.calm {
            return;
        }
        if self.trace.is_some() {
            let named = |kind| Shelf::all().nth(kind).map_or("", Shelf::word).to_owned();
            let told = fault.told(named);
            self.say(&format!("fault          {told}"));
        }
        match fault {
            TimedFault::Crash { back } => self.crash_replica(0, back),
            TimedFault::WatchDrop(kind, time) => self.hold_watches(kind, time),
            TimedFault::TaskKill => self.kill_tasks(|_| true),
            TimedFault::MigrationFails => self.failing_migrations += 1,
            TimedFault::RancherAway(time) => self.restart_rancher(time),
            // Faults of other clusters.
            TimedFault::EngineKill(_)
            | TimedFault::PowerLoss(..)
            | TimedFault::KubeadmFails(_)
            | TimedFault::PullFails(_) => {}
        }
    }

    /// Faults end here, and people with them.
    pub(super) fn becomes_calm(&mut self) {
        self.calm = true;
        self.say("calm");
        self.plan.lag = self.plan.lag.min(200);
        self.plan.latency = self.plan.latency.min(20);
        self.failing_migrations = 0;
        self.calm_replicas();
    }
}

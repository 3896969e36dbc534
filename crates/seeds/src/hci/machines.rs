//! The machines under the Jobs: after the work that follows a drain a machine restarts, is away for a while, and comes back with what was
//! installed. Machines also lose power, hang, and boot what they had before. Whatever runs on one ends with it.

use afloat_core::view::NodeName;
use afloat_scenes::{NEW_OS, PowerCut};

use super::longhorn::millis;
use super::world::{Look, World};
use crate::store::Writer;
use crate::time::{MINUTE, Millis, SECOND, stamp};

const REBOOT: Millis = 3 * MINUTE;
/// How long after the end of its task a machine restarts.
const SOON: Millis = 30 * SECOND;

/// A machine.
#[derive(Clone, Debug, Default)]
pub struct Machine {
    /// A new system lies ready: it boots next.
    pub installed: bool,
    /// It restarts when the task that asked for it has ended.
    pub restarts: bool,
    /// RKE2 is kept from bringing its multus.
    pub holds_multus: bool,
    /// How long it is away at most, where it is on its way.
    away: Option<Millis>,
}

impl World {
    /// The work that a machine restarts after has ended.
    pub(super) fn work_has_ended(&mut self, node: &NodeName) {
        let Some(machine) = self.machines.get_mut(node) else {
            return;
        };
        let asked = std::mem::take(&mut machine.restarts);
        if asked && !self.script.trouble.machines.hanging.contains(node.as_str()) {
            machine.away = Some(REBOOT);
            self.look_at(self.now + SOON, Look::Machine(node.clone()));
        }
    }

    pub(super) fn machine(&mut self, name: &NodeName) {
        self.loses_power(name);
        let Some(away) = self.machines.get(name).and_then(|machine| machine.away) else {
            return;
        };
        if self.node(name.as_str()).is_none() {
            return;
        }
        let down = (Look::Machine(name.clone()), 0);
        if self.takes(&down, away) {
            return self.boots(name);
        }
        if self.node(name.as_str()).is_some_and(|node| node.ready.ready) {
            let now = stamp(self.now);
            self.change_node(Writer::Machine, "goes-down", name, |node| {
                node.ready.ready = false;
                node.ready.since = now;
            });
            self.kill_tasks(|task| task.runs_on(name));
        }
    }

    fn boots(&mut self, name: &NodeName) {
        let stays_old = self.machines.get(name).is_some_and(|machine| machine.installed) && self.boots_old(name);
        let Some(machine) = self.machines.get_mut(name) else {
            return;
        };
        machine.away = None;
        machine.restarts = false;
        let system = std::mem::take(&mut machine.installed) && !stays_old;
        let now = stamp(self.now);
        self.change_node(Writer::Machine, "boots", name, |node| {
            node.ready.ready = true;
            node.ready.since = now;
            if system {
                node.os_image = NEW_OS.into();
            }
        });
    }

    fn boots_old(&mut self, name: &NodeName) -> bool {
        let left = self.script.trouble.machines.old_system.get_mut(name.as_str());
        left.filter(|left| **left > 0).map(|left| *left -= 1).is_some()
    }

    /// The next power cut of a machine: now, or when.
    fn loses_power(&mut self, name: &NodeName) {
        let all = std::mem::take(&mut self.power_cuts);
        let (come, later): (Vec<PowerCut>, Vec<PowerCut>) = all.into_iter().partition(|cut| self.has_come(cut.when));
        self.power_cuts = later;
        let now = self.now;
        self.cuts
            .extend(come.into_iter().map(|cut| (now + millis(cut.after), cut)));
        let Some(index) = self.cuts.iter().position(|(_, cut)| cut.node == name.as_str()) else {
            return;
        };
        let due = self.cuts[index].0;
        if due > now {
            return self.look_at(due, Look::Machine(name.clone()));
        }
        let (_, cut) = self.cuts.remove(index);
        self.forget(&(Look::Machine(name.clone()), 0));
        if let Some(machine) = self.machines.get_mut(name) {
            machine.away = Some(millis(cut.away));
        }
    }
}

//! The rules that must never break, looked at after every write and every move of a machine. They know nothing of how the
//! core decides: they have their own small memory of nodes, pauses and slots, built from what is written, and judge each write
//! of the operator by what it could have known ([`Seen`]).

mod alone;
mod hosts;
mod ledger;
mod nodes;
#[cfg(test)]
mod tests;
mod writes;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use afloat_core::action::Action;
use afloat_core::view::{Key, NodeName, Target, Uid};

use super::machine::Machine;
use super::store::{KindName, Store, Writer, Written};
use super::suite::RULES;
use super::time::Millis;

/// How far an operator's caches had come when it decided: the newest revision of each kind.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    pub revisions: [u64; KindName::ALL.len()],
    /// The newest state of any node it knew, also by the answer to a write of its own that its watch had not told of yet.
    pub newest_node: u64,
}

impl Seen {
    fn of(&self, kind: KindName) -> u64 {
        self.revisions[kind.index()]
    }
}

/// A rule that was broken.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Broken {
    /// Its number in the design, 0 for what follows from several.
    pub rule: u8,
    pub what: String,
}

impl fmt::Display for Broken {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "rule {}: {}", self.rule, self.what)
    }
}

/// What the rules remember of a node.
#[allow(clippy::struct_excessive_bools, reason = "each is written by somebody else")]
#[derive(Clone, Debug, Default)]
struct NodeMemory {
    uid: String,
    control_plane: bool,
    zone: Option<String>,
    ready: bool,
    unschedulable: bool,
    /// The revision it became not ready or not schedulable at, other than by the operator.
    broken_since: Option<u64>,
    /// The revision it was last in service again at, other than by the operator.
    back_since: Option<u64>,
    /// The revision a pause appeared on it at.
    paused_since: Option<u64>,
    /// Cordoned by the operator, and not yet given back.
    ours: bool,
    /// A person has had a hand in its cordon since the operator cordoned it.
    person_meddled: bool,
}

impl NodeMemory {
    fn available(&self) -> bool {
        self.ready && !self.unschedulable
    }
}

/// What they remember of an upgrade.
#[derive(Clone, Debug, Default)]
struct UpgradeMemory {
    /// The revision it was paused, aborted or deleted at.
    held_since: Option<u64>,
    max_unavailable: Option<Most>,
    per_domain: Option<usize>,
    slots: BTreeSet<(String, String, i32)>,
    /// How many workers might be away by the budget, and by how many were known to be there, when one of them last got a slot.
    granted_under: usize,
    ended: bool,
    /// The newest state of a node that was known to whoever ended it.
    ended_knowing: u64,
    gates: Vec<String>,
}

#[derive(Clone, Copy, Debug)]
enum Most {
    Count(usize),
    Percent(usize),
}

impl Most {
    fn of(self, all: usize) -> usize {
        match self {
            Self::Count(count) => count.max(1),
            Self::Percent(percent) => (all * percent / 100).max(1),
        }
    }
}

/// What the operator is about to write.
struct Doing {
    name: &'static str,
    target: Option<Target>,
    seen: Seen,
    override_of: Option<Key>,
}

/// The rules and their memory.
#[derive(Default)]
pub struct Rules {
    nodes: BTreeMap<NodeName, NodeMemory>,
    upgrades: BTreeMap<Key, UpgradeMemory>,
    /// Gates that are closed, and since when operators have had the chance to know.
    pub closed_gates: BTreeMap<(Key, String), Millis>,
    powerless: BTreeSet<NodeName>,
    doing: Option<Doing>,
    now: Millis,
    broken: Option<Broken>,
    /// How often each rule had something to judge: one that never has is not tested.
    pub judged: [u64; RULES],
}

impl Rules {
    pub fn broken(&self) -> Option<&Broken> {
        self.broken.as_ref()
    }

    /// The first one counts.
    pub fn breaks(&mut self, rule: u8, what: impl Into<String>) {
        if self.broken.is_none() {
            self.broken = Some(Broken {
                rule,
                what: what.into(),
            });
        }
    }

    fn judge(&mut self, rule: u8) {
        self.judged[usize::from(rule)] += 1;
    }

    /// The operator is about to carry out an action.
    pub fn about_to(&mut self, action: &Action, seen: &Seen, now: Millis) {
        self.now = now;
        self.doing = Some(Doing {
            name: action.name(),
            target: target_of(action).cloned(),
            seen: seen.clone(),
            override_of: match action {
                Action::DeletePastBudget { budget, .. } => Some(budget.clone()),
                _ => None,
            },
        });
    }

    /// The newest state of a node that whoever ended an upgrade knew when that was decided.
    pub fn nodes_known_at_end(&self, upgrade: &Key) -> u64 {
        let memory = self.upgrades.get(upgrade);
        memory.map_or(u64::MAX, |memory| memory.ended_knowing)
    }

    /// Something was written.
    pub fn saw(&mut self, store: &Store, written: &Written, machines: &BTreeMap<NodeName, Machine>) {
        self.now = store.now;
        if matches!(written.writer, Writer::Operator(_)) {
            self.uid_is_the_one(store, written);
        }
        match written.kind {
            KindName::Node => self.node_written(store, written, machines),
            KindName::Upgrade => self.upgrade_written(store, written),
            KindName::ControlPlane | KindName::Workers => self.group_written(store, written),
            KindName::NodeUpgrade => self.node_upgrade_written(store, written),
            KindName::Pod => self.pod_written(store, written),
            _ => {}
        }
    }

    /// The machine is gone for good.
    pub fn machine_left(&mut self, name: &NodeName) {
        self.powerless.remove(name);
    }

    /// A machine lost its power by a fault: what follows is nobody's doing.
    pub fn power_lost(&mut self, name: &NodeName) {
        self.powerless.insert(name.clone());
    }
}

/// The object an action is about, where it is about one that must be the very one.
fn target_of(action: &Action) -> Option<&Target> {
    match action {
        Action::WriteUpgradeStatus { target, .. }
        | Action::WriteControlPlaneStatus { target, .. }
        | Action::WriteWorkersStatus { target, .. }
        | Action::WriteNodeStatus { target, .. }
        | Action::SetUpgradeFinalizer { target, .. }
        | Action::SetGroupFinalizer { target, .. }
        | Action::RemoveNodeFinalizer { target }
        | Action::SetControlPlaneMachines { target, .. }
        | Action::SetWorkersMachines { target, .. }
        | Action::SetDesired { target, .. } => Some(target),
        Action::Cordon { node, .. }
        | Action::Uncordon { node }
        | Action::PauseNode { node, .. }
        | Action::UnpauseNode { node, .. }
        | Action::ClearWish { node } => Some(node),
        Action::DeletePod { pod } | Action::Evict { pod, .. } | Action::DeletePastBudget { pod, .. } => Some(pod),
        Action::ReleaseLock { lock } => Some(lock),
        Action::CreateControlPlaneUpgrade(_)
        | Action::CreateWorkersUpgrade(_)
        | Action::CreateNodeUpgrade(_)
        | Action::CreatePod(_)
        | Action::TakeLock { .. }
        | Action::Hci(_) => None,
    }
}

/// Uid of the object before a write, where it was there.
fn uid_before(store: &Store, written: &Written) -> Option<Uid> {
    use super::store::{Change, Kind};
    fn of<K, O: Kind>(changes: &[Change<K, O>], index: usize) -> Option<Uid> {
        changes
            .get(index)?
            .before
            .as_ref()
            .map(|object| Uid::from(object.uid()))
    }
    let index = written.index;
    match written.kind {
        KindName::Node => of(store.nodes.changes(), index),
        KindName::Pod => of(store.pods.changes(), index),
        KindName::Budget => of(store.budgets.changes(), index),
        KindName::Workload => of(store.workloads.changes(), index),
        KindName::Upgrade => of(store.upgrades.changes(), index),
        KindName::ControlPlane => of(store.control_planes.changes(), index),
        KindName::Workers => of(store.workers.changes(), index),
        KindName::NodeUpgrade => of(store.node_upgrades.changes(), index),
        KindName::Lock => of(store.locks.changes(), index),
    }
}

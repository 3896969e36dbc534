//! People: what they do to a cluster while it is upgraded, at a moment or when a node comes into a state. Only what the API
//! server would let them do.

use std::sync::Arc;

use afloat_api::clusterupgrade::Window;
use afloat_api::{ClusterUpgrade, ControlPlaneKubeadmUpgrade, NodeKubeadmUpgrade, NodeState, WorkersKubeadmUpgrade};
use afloat_core::view::{Component, GateState, Key, Node, NodeName, Pod, Wish};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::{Event, World};
use crate::store::{Kind as _, KindName, Meant, Writer};
use crate::time::{Millis, SECOND};

/// Something a person does.
#[derive(Clone, Debug, PartialEq)]
pub enum Act {
    Create(Box<ClusterUpgrade>),
    Pause(Key),
    Resume(Key),
    Abort(Key),
    /// So many workers at once, from now on.
    Budget(Key, i32),
    /// Nodes may go within this window, or at any time.
    Window(Key, Option<Box<Window>>),
    Delete(Key),
    /// Takes the pause off a node; off all nodes where none is named.
    Unpause(Option<NodeName>),
    /// Puts one on.
    Hold(NodeName),
    Wish(NodeName, Wish),
    Cordon(NodeName),
    Uncordon(NodeName),
    AddWorker(NodeName),
    RemoveNode(NodeName),
    /// Another machine under the same name.
    ReplaceNode(NodeName),
    DeleteNodeUpgrade(NodeName),
    /// A group that stands alone is held, or goes on.
    HoldGroup(KindName, Key, bool),
    DeleteGroup(KindName, Key),
    DeletePods(usize),
    FreeBudget(Key),
    Gate(Key, Arc<str>, bool),
    KubeadmFails(NodeName, u32),
    PullFails(NodeName, u32),
    PowerLoss(NodeName, Option<Millis>),
}

/// When it is done.
#[derive(Clone, Debug, PartialEq)]
pub enum When {
    At(Millis),
    /// Some time after a node of this name (any, where none is named) came into this state.
    State(NodeState, Option<NodeName>, Millis),
}

/// One thing a person is going to do.
#[derive(Clone, Debug)]
pub struct PlannedAct {
    pub when: When,
    pub act: Act,
    pub done: bool,
}

impl PlannedAct {
    pub fn new(when: When, act: Act) -> Self {
        Self { when, act, done: false }
    }
}

impl World {
    /// Brings every planned act into the queue that has a time of its own.
    pub fn plan_acts(&mut self) {
        for index in 0..self.acts.len() {
            if let When::At(at) = self.acts[index].when {
                self.queue.push(at, Event::Person(index));
            }
        }
    }

    /// A node came into a state that someone waits for.
    pub(super) fn node_upgrade_changed(&mut self, index: usize) {
        let change = &self.store.node_upgrades.changes()[index];
        let state_of = |upgrade: &Arc<NodeKubeadmUpgrade>| upgrade.status.as_ref().and_then(|status| status.state);
        let Some(after) = &change.after else { return };
        let Some(state) = state_of(after) else { return };
        if change.before.as_ref().and_then(state_of) == Some(state) {
            return;
        }
        let node = after.spec.node.name.clone();
        for index in 0..self.acts.len() {
            let planned = &mut self.acts[index];
            if let When::State(wanted, name, after) = &planned.when
                && !planned.done
                && *wanted == state
                && name.as_ref().is_none_or(|name| name.as_str() == node)
            {
                planned.done = true;
                let after = *after;
                self.later(after, Event::Person(index));
            }
        }
    }

    pub(super) fn person(&mut self, index: usize) {
        let act = self.acts[index].act.clone();
        self.acts[index].done = true;
        if self.trace.is_some() {
            self.say(&format!("person    {}", word(&act)));
        }
        self.act(&act);
    }

    /// Does it now. What the API server refuses is not done.
    pub fn act(&mut self, act: &Act) {
        match act {
            Act::Create(upgrade) => {
                let _ = self
                    .store
                    .create_custom(Writer::Person, "create", ClusterUpgrade::clone(upgrade));
            }
            Act::Pause(key) => self.edit(key, |upgrade| upgrade.spec.paused = Some(true)),
            Act::Resume(key) => self.edit(key, |upgrade| upgrade.spec.paused = None),
            Act::Abort(key) => self.edit(key, |upgrade| upgrade.spec.abort = Some(true)),
            Act::Budget(key, many) => {
                let many = *many;
                self.edit(key, |upgrade| {
                    let budget = upgrade.spec.budget.get_or_insert_default();
                    budget.max_unavailable = Some(IntOrString::Int(many));
                });
            }
            Act::Window(key, window) => {
                let window = window.as_deref().cloned();
                self.edit(key, |upgrade| upgrade.spec.window = window);
            }
            Act::Delete(key) => {
                let _ = self
                    .store
                    .delete_custom::<ClusterUpgrade>(Writer::Person, &Meant::named(key));
            }
            Act::Unpause(Some(name)) => self.edit_node(name, |node| node.pause = None),
            Act::Unpause(None) => {
                let names: Vec<NodeName> = self.store.nodes.iter().map(|(name, _)| name.clone()).collect();
                for name in names {
                    self.edit_node(&name, |node| node.pause = None);
                }
            }
            Act::Hold(name) => self.edit_node(name, |node| node.pause = Some(Arc::from("a person looks at it"))),
            Act::Wish(name, wish) => self.edit_node(name, |node| node.wish = Some(*wish)),
            Act::Cordon(name) => self.edit_node(name, |node| node.unschedulable = true),
            Act::Uncordon(name) => self.edit_node(name, |node| node.unschedulable = false),
            Act::AddWorker(name) => self.add_worker(name),
            Act::RemoveNode(name) => self.remove_node(name),
            Act::ReplaceNode(name) => {
                if self.machines.get(name).is_some_and(|machine| !machine.control_plane) {
                    self.remove_node(name);
                    self.add_worker(name);
                }
            }
            Act::DeleteNodeUpgrade(name) => self.delete_node_upgrade(name),
            Act::HoldGroup(kind, key, held) => self.hold_group(*kind, key, *held),
            Act::DeleteGroup(kind, key) => self.delete_group(*kind, key),
            Act::DeletePods(count) => self.delete_pods(*count),
            Act::FreeBudget(key) => {
                self.frozen_budgets.remove(key);
                if let Some(spec) = self.store.budget_specs.get_mut(key) {
                    *spec = crate::store::BudgetSpec::MaxUnavailable(1);
                }
                self.plan_budgets();
            }
            Act::Gate(upgrade, name, open) => self.set_gate(upgrade, name, *open),
            Act::KubeadmFails(name, times) => {
                if let Some(machine) = self.machines.get_mut(name) {
                    machine.fail_kubeadm(*times);
                }
            }
            Act::PullFails(name, times) => {
                if let Some(machine) = self.machines.get_mut(name) {
                    machine.pull_fails = *times;
                }
            }
            Act::PowerLoss(name, back) => self.lose_power(name, *back),
        }
    }

    fn set_gate(&mut self, upgrade: &Key, name: &Arc<str>, open: bool) {
        let state = GateState {
            open,
            message: Arc::from("the shop is busy"),
        };
        self.gates.insert((upgrade.clone(), Arc::clone(name)), state);
        let gate = (upgrade.clone(), name.to_string());
        if open {
            self.rules.closed_gates.remove(&gate);
        } else {
            self.rules.closed_gates.insert(gate, self.now);
        }
        self.probe_operators();
    }

    fn edit(&mut self, key: &Key, change: impl FnOnce(&mut ClusterUpgrade)) {
        let _ = self
            .store
            .update_custom::<ClusterUpgrade>(Writer::Person, "edit", &Meant::named(key), change);
    }

    fn edit_node(&mut self, name: &NodeName, change: impl FnOnce(&mut Node)) {
        let _ = self
            .store
            .update::<Node>(Writer::Person, "edit", &Meant::named(name), change);
    }

    fn add_worker(&mut self, name: &NodeName) {
        if self.store.nodes.get(name).is_none() {
            let version = self.oldest_kubelet();
            self.add_node(name.as_str(), false, "zone-a", &version, Writer::Person);
        }
    }

    fn remove_node(&mut self, name: &NodeName) {
        let planes = || self.machines.values().filter(|machine| machine.control_plane);
        let (all, others_up) = (
            planes().count(),
            planes()
                .filter(|machine| machine.name != *name && machine.facts.serves(Component::Etcd))
                .count(),
        );
        // Whoever takes a control plane out sees to it that etcd goes on.
        let goes_on = all > 3 && others_up > (all - 1) / 2 + 1;
        let Some(machine) = self
            .machines
            .get(name)
            .filter(|machine| !machine.control_plane || goes_on)
        else {
            return;
        };
        let control_plane = machine.control_plane;
        self.store.remove::<Node>(Writer::Person, name);
        self.machines.remove(name);
        self.told.remove(name);
        self.rules.machine_left(name);
        if control_plane {
            self.members_hear();
            self.clients_look();
        }
    }

    fn delete_node_upgrade(&mut self, name: &NodeName) {
        let keys: Vec<Key> = self
            .store
            .node_upgrades
            .values()
            .filter(|upgrade| upgrade.spec.node.name == name.as_str())
            .map(|upgrade| upgrade.key())
            .collect();
        for key in keys {
            let _ = self
                .store
                .delete_custom::<NodeKubeadmUpgrade>(Writer::Person, &Meant::named(&key));
        }
    }

    fn hold_group(&mut self, kind: KindName, key: &Key, held: bool) {
        let (writer, meant) = (Writer::Person, Meant::named(key));
        if kind == KindName::ControlPlane {
            let change = |group: &mut ControlPlaneKubeadmUpgrade| group.spec.paused = Some(held);
            let _ = self.store.update_custom(writer, "edit", &meant, change);
        } else {
            let change = |group: &mut WorkersKubeadmUpgrade| group.spec.paused = Some(held);
            let _ = self.store.update_custom(writer, "edit", &meant, change);
        }
    }

    fn delete_group(&mut self, kind: KindName, key: &Key) {
        let (writer, meant) = (Writer::Person, Meant::named(key));
        let _ = if kind == KindName::ControlPlane {
            self.store.delete_custom::<ControlPlaneKubeadmUpgrade>(writer, &meant)
        } else {
            self.store.delete_custom::<WorkersKubeadmUpgrade>(writer, &meant)
        };
    }

    fn delete_pods(&mut self, count: usize) {
        for _ in 0..count {
            let pods = self.store.pods.len();
            if pods == 0 {
                return;
            }
            let nth = self.rng.usize(0..pods);
            let Some(pod) = self.store.pods.values().nth(nth).cloned() else {
                return;
            };
            if pod.static_part.is_none() {
                let _ = self
                    .store
                    .delete_pod(Writer::Person, "delete", &Meant::named(&pod.key), None);
            }
        }
    }

    /// What some people do at random: little things, at random times, before it becomes calm.
    pub fn invent_acts(&mut self, upgrades: &[Key], workers: &[NodeName]) {
        self.invent_acts_on_groups(workers);
        let many = self.rng.usize(1..10);
        for _ in 0..many {
            let at = self.rng.u64(10 * SECOND..self.plan.calm_at.max(20 * SECOND));
            let upgrade = upgrades.get(self.rng.usize(0..upgrades.len().max(1))).cloned();
            let worker = workers.get(self.rng.usize(0..workers.len().max(1))).cloned();
            let Some(upgrade) = upgrade else { return };
            let any: Vec<NodeName> = self.machines.keys().cloned().collect();
            let node = any[self.rng.usize(0..any.len())].clone();
            let act = match self.rng.u32(0..28) {
                0..=2 => Act::Pause(upgrade),
                3..=5 => Act::Resume(upgrade),
                6 => Act::Abort(upgrade),
                7 => Act::Delete(upgrade),
                8..=9 => Act::Hold(node),
                10..=12 => Act::Unpause(None),
                13..=14 => Act::Wish(node, Wish::Defer),
                15 => Act::Wish(node, Wish::Rollback),
                16..=17 => Act::Cordon(node),
                18..=19 => Act::Uncordon(node),
                20 => Act::AddWorker(NodeName::from("w-new")),
                21 => worker.map_or(Act::DeletePods(3), Act::RemoveNode),
                22..=23 => worker.map_or(Act::DeletePods(3), Act::ReplaceNode),
                24 => Act::DeleteNodeUpgrade(node),
                _ => Act::DeletePods(3),
            };
            // Whoever pauses comes back to it, most of the time.
            if let Act::Pause(key) = &act
                && self.rng.u8(0..4) > 0
            {
                let later = at + self.rng.u64(SECOND..600 * SECOND);
                self.acts
                    .push(PlannedAct::new(When::At(later), Act::Resume(key.clone())));
            }
            if let Act::Cordon(name) = &act
                && self.rng.bool()
            {
                let later = at + self.rng.u64(SECOND..600 * SECOND);
                self.acts
                    .push(PlannedAct::new(When::At(later), Act::Uncordon(name.clone())));
            }
            self.acts.push(PlannedAct::new(When::At(at), act));
        }
    }

    /// The same with groups that stand alone, where there are some: held and let go, deleted, their nodes undone or deferred.
    fn invent_acts_on_groups(&mut self, workers: &[NodeName]) {
        if self.alone.is_empty() {
            return;
        }
        for _ in 0..self.rng.usize(1..8) {
            let at = self.rng.u64(10 * SECOND..self.plan.calm_at.max(20 * SECOND));
            let (kind, group) = self.alone[self.rng.usize(0..self.alone.len())].clone();
            let any: Vec<NodeName> = self.machines.keys().cloned().collect();
            let node = any[self.rng.usize(0..any.len())].clone();
            let worker = workers.get(self.rng.usize(0..workers.len().max(1))).cloned();
            let act = match self.rng.u32(0..16) {
                0..=1 => Act::HoldGroup(kind, group, true),
                2 => Act::DeleteGroup(kind, group),
                3..=5 => Act::Wish(node, Wish::Rollback),
                6..=7 => Act::Wish(node, Wish::Defer),
                8 => Act::Hold(node),
                9 => Act::Unpause(None),
                10..=11 => Act::DeleteNodeUpgrade(node),
                12 => Act::Cordon(node),
                13 => Act::Uncordon(node),
                14 => worker.map_or(Act::DeletePods(3), Act::ReplaceNode),
                _ => Act::DeletePods(3),
            };
            if let Act::HoldGroup(kind, group, _) = &act
                && self.rng.u8(0..4) > 0
            {
                let later = at + self.rng.u64(SECOND..600 * SECOND);
                let act = Act::HoldGroup(*kind, group.clone(), false);
                self.acts.push(PlannedAct::new(When::At(later), act));
            }
            self.acts.push(PlannedAct::new(When::At(at), act));
        }
    }

    /// Deletes a pod as a person would, for tests of single moments.
    pub fn pods_of(&self, node: &NodeName) -> Vec<Arc<Pod>> {
        self.store.pods_on(node).cloned().collect()
    }
}

fn word(act: &Act) -> String {
    match act {
        Act::Create(upgrade) => format!("Create({})", upgrade.key()),
        other => format!("{other:?}"),
    }
}

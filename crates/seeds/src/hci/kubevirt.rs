//! KubeVirt: virtual machines that are to run do, somewhere they may; those that are to be off stop; migrations move them, or fail. A
//! machine whose node goes away under it is lost, and says so.

use std::collections::BTreeMap;
use std::sync::Arc;

use afloat_core::hci::view::{HciKind, HciObject, Migration, Run, Seen, Vm, Vmi};
use afloat_core::view::{Key, Node, NodeName, Operator, PodBudget, Requirement, Revision, Selector, TaintEffect};
use afloat_scenes::{Binding, Candidate, VmShape, best};

use super::longhorn::millis;
use super::world::{Look, World};
use crate::store::Writer;
use crate::time::{Millis, SECOND, second};

/// How long a guest takes to shut down, and a migration to copy its memory.
const SHUTDOWN: Millis = 20 * SECOND;
const COPY: Millis = 40 * SECOND;
/// How long what has no place to go waits before it looks again.
const PENDING: Millis = 10 * SECOND;
/// Two kinds of work on one migration.
const COPIES: u8 = 0;
const POST_COPIES: u8 = 1;
/// What KubeVirt says of a machine that it has lost on the way.
const IRRECOVERABLE: &str = "VMI is irrecoverable due to failed post-copy migration";
/// How long the budget of a migration stays after that.
const LINGERS: Millis = 5 * SECOND;
const HOSTNAME: &str = "kubernetes.io/hostname";

/// A running virtual machine on a node.
pub fn instance(shape: Option<&VmShape>, node: &NodeName) -> Vmi {
    let bound = shape.and_then(|shape| shape.bound);
    let selected = shape.filter(|_| bound == Some(Binding::Selector));
    let container_disk = bound == Some(Binding::ContainerDisk);
    Vmi {
        phase: Arc::from("Running"),
        node: Some(node.clone()),
        node_selector: selected
            .map(|shape| (Arc::from(HOSTNAME), Arc::from(shape.node.as_str())))
            .into_iter()
            .collect::<BTreeMap<_, _>>(),
        host_devices: bound == Some(Binding::HostDevice),
        not_migratable: container_disk
            .then(|| Arc::from("cannot migrate VMI: its container disk is on its node alone")),
        ..Vmi::default()
    }
}

/// The budget that guards the machine of a migration.
fn budget_of(migration: &Key) -> Key {
    Key::new(
        &migration.namespace,
        &format!("kubevirt-migration-pdb-{}", migration.name),
    )
}

/// By `Manual` nobody runs whom no person has started, and with some versions of KubeVirt by `RerunOnFailure` neither: whoever runs stays so.
fn is_to_run(run: &Run, runs: bool) -> bool {
    match run {
        Run::Strategy(word) if matches!(&**word, "Manual" | "RerunOnFailure") => runs,
        run => !run.is_off(),
    }
}

impl World {
    pub(super) fn vm(&mut self, key: &Key) {
        let Some(vm) = self.store.hci.vms.get(key).cloned() else {
            return;
        };
        let running = self.store.hci.vmis.contains_key(key);
        let lost = self.store.hci.vmis.get(key).is_some_and(|vmi| !vmi.alive());
        if lost && !vm.run.is_off() && vm.run != Run::Strategy(Arc::from("Manual")) {
            return self.replaces(&vm);
        }
        let stopping = (Look::Vm(key.clone()), 0);
        let word = match (is_to_run(&vm.run, running), running) {
            (true, true) => {
                self.forget(&stopping);
                "Running"
            }
            (false, false) => "Stopped",
            (false, true) => {
                if self.takes(&stopping, SHUTDOWN) {
                    self.remove(Writer::KubeVirt, "stop", HciKind::Vmi, key);
                    "Stopped"
                } else {
                    "Stopping"
                }
            }
            (true, false) => {
                if let Some(node) = self.room_for(key, None, None) {
                    let vmi = instance(self.shapes.get(key), &node);
                    self.make(Writer::KubeVirt, (&key.namespace, &key.name), vmi, HciObject::Vmi);
                    "Running"
                } else {
                    self.look_at(self.now + PENDING, Look::Vm(key.clone()));
                    "ErrorUnschedulable"
                }
            }
        };
        if *vm.status != *word {
            self.change(Writer::KubeVirt, HciObject::Vm, &vm, |vm: &mut Vm| {
                vm.status = Arc::from(word);
            });
        }
    }

    /// A machine whose node is not there any more is not either.
    pub(super) fn vmi(&mut self, key: &Key) {
        let Some(vmi) = self.store.hci.vmis.get(key).cloned() else {
            return;
        };
        let node = vmi.node.as_ref().and_then(|node| self.node(node.as_str()));
        if node.is_none_or(|node| !node.ready.ready) && &*vmi.phase == "Running" {
            self.change(Writer::KubeVirt, HciObject::Vmi, &vmi, |vmi: &mut Vmi| {
                vmi.phase = Arc::from("Failed");
            });
        }
    }

    pub(super) fn migration(&mut self, key: &Key) {
        let Some(migration) = self.store.hci.migrations.get(key).cloned() else {
            return;
        };
        if matches!(&*migration.phase, "Succeeded" | "Failed") {
            return;
        }
        let vm = Key {
            namespace: Arc::clone(&key.namespace),
            name: Arc::clone(&migration.vmi),
        };
        let Some(vmi) = self.store.hci.vmis.get(&vm).cloned() else {
            return self.end_migration(&migration, Some("the virtual machine is gone"));
        };
        let Some(target) = self.destinations.get(&migration.target.uid).cloned() else {
            return self.begin_migration(&migration, &vm, vmi.node.as_ref());
        };
        let uid = &migration.target.uid;
        // One that never ends is there until somebody deletes it.
        if self.endless_migrations.contains(uid) {
            return;
        }
        if !self.post_copied.contains(uid) && !self.takes(&(Look::Migration(key.clone()), COPIES), COPY) {
            return;
        }
        if let Some(fails) = self.script.trouble.post_copies.get(&vm.to_string()).copied() {
            self.post_copied.insert(uid.clone());
            if !self.takes(&(Look::Migration(key.clone()), POST_COPIES), COPY) {
                return;
            }
            self.script.trouble.post_copies.remove(&vm.to_string());
            if fails {
                self.loses(&vmi);
                return self.end_migration(&migration, Some(IRRECOVERABLE));
            }
        }
        let failing = self.script.trouble.failing_migrations.get_mut(&vm.to_string());
        let by_trouble = failing.filter(|left| **left > 0).map(|left| *left -= 1).is_some();
        let by_chance = !by_trouble && self.failing_migrations > 0;
        if by_trouble || by_chance {
            self.failing_migrations -= u32::from(by_chance);
            return self.end_migration(&migration, Some("the guest writes faster than it can be copied"));
        }
        self.change(Writer::KubeVirt, HciObject::Vmi, &vmi, |vmi: &mut Vmi| {
            vmi.node = Some(target);
        });
        self.end_migration(&migration, None);
    }

    /// Half of its memory is here and half there.
    fn loses(&mut self, vmi: &Arc<Seen<Vmi>>) {
        self.change(Writer::KubeVirt, HciObject::Vmi, vmi, |vmi: &mut Vmi| {
            vmi.phase = Arc::from("Failed");
        });
    }

    /// A machine that was lost is made anew, unless nobody but a person starts it.
    fn replaces(&mut self, vm: &Arc<Seen<Vm>>) {
        let key = &vm.target.key;
        let Some(node) = self.room_for(key, None, None) else {
            return self.look_at(self.now + PENDING, Look::Vm(key.clone()));
        };
        self.remove(Writer::KubeVirt, "replace", HciKind::Vmi, key);
        let vmi = instance(self.shapes.get(key), &node);
        self.make(Writer::KubeVirt, (&key.namespace, &key.name), vmi, HciObject::Vmi);
    }

    fn begin_migration(&mut self, migration: &Arc<Seen<Migration>>, vm: &Key, from: Option<&NodeName>) {
        match self.room_for(vm, from, migration.to.as_ref()) {
            Some(target) => {
                self.destinations.insert(migration.target.uid.clone(), target);
                let endless = self.script.trouble.endless_migrations.get_mut(&vm.to_string());
                if let Some(left) = endless.filter(|left| **left > 0) {
                    *left -= 1;
                    self.endless_migrations.insert(migration.target.uid.clone());
                }
                self.guards(&migration.target.key, vm);
                let from = from.cloned();
                self.change(
                    Writer::KubeVirt,
                    HciObject::Migration,
                    migration,
                    |migration: &mut Migration| {
                        migration.phase = Arc::from("Running");
                        migration.source = from;
                    },
                );
            }
            None if migration.phase.is_empty() => {
                self.change(
                    Writer::KubeVirt,
                    HciObject::Migration,
                    migration,
                    |migration: &mut Migration| {
                        migration.phase = Arc::from("Pending");
                    },
                );
            }
            None => self.look_at(self.now + PENDING, Look::Migration(migration.target.key.clone())),
        }
    }

    /// Nobody may take a machine away while it moves.
    fn guards(&mut self, migration: &Key, vm: &Key) {
        let of_it = Requirement {
            key: Arc::from("kubevirt.io/vm"),
            operator: Operator::In,
            values: vec![Arc::clone(&vm.name)],
        };
        let budget = PodBudget {
            key: budget_of(migration),
            uid: self.store.base.new_uid(),
            revision: Revision(0),
            selector: Selector {
                requirements: vec![of_it],
            },
            up_to_date: true,
            disruptions_allowed: 0,
            current_healthy: 2,
            desired_healthy: 2,
            expected_pods: 2,
            unhealthy_may_go: false,
        };
        self.store.base.put(Writer::KubeVirt, "create", budget);
        self.settle();
    }

    /// The budget of a migration that has ended, or is gone, goes a little later.
    pub(super) fn budget(&mut self, migration: &Key) {
        let budget = budget_of(migration);
        let goes_on = |migration: &Arc<Seen<Migration>>| !matches!(&*migration.phase, "Succeeded" | "Failed");
        let runs = self.store.hci.migrations.get(migration).is_some_and(goes_on);
        if runs || self.store.base.budgets.get(&budget).is_none() {
            return;
        }
        let upper = self.script.trouble.budgets_linger.map_or(LINGERS, millis);
        if self.takes(&(Look::Budget(migration.clone()), 0), upper) {
            self.store.base.remove::<PodBudget>(Writer::KubeVirt, &budget);
            self.settle();
        }
    }

    fn end_migration(&mut self, migration: &Arc<Seen<Migration>>, why: Option<&str>) {
        let ended = second(self.now);
        self.change(
            Writer::KubeVirt,
            HciObject::Migration,
            migration,
            |migration: &mut Migration| {
                migration.phase = Arc::from(if why.is_some() { "Failed" } else { "Succeeded" });
                migration.message = why.map(Arc::from);
                migration.ended_at = Some(ended);
            },
        );
    }

    /// Where a machine may go, other than where it is, and the scheduler would rather have it.
    fn room_for(&mut self, vm: &Key, from: Option<&NodeName>, only: Option<&NodeName>) -> Option<NodeName> {
        let shape = self.shapes.get(vm);
        let selected = shape.filter(|shape| shape.bound == Some(Binding::Selector));
        let asks = |node: &Node, only: bool| {
            let taints = node.taints.iter();
            taints
                .filter(|taint| (taint.effect == TaintEffect::PreferNoSchedule) == only)
                .count()
        };
        let takes = |node: &&Arc<Node>| {
            only.is_none_or(|only| *only == node.name)
                && Some(&node.name) != from
                && node.available()
                && asks(node, false) == 0
                && selected.is_none_or(|shape| shape.node == node.name.as_str())
        };
        let candidate = |node: &'_ Arc<Node>| {
            let vmis = self.store.hci.vmis_on(&node.name);
            let asks = if self.deaf { 0 } else { asks(node, true) };
            (Arc::clone(node), asks, vmis.count())
        };
        let all: Vec<(Arc<Node>, usize, usize)> = self.store.base.nodes.values().filter(takes).map(candidate).collect();
        let all: Vec<Candidate<'_>> = all
            .iter()
            .map(|(node, asks, crowd)| Candidate {
                node: node.name.as_str(),
                asks: *asks,
                crowd: *crowd,
            })
            .collect();
        let rng = &mut self.rng;
        best(&all, self.seed, |many| rng.usize(..many)).map(NodeName::from)
    }
}

//! KubeVirt: virtual machines that are to run do, somewhere they may; those that are to be off stop; migrations move them, or fail. A
//! machine whose node goes away under it is lost, and says so.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::core::DynamicObject;
use serde_json::{Value, json};

use super::rancher::NODE;
use super::takes::Takes;
use super::told;
use crate::actor::{Actor, Decision, Turn};
use crate::clock::after;
use crate::object::{Key, Kind, Object, ObjectRef, name};
use crate::queue::Queue;
use crate::request::{Request, Verb};
use crate::view::{Change, View, is_node_ready};
use afloat_core::hci::view::HciKind;
use afloat_scenes::{Candidate, Trouble, best};

const VM: Kind = Kind::Hci(HciKind::Vm);
const VMI: Kind = Kind::Hci(HciKind::Vmi);
/// How long a guest takes to shut down, and a migration to copy its memory.
const SHUTDOWN: Duration = Duration::from_secs(20);
const COPY: Duration = Duration::from_secs(40);
/// What KubeVirt says of a machine that it has lost on the way.
const IRRECOVERABLE: &str = "VMI is irrecoverable due to failed post-copy migration";
/// How long the budget of a migration stays after that.
const LINGERS: Duration = Duration::from_secs(5);
/// How long a migration without a place to go waits before it looks again.
const PENDING: Duration = Duration::from_secs(10);
/// Effect of taints that only ask to stay away.
const ASKS: &str = "PreferNoSchedule";

/// KubeVirt's controllers.
#[derive(Debug)]
pub struct KubeVirt {
    /// So many migrations of a machine will fail.
    failing: BTreeMap<String, u32>,
    /// So many begin and never end.
    endless: BTreeMap<String, u32>,
    /// Those that do, by uid.
    stuck: BTreeSet<String>,
    /// Machines whose migration goes over to post-copy, and whether that fails; migrations that have, by uid.
    post_copies: BTreeMap<String, bool>,
    post_copied: BTreeSet<String>,
    arrivals: Takes,
    /// Migrations whose budget is there.
    guarded: BTreeSet<Key>,
    linger: Duration,
    lingers: Takes,
    takes: Takes,
    /// By which the scheduler finds some nodes fuller than others.
    seed: u64,
}

/// A running virtual machine on a node, from the template of its VirtualMachine.
pub(super) fn instance(vm: &str, node: &str, template: &Value) -> Value {
    let mut disks = template["volumes"].as_array().into_iter().flatten();
    let bound = disks.any(|disk| !disk["containerDisk"].is_null());
    let migratable = if bound {
        let why = "cannot migrate VMI: its container disk is on its node alone";
        json!({ "type": "LiveMigratable", "status": "False", "reason": "DisksNotLiveMigratable", "message": why })
    } else {
        json!({ "type": "LiveMigratable", "status": "True" })
    };
    json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
        "metadata": { "name": vm, "labels": { "kubevirt.io/nodeName": node } },
        "spec": template,
        "status": { "phase": "Running", "nodeName": node, "conditions": [migratable] },
    })
}

fn budget_of(migration: &str) -> String {
    format!("kubevirt-migration-pdb-{migration}")
}

/// Nobody may take a machine away while it moves.
fn guard(migration: &Key, vm: &str, from: &str) -> Request {
    let budget = json!({
        "metadata": { "name": budget_of(&migration.name), "annotations": { NODE: from } },
        "spec": { "minAvailable": 2, "selector": { "matchLabels": { "kubevirt.io/vm": vm } } },
    });
    // One that is asked for again after a refusal is there already.
    Request::create(Kind::PodDisruptionBudget, &migration.namespace, budget).best_effort()
}

pub(super) fn node_of(instance: &DynamicObject) -> &str {
    instance.data["status"]["nodeName"].as_str().unwrap_or_default()
}

/// By `Manual` nobody runs whom no person has started, and with some versions of KubeVirt by `RerunOnFailure` neither: whoever runs stays so.
fn is_to_run(vm: &DynamicObject, runs: bool) -> bool {
    match vm.data["spec"]["runStrategy"].as_str() {
        Some("Manual" | "RerunOnFailure") => runs,
        Some(word) => word != "Halted",
        None => vm.data["spec"]["running"] == true,
    }
}

/// A machine that was lost is made anew, unless nobody but a person starts it.
fn is_lost(vm: &DynamicObject, instance: &DynamicObject) -> bool {
    instance.data["status"]["phase"] == "Failed" && vm.data["spec"]["runStrategy"] != "Manual"
}

/// Where there is a reason it has failed.
fn ended(migration: &DynamicObject, why: Option<&str>, now: Timestamp) -> Request {
    let phase = if why.is_some() { "Failed" } else { "Succeeded" };
    let state = json!({ "failureReason": why, "endTimestamp": format!("{now:.0}") });
    let status = json!({ "phase": phase, "migrationState": state });
    told(HciKind::Migration, &migration.metadata, &status)
}

impl KubeVirt {
    pub fn new(trouble: &Trouble, seed: u64) -> Self {
        Self {
            guarded: BTreeSet::new(),
            linger: trouble.budgets_linger.unwrap_or(LINGERS),
            lingers: Takes::default(),
            seed,
            failing: trouble.failing_migrations.clone(),
            endless: trouble.endless_migrations.clone(),
            post_copies: trouble.post_copies.clone(),
            post_copied: BTreeSet::new(),
            arrivals: Takes::default(),
            stuck: BTreeSet::new(),
            takes: Takes::default(),
        }
    }

    fn machine(&mut self, item: &ObjectRef, turn: &mut Turn<'_>) -> Decision {
        let Some(vm) = turn.view.one_of(HciKind::Vm, &item.key).cloned() else {
            return Decision::nothing();
        };
        let running = turn.view.one_of(HciKind::Vmi, &item.key).cloned();
        let mut requests = Vec::new();
        let word = match (is_to_run(&vm, running.is_some()), running) {
            (true, Some(instance)) if is_lost(&vm, &instance) => {
                let Some(node) = self.place(turn, &item.key, "", None) else {
                    return Decision::at(after(turn.now, PENDING));
                };
                let template = &vm.data["spec"]["template"]["spec"];
                let body = self::instance(&item.key.name, &node, template);
                requests.push(Request::delete(VMI, &instance.metadata, None));
                requests.push(Request::create(VMI, &item.key.namespace, body));
                "Running"
            }
            (true, Some(_)) => "Running",
            (false, None) => "Stopped",
            (false, Some(instance)) => match self.takes.done(item, SHUTDOWN, turn) {
                Ok(()) => {
                    requests.push(Request::delete(VMI, &instance.metadata, None));
                    "Stopped"
                }
                Err(due) => return Decision::requests(status(&vm, "Stopping")).and_at(Some(due)),
            },
            (true, None) => {
                let Some(node) = self.place(turn, &item.key, "", None) else {
                    return Decision::requests(status(&vm, "ErrorUnschedulable"))
                        .and_at(Some(after(turn.now, PENDING)));
                };
                let template = &vm.data["spec"]["template"]["spec"];
                let body = instance(&item.key.name, &node, template);
                requests.push(Request::create(VMI, &item.key.namespace, body));
                "Running"
            }
        };
        requests.extend(status(&vm, word));
        Decision::requests(requests)
    }

    fn migration(&mut self, item: &ObjectRef, turn: &mut Turn<'_>) -> Decision {
        let Some(migration) = turn.view.one_of(HciKind::Migration, &item.key).cloned() else {
            return self.unguard(item, turn);
        };
        let phase = migration.data["status"]["phase"].as_str().unwrap_or_default();
        if matches!(phase, "Succeeded" | "Failed") {
            return self.unguard(item, turn);
        }
        let vm = Key::new(
            item.key.namespace.clone(),
            migration.data["spec"]["vmiName"].as_str().unwrap_or_default(),
        );
        let Some(instance) = turn.view.one_of(HciKind::Vmi, &vm).cloned() else {
            let why = "the virtual machine is gone";
            return Decision::request(ended(&migration, Some(why), turn.now));
        };
        match migration.data["status"]["migrationState"]["targetNode"].as_str() {
            Some(target) => self.copies(item, &migration, &instance, target, turn),
            None => self.begins(&migration, &vm, node_of(&instance), turn),
        }
    }

    fn begins(&mut self, migration: &DynamicObject, vm: &Key, from: &str, turn: &mut Turn<'_>) -> Decision {
        let only = migration.data["spec"]["addedNodeSelector"]["kubernetes.io/hostname"].as_str();
        let key = Key::of(&migration.metadata);
        match self.place(turn, vm, from, only) {
            Some(target) => {
                let state = json!({ "sourceNode": from, "targetNode": target });
                let status = json!({ "phase": "Running", "migrationState": state });
                let guard = guard(&key, &vm.name, from);
                self.guarded.insert(key);
                Decision::requests(vec![guard, told(HciKind::Migration, &migration.metadata, &status)])
            }
            None if migration.data["status"]["phase"].is_null() => {
                let pending = json!({ "phase": "Pending" });
                Decision::request(told(HciKind::Migration, &migration.metadata, &pending))
            }
            None => Decision::at(after(turn.now, PENDING)),
        }
    }

    fn copies(
        &mut self,
        item: &ObjectRef,
        migration: &DynamicObject,
        instance: &DynamicObject,
        target: &str,
        turn: &mut Turn<'_>,
    ) -> Decision {
        let vm = Key::of(&instance.metadata);
        let machine = format!("{}/{}", vm.namespace, vm.name);
        if self.never_ends(&machine, migration) {
            return Decision::nothing();
        }
        let uid = migration.metadata.uid.clone().unwrap_or_default();
        if !self.post_copied.contains(&uid)
            && let Err(due) = self.takes.done(item, COPY, turn)
        {
            return Decision::at(due);
        }
        if let Some(fails) = self.post_copies.get(&machine).copied() {
            if self.post_copied.insert(uid) {
                let mode = json!({ "status": { "migrationState": { "mode": "PostCopy" } } });
                let told = Request::patch(VMI, &instance.metadata, mode);
                return Decision::request(told).and_at(Some(turn.now));
            }
            if let Err(due) = self.arrivals.done(item, COPY, turn) {
                return Decision::at(due);
            }
            self.post_copies.remove(&machine);
            if fails {
                let lost = json!({ "status": { "phase": "Failed" } });
                return Decision::requests(vec![
                    Request::patch(VMI, &instance.metadata, lost),
                    ended(migration, Some(IRRECOVERABLE), turn.now),
                ]);
            }
        }
        let failing = self.failing.get_mut(&machine).filter(|left| **left > 0);
        if let Some(left) = failing {
            *left -= 1;
            let why = "the guest writes faster than it can be copied";
            return Decision::request(ended(migration, Some(why), turn.now));
        }
        let moved = json!({
            "metadata": { "labels": { "kubevirt.io/nodeName": target } },
            "status": { "nodeName": target },
        });
        Decision::requests(vec![
            Request::patch(VMI, &instance.metadata, moved),
            ended(migration, None, turn.now),
        ])
    }

    /// Where the scheduler would rather have a machine.
    fn place(&self, turn: &mut Turn<'_>, vm: &Key, from: &str, only: Option<&str>) -> Option<String> {
        let all = places(turn.view, vm, from, only);
        best(&all, self.seed, |many| turn.rng.usize(..many)).map(str::to_owned)
    }

    /// The budget of a migration that has ended, or is gone, goes a little later.
    fn unguard(&mut self, item: &ObjectRef, turn: &mut Turn<'_>) -> Decision {
        if !self.guarded.contains(&item.key) {
            return Decision::nothing();
        }
        if let Err(due) = self.lingers.done(item, self.linger, turn) {
            return Decision::at(due);
        }
        self.guarded.remove(&item.key);
        let key = &item.key;
        let gone = Request {
            verb: Verb::Delete,
            namespace: key.namespace.clone(),
            name: budget_of(&key.name),
            ..Request::create(Kind::PodDisruptionBudget, "", json!({}))
        };
        Decision::request(Request { body: None, ..gone }.best_effort())
    }

    /// Whether a migration that has begun is there until somebody deletes it.
    fn never_ends(&mut self, machine: &str, migration: &DynamicObject) -> bool {
        let uid = migration.metadata.uid.clone().unwrap_or_default();
        let left = self.endless.get_mut(machine).filter(|left| **left > 0);
        if let Some(left) = left.filter(|_| !self.stuck.contains(&uid)) {
            *left -= 1;
            self.stuck.insert(uid.clone());
        }
        self.stuck.contains(&uid)
    }

    /// A machine whose node is not there any more is not either.
    fn instance(item: &ObjectRef, turn: &Turn<'_>) -> Decision {
        let Some(instance) = turn.view.one_of(HciKind::Vmi, &item.key) else {
            return Decision::nothing();
        };
        let node = turn.view.node(node_of(instance));
        let is_lost = node.is_none_or(|node| !is_node_ready(node)) && instance.data["status"]["phase"] == "Running";
        if !is_lost {
            return Decision::nothing();
        }
        let body = json!({ "status": { "phase": "Failed", "reason": "NodeLost" } });
        Decision::request(Request::patch(VMI, &instance.metadata, body))
    }
}

fn status(vm: &DynamicObject, word: &str) -> Vec<Request> {
    if vm.data["status"]["printableStatus"] == word {
        return Vec::new();
    }
    let status = json!({ "printableStatus": word });
    vec![told(HciKind::Vm, &vm.metadata, &status)]
}

/// Nodes where a machine may go, other than where it is.
fn places<'a>(view: &'a View, vm: &Key, from: &str, only: Option<&str>) -> Vec<Candidate<'a>> {
    let spec = view
        .one_of(HciKind::Vm, vm)
        .map(|vm| &vm.data["spec"]["template"]["spec"]);
    let selector = spec.and_then(|spec| spec["nodeSelector"].as_object());
    let asks = |node: &Node, only: bool| {
        let taints = node.spec.iter().filter_map(|spec| spec.taints.as_ref()).flatten();
        taints.filter(|taint| (taint.effect == ASKS) == only).count()
    };
    let takes = |node: &&std::sync::Arc<Node>| {
        let cordoned = node.spec.as_ref().is_some_and(|spec| spec.unschedulable == Some(true));
        let labels = node.metadata.labels.as_ref();
        let label = |key: &str| labels.and_then(|labels| labels.get(key)).map(String::as_str);
        let selected = selector
            .into_iter()
            .flatten()
            .all(|(key, value)| label(key) == value.as_str());
        let asked = only.is_none_or(|only| only == name(&node.metadata));
        asked && name(&node.metadata) != from && !cordoned && asks(node, false) == 0 && selected && is_node_ready(node)
    };
    let mut crowds: BTreeMap<&str, usize> = BTreeMap::new();
    for instance in view.all_of(HciKind::Vmi) {
        *crowds.entry(node_of(instance)).or_default() += 1;
    }
    let candidate = |node: &'a std::sync::Arc<Node>| Candidate {
        node: name(&node.metadata),
        asks: asks(node, true),
        crowd: crowds.get(name(&node.metadata)).copied().unwrap_or_default(),
    };
    view.nodes.values().filter(takes).map(candidate).collect()
}

impl Actor for KubeVirt {
    fn name(&self) -> &'static str {
        "kubevirt"
    }

    fn observe(&mut self, change: &Change, view: &View, _: Timestamp, queue: &mut Queue) {
        let Some(object) = change.latest() else { return };
        match object.kind() {
            Kind::Hci(HciKind::Vm | HciKind::Migration) => queue.add(object.reference()),
            Kind::Hci(HciKind::Vmi) => {
                queue.add(object.reference());
                queue.add(ObjectRef::new(VM, object.reference().key));
            }
            Kind::Node => {
                let Object::Node(node) = object else { return };
                let there = view
                    .all_of(HciKind::Vmi)
                    .filter(|instance| node_of(instance) == name(&node.metadata));
                for instance in there {
                    queue.add(ObjectRef::new(VMI, Key::of(&instance.metadata)));
                }
            }
            _ => {}
        }
    }

    fn decide(&mut self, item: &ObjectRef, turn: &mut Turn<'_>) -> Decision {
        match item.kind {
            Kind::Hci(HciKind::Vm) => self.machine(item, turn),
            Kind::Hci(HciKind::Migration) => self.migration(item, turn),
            _ => Self::instance(item, turn),
        }
    }
}

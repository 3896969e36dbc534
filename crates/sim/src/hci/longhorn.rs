//! Longhorn: a volume for every virtual machine, attached where it runs, with replicas on three nodes. A replica that was away is rebuilt
//! when its node is back; a volume that nobody uses stays attached until somebody takes it off.

use std::collections::BTreeMap;
use std::time::Duration;

use afloat_scenes::{Moment, VolumeTrouble};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::ground::VMS;
use super::kubevirt::node_of;
use super::people::has_come;
use super::takes::Takes;
use super::told;
use crate::actor::{Actor, Decision, Turn};
use crate::object::{Key, Kind, Object, ObjectRef, name};
use crate::queue::Queue;
use crate::request::Request;
use crate::view::{Change, View, is_node_ready};
use afloat_core::hci::view::HciKind;

const VOLUME: Kind = Kind::Hci(HciKind::Volume);
const ENGINE: Kind = Kind::Hci(HciKind::Engine);
const NAMESPACE: &str = "longhorn-system";
/// Copies of what a virtual machine has written.
const REPLICAS: usize = 3;
const REBUILD: Duration = Duration::from_mins(1);
const DETACH: Duration = Duration::from_secs(5);
/// How long an engine takes to say that a replica is whole.
const TOLD: Duration = Duration::from_secs(10);
/// What the name of an engine has after that of its volume.
const FIRST: &str = "-e-0";

/// Longhorn's manager.
#[derive(Debug)]
pub struct Longhorn {
    trouble: VolumeTrouble,
    rebuilds: Takes,
    detachings: Takes,
    tellings: Takes,
    /// Replicas that are rebuilt slowly, by their volume.
    slow: BTreeMap<String, Duration>,
}

fn volume_name(vm: &str) -> String {
    format!("pvc-{vm}")
}

/// The volume of a virtual machine.
pub(super) fn volume(vm: &str, node: &str) -> Value {
    json!({
        "apiVersion": "longhorn.io/v1beta2", "kind": "Volume",
        "metadata": { "name": volume_name(vm) },
        "spec": { "numberOfReplicas": REPLICAS, "nodeID": node },
        "status": status("attached", "healthy", node, Some(vm)),
    })
}

/// The engine of that volume.
pub(super) fn engine(vm: &str, node: &str, hosts: usize) -> Value {
    let volume = volume_name(vm);
    json!({
        "apiVersion": "longhorn.io/v1beta2", "kind": "Engine",
        "metadata": { "name": format!("{volume}{FIRST}") },
        "spec": { "volumeName": volume, "nodeID": node },
        "status": engine_status(REPLICAS.min(hosts), true),
    })
}

fn engine_status(whole: usize, running: bool) -> Value {
    let modes = (0..REPLICAS).map(|number| (format!("r-{number}"), if number < whole { "RW" } else { "ERR" }));
    let modes: BTreeMap<String, &str> = modes.filter(|_| running).collect();
    json!({ "currentState": if running { "running" } else { "stopped" }, "replicaModeMap": modes })
}

fn whole(status: &Value) -> usize {
    let modes = status["replicaModeMap"].as_object().into_iter().flatten();
    modes.filter(|(_, mode)| **mode == "RW").count()
}

fn status(state: &str, robustness: &str, node: &str, user: Option<&str>) -> Value {
    let pods: Vec<Value> = user
        .map(|vm| json!({ "podName": format!("virt-launcher-{vm}"), "podStatus": "Running" }))
        .into_iter()
        .collect();
    json!({
        "state": state, "robustness": robustness, "currentNodeID": node,
        "kubernetesStatus": { "workloadsStatus": pods },
    })
}

/// Whether a node has a replica of a volume: so many nodes in a row have, from one on that the volume's name chooses.
fn holds(view: &View, volume: &str, node: &str) -> bool {
    let count = view.nodes.len();
    let Some(place) = view.nodes.keys().position(|key| key.name == node) else {
        return false;
    };
    let sum: usize = volume.bytes().map(usize::from).sum();
    (place + count - sum % count) % count < REPLICAS
}

fn is_ready(node: Option<&Object>) -> Option<bool> {
    match node? {
        Object::Node(node) => Some(is_node_ready(node)),
        _ => None,
    }
}

impl Longhorn {
    pub fn new(trouble: VolumeTrouble) -> Self {
        Self {
            trouble,
            rebuilds: Takes::default(),
            detachings: Takes::default(),
            tellings: Takes::default(),
            slow: BTreeMap::new(),
        }
    }

    /// `healthy` or `degraded`, and when that may change by itself.
    fn robustness(
        &mut self,
        item: &ObjectRef,
        is_degraded: bool,
        turn: &mut Turn<'_>,
    ) -> (&'static str, Option<Timestamp>) {
        let mut away = turn.view.nodes.values().filter(|node| !is_node_ready(node));
        if away.any(|node| holds(turn.view, &item.key.name, name(&node.metadata))) {
            self.rebuilds.forget(item);
            return ("degraded", None);
        }
        if self.loses(item, turn.view) {
            return ("degraded", Some(turn.now));
        }
        if !is_degraded {
            return ("healthy", None);
        }
        let usual = self.trouble.rebuild.unwrap_or(REBUILD);
        let upper = self.slow.get(&item.key.name).copied().unwrap_or(usual);
        if let Err(due) = self.rebuilds.done(item, upper, turn) {
            return ("degraded", Some(due));
        }
        self.slow.remove(&item.key.name);
        ("healthy", None)
    }

    /// Whether a replica fails just now.
    fn loses(&mut self, item: &ObjectRef, view: &View) -> bool {
        let fails = |(when, volume, _): &(Moment, &str, Duration)| *volume == item.key.name && has_come(*when, view);
        let Some(index) = self.trouble.lost.iter().position(fails) else {
            return false;
        };
        let (_, volume, rebuild) = self.trouble.lost.remove(index);
        self.slow.insert(volume.to_owned(), rebuild);
        self.rebuilds.forget(item);
        true
    }

    /// That a replica is lost an engine says at once; that one is whole again, later than its volume does.
    fn engine(&mut self, item: &ObjectRef, turn: &mut Turn<'_>) -> Decision {
        let volume = Key::new(NAMESPACE, item.key.name.trim_end_matches(FIRST));
        let (Some(volume), Some(engine)) = (
            turn.view.one_of(HciKind::Volume, &volume).cloned(),
            turn.view.one_of(HciKind::Engine, &item.key).cloned(),
        ) else {
            return Decision::nothing();
        };
        let attached = volume.data["status"]["state"] == "attached";
        let lost = usize::from(volume.data["status"]["robustness"] == "degraded");
        let all = REPLICAS.min(turn.view.nodes.len());
        let next = engine_status(all.saturating_sub(lost).max(1), attached);
        let node = &volume.data["status"]["currentNodeID"];
        let mut requests = Vec::new();
        if engine.data["spec"]["nodeID"] != *node {
            requests.push(Request::patch(
                ENGINE,
                &engine.metadata,
                json!({ "spec": { "nodeID": node } }),
            ));
        }
        if engine.data["status"] == next {
            self.tellings.forget(item);
            return Decision::requests(requests);
        }
        let worse = whole(&next) < whole(&engine.data["status"]);
        let upper = self.trouble.engines_behind.unwrap_or(TOLD);
        if !worse && let Err(due) = self.tellings.done(item, upper, turn) {
            return Decision::requests(requests).and_at(Some(due));
        }
        self.tellings.forget(item);
        // A merge leaves replicas that are not named: a stopped engine has none.
        let mut merged = next;
        for number in (0..REPLICAS).filter(|_| !attached) {
            merged["replicaModeMap"][format!("r-{number}")] = Value::Null;
        }
        requests.push(told(HciKind::Engine, &engine.metadata, &merged));
        Decision::requests(requests)
    }
}

impl Actor for Longhorn {
    fn name(&self) -> &'static str {
        "longhorn"
    }

    fn observe(&mut self, change: &Change, view: &View, _: Timestamp, queue: &mut Queue) {
        let Some(reference) = change.reference() else { return };
        match reference.kind {
            VOLUME => {
                let engine = format!("{}{FIRST}", reference.key.name);
                queue.add(ObjectRef::new(ENGINE, Key::new(NAMESPACE, engine)));
                queue.add(reference);
            }
            ENGINE => queue.add(reference),
            Kind::Hci(HciKind::Upgrade) => {
                let lost = self.trouble.lost.iter();
                for (_, volume, _) in lost {
                    queue.add(ObjectRef::new(VOLUME, Key::new(NAMESPACE, *volume)));
                }
            }
            Kind::Hci(HciKind::Vmi) => {
                queue.add(ObjectRef::new(
                    VOLUME,
                    Key::new(NAMESPACE, volume_name(&reference.key.name)),
                ));
            }
            Kind::Node => {
                let (before, after) = (is_ready(change.old.as_ref()), is_ready(change.new.as_ref()));
                if before == after {
                    return;
                }
                // One that is new, or is gone, has moved what the others hold.
                let moves_all = before.is_none() || after.is_none();
                for volume in view.all_of(HciKind::Volume) {
                    let key = Key::of(&volume.metadata);
                    if moves_all || holds(view, &key.name, &reference.key.name) {
                        queue.add(ObjectRef::new(VOLUME, key));
                    }
                }
            }
            _ => {}
        }
    }

    fn decide(&mut self, item: &ObjectRef, turn: &mut Turn<'_>) -> Decision {
        if item.kind == ENGINE {
            return self.engine(item, turn);
        }
        let Some(volume) = turn.view.one_of(HciKind::Volume, &item.key).cloned() else {
            return Decision::nothing();
        };
        let vm = item.key.name.trim_start_matches("pvc-").to_owned();
        let instance = turn.view.one_of(HciKind::Vmi, &Key::new(VMS, vm.clone()));
        let user = instance.filter(|instance| instance.data["status"]["phase"] == "Running");
        let user = user.map(|instance| node_of(instance).to_owned());
        let stuck = self.trouble.stuck.get(&item.key.name).copied();
        let wanted = volume.data["spec"]["nodeID"].as_str().unwrap_or_default().to_owned();
        let degraded = volume.data["status"]["robustness"] == "degraded";
        let (mut requests, mut again) = (Vec::new(), None);
        let next = if let Some(node) = &user {
            if wanted != *node {
                let body = json!({ "spec": { "nodeID": node } });
                requests.push(Request::patch(VOLUME, &volume.metadata, body));
            }
            let (robustness, due) = self.robustness(item, degraded, turn);
            again = due;
            self.detachings.forget(item);
            status("attached", robustness, node, Some(&vm))
        } else if wanted.is_empty() && stuck != Some(None) {
            if volume.data["status"]["state"] == "detached" {
                return Decision::nothing();
            }
            if let Err(due) = self.detachings.done(item, stuck.flatten().unwrap_or(DETACH), turn) {
                return Decision::at(due);
            }
            status("detached", "unknown", "", None)
        } else {
            let at = volume.data["status"]["currentNodeID"].as_str().unwrap_or_default();
            let (robustness, due) = self.robustness(item, degraded, turn);
            again = due;
            status("attached", robustness, at, None)
        };
        if volume.data["status"] != next {
            requests.push(told(HciKind::Volume, &volume.metadata, &next));
        }
        Decision::requests(requests).and_at(again)
    }
}

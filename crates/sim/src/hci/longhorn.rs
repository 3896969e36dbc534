//! Longhorn: a volume for every virtual machine, attached where it runs, with a replica on every node. A replica that was away is rebuilt
//! when its node is back; a volume that nobody uses stays attached until somebody takes it off.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::kubevirt::node_of;
use crate::actor::{Actor, Decision, Turn};
use crate::clock::{after, dice};
use crate::foreign::Foreign;
use crate::object::{Key, Kind, ObjectRef};
use crate::queue::Queue;
use crate::request::Request;
use crate::view::{Change, View, is_node_ready};

const VOLUME: Kind = Kind::Foreign(Foreign::Volume);
const NAMESPACE: &str = "longhorn-system";
const REBUILD: Duration = Duration::from_mins(1);
const DETACH: Duration = Duration::from_secs(5);

/// Longhorn's manager.
#[derive(Debug)]
pub struct Longhorn {
    /// Volumes that stay attached whatever is asked.
    stuck: Vec<String>,
    rebuilt_at: BTreeMap<String, Timestamp>,
    detached_at: BTreeMap<String, Timestamp>,
}

fn volume_name(vm: &str) -> String {
    format!("pvc-{vm}")
}

/// The volume of a virtual machine.
pub(super) fn volume(vm: &str, node: &str) -> Value {
    json!({
        "apiVersion": "longhorn.io/v1beta2", "kind": "Volume",
        "metadata": { "name": volume_name(vm) },
        "spec": { "numberOfReplicas": 3, "nodeID": node },
        "status": status("attached", "healthy", node, Some(vm)),
    })
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

impl Longhorn {
    pub fn new(stuck: Vec<String>) -> Self {
        Self {
            stuck,
            rebuilt_at: BTreeMap::new(),
            detached_at: BTreeMap::new(),
        }
    }

    /// `healthy` or `degraded`, and when that may change by itself.
    fn robustness(&mut self, name: &str, is_degraded: bool, turn: &mut Turn<'_>) -> (&'static str, Option<Timestamp>) {
        if turn.view.nodes.values().any(|node| !is_node_ready(node)) {
            self.rebuilt_at.remove(name);
            return ("degraded", None);
        }
        if !is_degraded {
            return ("healthy", None);
        }
        let due = *self
            .rebuilt_at
            .entry(name.to_owned())
            .or_insert_with(|| after(turn.now, dice(turn.rng, REBUILD).div_f64(turn.timings.pace)));
        if due > turn.now {
            return ("degraded", Some(due));
        }
        self.rebuilt_at.remove(name);
        ("healthy", None)
    }
}

impl Actor for Longhorn {
    fn name(&self) -> &'static str {
        "longhorn"
    }

    fn observe(&mut self, change: &Change, view: &View, _: Timestamp, queue: &mut Queue) {
        let Some(reference) = change.reference() else { return };
        match reference.kind {
            VOLUME => queue.add(reference),
            Kind::Foreign(Foreign::VirtualMachineInstance) => {
                queue.add(ObjectRef::new(
                    VOLUME,
                    Key::new(NAMESPACE, volume_name(&reference.key.name)),
                ));
            }
            Kind::Node => {
                for volume in view.all_of(Foreign::Volume) {
                    queue.add(ObjectRef::new(VOLUME, Key::of(&volume.metadata)));
                }
            }
            _ => {}
        }
    }

    fn decide(&mut self, item: &ObjectRef, turn: &mut Turn<'_>) -> Decision {
        let Some(volume) = turn.view.one_of(Foreign::Volume, &item.key).cloned() else {
            return Decision::nothing();
        };
        let vm = item.key.name.trim_start_matches("pvc-").to_owned();
        let user = turn.view.all_of(Foreign::VirtualMachineInstance).find(|instance| {
            instance.metadata.name.as_deref() == Some(&vm) && instance.data["status"]["phase"] == "Running"
        });
        let user = user.map(|instance| node_of(instance).to_owned());
        let wanted = volume.data["spec"]["nodeID"].as_str().unwrap_or_default().to_owned();
        let degraded = volume.data["status"]["robustness"] == "degraded";
        let (mut requests, mut again) = (Vec::new(), None);
        let next = if let Some(node) = &user {
            if wanted != *node {
                let body = json!({ "spec": { "nodeID": node } });
                requests.push(Request::patch(VOLUME, &volume.metadata, body));
            }
            let (robustness, due) = self.robustness(&item.key.name, degraded, turn);
            again = due;
            self.detached_at.remove(&item.key.name);
            status("attached", robustness, node, Some(&vm))
        } else if wanted.is_empty() && !self.stuck.contains(&item.key.name) {
            let due = *self
                .detached_at
                .entry(item.key.name.clone())
                .or_insert_with(|| after(turn.now, dice(turn.rng, DETACH).div_f64(turn.timings.pace)));
            if due > turn.now {
                return Decision::at(due);
            }
            status("detached", "unknown", "", None)
        } else {
            let at = volume.data["status"]["currentNodeID"].as_str().unwrap_or_default();
            let (robustness, due) = self.robustness(&item.key.name, degraded, turn);
            again = due;
            status("attached", robustness, at, None)
        };
        if volume.data["status"] != next {
            requests.push(Request::patch(VOLUME, &volume.metadata, json!({ "status": next })));
        }
        Decision::requests(requests).and_at(again)
    }
}

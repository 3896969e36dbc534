//! The machines under the Jobs: after the work that follows a drain a machine restarts, is away for a while, and comes back with the new
//! operating system. Machines also lose power, hang, and boot what they had before.

use std::collections::BTreeMap;
use std::time::Duration;

use afloat_api::labels;
use afloat_core::hci::view::HciKind;
use afloat_scenes::{MachineTrouble, NEW_OS, PowerCut};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use serde_json::{Value, json};

use super::ground::node_info;
use super::jobs::{is_complete, kind_of};
use super::people::has_come;
use super::takes::Takes;
use crate::actor::{Actor, Decision, Turn};
use crate::events::second;
use crate::object::{Kind, Object, ObjectRef, label, name};
use crate::queue::Queue;
use crate::request::Request;
use crate::view::{Change, View, is_node_ready};

const REBOOT: Duration = Duration::from_mins(3);

/// What a machine brings back from a restart.
#[derive(Clone, Copy, Debug, Default)]
struct Brings {
    system: bool,
}

/// The machines.
#[derive(Debug)]
pub struct Machines {
    trouble: MachineTrouble,
    reboots: Takes,
    restarting: BTreeMap<ObjectRef, (Brings, Duration)>,
    /// Whose work has ended, and who waits for somebody to press the button.
    hung: BTreeMap<ObjectRef, Brings>,
    /// Power cuts whose moment has come, and when they are.
    cuts: Vec<(Timestamp, PowerCut)>,
}

impl Machines {
    pub fn new(trouble: MachineTrouble) -> Self {
        Self {
            trouble,
            reboots: Takes::default(),
            restarting: BTreeMap::new(),
            hung: BTreeMap::new(),
            cuts: Vec::new(),
        }
    }

    fn status(&mut self, node: &Node, back: Option<Brings>, now: Timestamp) -> Value {
        let word = if back.is_some() { "True" } else { "False" };
        let mut status = json!({ "conditions": [{
            "type": "Ready", "status": word, "reason": "Restart",
            "lastHeartbeatTime": second(now), "lastTransitionTime": second(now),
        }] });
        if let Some(brings) = back {
            let info = node.status.as_ref().and_then(|status| status.node_info.as_ref());
            let (os, kubelet) = info.map_or(("", ""), |info| (info.os_image.as_str(), info.kubelet_version.as_str()));
            let stays_old = brings.system && self.boots_old(name(&node.metadata));
            let os = if brings.system && !stays_old { NEW_OS } else { os };
            status["nodeInfo"] = node_info(os, kubelet);
        }
        status
    }

    fn boots_old(&mut self, node: &str) -> bool {
        let left = self.trouble.old_system.get_mut(node).filter(|left| **left > 0);
        left.map(|left| *left -= 1).is_some()
    }

    /// The next power cut of a machine: now, or when.
    fn power(&mut self, item: &ObjectRef, turn: &Turn<'_>) -> Option<Timestamp> {
        let (come, later): (Vec<PowerCut>, Vec<PowerCut>) = std::mem::take(&mut self.trouble.power_cuts)
            .into_iter()
            .partition(|cut| has_come(cut.when, turn.view));
        self.trouble.power_cuts = later;
        let due = |cut: &PowerCut| crate::clock::after(turn.now, cut.after.div_f64(turn.timings.pace));
        self.cuts.extend(come.into_iter().map(|cut| (due(&cut), cut)));
        let index = self.cuts.iter().position(|(_, cut)| cut.node == item.key.name)?;
        if self.cuts[index].0 > turn.now {
            return Some(self.cuts[index].0);
        }
        let (_, cut) = self.cuts.remove(index);
        let brings = self.hung.remove(item).unwrap_or_default();
        self.reboots.forget(item);
        self.restarting.insert(item.clone(), (brings, cut.away));
        None
    }
}

impl Actor for Machines {
    fn name(&self) -> &'static str {
        "machines"
    }

    fn observe(&mut self, change: &Change, _: &View, _: Timestamp, queue: &mut Queue) {
        if change.kind() == Some(Kind::Hci(HciKind::Upgrade)) {
            for cut in &self.trouble.power_cuts {
                queue.add(ObjectRef::cluster(Kind::Node, &*cut.node));
            }
        }
        let ended = |object: &Option<Object>| match object {
            Some(Object::Job(job)) => is_complete(job),
            _ => false,
        };
        let Some(Object::Job(job)) = &change.new else { return };
        if ended(&change.old) || !ended(&change.new) {
            return;
        }
        let node = label(&job.metadata, labels::HARVESTER_NODE);
        let Some(node) = node.filter(|_| matches!(kind_of(job), "single-node-upgrade" | "post-drain")) else {
            return;
        };
        let item = ObjectRef::cluster(Kind::Node, node);
        let brings = Brings { system: true };
        if self.trouble.hanging.contains(node) {
            self.hung.insert(item, brings);
        } else {
            self.restarting.insert(item.clone(), (brings, REBOOT));
            queue.add(item);
        }
    }

    fn decide(&mut self, item: &ObjectRef, turn: &mut Turn<'_>) -> Decision {
        let Some(node) = turn.view.nodes.get(&item.key).cloned() else {
            return Decision::nothing();
        };
        let cut = self.power(item, turn);
        let Some((brings, away)) = self.restarting.get(item).copied() else {
            return cut.map_or_else(Decision::nothing, Decision::at);
        };
        if let Err(due) = self.reboots.done(item, away, turn) {
            let goes = is_node_ready(&node)
                .then(|| Request::patch_status(Kind::Node, &node.metadata, &self.status(&node, None, turn.now)));
            return Decision::requests(goes.into_iter().collect()).and_at(Some(due));
        }
        self.restarting.remove(item);
        let status = self.status(&node, Some(brings), turn.now);
        Decision::request(Request::patch_status(Kind::Node, &node.metadata, &status)).and_at(cut)
    }
}

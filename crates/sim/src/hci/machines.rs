//! The machines under the Jobs: after the work that follows a drain a machine restarts, is away for a while, and comes back with the new
//! operating system. A single node gets the new Kubernetes by the same work.

use std::collections::BTreeMap;
use std::time::Duration;

use afloat_api::labels;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use serde_json::{Value, json};

use super::ground::node_info;
use super::jobs::{is_complete, kind_of};
use super::takes::Takes;
use crate::actor::{Actor, Decision, Turn};
use crate::events::second;
use crate::object::{Kind, Object, ObjectRef, label};
use crate::queue::Queue;
use crate::request::Request;
use crate::view::{Change, View, is_node_ready};

const REBOOT: Duration = Duration::from_mins(3);

/// The machines.
#[derive(Debug)]
pub struct Machines {
    os: &'static str,
    kubernetes: &'static str,
    reboots: Takes,
    /// Machines whose work has ended, and whether it brought the new Kubernetes too.
    restarting: BTreeMap<ObjectRef, bool>,
}

impl Machines {
    pub fn new(os: &'static str, kubernetes: &'static str) -> Self {
        Self {
            os,
            kubernetes,
            reboots: Takes::default(),
            restarting: BTreeMap::new(),
        }
    }

    fn status(&self, node: &Node, ready: bool, kubernetes: bool, now: Timestamp) -> Value {
        let word = if ready { "True" } else { "False" };
        let mut status = json!({ "conditions": [{
            "type": "Ready", "status": word, "reason": "Restart",
            "lastHeartbeatTime": second(now), "lastTransitionTime": second(now),
        }] });
        if ready {
            let info = node.status.as_ref().and_then(|status| status.node_info.as_ref());
            let now_at = info.map_or("", |info| info.kubelet_version.as_str());
            let kubelet = if kubernetes { self.kubernetes } else { now_at };
            status["nodeInfo"] = node_info(self.os, kubelet);
        }
        status
    }
}

impl Actor for Machines {
    fn name(&self) -> &'static str {
        "machines"
    }

    fn observe(&mut self, change: &Change, _: &View, _: Timestamp, queue: &mut Queue) {
        let ended = |object: &Option<Object>| match object {
            Some(Object::Job(job)) => is_complete(job),
            _ => false,
        };
        let Some(Object::Job(job)) = &change.new else { return };
        if ended(&change.old) || !ended(&change.new) {
            return;
        }
        let single = kind_of(job) == "single-node-upgrade";
        let node = label(&job.metadata, labels::HARVESTER_NODE);
        if let Some(node) = node.filter(|_| single || kind_of(job) == "post-drain") {
            let item = ObjectRef::cluster(Kind::Node, node);
            self.restarting.insert(item.clone(), single);
            queue.add(item);
        }
    }

    fn decide(&mut self, item: &ObjectRef, turn: &mut Turn<'_>) -> Decision {
        let Some(node) = turn.view.nodes.get(&item.key).cloned() else {
            return Decision::nothing();
        };
        let Some(kubernetes) = self.restarting.get(item).copied() else {
            return Decision::nothing();
        };
        let patch = |status: &Value| Request::patch_status(Kind::Node, &node.metadata, status);
        if let Err(due) = self.reboots.done(item, REBOOT, turn) {
            let goes = is_node_ready(&node).then(|| patch(&self.status(&node, false, kubernetes, turn.now)));
            return Decision::requests(goes.into_iter().collect()).and_at(Some(due));
        }
        self.restarting.remove(item);
        Decision::request(patch(&self.status(&node, true, kubernetes, turn.now)))
    }
}

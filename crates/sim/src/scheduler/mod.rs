//! The scheduler: binds pending pods to nodes that can take them, spread out, and says why when none can. It keeps
//! its own books of what every node has promised, so that placing a pod looks at nodes only, and stops looking at a
//! big cluster once it found enough of them, as kube-scheduler does.

mod fit;

use crate::actor::{Actor, Decision, Turn};
use crate::clock::after;
use crate::events::{Happening, second};
use crate::object::{Key, Kind, Object, ObjectRef, controller_of, name};
use crate::quantity::{Amount, requested};
use crate::queue::Queue;
use crate::request::{Failure, Request};
use crate::select::pinned_node;
use crate::view::{Change, View, is_terminal, node_of};
use fit::{Reason, fits, spread_reason};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

const SCHEDULER: &str = "default-scheduler";
/// Enough candidates to choose from (kube-scheduler's `minFeasibleNodesToFind`).
const ENOUGH: usize = 100;
/// Many changes that may help come together; pods without a place are tried again once for all of them.
const RETRY: Duration = Duration::from_millis(100);

/// What a node has, and has promised.
#[derive(Clone, Debug, Default)]
pub(crate) struct Books {
    pub allocatable: Amount,
    pub max_pods: u64,
    pub promised: Amount,
    pub pods: u64,
}

#[derive(Clone, Debug)]
struct Placed {
    node: String,
    owner: Option<String>,
    amount: Amount,
}

/// The scheduler and its books.
#[derive(Debug, Default)]
pub struct Scheduler {
    books: BTreeMap<String, Books>,
    placed: BTreeMap<Key, Placed>,
    /// How many pods of an owner are on a node.
    siblings: BTreeMap<(String, String), u64>,
    homeless: BTreeSet<Key>,
    /// Where the search starts next, so that a big cluster fills evenly.
    next_start: usize,
}

impl Scheduler {
    fn place(&mut self, pod: &Pod, node: &str) {
        let key = Key::of(&pod.metadata);
        self.unplace(&key);
        let placed = Placed {
            node: node.to_owned(),
            owner: controller_of(&pod.metadata).map(|owner| owner.uid.clone()),
            amount: requested(pod),
        };
        let books = self.books.entry(placed.node.clone()).or_default();
        books.promised.add(placed.amount);
        books.pods += 1;
        if let Some(owner) = &placed.owner {
            *self.siblings.entry((owner.clone(), placed.node.clone())).or_default() += 1;
        }
        self.placed.insert(key, placed);
    }

    fn unplace(&mut self, key: &Key) -> bool {
        let Some(placed) = self.placed.remove(key) else {
            return false;
        };
        if let Some(books) = self.books.get_mut(&placed.node) {
            books.promised.subtract(placed.amount);
            books.pods = books.pods.saturating_sub(1);
        }
        if let Some(owner) = placed.owner {
            let place = (owner, placed.node);
            let left = self.siblings.get(&place).map_or(0, |count| count.saturating_sub(1));
            if left == 0 {
                self.siblings.remove(&place);
            } else {
                self.siblings.insert(place, left);
            }
        }
        true
    }

    fn retry_homeless(&self, now: Timestamp, queue: &mut Queue) {
        for key in &self.homeless {
            queue.add_at(ObjectRef::new(Kind::Pod, key.clone()), after(now, RETRY));
        }
    }

    fn observe_node(&mut self, change: &Change, now: Timestamp, queue: &mut Queue) {
        let Some(node) = change.latest().and_then(Object::as_node) else {
            return;
        };
        if change.new.is_none() {
            if let Some(books) = self.books.get_mut(name(&node.metadata)) {
                books.max_pods = 0;
            }
            return;
        }
        let allocatable = node.status.as_ref().and_then(|status| status.allocatable.as_ref());
        let books = self.books.entry(name(&node.metadata).to_owned()).or_default();
        books.allocatable = Amount::of(allocatable);
        books.max_pods = allocatable
            .and_then(|list| list.get("pods"))
            .map_or(0, |pods| crate::quantity::milli(&pods.0) / 1000);
        let before = change.old.as_ref().and_then(Object::as_node);
        if before.is_none_or(|before| {
            before.spec != node.spec
                || before.metadata.labels != node.metadata.labels
                || before.status.as_ref().and_then(|status| status.allocatable.as_ref()) != allocatable
        }) {
            self.retry_homeless(now, queue);
        }
    }

    fn observe_pod(&mut self, change: &Change, now: Timestamp, queue: &mut Queue) {
        let Some(pod) = change.latest().and_then(Object::as_pod) else {
            return;
        };
        let key = Key::of(&pod.metadata);
        let gone = change.new.is_none() || is_terminal(pod);
        if gone {
            self.homeless.remove(&key);
            if self.unplace(&key) {
                self.retry_homeless(now, queue);
            }
            return;
        }
        if let Some(node) = node_of(pod) {
            self.homeless.remove(&key);
            if self.placed.get(&key).is_none_or(|placed| placed.node != node) {
                self.place(pod, node);
            }
            return;
        }
        if is_waiting(pod) && !self.homeless.contains(&key) {
            queue.add(ObjectRef::new(Kind::Pod, key));
        }
    }

    /// The best of the nodes that can take the pod, or why none can.
    fn choose(&mut self, pod: &Pod, view: &View) -> Result<String, BTreeMap<Reason, usize>> {
        let mut reasons = BTreeMap::new();
        let mut candidates: Vec<&Arc<Node>> = Vec::new();
        let judge = |node: &Arc<Node>| {
            let books = self.books.get(name(&node.metadata)).cloned().unwrap_or_default();
            fits(pod, node, &books)
        };
        let pinned = pod.spec.as_ref().and_then(pinned_node).map(|name| view.node(name));
        let mut looked_at = 0;
        let all: Box<dyn Iterator<Item = &Arc<Node>>> = match pinned {
            Some(node) => Box::new(node.into_iter()),
            None => Box::new(view.nodes.values().cycle().skip(self.next_start).take(view.nodes.len())),
        };
        for node in all {
            looked_at += 1;
            match judge(node) {
                None => candidates.push(node),
                Some(reason) => *reasons.entry(reason).or_default() += 1,
            }
            if candidates.len() >= ENOUGH {
                break;
            }
        }
        if !view.nodes.is_empty() {
            self.next_start = (self.next_start + looked_at) % view.nodes.len();
        }
        let refused = spread_reason(pod, &mut candidates, view, &self.placed_nodes(pod, view));
        if let Some((reason, count)) = refused {
            *reasons.entry(reason).or_default() += count;
        }
        let owner = controller_of(&pod.metadata)
            .map(|owner| owner.uid.as_str())
            .unwrap_or_default();
        let best = candidates
            .iter()
            .min_by_key(|node| self.load(name(&node.metadata), owner));
        best.map(|node| name(&node.metadata).to_owned()).ok_or(reasons)
    }

    /// Where the pods of this namespace are, own promises that the view has not seen included; asked for only by
    /// pods with rules about other pods.
    fn placed_nodes(&self, pod: &Pod, view: &View) -> Vec<(Arc<Pod>, String)> {
        if !fit::minds_other_pods(pod) {
            return Vec::new();
        }
        let home = crate::object::namespace(&pod.metadata);
        view.pods_in(home)
            .filter_map(|other| {
                let placed = self.placed.get(&Key::of(&other.metadata))?;
                Some((Arc::clone(other), placed.node.clone()))
            })
            .collect()
    }

    /// How unwelcome a pod is on a node: siblings first, then what is promised already.
    fn load(&self, node: &str, owner: &str) -> (u64, u64) {
        let siblings = self
            .siblings
            .get(&(owner.to_owned(), node.to_owned()))
            .copied()
            .unwrap_or(0);
        let Some(books) = self.books.get(node) else {
            return (siblings, u64::MAX);
        };
        let share = |part: u64, whole: u64| u128::from(part) * 1000 / u128::from(whole.max(1));
        let used =
            share(books.promised.cpu, books.allocatable.cpu) + share(books.promised.memory, books.allocatable.memory);
        (siblings, u64::try_from(used).unwrap_or(u64::MAX))
    }
}

/// A pod nobody has placed yet, and that may be placed by this scheduler.
fn is_waiting(pod: &Pod) -> bool {
    let spec = pod.spec.as_ref();
    pod.metadata.deletion_timestamp.is_none()
        && node_of(pod).is_none()
        && spec.is_some_and(|spec| spec.scheduling_gates.as_ref().is_none_or(Vec::is_empty))
        && spec
            .and_then(|spec| spec.scheduler_name.as_deref())
            .unwrap_or(SCHEDULER)
            == SCHEDULER
}

impl Actor for Scheduler {
    fn name(&self) -> &'static str {
        "scheduler"
    }

    fn observe(&mut self, change: &Change, _view: &View, now: Timestamp, queue: &mut Queue) {
        match change.kind() {
            Some(Kind::Node) => self.observe_node(change, now, queue),
            Some(Kind::Pod) => self.observe_pod(change, now, queue),
            _ => {}
        }
    }

    fn decide(&mut self, item: &ObjectRef, turn: &mut Turn<'_>) -> Decision {
        let Some(pod) = turn.view.pods.get(&item.key).filter(|pod| is_waiting(pod)).cloned() else {
            return Decision::nothing();
        };
        if self.placed.contains_key(&item.key) {
            return Decision::nothing();
        }
        let object = Object::Pod(Arc::clone(&pod));
        let happening = |reason, message, warning| Happening {
            object: &object,
            component: SCHEDULER,
            host: "",
            reason,
            message,
            warning,
        };
        match self.choose(&pod, turn.view) {
            Ok(node) => {
                self.homeless.remove(&item.key);
                self.place(&pod, &node);
                let message = format!(
                    "Successfully assigned {}/{} to {node}",
                    item.key.namespace, item.key.name
                );
                let event = happening("Scheduled", message, false).request(turn.now, turn.rng);
                Decision::requests(vec![Request::bind(&pod.metadata, &node), event])
            }
            Err(reasons) => {
                self.homeless.insert(item.key.clone());
                let message = fit::explain(&reasons, turn.view.nodes.len());
                if says_already(&pod, &message) {
                    return Decision::nothing();
                }
                let status = json!({ "conditions": [{
                    "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message,
                    "lastProbeTime": null, "lastTransitionTime": second(turn.now),
                }] });
                let event = happening("FailedScheduling", message, true).request(turn.now, turn.rng);
                Decision::requests(vec![Request::patch_status(Kind::Pod, &pod.metadata, &status), event])
            }
        }
    }

    fn refused(&mut self, item: &ObjectRef, _failure: &Failure) {
        self.unplace(&item.key);
    }
}

fn says_already(pod: &Pod, message: &str) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions
        .into_iter()
        .flatten()
        .any(|c| c.type_ == "PodScheduled" && c.message.as_deref() == Some(message))
}

#[cfg(test)]
mod tests;

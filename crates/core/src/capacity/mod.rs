//! Whether the pods of nodes that go away would find a place on those that stay, by what kube-scheduler would do: requests,
//! taints, selectors, affinity, spread, host ports and volumes, pod by pod. Sums over a cluster prove nothing and are only
//! told, never judged by. Whether a node may go is for the gates; which pods a drain evicts for the lifecycle.

mod facts;
mod filter;
mod room;
#[cfg(test)]
mod tests;
mod told;

use std::collections::BTreeSet;
use std::sync::Arc;

use afloat_api::ObjectRef;

use crate::view::{Key, NodeName, Pod, Resources, View, WorkloadKind};

pub use room::Room;

/// The pods fit, and this is how tight it becomes.
#[derive(Clone, Debug, PartialEq)]
pub struct Fit {
    pub away: Vec<NodeName>,
    /// How many pods find a place.
    pub moved: usize,
    /// The pods that find none and are accepted to wait until their node is back.
    pub waiting: Vec<Key>,
    /// What is asked for on the nodes that stay, and what they have.
    pub asked: Resources,
    pub there: Resources,
    pub tightest: Option<Tightest>,
}

/// The node and resource that would be used most.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Tightest {
    pub node: NodeName,
    pub resource: &'static str,
    pub percent: i64,
}

/// A pod that finds no place, and why.
#[derive(Clone, Debug, PartialEq)]
pub struct CounterExample {
    pub pod: Key,
    /// What stands behind the pod: a Deployment or the like, the pod itself where there is nothing.
    pub workload: ObjectRef,
    /// The node it would have to leave.
    pub node: NodeName,
    pub asks: Resources,
    /// How many nodes were looked at, and what keeps the pod from how many of them.
    pub nodes: usize,
    pub blockers: Vec<(Blocker, usize)>,
    /// The other pods without which it would fit; none where it fits nowhere by itself.
    pub beside: Vec<Key>,
}

/// What keeps a pod from a node; the first that applies, in the order in which they are listed.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Blocker {
    NodeSelector,
    Taint,
    Volume,
    Cpu,
    Memory,
    Pods,
    Other(Arc<str>),
    HostPort,
    AntiAffinity,
    Affinity,
    Spread,
}

/// Whether everything that must move would fit if these nodes were away at once; if not, the smallest set of pods that shows it.
pub fn fits(view: &View, away: &BTreeSet<NodeName>) -> Result<Fit, Box<CounterExample>> {
    let nothing_accepted = BTreeSet::new();
    let mut room = Room::new(view, &nothing_accepted);
    match room.take_together(away) {
        Ok(()) => Ok(room.fit()),
        Err(found) => Err(room.shrink(*found, away)),
    }
}

/// Whether a pod has to find a place elsewhere when its node is drained: a controller brings it back, and not on the same
/// node. Afloat's own pods stay for the node's upgrade; what is ending has been replaced already.
pub fn must_move(pod: &Pod) -> bool {
    let owner = pod.shape.owner.as_ref();
    pod.static_part.is_none()
        && pod.task.is_none()
        && pod.ending.is_none()
        && !pod.phase.finished()
        && owner.is_some_and(|owner| !matches!(&*owner.kind, "DaemonSet" | "Node"))
}

/// What stands behind a pod, as far up as the view knows: the Deployment rather than its ReplicaSet.
pub fn workload_of(view: &View, pod: &Pod) -> ObjectRef {
    let Some(owner) = &pod.shape.owner else {
        return crate::gates::pod_ref(pod);
    };
    let above = (&*owner.kind == "ReplicaSet")
        .then(|| Key::new(&pod.key.namespace, &owner.name))
        .and_then(|key| view.workloads.get(&(WorkloadKind::ReplicaSet, key)))
        .and_then(|set| set.owner.as_ref());
    let owner = above.unwrap_or(owner);
    let api_version = match &*owner.kind {
        "Deployment" | "ReplicaSet" | "StatefulSet" => Some("apps/v1".to_owned()),
        "Job" => Some("batch/v1".to_owned()),
        _ => None,
    };
    ObjectRef {
        api_version,
        kind: owner.kind.to_string(),
        namespace: Some(pod.key.namespace.to_string()),
        name: owner.name.to_string(),
        uid: Some(owner.uid.to_string()),
    }
}

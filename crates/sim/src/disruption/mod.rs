//! The disruption controller: keeps the status of PodDisruptionBudgets, which the eviction API then goes by. The
//! arithmetic is upstream's, rounding and the two-minute memory of evicted pods included.

use crate::actor::{Actor, Decision, Turn};
use crate::clock::after;
use crate::events::second;
use crate::object::{Key, Kind, Object, ObjectRef, controller_of, namespace};
use crate::queue::Queue;
use crate::request::Request;
use crate::select::selects;
use crate::view::{Change, View, is_ready};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// An eviction that did not lead to a deletion for so long is forgotten (upstream's `DeletionTimeout`).
const DELETION_TIMEOUT: Duration = Duration::from_mins(2);

/// The disruption controller.
#[derive(Debug, Default)]
pub struct Disruption;

impl Actor for Disruption {
    fn name(&self) -> &'static str {
        "disruption-controller"
    }

    fn observe(&mut self, change: &Change, view: &View, _now: Timestamp, queue: &mut Queue) {
        match change.latest() {
            Some(budget @ Object::PodDisruptionBudget(_)) => queue.add(budget.reference()),
            Some(Object::Pod(_)) => {
                for version in [&change.old, &change.new]
                    .into_iter()
                    .flatten()
                    .filter_map(Object::as_pod)
                {
                    mark(version, view, queue);
                }
            }
            // The number of pods a share is taken of is the number their controllers ask for.
            Some(object @ (Object::Deployment(_) | Object::ReplicaSet(_) | Object::StatefulSet(_))) => {
                let grew = match (&change.old, &change.new) {
                    (Some(old), Some(new)) => old.meta().generation != new.meta().generation,
                    _ => true,
                };
                if grew {
                    for budget in view.budgets_in(namespace(object.meta())) {
                        queue.add(ObjectRef::new(Kind::PodDisruptionBudget, Key::of(&budget.metadata)));
                    }
                }
            }
            _ => {}
        }
    }

    fn decide(&mut self, item: &ObjectRef, turn: &mut Turn<'_>) -> Decision {
        let Some(budget) = turn.view.budgets.get(&item.key) else {
            return Decision::nothing();
        };
        let tally = Tally::of(budget, turn.view, turn.now);
        let status = tally.status(budget, turn.now);
        let decision = match status {
            Some(status) => Decision::request(Request::patch_status_unchanged(
                Kind::PodDisruptionBudget,
                &budget.metadata,
                &status,
            )),
            None => Decision::nothing(),
        };
        decision.and_at(tally.recheck)
    }
}

fn mark(pod: &Pod, view: &View, queue: &mut Queue) {
    for budget in view.budgets_in(namespace(&pod.metadata)) {
        if covers(budget, pod) {
            queue.add(ObjectRef::new(Kind::PodDisruptionBudget, Key::of(&budget.metadata)));
        }
    }
}

/// policy/v1: an empty selector covers every pod of the namespace, none at all covers none.
pub fn covers(budget: &PodDisruptionBudget, pod: &Pod) -> bool {
    let selector = budget.spec.as_ref().and_then(|spec| spec.selector.as_ref());
    selector.is_some_and(|selector| selects(selector, pod.metadata.labels.as_ref()))
}

#[derive(Debug, PartialEq)]
struct Tally {
    expected: i32,
    desired: i32,
    healthy: i32,
    allowed: i32,
    /// Pods evicted a moment ago whose deletion has not been seen.
    disrupted: BTreeMap<String, Timestamp>,
    recheck: Option<Timestamp>,
}

impl Tally {
    fn of(budget: &PodDisruptionBudget, view: &View, now: Timestamp) -> Self {
        let pods: Vec<&Arc<Pod>> = view
            .pods_in(namespace(&budget.metadata))
            .filter(|pod| covers(budget, pod))
            .collect();
        let (expected, desired) = expectations(budget, &pods, view);
        let known = budget.status.as_ref().and_then(|status| status.disrupted_pods.as_ref());
        let mut disrupted = BTreeMap::new();
        let mut recheck: Option<Timestamp> = None;
        let mut healthy = 0;
        for pod in pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()) {
            let pod_name = pod.metadata.name.clone().unwrap_or_default();
            let evicted = known.and_then(|known| known.get(&pod_name)).map(|time| time.0);
            let forgotten_at = evicted.map(|evicted| after(evicted, DELETION_TIMEOUT));
            match (evicted, forgotten_at) {
                (Some(evicted), Some(forgotten_at)) if forgotten_at > now => {
                    disrupted.insert(pod_name, evicted);
                    recheck = Some(recheck.map_or(forgotten_at, |earliest| earliest.min(forgotten_at)));
                }
                _ => healthy += i32::from(is_ready(pod)),
            }
        }
        let allowed = if expected <= 0 { 0 } else { (healthy - desired).max(0) };
        Self {
            expected,
            desired,
            healthy,
            allowed,
            disrupted,
            recheck,
        }
    }

    /// The status to write, or nothing when it says so already.
    fn status(&self, budget: &PodDisruptionBudget, now: Timestamp) -> Option<Value> {
        let known = budget.status.clone().unwrap_or_default();
        let generation = budget.metadata.generation.unwrap_or(0);
        let known_disrupted = known.disrupted_pods.unwrap_or_default();
        let holds = if self.allowed > 0 { "True" } else { "False" };
        let condition = known
            .conditions
            .iter()
            .flatten()
            .find(|c| c.type_ == "DisruptionAllowed");
        let same = known.current_healthy == self.healthy
            && known.desired_healthy == self.desired
            && known.expected_pods == self.expected
            && known.disruptions_allowed == self.allowed
            && known.observed_generation.unwrap_or(0) == generation
            && known_disrupted.keys().eq(self.disrupted.keys())
            && condition.is_some_and(|c| c.status == holds && c.observed_generation.unwrap_or(0) == generation);
        if same {
            return None;
        }
        let since = condition
            .filter(|c| c.status == holds)
            .map_or(now, |c| c.last_transition_time.0);
        let kept = self
            .disrupted
            .iter()
            .map(|(pod, time)| (pod.clone(), json!(second(*time))));
        let dropped = known_disrupted
            .keys()
            .filter(|pod| !self.disrupted.contains_key(*pod))
            .map(|pod| (pod.clone(), Value::Null));
        let disrupted: serde_json::Map<String, Value> = kept.chain(dropped).collect();
        Some(json!({
            "observedGeneration": generation,
            "currentHealthy": self.healthy,
            "desiredHealthy": self.desired,
            "expectedPods": self.expected,
            "disruptionsAllowed": self.allowed,
            "disruptedPods": disrupted,
            "conditions": [{
                "type": "DisruptionAllowed",
                "status": holds,
                "reason": if self.allowed > 0 { "SufficientPods" } else { "InsufficientPods" },
                "message": "",
                "observedGeneration": generation,
                "lastTransitionTime": second(since),
            }],
        }))
    }
}

/// How many pods there should be, and how many of them healthy.
fn expectations(budget: &PodDisruptionBudget, pods: &[&Arc<Pod>], view: &View) -> (i32, i32) {
    let present = i32::try_from(pods.len()).unwrap_or(i32::MAX);
    let Some(spec) = &budget.spec else { return (present, 0) };
    let share = |text: &str, of: i32| {
        let percent: i64 = text.trim_end_matches('%').parse().unwrap_or(0);
        i32::try_from((percent * i64::from(of) + 99) / 100).unwrap_or(i32::MAX)
    };
    match (&spec.max_unavailable, &spec.min_available) {
        (Some(limit), _) => {
            let expected = expected_scale(pods, view);
            let limit = match limit {
                IntOrString::Int(number) => *number,
                IntOrString::String(text) => share(text, expected),
            };
            (expected, (expected - limit).max(0))
        }
        (None, Some(IntOrString::Int(number))) => (present, *number),
        (None, Some(IntOrString::String(text))) => {
            let expected = expected_scale(pods, view);
            (expected, share(text, expected))
        }
        (None, None) => (present, 0),
    }
}

/// The sum of what the controllers of the pods ask for; pods without one do not count.
fn expected_scale(pods: &[&Arc<Pod>], view: &View) -> i32 {
    let mut seen = BTreeSet::new();
    let mut total: i32 = 0;
    for pod in pods {
        let Some(owner) = controller_of(&pod.metadata) else {
            continue;
        };
        let (root, replicas) = scale_of(
            &owner.kind,
            Key::new(namespace(&pod.metadata), owner.name.clone()),
            &owner.uid,
            view,
        );
        if seen.insert(root) {
            total = total.saturating_add(replicas);
        }
    }
    total
}

fn scale_of(kind: &str, key: Key, uid: &str, view: &View) -> (String, i32) {
    let same = |meta: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta| meta.uid.as_deref() == Some(uid);
    let replicas = match kind {
        "ReplicaSet" => {
            let Some(set) = view.replica_sets.get(&key).filter(|set| same(&set.metadata)) else {
                return (uid.to_owned(), 0);
            };
            // A ReplicaSet of a Deployment counts as the Deployment, whatever share of it a rollout gave the set.
            if let Some(owner) = controller_of(&set.metadata).filter(|owner| owner.kind == "Deployment") {
                let deployment = view.deployments.get(&Key::new(key.namespace, owner.name.clone()));
                let spec = deployment.and_then(|deployment| deployment.spec.as_ref());
                return (owner.uid.clone(), spec.and_then(|spec| spec.replicas).unwrap_or(0));
            }
            set.spec.as_ref().and_then(|spec| spec.replicas)
        }
        "StatefulSet" => view
            .stateful_sets
            .get(&key)
            .filter(|set| same(&set.metadata))
            .and_then(|set| set.spec.as_ref()?.replicas),
        _ => None,
    };
    (uid.to_owned(), replicas.unwrap_or(0))
}

#[cfg(test)]
mod tests;

//! Deployments: one ReplicaSet per template, the newest scaled up and the others down within the surge and
//! unavailability the strategy allows.

use super::{count, is_going, observe_owner, scaled, status_says};
use crate::actor::{Actor, Decision, Turn};
use crate::events::{Happening, second};
use crate::hash::template_hash;
use crate::object::{Kind, Object, ObjectRef, annotation, controller_reference, name, namespace, uid};
use crate::queue::Queue;
use crate::request::Request;
use crate::view::{Change, View};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec, ReplicaSet};
use serde_json::{Value, json};
use std::sync::Arc;

const REVISION: &str = "deployment.kubernetes.io/revision";
const HASH: &str = "pod-template-hash";

/// The Deployment controller.
#[derive(Debug, Default)]
pub struct Deployments;

impl Actor for Deployments {
    fn name(&self) -> &'static str {
        "deployment-controller"
    }

    fn observe(&mut self, change: &Change, _view: &View, _now: Timestamp, queue: &mut Queue) {
        observe_owner(Kind::Deployment, Kind::ReplicaSet, change, queue);
    }

    fn decide(&mut self, item: &ObjectRef, turn: &mut Turn<'_>) -> Decision {
        let Some(deployment) = turn.view.deployments.get(&item.key).cloned() else {
            return Decision::nothing();
        };
        let Some(spec) = deployment.spec.as_ref().filter(|_| !is_going(&deployment.metadata)) else {
            return Decision::nothing();
        };
        let sets: Vec<Arc<ReplicaSet>> = turn
            .view
            .replica_sets_owned_by(uid(&deployment.metadata))
            .cloned()
            .collect();
        let hash = template_hash(&spec.template);
        let own_name = format!("{}-{hash}", name(&deployment.metadata));
        let (newest, old): (Vec<_>, Vec<_>) = sets.into_iter().partition(|set| name(&set.metadata) == own_name);
        let newest = newest.into_iter().next();
        let mut requests = match &newest {
            None if spec.paused == Some(true) => Vec::new(),
            None => vec![birth(&deployment, spec, &hash, &old)],
            Some(newest) => rollout(&deployment, spec, newest, &old, turn),
        };
        let status = status(&deployment, spec, newest.as_deref(), &old, turn.now);
        if !status_says(deployment.status.as_ref(), &status) {
            requests.push(Request::patch_status(Kind::Deployment, &deployment.metadata, &status));
        }
        Decision::requests(requests)
    }
}

fn asked(set: &ReplicaSet) -> i32 {
    set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(0)
}

fn has(set: &ReplicaSet, field: fn(&k8s_openapi::api::apps::v1::ReplicaSetStatus) -> Option<i32>) -> i32 {
    set.status.as_ref().and_then(field).unwrap_or(0)
}

fn pods_of(set: &ReplicaSet) -> i32 {
    set.status.as_ref().map_or(0, |status| status.replicas)
}

fn revision(set: &ReplicaSet) -> i64 {
    annotation(&set.metadata, REVISION)
        .and_then(|revision| revision.parse().ok())
        .unwrap_or(0)
}

struct Limits {
    wanted: i32,
    surge: i32,
    unavailable: i32,
    recreate: bool,
}

fn limits(spec: &DeploymentSpec) -> Limits {
    let wanted = spec.replicas.unwrap_or(1);
    let strategy = spec.strategy.as_ref();
    let rolling = strategy.and_then(|strategy| strategy.rolling_update.as_ref());
    let surge = scaled(
        rolling.and_then(|rolling| rolling.max_surge.as_ref()),
        wanted,
        true,
        "25%",
    );
    let mut unavailable = scaled(
        rolling.and_then(|rolling| rolling.max_unavailable.as_ref()),
        wanted,
        false,
        "25%",
    );
    // Both rounded to nothing would never move; upstream then lets one go.
    if surge == 0 && unavailable == 0 {
        unavailable = 1;
    }
    let recreate = strategy.and_then(|strategy| strategy.type_.as_deref()) == Some("Recreate");
    Limits {
        wanted,
        surge,
        unavailable,
        recreate,
    }
}

fn birth(deployment: &Deployment, spec: &DeploymentSpec, hash: &str, old: &[Arc<ReplicaSet>]) -> Request {
    let limits = limits(spec);
    let busy = old.iter().any(|set| pods_of(set) > 0 || asked(set) > 0);
    let start = match (limits.recreate, busy) {
        (_, false) => limits.wanted,
        (true, true) => 0,
        (false, true) => {
            let others: i32 = old.iter().map(|set| asked(set)).sum();
            (limits.wanted + limits.surge - others).clamp(0, limits.wanted)
        }
    };
    let mut template = json!(spec.template);
    template["metadata"]["labels"][HASH] = hash.into();
    let mut selector = json!(spec.selector);
    selector["matchLabels"][HASH] = hash.into();
    let next = old.iter().map(|set| revision(set)).max().unwrap_or(0) + 1;
    let body = json!({
        "metadata": {
            "name": format!("{}-{hash}", name(&deployment.metadata)),
            "namespace": deployment.metadata.namespace,
            "labels": template["metadata"]["labels"],
            "annotations": { REVISION: next.to_string(), "deployment.kubernetes.io/desired-replicas": limits.wanted.to_string() },
            "ownerReferences": [controller_reference(Kind::Deployment, &deployment.metadata)],
        },
        "spec": {
            "replicas": start,
            "minReadySeconds": spec.min_ready_seconds.unwrap_or(0),
            "selector": selector,
            "template": template,
        },
    });
    Request::create(Kind::ReplicaSet, namespace(&deployment.metadata), body)
}

/// The next steps of a rollout; none when all is as asked for.
fn rollout(
    deployment: &Arc<Deployment>,
    spec: &DeploymentSpec,
    newest: &Arc<ReplicaSet>,
    old: &[Arc<ReplicaSet>],
    turn: &mut Turn<'_>,
) -> Vec<Request> {
    let mut requests = Vec::new();
    let newest_revision = old.iter().map(|set| revision(set)).max().unwrap_or(0) + 1;
    if revision(newest) < newest_revision && old.iter().any(|set| revision(set) >= revision(newest)) {
        let patch = json!({ "metadata": { "annotations": { REVISION: newest_revision.to_string() } } });
        requests.push(Request::patch(Kind::ReplicaSet, &newest.metadata, patch));
    }
    let current = annotation(&newest.metadata, REVISION).unwrap_or("1");
    if annotation(&deployment.metadata, REVISION) != Some(current) {
        let patch = json!({ "metadata": { "annotations": { REVISION: current } } });
        requests.push(Request::patch(Kind::Deployment, &deployment.metadata, patch));
    }
    let limits = limits(spec);
    for (set, replicas) in scales(&limits, newest, old) {
        requests.extend(scale(deployment, set, replicas, turn));
    }
    let history = usize::try_from(spec.revision_history_limit.unwrap_or(10)).unwrap_or(10);
    let mut idle: Vec<&Arc<ReplicaSet>> = old.iter().filter(|set| asked(set) == 0 && pods_of(set) == 0).collect();
    idle.sort_by_key(|set| revision(set));
    let surplus = idle.len().saturating_sub(history);
    requests.extend(
        idle.into_iter()
            .take(surplus)
            .map(|set| Request::delete(Kind::ReplicaSet, &set.metadata, None)),
    );
    requests
}

/// How many replicas each set should have next, where that changes.
fn scales<'a>(
    limits: &Limits,
    newest: &'a Arc<ReplicaSet>,
    old: &'a [Arc<ReplicaSet>],
) -> Vec<(&'a Arc<ReplicaSet>, i32)> {
    let mut changes = Vec::new();
    let old_asked: i32 = old.iter().map(|set| asked(set)).sum();
    let old_pods: i32 = old.iter().map(|set| pods_of(set)).sum();
    let mut goal = if limits.recreate {
        if old_pods == 0 { limits.wanted } else { asked(newest) }
    } else {
        let room = limits.wanted + limits.surge - old_asked - asked(newest);
        (asked(newest) + room.max(0)).min(limits.wanted)
    };
    if asked(newest) > limits.wanted {
        goal = limits.wanted;
    }
    if goal != asked(newest) {
        changes.push((newest, goal));
    }
    if old_asked == 0 {
        return changes;
    }
    if limits.recreate {
        changes.extend(old.iter().filter(|set| asked(set) > 0).map(|set| (set, 0)));
        return changes;
    }
    let available = |set: &ReplicaSet| has(set, |status| status.available_replicas);
    // Pods of old templates that serve nobody go first, they cost no availability; the rest as the minimum allows.
    let unhealthy_new = asked(newest) - available(newest);
    let minimum = limits.wanted - limits.unavailable;
    let mut spare = old_asked + asked(newest) - minimum - unhealthy_new;
    for set in old {
        let take = (asked(set) - available(set)).clamp(0, spare.max(0));
        let serving: i32 = old.iter().map(|set| available(set)).sum::<i32>() + available(newest);
        let more = (serving - minimum)
            .clamp(0, asked(set) - take)
            .min((spare - take).max(0));
        if take + more > 0 {
            changes.push((set, asked(set) - take - more));
            spare -= take + more;
        }
    }
    changes
}

fn scale(deployment: &Arc<Deployment>, set: &ReplicaSet, replicas: i32, turn: &mut Turn<'_>) -> [Request; 2] {
    let verb = if replicas > asked(set) { "up" } else { "down" };
    let event = Happening {
        object: &Object::Deployment(Arc::clone(deployment)),
        component: "deployment-controller",
        host: "",
        reason: "ScalingReplicaSet",
        message: format!(
            "Scaled {verb} replica set {} from {} to {replicas}",
            name(&set.metadata),
            asked(set)
        ),
        warning: false,
    };
    let patch = json!({
        "metadata": { "resourceVersion": set.metadata.resource_version },
        "spec": { "replicas": replicas },
    });
    [
        Request::patch(Kind::ReplicaSet, &set.metadata, patch),
        event.request(turn.now, turn.rng),
    ]
}

fn status(
    deployment: &Deployment,
    spec: &DeploymentSpec,
    newest: Option<&ReplicaSet>,
    old: &[Arc<ReplicaSet>],
    now: Timestamp,
) -> Value {
    let all = || newest.into_iter().chain(old.iter().map(AsRef::as_ref));
    let limits = limits(spec);
    let total: i32 = all().map(pods_of).sum();
    let available: i32 = all().map(|set| has(set, |status| status.available_replicas)).sum();
    let updated = newest.map_or(0, pods_of);
    let minimum = if limits.recreate {
        limits.wanted
    } else {
        limits.wanted - limits.unavailable
    };
    let enough = available >= minimum;
    let complete = updated == limits.wanted && total == limits.wanted && available == limits.wanted;
    let (reason, message) = if enough {
        ("MinimumReplicasAvailable", "Deployment has minimum availability.")
    } else {
        (
            "MinimumReplicasUnavailable",
            "Deployment does not have minimum availability.",
        )
    };
    let set_name = newest.map(|set| name(&set.metadata)).unwrap_or_default();
    let progress = if complete {
        (
            "NewReplicaSetAvailable",
            format!("ReplicaSet \"{set_name}\" has successfully progressed."),
        )
    } else {
        (
            "ReplicaSetUpdated",
            format!("ReplicaSet \"{set_name}\" is progressing."),
        )
    };
    let conditions = json!([
        condition(deployment, "Available", enough, reason, message, now),
        condition(deployment, "Progressing", true, progress.0, &progress.1, now),
    ]);
    json!({
        "observedGeneration": deployment.metadata.generation,
        "replicas": total,
        "updatedReplicas": updated,
        "readyReplicas": all().map(|set| has(set, |status| status.ready_replicas)).sum::<i32>(),
        "availableReplicas": available,
        "unavailableReplicas": (total.max(limits.wanted) - available).max(0).min(count(usize::MAX)),
        "conditions": conditions,
    })
}

fn condition(deployment: &Deployment, kind: &str, holds: bool, reason: &str, message: &str, now: Timestamp) -> Value {
    let status = if holds { "True" } else { "False" };
    let known = deployment
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_ref())
        .into_iter()
        .flatten();
    let before = known.into_iter().find(|c| c.type_ == kind && c.status == status);
    let since = before
        .and_then(|c| c.last_transition_time.as_ref())
        .map_or(now, |time| time.0);
    let same = before.filter(|c| c.reason.as_deref() == Some(reason));
    let updated = same
        .and_then(|c| c.last_update_time.as_ref())
        .map_or(now, |time| time.0);
    json!({
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": second(since),
        "lastUpdateTime": second(updated),
    })
}

//! Which pods have to leave a node, which of them can be asked to go now, and what keeps the others. Evictions are asked of the API
//! server, which has the last word on budgets; what it would refuse anyway is not asked.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use afloat_api::kubeadm::{DrainProgress, RefusedEviction};
use afloat_api::{ConditionType, ObjectRef, Reason};
use jiff::{SignedDuration, Timestamp};

use super::turn::{Turn, WAIT_MESSAGE, later, pod_ref, short};
use crate::action::{Action, Place};
use crate::settings::Drain;
use crate::view::{Ending, Key, Node, Pod, PodBudget, PodPhase, View};

/// How long after its grace period a pod may take before it is named.
const PAST_GRACE: SignedDuration = SignedDuration::from_secs(60);
/// A refused eviction shows in no watch where the budget did not change: it is asked for again.
const ASK_AGAIN: SignedDuration = SignedDuration::from_secs(5);
/// The CRD takes no more.
const REFUSED: usize = 20;
/// Progress is written in so many parts: a write for each of a hundred pods would cost more than it tells.
const PARTS: usize = 4;

/// What keeps a pod on its node.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Block {
    /// The pod whose eviction would be refused, where it is that.
    pub pod: Option<ObjectRef>,
    pub reason: Reason,
    pub by: ObjectRef,
    pub message: String,
}

/// The pods of a node that has to be empty.
#[derive(Debug, Default)]
pub(super) struct Look {
    /// Pods that have yet to leave, those already ending among them.
    pub leaving: usize,
    pub go: Vec<Action>,
    pub blocks: Vec<Block>,
    /// When the next pod that ends is late.
    pub late_at: Option<Timestamp>,
}

/// Notes how many have to leave, at the beginning.
pub(super) fn count(turn: &mut Turn<'_>, node: &Node) {
    if !waived(turn.view, node) {
        let total = whole(look(turn, node).leaving);
        turn.status.drain = Some(DrainProgress {
            total,
            ..DrainProgress::default()
        });
    }
}

/// Asks those to go that can; `true` once none is left, or the drain is waived.
pub(super) fn advance(turn: &mut Turn<'_>, node: &Node) -> bool {
    if waived(turn.view, node) {
        let message = "no other node could take its pods: they stay";
        turn.condition(ConditionType::Drained, true, Reason::NotApplicable, message);
        return true;
    }
    let mut look = look(turn, node);
    if look.leaving == 0 {
        look.blocks.extend(volumes(turn, node));
    }
    report(turn, &look);
    if look.leaving == 0 && look.blocks.is_empty() {
        turn.condition(
            ConditionType::Drained,
            true,
            Reason::Succeeded,
            "no pod is left that has to leave",
        );
        return true;
    }
    if turn.holds(ConditionType::Drained) {
        turn.condition(ConditionType::Drained, false, Reason::InProgress, "pods have come back");
    }
    if !look.go.is_empty() {
        turn.look_again(later(turn.now, ASK_AGAIN));
    }
    if let Some(late_at) = look.late_at {
        turn.look_again(late_at);
    }
    for action in look.go {
        turn.act(action);
    }
    false
}

/// A node that is alone keeps its pods: nothing else could run them, and they live through a restart of the kubelet.
pub(crate) fn waived(view: &View, node: &Node) -> bool {
    !view
        .nodes
        .values()
        .any(|other| other.uid != node.uid && !other.deleting)
}

/// Writes progress in few steps, and who blocks.
fn report(turn: &mut Turn<'_>, look: &Look) {
    let known = turn.status.drain.clone().unwrap_or_default();
    let total = known.total.max(whole(look.leaving));
    let gone = total - whole(look.leaving);
    let refused = refused(look);
    let part =
        |gone: i32| usize::try_from(gone).unwrap_or_default() * PARTS / usize::try_from(total.max(1)).unwrap_or(1);
    let stale = known.total != total || known.refused != refused || part(known.gone) != part(gone);
    turn.status.drain = Some(if stale {
        DrainProgress { total, gone, refused }
    } else {
        known
    });
    let blocks = &look.blocks;
    // What was waited for before is still waited for if it still blocks, though others may block as well.
    let block = blocks.iter().find(|block| turn.waited_for() == Some(&block.by));
    if let Some(block) = block.or_else(|| blocks.first()).cloned() {
        turn.wait(block.reason, &block.message, Some(block.by));
    }
}

/// One pod for each that refuses: the last, which is still there when the others have gone one by one.
fn refused(look: &Look) -> Vec<RefusedEviction> {
    let mut last: BTreeMap<&ObjectRef, &Block> = BTreeMap::new();
    for block in look.blocks.iter().filter(|block| block.pod.is_some()) {
        last.insert(&block.by, block);
    }
    last.into_values()
        .take(REFUSED)
        .filter_map(|block| {
            Some(RefusedEviction {
                pod: block.pod.clone()?,
                by: Some(block.by.clone()),
                message: Some(short(&block.message, WAIT_MESSAGE)),
            })
        })
        .collect()
}

/// Looks at every pod of the node once.
pub(super) fn look(turn: &Turn<'_>, node: &Node) -> Look {
    let options = &turn.settings.drain;
    let mut look = Look::default();
    // What is left of each budget after the evictions decided on so far.
    let mut left: BTreeMap<Key, i64> = BTreeMap::new();
    for pod in turn.view.pods_on(&node.name).filter(|pod| has_to_leave(pod)) {
        look.leaving += 1;
        if let Some(ending) = pod.ending {
            match late(pod, ending, node, turn.now) {
                Ok(late_at) => look.late_at = Some(look.late_at.map_or(late_at, |other| other.min(late_at))),
                Err(block) => look.blocks.push(*block),
            }
            continue;
        }
        match fate(turn.view, (pod, node), options, &mut left, turn.now) {
            Ok(action) => look.go.push(action),
            Err(block) => look.blocks.push(*block),
        }
    }
    look
}

/// A budget that would let none of its pods leave a node now: its drain would only wait. Where one may go, the others follow as
/// replicas come up elsewhere. One that is not healthy and may go for that reason makes no room for those that are.
pub(crate) fn no_headroom(view: &View, node: &Node, options: &Drain, now: Timestamp) -> Option<Block> {
    if waived(view, node) {
        return None;
    }
    let mut left: BTreeMap<Key, i64> = BTreeMap::new();
    let mut moving: BTreeSet<&Key> = BTreeSet::new();
    let mut blocked: BTreeMap<Key, Block> = BTreeMap::new();
    for pod in view.pods_on(&node.name).filter(|pod| has_to_leave(pod)) {
        let fate = match pod.ending {
            Some(_) => None,
            None => fate(view, (pod, node), options, &mut left, now).err(),
        };
        match fate {
            Some(block) if block.reason == Reason::WaitingForPodDisruptionBudget => {
                let namespace = block.by.namespace.as_deref().unwrap_or_default();
                blocked.entry(Key::new(namespace, &block.by.name)).or_insert(*block);
            }
            None if pod.ready || pod.ending.is_some() => {
                moving.extend(view.budgets_of(pod).map(|budget| &budget.key));
            }
            _ => {}
        }
    }
    blocked
        .into_iter()
        .find(|(budget, _)| !moving.contains(budget))
        .map(|(_, block)| block)
}

/// DaemonSets would put theirs back at once, mirror pods cannot be evicted, and our own work there. A finished pod that was asked
/// to go holds nothing any more.
pub fn has_to_leave(pod: &Pod) -> bool {
    let of_daemon_set = pod
        .shape
        .owner
        .as_ref()
        .is_some_and(|owner| &*owner.kind == "DaemonSet");
    let ours = pod.task.is_some() || pod.shape.labels.contains_key(afloat_api::labels::TASK);
    let gone_but_for_a_finalizer = pod.phase.finished() && pod.ending.is_some();
    pod.static_part.is_none() && !of_daemon_set && !ours && !gone_but_for_a_finalizer
}

/// A pod that ends has its grace period and a little more; `Ok` with the moment when it is late.
fn late(pod: &Pod, ending: Ending, node: &Node, now: Timestamp) -> Result<Timestamp, Box<Block>> {
    let late_at = later(ending.by, PAST_GRACE);
    if now < late_at {
        return Ok(late_at);
    }
    let by = pod_ref(pod);
    let key = &pod.key;
    let message = if ending.held_by_finalizer {
        format!("pod {key} was asked to end and is held by a finalizer: whoever put it there has to remove it")
    } else if node.ready.ready {
        format!(
            "pod {key} was asked to end and has not: see its containers on {}",
            node.name
        )
    } else {
        format!("pod {key} cannot end: the kubelet of {} does not answer", node.name)
    };
    Err(Box::new(Block {
        pod: None,
        reason: Reason::WaitingForPodTermination,
        by,
        message,
    }))
}

fn fate(
    view: &View,
    (pod, node): (&Arc<Pod>, &Node),
    options: &Drain,
    left: &mut BTreeMap<Key, i64>,
    now: Timestamp,
) -> Result<Action, Box<Block>> {
    let from = || Place {
        node: node.name.clone(),
        uid: node.uid.clone(),
        cordoned_by: node.cordoned_by.clone(),
    };
    let evict = Action::Evict {
        pod: pod.target(),
        grace_seconds: options.grace_seconds,
        from: from(),
    };
    if pod.phase.finished() {
        return Ok(evict);
    }
    let key = &pod.key;
    let kept = |reason, by, message| {
        Box::new(Block {
            pod: Some(pod_ref(pod)),
            reason,
            by,
            message,
        })
    };
    if pod.shape.owner.is_none() && !options.evict_unmanaged {
        let message = format!(
            "pod {key} has no controller that would bring it back: delete it, or set spec.drain.evictUnmanagedPods: true"
        );
        return Err(kept(Reason::UnmanagedPod, pod_ref(pod), message));
    }
    if pod.shape.local_data && !options.delete_local_data {
        let message = format!(
            "pod {key} has data in an emptyDir that an eviction loses: delete it, or set spec.drain.deleteEmptyDirData: true"
        );
        return Err(kept(Reason::LocalData, pod_ref(pod), message));
    }
    // The eviction API asks no budget for a pod that does not run yet.
    if pod.phase == PodPhase::Pending {
        return Ok(evict);
    }
    let budgets: Vec<&Arc<PodBudget>> = view.budgets_of(pod).collect();
    let past = |budget: &PodBudget| Action::DeletePastBudget {
        pod: pod.target(),
        grace_seconds: options.grace_seconds,
        budget: budget.key.clone(),
        from: from(),
    };
    let overridden = |budget: &&Arc<PodBudget>| overridden(options, &budget.key, now);
    match budgets.as_slice() {
        [] => Ok(evict),
        [budget] if allows(budget, pod, left) => Ok(evict),
        [first, ..] if budgets.iter().all(overridden) => Ok(past(first)),
        [budget] => {
            let message = format!(
                "pdb/{} allows no further disruption now ({} pods must stay): a further replica elsewhere frees it",
                budget.key, budget.desired_healthy
            );
            let by = budget_ref(budget);
            Err(kept(Reason::WaitingForPodDisruptionBudget, by, message))
        }
        [first, second, ..] => {
            let message = format!(
                "pod {key} is under pdb/{} and pdb/{}: the API server evicts no pod under two; narrow the selector of one, or delete it",
                first.key, second.key
            );
            let by = budget_ref(first);
            Err(kept(Reason::SeveralPodDisruptionBudgets, by, message))
        }
    }
}

/// Whether a budget lets a pod go, as the API server reckons; counts it.
fn allows(budget: &PodBudget, pod: &Pod, left: &mut BTreeMap<Key, i64>) -> bool {
    if !pod.ready {
        // A pod that is not healthy costs nothing where the budget says so, or where the healthy ones suffice.
        let enough = budget.desired_healthy > 0 && budget.current_healthy >= budget.desired_healthy;
        if budget.unhealthy_may_go || enough {
            return true;
        }
    }
    if !budget.up_to_date {
        return false;
    }
    let left = left.entry(budget.key.clone()).or_insert(budget.disruptions_allowed);
    if *left <= 0 {
        return false;
    }
    *left -= 1;
    true
}

/// Rule 8: past a budget only where the person named it, and not after the moment that was set for it.
fn overridden(options: &Drain, budget: &Key, now: Timestamp) -> bool {
    options
        .overrides
        .iter()
        .any(|entry| entry.namespace == *budget.namespace && entry.name == *budget.name && now < entry.until.0)
}

fn budget_ref(budget: &PodBudget) -> ObjectRef {
    ObjectRef {
        api_version: Some("policy/v1".to_owned()),
        kind: "PodDisruptionBudget".to_owned(),
        namespace: Some(budget.key.namespace.to_string()),
        name: budget.key.name.to_string(),
        uid: Some(budget.uid.to_string()),
    }
}

/// Volumes of pods that left and that are still attached: changing the runtime under them could leave them in use.
fn volumes(turn: &Turn<'_>, node: &Node) -> Option<Block> {
    if node.attached_volumes.is_empty() {
        return None;
    }
    let view = turn.view;
    let in_use: BTreeSet<&str> = view
        .pods_on(&node.name)
        .flat_map(|pod| pod.shape.claims.iter().map(|claim| Key::new(&pod.key.namespace, claim)))
        .filter_map(|claim| view.claims.get(&claim)?.volume.as_deref())
        .collect();
    let (claim, volume) = view.claims.iter().find_map(|(key, claim)| {
        let volume = claim.volume.as_ref()?;
        let left_behind = node.attached_volumes.contains(volume) && !in_use.contains(&**volume);
        left_behind.then_some((key, volume))
    })?;
    let by = ObjectRef {
        api_version: Some("v1".to_owned()),
        kind: "PersistentVolume".to_owned(),
        namespace: None,
        name: volume.to_string(),
        uid: None,
    };
    Some(Block {
        pod: None,
        reason: Reason::WaitingForVolume,
        by,
        message: format!(
            "volume {volume} of pvc/{claim} is still attached to {}: its driver has to detach it",
            node.name
        ),
    })
}

fn whole(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

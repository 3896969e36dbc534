//! How a run may end: at the target, or in a state that names what blocks it; and with nothing left behind.

use std::sync::Arc;

use afloat_api::clusterupgrade::Phase;
use afloat_api::{ClusterUpgrade, ConditionType, GroupUpgradeStatus, NodeKubeadmUpgrade, NodeState};
use afloat_core::action::Action;
use afloat_core::decide;
use afloat_core::view::Node;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};

use super::operator::subjects;
use super::store::{Kind as _, Store};
use super::time::{Millis, clock, stamp};
use super::world::World;

/// Rules 7 and 12 at the end of a run.
pub fn check(world: &mut World) {
    let upgrades: Vec<_> = world.store.upgrades.values().cloned().collect();
    for upgrade in &upgrades {
        world.rules.judged[12] += 1;
        if let Some(problem) = unexplained(world, upgrade) {
            world.rules.breaks(12, format!("{}: {problem}", upgrade.key()));
            return;
        }
    }
    let alone: Vec<_> = world.store.node_upgrades.values().cloned().collect();
    for node in alone {
        if let Some(problem) = node_unexplained(&node) {
            world.rules.breaks(12, format!("{}: {problem}", node.key()));
            return;
        }
    }
    if let Some(problem) = groups_alone(&world.store).find_map(|group| group_unexplained(world, &group)) {
        world.rules.breaks(12, problem);
        return;
    }
    if let Some(problem) = would_go_on(world) {
        world.rules.breaks(12, problem);
        return;
    }
    left_behind(world);
}

/// What an operator would do that looks at everything as it is now, where the one that is there does nothing any more: nobody has told it
/// that what it waits for is over.
fn would_go_on(world: &mut World) -> Option<String> {
    world.rules.judged[12] += 1;
    let view = world.as_it_is();
    let now = stamp(world.now);
    for subject in subjects(&view) {
        let decision = decide(&view, &subject, now);
        let moves = |action: &&Action| match action {
            // Times in a sentence pass by themselves.
            Action::WriteUpgradeStatus { target, status } => {
                let before = view
                    .upgrades
                    .get(&target.key)
                    .and_then(|upgrade| upgrade.status.as_ref());
                before.is_none_or(|before| before.phase != status.phase || before.slots != status.slots)
            }
            // Whoever stands alone keeps the ledger there.
            Action::WriteControlPlaneStatus { target, status } => {
                let before = view
                    .control_planes
                    .get(&target.key)
                    .and_then(|group| group.status.as_ref());
                before.is_none_or(|before| (&before.in_flight, &before.slots) != (&status.in_flight, &status.slots))
            }
            Action::WriteWorkersStatus { target, status } => {
                let before = view.workers.get(&target.key).and_then(|group| group.status.as_ref());
                before.is_none_or(|before| (&before.in_flight, &before.slots) != (&status.in_flight, &status.slots))
            }
            Action::WriteNodeStatus { target, status, .. } => {
                let before = view
                    .node_upgrade(&target.key)
                    .and_then(|upgrade| upgrade.status.as_ref());
                before.is_none_or(|before| before.state != status.state)
            }
            _ => true,
        };
        if let Some(action) = decision.actions.iter().find(moves) {
            let name = action.name();
            return Some(format!(
                "{subject:?} waits, and whoever looked at it again would {name}"
            ));
        }
    }
    None
}

/// The phases in a word, for summaries.
pub fn words(world: &World) -> Vec<String> {
    let mut words: Vec<String> = world
        .store
        .upgrades
        .values()
        .map(|upgrade| {
            let phase = upgrade
                .status
                .as_ref()
                .and_then(|status| status.phase)
                .unwrap_or_default();
            if ended(upgrade) {
                phase.to_string()
            } else {
                format!("{phase}: {}", why(upgrade).unwrap_or_else(|| "?".to_owned()))
            }
        })
        .collect();
    if words.is_empty() {
        // One whose machine has left is nobody's any more.
        let is_there = |upgrade: &&Arc<NodeKubeadmUpgrade>| {
            let mut nodes = world.store.nodes.values();
            nodes.any(|node| node.uid.as_str() == upgrade.spec.node.uid)
        };
        for upgrade in world.store.node_upgrades.values().filter(is_there) {
            let state = upgrade
                .status
                .as_ref()
                .and_then(|status| status.state)
                .unwrap_or_default();
            words.push(state.to_string());
        }
    }
    if words.is_empty() {
        // It has made nothing, and says why.
        let conditions = groups_alone(&world.store).flat_map(|group| group.status.conditions);
        let progressing = conditions.filter(|condition| condition.type_ == ConditionType::Progressing.to_string());
        words.extend(progressing.map(|condition| condition.reason));
    }
    if words.is_empty() {
        words.push("nothing".to_owned());
    }
    words
}

fn ended(upgrade: &ClusterUpgrade) -> bool {
    let phase = upgrade.status.as_ref().and_then(|status| status.phase);
    matches!(phase, Some(Phase::Succeeded | Phase::Failed | Phase::Aborted))
}

fn unexplained(world: &World, upgrade: &ClusterUpgrade) -> Option<String> {
    let status = upgrade.status.as_ref();
    let phase = status.and_then(|status| status.phase).unwrap_or_default();
    if upgrade.metadata.deletion_timestamp.is_some() {
        return Some("it was deleted and is still there".to_owned());
    }
    match phase {
        Phase::Succeeded => not_at_target(world, upgrade),
        Phase::Failed | Phase::Aborted => {
            if why(upgrade).is_none() {
                return Some(format!("it is {phase} and does not say why"));
            }
            None
        }
        _ => match why(upgrade) {
            Some(_) => None,
            None => Some(format!(
                "it is in {phase} since {}, nothing is written any more, and nothing says what blocks it",
                clock(last(world))
            )),
        },
    }
}

fn last(world: &World) -> Millis {
    world.last_operator_write
}

/// What blocks an upgrade, in its own words: a condition with a reason, or a node that waits.
fn why(upgrade: &ClusterUpgrade) -> Option<String> {
    let status = upgrade.status.as_ref()?;
    let stalled = status.conditions.iter().find(|condition| {
        let holds = [ConditionType::Stalled, ConditionType::Paused];
        condition.status == "True" && holds.iter().any(|kind| *kind.to_string() == condition.type_)
    });
    if let Some(condition) = stalled {
        return (!condition.reason.is_empty() && !condition.message.is_empty()).then(|| condition.reason.clone());
    }
    if let Some(wait) = afloat_core::judge::first_wait(status) {
        return Some(wait.wait.reason.clone());
    }
    let ready = status
        .conditions
        .iter()
        .find(|condition| condition.type_ == ConditionType::Ready.to_string())?;
    let says = !ready.message.is_empty() && !matches!(ready.reason.as_str(), "" | "InProgress" | "NotStarted");
    (says || ended(upgrade)).then(|| ready.reason.clone())
}

/// At the target means: every machine runs it, but those that were set aside, which are named.
fn not_at_target(world: &World, upgrade: &ClusterUpgrade) -> Option<String> {
    let target: afloat_core::KubernetesVersion = upgrade.spec.kubernetes_version.parse().ok()?;
    let failed = upgrade
        .status
        .as_ref()
        .map(|status| status.failed.as_slice())
        .unwrap_or_default();
    for machine in world.machines.values() {
        let set_aside = failed.iter().any(|failure| failure.node == machine.name.as_str()) || undone(world, machine);
        let version = &machine.facts.kubelet_version;
        if *version < target && !set_aside && joined_before_end(world, upgrade, machine) {
            return Some(format!("it succeeded, but {} is at {version}", machine.name));
        }
    }
    None
}

/// A person had it undone, whatever has become of the object since.
fn undone(world: &World, machine: &super::machine::Machine) -> bool {
    let mut upgrades = world
        .store
        .node_upgrades
        .changes()
        .iter()
        .filter_map(|change| change.after.as_ref());
    upgrades.any(|upgrade| {
        let status = upgrade.status.as_ref();
        upgrade.spec.node.uid == machine.node_uid.as_str()
            && status.is_some_and(|status| status.state == Some(NodeState::RolledBack))
    })
}

/// A node that joined after the upgrade had ended is none of its business, nor is one of the last moment: who joined since the upgrade last
/// said something may not have been seen by anyone, and whoever looks once more only moves that moment. Nor is one that came in nobody's
/// place and after the newest that whoever ended the upgrade knew of any node: nothing told of it, and a watch that has nothing to tell
/// looks like one that is silent.
fn joined_before_end(world: &World, upgrade: &ClusterUpgrade, machine: &super::machine::Machine) -> bool {
    let key = upgrade.key();
    let told = world.store.upgrades.changes().iter().rev();
    let before_end = told
        .filter(|change| change.key == key)
        .find(|change| !change.after.as_deref().is_some_and(ended));
    let born = world.store.nodes.changes().iter().rev().find(|change| {
        let uid = |node: &Option<Arc<Node>>| node.as_ref().map(|node| node.uid.clone());
        change.key == machine.name && uid(&change.before) != uid(&change.after)
    });
    let mut of_name = world.store.nodes.changes().iter();
    let first = of_name.find(|change| change.key == machine.name);
    match (before_end, born) {
        (Some(before_end), Some(born)) => {
            let in_a_place = first.is_some_and(|first| first.revision < born.revision);
            let known = in_a_place || born.revision < world.rules.nodes_known_at_end(&key);
            known && born.revision < before_end.revision
        }
        _ => true,
    }
}

fn is_unowned(upgrade: &NodeKubeadmUpgrade) -> bool {
    upgrade.metadata.owner_references.as_ref().is_none_or(Vec::is_empty)
}

fn node_unexplained(upgrade: &NodeKubeadmUpgrade) -> Option<String> {
    let status = upgrade.status.as_ref()?;
    let state = status.state.unwrap_or_default();
    if upgrade.metadata.deletion_timestamp.is_some() {
        return Some(format!("it was deleted and is still there, in {state}"));
    }
    match state {
        // Nobody else says what it waits for.
        NodeState::Staged | NodeState::Pending if is_unowned(upgrade) && status.waiting_for.is_none() => {
            Some(format!("it stays in {state} and does not say what it waits for"))
        }
        NodeState::Succeeded | NodeState::RolledBack | NodeState::Staged | NodeState::Paused | NodeState::Pending => {
            None
        }
        NodeState::Failed => status
            .failure
            .is_none()
            .then(|| "it failed and does not say why".to_owned()),
        _ => status
            .waiting_for
            .is_none()
            .then(|| format!("it is in {state} for ever and does not say what it waits for")),
    }
}

/// A group that no ClusterUpgrade stands above.
struct GroupAlone {
    meta: ObjectMeta,
    paused: bool,
    status: GroupUpgradeStatus,
}

impl GroupAlone {
    fn uid(&self) -> &str {
        self.meta.uid.as_deref().unwrap_or_default()
    }

    /// Nobody of it is to go any more.
    fn over(&self) -> bool {
        self.status.ready || self.status.failed > 0
    }
}

fn groups_alone(store: &Store) -> impl Iterator<Item = GroupAlone> {
    let planes = store
        .control_planes
        .values()
        .map(|group| (&group.metadata, group.spec.paused, &group.status));
    let workers = store
        .workers
        .values()
        .map(|group| (&group.metadata, group.spec.paused, &group.status));
    let alone = |(meta, ..): &(&ObjectMeta, _, _)| meta.owner_references.as_ref().is_none_or(Vec::is_empty);
    planes
        .chain(workers)
        .filter(alone)
        .map(|(meta, paused, status)| GroupAlone {
            meta: meta.clone(),
            paused: paused == Some(true),
            status: status.clone().unwrap_or_default(),
        })
}

fn holds_lock(store: &Store, group: &GroupAlone) -> bool {
    let mut locks = store.locks.values();
    locks.any(|lock| lock.holder.as_str() == group.uid())
}

/// Every upgrade of a node that it has made is over; whoever waits for its lock waits for nothing that goes on.
fn has_nothing_open(store: &Store, group: &GroupAlone) -> bool {
    let is_open = |upgrade: &Arc<NodeKubeadmUpgrade>| {
        let owners = upgrade.metadata.owner_references.as_deref().unwrap_or_default();
        let state = upgrade.status.as_ref().and_then(|status| status.state);
        owners.iter().any(|owner| owner.uid == group.uid())
            && !matches!(
                state,
                Some(NodeState::Succeeded | NodeState::RolledBack | NodeState::Failed)
            )
    };
    !store.node_upgrades.values().any(is_open)
}

/// A group of its own is done, says what it waits for, or one of its nodes does.
fn group_unexplained(world: &World, group: &GroupAlone) -> Option<String> {
    let name = group.meta.name.as_deref().unwrap_or_default();
    if group.meta.deletion_timestamp.is_some() {
        return Some(format!("group {name} was deleted and is still there"));
    }
    let says = |condition: &Condition| condition.type_ == "Progressing" && condition.reason != "InProgress";
    if group.over() || group.status.conditions.iter().any(says) {
        return None;
    }
    let of_group = |upgrade: &&Arc<NodeKubeadmUpgrade>| {
        let owners = upgrade.metadata.owner_references.as_deref().unwrap_or_default();
        owners.iter().any(|owner| owner.uid == group.uid())
    };
    let mut nodes = world.store.node_upgrades.values().filter(of_group);
    let told = nodes.any(|upgrade| {
        let status = upgrade.status.as_ref();
        status.is_some_and(|status| status.waiting_for.is_some())
    });
    (!told).then(|| {
        format!(
            "group {name} does not go on (held: {}), and nothing says why",
            group.paused
        )
    })
}

/// The node could not be put back, and its object says so, or said so to its end: only a person can help. Nobody but that person
/// knows what the machine is good for, so that it stays cordoned also where the object was deleted.
fn given_up(world: &World, node_uid: &str) -> bool {
    let failed = |upgrade: &NodeKubeadmUpgrade| {
        let status = upgrade.status.as_ref();
        upgrade.spec.node.uid == node_uid && status.is_some_and(|status| status.state == Some(NodeState::Failed))
    };
    let table = &world.store.node_upgrades;
    let mut deleted = table.changes().iter().filter(|change| change.after.is_none());
    table.values().any(|upgrade| failed(upgrade))
        || deleted.any(|change| change.before.as_ref().is_some_and(|before| failed(before)))
}

/// Rule 7: what is over has left nothing behind.
fn left_behind(world: &mut World) {
    world.rules.judged[7] += 1;
    let going_on: Vec<String> = world
        .store
        .upgrades
        .values()
        .filter(|upgrade| !ended(upgrade))
        .filter_map(|upgrade| upgrade.metadata.uid.clone())
        .chain(
            groups_alone(&world.store)
                .filter(|group| !group.over())
                .map(|group| group.uid().to_owned()),
        )
        .collect();
    let alone: Vec<String> = world
        .store
        .node_upgrades
        .values()
        .filter(|upgrade| {
            let state = upgrade
                .status
                .as_ref()
                .and_then(|status| status.state)
                .unwrap_or_default();
            !matches!(state, NodeState::Succeeded | NodeState::RolledBack)
        })
        .map(|upgrade| afloat_core::settings::upgrade_uid(upgrade).to_string())
        .collect();
    let mut left = None;
    for node in world.store.nodes.values() {
        if let Some(by) = &node.cordoned_by
            && !given_up(world, node.uid.as_str())
            && !world
                .machines
                .get(&node.name)
                .is_some_and(|machine| machine.facts.working)
            && !going_on.iter().chain(&alone).any(|uid| uid == by.as_str())
        {
            left = Some(format!(
                "{} still says that an upgrade cordoned it, and that upgrade is over",
                node.name
            ));
        }
        if node.pause.as_deref() == Some("true") && going_on.is_empty() {
            left = Some(format!("{} is still paused for an upgrade that is over", node.name));
        } else if node.paused_by.is_some() && going_on.is_empty() {
            left = Some(format!(
                "{} still says that an upgrade paused it, and that is over",
                node.name
            ));
        }
    }
    left = lock_for_nothing(&world.store, &going_on).or(left);
    for machine in world.machines.values() {
        if machine.facts.powered && machine.facts.aside() {
            left = Some(format!("{} still stands aside", machine.name));
        }
    }
    if let Some(left) = left {
        world.rules.breaks(7, left);
    }
}

/// The lock of the cluster, where nobody needs it who has it.
fn lock_for_nothing(store: &Store, going_on: &[String]) -> Option<String> {
    let idle = |group: &GroupAlone| !group.paused && holds_lock(store, group) && has_nothing_open(store, group);
    if let Some(idle) = groups_alone(store).find(idle) {
        let name = idle.meta.name.unwrap_or_default();
        return Some(format!("group {name} has nothing in hand, and the lock of the cluster"));
    }
    let is_single = |upgrade: &Arc<NodeKubeadmUpgrade>, uid: &str| {
        let state = upgrade.status.as_ref().and_then(|status| status.state);
        let over = [NodeState::Succeeded, NodeState::RolledBack, NodeState::Failed];
        let is_over = state.is_some_and(|state| over.contains(&state));
        is_unowned(upgrade) && !is_over && upgrade.metadata.uid.as_deref() == Some(uid)
    };
    let is_needed = |holder: &str| {
        let mut single = store.node_upgrades.values();
        going_on.iter().any(|uid| uid == holder) || single.any(|upgrade| is_single(upgrade, holder))
    };
    let mut locks = store.locks.values();
    let left = locks.any(|lock| !is_needed(lock.holder.as_str()));
    left.then(|| "the lock of the cluster is still held by an upgrade that is over".to_owned())
}

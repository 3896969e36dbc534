//! Groups that stand alone: each with a ledger of its own, under the lock of the cluster, which is given back with nothing left in hand.

use std::sync::Arc;

use afloat_api::ControlPlaneKubeadmUpgrade;

use super::*;
use crate::explain::explain;
use crate::view::Lock;

/// The first group of control planes of an upgrade, without the upgrade above it, in a cluster of its own.
pub(super) fn control_planes_alone(planes: usize) -> (Table, Key) {
    let (mut table, _) = table(planes, 0, spec());
    table.stage_all();
    let mut group = table.view().control_planes.values().next().unwrap().as_ref().clone();
    group.metadata.owner_references = None;
    group.status = None;
    let mut alone = Table::new(Cluster::new(planes, 0, FROM).images(&[TO]));
    let key = crate::objects::key_of(&group.metadata);
    alone.cluster.view.control_planes.insert(key.clone(), Arc::new(group));
    (alone, key)
}

fn ledger(table: &Table, group: &Key) -> Vec<String> {
    let status = table.view().control_planes[group].status.clone().unwrap();
    status.slots.into_iter().map(|slot| slot.node).collect()
}

pub(super) fn says(table: &Table, group: &Key) -> String {
    let status = table.view().control_planes[group].status.clone().unwrap();
    let progressing = status.conditions.into_iter().find(|one| one.type_ == "Progressing");
    progressing.unwrap().message
}

/// An operator that starts anew reads its kinds from an API server that may lag behind, each by itself.
#[test]
fn p21_the_slot_of_a_group_alone_stays_where_an_old_view_does_not_show_who_holds_it() {
    let (mut table, group) = control_planes_alone(3);
    table.stage_all();
    table.becomes("cp-1", NodeState::Succeeded, None);
    table.stage_all();
    assert_eq!(ledger(&table, &group), ["cp-2"]);
    let now = table.view().clone();
    let old = NodeKubeadmUpgrade::clone(&table.node_upgrade("cp-2"));
    let key = crate::objects::key_of(&old.metadata);
    table.cluster.view.remove_node_upgrade(&key);
    table.cluster.view.node_upgrades_as_of = crate::view::Revision(0);
    let decision = table.decide(&Subject::ControlPlane(group.clone()));
    table.carry_out(&decision);
    assert_eq!(ledger(&table, &group), ["cp-2"], "two would be away at once");
    table.cluster.view = now;
    table.becomes("cp-2", NodeState::Succeeded, None);
    table.stage_all();
    assert_eq!(ledger(&table, &group), ["cp-3"]);
}

/// A machine dies with its slot, and people delete its upgrade and its Node: that it has left is certain only from nodes seen since.
#[test]
fn a_group_alone_asks_which_nodes_there_are_where_a_slot_hangs_on_it() {
    let (mut table, group) = control_planes_alone(3);
    table.stage_all();
    assert_eq!(ledger(&table, &group), ["cp-1"]);
    let of_first = crate::objects::key_of(&table.node_upgrade("cp-1").metadata);
    table.cluster.view.remove_node_upgrade(&of_first);
    table.cluster.view.nodes.remove("cp-1");
    table.cluster.view.nodes_as_of = crate::view::Revision(0);
    let decision = table.decide(&Subject::ControlPlane(group.clone()));
    assert!(
        decision.nodes_since.is_some() && decision.again.is_some(),
        "{decision:?}"
    );
    table.carry_out(&decision);
    assert_eq!(ledger(&table, &group), ["cp-1"]);
    table.cluster.view.nodes_as_of = crate::view::Revision(u64::MAX);
    let decision = table.decide(&Subject::ControlPlane(group.clone()));
    assert_eq!(decision.nodes_since, None);
    table.carry_out(&decision);
    assert!(!ledger(&table, &group).contains(&"cp-1".to_owned()));
}

#[test]
fn p21_of_two_groups_alone_one_goes_after_the_other() {
    let (mut table, first) = control_planes_alone(3);
    let mut other = ControlPlaneKubeadmUpgrade::clone(&table.view().control_planes[&first]);
    other.metadata.name = Some("other".to_owned());
    other.metadata.uid = Some("uid-other".to_owned());
    other.spec.machines_require_upgrade.remove(0);
    let planes = &mut table.cluster.view.control_planes;
    let of_first = Arc::make_mut(planes.get_mut(&first).unwrap());
    of_first.spec.machines_require_upgrade.truncate(1);
    let second = crate::objects::key_of(&other.metadata);
    planes.insert(second.clone(), Arc::new(other));
    table.stage_all();
    assert_eq!(table.going(), ["cp-1"]);
    assert!(ledger(&table, &second).is_empty());
    let said = says(&table, &second);
    assert!(said.contains("stands alone and is under way"), "{said}");
    table.becomes("cp-1", NodeState::Succeeded, None);
    table.stage_all();
    assert!(ledger(&table, &first).is_empty());
    assert_eq!(ledger(&table, &second).len(), 1);
    let holder = table.view().lock.clone().unwrap().holder;
    assert_eq!(holder.as_str(), "uid-other");
}

#[test]
fn a_group_alone_and_an_upgrade_do_not_go_at_once() {
    let (mut table, _) = table(3, 1, spec());
    table.stage_all();
    let mut group = table.view().control_planes.values().next().unwrap().as_ref().clone();
    group.metadata.owner_references = None;
    group.metadata.name = Some("alone".to_owned());
    group.metadata.uid = Some("uid-alone".to_owned());
    group.status = None;
    let alone = crate::objects::key_of(&group.metadata);
    table
        .cluster
        .view
        .control_planes
        .insert(alone.clone(), Arc::new(group.clone()));
    table.stage_all();
    assert!(ledger(&table, &alone).is_empty(), "the upgrade holds the lock");
    assert!(says(&table, &alone).contains("clusterupgrade/edge-1 is under way"));
    // The other way round: a group that has begun is waited for, and gives the lock back when it is done.
    let (mut table, group) = control_planes_alone(3);
    table.stage_all();
    let key_of_upgrade = table.upgrade("edge-2", spec());
    assert_eq!(ledger(&table, &group), ["cp-1"]);
    for node in ["cp-1", "cp-2", "cp-3"] {
        table.stage_all();
        assert!(table.slots(&key_of_upgrade).is_empty());
        let said = explain(table.view(), &key_of_upgrade, table.now).unwrap().to_string();
        assert!(said.contains("stands alone and is under way"), "{said}");
        table.becomes(node, NodeState::Succeeded, None);
    }
    table.settle();
    assert_eq!(table.view().lock, None, "nobody waits for a group that is done");
    assert_eq!(table.phase(&key_of_upgrade), Phase::Succeeded);
}

/// The control plane of a cluster is another one's to upgrade then; kubelets wait for it.
#[test]
fn workers_alone_are_not_made_newer_than_an_api_server() {
    let (mut of_upgrade, _) = table(1, 1, spec());
    of_upgrade.stage_all();
    let mut group = of_upgrade.view().workers.values().next().unwrap().as_ref().clone();
    group.metadata.owner_references = None;
    group.status = None;
    let mut table = Table::new(Cluster::new(1, 1, FROM).images(&[TO]));
    let key = crate::objects::key_of(&group.metadata);
    table.cluster.view.workers.insert(key.clone(), Arc::new(group));
    table.stage_all();
    assert_eq!(table.going(), Vec::<String>::new());
    let status = table.view().workers[&key].status.clone().unwrap();
    let said = &status.conditions[0].message;
    assert!(said.contains("newer than the API server of cp-1"), "{said}");
}

/// kubeadm's first call for a version is made on one of those that are there.
#[test]
fn p21_where_the_first_control_plane_has_left_another_goes_first() {
    let (mut table, group) = control_planes_alone(4);
    table.cluster.view.nodes.remove("cp-1");
    table.stage_all();
    assert_eq!(table.going(), ["cp-2"]);
    assert_eq!(table.node_upgrade("cp-2").spec.role, NodeRole::FirstControlPlane);
    assert_eq!(table.node_upgrade("cp-3").spec.role, NodeRole::ControlPlane);
    assert_eq!(ledger(&table, &group), ["cp-2"]);

    // It leaves when the others' upgrades are made already: a person is told how another one becomes the first.
    let (mut table, group) = control_planes_alone(4);
    table.cluster.node("cp-1", |node| node.pause = Some("true".into()));
    table.stage_all();
    table.cluster.view.nodes.remove("cp-1");
    table.becomes("cp-1", NodeState::Failed, Some(Reason::ObjectGone));
    table.stage_all();
    assert_eq!(table.going(), Vec::<String>::new());
    let name = table.node_upgrade("cp-2").metadata.name.unwrap();
    let said = says(&table, &group);
    assert!(said.contains(&format!("delete nodekubeadmupgrade {name}")), "{said}");
    let of_second = crate::objects::key_of(&table.node_upgrade("cp-2").metadata);
    table.cluster.view.remove_node_upgrade(&of_second);
    table.stage_all();
    assert_eq!(table.going(), ["cp-2"]);
    assert_eq!(table.node_upgrade("cp-2").spec.role, NodeRole::FirstControlPlane);
}

/// The first group of workers of an upgrade, without the upgrade above it, in a cluster whose control plane is there already.
pub(super) fn workers_alone(workers: usize) -> (Table, Key) {
    let (mut table, _) = table(1, workers, spec());
    table.stage_all();
    let mut group = table.view().workers.values().next().unwrap().as_ref().clone();
    group.metadata.owner_references = None;
    group.status = None;
    let mut alone = Table::new(Cluster::new(1, workers, FROM).images(&[TO]));
    alone.cluster.upgrade("cp-1", TO);
    let key = crate::objects::key_of(&group.metadata);
    alone.cluster.view.workers.insert(key.clone(), Arc::new(group));
    (alone, key)
}

fn slots_of_workers(table: &Table, group: &Key) -> Vec<String> {
    let status = table.view().workers[group].status.clone().unwrap_or_default();
    status.slots.into_iter().map(|slot| slot.node).collect()
}

/// What the message of whoever waits tells people to do.
#[test]
fn a_group_alone_that_is_deleted_puts_its_node_back_before_another_has_the_lock() {
    let (mut table, group) = control_planes_alone(3);
    table.stage_all();
    assert_eq!(table.going(), ["cp-1"]);
    let next = table.upgrade("edge-2", spec());
    table.stage_all();
    let planes = &mut table.cluster.view.control_planes;
    let held = planes[&group].metadata.finalizers.clone();
    assert!(held.is_some_and(|held| !held.is_empty()), "it would be gone at once");
    let deleted = Arc::make_mut(planes.get_mut(&group).unwrap());
    deleted.metadata.deletion_timestamp = Some(Time(table.now));
    deleted.metadata.generation = Some(7);
    table.stage_all();
    let desired = |table: &Table| table.node_upgrade("cp-1").spec.desired;
    assert_eq!(desired(&table), DesiredNodeState::RolledBack);
    assert!(table.slots(&next).is_empty(), "cp-1 is in hand");
    assert!(
        table.view().control_planes.contains_key(&group),
        "it has a node in hand"
    );
    table.becomes("cp-1", NodeState::RolledBack, Some(Reason::Aborted));
    table.stage_all();
    assert!(!table.view().control_planes.contains_key(&group));
    let holder = table.view().lock.clone().map(|lock| lock.holder.to_string());
    assert_eq!(holder.as_deref(), Some("edge-2-uid"));
}

#[test]
fn a_group_alone_that_is_deleted_before_it_began_is_gone() {
    let (mut table, group) = control_planes_alone(3);
    table.cluster.node("cp-1", |node| node.pause = Some("true".into()));
    table.stage_all();
    let planes = &mut table.cluster.view.control_planes;
    let deleted = Arc::make_mut(planes.get_mut(&group).unwrap());
    deleted.metadata.finalizers = Some(vec![afloat_api::names::FINALIZER.to_owned()]);
    deleted.metadata.deletion_timestamp = Some(Time(table.now));
    table.settle();
    assert!(!table.view().control_planes.contains_key(&group));
}

/// It drains the node once more, as upgrading it did.
#[test]
fn undoing_a_node_of_a_group_alone_needs_a_slot_and_the_lock() {
    let (mut table, group) = workers_alone(2);
    for node in ["worker-1", "worker-2"] {
        table.stage_all();
        assert_eq!(slots_of_workers(&table, &group), [node]);
        table.becomes(node, NodeState::Succeeded, None);
    }
    table.settle();
    assert_eq!(table.view().lock, None);
    let other = Lock {
        target: crate::view::Target {
            key: Key::new("afloat-system", "afloat-upgrade"),
            uid: "lock".into(),
            revision: crate::view::Revision(7),
        },
        holder: "somebody".into(),
    };
    table.cluster.view.lock = Some(other);
    table.wish("worker-1", Wish::Rollback);
    table.settle();
    let desired = |table: &Table| table.node_upgrade("worker-1").spec.desired;
    assert_eq!(desired(&table), DesiredNodeState::Upgraded, "another has the cluster");
    let status = table.view().workers[&group].status.clone().unwrap();
    let said = &status.conditions[0].message;
    assert!(said.contains("worker-1") && said.contains("lock"), "{said}");
    table.cluster.view.lock = None;
    table.settle();
    assert_eq!(slots_of_workers(&table, &group), ["worker-1"]);
    assert_eq!(desired(&table), DesiredNodeState::RolledBack);
    table.becomes("worker-1", NodeState::RolledBack, Some(Reason::RolledBack));
    table.settle();
    assert!(slots_of_workers(&table, &group).is_empty());
    assert_eq!(table.view().lock, None, "nobody waits for a group that is done");
}

/// Its watch of the lock is behind: the group gave it back when it was done, somebody else has it, and a node of the group is to go again.
#[test]
fn a_group_alone_grants_nothing_upon_a_lock_that_it_has_given_back() {
    let (mut table, group) = workers_alone(2);
    table.stage_all();
    let then = table.view().lock.clone();
    for node in ["worker-1", "worker-2"] {
        table.stage_all();
        table.becomes(node, NodeState::Succeeded, None);
    }
    table.settle();
    assert_eq!(table.view().lock, None);
    let upgrade = table.node_upgrade("worker-2");
    table
        .cluster
        .view
        .remove_node_upgrade(&crate::objects::key_of(&upgrade.metadata));
    table.cluster.view.lock = Some(Lock {
        holder: "somebody".into(),
        ..then.clone().unwrap()
    });
    table.stage_all();
    let now = table.view().lock.clone();
    table.cluster.view.lock = then;
    let decision = table.decide(&Subject::Workers(group.clone()));
    table.cluster.view.lock = now;
    table.carry_out(&decision);
    assert!(slots_of_workers(&table, &group).is_empty(), "{:?}", decision.actions);
}

#[test]
fn a_group_alone_that_is_held_says_so() {
    let (mut table, group) = workers_alone(2);
    let held = Arc::make_mut(table.cluster.view.workers.get_mut(&group).unwrap());
    held.spec.paused = Some(true);
    table.stage_all();
    let status = table.view().workers[&group].status.clone().unwrap();
    let progressing = status.conditions.iter().find(|one| one.type_ == "Progressing");
    let progressing = progressing.unwrap();
    assert_eq!(progressing.reason, "PausedByUser");
    assert!(progressing.message.contains("spec.paused"), "{}", progressing.message);
}

/// An old view shows the slot it had, while its place is another's.
#[test]
fn the_slot_of_the_upgrade_itself_is_no_leave_to_undo_it_in_a_group_alone() {
    let (mut table, group) = workers_alone(2);
    table.stage_all();
    assert_eq!(slots_of_workers(&table, &group), ["worker-1"]);
    table.becomes("worker-1", NodeState::Succeeded, None);
    table.wish("worker-1", Wish::Rollback);
    let decision = table.decide(&Subject::Workers(group.clone()));
    let told = |decision: &crate::action::Decision| {
        let mut actions = decision.actions.iter();
        actions.any(|action| matches!(action, Action::SetDesired { .. }))
    };
    assert!(!told(&decision), "{:?}", decision.actions);
    table.carry_out(&decision);
    table.settle();
    assert_eq!(
        table.node_upgrade("worker-1").spec.desired,
        DesiredNodeState::RolledBack
    );
}

/// A replica that had not seen it done has taken the lock once more.
#[test]
fn a_group_alone_that_is_done_gives_back_a_lock_that_comes_late() {
    let (mut table, group) = workers_alone(1);
    table.stage_all();
    let late = table.view().lock.clone();
    table.becomes("worker-1", NodeState::Succeeded, None);
    table.settle();
    assert_eq!(table.view().lock, None);
    table.cluster.view.lock = late.map(|mut lock| {
        lock.target.revision = crate::view::Revision(u64::MAX);
        lock
    });
    let concerned = crate::subject::affected(table.view(), &crate::Changed::Lock);
    assert!(concerned.contains(&Subject::Workers(group)));
    table.settle();
    assert_eq!(table.view().lock, None);
}

/// Looked at once more from the action alone, as for an upgrade of the whole cluster.
#[test]
fn what_a_group_alone_must_not_do_does_not_leave_the_core() {
    let broken = |table: &Table, action: &Action| {
        let checked = crate::invariants::check(table.view(), action, table.now);
        checked.err().map(|violation| violation.rule)
    };
    let (mut table, group) = workers_alone(3);
    table.stage_all();
    let goes = |table: &Table, node: &str| Action::SetDesired {
        target: crate::objects::target_of(&table.node_upgrade(node).metadata),
        desired: DesiredNodeState::Upgraded,
        attempt: 1,
        because: None,
    };
    assert_eq!(slots_of_workers(&table, &group), ["worker-1"]);
    assert_eq!(broken(&table, &goes(&table, "worker-1")), None);
    assert_eq!(broken(&table, &goes(&table, "worker-2")), Some(1), "it has no slot");

    let of_group = Arc::clone(&table.view().workers[&group]);
    let mut status = of_group.status.clone().unwrap();
    let second = table.node_upgrade("worker-2");
    status.slots.push(crate::objects::Standing::of(&second).slot(table.now));
    let grants = Action::WriteWorkersStatus {
        target: crate::objects::target_of(&of_group.metadata),
        status: Box::new(status),
    };
    assert_eq!(broken(&table, &grants), Some(1), "one of them may be away");
    let wider = Arc::make_mut(table.cluster.view.workers.get_mut(&group).unwrap());
    wider.spec.max_concurrent = Some(2);
    assert_eq!(broken(&table, &grants), None);
    let held = Arc::make_mut(table.cluster.view.workers.get_mut(&group).unwrap());
    held.spec.paused = Some(true);
    assert_eq!(broken(&table, &grants), Some(6));
}

/// More machines than things are brought to at once: it had the lock and gave it back in turns, and what was being brought was void.
#[test]
fn a_large_group_alone_of_which_one_failed_gives_the_lock_back_once_nothing_is_being_brought() {
    let (mut table, group) = workers_alone(30);
    table.settle();
    assert!(table.view().lock.is_some());
    let first: Vec<String> = table.pending();
    assert_eq!(first.len(), 10);
    table.becomes(&first[0], NodeState::Staged, None);
    for node in &first[1..] {
        table.becomes(node, NodeState::Staging, None);
    }
    table.settle();
    assert_eq!(slots_of_workers(&table, &group), [first[0].as_str()]);
    table.becomes(&first[0], NodeState::Failed, Some(Reason::StepFailed));
    table.becomes(&first[0], NodeState::RolledBack, Some(Reason::StepFailed));
    table.settle();
    let there = table.view().node_upgrades().len();
    assert!(table.view().lock.is_some(), "pods of its are at work on nine machines");
    for node in &first[1..] {
        table.becomes(node, NodeState::Staged, None);
    }
    table.settle();
    assert_eq!(table.view().lock, None);
    assert_eq!(table.view().node_upgrades().len(), there, "nobody else is to go");
}

#[test]
fn a_group_alone_that_is_done_does_not_speak_of_its_pause() {
    let (mut table, group) = workers_alone(2);
    for node in ["worker-1", "worker-2"] {
        table.stage_all();
        table.becomes(node, NodeState::Succeeded, None);
    }
    table.settle();
    let said = |table: &Table| {
        let status = table.view().workers[&group].status.clone().unwrap();
        let ready = status.conditions.into_iter().find(|one| one.type_ == "Ready");
        ready.unwrap().message
    };
    let done = said(&table);
    Arc::make_mut(table.cluster.view.workers.get_mut(&group).unwrap())
        .spec
        .paused = Some(true);
    table.settle();
    assert_eq!(said(&table), done);
}

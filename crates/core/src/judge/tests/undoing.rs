//! What a person asks for a node afterwards, or in between: undoing and putting off.

use std::sync::Arc;

use afloat_api::clusterupgrade::Gate;

use super::*;
use crate::explain::explain;
use crate::view::GateState;

#[test]
fn a_worker_can_be_undone_afterwards_within_a_slot() {
    let (mut table, key) = table(1, 2, spec());
    table.run(&key);
    table.wish("worker-1", Wish::Rollback);
    table.settle();
    assert_eq!(table.slot_nodes(&key), ["worker-1"]);
    assert_eq!(
        table.node_upgrade("worker-1").spec.desired,
        DesiredNodeState::RolledBack
    );
    table.becomes("worker-1", NodeState::RolledBack, Some(Reason::RolledBack));
    table.settle();
    assert!(table.slots(&key).is_empty());
    assert_eq!(table.phase(&key), Phase::Succeeded);
}

#[test]
fn a_control_plane_is_not_undone_once_a_worker_has_started() {
    let (mut table, key) = table(1, 2, spec());
    table.run(&key);
    table.wish("cp-1", Wish::Rollback);
    table.settle();
    assert_eq!(table.view().nodes["cp-1"].wish, None, "heard and refused");
    assert_eq!(table.node_upgrade("cp-1").spec.desired, DesiredNodeState::Upgraded);
    assert!(table.slots(&key).is_empty());
}

/// A worker that began first would make it too late, and the person had asked in time.
#[test]
fn a_control_plane_that_a_person_wants_undone_goes_before_anybody_else() {
    let (mut table, key) = table(3, 1, spec());
    for node in ["cp-1", "cp-2"] {
        table.stage_all();
        assert_eq!(table.slot_nodes(&key), [node]);
        table.becomes(node, NodeState::Succeeded, None);
    }
    table.stage_all();
    table.wish("cp-2", Wish::Rollback);
    table.settle();
    assert_eq!(table.slot_nodes(&key), ["cp-3"], "who is at work is not put off");
    table.becomes("cp-3", NodeState::Succeeded, None);
    table.settle();
    let slots = table.slots(&key);
    assert_eq!(table.slot_nodes(&key), ["cp-2"]);
    assert!(slots[0].undoing);
    assert_eq!(table.node_upgrade("cp-2").spec.desired, DesiredNodeState::RolledBack);
    assert_eq!(table.node_upgrade("worker-1").spec.desired, DesiredNodeState::Staged);
}

#[test]
fn an_undoing_waits_for_the_upgrade_that_is_at_work() {
    let mut table = Table::new(Cluster::new(1, 2, FROM).images(&[TO, "v1.37.1"]));
    let first = table.upgrade("edge-1", spec());
    table.run(&first);
    let next = ClusterUpgradeSpec {
        kubernetes_version: "v1.37.1".to_owned(),
        ..spec()
    };
    let second = table.upgrade("edge-2", next);
    table.stage_all();
    assert_eq!(table.slot_nodes(&second), ["cp-1"]);
    // The wish is about the first upgrade's node; the second one's has not begun.
    table.wish("worker-1", Wish::Rollback);
    let decision = table.decide(&Subject::Upgrade(first.clone()));
    table.carry_out(&decision);
    assert!(table.slots(&first).is_empty(), "two ledgers would each grant");
}

#[test]
fn p32_an_undoing_that_waits_for_the_lock_says_who_has_it_since_when_and_what_ends_that() {
    let mut table = Table::new(Cluster::new(1, 2, FROM).images(&[TO, "v1.37.1"]));
    let first = table.upgrade("edge-1", spec());
    table.run(&first);
    let next = ClusterUpgradeSpec {
        kubernetes_version: "v1.37.1".to_owned(),
        ..spec()
    };
    let second = table.upgrade("edge-2", next);
    // It has the lock, and no node of it has an object yet.
    for _ in 0..4 {
        let decision = table.decide(&Subject::Upgrade(second.clone()));
        table.carry_out(&decision);
    }
    table.wish("worker-1", Wish::Rollback);
    let decision = table.decide(&Subject::Upgrade(first.clone()));
    table.carry_out(&decision);
    assert!(table.slots(&first).is_empty());
    let waits = |table: &Table| table.view().upgrades[&first].status.clone().unwrap().waiting;
    let waiting = waits(&table);
    assert_eq!(waiting.len(), 1, "{waiting:?}");
    let wait = &waiting[0];
    assert_eq!(
        (&*wait.node, &*wait.wait.reason),
        ("worker-1", "WaitingForOtherUpgrade")
    );
    assert!(
        wait.wait.message.contains("clusterupgrade/edge-2 is under way"),
        "{wait:?}"
    );
    table.now += jiff::SignedDuration::from_secs(90);
    let said = explain(table.view(), &first, table.now).unwrap().to_string();
    let expected = "\
undoing worker-1 of edge-1 waits since 1m30s, because
  clusterupgrade/edge-2 has the lock of the cluster since 1m30s, because
    it is in Prepare: 0/3 nodes done
Any one of these frees it:
  afloat explain edge-2      says what it waits for; it gives the lock back when it ends
  afloat abort edge-2        ends it after putting back what it has in hand
";
    assert_eq!(said, expected);
    // Without it nothing is left to wait for.
    table.edit(&second, |upgrade| upgrade.spec.abort = Some(true));
    table.settle();
    assert_eq!(table.slot_nodes(&first), ["worker-1"]);
    assert_eq!(waits(&table), []);
}

/// Its watch of the lock is behind: it gave it back at its end, and another upgrade has it.
#[test]
fn an_undoing_is_not_granted_upon_a_lock_that_was_given_back() {
    let (mut table, key) = table(1, 2, spec());
    table.stage_all();
    let then = table.view().lock.clone();
    table.run(&key);
    assert_eq!(table.view().lock, None);
    table.wish("worker-1", Wish::Rollback);
    table.cluster.view.lock.clone_from(&then);
    let decision = table.decide(&Subject::Upgrade(key.clone()));
    table.cluster.view.lock = then.map(|lock| crate::view::Lock {
        holder: "somebody".into(),
        ..lock
    });
    table.carry_out(&decision);
    assert!(table.slots(&key).is_empty(), "{:?}", decision.actions);
}

#[test]
fn an_undoing_waits_for_the_budget() {
    let (mut table, key) = table(1, 3, spec());
    table.run(&key);
    table.cluster.node("worker-3", |node| node.ready.ready = false);
    table.wish("worker-1", Wish::Rollback);
    table.settle();
    assert!(table.slots(&key).is_empty(), "worker-3 is the one that may be away");
    table.cluster.node("worker-3", |node| node.ready.ready = true);
    table.settle();
    assert_eq!(table.slot_nodes(&key), ["worker-1"]);
}

/// Undoing drains a node as upgrading it did: a gate that holds the one holds the other, and says so.
#[test]
fn an_undoing_waits_for_a_gate_of_the_person() {
    let gate = Gate {
        name: "shop-is-quiet".to_owned(),
        ..Gate::default()
    };
    let gated = ClusterUpgradeSpec {
        gates: vec![gate],
        ..spec()
    };
    let (mut table, key) = table(1, 2, gated);
    let says = |table: &mut Table, open: bool| {
        let name = (key.clone(), std::sync::Arc::from("shop-is-quiet"));
        let message = std::sync::Arc::from("the shop is busy");
        table.cluster.view.gates.insert(name, GateState { open, message });
    };
    says(&mut table, true);
    table.stage_all();
    table.becomes("cp-1", NodeState::Succeeded, None);
    table.stage_all();
    table.becomes("worker-1", NodeState::Succeeded, None);
    says(&mut table, false);
    table.stage_all();
    table.wish("worker-1", Wish::Rollback);
    table.settle();
    assert!(table.slots(&key).is_empty(), "the gate is closed");
    let status = table.view().upgrades[&key].status.clone().unwrap();
    let waits: Vec<&str> = status.waiting.iter().map(|wait| wait.node.as_str()).collect();
    assert!(waits.contains(&"worker-1"), "{waits:?}");
    says(&mut table, true);
    table.settle();
    assert_eq!(table.slot_nodes(&key), ["worker-2"], "whose turn it is");
    table.becomes("worker-2", NodeState::Succeeded, None);
    table.settle();
    assert_eq!(table.slot_nodes(&key), ["worker-1"]);
}

#[test]
fn the_slot_of_an_undoing_stays_while_the_node_was_not_told() {
    let (mut table, key) = table(1, 2, spec());
    table.run(&key);
    table.wish("worker-1", Wish::Rollback);
    let subject = Subject::Upgrade(key.clone());
    for _ in 0..3 {
        table.now += jiff::SignedDuration::from_secs(1);
        let decision = table.decide(&subject);
        table.carry_out(&decision);
    }
    assert_eq!(table.slot_nodes(&key), ["worker-1"]);
    table.now += jiff::SignedDuration::from_secs(1);
    assert!(
        table.decide(&subject).actions.is_empty(),
        "nothing changes until the group's turn"
    );
}

/// A replica that had not seen the machine leave has granted it.
#[test]
fn the_slot_of_an_undoing_goes_with_a_machine_that_was_not_told() {
    let (mut table, key) = table(1, 2, spec());
    table.run(&key);
    table.wish("worker-1", Wish::Rollback);
    let judge = Subject::Upgrade(key.clone());
    let decision = table.decide(&judge);
    table.carry_out(&decision);
    assert_eq!(table.slot_nodes(&key), ["worker-1"]);
    table.cluster.node("worker-1", |node| {
        node.uid = "another machine".into();
        node.wish = None;
    });
    let seen = std::mem::replace(&mut table.cluster.view.nodes_as_of, crate::view::Revision(1));
    assert_eq!(table.decide(&judge).actions, [], "a view from before proves nothing");
    table.cluster.view.nodes_as_of = seen;
    table.settle();
    assert!(table.slots(&key).is_empty());
    assert_eq!(table.view().lock, None);
}

#[test]
fn a_wish_that_stays_on_the_node_is_not_heard_twice() {
    let (mut table, _) = table(1, 3, spec());
    table.stage_all();
    for _ in 0..3 {
        table.wish("worker-2", Wish::Defer);
        table.settle();
    }
    assert_eq!(table.node_upgrade("worker-2").spec.attempt, 2);
}

#[test]
fn the_slot_of_the_upgrade_itself_is_no_leave_to_undo_it() {
    let (mut table, key) = table(1, 2, spec());
    table.stage_all();
    table.becomes("cp-1", NodeState::Succeeded, None);
    table.stage_all();
    assert_eq!(table.slot_nodes(&key), ["worker-1"]);
    table.becomes("worker-1", NodeState::Succeeded, None);
    table.wish("worker-1", Wish::Rollback);
    // An old view shows the slot still, while its place may be another's.
    let workers = table.view().workers.keys().next().unwrap().clone();
    let decision = table.decide(&Subject::Workers(workers));
    assert!(
        !decision
            .actions
            .iter()
            .any(|action| matches!(action, Action::SetDesired { .. }))
    );
    let decision = table.decide(&Subject::Upgrade(key.clone()));
    table.carry_out(&decision);
    let undoing: Vec<bool> = table.slots(&key).iter().map(|slot| slot.undoing).collect();
    assert_eq!(undoing, [true], "the judge has turned it into one");
    table.settle();
    assert_eq!(
        table.node_upgrade("worker-1").spec.desired,
        DesiredNodeState::RolledBack
    );
}

#[test]
fn of_several_hops_the_last_is_undone() {
    let far = ClusterUpgradeSpec {
        kubernetes_version: "v1.37.1".to_owned(),
        ..spec()
    };
    let mut table = Table::new(Cluster::new(3, 0, FROM).images(&[TO, "v1.37.1"]));
    let key = table.upgrade("edge-1", far);
    table.run(&key);
    table.wish("cp-3", Wish::Rollback);
    table.settle();
    let versions: Vec<String> = table.slots(&key).into_iter().map(|slot| slot.version).collect();
    assert_eq!(versions, ["v1.37.1"]);
}

#[test]
fn a_control_plane_is_not_undone_beneath_a_kubelet_that_has_joined_since() {
    let (mut table, key) = table(3, 1, spec());
    table.stage_all();
    table.becomes("cp-1", NodeState::Succeeded, None);
    let mut upgrade = table.node_upgrade("cp-1");
    upgrade.status.as_mut().unwrap().before = Some(afloat_api::kubeadm::NodeBefore {
        kubelet_version: FROM.to_owned(),
        ..afloat_api::kubeadm::NodeBefore::default()
    });
    let standing = crate::objects::Standing::of(&upgrade);
    assert_eq!(crate::judge::undo_refused(table.view(), standing), None);
    table
        .cluster
        .node("worker-1", |node| node.kubelet_version = Some(TO.parse().unwrap()));
    let why = crate::judge::undo_refused(table.view(), standing).unwrap();
    assert!(why.contains("worker-1"), "{why}");
    assert!(table.phase(&key) != Phase::Failed);
}

#[test]
fn k2_the_first_control_plane_goes_back_last_since_the_clusters_configuration_goes_with_it() {
    let (mut table, key) = table(3, 0, spec());
    table.run(&key);
    let refused = |table: &Table, node: &str| {
        let upgrade = table.node_upgrade(node);
        crate::judge::undo_refused(table.view(), crate::objects::Standing::of(&upgrade))
    };
    let why = refused(&table, "cp-1").unwrap();
    assert!(why.contains("help: afloat rollback cp-2"), "{why}");
    for other in ["cp-3", "cp-2"] {
        assert_eq!(refused(&table, other), None);
        assert!(refused(&table, "cp-1").is_some(), "{other} is still at the new version");
        table.becomes(other, NodeState::RolledBack, None);
    }
    assert_eq!(refused(&table, "cp-1"), None);
}

#[test]
fn the_slot_of_an_undoing_outlives_the_wish_and_is_enough_to_tell_the_node() {
    let (mut table, key) = table(1, 2, spec());
    table.run(&key);
    table.wish("worker-1", Wish::Rollback);
    let judge = Subject::Upgrade(key.clone());
    let decision = table.decide(&judge);
    table.carry_out(&decision);
    assert_eq!(table.slot_nodes(&key), ["worker-1"]);
    // The node was told and the wish taken off; an operator that starts anew sees the latter only.
    table.cluster.node("worker-1", |node| node.wish = None);
    table.now += jiff::SignedDuration::from_secs(1);
    let decision = table.decide(&judge);
    table.carry_out(&decision);
    assert_eq!(table.slot_nodes(&key), ["worker-1"], "it may be draining by now");
    table.settle();
    assert_eq!(
        table.node_upgrade("worker-1").spec.desired,
        DesiredNodeState::RolledBack
    );
    table.becomes("worker-1", NodeState::RolledBack, None);
    table.settle();
    assert!(table.slots(&key).is_empty());
}

#[test]
fn a_node_that_has_the_slot_to_be_undone_is_told_also_when_its_next_hop_has_heard_the_wish() {
    let (mut table, key) = table(1, 2, spec());
    table.run(&key);
    table.wish("worker-1", Wish::Rollback);
    let decision = table.decide(&Subject::Upgrade(key.clone()));
    table.carry_out(&decision);
    let (holder, told) = table.view().node_upgrades_of("worker-1").next().unwrap();
    let (holder, mut next) = (holder.clone(), NodeKubeadmUpgrade::clone(told));
    // Made by a group of the next hop while the slot was given.
    next.metadata.name = Some("worker-1-next".to_owned());
    next.metadata.uid = Some("next".to_owned());
    next.metadata.creation_timestamp = Some(Time(table.now));
    next.metadata.owner_references = None;
    next.spec.desired = DesiredNodeState::RolledBack;
    next.status.as_mut().unwrap().state = Some(NodeState::RolledBack);
    let beside = Key::new(&holder.namespace, "worker-1-next");
    table.cluster.view.put_node_upgrade(beside, Arc::new(next));
    table.cluster.node("worker-1", |node| node.wish = None);
    table.settle();
    let undone = table.view().node_upgrade(&holder).unwrap();
    assert_eq!(undone.spec.desired, DesiredNodeState::RolledBack);
}

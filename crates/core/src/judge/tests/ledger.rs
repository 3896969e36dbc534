//! Slots: recorded first, one for each node, given back on evidence, and never beside another ledger.

use super::*;
use crate::settings::upgrade_uid;
use crate::view::Component;

#[test]
fn the_slot_is_recorded_before_the_node_is_let_go() {
    let (mut table, key) = table(3, 1, spec());
    table.stage_all();
    let first_slot = table.done.iter().rposition(|name| *name == "write-upgrade-status");
    let let_go = table.done.iter().position(|name| *name == "set-desired");
    assert!(first_slot < let_go, "{:?}", table.done);
    assert_eq!(table.slot_nodes(&key), ["cp-1"]);
}

#[test]
fn a_machine_that_left_gives_its_slot_back_once_that_is_certain() {
    let (mut table, key) = table(1, 2, spec());
    table.stage_all();
    table.becomes("cp-1", NodeState::Succeeded, None);
    table.stage_all();
    let upgrade = table.node_upgrade("worker-1");
    table
        .cluster
        .view
        .remove_node_upgrade(&crate::objects::key_of(&upgrade.metadata));
    table.cluster.view.nodes.remove("worker-1");
    table.cluster.view.nodes_as_of = crate::view::Revision(1);
    let decision = table.decide(&Subject::Upgrade(key.clone()));
    let kept = decision.actions.iter().all(|action| match action {
        Action::WriteUpgradeStatus { status, .. } => status.slots.iter().any(|slot| slot.node == "worker-1"),
        _ => true,
    });
    assert!(kept, "a view from before the slot proves nothing");
    let written = crate::objects::target_of(&table.view().upgrades[&key].metadata).revision;
    assert_eq!(decision.nodes_since, Some(written), "nothing else may ever tell");
    assert_eq!(table.run(&key).concat(), ["worker-2"]);
    assert_eq!(table.phase(&key), Phase::Succeeded);
}

/// An operator that starts from an old view does not see a machine that has joined since, and holds a slot.
#[test]
fn the_slot_of_a_machine_that_is_not_seen_counts() {
    let (mut table, key) = table(1, 3, spec());
    table.stage_all();
    table.becomes("cp-1", NodeState::Succeeded, None);
    table.stage_all();
    assert_eq!(table.slot_nodes(&key), ["worker-1"]);
    table.cluster.view.nodes.remove("worker-1");
    table.cluster.view.nodes_as_of = crate::view::Revision(1);
    let decision = table.decide(&Subject::Upgrade(key.clone()));
    table.carry_out(&decision);
    assert_eq!(table.slot_nodes(&key), ["worker-1"], "two would be away at once");
}

#[test]
fn a_node_whose_slot_is_recorded_gets_no_second_one() {
    let (mut table, key) = table(1, 3, budget(2, 0));
    for other in ["worker-2", "worker-3"] {
        table
            .cluster
            .node(other, |node| node.pause = Some("a person looks at it".into()));
    }
    table.stage_all();
    table.becomes("cp-1", NodeState::Succeeded, None);
    let subject = Subject::Upgrade(key.clone());
    // The groups have no turn: the ledger says who goes, and nobody was let go.
    for _ in 0..3 {
        let decision = table.decide(&subject);
        table.carry_out(&decision);
        table.cluster.node("worker-1", |node| node.ready.ready = false);
    }
    assert_eq!(table.slot_nodes(&key), ["worker-1"]);
}

/// The list of slots is a map by name, and a second entry would be refused.
#[test]
fn a_machine_gets_no_slot_beside_that_of_its_successor() {
    let (mut table, key) = table(1, 2, budget(2, 0));
    table.stage_all();
    table.becomes("cp-1", NodeState::Succeeded, None);
    table
        .cluster
        .node("worker-2", |node| node.pause = Some("a person looks at it".into()));
    table.stage_all();
    // What is seen of nodes and their upgrades is from before worker-1 was replaced; the ledger is not.
    table.edit(&key, |upgrade| {
        let slots = &mut upgrade.status.as_mut().unwrap().slots;
        slots[0].node_uid = "its-successor".to_owned();
        slots[0].holder = "the-upgrade-of-its-successor".to_owned();
    });
    table.cluster.view.nodes_as_of = crate::view::Revision(0);
    let decision = table.decide(&Subject::Upgrade(key.clone()));
    table.carry_out(&decision);
    assert_eq!(table.slot_nodes(&key), ["worker-1"]);
}

#[test]
fn a_worker_that_breaks_beside_the_one_in_hand_is_not_taken_in_hand_as_well() {
    let (mut table, key) = table(1, 3, spec());
    table.stage_all();
    table.becomes("cp-1", NodeState::Succeeded, None);
    table.stage_all();
    assert_eq!(table.slot_nodes(&key), ["worker-1"]);
    table.cluster.node("worker-2", |node| node.unschedulable = true);
    table.settle();
    assert_eq!(
        table.slot_nodes(&key),
        ["worker-1"],
        "once it is back, two would be away by our hand"
    );
}

/// An old view may show our own cordon of an attempt that is over: the node is in service, and would be one too many.
#[test]
fn a_worker_that_we_cordoned_ourselves_is_not_out_of_service_already() {
    let (mut table, key) = table(1, 3, spec());
    table.stage_all();
    table.becomes("cp-1", NodeState::Succeeded, None);
    table.cluster.node("worker-2", |node| node.ready.ready = false);
    let ours = upgrade_uid(&table.node_upgrade("worker-1"));
    for (by, slots) in [(Some(ours), &[][..]), (None, &["worker-1"])] {
        table.cluster.node("worker-1", |node| {
            node.unschedulable = true;
            node.cordoned_by.clone_from(&by);
        });
        table.stage_all();
        assert_eq!(table.slot_nodes(&key), slots, "cordoned by {by:?}");
    }
}

/// Another replica has seen worker-2 come back, and has given its place to worker-1; this one has heard of the ledger and not of
/// the node.
#[test]
fn a_worker_that_was_out_of_service_before_the_ledger_was_written_is_not_taken_beyond_the_budget() {
    let (mut table, key) = table(1, 4, budget(2, 0));
    table.stage_all();
    table.becomes("cp-1", NodeState::Succeeded, None);
    table.cluster.node("worker-3", |node| node.unschedulable = true);
    table.stage_all();
    assert_eq!(table.slot_nodes(&key), ["worker-1"], "worker-3 is the second");
    table.cluster.node("worker-2", |node| node.unschedulable = true);
    table.cluster.view.nodes_as_of = crate::view::Revision(1);
    let decision = table.decide(&Subject::Upgrade(key.clone()));
    assert!(decision.again.is_some_and(|again| again > table.now), "{decision:?}");
    table.carry_out(&decision);
    assert_eq!(table.slot_nodes(&key), ["worker-1"], "three would be away");
    table.cluster.view.nodes_as_of = crate::view::Revision(u64::MAX);
    table.settle();
    assert_eq!(table.slot_nodes(&key), ["worker-1", "worker-2"], "it is out indeed");
}

/// The same where no other has a slot: worker-2 is broken, and that worker-1 is still cordoned is not certain.
#[test]
fn a_worker_that_may_be_back_is_not_taken_beside_one_that_is_broken() {
    let (mut table, key) = table(1, 3, spec());
    table.stage_all();
    table.becomes("cp-1", NodeState::Succeeded, None);
    table.cluster.node("worker-1", |node| node.unschedulable = true);
    table.cluster.node("worker-2", |node| node.ready.ready = false);
    table.cluster.view.nodes_as_of = crate::view::Revision(1);
    let decision = table.decide(&Subject::Upgrade(key.clone()));
    assert!(decision.again.is_some_and(|again| again > table.now), "{decision:?}");
    table.carry_out(&decision);
    assert!(table.slot_nodes(&key).is_empty(), "two would be away");
    table.settle();
    assert_eq!(table.slot_nodes(&key), ["worker-1"], "it is out indeed");
}

#[test]
fn a_hop_does_not_begin_while_the_one_before_it_is_open() {
    let mut table = Table::new(Cluster::new(1, 1, "v1.34.4").images(&[FROM, TO]));
    let key = table.upgrade("edge-1", spec());
    table.stage_all();
    table.becomes("cp-1", NodeState::Succeeded, None);
    let first = table.node_upgrade("cp-1");
    table.stage_all();
    let slots = table.slots(&key);
    assert_eq!((slots[0].node.as_str(), slots[0].version.as_str()), ("cp-1", TO));
    // The group looks as the second hop's slot is there and the first hop is seen as it was before its end.
    let mut second = table.node_upgrade("cp-1");
    second.spec.desired = DesiredNodeState::Staged;
    let mut before = first.clone();
    before.status.as_mut().unwrap().state = Some(NodeState::Verifying);
    for upgrade in [before, second] {
        let view = &mut table.cluster.view;
        view.put_node_upgrade(crate::objects::key_of(&upgrade.metadata), std::sync::Arc::new(upgrade));
    }
    let group = table
        .view()
        .control_planes
        .iter()
        .find(|(_, group)| group.spec.kubernetes_version == TO);
    let subject = Subject::ControlPlane(group.unwrap().0.clone());
    assert!(!lets_go(&table.decide(&subject)));
    table
        .cluster
        .view
        .put_node_upgrade(crate::objects::key_of(&first.metadata), std::sync::Arc::new(first));
    assert!(lets_go(&table.decide(&subject)));
}

fn lets_go(decision: &crate::action::Decision) -> bool {
    let upgraded = |action: &Action| {
        matches!(
            action,
            Action::SetDesired {
                desired: DesiredNodeState::Upgraded,
                ..
            }
        )
    };
    decision.actions.iter().any(upgraded)
}

#[test]
fn a_control_plane_waits_until_the_one_before_it_answers_again() {
    let (mut table, key) = table(3, 1, spec());
    table.stage_all();
    let first = table.slot_nodes(&key);
    table.becomes(&first[0], NodeState::Succeeded, None);
    table.cluster.health(&first[0], |health| health.readyz_in_a_row = 0);
    table.stage_all();
    assert!(
        table.slots(&key).is_empty(),
        "the Node says Ready while its API server restarts"
    );
    table.cluster.health(&first[0], |health| health.readyz_in_a_row = 9);
    table.settle();
    assert_eq!(table.slots(&key).len(), 1);
}

#[test]
fn the_slot_of_an_object_that_somebody_deleted_is_given_back_once_that_is_certain() {
    let (mut table, key) = table(1, 2, spec());
    table.stage_all();
    table.becomes("cp-1", NodeState::Succeeded, None);
    table.stage_all();
    let slot = table.slots(&key).remove(0);
    assert_eq!(slot.node, "worker-1");
    let upgrade = table.node_upgrade("worker-1");
    assert_eq!(slot.holder, upgrade.metadata.uid.clone().unwrap());
    let name = crate::objects::key_of(&upgrade.metadata);
    table.cluster.view.remove_node_upgrade(&name);
    let held = |table: &Table| {
        let decision = table.decide(&Subject::Upgrade(key.clone()));
        !decision.actions.iter().any(|action| match action {
            Action::WriteUpgradeStatus { status, .. } => status.slots.iter().all(|slot| slot.node != "worker-1"),
            _ => false,
        })
    };
    let given_on = u64::try_from(slot.holder_revision.unwrap()).unwrap();
    table.cluster.view.node_upgrades_as_of = crate::view::Revision(given_on - 1);
    assert!(held(&table), "a view from before it was made proves nothing");
    // One that is made anew under its name, put back in an earlier life or not, is not the one that holds it.
    let mut anew = upgrade;
    anew.metadata.uid = Some("another".to_owned());
    table.cluster.view.put_node_upgrade(name, std::sync::Arc::new(anew));
    assert!(held(&table));
    table.cluster.view.node_upgrades_as_of = crate::view::Revision(given_on);
    assert!(!held(&table));
}

#[test]
fn a_worker_that_is_not_ready_gets_no_slot() {
    let (mut table, key) = table(1, 3, budget(2, 0));
    table.stage_all();
    table.becomes("cp-1", NodeState::Succeeded, None);
    table.cluster.node("worker-1", |node| node.ready.ready = false);
    table.stage_all();
    assert_eq!(table.slot_nodes(&key), ["worker-2"], "and it counts against the budget");
    table.cluster.node("worker-1", |node| node.ready.ready = true);
    table.settle();
    assert_eq!(table.slot_nodes(&key), ["worker-2", "worker-1"]);
}

/// Its object was deleted and made anew when the node had the hop behind it.
#[test]
fn a_hop_that_a_node_does_not_need_any_more_is_not_waited_for() {
    let mut table = Table::new(Cluster::new(1, 0, "v1.34.4").images(&[FROM, TO]));
    let key = table.upgrade("edge-1", spec());
    table.stage_all();
    let first = table.node_upgrade("cp-1");
    table.becomes("cp-1", NodeState::Succeeded, None);
    table.stage_all();
    assert_eq!(table.slots(&key)[0].version, TO);
    let mut anew = first.clone();
    anew.metadata.uid = Some("another".to_owned());
    anew.spec.desired = DesiredNodeState::Staged;
    let second = table.node_upgrade("cp-1");
    assert!(second.spec.kubelet_version > first.spec.kubelet_version);
    let view = &mut table.cluster.view;
    view.put_node_upgrade(crate::objects::key_of(&anew.metadata), std::sync::Arc::new(anew));
    assert!(!crate::objects::earlier_hop_is_open(view, &second));
    table
        .cluster
        .node("cp-1", |node| node.kubelet_version = Some("v1.34.4".parse().unwrap()));
    assert!(crate::objects::earlier_hop_is_open(table.view(), &second));
}

#[test]
fn the_end_of_a_hop_wakes_the_group_of_the_next() {
    let mut table = Table::new(Cluster::new(1, 0, "v1.34.4").images(&[FROM, TO]));
    table.upgrade("edge-1", spec());
    table.stage_all();
    let first = table.node_upgrade("cp-1");
    table.becomes("cp-1", NodeState::Succeeded, None);
    table.stage_all();
    let changed = crate::Changed::NodeUpgrade(crate::objects::key_of(&first.metadata));
    let woken = crate::affected(table.view(), &changed);
    let groups = woken
        .iter()
        .filter(|subject| matches!(subject, Subject::ControlPlane(_)));
    assert_eq!(groups.count(), 2);
}

/// The pods of a control plane come by another watch than its upgrades: the group of the next hop had looked, and nothing woke it.
#[test]
fn the_next_hop_is_looked_for_again_where_the_api_server_was_not_seen_at_the_last() {
    let mut table = Table::new(Cluster::new(3, 0, "v1.34.4").images(&[FROM, TO]));
    let key = table.upgrade("edge-1", spec());
    for node in ["cp-1", "cp-2", "cp-3"] {
        table.stage_all();
        assert_eq!(table.slot_nodes(&key), [node]);
        table.becomes(node, NodeState::Succeeded, None);
    }
    let old = |table: &mut Table, tag: &str| table.cluster.put_part("cp-2", Component::ApiServer, Some(tag));
    old(&mut table, "v1.34.4");
    table.stage_all();
    let mut groups = table.view().control_planes.keys().rev();
    let next = Subject::ControlPlane(groups.next().unwrap().clone());
    let of_next = |table: &Table| {
        let upgrades = table.view().node_upgrades().values();
        upgrades.filter(|upgrade| upgrade.spec.kubelet_version == TO).count()
    };
    assert_eq!(of_next(&table), 2, "those of cp-1 and cp-3");
    let decision = table.decide(&next);
    assert!(decision.again.is_some_and(|again| again > table.now), "{decision:?}");
    assert!(
        decision.events.is_empty(),
        "it is nobody's fault: {:?}",
        decision.events
    );
    old(&mut table, FROM);
    table.stage_all();
    assert_eq!(of_next(&table), 3);
}

#[test]
fn an_upgrade_waits_for_one_of_harvester_and_not_the_other_way_round() {
    use crate::hci::view::{HciObject, Seen};
    let (mut table, key) = table(3, 1, spec());
    let mut upgrade =
        afloat_api::harvester::Upgrade::new("hvst-upgrade", afloat_api::harvester::UpgradeSpec::default());
    upgrade.metadata.namespace = Some("harvester-system".to_owned());
    upgrade.metadata.uid = Some("hvst-uid".to_owned());
    upgrade.metadata.resource_version = Some("7".to_owned());
    let seen = Seen {
        target: crate::objects::target_of(&upgrade.metadata),
        deleting: false,
        what: upgrade,
    };
    table
        .cluster
        .view
        .hci
        .take(HciObject::Upgrade(std::sync::Arc::new(seen.clone())));
    table.stage_all();
    assert!(
        table.view().lock.is_none() && table.slots(&key).is_empty(),
        "Rancher says whose turn it is"
    );
    let wait = table.view().upgrades[&key].status.as_ref().unwrap().conditions.clone();
    assert!(
        wait.iter().any(|condition| condition.message.contains("hvst-upgrade")),
        "{wait:?}"
    );

    table.cluster.view.hci.upgrades.clear();
    table.stage_all();
    assert_eq!(table.slots(&key).len(), 1, "it is gone");
    // One that comes later is refused by its own preflight: the upgrade at work does not wait for it.
    table
        .cluster
        .view
        .hci
        .take(HciObject::Upgrade(std::sync::Arc::new(seen)));
    let going = table.going();
    table.becomes(&going[0], NodeState::Succeeded, None);
    table.stage_all();
    assert_eq!(table.slots(&key).len(), 1, "the next one goes");
}

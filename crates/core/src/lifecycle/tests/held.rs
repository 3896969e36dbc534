//! Who may hold a node, and what becomes of cordons.

use std::sync::Arc;

use afloat_api::NodeState::{Draining, Failed, Paused, Pending, RolledBack, Staged, Succeeded, Upgrading};
use afloat_api::clusterupgrade::{DrainOption, OnDrainTimeout};
use afloat_api::kubeadm::DesiredNodeState;
use afloat_api::{ClusterUpgrade, ClusterUpgradeSpec, WorkersKubeadmUpgrade, WorkersKubeadmUpgradeSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

use crate::action::{Action, Task};
use crate::objects::target_of;
use crate::testing::{HOME, NEW, UPGRADE, World, budget, pod};
use crate::view::{Key, Revision, Uid};

fn staged() -> World {
    let mut world = World::worker();
    world.desire(DesiredNodeState::Staged);
    world.settle();
    world.finish(Task::Stage);
    world.settle();
    assert_eq!(world.state(), Staged);
    world
}

/// Puts the node's upgrade under a ClusterUpgrade, over a group.
fn under(world: &mut World, change: impl FnOnce(&mut ClusterUpgradeSpec)) {
    let meta = |name: &str, owners| ObjectMeta {
        namespace: Some(HOME.to_owned()),
        name: Some(name.to_owned()),
        uid: Some(format!("uid-of-{name}")),
        owner_references: owners,
        ..ObjectMeta::default()
    };
    let owner = |kind: &str, name: &str| {
        Some(vec![OwnerReference {
            kind: kind.to_owned(),
            name: name.to_owned(),
            uid: format!("uid-of-{name}"),
            controller: Some(true),
            ..OwnerReference::default()
        }])
    };
    let mut spec = ClusterUpgradeSpec {
        kubernetes_version: NEW.to_owned(),
        ..ClusterUpgradeSpec::default()
    };
    change(&mut spec);
    let mut upgrade = ClusterUpgrade::new("edge-1", spec);
    upgrade.metadata = meta("edge-1", None);
    world.view.upgrades.insert(Key::new(HOME, "edge-1"), Arc::new(upgrade));
    let mut group = WorkersKubeadmUpgrade::new("workers", WorkersKubeadmUpgradeSpec::default());
    group.metadata = meta("workers", owner("ClusterUpgrade", "edge-1"));
    world.view.workers.insert(Key::new(HOME, "workers"), Arc::new(group));
    world.with_upgrade(|upgrade| upgrade.metadata.owner_references = owner("WorkersKubeadmUpgrade", "workers"));
}

/// A watch tells nothing of nodes to which nothing happens: the slot would be held for minutes, and nobody would say why.
#[test]
fn p32_whether_a_cordon_is_of_now_is_asked_and_not_waited_for() {
    let mut world = staged();
    let mut node = world.node();
    (node.unschedulable, node.revision) = (true, Revision(0));
    world.view.nodes.insert(node.name.clone(), Arc::new(node));
    world.desire(DesiredNodeState::Upgraded);
    world.view.nodes_as_of = Revision(0);
    let (unsure, written) = (world.decide(), target_of(&world.upgrade().metadata).revision);
    assert!(unsure.actions.is_empty(), "{unsure:?}");
    assert_eq!(unsure.nodes_since, Some(written));
    world.view.nodes_as_of = written;
    let sure = world.turn();
    assert_eq!((world.state(), sure.nodes_since), (Draining, None), "{sure:?}");
}

#[test]
fn without_a_slot_nothing_is_disturbed() {
    let mut world = staged();
    world.pass(100_000);
    world.settle();
    assert_eq!(world.state(), Staged);
    assert!(!world.done.contains(&"cordon"));
}

#[test]
fn a_held_node_does_not_begin_even_with_a_slot() {
    let mut world = staged();
    world.with_node(|node| node.pause = Some(Arc::from("disk is being swapped")));
    world.settle();
    assert_eq!((world.state(), world.waits_for().as_str()), (Paused, "NodePaused"));
    world.desire(DesiredNodeState::Upgraded);
    world.settle();
    assert_eq!(world.state(), Paused);
    assert!(!world.node().unschedulable);
    world.with_node(|node| node.pause = None);
    world.settle();
    assert_eq!(world.state(), Upgrading);
}

#[test]
fn a_paused_or_aborted_upgrade_begins_with_no_node_but_finishes_what_was_begun() {
    let mut world = staged();
    under(&mut world, |spec| spec.paused = Some(true));
    world.desire(DesiredNodeState::Upgraded);
    world.settle();
    assert_eq!((world.state(), world.waits_for().as_str()), (Paused, "PausedByUser"));
    under(&mut world, |spec| spec.abort = Some(true));
    world.settle();
    assert_eq!(world.state(), Staged);
    assert!(!world.node().unschedulable);
    under(&mut world, |_| {});
    world.settle();
    assert_eq!(world.state(), Upgrading);
    under(&mut world, |spec| spec.paused = Some(true));
    world.finish(Task::Upgrade);
    world.kubelet(NEW);
    world.settle();
    assert_eq!(world.state(), Succeeded);
}

/// An operator that has just started sees the upgrade of a node before the group or the upgrade that it belongs to.
#[test]
fn a_node_does_not_begin_while_what_it_belongs_to_is_not_seen() {
    let mut world = staged();
    under(&mut world, |spec| spec.abort = Some(true));
    let (group, upgrade) = (world.view.workers.clone(), world.view.upgrades.clone());
    world.desire(DesiredNodeState::Upgraded);
    world.view.upgrades.clear();
    world.settle();
    assert!(!world.node().unschedulable, "its upgrade is not seen");
    world.view.workers.clear();
    world.settle();
    assert!(!world.node().unschedulable, "its group is not seen");
    (world.view.workers, world.view.upgrades) = (group, upgrade);
    under(&mut world, |_| {});
    world.settle();
    assert_eq!(world.state(), Upgrading);
}

#[test]
fn nothing_is_brought_for_an_upgrade_that_was_aborted() {
    for (abort, brought) in [(None, true), (Some(true), false)] {
        let mut world = World::worker();
        under(&mut world, |spec| spec.abort = abort);
        world.desire(DesiredNodeState::Staged);
        world.settle();
        assert_eq!(world.has_pod(Task::Stage), brought);
    }
}

#[test]
fn an_aborted_drain_evicts_no_further_pod() {
    let mut world = staged();
    world.put(pod("shop", "cart-1", "worker-1", "cart"));
    world.desire(DesiredNodeState::Upgraded);
    world.turn();
    world.turn();
    assert_eq!(world.state(), Draining);
    under(&mut world, |spec| spec.abort = Some(true));
    world.settle();
    assert_eq!((world.state(), world.waits_for().as_str()), (Draining, "Aborted"));
    assert!(!world.done.contains(&"evict"));
}

#[test]
fn p42_a_node_that_a_person_cordoned_stays_cordoned() {
    let mut world = staged();
    world.with_node(|node| node.unschedulable = true);
    world.desire(DesiredNodeState::Upgraded);
    world.settle();
    assert_eq!(world.state(), Upgrading);
    assert!(world.status().before.unwrap().unschedulable);
    world.finish(Task::Upgrade);
    world.kubelet(NEW);
    world.settle();
    assert_eq!(world.state(), Succeeded);
    assert!(world.node().unschedulable);
    assert!(!world.done.contains(&"cordon") && !world.done.contains(&"uncordon"));
}

#[test]
fn a_cordon_of_another_upgrade_is_somebody_elses() {
    let mut world = staged();
    world.with_node(|node| {
        node.unschedulable = true;
        node.cordoned_by = Some(Uid::from("another"));
    });
    world.desire(DesiredNodeState::Upgraded);
    world.settle();
    world.finish(Task::Upgrade);
    world.kubelet(NEW);
    world.settle();
    assert_eq!(world.state(), Succeeded);
    assert_eq!(world.node().cordoned_by, Some(Uid::from("another")));
}

/// Sent by a replica that had lost its lease, it came when the node was done.
#[test]
fn a_cordon_that_comes_after_the_end_is_taken_back_but_not_one_of_another_hop() {
    let done = || {
        let mut world = staged();
        world.desire(DesiredNodeState::Upgraded);
        world.settle();
        world.finish(Task::Upgrade);
        world.kubelet(NEW);
        world.settle();
        assert_eq!((world.state(), world.node().unschedulable), (Succeeded, false));
        world.with_node(|node| {
            node.unschedulable = true;
            node.cordoned_by = Some(Uid::from(UPGRADE));
        });
        world
    };
    let mut world = done();
    assert!(world.decide().again.is_some(), "another hop may not have been seen yet");
    world.settle();
    assert!(world.node().unschedulable);
    world.view.node_upgrades_as_of = crate::view::Revision(u64::MAX);
    world.settle();
    assert_eq!((world.node().unschedulable, world.node().cordoned_by), (false, None));

    let mut world = done();
    world.view.node_upgrades_as_of = crate::view::Revision(u64::MAX);
    let mut hop = world.upgrade();
    hop.metadata.uid = Some("next-hop".to_owned());
    hop.status = None;
    world.view.put_node_upgrade(Key::new(HOME, "next-hop"), Arc::new(hop));
    world.settle();
    assert!(world.node().unschedulable, "it is that hop's");
}

#[test]
fn that_the_cordon_is_ours_is_recorded_before_it_is_made() {
    let mut world = staged();
    world.desire(DesiredNodeState::Upgraded);
    let decision = world.decide();
    let [Action::WriteNodeStatus { status, .. }, Action::Cordon { by, .. }] = decision.actions.as_slice() else {
        panic!("{:?}", decision.actions);
    };
    assert_eq!((status.state, status.cordoned_by_afloat), (Some(Staged), true));
    assert!(!status.before.as_ref().unwrap().unschedulable);
    assert_eq!(by.as_str(), UPGRADE);
    // The operator dies between the two, and a person cordons the node: then it is not ours.
    world.apply(&decision.actions[0]);
    world.with_node(|node| node.unschedulable = true);
    world.settle();
    assert!(!world.status().cordoned_by_afloat);
    assert!(world.status().before.unwrap().unschedulable);
}

#[test]
fn a_pause_that_comes_after_the_cordon_does_not_leave_it_half_way() {
    let mut world = staged();
    world.desire(DesiredNodeState::Upgraded);
    world.turn();
    assert!(world.node().unschedulable);
    world.with_node(|node| node.pause = Some(Arc::from("true")));
    world.settle();
    assert_eq!(world.state(), Upgrading);
}

#[test]
fn a_node_that_is_uncordoned_half_way_is_cordoned_again() {
    let mut world = staged();
    world.put(pod("shop", "cart-1", "worker-1", "cart"));
    world.desire(DesiredNodeState::Upgraded);
    world.settle();
    assert_eq!(world.state(), Draining);
    world.with_node(|node| node.unschedulable = false);
    world.end_pods();
    world.turn();
    assert!(world.node().unschedulable && !world.has_pod(Task::Upgrade));
    world.settle();
    assert_eq!(world.state(), Upgrading);
}

/// The cordon of the last turn came after the node was given back, and stayed: the next node was then one too many.
#[test]
fn a_node_that_is_uncordoned_while_its_last_step_ends_is_not_cordoned_again() {
    let mut world = staged();
    world.with_node(|node| node.unschedulable = true);
    world.desire(DesiredNodeState::Upgraded);
    world.settle();
    assert_eq!(world.state(), Upgrading);
    world.finish(Task::Upgrade);
    world.kubelet(NEW);
    world.with_node(|node| node.unschedulable = false);
    world.settle();
    assert_eq!(world.state(), Succeeded);
    assert!(!world.node().unschedulable);
}

#[test]
fn a_node_that_is_away_waits_to_be_staged() {
    let mut world = World::worker();
    world.with_node(|node| node.ready.ready = false);
    world.settle();
    assert_eq!((world.state(), world.waits_for().as_str()), (Pending, "WaitingForNode"));
    world.pass(100_000);
    world.with_node(|node| node.ready.ready = true);
    world.settle();
    world.finish(Task::Stage);
    world.settle();
    assert_eq!(world.state(), Upgrading);
}

#[test]
fn a_drain_that_takes_too_long_is_deferred_where_that_is_the_choice() {
    let mut world = staged();
    under(&mut world, |spec| {
        spec.drain = Some(DrainOption {
            timeout_seconds: Some(300),
            on_timeout: Some(OnDrainTimeout::Defer),
            ..DrainOption::default()
        });
    });
    world.put(pod("shop", "cart-1", "worker-1", "cart"));
    world.put_budget(budget("shop", "cart", "cart", 0));
    world.desire(DesiredNodeState::Upgraded);
    world.settle();
    assert_eq!(world.state(), Draining);
    world.pass(299);
    world.settle();
    assert_eq!(world.state(), Draining);
    world.now = world.decide().again.unwrap();
    world.settle();
    assert_eq!((world.state(), world.failure().as_str()), (RolledBack, "Deferred"));
    let failure = world.status().failure.unwrap();
    assert!(failure.message.contains("pdb/shop/cart"), "{}", failure.message);
    assert!(!world.states.contains(&Failed) && !world.node().unschedulable);
}

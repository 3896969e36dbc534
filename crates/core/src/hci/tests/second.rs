//! A second attempt: what the first one has brought to the target is there already, and so is what joined with the release.

use std::sync::Arc;

use super::world::{NEW_OS, NEW_RKE2, OLD_RKE2, World};
use crate::hci::view::HciObject;
use crate::testing::uid;

/// The first Upgrade was deleted when node-1 was done and Rancher had asked about node-2, which is cordoned for it.
fn half_way() -> World {
    let mut world = World::new(3);
    world.start();
    world.reach_nodes();
    world.take_through("node-1");
    world.delete();
    world.settle();
    assert!(world.deleted());
    // It was another object than the one that follows, and its Jobs are gone with it.
    change_cluster(&mut world, |cluster| cluster.rolled_out_for = Some(uid("the-first")));
    world.view.hci.jobs.clear();
    world.view.hci.logs.clear();
    world.change_node("node-2", |node| node.unschedulable = true);
    world.ask_about("node-2");
    world.done.clear();
    world.events.clear();
    world
}

fn change_cluster(world: &mut World, change: impl FnOnce(&mut crate::hci::view::LocalCluster)) {
    let cluster = world.view.hci.local_cluster().unwrap().clone();
    let mut changed = cluster.what.clone();
    change(&mut changed);
    let key = cluster.target.key.clone();
    world.take(&key.namespace, &key.name, changed, HciObject::Cluster);
}

fn is_new(world: &mut World, node: &str) {
    world.change_node(node, |node| {
        node.os_image = Arc::from(NEW_OS);
        node.kubelet_version = NEW_RKE2.parse().ok();
    });
}

/// Minutes pass, one by one, as the upgrade asks to be looked at.
fn pass(world: &mut World, minutes: usize) {
    for _ in 0..minutes {
        world.pass(1);
        world.settle();
    }
}

#[test]
fn rule_12_a_node_that_the_first_attempt_has_finished_is_done_also_where_rancher_does_not_ask_about_it() {
    let mut world = half_way();
    world.start();
    world.reach_nodes();
    world.finish("node-2");
    world.take_through("node-3");
    assert_eq!(world.state("node-1"), "Images preloaded");
    pass(&mut world, 4);
    assert_eq!(world.state("node-1"), "Images preloaded", "Rancher may still ask");
    let told = world.condition("NodesUpgraded").1;
    assert!(told.contains("node-1 is at the target already"), "{told}");
    assert!(world.decide().again.is_some(), "nothing else would wake it");
    pass(&mut world, 2);
    assert_eq!(world.state("node-1"), "Succeeded");
    world.clean_up();
    assert_eq!(world.condition("Completed").0, "True");
    world.assert_nothing_left();
}

#[test]
fn rule_12_a_node_that_joins_at_the_target_and_an_upgrade_to_what_runs_come_to_their_end() {
    let mut world = World::new(3);
    world.start();
    world.reach_nodes();
    world.add_node("node-4");
    is_new(&mut world, "node-4");
    for node in ["node-1", "node-2", "node-3"] {
        world.take_through(node);
    }
    pass(&mut world, 6);
    assert_eq!(world.state("node-4"), "Succeeded");
    assert_eq!(world.condition("NodesUpgraded").0, "True");

    let mut world = World::new(3);
    world.take("", "server-version", Arc::from("v1.7.0"), HciObject::Setting);
    for node in ["node-1", "node-2", "node-3"] {
        is_new(&mut world, node);
    }
    world.start();
    world.reach_nodes();
    pass(&mut world, 6);
    assert_eq!(world.condition("NodesUpgraded").0, "True");
}

#[test]
fn a_node_at_the_target_that_rancher_asks_about_nonetheless_is_drained_as_any_other() {
    let mut world = half_way();
    world.start();
    world.reach_nodes();
    world.finish("node-2");
    world.take_through("node-3");
    pass(&mut world, 3);
    world.change_plan("node-1", |plan| {
        plan.pre_drain = Some("drain-2".to_owned());
    });
    world.settle();
    assert_eq!(world.state("node-1"), "Pre-draining");
    pass(&mut world, 10);
    assert_eq!(world.state("node-1"), "Pre-draining");
}

/// Not before all that are left are there, and not while Rancher says what it is at.
#[test]
fn nobody_is_taken_for_done_while_rancher_is_at_work_or_others_are_behind() {
    let mut world = half_way();
    world.start();
    world.reach_nodes();
    world.finish("node-2");
    pass(&mut world, 30);
    assert_eq!(world.state("node-1"), "Images preloaded", "node-3 is behind");
    world.take_through("node-3");
    change_cluster(&mut world, |cluster| {
        cluster.checkpoint = Some(Arc::from("configuring"));
    });
    pass(&mut world, 30);
    assert_eq!(world.state("node-1"), "Images preloaded");
    let told = world.condition("NodesUpgraded").1;
    assert!(told.contains("Rancher: configuring"), "{told}");
    change_cluster(&mut world, |cluster| cluster.checkpoint = None);
    pass(&mut world, 6);
    assert_eq!(world.state("node-1"), "Succeeded");
}

/// What was there before the first attempt would be a downgrade of what that one has finished, and nobody would be asked before its drain.
#[test]
fn rule_3_a_second_attempt_that_ends_before_its_first_node_takes_rancher_nowhere() {
    let mut world = half_way();
    world.change_plan("node-2", |plan| plan.pre_drain = None);
    world.change_node("node-2", |node| node.unschedulable = false);
    world.start();
    world.reach_nodes();
    world.annotate("afloat.dev/abort", "true");
    world.settle();
    assert!(crate::hci::over(&world.upgrade()));
    let cluster = world.view.hci.local_cluster().unwrap();
    assert_eq!(&*cluster.kubernetes_version, NEW_RKE2);
    assert!(cluster.strategy["workerDrainOptions"]["preDrainHooks"].is_array());
    let told = world.condition("Completed").1;
    assert!(told.contains("some nodes are at the target and some are not"), "{told}");
    // Where nobody is ahead, Rancher goes back.
    let mut world = World::new(3);
    world.start();
    world.reach_nodes();
    world.annotate("afloat.dev/abort", "true");
    world.settle();
    assert_eq!(&*world.view.hci.local_cluster().unwrap().kubernetes_version, OLD_RKE2);
}

/// C2: half-way Rancher has cordoned the next node, and waits for an answer that only the next Upgrade gives.
#[test]
fn h20_a_node_that_rancher_has_cordoned_for_the_attempt_before_does_not_stop_the_next_one() {
    let mut world = half_way();
    world.start();
    world.settle();
    let (passed, told) = world.condition("PreflightPassed");
    assert_eq!(passed, "True", "{told}");
    assert!(told.contains("warning node/node-2: is cordoned by Rancher"), "{told}");
    // One that a person has cordoned does, and one that Rancher asks about for nobody of ours.
    for theirs in [false, true] {
        let mut world = half_way();
        if theirs {
            world.change_plan("node-2", |plan| plan.pre_drain = None);
        } else {
            change_cluster(&mut world, |cluster| cluster.rolled_out_for = None);
        }
        world.start();
        world.settle();
        let (passed, told) = world.condition("PreflightPassed");
        assert_eq!(passed, "False");
        assert!(
            told.contains("error node/node-2: is cordoned; help: kubectl uncordon node-2"),
            "{told}"
        );
    }
}

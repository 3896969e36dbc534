//! The taint of nodes that are not done yet: when it comes, when it goes, and whose it is.

use std::sync::Arc;

use afloat_api::annotations::{HARVESTER_PAUSE_MAP, UPGRADE_PENDING_TAINT};
use afloat_api::labels;

use super::world::{NAME, World};
use crate::hci::action::{HciAction, JobKind};
use crate::view::{Revision, Taint, TaintEffect};

const NODES: [&str; 3] = ["node-1", "node-2", "node-3"];

fn ours() -> Taint {
    Taint {
        key: Arc::from(UPGRADE_PENDING_TAINT),
        value: Arc::from(NAME),
        effect: TaintEffect::PreferNoSchedule,
    }
}

/// Which nodes say that they are not done.
fn telling(world: &World) -> Vec<String> {
    let nodes = world.view.nodes.values().filter(|node| node.taints.contains(&ours()));
    nodes.map(|node| node.name.to_string()).collect()
}

fn on_its_way(count: usize) -> World {
    let mut world = World::new(count);
    world.start();
    world.reach_nodes();
    world
}

fn times(world: &World, name: &str) -> usize {
    world.done.iter().filter(|action| action.name() == name).count()
}

#[test]
fn nodes_say_that_they_are_not_done_before_rancher_is_asked_and_until_they_are() {
    let mut world = on_its_way(3);
    assert_eq!(telling(&world), NODES);
    let names: Vec<&str> = world.done.iter().map(HciAction::name).collect();
    let last_told = names.iter().rposition(|name| *name == "taint-pending");
    let asked = names.iter().position(|name| *name == "patch-cluster");
    assert!(last_told < asked, "{names:?}");
    for (number, node) in NODES.into_iter().enumerate() {
        world.rancher_asks(node);
        world.taint(node);
        assert!(telling(&world).contains(&node.to_owned()), "{node} is at work");
        world.finish(node);
        assert_eq!(telling(&world), NODES[number + 1..]);
    }
    world.clean_up();
    assert_eq!(world.condition("Completed").0, "True");
    world.assert_nothing_left();
    // One request to put it on, and the one that takes KubeVirt's taint away takes it along.
    assert_eq!((times(&world, "taint-pending"), times(&world, "untaint")), (3, 3));
}

/// Another write to the node in the same turn lets that of the taints be refused, and nobody looks at nodes any more once all are done.
#[test]
fn the_last_node_loses_its_taints_before_images_are_removed() {
    let mut world = on_its_way(3);
    for node in NODES {
        world.rancher_asks(node);
        world.taint(node);
        world.finish(node);
    }
    world.change_node("node-3", |node| node.taints = vec![ours()]);
    world.taint("node-3");
    world.settle();
    assert!(world.has_job(JobKind::CleanUp, Some("node-3")));
    assert_eq!(world.label(labels::HARVESTER_UPGRADE_CLEANUP), "Pending");
    assert!(
        world.node("node-3").taints.is_empty(),
        "{:?}",
        world.node("node-3").taints
    );
    world.clean_up();
    world.assert_nothing_left();
}

#[test]
fn where_there_is_no_choice_no_node_is_tainted() {
    let mut world = on_its_way(2);
    assert_eq!(times(&world, "taint-pending"), 0);
    world.take_through("node-1");
    world.annotate("afloat.dev/abort", "true");
    world.settle();
    assert!(crate::hci::over(&world.upgrade()));
    let mut world = World::new(3);
    world.change_node("node-3", |node| {
        let labels = Arc::make_mut(&mut node.labels);
        labels.insert(Arc::from(labels::HARVESTER_WITNESS), Arc::from("true"));
    });
    world.start();
    world.reach_nodes();
    assert_eq!(times(&world, "taint-pending"), 0, "a witness takes no virtual machine");
}

#[test]
fn rule_7_however_an_upgrade_ends_no_node_says_so_any_more_and_taints_of_others_stay() {
    let other = Taint {
        key: Arc::from("example.com/dedicated"),
        value: Arc::from("gpu"),
        effect: TaintEffect::PreferNoSchedule,
    };
    for end in ["failed", "aborted", "deleted", "paused and deleted"] {
        let mut world = World::new(3);
        world.change_node("node-2", |node| node.taints = vec![other.clone()]);
        if end.starts_with("paused") {
            world.start_with(&[(HARVESTER_PAUSE_MAP, r#"{"node-1":"pause"}"#)]);
        } else {
            world.start();
        }
        world.reach_nodes();
        world.rancher_asks("node-1");
        assert_eq!(telling(&world), NODES, "{end}");
        match end {
            "failed" => world.fail(JobKind::PreDrain, Some("node-1"), "it was made to"),
            "aborted" => world.annotate("afloat.dev/abort", "true"),
            _ => world.delete(),
        }
        world.settle();
        let there = world.view.hci.upgrades.get(&World::key());
        assert!(
            there.is_none_or(|upgrade| crate::hci::over(upgrade)),
            "{end}: {:?}",
            world.decide()
        );
        assert!(telling(&world).is_empty(), "{end}");
        assert_eq!(world.node("node-2").taints, std::slice::from_ref(&other), "{end}");
    }
}

#[test]
fn a_taint_that_a_person_takes_away_stays_away_until_the_upgrade_is_resumed() {
    let mut world = on_its_way(3);
    world.change_node("node-3", |node| node.taints.clear());
    world.settle();
    world.rancher_asks("node-1");
    assert_eq!(telling(&world), NODES[..2]);
    world.fail(JobKind::PreDrain, Some("node-1"), "it was made to");
    assert!(telling(&world).is_empty());
    world.annotate("afloat.dev/wish", "resume");
    world.settle();
    assert_eq!(telling(&world), NODES);
}

#[test]
fn a_node_that_joins_says_so_before_it_is_taken_along() {
    let mut world = on_its_way(3);
    world.add_node("node-4");
    let first = world.decide().actions.into_iter().nth(1);
    assert_eq!(
        first.map(|action| action.name()),
        Some("taint-pending"),
        "after the look at the Upgrade"
    );
    world.settle();
    assert_eq!(
        (telling(&world).len(), world.state("node-4").as_str()),
        (4, "Images preloaded")
    );
    world.delete();
    world.settle();
    assert!(world.deleted());
    world.assert_nothing_left();
}

/// Whoever ends the upgrade sees nodes as they were before they were told.
#[test]
fn rule_7_an_upgrade_does_not_end_on_a_view_of_nodes_from_before_they_were_told() {
    let mut world = on_its_way(3);
    let as_of = std::mem::replace(&mut world.view.nodes_as_of, Revision(1));
    let there = world.view.nodes["node-3"].clone();
    let mut before = there.as_ref().clone();
    before.taints.clear();
    world.view.nodes.insert(before.name.clone(), Arc::new(before));
    world.delete();
    let mut ended = false;
    for _ in 0..20 {
        let decision = world.decide();
        for action in decision.actions {
            let crate::action::Action::Hci(action) = action else {
                continue;
            };
            let seen = world.view.nodes_as_of;
            world.carry_out(&action);
            // Own writes say nothing about other nodes.
            world.view.nodes_as_of = seen;
        }
        ended |= world.deleted();
    }
    assert!(!ended, "it waits until nodes were seen");
    let waits = world.decide();
    assert!(waits.again.is_some(), "and looks again");
    assert!(waits.nodes_since.is_some(), "nothing that happens may ever tell");
    world.view.nodes.insert(there.name.clone(), there);
    world.view.nodes_as_of = as_of;
    world.settle();
    assert!(world.deleted());
    world.assert_nothing_left();
}

/// Nobody was told there, and nobody would have been.
#[test]
fn an_upgrade_of_two_hosts_does_not_wait_for_news_of_nodes_to_end() {
    let mut world = World::new(2);
    world.start();
    world.settle();
    world.preload();
    // Held between the services and the nodes.
    world.annotate(afloat_api::annotations::PAUSE, "true");
    world.complete(JobKind::ApplyManifests, None);
    assert_eq!(world.condition("SystemServicesUpgraded").0, "True");
    assert_eq!(world.condition("NodesUpgraded").0, "");
    world.view.nodes_as_of = Revision(1);
    world.delete();
    assert_eq!(world.decide().nodes_since, None);
    world.settle();
    assert!(world.deleted(), "{:?}", world.decide());
}

#[test]
fn rule_7_a_taint_that_comes_late_to_an_upgrade_that_is_over_goes_too() {
    let mut world = on_its_way(3);
    world.annotate("afloat.dev/abort", "true");
    world.settle();
    assert!(crate::hci::over(&world.upgrade()));
    let changed = crate::Changed::Node(crate::view::NodeName::from("node-2"));
    assert!(crate::affected(&world.view, &changed).is_empty());
    world.change_node("node-2", |node| node.taints.push(ours()));
    assert!(!crate::affected(&world.view, &changed).is_empty());
    world.settle();
    assert!(telling(&world).is_empty());
}

/// Everybody who had begun node-1 ended before its Job was made, and before node-2 was let take virtual machines again.
#[test]
fn a_node_that_is_done_takes_virtual_machines_before_another_one_is_emptied_whatever_their_names() {
    let mut world = on_its_way(3);
    world.take_through("node-2");
    world.rancher_asks("node-1");
    world
        .view
        .hci
        .jobs
        .remove(&World::job_key(JobKind::PreDrain, Some("node-1")));
    world.change_node("node-2", |node| node.taints.push(ours()));
    let names: Vec<&str> = world.decide().actions.iter().map(crate::action::Action::name).collect();
    let place = |name: &str| names.iter().position(|other| *other == name);
    assert!(place("untaint") < place("create-job"), "{names:?}");
    assert!(place("untaint").is_some(), "{names:?}");
}

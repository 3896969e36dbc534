//! Waits that belong to no Job: what they say, and how they end.

use std::sync::Arc;

use afloat_api::annotations;

use super::world::{NAME, World};
use crate::hci::action::JobKind;
use crate::hci::view::{HciObject, Image, Volume};
use crate::plan::fixture::pod;
use crate::view::{Key, NodeName, Operator, PodBudget, PodShape, Requirement, Revision, Selector};

fn degraded(robustness: &str) -> Volume {
    Volume {
        state: Arc::from("attached"),
        robustness: Arc::from(robustness),
        node: Some(NodeName::from("node-2")),
        replicas: 3,
        ..Volume::default()
    }
}

/// Rancher asks for node-1, and a volume or a node keeps it.
fn kept(what: &str, pairs: &[(&str, &str)]) -> World {
    let mut world = World::new(3);
    world.start_with(pairs);
    world.reach_nodes();
    if what == "pvc-1" {
        world.take("longhorn-system", "pvc-1", degraded("degraded"), HciObject::Volume);
    } else {
        world.change_node(what, |node| node.ready.ready = false);
    }
    world.rancher_asks("node-1");
    world
}

#[test]
fn h49_a_node_is_kept_from_its_turn_so_long_and_no_longer_and_is_resumed() {
    for (what, pairs, minutes) in [
        ("pvc-1", vec![], 240),
        ("node-3", vec![], 240),
        ("pvc-1", vec![(annotations::WAIT_MINUTES, "30")], 30),
    ] {
        let mut world = kept(what, &pairs);
        let told = world.told("node-1");
        assert!(
            told.contains(what) && told.contains("(since ") && told.contains(", until "),
            "{told}"
        );
        assert!(world.decide().again.is_some(), "somebody looks again then");
        world.pass(minutes - 1);
        world.settle();
        assert_eq!(
            (world.state("node-1"), world.told("node-1")),
            ("Images preloaded".to_owned(), told)
        );

        world.pass(1);
        world.settle();
        assert_eq!(world.state("node-1"), "Failed");
        let (status, said) = world.condition("Completed");
        assert_eq!(status, "False");
        for word in [
            what,
            &format!("within {minutes} minutes"),
            &format!("afloat resume {NAME}"),
        ] {
            assert!(said.contains(word), "{word}: {said}");
        }
        assert!(
            !world.has_job(JobKind::PreDrain, Some("node-1")),
            "nothing was done to it"
        );

        // Mended and resumed, it has its time anew.
        world.take("longhorn-system", "pvc-1", degraded("healthy"), HciObject::Volume);
        world.change_node("node-3", |node| node.ready.ready = true);
        world.annotate(annotations::WISH, "resume");
        world.settle();
        world.reach_nodes();
        world.rancher_asks("node-1");
        assert_eq!(world.state("node-1"), "Pre-draining", "{what}");
    }
}

#[test]
fn what_a_person_holds_waits_for_that_person_and_the_clock_begins_after() {
    let mut world = kept("pvc-1", &[]);
    world.pass(200);
    world.change_node("node-1", |node| node.hci.pause = Some(Arc::from("mine")));
    world.settle();
    assert_eq!(world.state("node-1"), "Node-upgrade paused");
    world.pass(6000);
    world.settle();
    assert_eq!(world.state("node-1"), "Node-upgrade paused");
    world.unpause("node-1");
    world.settle();
    world.pass(239);
    world.settle();
    assert_eq!(world.state("node-1"), "Images preloaded");
}

fn guard(world: &mut World, names: &[&str]) {
    let shape = PodShape {
        labels: [("app".into(), "db".into())].into(),
        ..PodShape::default()
    };
    world
        .view
        .put_pod(Arc::new(pod("default", "db-0", Some("node-1"), shape)));
    for name in names {
        let key = Key::new("default", name);
        let budget = PodBudget {
            key: key.clone(),
            uid: crate::testing::uid(name),
            revision: Revision(1),
            selector: Selector {
                requirements: vec![Requirement {
                    key: "app".into(),
                    operator: Operator::In,
                    values: vec!["db".into()],
                }],
            },
            up_to_date: true,
            disruptions_allowed: 0,
            current_healthy: 1,
            desired_healthy: 1,
            expected_pods: 1,
            unhealthy_may_go: false,
        };
        world.view.budgets.insert(key, Arc::new(budget));
    }
}

/// Rancher may drain node-1, and does not get anywhere.
fn drained(budgets: &[&str], pairs: &[(&str, &str)]) -> World {
    let mut world = World::new(3);
    world.start_with(pairs);
    world.reach_nodes();
    guard(&mut world, budgets);
    world.rancher_asks("node-1");
    world.complete(JobKind::PreDrain, Some("node-1"));
    assert_eq!(world.state("node-1"), "Pre-drained");
    world
}

#[test]
fn h29_a_drain_says_since_when_and_until_when_and_that_it_is_overdue_once_and_goes_on_by_itself() {
    for (pairs, minutes) in [(vec![], 60), (vec![(annotations::DRAIN_MINUTES, "90")], 90)] {
        let mut world = drained(&["db"], &pairs);
        let told = world.told("node-1");
        assert!(told.contains("pdb/default/db allows no disruption (since "), "{told}");
        world.pass(minutes - 1);
        world.settle();
        assert_eq!(world.told("node-1"), told);
        world.pass(1);
        world.settle();
        let told = world.told("node-1");
        assert!(
            told.starts_with("overdue since ") && told.contains("pdb/default/db"),
            "{told}"
        );
        world.pass(600);
        world.settle();
        assert_eq!(world.told("node-1"), told);
        let events = world.events.iter().filter(|event| event.message.contains("overdue"));
        assert_eq!(events.count(), 1);
        assert_eq!(
            world.condition("Completed").0,
            "Unknown",
            "Rancher is at work: it is not failed"
        );
        world.rancher_upgrades("node-1");
        assert_eq!(world.state("node-1"), "Post-draining");
    }
}

#[test]
fn h29_a_drain_that_a_budget_stops_is_explained_with_the_command_that_frees_it() {
    for (budgets, expected) in [
        (
            vec!["db"],
            vec![
                "pdb/default/db allows 0 disruptions (1 required, 1 healthy)",
                "kubectl -n default delete pod db-0",
            ],
        ),
        (
            vec!["db", "db-too"],
            vec![
                "pdb/default/db and pdb/default/db-too",
                "kubectl -n default delete pdb db ",
                "kubectl -n default delete pdb db-too ",
            ],
        ),
        (vec![], vec!["kubectl -n cattle-system logs deployment/rancher"]),
    ] {
        let world = drained(&budgets, &[]);
        let said = crate::hci::explain(&world.view, &World::key()).unwrap().to_string();
        for word in expected {
            assert!(said.contains(word), "{word}: {said}");
        }
        println!("{said}");
    }
}

#[test]
fn the_report_tells_how_long_each_node_took_what_it_waited_and_who_was_moved() {
    let mut world = World::new(3);
    world.start();
    world.reach_nodes();
    world.take_through("node-1");
    world.take("longhorn-system", "pvc-1", degraded("degraded"), HciObject::Volume);
    world.rancher_asks("node-2");
    world.pass(25);
    world.take("longhorn-system", "pvc-1", degraded("healthy"), HciObject::Volume);
    world.settle();
    world.pass(10);
    let moved = crate::hci::view::Migration {
        vmi: Arc::from("web"),
        phase: Arc::from("Succeeded"),
        created_at: Some(world.now),
        ..crate::hci::view::Migration::default()
    };
    for (name, source, minutes) in [("second", "node-3", 1), ("first", "node-2", 0)] {
        let mut moved = moved.clone();
        moved.source = Some(source.into());
        moved.created_at = Some(world.now + jiff::SignedDuration::from_mins(minutes));
        world.take("shop", name, moved, HciObject::Migration);
    }
    world.finish("node-2");
    world.take_through("node-3");
    world.clean_up();
    let report = world.condition("Completed").1;
    for word in [
        "each took: node-2 10m00s",
        "waited for volumes or nodes before their turn: node-2 25m00s",
        "1 virtual machine was moved (2 moves, 1 the least)",
    ] {
        assert!(report.contains(word), "{word}: {report}");
    }
}

#[test]
fn an_image_that_is_never_imported_is_waited_for_by_name_and_not_for_ever() {
    let mut world = World::new(3);
    let importing = Image {
        message: Arc::from("37 %"),
        ..Image::default()
    };
    world.take("harvester-system", NAME, importing, HciObject::Image);
    world.start();
    world.settle();
    let told = world.condition("ImageReady").1;
    for words in ["virtualmachineimage/harvester-system/", "since ", "until ", "37 %"] {
        assert!(told.contains(words), "{words}: {told}");
    }
    assert!(world.decide().again.is_some());
    world.pass(240);
    world.settle();
    assert_eq!(world.condition("Completed").0, "False");
    let told = world.condition("Completed").1;
    assert!(told.contains("was not imported within 240 minutes"), "{told}");
}

#[test]
fn rancher_that_asks_about_no_node_is_said_and_overdue_after_its_time() {
    let mut world = World::new(3);
    world.start();
    world.reach_nodes();
    let told = world.condition("NodesUpgraded").1;
    assert!(
        told.contains("waits for Rancher to ask about node-1, node-2, node-3 (since "),
        "{told}"
    );
    world.pass(61);
    world.settle();
    let told = world.condition("NodesUpgraded").1;
    assert!(told.contains("overdue since"), "{told}");
    let warned = |world: &World| {
        let told = world
            .events
            .iter()
            .filter(|event| event.message.contains("asked about none"));
        told.count()
    };
    assert_eq!(warned(&world), 1);
    world.take_through("node-1");
    let told = world.condition("NodesUpgraded").1;
    assert!(told.contains("ask about node-2, node-3 (since "), "{told}");
    assert_eq!(warned(&world), 1);
    world.rancher_asks("node-2");
    assert_eq!(world.condition("NodesUpgraded").1, "");
}

#[test]
fn a_node_that_is_emptied_says_since_when_and_until_when_it_waits_and_for_which_volume() {
    let mut world = World::new(3);
    world.start();
    world.reach_nodes();
    world.rancher_asks("node-1");
    let told = world.told("node-1");
    assert!(told.contains("pre-drain-node-1 is at work (since "), "{told}");
    let degraded = Volume {
        state: Arc::from("attached"),
        robustness: Arc::from("degraded"),
        ..Volume::default()
    };
    world.take("longhorn-system", "pvc-7", degraded, HciObject::Volume);
    world.settle();
    let told = world.told("node-1");
    for words in ["pvc-7", "since ", "until "] {
        assert!(told.contains(words), "{words}: {told}");
    }
}

#[test]
fn whoever_is_on_the_node_that_goes_first_finds_none_that_is_done_and_moves_twice() {
    use crate::hci::report::least_moves;
    for (on_nodes, least) in [
        (&[4][..], 0),
        (&[4, 4][..], 12),
        (&[9, 9, 9][..], 36),
        (&[1, 9, 5][..], 16),
        (&[0, 9][..], 9),
        (&[][..], 0),
    ] {
        assert_eq!(least_moves(on_nodes), least, "{on_nodes:?}");
    }
}

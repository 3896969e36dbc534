//! Tasks that bring a release to a node, look by look: in upstream's order, each waiting for what is not its own to do, and none of it
//! done on a node that has it already.

use std::sync::Arc;

use afloat_api::harvester::UpgradeStatus;
use jiff::Timestamp;

use super::tests::{NODE, errand, now};
use super::*;
use crate::hci::tests::world::{NEW_OS, NEW_RKE2, RELEASE, World};
use crate::view::NodeName;

type Task = fn(&View, &Errand, &HostDone, Timestamp) -> Look;

fn world(nodes: usize) -> World {
    let mut world = World::new(nodes);
    world.start();
    world.change_upgrade(|upgrade| {
        upgrade.status = Some(UpgradeStatus {
            repo_info: RELEASE.to_owned(),
            ..UpgradeStatus::default()
        });
    });
    world.taint(NODE);
    world
}

/// Carries works out until the task does something else.
fn works(task: Task, world: &World, done: &mut HostDone) -> (Vec<HostWork>, Look) {
    let mut order = Vec::new();
    loop {
        match task(&world.view, &errand(), done, now()) {
            Look::Host(work) => {
                assert!(done.insert(work), "{work:?} is asked for twice");
                order.push(work);
            }
            other => return (order, other),
        }
    }
}

fn kubernetes(world: &mut World) {
    world.change_node(NODE, |node| node.kubelet_version = NEW_RKE2.parse().ok());
}

/// The only node of a cluster is empty, and its Upgrade says that it may be changed now.
fn let_go(world: &mut World) {
    world.change_upgrade(|upgrade| {
        let statuses = &mut upgrade.status.get_or_insert_default().node_statuses;
        statuses.entry(NODE.to_owned()).or_default().state = "Post-draining".to_owned();
    });
}

#[test]
fn h9_h21_images_come_before_the_upgrade_and_go_after_it() {
    let world = world(3);
    for (task, work) in [
        (prepare as Task, HostWork::PreloadImages),
        (clean_up, HostWork::RemoveOldImages),
    ] {
        let (order, end) = works(task, &world, &mut HostDone::new());
        assert_eq!(order, [work]);
        assert!(matches!(end, Look::Done { .. }), "{end:?}");
    }
}

#[test]
fn h47_the_system_waits_for_the_new_kubernetes_and_the_restart_comes_last() {
    let (mut world, mut done) = (world(3), HostDone::new());
    let (order, waits) = works(post_drain, &world, &mut done);
    assert_eq!(order, [HostWork::ConfigureServer]);
    assert!(matches!(waits, Look::Wait { .. }), "{waits:?}");
    assert!(waits.words().contains(NEW_RKE2), "{waits:?}");
    kubernetes(&mut world);
    let (order, end) = works(post_drain, &world, &mut done);
    assert_eq!(
        order,
        [
            HostWork::RemoveArchives,
            HostWork::BringSystem,
            HostWork::InstallSystem,
            HostWork::RestartSoon
        ]
    );
    assert!(end.words().contains("restarts with Harvester v1.7.0"), "{end:?}");
}

#[test]
fn h48_a_node_that_runs_the_system_already_is_not_restarted() {
    let mut world = world(3);
    kubernetes(&mut world);
    world.change_node(NODE, |node| node.os_image = Arc::from(NEW_OS));
    let (order, end) = works(post_drain, &world, &mut HostDone::new());
    assert_eq!(order, [HostWork::ConfigureServer, HostWork::RemoveArchives]);
    assert!(matches!(end, Look::Done { .. }), "{end:?}");
}

#[test]
fn h10_h42_a_single_node_is_emptied_and_asks_for_its_kubernetes_itself() {
    let (mut world, mut done) = (world(1), HostDone::new());
    world.add_vm("web", NODE, |_| {});
    let (order, waits) = works(single_node, &world, &mut done);
    assert_eq!(
        order,
        [HostWork::BringSystem, HostWork::RecoverAgent],
        "it is brought while virtual machines still run"
    );
    assert!(waits.words().contains("shop/web"), "{waits:?}");
    world.remove_vmi("web");
    let (order, waits) = works(single_node, &world, &mut done);
    assert_eq!(order, [HostWork::RemoveCanalConfig, HostWork::DisableCharts]);
    assert!(
        waits.words().contains("lets it go on"),
        "the upgrade may be ended until then: {waits:?}"
    );
    let_go(&mut world);
    let (order, asks) = works(single_node, &world, &mut done);
    assert_eq!(order, [HostWork::ConfigureServer]);
    let Look::Write { what, .. } = asks else {
        panic!("{asks:?}");
    };
    let [TaskWrite::AskForKubernetes { version, .. }] = what.as_slice() else {
        panic!("{what:?}");
    };
    assert_eq!(&**version, NEW_RKE2);
    kubernetes(&mut world);
    let (order, end) = works(single_node, &world, &mut done);
    assert_eq!(
        order,
        [HostWork::RemoveArchives, HostWork::InstallSystem, HostWork::RestartSoon]
    );
    assert!(matches!(end, Look::Done { .. }), "{end:?}");
}

/// It booted the old system, its virtual machines were started again meanwhile, and a person has resumed.
#[test]
fn h10_a_single_node_whose_kubernetes_is_new_is_emptied_all_the_same() {
    let mut world = world(1);
    kubernetes(&mut world);
    world.add_vm("web", NODE, |_| {});
    let (order, waits) = works(single_node, &world, &mut HostDone::new());
    assert_eq!(order, [HostWork::BringSystem, HostWork::RecoverAgent]);
    assert!(waits.words().contains("shop/web"), "{waits:?}");
}

#[test]
fn no_machine_restarts_under_virtual_machines() {
    let (mut world, mut done) = (world(3), HostDone::new());
    kubernetes(&mut world);
    world.add_vm("web", NODE, |_| {});
    let (order, waits) = works(post_drain, &world, &mut done);
    assert_eq!(order, [HostWork::ConfigureServer, HostWork::RemoveArchives]);
    assert!(matches!(waits, Look::Wait { .. }), "{waits:?}");
    assert!(waits.words().contains("shop/web"), "{waits:?}");
    world.remove_vmi("web");
    let (order, _) = works(post_drain, &world, &mut done);
    assert_eq!(order.last(), Some(&HostWork::RestartSoon));
}

#[test]
fn what_is_missing_is_named() {
    let mut world = world(3);
    let nobody = Errand {
        node: NodeName::from("node-9"),
        ..errand()
    };
    let gone = post_drain(&world.view, &nobody, &HostDone::new(), now());
    assert!(gone.words().contains("node-9 is gone"), "{gone:?}");
    for (recorded, waits) in [("", true), ("harvester: v1.7.0", false)] {
        world.change_upgrade(|upgrade| {
            upgrade.status.get_or_insert_default().repo_info = recorded.to_owned();
        });
        for task in [post_drain as Task, single_node] {
            let unread = task(&world.view, &errand(), &HostDone::new(), now());
            assert!(unread.words().contains("status.repoInfo"), "{unread:?}");
            assert_eq!(
                matches!(unread, Look::Wait { .. }),
                waits,
                "a view of the past is no failure: {unread:?}"
            );
        }
    }
}

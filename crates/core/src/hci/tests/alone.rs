//! A cluster of one node, whose upgrade a person ends while its only Job is at work.

use super::world::{NEW_OS, NEW_RKE2, OLD_RKE2, World};
use crate::hci::action::JobKind;
use crate::hci::{Request, admit};

const KIND: JobKind = JobKind::SingleNodeUpgrade;
const RESTORES: &str = r#"{"imagePreloadOption":{"strategy":{"type":"skip"}},"restoreVM":true}"#;

/// The Job runs, and has kept new virtual machines from the node; one that was on it is not off yet.
fn emptying() -> World {
    let mut world = World::new(1);
    world.setting(RESTORES);
    world.add_vm("web", "node-1", |_| {});
    world.start();
    world.reach_nodes();
    world.taint("node-1");
    world.settle();
    world
}

/// The same, and the node is empty.
fn let_go() -> World {
    let mut world = emptying();
    world.stop_vm("web");
    world.remove_vmi("web");
    world.settle();
    world
}

/// The Job's task has changed the node.
fn finish(world: &mut World) {
    world.change_node("node-1", |node| node.kubelet_version = NEW_RKE2.parse().ok());
    world.complete(KIND, Some("node-1"));
    world.boots("node-1", NEW_OS);
    if world.has_job(JobKind::RestoreVm, Some("node-1")) {
        world.complete_restore("node-1");
    }
}

fn may_be_deleted(world: &World) -> bool {
    admit(&world.view, &Request::DeleteUpgrade(&world.upgrade())).allowed()
}

#[test]
fn h10_the_states_of_a_single_node_say_whether_it_can_still_be_put_back() {
    let world = emptying();
    assert_eq!(world.state("node-1"), "Pre-draining");
    assert!(world.told("node-1").contains("shop/web"), "{}", world.told("node-1"));
    assert!(may_be_deleted(&world));
    let mut world = let_go();
    assert_eq!(world.state("node-1"), "Post-draining");
    assert!(!may_be_deleted(&world));
    world.change_node("node-1", |node| node.kubelet_version = NEW_RKE2.parse().ok());
    world.complete(KIND, Some("node-1"));
    assert_eq!(world.state("node-1"), "Waiting Reboot");
}

#[test]
fn h9_h10_ended_while_a_single_node_is_emptied_its_job_is_ended_too_and_everything_put_back() {
    for delete in [false, true] {
        let mut world = emptying();
        world.stop_vm("web");
        if delete {
            world.delete();
        } else {
            world.annotate("afloat.dev/abort", "true");
        }
        world.settle();
        assert!(!world.has_job(KIND, Some("node-1")), "deleted: {delete}");
        assert!(world.has_job(JobKind::RestoreVm, Some("node-1")), "deleted: {delete}");
        world.complete_restore("node-1");
        assert_eq!(world.deleted(), delete);
        assert!(!world.has_job(KIND, Some("node-1")), "deleted: {delete}");
        let cluster = world.view.hci.local_cluster().unwrap();
        assert_eq!(&*cluster.kubernetes_version, OLD_RKE2);
        world.assert_nothing_left();
        if !delete {
            let told = world.condition("Completed").1;
            assert!(told.contains("before a node was drained"), "{told}");
        }
    }
}

#[test]
fn h10_ended_after_a_single_node_was_let_go_it_is_finished_first() {
    for delete in [false, true] {
        let mut world = let_go();
        if delete {
            world.delete();
        } else {
            world.annotate("afloat.dev/abort", "true");
        }
        world.settle();
        assert!(world.has_job(KIND, Some("node-1")), "deleted: {delete}");
        assert!(!world.deleted());
        finish(&mut world);
        assert_eq!(world.deleted(), delete);
        world.assert_nothing_left();
        if !delete {
            assert_eq!(world.condition("Completed").1, "aborted after the last node");
        }
    }
}

#[test]
fn a_single_node_that_fails_after_it_was_let_go_is_not_said_to_be_as_it_was() {
    let mut world = let_go();
    world.annotate("afloat.dev/abort", "true");
    world.fail(KIND, Some("node-1"), "the image could not be written");
    world.complete_restore("node-1");
    let told = world.condition("Completed").1;
    assert!(told.contains("has got a part of the release"), "{told}");
    world.annotate("afloat.dev/wish", "resume");
    world.settle();
    assert_eq!(world.state("node-1"), "Pre-draining");
    assert!(world.has_job(KIND, Some("node-1")));
}

#[test]
fn a_virtual_machine_that_was_started_on_a_single_node_meanwhile_is_put_on_record() {
    let mut world = let_go();
    world.add_vm("late", "node-1", |_| {});
    world.settle();
    assert!(world.recorded("node-1").contains("shop/late"));
}

#[test]
fn a_single_node_that_was_put_back_begins_again_only_where_nobody_ends_the_upgrade() {
    let mut world = emptying();
    world.annotate("afloat.dev/abort", "true");
    world.settle();
    world.complete_restore("node-1");
    assert!(crate::hci::over(&world.upgrade()));
    world.annotate("afloat.dev/wish", "resume");
    world.settle();
    assert_eq!(world.state("node-1"), "Pre-draining");
    assert!(world.has_job(KIND, Some("node-1")));
}

//! Back at any instant: because somebody asks, aborts, deletes, or begins anew.

use afloat_api::NodeState;
use afloat_api::NodeState::{
    Draining, Failed, RolledBack, RollingBack, Staged, Staging, Succeeded, Upgrading, Verifying,
};
use afloat_api::kubeadm::DesiredNodeState;

use crate::action::{Action, Task};
use crate::testing::{NEW, OLD, World, pod};

/// A worker that has got as far as this.
fn in_state(state: NodeState) -> World {
    let mut world = World::worker();
    if state == Staged {
        world.desire(DesiredNodeState::Staged);
    }
    if state == Draining {
        world.put(pod("shop", "cart-1", "worker-1", "cart"));
    }
    world.settle();
    if state != Staging {
        world.finish(Task::Stage);
        world.settle();
    }
    if matches!(state, Verifying | Succeeded) {
        world.finish(Task::Upgrade);
        world.settle();
    }
    if state == Succeeded {
        world.kubelet(NEW);
        world.settle();
    }
    assert_eq!(world.state(), state);
    world
}

/// Lets the undoing do its work, as far as there is one.
fn undo(world: &mut World) {
    world.settle();
    world.end_pods();
    world.settle();
    if world.has_pod(Task::Rollback) {
        world.finish(Task::Rollback);
        world.kubelet(OLD);
        world.settle();
    }
}

#[test]
fn rollback_in_each_state_leaves_nothing_behind() {
    for (state, touched) in [
        (Staging, false),
        (Staged, false),
        (Draining, false),
        (Upgrading, true),
        (Verifying, true),
        (Succeeded, true),
    ] {
        let mut world = in_state(state);
        world.annotate_because("Aborted");
        world.desire(DesiredNodeState::RolledBack);
        undo(&mut world);
        assert_eq!(
            (world.state(), world.failure().as_str()),
            (RolledBack, "Aborted"),
            "from {state}"
        );
        assert!(
            !world.node().unschedulable && world.node().cordoned_by.is_none(),
            "from {state}"
        );
        let rolled_back = world.status().steps.iter().any(|step| step.name == "rollback");
        assert_eq!(rolled_back, touched, "from {state}");
        for task in [Task::Stage, Task::Upgrade, Task::Rollback] {
            assert!(!world.has_pod(task), "{task:?} is left, from {state}");
        }
        assert!(!world.status().completed);
    }
}

#[test]
fn a_node_in_service_is_drained_before_it_is_undone() {
    let mut world = in_state(Succeeded);
    world.put(pod("shop", "cart-1", "worker-1", "cart"));
    world.desire(DesiredNodeState::RolledBack);
    world.settle();
    assert_eq!(world.state(), RollingBack);
    assert!(world.node().unschedulable && !world.has_pod(Task::Rollback));
    world.end_pods();
    world.settle();
    assert!(world.has_pod(Task::Rollback));
    undo(&mut world);
    assert_eq!((world.state(), world.failure().as_str()), (RolledBack, "RolledBack"));
}

#[test]
fn a_machine_that_left_before_it_was_undone_says_so() {
    let mut world = in_state(Succeeded);
    world.desire(DesiredNodeState::RolledBack);
    let name = world.node().name;
    world.view.nodes.remove(&name);
    world.settle();
    assert_eq!((world.state(), world.failure().as_str()), (Failed, "ObjectGone"));
    let upgrade = world.upgrade();
    assert!(crate::objects::Standing::of(&upgrade).ended(), "its slot is free");
}

#[test]
fn two_pods_never_work_on_one_machine() {
    let mut world = in_state(Upgrading);
    world.desire(DesiredNodeState::RolledBack);
    let decision = world.decide();
    let names: Vec<_> = decision.actions.iter().map(Action::name).collect();
    assert_eq!(names, ["write-node-status", "delete-pod"]);
    world.apply(&decision.actions[0]);
    let ending = crate::view::Ending {
        by: world.now,
        held_by_finalizer: false,
    };
    world.with_pod(&world.task_key(Task::Upgrade), |pod| pod.ending = Some(ending));
    assert!(world.decide().actions.is_empty(), "waits until it is gone");
    assert_eq!(world.waits_for(), "WaitingForPodTermination");
}

#[test]
fn a_deferred_node_is_put_back_and_says_so() {
    let mut world = in_state(Draining);
    world.annotate_because("Deferred");
    world.desire(DesiredNodeState::RolledBack);
    undo(&mut world);
    assert_eq!((world.state(), world.failure().as_str()), (RolledBack, "Deferred"));
    world.with_upgrade(|upgrade| {
        upgrade.spec.attempt = 2;
        upgrade.spec.desired = DesiredNodeState::Staged;
    });
    world.settle();
    assert_eq!((world.state(), world.failure().as_str()), (Staging, ""));
}

#[test]
fn an_object_that_is_deleted_puts_its_node_back_first() {
    for state in [Staging, Staged, Draining, Upgrading, Verifying] {
        let mut world = in_state(state);
        world.delete_upgrade();
        for _ in 0..20 {
            if world.view.node_upgrade(&world.key).is_none() {
                break;
            }
            world.turn();
            if world.view.node_upgrade(&world.key).is_some() && world.has_pod(Task::Rollback) {
                world.finish(Task::Rollback);
            }
        }
        assert!(world.view.node_upgrade(&world.key).is_none(), "from {state}");
        let node = world.view.nodes.get("worker-1").unwrap();
        assert!(!node.unschedulable && node.cordoned_by.is_none(), "from {state}");
    }
    // At its target it stays.
    let mut world = in_state(Succeeded);
    world.delete_upgrade();
    let decision = world.decide();
    assert!(
        matches!(decision.actions.as_slice(), [Action::RemoveNodeFinalizer { .. }]),
        "{:?}",
        decision.actions
    );
}

#[test]
fn a_new_attempt_amid_an_old_one_begins_after_that_was_undone() {
    let mut world = in_state(Upgrading);
    world.with_upgrade(|upgrade| upgrade.spec.attempt = 2);
    world.settle();
    assert_eq!((world.state(), world.status().attempt), (RollingBack, Some(1)));
    world.finish(Task::Rollback);
    world.settle();
    assert_eq!((world.state(), world.status().attempt), (Staging, Some(2)));
    assert!(!world.node().unschedulable);
}

#[test]
fn the_history_is_bounded() {
    let mut world = in_state(Succeeded);
    for attempt in 2..20 {
        world.with_upgrade(|upgrade| upgrade.spec.attempt = attempt);
        world.settle();
        world.finish(Task::Stage);
        world.settle();
        world.finish(Task::Upgrade);
        world.settle();
        assert_eq!(world.state(), Succeeded);
    }
    let history = world.status().history;
    assert_eq!(history.len(), 32);
    assert_eq!((history[31].state, history[31].attempt), (Succeeded, 19));
}

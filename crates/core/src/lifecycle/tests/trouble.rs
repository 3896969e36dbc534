//! Steps that wait, fail or are undone; pods that vanish; machines that leave.

use std::sync::Arc;

use afloat_api::NodeState::{Failed, RolledBack, RollingBack, Staging, Upgrading, Verifying};
use afloat_api::kubeadm::DesiredNodeState;
use afloat_api::node::{StepOutcome, StepReport, exit, steps};

use crate::action::{Action, Task};
use crate::testing::{NEW, OLD, World, node, owner, pod, said, uid};
use crate::view::{PodPhase, PodShape, Revision, Uid};

pub(super) fn upgrading() -> World {
    let mut world = World::worker();
    world.settle();
    world.finish(Task::Stage);
    world.settle();
    assert_eq!(world.state(), Upgrading);
    world
}

#[test]
fn a_step_that_asks_for_time_is_shown_with_its_reason() {
    let mut world = upgrading();
    let report = StepReport {
        reason: Some("WaitingForEtcd".to_owned()),
        ..said(StepOutcome::Later, "etcd member cp-2 is behind")
    };
    world.end_step(Task::Upgrade, steps::CONTAINERD, exit::LATER, &report);
    world.settle();
    let wait = world.status().waiting_for.unwrap();
    assert_eq!((wait.reason.as_str(), world.state()), ("WaitingForEtcd", Upgrading));
    // The kubelet starts it again: what it waits for has not changed by that.
    let now = world.now;
    world.pass(5);
    world.with_container(Task::Upgrade, steps::CONTAINERD, |container| {
        container.running_since = Some(now);
        container.restarts = 1;
    });
    world.settle();
    assert_eq!(world.status().waiting_for.unwrap().since, wait.since);
    assert_eq!(world.status().steps[1].attempt, 2);
    // A word that is no reason of ours does not get into the status as one.
    let report = StepReport {
        reason: Some("no reason".to_owned()),
        ..said(StepOutcome::Later, "")
    };
    world.end_step(Task::Upgrade, steps::CONTAINERD, exit::LATER, &report);
    world.settle();
    assert_eq!(world.waits_for(), "WaitingForStep");
    world.finish(Task::Upgrade);
    world.settle();
    assert_eq!(world.state(), Verifying);
}

#[test]
fn a_step_that_is_killed_is_not_a_failure() {
    let mut world = upgrading();
    world.end_step(Task::Upgrade, steps::CONTAINERD, 137, &said(StepOutcome::Done, ""));
    world.settle();
    assert_eq!(
        (world.state(), world.waits_for().as_str()),
        (Upgrading, "WaitingForStep")
    );
    // It left no report: the kubelet gives the end of its log instead, of which the last line says where it was.
    world.with_container(Task::Upgrade, steps::CONTAINERD, |container| {
        if let Some(end) = &mut container.ended {
            end.message = "goes on\nwaits for containerd\n".into();
        }
    });
    world.settle();
    let wait = world.status().waiting_for.unwrap();
    assert_eq!(wait.message, "step containerd: waits for containerd");
}

#[test]
fn p32_a_step_that_fails_is_named_undone_and_the_node_given_back() {
    let mut world = upgrading();
    world.end_step(
        Task::Upgrade,
        steps::CONTAINERD,
        exit::DONE,
        &said(StepOutcome::Done, ""),
    );
    world.end_step(
        Task::Upgrade,
        steps::CNI,
        exit::FAILED,
        &said(StepOutcome::Failed, "/opt is full"),
    );
    let decision = world.turn();
    assert_eq!((world.state(), world.failure().as_str()), (Failed, "StepFailed"));
    let warnings: Vec<_> = decision.events.iter().filter(|event| event.warning).collect();
    assert_eq!(warnings.len(), 1);
    assert!(
        warnings[0].message.contains("step cni: /opt is full"),
        "{}",
        warnings[0].message
    );
    world.settle();
    assert_eq!(world.state(), RollingBack);
    assert!(world.has_pod(Task::Rollback) && !world.has_pod(Task::Upgrade));
    world.finish(Task::Rollback);
    world.settle();
    assert_eq!((world.state(), world.failure().as_str()), (RolledBack, "StepFailed"));
    assert!(!world.node().unschedulable && !world.has_pod(Task::Rollback));
}

#[test]
fn what_the_host_undid_by_itself_is_only_verified() {
    let mut world = upgrading();
    world.kubelet(NEW);
    let report = said(StepOutcome::Undone, "the kubelet did not come back");
    world.end_step(Task::Upgrade, steps::CONTAINERD, exit::UNDONE, &report);
    world.settle();
    assert_eq!((world.state(), world.failure().as_str()), (RollingBack, "UndoneByHost"));
    assert_eq!(world.waits_for(), "WaitingForNode");
    assert!(!world.has_pod(Task::Rollback));
    world.kubelet(OLD);
    world.settle();
    assert_eq!((world.state(), world.failure().as_str()), (RolledBack, "UndoneByHost"));
    assert!(!world.node().unschedulable);
}

#[test]
fn an_image_that_cannot_be_pulled_is_named_then_fails() {
    let mut world = World::worker();
    world.settle();
    world.with_report(Task::Stage, |report| {
        report.image_problem = Some(Arc::from("manifest unknown"));
    });
    world.settle();
    assert_eq!(
        (world.state(), world.waits_for().as_str()),
        (Staging, "ImagePullFailed")
    );
    world.pass(1800);
    world.settle();
    assert_eq!(
        (world.state(), world.failure().as_str()),
        (RolledBack, "ImagePullFailed")
    );
    assert!(!world.done.contains(&"cordon"));
}

#[test]
fn a_pod_that_somebody_removes_is_made_again_and_goes_on() {
    let mut world = upgrading();
    world.end_step(
        Task::Upgrade,
        steps::CONTAINERD,
        exit::DONE,
        &said(StepOutcome::Done, ""),
    );
    world.settle();
    let key = world.task_key(Task::Upgrade);
    world.view.remove_pod(&key);
    world.settle();
    assert!(world.has_pod(Task::Upgrade));
    assert_eq!(
        world.status().current_step.as_deref(),
        Some(steps::CNI),
        "what is done is done"
    );
    // Evicted by the kubelet: the pod is still there, but it is over.
    world.with_pod(&key, |pod| pod.phase = PodPhase::Failed);
    world.settle();
    assert_eq!(world.view.pod(&key).unwrap().phase, PodPhase::Pending);
}

#[test]
fn a_pod_that_comes_to_light_after_the_drain_is_asked_to_go_before_the_steps_start() {
    let mut world = upgrading();
    let key = world.task_key(Task::Upgrade);
    let refused = |world: &World| {
        let decision = world.decide();
        decision.actions.iter().find_map(|action| match action {
            Action::CreatePod(pod) => Some(pod.emptied),
            _ => None,
        })
    };
    // It was refused, as a pod was left that no watch had told of.
    world.view.remove_pod(&key);
    assert_eq!(refused(&world), Some(true), "whoever makes it has to look");
    world.put(pod("shop", "late", "worker-1", "web"));
    world.turn();
    assert!(!world.has_pod(Task::Upgrade));
    assert!(world.done.contains(&"evict"));
    world.end_pods();
    world.settle();
    assert!(world.has_pod(Task::Upgrade));
}

#[test]
fn a_namesake_of_another_upgrade_is_not_believed() {
    let mut world = upgrading();
    world.finish(Task::Upgrade);
    let key = world.task_key(Task::Upgrade);
    world.with_pod(&key, |pod| {
        pod.shape = Arc::new(PodShape {
            owner: Some(owner("NodeKubeadmUpgrade", "yesterday")),
            ..(*pod.shape).clone()
        });
    });
    world.settle();
    assert_eq!(world.state(), Upgrading);
    assert_eq!(
        world.view.pod(&key).unwrap().shape.owner.as_ref().unwrap().uid,
        uid(&world.key.name)
    );
}

#[test]
fn an_upgrade_that_takes_too_long_is_undone_and_an_undoing_that_fails_is_not_repeated() {
    let mut world = upgrading();
    world.pass(4 * 1800);
    world.settle();
    assert_eq!(
        (world.state(), world.failure().as_str()),
        (RollingBack, "DeadlineExceeded")
    );
    world.pass(30);
    world.end_step(
        Task::Rollback,
        steps::ROLLBACK,
        exit::FAILED,
        &said(StepOutcome::Failed, "no backup of kubelet"),
    );
    world.settle();
    assert_eq!((world.state(), world.failure().as_str()), (Failed, "RollbackFailed"));
    assert!(world.node().unschedulable, "nobody knows what it is good for");
    let stalled = world
        .status()
        .conditions
        .into_iter()
        .find(|condition| condition.type_ == "Stalled")
        .unwrap();
    assert_eq!(stalled.status, "True");
    assert!(stalled.message.contains("no backup of kubelet"), "{}", stalled.message);
    world.desire(DesiredNodeState::RolledBack);
    world.pass(100_000);
    world.settle();
    assert_eq!(world.state(), Failed);
    // Only a new attempt leads on; it knows that the cordon is ours, and what the node was.
    world.with_upgrade(|upgrade| {
        upgrade.spec.attempt = 2;
        upgrade.spec.desired = DesiredNodeState::Upgraded;
    });
    world.kubelet(NEW);
    world.settle();
    let status = world.status();
    assert_eq!((status.attempt, world.state()), (Some(2), Staging));
    assert_eq!(status.before.unwrap().kubelet_version, OLD);
    world.finish(Task::Stage);
    world.settle();
    world.finish(Task::Upgrade);
    world.settle();
    assert_eq!(world.state(), afloat_api::NodeState::Succeeded);
    assert!(!world.node().unschedulable);
}

#[test]
fn an_undoing_of_a_dead_machine_ends() {
    let mut world = upgrading();
    world.pass(4 * 1800);
    world.settle();
    world.with_node(|node| node.ready.ready = false);
    world.pass(1800);
    world.settle();
    assert_eq!((world.state(), world.failure().as_str()), (Failed, "RollbackFailed"));
    // Whoever deletes the object then gets no pods onto a machine that is half one thing and half another.
    world.delete_upgrade();
    let decision = world.turn();
    let words: Vec<&str> = decision.actions.iter().map(Action::name).collect();
    assert_eq!(words, ["remove-node-finalizer"], "and no uncordon");
}

#[test]
fn a_machine_that_left_is_not_put_back_nor_its_successor_touched() {
    for replaced in [false, true] {
        let mut world = upgrading();
        let name = world.node().name;
        world.view.nodes.remove(&name);
        if replaced {
            let other = crate::view::Node {
                uid: Uid::from("another"),
                ..node("worker-1")
            };
            world.view.nodes.insert(name, Arc::new(other));
        }
        world.settle();
        assert_eq!((world.state(), world.failure().as_str()), (Failed, "ObjectGone"));
        assert!(!world.has_pod(Task::Upgrade), "it must not run on the successor");
        assert!(!world.done.contains(&"uncordon"));
        world.delete_upgrade();
        let decision = world.turn();
        assert!(matches!(
            decision.actions.as_slice(),
            [Action::RemoveNodeFinalizer { .. }]
        ));
    }
}

#[test]
fn every_task_says_which_attempt_it_is() {
    let mut world = World::worker();
    world.with_upgrade(|upgrade| upgrade.spec.attempt = 3);
    let decision = world.decide();
    let Some(Action::CreatePod(pod)) = decision.actions.last() else {
        panic!("{:?}", decision.actions)
    };
    assert_eq!(pod.attempt, 3);
    assert!(
        pod.steps[0]
            .env
            .iter()
            .any(|variable| variable.name == "AFLOAT_ATTEMPT" && variable.value == "3")
    );
    assert_eq!(pod.upgrade_uid.as_str(), crate::testing::UPGRADE);
}

#[test]
fn p32_a_machine_that_dies_amid_its_steps_is_what_they_wait_for() {
    let mut world = upgrading();
    world.with_node(|node| node.ready.ready = false);
    world.settle();
    assert_eq!(
        (world.state(), world.waits_for().as_str()),
        (Upgrading, "WaitingForNode")
    );
    world.with_node(|node| node.ready.ready = true);
    world.settle();
    assert_eq!(world.waits_for(), "");
}

/// A node whose upgrade failed, and could not be undone either.
fn half_done() -> World {
    let mut world = upgrading();
    world.pass(4 * 1800);
    world.settle();
    let report = said(StepOutcome::Failed, "no backup of kubelet");
    world.end_step(Task::Rollback, steps::ROLLBACK, exit::FAILED, &report);
    world.settle();
    assert_eq!((world.state(), world.failure().as_str()), (Failed, "RollbackFailed"));
    world
}

/// What the machine says to whoever comes next.
fn refuses_staging(world: &mut World) {
    let report = said(StepOutcome::Failed, "attempt 1 was neither finished nor undone");
    world.end_step(Task::Stage, steps::STAGE, exit::FAILED, &report);
    world.settle();
}

/// Deleted by a person, with what it owned, and made anew by its group.
fn made_anew(world: &mut World, name: &str) {
    world.delete_upgrade();
    for task in [Task::Stage, Task::Upgrade, Task::Rollback] {
        let key = world.task_key(task);
        world.view.remove_pod(&key);
    }
    world.turn();
    assert!(world.view.node_upgrade(&world.key).is_none());
    let mut anew = World::worker().upgrade();
    anew.metadata.uid = Some(name.to_owned());
    world.view.put_node_upgrade(world.key.clone(), Arc::new(anew));
    world.view.node_upgrades_as_of = Revision(u64::MAX);
    world.settle();
    assert_eq!(world.state(), Staging);
}

#[test]
fn a_node_that_could_not_be_put_back_is_not_given_back_by_an_object_that_did_nothing_to_it() {
    let mut world = half_done();
    made_anew(&mut world, "second");
    refuses_staging(&mut world);
    assert_eq!((world.state(), world.failure().as_str()), (RolledBack, "StepFailed"));
    assert!(world.node().unschedulable, "the cordon is not of this object");
    // Nor when that one is deleted in its turn; but once the machine takes an upgrade again, it is in service at its end.
    made_anew(&mut world, "third");
    assert!(world.node().unschedulable);
    world.finish(Task::Stage);
    world.settle();
    world.finish(Task::Upgrade);
    world.kubelet(NEW);
    world.settle();
    assert_eq!(world.state(), afloat_api::NodeState::Succeeded);
    assert_eq!((world.node().unschedulable, world.node().cordoned_by), (false, None));
}

#[test]
fn what_one_attempt_could_not_undo_the_next_one_undoes_before_the_node_is_given_back() {
    let mut world = half_done();
    world.with_upgrade(|upgrade| upgrade.spec.attempt = 2);
    world.settle();
    refuses_staging(&mut world);
    assert_eq!(world.state(), RollingBack);
    assert!(world.node().unschedulable && world.has_pod(Task::Rollback));
    world.finish(Task::Rollback);
    world.settle();
    assert_eq!((world.state(), world.node().unschedulable), (RolledBack, false));
}

//! The way to the target when nothing goes wrong.

use afloat_api::NodeState::{Draining, Staged, Staging, StandingAside, Succeeded, Upgrading, Verifying};
use afloat_api::kubeadm::{DesiredNodeState, StepState};
use afloat_api::node::{StepOutcome, exit, steps};

use crate::action::{Decision, Task};
use crate::objects::target_of;
use crate::testing::{NEW, UPGRADE, World, pod, said};

#[test]
fn p25_a_worker_is_staged_drained_upgraded_verified_and_given_back() {
    let mut world = World::worker();
    world.put(pod("shop", "cart-1", "worker-1", "cart"));

    world.settle();
    assert_eq!(world.state(), Staging);
    assert!(!world.node().unschedulable);
    world.finish(Task::Stage);

    world.settle();
    assert_eq!(world.state(), Draining);
    assert_eq!(world.node().cordoned_by.unwrap().as_str(), UPGRADE);
    assert!(
        !world.has_pod(Task::Upgrade),
        "nothing is touched before the last pod has gone"
    );
    assert!(!world.has_pod(Task::Stage), "a finished pod does not stay");
    world.end_pods();

    world.settle();
    assert_eq!(world.state(), Upgrading);
    world.finish(Task::Upgrade);
    world.settle();
    assert_eq!(
        (world.state(), world.waits_for().as_str()),
        (Verifying, "WaitingForNode")
    );
    assert!(world.node().unschedulable, "not given back before it is seen to work");

    world.kubelet(NEW);
    world.settle();
    assert_eq!(
        world.states,
        [Staging, Staged, Draining, Upgrading, Verifying, Succeeded]
    );
    let status = world.status();
    assert!(status.completed);
    assert!(!status.cordoned_by_afloat);
    assert_eq!((world.node().unschedulable, world.node().cordoned_by), (false, None));
    assert!(!world.has_pod(Task::Upgrade));
}

/// `worker-1` at its target, given back.
fn done() -> World {
    let mut world = World::worker();
    world.settle();
    world.finish(Task::Stage);
    world.settle();
    world.finish(Task::Upgrade);
    world.kubelet(NEW);
    world.settle();
    assert_eq!(world.state(), Succeeded);
    world
}

/// A cordon that a replica had sent and that came after the end.
fn cordon_late(world: &mut World) {
    world.with_node(|node| {
        node.unschedulable = true;
        node.cordoned_by = Some(UPGRADE.into());
        node.revision.0 += 1000;
    });
}

#[test]
fn a_late_cordon_is_taken_back_also_where_no_upgrade_is_written_any_more() {
    let mut world = done();
    let own = |world: &World| target_of(&world.upgrade().metadata).revision;
    world.view.node_upgrades_as_of = own(&world);
    cordon_late(&mut world);
    world.settle();
    assert_eq!(
        world.waits_for(),
        "WaitingForNode",
        "others may be at work that are not seen"
    );
    assert!(world.node().unschedulable);
    // A kubelet reports meanwhile, and what was said comes back by the watch.
    world.with_node(|node| node.revision.0 += 1000);
    world.settle();
    assert!(world.node().unschedulable);
    world.view.node_upgrades_as_of = own(&world);
    world.settle();
    assert_eq!((world.node().unschedulable, world.node().cordoned_by), (false, None));
    assert_eq!(world.waits_for(), "");
}

type Wake = fn(&mut World);

#[test]
fn a_node_that_is_done_is_left_alone_until_somebody_wants_something_of_it() {
    assert_eq!(done().decide(), Decision::default());
    let wakes: [(&str, Wake); 5] = [
        ("undoing is asked for", |world| {
            world.desire(DesiredNodeState::RolledBack);
        }),
        ("another attempt", |world| {
            world.with_upgrade(|upgrade| upgrade.spec.attempt += 1);
        }),
        ("its object is deleted", World::delete_upgrade),
        ("a cordon of ours came late", cordon_late),
        ("the spec was written anew", |world| {
            world.with_upgrade(|upgrade| upgrade.metadata.generation = Some(99));
        }),
    ];
    for (why, wake) in wakes {
        let mut world = done();
        wake(&mut world);
        let decision = world.decide();
        let moved = !decision.actions.is_empty() || decision.again.is_some();
        assert!(moved, "{why}");
    }
}

#[test]
fn p24_progress_is_shown_per_step() {
    let mut world = World::worker();
    world.settle();
    world.finish(Task::Stage);
    world.settle();
    world.end_step(
        Task::Upgrade,
        steps::CONTAINERD,
        exit::DONE,
        &said(StepOutcome::Done, "containerd 2.2.1"),
    );
    world.end_step(
        Task::Upgrade,
        steps::CNI,
        exit::DONE,
        &said(StepOutcome::Skipped, "at 1.9.0 already"),
    );
    world.settle();
    let status = world.status();
    assert_eq!(status.current_step.as_deref(), Some(steps::KUBEADM));
    let seen: Vec<_> = status
        .steps
        .iter()
        .map(|step| (step.name.as_str(), step.state))
        .collect();
    assert_eq!(
        seen,
        [
            ("stage", StepState::Succeeded),
            ("containerd", StepState::Succeeded),
            ("cni", StepState::Skipped),
            ("kubeadm", StepState::Running),
            ("kubelet", StepState::Waiting),
        ]
    );
    assert_eq!(status.steps[1].message.as_deref(), Some("containerd 2.2.1"));
}

#[test]
fn p39_a_control_plane_stands_aside_before_anything_on_it_changes() {
    let mut world = World::control_plane();
    world.settle();
    world.finish(Task::Stage);
    world.settle();
    assert_eq!(world.state(), StandingAside);
    world.end_step(
        Task::Upgrade,
        steps::STAND_ASIDE,
        exit::DONE,
        &said(StepOutcome::Done, "forwarded"),
    );
    world.settle();
    assert_eq!(world.state(), Upgrading);
    world.finish(Task::Upgrade);
    world.kubelet(NEW);
    let now = world.now;
    world.run_parts(NEW, now);
    world.settle();
    assert_eq!(
        world.states,
        [
            Staging,
            Staged,
            Draining,
            StandingAside,
            Upgrading,
            Verifying,
            Succeeded
        ]
    );
}

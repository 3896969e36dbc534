//! What has to be seen before a node is given back.

use std::sync::Arc;

use afloat_api::NodeRole;
use afloat_api::NodeState::{Succeeded, Upgrading, Verifying};
use afloat_api::kubeadm::StepState;
use afloat_api::node::steps;

use crate::action::Task;
use crate::testing::{NEW, OLD, World, at, control_plane, static_pod};
use crate::view::{Component, Key, NodeName, Pod};

/// `cp-1` after its steps, everything seen to work but what `spoil` does.
fn verifying(spoil: impl FnOnce(&mut World)) -> World {
    let mut world = World::control_plane();
    world.settle();
    world.finish(Task::Stage);
    world.settle();
    world.finish(Task::Upgrade);
    world.kubelet(NEW);
    let now = world.now;
    world.run_parts(NEW, now);
    spoil(&mut world);
    world.settle();
    world
}

fn with_part(world: &mut World, component: Component, change: impl FnOnce(&mut Pod)) {
    let name = NodeName::from("cp-1");
    let key = world
        .view
        .static_parts(&name)
        .find(|(_, part)| part.component == component)
        .map(|(pod, _)| pod.key.clone());
    world.with_pod(&key.unwrap(), change);
}

fn with_health(world: &mut World, change: impl FnOnce(&mut crate::view::ControlPlaneHealth)) {
    change(world.view.health.get_mut("cp-1").unwrap());
}

/// Spoils one thing: the node waits with this reason, is not given back, and once that is well nothing else is missing.
fn waits(case: &str, reason: &str, spoil: impl FnOnce(&mut World)) {
    let mut world = verifying(spoil);
    let seen = (world.state(), world.waits_for());
    assert_eq!(seen, (Verifying, reason.to_owned()), "{case}");
    assert!(world.node().unschedulable, "{case}");
    world.kubelet(NEW);
    world.with_node(|node| node.ready.ready = true);
    let now = world.now;
    world.run_parts(NEW, now);
    world.settle();
    assert_eq!(world.state(), Succeeded, "{case}");
    assert!(!world.node().unschedulable, "{case}");
}

#[test]
fn k35_a_control_plane_is_verified_by_its_parts_not_by_its_word() {
    let unready = |component| move |world: &mut World| with_part(world, component, |pod| pod.ready = false);
    waits("kubelet old", "WaitingForNode", |world| world.kubelet(OLD));
    waits("node not Ready", "WaitingForNode", |world| {
        world.with_node(|node| node.ready.ready = false);
    });
    waits("kube-vip", "WaitingForVirtualIp", unready(Component::KubeVip));
    waits("etcd", "WaitingForEtcd", unready(Component::Etcd));
    waits("scheduler", "WaitingForNode", unready(Component::Scheduler));
    waits("Ready by the old kubelet's word", "WaitingForEtcd", |world| {
        with_part(world, Component::Etcd, |pod| pod.started_at = Some(at(-1000)));
    });
    waits("API server old", "WaitingForApiServer", |world| {
        with_part(world, Component::ApiServer, |pod| {
            pod.static_part.as_mut().unwrap().version = OLD.parse().ok();
        });
    });
    waits("kube-vip away", "WaitingForVirtualIp", |world| {
        // The gate before the next node would see it: behind the last one there is none.
        world.put(static_pod(Component::KubeVip, "kube-vip", "cp-2", "v1.0.4"));
        world.view.remove_pod(&Key::new("kube-system", "kube-vip-cp-1"));
    });
    waits("API server away", "WaitingForApiServer", |world| {
        world.view.remove_pod(&Key::new("kube-system", "kube-apiserver-cp-1"));
    });
}

#[test]
fn k35_a_control_plane_is_verified_by_its_endpoints() {
    waits("ready twice", "WaitingForApiServer", |world| {
        with_health(world, |health| health.readyz_in_a_row = 2);
    });
    waits("not probed", "WaitingForApiServer", |world| world.view.health.clear());
    waits("member not healthy", "WaitingForEtcd", |world| {
        with_health(world, |health| health.etcd.as_mut().unwrap().healthy = false);
    });
    waits("member not probed", "WaitingForEtcd", |world| {
        with_health(world, |health| health.etcd = None);
    });
}

#[test]
fn a_patch_release_restarts_only_what_changed() {
    let mut world = World::control_plane();
    world.kubelet("v1.36.2");
    world.settle();
    world.finish(Task::Stage);
    world.settle();
    world.finish(Task::Upgrade);
    world.kubelet(NEW);
    world.run_parts(NEW, at(-1000));
    world.settle();
    assert_eq!(world.state(), Succeeded);
}

#[test]
fn a_node_that_does_not_come_up_in_time_is_put_back() {
    let mut world = verifying(|world| with_part(world, Component::KubeVip, |pod| pod.ready = false));
    world.pass(600);
    world.settle();
    assert_eq!(world.failure(), "VerificationFailed");
    assert!(world.has_pod(Task::Rollback) && !world.has_pod(Task::Upgrade));
    world.finish(Task::Rollback);
    world.kubelet(OLD);
    let now = world.now;
    world.run_parts(OLD, now);
    world.settle();
    assert_eq!(world.state(), afloat_api::NodeState::RolledBack);
    assert!(!world.node().unschedulable);
    let undone = world
        .status()
        .steps
        .iter()
        .filter(|step| step.state == StepState::Undone)
        .count();
    assert_eq!(undone, 6);
}

#[test]
fn p38_a_single_control_plane_may_lose_its_api_for_a_while() {
    let alone = [control_plane("only")];
    let mut world = World::new(NodeRole::FirstControlPlane, "only", &alone);
    world.with_upgrade(|upgrade| {
        let peers = [steps::STAND_ASIDE, steps::COME_BACK];
        Arc::make_mut(&mut upgrade.spec.steps).retain(|step| !peers.contains(&step.name.as_str()));
    });
    world.run_parts(OLD, at(-1000));
    world.settle();
    world.finish(Task::Stage);
    world.settle();
    assert_eq!(world.state(), Upgrading, "there is nobody to stand aside for");
    world.view.health.clear();
    world.finish(Task::Upgrade);
    world.kubelet(NEW);
    world.pass(300);
    world.settle();
    assert_eq!(world.state(), Verifying);
    let now = world.now;
    world.run_parts(NEW, now);
    world.settle();
    assert_eq!(world.state(), Succeeded);
}

//! The upgrade of a control plane that nobody owns, beside others: one at a time, under the lock of the cluster and behind the gates.

use std::sync::Arc;

use afloat_api::NodeState;
use afloat_api::NodeState::{Draining, Pending, Staged, Staging, Succeeded};
use afloat_api::kubeadm::DesiredNodeState;

use crate::action::{Action, Task};
use crate::changed::Changed;
use crate::subject::{Subject, affected};
use crate::testing::{NEW, OLD, World, at, static_pod};
use crate::view::{Component, ControlPlaneHealth, EtcdMember, Key, Lock, Node, NodeName, Revision, Target};

/// Three control planes that are well; the first has an upgrade that nobody owns.
fn alone() -> World {
    let mut world = World::control_plane();
    world.with_upgrade(|upgrade| {
        upgrade.metadata.owner_references = None;
        upgrade.metadata.labels = None;
    });
    for name in ["cp-2", "cp-3"] {
        for (component, word) in [
            (Component::Etcd, "etcd"),
            (Component::ApiServer, "kube-apiserver"),
            (Component::ControllerManager, "kube-controller-manager"),
            (Component::Scheduler, "kube-scheduler"),
            (Component::KubeVip, "kube-vip"),
        ] {
            let mut pod = static_pod(component, word, name, OLD);
            pod.started_at = Some(at(-1000));
            world.put(pod);
        }
        let health = ControlPlaneHealth {
            readyz_in_a_row: 3,
            etcd: Some(EtcdMember { healthy: true }),
        };
        world.view.health.insert(NodeName::from(name), health);
    }
    world.view.vip_holder = Some(NodeName::from("cp-3"));
    world
}

fn taken_by(world: &mut World, holder: &str) {
    world.view.lock = Some(Lock {
        target: Target {
            key: Key::new("afloat-system", "afloat-upgrade"),
            uid: "lock".into(),
            revision: Revision(1),
        },
        holder: holder.into(),
    });
}

fn other(world: &mut World, change: impl FnOnce(&mut Node)) {
    let node = world.view.nodes.get_mut("cp-2").unwrap();
    change(Arc::make_mut(node));
}

fn has_lock(world: &World) -> bool {
    let uid = world.upgrade().metadata.uid;
    world
        .view
        .lock
        .as_ref()
        .is_some_and(|lock| uid.as_deref() == Some(lock.holder.as_str()))
}

fn goes_through(world: &mut World) {
    world.settle();
    world.finish(Task::Stage);
    world.settle();
    world.end_pods();
    world.settle();
    assert!(has_lock(world));
    world.finish(Task::Upgrade);
    world.settle();
    world.run_parts(NEW, world.now);
    world.kubelet(NEW);
    world.settle();
    assert_eq!(world.state(), Succeeded, "{:?}", world.status().waiting_for);
}

#[test]
fn p21_it_has_the_cluster_from_before_anything_is_brought_to_it_until_it_is_over() {
    let mut world = alone();
    taken_by(&mut world, "somebody");
    world.settle();
    assert_eq!(
        (world.state(), world.waits_for().as_str()),
        (Pending, "WaitingForOtherUpgrade")
    );
    assert!(!world.has_pod(Task::Stage));
    world.view.lock = None;
    goes_through(&mut world);
    assert!(world.view.lock.is_none(), "nobody waits for what is over");
    assert!(world.node().cordoned_by.is_none());
}

#[test]
fn it_is_not_begun_while_another_control_plane_is_away_or_not_put_back() {
    type Spoil = fn(&mut Node);
    let spoilt: [(Spoil, Spoil); 2] = [
        (|node| node.ready.ready = false, |node| node.ready.ready = true),
        (
            |node| node.cordoned_by = Some("another".into()),
            |node| node.cordoned_by = None,
        ),
    ];
    for (spoil, mend) in spoilt {
        let mut world = alone();
        world.settle();
        assert_eq!(world.state(), Staging);
        other(&mut world, spoil);
        world.finish(Task::Stage);
        world.settle();
        assert_eq!((world.state(), world.waits_for().as_str()), (Staged, "WaitingForNode"));
        assert!(!world.node().unschedulable && has_lock(&world));
        other(&mut world, mend);
        let woken = affected(&world.view, &Changed::Health(NodeName::from("cp-2")));
        assert!(woken.contains(&Subject::Node(world.key.clone())));
        world.settle();
        assert!(world.node().unschedulable);
    }
}

#[test]
fn one_that_is_only_to_be_staged_keeps_nobody_waiting() {
    let mut world = alone();
    world.desire(DesiredNodeState::Staged);
    world.settle();
    assert!(has_lock(&world));
    world.finish(Task::Stage);
    world.settle();
    assert_eq!(world.state(), Staged);
    assert!(world.view.lock.is_none());
    taken_by(&mut world, "somebody");
    world.desire(DesiredNodeState::Upgraded);
    world.settle();
    assert_eq!(
        (world.state(), world.waits_for().as_str()),
        (Staged, "WaitingForOtherUpgrade")
    );
    assert!(!world.node().unschedulable);
    let woken = affected(&world.view, &Changed::Lock);
    assert!(woken.contains(&Subject::Node(world.key.clone())));
}

#[test]
fn one_that_a_person_has_cordoned_before_is_not_drained_without_the_lock() {
    let mut world = alone();
    world.with_node(|node| node.unschedulable = true);
    world.settle();
    world.finish(Task::Stage);
    let decision = loop {
        let decision = world.turn();
        if world.state() == Draining {
            break decision;
        }
        assert!(!decision.actions.is_empty(), "{:?}", world.status());
    };
    assert!(matches!(decision.actions.first(), Some(Action::TakeLock { .. })));
}

#[test]
fn undoing_it_needs_the_lock_and_deleting_it_gives_that_back_first() {
    let mut world = alone();
    goes_through(&mut world);
    taken_by(&mut world, "somebody");
    world.desire(DesiredNodeState::RolledBack);
    world.settle();
    assert_eq!(
        (world.state(), world.waits_for().as_str()),
        (Succeeded, "WaitingForOtherUpgrade")
    );
    world.view.lock = None;
    world.settle();
    assert_eq!(world.state(), NodeState::RollingBack);
    assert!(has_lock(&world));

    let mut world = alone();
    world.settle();
    assert!(has_lock(&world));
    world.delete_upgrade();
    for _ in 0..5 {
        if world.view.node_upgrade(&world.key).is_none() {
            break;
        }
        world.turn();
    }
    assert!(world.view.node_upgrade(&world.key).is_none());
    assert!(world.view.lock.is_none());
}

/// A turn from an old view took it, when its upgrade was over: nobody else would give it back.
#[test]
fn a_lock_that_was_taken_too_late_is_given_back() {
    let mut world = alone();
    goes_through(&mut world);
    let uid = world.upgrade().metadata.uid.unwrap();
    taken_by(&mut world, &uid);
    world.settle();
    assert!(world.view.lock.is_none());
}

#[test]
fn a_worker_of_its_own_takes_no_lock() {
    let mut world = World::worker();
    taken_by(&mut world, "somebody");
    world.settle();
    assert_eq!(world.state(), Staging);
}

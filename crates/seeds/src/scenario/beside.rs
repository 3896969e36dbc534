//! Scenarios without a ClusterUpgrade, and of groups that stand alone beside one: whoever keeps a ledger of its own shares the lock of the
//! cluster with all others.

use super::Scenario;
use super::setup::{FROM, TO, node};
use super::words::{SUCCEEDED, scenario, usual};
use crate::store::KindName;
use crate::time::{MINUTE, SECOND};
use crate::world::Act;
use afloat_api::{NodeRole, NodeState};

/// More than three, so that one may leave.
fn five_control_planes_alone(setup: &mut super::Setup<'_>) {
    setup.cluster(5, 2, FROM);
    setup.workloads();
    setup.control_plane_alone(TO);
    // It is to go first, and leaves when all are about to go.
    let leaves = Act::RemoveNode(node("cp-1"));
    setup.when(NodeState::Staging, Some("cp-1"), 500, Act::Hold(node("cp-1")));
    setup.when(NodeState::Staged, Some("cp-2"), MINUTE, leaves);
}

pub(super) static BESIDE: &[Scenario] = &[
    scenario(
        "alone-control-plane",
        "a ControlPlaneKubeadmUpgrade of its own",
        SUCCEEDED,
        0,
        |setup| {
            usual(setup);
            setup.control_plane_alone(TO);
        },
    ),
    scenario(
        "alone-two-control-planes",
        "the same with two, where nobody could accept that etcd loses its quorum: none goes",
        "Staged",
        0,
        |setup| {
            setup.cluster(2, 3, FROM);
            setup.workloads();
            setup.control_plane_alone(TO);
        },
    ),
    scenario(
        "alone-no-image",
        "the same without an upgrader image: it says so, and takes nothing that others would wait for",
        "BundleUnavailable",
        0,
        |setup| {
            usual(setup);
            setup.withdraw(TO);
            setup.control_plane_alone(TO);
        },
    ),
    scenario(
        "alone-two-minors",
        "the same two minor versions up: the one between comes first",
        "VersionSkew",
        0,
        |setup| {
            usual(setup);
            setup.control_plane_alone("v1.37.2");
        },
    ),
    scenario(
        "alone-after-upgrade",
        "the same, and a ClusterUpgrade brings the version between, which it does not keep waiting",
        SUCCEEDED,
        MINUTE,
        |setup| {
            usual(setup);
            setup.control_plane_alone("v1.37.2");
            setup.upgrade_named("up", TO, 20 * SECOND, |_| {});
        },
    ),
    scenario(
        "alone-downgrade",
        "a ControlPlaneKubeadmUpgrade of its own to a version before: it says so, and takes nothing",
        "Downgrade",
        0,
        |setup| {
            usual(setup);
            setup.control_plane_alone("v1.34.4");
        },
    ),
    scenario(
        "alone-workers",
        "a WorkersKubeadmUpgrade of its own",
        SUCCEEDED,
        0,
        |setup| {
            setup.cluster_of((3, TO), (3, FROM));
            setup.workloads();
            setup.workers_alone(TO);
        },
    ),
    scenario("alone-node", "a NodeKubeadmUpgrade of its own", SUCCEEDED, 0, |setup| {
        setup.cluster_of((3, TO), (3, FROM));
        setup.workloads();
        setup.node_alone("w-2", NodeRole::Worker, TO);
    }),
    scenario(
        "alone-two-nodes",
        "two control planes get a bundle of their version by a NodeKubeadmUpgrade of their own each: one after the other",
        SUCCEEDED,
        0,
        |setup| {
            setup.cluster(3, 2, TO);
            setup.workloads();
            for name in ["cp-1", "cp-3"] {
                setup.node_alone(name, NodeRole::ControlPlane, TO);
            }
        },
    ),
    scenario(
        "alone-node-beside-upgrade",
        "a ClusterUpgrade is made while a control plane has a NodeKubeadmUpgrade of its own: one after the other",
        SUCCEEDED,
        0,
        |setup| {
            usual(setup);
            setup.node_alone("cp-1", NodeRole::FirstControlPlane, TO);
            setup.upgrade(TO, |_| {});
        },
    ),
    scenario(
        "alone-both",
        "a control plane and workers in groups of their own at once: the workers wait for the API servers",
        SUCCEEDED,
        0,
        |setup| {
            usual(setup);
            setup.control_plane_alone(TO);
            setup.workers_alone(TO);
        },
    ),
    scenario(
        "alone-two-groups",
        "two groups of workers of their own: one after the other, and one node at a time",
        SUCCEEDED,
        0,
        |setup| {
            setup.cluster_of((3, TO), (5, FROM));
            setup.workloads();
            setup.workers_in_two_groups_alone(TO);
        },
    ),
    scenario(
        "alone-beside-upgrade",
        "a ClusterUpgrade is made while a group of its own takes the control plane",
        SUCCEEDED,
        MINUTE,
        |setup| {
            usual(setup);
            setup.control_plane_alone(TO);
            setup.upgrade_named("up", TO, 50 * SECOND, |_| {});
        },
    ),
    scenario(
        "alone-deleted",
        "a group of its own is deleted amid a node, which is put back before the ClusterUpgrade that waits begins",
        SUCCEEDED,
        30 * MINUTE,
        |setup| {
            usual(setup);
            setup.control_plane_alone(TO);
            setup.upgrade_named("up", TO, SECOND, |_| {});
            let act = Act::DeleteGroup(KindName::ControlPlane, setup.alone_key());
            setup.when(NodeState::Upgrading, Some("cp-2"), SECOND, act);
        },
    ),
    scenario(
        "alone-first-leaves",
        "the control plane that is to go first leaves before its turn: the others wait and say what lets one go in its place",
        "Staged",
        30 * MINUTE,
        five_control_planes_alone,
    ),
    scenario(
        "alone-first-replaced",
        "the same, and a person does what is said",
        SUCCEEDED,
        40 * MINUTE,
        |setup| {
            five_control_planes_alone(setup);
            setup.at(30 * MINUTE, Act::DeleteNodeUpgrade(node("cp-2")));
        },
    ),
];

//! Rules, judged on a few writes made by hand.

use std::collections::BTreeMap;
use std::sync::Arc;

use afloat_api::clusterupgrade::{Budget, Slot};
use afloat_api::kubeadm::{DesiredNodeState, NodeKubeadmUpgradeSpec, WorkersKubeadmUpgradeSpec};
use afloat_api::{
    ClusterUpgrade, ClusterUpgradeSpec, ClusterUpgradeStatus, NodeKubeadmUpgrade, NodeRef, NodeRole,
    WorkersKubeadmUpgrade,
};
use afloat_core::view::{Node, NodeName, Ready, Uid};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::{Broken, Doing, Rules, Seen};
use crate::machine::{Machine, Place};
use crate::store::{Kind as _, KindName, Meant, Store, Writer};
use crate::time::stamp;
use afloat_simhost::Shared;

fn node(name: &str, control_plane: bool) -> Node {
    Node {
        name: NodeName::from(name),
        uid: Uid::from(format!("uid-{name}")),
        control_plane,
        ready: Ready {
            ready: true,
            ..Ready::default()
        },
        kubelet_version: "v1.36.3".parse().ok(),
        ..Node::default()
    }
}

fn upgrade_of(node: &str, name: &str, version: &str) -> NodeKubeadmUpgrade {
    let spec = NodeKubeadmUpgradeSpec {
        cluster: None,
        machine: None,
        node: NodeRef {
            name: node.to_owned(),
            uid: format!("uid-{node}"),
        },
        role: NodeRole::Worker,
        kubernetes_version: version.to_owned(),
        kubelet_version: version.to_owned(),
        etcd_version: None,
        stage: None,
        steps: Arc::new(Vec::new()),
        attempt: 1,
        desired: DesiredNodeState::Staged,
        undo_after_seconds: None,
    };
    NodeKubeadmUpgrade::new(name, spec)
}

fn hop(store: &mut Store, name: &str, version: &str) -> Arc<NodeKubeadmUpgrade> {
    let upgrade = upgrade_of("w-1", name, version);
    store.create_custom(Writer::Operator(0), "create", upgrade).unwrap()
}

fn slot_of(holder: &NodeKubeadmUpgrade) -> Slot {
    Slot {
        node: holder.spec.node.name.clone(),
        node_uid: holder.spec.node.uid.clone(),
        role: NodeRole::Worker,
        attempt: 1,
        version: holder.spec.kubelet_version.clone(),
        taken_at: Time(stamp(0)),
        failure_domain: None,
        holder: holder.uid().to_owned(),
        holder_revision: None,
        undoing: false,
    }
}

/// What the rules say of all that was written, by an operator that had seen everything up to a revision.
fn judged(store: &mut Store, seen: u64) -> Option<Broken> {
    let mut rules = Rules {
        doing: Some(Doing {
            name: "by hand",
            target: None,
            seen: Seen {
                revisions: [seen; KindName::ALL.len()],
                newest_node: seen,
            },
            override_of: None,
        }),
        ..Rules::default()
    };
    for written in std::mem::take(&mut store.fresh) {
        rules.saw(store, &written, &BTreeMap::new());
    }
    rules.broken().cloned()
}

/// A control plane at v1.36.3 and a worker with an upgrade for each of two hops, which gets a slot for one of them.
fn grants(names: [&str; 2], version: &str) -> Option<Broken> {
    let mut store = Store::default();
    for (name, control_plane) in [("cp-1", true), ("w-1", false)] {
        store.put(Writer::Setup, "create", node(name, control_plane));
    }
    let hops = [
        hop(&mut store, names[0], "v1.36.3"),
        hop(&mut store, names[1], "v1.37.2"),
    ];
    let holder = hops.iter().find(|hop| hop.spec.kubelet_version == version).unwrap();
    let upgrade = ClusterUpgrade::new("up", ClusterUpgradeSpec::default());
    let key = store.create_custom(Writer::Person, "create", upgrade).unwrap().key();
    let status = ClusterUpgradeStatus {
        slots: vec![slot_of(holder)],
        ..ClusterUpgradeStatus::default()
    };
    store
        .update_status::<ClusterUpgrade>(Writer::Operator(0), "write-upgrade-status", &Meant::named(&key), status)
        .unwrap();
    judged(&mut store, u64::MAX)
}

/// Names carry uids: either hop may come first in their order.
#[test]
fn a_worker_waits_for_the_control_plane_of_the_hop_that_its_slot_is_for() {
    for names in [["w-1-a", "w-1-b"], ["w-1-b", "w-1-a"]] {
        assert_eq!(grants(names, "v1.36.3"), None, "{names:?}");
        let broken = grants(names, "v1.37.2");
        assert_eq!(broken.map(|broken| broken.rule), Some(4), "{names:?}");
    }
}

/// When the last of four workers leaves, of which half may be away.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Leaves {
    /// Before two slots are given, and it is seen.
    Seen,
    /// Before they are given, and it is not seen.
    NotSeen,
    /// Between the first cordon and the second.
    Later,
    /// Not at all: a person wants one at a time between the first cordon and the second.
    NotButFewer,
}

fn half_of_four(leaves: Leaves) -> Option<Broken> {
    let mut store = Store::default();
    for name in ["w-1", "w-2", "w-3", "w-4"] {
        store.put(Writer::Setup, "create", node(name, false));
    }
    let owner = |kind: &str, uid: &str| {
        Some(vec![OwnerReference {
            kind: kind.to_owned(),
            uid: uid.to_owned(),
            ..OwnerReference::default()
        }])
    };
    let spec = ClusterUpgradeSpec {
        budget: Some(Budget {
            max_unavailable: Some(IntOrString::String("50%".to_owned())),
            ..Budget::default()
        }),
        ..ClusterUpgradeSpec::default()
    };
    let upgrade = ClusterUpgrade::new("up", spec);
    let upgrade = store.create_custom(Writer::Person, "create", upgrade).unwrap();
    let mut group = WorkersKubeadmUpgrade::new("up-workers", WorkersKubeadmUpgradeSpec::default());
    group.metadata.owner_references = owner("ClusterUpgrade", upgrade.uid());
    let group = store.create_custom(Writer::Operator(0), "create", group).unwrap();
    let mut slots = Vec::new();
    for name in ["w-1", "w-2"] {
        let mut holder = upgrade_of(name, name, "v1.36.3");
        holder.metadata.owner_references = owner("WorkersKubeadmUpgrade", group.uid());
        holder.spec.desired = DesiredNodeState::Upgraded;
        let holder = store.create_custom(Writer::Operator(0), "create", holder).unwrap();
        slots.push(slot_of(&holder));
    }
    let leave = |store: &mut Store| store.remove::<Node>(Writer::Person, &NodeName::from("w-4"));
    let mut seen = store.revision();
    if matches!(leaves, Leaves::Seen | Leaves::NotSeen) {
        assert!(leave(&mut store));
    }
    if leaves == Leaves::Seen {
        seen = store.revision();
    }
    let status = ClusterUpgradeStatus {
        slots,
        ..ClusterUpgradeStatus::default()
    };
    let key = upgrade.key();
    store
        .update_status::<ClusterUpgrade>(Writer::Operator(0), "write-upgrade-status", &Meant::named(&key), status)
        .unwrap();
    for name in ["w-1", "w-2"] {
        if leaves == Leaves::Later && name == "w-2" {
            assert!(leave(&mut store));
        }
        if leaves == Leaves::NotButFewer && name == "w-2" {
            store
                .update_custom::<ClusterUpgrade>(Writer::Person, "edit", &Meant::named(&key), |upgrade| {
                    upgrade.spec.budget.as_mut().unwrap().max_unavailable = Some(IntOrString::Int(1));
                })
                .unwrap();
        }
        let name = NodeName::from(name);
        store
            .update::<Node>(Writer::Operator(0), "cordon", &Meant::named(&name), |node| {
                node.unschedulable = true;
            })
            .unwrap();
    }
    judged(&mut store, seen)
}

#[test]
fn what_may_be_away_is_decided_when_slots_are_given_and_by_the_workers_that_were_seen_then() {
    assert_eq!(half_of_four(Leaves::Later), None);
    assert_eq!(half_of_four(Leaves::NotSeen), None);
    assert_eq!(half_of_four(Leaves::NotButFewer), None);
    assert_eq!(half_of_four(Leaves::Seen).map(|broken| broken.rule), Some(1));
}

/// Three control planes that serve, by their addresses `10.0.0.1` to `10.0.0.3`.
fn three_servers() -> BTreeMap<NodeName, Machine> {
    let shared = Shared::new("v1.35.4");
    let machine = |nth: usize| {
        let place = Place {
            address: format!("10.0.0.{nth}"),
            shared: shared.clone(),
            now: 0,
            far: false,
        };
        let name = NodeName::from(format!("cp-{nth}"));
        let version = "v1.35.4".parse().unwrap();
        let machine = Machine::new(name.clone(), Uid::from(format!("uid-{name}")), true, &version, place);
        assert!(machine.facts.serves_api(), "{name}");
        (name, machine)
    };
    (1..=3).map(machine).collect()
}

/// What the rules say when the first of them changes so, while those it forwarded to before are these.
fn first_changes(
    machines: &mut BTreeMap<NodeName, Machine>,
    from: Option<&[&str]>,
    to: Option<&[&str]>,
    serves: bool,
) -> Option<String> {
    let peers = |list: Option<&[&str]>| list.map(|list| list.iter().map(|peer| (*peer).to_owned()).collect());
    let name = NodeName::from("cp-1");
    let first = machines.get_mut(&name).unwrap();
    first.facts.forwards_to = peers(from);
    let before = first.facts.clone();
    first.facts.forwards_to = peers(to);
    for part in &mut first.facts.parts {
        part.ready &= serves;
    }
    let mut rules = Rules::default();
    rules.traffic_is_served(machines, &name, &before);
    rules.broken().map(|broken| {
        assert_eq!(broken.rule, 11);
        broken.what.clone()
    })
}

#[test]
fn whoever_stands_aside_hands_requests_on_to_one_that_answers_them() {
    let both: Option<&[&str]> = Some(&["10.0.0.2", "10.0.0.3"]);
    assert_eq!(first_changes(&mut three_servers(), None, both, false), None);
    // It ends while requests are sent to it, or comes back before it answers.
    assert!(first_changes(&mut three_servers(), None, None, false).is_some());
    assert!(first_changes(&mut three_servers(), both, None, false).is_some());
    // All it hands them on to are silent, while the one it left out would answer.
    let second_silent = || {
        let mut machines = three_servers();
        for part in &mut machines.get_mut(&NodeName::from("cp-2")).unwrap().facts.parts {
            part.ready = false;
        }
        machines
    };
    let what = first_changes(&mut second_silent(), None, Some(&["10.0.0.2"]), false);
    assert!(what.is_some_and(|what| what.contains("do not answer")));
    assert_eq!(first_changes(&mut second_silent(), None, both, false), None);
    // One that stands aside itself hands them back.
    let mut machines = three_servers();
    let second = machines.get_mut(&NodeName::from("cp-2")).unwrap();
    second.facts.forwards_to = Some(vec!["10.0.0.1".to_owned()].into());
    assert!(first_changes(&mut machines, None, Some(&["10.0.0.2"]), false).is_some());
}

//! The judge, played through on small clusters: who goes when, what holds them, how an upgrade ends.

mod alone;
mod ends;
mod held;
mod ledger;
mod pauses;
mod staging;
mod start;
mod table;
mod undoing;

use afloat_api::clusterupgrade::{
    Budget, Bundle, NodeUpgradeMode, NodeUpgradeOption, NodeUpgradeStrategy, Phase, WorkersOption,
};
use afloat_api::kubeadm::DesiredNodeState;
use afloat_api::{ClusterUpgradeSpec, NodeKubeadmUpgrade, NodeRole, NodeState, Reason};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::action::Action;
use crate::plan::fixture::{Cluster, GIB, resources};
use crate::subject::Subject;
use crate::view::{Key, Wish};
use table::Table;

const FROM: &str = "v1.35.4";
const TO: &str = "v1.36.3";

fn spec() -> ClusterUpgradeSpec {
    ClusterUpgradeSpec {
        kubernetes_version: TO.to_owned(),
        ..ClusterUpgradeSpec::default()
    }
}

fn budget(unavailable: i32, failed: i32) -> ClusterUpgradeSpec {
    ClusterUpgradeSpec {
        budget: Some(Budget {
            max_unavailable: Some(IntOrString::Int(unavailable)),
            max_failed: Some(failed),
            ..Budget::default()
        }),
        ..spec()
    }
}

fn table(planes: usize, workers: usize, spec: ClusterUpgradeSpec) -> (Table, Key) {
    let mut table = Table::new(Cluster::new(planes, workers, FROM).images(&[TO]));
    let key = table.upgrade("edge-1", spec);
    (table, key)
}

#[test]
fn p21_p23_control_planes_one_by_one_then_workers() {
    let (mut table, key) = table(3, 2, spec());
    let rounds = table.run(&key);
    let names: Vec<&str> = rounds.iter().flatten().map(String::as_str).collect();
    assert_eq!(names, ["cp-1", "cp-2", "cp-3", "worker-1", "worker-2"]);
    assert!(rounds.iter().all(|round| round.len() == 1));
    assert_eq!(table.phase(&key), Phase::Succeeded);
    assert_eq!(table.view().lock, None);
    let status = table.view().upgrades[&key].status.clone().unwrap();
    assert_eq!(status.progress.as_deref(), Some("5/5"));
    assert_eq!(status.from_version.as_deref(), Some(FROM));
}

#[test]
fn k34_the_holder_of_the_virtual_address_goes_last() {
    let mut table = Table::new(Cluster::new(3, 0, FROM).images(&[TO]).with_kube_vip("cp-1"));
    let key = table.upgrade("edge-1", spec());
    let rounds = table.run(&key);
    assert_eq!(rounds.concat(), ["cp-2", "cp-3", "cp-1"]);
}

#[test]
fn p23_as_many_workers_at_once_as_the_budget_allows_the_broken_counted() {
    let accepted = vec!["node/worker-6:NotReady".to_owned()];
    let (mut table, key) = table(
        1,
        6,
        ClusterUpgradeSpec {
            accept: accepted,
            ..budget(3, 0)
        },
    );
    table.cluster.node("worker-6", |node| node.ready.ready = false);
    table.stage_all();
    table.becomes("cp-1", NodeState::Succeeded, None);
    table.stage_all();
    assert_eq!(
        table.slot_nodes(&key),
        ["worker-1", "worker-2"],
        "worker-6 is the third"
    );
}

#[test]
fn p3_a_replica_without_a_place_waits_for_its_node_where_that_is_accepted() {
    let cluster = || {
        let mut cluster = Cluster::new(3, 2, FROM).images(&[TO]);
        for plane in ["cp-1", "cp-2", "cp-3"] {
            cluster.node(plane, |node| node.allocatable = resources(0, 0));
        }
        for worker in ["worker-1", "worker-2"] {
            cluster.run(&format!("large-on-{worker}"), worker, resources(3000, GIB), |_| {});
        }
        cluster
    };
    let mut refused = Table::new(cluster());
    let key = refused.upgrade("edge-1", spec());
    assert_eq!(refused.run(&key), Vec::<Vec<String>>::new());
    let mut accepted = Table::new(cluster());
    let spec = ClusterUpgradeSpec {
        accept: vec!["rs/shop/checkout-7d9f:NoCapacity".to_owned()],
        ..spec()
    };
    let key = accepted.upgrade("edge-1", spec);
    accepted.run(&key);
    assert_eq!(accepted.phase(&key), Phase::Succeeded);
}

#[test]
fn a_share_of_the_workers_is_rounded_down() {
    let mut asked = budget(1, 0);
    asked.budget.as_mut().unwrap().max_unavailable = Some(IntOrString::String("40%".to_owned()));
    let (mut table, key) = table(1, 5, asked);
    assert_eq!(
        table.run(&key),
        [
            vec!["cp-1"],
            vec!["worker-1", "worker-2"],
            vec!["worker-3", "worker-4"],
            vec!["worker-5"]
        ]
    );
}

#[test]
fn a_failed_control_plane_stops_the_upgrade() {
    let (mut table, key) = table(3, 1, budget(1, 5));
    table.stage_all();
    table.becomes("cp-1", NodeState::RolledBack, Some(Reason::StepFailed));
    table.settle();
    assert_eq!(table.phase(&key), Phase::Failed);
    assert!(table.going().is_empty() && table.slots(&key).is_empty());
}

#[test]
fn a_failed_worker_is_set_aside_within_the_budget() {
    for (max_failed, end, last) in [(1, Phase::Succeeded, "3/4"), (0, Phase::Failed, "1/4")] {
        let (mut table, key) = table(1, 3, budget(1, max_failed));
        table.stage_all();
        table.becomes("cp-1", NodeState::Succeeded, None);
        table.stage_all();
        table.becomes("worker-1", NodeState::RolledBack, Some(Reason::StepFailed));
        table.run(&key);
        assert_eq!(table.phase(&key), end);
        let status = table.view().upgrades[&key].status.clone().unwrap();
        assert_eq!(status.progress.as_deref(), Some(last));
        assert_eq!(status.failed[0].node, "worker-1");
        let said = &status
            .conditions
            .iter()
            .find(|one| one.type_ == "Ready")
            .unwrap()
            .message;
        assert!(said.contains("worker-1"), "{said}");
    }
}

#[test]
fn k2_a_node_undoes_its_work_after_the_time_that_a_person_gave() {
    let asked = ClusterUpgradeSpec {
        undo_after_seconds: Some(120),
        ..spec()
    };
    for (spec, expected) in [(asked, 120), (spec(), 900)] {
        let (mut table, _) = table(1, 0, spec);
        table.stage_all();
        let made = table.node_upgrade("cp-1").spec;
        let mut told = made.steps[0].env.iter();
        let told = told.find(|one| one.name == "AFLOAT_UNDO_AFTER_SECONDS").unwrap();
        assert_eq!(
            (made.undo_after_seconds, told.value.as_str()),
            (Some(expected), expected.to_string().as_str())
        );
    }
}

#[test]
fn k32_workers_wait_for_the_last_control_plane_to_be_well_and_the_phase_says_so() {
    let (mut table, key) = table(1, 2, budget(2, 0));
    table.stage_all();
    table.becomes("cp-1", NodeState::Verifying, None);
    table.cluster.upgrade("cp-1", TO);
    table.stage_all();
    assert_eq!(
        (table.phase(&key), table.going()),
        (Phase::ControlPlane, vec!["cp-1".to_owned()])
    );
    table.becomes("cp-1", NodeState::Succeeded, None);
    table.stage_all();
    assert_eq!(table.phase(&key), Phase::Workers);
    assert_eq!(table.going(), ["worker-1", "worker-2"]);
}

#[test]
fn an_abort_puts_those_in_flight_back_and_leaves_the_rest() {
    let (mut table, key) = table(3, 2, spec());
    table.stage_all();
    table.becomes("cp-1", NodeState::Draining, None);
    table.edit(&key, |upgrade| upgrade.spec.abort = Some(true));
    table.settle();
    assert_eq!(table.node_upgrade("cp-1").spec.desired, DesiredNodeState::RolledBack);
    assert_eq!(
        table.phase(&key),
        Phase::ControlPlane,
        "not over while a node is in flight"
    );
    table.becomes("cp-1", NodeState::RolledBack, Some(Reason::Aborted));
    table.settle();
    assert_eq!(table.phase(&key), Phase::Aborted);
    assert_eq!(table.node_upgrade("cp-2").spec.desired, DesiredNodeState::Staged);
    assert_eq!(table.view().lock, None);
}

#[test]
fn deleting_an_upgrade_ends_it_as_an_abort_does() {
    let (mut table, key) = table(1, 1, spec());
    table.stage_all();
    let now = table.now;
    table.edit(&key, |upgrade| upgrade.metadata.deletion_timestamp = Some(Time(now)));
    table.settle();
    table.becomes("cp-1", NodeState::RolledBack, Some(Reason::Aborted));
    table.settle();
    assert_eq!(table.view().upgrades[&key].metadata.finalizers, None);
    assert_eq!(table.view().lock, None);
}

#[test]
fn a_deferred_node_is_taken_last() {
    let (mut table, key) = table(1, 3, spec());
    table.stage_all();
    table.becomes("cp-1", NodeState::Succeeded, None);
    table.stage_all();
    table.becomes("worker-1", NodeState::Draining, None);
    table.wish("worker-1", Wish::Defer);
    table.settle();
    assert_eq!(table.view().nodes["worker-1"].wish, None);
    table.becomes("worker-1", NodeState::RolledBack, Some(Reason::Deferred));
    assert_eq!(table.run(&key).concat(), ["worker-2", "worker-3", "worker-1"]);
    assert_eq!(table.phase(&key), Phase::Succeeded);
}

#[test]
fn of_two_upgrades_one_waits_for_the_other() {
    let (mut table, first) = table(1, 1, spec());
    let second = table.upgrade("edge-2", spec());
    table.stage_all();
    assert_eq!(
        (table.phase(&first), table.phase(&second)),
        (Phase::ControlPlane, Phase::Preflight)
    );
    table.edit(&first, |upgrade| upgrade.spec.abort = Some(true));
    table.settle();
    table.becomes("cp-1", NodeState::RolledBack, Some(Reason::Aborted));
    table.settle();
    table.run(&second);
    assert_eq!(
        (table.phase(&first), table.phase(&second)),
        (Phase::Aborted, Phase::Succeeded)
    );
}

#[test]
fn a_distant_target_takes_control_planes_hop_by_hop_and_workers_once() {
    let mut table = Table::new(Cluster::new(1, 1, "v1.33.2").images(&["v1.34.4", FROM, TO]));
    let key = table.upgrade("edge-1", spec());
    assert_eq!(table.run(&key).concat(), ["cp-1", "cp-1", "cp-1", "worker-1"]);
    let env = &table.node_upgrade("worker-1").spec.steps[0].env;
    let via = env.iter().find(|entry| entry.name == "AFLOAT_VIA").unwrap();
    assert_eq!(via.value, "v1.34.4,v1.35.4,v1.36.3");

    let mut table = Table::new(Cluster::new(1, 1, "v1.33.2").images(&["v1.34.4", FROM, TO]));
    let every_minor = WorkersOption {
        every_minor: Some(true),
    };
    let key = table.upgrade(
        "edge-1",
        ClusterUpgradeSpec {
            workers: Some(every_minor),
            ..spec()
        },
    );
    let rounds = table.run(&key).concat();
    assert_eq!(rounds, ["cp-1", "worker-1", "cp-1", "worker-1", "cp-1", "worker-1"]);
}

#[test]
fn p46_a_new_bundle_of_the_same_version_is_an_upgrade() {
    let bundle = Bundle {
        image: "mirror/afloat:v1.35.4-2".to_owned(),
        digest: None,
    };
    let same = ClusterUpgradeSpec {
        kubernetes_version: FROM.to_owned(),
        bundle: Some(bundle),
        ..spec()
    };
    let (mut table, key) = table(1, 2, same);
    assert_eq!(table.run(&key).concat(), ["cp-1", "worker-1", "worker-2"]);
    assert_eq!(table.phase(&key), Phase::Succeeded);
}

#[test]
fn p22_p46_images_that_a_person_names_are_the_first_control_planes_to_name() {
    let named = ClusterUpgradeSpec {
        kubernetes_version: FROM.to_owned(),
        bundle: Some(Bundle {
            image: "mirror/afloat:v1.35.4-2".to_owned(),
            digest: Some("sha256:1".to_owned()),
        }),
        etcd_version: Some("3.6.8-0".to_owned()),
        core_dns_version: Some("v1.14.2".to_owned()),
        ..spec()
    };
    let (mut table, key) = table(3, 1, named);
    table.stage_all();
    // The others are at that version already, and wait all the same: the images are named first.
    let slots = table.slot_nodes(&key);
    assert_eq!(slots, ["cp-1"]);
    let value = |table: &Table, node: &str, name: &str| {
        let upgrade = table.node_upgrade(node);
        let entry = upgrade.spec.steps[0]
            .env
            .iter()
            .find(|entry| entry.name == name)
            .cloned();
        (
            upgrade.spec.role,
            upgrade.spec.etcd_version.clone(),
            entry.map(|entry| entry.value),
        )
    };
    let etcd = Some("3.6.8-0".to_owned());
    assert_eq!(
        value(&table, "cp-1", "AFLOAT_CORE_DNS_VERSION"),
        (NodeRole::FirstControlPlane, etcd.clone(), Some("v1.14.2".to_owned()))
    );
    assert_eq!(
        value(&table, "cp-2", "AFLOAT_ETCD_VERSION"),
        (NodeRole::ControlPlane, etcd.clone(), etcd)
    );
    assert_eq!(
        value(&table, "worker-1", "AFLOAT_ETCD_VERSION"),
        (NodeRole::Worker, None, None)
    );
    // With its digest nobody can put another image in its place.
    assert_eq!(
        table.node_upgrade("cp-1").spec.steps[0].image,
        "mirror/afloat:v1.35.4-2@sha256:1"
    );
    assert_eq!(table.run(&key).concat(), ["cp-1", "cp-2", "cp-3", "worker-1"]);
    assert_eq!(table.phase(&key), Phase::Succeeded);
}

#[test]
fn p46_images_of_the_target_are_not_named_on_the_way_there() {
    let mut table = Table::new(Cluster::new(1, 0, "v1.34.4").images(&[FROM, TO]));
    let key = table.upgrade(
        "edge-1",
        ClusterUpgradeSpec {
            etcd_version: Some("3.6.9-0".to_owned()),
            ..spec()
        },
    );
    table.stage_all();
    assert_eq!(table.node_upgrade("cp-1").spec.kubernetes_version, FROM);
    assert_eq!(table.node_upgrade("cp-1").spec.etcd_version, None);
    table.run(&key);
    assert_eq!(table.node_upgrade("cp-1").spec.etcd_version.as_deref(), Some("3.6.9-0"));
}

#[test]
fn p7_the_next_upgrade_begins_where_the_last_one_ended() {
    let mut table = Table::new(Cluster::new(1, 1, FROM).images(&[TO, "v1.37.1"]));
    let first = table.upgrade("edge-1", spec());
    table.run(&first);
    let next = ClusterUpgradeSpec {
        kubernetes_version: "v1.37.1".to_owned(),
        ..spec()
    };
    let second = table.upgrade("edge-2", next);
    assert_eq!(table.run(&second).concat(), ["cp-1", "worker-1"]);
    assert_eq!(table.phase(&second), Phase::Succeeded);
}

#[test]
fn a_node_that_joins_half_way_is_taken_along() {
    let (mut table, key) = table(1, 1, spec());
    table.stage_all();
    table.cluster.add_node("worker-9", false, FROM);
    assert_eq!(table.run(&key).concat(), ["cp-1", "worker-1", "worker-9"]);
}

#[test]
fn p22_a_group_works_without_an_upgrade_above_it() {
    let (mut table, _) = table(3, 0, spec());
    table.stage_all();
    let mut group = table.view().control_planes.values().next().unwrap().as_ref().clone();
    let mut alone = Table::new(Cluster::new(3, 0, FROM).images(&[TO]));
    group.metadata.owner_references = None;
    group.status = None;
    alone
        .cluster
        .view
        .control_planes
        .insert(crate::objects::key_of(&group.metadata), std::sync::Arc::new(group));
    let mut went = Vec::new();
    for _ in 0..3 {
        alone.stage_all();
        let going = alone.going();
        assert_eq!(going.len(), 1);
        alone.becomes(&going[0], NodeState::Succeeded, None);
        went.extend(going);
    }
    alone.settle();
    assert_eq!(went, ["cp-1", "cp-2", "cp-3"]);
    let status = alone
        .view()
        .control_planes
        .values()
        .next()
        .unwrap()
        .status
        .clone()
        .unwrap();
    assert!(status.ready && status.upgraded == 3 && status.require_upgrade == 3);
}

#[test]
fn p44_a_cluster_of_cluster_api_is_left_to_cluster_api() {
    let owned = ClusterUpgradeSpec {
        cluster_ref: Some(afloat_api::clusterupgrade::ClusterRef {
            name: "shop".to_owned(),
        }),
        ..spec()
    };
    let (mut table, key) = table(3, 2, owned);
    table.settle();
    assert!(
        table.done.is_empty(),
        "machines that can be replaced are not upgraded in place unasked: {:?}",
        table.done
    );
    assert_eq!(table.phase(&key), Phase::Pending);
}

#[test]
fn an_upgrade_in_another_namespace_is_told_so() {
    let (mut table, key) = table(1, 1, spec());
    table.cluster.view.home = "elsewhere".into();
    table.settle();
    assert_eq!(table.phase(&key), Phase::Failed);
    assert_eq!(table.done, ["write-upgrade-status"]);
}

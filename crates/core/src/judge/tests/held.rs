//! What holds nodes back before anything is done to them, who is woken when it ends, and what is said meanwhile.

use std::sync::Arc;

use afloat_api::clusterupgrade::{Bundle, Phase};
use afloat_api::{ClusterUpgradeSpec, NodeState, Reason};

use super::table::Table;
use super::{FROM, TO, spec, table};
use crate::changed::Changed;
use crate::explain::explain;
use crate::objects::key_of;
use crate::plan::fixture::{Cluster, GIB, resources};
use crate::subject::{Subject, affected};
use crate::view::{Component, Key, Operator, PodBudget, Requirement, Revision, Selector, Wish};

/// Pods of one application on these workers, under a budget that allows so many of them to go.
fn shop(cluster: &mut Cluster, nodes: &[&str], allowed: i64) {
    for node in nodes {
        cluster.run(&format!("checkout-{node}"), node, resources(100, GIB), |shape| {
            shape.labels.insert("app".into(), "checkout".into());
        });
    }
    let expected = i64::try_from(nodes.len()).unwrap();
    let budget = PodBudget {
        key: Key::new("shop", "checkout"),
        uid: "uid-checkout".into(),
        revision: Revision(1),
        selector: Selector {
            requirements: vec![Requirement {
                key: "app".into(),
                operator: Operator::In,
                values: vec!["checkout".into()],
            }],
        },
        up_to_date: true,
        disruptions_allowed: allowed,
        current_healthy: expected - 1 + allowed,
        desired_healthy: expected - 1,
        expected_pods: expected,
        unhealthy_may_go: false,
    };
    cluster.view.budgets.insert(budget.key.clone(), Arc::new(budget));
}

/// The workers' turn has come, and this is what the cluster was before.
fn at_workers(cluster: Cluster) -> (Table, Key) {
    let mut table = Table::new(cluster.images(&[TO]));
    let key = table.upgrade("edge-1", spec());
    table.stage_all();
    table.becomes("cp-1", NodeState::Succeeded, None);
    table.stage_all();
    (table, key)
}

fn woken(table: &Table, key: &Key, changed: &Changed) -> bool {
    affected(table.view(), changed).contains(&Subject::Upgrade(key.clone()))
}

fn said(table: &Table, key: &Key) -> String {
    explain(table.view(), key, table.now).unwrap().to_string()
}

#[test]
fn a_worker_whose_budget_allows_nothing_now_is_passed_over_until_it_does() {
    let mut cluster = Cluster::new(1, 3, FROM);
    shop(&mut cluster, &["worker-1", "worker-2"], 0);
    let (mut table, key) = at_workers(cluster);
    let budget = Changed::Budget(Key::new("shop", "checkout"));
    assert_eq!(table.slot_nodes(&key), ["worker-3"], "nothing of the shop is there");
    table.becomes("worker-3", NodeState::Succeeded, None);
    table.settle();
    assert_eq!(table.slot_nodes(&key), Vec::<String>::new());
    let why = said(&table, &key);
    assert!(
        why.contains("pod shop/checkout-worker-1 cannot be evicted, because\n      pdb/shop/checkout allows 0 disruptions (1 required, 1 healthy)"),
        "{why}"
    );
    assert!(woken(&table, &key, &budget));
    shop(&mut table.cluster, &["worker-1", "worker-2"], 1);
    assert_eq!(table.run(&key).concat(), ["worker-1", "worker-2"]);
    assert!(!woken(&table, &key, &budget), "an upgrade that is over");
}

#[test]
fn a_pod_that_may_go_for_being_unhealthy_makes_no_room_for_the_healthy_ones() {
    let mut cluster = Cluster::new(1, 3, FROM);
    shop(&mut cluster, &["worker-1", "worker-2"], 0);
    cluster.pod(&Key::new("shop", "checkout-worker-1"), |pod| pod.ready = false);
    let mut both = cluster.clone();
    let (table, key) = at_workers(cluster);
    assert_eq!(table.slot_nodes(&key), ["worker-1"], "what is not healthy may leave");
    both.run("checkout-healthy", "worker-1", resources(100, GIB), |shape| {
        shape.labels.insert("app".into(), "checkout".into());
    });
    let (table, key) = at_workers(both);
    assert_eq!(table.slot_nodes(&key), ["worker-3"], "a healthy one beside it may not");
}

/// However many they are.
#[test]
fn workers_that_cannot_go_keep_no_other_from_going() {
    // All but the last, by name.
    let many: Vec<String> = (1..=13).map(|number| format!("worker-{number}")).collect();
    let names: Vec<&str> = many
        .iter()
        .map(String::as_str)
        .filter(|name| *name != "worker-9")
        .collect();
    let mut paused = Cluster::new(1, 13, FROM);
    for name in &names {
        paused.node(name, |node| node.pause = Some("a person looks at it".into()));
    }
    let (table, key) = at_workers(paused);
    assert_eq!(table.slot_nodes(&key), ["worker-9"]);
    let mut without_headroom = Cluster::new(1, 13, FROM);
    shop(&mut without_headroom, &names, 0);
    let (table, key) = at_workers(without_headroom);
    assert_eq!(table.slot_nodes(&key), ["worker-9"]);
}

/// One that is named nowhere wakes nobody when its hold ends.
#[test]
fn a_worker_that_a_budget_holds_is_listed_before_fifty_that_a_person_holds() {
    let mut cluster = Cluster::new(1, 60, FROM);
    for number in 2..=60 {
        let name = format!("worker-{number}");
        cluster.node(&name, |node| node.pause = Some("a person looks at it".into()));
    }
    let (mut table, key) = at_workers(cluster);
    assert_eq!(table.slot_nodes(&key), ["worker-1"]);
    table.becomes("worker-1", NodeState::Succeeded, None);
    table.settle();
    table.now += jiff::SignedDuration::from_mins(10);
    table.cluster.node("worker-9", |node| node.pause = None);
    shop(&mut table.cluster, &["worker-9"], 0);
    table.settle();
    assert_eq!(table.slot_nodes(&key), Vec::<String>::new());
    assert!(woken(&table, &key, &Changed::Budget(Key::new("shop", "checkout"))));
    assert!(said(&table, &key).contains("pdb/shop/checkout"));
}

#[test]
fn an_undoing_that_waits_for_a_part_says_so_and_is_woken_by_it() {
    let (mut table, key) = table(3, 0, spec());
    table.run(&key);
    assert_eq!(table.phase(&key), Phase::Succeeded);
    table
        .cluster
        .part("cp-1", Component::Scheduler, |pod| pod.ready = false);
    table.wish("cp-2", Wish::Rollback);
    table.settle();
    assert_eq!(table.slot_nodes(&key), Vec::<String>::new());
    let status = table.view().upgrades[&key].status.clone().unwrap();
    let waits: Vec<&str> = status.waiting.iter().map(|wait| wait.wait.message.as_str()).collect();
    assert_eq!(waits, ["scheduler of cp-1 is not Ready"]);
    assert!(woken(&table, &key, &Changed::Pod(Some("cp-1".into()))));
    table.cluster.part("cp-1", Component::Scheduler, |pod| pod.ready = true);
    let decision = table.decide(&Subject::Upgrade(key.clone()));
    table.carry_out(&decision);
    assert_eq!(table.slot_nodes(&key), ["cp-2"]);
    let status = table.view().upgrades[&key].status.clone().unwrap();
    assert!(status.waiting.is_empty(), "{:?}", status.waiting);
}

/// Three control planes that carry workloads, as a small cluster's do.
fn planes_with_workloads() -> Cluster {
    let mut cluster = Cluster::new(3, 0, FROM);
    for plane in ["cp-1", "cp-2", "cp-3"] {
        cluster.node(plane, |node| node.taints.clear());
    }
    cluster
}

#[test]
fn a_control_plane_with_workloads_is_held_by_its_budget_as_a_worker_is() {
    let mut table = Table::new(planes_with_workloads().images(&[TO]));
    let key = table.upgrade("edge-1", spec());
    table.settle();
    shop(&mut table.cluster, &["cp-1"], 0);
    table.stage_all();
    assert_eq!(table.slot_nodes(&key), Vec::<String>::new());
    assert!(said(&table, &key).contains("pdb/shop/checkout"));
    shop(&mut table.cluster, &["cp-1"], 1);
    table.stage_all();
    assert_eq!(table.slot_nodes(&key), ["cp-1"]);
}

#[test]
fn k34_the_holder_of_the_virtual_address_does_not_overtake_one_that_its_budget_holds() {
    let mut table = Table::new(planes_with_workloads().images(&[TO]).with_kube_vip("cp-3"));
    let key = table.upgrade("edge-1", spec());
    table.stage_all();
    table.becomes("cp-1", NodeState::Succeeded, None);
    shop(&mut table.cluster, &["cp-2"], 0);
    table.stage_all();
    assert_eq!(table.slot_nodes(&key), Vec::<String>::new());
    shop(&mut table.cluster, &["cp-2"], 1);
    assert_eq!(table.run(&key).concat(), ["cp-2", "cp-3"]);
}

#[test]
fn a_control_plane_with_workloads_waits_for_room_as_a_worker_does() {
    let fill = |cluster: &mut Cluster| {
        for plane in ["cp-1", "cp-2", "cp-3"] {
            cluster.run(&format!("large-on-{plane}"), plane, resources(3000, GIB), |_| {});
        }
    };
    let accept = "rs/shop/checkout-7d9f:NoCapacity";
    let mut refused = planes_with_workloads();
    fill(&mut refused);
    let mut table = Table::new(refused.images(&[TO]));
    let key = table.upgrade("edge-1", spec());
    table.settle();
    let findings = table.view().upgrades[&key].status.clone().unwrap().preflight.unwrap();
    let found = |finding: &afloat_api::clusterupgrade::Finding| finding.reason == "NoCapacity";
    assert!(findings.findings.iter().any(found));
    // The room goes after the preflight has looked.
    let mut table = Table::new(planes_with_workloads().images(&[TO]));
    let key = table.upgrade("edge-1", spec());
    table.settle();
    assert_eq!(table.phase(&key), Phase::Prepare);
    fill(&mut table.cluster);
    table.stage_all();
    assert_eq!(table.slot_nodes(&key), Vec::<String>::new());
    let why = said(&table, &key);
    assert!(
        why.contains(&format!("afloat upgrade --to {TO} --accept {accept}")),
        "{why}"
    );
    table.edit(&key, |upgrade| upgrade.spec.accept = vec![accept.to_owned()]);
    table.stage_all();
    assert_eq!(table.slot_nodes(&key), ["cp-1"]);
}

#[test]
fn whoever_is_held_back_by_a_part_or_for_want_of_room_is_woken_by_pods() {
    let pod = Changed::Pod(Some("cp-2".into()));
    let (mut table, key) = table(3, 1, spec());
    table.stage_all();
    assert!(
        !woken(&table, &key, &pod),
        "cp-1 goes: pods concern its own upgrade only"
    );
    table
        .cluster
        .part("cp-2", Component::Scheduler, |pod| pod.ready = false);
    table.becomes("cp-1", NodeState::Succeeded, None);
    table.stage_all();
    assert_eq!(table.slot_nodes(&key), ["cp-2"], "how it is itself does not matter");
    table.becomes("cp-2", NodeState::Succeeded, None);
    table
        .cluster
        .part("cp-2", Component::Scheduler, |pod| pod.ready = false);
    table.stage_all();
    assert_eq!(table.slot_nodes(&key), Vec::<String>::new());
    assert!(woken(&table, &key, &pod) && woken(&table, &key, &Changed::Pod(None)));
    let status = table.view().upgrades[&key].status.clone().unwrap();
    let mut before = status.clone();
    before.waiting.clear();
    let with = |status| {
        let mut upgrade = table.view().upgrades[&key].as_ref().clone();
        upgrade.status = Some(status);
        upgrade
    };
    let anew = Changed::upgrade(&key, Some(&with(before)), &with(status.clone()));
    assert_eq!(anew, Changed::Held(key.clone()));
    assert!(
        !anew.is_known_to_its_writer(),
        "pods may have changed while it was written"
    );
    let again = Changed::upgrade(&key, Some(&with(status.clone())), &with(status));
    assert_eq!(again, Changed::Told(key));
}

#[test]
fn a_wish_that_comes_too_late_is_heard_by_the_group_that_takes_it_back() {
    let (mut table, key) = table(1, 1, spec());
    table.run(&key);
    assert_eq!(table.phase(&key), Phase::Succeeded);
    let group = Subject::Workers(table.view().workers.keys().next().unwrap().clone());
    let changed = Changed::Node("worker-1".into());
    assert!(!affected(table.view(), &changed).contains(&group), "it is done");
    table.wish("worker-1", Wish::Defer);
    assert!(affected(table.view(), &changed).contains(&group));
    let decision = table.decide(&group);
    assert!(decision.actions.iter().any(|action| action.name() == "clear-wish"));
}

/// Whether it can be undone hangs on the kubelets of all others.
#[test]
fn rule_12_a_wish_for_a_control_plane_is_heard_again_when_any_node_changes() {
    let (mut table, key) = table(1, 1, spec());
    table.run(&key);
    let group = Subject::ControlPlane(table.view().control_planes.keys().next().unwrap().clone());
    let joined = Changed::Node("worker-9".into());
    assert!(!affected(table.view(), &joined).contains(&group));
    table.wish("cp-1", Wish::Rollback);
    assert!(affected(table.view(), &joined).contains(&group));
}

#[test]
fn two_control_planes_lose_their_quorum_only_where_that_is_accepted() {
    let (mut of_upgrade, key) = table(2, 0, spec());
    of_upgrade.stage_all();
    assert_eq!(of_upgrade.phase(&key), Phase::Preflight);
    of_upgrade.edit(&key, |upgrade| {
        upgrade.spec.accept = vec!["clusterupgrade/afloat-system/edge-1:ApiDowntime".to_owned()];
    });
    assert_eq!(of_upgrade.run(&key).concat(), ["cp-1", "cp-2"]);
    // A group that nobody stands above has nobody who could accept it.
    let mut group = of_upgrade
        .view()
        .control_planes
        .values()
        .next()
        .unwrap()
        .as_ref()
        .clone();
    group.metadata.owner_references = None;
    group.status = None;
    let mut alone = Table::new(Cluster::new(2, 0, FROM).images(&[TO]));
    let group_key = key_of(&group.metadata);
    alone
        .cluster
        .view
        .control_planes
        .insert(group_key.clone(), Arc::new(group));
    alone.stage_all();
    assert_eq!(alone.going(), Vec::<String>::new());
    let status = alone.view().control_planes[&group_key].status.clone().unwrap();
    let progressing = status
        .conditions
        .iter()
        .find(|condition| condition.type_ == "Progressing");
    let message = &progressing.unwrap().message;
    assert!(
        message.contains("cp-1 waits: etcd would lose its quorum without cp-1: 1 of 2 members would be left"),
        "{message}"
    );
}

#[test]
fn a_third_member_that_leaves_on_the_way_is_missed() {
    let (mut table, key) = table(3, 0, spec());
    table.stage_all();
    table.becomes("cp-1", NodeState::Succeeded, None);
    table.cluster.view.nodes.remove("cp-3");
    table.becomes("cp-3", NodeState::Failed, Some(Reason::ObjectGone));
    table.stage_all();
    assert_eq!(table.slot_nodes(&key), Vec::<String>::new());
    let why = said(&table, &key);
    assert!(why.contains("etcd would lose its quorum without cp-2"), "{why}");
    assert!(
        why.contains("afloat upgrade --to v1.36.3 --accept clusterupgrade/afloat-system/edge-1:ApiDowntime"),
        "{why}"
    );
}

#[test]
fn a_control_plane_that_leaves_before_its_turn_stops_nothing_unless_it_was_to_go_first() {
    let leaves = |node: &str| {
        let (mut table, key) = table(5, 0, spec());
        table.stage_all();
        table.becomes("cp-1", NodeState::Succeeded, None);
        table.stage_all();
        let going = table.going();
        assert_eq!(going, ["cp-2"]);
        table.cluster.view.nodes.remove(node);
        table.becomes(node, NodeState::Failed, Some(Reason::ObjectGone));
        table.run(&key);
        table.phase(&key)
    };
    assert_eq!(leaves("cp-5"), Phase::Succeeded);
    let (mut table, key) = table(5, 0, spec());
    table.stage_all();
    table.cluster.view.nodes.remove("cp-1");
    table.becomes("cp-1", NodeState::Failed, Some(Reason::ObjectGone));
    table.run(&key);
    assert_eq!(table.phase(&key), Phase::Failed);
    let why = said(&table, &key);
    assert!(why.contains("cp-1, which was to go first, left the cluster"), "{why}");
}

#[test]
fn the_node_whose_turn_it_is_is_explained_not_those_that_wait_for_it() {
    let mut table = Table::new(Cluster::new(3, 0, FROM).images(&[TO]).with_kube_vip("cp-1"));
    let key = table.upgrade("edge-1", spec());
    table.settle();
    table.cluster.part("cp-3", Component::KubeVip, |pod| pod.ready = false);
    table.stage_all();
    let why = said(&table, &key);
    assert!(why.contains("kube-vip of cp-3 is not Ready"), "{why}");
    assert!(why.contains("afloat abort"), "{why}");
}

#[test]
fn p46_a_bundle_is_that_of_the_target_and_hops_on_the_way_have_their_own() {
    let far = ClusterUpgradeSpec {
        kubernetes_version: "v1.37.1".to_owned(),
        bundle: Some(Bundle {
            image: "mirror/afloat:mine".to_owned(),
            digest: None,
        }),
        ..spec()
    };
    let mut table = Table::new(Cluster::new(1, 0, FROM).images(&[TO, "v1.37.1"]));
    let key = table.upgrade("edge-1", far);
    let mut images = Vec::new();
    for _ in 0..2 {
        table.stage_all();
        let upgrade = table.node_upgrade("cp-1");
        let image = upgrade.spec.steps.first().map(|step| step.image.clone());
        images.push((upgrade.spec.kubernetes_version, image.unwrap()));
        table.becomes("cp-1", NodeState::Succeeded, None);
    }
    table.settle();
    assert_eq!(table.phase(&key), Phase::Succeeded);
    assert_eq!(images[0].0, TO);
    assert_ne!(images[0].1, "mirror/afloat:mine");
    assert_eq!(images[1], ("v1.37.1".to_owned(), "mirror/afloat:mine".to_owned()));
}

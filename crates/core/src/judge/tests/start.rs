//! Groups that stand alone and cannot begin: each says why and what helps, and takes nothing that others would wait for.

use std::sync::Arc;

use super::alone::{control_planes_alone, says, workers_alone};
use super::*;
use crate::plan::fixture::version;

fn reason(table: &Table, group: &Key) -> String {
    let view = table.view();
    let planes = view.control_planes.get(group).and_then(|group| group.status.clone());
    let status = planes.or_else(|| view.workers.get(group).and_then(|group| group.status.clone()));
    let conditions = status.unwrap().conditions;
    let progressing = conditions.into_iter().find(|one| one.type_ == "Progressing");
    progressing.unwrap().reason
}

/// Nothing was taken, and nothing was made.
fn has_nothing(table: &Table) -> bool {
    let asked = ["take-lock", "set-group-finalizer", "create-node-upgrade"];
    table.view().lock.is_none() && !table.done.iter().any(|name| asked.contains(name))
}

fn aims_at(table: &mut Table, group: &Key, to: &str) {
    let planes = &mut table.cluster.view.control_planes;
    let group = Arc::make_mut(planes.get_mut(group).unwrap());
    to.clone_into(&mut group.spec.kubernetes_version);
    to.clone_into(&mut group.spec.kubelet_version);
}

#[test]
fn p32_a_group_alone_without_a_bundle_takes_nothing_and_begins_once_there_is_one() {
    let (mut table, group) = control_planes_alone(3);
    table.cluster.view.images.remove(&version(TO));
    table.settle();
    assert!(has_nothing(&table), "{:?}", table.done);
    assert_eq!(reason(&table, &group), "BundleUnavailable");
    let said = says(&table, &group);
    assert!(said.contains("afloat bundle publish -n afloat-system"), "{said}");

    table.cluster.view.images.insert(version(TO), Arc::from("upgrader"));
    table.stage_all();
    assert_eq!(table.going(), ["cp-1"]);
    assert_eq!(reason(&table, &group), "InProgress");
}

#[test]
fn a_group_alone_says_which_version_comes_before_and_takes_nothing() {
    let (mut table, group) = control_planes_alone(3);
    aims_at(&mut table, &group, "v1.37.2");
    table
        .cluster
        .view
        .images
        .insert(version("v1.37.2"), Arc::from("upgrader"));
    let decision = table.decide(&Subject::ControlPlane(group.clone()));
    assert_eq!(decision.again, None, "only a change leads on");
    table.settle();
    assert!(has_nothing(&table), "{:?}", table.done);
    assert_eq!(reason(&table, &group), "VersionSkew");
    let said = says(&table, &group);
    assert!(
        said.contains("cp-1 is at v1.35.4") && said.contains("v1.36 first"),
        "{said}"
    );
    for node in ["cp-1", "cp-2", "cp-3"] {
        table.cluster.upgrade(node, TO);
    }
    table.stage_all();
    assert_eq!(table.going(), ["cp-1"]);
}

#[test]
fn an_api_server_that_the_group_does_not_list_is_not_left_two_minor_versions_behind() {
    let (mut table, group) = control_planes_alone(3);
    let planes = &mut table.cluster.view.control_planes;
    let listed = Arc::make_mut(planes.get_mut(&group).unwrap());
    listed.spec.machines_require_upgrade.truncate(2);
    table.cluster.upgrade("cp-3", "v1.34.4");
    table.settle();
    assert!(has_nothing(&table), "{:?}", table.done);
    let said = says(&table, &group);
    assert!(said.contains("cp-3 is at v1.34.4"), "{said}");
}

#[test]
fn a_kubelet_that_would_be_too_old_is_upgraded_before_the_api_servers() {
    let (mut table, group) = control_planes_alone(1);
    table.cluster.add_node("worker-1", false, "v1.32.4");
    table.settle();
    assert!(has_nothing(&table), "{:?}", table.done);
    assert_eq!(reason(&table, &group), "VersionSkew");
    let said = says(&table, &group);
    assert!(said.contains("kubelet of worker-1 is at v1.32.4"), "{said}");
}

#[test]
fn a_group_alone_does_not_lead_down_and_says_so() {
    let (mut table, group) = control_planes_alone(3);
    aims_at(&mut table, &group, "v1.34.4");
    table
        .cluster
        .view
        .images
        .insert(version("v1.34.4"), Arc::from("upgrader"));
    table.settle();
    assert!(has_nothing(&table), "{:?}", table.done);
    assert_eq!(reason(&table, &group), "Downgrade");
    let (mut table, group) = workers_alone(2);
    table.cluster.upgrade("worker-2", "v1.36.4");
    table.settle();
    assert!(has_nothing(&table), "{:?}", table.done);
    assert_eq!(reason(&table, &group), "Downgrade");
}

/// Its bundle is withdrawn half-way, and a machine more is listed.
#[test]
fn a_group_alone_that_cannot_go_on_gives_the_lock_back_and_takes_it_again() {
    let (mut table, group) = workers_alone(2);
    table.stage_all();
    assert!(table.view().lock.is_some());
    let image = table.cluster.view.images.remove(&version(TO)).unwrap();
    table.cluster.add_node("worker-3", false, FROM);
    let added = crate::judge::children::machine(&table.view().nodes["worker-3"]);
    let workers = &mut table.cluster.view.workers;
    let listed = Arc::make_mut(workers.get_mut(&group).unwrap());
    listed.spec.machines_require_upgrade.push(added);
    for _ in 0..2 {
        table.stage_all();
        let going = table.going();
        assert_eq!(going.len(), 1, "those that have begun go on");
        table.becomes(&going[0], NodeState::Succeeded, None);
    }
    table.settle();
    assert_eq!(reason(&table, &group), "BundleUnavailable");
    assert_eq!(table.view().lock, None, "everybody would wait for it");
    table.cluster.view.images.insert(version(TO), image);
    table.stage_all();
    assert_eq!(table.going(), ["worker-3"]);
}

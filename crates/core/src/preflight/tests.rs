use std::sync::Arc;

use afloat_api::clusterupgrade::{BudgetOverride, ClusterUpgradeStatus, Phase, Window};
use afloat_api::{ClusterUpgrade, ClusterUpgradeSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::*;
use crate::plan::fixture::{Cluster, GIB, pod, resources, settings};
use crate::settings::PausePolicy;
use crate::view::{
    Component, Lock, Operator, Owner, PodBudget, PodShape, PodTerm, Requirement, Revision, Selector, Target, Workload,
    WorkloadKind,
};

fn key() -> Key {
    Key::new("afloat-system", "edge-1")
}

fn now() -> Timestamp {
    "2026-11-15T20:00:00Z".parse().unwrap()
}

/// Each finding in one line: severity, the word to accept it by, message, remedy.
fn told_with(cluster: &Cluster, settings: &Settings) -> Vec<String> {
    let found = findings(&cluster.view, &key(), settings, now());
    let lines = found.iter().map(|finding| {
        let remedy = finding.remedy.as_deref().unwrap_or("-");
        let accepted = if finding.accepted { "accepted " } else { "" };
        let severity = finding.severity.to_string().to_lowercase();
        format!(
            "{accepted}{severity} {} {}; help: {remedy}",
            accept_key(finding),
            finding.message
        )
    });
    lines.collect()
}

fn told(change: impl FnOnce(&mut Cluster)) -> Vec<String> {
    let mut cluster = healthy();
    change(&mut cluster);
    told_with(&cluster, &settings("v1.36.3"))
}

fn healthy() -> Cluster {
    Cluster::new(3, 2, "v1.35.4").images(&["v1.36.3"])
}

fn app(name: &str) -> Selector {
    Selector {
        requirements: vec![Requirement {
            key: "app".into(),
            operator: Operator::In,
            values: vec![name.into()],
        }],
    }
}

fn budget(name: &str, selects: &str, desired: i64, expected: i64) -> Arc<PodBudget> {
    Arc::new(PodBudget {
        key: Key::new("shop", name),
        uid: format!("uid-{name}").into(),
        revision: Revision(1),
        selector: app(selects),
        up_to_date: true,
        disruptions_allowed: (expected - desired).max(0),
        current_healthy: expected,
        desired_healthy: desired,
        expected_pods: expected,
        unhealthy_may_go: false,
    })
}

fn checkout(shape: &mut PodShape) {
    shape.labels.insert("app".into(), "checkout".into());
}

/// Two pods of a Deployment, and a budget that wants `desired` of them.
fn shop(cluster: &mut Cluster, nodes: [&str; 2], desired: i64) {
    for (number, node) in nodes.into_iter().enumerate() {
        cluster.run(&format!("checkout-{number}"), node, resources(100, GIB), checkout);
    }
    let workload = |kind, name: &str, owner| Workload {
        kind,
        key: Key::new("shop", name),
        uid: name.into(),
        revision: Revision(1),
        replicas: 2,
        ready: 2,
        owner,
    };
    let deployment = Owner {
        kind: "Deployment".into(),
        name: "checkout".into(),
        uid: "checkout".into(),
    };
    for workload in [
        workload(WorkloadKind::Deployment, "checkout", None),
        workload(WorkloadKind::ReplicaSet, "checkout-7d9f", Some(deployment)),
    ] {
        let entry = (workload.kind, workload.key.clone());
        cluster.view.workloads.insert(entry, Arc::new(workload));
    }
    let budget = budget("checkout", "checkout", desired, 2);
    cluster.view.budgets.insert(budget.key.clone(), budget);
}

#[test]
fn a_cluster_that_is_well_has_no_findings() {
    assert_eq!(told(|_| {}), Vec::<String>::new());
    assert_eq!(
        told(|cluster| shop(cluster, ["worker-1", "worker-2"], 1)),
        Vec::<String>::new()
    );
}

#[test]
fn a_budget_that_can_never_be_met_names_the_command_that_frees_it() {
    assert_eq!(
        told(|cluster| shop(cluster, ["worker-2", "worker-2"], 2)),
        [
            "error pdb/shop/checkout:BudgetBlocksDrain allows 0 disruptions: 2 of 2 pods must stay, both on worker-2; worker-2 \
             can never be drained, the upgrade would wait for that; help: kubectl -n shop scale deploy/checkout \
             --replicas=3"
        ]
    );
    let apart = told(|cluster| shop(cluster, ["worker-1", "worker-2"], 2));
    assert!(
        apart[0].contains("on worker-1, worker-2; none of worker-1, worker-2 can ever be drained"),
        "{apart:?}"
    );
    // One that only waits for a pod to become healthy passes by itself.
    let recovering = told(|cluster| {
        shop(cluster, ["worker-1", "worker-2"], 1);
        let mut budget = PodBudget::clone(&cluster.view.budgets[&Key::new("shop", "checkout")]);
        (budget.current_healthy, budget.disruptions_allowed) = (1, 0);
        cluster.view.budgets.insert(budget.key.clone(), Arc::new(budget));
    });
    assert_eq!(recovering, Vec::<String>::new());
}

#[test]
fn a_budget_that_need_not_be_respected_is_none_until_its_moment() {
    let mut cluster = healthy();
    shop(&mut cluster, ["worker-2", "worker-2"], 2);
    let mut settings = settings("v1.36.3");
    for (until, findings) in [("2026-11-15T21:00:00Z", 0), ("2026-11-15T20:00:00Z", 1)] {
        settings.drain.overrides = vec![BudgetOverride {
            namespace: "shop".to_owned(),
            name: "checkout".to_owned(),
            until: Time(until.parse().unwrap()),
            because: "a rehearsal".to_owned(),
        }];
        assert_eq!(told_with(&cluster, &settings).len(), findings, "{until}");
    }
}

#[test]
fn two_budgets_on_one_pod_are_an_error() {
    let found = told(|cluster| {
        shop(cluster, ["worker-1", "worker-2"], 1);
        let second = budget("other", "checkout", 1, 2);
        cluster.view.budgets.insert(second.key.clone(), second);
    });
    assert_eq!(
        found,
        [
            "error pdb/shop/checkout:SeveralPodDisruptionBudgets and pdb/shop/other both count for pod shop/checkout-0: the API \
             server evicts no pod under two, so worker-1 can never be drained; help: kubectl -n shop edit pdb checkout"
        ]
    );
}

#[test]
fn pods_that_would_be_lost_or_lose_data_stop_it_unless_the_person_said_so() {
    let mut cluster = healthy();
    cluster
        .view
        .put_pod(Arc::new(pod("shop", "bare", Some("worker-1"), PodShape::default())));
    for number in 0..2 {
        cluster.run(&format!("cache-{number}"), "worker-2", resources(10, GIB), |shape| {
            shape.local_data = true;
        });
    }
    let mut settings = settings("v1.36.3");
    let patch = "help: kubectl -n afloat-system patch clusterupgrade edge-1 --type merge -p '{\"spec\":{\"drain\":";
    assert_eq!(
        told_with(&cluster, &settings),
        [
            format!(
                "error rs/shop/checkout-7d9f:LocalData 2 of its pods have data in an emptyDir that an eviction loses: worker-2 \
                 could not be drained; {patch}{{\"deleteEmptyDirData\":true}}}}}}'"
            ),
            format!(
                "error pod/shop/bare:UnmanagedPod no controller would bring it back: worker-1 could not be drained; \
                 {patch}{{\"evictUnmanagedPods\":true}}}}}}'"
            ),
        ]
    );
    settings.drain.delete_local_data = true;
    settings.drain.evict_unmanaged = true;
    assert_eq!(told_with(&cluster, &settings), Vec::<String>::new());
}

#[test]
fn p36_a_single_node_is_not_drained_and_its_downtime_is_only_told() {
    let mut cluster = Cluster::new(1, 0, "v1.35.4").images(&["v1.36.3"]);
    shop(&mut cluster, ["cp-1", "cp-1"], 2);
    cluster
        .view
        .put_pod(Arc::new(pod("shop", "bare", Some("cp-1"), PodShape::default())));
    let found = findings(&cluster.view, &key(), &settings("v1.36.3"), now());
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(
        (found[0].severity, found[0].reason.as_str()),
        (Severity::Info, "ApiDowntime")
    );
    assert!(passes(&found));
}

#[test]
fn two_control_planes_start_only_when_the_downtime_is_accepted() {
    let cluster = Cluster::new(2, 1, "v1.35.4").images(&["v1.36.3"]);
    let mut settings = settings("v1.36.3");
    let found = findings(&cluster.view, &key(), &settings, now());
    assert_eq!(found[0].severity, Severity::Warning);
    assert_eq!(accept_key(&found[0]), "clusterupgrade/afloat-system/edge-1:ApiDowntime");
    assert!(!passes(&found) && !downtime_accepted(&cluster.view, &key(), &settings));
    settings.accept.insert(accept_key(&found[0]));
    let found = findings(&cluster.view, &key(), &settings, now());
    assert!(found[0].accepted && passes(&found) && downtime_accepted(&cluster.view, &key(), &settings));
}

#[test]
fn p4_external_etcd_and_clusters_not_of_kubeadm_are_refused() {
    let external = Cluster::new(3, 2, "v1.35.4").images(&["v1.36.3"]).with_external_etcd();
    let found = told_with(&external, &settings("v1.36.3"));
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0].starts_with("error configmap/kube-system/kubeadm-config:NotInPlace says that etcd is external"),
        "{found:?}"
    );
    let found = told(|cluster| cluster.view.kubeadm_config = None);
    assert!(found[0].contains(":NotInPlace is not there"), "{found:?}");
    // A word elsewhere in the document is none within etcd.
    let found = told(|cluster| {
        cluster.view.kubeadm_config =
            Some("apiServer:\n  external: x\netcd:\n  local:\n    dataDir: /d\nnetworking:\n  external: y\n".into());
    });
    assert_eq!(found, Vec::<String>::new());
}

#[test]
fn p46_tags_of_images_are_looked_at_before_anything_is_changed() {
    let named = |to: &str, etcd: Option<&str>, core_dns: Option<&str>| Settings {
        etcd_version: etcd.map(Into::into),
        core_dns_version: core_dns.map(Into::into),
        ..settings(to)
    };
    let cluster = healthy();
    for (settings, expected) in [
        (named("v1.36.3", Some("3.6.8-0"), Some("v1.14.2")), &[] as &[&str]),
        // Another name than a version says nothing about what is newer.
        (named("v1.36.3", Some("mine"), None), &[]),
        (
            named("v1.36.3", Some("3.5.21-0"), None),
            &[
                "error node/cp-1:Downgrade",
                "error node/cp-2:Downgrade",
                "error node/cp-3:Downgrade",
            ],
        ),
        (
            named("v1.35.4", None, Some("v1.14.2")),
            &[
                "error clusterupgrade/afloat-system/edge-1:InvalidSpec spec.coreDNSVersion: the control plane is at v1.35.4, so that \
               nothing would be done on it, and nothing changed; help: name the bundle that brings the image: spec.bundle, or --bundle IMAGE",
            ],
        ),
    ] {
        let mut cluster = Cluster {
            view: cluster.view.clone(),
        };
        if settings.to.to_string() == "v1.35.4" {
            cluster.upgrade("worker-1", "v1.35.3");
        }
        let found = told_with(&cluster, &settings);
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.starts_with(expected), "{found} instead of {expected}");
        }
    }
    let mut half_way = healthy();
    half_way.upgrade("cp-1", "v1.36.3");
    let mut asked = named("v1.36.3", Some("3.6.8-0"), None);
    asked.bundle_image = Some("mirror/afloat:v1.36.3-2".into());
    for asked in [named("v1.36.3", Some("3.6.8-0"), None), asked] {
        let found = told_with(&half_way, &asked);
        assert_eq!(
            found,
            [
                "error node/cp-1:InvalidSpec is at v1.36.3 already and would keep its etcd: spec.etcdVersion would be true of some only; \
                 help: upgrade without spec.etcdVersion first, and then with it and with the bundle that brings it: spec.bundle"
            ]
        );
    }
    let pinned = "dns:\n  imageTag: v1.12.0\netcd:\n  local:\n    dataDir: /var/lib/etcd\n";
    let mut cluster = healthy();
    cluster.view.kubeadm_config = Some(pinned.into());
    let found = told_with(&cluster, &settings("v1.36.3"));
    assert_eq!(
        found,
        [
            "info configmap/kube-system/kubeadm-config:ImagePinned names the image tag v1.12.0 for CoreDNS: it stays, whatever this \
          version of kubeadm would bring, unless Afloat wrote it for another version; help: to bring another one: spec.coreDNSVersion"
        ]
    );
    assert_eq!(told_with(&cluster, &named("v1.36.3", None, Some("v1.14.2"))), [""; 0]);
}

#[test]
fn nodes_that_are_broken_or_cordoned_are_named() {
    let found = told(|cluster| {
        cluster.node("cp-2", |node| node.ready.ready = false);
        cluster.node("worker-1", |node| node.ready.ready = false);
        cluster.node("worker-2", |node| node.unschedulable = true);
    });
    assert_eq!(
        found,
        [
            "error node/cp-2:NotReady is not Ready: a control plane goes only while all the others work; help: kubectl describe \
             node cp-2",
            "warning node/worker-2:Cordoned cordoned by someone: it is upgraded but stays cordoned; help: kubectl uncordon \
             worker-2",
            "warning node/worker-1:NotReady is not Ready and counts as out of service (1 of 1 that may be): no other worker goes \
             until it is back; help: kubectl describe node worker-1",
        ]
    );
}

#[test]
fn a_warning_is_accepted_by_the_word_it_is_printed_with() {
    let mut cluster = healthy();
    cluster.node("worker-2", |node| node.unschedulable = true);
    let mut settings = settings("v1.36.3");
    settings.accept.insert("node/worker-2:Cordoned".to_owned());
    let found = findings(&cluster.view, &key(), &settings, now());
    assert!(passes(&found) && found[0].accepted);
    // An error cannot be accepted.
    cluster.node("cp-2", |node| node.ready.ready = false);
    settings.accept.insert("node/cp-2:NotReady".to_owned());
    let found = findings(&cluster.view, &key(), &settings, now());
    assert!(!passes(&found) && !found[0].accepted);
}

#[test]
fn a_part_of_the_control_plane_that_does_not_work_is_an_error() {
    let found = told(|cluster| cluster.part("cp-2", Component::Etcd, |pod| pod.ready = false));
    assert_eq!(
        found,
        [
            "error node/cp-2:ControlPlaneUnhealthy etcd of cp-2 is not Ready; a control plane goes only while all the others work; \
             help: kubectl -n kube-system describe pod etcd-cp-2"
        ]
    );
    assert_eq!(
        told(|cluster| cluster.view.health.clear()),
        Vec::<String>::new(),
        "what was not probed yet says nothing"
    );
}

#[test]
fn what_has_no_place_is_a_warning_by_workload_and_waits_when_accepted() {
    let mut cluster = Cluster::new(3, 3, "v1.35.4").images(&["v1.36.3"]);
    for name in ["cp-1", "cp-2", "cp-3"] {
        cluster.node(name, |node| node.allocatable = resources(0, 0));
    }
    for number in 1..=3 {
        let node = format!("worker-{number}");
        cluster.run(&format!("db-{number}"), &node, resources(100, GIB), |shape| {
            shape.labels.insert("app".into(), "db".into());
            shape.pod_anti_affinity.push(PodTerm {
                selector: app("db"),
                namespaces: Vec::new(),
                namespace_selector: None,
                topology_key: "kubernetes.io/hostname".into(),
            });
        });
    }
    let mut settings = settings("v1.36.3");
    let found = told_with(&cluster, &settings);
    assert_eq!(found.len(), 1, "one workload, not three nodes: {found:?}");
    assert!(
        found[0].starts_with(
            "warning rs/shop/checkout-7d9f:NoCapacity pod shop/db-1 of worker-1 (0.1 CPU, 1 GiB) fits on none"
        ),
        "{found:?}"
    );
    settings.accept.insert("rs/shop/checkout-7d9f:NoCapacity".to_owned());
    assert!(passes(&findings(&cluster.view, &key(), &settings, now())));
}

#[test]
fn a_spec_that_asks_for_what_is_not_there_is_refused() {
    let mut settings = settings("v1.36.3");
    settings.pause = PausePolicy::Named(["worker-1".to_owned(), "worker-9".to_owned()].into());
    settings.window = Some(Window {
        start: "22:30".to_owned(),
        duration_minutes: 60,
        time_zone: Some("Europe/Berlim".to_owned()),
        ..Window::default()
    });
    assert_eq!(
        told_with(&healthy(), &settings),
        [
            "error clusterupgrade/afloat-system/edge-1:InvalidSpec spec.window: there is no time zone \"Europe/Berlim\": write its \
             IANA name, as Europe/Berlin; help: -",
            "error clusterupgrade/afloat-system/edge-1:InvalidSpec spec.nodeUpgradeOption.strategy.pauseNodes names what is no \
             node: worker-9; it would never be held; help: kubectl get nodes",
        ]
    );
}

#[test]
fn where_there_is_no_way_the_rest_is_looked_at_all_the_same() {
    let mut cluster = Cluster::new(3, 2, "v1.35.4");
    cluster.node("worker-1", |node| node.unschedulable = true);
    let found = told_with(&cluster, &settings("v1.34.0"));
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(
        found[0].starts_with("error node/cp-1:Downgrade cp-1 is at v1.35.4: v1.34.0 would be a downgrade"),
        "{found:?}"
    );
    assert!(found[0].ends_with("help: to undo a node that was upgraded today: afloat rollback NODE"));
    let found = told_with(&cluster, &settings("v1.36.3"));
    assert!(
        found[0].starts_with("error clusterupgrade/afloat-system/edge-1:BundleUnavailable there is no upgrader image"),
        "{found:?}"
    );
    let skewed = told(|cluster| cluster.upgrade("worker-1", "v1.36.3"));
    assert!(
        skewed[0].starts_with("warning node/worker-1:VersionSkew the kubelet of worker-1 is at v1.36.3"),
        "{skewed:?}"
    );
}

fn upgrade(cluster: &mut Cluster, name: &str, created: &str, phase: Option<Phase>) {
    let mut upgrade = ClusterUpgrade::new(name, ClusterUpgradeSpec::default());
    upgrade.metadata.namespace = Some("afloat-system".to_owned());
    upgrade.metadata.uid = Some(format!("uid-{name}"));
    upgrade.metadata.creation_timestamp = Some(Time(created.parse().unwrap()));
    upgrade.status = phase.map(|phase| ClusterUpgradeStatus {
        phase: Some(phase),
        ..ClusterUpgradeStatus::default()
    });
    cluster
        .view
        .upgrades
        .insert(Key::new("afloat-system", name), Arc::new(upgrade));
}

#[test]
fn another_upgrade_of_the_cluster_goes_first_if_it_has_begun_or_is_older() {
    let cases = [
        ("2026-11-15T19:00:00Z", None, 1),
        ("2026-11-15T19:00:00Z", Some(Phase::Preflight), 1),
        ("2026-11-15T19:00:00Z", Some(Phase::Succeeded), 0),
        ("2026-11-15T19:30:01Z", Some(Phase::Preflight), 0),
        ("2026-11-15T19:30:01Z", Some(Phase::Workers), 1),
        ("2026-11-15T19:30:01Z", Some(Phase::Aborted), 0),
    ];
    for (created, phase, findings) in cases {
        let found = told(|cluster| {
            upgrade(cluster, "edge-1", "2026-11-15T19:30:00Z", None);
            upgrade(cluster, "edge-2", created, phase);
        });
        assert_eq!(found.len(), findings, "{created} {phase:?}: {found:?}");
        assert!(
            found
                .iter()
                .all(|line| line.starts_with("error clusterupgrade/afloat-system/edge-2:OtherUpgrade"))
        );
    }
    // The lock has the last word between two that have not begun.
    for (holder, findings) in [("uid-edge-1", 0), ("uid-edge-2", 1)] {
        let found = told(|cluster| {
            upgrade(cluster, "edge-1", "2026-11-15T19:30:00Z", None);
            upgrade(cluster, "edge-2", "2026-11-15T19:00:00Z", None);
            cluster.view.lock = Some(Lock {
                target: Target {
                    key: Key::new("afloat-system", "afloat-upgrade"),
                    uid: "lock".into(),
                    revision: Revision(1),
                },
                holder: holder.into(),
            });
        });
        assert_eq!(found.len(), findings, "{holder}");
    }
}

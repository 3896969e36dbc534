use super::fixture::{Cluster, settings, version};
use super::*;
use crate::settings::Settings;
use crate::view::{Component, NodeName};

/// A path in one line: `cp v1.36.3, workers v1.36.3 (v1.35.9 v1.36.3)`.
fn told(view: &View, settings: &Settings) -> String {
    match path(view, settings) {
        Ok(stages) => {
            let texts = stages.iter().map(|stage| {
                let kind = match stage.kind {
                    StageKind::ControlPlane => "cp",
                    StageKind::Workers => "workers",
                };
                assert_eq!(stage.via.last(), Some(&stage.version));
                let via: Vec<String> = stage.via.iter().map(ToString::to_string).collect();
                match via.len() {
                    1 => format!("{kind} {}", stage.version),
                    _ => format!("{kind} {} ({})", stage.version, via.join(" ")),
                }
            });
            texts.collect::<Vec<_>>().join(", ")
        }
        Err(error) => format!("{}: {error}", error.reason()),
    }
}

const ALL: &[&str] = &[
    "v1.25.16", "v1.26.15", "v1.27.16", "v1.28.15", "v1.29.14", "v1.33.9", "v1.34.0", "v1.34.6", "v1.35.9", "v1.36.1",
    "v1.36.3",
];

#[test]
fn p1_control_planes_go_minor_by_minor_and_workers_take_several_at_once() {
    let cases = [
        ("v1.35.4", "v1.36.3", "cp v1.36.3, workers v1.36.3"),
        ("v1.36.1", "v1.36.3", "cp v1.36.3, workers v1.36.3"),
        ("v1.36.3", "v1.36.3", ""),
        (
            "v1.33.2",
            "v1.36.3",
            "cp v1.34.6, cp v1.35.9, cp v1.36.3, workers v1.36.3 (v1.34.6 v1.35.9 v1.36.3)",
        ),
        // Kubelets of 1.25 may be three behind an API server of 1.28, but not four behind one of 1.29.
        (
            "v1.25.16",
            "v1.29.14",
            "cp v1.26.15, cp v1.27.16, cp v1.28.15, workers v1.28.15 (v1.26.15 v1.27.16 v1.28.15), cp v1.29.14, workers v1.29.14",
        ),
        // Before 1.28 it was two.
        (
            "v1.24.17",
            "v1.27.16",
            "cp v1.25.16, cp v1.26.15, workers v1.26.15 (v1.25.16 v1.26.15), cp v1.27.16, workers v1.27.16",
        ),
    ];
    for (from, to, expected) in cases {
        let cluster = Cluster::new(3, 2, from).images(ALL);
        assert_eq!(told(&cluster.view, &settings(to)), expected, "{from} to {to}");
    }
}

#[test]
fn workers_stop_at_every_minor_where_asked() {
    let every_minor = Settings {
        every_minor: true,
        ..settings("v1.36.3")
    };
    let cluster = Cluster::new(3, 2, "v1.33.9").images(ALL);
    assert_eq!(
        told(&cluster.view, &every_minor),
        "cp v1.34.6, workers v1.34.6, cp v1.35.9, workers v1.35.9, cp v1.36.3, workers v1.36.3"
    );
    let mut lagging = Cluster::new(3, 2, "v1.35.9").images(ALL);
    lagging.upgrade("worker-1", "v1.34.0");
    assert_eq!(
        told(&lagging.view, &every_minor),
        "workers v1.35.9, cp v1.36.3, workers v1.36.3"
    );
}

#[test]
fn p36_a_single_node_has_no_workers_stage() {
    let cluster = Cluster::new(1, 0, "v1.35.4").images(ALL);
    assert_eq!(told(&cluster.view, &settings("v1.36.3")), "cp v1.36.3");
}

#[test]
fn p46_a_bundle_of_the_same_version_is_an_upgrade_too() {
    let mut settings = settings("v1.36.3");
    settings.bundle_image = Some("mirror/bundle:2".into());
    let cluster = Cluster::new(3, 2, "v1.36.3");
    assert_eq!(told(&cluster.view, &settings), "cp v1.36.3, workers v1.36.3");
    let stages = path(&cluster.view, &settings).unwrap();
    let node = &cluster.view.nodes["worker-1"];
    assert!(!needs(&cluster.view, node, &stages[1], false));
    assert!(needs(&cluster.view, node, &stages[1], true));
    assert!(
        !needs(&cluster.view, node, &stages[0], true),
        "a worker has no part in a control-plane stage"
    );

    settings.every_minor = true;
    assert_eq!(told(&cluster.view, &settings), "cp v1.36.3, workers v1.36.3");
    // The bundle stands for the target's image.
    let cluster = Cluster::new(3, 2, "v1.35.9");
    assert_eq!(told(&cluster.view, &settings), "cp v1.36.3, workers v1.36.3");
}

#[test]
fn p7_a_half_finished_upgrade_goes_on_where_it_stood() {
    let to = settings("v1.36.3");
    let mut cluster = Cluster::new(3, 2, "v1.34.6").images(ALL);
    let whole = "cp v1.35.9, cp v1.36.3, workers v1.36.3 (v1.35.9 v1.36.3)";
    assert_eq!(told(&cluster.view, &to), whole);
    cluster.upgrade("cp-1", "v1.35.9");
    assert_eq!(told(&cluster.view, &to), whole);
    let first = &path(&cluster.view, &to).unwrap()[0];
    let in_need = |cluster: &Cluster, stage: &Stage| {
        let nodes = cluster.view.nodes.values();
        let needy = nodes.filter(|node| needs(&cluster.view, node, stage, false));
        needy.map(|node| node.name.to_string()).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(in_need(&cluster, first), "cp-2 cp-3");
    cluster.upgrade("cp-2", "v1.35.9");
    cluster.upgrade("cp-3", "v1.35.9");
    assert_eq!(
        told(&cluster.view, &to),
        "cp v1.36.3, workers v1.36.3 (v1.35.9 v1.36.3)"
    );
    for name in ["cp-1", "cp-2", "cp-3"] {
        cluster.upgrade(name, "v1.36.3");
    }
    assert_eq!(
        in_need(&cluster, first),
        "",
        "nodes that are ahead are never taken down"
    );
    cluster.upgrade("worker-1", "v1.36.3");
    assert_eq!(told(&cluster.view, &to), "workers v1.36.3 (v1.35.9 v1.36.3)");
    assert_eq!(in_need(&cluster, &path(&cluster.view, &to).unwrap()[0]), "worker-2");
    cluster.upgrade("worker-2", "v1.36.3");
    assert_eq!(told(&cluster.view, &to), "");
}

#[test]
fn a_part_or_kubelet_left_behind_on_a_control_plane_is_seen() {
    let to = settings("v1.36.3");
    let mut kubelet = Cluster::new(3, 0, "v1.36.3");
    kubelet.node("cp-2", |node| node.kubelet_version = Some(version("v1.35.4")));
    assert_eq!(told(&kubelet.view, &to), "cp v1.36.3");
    let mut part = Cluster::new(3, 0, "v1.36.3");
    part.put_part("cp-2", Component::Scheduler, Some("v1.36.1"));
    assert_eq!(told(&part.view, &to), "cp v1.36.3");
    // While the API server's mirror pod is away, the kubelet says how far the node is at least.
    let mut away = Cluster::new(3, 0, "v1.35.4").images(ALL);
    away.drop_part("cp-2", Component::ApiServer);
    assert_eq!(told(&away.view, &to), "cp v1.36.3");
}

#[test]
fn where_there_is_no_way_it_says_why_and_what_helps() {
    let to = settings("v1.36.3");
    let newer = Cluster::new(1, 1, "v1.36.4");
    assert_eq!(
        told(&newer.view, &to),
        "Downgrade: cp-1 is at v1.36.4: v1.36.3 would be a downgrade; etcd and the API objects may already be stored in \
         forms that v1.36 cannot read"
    );
    let mut worker = Cluster::new(1, 1, "v1.36.3");
    worker.upgrade("worker-1", "v1.37.0");
    assert!(told(&worker.view, &to).starts_with("Downgrade: worker-1 is at v1.37.0"));
    assert_eq!(
        told(&Cluster::new(1, 0, "v1.35.4").view, &to),
        "BundleUnavailable: there is no upgrader image for v1.36.3, the target"
    );
    let gap = Cluster::new(1, 0, "v1.34.6").images(&["v1.36.3"]);
    assert_eq!(
        told(&gap.view, &to),
        "BundleUnavailable: there is no upgrader image for any release of v1.35, which lies on the way to v1.36.3"
    );
    assert_eq!(
        path(&gap.view, &to).unwrap_err().remedy("afloat-system"),
        "afloat bundle publish -n afloat-system REGISTRY/afloat/bundle:v1.35.PATCH"
    );
    let mut behind = Cluster::new(1, 1, "v1.35.4").images(ALL);
    behind.upgrade("worker-1", "v1.32.0");
    behind.view.images.remove(&version("v1.35.4"));
    assert_eq!(
        told(&behind.view, &to),
        "workers v1.35.9 (v1.33.9 v1.34.6 v1.35.9), cp v1.36.3, workers v1.36.3",
        "a later patch will do"
    );
    behind.view.images.remove(&version("v1.35.9"));
    assert_eq!(
        told(&behind.view, &to),
        "BundleUnavailable: the workers have to come to v1.35 before the control plane may leave v1.35.4, and there is no \
         upgrader image for any release of v1.35"
    );
    assert!(told(&Cluster::new(0, 2, "v1.35.4").view, &to).starts_with("NotInPlace: no control-plane node"));
    assert!(told(&Cluster::new(1, 0, "v1.35.4").view, &settings("v2.0.0")).starts_with("VersionSkew: "));
    let mut silent = Cluster::new(1, 1, "v1.35.4").images(ALL);
    silent.node("worker-1", |node| node.kubelet_version = None);
    assert_eq!(
        told(&silent.view, &to),
        "VersionSkew: worker-1 does not say which version of Kubernetes it runs"
    );
}

fn names(view: &View, kind: StageKind) -> String {
    let nodes = view.nodes.values().map(AsRef::as_ref);
    let order = order(view, nodes, kind, &settings("v1.36.3"));
    let names = order.iter().map(|node| node.name.as_str());
    names.collect::<Vec<_>>().join(" ")
}

#[test]
fn k34_the_holder_of_the_virtual_address_goes_last() {
    let mut cluster = Cluster::new(3, 0, "v1.35.4").with_kube_vip("cp-1");
    assert_eq!(names(&cluster.view, StageKind::ControlPlane), "cp-2 cp-3 cp-1");
    assert_eq!(first_control_plane(&cluster.view), Some("cp-2".into()));
    cluster.view.vip_holder = None;
    assert_eq!(names(&cluster.view, StageKind::ControlPlane), "cp-1 cp-2 cp-3");
}

#[test]
fn workers_go_group_by_group_in_turn_through_their_failure_domains() {
    let mut cluster = Cluster::new(1, 6, "v1.35.4");
    for (node, zone) in [
        ("worker-1", "a"),
        ("worker-2", "a"),
        ("worker-3", "a"),
        ("worker-4", "b"),
        ("worker-5", "b"),
    ] {
        cluster.label(node, afloat_api::labels::ZONE, zone);
    }
    cluster.label("worker-2", afloat_api::labels::GROUP, "gpu");
    assert_eq!(
        names(&cluster.view, StageKind::Workers),
        "worker-2 worker-6 worker-1 worker-4 worker-3 worker-5"
    );
    assert_eq!(group_of(&cluster.view.nodes["worker-2"]), "gpu");
    assert_eq!(group_of(&cluster.view.nodes["worker-1"]), "workers");
}

#[test]
fn what_is_out_of_step_is_named() {
    let told = |change: &dyn Fn(&mut Cluster)| {
        let mut cluster = Cluster::new(3, 1, "v1.35.4");
        change(&mut cluster);
        let violations = skew_violations(&cluster.view);
        violations
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join("; ")
    };
    assert_eq!(told(&|_| {}), "");
    assert_eq!(told(&|cluster| cluster.upgrade("cp-1", "v1.36.3")), "");
    assert_eq!(
        told(&|cluster| cluster.upgrade("cp-1", "v1.37.0")),
        "the API server of cp-2 is at v1.35.4, more than one minor version behind v1.37.0; \
         the API server of cp-3 is at v1.35.4, more than one minor version behind v1.37.0"
    );
    assert_eq!(
        told(&|cluster| cluster.upgrade("worker-1", "v1.36.3")),
        "the kubelet of worker-1 is at v1.36.3, newer than an API server at v1.35.4"
    );
    assert_eq!(
        told(&|cluster| cluster.upgrade("worker-1", "v1.31.9")),
        "the kubelet of worker-1 is at v1.31.9, too old for an API server at v1.35.4"
    );
    assert_eq!(
        told(&|cluster| cluster.node("cp-1", |node| node.kubelet_version = Some(version("v1.36.3")))),
        "the kubelet of cp-1 is at v1.36.3, newer than an API server at v1.35.4"
    );
    assert_eq!(
        told(&|cluster| cluster.put_part("cp-1", Component::Scheduler, Some("v1.36.3"))),
        "a part of the control plane on cp-1 is at v1.36.3, newer than its API server at v1.35.4"
    );
    assert_eq!(
        told(&|cluster| cluster.put_part("cp-1", Component::Scheduler, Some("v1.33.3"))),
        "a part of the control plane on cp-1 is at v1.33.3, too old for its API server at v1.35.4"
    );
}

/// Takes every node through the stages and looks after each whether anything is out of step.
fn walk(cluster: &mut Cluster, settings: &Settings) {
    let stages = path(&cluster.view, settings).unwrap();
    for (index, stage) in stages.iter().enumerate() {
        let nodes = cluster.view.nodes.values().map(AsRef::as_ref);
        let order = order(&cluster.view, nodes, stage.kind, settings);
        let order: Vec<NodeName> = order.into_iter().map(|node| node.name.clone()).collect();
        for name in order {
            let rest = path(&cluster.view, settings).unwrap();
            let needy = |cluster: &Cluster| {
                let mut nodes = cluster.view.nodes.values();
                nodes.any(|node| needs(&cluster.view, node, stage, false))
            };
            // Which minors a worker has to pass depends on the oldest that is left.
            let names = |stages: &[Stage]| -> Vec<_> {
                stages.iter().map(|stage| (stage.kind, stage.version.clone())).collect()
            };
            if needy(cluster) {
                assert_eq!(
                    names(&rest),
                    names(&stages[index..]),
                    "half-way the rest is the rest of the same way"
                );
            }
            if needs(&cluster.view, &cluster.view.nodes[&name], stage, false) {
                cluster.upgrade(name.as_str(), &stage.version.to_string());
            }
            assert_eq!(
                skew_violations(&cluster.view),
                Vec::new(),
                "{name} at {}",
                stage.version
            );
        }
    }
    assert_eq!(path(&cluster.view, settings).unwrap(), Vec::new());
    for node in cluster.view.nodes.values() {
        assert_eq!(node.kubelet_version.as_ref(), Some(&settings.to), "{}", node.name);
        for part in kubernetes_parts(&cluster.view, node) {
            assert_eq!(part.version.as_ref(), Some(&settings.to), "{}", node.name);
        }
    }
}

proptest::proptest! {
    #[test]
    fn whatever_the_start_no_stage_breaks_the_skew_policy_and_the_last_arrives(
        minor in 22u64..40,
        further in 0u64..9,
        ahead in 0usize..3,
        behind in proptest::collection::vec(0u64..4, 1..5),
        every_minor: bool,
    ) {
        let images: Vec<String> = (18..60).map(|minor| format!("v1.{minor}.5")).collect();
        let images: Vec<&str> = images.iter().map(String::as_str).collect();
        let mut cluster = Cluster::new(3, behind.len(), &format!("v1.{minor}.2")).images(&images);
        for (number, behind) in behind.iter().enumerate() {
            // Before 1.28 a kubelet was to be two behind at most, and some of the control planes are one ahead already.
            let most = if minor + 1 < 28 { 1 } else { 2 };
            cluster.upgrade(&format!("worker-{}", number + 1), &format!("v1.{}.2", minor - (*behind).min(most)));
        }
        if further > 0 {
            for number in 0..ahead {
                cluster.upgrade(&format!("cp-{}", number + 1), &format!("v1.{}.5", minor + 1));
            }
        }
        proptest::prop_assert_eq!(skew_violations(&cluster.view), Vec::new());
        let settings = Settings { every_minor, ..settings(&format!("v1.{}.5", minor + further)) };
        walk(&mut cluster, &settings);
    }
}

//! Charts and addons, look by look: in their order, each waited for, values untouched, and a run that begins anew at any look.

use super::*;
use crate::hci::task::TaskWrite;
use crate::hci::task::tests::{errand, now};
use crate::hci::tests::world::{RELEASE, World};
use crate::hci::view::{Addon, Bundle, HciObject, HelmRelease, Server, Upstream};
use crate::view::Uid;
use afloat_api::harvester::UpgradeStatus;

const NEW: &str = "1.7.0";
const MONITORING: &str = "105.1.2+up61.3.2";

fn world() -> World {
    let mut world = World::new(3);
    world.start();
    world.change_upgrade(|upgrade| {
        let lines = format!("{RELEASE}harvesterChart: {NEW}\nmonitoringChart: {MONITORING}\n");
        let status = upgrade.status.get_or_insert_with(UpgradeStatus::default);
        status.repo_info = Release::parse(&lines).unwrap().recorded();
    });
    serve(&mut world, RANCHER, "rancher/rancher:v2.12.2", true);
    serve(
        &mut world,
        CHART_SERVER,
        "registry.local:5000/rancher/harvester-cluster-repo:v1.6.0",
        true,
    );
    let by = world.view.hci.upgrades[&World::key()].target.uid.clone();
    for (name, version) in [
        ("harvester", "1.6.0"),
        ("harvester-crd", "1.6.0"),
        ("rancher-monitoring-crd", MONITORING),
    ] {
        let chart = Chart {
            paused: true,
            paused_by: Some(by.clone()),
            version: Arc::from(version),
            update_methods: Arc::from(r#"["LiveMigrate"]"#),
            ..Chart::default()
        };
        world.take(LOCAL_NAMESPACE, name, chart, HciObject::Chart);
        bundle(&mut world, name, |bundle| {
            (bundle.paused, bundle.version, bundle.observed) = (true, Arc::from(version), true);
        });
    }
    for (name, namespace) in [
        ("rancher-monitoring", "cattle-monitoring-system"),
        ("descheduler", "kube-system"),
    ] {
        let addon = Addon {
            enabled: true,
            version: Arc::from("105.1.1"),
            status: Arc::from("AddonDeploySuccessful"),
        };
        world.take(namespace, name, addon, HciObject::Addon);
    }
    world
}

fn serve(world: &mut World, name: &str, image: &str, rolled_out: bool) {
    let server = Server {
        container: Arc::from(name),
        image: Arc::from(image),
        rolled_out,
    };
    world.take(RANCHER_NAMESPACE, name, server, HciObject::Server);
}

fn look(world: &World) -> Look {
    apply_manifests(&world.view, &errand(), &HostDone::new(), now())
}

fn chart(world: &mut World, name: &str, change: impl FnOnce(&mut Chart)) {
    let mut chart = world.view.hci.charts[&Key::new(LOCAL_NAMESPACE, name)].what.clone();
    change(&mut chart);
    world.take(LOCAL_NAMESPACE, name, chart, HciObject::Chart);
}

fn bundle(world: &mut World, name: &str, change: impl FnOnce(&mut Bundle)) {
    let name = format!("mcc-{name}");
    let known = world.view.hci.bundles.get(&Key::new(LOCAL_NAMESPACE, &name));
    let mut bundle = known.map(|bundle| bundle.what.clone()).unwrap_or_default();
    change(&mut bundle);
    world.take(LOCAL_NAMESPACE, &name, bundle, HciObject::Bundle);
}

/// Carries out what a look writes; each in a word.
fn written(world: &mut World, look: Look) -> Vec<String> {
    let Look::Write { what, .. } = look else {
        panic!("{look:?}")
    };
    let mut words = Vec::new();
    for write in what {
        match write {
            TaskWrite::SetImage { server, image, .. } => {
                serve(world, &server.key.name, &image, false);
                words.push(image.to_string());
            }
            TaskWrite::RollOutChart {
                chart: target,
                version,
                update_methods_before,
            } => {
                let name = target.key.name.to_string();
                chart(world, &name, |chart| {
                    (chart.paused, chart.paused_by) = (false, None);
                    if let Some(version) = &version {
                        chart.version = Arc::clone(version);
                    }
                    if let Some(before) = &update_methods_before {
                        chart.update_methods_before = Some(Arc::clone(before));
                        chart.update_methods = Arc::from("[]");
                    }
                });
                let noted = update_methods_before.map_or_else(String::new, |before| format!(" keeps {before}"));
                words.push(format!("{name} {}{noted}", version.as_deref().unwrap_or("as it is")));
            }
            TaskWrite::UpdateAddon { addon, version } => {
                let mut changed = world.view.hci.addons[&addon.key].what.clone();
                changed.version = Arc::clone(&version);
                changed.status = Arc::from("AddonUpdating");
                world.take(&addon.key.namespace, &addon.key.name, changed, HciObject::Addon);
                words.push(format!("addon {} {version}", addon.key.name));
            }
            other => panic!("{other:?}"),
        }
    }
    words
}

#[test]
fn h23_h25_h40_the_server_of_charts_the_charts_and_the_addons_come_in_this_order() {
    let mut world = world();
    let first = look(&world);
    assert_eq!(
        written(&mut world, first),
        ["registry.local:5000/rancher/harvester-cluster-repo:v1.7.0"]
    );
    assert!(look(&world).words().contains("charts of v1.7.0 are served"));
    serve(&mut world, CHART_SERVER, "rancher/harvester-cluster-repo:v1.7.0", true);
    for (name, words) in [
        ("harvester-crd", "harvester-crd 1.7.0"),
        ("harvester", r#"harvester 1.7.0 keeps ["LiveMigrate"]"#),
        ("rancher-monitoring-crd", "rancher-monitoring-crd as it is"),
    ] {
        let next = look(&world);
        assert_eq!(written(&mut world, next), [words]);
        let says = |world: &World, words: &str| assert!(look(world).words().contains(words), "{:?}", look(world));
        says(&world, "Rancher has not handed it to fleet yet");
        let version = Arc::clone(&world.view.hci.charts[&Key::new(LOCAL_NAMESPACE, name)].version);
        bundle(&mut world, name, |bundle| bundle.version = version);
        says(&world, "Rancher has not handed it to fleet yet");
        bundle(&mut world, name, |bundle| {
            (bundle.paused, bundle.observed) = (false, false);
        });
        says(&world, "fleet has not looked at it yet");
        bundle(&mut world, name, |bundle| {
            (bundle.observed, bundle.not_ready) = (true, Some(Arc::from("Modified(1)")));
        });
        says(&world, "Modified(1)");
        bundle(&mut world, name, |bundle| bundle.not_ready = None);
    }
    let next = look(&world);
    assert_eq!(
        written(&mut world, next),
        [format!("addon rancher-monitoring {MONITORING}")]
    );
    let end = look(&world);
    assert!(matches!(end, Look::Done { .. }), "{end:?}");
    assert!(
        end.words().contains("still being rolled out: rancher-monitoring"),
        "{end:?}"
    );
}

#[test]
fn h23_nothing_is_rolled_out_before_rancher_is_the_releases() {
    let mut world = world();
    serve(&mut world, RANCHER, "rancher/rancher:v2.11.3", true);
    assert_eq!(look(&world), Look::Host(HostWork::UpgradeRancher));
    let brought = HostDone::from([HostWork::UpgradeRancher]);
    let unseen = apply_manifests(&world.view, &errand(), &brought, now());
    assert!(
        unseen.words().contains("waits to see Rancher v2.12.2, v2.11.3 runs"),
        "{unseen:?}"
    );
    serve(&mut world, RANCHER, "rancher/rancher:v2.12.2", false);
    assert!(
        look(&world).words().contains("every replica of Rancher"),
        "{:?}",
        look(&world)
    );
    serve(&mut world, RANCHER, "rancher/rancher:v2.12.10", true);
    assert!(
        matches!(look(&world), Look::Write { .. }),
        "a later one has been brought"
    );
}

#[test]
fn h23_a_rancher_whose_chart_was_broken_off_is_brought_again_whatever_it_runs() {
    let mut world = world();
    let revisions = |world: &mut World, all: &[&str]| {
        for (number, status) in all.iter().enumerate() {
            let release = HelmRelease {
                revision: number as u64 + 1,
                status: Arc::from(*status),
            };
            let name = format!("sh.helm.release.v1.rancher.v{}", release.revision);
            world.take(RANCHER_NAMESPACE, &name, release, HciObject::HelmRelease);
        }
    };
    revisions(&mut world, &["superseded", "deployed", "pending-upgrade"]);
    assert_eq!(look(&world), Look::Host(HostWork::UpgradeRancher));
    let brought = HostDone::from([HostWork::UpgradeRancher]);
    let unseen = apply_manifests(&world.view, &errand(), &brought, now());
    assert!(
        unseen.words().contains("what helm says of it is not over"),
        "{unseen:?}"
    );
    revisions(
        &mut world,
        &["superseded", "superseded", "pending-upgrade", "superseded", "deployed"],
    );
    assert!(matches!(look(&world), Look::Write { .. }), "{:?}", look(&world));
}

#[test]
fn a_chart_that_calls_itself_ready_too_early_is_not_believed() {
    let mut world = world();
    serve(&mut world, CHART_SERVER, "rancher/harvester-cluster-repo:v1.7.0", true);
    for name in ["harvester-crd", "harvester"] {
        chart(&mut world, name, |chart| {
            (chart.paused, chart.version) = (false, Arc::from(NEW));
            chart.update_methods_before = Some(Arc::from("null"));
        });
        bundle(&mut world, name, |bundle| {
            (bundle.paused, bundle.version) = (false, Arc::from(NEW));
        });
    }
    for (image, rolled_out, says) in [
        ("rancher/harvester:v1.6.0", true, "Harvester runs v1.6.0"),
        ("rancher/harvester:v1.7.0", false, "not every replica"),
    ] {
        let upstream = Upstream {
            server: Server {
                image: Arc::from(image),
                rolled_out,
                ..Server::default()
            },
            ..Upstream::default()
        };
        world.take("harvester-system", "harvester", upstream, HciObject::Upstream);
        assert!(look(&world).words().contains(says), "{:?}", look(&world));
    }
}

#[test]
fn a_chart_that_somebody_else_has_paused_is_left_alone_and_named() {
    let mut world = world();
    serve(&mut world, CHART_SERVER, "rancher/harvester-cluster-repo:v1.7.0", true);
    for by in [None, Some(Uid::from("another"))] {
        chart(&mut world, "harvester-crd", |chart| chart.paused_by = by);
        let look = look(&world);
        assert!(matches!(look, Look::Failed { .. }), "{look:?}");
        assert!(
            look.words()
                .contains("kubectl -n fleet-local patch managedchart harvester-crd"),
            "{look:?}"
        );
    }
}

#[test]
fn an_image_keeps_its_registry_and_its_name() {
    for (image, expected) in [
        ("rancher/rancher:v2.11.3", "rancher/rancher:v3"),
        ("registry:5000/a/b:v1", "registry:5000/a/b:v3"),
        ("registry:5000/a/b", "registry:5000/a/b:v3"),
    ] {
        let server = Server {
            image: Arc::from(image),
            ..Server::default()
        };
        assert_eq!(server.image_at("v3"), expected);
    }
}

#[test]
fn nothing_more_is_begun_of_an_upgrade_that_is_being_ended() {
    for delete in [false, true] {
        let mut world = world();
        if delete {
            world.change_upgrade(|upgrade| upgrade.metadata.finalizers = Some(vec!["afloat.dev/cleanup".to_owned()]));
            world.delete();
        } else {
            world.annotate("afloat.dev/abort", "true");
        }
        let look = apply_manifests(&world.view, &errand(), &HostDone::new(), now());
        assert!(matches!(look, Look::Done { .. }), "{look:?}");
        assert!(look.words().contains("is being ended"), "{look:?}");
    }
}

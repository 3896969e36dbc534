//! What stops an upgrade before it begins.

use std::sync::Arc;

use afloat_api::clusterupgrade::Severity;

use super::world::World;
use crate::hci::preflight::findings;
use crate::hci::view::{Addon, Backup, CapiCluster, Chart, HciObject, Machine, Schedule, Volume};
use crate::view::{Key, NodeName};

#[test]
fn h20_everything_that_stops_an_upgrade_is_told_at_once_with_object_and_remedy() {
    let mut world = World::new(3);
    world.change_node("node-1", |node| node.ready.ready = false);
    world.change_node("node-2", |node| node.unschedulable = true);
    world.change_node("node-3", |node| node.hci.maintenance = Some(Arc::from("running")));
    let volume = |robustness: &str, replicas| Volume {
        state: Arc::from("attached"),
        robustness: Arc::from(robustness),
        replicas,
        ..Volume::default()
    };
    world.take(
        "longhorn-system",
        "pvc-degraded",
        volume("degraded", 3),
        HciObject::Volume,
    );
    world.take("longhorn-system", "pvc-single", volume("healthy", 1), HciObject::Volume);
    let under_way = |snapshot| Backup {
        snapshot,
        under_way: true,
    };
    world.take("shop", "nightly", under_way(false), HciObject::Backup);
    world.take("shop", "before-change", under_way(true), HciObject::Backup);
    world.take("shop", "going-back", under_way(true), HciObject::Restore);
    world.take("shop", "from-backup", under_way(false), HciObject::Restore);
    world.start();
    world.settle();
    let (status, told) = world.condition("PreflightPassed");
    assert_eq!(status, "False");
    for wanted in [
        "node/node-1: is not Ready; help: kubectl describe node node-1",
        "node/node-2: is cordoned; help: kubectl uncordon node-2",
        "node/node-3: is in maintenance",
        "volume/longhorn-system/pvc-degraded: is degraded",
        "volume/longhorn-system/pvc-single: has one replica",
        "virtualmachinebackup/shop/nightly: a backup is under way",
        "virtualmachinebackup/shop/before-change: a snapshot is under way",
        "virtualmachinerestore/shop/going-back: the restore of a snapshot is under way",
        "virtualmachinerestore/shop/from-backup: the restore of a backup is under way",
    ] {
        assert!(told.contains(wanted), "{wanted} is not in\n{told}");
    }
    assert_eq!(world.condition("Completed").0, "", "it was not begun");
    let written = world
        .done
        .iter()
        .filter(|action| action.name() != "write-hci-upgrade")
        .count();
    assert_eq!(written, 0, "nothing was changed");
}

#[test]
fn an_upgrade_that_was_refused_can_be_aborted_and_looks_anew_when_it_is_resumed() {
    let mut world = World::new(3);
    world.change_node("node-2", |node| node.unschedulable = true);
    world.start();
    world.settle();
    assert_eq!(world.condition("PreflightPassed").0, "False");
    world.annotate("afloat.dev/abort", "true");
    world.settle();
    let (status, told) = world.condition("Completed");
    assert_eq!(
        (status.as_str(), told.contains("nothing was changed")),
        ("False", true),
        "{told}"
    );
    // Nothing stops it any more, but nobody wants it.
    world.change_node("node-2", |node| node.unschedulable = false);
    world.settle();
    assert_eq!(world.condition("Completed").0, "False");
    let written = world.done.iter().filter(|action| action.name() != "write-hci-upgrade");
    assert_eq!(written.count(), 0, "nothing was changed");
    world.annotate("afloat.dev/wish", "resume");
    world.settle();
    assert_eq!(world.condition("PreflightPassed").0, "True");
    assert_eq!(world.condition("Completed").0, "Unknown");
}

#[test]
fn h20_a_second_upgrade_is_not_begun_and_begins_when_the_first_is_out_of_the_way() {
    let mut world = World::new(3);
    let other = afloat_api::harvester::Upgrade {
        metadata: super::world::meta("harvester-system", "hvst-upgrade-first", 1),
        spec: afloat_api::harvester::UpgradeSpec::default(),
        status: None,
    };
    world.take("harvester-system", "hvst-upgrade-first", other, HciObject::Upgrade);
    world.start();
    world.settle();
    assert!(
        world
            .condition("PreflightPassed")
            .1
            .contains("upgrade/harvester-system/hvst-upgrade-first: is under way")
    );
    world.view.hci.upgrades.retain(|key, _| *key == World::key());
    world.settle();
    assert_eq!(world.condition("Completed").0, "Unknown");
}

#[test]
fn h20_charts_addons_machines_and_a_paused_cluster_are_looked_at() {
    let mut world = World::new(2);
    let paused = CapiCluster {
        phase: Arc::from("Provisioning"),
        paused: true,
    };
    world.take("fleet-local", "local", paused, HciObject::CapiCluster);
    let chart = Chart {
        not_ready: Some(Arc::from("bundle is Modified")),
        ..Chart::default()
    };
    world.take("fleet-local", "harvester", chart, HciObject::Chart);
    let addon = Addon {
        enabled: true,
        status: Arc::from("AddonDeploying"),
        ..Addon::default()
    };
    world.take(
        "cattle-monitoring-system",
        "rancher-monitoring",
        addon,
        HciObject::Addon,
    );
    let machine = Machine {
        phase: Arc::from("Failed"),
        node: Some(NodeName::from("node-9")),
    };
    world.take("fleet-local", "custom-node-2", machine, HciObject::Machine);
    world.start();
    world.settle();
    let told = world.condition("PreflightPassed").1;
    for wanted in [
        "cluster/fleet-local/local: is \"Provisioning\"",
        "cluster/fleet-local/local: is paused",
        "managedchart/fleet-local/harvester: is not ready: bundle is Modified",
        "addon/cattle-monitoring-system/rancher-monitoring: is being changed",
        "machine/fleet-local/custom-node-2: is \"Failed\"",
        "machine/fleet-local/custom-node-2: points to node node-9",
        "node/node-2: belongs to no Machine",
    ] {
        assert!(told.contains(wanted), "{wanted} is not in\n{told}");
    }
}

#[test]
fn h13_machines_that_cannot_migrate_are_a_warning_where_a_person_is_asked_and_an_error_where_not() {
    for (setting, begins) in [
        ("", false),
        (
            r#"{"imagePreloadOption":{"strategy":{"type":"skip"}},"nodeUpgradeOption":{"mode":"manual"}}"#,
            true,
        ),
        (
            r#"{"imagePreloadOption":{"strategy":{"type":"skip"}},"restoreVM":true}"#,
            true,
        ),
    ] {
        let mut world = World::new(3);
        world.setting(setting);
        world.add_vm("with-gpu", "node-1", |vmi| vmi.host_devices = true);
        world.start();
        world.settle();
        assert_eq!(world.condition("Completed").0 == "Unknown", begins, "{setting}");
        let told = world.condition("PreflightPassed").1;
        assert!(
            told.contains("virtualmachine/shop/with-gpu: cannot leave node-1: it uses a device of its host"),
            "{told}"
        );
    }
}

#[test]
fn the_documented_annotations_skip_checks_and_that_is_written_down() {
    let mut world = World::new(3);
    world.change_node("node-1", |node| node.unschedulable = true);
    world.start_with(&[("harvesterhci.io/skipWebhook", "True")]);
    world.settle();
    assert_eq!(world.condition("Completed").0, "Unknown");
    let kept = world.upgrade().metadata.annotations.unwrap();
    assert_eq!(kept["afloat.dev/skipped-checks"], "every check of the webhook");
}

#[test]
fn a_release_that_is_too_new_is_refused_before_a_node_is_touched() {
    let mut world = World::new(3);
    world.take("", "server-version", Arc::from("v1.5.0"), HciObject::Setting);
    world.start();
    world.settle();
    assert!(world.condition("PreflightPassed").1.contains("upgrade to v1.6.0 first"));
    // An image instead of a Version: the release itself says so, once it is served.
    let mut world = World::new(3);
    world.take("", "server-version", Arc::from("v1.5.0"), HciObject::Setting);
    world.start_with(&[("afloat.dev/repo-url", "http://mirror.example")]);
    world.change_upgrade(|upgrade| upgrade.spec.version.clear());
    world.answer(Ok(super::world::RELEASE));
    world.settle();
    assert_eq!(world.condition("Completed").0, "False");
    assert!(
        world.condition("Completed").1.contains("upgrade to v1.6.0 first"),
        "{:?}",
        world.condition("Completed")
    );
}

#[test]
fn rule_3_no_node_is_taken_down_or_two_minor_versions_up_whoever_skips_the_comparison_of_releases() {
    let ends = |kubernetes: &str, kubelets: [&str; 3]| {
        let mut world = World::new(3);
        for (number, kubelet) in (1..).zip(kubelets) {
            let name = super::world::name(number);
            world.change_node(&name, |node| node.kubelet_version = kubelet.parse().ok());
        }
        world.start_with(&[
            ("harvesterhci.io/skip-version-check", "true"),
            ("afloat.dev/repo-url", "http://mirror.example"),
        ]);
        let release = super::world::RELEASE.replace("v1.34.1+rke2r1", kubernetes);
        world.answer(Ok(&release));
        world.settle();
        world.condition("Completed")
    };
    let same = |version: &'static str| [version; 3];
    for (kubernetes, kubelets) in [
        ("v1.34.1+rke2r1", same("v1.33.5+rke2r1")),
        ("v1.34.1+rke2r1", ["v1.34.1+rke2r1", "v1.33.5+rke2r1", "v1.33.5+rke2r1"]),
        ("v1.34.1-rc2+rke2r1", same("v1.34.1+rke2r1")),
        ("v1.33.5+rke2r9", same("v1.33.5+rke2r10")),
    ] {
        let (status, told) = ends(kubernetes, kubelets);
        assert_eq!(status, "Unknown", "{kubernetes} {kubelets:?}: {told}");
    }
    for (kubernetes, kubelets, said) in [
        (
            "v1.35.0+rke2r1",
            same("v1.33.5+rke2r1"),
            "upgrade to a release with v1.34 first",
        ),
        (
            "v1.35.0+rke2r1",
            ["v1.34.1+rke2r1", "v1.33.5+rke2r1", "v1.34.1+rke2r1"],
            "too far from node node-2, which has v1.33.5+rke2r1",
        ),
        ("v1.33.4+rke2r1", same("v1.33.5+rke2r1"), "would be a downgrade"),
        ("v1.32.9+rke2r1", same("v1.33.5+rke2r1"), "would be a downgrade"),
    ] {
        let (status, told) = ends(kubernetes, kubelets);
        assert_eq!(status, "False", "{kubernetes} {kubelets:?}");
        assert!(told.contains(said), "{told}");
    }
}

/// The same from the action alone, before it leaves the core.
#[test]
fn rule_3_a_write_that_takes_rancher_too_far_or_back_stops_the_upgrade() {
    use crate::hci::action::{ClusterChange, HciAction};
    let mut world = World::new(3);
    world.change_node("node-1", |node| {
        node.kubelet_version = super::world::NEW_RKE2.parse().ok();
    });
    let broken = |world: &World, version: &str, asks: bool| {
        let cluster = world.view.hci.local_cluster().unwrap();
        let change = ClusterChange {
            kubernetes_version: Arc::from(version),
            provision_generation: 8,
            strategy: serde_json::Value::Null,
            strategy_was: serde_json::Value::Null,
            rolled_out_for: asks.then(|| crate::testing::uid("up")),
            before: None,
        };
        let cluster = cluster.target.clone();
        crate::hci::rules::check(&world.view, &HciAction::PatchCluster { cluster, change })
            .err()
            .map(|violation| violation.rule)
    };
    assert_eq!(broken(&world, "v1.34.1+rke2r1", true), None);
    assert_eq!(broken(&world, "v1.35.0+rke2r1", true), Some(3), "node-2 is two behind");
    assert_eq!(broken(&world, "v1.33.5+rke2r1", true), Some(3), "node-1 is ahead");
    assert_eq!(broken(&world, "v1.33.5+rke2r1", false), None, "it was there before");
    let cluster = world.view.hci.local_cluster().unwrap().clone();
    let mut asked = cluster.what.clone();
    asked.kubernetes_version = Arc::from(super::world::NEW_RKE2);
    let key = cluster.target.key.clone();
    world.take(&key.namespace, &key.name, asked, HciObject::Cluster);
    assert_eq!(
        broken(&world, "v1.33.5+rke2r1", false),
        Some(3),
        "node-1 was brought there"
    );
}

#[test]
fn h20_nobody_goes_anywhere_from_a_release_that_is_not_known() {
    for (value, said) in [
        ("", "setting/server-version: is not set: nobody can tell"),
        (
            "1.6.0",
            "setting/server-version: is \"1.6.0\", which is no release of Harvester",
        ),
    ] {
        let mut world = World::new(3);
        world.take("", "server-version", Arc::from(value), HciObject::Setting);
        world.start();
        world.settle();
        let (status, told) = world.condition("PreflightPassed");
        assert_eq!((status.as_str(), told.contains(said)), ("False", true), "{told}");
        assert!(
            told.contains("kubectl patch settings.harvesterhci.io server-version"),
            "{told}"
        );
        assert_eq!(world.condition("Completed").0, "", "it was not begun");
        // Also where nothing but the release itself says what it is, and where the setting is gone as a whole.
        world.view.hci.settings.clear();
        world.annotate("afloat.dev/repo-url", "http://mirror.example");
        world.change_upgrade(|upgrade| upgrade.spec.version.clear());
        world.settle();
        assert_eq!(world.condition("PreflightPassed").0, "False", "{value}");
        // A person who knows better is told what is lost.
        world.annotate("harvesterhci.io/skip-version-check", "true");
        world.settle();
        let (status, told) = world.condition("PreflightPassed");
        assert_eq!(
            (status.as_str(), told.contains("warning setting/server-version")),
            ("True", true),
            "{told}"
        );
    }
}

#[test]
fn h20_an_upgrade_whose_name_is_no_label_is_refused() {
    let mut world = World::new(3);
    let names = [("a".repeat(63), true), ("a".repeat(64), false)];
    for (name, good) in names {
        world.start();
        let mut upgrade = world.upgrade();
        upgrade.metadata.name = Some(name.clone());
        let key = Key::new("harvester-system", &name);
        world.view.hci.upgrades.clear();
        let found = findings(&world.view, &key, &upgrade);
        let long = found.iter().find(|finding| finding.message.contains("63 characters"));
        assert_eq!(long.is_none(), good, "{found:?}");
        if let Some(long) = long {
            assert!(long.severity == Severity::Error && long.remedy.is_some(), "{long:?}");
        }
    }
}

#[test]
fn h20_backups_by_the_clock_stop_an_upgrade_until_they_are_suspended() {
    let mut world = World::new(3);
    world.take("shop", "nightly", Schedule { suspended: false }, HciObject::Schedule);
    world.take("shop", "weekly", Schedule { suspended: true }, HciObject::Schedule);
    world.start();
    world.settle();
    let (status, told) = world.condition("PreflightPassed");
    assert_eq!(status, "False");
    assert!(
        told.contains("error schedulevmbackup/shop/nightly: makes backups by the clock"),
        "{told}"
    );
    assert!(
        told.contains("kubectl -n shop patch schedulevmbackups nightly"),
        "{told}"
    );
    assert!(!told.contains("weekly"), "{told}");
    world.take("shop", "nightly", Schedule { suspended: true }, HciObject::Schedule);
    world.settle();
    assert_eq!(world.condition("PreflightPassed").0, "True", "it begins by itself");
}

#[test]
fn h13_h20_a_volume_that_is_plugged_in_and_not_written_down_is_told() {
    let manual = r#"{"imagePreloadOption":{"strategy":{"type":"skip"}},"nodeUpgradeOption":{"mode":"manual"}}"#;
    for (nodes, setting, written_down, severity) in [
        (3, "", false, Some("error")),
        (3, manual, false, Some("warning")),
        (1, "", false, Some("warning")),
        (3, "", true, None),
    ] {
        let mut world = World::new(nodes);
        world.setting(setting);
        world.add_vm("web", "node-1", |vmi| {
            vmi.plugged = vec![Arc::from("data"), Arc::from("logs")];
        });
        let mut vm = world.view.hci.vms[&Key::new("shop", "web")].what.clone();
        vm.volumes = vec![Arc::from("root"), Arc::from("logs")];
        if written_down {
            vm.volumes.push(Arc::from("data"));
        }
        world.take("shop", "web", vm, HciObject::Vm);
        // Nobody's: an instance without a machine is not stopped and started.
        world.take(
            "shop",
            "loose",
            world.view.hci.vmis[&Key::new("shop", "web")].what.clone(),
            HciObject::Vmi,
        );
        world.start();
        world.settle();
        let told = world.condition("PreflightPassed").1;
        let said = severity.map(|severity| format!("{severity} virtualmachine/shop/web: volume data was plugged in"));
        assert_eq!(told.contains("plugged in"), said.is_some(), "{told}");
        assert!(said.is_none_or(|said| told.contains(&said)), "{told}");
        assert!(!told.contains("logs") && !told.contains("shop/loose: volume"), "{told}");
    }
}

#[test]
fn h20_an_annotation_about_a_check_that_there_is_not_says_so() {
    for (key, value) in [
        ("harvesterhci.io/skipGarbageCollectionThresholdCheck", "true"),
        ("harvesterhci.io/minCertsExpirationInDay", "14"),
    ] {
        let mut world = World::new(3);
        world.start_with(&[(key, value)]);
        world.settle();
        let (status, told) = world.condition("PreflightPassed");
        assert_eq!(status, "True", "it stops nobody: {told}");
        assert!(
            told.contains("warning upgrade/") && told.contains(key) && told.contains("has no such check"),
            "{told}"
        );
        let kept = world.upgrade().metadata.annotations.unwrap();
        assert!(
            !kept.contains_key("afloat.dev/skipped-checks"),
            "{key}: nothing was skipped"
        );
    }
}

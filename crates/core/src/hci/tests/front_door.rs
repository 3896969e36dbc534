//! Bad input at the front door: each gets a refusal that names the object and says what to do, and changes nothing.

use afloat_api::harvester::{
    NodeUpgradeStatus, Upgrade, UpgradeLog, UpgradeLogSpec, UpgradeSpec, Version, VersionSpec,
};

use super::world::{NAME, World, meta};
use crate::hci::view::{Backup, CapiCluster, HciObject, Volume};
use crate::hci::{Request, Verdict, admit};

const SKIP: &str = r#""imagePreloadOption":{"strategy":{"type":"skip"}}"#;

fn upgrade(pairs: &[(&str, &str)]) -> Upgrade {
    let mut upgrade = Upgrade {
        metadata: meta("harvester-system", NAME, 1),
        spec: UpgradeSpec {
            version: "v1.7.0".to_owned(),
            ..UpgradeSpec::default()
        },
        status: None,
    };
    let all = pairs
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    upgrade.metadata.annotations = Some(all.collect());
    upgrade
}

/// Refused, with these words, with help, and with the object.
fn refused(verdict: &Verdict, said: &str, what: &str) {
    assert!(!verdict.allowed(), "{what} was let in");
    let message = verdict.message();
    assert!(message.contains(said), "{what}: {said:?} is not in {message:?}");
    for wrong in &verdict.wrong {
        assert!(
            !wrong.help.is_empty() && wrong.object.contains('/'),
            "{what}: {wrong:?}"
        );
    }
}

/// A value of the setting, and what is said about it; `SKIP` stands for what has to be there.
const WRONG_SETTINGS: &[(&str, &str)] = &[
    ("{", "not valid JSON"),
    ("[]", "not valid JSON"),
    ("7", "not valid JSON"),
    ("{}", "type is missing"),
    (r#"{"imagePreloadOption":{}}"#, "type is missing"),
    (r#"{"imagePreloadOption":{"strategy":{}}}"#, "type is missing"),
    (r#"{"imagePreloadOption":{"strategy":{"type":""}}}"#, "type is missing"),
    (
        r#"{"imagePreloadOption":{"strategy":{"type":"fast"}}}"#,
        "skip, sequential or parallel",
    ),
    (
        r#"{"imagePreloadOption":{"strategy":{"type":"Skip"}}}"#,
        "skip, sequential or parallel",
    ),
    (r#"{"imagePreloadOption":{"strategy":{"type":7}}}"#, "not valid JSON"),
    (
        r#"{"imagePreloadOption":{"strategy":{"type":"parallel","concurrency":-1}}}"#,
        "concurrency is -1",
    ),
    (
        r#"{"imagePreloadOption":{"strategy":{"type":"parallel","concurrency":"two"}}}"#,
        "not valid JSON",
    ),
    (
        r#"{"imagePreloadOption":{"strategy":{"type":"parallel","concurrency":1.5}}}"#,
        "not valid JSON",
    ),
    (
        r#"{SKIP,"nodeUpgradeOption":{"strategy":{"mode":"slow"}}}"#,
        "auto or manual",
    ),
    (
        r#"{SKIP,"nodeUpgradeOption":{"strategy":{"mode":"Manual"}}}"#,
        "auto or manual",
    ),
    (
        r#"{SKIP,"nodeUpgradeOption":{"strategy":{"mode":true}}}"#,
        "not valid JSON",
    ),
    (r#"{SKIP,"nodeUpgradeOption":{"mode":"slow"}}"#, "auto or manual"),
    (
        r#"{SKIP,"nodeUpgradeOption":{"strategy":{"mode":"manual","pauseNodes":["node-9"]}}}"#,
        "\"node-9\"",
    ),
    (
        r#"{SKIP,"nodeUpgradeOption":{"strategy":{"mode":"auto","pauseNodes":["node-9"]}}}"#,
        "\"node-9\"",
    ),
    (
        r#"{SKIP,"nodeUpgradeOption":{"mode":"manual","pauseNodes":["node-9"]}}"#,
        "\"node-9\"",
    ),
    (
        r#"{SKIP,"nodeUpgradeOption":{"strategy":{"mode":"manual","pauseNodes":["node-1","node-1"]}}}"#,
        "twice",
    ),
    (
        r#"{SKIP,"nodeUpgradeOption":{"strategy":{"mode":"manual","pauseNodes":[""]}}}"#,
        "no such node",
    ),
    (
        r#"{SKIP,"nodeUpgradeOption":{"strategy":{"mode":"manual","pauseNodes":"node-1"}}}"#,
        "not valid JSON",
    ),
    (r#"{SKIP,"restoreVM":"yes"}"#, "not valid JSON"),
    (r#"{SKIP,"logReadyTimeout":"0"}"#, "\"1\" to \"20\""),
    (r#"{SKIP,"logReadyTimeout":"21"}"#, "\"1\" to \"20\""),
    (r#"{SKIP,"logReadyTimeout":"five"}"#, "\"1\" to \"20\""),
    (r#"{SKIP,"logReadyTimeout":5}"#, "not valid JSON"),
];

#[test]
fn h1_h3_wrong_settings_are_refused() {
    let world = World::new(3);
    for (value, said) in WRONG_SETTINGS.iter().copied() {
        let value = value.replace("SKIP", SKIP);
        let name = "upgrade-config";
        refused(
            &admit(&world.view, &Request::WriteSetting { name, value: &value }),
            said,
            &value,
        );
    }
    for (value, warned) in [
        (String::new(), 0),
        (format!("{{{SKIP}}}"), 0),
        (
            format!(r#"{{{SKIP},"nodeUpgradeOption":{{"mode":"manual","pauseNodes":["node-2"]}}}}"#),
            0,
        ),
        (format!(r#"{{{SKIP},"restorVM":true}}"#), 1),
    ] {
        let name = "upgrade-config";
        let verdict = admit(&world.view, &Request::WriteSetting { name, value: &value });
        assert!(verdict.allowed(), "{value}: {}", verdict.message());
        assert_eq!(verdict.warnings.len(), warned, "{value}: {:?}", verdict.warnings);
    }
}

#[test]
fn h20_a_release_that_nobody_can_compare_is_told_when_it_is_written_down() {
    let world = World::new(3);
    let name = "server-version";
    for (value, warned) in [
        ("v1.6.0", 0),
        ("v1.6.0-rc1", 0),
        ("v1.6-head", 0),
        ("", 0),
        ("1.6.0", 1),
        ("v1.6", 1),
        ("newest", 1),
    ] {
        let verdict = admit(&world.view, &Request::WriteSetting { name, value });
        assert!(verdict.allowed(), "{value}: Harvester writes it when it starts");
        assert_eq!(verdict.warnings.len(), warned, "{value}: {:?}", verdict.warnings);
    }
}

/// An annotation of an Upgrade, its value, and what is said about it.
const WRONG_ANNOTATIONS: &[(&str, &str, &str)] = &[
    ("harvesterhci.io/skipWebhook", "perhaps", "true or false"),
    ("harvesterhci.io/skip-version-check", "", "true or false"),
    ("harvesterhci.io/skipSingleReplicaDetachedVol", "no", "true or false"),
    (
        "harvesterhci.io/skipGarbageCollectionThresholdCheck",
        "ja",
        "true or false",
    ),
    ("harvesterhci.io/allow-node-join", "2", "true or false"),
    ("harvesterhci.io/minCertsExpirationInDay", "0", "from 1 up"),
    ("harvesterhci.io/minCertsExpirationInDay", "-3", "from 1 up"),
    ("harvesterhci.io/minCertsExpirationInDay", "soon", "from 1 up"),
    ("harvesterhci.io/node-upgrade-pause-map", "", "no JSON map"),
    ("harvesterhci.io/node-upgrade-pause-map", "[]", "no JSON map"),
    (
        "harvesterhci.io/node-upgrade-pause-map",
        r#"{"node-1":true}"#,
        "no JSON map",
    ),
    (
        "harvesterhci.io/node-upgrade-pause-map",
        r#"{"node-1":"Pause"}"#,
        "no JSON map",
    ),
    (
        "harvesterhci.io/node-upgrade-pause-map",
        r#"{"node-1":"wait"}"#,
        "no JSON map",
    ),
    (
        "harvesterhci.io/node-upgrade-pause-map",
        r#"{"node-9":"pause"}"#,
        "no such node",
    ),
    ("afloat.dev/wait-minutes", "0", "from 1 to 10080"),
    ("afloat.dev/wait-minutes", "10081", "from 1 to 10080"),
    ("afloat.dev/wait-minutes", "4h", "from 1 to 10080"),
    ("afloat.dev/drain-minutes", "-1", "from 1 to 10080"),
    ("afloat.dev/drain-minutes", "", "from 1 to 10080"),
    ("afloat.dev/migrate-back", "yes", "true or false"),
    ("afloat.dev/repo-url", "ftp://example.com", "http://"),
    ("afloat.dev/repo-url", "http://", "http://"),
    ("afloat.dev/repo-url", "http://user:secret@example.com", "http://"),
    ("afloat.dev/repo-url", "http://example.com/?a=b", "http://"),
];

#[test]
fn wrong_specs_and_annotations_of_an_upgrade_are_refused() {
    let world = World::new(3);
    let specs: [(&str, &str, &str); 8] = [
        ("", "", "neither a version nor an image"),
        ("v9.9.9", "", "no such Version"),
        ("", "iso", "namespace/name"),
        ("", "/iso", "namespace/name"),
        ("", "a/", "namespace/name"),
        ("", "a/b/c", "namespace/name"),
        ("", "harvester-system/b", "no such VirtualMachineImage"),
        ("", "a/b", "upload the image into the namespace harvester-system"),
    ];
    for (version, image, said) in specs {
        let mut wrong = upgrade(&[]);
        wrong.spec.version = version.to_owned();
        wrong.spec.image = image.to_owned();
        refused(
            &admit(&world.view, &Request::CreateUpgrade(&wrong)),
            said,
            &format!("{version} {image}"),
        );
    }
    let mut elsewhere = upgrade(&[]);
    elsewhere.metadata.namespace = Some("default".to_owned());
    refused(
        &admit(&world.view, &Request::CreateUpgrade(&elsewhere)),
        "harvester-system only",
        "a namespace",
    );
    for (key, value, said) in WRONG_ANNOTATIONS.iter().copied() {
        let wrong = upgrade(&[(key, value)]);
        refused(
            &admit(&world.view, &Request::CreateUpgrade(&wrong)),
            said,
            &format!("{key}={value}"),
        );
        // The same words on an object that is there already.
        let (old, new) = (upgrade(&[]), upgrade(&[(key, value)]));
        refused(
            &admit(&world.view, &Request::UpdateUpgrade { old: &old, new: &new }),
            said,
            key,
        );
        // Unchanged they block nothing, the removal of a finalizer least of all.
        let same = Request::UpdateUpgrade { old: &new, new: &new };
        assert!(admit(&world.view, &same).allowed(), "{key}={value}");
    }
    assert!(admit(&world.view, &Request::CreateUpgrade(&upgrade(&[]))).allowed());
}

#[test]
fn wrong_states_of_the_cluster_refuse_a_new_upgrade() {
    type Break = fn(&mut World);
    let broken: [(Break, &str); 9] = [
        (
            |world| world.change_node("node-1", |node| node.ready.ready = false),
            "node/node-1: is not Ready",
        ),
        (
            |world| world.change_node("node-1", |node| node.unschedulable = true),
            "node/node-1: is cordoned",
        ),
        (
            |world| world.change_node("node-1", |node| node.hci.maintenance = Some("on".into())),
            "in maintenance",
        ),
        (|world| world.start(), "is under way"),
        (
            |world| {
                let backup = Backup {
                    snapshot: false,
                    under_way: true,
                };
                world.take("shop", "nightly", backup, HciObject::Backup);
            },
            "a backup is under way",
        ),
        (
            |world| {
                let paused = CapiCluster {
                    phase: "Provisioned".into(),
                    paused: true,
                };
                world.take("fleet-local", "local", paused, HciObject::CapiCluster);
            },
            "is paused",
        ),
        (
            |world| {
                let volume = Volume {
                    robustness: "degraded".into(),
                    replicas: 3,
                    ..Volume::default()
                };
                world.take("longhorn-system", "pvc-1", volume, HciObject::Volume);
            },
            "is degraded",
        ),
        (
            |world| world.add_vm("gpu", "node-1", |vmi| vmi.host_devices = true),
            "cannot leave node-1",
        ),
        (|world| world.setting("{}"), "setting/upgrade-config"),
    ];
    for (number, (make, said)) in broken.into_iter().enumerate() {
        let mut world = World::new(3);
        make(&mut world);
        let mut new = upgrade(&[]);
        new.metadata.name = Some("hvst-upgrade-second".to_owned());
        refused(
            &admit(&world.view, &Request::CreateUpgrade(&new)),
            said,
            &format!("case {number}"),
        );
    }
}

#[test]
fn an_upgrade_under_way_keeps_its_spec_and_is_not_deleted_while_a_node_is_drained() {
    let mut world = World::new(3);
    world.start();
    world.reach_nodes();
    let begun = world.upgrade();
    let mut other = begun.clone();
    other.spec.version = "v1.8.0".to_owned();
    refused(
        &admit(
            &world.view,
            &Request::UpdateUpgrade {
                old: &begun,
                new: &other,
            },
        ),
        "spec cannot change",
        "another version",
    );
    assert!(
        admit(&world.view, &Request::DeleteUpgrade(&begun)).allowed(),
        "no node was begun"
    );
    for (state, allowed) in [
        ("Node-upgrade paused", true),
        ("Pre-draining", true),
        ("Pre-drained", false),
        ("Post-draining", false),
        ("Waiting Reboot", false),
        ("Succeeded", true),
    ] {
        let mut upgrade = begun.clone();
        let status = NodeUpgradeStatus {
            state: state.to_owned(),
            ..NodeUpgradeStatus::default()
        };
        upgrade
            .status
            .as_mut()
            .unwrap()
            .node_statuses
            .insert("node-1".to_owned(), status);
        let verdict = admit(&world.view, &Request::DeleteUpgrade(&upgrade));
        assert_eq!(verdict.allowed(), allowed, "{state}");
        if !allowed {
            refused(&verdict, "afloat abort", state);
            let all = upgrade.metadata.annotations.get_or_insert_default();
            all.insert("harvesterhci.io/skipWebhook".to_owned(), "true".to_owned());
            assert!(
                admit(&world.view, &Request::DeleteUpgrade(&upgrade)).allowed(),
                "{state}, skipped"
            );
        }
    }
    refused(
        &admit(&world.view, &Request::CreateNode("node-4")),
        "upgrade/harvester-system",
        "a new node",
    );
    assert!(
        admit(&world.view, &Request::CreateNode("node-1")).allowed(),
        "a kubelet that registers again"
    );
    world.annotate("harvesterhci.io/allow-node-join", "true");
    assert!(admit(&world.view, &Request::CreateNode("node-4")).allowed());
}

#[test]
fn wrong_versions_are_refused() {
    let world = World::new(1);
    let long = "a".repeat(128);
    let cases = [
        ("", "", "", "isoURL"),
        ("ftp://example.com/a.iso", "", "", "isoURL"),
        ("https://", "", "", "isoURL"),
        ("https://example.com/a b.iso", "", "", "isoURL"),
        ("https://example.com/a.iso", "abc", "", "SHA-512"),
        ("https://example.com/a.iso", &long[1..], "", "SHA-512"),
        ("https://example.com/a.iso", &long.to_uppercase(), "", "SHA-512"),
        ("https://example.com/a.iso", "", "1.6.0", "minUpgradableVersion"),
        ("https://example.com/a.iso", "", "v1.6", "minUpgradableVersion"),
    ];
    let version = |url: &str, checksum: &str, min: &str| Version {
        metadata: meta("harvester-system", "v1.7.0", 1),
        spec: VersionSpec {
            iso_url: url.to_owned(),
            iso_checksum: checksum.to_owned(),
            min_upgradable_version: min.to_owned(),
            ..VersionSpec::default()
        },
    };
    for (url, checksum, min, said) in cases {
        refused(
            &admit(&world.view, &Request::WriteVersion(&version(url, checksum, min))),
            said,
            url,
        );
    }
    let good = version("https://example.com/a.iso", &long, "v1.6.0");
    assert!(admit(&world.view, &Request::WriteVersion(&good)).allowed());
}

#[test]
fn h41_logs_are_collected_once_for_an_upgrade_that_begins_and_asks_for_them() {
    let log = |namespace: &str, name: &str, upgrade: &str| UpgradeLog {
        metadata: meta(namespace, name, 1),
        spec: UpgradeLogSpec {
            upgrade_name: upgrade.to_owned(),
        },
        status: None,
    };
    let own = log("harvester-system", &format!("{NAME}-upgradelog"), NAME);
    let mut world = World::new(3);
    world.start();
    world.change_upgrade(|upgrade| upgrade.spec.log_enabled = true);
    assert!(
        admit(&world.view, &Request::CreateUpgradeLog(&own)).allowed(),
        "it begins"
    );
    let unknown = log("harvester-system", "mine", "hvst-upgrade-other");
    refused(
        &admit(&world.view, &Request::CreateUpgradeLog(&unknown)),
        "no such Upgrade",
        "an unknown upgrade",
    );
    let elsewhere = log("default", "mine", NAME);
    refused(
        &admit(&world.view, &Request::CreateUpgradeLog(&elsewhere)),
        "harvester-system only",
        "a namespace",
    );
    world.put_log(&format!("{NAME}-upgradelog"), &[]);
    let second = log("harvester-system", "mine", NAME);
    refused(
        &admit(&world.view, &Request::CreateUpgradeLog(&second)),
        "already",
        "a second one",
    );
    world.change_upgrade(|upgrade| upgrade.spec.log_enabled = false);
    refused(
        &admit(&world.view, &Request::CreateUpgradeLog(&own)),
        "wants no logs",
        "logEnabled is false",
    );
    let mut world = World::new(3);
    world.start();
    world.change_upgrade(|upgrade| upgrade.spec.log_enabled = true);
    world.reach_nodes();
    refused(
        &admit(&world.view, &Request::CreateUpgradeLog(&own)),
        "beyond its logs",
        "too late",
    );
}

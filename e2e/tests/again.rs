//! Upgrade after upgrade of the same machines: a minor, then a patch release; machines that join later; and newer parts of the version that is
//! there.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by failing")]

use std::time::Duration;

use afloat_e2e::Site;
use afloat_lab::{Release, Spec};
use serde_json::json;

const FROM: &str = "v1.35.4";
const MINOR: &str = "v1.36.1";
const CONTROL_PLANES: [&str; 3] = ["cp-1", "cp-2", "cp-3"];
const PATCH: &str = "v1.36.3";
const LONG: Duration = Duration::from_mins(15);
const SETTLED: Duration = Duration::from_mins(4);

fn upgrade(site: &Site, name: &str) {
    site.apply_upgrade(name, json!({})).unwrap();
    let followed = site.upgrade(&[], LONG, None, |_| Ok(())).unwrap();
    println!(
        "{}\nexit code {:?} after {:?}\n{}",
        followed.said,
        followed.exit_code,
        followed.took,
        site.account_to_table(&followed).unwrap()
    );
    assert_eq!(followed.exit_code, Some(0), "{}", site.diagnosis());
    site.settled(SETTLED).unwrap();
    assert_eq!(site.left_behind(site.to()).unwrap(), Vec::<String>::new());
}

#[test]
fn p7_a_patch_release_follows_the_minor_and_machines_that_join_later_are_at_the_current_version() {
    let spec = Spec {
        workers: 1,
        // A workload that only this worker could run would hold the upgrade.
        workload: false,
        ..Spec::single("e2e-again")
    };
    let mut site = Site::up(&spec, MINOR).unwrap();
    site.kubectl(&["create", "configmap", "kept", "--from-literal=since=before"])
        .unwrap();
    upgrade(&site, "minor");
    site.publish_next(PATCH).unwrap();
    upgrade(&site, "patch");
    let server = site.object(&["version"]).unwrap();
    assert_eq!(server["serverVersion"]["gitVersion"], PATCH);
    let kept = site.object(&["get", "configmap", "kept"]).unwrap();
    assert_eq!(kept["data"]["since"], "before");

    // One is made from today's image: what the cluster tells it when it joins is of today, and nothing has to be done.
    site.lab.join_worker(PATCH).unwrap();
    assert_eq!(site.version("w-2").unwrap(), PATCH);
    let followed = site.upgrade(&[], LONG, None, |_| Ok(())).unwrap();
    println!("{}", followed.said);
    assert_eq!(followed.exit_code, Some(0), "{}", site.diagnosis());
    assert_eq!(site.left_behind(PATCH).unwrap(), Vec::<String>::new());

    // Another is made from the image of long ago: the same upgrade takes it along, and only it.
    site.lab.join_worker(FROM).unwrap();
    assert_eq!(site.version("w-3").unwrap(), FROM);
    upgrade(&site, "late");
    assert_eq!(site.version("w-3").unwrap(), PATCH);
}

#[test]
fn p46_a_bundle_of_the_version_that_is_there_brings_newer_parts() {
    let spec = Spec {
        name: "e2e-parts".to_owned(),
        workers: 0,
        ..Spec::default()
    };
    let site = Site::up(&spec, FROM).unwrap();
    let bundle = Release::of(FROM).unwrap().with_parts_of(&Release::of(PATCH).unwrap());
    let image = site.publish_as(bundle, "v1.35.4-2").unwrap();
    let runtimes = || {
        CONTROL_PLANES.map(|name| {
            let node = site.object(&["get", "node", name]).unwrap();
            let runtime = node["status"]["nodeInfo"]["containerRuntimeVersion"].as_str();
            runtime.unwrap().to_owned()
        })
    };
    let kubelets = || CONTROL_PLANES.map(|name| site.digest(name, "/usr/bin/kubelet").unwrap());
    let (before, kept) = (runtimes(), kubelets());
    let tag = |part: &str| {
        let tags = bundle.tags();
        tags.into_iter().find(|(name, _)| *name == part).unwrap().1
    };

    let further = [
        "--bundle",
        &image,
        "--etcd-version",
        tag("etcd"),
        "--core-dns-version",
        tag("coredns"),
        "--delete-emptydir-data",
        "--evict-unmanaged",
    ];
    let followed = site.upgrade(&further, LONG, None, |_| Ok(())).unwrap();
    println!(
        "{}\nexit code {:?} after {:?}\n{}",
        followed.said,
        followed.exit_code,
        followed.took,
        site.account_to_table(&followed).unwrap()
    );
    assert_eq!(followed.exit_code, Some(0), "{}", site.diagnosis());
    site.settled(SETTLED).unwrap();
    assert_eq!(site.left_behind(FROM).unwrap(), Vec::<String>::new());
    assert_eq!(site.parts_not_at(&bundle).unwrap(), Vec::<String>::new());
    let wanted = bundle.containerd_version().unwrap();
    for (before, now) in before.iter().zip(runtimes()) {
        assert!(
            now.ends_with(wanted.trim_start_matches('v')) && now != *before,
            "{before}, {now}"
        );
    }
    assert_eq!(kubelets(), kept);
}

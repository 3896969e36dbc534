//! What goes wrong on real machines: a registry that is away, a full disk, a damaged file, a kubeadm that fails, a kubelet and an API server
//! that never come up, an etcd that starts on its data no more. Each ends at the target, or with the machine as it was and words that say why.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by failing")]

use std::time::Duration;

use afloat_e2e::{Followed, Site, States};
use afloat_lab::{Counts, Running, Spec};
use serde_json::json;

const TO: &str = "v1.36.3";
const FROM: &str = "v1.35.4";
const LONG: Duration = Duration::from_mins(15);
const SETTLED: Duration = Duration::from_mins(4);

fn single(name: &str) -> Site {
    Site::up(&Spec::single(name), TO).unwrap()
}

fn with_a_worker(name: &str) -> Site {
    // A workload that only this worker could run would hold the upgrade: there is no other place for it.
    let spec = Spec {
        workers: 1,
        workload: false,
        ..Spec::single(name)
    };
    Site::up(&spec, TO).unwrap()
}

fn nothing() -> Vec<String> {
    Vec::new()
}

fn run(site: &Site, machine: &str, script: &str) -> String {
    site.lab.machine(machine).unwrap().exec(["sh", "-c", script]).unwrap()
}

fn is(states: &States, node: &str, state: &str) -> bool {
    states.get(node).is_some_and(|now| now == state)
}

fn told(followed: &Followed) -> Option<i32> {
    println!(
        "{}\nexit code {:?} after {:?}",
        followed.said, followed.exit_code, followed.took
    );
    followed.exit_code
}

/// That nothing failed says something only of those who asked.
fn assert_none_lost(counts: &Counts) {
    let places = ["balancer harsh", "pod on cp-1", "pod on cp-2", "pod on cp-3"];
    assert_eq!(counts.failed(), 0, "requests were lost: {counts}");
    assert_eq!(counts.silent(&places), nothing(), "{counts}");
}

fn upgrade(site: &Site, name: &str) -> Option<i32> {
    site.apply_upgrade(name, json!({"undoAfterSeconds": 120})).unwrap();
    told(&site.upgrade(&[], LONG, None, |_| Ok(())).unwrap())
}

/// An upgrade that goes on from where everything was brought, and those who count from before its first cordon on.
fn probers_before(site: &Site, name: &str) -> Running {
    site.stage(name, json!({"undoAfterSeconds": 120}), LONG).unwrap();
    let probers = site.lab.probers().sparing().start().unwrap();
    site.let_go(name).unwrap();
    probers
}

/// What a person sees who looks.
fn look(site: &Site) -> String {
    let seen = ["status", "explain"]
        .map(|word| site.afloat(&[word]).unwrap())
        .join("\n");
    println!("{seen}");
    seen
}

/// What was in the way is gone: the same command brings the site to the target.
fn ends_at_the_target(site: &Site) {
    assert_eq!(upgrade(site, "again"), Some(0), "{}", site.diagnosis());
    site.settled(SETTLED).unwrap();
    assert_eq!(site.left_behind(TO).unwrap(), nothing());
}

#[test]
fn p30_a_registry_that_is_away_is_named_and_waited_for() {
    let site = single("e2e-registry");
    // The operator runs from the bundle's image: without it the machine has to ask.
    let forget = "ctr -n k8s.io images ls -q | grep afloat/bundle | xargs ctr -n k8s.io images rm";
    run(&site, "cp-1", forget);
    site.lab.set_registry_reachable(false).unwrap();
    site.apply_upgrade("away", json!({})).unwrap();
    let mut seen = None;
    let followed = site.upgrade(&[], LONG, None, |_| {
        let explained = site.afloat(&["explain"]).unwrap_or_default();
        if seen.is_none() && explained.contains("cannot be pulled") {
            seen = Some(look(&site));
            site.lab.set_registry_reachable(true)?;
        }
        Ok(())
    });
    let exit_code = told(&followed.unwrap());
    let seen = seen.unwrap();
    assert!(seen.contains("cp-1") && seen.contains(&site.lab.registry()), "{seen}");
    assert_eq!(exit_code, Some(0), "{}", site.diagnosis());
    site.settled(SETTLED).unwrap();
    assert_eq!(site.left_behind(TO).unwrap(), nothing());
}

#[test]
fn a_disk_that_is_full_while_files_are_brought_changes_nothing() {
    let site = single("e2e-disk");
    let before = site.fingerprint("cp-1").unwrap();
    // Room for a few of the files.
    let small = "install -d -m 700 /var/lib/afloat && mkdir /var/lib/afloat/bundle && mount -t tmpfs -o size=200m small /var/lib/afloat/bundle";
    run(&site, "cp-1", small);

    assert_eq!(upgrade(&site, "full"), Some(1), "{}", site.diagnosis());
    let seen = look(&site);
    assert!(
        seen.contains("/var/lib/afloat/bundle/") && seen.contains("No space left on device"),
        "{seen}"
    );
    assert_eq!(site.fingerprint("cp-1").unwrap(), before);
    assert_eq!(site.left_behind(FROM).unwrap(), nothing());

    run(&site, "cp-1", "umount /var/lib/afloat/bundle");
    ends_at_the_target(&site);
}

#[test]
fn k2_a_kubelet_that_was_damaged_after_it_was_brought_is_refused_and_the_worker_put_back() {
    let site = with_a_worker("e2e-damaged");
    let before = site.fingerprint("w-1").unwrap();
    site.apply_upgrade("damaged", json!({})).unwrap();
    let mut damaged = false;
    let followed = site.upgrade(&[], LONG, None, |states| {
        if !damaged && is(states, "w-1", "Staged") {
            damaged = true;
            run(&site, "w-1", "echo x >> $(find /var/lib/afloat/bundle -name kubelet)");
        }
        Ok(())
    });
    let exit_code = told(&followed.unwrap());
    let seen = look(&site);
    assert!(damaged && exit_code == Some(1), "{}", site.diagnosis());
    assert!(
        seen.contains("w-1") && seen.contains("not what the bundle promised"),
        "{seen}"
    );
    assert_eq!(site.states().unwrap()["w-1"], "RolledBack");
    assert_eq!(site.fingerprint("w-1").unwrap(), before);
    assert_eq!(site.left_behind(TO).unwrap(), [format!("w-1 is at {FROM}")]);

    ends_at_the_target(&site);
}

/// The images that the cluster's add-ons are told to run.
fn add_ons(site: &Site) -> String {
    let image = "jsonpath={.spec.template.spec.containers[0].image}";
    let of = |object: &str| {
        site.kubectl(&["-n", "kube-system", "get", object, "-o", image])
            .unwrap()
    };
    format!("{} {}", of("daemonset/kube-proxy"), of("deployment/coredns"))
}

#[test]
fn k2_a_single_node_that_is_undone_by_hand_takes_its_add_ons_back_with_it() {
    let site = single("e2e-undone");
    let (before, images) = (site.fingerprint("cp-1").unwrap(), add_ons(&site));
    let config = ["-n", "kube-system", "get", "configmap", "kube-proxy", "kubelet-config"];
    let data = [
        &config[..],
        &["-o", "jsonpath={.items[*].data}{.items[*].metadata.annotations}"],
    ]
    .concat();
    let configured = site.kubectl(&data).unwrap();
    assert_eq!(upgrade(&site, "forwards"), Some(0), "{}", site.diagnosis());
    site.settled(SETTLED).unwrap();
    assert!(add_ons(&site).contains(TO), "{}", add_ons(&site));

    let undo = ["/var/lib/afloat/bin/afloat", "node", "rollback"];
    let said = site.lab.machine("cp-1").unwrap().exec_within(undo, LONG).unwrap();
    println!("{said}");
    site.settled(SETTLED).unwrap();
    assert_eq!(add_ons(&site), images);
    assert_eq!(site.kubectl(&data).unwrap(), configured);
    assert_eq!(site.fingerprint("cp-1").unwrap(), before);
    assert_eq!(site.version("cp-1").unwrap(), FROM);
}

#[test]
fn k2_a_worker_whose_new_kubelet_does_not_start_puts_itself_back() {
    let site = with_a_worker("e2e-kubelet");
    site.break_kubelet("w-1").unwrap();
    let before = site.fingerprint("w-1").unwrap();

    assert_eq!(upgrade(&site, "broken"), Some(1), "{}", site.diagnosis());
    let seen = look(&site);
    assert!(seen.contains("w-1") && seen.contains("kubelet"), "{seen}");
    site.settled(SETTLED).unwrap();
    assert_eq!(site.states().unwrap()["w-1"], "RolledBack");
    assert_eq!(site.fingerprint("w-1").unwrap(), before);
    assert_eq!(site.left_behind(TO).unwrap(), [format!("w-1 is at {FROM}")]);

    site.mend_kubelet("w-1").unwrap();
    ends_at_the_target(&site);
}

#[test]
fn k2_a_single_node_whose_new_api_server_never_comes_up_puts_itself_back() {
    let site = single("e2e-dead-man");
    site.kubectl(&["create", "configmap", "kept", "--from-literal=since=before"])
        .unwrap();
    let before = site.fingerprint("cp-1").unwrap();
    site.break_api_server("cp-1").unwrap();

    assert_eq!(upgrade(&site, "broken"), Some(1), "{}", site.diagnosis());
    let seen = look(&site);
    assert!(
        seen.contains("did not come back within 120 seconds") && seen.contains("API server"),
        "{seen}"
    );
    site.settled(SETTLED).unwrap();
    assert_eq!(site.states().unwrap()["cp-1"], "RolledBack");
    assert_eq!(site.fingerprint("cp-1").unwrap(), before);
    assert_eq!(site.left_behind(FROM).unwrap(), nothing());
    let kept = site.object(&["get", "configmap", "kept"]).unwrap();
    assert_eq!(kept["data"]["since"], "before");

    // Bringing the images once more mends it.
    site.mend_api_server("cp-1").unwrap();
    ends_at_the_target(&site);
}

#[test]
fn k2_one_of_three_whose_new_api_server_never_comes_up_puts_itself_back_and_no_request_is_lost() {
    let spec = Spec {
        name: "e2e-dead-cp".to_owned(),
        workers: 0,
        ..Spec::default()
    };
    let site = Site::up(&spec, TO).unwrap();
    let before = site.fingerprint("cp-1").unwrap();
    site.break_api_server("cp-1").unwrap();
    let probers = probers_before(&site, "broken");
    let followed = site.upgrade(&[], LONG, Some(&probers), |_| Ok(())).unwrap();
    let exit_code = told(&followed);
    let seen = look(&site);
    let settled = site.settled(SETTLED);
    println!("{}", site.account_to_table(&followed).unwrap());
    let counts = probers.stop().unwrap();
    println!("{counts}");

    assert_eq!(exit_code, Some(1), "{}", site.diagnosis());
    assert!(
        seen.contains("cp-1") && seen.contains("did not come back within 120 seconds"),
        "{seen}"
    );
    settled.unwrap();
    assert_eq!(site.states().unwrap()["cp-1"], "RolledBack");
    assert_eq!(site.fingerprint("cp-1").unwrap(), before);
    assert_eq!(site.left_behind(FROM).unwrap(), nothing());
    assert_none_lost(&counts);

    site.mend_api_server("cp-1").unwrap();
    ends_at_the_target(&site);
}

#[test]
fn k2_one_of_three_whose_new_kubelet_does_not_start_puts_itself_back_and_no_request_is_lost() {
    let spec = Spec {
        name: "e2e-dead-kubelet".to_owned(),
        workers: 0,
        ..Spec::default()
    };
    let site = Site::up(&spec, TO).unwrap();
    site.break_kubelet("cp-1").unwrap();
    let before = site.fingerprint("cp-1").unwrap();
    let probers = probers_before(&site, "broken");
    let followed = site.upgrade(&[], LONG, Some(&probers), |_| Ok(())).unwrap();
    let exit_code = told(&followed);
    let seen = look(&site);
    let settled = site.settled(SETTLED);
    println!("{}", site.account_to_table(&followed).unwrap());
    let counts = probers.stop().unwrap();
    println!("{counts}");

    assert_eq!(exit_code, Some(1), "{}", site.diagnosis());
    assert!(seen.contains("cp-1") && seen.contains("kubelet"), "{seen}");
    settled.unwrap();
    assert_eq!(site.states().unwrap()["cp-1"], "RolledBack");
    assert_eq!(site.fingerprint("cp-1").unwrap(), before);
    assert_eq!(site.left_behind(FROM).unwrap(), nothing());
    assert_none_lost(&counts);

    site.mend_kubelet("cp-1").unwrap();
    ends_at_the_target(&site);
}

#[test]
fn k2_one_of_three_whose_etcd_starts_no_more_is_joined_anew_and_no_request_is_lost() {
    let spec = Spec {
        name: "e2e-dead-etcd".to_owned(),
        workers: 0,
        ..Spec::default()
    };
    let site = Site::up(&spec, TO).unwrap();
    let before = site.fingerprint("cp-1").unwrap();
    site.break_etcd("cp-1", "3.6.8-0").unwrap();
    let probers = probers_before(&site, "broken");
    let followed = site.upgrade(&[], LONG, Some(&probers), |_| Ok(())).unwrap();
    let exit_code = told(&followed);
    let seen = look(&site);
    let settled = site.settled(SETTLED);
    println!("{}", site.account_to_table(&followed).unwrap());
    let counts = probers.stop().unwrap();
    println!("{counts}");

    assert_eq!(exit_code, Some(1), "{}", site.diagnosis());
    settled.unwrap();
    assert_eq!(site.states().unwrap()["cp-1"], "RolledBack");
    assert_eq!(site.fingerprint("cp-1").unwrap(), before);
    assert_eq!(site.left_behind(FROM).unwrap(), nothing());
    assert_none_lost(&counts);
    // It says so itself, and its former data is still there.
    let journal = run(&site, "cp-1", "cat /var/lib/afloat/journal");
    assert!(journal.contains("removed and joined anew"), "{seen}\n{journal}");
    let manifest = run(&site, "cp-1", "cat /etc/kubernetes/manifests/etcd.yaml");
    assert!(manifest.contains("--initial-cluster-state=existing"), "{manifest}");
    assert!(manifest.contains("etcd:3.6.6-0"), "{manifest}");
    let aside = run(&site, "cp-1", "ls /var/lib/etcd/afloat-aside-1/snap");
    assert!(aside.contains("db"), "{aside}");

    ends_at_the_target(&site);
}

#[test]
fn k2_a_single_node_whose_etcd_starts_no_more_goes_back_to_its_snapshot() {
    let site = single("e2e-lost-etcd");
    site.kubectl(&["create", "configmap", "kept", "--from-literal=since=before"])
        .unwrap();
    let before = site.fingerprint("cp-1").unwrap();
    site.break_etcd("cp-1", "3.6.8-0").unwrap();

    assert_eq!(upgrade(&site, "broken"), Some(1), "{}", site.diagnosis());
    let seen = look(&site);
    site.settled(SETTLED).unwrap();
    assert_eq!(site.states().unwrap()["cp-1"], "RolledBack");
    assert_eq!(site.fingerprint("cp-1").unwrap(), before);
    assert_eq!(site.left_behind(FROM).unwrap(), nothing());
    let kept = site.object(&["get", "configmap", "kept"]).unwrap();
    assert_eq!(kept["data"]["since"], "before");
    // It says what is lost, and since when.
    let journal = run(&site, "cp-1", "cat /var/lib/afloat/journal");
    for text in [&seen, &journal] {
        let since = text.split("whatever was written to the cluster since ").nth(1);
        let since = since.and_then(|rest| rest.split_once(" is lost"));
        let since = since.and_then(|(since, _)| since.parse::<jiff::Timestamp>().ok());
        assert!(since.is_some(), "{text}");
    }
    let manifest = run(&site, "cp-1", "cat /etc/kubernetes/manifests/etcd.yaml");
    assert!(manifest.contains("etcd:3.6.6-0"), "{manifest}");
    let aside = run(&site, "cp-1", "ls /var/lib/etcd/afloat-aside-1/snap");
    assert!(aside.contains("db"), "{aside}");

    ends_at_the_target(&site);
}

#[test]
fn k2_a_single_node_that_loses_its_power_in_the_middle_of_the_swap_goes_on_by_itself() {
    let site = single("e2e-power");
    site.apply_upgrade("cut", json!({})).unwrap();
    let machine = site.lab.machine("cp-1").unwrap();
    let journal = machine.root().join("var/lib/afloat/journal");
    let mut cut = false;
    let followed = site.upgrade(&[], LONG, None, |_| {
        // Everything was ended, some of the new files are in place, nothing runs.
        let swapping = std::fs::read_to_string(&journal).is_ok_and(|text| text.contains("puts the manifests of"));
        if !cut && swapping {
            cut = true;
            machine.kill_power()?;
            machine.start()?;
        }
        Ok(())
    });
    let exit_code = told(&followed.unwrap());
    assert!(cut && exit_code == Some(0), "{}", site.diagnosis());
    site.settled(SETTLED).unwrap();
    assert_eq!(site.left_behind(TO).unwrap(), nothing());
}

#[test]
fn a_worker_on_which_kubeadm_fails_is_put_back_and_the_rest_goes_on() {
    let spec = Spec {
        name: "e2e-broken-w".to_owned(),
        control_planes: 1,
        ..Spec::default()
    };
    let site = Site::up(&spec, TO).unwrap();
    site.break_kubeadm("w-1").unwrap();
    let before = site.fingerprint("w-1").unwrap();

    site.apply_upgrade("broken", json!({"budget": {"maxFailed": 1}}))
        .unwrap();
    let followed = site.upgrade(&[], LONG, None, |_| Ok(())).unwrap();
    let exit_code = told(&followed);
    let seen = look(&site);
    println!("{}", site.account_to_table(&followed).unwrap());

    // As many as may fail did.
    assert_eq!(exit_code, Some(0), "{}", site.diagnosis());
    assert!(seen.contains("w-1") && seen.contains("kubeadm upgrade"), "{seen}");
    site.settled(SETTLED).unwrap();
    let states = site.states().unwrap();
    assert_eq!(
        (states["w-1"].as_str(), states["w-2"].as_str()),
        ("RolledBack", "Succeeded")
    );
    assert_eq!(site.fingerprint("w-1").unwrap(), before);
    assert_eq!(site.left_behind(TO).unwrap(), [format!("w-1 is at {FROM}")]);

    site.mend_kubeadm("w-1").unwrap();
    ends_at_the_target(&site);
}

//! Several real machines: upgraded in place while operators die and machines reboot, and put back where kubeadm fails.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by failing")]

use std::time::Duration;

use afloat_e2e::{Account, Endpoints, Filling, Site, States};
use afloat_lab::{Counts, Release, Running, Spec};
use serde_json::json;

const TO: &str = "v1.36.3";
const FROM: &str = "v1.35.4";
/// A file that a person tuned on the machine.
const TUNED: &str = "/etc/sysctl.d/90-site.conf";
/// Five machines on two cores that others may use as well.
const LONG: Duration = Duration::from_mins(25);
const SETTLED: Duration = Duration::from_mins(4);
/// Seconds of a node's time out of service that may be Afloat's own.
const MOST_OVERHEAD: f64 = 15.0;
const NODES: [&str; 5] = ["cp-1", "cp-2", "cp-3", "w-1", "w-2"];

/// From when its holder's API server ends until another has the virtual address: five seconds of the lease, and what requests wait that
/// were sent meanwhile.
const MOST_VIRTUAL_OUTAGE: Duration = Duration::from_secs(20);
const CONTROL_PLANES: [&str; 3] = ["cp-1", "cp-2", "cp-3"];

/// Bringing two gigabytes to each of five machines on one disk and two cores is slow for all of them, as it is on no site: counting begins
/// when it is done, and before the first cordon, which is held until the upgrade is let go.
fn probers_once_staged(site: &Site, upgrade: &str) -> Running {
    site.stage(upgrade, json!({}), LONG).unwrap();
    site.lab.probers().start().unwrap()
}

fn nothing() -> Vec<String> {
    Vec::new()
}

/// That nothing failed says something only of those who asked.
fn assert_everybody_asked(counts: &Counts, further: &[&str]) {
    let pods = CONTROL_PLANES.map(|machine| format!("pod on {machine}"));
    let pods = pods.iter().map(String::as_str);
    let places: Vec<_> = pods
        .chain(["balancer plain", "balancer harsh"])
        .chain(further.iter().copied())
        .collect();
    assert_eq!(counts.silent(&places), nothing(), "{counts}");
}

/// Who holds the virtual address, and how often it has moved.
fn virtual_address(site: &Site) -> (String, u64) {
    let holder = site.lab.virtual_holder().unwrap().unwrap_or_default();
    (holder, site.lab.virtual_moves().unwrap())
}

/// The control planes that something is done to, in the order in which it began.
fn note_begun(order: &mut Vec<String>, states: &States) {
    let begun =
        |state: &String| ["Draining", "StandingAside", "Upgrading", "Verifying", "Succeeded"].contains(&state.as_str());
    for (node, state) in states.iter().filter(|(node, _)| node.starts_with("cp-")) {
        if begun(state) && !order.contains(node) {
            order.push(node.clone());
        }
    }
}

/// Whoever held it went last; it moved once, onto a node that was done, and was away for no longer than a lease lasts.
fn assert_moved_once(site: &Site, before: &(String, u64), order: &[String], counts: &Counts) {
    let after = virtual_address(site);
    let (holder, moves) = before;
    println!(
        "the virtual address was held by {holder} and is by {}; order: {order:?}",
        after.0
    );
    println!(
        "through it {} requests failed within {:?}",
        counts.virtual_failed(),
        counts.virtual_outage()
    );
    // By its name alone it would have been last.
    assert_ne!(
        holder, "cp-3",
        "the lease moved before any machine was touched: the disk was too busy"
    );
    assert_eq!(order.len(), 3, "control planes that were begun: {order:?}");
    assert_eq!(order.last(), Some(holder), "the order of the control planes: {order:?}");
    assert_eq!(
        after.1,
        moves + 1,
        "how often the lease has moved, from {before:?} to {after:?}"
    );
    assert!(
        CONTROL_PLANES.contains(&after.0.as_str()) && after.0 != *holder,
        "{after:?}"
    );
    assert!(counts.virtual_outage() <= MOST_VIRTUAL_OUTAGE, "{counts}");
}

/// Every control plane was taken the swift way, and no node was out of service for long because of Afloat itself.
fn assert_swift_and_short(account: &Account) {
    assert_eq!(account.lacks(&NODES), nothing(), "{account}");
    for node in &account.nodes {
        let swift = node.node.starts_with("cp-").then_some("swift");
        assert_eq!(node.way.as_deref(), swift, "the way in which {} was taken", node.node);
    }
    // What a machine takes to restart is not Afloat's.
    for node in account.nodes.iter().filter(|node| node.node != "w-2") {
        let own = node.seconds(Filling::Overhead);
        assert!(
            own <= MOST_OVERHEAD,
            "{own:.1}s of the {:?}s that {} was out of service were orchestration: {}",
            node.window,
            node.node,
            node.longest()
        );
    }
}

#[test]
fn p1_p37_k34_an_ha_cluster_is_upgraded_without_a_lost_request_while_operators_die_and_machines_reboot() {
    let spec = Spec {
        name: "e2e-ha".to_owned(),
        virtual_address: true,
        ..Spec::default()
    };
    let site = Site::up(&spec, TO).unwrap();
    for machine in site.lab.machines() {
        let tune = format!("echo vm.swappiness=1 > {TUNED}");
        machine.exec(["sh", "-c", &tune]).unwrap();
    }
    site.kubectl(&["create", "configmap", "kept", "--from-literal=since=before"])
        .unwrap();
    let probers = probers_once_staged(&site, "to-v1-36-3");
    let held = virtual_address(&site);
    let endpoints = Endpoints::watch(&site, "web").unwrap();
    site.let_go("to-v1-36-3").unwrap();
    let (mut killed, mut rebooted, mut order) = (None, false, Vec::new());
    let followed = site
        .upgrade(&[], LONG, Some(&probers), |states| {
            note_begun(&mut order, states);
            let upgrading = |node: &str| states.get(node).is_some_and(|state| state == "Upgrading");
            if killed.is_none() && upgrading("cp-2") {
                killed = Some(site.kill_leader()?);
            }
            if !rebooted && upgrading("w-2") {
                site.lab.machine("w-2")?.reboot()?;
                rebooted = true;
            }
            Ok(())
        })
        .unwrap();
    println!(
        "{}\nexit code {:?} after {:?}",
        followed.said, followed.exit_code, followed.took
    );
    if followed.exit_code != Some(0) {
        println!("{}", site.diagnosis());
    }
    let settled = site.settled(SETTLED);
    let account = site.account_to_table(&followed).unwrap();
    let (counts, seen) = (probers.stop().unwrap(), endpoints.stop());
    println!("{counts}\n{account}");
    println!("the operator {killed:?} was killed, w-2 rebooted: {rebooted}; web's ready endpoints: {seen:?}");

    assert_eq!(followed.exit_code, Some(0));
    settled.unwrap();
    assert!(killed.is_some() && rebooted, "nothing happened in the middle");
    assert_eq!((counts.failed(), counts.pages_failed()), (0, 0), "requests were lost");
    // Fewer than all four: the moves of its pods were seen.
    assert!(
        seen.fewest.is_some_and(|fewest| (1..4).contains(&fewest)),
        "ready endpoints of web: {seen:?}"
    );
    assert_eq!(site.left_behind(TO).unwrap(), nothing());
    let kept = site.object(&["get", "configmap", "kept"]).unwrap();
    assert_eq!(kept["data"]["since"], "before");
    for machine in site.lab.machines() {
        assert_eq!(machine.exec(["cat", TUNED]).unwrap().trim(), "vm.swappiness=1");
    }
    assert_eq!(site.parts_not_at(&Release::of(TO).unwrap()).unwrap(), nothing());
    assert_everybody_asked(&counts, &["pod on w-1", "virtual address"]);
    assert_moved_once(&site, &held, &order, &counts);
    assert_swift_and_short(&account);
}

#[test]
fn k2_a_control_plane_on_which_kubeadm_fails_is_put_back_and_the_upgrade_stops() {
    let spec = Spec {
        name: "e2e-broken-cp".to_owned(),
        workers: 0,
        ..Spec::default()
    };
    let site = Site::up(&spec, TO).unwrap();
    site.break_kubeadm("cp-1").unwrap();
    let before = site.fingerprint("cp-1").unwrap();
    let probers = probers_once_staged(&site, "broken");
    site.let_go("broken").unwrap();

    let followed = site.upgrade(&[], LONG, Some(&probers), |_| Ok(())).unwrap();
    println!(
        "{}\nexit code {:?} after {:?}",
        followed.said, followed.exit_code, followed.took
    );
    let explained = site.afloat(&["explain"]).unwrap();
    let settled = site.settled(SETTLED);
    println!("{explained}\n{}", site.account_to_table(&followed).unwrap());
    let counts = probers.stop().unwrap();
    println!("{counts}");

    assert_eq!(followed.exit_code, Some(1));
    assert!(
        explained.contains("cp-1") && explained.contains("kubeadm upgrade"),
        "{explained}"
    );
    settled.unwrap();
    assert_eq!(site.states().unwrap()["cp-1"], "RolledBack");
    assert_eq!(site.fingerprint("cp-1").unwrap(), before);
    assert_eq!(site.left_behind(FROM).unwrap(), nothing());
    let config = site
        .object(&["-n", "kube-system", "get", "configmap", "kubeadm-config"])
        .unwrap();
    assert!(config["data"]["ClusterConfiguration"].as_str().unwrap().contains(FROM));
    assert_eq!(counts.failed(), 0, "requests were lost");
    assert_everybody_asked(&counts, &[]);

    // What was in the way is gone: the same command brings it to the target.
    site.mend_kubeadm("cp-1").unwrap();
    site.apply_upgrade("mended", json!({})).unwrap();
    let followed = site.upgrade(&[], LONG, None, |_| Ok(())).unwrap();
    println!("{}", followed.said);
    assert_eq!(followed.exit_code, Some(0), "{}", site.diagnosis());
    site.settled(SETTLED).unwrap();
    assert_eq!(site.left_behind(TO).unwrap(), nothing());
}

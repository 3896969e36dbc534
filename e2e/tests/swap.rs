//! What the swap of a control plane must stand beside its own failures: work to do for the API, machines that restart or lose their power in
//! the middle of every step, a peer that goes away.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by failing")]

use std::thread;
use std::time::{Duration, Instant};

use afloat_e2e::{Entry, Moments, Site};
use afloat_lab::{Kind, Spec};
use serde_json::json;

const TO: &str = "v1.36.3";
const LONG: Duration = Duration::from_mins(40);
const SETTLED: Duration = Duration::from_mins(5);
/// How long a peer is away.
const AWAY: Duration = Duration::from_secs(40);

/// What the swap of a control plane cannot do without, by how each begins.
const IN_EVERY_SWAP: [&str; 10] = [
    "renews certificates",
    "stops the kubelet",
    "ends kube-controller-manager",
    "ends kube-apiserver",
    "ends etcd",
    "puts the manifests of",
    "puts the new kubelet",
    "starts the kubelet",
    "waits until all parts",
    "lets kubeadm finish",
];

/// The first thing that is done in each step.
#[allow(clippy::unnecessary_wraps, reason = "other moments are not waited for")]
fn in_each_step(entry: &Entry) -> Option<String> {
    Some(entry.step.clone())
}

/// Everything that is done in the step that swaps a control plane's parts.
fn in_all_of_the_swap(entry: &Entry) -> Option<String> {
    (entry.step == "kubeadm").then(|| entry.what.clone())
}

fn as_etcd_ends(entry: &Entry) -> Option<String> {
    entry.what.starts_with("ends etcd").then(|| entry.what.clone())
}

#[test]
fn k2_machines_that_restart_or_lose_their_power_in_every_step_and_their_peers_arrive() {
    let spec = Spec {
        name: "e2e-cuts".to_owned(),
        workers: 1,
        // A workload that only this worker could run would hold the upgrade.
        workload: false,
        ..Spec::default()
    };
    let site = Site::up(&spec, TO).unwrap();
    site.kubectl(&["create", "configmap", "kept", "--from-literal=since=before"])
        .unwrap();
    // Cut as often as here, a machine needs longer than it would be given.
    site.apply_upgrade("cuts", json!({"undoAfterSeconds": 3600})).unwrap();
    let machine = |name: &str| site.lab.machine(name).unwrap();
    let restarted = Moments::of(machine("cp-1"), in_each_step, |machine| Ok(machine.reboot()?));
    let cut = Moments::of(machine("cp-2"), in_all_of_the_swap, |machine| {
        machine.kill_power()?;
        Ok(machine.turn_on()?)
    });
    let peer = machine("cp-1");
    let left = Moments::of(machine("cp-3"), as_etcd_ends, move |_| {
        peer.kill_power()?;
        thread::sleep(AWAY);
        Ok(peer.start()?)
    });
    let worker = Moments::of(machine("w-1"), in_each_step, |machine| {
        machine.kill_power()?;
        Ok(machine.turn_on()?)
    });

    let followed = site.upgrade(&[], LONG, None, |_| Ok(())).unwrap();
    println!(
        "{}\nexit code {:?} after {:?}",
        followed.said, followed.exit_code, followed.took
    );
    let settled = site.settled(SETTLED);
    println!("{}", site.account_to_table(&followed).unwrap());
    let [restarted, cut, left, worker] = [restarted, cut, left, worker].map(|moments| moments.stop().unwrap());
    println!("cp-1 restarted in {restarted:?}");
    println!("cp-2 lost its power as it {cut:?}");
    println!("cp-1 was away as cp-3 {left:?}");
    println!("w-1 lost its power in {worker:?}");

    assert_eq!(followed.exit_code, Some(0), "{}", site.diagnosis());
    settled.unwrap();
    assert_eq!(site.left_behind(TO).unwrap(), Vec::<String>::new());
    let kept = site.object(&["get", "configmap", "kept"]).unwrap();
    assert_eq!(kept["data"]["since"], "before");
    // A control plane's kubelet is swapped with its other parts.
    for step in ["stage", "stand-aside", "containerd", "kubeadm", "come-back"] {
        assert!(restarted.iter().any(|name| name == step), "{step}: {restarted:?}");
    }
    for step in ["stage", "containerd", "kubeadm", "kubelet"] {
        assert!(worker.iter().any(|name| name == step), "{step}: {worker:?}");
    }
    let beginnings = IN_EVERY_SWAP.iter();
    let missed: Vec<_> = beginnings
        .filter(|begins| !cut.iter().any(|what| what.starts_with(**begins)))
        .collect();
    assert!(
        missed.is_empty(),
        "cp-2 kept its power as it {missed:?}, and lost it as it {cut:?}"
    );
    assert!(!left.is_empty(), "etcd of cp-3 was never ended");
}

#[test]
fn p1_two_hundred_requests_a_second_and_open_watches_are_served_while_control_planes_are_swapped() {
    let spec = Spec {
        name: "e2e-load".to_owned(),
        workers: 0,
        ..Spec::default()
    };
    let site = Site::up(&spec, TO).unwrap();
    site.stage("load", json!({}), LONG).unwrap();
    let probers = site.lab.probers().sparing().with_load(220, 10).start().unwrap();
    site.let_go("load").unwrap();
    let begun = Instant::now();
    let followed = site.upgrade(&[], LONG, Some(&probers), |_| Ok(())).unwrap();
    println!(
        "{}\nexit code {:?} after {:?}",
        followed.said, followed.exit_code, followed.took
    );
    let seconds = begun.elapsed().as_secs();
    let counts = probers.stop().unwrap();
    println!("{counts}\n{}", site.account_to_table(&followed).unwrap());
    let served = counts.0["load"][&Kind::Kept].sent / seconds.max(1);
    println!("{served} requests a second over {seconds} seconds");

    assert_eq!(followed.exit_code, Some(0), "{}", site.diagnosis());
    site.settled(SETTLED).unwrap();
    assert_eq!(site.left_behind(TO).unwrap(), Vec::<String>::new());
    assert_eq!(counts.failed(), 0, "requests were lost");
    let places = ["balancer harsh", "pod on cp-1", "pod on cp-2", "pod on cp-3"];
    assert_eq!(counts.silent(&places), Vec::<String>::new(), "{counts}");
    assert!(served >= 200, "the API had only {served} requests a second to answer");
}

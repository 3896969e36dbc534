//! A target two minors away: the control plane goes through both, one after the other, and a worker is disrupted once.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by failing")]

use std::time::Duration;

use afloat_e2e::Site;
use afloat_lab::Spec;
use serde_json::json;

const FROM: &str = "v1.34.4";
const BETWEEN: &str = "v1.35.4";
const TO: &str = "v1.36.3";
/// Seven upgrades of machines on two cores that others may use as well.
const LONG: Duration = Duration::from_mins(35);
const SETTLED: Duration = Duration::from_mins(4);

#[test]
fn p1_two_minors_are_taken_one_after_the_other_without_a_lost_request_and_workers_are_disrupted_once() {
    let spec = Spec {
        name: "e2e-far".to_owned(),
        version: FROM.to_owned(),
        workers: 1,
        // A workload that only this worker could run would hold the upgrade.
        workload: false,
        ..Spec::default()
    };
    let site = Site::up_through(&spec, &[BETWEEN], TO).unwrap();
    site.kubectl(&["create", "configmap", "kept", "--from-literal=since=before"])
        .unwrap();
    site.stage("far", json!({}), LONG).unwrap();
    let probers = site.lab.probers().sparing().start().unwrap();
    site.let_go("far").unwrap();
    let followed = site.upgrade(&[], LONG, Some(&probers), |_| Ok(())).unwrap();
    println!(
        "{}\nexit code {:?} after {:?}",
        followed.said, followed.exit_code, followed.took
    );
    let settled = site.settled(SETTLED);
    let counts = probers.stop().unwrap();
    let account = site.account_to_table(&followed).unwrap();
    println!("{counts}\n{account}");

    assert_eq!(followed.exit_code, Some(0), "{}", site.diagnosis());
    settled.unwrap();
    assert_eq!(site.left_behind(TO).unwrap(), Vec::<String>::new());
    assert_eq!(counts.failed(), 0, "requests were lost");
    let places = [
        "balancer harsh",
        "pod on cp-1",
        "pod on cp-2",
        "pod on cp-3",
        "pod on w-1",
    ];
    assert_eq!(counts.silent(&places), Vec::<String>::new(), "{counts}");
    let times = |node: &str| account.nodes.iter().filter(|one| one.node == node).count();
    assert_eq!(["cp-1", "cp-2", "cp-3", "w-1"].map(times), [2, 2, 2, 1]);
    let server = site.object(&["version"]).unwrap();
    assert_eq!(server["serverVersion"]["gitVersion"], TO);
    let kept = site.object(&["get", "configmap", "kept"]).unwrap();
    assert_eq!(kept["data"]["since"], "before");
}

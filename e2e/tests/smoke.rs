//! One real control-plane node upgraded in place, with its etcd data, its workload and a file that a person had changed.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by failing")]

use std::time::Duration;

use afloat_e2e::Site;
use afloat_lab::{Release, Spec};

const TO: &str = "v1.36.3";
/// A file that a person tuned on the machine.
const TUNED: &str = "/etc/sysctl.d/90-site.conf";

#[test]
fn p1_p36_a_single_real_node_is_upgraded_in_place() {
    let site = Site::up(&Spec::single("e2e-smoke"), TO).unwrap();
    site.lab
        .machine("cp-1")
        .unwrap()
        .exec(["sh", "-c", &format!("echo vm.swappiness=1 > {TUNED}")])
        .unwrap();
    site.kubectl(&["create", "configmap", "kept", "--from-literal=since=before"])
        .unwrap();

    let followed = site
        .upgrade(
            &["--delete-emptydir-data", "--evict-unmanaged"],
            Duration::from_mins(10),
            None,
            |_| Ok(()),
        )
        .unwrap();
    println!(
        "{}\nexit code {:?} after {:?}",
        followed.said, followed.exit_code, followed.took
    );
    if followed.exit_code != Some(0) {
        println!("{}", site.diagnosis());
    }
    println!("{}", site.account_to_table(&followed).unwrap());

    assert_eq!(followed.exit_code, Some(0));
    site.settled(Duration::from_mins(3)).unwrap();
    assert_eq!(site.left_behind(TO).unwrap(), Vec::<String>::new());
    let kept = site.object(&["get", "configmap", "kept"]).unwrap();
    assert_eq!(kept["data"]["since"], "before");
    let tuned = site.lab.machine("cp-1").unwrap().exec(["cat", TUNED]).unwrap();
    assert_eq!(tuned.trim(), "vm.swappiness=1");
    let server = site.object(&["version"]).unwrap();
    assert_eq!(server["serverVersion"]["gitVersion"], TO);
    // Not its overhead: it runs beside whatever else a change is checked by, and seconds say little there.
    assert_eq!(
        site.parts_not_at(&Release::of(TO).unwrap()).unwrap(),
        Vec::<String>::new()
    );
}

//! A machine as image-builder lays it out, upgraded step by step by the engine of `afloat-node`.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on says so by failing"
)]

use afloat_api::NodeRole;
use afloat_api::node::{NodePlan, exit, steps};
use afloat_node::engine::{Engine, Followed};
use afloat_simhost::{Bundle, Machine, Shared, SimHost};
use jiff::{SignedDuration, Timestamp};

fn plan() -> NodePlan {
    NodePlan {
        upgrade: "0b2f4c6e".to_owned(),
        attempt: 1,
        node: "worker-1".to_owned(),
        role: NodeRole::Worker,
        kubernetes_version: "v1.36.3".to_owned(),
        kubelet_version: "v1.36.3".to_owned(),
        via: vec!["v1.36.3".to_owned()],
        method: None,
        peers: Vec::new(),
        etcd_version: None,
        core_dns_version: None,
        undo_after_seconds: 900,
        bundle_key: None,
    }
}

#[test]
fn p45_binaries_and_units_are_changed_where_image_builder_puts_them() {
    let mut now = Timestamp::UNIX_EPOCH;
    let machine = Machine {
        name: "worker-1".to_owned(),
        role: NodeRole::Worker,
        address: "10.0.0.11".to_owned(),
        version: "v1.35.4".to_owned(),
    };
    let shared = Shared::new("v1.36.3");
    let mut host = SimHost::new(machine, &Bundle::of(&["v1.36.3"]), shared, now);
    let mut engine = Engine::default();
    for step in [
        steps::STAGE,
        steps::CONTAINERD,
        steps::CNI,
        steps::KUBEADM,
        steps::KUBELET,
    ] {
        engine.begin(&mut host, &plan(), step, now).unwrap();
        let mut ended = None;
        for _ in 0..2000 {
            now += SignedDuration::from_millis(500);
            host.tick(now);
            engine.advance(&mut host, now).unwrap();
            if let Followed::Ended { exit_code, report } = engine.follow(&mut host, step).unwrap() {
                ended = Some((exit_code, report));
                break;
            }
        }
        let (code, report) = ended.unwrap_or_else(|| panic!("{step} never ends"));
        assert_eq!(code, exit::DONE, "{step}: {report:?}");
    }
    let content = |path: &str| {
        let file = host.tree().get(path).unwrap_or_else(|| panic!("{path} is not there"));
        String::from_utf8_lossy(file.bytes()).into_owned()
    };
    for (path, version) in [
        ("/usr/bin/kubelet", "v1.36.3"),
        ("/usr/bin/kubeadm", "v1.36.3"),
        ("/usr/bin/kubectl", "v1.36.3"),
        ("/usr/local/bin/containerd", "v2.3.7"),
        ("/opt/cni/bin/bridge", "v1.9.1"),
    ] {
        assert!(content(path).contains(version), "{path}: {}", content(path));
    }
    assert_eq!(
        host.kubelet_version(),
        Some("v1.36.3"),
        "the unit runs what was put there"
    );
}

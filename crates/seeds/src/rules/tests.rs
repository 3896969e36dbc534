//! Rules, judged on a few writes made by hand.

use std::collections::BTreeMap;
use std::sync::Arc;

use afloat_api::clusterupgrade::Slot;
use afloat_api::kubeadm::{DesiredNodeState, NodeKubeadmUpgradeSpec};
use afloat_api::{ClusterUpgrade, ClusterUpgradeSpec, ClusterUpgradeStatus, NodeKubeadmUpgrade, NodeRef, NodeRole};
use afloat_core::view::{Node, NodeName, Ready, Uid};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{Broken, Doing, Rules, Seen};
use crate::store::{Kind as _, KindName, Meant, Store, Writer};
use crate::time::stamp;

fn hop(store: &mut Store, name: &str, version: &str) -> Arc<NodeKubeadmUpgrade> {
    let spec = NodeKubeadmUpgradeSpec {
        cluster: None,
        machine: None,
        node: NodeRef {
            name: "w-1".to_owned(),
            uid: "uid-w-1".to_owned(),
        },
        role: NodeRole::Worker,
        kubernetes_version: version.to_owned(),
        kubelet_version: version.to_owned(),
        etcd_version: None,
        stage: None,
        steps: Arc::new(Vec::new()),
        attempt: 1,
        desired: DesiredNodeState::Staged,
        undo_after_seconds: None,
    };
    let upgrade = NodeKubeadmUpgrade::new(name, spec);
    store.create_custom(Writer::Operator(0), "create", upgrade).unwrap()
}

/// A control plane at v1.36.3 and a worker with an upgrade for each of two hops, which gets a slot for one of them.
fn grants(names: [&str; 2], version: &str) -> Option<Broken> {
    let mut store = Store::default();
    for (name, control_plane) in [("cp-1", true), ("w-1", false)] {
        let node = Node {
            name: NodeName::from(name),
            uid: Uid::from(format!("uid-{name}")),
            control_plane,
            ready: Ready {
                ready: true,
                ..Ready::default()
            },
            kubelet_version: "v1.36.3".parse().ok(),
            ..Node::default()
        };
        store.put(Writer::Setup, "create", node);
    }
    let hops = [
        hop(&mut store, names[0], "v1.36.3"),
        hop(&mut store, names[1], "v1.37.2"),
    ];
    let holder = hops.iter().find(|hop| hop.spec.kubelet_version == version).unwrap();
    let slot = Slot {
        node: "w-1".to_owned(),
        node_uid: "uid-w-1".to_owned(),
        role: NodeRole::Worker,
        attempt: 1,
        version: version.to_owned(),
        taken_at: Time(stamp(0)),
        failure_domain: None,
        holder: holder.uid().to_owned(),
        holder_revision: None,
        undoing: false,
    };
    let upgrade = ClusterUpgrade::new("up", ClusterUpgradeSpec::default());
    let key = store.create_custom(Writer::Person, "create", upgrade).unwrap().key();
    let status = ClusterUpgradeStatus {
        slots: vec![slot],
        ..ClusterUpgradeStatus::default()
    };
    store
        .update_status::<ClusterUpgrade>(Writer::Operator(0), "write-upgrade-status", &Meant::named(&key), status)
        .unwrap();
    let mut rules = Rules {
        doing: Some(Doing {
            name: "write-upgrade-status",
            target: None,
            seen: Seen {
                revisions: [u64::MAX; KindName::ALL.len()],
            },
            override_of: None,
        }),
        ..Rules::default()
    };
    for written in std::mem::take(&mut store.fresh) {
        rules.saw(&store, &written, &BTreeMap::new());
    }
    rules.broken().cloned()
}

/// Names carry uids: either hop may come first in their order.
#[test]
fn a_worker_waits_for_the_control_plane_of_the_hop_that_its_slot_is_for() {
    for names in [["w-1-a", "w-1-b"], ["w-1-b", "w-1-a"]] {
        assert_eq!(grants(names, "v1.36.3"), None, "{names:?}");
        let broken = grants(names, "v1.37.2");
        assert_eq!(broken.map(|broken| broken.rule), Some(4), "{names:?}");
    }
}

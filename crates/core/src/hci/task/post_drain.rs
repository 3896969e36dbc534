//! After Rancher has drained a node: its new Kubernetes is waited for, then the new operating system is installed, and the machine restarts
//! (H47, H48). A single node, which nobody drains, is emptied first, and asks for its Kubernetes itself (H10, H42).

use std::sync::Arc;

use afloat_api::harvester::HarvesterNodeState as State;
use jiff::Timestamp;

use super::pre_drain::ended;
use super::{Errand, HostDone, HostWork, Look, first_open, is_ending, pre_drain, release_of, waits};
use crate::hci::action::TaskWrite;
use crate::hci::release::Release;
use crate::hci::vms;
use crate::hci::waits::{emptying, kubelet_at_target};
use crate::view::{Node, View};

/// One look.
pub fn post_drain(view: &View, errand: &Errand, host: &HostDone, _: Timestamp) -> Look {
    let (node, release) = match upgraded(view, errand) {
        Ok(found) => found,
        Err(look) => return look,
    };
    first_open(&[HostWork::ConfigureServer], host).unwrap_or_else(|| new_system(view, node, &release, host))
}

/// One look at the only node of a cluster. The system is brought while virtual machines still run: they are off for shorter.
pub fn single_node(view: &View, errand: &Errand, host: &HostDone, now: Timestamp) -> Look {
    let (node, release) = match upgraded(view, errand) {
        Ok(found) => found,
        Err(look) => return look,
    };
    let kubernetes_is_new = kubelet_at_target(node, &release).is_ok();
    // Only a node that will not restart need not be empty: one that has booted the old system has its virtual machines again.
    if kubernetes_is_new && *node.os_image == *release.os {
        return new_system(view, node, &release, host);
    }
    if let Some(open) = first_open(&[HostWork::BringSystem], host) {
        return open;
    }
    let let_go = is_let_go(view, errand);
    if !let_go && is_ending(view, errand) {
        return ended(errand);
    }
    let emptied = pre_drain(view, errand, host, now);
    if !matches!(emptied, Look::Done { .. }) {
        return emptied;
    }
    if !let_go {
        return waits(format!("waits until upgrade {} lets it go on", errand.upgrade));
    }
    first_open(&[HostWork::ConfigureServer], host)
        .or_else(|| ask(view, &release).filter(|_| !kubernetes_is_new))
        .unwrap_or_else(|| new_system(view, node, &release, host))
}

/// Whether the node may be changed by now: before that a person may end the upgrade, and everything is put back.
fn is_let_go(view: &View, errand: &Errand) -> bool {
    let upgrade = view.hci.upgrades.get(&errand.upgrade);
    let status = upgrade.and_then(|upgrade| upgrade.status.as_ref());
    let node = status.and_then(|status| status.node_statuses.get(errand.node.as_str()));
    node.is_some_and(|node| matches!(node.state.parse(), Ok(State::PostDraining | State::WaitingReboot)))
}

/// The node and the release it is to have, or what keeps the task from knowing them.
fn upgraded<'a>(view: &'a View, errand: &Errand) -> Result<(&'a Node, Release), Look> {
    let failed = |says: String| Look::Failed { says };
    let node = view.nodes.get(&errand.node);
    let node = node.ok_or_else(|| failed(format!("node {} is gone", errand.node)))?;
    Ok((node, release_of(view, errand)?))
}

/// Tells Rancher which Kubernetes the cluster is to have.
fn ask(view: &View, release: &Release) -> Option<Look> {
    let Some(cluster) = view.hci.local_cluster() else {
        let says = "clusters.provisioning.cattle.io fleet-local/local is not there: Rancher cannot be asked".to_owned();
        return Some(Look::Failed { says });
    };
    let wanted = release.kubernetes.to_string();
    (*cluster.kubernetes_version != wanted).then(|| Look::Write {
        says: format!("asks Rancher for Kubernetes {wanted}"),
        what: vec![TaskWrite::AskForKubernetes {
            cluster: cluster.target.clone(),
            version: Arc::from(wanted),
        }],
    })
}

/// Rancher asks before its own work on the node is seen: the kubelet says when that is.
fn new_system(view: &View, node: &Node, release: &Release, host: &HostDone) -> Look {
    if let Err(says) = kubelet_at_target(node, release) {
        return waits(format!("waits for the new Kubernetes on {}: {says}", node.name));
    }
    if let Some(open) = first_open(&[HostWork::RemoveArchives], host) {
        return open;
    }
    if *node.os_image == *release.os {
        let says = format!("node {} runs {} already", node.name, release.os);
        return Look::Done { says };
    }
    if !vms::left(view, &node.name) {
        let (_, says) = emptying(view, node);
        return waits(says);
    }
    let works = [HostWork::BringSystem, HostWork::InstallSystem, HostWork::RestartSoon];
    first_open(&works, host).unwrap_or_else(|| Look::Done {
        says: format!("node {} restarts with {}", node.name, release.os),
    })
}

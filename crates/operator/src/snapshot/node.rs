//! Nodes as the core sees them, with what people and Afloat have written on them.

use std::str::FromStr as _;
use std::sync::Arc;

use afloat_api::{annotations, labels};
use afloat_core::KubernetesVersion;
use afloat_core::hci::view::NodeMarks;
use afloat_core::view::{Node, NodeName, Ready, Uid, Wish};
use jiff::Timestamp;

use super::quantity::{Rounding, resources};
use super::raw::{NodeStatus, RawNode};
use super::scheduling;
use super::{Unreadable, identity};

/// How the attach-detach controller names a CSI volume: driver and handle follow, with `^` between.
const CSI: &str = "kubernetes.io/csi/";

pub fn node(raw: &RawNode) -> Result<Node, Unreadable> {
    let target = identity(&raw.metadata)?;
    let meta = &raw.metadata;
    let status = raw.status.clone().unwrap_or_default();
    let created_at = meta
        .creation_timestamp
        .as_ref()
        .map_or(Timestamp::UNIX_EPOCH, |time| time.0);
    let annotation = |key: &str| {
        meta.annotations
            .as_ref()
            .and_then(|all| all.get(key))
            .map(String::as_str)
    };
    let info = status.node_info.clone().unwrap_or_default();
    let spec = raw.spec.as_ref();
    let allocatable = status
        .allocatable
        .as_ref()
        .map(|amounts| resources(amounts, Rounding::Down));
    Ok(Node {
        name: NodeName::from(Arc::clone(&target.key.name)),
        uid: target.uid,
        revision: target.revision,
        created_at,
        deleting: meta.deletion_timestamp.is_some(),
        control_plane: meta
            .labels
            .as_ref()
            .is_some_and(|all| all.contains_key(labels::CONTROL_PLANE_NODE)),
        labels: Arc::new(scheduling::labels(meta.labels.as_ref())),
        pause: annotation(annotations::PAUSE).map(Arc::from),
        paused_by: annotation(annotations::PAUSED_BY).map(Uid::from),
        cordoned_by: annotation(annotations::CORDONED_BY).map(Uid::from),
        wish: annotation(annotations::WISH).and_then(wish),
        unschedulable: spec.and_then(|spec| spec.unschedulable).unwrap_or_default(),
        taints: scheduling::taints(spec.and_then(|spec| spec.taints.as_ref())),
        ready: ready(&status, created_at),
        kubelet_version: info
            .kubelet_version
            .and_then(|text| KubernetesVersion::from_str(&text).ok()),
        container_runtime_version: Arc::from(info.container_runtime_version.unwrap_or_default()),
        os_image: Arc::from(info.os_image.unwrap_or_default()),
        internal_ip: address(&status),
        allocatable: allocatable
            .transpose()
            .map_err(|problem| Unreadable::new(meta, &problem))?
            .unwrap_or_default(),
        attached_volumes: attached(&status),
        hci: NodeMarks {
            pause: annotation(annotations::HARVESTER_NODE_PAUSE).map(Arc::from),
            pending_os_image: annotation(annotations::HARVESTER_PENDING_OS_IMAGE).map(Arc::from),
            maintenance: annotation("harvesterhci.io/maintain-status").map(Arc::from),
        },
    })
}

/// A word that is none of these stays on the node and is not heeded.
fn wish(word: &str) -> Option<Wish> {
    match word {
        "defer" => Some(Wish::Defer),
        "rollback" => Some(Wish::Rollback),
        _ => None,
    }
}

fn ready(status: &NodeStatus, created_at: Timestamp) -> Ready {
    let condition = status
        .conditions
        .iter()
        .flatten()
        .find(|condition| condition.type_ == "Ready");
    Ready {
        ready: condition.is_some_and(|condition| condition.status == "True"),
        since: condition
            .and_then(|condition| condition.last_transition_time.as_ref())
            .map_or(created_at, |time| time.0),
    }
}

fn address(status: &NodeStatus) -> Option<Arc<str>> {
    let internal = status
        .addresses
        .iter()
        .flatten()
        .find(|address| address.type_ == "InternalIP")?;
    Some(Arc::from(internal.address.as_str()))
}

/// Volumes as the node names them; the keeper knows which PersistentVolume has which handle.
fn attached(status: &NodeStatus) -> Vec<Arc<str>> {
    let names = status
        .volumes_attached
        .iter()
        .flatten()
        .filter_map(|volume| volume.name.as_deref());
    names
        .map(|name| Arc::from(name.strip_prefix(CSI).unwrap_or(name)))
        .collect()
}

//! How each decoded kind becomes an [`Object`]; also the answers to own writes take this way.

#![allow(
    clippy::needless_pass_by_value,
    reason = "each takes what was decoded and leaves nothing of it"
)]

use std::str::FromStr as _;
use std::sync::Arc;

use afloat_api::{ClusterUpgrade, ControlPlaneKubeadmUpgrade, NodeKubeadmUpgrade, WorkersKubeadmUpgrade};
use afloat_core::KubernetesVersion;
use afloat_core::view::{Lock, NodeName, Uid, WorkloadKind};

use super::raw::{
    RawBudget, RawClaim, RawConfigMap, RawDeployment, RawLease, RawNamespace, RawNode, RawPod, RawReplicaSet,
    RawStatefulSet, RawVolume,
};
use super::{Object, Unreadable, identity};

/// The key of kubeadm's ConfigMap that holds the `ClusterConfiguration`.
const CLUSTER_CONFIGURATION: &str = "ClusterConfiguration";

pub fn node(raw: RawNode) -> Result<Object, Unreadable> {
    super::node::node(&raw).map(Box::new).map(Object::Node)
}

pub fn pod(raw: RawPod) -> Result<Object, Unreadable> {
    super::pod::pod(raw).map(Box::new).map(Object::Pod)
}

pub fn budget(raw: RawBudget) -> Result<Object, Unreadable> {
    super::workload::budget(&raw).map(Box::new).map(Object::Budget)
}

pub fn deployment(raw: RawDeployment) -> Result<Object, Unreadable> {
    let (spec, status) = (raw.spec.as_ref(), raw.status.as_ref());
    let workload = super::workload::workload(WorkloadKind::Deployment, &raw.metadata, spec, status)?;
    Ok(Object::Workload(Box::new(workload)))
}

pub fn replica_set(raw: RawReplicaSet) -> Result<Object, Unreadable> {
    let (spec, status) = (raw.spec.as_ref(), raw.status.as_ref());
    let workload = super::workload::workload(WorkloadKind::ReplicaSet, &raw.metadata, spec, status)?;
    Ok(Object::Workload(Box::new(workload)))
}

pub fn stateful_set(raw: RawStatefulSet) -> Result<Object, Unreadable> {
    let (spec, status) = (raw.spec.as_ref(), raw.status.as_ref());
    let workload = super::workload::workload(WorkloadKind::StatefulSet, &raw.metadata, spec, status)?;
    Ok(Object::Workload(Box::new(workload)))
}

pub fn claim(raw: RawClaim) -> Result<Object, Unreadable> {
    let volume = super::workload::claimed_volume(&raw);
    Ok(Object::Claim {
        target: identity(&raw.metadata)?,
        volume,
    })
}

pub fn volume(raw: RawVolume) -> Result<Object, Unreadable> {
    Ok(Object::Volume {
        target: identity(&raw.metadata)?,
        volume: Box::new(super::workload::volume(raw.spec.unwrap_or_default())),
    })
}

pub fn namespace(raw: RawNamespace) -> Result<Object, Unreadable> {
    Ok(Object::Namespace {
        target: identity(&raw.metadata)?,
        labels: super::scheduling::labels(raw.metadata.labels.as_ref()),
    })
}

pub fn upgrade(upgrade: ClusterUpgrade) -> Result<Object, Unreadable> {
    identity(&upgrade.metadata)?;
    Ok(Object::Upgrade(Box::new(upgrade)))
}

pub fn control_plane(group: ControlPlaneKubeadmUpgrade) -> Result<Object, Unreadable> {
    identity(&group.metadata)?;
    Ok(Object::ControlPlane(Box::new(group)))
}

pub fn workers(group: WorkersKubeadmUpgrade) -> Result<Object, Unreadable> {
    identity(&group.metadata)?;
    Ok(Object::Workers(Box::new(group)))
}

pub fn node_upgrade(mut upgrade: NodeKubeadmUpgrade) -> Result<Object, Unreadable> {
    identity(&upgrade.metadata)?;
    share_environment(&mut upgrade);
    Ok(Object::NodeUpgrade(Box::new(upgrade)))
}

/// All steps of a node are told the same, in nearly all objects: it is kept once, or thousands of them would be the larger part of the view.
fn share_environment(upgrade: &mut NodeKubeadmUpgrade) {
    let steps = Arc::make_mut(&mut upgrade.spec.steps);
    let Some(first) = steps.first().map(|step| Arc::clone(&step.env)) else {
        return;
    };
    let stage = upgrade.spec.stage.as_mut().map(Arc::make_mut);
    for step in steps.iter_mut().chain(stage).filter(|step| step.env == first) {
        step.env = Arc::clone(&first);
    }
}

fn holder(raw: &RawLease) -> Option<&str> {
    let holder = raw.spec.as_ref()?.holder_identity.as_deref()?;
    (!holder.is_empty()).then_some(holder)
}

/// kube-vip's lease: the holder is the name of the node.
pub fn virtual_ip(raw: RawLease) -> Result<Object, Unreadable> {
    Ok(Object::VirtualIp {
        target: identity(&raw.metadata)?,
        holder: holder(&raw).map(NodeName::from),
    })
}

pub fn lock(raw: RawLease) -> Result<Object, Unreadable> {
    let target = identity(&raw.metadata)?;
    let holder = Uid::from(holder(&raw).unwrap_or_default());
    Ok(Object::Lock(Box::new(Lock { target, holder })))
}

pub fn images(raw: RawConfigMap) -> Result<Object, Unreadable> {
    let target = identity(&raw.metadata)?;
    let mut images = std::collections::BTreeMap::new();
    for (version, image) in raw.data.into_iter().flatten() {
        match KubernetesVersion::from_str(&version) {
            Ok(version) => {
                images.insert(version, Arc::from(image));
            }
            // One wrong line must not hide the others.
            Err(problem) => tracing::warn!(configmap = %target.key, %problem, "left out an upgrader image"),
        }
    }
    Ok(Object::Images { target, images })
}

pub fn kubeadm_config(raw: RawConfigMap) -> Result<Object, Unreadable> {
    let config = raw.data.as_ref().and_then(|data| data.get(CLUSTER_CONFIGURATION));
    Ok(Object::KubeadmConfig {
        target: identity(&raw.metadata)?,
        config: config.map(|text| Arc::from(text.as_str())),
    })
}

//! Budgets, workloads, claims and volumes, reduced to what decisions ask of them.

use std::sync::Arc;

use afloat_core::view::{Key, PodBudget, Selector, Workload, WorkloadKind};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::raw::{RawBudget, RawClaim, VolumeSpec, WorkloadSpec, WorkloadStatus};
use super::scheduling::{node_selector, owner, selector};
use super::{Unreadable, identity};

pub fn budget(raw: &RawBudget) -> Result<PodBudget, Unreadable> {
    let target = identity(&raw.metadata)?;
    let spec = raw.spec.as_ref();
    let status = raw.status.clone().unwrap_or_default();
    Ok(PodBudget {
        key: target.key,
        uid: target.uid,
        revision: target.revision,
        selector: selector(spec.and_then(|spec| spec.selector.as_ref())),
        up_to_date: status.observed_generation.unwrap_or_default() >= raw.metadata.generation.unwrap_or_default(),
        disruptions_allowed: status.disruptions_allowed.unwrap_or_default(),
        current_healthy: status.current_healthy.unwrap_or_default(),
        desired_healthy: status.desired_healthy.unwrap_or_default(),
        expected_pods: status.expected_pods.unwrap_or_default(),
        unhealthy_may_go: spec.and_then(|spec| spec.unhealthy_pod_eviction_policy.as_deref()) == Some("AlwaysAllow"),
    })
}

pub fn workload(
    kind: WorkloadKind,
    meta: &ObjectMeta,
    spec: Option<&WorkloadSpec>,
    status: Option<&WorkloadStatus>,
) -> Result<Workload, Unreadable> {
    let target = identity(meta)?;
    Ok(Workload {
        kind,
        key: target.key,
        uid: target.uid,
        revision: target.revision,
        // What is left out is one, as the API server fills in.
        replicas: spec.and_then(|spec| spec.replicas).unwrap_or(1),
        ready: status.and_then(|status| status.ready_replicas).unwrap_or_default(),
        owner: owner(meta),
    })
}

/// The volume a claim is bound to.
pub fn claimed_volume(raw: &RawClaim) -> Option<Arc<str>> {
    let volume = raw.spec.as_ref()?.volume_name.as_deref()?;
    (!volume.is_empty()).then(|| Arc::from(volume))
}

/// What is kept of a PersistentVolume.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Volume {
    /// Where it can be used: one must hold, anywhere where empty.
    pub node_affinity: Vec<Selector>,
    /// `driver^handle`, as nodes name it while it is attached.
    pub attached_as: Option<Arc<str>>,
    /// The claim it is bound to.
    pub claim: Option<Key>,
}

pub fn volume(spec: VolumeSpec) -> Volume {
    let attached_as = spec
        .csi
        .and_then(|csi| Some(format!("{}^{}", csi.driver?, csi.volume_handle?)));
    let claim = spec
        .claim_ref
        .and_then(|claim| Some(Key::new(&claim.namespace?, &claim.name?)));
    let required = spec.node_affinity.and_then(|affinity| affinity.required);
    Volume {
        node_affinity: node_selector(required.as_ref()),
        attached_as: attached_as.map(Arc::from),
        claim,
    }
}

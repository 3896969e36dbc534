//! Which optional APIs a cluster has: asked once, in two requests (aggregated discovery), instead of assumed. What is
//! found says how its status is written, since Harvester's own CRDs have no status subresource and ours may.

use crate::clients::{CallError, bounded};
use crate::status::StatusForm;
use kube::Discovery;
use kube::core::ApiResource;

/// A resource the cluster has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    pub resource: ApiResource,
    pub status: StatusForm,
}

/// The optional parts of a cluster, each by the kind Afloat has most to do with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Surroundings {
    /// `Machine` of Cluster API.
    pub cluster_api: Option<Found>,
    /// `Cluster` of Rancher's provisioning.
    pub rancher: Option<Found>,
    /// `VirtualMachineInstance` of KubeVirt.
    pub kubevirt: Option<Found>,
    /// `Volume` of Longhorn.
    pub longhorn: Option<Found>,
    /// `Upgrade` of Harvester.
    pub harvester: Option<Found>,
}

const GROUPS: &[&str] = &[
    "cluster.x-k8s.io",
    "provisioning.cattle.io",
    "kubevirt.io",
    "longhorn.io",
    "harvesterhci.io",
];

/// Looks at what the cluster serves.
pub async fn look_around(client: kube::Client) -> Result<Surroundings, CallError> {
    let discovery = bounded(Discovery::new(client).filter(GROUPS).run_aggregated()).await?;
    let find = |group: &str, kind: &str| {
        let (resource, capabilities) = discovery.get(group)?.recommended_kind(kind)?;
        let subresource = capabilities
            .subresources
            .iter()
            .any(|(part, _)| part.plural.ends_with("/status") || part.plural == "status");
        let status = if subresource {
            StatusForm::Subresource
        } else {
            StatusForm::Whole
        };
        Some(Found { resource, status })
    };
    Ok(Surroundings {
        cluster_api: find("cluster.x-k8s.io", "Machine"),
        rancher: find("provisioning.cattle.io", "Cluster"),
        kubevirt: find("kubevirt.io", "VirtualMachineInstance"),
        longhorn: find("longhorn.io", "Volume"),
        harvester: find("harvesterhci.io", "Upgrade"),
    })
}

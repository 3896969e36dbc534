//! Which kinds a Harvester-like cluster has: where each is served, which of its objects count, how its owner keeps its status, and loose definitions for a
//! cluster without the owners.

use afloat_api::foreign::rancher::{LOCAL_CLUSTER, LOCAL_NAMESPACE, PLAN_SECRET_TYPE};
use afloat_api::harvester::NAMESPACE;
use afloat_api::labels;
use afloat_core::hci::task::RANCHER_NAMESPACE;
use afloat_core::hci::view::HciKind;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceSubresourceStatus, CustomResourceSubresources,
};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::Value;

const HARVESTER: &str = "harvesterhci.io";

/// Where a kind is served.
pub struct Served {
    pub resource: ApiResource,
    pub namespace: Option<&'static str>,
    pub labels: Option<String>,
    pub fields: Option<String>,
}

impl Served {
    /// The API of its objects.
    pub fn api<K>(&self, client: &kube::Client) -> kube::Api<K>
    where
        K: kube::Resource<DynamicType = ApiResource, Scope = kube::core::DynamicResourceScope>,
    {
        match self.namespace {
            Some(namespace) => kube::Api::namespaced_with(client.clone(), namespace, &self.resource),
            None => kube::Api::all_with(client.clone(), &self.resource),
        }
    }
}

/// Where a kind is served, and which of its objects count.
pub fn served(kind: HciKind) -> Served {
    let (group, version, name, plural) = names(kind);
    let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, name), plural);
    let named = |name: &str| Some(format!("metadata.name={name}"));
    let (namespace, labels, fields) = match kind {
        HciKind::Cluster | HciKind::CapiCluster => (Some(LOCAL_NAMESPACE), None, named(LOCAL_CLUSTER)),
        HciKind::Machine | HciKind::Chart | HciKind::Bundle => (Some(LOCAL_NAMESPACE), None, None),
        HciKind::Plan => (
            Some(LOCAL_NAMESPACE),
            Some(labels::RANCHER_MACHINE.to_owned()),
            Some(format!("type={PLAN_SECRET_TYPE}")),
        ),
        HciKind::Job | HciKind::Service | HciKind::RestoreList => {
            (Some(NAMESPACE), Some(labels::HARVESTER_UPGRADE.to_owned()), None)
        }
        HciKind::Upstream => (Some(NAMESPACE), None, named("harvester")),
        HciKind::Server => (Some(RANCHER_NAMESPACE), None, None),
        HciKind::HelmRelease => (
            Some(RANCHER_NAMESPACE),
            Some("owner=helm,name=rancher".to_owned()),
            None,
        ),
        _ => (None, None, None),
    };
    Served {
        resource,
        namespace,
        labels,
        fields,
    }
}

/// Group, version, kind and plural.
pub fn names(kind: HciKind) -> (&'static str, &'static str, &'static str, &'static str) {
    match kind {
        HciKind::Upgrade => (HARVESTER, "v1beta1", "Upgrade", "upgrades"),
        HciKind::Version => (HARVESTER, "v1beta1", "Version", "versions"),
        HciKind::Setting => (HARVESTER, "v1beta1", "Setting", "settings"),
        HciKind::UpgradeLog => (HARVESTER, "v1beta1", "UpgradeLog", "upgradelogs"),
        HciKind::Image => (HARVESTER, "v1beta1", "VirtualMachineImage", "virtualmachineimages"),
        HciKind::Addon => (HARVESTER, "v1beta1", "Addon", "addons"),
        HciKind::Backup => (HARVESTER, "v1beta1", "VirtualMachineBackup", "virtualmachinebackups"),
        HciKind::Schedule => (HARVESTER, "v1beta1", "ScheduleVMBackup", "schedulevmbackups"),
        HciKind::Restore => (HARVESTER, "v1beta1", "VirtualMachineRestore", "virtualmachinerestores"),
        HciKind::Cluster => ("provisioning.cattle.io", "v1", "Cluster", "clusters"),
        HciKind::CapiCluster => ("cluster.x-k8s.io", "v1beta1", "Cluster", "clusters"),
        HciKind::Machine => ("cluster.x-k8s.io", "v1beta1", "Machine", "machines"),
        HciKind::Plan | HciKind::HelmRelease => ("", "v1", "Secret", "secrets"),
        HciKind::Chart => ("management.cattle.io", "v3", "ManagedChart", "managedcharts"),
        HciKind::Bundle => ("fleet.cattle.io", "v1alpha1", "Bundle", "bundles"),
        HciKind::Job => ("batch", "v1", "Job", "jobs"),
        HciKind::Service => ("", "v1", "Service", "services"),
        HciKind::RestoreList => ("", "v1", "ConfigMap", "configmaps"),
        HciKind::Vm => ("kubevirt.io", "v1", "VirtualMachine", "virtualmachines"),
        HciKind::Vmi => ("kubevirt.io", "v1", "VirtualMachineInstance", "virtualmachineinstances"),
        HciKind::Migration => (
            "kubevirt.io",
            "v1",
            "VirtualMachineInstanceMigration",
            "virtualmachineinstancemigrations",
        ),
        HciKind::Volume => ("longhorn.io", "v1beta2", "Volume", "volumes"),
        HciKind::Engine => ("longhorn.io", "v1beta2", "Engine", "engines"),
        HciKind::Attachment => ("longhorn.io", "v1beta2", "VolumeAttachment", "volumeattachments"),
        HciKind::LonghornSetting => ("longhorn.io", "v1beta2", "Setting", "settings"),
        HciKind::Upstream | HciKind::Server => ("apps", "v1", "Deployment", "deployments"),
    }
}

/// Kinds that every cluster serves: watched where the front door is, and only there.
pub fn built_in(kind: HciKind) -> bool {
    matches!(
        kind,
        HciKind::Plan
            | HciKind::Job
            | HciKind::Service
            | HciKind::RestoreList
            | HciKind::Upstream
            | HciKind::Server
            | HciKind::HelmRelease
    )
}

/// Whether its owner keeps the status of a kind apart: then whoever writes the rest leaves it as it is, and saying something makes no new
/// generation.
pub fn has_status(kind: HciKind) -> bool {
    matches!(
        kind,
        HciKind::Addon
            | HciKind::Cluster
            | HciKind::CapiCluster
            | HciKind::Machine
            | HciKind::Chart
            | HciKind::Bundle
            | HciKind::Vm
            | HciKind::Migration
            | HciKind::Volume
            | HciKind::Engine
            | HciKind::Attachment
            | HciKind::LonghornSetting
    )
}

/// Kinds that only a task looks at. A bundle holds a whole chart, and secrets of others are not for everybody.
pub fn for_tasks_alone(kind: HciKind) -> bool {
    matches!(kind, HciKind::Bundle | HciKind::HelmRelease)
}

/// Secrets: what they hold is none of our business, and is not even asked for.
pub fn is_secret(kind: HciKind) -> bool {
    matches!(kind, HciKind::Plan | HciKind::HelmRelease)
}

/// Definitions of the kinds that are neither built in nor ours, for a cluster that has not their owners: anything goes in them.
pub fn foreign_definitions() -> Vec<CustomResourceDefinition> {
    let ours: Vec<String> = afloat_api::crds::harvester()
        .into_iter()
        .map(|definition| definition.spec.names.plural)
        .collect();
    let foreign = HciKind::all().filter(|kind| {
        let (group, _, _, plural) = names(*kind);
        let is_ours = group == HARVESTER && ours.iter().any(|known| known == plural);
        !built_in(*kind) && !is_ours
    });
    foreign
        .map(|kind| {
            let (group, version, name, plural) = names(kind);
            let mut definition = afloat_api::crds::loose(group, version, name, plural);
            if has_status(kind) {
                for version in &mut definition.spec.versions {
                    version.subresources = Some(CustomResourceSubresources {
                        // An empty object: its default is null, which means none.
                        status: Some(CustomResourceSubresourceStatus(Value::Object(serde_json::Map::new()))),
                        ..CustomResourceSubresources::default()
                    });
                }
            }
            definition
        })
        .collect()
}

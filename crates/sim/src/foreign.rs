//! Kinds of a Harvester-like cluster that its simulated parts watch: where each is served. Objects of them are held without a type, since
//! upstream's are large and the actors look at a few fields.

use crate::request::Resource;
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};
use std::borrow::Cow;

/// A kind of somebody else's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Foreign {
    Secret,
    ProvisioningCluster,
    VirtualMachine,
    VirtualMachineInstance,
    Migration,
    Volume,
    Image,
    UpgradeLog,
}

impl Foreign {
    pub const ALL: &[Foreign] = &[
        Foreign::Secret,
        Foreign::ProvisioningCluster,
        Foreign::VirtualMachine,
        Foreign::VirtualMachineInstance,
        Foreign::Migration,
        Foreign::Volume,
        Foreign::Image,
        Foreign::UpgradeLog,
    ];

    /// `apiVersion`, kind and plural.
    fn names(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Secret => ("v1", "Secret", "secrets"),
            Self::ProvisioningCluster => ("provisioning.cattle.io/v1", "Cluster", "clusters"),
            Self::VirtualMachine => ("kubevirt.io/v1", "VirtualMachine", "virtualmachines"),
            Self::VirtualMachineInstance => ("kubevirt.io/v1", "VirtualMachineInstance", "virtualmachineinstances"),
            Self::Migration => (
                "kubevirt.io/v1",
                "VirtualMachineInstanceMigration",
                "virtualmachineinstancemigrations",
            ),
            Self::Volume => ("longhorn.io/v1beta2", "Volume", "volumes"),
            Self::Image => ("harvesterhci.io/v1beta1", "VirtualMachineImage", "virtualmachineimages"),
            Self::UpgradeLog => ("harvesterhci.io/v1beta1", "UpgradeLog", "upgradelogs"),
        }
    }

    pub fn type_meta(self) -> (&'static str, &'static str) {
        let (api_version, kind, _) = self.names();
        (api_version, kind)
    }

    fn group_version(self) -> (&'static str, &'static str) {
        let (api_version, ..) = self.names();
        api_version.split_once('/').unwrap_or(("", api_version))
    }

    pub fn resource(self) -> Resource {
        let ((group, version), (.., plural)) = (self.group_version(), self.names());
        Resource {
            group: Cow::Borrowed(group),
            version: Cow::Borrowed(version),
            plural: Cow::Borrowed(plural),
            namespaced: true,
        }
    }

    pub fn api_resource(self) -> ApiResource {
        let ((group, version), (_, kind, plural)) = (self.group_version(), self.names());
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural)
    }
}

/// A definition as loose as can be, for a kind that is not ours: group, version, kind, plural.
pub fn loose_definition(group: &str, version: &str, kind: &str, plural: &str) -> Value {
    let schema = json!({ "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("{plural}.{group}") },
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {
                "kind": kind, "plural": plural, "singular": kind.to_lowercase(), "listKind": format!("{kind}List"),
            },
            "versions": [{ "name": version, "served": true, "storage": true, "schema": schema }],
        },
    })
}

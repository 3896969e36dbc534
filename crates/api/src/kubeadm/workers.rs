//! `WorkersKubeadmUpgrade`: one group of workers, one at a time unless the budget of the upgrade allows more.

use kube_derive::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::GroupUpgradeStatus;
use crate::common::ObjectRef;
use crate::rules;

/// Which workers are upgraded, and to what.
#[derive(Clone, CustomResource, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[kube(
    group = "afloat.dev",
    version = "v1alpha1",
    kind = "WorkersKubeadmUpgrade",
    namespaced,
    status = "GroupUpgradeStatus",
    schema = "manual",
    derive = "PartialEq",
    shortname = "wku",
    category = "all",
    category = "afloat",
    crates(kube_core = "::kube_core"),
    printcolumn(name = "Cluster", type_ = "string", json_path = ".spec.cluster.name"),
    printcolumn(name = "Group", type_ = "string", json_path = ".spec.workers.name"),
    printcolumn(name = "To", type_ = "string", json_path = ".spec.kubeletVersion"),
    printcolumn(name = "Require", type_ = "integer", json_path = ".status.requireUpgrade"),
    printcolumn(name = "Upgraded", type_ = "integer", json_path = ".status.upgraded"),
    printcolumn(name = "Failed", type_ = "integer", json_path = ".status.failed"),
    printcolumn(name = "Ready", type_ = "boolean", json_path = ".status.ready"),
    printcolumn(name = "Now", type_ = "string", json_path = ".status.inFlight", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    crates(kube_core = "::kube_core"),
    validation = rules::kubelet_not_newer(),
    validation = rules::kubelet_not_too_old(),
    validation = rules::unchanged_optional("cluster", "cluster cannot change: create another WorkersKubeadmUpgrade for the other cluster"),
    validation = rules::unchanged_optional("workers", "workers cannot change: create another WorkersKubeadmUpgrade for the other group"),
    validation = Rule::new("!has(self.workers) || has(self.cluster)").message(
        "workers needs cluster: name the Cluster API cluster too, or leave workers out for the cluster the operator runs in",
    ),
    validation = rules::machine_kinds()
)]
pub struct WorkersKubeadmUpgradeSpec {
    /// The Cluster API cluster; absent for the cluster the operator runs in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<ObjectRef>,
    /// The object that owns the machines of the group, as a `MachineDeployment`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workers: Option<ObjectRef>,
    /// The machines that have to be upgraded: `Machine` objects of a cluster of Cluster API, `Node` objects of the cluster the
    /// operator runs in. A group of more than 1000 is spread over several objects.
    #[schemars(length(max = 1000))]
    #[x_kube(merge_strategy = ::kube_core::ListMerge::Map(vec!["name".into()]))]
    pub machines_require_upgrade: Vec<ObjectRef>,
    /// The version of the control plane, as `v1.36.3`.
    #[schemars(length(max = 64))]
    #[x_kube(
        validation = rules::version(),
        validation = rules::unchanged("kubernetesVersion cannot change: create another WorkersKubeadmUpgrade for the other version")
    )]
    pub kubernetes_version: String,
    /// The version of the kubelet to arrive at.
    #[schemars(length(max = 64))]
    #[x_kube(
        validation = rules::version(),
        validation = rules::unchanged("kubeletVersion cannot change: create another WorkersKubeadmUpgrade for the other version")
    )]
    pub kubelet_version: String,
    /// How many machines of the group may be upgraded at once, within the budget of the upgrade. 1 where left out.
    #[schemars(range(min = 1, max = 500))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_concurrent: Option<i32>,
    /// While true no further node starts. A node that has begun is finished.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
}

impl JsonSchema for WorkersKubeadmUpgrade {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "WorkersKubeadmUpgrade".into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        crate::schema::root_schema::<WorkersKubeadmUpgradeSpec, GroupUpgradeStatus>(
            generator,
            "Upgrades one group of workers in place, within the budget of the upgrade. The operator creates it; read it to see \
             how far the group is.",
            &[],
        )
    }
}

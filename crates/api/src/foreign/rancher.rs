//! Rancher's provisioning: the cluster object that is patched, and the plan secrets through which Rancher asks whether a node
//! may be drained and whether the work after the drain is done.

use k8s_openapi::api::core::v1::Secret;
use serde::Deserialize;
use serde_json::Value;

use crate::harvester::HarvesterCondition;
use crate::resource::foreign_kind;
use crate::{annotations, labels};

/// Namespace of the local cluster and its plan secrets.
pub const LOCAL_NAMESPACE: &str = "fleet-local";
/// Name of the local cluster.
pub const LOCAL_CLUSTER: &str = "local";
/// Type of a plan secret.
pub const PLAN_SECRET_TYPE: &str = "rke.cattle.io/machine-plan";

foreign_kind! {
    /// A cluster that Rancher provisions; `fleet-local/local` is the one it runs in.
    Cluster in "provisioning.cattle.io" / "v1", "clusters", NamespaceResourceScope, spec: ClusterSpec, status: ClusterStatus
}

foreign_kind! {
    /// Rancher's view of the control plane of a cluster.
    #[allow(clippy::upper_case_acronyms)]
    RKEControlPlane in "rke.cattle.io" / "v1", "rkecontrolplanes", NamespaceResourceScope, spec: RkeControlPlaneSpec, status: RkeControlPlaneStatus
}

/// What is asked for of a cluster.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default, rename_all = "camelCase")]
pub struct ClusterSpec {
    /// Version of RKE2.
    pub kubernetes_version: String,
    /// How it is rolled out; kept as it is, because what is not read has to stay.
    pub rke_config: Option<RkeConfig>,
}

/// How RKE2 is rolled out.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default, rename_all = "camelCase")]
pub struct RkeConfig {
    /// Raised to have the configuration rolled out once more.
    pub provision_generation: i64,
    /// In which way.
    pub upgrade_strategy: UpgradeStrategy,
}

/// In which way RKE2 is rolled out.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default, rename_all = "camelCase")]
pub struct UpgradeStrategy {
    /// Control planes at once.
    pub control_plane_concurrency: String,
    /// How control planes are drained.
    pub control_plane_drain_options: DrainOptions,
    /// Workers at once.
    pub worker_concurrency: String,
    /// How workers are drained.
    pub worker_drain_options: DrainOptions,
}

/// How nodes are drained, and who is asked before and after.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default, rename_all = "camelCase")]
pub struct DrainOptions {
    /// Whether at all.
    pub enabled: bool,
    /// Annotations that must answer before the drain.
    pub pre_drain_hooks: Vec<DrainHook>,
    /// Annotations that must answer after the drain.
    pub post_drain_hooks: Vec<DrainHook>,
}

/// An annotation that must answer.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(default)]
pub struct DrainHook {
    /// Its key.
    pub annotation: String,
}

/// What is true of a cluster.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default, rename_all = "camelCase")]
pub struct ClusterStatus {
    /// Whether it can be used.
    pub ready: bool,
    /// Generation that was seen.
    pub observed_generation: i64,
    /// Conditions, in Rancher's older form.
    pub conditions: Vec<HarvesterCondition>,
}

/// What is asked for of a control plane.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default, rename_all = "camelCase")]
pub struct RkeControlPlaneSpec {
    /// Version of RKE2.
    pub kubernetes_version: String,
    /// Cluster it belongs to.
    pub cluster_name: String,
}

/// What is true of a control plane.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default, rename_all = "camelCase")]
pub struct RkeControlPlaneStatus {
    /// Plan that was applied last, by machine; looked at for its presence only.
    pub applied_spec: Option<Value>,
    /// Conditions, in Rancher's older form.
    pub conditions: Vec<HarvesterCondition>,
}

/// What a plan secret says: what Rancher asks, and what was answered. An answer is the question's value copied.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct MachinePlan {
    /// Name of the Machine.
    pub machine: String,
    /// Rancher's question before the drain.
    pub pre_drain: Option<String>,
    /// Rancher's question after the drain.
    pub post_drain: Option<String>,
    /// The answer before the drain.
    pub pre_hook: Option<String>,
    /// The answer after the drain.
    pub post_hook: Option<String>,
}

impl MachinePlan {
    /// Reads a secret; `None` where it is not a plan or names no machine. What the plan contains (its data) is never read.
    pub fn from_secret(secret: &Secret) -> Option<Self> {
        if secret.type_.as_deref() != Some(PLAN_SECRET_TYPE) {
            return None;
        }
        let machine = secret.metadata.labels.as_ref()?.get(labels::RANCHER_MACHINE)?.clone();
        let value = |key: &str| {
            let annotations = secret.metadata.annotations.as_ref()?;
            annotations.get(key).filter(|value| !value.is_empty()).cloned()
        };
        Some(Self {
            machine,
            pre_drain: value(annotations::RANCHER_PRE_DRAIN),
            post_drain: value(annotations::RANCHER_POST_DRAIN),
            pre_hook: value(annotations::HARVESTER_PRE_HOOK),
            post_hook: value(annotations::HARVESTER_POST_HOOK),
        })
    }

    /// Whether Rancher waits for an answer before the drain.
    pub fn asks_pre_drain(&self) -> bool {
        self.pre_drain.is_some() && self.pre_drain != self.pre_hook
    }

    /// Whether Rancher waits for an answer after the drain.
    pub fn asks_post_drain(&self) -> bool {
        self.post_drain.is_some() && self.post_drain != self.post_hook
    }
}

//! The choices a person has within a `ClusterUpgrade`: pauses, preloading, drain, budget, window. Words that Harvester's
//! `upgrade-config` setting also has are spelled as there; the strictness is ours: what would be ignored there is refused here.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube_derive::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{Display, EnumIter, EnumString, IntoStaticStr};

/// How the control plane is taken.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ControlPlaneOption {
    /// How the parts of a control-plane node change. The operator chooses where left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<ControlPlaneMethod>,
    /// What add-ons and workers wait for. `AllNodes` where left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proceed_after: Option<ProceedAfter>,
}

/// How the parts of a control-plane node change.
#[derive(
    Clone, Copy, Debug, Deserialize, Display, EnumIter, EnumString, Eq, IntoStaticStr, JsonSchema, PartialEq, Serialize,
)]
pub enum ControlPlaneMethod {
    /// All parts are ended in order, swapped at once and started once. Shortest.
    Swift,
    /// kubeadm upgrades the parts one by one.
    Conservative,
}

/// What add-ons and workers wait for.
#[derive(
    Clone, Copy, Debug, Deserialize, Display, EnumIter, EnumString, Eq, IntoStaticStr, JsonSchema, PartialEq, Serialize,
)]
pub enum ProceedAfter {
    /// The whole control plane is at the target and healthy.
    AllNodes,
    /// One control-plane node is at the target and healthy.
    FirstNode,
}

/// How workers are taken.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkersOption {
    /// Whether workers stop at every minor version, with a disruption for each. Otherwise they take up to three minor
    /// versions in one disruption, as the skew policy of Kubernetes allows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every_minor: Option<bool>,
}

/// A condition of your own: every object that is selected must meet it before another node starts.
#[derive(Clone, Debug, Default, Deserialize, Eq, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(crates(kube_core = "::kube_core"))]
pub struct Gate {
    /// Name of the gate, as it is shown where it is waited for.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// Group and version of the objects, as `apps/v1`.
    #[schemars(length(min = 1, max = 317))]
    pub api_version: String,
    /// Kind of the objects.
    #[schemars(length(min = 1, max = 63))]
    pub kind: String,
    /// Namespace of the objects; all where left out.
    #[schemars(length(min = 1, max = 63))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Labels of the objects, as `app=shop,tier!=cache`; all objects where left out.
    #[schemars(length(min = 1, max = 512))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<String>,
    /// CEL expression on `object` that is true when the gate is open, as `object.status.ready == true`.
    #[schemars(length(min = 1, max = 1024))]
    pub expression: String,
}

/// Which nodes wait for a person before they are disrupted.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub struct NodeUpgradeOption {
    /// The choice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strategy: Option<NodeUpgradeStrategy>,
}

/// Which nodes wait for a person before they are disrupted.
#[derive(Clone, Debug, Default, Deserialize, Eq, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    crates(kube_core = "::kube_core"),
    validation = Rule::new("!has(self.pauseNodes) || self.pauseNodes.size() == 0 || (has(self.mode) && self.mode == 'manual')").message(
        "pauseNodes needs mode: manual: write mode: manual, or leave pauseNodes out",
    )
)]
pub struct NodeUpgradeStrategy {
    /// Whether nodes wait. `auto` where left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<NodeUpgradeMode>,
    /// The nodes that wait; all of them where `mode: manual` comes without names.
    #[schemars(length(max = 500), inner(length(min = 1, max = 253)))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ::kube_core::ListMerge::Set)]
    pub pause_nodes: Vec<String>,
}

/// Whether nodes wait for a person.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    Deserialize,
    Display,
    EnumIter,
    EnumString,
    Eq,
    IntoStaticStr,
    JsonSchema,
    PartialEq,
    Serialize,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum NodeUpgradeMode {
    /// Every node goes on by itself.
    #[default]
    Auto,
    /// The named nodes wait; all where none is named.
    Manual,
}

/// How images are brought to the nodes before the first of them is disrupted.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub struct ImagePreloadOption {
    /// The choice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strategy: Option<ImagePreloadStrategy>,
}

/// How images are brought to the nodes.
#[derive(Clone, Debug, Default, Deserialize, Eq, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    crates(kube_core = "::kube_core"),
    validation = Rule::new("!has(self.concurrency) || self.type == 'parallel'").message(
        "concurrency needs type: parallel: write type: parallel, or leave concurrency out",
    )
)]
pub struct ImagePreloadStrategy {
    /// One node after the other, several at once, or not at all.
    #[serde(rename = "type")]
    pub kind: ImagePreloadType,
    /// With `type: parallel`, how many nodes pull at once; all of them where left out or 0.
    #[schemars(range(min = 0, max = 5000))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<i32>,
}

/// One node after the other, several at once, or not at all.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    Deserialize,
    Display,
    EnumIter,
    EnumString,
    Eq,
    IntoStaticStr,
    JsonSchema,
    PartialEq,
    Serialize,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum ImagePreloadType {
    /// Nothing waits for it: each node gets its files and images before its own turn, one of a group after the other.
    Skip,
    /// One node of the cluster at a time, all before the first is disrupted.
    #[default]
    Sequential,
    /// Several nodes at once, as many as `concurrency` says or all, before the first is disrupted.
    Parallel,
}

/// How nodes are drained.
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(crates(kube_core = "::kube_core"))]
pub struct DrainOption {
    /// How long the drain of one node may take. 30 minutes where left out.
    #[schemars(range(min = 1, max = 604_800))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<i32>,
    /// What happens when the time is over. `Fail` where left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_timeout: Option<OnDrainTimeout>,
    /// How long a pod has to end; its own choice where left out.
    #[schemars(range(min = 0, max = 86400))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace_period_seconds: Option<i32>,
    /// Whether pods with data in an `emptyDir` may be evicted; the data is lost. Otherwise they are named in the preflight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delete_empty_dir_data: Option<bool>,
    /// Whether pods that no controller would bring back may be evicted; they are gone. Otherwise they are named in the preflight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evict_unmanaged_pods: Option<bool>,
    /// Pod disruption budgets that need not be respected during this upgrade, each until a moment.
    #[schemars(length(max = 32))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ::kube_core::ListMerge::Map(vec!["namespace".into(), "name".into()]))]
    pub override_budgets: Vec<BudgetOverride>,
}

/// What happens when the time of a drain is over.
#[derive(
    Clone, Copy, Debug, Deserialize, Display, EnumIter, EnumString, Eq, IntoStaticStr, JsonSchema, PartialEq, Serialize,
)]
pub enum OnDrainTimeout {
    /// The node is put back as it was and counts as failed.
    Fail,
    /// The node is put back as it was and taken last.
    Defer,
}

/// A pod disruption budget that need not be respected, until a moment.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct BudgetOverride {
    /// Namespace of the budget.
    #[schemars(length(min = 1, max = 63))]
    pub namespace: String,
    /// Name of the budget.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// From this moment on the budget is respected again.
    pub until: Time,
    /// Why, for whoever reads the report.
    #[schemars(length(min = 1, max = 512))]
    pub because: String,
}

/// How many nodes may be out of service, and how many may fail.
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(crates(kube_core = "::kube_core"))]
pub struct Budget {
    /// How many workers may be out of service at once, as a number or as a share of all workers (rounded down, at least
    /// one). Those already broken count. 1 where left out. Control planes always go one by one.
    #[schemars(schema_with = "crate::schema::int_or_percent")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("string(self).matches('^([1-9][0-9]*|([1-9][0-9]?|100)%)$')").message(
        "maxUnavailable is a number from 1 up, or a share from \"1%\" to \"100%\"",
    ))]
    pub max_unavailable: Option<IntOrString>,
    /// How many workers may be out of service at once within one failure domain.
    #[schemars(range(min = 1, max = 5000))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_failure_domain: Option<i32>,
    /// Label of the Node that names its failure domain. `topology.kubernetes.io/zone` where left out.
    #[schemars(length(min = 1, max = 317))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_domain_label: Option<String>,
    /// How many workers may fail and be set aside before the upgrade stops. 0 where left out. A control-plane node that
    /// fails always stops it.
    #[schemars(range(min = 0, max = 5000))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_failed: Option<i32>,
}

/// When nodes may be disrupted: on these days, from this time, for so long.
#[derive(Clone, Debug, Default, Deserialize, Eq, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(crates(kube_core = "::kube_core"))]
pub struct Window {
    /// The days on which a window begins; every day where left out.
    #[schemars(length(max = 7))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ::kube_core::ListMerge::Set)]
    pub days: Vec<Day>,
    /// When it begins, as `22:30`.
    #[schemars(length(max = 5))]
    #[x_kube(validation = Rule::new("self.matches('^([01][0-9]|2[0-3]):[0-5][0-9]$')").message(
        "write the start as hours and minutes of a day, as in \"22:30\"",
    ))]
    pub start: String,
    /// How long it lasts; it may reach into the next day.
    #[schemars(range(min = 5, max = 1440))]
    pub duration_minutes: i32,
    /// Whose clock counts, as `Europe/Berlin`; UTC where left out.
    #[schemars(length(min = 1, max = 64))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("self.matches('^[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+)*$')").message(
        "write the time zone by its IANA name, as in Europe/Berlin or UTC",
    ))]
    pub time_zone: Option<String>,
}

/// A day of the week.
#[derive(
    Clone,
    Copy,
    Debug,
    Deserialize,
    Display,
    EnumIter,
    EnumString,
    Eq,
    IntoStaticStr,
    JsonSchema,
    Ord,
    PartialEq,
    PartialOrd,
    Serialize,
)]
#[allow(missing_docs)]
pub enum Day {
    Mon,
    Tue,
    Wed,
    Thu,
    Fri,
    Sat,
    Sun,
}

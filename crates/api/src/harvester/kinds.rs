//! The four kinds of the front door with the fields upstream gives them. Unlike other foreign kinds they are written by us as
//! well (the dialog creates an `Upgrade`), and their schema keeps fields it does not know: nothing of a newer release is lost.
//! Their CRDs come from [`crate::crds::harvester`]; the derived `crd()` has no schema and is of no use.

use std::collections::BTreeMap;

use kube_derive::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::rules;

/// Group of the front door.
pub const GROUP: &str = "harvesterhci.io";
/// Version of the front door.
pub const VERSION: &str = "v1beta1";

/// What Harvester is to be upgraded to, and from where.
#[derive(Clone, CustomResource, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[kube(
    group = "harvesterhci.io",
    version = "v1beta1",
    kind = "Upgrade",
    plural = "upgrades",
    namespaced,
    status = "UpgradeStatus",
    schema = "disabled",
    derive = "PartialEq",
    crates(kube_core = "::kube_core")
)]
#[serde(rename_all = "camelCase")]
pub struct UpgradeSpec {
    /// Name of a Version in the same namespace; used where `image` is empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// `namespace/name` of a VirtualMachineImage that holds the ISO.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub image: String,
    /// Whether logs of the upgrade are collected.
    #[serde(default = "yes")]
    pub log_enabled: bool,
    /// Image to upgrade with in place of the release's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upgrade_image: Option<String>,
}

fn yes() -> bool {
    true
}

/// How far the upgrade of Harvester is.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UpgradeStatus {
    /// Release before the upgrade.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub previous_version: String,
    /// `namespace/name` of the image in use.
    #[serde(default, rename = "imageID", skip_serializing_if = "String::is_empty")]
    pub image_id: String,
    /// What the repository says about the release, as YAML.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub repo_info: String,
    /// Name of the node where there is exactly one, else empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub single_node: String,
    /// Where each node is.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_statuses: BTreeMap<String, NodeUpgradeStatus>,
    /// Conditions of the upgrade.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<HarvesterCondition>,
    /// Name of the UpgradeLog; empty once a person has dismissed it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub upgrade_log: String,
}

/// Where a node is.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub struct NodeUpgradeStatus {
    /// A word of [`super::HarvesterNodeState`]; a string here, because other writers may have words of their own.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub state: String,
    /// Why, in a word.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Why, in a sentence.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// A condition as Harvester writes it: older than `metav1.Condition`, all but type and status may be absent.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HarvesterCondition {
    /// What it is about.
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// Why, in a word.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Why, in a sentence.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// When it was last written.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub last_update_time: String,
    /// When its status last changed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub last_transition_time: String,
}

/// A release that can be upgraded to.
#[derive(Clone, CustomResource, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[kube(
    group = "harvesterhci.io",
    version = "v1beta1",
    kind = "Version",
    plural = "versions",
    namespaced,
    schema = "disabled",
    derive = "PartialEq",
    crates(kube_core = "::kube_core")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(crates(kube_core = "::kube_core"))]
pub struct VersionSpec {
    /// Where the ISO is.
    #[serde(rename = "isoURL")]
    pub iso_url: String,
    /// SHA-512 of the ISO; empty where it is not known.
    #[schemars(length(max = 256))]
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[x_kube(validation = Rule::new("self.matches('^([0-9a-f]{128})?$')").message(
        "write isoChecksum as the SHA-512 of the ISO in 128 lower-case hexadecimal digits, or leave it empty",
    ))]
    pub iso_checksum: String,
    /// When it was released.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub release_date: String,
    /// The oldest release it can be reached from.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub min_upgradable_version: String,
    /// Words about it, as `dev`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
}

/// A setting of Harvester; its fields sit beside `metadata`, there is no `spec`.
#[derive(Clone, CustomResource, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[kube(
    group = "harvesterhci.io",
    version = "v1beta1",
    kind = "Setting",
    plural = "settings",
    no_spec,
    status = "SettingStatus",
    schema = "disabled",
    derive = "PartialEq",
    crates(kube_core = "::kube_core")
)]
#[serde(rename_all = "camelCase")]
pub struct SettingFields {
    /// What a person set; it replaces the default as a whole.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub value: String,
    /// What counts where `value` is empty.
    #[serde(default, rename = "default", skip_serializing_if = "String::is_empty")]
    pub default_value: String,
    /// Whether the value is not the default.
    #[serde(default)]
    pub customized: bool,
    /// Where the value comes from; `env` where it is not to be changed here.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub source: String,
}

impl SettingFields {
    /// The value that counts.
    pub fn effective(&self) -> &str {
        if self.value.is_empty() {
            &self.default_value
        } else {
            &self.value
        }
    }
}

/// What Harvester says about a setting.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct SettingStatus {
    /// Conditions of the setting.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<HarvesterCondition>,
}

/// The logs of one upgrade.
#[derive(Clone, CustomResource, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[kube(
    group = "harvesterhci.io",
    version = "v1beta1",
    kind = "UpgradeLog",
    plural = "upgradelogs",
    namespaced,
    status = "UpgradeLogStatus",
    schema = "disabled",
    derive = "PartialEq",
    crates(kube_core = "::kube_core")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(crates(kube_core = "::kube_core"))]
pub struct UpgradeLogSpec {
    /// Name of the Upgrade.
    #[schemars(length(max = 253))]
    #[x_kube(validation = rules::unchanged("upgradeName cannot change: create another UpgradeLog for the other Upgrade"))]
    pub upgrade_name: String,
}

/// How far the collecting of logs is.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct UpgradeLogStatus {
    /// Archives that were made, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub archives: BTreeMap<String, UpgradeLogArchive>,
    /// Conditions of the collecting.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<HarvesterCondition>,
}

/// One archive of logs.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UpgradeLogArchive {
    /// Its size in bytes.
    #[serde(default)]
    pub size: i64,
    /// When it was made.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub generated_time: String,
    /// Whether it can be downloaded.
    #[serde(default)]
    pub ready: bool,
    /// Why not, in a sentence.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

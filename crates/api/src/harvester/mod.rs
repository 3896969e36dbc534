//! Harvester's front door: the kinds, words and setting that existing manifests, scripts and the UI know, exactly as they
//! are spelled there. There is no status subresource here, as upstream: spec, labels and status are written with the object.
//! What Afloat makes of them is not here.

mod kinds;
mod upgrade_config;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{Display, EnumIter, EnumString, IntoStaticStr};

pub use kinds::*;
pub use upgrade_config::*;

/// Namespace of the front door's objects.
pub const NAMESPACE: &str = "harvester-system";
/// Finalizer of the controller that upstream runs; an object with it was theirs first.
pub const UPSTREAM_FINALIZER: &str = "wrangler.cattle.io/harvester-upgrade-controller";

/// Condition types of an `Upgrade`. Absent means not started, `Unknown` means running.
#[derive(Clone, Copy, Debug, Display, EnumIter, EnumString, Eq, IntoStaticStr, Ord, PartialEq, PartialOrd)]
pub enum UpgradeCondition {
    /// The upgrade as a whole.
    Completed,
    /// Logs are collected.
    LogReady,
    /// The ISO is imported.
    ImageReady,
    /// The repository serves.
    RepoReady,
    /// Images are on the nodes.
    NodesPrepared,
    /// Rancher, charts and addons are at the target.
    SystemServicesUpgraded,
    /// Every node is at the target.
    NodesUpgraded,
}

impl UpgradeCondition {
    /// Whether `False` here fails the upgrade as a whole: upstream counts these four and no other.
    pub fn fails_the_upgrade(self) -> bool {
        matches!(
            self,
            Self::ImageReady | Self::RepoReady | Self::SystemServicesUpgraded | Self::NodesUpgraded
        )
    }
}

/// Values of the label `harvesterhci.io/upgradeState`, in their order.
#[derive(Clone, Copy, Debug, Display, EnumIter, EnumString, Eq, IntoStaticStr, Ord, PartialEq, PartialOrd)]
#[allow(missing_docs)]
pub enum UpgradeState {
    PreparingLoggingInfra,
    LoggingInfraPrepared,
    PreparingRepo,
    RepoPrepared,
    PreparingNodes,
    UpgradingSystemServices,
    UpgradingNodes,
    Succeeded,
    Failed,
}

/// Values of `status.nodeStatuses[node].state`, with the spaces they have upstream.
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
pub enum HarvesterNodeState {
    #[strum(serialize = "Images preloading")]
    #[serde(rename = "Images preloading")]
    ImagesPreloading,
    #[strum(serialize = "Images preloaded")]
    #[serde(rename = "Images preloaded")]
    ImagesPreloaded,
    #[strum(serialize = "Node-upgrade paused")]
    #[serde(rename = "Node-upgrade paused")]
    Paused,
    #[strum(serialize = "Pre-draining")]
    #[serde(rename = "Pre-draining")]
    PreDraining,
    #[strum(serialize = "Pre-drained")]
    #[serde(rename = "Pre-drained")]
    PreDrained,
    #[strum(serialize = "Post-draining")]
    #[serde(rename = "Post-draining")]
    PostDraining,
    #[strum(serialize = "Waiting Reboot")]
    #[serde(rename = "Waiting Reboot")]
    WaitingReboot,
    Succeeded,
    Failed,
}

/// `reason` of a node that is [`HarvesterNodeState::Paused`].
pub const PAUSED_REASON: &str = "AdministrativelyPaused";
/// `message` of a node that is [`HarvesterNodeState::Paused`].
pub const PAUSED_MESSAGE: &str = "Node upgrade paused as requested by the user";

/// Values of the label `harvesterhci.io/upgradeComponent`.
#[derive(Clone, Copy, Debug, Display, EnumIter, EnumString, Eq, IntoStaticStr, Ord, PartialEq, PartialOrd)]
#[strum(serialize_all = "kebab-case")]
#[allow(missing_docs)]
pub enum UpgradeComponent {
    Node,
    Manifest,
    Cleanup,
    Repo,
    #[strum(serialize = "apply-skip-rke2-manifests")]
    ApplySkipRke2Manifests,
    #[strum(serialize = "remove-skip-rke2-manifests")]
    RemoveSkipRke2Manifests,
}

/// Values in the pause map annotation of an `Upgrade`.
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
    Ord,
    PartialEq,
    PartialOrd,
    Serialize,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum PauseMapValue {
    /// The node waits.
    Pause,
    /// The node goes on.
    Unpause,
}

#[cfg(test)]
mod tests {
    use super::*;
    use strum::IntoEnumIterator;

    #[test]
    fn h41_states_of_the_label_are_those_of_the_contract_in_order() {
        let words: Vec<String> = UpgradeState::iter().map(|state| state.to_string()).collect();
        let contract = "PreparingLoggingInfra LoggingInfraPrepared PreparingRepo RepoPrepared PreparingNodes \
                        UpgradingSystemServices UpgradingNodes Succeeded Failed";
        assert_eq!(words.join(" "), contract);
    }

    #[test]
    fn node_states_are_spelled_as_scripts_expect_them() {
        for state in HarvesterNodeState::iter() {
            let written = serde_json::to_value(state).unwrap();
            assert_eq!(written, serde_json::json!(state.to_string()), "serde and strum differ");
        }
        assert_eq!(HarvesterNodeState::Paused.to_string(), "Node-upgrade paused");
        assert_eq!(HarvesterNodeState::WaitingReboot.to_string(), "Waiting Reboot");
    }

    #[test]
    fn only_four_conditions_fail_an_upgrade() {
        use UpgradeCondition::{ImageReady, NodesUpgraded, RepoReady, SystemServicesUpgraded};
        let failing: Vec<_> = UpgradeCondition::iter().filter(|one| one.fails_the_upgrade()).collect();
        assert_eq!(failing, [ImageReady, RepoReady, SystemServicesUpgraded, NodesUpgraded]);
    }
}

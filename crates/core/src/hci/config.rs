//! What a person asked for through the setting and the annotations, read once per turn: the setting as it was when the upgrade
//! started, the map of pauses, and the words by which checks are skipped. Bad words are told, not guessed at.

use std::collections::BTreeMap;

use afloat_api::harvester::{PauseMapValue, Upgrade, UpgradeConfig, UpgradeConfigError};
use afloat_api::{annotations, harvester};

use crate::view::View;

/// On an Upgrade: the setting `upgrade-config` as it was when the upgrade started.
pub const CONFIG_AS_STARTED: &str = "afloat.dev/upgrade-config";
/// On an Upgrade: the map of pauses as it was last carried over to the nodes.
pub const PAUSES_APPLIED: &str = "afloat.dev/pause-map-applied";
/// On an Upgrade, by a person: `true` ends it.
pub const ABORT: &str = "afloat.dev/abort";
/// On an Upgrade, by a person: where the release is served, in place of a repository in the cluster.
pub const REPO_URL: &str = "afloat.dev/repo-url";
/// On an Upgrade: the checks that were skipped because annotations asked for it.
pub const SKIPPED: &str = "afloat.dev/skipped-checks";

/// Node by node, `pause` or `unpause`.
pub type PauseMap = BTreeMap<String, PauseMapValue>;

/// Why an annotation cannot be followed.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum AnnotationError {
    #[error("{key} is {value:?}: write true or false")]
    NotABool { key: &'static str, value: String },
    #[error("{key} is {value:?}: write a number of days from 1 up")]
    NotDays { key: &'static str, value: String },
    #[error("{key} is {value:?}: write a number of minutes from 1 to 10080")]
    NotMinutes { key: &'static str, value: String },
    #[error("harvesterhci.io/node-upgrade-pause-map is no JSON map from node to \"pause\" or \"unpause\": {0}")]
    PauseMap(String),
    #[error("harvesterhci.io/node-upgrade-pause-map names {0:?}, and there is no such node")]
    UnknownNode(String),
    #[error("afloat.dev/repo-url is {0:?}: write an http:// address without a query")]
    RepoUrl(String),
}

/// A value of an annotation of an Upgrade.
pub fn annotation<'a>(upgrade: &'a Upgrade, key: &str) -> Option<&'a str> {
    upgrade.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

/// A value of a label of an Upgrade.
pub fn label<'a>(upgrade: &'a Upgrade, key: &str) -> Option<&'a str> {
    upgrade.metadata.labels.as_ref()?.get(key).map(String::as_str)
}

/// The map of pauses; empty where there is none.
pub fn pause_map(upgrade: &Upgrade) -> Result<PauseMap, AnnotationError> {
    read_map(annotation(upgrade, annotations::HARVESTER_PAUSE_MAP))
}

/// The map as it was last carried over; a text of somebody else counts as none.
pub fn pauses_applied(upgrade: &Upgrade) -> PauseMap {
    read_map(annotation(upgrade, PAUSES_APPLIED)).unwrap_or_default()
}

fn read_map(text: Option<&str>) -> Result<PauseMap, AnnotationError> {
    let Some(text) = text else {
        return Ok(PauseMap::new());
    };
    serde_json::from_str(text).map_err(|error| AnnotationError::PauseMap(error.to_string()))
}

/// A map as an annotation holds it.
pub fn written(map: &PauseMap) -> String {
    let words: BTreeMap<&str, String> = map
        .iter()
        .map(|(node, value)| (node.as_str(), value.to_string()))
        .collect();
    serde_json::json!(words).to_string()
}

/// The setting that counts for an upgrade: as it was when it started, or as it is now where it has not.
pub fn config(view: &View, upgrade: &Upgrade) -> Result<UpgradeConfig, UpgradeConfigError> {
    let text = annotation(upgrade, CONFIG_AS_STARTED).unwrap_or_else(|| view.hci.setting(harvester::UPGRADE_CONFIG));
    UpgradeConfig::parse(text)
}

/// A yes or no on an Upgrade; absent is no.
pub fn flag(upgrade: &Upgrade, key: &'static str) -> Result<bool, AnnotationError> {
    match annotation(upgrade, key) {
        None => Ok(false),
        Some(text) => match text.to_ascii_lowercase().as_str() {
            "true" | "1" | "t" => Ok(true),
            "false" | "0" | "f" => Ok(false),
            _ => Err(AnnotationError::NotABool {
                key,
                value: text.to_owned(),
            }),
        },
    }
}

/// Which checks a person switched off. Where upstream takes any text for yes, the text decides here.
#[allow(clippy::struct_excessive_bools, reason = "each is an annotation of its own")]
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Skips {
    pub webhook: bool,
    pub version: bool,
    pub single_replica: bool,
    /// Of how full disks are: there is no such check here, and whoever switches it off is told.
    pub disk: bool,
    pub node_join: bool,
}

impl Skips {
    /// Reads them; the first word that cannot be followed is told.
    pub fn read(upgrade: &Upgrade) -> Result<Self, AnnotationError> {
        Ok(Self {
            webhook: flag(upgrade, annotations::HARVESTER_SKIP_WEBHOOK)?,
            version: flag(upgrade, annotations::HARVESTER_SKIP_VERSION_CHECK)?,
            single_replica: flag(upgrade, annotations::HARVESTER_SKIP_SINGLE_REPLICA)?,
            disk: flag(upgrade, annotations::HARVESTER_SKIP_DISK_CHECK)?,
            node_join: flag(upgrade, annotations::HARVESTER_ALLOW_NODE_JOIN)?,
        })
    }

    /// What is written down about them.
    pub fn recorded(self) -> String {
        let words = [
            (self.webhook, "every check of the webhook"),
            (self.version, "the check of versions"),
            (self.single_replica, "detached volumes with one replica"),
            (self.node_join, "nodes may join meanwhile"),
        ];
        let said: Vec<&str> = words.iter().filter(|(on, _)| *on).map(|(_, word)| *word).collect();
        said.join(", ")
    }
}

/// Whether virtual machines come back to the nodes they were moved from (H22).
pub fn migrate_back(upgrade: &Upgrade) -> Result<bool, AnnotationError> {
    flag(upgrade, annotations::MIGRATE_BACK)
}

/// How many days certificates must still be valid.
pub fn certificate_days(upgrade: &Upgrade) -> Result<u32, AnnotationError> {
    let key = annotations::HARVESTER_MIN_CERTS_DAYS;
    match annotation(upgrade, key) {
        None => Ok(7),
        Some(text) => text
            .parse()
            .ok()
            .filter(|days| *days > 0)
            .ok_or_else(|| AnnotationError::NotDays {
                key,
                value: text.to_owned(),
            }),
    }
}

/// How long a node may be kept from its turn where nobody says otherwise: large volumes are rebuilt for hours.
const WAIT_MINUTES: i64 = 240;
/// After how long Rancher's drain, and its RKE2, are overdue where nobody says otherwise.
const DRAIN_MINUTES: i64 = 60;

/// How many minutes a node may be kept from its turn.
pub fn wait_minutes(upgrade: &Upgrade) -> Result<i64, AnnotationError> {
    minutes(upgrade, annotations::WAIT_MINUTES, WAIT_MINUTES)
}

/// After how many minutes a drain is overdue.
pub fn drain_minutes(upgrade: &Upgrade) -> Result<i64, AnnotationError> {
    minutes(upgrade, annotations::DRAIN_MINUTES, DRAIN_MINUTES)
}

fn minutes(upgrade: &Upgrade, key: &'static str, default: i64) -> Result<i64, AnnotationError> {
    match annotation(upgrade, key) {
        None => Ok(default),
        Some(text) => text
            .parse()
            .ok()
            .filter(|minutes| (1..=7 * 24 * 60).contains(minutes))
            .ok_or_else(|| AnnotationError::NotMinutes {
                key,
                value: text.to_owned(),
            }),
    }
}

/// Where the release is served, for an upgrade without a repository of its own.
pub fn repo_url(upgrade: &Upgrade) -> Result<Option<&str>, AnnotationError> {
    match annotation(upgrade, REPO_URL) {
        None => Ok(None),
        Some(url) => {
            let host = url
                .strip_prefix("http://")
                .filter(|rest| !rest.is_empty() && !rest.starts_with('/') && !rest.contains(['?', '#', ' ', '@']));
            host.map(|_| Some(url.trim_end_matches('/')))
                .ok_or_else(|| AnnotationError::RepoUrl(url.to_owned()))
        }
    }
}

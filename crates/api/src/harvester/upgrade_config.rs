//! The value of the setting `upgrade-config`: how it is read, and what is wrong with it. Whether the named nodes exist is for
//! whoever sees the nodes to say.

use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

use crate::clusterupgrade::{ImagePreloadType, NodeUpgradeMode};

/// Name of the setting.
pub const UPGRADE_CONFIG: &str = "upgrade-config";

/// Name of the setting that says which release runs; Harvester writes it when it starts.
pub const SERVER_VERSION: &str = "server-version";

/// What counts where nobody set anything.
pub const UPGRADE_CONFIG_DEFAULT: &str = r#"{"imagePreloadOption":{"strategy":{"type":"sequential"}},"nodeUpgradeOption":{"strategy":{"mode":"auto"}},"restoreVM":false,"logReadyTimeout":"5"}"#;

/// How upgrades are done, read once when an upgrade starts.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct UpgradeConfig {
    /// How images are brought to the nodes.
    pub preload: ImagePreload,
    /// Which nodes wait for a person.
    pub pause: NodePause,
    /// Whether virtual machines that had to be stopped are started again.
    pub restore_vm: bool,
    /// How many minutes the collecting of logs may take to get ready.
    pub log_ready_minutes: u32,
}

/// How images are brought to the nodes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ImagePreload {
    /// When they are needed.
    Skip,
    /// One node at a time.
    Sequential,
    /// So many nodes at a time; `None` means all at once.
    Parallel(Option<u32>),
}

/// Which nodes wait for a person.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum NodePause {
    /// None.
    None,
    /// These.
    Some(BTreeSet<String>),
    /// All.
    All,
}

impl NodePause {
    /// Whether this node waits.
    pub fn holds(&self, node: &str) -> bool {
        match self {
            Self::None => false,
            Self::Some(names) => names.contains(node),
            Self::All => true,
        }
    }
}

/// What is wrong with a value. The variants are in the order in which they are looked for.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum UpgradeConfigError {
    /// Not JSON, or a field of another type.
    #[error("upgrade-config is not valid JSON for this setting: {0}")]
    Syntax(String),
    /// The preload strategy has no type.
    #[error("imagePreloadOption.strategy.type is missing: write skip, sequential or parallel")]
    NoPreloadType,
    /// The preload strategy has an unknown type.
    #[error("imagePreloadOption.strategy.type is {0:?}: write skip, sequential or parallel")]
    PreloadType(String),
    /// A negative number of nodes.
    #[error("imagePreloadOption.strategy.concurrency is {0}: write 0 for all nodes at once, or a number above it")]
    Concurrency(i64),
    /// An unknown mode.
    #[error("nodeUpgradeOption.strategy.mode is {0:?}: write auto or manual")]
    Mode(String),
    /// Both spellings are there and say different things.
    #[error(
        "nodeUpgradeOption.{0} and nodeUpgradeOption.strategy.{0} say different things: write one of them, as nodeUpgradeOption.strategy.{0}"
    )]
    Contradiction(&'static str),
    /// A node is named twice.
    #[error("nodeUpgradeOption.strategy.pauseNodes names {0:?} twice: name each node once")]
    DuplicateNode(String),
    /// A time that is none, or out of bounds.
    #[error("logReadyTimeout is {0:?}: write a number of minutes from \"1\" to \"20\"")]
    LogReadyTimeout(String),
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Raw {
    image_preload_option: Option<RawPreloadOption>,
    node_upgrade_option: Option<RawNodeOption>,
    #[serde(default, rename = "restoreVM")]
    restore_vm: bool,
    #[serde(default)]
    log_ready_timeout: String,
}

#[derive(Deserialize, Serialize)]
struct RawPreloadOption {
    strategy: Option<RawPreload>,
}

#[derive(Deserialize, Serialize)]
struct RawPreload {
    #[serde(default, rename = "type")]
    kind: String,
    #[serde(default)]
    concurrency: i64,
}

/// Both spellings: `strategy` as upstream, and the short form of the test plan with its fields one level up.
#[derive(Deserialize, Serialize)]
struct RawNodeOption {
    strategy: Option<RawNode>,
    #[serde(flatten)]
    short: RawNode,
}

#[derive(Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct RawNode {
    mode: Option<String>,
    pause_nodes: Option<Vec<String>>,
}

impl UpgradeConfig {
    /// Reads a value of the setting; an empty one is the default. A value replaces the default as a whole: what it leaves out
    /// is not filled in from there.
    pub fn parse(value: &str) -> Result<Self, UpgradeConfigError> {
        let value = if value.trim().is_empty() {
            UPGRADE_CONFIG_DEFAULT
        } else {
            value
        };
        let raw: Raw = serde_json::from_str(value).map_err(|error| UpgradeConfigError::Syntax(error.to_string()))?;
        Ok(Self {
            preload: preload(raw.image_preload_option)?,
            pause: pause(raw.node_upgrade_option)?,
            restore_vm: raw.restore_vm,
            log_ready_minutes: log_ready_minutes(&raw.log_ready_timeout)?,
        })
    }
}

fn preload(option: Option<RawPreloadOption>) -> Result<ImagePreload, UpgradeConfigError> {
    let strategy = option
        .and_then(|option| option.strategy)
        .ok_or(UpgradeConfigError::NoPreloadType)?;
    if strategy.kind.is_empty() {
        return Err(UpgradeConfigError::NoPreloadType);
    }
    let kind: ImagePreloadType = strategy
        .kind
        .parse()
        .map_err(|_| UpgradeConfigError::PreloadType(strategy.kind.clone()))?;
    let concurrency =
        u32::try_from(strategy.concurrency).map_err(|_| UpgradeConfigError::Concurrency(strategy.concurrency))?;
    Ok(match kind {
        ImagePreloadType::Skip => ImagePreload::Skip,
        ImagePreloadType::Sequential => ImagePreload::Sequential,
        ImagePreloadType::Parallel => ImagePreload::Parallel((concurrency > 0).then_some(concurrency)),
    })
}

fn pause(option: Option<RawNodeOption>) -> Result<NodePause, UpgradeConfigError> {
    let Some(option) = option else {
        return Ok(NodePause::None);
    };
    let (long, short) = (option.strategy.unwrap_or_default(), option.short);
    // Upstream's webhook looks at the names in `auto` mode too, where they are ignored afterwards.
    let names = either("pauseNodes", unique(long.pause_nodes)?, unique(short.pause_nodes)?)?.unwrap_or_default();
    let mode = match either("mode", long.mode, short.mode)? {
        None => NodeUpgradeMode::Auto,
        Some(word) => word.parse().map_err(|_| UpgradeConfigError::Mode(word))?,
    };
    Ok(match mode {
        NodeUpgradeMode::Auto => NodePause::None,
        NodeUpgradeMode::Manual if names.is_empty() => NodePause::All,
        NodeUpgradeMode::Manual => NodePause::Some(names),
    })
}

/// A field in whichever spelling it is written.
fn either<T: PartialEq>(
    field: &'static str,
    long: Option<T>,
    short: Option<T>,
) -> Result<Option<T>, UpgradeConfigError> {
    match (long, short) {
        (Some(long), Some(short)) if long != short => Err(UpgradeConfigError::Contradiction(field)),
        (long, short) => Ok(long.or(short)),
    }
}

fn unique(names: Option<Vec<String>>) -> Result<Option<BTreeSet<String>>, UpgradeConfigError> {
    let Some(names) = names else { return Ok(None) };
    let mut all = BTreeSet::new();
    for name in names {
        if let Some(duplicate) = all.replace(name) {
            return Err(UpgradeConfigError::DuplicateNode(duplicate));
        }
    }
    Ok(Some(all))
}

fn log_ready_minutes(text: &str) -> Result<u32, UpgradeConfigError> {
    // Upstream fails at every pass where the field is absent; its own default is what was meant.
    if text.is_empty() {
        return Ok(5);
    }
    match text.parse() {
        Ok(minutes @ 1..=20) => Ok(minutes),
        _ => Err(UpgradeConfigError::LogReadyTimeout(text.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_nodes(option: &str) -> Result<UpgradeConfig, UpgradeConfigError> {
        UpgradeConfig::parse(&format!(
            r#"{{"imagePreloadOption":{{"strategy":{{"type":"skip"}}}},"nodeUpgradeOption":{option}}}"#
        ))
    }

    fn some(names: &[&str]) -> NodePause {
        NodePause::Some(names.iter().map(|name| (*name).to_owned()).collect())
    }

    #[test]
    fn h1_without_a_value_upgrades_are_automatic_and_images_come_one_by_one() {
        for value in ["", "  ", UPGRADE_CONFIG_DEFAULT] {
            let config = UpgradeConfig::parse(value).unwrap();
            assert_eq!(config.pause, NodePause::None);
            assert_eq!(config.preload, ImagePreload::Sequential);
            assert_eq!((config.restore_vm, config.log_ready_minutes), (false, 5));
        }
    }

    #[test]
    fn h2_manual_pauses_the_named_nodes_or_all_and_auto_ignores_names() {
        let cases = [
            (
                r#"{"strategy":{"mode":"manual","pauseNodes":["n1","n2"]}}"#,
                some(&["n1", "n2"]),
            ),
            (r#"{"strategy":{"mode":"manual"}}"#, NodePause::All),
            (r#"{"strategy":{"mode":"manual","pauseNodes":[]}}"#, NodePause::All),
            (r#"{"strategy":{"mode":"auto","pauseNodes":["n1"]}}"#, NodePause::None),
            (r#"{"strategy":{"pauseNodes":["n1"]}}"#, NodePause::None),
            ("{}", NodePause::None),
            ("null", NodePause::None),
        ];
        for (option, expected) in cases {
            assert_eq!(with_nodes(option).unwrap().pause, expected, "{option}");
        }
        let pause = some(&["n1"]);
        assert!(pause.holds("n1") && !pause.holds("n2") && NodePause::All.holds("n2") && !NodePause::None.holds("n1"));
    }

    #[test]
    fn h3_the_short_form_without_strategy_is_read_as_the_same() {
        assert_eq!(
            with_nodes(r#"{"mode":"manual","pauseNodes":["n1"]}"#).unwrap().pause,
            some(&["n1"])
        );
        assert_eq!(with_nodes(r#"{"mode":"manual"}"#).unwrap().pause, NodePause::All);
        assert_eq!(
            with_nodes(r#"{"mode":"auto","pauseNodes":["n1"]}"#).unwrap().pause,
            NodePause::None
        );
    }

    #[test]
    fn h3_both_spellings_at_once_are_read_field_by_field_and_refused_where_they_differ() {
        for option in [
            r#"{"mode":"manual","strategy":{"pauseNodes":["n1"]}}"#,
            r#"{"pauseNodes":["n1"],"strategy":{"mode":"manual"}}"#,
            r#"{"mode":"manual","strategy":{"mode":"manual","pauseNodes":["n1"]}}"#,
            r#"{"mode":"manual","pauseNodes":["n1"],"strategy":null}"#,
        ] {
            assert_eq!(with_nodes(option).unwrap().pause, some(&["n1"]), "{option}");
        }
        for (option, field) in [
            (r#"{"mode":"manual","strategy":{"mode":"auto"}}"#, "mode"),
            (
                r#"{"pauseNodes":["n1"],"strategy":{"mode":"manual","pauseNodes":["n2"]}}"#,
                "pauseNodes",
            ),
        ] {
            let refused = with_nodes(option).unwrap_err();
            assert_eq!(refused, UpgradeConfigError::Contradiction(field), "{option}");
        }
    }

    #[test]
    fn a_preload_strategy_is_demanded_and_parallel_alone_counts_nodes() {
        let parse = |strategy: &str| {
            UpgradeConfig::parse(&format!(r#"{{"imagePreloadOption":{{"strategy":{strategy}}}}}"#))
                .map(|config| config.preload)
        };
        assert_eq!(
            parse(r#"{"type":"parallel","concurrency":3}"#),
            Ok(ImagePreload::Parallel(Some(3)))
        );
        assert_eq!(parse(r#"{"type":"parallel"}"#), Ok(ImagePreload::Parallel(None)));
        assert_eq!(
            parse(r#"{"type":"sequential","concurrency":3}"#),
            Ok(ImagePreload::Sequential)
        );
        assert_eq!(parse("{}"), Err(UpgradeConfigError::NoPreloadType));
        assert_eq!(
            parse(r#"{"type":"fast"}"#),
            Err(UpgradeConfigError::PreloadType("fast".to_owned()))
        );
        assert_eq!(
            parse(r#"{"type":"parallel","concurrency":-1}"#),
            Err(UpgradeConfigError::Concurrency(-1))
        );
        assert_eq!(UpgradeConfig::parse("{}"), Err(UpgradeConfigError::NoPreloadType));
    }

    #[test]
    fn bad_values_are_named_with_what_to_write() {
        assert_eq!(
            with_nodes(r#"{"strategy":{"mode":"slow"}}"#),
            Err(UpgradeConfigError::Mode("slow".to_owned()))
        );
        let twice = r#"{"strategy":{"mode":"auto","pauseNodes":["n1","n1"]}}"#;
        assert_eq!(
            with_nodes(twice),
            Err(UpgradeConfigError::DuplicateNode("n1".to_owned()))
        );
        for minutes in ["0", "21", "-1", "five"] {
            let value =
                format!(r#"{{"imagePreloadOption":{{"strategy":{{"type":"skip"}}}},"logReadyTimeout":"{minutes}"}}"#);
            let error = UpgradeConfig::parse(&value).unwrap_err();
            assert!(error.to_string().contains("\"1\" to \"20\""), "{error}");
        }
        assert!(matches!(
            UpgradeConfig::parse("[1,"),
            Err(UpgradeConfigError::Syntax(_))
        ));
    }
}

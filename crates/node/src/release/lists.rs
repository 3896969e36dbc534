//! What a release says about its images: which archives it brings, what is in each, and what the release before had. Reading alone, nothing
//! is done.

use std::collections::BTreeSet;

use serde::Deserialize;

/// Images that stay although the new release does not list them: what still runs needs them, or the next upgrade does.
const KEPT: &[&str] = &[
    "harvester-upgrade",
    "longhorn-engine",
    "longhorn-instance-manager",
    "fluentd",
    "fluent-bit",
    "vmdp",
];

/// `bundle/metadata.yaml`, as far as images go.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq)]
pub struct Bundle {
    pub images: Archives,
}

/// Archives by who reads them.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq)]
pub struct Archives {
    /// Imported before the upgrade.
    #[serde(default)]
    pub common: Vec<Archive>,
    /// Imported too, and read by RKE2 when it starts.
    #[serde(default)]
    pub rke2: Vec<Archive>,
    /// Read by Rancher's agent.
    #[serde(default)]
    pub agent: Vec<Archive>,
}

/// An archive, and the list of what is in it; both as paths under `bundle/`.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq)]
pub struct Archive {
    pub list: String,
    pub archive: String,
}

/// What is wrong with what a release says.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ListError {
    #[error("bundle/metadata.yaml cannot be read: {0}")]
    Metadata(String),
    #[error("bundle/metadata.yaml names no archive of {0}: the repository serves another release, or not all of it")]
    NoArchive(&'static str),
    #[error("bundle/metadata.yaml names {0:?}, which leads out of the bundle")]
    Outside(String),
    #[error("the list {0} is empty: the repository serves not all of the release")]
    Empty(String),
}

impl Bundle {
    /// Reads it; a release without images for all nodes or for RKE2 is none.
    pub fn parse(text: &str) -> Result<Self, ListError> {
        let bundle: Self = serde_saphyr::from_str(text).map_err(|error| ListError::Metadata(error.to_string()))?;
        let all = &bundle.images;
        for (archives, who) in [(&all.common, "common"), (&all.rke2, "rke2")] {
            if archives.is_empty() {
                return Err(ListError::NoArchive(who));
            }
        }
        for archive in all.common.iter().chain(&all.rke2).chain(&all.agent) {
            for path in [&archive.list, &archive.archive] {
                let inside = |part: &str| !part.is_empty() && part != "." && part != "..";
                if !path.split('/').all(inside) {
                    return Err(ListError::Outside(path.clone()));
                }
            }
        }
        Ok(bundle)
    }
}

/// The last part of a path.
pub fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// The images of a list. An empty one is refused: it would say that nothing is missing.
pub fn images_of(name: &str, list: &str) -> Result<BTreeSet<String>, ListError> {
    let images: BTreeSet<String> = list
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(str::to_owned)
        .collect();
    if images.is_empty() {
        return Err(ListError::Empty(name.to_owned()));
    }
    Ok(images)
}

/// What only the release before has: the names of images as they are called on a node, whatever registry they came from.
pub fn old_alone<'a>(
    before: &BTreeSet<String>,
    now: &BTreeSet<String>,
    there: impl Iterator<Item = &'a str>,
) -> Vec<&'a str> {
    let short = |names: &BTreeSet<String>| {
        names
            .iter()
            .map(|name| file_name(name).to_owned())
            .collect::<BTreeSet<_>>()
    };
    let (before, now) = (short(before), short(now));
    there
        .filter(|name| {
            let short = file_name(name);
            let repository = short.split(':').next().unwrap_or(short);
            before.contains(short) && !now.contains(short) && !KEPT.contains(&repository)
        })
        .collect()
}

//! What a release says about itself (`harvester-release.yaml`), and whether one may be upgraded to from another.

use std::collections::BTreeMap;

use semver::Version;

use crate::version::KubernetesVersion;

/// A release as its file describes it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Release {
    pub harvester: String,
    pub os: String,
    pub kubernetes: KubernetesVersion,
    pub rancher: String,
    pub min_upgradable: String,
    /// Every line of the file, in its order of keys.
    lines: BTreeMap<String, String>,
}

/// What is wrong with a release file. Each says what was expected.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ReleaseError {
    #[error("line {line} of harvester-release.yaml is not `key: value`: {text:?}")]
    Line { line: usize, text: String },
    #[error("harvester-release.yaml has no {0}: the repository serves another release, or not all of it")]
    Missing(&'static str),
    #[error("harvester-release.yaml names kubernetes {0:?}, which is no version ({1})")]
    Kubernetes(String, String),
}

impl Release {
    /// Reads the file: a flat list of keys and plain values, which is all upstream ever wrote there.
    pub fn parse(text: &str) -> Result<Self, ReleaseError> {
        let mut lines = BTreeMap::new();
        for (index, raw) in text.lines().enumerate() {
            let line = raw.trim_end();
            if line.is_empty() || line.trim_start().starts_with('#') || line == "---" || line == "release:" {
                continue;
            }
            let wrong = || ReleaseError::Line {
                line: index + 1,
                text: raw.chars().take(80).collect(),
            };
            let (key, value) = line.trim_start().split_once(':').ok_or_else(wrong)?;
            if key.is_empty() || key.contains(' ') || !(value.is_empty() || value.starts_with(' ')) {
                return Err(wrong());
            }
            lines.insert(key.to_owned(), plain(value));
        }
        let get = |key: &'static str| {
            let value = lines.get(key).filter(|value| !value.is_empty());
            value.cloned().ok_or(ReleaseError::Missing(key))
        };
        let kubernetes = get("kubernetes")?;
        let kubernetes = kubernetes
            .parse()
            .map_err(|error: crate::VersionError| ReleaseError::Kubernetes(kubernetes.clone(), error.to_string()))?;
        Ok(Self {
            harvester: get("harvester")?,
            os: get("os")?,
            kubernetes,
            rancher: lines.get("rancher").cloned().unwrap_or_default(),
            min_upgradable: lines.get("minUpgradableVersion").cloned().unwrap_or_default(),
            lines,
        })
    }

    /// What the file says under a key.
    pub fn line(&self, key: &str) -> Option<&str> {
        self.lines
            .get(key)
            .map(String::as_str)
            .filter(|value| !value.is_empty())
    }

    /// As `status.repoInfo` holds it: under `release:`.
    pub fn recorded(&self) -> String {
        let lines = self.lines.iter().map(|(key, value)| format!("  {key}: {value}\n"));
        std::iter::once("release:\n".to_owned()).chain(lines).collect()
    }
}

/// A value without its quotes and without what follows ` #`.
fn plain(value: &str) -> String {
    let value = value.trim();
    for quote in ['"', '\''] {
        if let Some(inner) = value.strip_prefix(quote).and_then(|rest| rest.split_once(quote)) {
            return inner.0.to_owned();
        }
    }
    value
        .split_once(" #")
        .map_or(value, |(value, _)| value)
        .trim_end()
        .to_owned()
}

/// Why a release may not be upgraded to.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum GuardError {
    #[error(
        "{to} is older than {from}: it would be a downgrade, and what newer releases stored cannot be read by older ones"
    )]
    Downgrade { from: String, to: String },
    #[error("{to} can be reached from {min} on, and this cluster is at {from}: upgrade to {min} first")]
    TooOld { from: String, to: String, min: String },
    #[error(
        "{from} is a development build: nothing is known about upgrading it to {to}; annotate the Upgrade with harvesterhci.io/skip-version-check=true to do it all the same"
    )]
    FromDevelopment { from: String, to: String },
    #[error("{from} is a pre-release: it can be upgraded to the release it precedes, not to {to}")]
    FromPreRelease { from: String, to: String },
    #[error("{0:?} is no release of Harvester that can be compared: releases are written as v1.7.0")]
    Unreadable(String),
}

/// A build without a number (`v1.7-head`, `master-…`): upstream lets people go *to* one as they like.
fn is_development(version: &str) -> bool {
    parsed(version).is_none() && (version.contains("-head") || version.starts_with("master") || version.contains("dev"))
}

fn parsed(version: &str) -> Option<Version> {
    Version::parse(version.strip_prefix('v')?).ok()
}

/// Whether a version is written so that it can be told from others.
pub fn is_readable(version: &str) -> bool {
    parsed(version).is_some() || is_development(version)
}

/// Whether a cluster at `from` may go to `to`, which can be reached from `min` on.
pub fn guard(from: &str, to: &str, min: &str) -> Result<(), GuardError> {
    if is_development(to) || from == to {
        return Ok(());
    }
    let said = || (from.to_owned(), to.to_owned());
    if is_development(from) {
        let (from, to) = said();
        return Err(GuardError::FromDevelopment { from, to });
    }
    let read = |text: &str| parsed(text).ok_or_else(|| GuardError::Unreadable(text.to_owned()));
    let (old, new) = (read(from)?, read(to)?);
    if new < old {
        let (from, to) = said();
        return Err(GuardError::Downgrade { from, to });
    }
    if !min.is_empty() && old < read(min)? {
        let (from, to) = said();
        let min = min.to_owned();
        return Err(GuardError::TooOld { from, to, min });
    }
    let numbers = |version: &Version| (version.major, version.minor, version.patch);
    if !old.pre.is_empty() && numbers(&old) != numbers(&new) {
        let (from, to) = said();
        return Err(GuardError::FromPreRelease { from, to });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "# made by the build\nharvester: v1.7.0\nharvesterChart: 1.7.0\nos: Harvester v1.7.0\nkubernetes: v1.34.1+rke2r1\nrancher: v2.12.2\nmonitoringChart: 105.1.2+up61.3.2\nminUpgradableVersion: 'v1.6.0' # two back is too far\n";

    #[test]
    fn h23_h24_a_release_file_says_what_to_upgrade_to() {
        let release = Release::parse(FILE).unwrap();
        assert_eq!(
            (release.os.as_str(), release.rancher.as_str()),
            ("Harvester v1.7.0", "v2.12.2")
        );
        assert_eq!(release.kubernetes.to_string(), "v1.34.1+rke2r1");
        assert_eq!(release.min_upgradable, "v1.6.0");
        let recorded = release.recorded();
        assert!(
            recorded.starts_with("release:\n") && recorded.contains("  harvesterChart: 1.7.0\n"),
            "{recorded}"
        );
        assert_eq!(
            Release::parse(&recorded).unwrap(),
            release,
            "what was recorded reads back"
        );
    }

    #[test]
    fn a_release_file_that_is_none_is_named() {
        for (text, said) in [
            ("", "has no kubernetes"),
            ("<html>gateway timeout</html>", "line 1"),
            ("kubernetes: latest\nos: x\nharvester: v1", "no version"),
            ("kubernetes: v1.34.1\nos: x\n", "has no harvester"),
            ("kubernetes: v1.34.1\nharvester: v1.7.0\nos:\n", "has no os"),
        ] {
            let error = Release::parse(text).unwrap_err().to_string();
            assert!(error.contains(said), "{text:?}: {error}");
        }
    }

    #[test]
    fn versions_are_guarded_as_upstream_does_but_for_what_its_patterns_miss() {
        let ok = |from, to, min| assert_eq!(guard(from, to, min), Ok(()), "{from} {to} {min}");
        ok("v1.6.1", "v1.7.0", "v1.6.0");
        ok("v1.7.0", "v1.7.0", "v1.8.0");
        ok("v1.6.10", "v1.7.0", "v1.6.2");
        ok("v1.7.0-rc1", "v1.7.0", "");
        ok("v1.7.0", "v1.8-head", "");
        let refused = |from, to, min, said: &str| {
            let error = guard(from, to, min).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        };
        refused("v1.7.0", "v1.6.9", "", "downgrade");
        refused("v1.10.0", "v1.9.0", "", "downgrade");
        refused("v1.5.2", "v1.7.0", "v1.6.0", "upgrade to v1.6.0 first");
        refused("v1.8-head", "v1.7.0", "", "development build");
        refused("v1.7.0-rc1", "v1.8.0", "", "pre-release");
        refused("seven", "v1.8.0", "", "v1.7.0");
    }
}

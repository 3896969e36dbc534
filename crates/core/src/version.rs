//! Versions of Kubernetes, how far they are apart, and the way from one to another. What a node or an API server really runs is
//! for the view to say; which steps follow from the distance is for the plan.

use std::fmt;
use std::str::FromStr;

use semver::{Prerelease, Version};

/// How many minor versions a kubelet may be older than its API server
/// (<https://kubernetes.io/releases/version-skew-policy/>, since 1.28; two before).
const KUBELET_SKEW: u64 = 3;
const KUBELET_SKEW_BEFORE_1_28: u64 = 2;
const FIRST_WITH_WIDER_SKEW: u64 = 28;

/// A version of Kubernetes, as `v1.36.3`, with the suffix a distribution may have put to it (`v1.36.3+rke2r1`).
///
/// Versions are in the order of semver, and where they differ in nothing else, in that of what follows the `+`: for a
/// distribution a later build of one release is an upgrade too.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct KubernetesVersion(Version);

/// Why a text is no version. Each says what to write.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum VersionError {
    /// Nothing there.
    #[error("the version is empty: write it whole, as v1.36.3")]
    Empty,
    /// Spaces around or in it.
    #[error("{0:?} has a space in it: write the version without, as v1.36.3")]
    Space(String),
    /// No `v` in front.
    #[error("{0:?} has no leading v: write v{0}")]
    NoLeadingV(String),
    /// Not three numbers.
    #[error("{0:?} is not a whole version: write major, minor and patch, as v1.36.3")]
    Incomplete(String),
    /// Three parts, but not as a version has them.
    #[error("{0:?} is not a version ({1}): write it as v1.36.3")]
    Malformed(String, String),
}

/// Why there is no way from one version to another.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum HopError {
    /// It would go down.
    #[error("{to} is older than {from}: it would be a downgrade")]
    Downgrade {
        /// The version there is.
        from: KubernetesVersion,
        /// The version asked for.
        to: KubernetesVersion,
    },
    /// Kubernetes has had one major version so far, and no policy for two.
    #[error("{from} and {to} differ in their major version: there is no supported way between them")]
    Major {
        /// The version there is.
        from: KubernetesVersion,
        /// The version asked for.
        to: KubernetesVersion,
    },
}

/// How a kubelet stands to its API server.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum KubeletSkew {
    /// Supported.
    Allowed,
    /// Newer than the API server: never supported.
    Newer,
    /// So many minor versions older, more than is supported.
    TooOld {
        /// How many minor versions older it is.
        minors: u64,
    },
}

/// One step of a control plane: to a minor version, and where it is the last, to the very version.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Hop {
    /// Any release of this minor version; which one is there, the bundles say.
    Minor(MinorVersion),
    /// This version.
    Exact(KubernetesVersion),
}

/// Major and minor, as `v1.36`.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct MinorVersion {
    /// Major version.
    pub major: u64,
    /// Minor version.
    pub minor: u64,
}

impl KubernetesVersion {
    /// Whether `text` is this version as it prints. Asked for every node in every turn.
    pub fn is_written(&self, text: &str) -> bool {
        let Self(version) = self;
        let Some(rest) = text.strip_prefix('v') else {
            return false;
        };
        let (numbers, suffix) = rest.split_at(rest.find(['-', '+']).unwrap_or(rest.len()));
        let mut numbers = numbers.split('.');
        let mut is_next = |number: u64| {
            numbers.next().is_some_and(|digits| {
                digits.parse() == Ok(number) && (digits.len() == 1 || !digits.starts_with(['0', '+']))
            })
        };
        let (pre, build) = suffix.split_once('+').unwrap_or((suffix, ""));
        is_next(version.major)
            && is_next(version.minor)
            && is_next(version.patch)
            && numbers.next().is_none()
            && pre.strip_prefix('-').unwrap_or_default() == version.pre.as_str()
            && build == version.build.as_str()
            && !suffix.ends_with(['-', '+'])
    }

    /// Major and minor version.
    pub fn minor_version(&self) -> MinorVersion {
        MinorVersion {
            major: self.0.major,
            minor: self.0.minor,
        }
    }

    /// Patch version.
    pub fn patch(&self) -> u64 {
        self.0.patch
    }

    /// How many minor versions `other` is newer; negative where it is older, `None` where the major versions differ.
    pub fn minors_to(&self, other: &Self) -> Option<i64> {
        (self.0.major == other.0.major).then(|| {
            let (newer, older) = (other.0.minor, self.0.minor);
            let distance = i64::try_from(newer.abs_diff(older)).unwrap_or(i64::MAX);
            if newer < older { -distance } else { distance }
        })
    }

    /// How a kubelet of this version stands to an API server of that one.
    pub fn kubelet_skew(&self, api_server: &Self) -> KubeletSkew {
        if self.0.major > api_server.0.major {
            return KubeletSkew::Newer;
        }
        if self.0.major < api_server.0.major {
            return KubeletSkew::TooOld { minors: u64::MAX };
        }
        if self.0.minor > api_server.0.minor {
            return KubeletSkew::Newer;
        }
        if self.minor_version() < api_server.oldest_kubelet() {
            let minors = api_server.0.minor - self.0.minor;
            KubeletSkew::TooOld { minors }
        } else {
            KubeletSkew::Allowed
        }
    }

    /// The oldest minor version a kubelet may have under an API server of this version.
    pub fn oldest_kubelet(&self) -> MinorVersion {
        // The policy counts from the API server: 1.28 is the first to accept a kubelet of three versions before.
        let most = if self.0.minor < FIRST_WITH_WIDER_SKEW {
            KUBELET_SKEW_BEFORE_1_28
        } else {
            KUBELET_SKEW
        };
        MinorVersion {
            major: self.0.major,
            minor: self.0.minor.saturating_sub(most),
        }
    }

    /// The steps of a control plane from this version to `to`: one minor version at a time, the last to the very version.
    /// None where both are the same.
    pub fn hops(&self, to: &Self) -> Result<Vec<Hop>, HopError> {
        let pair = || (self.clone(), to.clone());
        if self.0.major != to.0.major {
            let (from, to) = pair();
            return Err(HopError::Major { from, to });
        }
        if to < self {
            let (from, to) = pair();
            return Err(HopError::Downgrade { from, to });
        }
        if to == self {
            return Ok(Vec::new());
        }
        let major = self.0.major;
        let between = (self.0.minor + 1..to.0.minor).map(|minor| Hop::Minor(MinorVersion { major, minor }));
        Ok(between.chain([Hop::Exact(to.clone())]).collect())
    }
}

impl MinorVersion {
    /// What every release of this minor version is at least, its release candidates included.
    pub fn floor(self) -> KubernetesVersion {
        let mut version = Version::new(self.major, self.minor, 0);
        // The lowest there is in semver's order: a number before all words, and none below 0.
        version.pre = Prerelease::new("0").unwrap_or(Prerelease::EMPTY);
        KubernetesVersion(version)
    }
}

impl FromStr for KubernetesVersion {
    type Err = VersionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.is_empty() {
            return Err(VersionError::Empty);
        }
        if text.contains(char::is_whitespace) {
            return Err(VersionError::Space(text.to_owned()));
        }
        let Some(rest) = text.strip_prefix('v') else {
            let written = if text.starts_with(|first: char| first.is_ascii_digit()) {
                VersionError::NoLeadingV(text.to_owned())
            } else {
                VersionError::Malformed(text.to_owned(), "it does not begin with v".to_owned())
            };
            return Err(written);
        };
        let numbers = rest.split(['-', '+']).next().unwrap_or_default();
        if numbers.split('.').count() < 3 {
            return Err(VersionError::Incomplete(text.to_owned()));
        }
        let version =
            Version::parse(rest).map_err(|error| VersionError::Malformed(text.to_owned(), error.to_string()))?;
        Ok(Self(version))
    }
}

impl fmt::Display for KubernetesVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v{}", self.0)
    }
}

impl fmt::Display for MinorVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v{}.{}", self.major, self.minor)
    }
}

impl fmt::Display for Hop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Minor(minor) => minor.fmt(f),
            Self::Exact(version) => version.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn version(text: &str) -> KubernetesVersion {
        text.parse().unwrap()
    }

    #[test]
    fn a_version_reads_and_prints_as_it_was_written() {
        for text in [
            "v1.36.3",
            "v1.36.3+rke2r1",
            "v1.28.3-eks-1-28-9",
            "v1.37.0-rc.1",
            "v0.0.0",
        ] {
            assert_eq!(version(text).to_string(), text);
        }
        let read = version("v1.36.3");
        assert_eq!(
            (read.minor_version().to_string(), read.patch()),
            ("v1.36".to_owned(), 3)
        );
    }

    #[test]
    fn what_is_no_version_is_told_what_to_write() {
        let cases = [
            ("", "the version is empty: write it whole, as v1.36.3"),
            ("1.36.3", "\"1.36.3\" has no leading v: write v1.36.3"),
            (
                " v1.36.3",
                "\" v1.36.3\" has a space in it: write the version without, as v1.36.3",
            ),
            (
                "v1.36.3\n",
                "\"v1.36.3\\n\" has a space in it: write the version without, as v1.36.3",
            ),
            (
                "v1.36",
                "\"v1.36\" is not a whole version: write major, minor and patch, as v1.36.3",
            ),
            (
                "v1",
                "\"v1\" is not a whole version: write major, minor and patch, as v1.36.3",
            ),
            (
                "v1.36-rc.1",
                "\"v1.36-rc.1\" is not a whole version: write major, minor and patch, as v1.36.3",
            ),
            (
                "v",
                "\"v\" is not a whole version: write major, minor and patch, as v1.36.3",
            ),
            (
                "latest",
                "\"latest\" is not a version (it does not begin with v): write it as v1.36.3",
            ),
        ];
        for (text, message) in cases {
            assert_eq!(text.parse::<KubernetesVersion>().unwrap_err().to_string(), message);
        }
        for text in [
            "v1.036.3",
            "v1.36.x",
            "v1.36.3.4",
            "v-1.36.3",
            "vv1.36.3",
            "v1.36.3+",
            "v99999999999999999999.0.0",
        ] {
            let error = text.parse::<KubernetesVersion>().unwrap_err();
            assert!(error.to_string().ends_with("v1.36.3"), "{text}: {error}");
        }
    }

    #[test]
    fn a_version_is_written_one_way_only() {
        let version: KubernetesVersion = "v1.36.3".parse().unwrap();
        assert!(version.is_written("v1.36.3"));
        for other in [
            "",
            "1.36.3",
            "v1.36",
            "v1.36.30",
            "v1.36.3-rc.0",
            "v1.36.03",
            "v1.+36.3",
            "v1.36.3-",
            "v1.36.3+",
            "v1.36.3.0",
            "vv1.36.3",
        ] {
            assert!(!version.is_written(other), "{other}");
        }
        for suffixed in ["v1.36.3-rc.0", "v1.36.3+rke2r1", "v1.36.3-rc.1+rke2r1", "v10.0.20"] {
            let version: KubernetesVersion = suffixed.parse().unwrap();
            assert!(
                version.is_written(suffixed) && version.is_written(&version.to_string()),
                "{suffixed}"
            );
            assert!(!version.is_written("v1.36.3"), "{suffixed}");
        }
    }

    #[test]
    fn versions_are_in_the_order_of_their_numbers_not_of_their_letters() {
        let sorted = [
            "v1.9.9",
            "v1.10.0",
            "v1.36.2",
            "v1.36.3-rc.1",
            "v1.36.3",
            "v1.36.3+rke2r1",
            "v1.36.3+rke2r2",
            "v1.36.10",
        ];
        for pair in sorted.windows(2) {
            assert!(version(pair[0]) < version(pair[1]), "{} < {}", pair[0], pair[1]);
        }
    }

    #[test]
    fn distance_counts_minor_versions() {
        let cases = [
            ("v1.35.4", "v1.36.3", Some(1)),
            ("v1.36.0", "v1.36.9", Some(0)),
            ("v1.36.0", "v1.34.9", Some(-2)),
            ("v1.36.0", "v2.0.0", None),
        ];
        for (from, to, distance) in cases {
            assert_eq!(version(from).minors_to(&version(to)), distance, "{from} {to}");
        }
    }

    #[test]
    fn a_kubelet_is_never_newer_and_at_most_three_minors_older() {
        let cases = [
            ("v1.36.3", "v1.36.0", KubeletSkew::Allowed),
            ("v1.33.0", "v1.36.3", KubeletSkew::Allowed),
            ("v1.32.9", "v1.36.3", KubeletSkew::TooOld { minors: 4 }),
            ("v1.37.0", "v1.36.3", KubeletSkew::Newer),
            ("v1.25.0", "v1.28.0", KubeletSkew::Allowed),
            ("v1.25.0", "v1.27.0", KubeletSkew::Allowed),
            ("v1.24.0", "v1.27.0", KubeletSkew::TooOld { minors: 3 }),
            ("v2.0.0", "v1.36.3", KubeletSkew::Newer),
            ("v1.36.3", "v2.0.0", KubeletSkew::TooOld { minors: u64::MAX }),
        ];
        for (kubelet, api_server, expected) in cases {
            assert_eq!(
                version(kubelet).kubelet_skew(&version(api_server)),
                expected,
                "{kubelet} under {api_server}"
            );
        }
    }

    #[test]
    fn the_floor_of_a_minor_version_is_below_all_its_releases_and_above_all_before() {
        let floor = version("v1.36.3").minor_version().floor();
        for above in ["v1.36.0-alpha.0", "v1.36.0-rc.1", "v1.36.0", "v1.36.9"] {
            assert!(floor < version(above), "{above}");
        }
        assert!(version("v1.35.99+rke2r1") < floor);
    }

    #[test]
    fn k22_a_control_plane_goes_one_minor_version_at_a_time() {
        let cases = [
            ("v1.35.4", "v1.36.3", "v1.36.3"),
            ("v1.24.17", "v1.27.16", "v1.25 v1.26 v1.27.16"),
            ("v1.36.1", "v1.36.3", "v1.36.3"),
            ("v1.36.3", "v1.36.3", ""),
            ("v1.36.3+rke2r1", "v1.36.3+rke2r2", "v1.36.3+rke2r2"),
            ("v1.37.0-rc.1", "v1.37.0", "v1.37.0"),
        ];
        for (from, to, expected) in cases {
            let hops = version(from).hops(&version(to)).unwrap();
            assert_eq!(
                hops.iter().map(Hop::to_string).collect::<Vec<_>>().join(" "),
                expected,
                "{from} to {to}"
            );
        }
    }

    #[test]
    fn there_is_no_way_down_nor_to_another_major_version() {
        let down = version("v1.36.3").hops(&version("v1.36.2")).unwrap_err();
        assert_eq!(
            down.to_string(),
            "v1.36.2 is older than v1.36.3: it would be a downgrade"
        );
        let major = version("v1.36.3").hops(&version("v2.0.0")).unwrap_err();
        assert!(matches!(major, HopError::Major { .. }));
    }

    proptest! {
        #[test]
        fn every_hop_is_one_minor_version_or_none_and_the_last_arrives(
            minor in 0u64..60, patch in 0u64..20, further in 0u64..30, to_patch in 0u64..20,
        ) {
            let from = version(&format!("v1.{minor}.{patch}"));
            let to = version(&format!("v1.{}.{to_patch}", minor + further));
            prop_assume!(from < to);
            let hops = from.hops(&to).unwrap();
            let mut at = minor;
            for hop in &hops {
                let next = match hop {
                    Hop::Minor(minor) => minor.minor,
                    Hop::Exact(version) => version.minor_version().minor,
                };
                prop_assert!(next == at + 1 || (next == at && further == 0));
                at = next;
            }
            prop_assert_eq!(hops.last(), Some(&Hop::Exact(to)));
        }

        #[test]
        fn whatever_a_person_types_is_read_or_refused_and_what_is_read_prints_the_same(text in "[v0-9.+a-z -]{0,24}") {
            if let Ok(read) = text.parse::<KubernetesVersion>() {
                prop_assert_eq!(read.to_string(), text);
            }
        }
    }
}

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
        let expected = [version.major, version.minor, version.patch];
        release(text).is_some_and(|(numbers, suffix)| {
            let rest = after(suffix, '-', version.pre.as_str());
            numbers == expected && rest.and_then(|rest| after(rest, '+', version.build.as_str())) == Some("")
        })
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

/// The three numbers of a text as `v1.36.3` and what follows them; nothing where they are written otherwise.
fn release(text: &str) -> Option<([u64; 3], &str)> {
    let mut rest = text.strip_prefix('v')?;
    let mut numbers = [0_u64; 3];
    for (index, number) in numbers.iter_mut().enumerate() {
        if index > 0 {
            rest = rest.strip_prefix('.')?;
        }
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let written = rest.get(..digits)?;
        if written.is_empty() || (written.len() > 1 && written.starts_with('0')) {
            return None;
        }
        for digit in written.bytes() {
            let value = number.checked_mul(10)?;
            *number = value.checked_add(u64::from(digit - b'0'))?;
        }
        rest = rest.get(digits..)?;
    }
    Some((numbers, rest))
}

/// What follows a part of a version with its mark; such a part may be missing.
fn after<'a>(text: &'a str, mark: char, part: &str) -> Option<&'a str> {
    if part.is_empty() {
        return Some(text);
    }
    text.strip_prefix(mark)?.strip_prefix(part)
}

impl FromStr for KubernetesVersion {
    type Err = VersionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // Nearly all are written so, and every turn reads some.
        if let Some(([major, minor, patch], "")) = release(text) {
            return Ok(Self(Version::new(major, minor, patch)));
        }
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
mod tests;

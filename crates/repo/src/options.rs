//! What the person who starts the server decides: where on it the release is found, and its limits.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Where upstream's repository has the release, and where the scripts of its users look for it.
const USUAL: &str = "/harvester-iso";

/// The limits of a server, and where on it the release is found.
#[derive(Clone, Debug)]
pub struct Options {
    pub place: Place,
    /// Whether files whose names begin with a dot are served too.
    pub hidden: bool,
    /// Connections served at once. A few more are taken, to be told so and for the probes.
    pub max_connections: usize,
    /// Files and listings sent at once.
    pub max_requests: usize,
    /// How long a client may take to send a request, and a connection may be idle.
    pub header_timeout: Duration,
    /// How long a client may take nothing of an answer.
    pub stall_timeout: Duration,
    /// How long a request waits for a checksum. It is computed to its end all the same.
    pub checksum_timeout: Duration,
    /// How long requests under way may go on after the end was asked for.
    pub grace: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            place: Place(vec![USUAL.trim_start_matches('/').to_owned()]),
            hidden: false,
            max_connections: 512,
            max_requests: 256,
            header_timeout: Duration::from_secs(10),
            stall_timeout: Duration::from_secs(30),
            checksum_timeout: Duration::from_mins(5),
            grace: Duration::from_secs(25),
        }
    }
}

/// The path on the server under which the release is found; `/` for none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place(Vec<String>);

impl Place {
    pub fn names(&self) -> &[String] {
        &self.0
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for name in &self.0 {
            write!(f, "/{name}")?;
        }
        f.write_str("/")
    }
}

/// A path that cannot be one to serve under.
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is no path to serve under: write it like {USUAL}, of letters, digits, '-', '_' and '.'")]
pub struct PlaceError(String);

impl FromStr for Place {
    type Err = PlaceError;

    fn from_str(text: &str) -> Result<Self, PlaceError> {
        let plain = |name: &str| {
            let mut letters = name.chars();
            letters.all(|letter| letter.is_ascii_alphanumeric() || "-_.".contains(letter)) && !name.starts_with('.')
        };
        let names: Vec<&str> = text.split('/').filter(|name| !name.is_empty()).collect();
        if text.starts_with('/') && names.iter().all(|name| plain(name)) {
            Ok(Self(names.into_iter().map(str::to_owned).collect()))
        } else {
            Err(PlaceError(text.to_owned()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h51_the_release_is_where_upstream_has_it_unless_told_otherwise() {
        assert_eq!(Options::default().place.to_string(), "/harvester-iso/");
        for (text, place) in [
            ("/", Some("/")),
            ("/iso", Some("/iso/")),
            ("/a//b.c/", Some("/a/b.c/")),
            ("iso", None),
            ("", None),
            ("/../x", None),
            ("/.x", None),
            ("/a b", None),
            ("/a%2f", None),
        ] {
            let parsed: Option<Place> = text.parse().ok();
            assert_eq!(parsed.map(|place| place.to_string()).as_deref(), place, "{text:?}");
        }
    }
}

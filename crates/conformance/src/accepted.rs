//! The differences that we accept, from `accepted.yaml`: each names the cases and paths it covers and says why. One that covers nothing any more
//! fails the run, so that the list only ever holds what is true.

use std::{fs, path::Path};

use serde::Deserialize;

use crate::{Difference, Error};

/// One accepted difference. `*` in the patterns stands for any text.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Accepted {
    pub case: String,
    pub path: String,
    pub reason: String,
    #[serde(skip)]
    used: usize,
}

/// The whole list.
#[derive(Debug, Default)]
pub struct AcceptedList {
    entries: Vec<Accepted>,
}

impl AcceptedList {
    pub fn load(path: &Path) -> Result<Self, Error> {
        let failed = |message: String| Error::File {
            path: path.display().to_string(),
            message,
        };
        let text = fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
        let entries = serde_saphyr::from_str(&text).map_err(|error| failed(error.to_string()))?;
        Ok(Self { entries })
    }

    /// Whether a difference is on the list; remembers which entry was of use.
    pub fn covers(&mut self, case: &str, difference: &Difference) -> bool {
        let found = self
            .entries
            .iter_mut()
            .find(|entry| matches(&entry.case, case) && matches(&entry.path, &difference.path));
        found.map(|entry| entry.used += 1).is_some()
    }

    /// How many differences were accepted.
    pub fn uses(&self) -> usize {
        self.entries.iter().map(|entry| entry.used).sum()
    }

    pub fn unused(&self) -> impl Iterator<Item = &Accepted> {
        self.entries.iter().filter(|entry| entry.used == 0)
    }
}

fn matches(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((start, rest)) => text.strip_prefix(start).is_some_and(|tail| {
            tail.char_indices()
                .map(|(at, _)| at)
                .chain([tail.len()])
                .any(|at| matches(rest, &tail[at..]))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_stand_for_any_text() {
        assert!(matches("a*c", "abbc") && matches("*", "") && matches("x.*.y*", "x.1.y"));
        assert!(!matches("a*c", "abbd") && !matches("a", "ab"));
    }
}

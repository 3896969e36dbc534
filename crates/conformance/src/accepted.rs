//! The differences that we accept, from `accepted.yaml`: each names the cases and paths it covers and says why. One that covers nothing any more
//! fails the run, so that the list only ever holds what is true.

use std::{fs, path::Path};

use serde::Deserialize;
use serde_json::Value;

use crate::{Difference, Error};

/// One accepted difference. `*` in the patterns stands for any text.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Accepted {
    pub case: String,
    /// What the step does, where not every step of the case may differ.
    pub step: Option<String>,
    pub path: String,
    /// What the real server says there, where not everything at that path is accepted.
    pub real: Option<String>,
    /// What the simulator says there.
    pub sim: Option<String>,
    pub reason: String,
    #[serde(skip)]
    used: usize,
    /// Whether it shows is chance: then it may cover nothing in a run.
    #[serde(default)]
    chance: bool,
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
        let found = self.entries.iter_mut().find(|entry| {
            matches(&entry.case, case)
                && entry.step.as_ref().is_none_or(|step| matches(step, &difference.step))
                && matches(&entry.path, &difference.path)
                && says(entry.real.as_ref(), difference.real.as_ref())
                && says(entry.sim.as_ref(), difference.sim.as_ref())
        });
        found.map(|entry| entry.used += 1).is_some()
    }

    /// How many differences were accepted.
    pub fn uses(&self) -> usize {
        self.entries.iter().map(|entry| entry.used).sum()
    }

    pub fn unused(&self) -> impl Iterator<Item = &Accepted> {
        self.entries.iter().filter(|entry| entry.used == 0 && !entry.chance)
    }
}

/// Whether a value is what an entry wants it to be; nothing is the empty text.
fn says(pattern: Option<&String>, value: Option<&Value>) -> bool {
    let text = match value {
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
        None => String::new(),
    };
    pattern.is_none_or(|pattern| matches(pattern, &text))
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
    fn an_entry_covers_only_what_it_says() {
        let entries = serde_saphyr::from_str("[{case: 'a/*', path: body.message, real: '*diff*', reason: r}]").unwrap();
        let mut list = AcceptedList { entries };
        let difference = |told: &str| Difference {
            index: 1,
            step: "GET x".to_owned(),
            path: "body.message".to_owned(),
            real: Some(Value::from(told)),
            sim: None,
        };
        assert!(!list.covers("a/b", &difference("other")) && !list.covers("c/b", &difference("a diff")));
        assert_eq!(list.unused().count(), 1);
        assert!(list.covers("a/b", &difference("a diff")));
        assert_eq!((list.uses(), list.unused().count()), (1, 0));
    }

    #[test]
    fn an_entry_for_a_step_covers_no_other() {
        let entries = serde_saphyr::from_str("[{case: a/b, step: 'POST x/*/token', path: status, reason: r}]").unwrap();
        let mut list = AcceptedList { entries };
        let difference = |step: &str| Difference {
            index: 1,
            step: step.to_owned(),
            path: "status".to_owned(),
            real: Some(Value::from(201)),
            sim: Some(Value::from(405)),
        };
        assert!(!list.covers("a/b", &difference("POST x")) && !list.covers("a/b", &difference("GET x/y/token")));
        assert!(list.covers("a/b", &difference("POST x/y/token")));
    }

    #[test]
    fn stars_stand_for_any_text() {
        assert!(matches("a*c", "abbc") && matches("*", "") && matches("x.*.y*", "x.1.y"));
        assert!(!matches("a*c", "abbd") && !matches("a", "ab"));
    }
}

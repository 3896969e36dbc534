//! Something that happens to machines at a moment of an upgrade: the journal of a machine is read from outside, many times a second, and
//! the first time a moment comes that was waited for, it happens. What happens is the test's to say.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use afloat_lab::Machine;
use serde_json::Value;

use crate::Error;
use crate::read::text;

/// Between two looks at a journal: so much later than it began something happens to an instruction, or to what followed on one that was quicker.
const LOOK: Duration = Duration::from_millis(10);
/// The digits before each line, and the space after them.
const CHECKSUM: usize = 17;

/// What a machine is about to do.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Entry {
    pub step: String,
    pub what: String,
}

/// Whoever waits for moments. They come until it is asked how many there were.
#[derive(Debug)]
pub struct Moments {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<Vec<String>, Error>>,
}

impl Moments {
    /// `named` says by which name a moment is waited for, if it is; for each name `act` is called once, and once for those that came within
    /// one look.
    pub fn of(
        machine: Machine,
        named: impl Fn(&Entry) -> Option<String> + Send + 'static,
        act: impl Fn(&Machine) -> Result<(), Error> + Send + 'static,
    ) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let mut journal = Journal::of(machine.root().join("var/lib/afloat/journal"));
            let (mut seen, mut order) = (BTreeSet::new(), Vec::new());
            while !told.load(Ordering::Relaxed) {
                let entries = journal.since_last_look(&journal.content());
                let came = entries.iter().filter_map(&named);
                let before = order.len();
                order.extend(came.filter(|name| seen.insert(name.clone())));
                if order.len() > before {
                    act(&machine)?;
                    journal.pass_over(&journal.content());
                }
                thread::sleep(LOOK);
            }
            Ok(order)
        });
        Self { stop, thread }
    }

    /// The moments that have come, in their order.
    pub fn stop(self) -> Result<Vec<String>, Error> {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.join();
        ended.unwrap_or_else(|_| Err(Error::Unexpected("a moment".to_owned(), "it panicked".to_owned())))
    }
}

/// The journal of a machine, and how far it was read.
struct Journal {
    path: PathBuf,
    read: String,
}

impl Journal {
    fn of(path: PathBuf) -> Self {
        let read = String::new();
        Self { path, read }
    }

    fn content(&self) -> String {
        std::fs::read_to_string(&self.path).unwrap_or_default()
    }

    /// What its machine was about to do since the last look. An instruction that was over within a look is among it.
    fn since_last_look(&mut self, content: &str) -> Vec<Entry> {
        let content = whole_lines(content);
        // One of another attempt begins anew.
        let new = content.strip_prefix(self.read.as_str()).unwrap_or(content);
        let entries = new.lines().filter_map(entry).collect();
        content.clone_into(&mut self.read);
        entries
    }

    /// What was written while something happened is no moment any more, but for the newest line.
    fn pass_over(&mut self, content: &str) {
        let content = whole_lines(content).trim_end_matches('\n');
        let newest = content.rfind('\n').map_or(0, |end| end + 1);
        content[..newest].clone_into(&mut self.read);
    }
}

/// Without a line that is being written.
fn whole_lines(content: &str) -> &str {
    let end = content.rfind('\n').map_or(0, |end| end + 1);
    &content[..end]
}

/// What a line says that its machine is about to do.
fn entry(line: &str) -> Option<Entry> {
    let entry: Value = serde_json::from_str(line.get(CHECKSUM..)?).ok()?;
    (entry["is"] == "intent").then(|| Entry {
        step: text(&entry, "/step"),
        what: text(&entry, "/what"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(is: &str, what: &str) -> String {
        format!("0123456789abcdef {{\"is\":\"{is}\",\"step\":\"kubeadm\",\"what\":\"{what}\"}}\n")
    }

    #[test]
    fn what_was_over_within_a_look_is_seen_once_and_what_passed_meanwhile_is_not() {
        let mut journal = Journal::of(PathBuf::new());
        let mut look = |content: &str| {
            let entries = journal.since_last_look(content);
            entries.into_iter().map(|entry| entry.what).collect::<Vec<_>>()
        };
        assert_eq!(look(""), [""; 0]);
        let first = [
            line("intent", "one"),
            line("done", "one"),
            line("intent", "two"),
            line("done", "two"),
        ]
        .concat();
        assert_eq!(look(&first), ["one", "two"]);
        assert_eq!(look(&first), [""; 0]);
        let half = line("intent", "three");
        let half = &half[..half.len() - 4];
        assert_eq!(look(&format!("{first}{half}")), [""; 0]);
        assert_eq!(look(&format!("{first}{}", line("intent", "three"))), ["three"]);
        // That of the next attempt.
        assert_eq!(look(&line("intent", "four")), ["four"]);

        let passed = [line("intent", "four"), line("intent", "five"), line("intent", "six")].concat();
        journal.pass_over(&passed);
        let entries = journal.since_last_look(&passed);
        assert_eq!(
            entries.iter().map(|entry| entry.what.as_str()).collect::<Vec<_>>(),
            ["six"]
        );
    }
}

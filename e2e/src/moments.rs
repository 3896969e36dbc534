//! Something that happens to machines at a moment of an upgrade: the journal of a machine is read from outside, many times a second, and
//! the first time a moment comes that was waited for, it happens. What happens is the test's to say.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use afloat_lab::Machine;
use serde_json::Value;

use crate::Error;
use crate::read::text;

/// Between two looks at a journal. Most instructions take longer.
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
    /// `named` says by which name a moment is waited for, if it is; under each name `act` is called once.
    pub fn of(
        machine: Machine,
        named: impl Fn(&Entry) -> Option<String> + Send + 'static,
        act: impl Fn(&Machine) -> Result<(), Error> + Send + 'static,
    ) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let journal = machine.root().join("var/lib/afloat/journal");
            let (mut seen, mut order) = (BTreeSet::new(), Vec::new());
            while !told.load(Ordering::Relaxed) {
                // The newest only: what is over by now is no moment any more.
                let name = newest(&journal).as_ref().and_then(&named);
                if let Some(name) = name.filter(|name| seen.insert(name.clone())) {
                    order.push(name);
                    act(&machine)?;
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

/// What a journal says last that its machine is about to do.
fn newest(journal: &Path) -> Option<Entry> {
    let content = std::fs::read_to_string(journal).ok()?;
    let entry: Value = serde_json::from_str(content.lines().last()?.get(CHECKSUM..)?).ok()?;
    (entry["is"] == "intent").then(|| Entry {
        step: text(&entry, "/step"),
        what: text(&entry, "/what"),
    })
}

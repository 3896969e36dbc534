//! Whether the workload's Service was ever without a ready endpoint: its EndpointSlice, watched from beginning to end by kubectl, which is
//! started again when its connection ends.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::{Error, Site};

/// Between two watches; the API server may be away for a moment.
const AGAIN: Duration = Duration::from_millis(200);

/// What was seen of a Service.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// The fewest ready endpoints at any time; none where nothing was seen at all.
    pub fewest: Option<usize>,
    pub changes: u64,
}

/// A Service that is watched until `stop`, or until this is dropped.
#[derive(Debug)]
pub struct Endpoints {
    stop: Arc<AtomicBool>,
    child: Arc<Mutex<Option<Child>>>,
    thread: Option<JoinHandle<Seen>>,
}

impl Endpoints {
    pub fn watch(site: &Site, service: &str) -> Result<Self, Error> {
        let (stop, child) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(None)));
        let mut command = site.lab.kubectl_command()?;
        command
            // Cut and begun anew now and then: a watch that hangs on a control plane which went away would see nothing more.
            .args(["get", "endpointslices", "--watch", "--request-timeout=20s", "-l"])
            .arg(format!("kubernetes.io/service-name={service}"))
            .args(["-o", "jsonpath={range .endpoints[*]}{.conditions.ready} {end}{\"\\n\"}"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let (stopped, held) = (Arc::clone(&stop), Arc::clone(&child));
        let thread = thread::spawn(move || {
            let mut seen = Seen::default();
            while !stopped.load(Ordering::Relaxed) {
                let Ok(mut started) = command.spawn() else {
                    thread::sleep(AGAIN);
                    continue;
                };
                let lines = started.stdout.take();
                *held.lock().unwrap_or_else(PoisonError::into_inner) = Some(started);
                if let Some(lines) = lines {
                    for line in BufReader::new(lines).lines().map_while(Result::ok) {
                        seen.take(&line);
                    }
                }
                end(&held);
                thread::sleep(AGAIN);
            }
            seen
        });
        Ok(Self {
            stop,
            child,
            thread: Some(thread),
        })
    }

    /// Ends it and says what was seen.
    pub fn stop(mut self) -> Seen {
        self.stop.store(true, Ordering::Relaxed);
        end(&self.child);
        let thread = self.thread.take();
        thread.and_then(|thread| thread.join().ok()).unwrap_or_default()
    }
}

impl Drop for Endpoints {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        end(&self.child);
    }
}

impl Seen {
    fn take(&mut self, line: &str) {
        let ready = line.split_whitespace().filter(|word| *word == "true").count();
        self.fewest = Some(self.fewest.map_or(ready, |fewest| fewest.min(ready)));
        self.changes += 1;
    }
}

fn end(child: &Mutex<Option<Child>>) {
    if let Some(mut child) = child.lock().unwrap_or_else(PoisonError::into_inner).take() {
        let _ = child.kill();
        let _ = child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fewest_is_kept() {
        let mut seen = Seen::default();
        for line in ["true true false ", "true ", "true true true true "] {
            seen.take(line);
        }
        assert_eq!((seen.fewest, seen.changes), (Some(1), 3));
        seen.take("");
        assert_eq!(seen.fewest, Some(0));
    }
}

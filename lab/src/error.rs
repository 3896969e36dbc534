//! What can go wrong in the lab, in words that say what to do next.

use std::{io, path::PathBuf};

/// Everything this crate can fail with.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("this machine cannot run the lab:\n  - {}", .0.join("\n  - "))]
    Unable(Vec<String>),
    #[error("{path}: {source}")]
    File { path: PathBuf, source: io::Error },
    #[error("{what} could not be started: {source}\n  help: tools/ensure lab")]
    Spawn { what: String, source: io::Error },
    #[error("{what} failed ({status}):\n{said}")]
    Failed { what: String, status: String, said: String },
    #[error("{what} was not done after {seconds}s; it said last:\n{said}")]
    Slow { what: String, seconds: u64, said: String },
    #[error("{what} did not come about within {seconds}s: {last}")]
    Waited { what: String, seconds: u64, last: String },
    #[error(transparent)]
    Components(#[from] afloat_realparts::Error),
    #[error("no release is called {version}; the lab has: {known}")]
    UnknownRelease { version: String, known: String },
    #[error("'{0}' cannot be the name of a lab: use up to 20 of a-z, 0-9 and -")]
    Name(String),
    #[error("a lab has 1 to 9 control planes and 0 to 9 workers")]
    Size,
    #[error("there is no lab called {0}\n  help: make lab-up")]
    NoLab(String),
    #[error("there is a lab called {name} already, and it is another one: {there}\n  help: make lab-down")]
    AnotherLab { name: String, there: String },
    #[error("lab {lab} has no machine {machine}; it has: {known}")]
    NoMachine {
        lab: String,
        machine: String,
        known: String,
    },
    #[error("machine {0} is off")]
    Off(String),
    #[error("{what} cannot be read: {message}")]
    Unreadable { what: String, message: String },
    #[error("{0} ended badly: this is a fault of the lab itself")]
    Broken(&'static str),
    #[error("probers: {0}")]
    Probe(String),
}

impl Error {
    pub(crate) fn file(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { path, source }
    }
}

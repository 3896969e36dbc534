//! What can go wrong with real parts, in words that say what to do next.

use std::{io, path::PathBuf};

/// Everything this crate can fail with.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("no component is called {name}; known are: {known}")]
    UnknownComponent { name: String, known: String },
    #[error("not built yet: {}\n  help: cargo xtask components (with --set lab for what the lab's machines run)", .missing.join(", "))]
    NotBuilt { missing: Vec<String> },
    #[error("{0}\n  help: install Go from https://go.dev/dl/ and put it on the PATH")]
    Go(String),
    #[error("{path}: {message}")]
    Module { path: PathBuf, message: String },
    #[error("no folder for the cache: set AFLOAT_CACHE, XDG_CACHE_HOME or HOME")]
    NoCacheFolder,
    #[error("{path}: {source}")]
    File { path: PathBuf, source: io::Error },
    #[error("certificates for the control plane: {0}")]
    Certificates(#[from] rcgen::Error),
    #[error("{program} could not be started: {source}\n  help: {help}")]
    Spawn {
        program: String,
        source: io::Error,
        help: &'static str,
    },
    #[error("{name} ended by itself ({status}); the end of its log:\n{tail}")]
    Ended { name: String, status: String, tail: String },
    #[error("{name} was not ready after {seconds}s: {last}; the end of its log:\n{tail}")]
    NotReady {
        name: String,
        seconds: u64,
        last: String,
        tail: String,
    },
    #[error("request to {address}: {message}")]
    Http { address: String, message: String },
}

impl Error {
    pub(crate) fn file(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { path, source }
    }
}

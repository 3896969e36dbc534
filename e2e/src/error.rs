//! What keeps a site from being set up, in words that say what to do next.

use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Lab(#[from] afloat_lab::Error),
    #[error("{path}: {source}")]
    File { path: PathBuf, source: std::io::Error },
    #[error(
        "AFLOAT_STATIC does not name the afloat to test\n  help: make static, then AFLOAT_STATIC=that file; make e2e-smoke does both"
    )]
    NoBinary,
    #[error("afloat {words} ended with {status}:\n{said}")]
    Failed {
        words: String,
        status: String,
        said: String,
    },
    #[error("{what} did not come about within {seconds}s; last seen: {last}")]
    Waited { what: String, seconds: u64, last: String },
    #[error("{0} is not what was expected: {1}")]
    Unexpected(String, String),
}

impl Error {
    pub(crate) fn file(path: &std::path::Path) -> impl FnOnce(std::io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| Self::File { path, source }
    }
}

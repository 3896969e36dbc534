//! Why something about a bundle cannot be done: what, with which file or place, and what helps.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use afloat_node::digest::Digest;

pub type Result<T> = std::result::Result<T, Error>;

/// One thing that is wrong with what was given.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Complaint {
    pub about: String,
    pub fact: String,
    pub help: Option<String>,
}

impl Complaint {
    pub fn new(about: impl Into<String>, fact: impl Into<String>) -> Self {
        Self {
            about: about.into(),
            fact: fact.into(),
            help: None,
        }
    }

    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}

impl fmt::Display for Complaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.about, self.fact)
    }
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot {action} {}: {source}", path.display())]
    File {
        action: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    #[error("{} changed while it was read", .0.display())]
    Changed(PathBuf),
    /// All that is wrong with what a bundle was to be made of.
    #[error("{} of what was given cannot go into a bundle", .0.len())]
    Inputs(Vec<Complaint>),
    #[error("{} is no OCI image layout: {fact}", folder.display())]
    NotALayout { folder: PathBuf, fact: String },
    #[error("{} holds no bundle {wanted}", folder.display())]
    NoSuchBundle {
        folder: PathBuf,
        wanted: String,
        there: Vec<String>,
    },
    #[error("{what} in blob {digest} cannot be read: {fact}")]
    Blob {
        what: &'static str,
        digest: Digest,
        fact: String,
    },
    #[error("{} is no key: {fact}", path.display())]
    Key { path: PathBuf, fact: String },
    #[error("{} is there already", .0.display())]
    Exists(PathBuf),
    #[error("the registry {registry} does not answer: {fact}")]
    Unreachable { registry: String, fact: String },
    #[error("the registry {registry} refused to {action} ({status}){fact}")]
    Registry {
        registry: String,
        action: String,
        status: u16,
        fact: String,
    },
    #[error("{reference} {fact}")]
    NotABundle { reference: String, fact: String },
    #[error("cannot write {what} as JSON: {source}")]
    Json {
        what: &'static str,
        source: serde_json::Error,
    },
}

impl Error {
    /// What a file system said about a path.
    pub fn file(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File { action, path, source }
    }

    /// What to do about it, where that is known.
    pub fn help(&self) -> Option<String> {
        match self {
            Self::File { source, .. } if source.kind() == io::ErrorKind::StorageFull => {
                Some("free some space there, or choose another folder".to_owned())
            }
            Self::NotALayout { .. } => Some("afloat bundle create --output FOLDER makes one".to_owned()),
            Self::NoSuchBundle { there, .. } if there.is_empty() => {
                Some("afloat bundle create --output FOLDER makes one".to_owned())
            }
            Self::NoSuchBundle { there, .. } => Some(format!("there are {}: --tag NAME", there.join(", "))),
            Self::Key { .. } => Some("afloat bundle keygen NAME makes NAME.key and NAME.pub".to_owned()),
            Self::Unreachable { fact, .. } if fact.contains("certificate") => {
                Some("--ca FILE names the authority that signed its certificate".to_owned())
            }
            Self::Unreachable { fact, .. } if fact.contains("corrupt message") => {
                Some("--plain-http, if it serves without TLS".to_owned())
            }
            Self::Unreachable { registry, .. } => Some(format!("curl -v https://{registry}/v2/")),
            Self::Registry {
                registry,
                status: 401 | 403,
                ..
            } => Some(format!(
                "docker login {registry}, or --docker-config FILE with what it knows you by"
            )),
            Self::Exists(_) => Some("choose another name, or remove it".to_owned()),
            _ => None,
        }
    }
}

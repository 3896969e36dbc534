//! What a bundle is made of: the files people name, looked at before anything is written. Everything that is wrong is said at
//! once, with the file and what helps; what is merely worth knowing is noted.

mod ask;
mod collect;

use std::path::PathBuf;

pub use ask::{Ask, run};

use crate::{Complaint, Error, Result};

/// Files and folders as people name them.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// Versions, each with the folder of its programs.
    pub kubernetes: Vec<(String, PathBuf)>,
    /// containerd, its shim, ctr, runc: folders or files.
    pub runtime: Vec<PathBuf>,
    pub cni: Vec<PathBuf>,
    /// Archives of images, or folders of them.
    pub images: Vec<PathBuf>,
    /// The program itself.
    pub afloat: PathBuf,
}

/// A file of the bundle.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Item {
    /// Its path within the bundle.
    pub name: String,
    pub source: PathBuf,
    pub bytes: u64,
    pub is_program: bool,
}

/// Files that are one thing to people: a program, a set of plugins, an archive of images.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Component {
    pub name: String,
    pub version: Option<String>,
    /// Components of one layer change together.
    pub layer: String,
    pub items: Vec<Item>,
    /// The images in it, where it is an archive of them.
    pub images: Vec<String>,
}

/// What was looked at and found good.
#[derive(Clone, Debug)]
pub struct Checked {
    pub components: Vec<Component>,
    /// As images name it, `amd64`.
    pub machine: &'static str,
    /// The oldest first.
    pub versions: Vec<String>,
    pub notes: Vec<String>,
}

/// Looks at everything. Programs are asked for their version where `ask` gets an answer.
pub fn check(sources: &Sources, ask: Ask<'_>) -> Result<Checked> {
    let mut collector = collect::Collector::new(ask);
    collector.afloat(&sources.afloat);
    for path in &sources.runtime {
        collector.runtime(path);
    }
    for path in &sources.cni {
        collector.cni(path);
    }
    let mut kubernetes = sources.kubernetes.clone();
    kubernetes.sort_by_key(|(version, _)| ordered(version));
    for (version, folder) in &kubernetes {
        collector.kubernetes(version, folder);
    }
    for path in &sources.images {
        collector.images(path);
    }
    for (version, folder) in &kubernetes {
        collector.missing_images(version, folder);
    }
    let versions = kubernetes.into_iter().map(|(version, _)| version).collect();
    let (found, mut complaints) = collector.end(versions);
    if found.components.is_empty() && complaints.is_empty() {
        complaints.push(Complaint::new("nothing", "was given"));
    }
    if complaints.is_empty() {
        Ok(found)
    } else {
        Err(Error::Inputs(complaints))
    }
}

/// A version as something that compares.
pub fn ordered(version: &str) -> Option<semver::Version> {
    semver::Version::parse(version.trim_start_matches('v')).ok()
}

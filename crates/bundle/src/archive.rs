//! Archives of container images, as `docker save`, `ctr images export`, `skopeo copy` or `crane pull` write them: which images are
//! in one. What is in an image is nobody's business here.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use serde::Deserialize;

use crate::oci::{Index, notes};

/// The list of images within is short; anything longer is something else.
const LONGEST_LIST: u64 = 4 << 20;
/// The name containerd gives an image in an index.
const CONTAINERD_NAME: &str = "io.containerd.image.name";

/// Why a file is no archive of images.
#[derive(Debug, thiserror::Error)]
pub enum NotAnArchive {
    #[error("is compressed")]
    Compressed,
    #[error("is no tar archive with a manifest.json or an index.json in it")]
    Other,
    #[error("names no image")]
    Nameless,
    #[error("cannot be read: {0}")]
    Unreadable(#[from] io::Error),
}

/// An entry of `manifest.json`.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Entry {
    repo_tags: Option<Vec<String>>,
}

/// The names of the images in an archive, sorted.
pub fn images(path: &Path) -> Result<Vec<String>, NotAnArchive> {
    if is_compressed(path)? {
        return Err(NotAnArchive::Compressed);
    }
    let mut archive = tar::Archive::new(File::open(path)?);
    let (mut names, mut seen) = (Vec::new(), false);
    let entries = archive.entries_with_seek().map_err(|_| NotAnArchive::Other)?;
    for entry in entries {
        let entry = entry.map_err(|_| NotAnArchive::Other)?;
        let name = entry.path_bytes().into_owned();
        let name = name.strip_prefix(b"./").unwrap_or(&name);
        let is_list = name == b"manifest.json" || name == b"index.json";
        if !is_list || entry.size() > LONGEST_LIST {
            continue;
        }
        seen = true;
        let (docker, mut text) = (name == b"manifest.json", Vec::new());
        entry.take(LONGEST_LIST).read_to_end(&mut text)?;
        names.extend(if docker { of_docker(&text) } else { of_oci(&text) });
    }
    names.sort();
    names.dedup();
    match (seen, names.is_empty()) {
        (false, _) => Err(NotAnArchive::Other),
        (true, true) => Err(NotAnArchive::Nameless),
        (true, false) => Ok(names),
    }
}

fn of_docker(text: &[u8]) -> Vec<String> {
    let entries: Vec<Entry> = serde_json::from_slice(text).unwrap_or_default();
    entries
        .into_iter()
        .filter_map(|entry| entry.repo_tags)
        .flatten()
        .collect()
}

fn of_oci(text: &[u8]) -> Vec<String> {
    let index: Index = serde_json::from_slice(text).unwrap_or_default();
    let by_note = |note: &str| {
        let manifests = index.manifests.iter();
        manifests
            .filter_map(|found| found.annotations.get(note).cloned())
            .collect::<Vec<_>>()
    };
    let names = by_note(CONTAINERD_NAME);
    // A bare tag names no image; some tools write nothing else there.
    let whole = |names: Vec<String>| {
        names
            .into_iter()
            .filter(|name| name.contains('/') || name.contains(':'))
            .collect()
    };
    if names.is_empty() {
        whole(by_note(notes::TAG))
    } else {
        names
    }
}

fn is_compressed(path: &Path) -> io::Result<bool> {
    let mut head = Vec::new();
    File::open(path)?.take(6).read_to_end(&mut head)?;
    let magics: [&[u8]; 3] = [b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\xfd7zXZ\x00"];
    Ok(magics.into_iter().any(|magic| head.starts_with(magic)))
}

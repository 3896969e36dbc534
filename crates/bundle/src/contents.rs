//! What an image really holds: its layers read file by file, without unpacking anything. Whatever a bundle has no reason to hold
//! (links that lead elsewhere, devices, files for other owners, one file twice) is said.

use std::collections::BTreeMap;
use std::io::{self, Read};

use afloat_node::digest::Digest;
use sha2::{Digest as _, Sha256};

use crate::create::{FOLDER, SUMS, SUMS_SIGNATURE};
use crate::layout::Layout;
use crate::oci::{Descriptor, notes};
use crate::progress::{News, Tell};
use crate::{Complaint, Error, Result};

/// The lists of a bundle are short; a longer one is not read into memory.
const LONGEST_LIST: u64 = 4 << 20;
/// A bundle has tens of files; an image with more is none.
const MOST_FILES: usize = 10_000;

/// A file in an image.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Found {
    pub digest: Digest,
    pub bytes: u64,
    /// What its layer is called.
    pub layer: String,
}

/// All files of an image.
#[derive(Clone, Debug, Default)]
pub struct Contents {
    /// By their whole paths, `/bundle/cni/bridge`.
    pub files: BTreeMap<String, Found>,
    /// `SHA256SUMS` and its signature, as they are in the image.
    pub sums: Option<Vec<u8>>,
    pub sums_signature: Option<Vec<u8>>,
    pub complaints: Vec<Complaint>,
}

/// What a layer is called, for people.
pub fn layer_name(layer: &Descriptor) -> String {
    layer
        .annotations
        .get(notes::PART)
        .cloned()
        .unwrap_or_else(|| "without a name".to_owned())
}

/// Reads all layers; each blob is compared with its digest on the way.
pub fn read(layout: &Layout, layers: &[Descriptor], tell: Tell<'_>) -> Result<Contents> {
    let mut contents = Contents::default();
    for layer in layers {
        let name = layer_name(layer);
        tell(News::Begins {
            what: &name,
            bytes: layer.size,
        });
        contents.layer(layout, layer, &name, tell)?;
        tell(News::Ends { skipped: false });
    }
    Ok(contents)
}

/// What is wrong with the bytes of a blob.
pub fn compare(blob: &Descriptor, name: &str, size: u64, found: Digest) -> Option<Complaint> {
    let about = format!("blob {} ({name})", blob.digest);
    if found != blob.digest {
        return Some(Complaint::new(
            about,
            format!("was changed: its content has the digest {found}"),
        ));
    }
    let fact = format!("has {size} bytes and should have {}", blob.size);
    (size != blob.size).then(|| Complaint::new(about, fact))
}

impl Contents {
    fn layer(&mut self, layout: &Layout, layer: &Descriptor, name: &str, tell: Tell<'_>) -> Result<()> {
        let path = layout.path(layer.digest);
        if layout.size(layer.digest).is_none() {
            let about = format!("blob {} (layer {name})", layer.digest);
            self.complaints.push(Complaint::new(about, "is not there"));
            return Ok(());
        }
        let mut bytes = Heard {
            inner: layout.read_blob(layer.digest)?,
            hasher: Sha256::new(),
            size: 0,
            tell,
        };
        let mut archive = tar::Archive::new(&mut bytes);
        let walked = self.walk(&mut archive, name);
        io::copy(&mut bytes, &mut io::sink()).map_err(Error::file("read", &path))?;
        let found = Digest::from(<[u8; 32]>::from(bytes.hasher.finalize()));
        match (compare(layer, &format!("layer {name}"), bytes.size, found), walked) {
            // What is in a damaged layer means nothing.
            (Some(damage), _) => self.complaints.push(damage),
            (None, Ok(())) => {}
            (None, Err(error)) => {
                let about = format!("blob {} (layer {name})", layer.digest);
                self.complaints
                    .push(Complaint::new(about, format!("cannot be read: {error}")));
            }
        }
        Ok(())
    }

    fn walk(&mut self, archive: &mut tar::Archive<impl Read>, layer: &str) -> io::Result<()> {
        for entry in archive.entries()? {
            let mut entry = entry?;
            let path = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
            let path = format!("/{}", path.trim_end_matches('/'));
            if self.files.len() >= MOST_FILES {
                return Err(io::Error::other(format!("it has more than {MOST_FILES} files")));
            }
            if let Some(fact) = strange(&path, entry.header())? {
                self.complaints.push(Complaint::new(path, fact));
                continue;
            }
            let found = match entry.header().entry_type() {
                tar::EntryType::Directory => continue,
                tar::EntryType::Link => {
                    let target = entry.link_name_bytes().unwrap_or_default().into_owned();
                    let target = format!("/{}", String::from_utf8_lossy(&target));
                    self.files.get(&target).filter(|found| found.layer == layer).cloned()
                }
                tar::EntryType::Regular => Some(self.regular(&path, &mut entry, layer)?),
                _ => None,
            };
            let Some(found) = found else {
                self.complaints
                    .push(Complaint::new(path, "is neither a file nor a folder"));
                continue;
            };
            if let Some(other) = self.files.insert(path.clone(), found) {
                let fact = format!("is in the layers {} and {layer}", other.layer);
                self.complaints.push(Complaint::new(path, fact));
            }
        }
        Ok(())
    }

    fn regular(&mut self, path: &str, content: &mut impl Read, layer: &str) -> io::Result<Found> {
        let list = path
            .strip_prefix('/')
            .and_then(|path| path.strip_prefix(FOLDER))
            .and_then(|path| path.strip_prefix('/'));
        let kept = match list {
            Some(SUMS) => Some(&mut self.sums),
            Some(SUMS_SIGNATURE) => Some(&mut self.sums_signature),
            _ => None,
        };
        let mut counted = Counted {
            inner: content,
            bytes: 0,
        };
        let digest = match kept {
            None => Digest::copy(&mut counted, &mut io::sink())?,
            Some(kept) => {
                let mut text = Vec::new();
                (&mut counted).take(LONGEST_LIST).read_to_end(&mut text)?;
                let digest = Digest::of(&text);
                *kept = Some(text);
                digest
            }
        };
        Ok(Found {
            digest,
            bytes: counted.bytes,
            layer: layer.to_owned(),
        })
    }
}

/// What a bundle has no reason to hold.
fn strange(path: &str, header: &tar::Header) -> io::Result<Option<String>> {
    if path
        .split('/')
        .skip(1)
        .any(|part| part.is_empty() || part == "." || part == "..")
    {
        return Ok(Some("has a path that leads elsewhere".to_owned()));
    }
    if path.rsplit('/').next().is_some_and(|name| name.starts_with(".wh.")) {
        return Ok(Some("would take another file away".to_owned()));
    }
    let (uid, gid, mode) = (header.uid()?, header.gid()?, header.mode()?);
    if (uid, gid) != (0, 0) {
        return Ok(Some(format!("belongs to {uid}:{gid} instead of root")));
    }
    let fact = format!("has the permissions {mode:o}");
    Ok((mode != 0o755 && mode != 0o644).then_some(fact))
}

struct Heard<'a, R> {
    inner: R,
    hasher: Sha256,
    size: u64,
    tell: Tell<'a>,
}

impl<R: Read> Read for Heard<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.hasher.update(buffer.get(..count).unwrap_or_default());
        self.size += count as u64;
        (self.tell)(News::Bytes(count as u64));
        Ok(count)
    }
}

struct Counted<R> {
    inner: R,
    bytes: u64,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.bytes += count as u64;
        Ok(count)
    }
}

//! A folder as an OCI image layout: `oci-layout`, `index.json`, and every blob under its digest. Blobs come into it whole or
//! not at all; the index is written last, so that an interruption leaves what was there before.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use afloat_node::digest::Digest;
use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest as _, Sha256};
use tempfile::NamedTempFile;

use crate::oci::{self, Descriptor, Index, Manifest};
use crate::{Error, Result};

const MARK: &str = "oci-layout";
const MARK_TEXT: &str = "{\"imageLayoutVersion\":\"1.0.0\"}";
/// Longer documents are none of ours: they would be read into memory.
const LONGEST_DOCUMENT: u64 = 64 << 20;

/// A layout on disk.
#[derive(Clone, Debug)]
pub struct Layout {
    folder: PathBuf,
}

impl Layout {
    /// The layout that is there.
    pub fn open(folder: &Path) -> Result<Self> {
        let wrong = |fact: String| Error::NotALayout {
            folder: folder.to_owned(),
            fact,
        };
        let mark = folder.join(MARK);
        match fs::read_to_string(&mark) {
            Ok(text) if text.contains("imageLayoutVersion") => {}
            Ok(_) => return Err(wrong(format!("{} does not say its version", mark.display()))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(wrong("it has no file oci-layout".to_owned()));
            }
            Err(source) => return Err(Error::file("read", &mark)(source)),
        }
        Ok(Self {
            folder: folder.to_owned(),
        })
    }

    /// The layout that is there, or a new one in a folder that is empty or not there.
    pub fn open_or_create(folder: &Path) -> Result<Self> {
        if folder.join(MARK).exists() {
            return Self::open(folder);
        }
        let taken = fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some());
        if taken {
            return Err(Error::NotALayout {
                folder: folder.to_owned(),
                fact: "it has other files in it".to_owned(),
            });
        }
        let layout = Self {
            folder: folder.to_owned(),
        };
        let blobs = layout.blobs();
        fs::create_dir_all(&blobs).map_err(Error::file("make", &blobs))?;
        layout.write_index(&Index::default())?;
        layout.write_file(MARK, MARK_TEXT.as_bytes())?;
        Ok(layout)
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    fn blobs(&self) -> PathBuf {
        self.folder.join("blobs").join("sha256")
    }

    /// Where a blob lies, whether it is there or not.
    pub fn path(&self, digest: Digest) -> PathBuf {
        self.blobs().join(hex(digest))
    }

    pub fn size(&self, digest: Digest) -> Option<u64> {
        fs::metadata(self.path(digest))
            .ok()
            .filter(fs::Metadata::is_file)
            .map(|found| found.len())
    }

    pub fn read_blob(&self, digest: Digest) -> Result<File> {
        let path = self.path(digest);
        File::open(&path).map_err(Error::file("read", &path))
    }

    /// A document, if its bytes are those it is named after.
    pub fn document<T: DeserializeOwned>(&self, what: &'static str, digest: Digest) -> Result<T> {
        let bytes = self.document_bytes(what, digest)?;
        serde_json::from_slice(&bytes).map_err(|error| Error::Blob {
            what,
            digest,
            fact: error.to_string(),
        })
    }

    pub fn document_bytes(&self, what: &'static str, digest: Digest) -> Result<Vec<u8>> {
        let wrong = |fact: String| Error::Blob { what, digest, fact };
        let mut bytes = Vec::new();
        let mut file = self.read_blob(digest)?.take(LONGEST_DOCUMENT + 1);
        file.read_to_end(&mut bytes)
            .map_err(Error::file("read", &self.path(digest)))?;
        if bytes.len() as u64 > LONGEST_DOCUMENT {
            return Err(wrong(format!("it is longer than {} MiB", LONGEST_DOCUMENT >> 20)));
        }
        let found = Digest::of(&bytes);
        if found != digest {
            return Err(wrong(format!("its content has the digest {found}")));
        }
        Ok(bytes)
    }

    /// A file to become a blob.
    pub fn begin_blob(&self) -> Result<BlobWriter> {
        let blobs = self.blobs();
        fs::create_dir_all(&blobs).map_err(Error::file("make", &blobs))?;
        let file = tempfile::Builder::new().prefix(".partial-").tempfile_in(&blobs);
        Ok(BlobWriter {
            file: file.map_err(Error::file("write in", &blobs))?,
            hasher: Sha256::new(),
            size: 0,
        })
    }

    /// Keeps a blob under its digest.
    pub fn keep(&self, blob: BlobWriter, media_type: &str) -> Result<Descriptor> {
        let digest = Digest::from(<[u8; 32]>::from(blob.hasher.finalize()));
        let path = self.path(digest);
        blob.file.as_file().sync_all().map_err(Error::file("write", &path))?;
        persist(blob.file, &path)?;
        Ok(Descriptor::new(media_type, digest, blob.size))
    }

    pub fn put(&self, media_type: &str, bytes: &[u8]) -> Result<Descriptor> {
        let mut blob = self.begin_blob()?;
        blob.write_all(bytes).map_err(Error::file("write in", &self.blobs()))?;
        self.keep(blob, media_type)
    }

    pub fn put_json<T: Serialize>(&self, what: &'static str, media_type: &str, value: &T) -> Result<Descriptor> {
        let bytes = serde_json::to_vec(value).map_err(|source| Error::Json { what, source })?;
        self.put(media_type, &bytes)
    }

    pub fn index(&self) -> Result<Index> {
        let path = self.folder.join("index.json");
        let text = fs::read(&path).map_err(Error::file("read", &path))?;
        serde_json::from_slice(&text).map_err(|error| Error::NotALayout {
            folder: self.folder.clone(),
            fact: format!("index.json: {error}"),
        })
    }

    pub fn write_index(&self, index: &Index) -> Result<()> {
        let bytes = serde_json::to_vec_pretty(index).map_err(|source| Error::Json {
            what: "index.json",
            source,
        })?;
        self.write_file("index.json", &bytes)
    }

    fn write_file(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let path = self.folder.join(name);
        let file = NamedTempFile::new_in(&self.folder).map_err(Error::file("write in", &self.folder))?;
        let written = file.as_file().write_all(bytes).and_then(|()| file.as_file().sync_all());
        written.map_err(Error::file("write", &path))?;
        persist(file, &path)
    }

    /// Adds manifests to the index. One of the same digest or tag is replaced; what referred to a replaced one goes with it.
    pub fn add(&self, manifests: &[Descriptor]) -> Result<()> {
        let mut index = self.index()?;
        let replaced: BTreeSet<Digest> = index
            .manifests
            .iter()
            .filter(|old| {
                manifests
                    .iter()
                    .any(|new| new.tag().is_some() && new.tag() == old.tag())
            })
            .map(|old| old.digest)
            .collect();
        let orphaned = |old: &Descriptor| {
            let manifest = self.manifest(old.digest).ok();
            let subject = manifest.and_then(|manifest| manifest.subject);
            subject.is_some_and(|subject| replaced.contains(&subject.digest))
        };
        index.manifests.retain(|old| {
            let same = manifests.iter().any(|new| new.digest == old.digest);
            !same && !replaced.contains(&old.digest) && !orphaned(old)
        });
        index.manifests.extend_from_slice(manifests);
        self.write_index(&index)?;
        self.sweep(&index)
    }

    pub fn manifest(&self, digest: Digest) -> Result<Manifest> {
        self.document("the manifest", digest)
    }

    /// Every blob that the index leads to. Manifests that cannot be read lead nowhere.
    pub fn reachable(&self, index: &Index) -> BTreeSet<Digest> {
        let mut found = BTreeSet::new();
        for descriptor in &index.manifests {
            found.insert(descriptor.digest);
            if descriptor.media_type == oci::MANIFEST
                && let Ok(manifest) = self.manifest(descriptor.digest)
            {
                found.extend(manifest.blobs().map(|blob| blob.digest));
            }
        }
        found
    }

    /// Names of files among the blobs that the index does not lead to.
    pub fn stray(&self, index: &Index) -> Result<Vec<String>> {
        let reachable: BTreeSet<String> = self.reachable(index).into_iter().map(hex).collect();
        let blobs = self.blobs();
        let mut stray = Vec::new();
        for entry in fs::read_dir(&blobs).map_err(Error::file("read", &blobs))? {
            let name = entry.map_err(Error::file("read", &blobs))?.file_name();
            let name = name.to_string_lossy().into_owned();
            if !reachable.contains(&name) {
                stray.push(name);
            }
        }
        stray.sort();
        Ok(stray)
    }

    /// Removes blobs that nothing leads to any more.
    fn sweep(&self, index: &Index) -> Result<()> {
        for name in self.stray(index)? {
            let path = self.blobs().join(name);
            fs::remove_file(&path).map_err(Error::file("remove", &path))?;
        }
        Ok(())
    }

    /// The bundles in it, in the order in which they came.
    pub fn bundles(&self) -> Result<Vec<(Descriptor, Manifest)>> {
        let mut bundles = Vec::new();
        for descriptor in self.index()?.manifests {
            if descriptor.media_type != oci::MANIFEST {
                continue;
            }
            let manifest = self.manifest(descriptor.digest)?;
            if manifest.kubernetes().is_some() {
                bundles.push((descriptor, manifest));
            }
        }
        Ok(bundles)
    }

    /// The bundle of this tag or digest; without one the only one there is.
    pub fn bundle(&self, wanted: Option<&str>) -> Result<(Descriptor, Manifest)> {
        let mut bundles = self.bundles()?;
        let there = bundles.iter().map(|(found, _)| name(found)).collect();
        match wanted {
            Some(wanted) => {
                bundles.retain(|(found, _)| found.tag() == Some(wanted) || found.digest.to_string() == wanted);
            }
            None if bundles.len() > 1 => bundles.clear(),
            None => {}
        }
        bundles.pop().ok_or_else(|| Error::NoSuchBundle {
            folder: self.folder.clone(),
            wanted: wanted.unwrap_or("that is meant for sure").to_owned(),
            there,
        })
    }
}

/// What a manifest of an index is called.
pub fn name(descriptor: &Descriptor) -> String {
    descriptor
        .tag()
        .map_or_else(|| descriptor.digest.to_string(), str::to_owned)
}

fn hex(digest: Digest) -> String {
    digest.to_string().trim_start_matches("sha256:").to_owned()
}

fn persist(file: NamedTempFile, path: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    // Others may serve or read it: a temporary file is for its maker alone.
    let open = fs::Permissions::from_mode(0o644);
    file.as_file()
        .set_permissions(open)
        .map_err(Error::file("write", path))?;
    file.persist(path)
        .map_err(|error| Error::file("write", path)(error.error))?;
    Ok(())
}

/// A blob that is being written.
pub struct BlobWriter {
    file: NamedTempFile,
    hasher: Sha256,
    size: u64,
}

impl BlobWriter {
    /// The digest of what was written so far.
    pub fn digest(&self) -> Digest {
        Digest::from(<[u8; 32]>::from(self.hasher.clone().finalize()))
    }
}

impl Write for BlobWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.file.write(bytes)?;
        self.hasher.update(bytes.get(..count).unwrap_or_default());
        self.size += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

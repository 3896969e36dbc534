//! The images of the lab, made here from the built components: a store of blobs by digest, from which an OCI archive is written for
//! containerd and a storage folder is linked for the registry. What is in which image is `contents`.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::{
    Error,
    archive::{self, Entry},
    shell,
};

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";

/// What an image is to be.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    /// Such as `registry.k8s.io/etcd:3.6.6-0`.
    pub(crate) reference: String,
    pub(crate) entrypoint: String,
    pub(crate) entries: Vec<(String, Entry)>,
}

/// An image in the store.
#[derive(Debug, Clone)]
pub(crate) struct Image {
    pub(crate) reference: String,
    /// Digest and size of its manifest.
    manifest: (String, u64),
    /// Digests of everything it is made of, the manifest included.
    blobs: Vec<String>,
}

/// Blobs by digest, shared by all labs.
#[derive(Debug, Clone)]
pub(crate) struct Store {
    folder: PathBuf,
}

impl Store {
    pub(crate) fn at(folder: PathBuf) -> Self {
        Self { folder }
    }

    fn blob(&self, digest: &str) -> PathBuf {
        self.folder.join("sha256").join(digest)
    }

    /// Makes the image unless it was made from the same before.
    pub(crate) fn provide(&self, plan: &Plan) -> Result<Image, Error> {
        let record = self.folder.join("made").join(recipe_of(plan)?);
        if let Ok(text) = fs::read_to_string(&record) {
            let image = self.remembered(&plan.reference, &text);
            if let Some(image) = image {
                return Ok(image);
            }
        }
        shell::make_folder(&self.folder.join("sha256"))?;
        let layer = self.add_layer(&plan.entries)?;
        let config = self.add_json(&json!({
            "architecture": if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" },
            "os": "linux",
            "config": {
                "Entrypoint": [plan.entrypoint],
                "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
            },
            "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{}", layer.0)]},
        }))?;
        let described = |kind: &str, (digest, size): &(String, u64)| json!({"mediaType": kind, "digest": format!("sha256:{digest}"), "size": size});
        let manifest = self.add_json(&json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": described(CONFIG, &config),
            "layers": [described(LAYER, &layer)],
        }))?;
        let text = json!({"manifest": manifest, "blobs": [manifest.0, config.0, layer.0]}).to_string();
        shell::write(&record, &text)?;
        self.remembered(&plan.reference, &text)
            .ok_or_else(|| Error::Unreadable {
                what: record.display().to_string(),
                message: "it was written a moment ago".to_owned(),
            })
    }

    fn remembered(&self, reference: &str, record: &str) -> Option<Image> {
        let record: Value = serde_json::from_str(record).ok()?;
        let manifest = serde_json::from_value(record.get("manifest")?.clone()).ok()?;
        let blobs: Vec<String> = serde_json::from_value(record.get("blobs")?.clone()).ok()?;
        blobs.iter().all(|digest| self.blob(digest).is_file()).then(|| Image {
            reference: reference.to_owned(),
            manifest,
            blobs,
        })
    }

    fn add_layer(&self, entries: &[(String, Entry)]) -> Result<(String, u64), Error> {
        let unfinished = self.folder.join(".unfinished");
        let failed = || Error::file(&unfinished);
        let file = File::create(&unfinished).map_err(failed())?;
        let mut out = Hashed {
            out: BufWriter::new(file),
            hash: Sha256::new(),
            size: 0,
        };
        archive::write_tar(&mut out, entries).map_err(failed())?;
        out.flush().map_err(failed())?;
        let digest = hex(&out.hash.finalize());
        fs::rename(&unfinished, self.blob(&digest)).map_err(failed())?;
        Ok((digest, out.size))
    }

    fn add_json(&self, value: &Value) -> Result<(String, u64), Error> {
        let text = value.to_string();
        let digest = hex(&Sha256::digest(text.as_bytes()));
        shell::write(&self.blob(&digest), &text)?;
        Ok((digest, text.len() as u64))
    }

    /// Writes an archive as `ctr images import` and `afloat bundle create` read it.
    pub(crate) fn export<W: Write>(&self, images: &[Image], out: &mut W) -> io::Result<()> {
        let index = json!({
            "schemaVersion": 2,
            "manifests": images.iter().map(|image| json!({
                "mediaType": MANIFEST,
                "digest": format!("sha256:{}", image.manifest.0),
                "size": image.manifest.1,
                "annotations": {
                    "io.containerd.image.name": image.reference,
                    "org.opencontainers.image.ref.name": image.reference,
                },
            })).collect::<Vec<_>>(),
        });
        archive::write_bytes(out, "oci-layout", 0o644, br#"{"imageLayoutVersion":"1.0.0"}"#)?;
        archive::write_bytes(out, "index.json", 0o644, index.to_string().as_bytes())?;
        let blobs: BTreeSet<&String> = images.iter().flat_map(|image| &image.blobs).collect();
        for digest in blobs {
            archive::write_file(out, &format!("blobs/sha256/{digest}"), 0o644, &self.blob(digest))?;
        }
        archive::finish(out)
    }

    /// Puts images into the storage folder of a registry (distribution's own layout), sharing the blobs on the disk.
    pub(crate) fn put_into_registry(&self, images: &[Image], storage: &Path) -> Result<(), Error> {
        let root = storage.join("docker/registry/v2");
        for image in images {
            let (repository, tag) = repository_and_tag(&image.reference);
            let home = root.join("repositories").join(repository);
            for digest in &image.blobs {
                let data = root.join("blobs/sha256").join(&digest[..2]).join(digest).join("data");
                if !data.exists() {
                    shell::make_folder(data.parent().unwrap_or(&data))?;
                    fs::hard_link(self.blob(digest), &data).map_err(Error::file(&data))?;
                }
                let kind = if *digest == image.manifest.0 {
                    "_manifests/revisions"
                } else {
                    "_layers"
                };
                shell::write(
                    &home.join(kind).join("sha256").join(digest).join("link"),
                    &format!("sha256:{digest}"),
                )?;
            }
            let manifest = &image.manifest.0;
            let named = home.join("_manifests/tags").join(tag);
            for link in [
                named.join("current/link"),
                named.join("index/sha256").join(manifest).join("link"),
            ] {
                shell::write(&link, &format!("sha256:{manifest}"))?;
            }
        }
        Ok(())
    }
}

impl Image {
    /// What changes when anything in it does.
    pub(crate) fn digest(&self) -> &str {
        &self.manifest.0
    }
}

/// `registry.k8s.io/coredns/coredns:v1` as `coredns/coredns` and `v1`: a mirror has the path without the host.
fn repository_and_tag(reference: &str) -> (&str, &str) {
    let path = reference.split_once('/').map_or(reference, |(_, path)| path);
    path.rsplit_once(':').unwrap_or((path, "latest"))
}

/// The name under which the result is remembered. A program counts by its path, size and time: its folder in the cache never changes.
fn recipe_of(plan: &Plan) -> Result<String, Error> {
    use std::os::unix::fs::MetadataExt;
    let mut hash = Sha256::new();
    hash.update(format!("{}\0{}", plan.reference, plan.entrypoint));
    for (path, entry) in &plan.entries {
        let state = match entry {
            Entry::Program(from) => {
                let about = fs::metadata(from).map_err(Error::file(from))?;
                format!("{} {}", about.len(), about.mtime_nsec())
            }
            _ => String::new(),
        };
        hash.update(format!("\0{path}\0{entry:?}\0{state}"));
    }
    Ok(hex(&hash.finalize()))
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
}

struct Hashed<W> {
    out: W,
    hash: Sha256,
    size: u64,
}

impl<W: Write> Write for Hashed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.out.write(bytes)?;
        self.hash.update(&bytes[..count]);
        self.size += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(text: &str) -> Plan {
        Plan {
            reference: "registry.k8s.io/a/b:v1".to_owned(),
            entrypoint: "/run".to_owned(),
            entries: vec![("run".to_owned(), Entry::Text(text.to_owned(), 0o755))],
        }
    }

    #[test]
    fn an_image_is_made_once_and_its_digest_follows_its_contents() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::at(folder.path().to_owned());
        let first = store.provide(&plan("one")).unwrap();
        let made = |store: &Store| fs::read_dir(store.folder.join("made")).unwrap().count();
        assert_eq!(store.provide(&plan("one")).unwrap().digest(), first.digest());
        assert_eq!(made(&store), 1);
        assert_ne!(store.provide(&plan("two")).unwrap().digest(), first.digest());
        assert_eq!(made(&store), 2);
    }

    #[test]
    fn a_registry_gets_tag_manifest_and_blobs() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::at(folder.path().join("store"));
        let image = store.provide(&plan("one")).unwrap();
        let storage = folder.path().join("registry");
        store.put_into_registry(std::slice::from_ref(&image), &storage).unwrap();
        let root = storage.join("docker/registry/v2");
        let link = fs::read_to_string(root.join("repositories/a/b/_manifests/tags/v1/current/link")).unwrap();
        assert_eq!(link, format!("sha256:{}", image.digest()));
        let data = root.join(format!("blobs/sha256/{}/{}/data", &image.digest()[..2], image.digest()));
        let manifest: Value = serde_json::from_slice(&fs::read(data).unwrap()).unwrap();
        let layer = manifest["layers"][0]["digest"]
            .as_str()
            .unwrap()
            .trim_start_matches("sha256:")
            .to_owned();
        assert!(root.join(format!("blobs/sha256/{}/{layer}/data", &layer[..2])).exists());
    }
}

//! Makes a bundle: layers of the files that change together, the list of digests that a machine checks, the bill of materials,
//! and the signatures. The same files, tag and key give the same digest, wherever and whenever it is made.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read, Write as _};

use afloat_node::digest::Digest;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use sha2::{Digest as _, Sha256};

use crate::input::{Checked, Component, Item};
use crate::key::PrivateKey;
use crate::layout::{BlobWriter, Layout};
use crate::oci::{self, Config, Descriptor, Manifest, Platform, RootFs, Run, notes};
use crate::progress::{News, Tell};
use crate::sbom::{Bom, Part};
use crate::{Error, Result};

/// The list of digests, and its signature, as the machine looks for them.
pub const SUMS: &str = "SHA256SUMS";
pub const SUMS_SIGNATURE: &str = "SHA256SUMS.sig";
/// The folder of the bundle in the image.
pub const FOLDER: &str = "bundle";
/// What the image runs.
pub const ENTRYPOINT: &str = "afloat";
const TITLE: &str = "afloat-bundle";

/// How to call it, and who signs.
pub struct Wish<'a> {
    pub tag: &'a str,
    pub key: Option<&'a PrivateKey>,
}

/// What was made.
#[derive(Clone, Debug)]
pub struct Created {
    /// As the index of the layout names it.
    pub descriptor: Descriptor,
    pub manifest: Manifest,
}

/// Makes the bundle in the layout, in place of one of the same tag.
pub fn create(layout: &Layout, checked: &Checked, wish: &Wish<'_>, tell: Tell<'_>) -> Result<Created> {
    let mut making = Making {
        layout,
        tell,
        layers: Vec::new(),
        sums: BTreeMap::new(),
        parts: Vec::new(),
    };
    for (layer, components) in by_layer(checked) {
        making.layer(&layer, &components)?;
    }
    making.sums_layer(wish.key)?;
    making.finish(checked, wish)
}

/// Components by the layer they share. The order they were given in does not matter.
fn by_layer(checked: &Checked) -> Vec<(String, Vec<&Component>)> {
    let mut layers: Vec<(String, Vec<&Component>)> = Vec::new();
    for component in &checked.components {
        match layers.iter_mut().find(|(layer, _)| *layer == component.layer) {
            Some((_, components)) => components.push(component),
            None => layers.push((component.layer.clone(), vec![component])),
        }
    }
    let rank = |layer: &str| match layer.split('/').next() {
        Some("containerd") => 0,
        Some("cni") => 1,
        Some("kubernetes") => 2,
        Some("images") => 3,
        _ => 4,
    };
    layers.sort_by_key(|(layer, _)| (rank(layer), layer.clone()));
    for (_, components) in &mut layers {
        components.sort_by(|one, other| one.name.cmp(&other.name));
    }
    layers
}

struct Making<'a> {
    layout: &'a Layout,
    tell: Tell<'a>,
    layers: Vec<Descriptor>,
    sums: BTreeMap<String, Digest>,
    parts: Vec<Part>,
}

impl Making<'_> {
    fn layer(&mut self, name: &str, components: &[&Component]) -> Result<()> {
        let bytes = components
            .iter()
            .flat_map(|component| &component.items)
            .map(|item| item.bytes)
            .sum();
        (self.tell)(News::Begins { what: name, bytes });
        let mut tar = LayerWriter::new(self.layout)?;
        for component in components {
            let mut items: Vec<&Item> = component.items.iter().collect();
            items.sort_by(|one, other| one.name.cmp(&other.name));
            let mut files = Vec::new();
            for item in items {
                let inside = format!("{FOLDER}/{}", item.name);
                let digest = tar.item(item, &inside, self.tell)?;
                self.sums.insert(item.name.clone(), digest);
                files.push(Part::file(&format!("/{inside}"), digest, item.bytes));
                if item.name == ENTRYPOINT {
                    // The same file under the name that the image runs.
                    tar.link(ENTRYPOINT, &inside)?;
                    files.push(Part::file(&format!("/{ENTRYPOINT}"), digest, item.bytes));
                }
            }
            let kind = if component.images.is_empty() {
                "application"
            } else {
                "container"
            };
            let part = Part::new(kind, &component.name, component.version.clone());
            self.parts.push(part.with(files, &component.images));
        }
        self.end_layer(tar, name)
    }

    fn end_layer(&mut self, tar: LayerWriter, name: &str) -> Result<()> {
        let layer = tar.end(self.layout)?;
        self.layers.push(layer.note(notes::PART, name));
        (self.tell)(News::Ends { skipped: false });
        Ok(())
    }

    /// The list of digests comes last: it is another one whenever anything is.
    fn sums_layer(&mut self, key: Option<&PrivateKey>) -> Result<()> {
        let mut text = String::new();
        for (name, digest) in &self.sums {
            let digest = digest.to_string();
            let _ = writeln!(text, "{}  {name}", digest.trim_start_matches("sha256:"));
        }
        let mut written = vec![(SUMS, text.into_bytes())];
        if let Some(key) = key {
            let signature = key.sign(&written[0].1);
            written.push((SUMS_SIGNATURE, signature));
        }
        (self.tell)(News::Begins { what: SUMS, bytes: 0 });
        let mut tar = LayerWriter::new(self.layout)?;
        let mut files = Vec::new();
        for (name, bytes) in &written {
            let inside = format!("{FOLDER}/{name}");
            tar.bytes(&inside, bytes)?;
            files.push(Part::file(&format!("/{inside}"), Digest::of(bytes), bytes.len() as u64));
        }
        self.parts.push(Part::new("data", SUMS, None).with(files, &[]));
        self.end_layer(tar, SUMS)
    }

    fn finish(self, checked: &Checked, wish: &Wish<'_>) -> Result<Created> {
        let layout = self.layout;
        let versions = checked.versions.join(",");
        let bom = Bom::new(TITLE, wish.tag, self.parts);
        let bom = layout.put_json("the bill of materials", oci::SBOM, &bom)?;
        let about = BTreeMap::from([
            (notes::TITLE.to_owned(), TITLE.to_owned()),
            (notes::VERSION.to_owned(), wish.tag.to_owned()),
            (notes::KUBERNETES.to_owned(), versions),
        ]);
        let config = Config {
            architecture: checked.machine.to_owned(),
            os: "linux".to_owned(),
            config: Run {
                entrypoint: vec![format!("/{ENTRYPOINT}")],
                labels: about.clone(),
            },
            rootfs: RootFs {
                kind: "layers".to_owned(),
                diff_ids: self.layers.iter().map(|layer| layer.digest).collect(),
            },
        };
        let config = layout.put_json("the image's config", oci::CONFIG, &config)?;
        let mut manifest = Manifest::new(config, self.layers);
        manifest.annotations = about;
        manifest
            .annotations
            .insert(notes::SBOM.to_owned(), bom.digest.to_string());
        let mut descriptor = layout
            .put_json("the manifest", oci::MANIFEST, &manifest)?
            .note(notes::TAG, wish.tag);
        descriptor.platform = Some(Platform {
            architecture: checked.machine.to_owned(),
            os: "linux".to_owned(),
        });
        let mut all = vec![descriptor.clone(), bom_manifest(layout, bom, &descriptor)?];
        if let Some(key) = wish.key {
            all.push(signature_manifest(layout, key, &descriptor)?);
        }
        layout.add(&all)?;
        Ok(Created { descriptor, manifest })
    }
}

fn bom_manifest(layout: &Layout, bom: Descriptor, subject: &Descriptor) -> Result<Descriptor> {
    let empty = layout.put(oci::EMPTY, b"{}")?;
    let mut manifest = Manifest::new(empty, vec![bom]);
    manifest.artifact_type = Some(oci::SBOM.to_owned());
    manifest.subject = Some(subject.bare());
    let mut descriptor = layout.put_json("the manifest of the bill of materials", oci::MANIFEST, &manifest)?;
    descriptor.artifact_type = manifest.artifact_type;
    Ok(descriptor)
}

/// What is signed of a manifest: the words that cosign signs.
pub fn signed_words(manifest: Digest) -> String {
    let words = json!({
        "critical": {
            "identity": { "docker-reference": TITLE },
            "image": { "docker-manifest-digest": manifest.to_string() },
            "type": "cosign container image signature",
        },
        "optional": null,
    });
    words.to_string()
}

fn signature_manifest(layout: &Layout, key: &PrivateKey, subject: &Descriptor) -> Result<Descriptor> {
    let words = signed_words(subject.digest);
    let signature = STANDARD.encode(key.sign(words.as_bytes()));
    let layer = layout
        .put(oci::SIGNATURE, words.as_bytes())?
        .note(notes::SIGNATURE, signature);
    let config = Config {
        rootfs: RootFs {
            kind: "layers".to_owned(),
            diff_ids: vec![layer.digest],
        },
        ..Config::default()
    };
    let config = layout.put_json("the signature's config", oci::CONFIG, &config)?;
    let mut manifest = Manifest::new(config, vec![layer]);
    manifest.artifact_type = Some(oci::SIGNATURE_ARTIFACT.to_owned());
    manifest.subject = Some(subject.bare());
    let descriptor = layout.put_json("the manifest of the signature", oci::MANIFEST, &manifest)?;
    let mut descriptor = descriptor.note(notes::TAG, oci::signature_tag(subject.digest));
    descriptor.artifact_type = manifest.artifact_type;
    Ok(descriptor)
}

/// A layer that is being written: owner, time and order of everything are fixed.
struct LayerWriter {
    tar: tar::Builder<BlobWriter>,
    folders: Vec<String>,
}

impl LayerWriter {
    fn new(layout: &Layout) -> Result<Self> {
        let mut tar = tar::Builder::new(layout.begin_blob()?);
        tar.mode(tar::HeaderMode::Deterministic);
        Ok(Self {
            tar,
            folders: Vec::new(),
        })
    }

    fn header(kind: tar::EntryType, bytes: u64, mode: u32) -> tar::Header {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_size(bytes);
        header.set_mode(mode);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        header
    }

    fn append(&mut self, inside: &str, mut header: tar::Header, content: impl Read) -> Result<()> {
        self.folders_of(inside)?;
        let done = self.tar.append_data(&mut header, inside, content);
        done.map_err(Error::file("write the layer with", inside.as_ref()))
    }

    fn folders_of(&mut self, inside: &str) -> Result<()> {
        let ends = inside.match_indices('/').map(|(end, _)| end);
        for folder in ends.filter_map(|end| inside.get(..end)) {
            if self.folders.iter().any(|made| made == folder) {
                continue;
            }
            self.folders.push(folder.to_owned());
            let mut header = Self::header(tar::EntryType::Directory, 0, 0o755);
            let done = self.tar.append_data(&mut header, format!("{folder}/"), io::empty());
            done.map_err(Error::file("write the layer with", folder.as_ref()))?;
        }
        Ok(())
    }

    fn bytes(&mut self, inside: &str, bytes: &[u8]) -> Result<()> {
        let header = Self::header(tar::EntryType::Regular, bytes.len() as u64, 0o644);
        self.append(inside, header, bytes)
    }

    fn link(&mut self, inside: &str, to: &str) -> Result<()> {
        let mut header = Self::header(tar::EntryType::Link, 0, 0o755);
        let done = self.tar.append_link(&mut header, inside, to);
        done.map_err(Error::file("write the layer with", inside.as_ref()))
    }

    fn item(&mut self, item: &Item, inside: &str, tell: Tell<'_>) -> Result<Digest> {
        let file = File::open(&item.source).map_err(Error::file("read", &item.source))?;
        let mode = if item.is_program { 0o755 } else { 0o644 };
        let mut content = Heard {
            inner: file.take(item.bytes),
            hasher: Sha256::new(),
            bytes: 0,
            tell,
        };
        self.append(
            inside,
            Self::header(tar::EntryType::Regular, item.bytes, mode),
            &mut content,
        )?;
        let longer = content
            .inner
            .into_inner()
            .read(&mut [0])
            .map_err(Error::file("read", &item.source))?;
        if content.bytes != item.bytes || longer != 0 {
            return Err(Error::Changed(item.source.clone()));
        }
        Ok(Digest::from(<[u8; 32]>::from(content.hasher.finalize())))
    }

    fn end(self, layout: &Layout) -> Result<Descriptor> {
        let wrong = Error::file("write a layer in", layout.folder());
        let mut blob = match self.tar.into_inner() {
            Ok(blob) => blob,
            Err(error) => return Err(wrong(error)),
        };
        blob.flush().map_err(wrong)?;
        layout.keep(blob, oci::LAYER)
    }
}

/// A reader that tells what went through it.
struct Heard<'a, R> {
    inner: R,
    hasher: Sha256,
    bytes: u64,
    tell: Tell<'a>,
}

impl<R: Read> Read for Heard<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.hasher.update(buffer.get(..count).unwrap_or_default());
        self.bytes += count as u64;
        (self.tell)(News::Bytes(count as u64));
        Ok(count)
    }
}

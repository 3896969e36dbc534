//! Whether a bundle is what it says and who vouches for it: every blob against its digest, every file against `SHA256SUMS` and
//! the bill of materials, both ways, and the signatures against keys. Everything that is wrong is said, not the first thing only.

use std::collections::BTreeMap;

use afloat_node::bundle;
use afloat_node::digest::Digest;
use afloat_node::signature::{PublicKey, PublicKeys};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::contents::{self, Contents, compare};
use crate::create::{ENTRYPOINT, FOLDER, SUMS, SUMS_SIGNATURE, signed_words};
use crate::layout::{Layout, name};
use crate::oci::{self, Config, Descriptor, Index, Manifest, notes};
use crate::progress::Tell;
use crate::sbom::Bom;
use crate::{Complaint, Result};

/// A bundle that was looked at.
#[derive(Clone, Debug)]
pub struct Looked {
    pub name: String,
    pub digest: Digest,
    pub files: usize,
    pub bytes: u64,
    pub signature: Signature,
}

/// What is known of who made a bundle.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Signature {
    /// By this key, one of those given.
    Good(PublicKey),
    /// There is one, and no key to check it with was given.
    Unchecked,
    /// There is none.
    Missing,
    /// It was not made with a key that was given; what is wrong is among the complaints.
    Refused,
}

/// What came of looking.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    pub bundles: Vec<Looked>,
    /// Everything that is wrong. Nothing of a layout with complaints should be used.
    pub complaints: Vec<Complaint>,
}

/// Looks at the whole layout, or at what one bundle of it consists of.
pub fn verify(layout: &Layout, wanted: Option<&str>, keys: Option<&PublicKeys>, tell: Tell<'_>) -> Result<Verdict> {
    let index = layout.index()?;
    let mut verdict = Verdict::default();
    let mut others = Vec::new();
    for descriptor in &index.manifests {
        let Some(manifest) = read_manifest(layout, descriptor, &mut verdict.complaints) else {
            continue;
        };
        if manifest.kubernetes().is_some() {
            let meant =
                wanted.is_none_or(|wanted| descriptor.tag() == Some(wanted) || descriptor.digest.to_string() == wanted);
            if meant {
                verdict.bundles.push(Looked {
                    name: name(descriptor),
                    digest: descriptor.digest,
                    files: 0,
                    bytes: 0,
                    signature: Signature::Missing,
                });
                let of = Of {
                    layout,
                    descriptor,
                    manifest: &manifest,
                    index: &index,
                    keys,
                };
                of.look(&mut verdict, tell)?;
            }
        } else {
            others.push((descriptor.clone(), manifest));
        }
    }
    for (descriptor, manifest) in &others {
        blobs(layout, descriptor, manifest, &mut verdict.complaints)?;
    }
    for stray in layout.stray(&index)? {
        let complaint = Complaint::new(format!("blob {stray}"), "belongs to nothing in this layout");
        verdict.complaints.push(complaint);
    }
    if verdict.bundles.is_empty() && verdict.complaints.is_empty() {
        layout.bundle(wanted)?;
    }
    Ok(verdict)
}

fn read_manifest(layout: &Layout, descriptor: &Descriptor, complaints: &mut Vec<Complaint>) -> Option<Manifest> {
    let about = format!("blob {} (manifest {})", descriptor.digest, name(descriptor));
    let Some(size) = layout.size(descriptor.digest) else {
        complaints.push(Complaint::new(about, "is not there"));
        return None;
    };
    if size != descriptor.size {
        let fact = format!("has {size} bytes and should have {}", descriptor.size);
        complaints.push(Complaint::new(about, fact));
        return None;
    }
    match layout.manifest(descriptor.digest) {
        Ok(manifest) => Some(manifest),
        Err(crate::Error::Blob { fact, .. }) => {
            complaints.push(Complaint::new(about, format!("cannot be read: {fact}")));
            None
        }
        Err(other) => {
            complaints.push(Complaint::new(about, other.to_string()));
            None
        }
    }
}

/// Compares the blobs of a manifest with their digests.
fn blobs(layout: &Layout, of: &Descriptor, manifest: &Manifest, complaints: &mut Vec<Complaint>) -> Result<()> {
    let kind = match manifest.artifact_type.as_deref() {
        Some(oci::SBOM) => "bill of materials".to_owned(),
        Some(oci::SIGNATURE_ARTIFACT) => "signature".to_owned(),
        _ => name(of),
    };
    for blob in manifest.blobs() {
        check_blob(layout, blob, &kind, complaints)?;
    }
    Ok(())
}

fn check_blob(layout: &Layout, blob: &Descriptor, kind: &str, complaints: &mut Vec<Complaint>) -> Result<()> {
    let path = layout.path(blob.digest);
    match (
        Digest::of_file(&path).map_err(crate::Error::file("read", &path))?,
        layout.size(blob.digest),
    ) {
        (Some(found), Some(size)) => complaints.extend(compare(blob, kind, size, found)),
        _ => complaints.push(Complaint::new(format!("blob {} ({kind})", blob.digest), "is not there")),
    }
    Ok(())
}

/// One bundle.
struct Of<'a> {
    layout: &'a Layout,
    descriptor: &'a Descriptor,
    manifest: &'a Manifest,
    index: &'a Index,
    keys: Option<&'a PublicKeys>,
}

impl Of<'_> {
    fn look(&self, verdict: &mut Verdict, tell: Tell<'_>) -> Result<()> {
        let mut complaints = Vec::new();
        self.config(&mut complaints)?;
        let mut contents = contents::read(self.layout, &self.manifest.layers, tell)?;
        complaints.append(&mut contents.complaints);
        // With a blob that was changed every file in it is missing, too: said once.
        if complaints.is_empty() {
            sums(&contents, &mut complaints);
            self.bom(&contents, &mut complaints);
        }
        let signature = self.signature(&contents, &mut complaints);
        if let Some(looked) = verdict.bundles.last_mut() {
            looked.files = contents.files.len();
            looked.bytes = self.manifest.layers.iter().map(|layer| layer.size).sum();
            looked.signature = signature;
        }
        verdict.complaints.append(&mut complaints);
        Ok(())
    }

    fn config(&self, complaints: &mut Vec<Complaint>) -> Result<()> {
        let before = complaints.len();
        check_blob(self.layout, &self.manifest.config, "config of the image", complaints)?;
        if complaints.len() > before {
            return Ok(());
        }
        let config: Config = self
            .layout
            .document("the image's config", self.manifest.config.digest)?;
        let layers: Vec<Digest> = self.manifest.layers.iter().map(|layer| layer.digest).collect();
        if config.rootfs.diff_ids != layers {
            let about = format!("blob {} (config of the image)", self.manifest.config.digest);
            complaints.push(Complaint::new(about, "names other layers than the manifest does"));
        }
        Ok(())
    }

    /// What refers to this bundle, of one kind.
    fn referrers(&self, kind: &str) -> impl Iterator<Item = Manifest> {
        let artifacts = self
            .index
            .manifests
            .iter()
            .filter(move |found| found.media_type == oci::MANIFEST);
        let read = artifacts.filter_map(|found| self.layout.manifest(found.digest).ok());
        read.filter(move |manifest| {
            let subject = manifest.subject.as_ref().map(|subject| subject.digest);
            subject == Some(self.descriptor.digest) && manifest.artifact_type.as_deref() == Some(kind)
        })
    }

    /// The bill of materials lists every file, and there is no other.
    fn bom(&self, contents: &Contents, complaints: &mut Vec<Complaint>) {
        let about = "bill of materials";
        let promised = self.manifest.annotations.get(notes::SBOM);
        let Some(promised) = promised.and_then(|text| text.parse::<Digest>().ok()) else {
            complaints.push(Complaint::new(about, "is not named by the manifest"));
            return;
        };
        let attached = self
            .referrers(oci::SBOM)
            .any(|found| found.layers.iter().any(|layer| layer.digest == promised));
        if !attached {
            complaints.push(Complaint::new(
                about,
                format!("is not there: it should be blob {promised}"),
            ));
            return;
        }
        let bom: Bom = match self.layout.document("the bill of materials", promised) {
            Ok(bom) => bom,
            Err(error) => {
                complaints.push(Complaint::new(about, error.to_string()));
                return;
            }
        };
        let listed = bom.files();
        for (path, found) in &contents.files {
            match listed.get(path) {
                Some(Some(digest)) if *digest == found.digest => {}
                Some(_) => complaints.push(Complaint::new(
                    path.clone(),
                    "has not the digest that the bill of materials lists",
                )),
                None => complaints.push(Complaint::new(path.clone(), "is not in the bill of materials")),
            }
        }
        for path in listed.keys().filter(|path| !contents.files.contains_key(*path)) {
            complaints.push(Complaint::new(
                path.clone(),
                "is in the bill of materials and not in the image",
            ));
        }
    }

    fn signature(&self, contents: &Contents, complaints: &mut Vec<Complaint>) -> Signature {
        let found: Vec<Manifest> = self.referrers(oci::SIGNATURE_ARTIFACT).collect();
        let Some(keys) = self.keys else {
            let any = contents.sums_signature.is_some() || !found.is_empty();
            return if any { Signature::Unchecked } else { Signature::Missing };
        };
        let name = name(self.descriptor);
        let help = "use it only if you trust where it came from; the maker signs with afloat bundle create --key";
        if found.is_empty() && contents.sums_signature.is_none() {
            complaints.push(Complaint::new(format!("bundle {name}"), "is not signed").help(help));
            return Signature::Missing;
        }
        let manifest = found.iter().find_map(|found| self.signer(found, keys));
        if manifest.is_none() {
            let fact = format!("has no signature of its manifest by the key {}", keys.names());
            complaints.push(Complaint::new(format!("bundle {name}"), fact));
        }
        let sums = match (&contents.sums, &contents.sums_signature) {
            (Some(sums), Some(signature)) => keys.signer(sums, signature),
            _ => None,
        };
        if sums.is_none() {
            let fact = format!(
                "is no signature of {SUMS} by the key {}: nodes would refuse it",
                keys.names()
            );
            complaints.push(Complaint::new(format!("/{FOLDER}/{SUMS_SIGNATURE}"), fact));
        }
        match (manifest, sums) {
            (Some(key), Some(_)) => Signature::Good(key),
            _ => Signature::Refused,
        }
    }

    fn signer(&self, found: &Manifest, keys: &PublicKeys) -> Option<PublicKey> {
        found.layers.iter().find_map(|layer| {
            let words = self.layout.document_bytes("a signature", layer.digest).ok()?;
            let is_about_this = words == signed_words(self.descriptor.digest).as_bytes();
            let signature = STANDARD.decode(layer.annotations.get(notes::SIGNATURE)?).ok()?;
            keys.signer(&words, &signature).filter(|_| is_about_this)
        })
    }
}

/// `SHA256SUMS` lists every file of the bundle, and there is no other.
fn sums(contents: &Contents, complaints: &mut Vec<Complaint>) {
    let about = format!("/{FOLDER}/{SUMS}");
    let Some(text) = &contents.sums else {
        complaints.push(Complaint::new(about, "is not there"));
        return;
    };
    let items = match std::str::from_utf8(text).map(bundle::parse) {
        Ok(Ok(items)) => items,
        Ok(Err(error)) => {
            complaints.push(Complaint::new(about, error.to_string()));
            return;
        }
        Err(_) => {
            complaints.push(Complaint::new(about, "is no text"));
            return;
        }
    };
    let own = [SUMS, SUMS_SIGNATURE].map(|name| format!("/{FOLDER}/{name}"));
    let listed: BTreeMap<String, Digest> = items
        .into_iter()
        .map(|item| (format!("/{FOLDER}/{}", item.name), item.digest))
        .collect();
    for (path, found) in contents.files.iter().filter(|(path, _)| !own.contains(path)) {
        // The program is there twice: for the machine, and for the image to run.
        let bundled = if *path == format!("/{ENTRYPOINT}") {
            format!("/{FOLDER}/{ENTRYPOINT}")
        } else {
            path.clone()
        };
        match listed.get(&bundled) {
            Some(digest) if *digest == found.digest => {}
            Some(_) => complaints.push(Complaint::new(
                path.clone(),
                format!("has not the digest that {SUMS} lists"),
            )),
            None => complaints.push(Complaint::new(path.clone(), format!("is not in {SUMS}"))),
        }
    }
    for path in listed.keys().filter(|path| !contents.files.contains_key(*path)) {
        complaints.push(Complaint::new(
            path.clone(),
            format!("is in {SUMS} and not in the image"),
        ));
    }
}

//! Brings a bundle from a registry into a layout: what the layout has does not travel, what travels is compared with its digest.

use std::io::Write as _;

use afloat_node::digest::Digest;
use afloat_node::signature::{PublicKey, PublicKeys};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Method;

use super::Repository;
use super::http::Ask;
use crate::create::signed_words;
use crate::layout::Layout;
use crate::oci::{self, Descriptor, Index, Manifest, notes};
use crate::progress::{News, Tell};
use crate::{Error, Result, contents};

/// More blobs than any bundle has.
const MOST_BLOBS: usize = 1000;

/// What was brought.
#[derive(Clone, Debug)]
pub struct Pulled {
    /// By its digest.
    pub image: String,
    pub tag: String,
    pub kubernetes_versions: Vec<String>,
    pub brought_bytes: u64,
    pub there_bytes: u64,
}

/// A manifest as a registry has it.
struct Fetched {
    descriptor: Descriptor,
    bytes: Vec<u8>,
    manifest: Manifest,
}

/// A bundle that is in a registry.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct There {
    /// By its digest.
    pub image: String,
    pub kubernetes_versions: Vec<String>,
    /// Which of the keys that were given signed its manifest.
    pub signer: Option<PublicKey>,
}

/// Asks what bundle is there, and which of these keys vouches for it.
pub async fn look(from: &Repository, keys: Option<&PublicKeys>) -> Result<There> {
    let fetched = bundle(from).await?;
    let digest = fetched.descriptor.digest;
    let signer = match keys {
        Some(keys) => signer(from, digest, keys).await?,
        None => None,
    };
    Ok(There {
        image: from.reference.pinned(digest),
        kubernetes_versions: fetched.manifest.kubernetes().unwrap_or_default(),
        signer,
    })
}

async fn signer(from: &Repository, of: Digest, keys: &PublicKeys) -> Result<Option<PublicKey>> {
    let words = signed_words(of);
    for referrer in referrers(from, of).await? {
        let signatures = referrer.manifest.layers.iter().filter_map(|layer| {
            let text = layer.annotations.get(notes::SIGNATURE)?;
            // What is signed is known; a registry that says otherwise is not asked.
            STANDARD
                .decode(text)
                .ok()
                .filter(|_| layer.digest == Digest::of(words.as_bytes()))
        });
        let mut signers = signatures.filter_map(|signature| keys.signer(words.as_bytes(), &signature));
        if let Some(key) = signers.next() {
            return Ok(Some(key));
        }
    }
    Ok(None)
}

/// Brings the bundle with its bill of materials and its signatures.
pub async fn pull(from: &Repository, layout: &Layout, tell: Tell<'_>) -> Result<Pulled> {
    let mut fetched = bundle(from).await?;
    let newest = fetched
        .manifest
        .kubernetes()
        .and_then(|versions| versions.last().cloned());
    let digest = fetched.descriptor.digest;
    let tag = from
        .reference
        .tag
        .clone()
        .or(newest)
        .unwrap_or_else(|| oci::referrers_tag(digest));
    let mut pulling = Pulling {
        from,
        layout,
        tell,
        brought: 0,
        there: 0,
    };
    pulling.image(&fetched).await?;
    fetched.descriptor = fetched.descriptor.note(notes::TAG, &tag);
    let mut all = vec![fetched.descriptor];
    for referrer in referrers(from, digest).await? {
        pulling.image(&referrer).await?;
        let kind = referrer.manifest.artifact_type.clone();
        let mut descriptor = referrer.descriptor;
        if kind.as_deref() == Some(oci::SIGNATURE_ARTIFACT) {
            descriptor = descriptor.note(notes::TAG, oci::signature_tag(digest));
        }
        descriptor.artifact_type = kind;
        all.push(descriptor);
    }
    layout.add(&all)?;
    Ok(Pulled {
        image: from.reference.pinned(digest),
        tag,
        kubernetes_versions: fetched.manifest.kubernetes().unwrap_or_default(),
        brought_bytes: pulling.brought,
        there_bytes: pulling.there,
    })
}

/// The manifest that the reference names, if it is a bundle's.
async fn bundle(from: &Repository) -> Result<Fetched> {
    let wrong = |fact: &str| Error::NotABundle {
        reference: from.reference.to_string(),
        fact: fact.to_owned(),
    };
    let fetched = manifest(from, &from.reference.wanted())
        .await?
        .ok_or_else(|| wrong("is not in the registry"))?;
    if from
        .reference
        .digest
        .is_some_and(|digest| digest != fetched.descriptor.digest)
    {
        return Err(wrong(&format!(
            "came with another digest, {}: it was changed on the way",
            fetched.descriptor.digest
        )));
    }
    if fetched.manifest.kubernetes().is_none() {
        return Err(wrong("is an image, but no bundle"));
    }
    Ok(fetched)
}

async fn manifest(from: &Repository, name: &str) -> Result<Option<Fetched>> {
    let place = from.path(&format!("manifests/{name}"));
    let answer = from
        .client
        .ask(Ask::new(Method::GET, place).accept(&[oci::MANIFEST]))
        .await?;
    match answer.status {
        200 => {}
        404 => return Ok(None),
        _ => return Err(from.refused(format!("show the manifest {name}"), &answer)),
    }
    let manifest = serde_json::from_slice(&answer.body).map_err(|_| Error::NotABundle {
        reference: from.reference.to_string(),
        fact: "is no image for one platform".to_owned(),
    })?;
    Ok(Some(Fetched {
        descriptor: Descriptor::of(oci::MANIFEST, &answer.body),
        bytes: answer.body,
        manifest,
    }))
}

struct Pulling<'a> {
    from: &'a Repository,
    layout: &'a Layout,
    tell: Tell<'a>,
    brought: u64,
    there: u64,
}

impl Pulling<'_> {
    async fn image(&mut self, fetched: &Fetched) -> Result<()> {
        for blob in fetched.manifest.blobs().take(MOST_BLOBS) {
            self.blob(blob).await?;
        }
        self.layout.put(oci::MANIFEST, &fetched.bytes).map(|_| ())
    }

    async fn blob(&mut self, blob: &Descriptor) -> Result<()> {
        let name = match blob.media_type.as_str() {
            oci::LAYER => contents::layer_name(blob),
            _ => "documents".to_owned(),
        };
        (self.tell)(News::Begins {
            what: &name,
            bytes: blob.size,
        });
        let path = self.layout.path(blob.digest);
        let skipped = Digest::of_file(&path).map_err(Error::file("read", &path))? == Some(blob.digest);
        if skipped {
            self.there += blob.size;
        } else {
            self.fetch(blob).await?;
            self.brought += blob.size;
        }
        (self.tell)(News::Ends { skipped });
        Ok(())
    }

    async fn fetch(&self, blob: &Descriptor) -> Result<()> {
        let place = self.from.path(&format!("blobs/{}", blob.digest));
        let client = &self.from.client;
        let answer = client.begin(Ask::new(Method::GET, place)).await?;
        if answer.status() != 200 {
            return Err(Error::Registry {
                registry: self.from.reference.registry.clone(),
                action: format!("show blob {}", blob.digest),
                status: answer.status().as_u16(),
                fact: String::new(),
            });
        }
        let wrong = |fact: String| Error::Blob {
            what: "what came",
            digest: blob.digest,
            fact,
        };
        let mut body = answer.into_body();
        let (mut writer, mut count) = (self.layout.begin_blob()?, 0);
        while let Some(piece) = client.piece(&mut body).await? {
            count += piece.len() as u64;
            if count > blob.size {
                return Err(wrong(format!(
                    "it is longer than the {} bytes it should have",
                    blob.size
                )));
            }
            writer
                .write_all(&piece)
                .map_err(Error::file("write in", self.layout.folder()))?;
            (self.tell)(News::Bytes(piece.len() as u64));
        }
        let found = writer.digest();
        if found != blob.digest {
            return Err(wrong(format!("its content has the digest {found}")));
        }
        self.layout.keep(writer, &blob.media_type).map(|_| ())
    }
}

/// Bill of materials and signatures: as the registry lists them, by the tag that stands for such a list, or where cosign
/// puts signatures.
async fn referrers(from: &Repository, of: Digest) -> Result<Vec<Fetched>> {
    let mut digests = Vec::new();
    for place in [
        format!("referrers/{of}"),
        format!("manifests/{}", oci::referrers_tag(of)),
    ] {
        let answer = from
            .client
            .ask(Ask::new(Method::GET, from.path(&place)).accept(&[oci::INDEX]))
            .await?;
        if answer.status == 200 {
            let index: Index = serde_json::from_slice(&answer.body).unwrap_or_default();
            digests.extend(index.manifests.into_iter().map(|found| found.digest.to_string()));
        }
    }
    digests.push(oci::signature_tag(of));
    let mut found: Vec<Fetched> = Vec::new();
    for name in digests.into_iter().take(MOST_BLOBS) {
        let Some(fetched) = manifest(from, &name).await? else {
            continue;
        };
        let ours = matches!(
            fetched.manifest.artifact_type.as_deref(),
            Some(oci::SBOM | oci::SIGNATURE_ARTIFACT)
        );
        let about = fetched.manifest.subject.as_ref().map(|subject| subject.digest);
        let known = found
            .iter()
            .any(|other| other.descriptor.digest == fetched.descriptor.digest);
        if ours && about == Some(of) && !known {
            found.push(fetched);
        }
    }
    Ok(found)
}

//! Sends a bundle to a registry: the blobs it lacks, the manifests, what refers to them, the tag.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::Method;

use super::Repository;
use super::http::{Answer, Ask, Load};
use crate::layout::Layout;
use crate::oci::{self, Descriptor, Index, Manifest};
use crate::progress::{News, Tell};
use crate::{Error, Result, contents};

/// How often a blob is tried: networks of air-gapped sites are what they are.
const TRIES: u32 = 3;
const PAUSE: Duration = Duration::from_secs(1);
/// How often the bytes that went are told.
const TICK: Duration = Duration::from_millis(200);

/// What was sent.
#[derive(Clone, Debug)]
pub struct Pushed {
    /// By its digest, which no later push changes.
    pub image: String,
    pub kubernetes_versions: Vec<String>,
    pub sent_bytes: u64,
    pub there_bytes: u64,
}

/// Sends the bundle of this tag or digest, with its bill of materials and its signature.
pub async fn push(layout: &Layout, wanted: Option<&str>, to: &Repository, tell: Tell<'_>) -> Result<Pushed> {
    let (bundle, manifest) = layout.bundle(wanted)?;
    let mut pushing = Pushing {
        layout,
        to,
        tell,
        sent: 0,
        there: 0,
    };
    pushing.image(&bundle, &manifest).await?;
    let mut unlisted = Vec::new();
    for (referrer, manifest) in referrers(layout, &bundle)? {
        let listed = pushing.image(&referrer, &manifest).await?;
        // cosign looks for signatures by their tag.
        if let Some(tag) = referrer.tag() {
            pushing.put_manifest(&referrer, tag).await?;
        }
        if !listed {
            unlisted.push(referrer);
        }
    }
    if !unlisted.is_empty() {
        pushing.list_referrers(&bundle, unlisted).await?;
    }
    // Last, so that whoever finds the tag finds all the rest.
    let tag = to.reference.tag.clone().or_else(|| bundle.tag().map(str::to_owned));
    if let Some(tag) = tag {
        pushing.put_manifest(&bundle, &tag).await?;
    }
    Ok(Pushed {
        image: to.reference.pinned(bundle.digest),
        kubernetes_versions: manifest.kubernetes().unwrap_or_default(),
        sent_bytes: pushing.sent,
        there_bytes: pushing.there,
    })
}

/// What refers to a manifest in a layout.
fn referrers(layout: &Layout, subject: &Descriptor) -> Result<Vec<(Descriptor, Manifest)>> {
    let mut found = Vec::new();
    for descriptor in layout.index()?.manifests {
        if descriptor.media_type != oci::MANIFEST {
            continue;
        }
        let manifest = layout.manifest(descriptor.digest)?;
        if manifest.subject.as_ref().is_some_and(|of| of.digest == subject.digest) {
            found.push((descriptor, manifest));
        }
    }
    Ok(found)
}

struct Pushing<'a> {
    layout: &'a Layout,
    to: &'a Repository,
    tell: Tell<'a>,
    sent: u64,
    there: u64,
}

impl Pushing<'_> {
    /// Blobs, then the manifest by its digest. Tells whether the registry lists what refers to something by itself.
    async fn image(&mut self, descriptor: &Descriptor, manifest: &Manifest) -> Result<bool> {
        for blob in manifest.blobs() {
            self.blob(blob).await?;
        }
        self.put_manifest(descriptor, &descriptor.digest.to_string()).await
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
        let place = self.to.path(&format!("blobs/{}", blob.digest));
        let asked = self.to.client.ask(Ask::new(Method::HEAD, place)).await?;
        let skipped = match asked.status {
            200 => true,
            404 => false,
            _ => {
                return Err(self
                    .to
                    .refused(format!("say whether it has blob {}", blob.digest), &asked));
            }
        };
        if skipped {
            self.there += blob.size;
        } else {
            self.upload(blob).await?;
            self.sent += blob.size;
        }
        (self.tell)(News::Ends { skipped });
        Ok(())
    }

    async fn upload(&self, blob: &Descriptor) -> Result<()> {
        let mut tried = 1;
        loop {
            match self.upload_once(blob).await {
                Err(Error::Unreachable { .. } | Error::Registry { status: 500.., .. }) if tried < TRIES => {
                    tokio::time::sleep(PAUSE * tried).await;
                    tried += 1;
                }
                ended => return ended,
            }
        }
    }

    async fn upload_once(&self, blob: &Descriptor) -> Result<()> {
        let client = &self.to.client;
        let begun = client
            .ask(
                Ask::new(Method::POST, self.to.path("blobs/uploads/"))
                    .load("application/octet-stream", Load::Bytes(b"")),
            )
            .await?;
        let action = || format!("take blob {}", blob.digest);
        let location = match (begun.status, begun.header("location")) {
            (202, Some(location)) => location.to_owned(),
            _ => return Err(self.to.refused(action(), &begun)),
        };
        let mark = if location.contains('?') { '&' } else { '?' };
        let base = client.resolve(&self.to.base(), &location);
        let place = format!("{base}{mark}digest={}", blob.digest);
        let path = self.layout.path(blob.digest);
        let gone = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&gone);
        let heard = Arc::new(move |bytes| {
            counter.fetch_add(bytes, Ordering::Relaxed);
        });
        let load = Load::File(&path, blob.size, heard);
        let sending = client.ask(Ask::new(Method::PUT, place).load("application/octet-stream", load));
        let answer = self.telling(&gone, sending).await?;
        if answer.status == 201 {
            Ok(())
        } else {
            Err(self.to.refused(action(), &answer))
        }
    }

    /// Waits, and tells now and then how many bytes have gone.
    async fn telling(&self, gone: &AtomicU64, sending: impl Future<Output = Result<Answer>>) -> Result<Answer> {
        let mut sending = std::pin::pin!(sending);
        loop {
            let ended = tokio::time::timeout(TICK, sending.as_mut()).await;
            (self.tell)(News::Bytes(gone.swap(0, Ordering::Relaxed)));
            if let Ok(ended) = ended {
                return ended;
            }
        }
    }

    /// Whether the registry says that it lists what refers to something (OCI 1.1); true also for what refers to nothing.
    async fn put_manifest(&self, descriptor: &Descriptor, name: &str) -> Result<bool> {
        let bytes = self.layout.document_bytes("a manifest", descriptor.digest)?;
        let manifest: Manifest = self.layout.manifest(descriptor.digest)?;
        let answer = self.put_bytes(&bytes, oci::MANIFEST, name).await?;
        Ok(manifest.subject.is_none() || answer.header("oci-subject").is_some())
    }

    async fn put_bytes(&self, bytes: &[u8], media_type: &str, name: &str) -> Result<Answer> {
        let place = self.to.path(&format!("manifests/{name}"));
        let ask = Ask::new(Method::PUT, place).load(media_type, Load::Bytes(bytes));
        let answer = self.to.client.ask(ask).await?;
        if answer.ok() {
            Ok(answer)
        } else {
            Err(self.to.refused(format!("take the manifest {name}"), &answer))
        }
    }

    /// For registries that do not: a tag with the list, added to what others wrote there.
    async fn list_referrers(&self, subject: &Descriptor, referrers: Vec<Descriptor>) -> Result<()> {
        let tag = oci::referrers_tag(subject.digest);
        let place = self.to.path(&format!("manifests/{tag}"));
        let there = self
            .to
            .client
            .ask(Ask::new(Method::GET, place).accept(&[oci::INDEX]))
            .await?;
        let mut index: Index = match there.status {
            200 => serde_json::from_slice(&there.body).unwrap_or_default(),
            404 => Index::default(),
            _ => return Err(self.to.refused(format!("show the manifest {tag}"), &there)),
        };
        oci::INDEX.clone_into(&mut index.media_type);
        for mut referrer in referrers {
            referrer.annotations.clear();
            index.manifests.retain(|found| found.digest != referrer.digest);
            index.manifests.push(referrer);
        }
        let bytes = serde_json::to_vec(&index).map_err(|source| Error::Json {
            what: "the list of referrers",
            source,
        })?;
        self.put_bytes(&bytes, oci::INDEX, &tag).await.map(|_| ())
    }
}

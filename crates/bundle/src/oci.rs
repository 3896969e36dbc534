//! The documents of the OCI image specification 1.1 that a bundle consists of, and the names used in them.

use std::collections::BTreeMap;

use afloat_node::digest::Digest;
use serde::{Deserialize, Serialize};

pub const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
pub const INDEX: &str = "application/vnd.oci.image.index.v1+json";
pub const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
pub const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";
pub const EMPTY: &str = "application/vnd.oci.empty.v1+json";
pub const SBOM: &str = "application/vnd.cyclonedx+json";
/// Signatures as cosign writes them, so that what checks those checks ours.
pub const SIGNATURE: &str = "application/vnd.dev.cosign.simplesigning.v1+json";
pub const SIGNATURE_ARTIFACT: &str = "application/vnd.dev.cosign.artifact.sig.v1+json";

/// Annotations.
pub mod notes {
    /// The tag of a manifest in a layout's index.
    pub const TAG: &str = "org.opencontainers.image.ref.name";
    pub const TITLE: &str = "org.opencontainers.image.title";
    pub const VERSION: &str = "org.opencontainers.image.version";
    /// The Kubernetes versions of a bundle, the newest last. A manifest that has it is a bundle.
    pub const KUBERNETES: &str = "dev.afloat.bundle.kubernetes";
    /// Digest of the bill of materials: what signs the manifest signs this too.
    pub const SBOM: &str = "dev.afloat.bundle.sbom";
    /// What a layer brings.
    pub const PART: &str = "dev.afloat.bundle.part";
    pub const SIGNATURE: &str = "dev.cosignproject.cosign/signature";
}

#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Descriptor {
    pub media_type: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact_type: Option<String>,
    pub digest: Digest,
    pub size: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform: Option<Platform>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

impl Descriptor {
    /// Of these bytes.
    pub fn of(media_type: &str, bytes: &[u8]) -> Self {
        Self::new(media_type, Digest::of(bytes), bytes.len() as u64)
    }

    pub fn new(media_type: &str, digest: Digest, size: u64) -> Self {
        Self {
            media_type: media_type.to_owned(),
            artifact_type: None,
            digest,
            size,
            platform: None,
            annotations: BTreeMap::new(),
        }
    }

    #[must_use]
    pub fn note(mut self, name: &str, value: impl Into<String>) -> Self {
        self.annotations.insert(name.to_owned(), value.into());
        self
    }

    pub fn tag(&self) -> Option<&str> {
        self.annotations.get(notes::TAG).map(String::as_str)
    }

    /// Points to the same bytes and nothing else.
    #[must_use]
    pub fn bare(&self) -> Self {
        Self::new(&self.media_type, self.digest, self.size)
    }
}

#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Platform {
    pub architecture: String,
    pub os: String,
}

/// An image, or anything else that has the shape of one.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    pub schema_version: u32,
    #[serde(default)]
    pub media_type: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact_type: Option<String>,
    pub config: Descriptor,
    pub layers: Vec<Descriptor>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<Descriptor>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

impl Manifest {
    pub fn new(config: Descriptor, layers: Vec<Descriptor>) -> Self {
        Self {
            schema_version: 2,
            media_type: MANIFEST.to_owned(),
            artifact_type: None,
            config,
            layers,
            subject: None,
            annotations: BTreeMap::new(),
        }
    }

    /// All blobs it names.
    pub fn blobs(&self) -> impl Iterator<Item = &Descriptor> {
        std::iter::once(&self.config).chain(&self.layers)
    }

    /// The Kubernetes versions of a bundle, or nothing where it is none.
    pub fn kubernetes(&self) -> Option<Vec<String>> {
        let text = self.annotations.get(notes::KUBERNETES)?;
        Some(
            text.split(',')
                .filter(|version| !version.is_empty())
                .map(str::to_owned)
                .collect(),
        )
    }
}

#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Index {
    pub schema_version: u32,
    #[serde(default)]
    pub media_type: String,
    #[serde(default)]
    pub manifests: Vec<Descriptor>,
}

impl Default for Index {
    fn default() -> Self {
        Self {
            schema_version: 2,
            media_type: INDEX.to_owned(),
            manifests: Vec::new(),
        }
    }
}

/// How an image is run.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Config {
    pub architecture: String,
    pub os: String,
    #[serde(default)]
    pub config: Run,
    pub rootfs: RootFs,
}

#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct Run {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub entrypoint: Vec<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct RootFs {
    #[serde(rename = "type")]
    pub kind: String,
    pub diff_ids: Vec<Digest>,
}

/// The tag under which cosign looks for the signatures of a manifest.
pub fn signature_tag(digest: Digest) -> String {
    format!("{}.sig", referrers_tag(digest))
}

/// The tag that lists what refers to a manifest, in registries that do not answer for that themselves.
pub fn referrers_tag(digest: Digest) -> String {
    digest.to_string().replace(':', "-")
}

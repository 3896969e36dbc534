//! What a bundle brings, as its own bill of materials tells. Nothing is checked here: that is `verify`.

use std::collections::BTreeMap;

use afloat_node::digest::Digest;
use serde::Serialize;

use crate::layout::{Layout, name};
use crate::oci::{self, Descriptor, Index, Manifest, notes};
use crate::sbom::{Bom, Part};
use crate::{Error, Result};

/// A bundle.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    pub name: String,
    pub digest: Digest,
    /// As images name it, `linux/amd64`.
    pub platform: String,
    pub kubernetes_versions: Vec<String>,
    pub signed: bool,
    pub bytes: u64,
    pub layers: Vec<Layer>,
    pub parts: Vec<Component>,
}

#[derive(Clone, Debug, Serialize)]
pub struct Layer {
    pub name: String,
    pub digest: Digest,
    pub bytes: u64,
}

#[derive(Clone, Debug, Serialize)]
pub struct Component {
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    pub bytes: u64,
    pub files: Vec<File>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<String>,
}

#[derive(Clone, Debug, Serialize)]
pub struct File {
    pub path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<Digest>,
    pub bytes: u64,
}

/// All bundles of a layout, or the one of this tag or digest.
pub fn inspect(layout: &Layout, wanted: Option<&str>) -> Result<Vec<Summary>> {
    let bundles = match wanted {
        Some(_) => vec![layout.bundle(wanted)?],
        None => layout.bundles()?,
    };
    if bundles.is_empty() {
        return Err(Error::NoSuchBundle {
            folder: layout.folder().to_owned(),
            wanted: "at all".to_owned(),
            there: Vec::new(),
        });
    }
    let index = layout.index()?;
    bundles
        .iter()
        .map(|(descriptor, manifest)| one(layout, &index, descriptor, manifest))
        .collect()
}

fn one(layout: &Layout, index: &Index, descriptor: &Descriptor, manifest: &Manifest) -> Result<Summary> {
    let bom = manifest
        .annotations
        .get(notes::SBOM)
        .and_then(|text| text.parse::<Digest>().ok());
    let bom: Bom = match bom {
        Some(digest) => layout.document("the bill of materials", digest)?,
        None => Bom::new("", "", Vec::new()),
    };
    let config: oci::Config = layout.document("the image's config", manifest.config.digest)?;
    let tag = oci::signature_tag(descriptor.digest);
    Ok(Summary {
        name: name(descriptor),
        digest: descriptor.digest,
        platform: format!("{}/{}", config.os, config.architecture),
        kubernetes_versions: manifest.kubernetes().unwrap_or_default(),
        signed: index.manifests.iter().any(|found| found.tag() == Some(&tag)),
        bytes: manifest.layers.iter().map(|layer| layer.size).sum(),
        layers: manifest.layers.iter().map(layer).collect(),
        parts: bom.components.iter().map(component).collect(),
    })
}

fn layer(descriptor: &Descriptor) -> Layer {
    Layer {
        name: crate::contents::layer_name(descriptor),
        digest: descriptor.digest,
        bytes: descriptor.size,
    }
}

fn component(part: &Part) -> Component {
    let files = part.components.iter().filter(|part| part.is_file()).map(|file| File {
        path: file.name.clone(),
        digest: file.digest(),
        bytes: file.bytes(),
    });
    let files: Vec<File> = files.collect();
    Component {
        name: part.name.clone(),
        version: part.version.clone(),
        // One file under two names takes its room once.
        bytes: files
            .iter()
            .map(|file| (file.digest, file.bytes))
            .collect::<BTreeMap<_, _>>()
            .values()
            .sum(),
        files,
        images: part.images().map(str::to_owned).collect(),
    }
}

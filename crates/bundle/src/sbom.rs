//! The bill of materials, in CycloneDX 1.6: every file of the image with its digest, below what it is a part of. It says nothing
//! that changes from one making to the next, so that the same files give the same bundle.

use std::collections::BTreeMap;

use afloat_node::digest::Digest;
use serde::{Deserialize, Serialize};

/// Names of properties.
const SIZE: &str = "afloat:size";
const IMAGE: &str = "afloat:image";

#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Bom {
    pub bom_format: String,
    pub spec_version: String,
    pub version: u32,
    pub metadata: Metadata,
    pub components: Vec<Part>,
}

#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Metadata {
    pub component: Part,
}

/// A component, and the files and parts below it.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Part {
    #[serde(rename = "type")]
    pub kind: String,
    #[serde(rename = "bom-ref", default, skip_serializing_if = "String::is_empty")]
    pub reference: String,
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub purl: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hashes: Vec<Hash>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub properties: Vec<Property>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub components: Vec<Part>,
}

#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Hash {
    pub alg: String,
    pub content: String,
}

#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Property {
    pub name: String,
    pub value: String,
}

impl Bom {
    pub fn new(name: &str, version: &str, components: Vec<Part>) -> Self {
        Self {
            bom_format: "CycloneDX".to_owned(),
            spec_version: "1.6".to_owned(),
            version: 1,
            metadata: Metadata {
                component: Part::new("container", name, Some(version.to_owned())),
            },
            components,
        }
    }

    /// Every file with its digest, by its path in the image.
    pub fn files(&self) -> BTreeMap<String, Option<Digest>> {
        let mut found = BTreeMap::new();
        for part in &self.components {
            part.collect(&mut found);
        }
        found
    }
}

impl Part {
    pub fn new(kind: &str, name: &str, version: Option<String>) -> Self {
        let reference = match &version {
            Some(version) => format!("{name}@{version}"),
            None => name.to_owned(),
        };
        Self {
            kind: kind.to_owned(),
            purl: version.as_deref().and_then(|version| purl(name, version)),
            reference,
            name: name.to_owned(),
            version,
            ..Self::default()
        }
    }

    /// A file of the image, by its whole path there.
    pub fn file(path: &str, digest: Digest, bytes: u64) -> Self {
        Self {
            hashes: vec![Hash {
                alg: "SHA-256".to_owned(),
                content: digest.to_string().trim_start_matches("sha256:").to_owned(),
            }],
            properties: vec![property(SIZE, bytes.to_string())],
            ..Self::new("file", path, None)
        }
    }

    #[must_use]
    pub fn with(mut self, files: Vec<Self>, images: &[String]) -> Self {
        self.components = files;
        self.properties
            .extend(images.iter().map(|image| property(IMAGE, image.clone())));
        self
    }

    pub fn is_file(&self) -> bool {
        self.kind == "file"
    }

    pub fn digest(&self) -> Option<Digest> {
        let hash = self.hashes.iter().find(|hash| hash.alg == "SHA-256")?;
        format!("sha256:{}", hash.content).parse().ok()
    }

    pub fn bytes(&self) -> u64 {
        let size = self.properties.iter().find(|property| property.name == SIZE);
        size.and_then(|size| size.value.parse().ok()).unwrap_or_default()
    }

    /// The images in an archive.
    pub fn images(&self) -> impl Iterator<Item = &str> {
        let images = self.properties.iter().filter(|property| property.name == IMAGE);
        images.map(|property| property.value.as_str())
    }

    fn collect(&self, found: &mut BTreeMap<String, Option<Digest>>) {
        if self.is_file() {
            found.insert(self.name.clone(), self.digest());
        }
        for part in &self.components {
            part.collect(found);
        }
    }
}

fn property(name: &str, value: String) -> Property {
    Property {
        name: name.to_owned(),
        value,
    }
}

/// How scanners find what is known about a program.
fn purl(name: &str, version: &str) -> Option<String> {
    let source = match name {
        "kubeadm" | "kubelet" | "kubectl" => "kubernetes/kubernetes",
        "containerd" => "containerd/containerd",
        "runc" => "opencontainers/runc",
        "crictl" => "kubernetes-sigs/cri-tools",
        "cni-plugins" => "containernetworking/plugins",
        _ => return None,
    };
    let numbers = version.trim_start_matches('v');
    Some(format!("pkg:github/{source}@v{numbers}"))
}

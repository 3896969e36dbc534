//! Files as small as they can be to go into a bundle: heads of programs without a body, archives with a list and no image.

#![allow(dead_code, reason = "each test file uses its part")]

use std::fs;
use std::path::{Path, PathBuf};

use afloat_bundle::create::{Created, Wish, create};
use afloat_bundle::input::{Sources, check};
use afloat_bundle::key::{self, PrivateKey};
use afloat_bundle::layout::Layout;
use afloat_bundle::progress::silent;
use afloat_node::signature::PublicKeys;
use serde_json::json;
use tempfile::TempDir;

pub const OLD: &str = "v1.35.4";
pub const NEW: &str = "v1.36.3";
pub const AMD64: u16 = 62;
pub const ARM64: u16 = 183;

/// The head of a program for a machine; `body` makes it another file.
pub fn program(machine: u16, needs_loader: bool, body: &str) -> Vec<u8> {
    let mut bytes = vec![0_u8; 64 + 56];
    bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
    bytes[18..20].copy_from_slice(&machine.to_le_bytes());
    bytes[32] = 64;
    bytes[54] = 56;
    bytes[56] = 1;
    bytes[64] = if needs_loader { 3 } else { 1 };
    bytes.extend_from_slice(body.as_bytes());
    bytes
}

/// An archive of images, as `docker save` writes it.
pub fn archive(images: &[&str]) -> Vec<u8> {
    let list = json!([{ "Config": "c.json", "RepoTags": images, "Layers": [] }]).to_string();
    let mut tar = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(list.len() as u64);
    header.set_mode(0o644);
    tar.append_data(&mut header, "manifest.json", list.as_bytes()).unwrap();
    tar.into_inner().unwrap()
}

/// A folder with everything two minors need.
pub struct Site {
    pub folder: TempDir,
}

impl Site {
    pub fn new() -> Self {
        let site = Self {
            folder: TempDir::new().unwrap(),
        };
        site.write("afloat", &program(AMD64, false, "afloat"));
        for version in [OLD, NEW] {
            for name in ["kubeadm", "kubelet", "kubectl"] {
                site.write(
                    &format!("{version}/{name}"),
                    &program(AMD64, false, &format!("{name} {version}")),
                );
            }
            let image = format!("registry.example/kube-apiserver:{version}");
            site.write(&format!("images/{version}.tar"), &archive(&[&image]));
        }
        for name in ["containerd", "containerd-shim-runc-v2", "ctr", "runc"] {
            // As distributions build them: these run on the host, which has libraries.
            site.write(&format!("runtime/{name}"), &program(AMD64, true, name));
        }
        for name in ["bridge", "loopback"] {
            site.write(&format!("cni/{name}"), &program(AMD64, false, name));
        }
        site.write("cni/LICENSE", b"Apache License");
        site
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn write(&self, name: &str, bytes: &[u8]) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    /// All of it, for these versions.
    pub fn sources(&self, versions: &[&str]) -> Sources {
        Sources {
            kubernetes: versions
                .iter()
                .map(|version| ((*version).to_owned(), self.path(version)))
                .collect(),
            runtime: vec![self.path("runtime")],
            cni: vec![self.path("cni")],
            images: versions
                .iter()
                .map(|version| self.path(&format!("images/{version}.tar")))
                .collect(),
            afloat: self.path("afloat"),
        }
    }

    pub fn key(&self) -> PrivateKey {
        let name = self.path("release");
        if !self.path("release.key").exists() {
            key::generate(&name).unwrap();
        }
        PrivateKey::read(&self.path("release.key")).unwrap()
    }

    pub fn public(&self) -> PublicKeys {
        PublicKeys::from(self.key().public())
    }

    pub fn layout(&self, name: &str) -> Layout {
        Layout::open_or_create(&self.path(name)).unwrap()
    }

    /// A signed bundle of these versions, under the last one's name.
    pub fn bundle(&self, layout: &Layout, versions: &[&str]) -> Created {
        let key = self.key();
        let checked = check(&self.sources(versions), &mute).unwrap();
        let tag = versions.last().unwrap();
        let wish = Wish { tag, key: Some(&key) };
        create(layout, &checked, &wish, &silent).unwrap()
    }
}

/// Programs without a body answer nothing.
pub fn mute(_: &Path, _: &[&str]) -> Option<String> {
    None
}

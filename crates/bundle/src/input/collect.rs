//! Gathers the files of a bundle, kind by kind, with what is wrong and what is worth knowing about each.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use afloat_node::{bundle, touches};

use super::ask::version_in;
use super::{Ask, Checked, Component, Item, ordered};
use crate::archive::{self, NotAnArchive};
use crate::elf::{self, Elf};
use crate::{Complaint, Error};

const KUBERNETES: [&str; 3] = ["kubeadm", "kubelet", "kubectl"];

pub struct Collector<'a> {
    ask: Ask<'a>,
    components: Vec<Component>,
    machine: Option<&'static str>,
    notes: Vec<String>,
    complaints: Vec<Complaint>,
}

impl<'a> Collector<'a> {
    pub fn new(ask: Ask<'a>) -> Self {
        Self {
            ask,
            components: Vec::new(),
            machine: None,
            notes: Vec::new(),
            complaints: Vec::new(),
        }
    }

    pub fn end(mut self, versions: Vec<String>) -> (Checked, Vec<Complaint>) {
        let mut seen: BTreeMap<&str, &Path> = BTreeMap::new();
        for item in self.components.iter().flat_map(|component| &component.items) {
            if let Some(other) = seen.insert(&item.name, &item.source) {
                let fact = format!("would take the place of {} in the bundle", other.display());
                let complaint = Complaint::new(item.source.display().to_string(), fact);
                self.complaints
                    .push(complaint.help("name only one of them, or rename one"));
            }
        }
        let checked = Checked {
            components: self.components,
            machine: self.machine.unwrap_or_else(elf::here),
            versions,
            notes: self.notes,
        };
        (checked, self.complaints)
    }

    fn complain(&mut self, about: &Path, fact: impl Into<String>, help: Option<&str>) {
        let complaint = Complaint::new(about.display().to_string(), fact);
        self.complaints.push(match help {
            Some(help) => complaint.help(help),
            None => complaint,
        });
    }

    /// The program itself: alone in the image, so it must need nothing else.
    pub fn afloat(&mut self, path: &Path) {
        let Some((item, program)) = self.program("afloat", path) else {
            return;
        };
        if !program.is_static {
            self.complain(
                path,
                "needs a loader and libraries, and the image has none",
                Some("make static builds one that needs nothing; --afloat FILE names it"),
            );
        }
        let version = self.version(&item, program, &["version"]);
        self.add("afloat", version, "afloat", vec![item]);
    }

    /// containerd and what belongs to it.
    pub fn runtime(&mut self, path: &Path) {
        let (mut containerd, mut version) = (Vec::new(), None);
        for file in self.files(path) {
            let name = file_name(&file);
            if !touches::is_runtime(&name) {
                self.notes
                    .push(format!("{} is left out: it is no part of the runtime", file.display()));
                continue;
            }
            let Some((item, program)) = self.program(&format!("containerd/{name}"), &file) else {
                continue;
            };
            if name.starts_with("containerd") || name == "ctr" {
                if name == "containerd" {
                    version = self.version(&item, program, &["--version"]);
                }
                containerd.push(item);
            } else {
                let own = self.version(&item, program, &["--version"]);
                self.add(&name, own, "containerd", vec![item]);
            }
        }
        if !containerd.is_empty() {
            self.add("containerd", version, "containerd", containerd);
        }
    }

    pub fn cni(&mut self, path: &Path) {
        let (mut plugins, mut version) = (Vec::new(), None);
        for file in self.files(path) {
            // Releases have a licence and a readme among the plugins.
            if path.is_dir() && matches!(elf::read(&file), Ok(None)) {
                self.notes
                    .push(format!("{} is left out: it is no program", file.display()));
                continue;
            }
            let name = file_name(&file);
            let Some((item, program)) = self.program(&format!("cni/{name}"), &file) else {
                continue;
            };
            if version.is_none() && name == "loopback" {
                version = self.version(&item, program, &[]);
            }
            plugins.push(item);
        }
        if !plugins.is_empty() {
            self.add("cni-plugins", version, "cni", plugins);
        }
    }

    /// The three programs of one version.
    pub fn kubernetes(&mut self, version: &str, folder: &Path) {
        if ordered(version).is_none() || !version.starts_with('v') {
            self.complain(
                folder,
                format!("is named for {version}, which is no version"),
                Some("write it as v1.36.3"),
            );
            return;
        }
        for name in KUBERNETES {
            let path = folder.join(name);
            if !path.exists() {
                let help = format!("put {name} {version} there, as the release has it");
                self.complain(&path, "is not there", Some(&help));
                continue;
            }
            let Some((item, program)) = self.program(&bundle::kubernetes(version, name), &path) else {
                continue;
            };
            let question: &[&str] = match name {
                "kubeadm" => &["version", "-o", "short"],
                "kubectl" => &["version", "--client"],
                _ => &["--version"],
            };
            match self.version(&item, program, question) {
                Some(found) if found != version => {
                    let help = format!(
                        "--kubernetes {found}={}, or put {name} {version} there",
                        folder.display()
                    );
                    self.complain(&path, format!("is {found}, not {version}"), Some(&help));
                }
                _ => {}
            }
            self.add(
                name,
                Some(version.to_owned()),
                &format!("kubernetes/{version}"),
                vec![item],
            );
        }
    }

    pub fn images(&mut self, path: &Path) {
        let folder = path.is_dir();
        for file in self.files(path) {
            if folder && file.extension().is_none_or(|ending| ending != "tar") {
                self.notes
                    .push(format!("{} is left out: it is no .tar", file.display()));
                continue;
            }
            let found = match archive::images(&file) {
                Ok(found) => found,
                Err(problem) => {
                    let help = match problem {
                        NotAnArchive::Compressed => "unpack it first: layers are compressed in the images themselves",
                        NotAnArchive::Nameless => "save it by its name: ctr images export FILE REGISTRY/NAME:TAG",
                        _ => "docker save, ctr images export and skopeo copy … docker-archive:FILE write such archives",
                    };
                    self.complain(&file, problem.to_string(), Some(help));
                    continue;
                }
            };
            let name = file_name(&file);
            let Some(item) = self.item(&format!("images/{name}"), &file, false) else {
                continue;
            };
            let layer = item.name.clone();
            self.components.push(Component {
                name: name.trim_end_matches(".tar").to_owned(),
                version: None,
                layer,
                items: vec![item],
                images: found,
            });
        }
    }

    /// Says which images of a version the archives lack: nodes then have to find them in a registry.
    pub fn missing_images(&mut self, version: &str, folder: &Path) {
        let kubeadm = folder.join("kubeadm");
        let asked = ["config", "images", "list", "--kubernetes-version", version];
        if self.machine != Some(elf::here()) || !kubeadm.exists() {
            return;
        }
        let Some(said) = (self.ask)(&kubeadm, &asked) else {
            return;
        };
        let there: Vec<&str> = self
            .components
            .iter()
            .flat_map(|component| &component.images)
            .map(|image| last(image))
            .collect();
        let wanted = said
            .lines()
            .map(str::trim)
            .filter(|line| line.contains('/') && line.contains(':') && !line.contains(' '));
        let missing: Vec<&str> = wanted.map(last).filter(|image| !there.contains(image)).collect();
        if !missing.is_empty() {
            self.notes.push(format!(
                "the images of {version} lack {}: nodes will need a registry that has them",
                missing.join(", ")
            ));
        }
    }

    fn add(&mut self, name: &str, version: Option<String>, layer: &str, items: Vec<Item>) {
        self.components.push(Component {
            name: name.to_owned(),
            version,
            layer: layer.to_owned(),
            items,
            images: Vec::new(),
        });
    }

    /// What a program says its version is. That it does not answer is noted: it may be made for other machines.
    fn version(&mut self, item: &Item, program: Elf, question: &[&str]) -> Option<String> {
        let path = &item.source;
        if program.machine != elf::here() {
            return None;
        }
        let version = (self.ask)(path, question).as_deref().and_then(version_in);
        if version.is_none() {
            let note = format!(
                "{} did not say its version: taken for what its name says",
                path.display()
            );
            self.notes.push(note);
        }
        version
    }

    fn program(&mut self, name: &str, path: &Path) -> Option<(Item, Elf)> {
        let item = self.item(name, path, true)?;
        let program = match elf::read(path) {
            Ok(Some(program)) => program,
            Ok(None) => {
                self.complain(
                    path,
                    "is no program for Linux",
                    Some("take it from the release, unpacked"),
                );
                return None;
            }
            Err(source) => {
                self.complain(path, Error::file("read", path)(source).to_string(), None);
                return None;
            }
        };
        let machine = *self.machine.get_or_insert(program.machine);
        if machine != program.machine {
            let fact = format!("is for {}, and the others are for {machine}", program.machine);
            self.complain(path, fact, Some("make a bundle for each kind of machine"));
            return None;
        }
        Some((item, program))
    }

    fn item(&mut self, name: &str, path: &Path, is_program: bool) -> Option<Item> {
        let plain = |c: char| c.is_ascii_alphanumeric() || "._+-/".contains(c);
        if !name.chars().all(plain) {
            self.complain(
                path,
                "has a name that cannot go into a bundle",
                Some("letters, digits and . _ + - are possible"),
            );
            return None;
        }
        match fs::metadata(path) {
            Ok(found) if found.is_file() => Some(Item {
                name: name.to_owned(),
                source: path.to_owned(),
                bytes: found.len(),
                is_program,
            }),
            Ok(_) => {
                self.complain(path, "is no file", None);
                None
            }
            Err(error) => {
                self.complain(path, format!("cannot be read: {error}"), None);
                None
            }
        }
    }

    /// The file, or the files of the folder, in the order of their names.
    fn files(&mut self, path: &Path) -> Vec<PathBuf> {
        if path.is_file() {
            return vec![path.to_owned()];
        }
        let listed = fs::read_dir(path).and_then(|entries| {
            let paths = entries.map(|entry| entry.map(|entry| entry.path()));
            paths.collect::<Result<Vec<_>, _>>()
        });
        match listed {
            Ok(mut paths) => {
                paths.retain(|path| path.is_file());
                paths.sort();
                if paths.is_empty() {
                    self.complain(path, "has no files in it", None);
                }
                paths
            }
            Err(error) => {
                self.complain(path, format!("cannot be read: {error}"), None);
                Vec::new()
            }
        }
    }
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Name and tag of an image without its registry: mirrors have their own.
fn last(image: &str) -> &str {
    image.rsplit('/').next().unwrap_or(image)
}

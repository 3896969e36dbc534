//! Everything that Afloat says and writes where others read it: logs of its pods and units, events, its objects, its metrics, what its commands print.
//! Collected while an upgrade runs, since pods and their logs go away with it, and searched for what must never be in there.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::read::{list, text};
use crate::site::HOME;
use crate::{Error, Site};

/// Where kubelet keeps the logs of containers; those of Afloat's pods begin with its namespace.
const LOGS: &str = "/var/log/pods";
const OPERATOR: &str = "app.kubernetes.io/name=afloat-operator";
/// What begins a token of a service account, and a private key.
const ALWAYS: [&str; 2] = ["eyJhbGciOi", "PRIVATE KEY-----"];

/// A text by the place where it was found.
#[derive(Debug, Default)]
pub struct Haystack {
    texts: BTreeMap<String, String>,
}

impl Haystack {
    /// Something that was said elsewhere.
    pub fn add(&mut self, place: &str, text: &str) {
        let kept = self.texts.entry(place.to_owned()).or_default();
        // What is seen again may have been cut at its beginning meanwhile: both are kept.
        if !text.starts_with(kept.as_str()) {
            kept.push('\n');
            kept.push_str(text);
        } else if text.len() > kept.len() {
            text.clone_into(kept);
        }
    }

    /// What is there only while steps run: logs on the machines, and what containers said when they ended. An API server that is away is
    /// asked again the next time.
    pub fn collect_passing(&mut self, site: &Site) -> Result<(), Error> {
        for machine in site.lab.machines() {
            let folder = machine.root().join(LOGS.trim_start_matches('/'));
            for pod in entries(&folder) {
                if pod.starts_with(&format!("{HOME}_")) {
                    self.add_files(&folder.join(&pod), &format!("{} {pod}", machine.name()));
                }
            }
        }
        if let Ok(pods) = site.kubectl(&["-n", HOME, "get", "pods", "-o", "yaml"]) {
            self.add("pods", &pods);
        }
        Ok(())
    }

    fn add_files(&mut self, folder: &Path, place: &str) {
        for name in entries(folder) {
            let path = folder.join(&name);
            if path.is_dir() {
                self.add_files(&path, &format!("{place}/{name}"));
            } else if let Ok(content) = fs::read(&path) {
                self.add(&format!("{place}/{name}"), &String::from_utf8_lossy(&content));
            }
        }
    }

    /// What is there when all is over.
    pub fn collect_lasting(&mut self, site: &Site) -> Result<(), Error> {
        let kinds =
            "clusterupgrades,controlplanekubeadmupgrades,workerskubeadmupgrades,nodekubeadmupgrades,configmaps,leases";
        // As a person asks, which also says what events there are of each.
        let described =
            "clusterupgrades,controlplanekubeadmupgrades,workerskubeadmupgrades,nodekubeadmupgrades,pods,deployments";
        for (place, words) in [
            (
                "events",
                &[
                    "get",
                    "events",
                    "--all-namespaces",
                    "-o",
                    "yaml",
                    "--show-managed-fields",
                ][..],
            ),
            ("objects", &["-n", HOME, "get", kinds, "-o", "yaml"]),
            ("nodes", &["get", "nodes", "-o", "yaml"]),
            ("described objects", &["-n", HOME, "describe", described]),
            ("described nodes", &["describe", "nodes"]),
        ] {
            self.add(place, &site.kubectl(words)?);
        }
        for words in [
            &["status"][..],
            &["status", "-o", "json"],
            &["explain"],
            &["explain", "-o", "json"],
        ] {
            // A command that fails has said something too.
            let said = site.afloat(words).unwrap_or_else(|error| error.to_string());
            self.add(&format!("afloat {}", words.join(" ")), &said);
        }
        for operator in list(&site.object(&["-n", HOME, "get", "pods", "-l", OPERATOR])?) {
            let name = text(operator, "/metadata/name");
            let path = format!("/api/v1/namespaces/{HOME}/pods/{name}:8080/proxy/metrics");
            self.add(&format!("metrics of {name}"), &site.kubectl(&["get", "--raw", &path])?);
        }
        for machine in site.lab.machines() {
            let units = machine.exec(["journalctl", "--no-pager", "--unit", "afloat*"])?;
            self.add(&format!("{} units", machine.name()), &units);
        }
        self.collect_passing(site)
    }

    /// Where a text was found whose place begins so.
    pub fn places(&self, beginning: &str) -> Vec<&str> {
        let named = self.texts.keys().filter(|place| place.starts_with(beginning));
        named.map(String::as_str).collect()
    }

    /// How much was collected, in bytes.
    pub fn size(&self) -> usize {
        self.texts.values().map(String::len).sum()
    }

    /// Which secrets are in there, and where. Never the secret itself: this is printed.
    pub fn holds(&self, secrets: &BTreeMap<String, String>) -> Vec<String> {
        let always = ALWAYS.map(|text| ("what looks like one".to_owned(), text.to_owned()));
        let all: Vec<(String, String)> = secrets.clone().into_iter().chain(always).collect();
        let mut found = Vec::new();
        for (place, text) in &self.texts {
            for (name, secret) in &all {
                if text.contains(secret.as_str()) {
                    found.push(format!("{name} in {place}"));
                }
            }
        }
        found
    }
}

fn entries(folder: &Path) -> Vec<String> {
    let found = fs::read_dir(folder).into_iter().flatten().flatten();
    found
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_planted_is_found_also_when_its_text_was_cut_meanwhile() {
        let mut haystack = Haystack::default();
        haystack.add("log", "one password=hunter2\n");
        haystack.add("log", "one password=hunter2\ntwo\n");
        haystack.add("log", "two\nthree\n");
        haystack.add("other", "nothing here");
        let secrets = BTreeMap::from([("a password".to_owned(), "hunter2".to_owned())]);
        assert_eq!(haystack.holds(&secrets), ["a password in log"]);
        assert!(haystack.texts["log"].contains("three"));
        assert_eq!(haystack.places("o"), ["other"]);
    }

    #[test]
    fn tokens_and_keys_are_found_though_nobody_planted_them() {
        let mut haystack = Haystack::default();
        haystack.add("a", "bearer eyJhbGciOiJSUzI1NiJ9.x");
        haystack.add("b", "-----BEGIN RSA PRIVATE KEY-----");
        assert_eq!(haystack.holds(&BTreeMap::new()).len(), 2);
    }
}

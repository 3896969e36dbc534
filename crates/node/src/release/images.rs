//! Images in the containerd of RKE2, through the `ctr` that it brings: which are there, importing an archive, and removing by name what no
//! container uses.

use std::collections::BTreeSet;

use super::{command, to_end};
use crate::host::{Answer, Command, Host};

const CTR: &str = "/var/lib/rancher/rke2/bin/ctr";
const SOCKET: &str = "/run/k3s/containerd/containerd.sock";
/// An archive has some gigabytes, and disks of edge machines are slow.
const IMPORT_SECONDS: u32 = 3600;
const SECONDS: u32 = 60;

pub(super) fn ctr(args: &[&str], seconds: u32) -> Command {
    let all: Vec<&str> = ["--address", SOCKET, "--namespace", "k8s.io"]
        .iter()
        .chain(args)
        .copied()
        .collect();
    command(CTR, &all, seconds)
}

/// The names of the images that are there.
pub fn present(host: &mut dyn Host, run: &str) -> Answer<BTreeSet<String>> {
    let said = to_end(host, run, "images", &ctr(&["images", "list", "--quiet"], SECONDS))?;
    let by_name = |line: &&str| !line.is_empty() && !line.starts_with("sha256:");
    Ok(said.lines().map(str::trim).filter(by_name).map(str::to_owned).collect())
}

/// Imports an archive, compressed as it is. Its layers are unpacked when a container needs them.
pub fn import(host: &mut dyn Host, run: &str, archive: &str) -> Answer<()> {
    let name = format!("import-{}", super::lists::file_name(archive));
    let import = ctr(&["images", "import", "--no-unpack", archive], IMPORT_SECONDS);
    to_end(host, run, &name, &import).map(|_| ())
}

/// Removes images by name and says which are gone. One that a container uses stays, and so does one that cannot be removed: the next
/// upgrade tries again.
pub fn remove(host: &mut dyn Host, run: &str, names: &[&str]) -> Answer<Vec<String>> {
    let said = to_end(host, run, "containers", &ctr(&["containers", "list"], SECONDS))?;
    // `CONTAINER IMAGE RUNTIME`, the first line names them.
    let used: BTreeSet<&str> = said
        .lines()
        .skip(1)
        .filter_map(|line| line.split_whitespace().nth(1))
        .collect();
    let mut gone = Vec::new();
    for name in names.iter().filter(|name| !used.contains(**name)) {
        let what = format!("remove-{name}");
        if to_end(host, run, &what, &ctr(&["images", "remove", name], SECONDS)).is_ok() {
            gone.push((*name).to_owned());
        }
    }
    Ok(gone)
}

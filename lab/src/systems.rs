//! Machines whose system is replaced as a whole: two slots for it and a boot chooser (`files/choose-system`) in the machine's folder, all that lasts
//! outside both; and images of systems to write into a slot. Machines with one system, which is the rule, have none of this.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use serde::{Deserialize, Serialize};

use crate::{
    Error, Progress, Release,
    home::Home,
    machine,
    shell::{self, run},
    template,
};

/// How many systems a machine has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Systems {
    /// One, in which everything lies.
    #[default]
    One,
    /// Two slots, `a` and `b`, and what lasts outside them.
    Ab,
}

impl std::str::FromStr for Systems {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "one" => Ok(Self::One),
            "ab" => Ok(Self::Ab),
            _ => Err("a machine has one system, or ab".to_owned()),
        }
    }
}

/// What lies outside the slots: `/var`, what makes a machine a node of its cluster, its name, keys and addresses.
const LASTING: [&str; 12] = [
    "var",
    "root",
    "home",
    "oem",
    "etc/kubernetes",
    "etc/rancher",
    "etc/ssh",
    "etc/cni/net.d",
    "etc/hostname",
    "etc/machine-id",
    "usr/local/sbin/lab-network",
    "usr/local/upgrade_tmp",
];
/// Those of them that are files.
const FILES: [&str; 3] = ["etc/hostname", "etc/machine-id", "usr/local/sbin/lab-network"];
/// What a machine's first system calls itself.
pub const FIRST_SYSTEM: &str = "Lab system 1";
const WRITE_WITHIN: Duration = Duration::from_mins(5);

/// Where the slots of a machine are, by the machine's folder.
pub(crate) fn slots(folder: &Path) -> PathBuf {
    folder.join("systems")
}

/// The root folder of the slot that runs, or would.
pub(crate) fn running(folder: &Path) -> PathBuf {
    let boot = slots(folder).join("boot");
    let read = |name: &str| fs::read_to_string(boot.join(name)).ok();
    let slot = read("running").or_else(|| read("default")).unwrap_or_default();
    slots(folder).join(if slot.starts_with('b') { "b" } else { "a" })
}

/// A path of a machine that is off, where it lies on this one.
pub(crate) fn outside(folder: &Path, path: &str) -> PathBuf {
    let path = Path::new(path.trim_start_matches('/'));
    if LASTING.iter().any(|lasting| path.starts_with(lasting)) {
        return folder.join("state").join(path);
    }
    running(folder).join(path)
}

/// Makes slots of a root folder that was made as for a machine with one system.
pub(crate) fn split(folder: &Path) -> Result<(), Error> {
    let (root, first) = (folder.join("root"), slots(folder).join("a"));
    name_system(&root, FIRST_SYSTEM)?;
    take_out(&root, |path| folder.join("state").join(path))?;
    shell::make_folder(&slots(folder).join("boot"))?;
    fs::rename(&root, &first).map_err(Error::file(&root))?;
    for (file, text) in [("a.image", "made with the machine\n"), ("default", "a\n")] {
        shell::write(&slots(folder).join("boot").join(file), text)?;
    }
    shell::write(&folder.join("lasting"), &format!("{}\n", LASTING.join("\n")))?;
    shell::write_program(&folder.join("choose-system"), include_str!("../files/choose-system"))
}

/// Moves what lasts from a system to where it lasts; its place stays, empty.
fn take_out(root: &Path, to: impl Fn(&str) -> PathBuf) -> Result<(), Error> {
    for path in LASTING {
        let (from, to) = (root.join(path), to(path));
        shell::make_folder(to.parent().unwrap_or(&to))?;
        let is_file = FILES.contains(&path);
        match fs::rename(&from, &to) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && is_file => shell::write(&to, "")?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => shell::make_folder(&to)?,
            moved => moved.map_err(Error::file(&from))?,
        }
        if is_file {
            shell::write(&from, "")?;
        } else {
            shell::make_folder(&from)?;
        }
    }
    Ok(())
}

/// Gives a system its name, which its kubelet tells as the node's `osImage`.
fn name_system(root: &Path, name: &str) -> Result<(), Error> {
    let path = root.join("usr/lib/os-release");
    let text = shell::read(&path)?;
    let others = text.lines().filter(|line| !line.starts_with("PRETTY_NAME="));
    let others: Vec<&str> = others.collect();
    // The file is shared with the Debian of all machines: it is replaced, never written.
    fs::remove_file(&path).map_err(Error::file(&path))?;
    shell::write(&path, &format!("PRETTY_NAME=\"{name}\"\n{}\n", others.join("\n")))
}

/// Writes an image of a system for a slot: the root file system of a machine at a version, without anything that is one machine's own, called so.
/// `change` may do to it what a later system has changed, or broken, but for files below `/usr` of the distribution, which are shared.
pub fn write_system(
    release: &Release,
    name: &str,
    to: &Path,
    change: impl FnOnce(&Path) -> io::Result<()>,
) -> Result<(), Error> {
    let home = Home::find()?;
    let lock = home.lock()?;
    let debian = template::debian(&home, &Progress::new(true))?;
    drop(lock);
    shell::make_folder(home.path())?;
    let work = tempfile::tempdir_in(home.path()).map_err(Error::file(home.path()))?;
    let (root, own) = (work.path().join("root"), work.path().join("own"));
    template::unpack_system(&debian, &root)?;
    machine::lay_out(&root, release)?;
    name_system(&root, name)?;
    take_out(&root, |path| own.join(path))?;
    change(&root).map_err(Error::file(&root))?;
    // Devices are the kernel's to make, and a machine of the lab may not.
    let mut tar = Command::new("tar");
    tar.args(["--create", "--numeric-owner", "--xattrs", "--exclude=./dev/*", "--file"])
        .arg(to)
        .arg("--directory")
        .arg(&root)
        .arg(".");
    run(&mut tar, WRITE_WITHIN).map(drop)
}

#[cfg(test)]
mod tests;

//! A simulated machine with two slots for its system: what its boot chooser does at every boot, and the programs that write a slot. An archive is a text
//! with a line for each file, `path=content`; a system whose `sbin/init` says `broken` ends as soon as it is booted.

use std::fmt::Write as _;

use afloat_node::host::Command;
use sha2::{Digest as _, Sha512};

use super::SimHost;
use super::kubeadm::Said;

const BOOT: &str = "/systems/boot";
/// The first and the last words of a boot chooser, and one more try between them.
const MOST_BOOTS: u32 = 3;

/// The SHA-512 of an archive, in hexadecimal digits.
pub fn checksum(archive: &str) -> String {
    Sha512::digest(archive).iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

impl SimHost {
    /// Gives it two slots, of which the first has this system and runs.
    #[must_use]
    pub fn with_systems(mut self, archive: &str) -> Self {
        for (path, content) in unpack(archive) {
            self.disk
                .write(&format!("/systems/a/{path}"), content.as_bytes(), 0o644);
        }
        for (name, text) in [
            ("default", "a\n"),
            ("running", "a\n"),
            ("a.image", checksum(archive).as_str()),
        ] {
            self.disk.write(&format!("{BOOT}/{name}"), text.as_bytes(), 0o644);
        }
        self.disk.write("/proc/self/exe", b"afloat v0.1.0", 0o755);
        self
    }

    /// What the system that runs calls itself.
    pub fn system(&self) -> Option<&str> {
        let running = self.mark("running")?.0;
        self.disk.text(&format!("/systems/{running}/usr/lib/os-release"))
    }

    /// A file of the chooser: its slot, and the whole of it.
    fn mark(&self, name: &str) -> Option<(String, String)> {
        let text = self.disk.text(&format!("{BOOT}/{name}"))?;
        Some((text.lines().next()?.to_owned(), text.to_owned()))
    }

    fn put_mark(&mut self, name: &str, text: &str) {
        self.disk.write(&format!("{BOOT}/{name}"), text.as_bytes(), 0o644);
    }

    /// What a boot chooser does before it boots a system, until one stays.
    pub(super) fn choose_system(&mut self) {
        for _ in 0..MOST_BOOTS {
            let Some((default, _)) = self.mark("default") else {
                return;
            };
            let mut slot = default.clone();
            if let Some((tried, text)) = self.mark("trial") {
                if tried != default {
                    self.put_mark("failed", &text);
                }
                self.disk.remove(&format!("{BOOT}/trial"));
            } else if let Some((next, text)) = self.mark("next") {
                self.put_mark("trial", &text);
                self.disk.remove(&format!("{BOOT}/next"));
                slot = next;
            }
            self.put_mark("running", &format!("{slot}\n"));
            if self.disk.text(&format!("/systems/{slot}/sbin/init")) != Some("broken") {
                return;
            }
            if let Some((_, text)) = self.mark("trial") {
                self.put_mark("trial", &format!("{}\nit ended with 1\n", text.trim_end()));
            }
        }
    }

    /// Programs that write a slot and look at it.
    pub(super) fn run_for_systems(&mut self, program: &str, args: &[&str]) -> Said {
        let text = |path: &str| {
            self.disk
                .text(path)
                .ok_or("no such file or directory")
                .map(str::to_owned)
        };
        match (program, args) {
            ("sha512sum", [path]) => Ok(format!("{}  {path}\n", checksum(&text(path)?))),
            ("sh", ["-c", _, path]) => {
                let archive = text(path)?;
                let bytes: usize = unpack(&archive).map(|(_, content)| content.len()).sum();
                Ok(format!("{}\n{bytes}\n", unpack(&archive).count()))
            }
            ("du", [.., root]) => Ok(self
                .disk
                .under(root)
                .map(|(_, file)| file.bytes().len())
                .sum::<usize>()
                .to_string()),
            ("mkdir", _) => Ok(String::new()),
            ("sync", _) => {
                self.disk.sync();
                Ok(String::new())
            }
            ("tar", ["--extract", .., path, "--directory", root]) => {
                let archive = text(path)?;
                self.unpack(&archive, root, usize::MAX);
                Ok(String::new())
            }
            ("tar", ["--compare", .., path, "--directory", root]) => {
                let archive = text(path)?;
                let wrong =
                    unpack(&archive).find(|(path, content)| self.disk.text(&format!("{root}/{path}")) != Some(content));
                wrong.map_or(Ok(String::new()), |(path, _)| {
                    Err(format!("tar: {path}: Contents differ"))
                })
            }
            _ => Err(format!("unknown command {program} {args:?}")),
        }
    }

    /// What a program leaves behind that was cut off; most of them nothing.
    pub(super) fn run_half(&mut self, command: &Command) {
        let args: Vec<&str> = command.args.iter().map(String::as_str).collect();
        if let ("tar", ["--extract", .., path, "--directory", root]) = (command.program.as_str(), args.as_slice()) {
            let archive = self.disk.text(path).unwrap_or_default().to_owned();
            self.unpack(&archive, root, unpack(&archive).count() / 2);
        }
    }

    fn unpack(&mut self, archive: &str, root: &str, most: usize) {
        for (path, content) in unpack(archive).take(most) {
            let mut content = content;
            if self.faults.damaged_writes > 0 {
                self.faults.damaged_writes -= 1;
                content = "what the disk made of it";
            }
            self.disk
                .write_unsynced(&format!("{root}/{path}"), content.as_bytes(), 0o644);
        }
    }
}

fn unpack(archive: &str) -> impl Iterator<Item = (&str, &str)> {
    archive.lines().filter_map(|line| line.split_once('='))
}

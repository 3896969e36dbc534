//! Two slots for the root file system and a boot chooser between them. The slot that does not run is written from the release's image, compared with
//! it, and marked to be booted once; what boots so is kept when it is well, and otherwise the next boot is the old slot's again, with nobody's help.
//! What lasts (`/var`, the configuration of Kubernetes, the machine's name and keys) lies outside both.
//!
//! What the boot chooser and this side tell each other are small files in `/systems/boot`, each replaced whole:
//!
//! | file | says | written by |
//! |---|---|---|
//! | `default` | the slot that boots | here, when a tried one is kept |
//! | `next` | the slot that boots once, and its image's checksum | here |
//! | `trial` | was `next` until it booted | the chooser, by a rename before it boots |
//! | `failed` | was `trial`, and was not kept; why, if that is known | the chooser, by a rename before it boots `default` |
//! | `running` | the slot that was booted last | the chooser |
//! | `a.image`, `b.image` | the checksum of the image that a slot was made from, whole | here |

use super::super::{FOLDER, command, to_end};
use super::{Errand, Systems, Trial, cannot, checksum_of};
use crate::host::{Answer, Endpoint, Host};
use crate::paths;

const SYSTEMS: &str = "/systems";
pub const DEFAULT: &str = "/systems/boot/default";
const NEXT: &str = "/systems/boot/next";
const TRIAL: &str = "/systems/boot/trial";
const FAILED: &str = "/systems/boot/failed";
const RUNNING: &str = "/systems/boot/running";
/// The root file system as an archive: no kernel module is needed to read it, and tar, which every system has, knows how it is compressed.
const IMAGE: &str = "rootfs.tar";
/// What every system has, and says who it is.
const OS_RELEASE: &str = "usr/lib/os-release";
/// This program, where a new system finds it too.
const PROGRAM: &str = "/var/lib/afloat/system/afloat";
const OWN_PROGRAM: &str = "/proc/self/exe";
const KEEPER: &str = "afloat-system.service";
const WRITE_SECONDS: u32 = 1800;
const SECONDS: u32 = 120;
/// A file takes whole blocks.
const BLOCK: u64 = 4096;
/// RKE2 is ready when its unit is up, and a node has one of them.
const RKE2_UNITS: [&str; 2] = ["rke2-server.service", "rke2-agent.service"];

/// Whether a host has slots and a chooser.
pub fn are_there(host: &mut dyn Host) -> Answer<bool> {
    Ok(host.size(DEFAULT)?.is_some())
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Slot {
    A,
    B,
}

impl Slot {
    fn letter(self) -> &'static str {
        match self {
            Self::A => "a",
            Self::B => "b",
        }
    }

    fn other(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
        }
    }

    fn root(self) -> String {
        format!("{SYSTEMS}/{}", self.letter())
    }

    /// The file that says what it was made from; without it, it is not whole.
    fn record(self) -> String {
        format!("{SYSTEMS}/boot/{}.image", self.letter())
    }
}

/// A slot with what is known of the system in it.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Mark {
    slot: Slot,
    checksum: String,
    why: String,
}

/// What the files of the chooser say.
#[derive(Debug)]
struct State {
    default: Slot,
    running: Slot,
    next: Option<Mark>,
    trial: Option<Mark>,
    failed: Option<Mark>,
}

impl State {
    fn read(host: &mut dyn Host) -> Answer<Self> {
        let needed = |path: &str, mark: Option<Mark>| {
            let missing = "it is not there: the boot chooser writes it before it boots a system".to_owned();
            mark.map(|mark| mark.slot).ok_or_else(|| cannot("read", path, missing))
        };
        Ok(Self {
            default: needed(DEFAULT, mark_in(host, DEFAULT)?)?,
            running: needed(RUNNING, mark_in(host, RUNNING)?)?,
            next: mark_in(host, NEXT)?,
            trial: mark_in(host, TRIAL)?,
            failed: mark_in(host, FAILED)?,
        })
    }

    /// The slot that nobody needs: it does not run, and would not be booted.
    fn spare(&self) -> Answer<Slot> {
        if self.trial.is_some() {
            let message = format!(
                "slot {} runs on trial, and slot {} is where the machine goes back to: wait until {KEEPER} has kept it",
                self.running.letter(),
                self.default.letter()
            );
            return Err(cannot("write", "a new system", message));
        }
        if self.running != self.default {
            let message = format!(
                "slot {} runs and {DEFAULT} names {}: restart the machine, so that both are the same",
                self.running.letter(),
                self.default.letter()
            );
            return Err(cannot("write", "a new system", message));
        }
        Ok(self.running.other())
    }

    /// A system of which it is known why it failed is not tried again by itself: it would fail again, and its node be away for it. One that was
    /// cut off by the power is.
    fn refuse_failed(&self, wanted: &str) -> Answer<()> {
        let known = |failed: &&Mark| failed.checksum == wanted && !failed.why.is_empty();
        let Some(failed) = self.failed.as_ref().filter(known) else {
            return Ok(());
        };
        let message = format!(
            "slot {} was booted with it and not kept ({}), so the machine went back to slot {}: journalctl --list-boots has the journal of \
             that boot; to try the same system again: rm {FAILED}",
            failed.slot.letter(),
            failed.why,
            self.default.letter(),
        );
        Err(cannot("install", IMAGE, message))
    }
}

/// The mark in a file: a slot, the checksum of its image, and why, a line each.
fn mark_in(host: &mut dyn Host, path: &str) -> Answer<Option<Mark>> {
    let Some(content) = host.read(path)? else {
        return Ok(None);
    };
    let text = String::from_utf8_lossy(&content);
    let mut lines = text.lines().map(str::trim);
    let slot = match lines.next() {
        Some("a") => Slot::A,
        Some("b") => Slot::B,
        other => {
            let message = format!(
                "its first line is {:?}, and a slot is a or b",
                other.unwrap_or_default()
            );
            return Err(cannot("read", path, message));
        }
    };
    Ok(Some(Mark {
        slot,
        checksum: lines.next().unwrap_or_default().to_owned(),
        why: lines.next().unwrap_or_default().to_owned(),
    }))
}

fn put_mark(host: &mut dyn Host, path: &str, mark: &Mark) -> Answer<()> {
    let text = format!("{}\n{}\n{}", mark.slot.letter(), mark.checksum, mark.why);
    host.write(path, format!("{}\n", text.trim_end()).as_bytes(), 0o644)
}

/// The checksum of the image that a slot was made from; nothing while it is not whole.
fn made_of(host: &mut dyn Host, slot: Slot) -> Answer<Option<String>> {
    let content = host.read(&slot.record())?;
    Ok(content.map(|content| String::from_utf8_lossy(&content).trim().to_owned()))
}

pub struct Slots;

impl Systems for Slots {
    fn image(&self) -> &'static str {
        IMAGE
    }

    fn wants_checksum(&self) -> bool {
        true
    }

    fn present(&self, host: &mut dyn Host) -> Answer<Vec<String>> {
        let mut all = Vec::new();
        for slot in [Slot::A, Slot::B] {
            all.extend(made_of(host, slot)?);
        }
        Ok(all)
    }

    fn install(&self, host: &mut dyn Host, errand: &Errand<'_>) -> Answer<String> {
        let image = format!("{FOLDER}/{IMAGE}");
        let (state, wanted) = (State::read(host)?, wanted(host, &image)?);
        let said = if made_of(host, state.running)?.as_ref() == Some(&wanted) {
            host.remove(NEXT)?;
            format!("slot {} runs that system already", state.running.letter())
        } else {
            let spare = state.spare()?;
            state.refuse_failed(&wanted)?;
            if made_of(host, spare)?.as_ref() != Some(&wanted) {
                write(host, errand.run, spare, &image, &wanted)?;
            }
            mark(host, spare, &wanted, errand.node)?;
            format!(
                "slot {} has the new system, and is tried at the next boot",
                spare.letter()
            )
        };
        // Nothing is left to be done with them, whatever happens from now on.
        host.remove(&image)?;
        host.remove(&checksum_of(&image))?;
        Ok(said)
    }

    fn trial(&self, host: &mut dyn Host, errand: &Errand<'_>) -> Answer<Trial> {
        if mark_in(host, TRIAL)?.is_none() {
            return Ok(Trial::None);
        }
        Ok(unwell(host, errand.run)?.map_or(Trial::Well, Trial::Unwell))
    }

    /// In this order: where the power goes between the two, the chooser finds that the tried slot is the one to boot.
    fn keep(&self, host: &mut dyn Host) -> Answer<()> {
        let Some(trial) = mark_in(host, TRIAL)? else {
            return Ok(());
        };
        host.write(DEFAULT, format!("{}\n", trial.slot.letter()).as_bytes(), 0o644)?;
        host.remove(FAILED)?;
        host.remove(TRIAL)
    }

    fn give_up(&self, host: &mut dyn Host, reason: &str) -> Answer<()> {
        let Some(trial) = mark_in(host, TRIAL)? else {
            return Ok(());
        };
        // One line: that is what the file has for it.
        let why = reason.lines().collect::<Vec<_>>().join(" ");
        put_mark(host, TRIAL, &Mark { why, ..trial })
    }

    /// The slot is tried as a new one is: a system that does not come up any more is not kept either.
    fn put_back(&self, host: &mut dyn Host, errand: &Errand<'_>, to: &str) -> Answer<Option<String>> {
        let state = State::read(host)?;
        let Some(to) = [Slot::A, Slot::B].into_iter().find(|slot| slot.letter() == to) else {
            return Err(cannot("put back", to, "a slot is a or b".to_owned()));
        };
        if state.running == to {
            host.remove(NEXT)?;
            return Ok(None);
        }
        if state.trial.is_some() {
            self.give_up(host, "a person put the system before back")?;
        } else if state.next.as_ref().is_none_or(|next| next.slot != to) {
            let Some(checksum) = made_of(host, state.spare()?)? else {
                let message = "it has no whole system: the next one was being written into it".to_owned();
                return Err(cannot("put back", &to.root(), message));
            };
            mark(host, to, &checksum, errand.node)?;
        }
        Ok(Some(format!("slot {} boots next", to.letter())))
    }
}

/// The checksum that the image of the release has to have.
fn wanted(host: &mut dyn Host, image: &str) -> Answer<String> {
    let path = checksum_of(image);
    let content = host.read(&path)?.unwrap_or_default();
    let text = String::from_utf8_lossy(&content);
    let sum = text.split_whitespace().next().unwrap_or_default().to_ascii_lowercase();
    if sum.len() == 128 && sum.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Ok(sum);
    }
    let message = if content.is_empty() {
        "it is not there; the task brings it when it is run again"
    } else {
        "it does not begin with a SHA-512 in 128 hexadecimal digits"
    };
    Err(cannot("read", &path, message.to_owned()))
}

/// Writes the image into a slot. Until its record is there the slot counts as empty, whatever is in it.
fn write(host: &mut dyn Host, run: &str, slot: Slot, image: &str, wanted: &str) -> Answer<()> {
    if host.size(image)?.is_none() {
        let message = "it is not there; the task brings it when it is run again";
        return Err(cannot("install", image, message.to_owned()));
    }
    let sum = to_end(host, run, "sha512sum", &command("sha512sum", &[image], WRITE_SECONDS))?;
    let sum = sum.split_whitespace().next().unwrap_or_default();
    if sum != wanted {
        // Else the next run would find the same damaged file.
        host.remove(image)?;
        let message =
            format!("its SHA-512 is {sum} and has to be {wanted}; the task brings it anew when it is run again");
        return Err(cannot("install", image, message));
    }
    let root = slot.root();
    let needed = measured(host, run, image)?;
    find_room(host, run, &root, &needed)?;
    host.remove(NEXT)?;
    host.remove(&slot.record())?;
    host.remove(&root)?;
    let folder = command("mkdir", &["--mode=0755", "--parents", &root], SECONDS);
    to_end(host, run, "mkdir", &folder)?;
    let of_it = ["--numeric-owner", "--file", image, "--directory", &root];
    let unpack = [
        &["--extract", "--same-permissions", "--xattrs", "--xattrs-include=*"][..],
        &of_it,
    ]
    .concat();
    to_end(host, run, "unpack", &command("tar", &unpack, WRITE_SECONDS))?;
    let sync = command("sync", &["--file-system", &root], WRITE_SECONDS);
    to_end(host, run, "sync", &sync)?;
    let compare = [&["--compare"][..], &of_it].concat();
    to_end(host, run, "compare", &command("tar", &compare, WRITE_SECONDS))?;
    if host.size(&format!("{root}/{OS_RELEASE}"))?.is_none() {
        let message = format!("there is no {OS_RELEASE} in it: it is not the root file system of a Linux system");
        return Err(cannot("install", image, message));
    }
    host.remove(FAILED)?;
    host.write(&slot.record(), wanted.as_bytes(), 0o644)
}

/// What a system takes when it is unpacked.
struct Needed {
    bytes: u64,
    files: u64,
}

fn measured(host: &mut dyn Host, run: &str, image: &str) -> Answer<Needed> {
    // How it is compressed is for tar to know, so that it alone can tell how much comes out.
    let script = "set -e; tar --list --file \"$0\" | wc --lines; tar --extract --to-stdout --file \"$0\" | wc --bytes";
    let said = to_end(
        host,
        run,
        "measure",
        &command("sh", &["-c", script, image], WRITE_SECONDS),
    )?;
    let mut numbers = said.split_whitespace().map(str::parse::<u64>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(files)), Some(Ok(content))) if files > 0 => Ok(Needed {
            bytes: content + files * BLOCK,
            files,
        }),
        _ => Err(cannot("install", image, "tar finds nothing in it".to_owned())),
    }
}

/// The room for it is what is free and what the slot's present system gives back.
fn find_room(host: &mut dyn Host, run: &str, root: &str, needed: &Needed) -> Answer<()> {
    let free = host.room(SYSTEMS)?;
    if free.bytes >= needed.bytes && free.inodes >= needed.files {
        return Ok(());
    }
    let used = command("du", &["--summarize", "--block-size=1", root], WRITE_SECONDS);
    // Nothing is there on a machine whose second slot was never written.
    let said = to_end(host, run, "used", &used).unwrap_or_default();
    let given_back = said
        .split_whitespace()
        .next()
        .and_then(|bytes| bytes.parse::<u64>().ok());
    let bytes = free.bytes.saturating_add(given_back.unwrap_or_default());
    if bytes >= needed.bytes && free.inodes >= needed.files {
        return Ok(());
    }
    let message = format!(
        "the system needs {} MiB and {} files, and {} MiB and {} files have room beside the slot that runs: free some there (du -xh \
         --max-depth=2 {SYSTEMS}), nothing was changed",
        needed.bytes.div_ceil(1 << 20),
        needed.files,
        bytes >> 20,
        free.inodes
    );
    Err(cannot("write", root, message))
}

/// Puts into a slot what keeps it when it is well, and marks it to be booted once.
fn mark(host: &mut dyn Host, slot: Slot, checksum: &str, node: &str) -> Answer<()> {
    let units = format!("{}/etc/systemd/system", slot.root());
    // One that cannot keep itself (this program is gone, or hangs) restarts, and with that the system before is back.
    let keeper = format!(
        "[Unit]
Description=Keep this system when it is well, or go back to the one before
ConditionPathExists={TRIAL}
FailureAction=reboot
[Service]
Type=exec
ExecStart={PROGRAM} hci host keep-system {node}
RuntimeMaxSec=1800
"
    );
    host.copy(OWN_PROGRAM, PROGRAM)?;
    host.write(&format!("{units}/{KEEPER}"), keeper.as_bytes(), 0o644)?;
    let wanted = format!("[Unit]\nWants={KEEPER}\n");
    host.write(
        &format!("{units}/multi-user.target.d/10-{KEEPER}.conf"),
        wanted.as_bytes(),
        0o644,
    )?;
    let mark = Mark {
        slot,
        checksum: checksum.to_owned(),
        why: String::new(),
    };
    put_mark(host, NEXT, &mark)
}

/// What keeps a machine from being a node again, if anything does.
fn unwell(host: &mut dyn Host, run: &str) -> Answer<Option<String>> {
    if host.size(paths::KUBELET_CONFIG)?.is_some() {
        for endpoint in [Endpoint::Runtime, Endpoint::Kubelet] {
            if !host.well(endpoint)? {
                return Ok(Some(format!("{} is not well", endpoint.word())));
            }
        }
        return Ok(None);
    }
    for unit in RKE2_UNITS {
        if to_end(host, run, unit, &command("systemctl", &["is-active", unit], SECONDS)).is_ok() {
            return Ok(None);
        }
    }
    Ok(Some(format!(
        "neither {} nor {} is active",
        RKE2_UNITS[0], RKE2_UNITS[1]
    )))
}

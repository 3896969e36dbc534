//! Systems of Elemental, which is what Harvester's machines are made with: its own command line writes the new one and tells the boot loader. Room is looked
//! for first: without it Elemental has been seen to end well and to boot the old system.

use super::super::{FOLDER, command, to_end};
use super::{Errand, Systems, Trial, cannot};
use crate::host::{Answer, Host};

/// Where Elemental's state partition is mounted.
pub const STATE: &str = "/run/initramfs/cos-state";
const IMAGE: &str = "rootfs.squashfs";
const MOUNT: &str = "/run/afloat/system";
const CONFIG: &str = "/run/afloat/elemental";
/// The size of a system, in MiB, as Harvester sets it.
const MEBIBYTES: u64 = 3072;
const INSTALL_SECONDS: u32 = 1800;
const SECONDS: u32 = 120;

/// Whether a host is Elemental's.
pub fn is_there(host: &mut dyn Host) -> bool {
    host.room(STATE).is_ok()
}

pub struct Elemental;

impl Systems for Elemental {
    fn image(&self) -> &'static str {
        IMAGE
    }

    fn wants_checksum(&self) -> bool {
        false
    }

    fn present(&self, _: &mut dyn Host) -> Answer<Vec<String>> {
        Ok(Vec::new())
    }

    fn install(&self, host: &mut dyn Host, errand: &Errand<'_>) -> Answer<String> {
        let (run, image) = (errand.run, format!("{FOLDER}/{IMAGE}"));
        if host.size(&image)?.is_none() {
            let message = "it is not there; the task brings it when it is run again";
            return Err(cannot("install", &image, message.to_owned()));
        }
        let room = host.room(STATE)?;
        if room.bytes < MEBIBYTES << 20 {
            let message = format!(
                "{STATE} has {} MiB free and {MEBIBYTES} are needed: fallocate --dig-holes {STATE}/cOS/passive.img (mounted rw) \
                 frees what the passive system does not use",
                room.bytes >> 20
            );
            return Err(cannot("install", &image, message));
        }
        let config = format!("upgrade:\n  system:\n    size: {MEBIBYTES}\n");
        host.write(&format!("{CONFIG}/config.yaml"), config.as_bytes(), 0o600)?;
        to_end(host, run, "mkdir", &command("mkdir", &["--parents", MOUNT], SECONDS))?;
        // What a run that was killed has left there would be in the way; mostly there is nothing.
        unmount(host, run, "unmount-first").ok();
        let mount = command("mount", &["-t", "squashfs", "-o", "loop,ro", &image, MOUNT], SECONDS);
        to_end(host, run, "mount", &mount)?;
        let upgrade = command(
            "elemental",
            &["upgrade", "--directory", MOUNT, "--config-dir", CONFIG, "--debug"],
            INSTALL_SECONDS,
        );
        let installed = to_end(host, run, "elemental", &upgrade);
        unmount(host, run, "unmount")?;
        installed?;
        host.remove(&image)?;
        host.sync()?;
        Ok("Elemental has installed the new system".to_owned())
    }

    /// Elemental's boot loader judges by itself whether a system has come up.
    fn trial(&self, _: &mut dyn Host, _: &Errand<'_>) -> Answer<Trial> {
        Ok(Trial::None)
    }

    fn keep(&self, _: &mut dyn Host) -> Answer<()> {
        Ok(())
    }

    fn give_up(&self, _: &mut dyn Host, _: &str) -> Answer<()> {
        Ok(())
    }

    fn put_back(&self, _: &mut dyn Host, _: &Errand<'_>, _: &str) -> Answer<Option<String>> {
        let message = "Elemental keeps it in its boot menu: choose the fallback entry on the console, then `elemental upgrade` \
                       of that release makes it last";
        Err(cannot("put back", "the system before", message.to_owned()))
    }
}

fn unmount(host: &mut dyn Host, run: &str, name: &str) -> Answer<()> {
    to_end(host, run, name, &command("umount", &[MOUNT], SECONDS)).map(|_| ())
}

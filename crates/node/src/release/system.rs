//! The operating system of a host, replaced as a whole: the new one is written beside the running one by Elemental, which is what
//! Harvester's machines are made with, and runs after a restart. Room is looked for first: without it Elemental has been seen to end well
//! and to boot the old system.

use super::{FOLDER, command, to_end};
use crate::host::{Answer, Host, HostError, UnitOrder};

/// The system as the release brings it, in [`FOLDER`].
pub const IMAGE: &str = "rootfs.squashfs";
/// Where Elemental's state partition is mounted.
const STATE: &str = "/run/initramfs/cos-state";
const MOUNT: &str = "/run/afloat/system";
const CONFIG: &str = "/run/afloat/elemental";
/// The size of a system, in MiB, as Harvester sets it.
const MEBIBYTES: u64 = 3072;
const INSTALL_SECONDS: u32 = 1800;
const SECONDS: u32 = 120;
/// How long until the restart: the kubelet tells how the task ended meanwhile.
const RESTART_AFTER: u32 = 30;
const RESTART_SERVICE: &str = "/run/systemd/system/afloat-hci-restart.service";
const RESTART_TIMER: &str = "/run/systemd/system/afloat-hci-restart.timer";

/// Installs the system that was brought; the running one stays beside it.
pub fn install(host: &mut dyn Host, run: &str) -> Answer<()> {
    let image = format!("{FOLDER}/{IMAGE}");
    let cannot = |message: String| HostError::Failed {
        action: "install",
        object: image.clone(),
        message,
    };
    if host.size(&image)?.is_none() {
        return Err(cannot(
            "it is not there; the task brings it when it is run again".to_owned(),
        ));
    }
    let room = host.room(STATE).map_err(|_| {
        cannot(format!(
            "{STATE} is not there: this machine's system is not Elemental's, and cannot be replaced as a whole"
        ))
    })?;
    let needed = MEBIBYTES << 20;
    if room.bytes < needed {
        return Err(cannot(format!(
            "{STATE} has {} MiB free and {MEBIBYTES} are needed: fallocate --dig-holes {STATE}/cOS/passive.img (mounted rw) frees \
             what the passive system does not use",
            room.bytes >> 20
        )));
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
    host.sync()
}

fn unmount(host: &mut dyn Host, run: &str, name: &str) -> Answer<()> {
    to_end(host, run, name, &command("umount", &[MOUNT], SECONDS)).map(|_| ())
}

/// Lets the machine restart by itself. Static pods of before go at that very moment: a kubelet that finds them starts them once more
/// before it hears of the new ones.
pub fn restart_soon(host: &mut dyn Host) -> Answer<()> {
    let service = "[Unit]
Description=Restart with the new system
[Service]
Type=oneshot
ExecStart=-/usr/bin/find /var/lib/rancher/rke2/agent/pod-manifests -type f -delete
ExecStart=/usr/bin/systemctl reboot
";
    let timer = format!(
        "[Unit]\nDescription=Restart with the new system, soon\n[Timer]\nOnActiveSec={RESTART_AFTER}s\nAccuracySec=1s\n"
    );
    host.write(RESTART_SERVICE, service.as_bytes(), 0o644)?;
    host.write(RESTART_TIMER, timer.as_bytes(), 0o644)?;
    host.reload_units()?;
    host.order("afloat-hci-restart.timer", UnitOrder::Restart)
}

//! Whether this machine can run a lab at all. What is missing is said, all of it at once; a lab never passes as done where it cannot work.

use std::{fs, path::Path};

use crate::{Error, Progress, cgroup::Hierarchies, home::Home, network::Network, shell};

const PROGRAMS: [(&str, &str); 8] = [
    ("systemd-nspawn", "systemd-container"),
    ("mmdebstrap", "mmdebstrap"),
    ("haproxy", "haproxy"),
    ("docker-registry", "docker-registry"),
    ("nsenter", "util-linux"),
    ("setpriv", "util-linux"),
    ("setsid", "util-linux"),
    ("ip", "iproute2"),
];
/// Debian, images and the registry.
const ROOM_GIGABYTES: u64 = 4;
/// A machine that is upgraded has a bundle twice, as an image and as files, and two versions of everything.
const ROOM_GIGABYTES_A_MACHINE: u64 = 4;

/// Whether it can run a lab of so many machines, with room to upgrade them.
pub(crate) fn able(home: &Home, machines: u8) -> Result<Hierarchies, Error> {
    let mut missing = Vec::new();
    if !rustix::process::geteuid().is_root() {
        missing.push("it needs root: machines are made of namespaces, cgroups and mounts".to_owned());
    } else if on_path("ip")
        && let Err(error) = Network::can_be_made()
    {
        // A root without its rights, as in many a container, is seen only when it tries.
        let why = error.to_string().replace('\n', " ");
        missing.push(format!(
            "it cannot make networks of its own, as root can that has CAP_SYS_ADMIN and CAP_NET_ADMIN: {why}"
        ));
    }
    for (program, package) in PROGRAMS {
        if !on_path(program) {
            missing.push(format!(
                "{program} is not there: apt-get install {package} (tools/ensure lab)"
            ));
        }
    }
    let filesystems = fs::read_to_string("/proc/filesystems").unwrap_or_default();
    if !filesystems.lines().any(|line| line.ends_with("\toverlay")) {
        missing.push("the kernel has no overlayfs: modprobe overlay".to_owned());
    }
    if !Path::new("/dev/kmsg").exists() {
        missing.push("there is no /dev/kmsg, and a kubelet wants one".to_owned());
    }
    if let Some(free) = free_gigabytes(home.path()) {
        missing.extend(no_room(free, machines, home.path()));
    }
    let hierarchies = match Hierarchies::detect() {
        Ok(found) => Some(found),
        Err(Error::Unable(reasons)) => {
            missing.extend(reasons);
            None
        }
        Err(error) => return Err(error),
    };
    match hierarchies {
        Some(found) if missing.is_empty() => Ok(found),
        _ => Err(Error::Unable(missing)),
    }
}

/// Every kubelet, containerd and systemd watches files, and all machines count as one user here: the usual 128 watchers are used up by three
/// machines, and then kube-proxy ends with "too many open files". Raised when lower, and said; it is never lowered again.
pub(crate) fn raise_watch_limits(progress: &Progress) -> Result<(), Error> {
    for (limit, needed) in [("max_user_instances", 8192_u64), ("max_user_watches", 524_288)] {
        let path = Path::new("/proc/sys/fs/inotify").join(limit);
        let now: u64 = shell::read(&path)?.trim().parse().unwrap_or_default();
        if now < needed {
            fs::write(&path, needed.to_string()).map_err(Error::file(&path))?;
            progress.say(&format!(
                "raised fs.inotify.{limit} of this machine from {now} to {needed}"
            ));
        }
    }
    Ok(())
}

fn on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .any(|folder| folder.join(program).is_file())
}

fn no_room(free: u64, machines: u8, path: &Path) -> Option<String> {
    let needed = ROOM_GIGABYTES + ROOM_GIGABYTES_A_MACHINE * u64::from(machines);
    (free < needed).then(|| {
        format!(
            "{free} GB are free at {}, {needed} are needed to upgrade {machines} machines (AFLOAT_LAB chooses another place)",
            path.display()
        )
    })
}

fn free_gigabytes(path: &Path) -> Option<u64> {
    let about = rustix::fs::statvfs(path).ok()?;
    Some(about.f_bavail * about.f_frsize / 1_000_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_wanted_for_every_machine() {
        let place = Path::new("/lab");
        assert_eq!(no_room(8, 1, place), None);
        let refused = no_room(8, 3, place).unwrap();
        assert!(refused.contains("8 GB are free at /lab, 16 are needed"), "{refused}");
    }
}

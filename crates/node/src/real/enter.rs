//! The way from a step container to its machine: into the mount namespace of the machine's first process, so that paths, systemctl and
//! all that lies there are the machine's own. What the container alone has, the bundle, stays open across it.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

const OWN: &str = "/proc/self/ns/mnt";
const MACHINES: &str = "/proc/1/ns/mnt";
/// There while systemd runs a machine.
const SYSTEMD: &str = "/run/systemd/system";

/// Why the machine cannot be reached from here.
#[derive(Debug, thiserror::Error)]
pub enum EnterError {
    #[error("cannot enter the machine: {0}: help: a step runs as root, in a pod with hostPID and privileged")]
    Refused(io::Error),
    #[error("this is no machine that systemd runs ({SYSTEMD} is missing): help: a step needs hostPID in a pod")]
    NoSystemd,
}

/// The machine, entered.
#[derive(Debug)]
pub struct Entered {
    /// Where the bundle is now.
    pub bundle: PathBuf,
    /// Open for as long as the bundle is to be reached.
    pub folder: Option<File>,
}

/// Enters the machine that this process runs on; there already, it stays. Must come before any thread is started.
pub fn machine(bundle: &Path) -> Result<Entered, EnterError> {
    let namespace = |path: &str| fs::read_link(path).map_err(EnterError::Refused);
    let mut entered = Entered {
        bundle: bundle.to_owned(),
        folder: None,
    };
    if namespace(OWN)? != namespace(MACHINES)? {
        let flags = i32::try_from((OFlags::PATH | OFlags::DIRECTORY).bits()).unwrap_or_default();
        // Only a stage container has one.
        if let Ok(folder) = OpenOptions::new().read(true).custom_flags(flags).open(bundle) {
            entered.bundle = PathBuf::from(format!("/proc/self/fd/{}", folder.as_raw_fd()));
            entered.folder = Some(folder);
        }
        let machines = File::open(MACHINES).map_err(EnterError::Refused)?;
        move_into_link_name_space(machines.as_fd(), Some(LinkNameSpaceType::Mount))
            .map_err(|error| EnterError::Refused(error.into()))?;
    }
    if Path::new(SYSTEMD).is_dir() {
        Ok(entered)
    } else {
        Err(EnterError::NoSystemd)
    }
}

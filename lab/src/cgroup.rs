//! The cgroups of a lab. Every machine, and the lab's own services, live in a child of *every* hierarchy, `afloat-lab/<lab>/<member>`:
//! that gives a machine a cgroup tree of its own, and it is also how the lab knows what it started and must end, without any pid file.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

use crate::{Error, shell};

const OURS: &str = "afloat-lab";
/// The processor's scheduler gives a cgroup as much as one process beside it: five machines together would have to live on what one
/// compiler gets, and their etcd would miss its heartbeats. So they count as twenty. (v1, v2)
const WEIGHTS: [(&str, &str); 2] = [("cpu.shares", "20480"), ("cpu.weight", "2000")];

/// All hierarchies of this machine: many on cgroup v1 and in the mixed mode, one on v2.
#[derive(Debug, Clone)]
pub(crate) struct Hierarchies {
    mounts: Vec<PathBuf>,
}

impl Hierarchies {
    pub(crate) fn detect() -> Result<Self, Error> {
        let mounts = of_mount_table(&shell::read(Path::new("/proc/self/mounts"))?);
        if mounts.is_empty() {
            return Err(Error::Unable(vec![
                "no cgroups are mounted on /sys/fs/cgroup".to_owned(),
            ]));
        }
        Ok(Self { mounts })
    }

    /// The cgroups of one member of a lab.
    pub(crate) fn of(&self, lab: &str, member: &str) -> Cgroups {
        Cgroups {
            folders: self
                .mounts
                .iter()
                .map(|mount| mount.join(OURS).join(lab).join(member))
                .collect(),
        }
    }

    /// Removes our folder when no lab is in it.
    pub(crate) fn leave(&self) {
        for mount in &self.mounts {
            // Fails while another lab is there, and that is right.
            let _ = fs::remove_dir(mount.join(OURS));
        }
    }

    /// The cgroups of a whole lab.
    pub(crate) fn of_lab(&self, lab: &str) -> Cgroups {
        Cgroups {
            folders: self.mounts.iter().map(|mount| mount.join(OURS).join(lab)).collect(),
        }
    }
}

fn of_mount_table(mounts: &str) -> Vec<PathBuf> {
    mounts
        .lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace().skip(1);
            let (place, kind) = (words.next()?, words.next()?);
            (kind.starts_with("cgroup") && place.starts_with("/sys/fs/cgroup")).then(|| PathBuf::from(place))
        })
        .collect()
}

/// One cgroup, in every hierarchy.
#[derive(Debug, Clone)]
pub(crate) struct Cgroups {
    pub(crate) folders: Vec<PathBuf>,
}

impl Cgroups {
    pub(crate) fn make(&self) -> Result<(), Error> {
        for folder in &self.folders {
            shell::make_folder(folder)?;
            prepare(folder)?;
        }
        Ok(())
    }

    /// The processes in it and below.
    pub(crate) fn processes(&self) -> BTreeSet<i32> {
        self.folders.iter().flat_map(|folder| processes_below(folder)).collect()
    }

    /// Kills everything in it, then removes it with all below. What is gone already is fine.
    pub(crate) fn end(&self, within: Duration) -> Result<(), Error> {
        let started = Instant::now();
        loop {
            let left = self.processes();
            for pid in left.iter().filter_map(|pid| Pid::from_raw(*pid)) {
                // A failure means that it ended meanwhile.
                let _ = kill_process(pid, Signal::KILL);
            }
            self.folders.iter().for_each(|folder| remove_below(folder));
            if !self.folders.iter().any(|folder| folder.exists()) {
                return Ok(());
            }
            if started.elapsed() > within {
                return Err(Error::Waited {
                    what: "the end of the lab's processes".to_owned(),
                    seconds: within.as_secs(),
                    last: format!("still there: {left:?}"),
                });
            }
            thread::sleep(Duration::from_millis(50));
        }
    }
}

/// A cgroup v1 cpuset begins with no processors and lets nobody in; cgroup v2 hands controllers down only when told to.
fn prepare(folder: &Path) -> Result<(), Error> {
    let ours: Vec<&Path> = folder
        .ancestors()
        .take_while(|above| *above != Path::new("/sys/fs/cgroup"))
        .collect();
    for above in ours
        .iter()
        .rev()
        .filter(|above| above.components().any(|part| part.as_os_str() == OURS))
    {
        for setting in ["cpuset.cpus", "cpuset.mems"] {
            let (own, parent) = (above.join(setting), above.join("..").join(setting));
            if above.join("cpuset.cpu_exclusive").exists() && own.exists() {
                let value = shell::read(&parent)?;
                fs::write(&own, value).map_err(Error::file(&own))?;
            }
        }
        if above.file_name().is_some_and(|name| name == OURS) {
            for (setting, weight) in WEIGHTS {
                let own = above.join(setting);
                if own.exists() {
                    fs::write(&own, weight).map_err(Error::file(&own))?;
                }
            }
        }
        let (have, give) = (
            above.join("../cgroup.controllers"),
            above.join("../cgroup.subtree_control"),
        );
        if give.exists() {
            for controller in shell::read(&have)?.split_whitespace() {
                // One that cannot be handed down (a real-time process above, for example) is one that machines do without.
                let _ = fs::write(&give, format!("+{controller}"));
            }
        }
    }
    Ok(())
}

fn processes_below(folder: &Path) -> Vec<i32> {
    let mut found: Vec<i32> = fs::read_to_string(folder.join("cgroup.procs"))
        .unwrap_or_default()
        .lines()
        .filter_map(|line| line.parse().ok())
        .collect();
    for child in folders_in(folder) {
        found.extend(processes_below(&child));
    }
    found
}

fn remove_below(folder: &Path) {
    for child in folders_in(folder) {
        remove_below(&child);
    }
    // Fails while a process is in it; the caller comes again.
    let _ = fs::remove_dir(folder);
}

fn folders_in(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        .collect()
}

/// The first process of a machine: number 1 exactly one level down; the first process of a pod is number 1 one level deeper.
pub(crate) fn leader_among(processes: &BTreeSet<i32>) -> Option<i32> {
    processes.iter().copied().find(|pid| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        is_leader(&status)
    })
}

fn is_leader(status: &str) -> bool {
    let numbers: Vec<&str> = status
        .lines()
        .find_map(|line| line.strip_prefix("NSpid:"))
        .unwrap_or_default()
        .split_whitespace()
        .collect();
    numbers.len() == 2 && numbers[1] == "1" && !status.lines().any(|line| line == "State:\tZ (zombie)")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hierarchies_of_both_kinds_are_found() {
        let mixed = "tmpfs /sys/fs/cgroup tmpfs rw 0 0\ncgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0\ncgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
        assert_eq!(
            of_mount_table(mixed),
            [
                PathBuf::from("/sys/fs/cgroup/memory"),
                PathBuf::from("/sys/fs/cgroup/unified")
            ]
        );
        assert_eq!(
            of_mount_table("cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid 0 0\n"),
            [PathBuf::from("/sys/fs/cgroup")]
        );
        assert_eq!(
            of_mount_table("cgroup2 /elsewhere cgroup2 rw 0 0\n"),
            Vec::<PathBuf>::new()
        );
    }

    #[test]
    fn the_first_process_of_a_machine_is_known_by_its_number_inside() {
        for (status, leader) in [
            ("State:\tS (sleeping)\nNSpid:\t4242\t1\n", true),
            ("State:\tS (sleeping)\nNSpid:\t4242\t17\n", false),
            ("State:\tS (sleeping)\nNSpid:\t4242\t17\t1\n", false),
            ("State:\tS (sleeping)\nNSpid:\t1\n", false),
            ("State:\tZ (zombie)\nNSpid:\t4242\t1\n", false),
        ] {
            assert_eq!(is_leader(status), leader, "{status}");
        }
    }
}

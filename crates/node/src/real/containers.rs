//! Containers of a control plane's parts, found through `ctr`, which every containerd brings. They are watched and ended by their
//! processes: those can be asked for many times a second, and also while containerd does not answer.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use rustix::process::{Pid, Signal as Number, kill_process};

use crate::host::{Answer, HostError, Signal};
use crate::real::units::refused;
use crate::real::{files, programs};

const LIMIT: Duration = Duration::from_secs(30);
/// Where the kubelet's containers are.
const NAMESPACE: [&str; 2] = ["--namespace", "k8s.io"];

/// A process that will not be mistaken for another that got its number later.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Process {
    number: i32,
    /// When it started, in ticks since the boot.
    started: u64,
}

impl Process {
    fn of(number: i32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{number}/stat")).ok()?;
        Some(Self {
            number,
            started: started(&stat)?,
        })
    }

    fn is_there(self) -> bool {
        Self::of(self.number) == Some(self)
    }

    fn end(self, signal: Number) -> rustix::io::Result<()> {
        match Pid::from_raw(self.number).map(|pid| kill_process(pid, signal)) {
            // It has just ended by itself.
            Some(Err(rustix::io::Errno::SRCH) | Ok(())) | None => Ok(()),
            Some(Err(error)) => Err(error),
        }
    }

    /// In words that fit no process of another boot either.
    fn to_words(self, boot: &str) -> String {
        format!("{} {} {boot}", self.number, self.started)
    }

    fn from_words(words: &str, boot: &str) -> Option<Self> {
        let mut fields = words.split_whitespace();
        let number = fields.next()?.parse().ok()?;
        let started = fields.next()?.parse().ok()?;
        (fields.next() == Some(boot)).then_some(Self { number, started })
    }
}

/// What tells this boot from all others.
pub fn boot() -> Answer<String> {
    let path = Path::new("/proc/sys/kernel/random/boot_id");
    let boot = fs::read_to_string(path).map_err(files::failed("read", path))?;
    Ok(boot.trim().to_owned())
}

fn known(words: &str) -> Option<Process> {
    let process = Process::from_words(words, &boot().ok()?)?;
    process.is_there().then_some(process)
}

pub fn lives(process: &str) -> bool {
    known(process).is_some()
}

pub fn kill(process: &str) -> Answer<()> {
    let Some(known) = known(process) else { return Ok(()) };
    known
        .end(Number::KILL)
        .map_err(|error| refused("end", process, error.to_string()))
}

/// The start time in `/proc/<pid>/stat`; a process that has ended and waits for its parent counts as gone.
fn started(stat: &str) -> Option<u64> {
    // The name in brackets may hold anything, brackets too.
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut fields = rest.split_whitespace();
    if matches!(fields.next(), Some("Z" | "X")) {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

/// The processes found so far, by the name of their container.
#[derive(Debug, Default)]
pub struct Containers {
    found: BTreeMap<String, Vec<Process>>,
}

impl Containers {
    pub fn runs(&mut self, container: &str) -> Answer<bool> {
        Ok(!self.processes(container)?.is_empty())
    }

    pub fn process(&mut self, container: &str) -> Answer<Option<String>> {
        let process = self.processes(container)?.first().copied();
        Ok(process.zip(boot().ok()).map(|(process, boot)| process.to_words(&boot)))
    }

    pub fn signal(&mut self, container: &str, signal: Signal) -> Answer<()> {
        let number = match signal {
            Signal::Terminate => Number::TERM,
            Signal::Kill => Number::KILL,
        };
        for process in self.processes(container)? {
            process
                .end(number)
                .map_err(|error| refused("end", container, error.to_string()))?;
        }
        Ok(())
    }

    fn processes(&mut self, container: &str) -> Answer<Vec<Process>> {
        let known = self.found.entry(container.to_owned()).or_default();
        known.retain(|process| process.is_there());
        if known.is_empty() {
            *known = look(container)?;
        }
        Ok(known.clone())
    }
}

fn ctr(args: &[&str]) -> Answer<String> {
    let args: Vec<&str> = NAMESPACE.iter().chain(args).copied().collect();
    let said = programs::run("ctr", &args, b"", LIMIT)?;
    if said.is_fine() {
        Ok(said.stdout)
    } else {
        Err(refused("ask containerd for", "containers", said.complaint()))
    }
}

/// Every running process of containers that the kubelet calls by this name, in the namespace of static pods of a control plane.
fn look(container: &str) -> Answer<Vec<Process>> {
    let filter = format!(
        "labels.\"io.kubernetes.container.name\"=={container},labels.\"io.kubernetes.pod.namespace\"==kube-system"
    );
    let ids = ctr(&["containers", "list", "--quiet", &filter])?;
    if ids.split_whitespace().next().is_none() {
        return Ok(Vec::new());
    }
    let tasks = ctr(&["tasks", "list"])?;
    let numbers = running(&tasks, &ids.split_whitespace().collect::<Vec<_>>());
    Ok(numbers.into_iter().filter_map(Process::of).collect())
}

/// The process numbers in `ctr tasks list` (`TASK PID STATUS`) of these containers.
fn running(tasks: &str, ids: &[&str]) -> Vec<i32> {
    let lines = tasks.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let numbers = lines.filter_map(|fields| match fields.as_slice() {
        [id, number, "RUNNING" | "PAUSED", ..] if ids.contains(id) => number.parse().ok(),
        _ => None,
    });
    numbers.collect()
}

/// Whether containerd answers, and the part of it that the kubelet speaks to is loaded.
pub fn runtime_is_well() -> Answer<bool> {
    match ctr(&["plugins", "list"]) {
        Ok(plugins) => Ok(serves_kubelet(&plugins)),
        Err(HostError::Failed { .. }) => Ok(false),
        Err(other) => Err(other),
    }
}

/// Whether every plugin with `cri` in its type or name (`TYPE ID PLATFORMS STATUS`) is ok, and there is one.
fn serves_kubelet(plugins: &str) -> bool {
    let lines = plugins.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let mut cri = lines.filter(|fields| {
        let names = fields.iter().take(2);
        names.flat_map(|name| name.split(['.', '/'])).any(|part| part == "cri")
    });
    let mut all = cri.by_ref().map(|fields| fields.last() == Some(&"ok")).peekable();
    all.peek().is_some() && all.all(|ok| ok)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TASKS: &str = "\
TASK       PID     STATUS
aaa        401     RUNNING
bbb        402     STOPPED
ccc        403     RUNNING
";

    #[test]
    fn only_running_tasks_of_the_containers_count() {
        assert_eq!(running(TASKS, &["aaa", "bbb"]), [401]);
        assert!(running(TASKS, &["ddd"]).is_empty());
    }

    #[test]
    fn a_process_is_known_by_its_start_and_gone_when_it_has_ended() {
        let line = "401 (etcd (x) ) S 1 401 401 0 -1 4194560 9 0 0 0 1 2 0 0 20 0 8 0 8812 1 2 3";
        assert_eq!(started(line), Some(8812));
        assert_eq!(started(&line.replace(") S", ") Z")), None);
        let own = i32::try_from(std::process::id()).unwrap();
        let own = Process::of(own).unwrap();
        assert!(own.is_there());
        assert!(
            !Process {
                started: own.started + 1,
                ..own
            }
            .is_there()
        );
    }

    #[test]
    fn a_process_in_words_is_that_one_alone_and_of_this_boot() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let process = Process::of(i32::try_from(child.id()).unwrap()).unwrap();
        let words = process.to_words(&boot().unwrap());
        let earlier = Process {
            started: process.started - 1,
            ..process
        };
        for other in [
            earlier.to_words(&boot().unwrap()),
            process.to_words("another-boot"),
            String::new(),
        ] {
            assert!(!lives(&other), "{other}");
            kill(&other).unwrap();
        }
        assert!(lives(&words) && child.try_wait().unwrap().is_none());
        kill(&words).unwrap();
        child.wait().unwrap();
        assert!(!lives(&words));
        kill(&words).unwrap();
    }

    #[test]
    fn containerd_is_well_with_the_kubelets_part_of_it() {
        let head = "TYPE                                      ID             PLATFORMS         STATUS    \n";
        for (lines, expected) in [
            (
                "io.containerd.grpc.v1 cri - ok\nio.containerd.cri.v1 images - ok\nio.containerd.snapshotter.v1 zfs linux/amd64 skip\n",
                true,
            ),
            ("io.containerd.grpc.v1 cri linux/amd64 error\n", false),
            ("io.containerd.grpc.v1 containers - ok\n", false),
        ] {
            assert_eq!(serves_kubelet(&format!("{head}{lines}")), expected, "{lines}");
        }
    }
}

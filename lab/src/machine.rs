//! One machine: its root folder, its start and its end, and commands inside it. A machine is `systemd-nspawn` with a real systemd, kept by
//! `files/keep-machine`; what Kubernetes makes of it is `cluster`.

use std::{
    fs,
    net::Ipv4Addr,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};

use crate::{
    Error,
    cgroup::{Cgroups, leader_among},
    network::{self, BRIDGE_NAME, Network},
    release::Release,
    shell::{self, run, wait_for},
    spec::{HostSpec, REGISTRY, REGISTRY_PORT, Role},
    systems::{self, Systems},
    template::Template,
};

/// Longest wait for any one command inside a machine.
pub const PATIENCE: Duration = Duration::from_mins(10);

const UNITS: [(&str, &str); 4] = [
    (
        "etc/systemd/system/lab-network.service",
        include_str!("../files/lab-network.service"),
    ),
    (
        "etc/systemd/system/containerd.service",
        include_str!("../files/containerd.service"),
    ),
    (
        "usr/lib/systemd/system/kubelet.service",
        include_str!("../files/kubelet.service"),
    ),
    (
        "usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf",
        include_str!("../files/10-kubeadm.conf"),
    ),
];

/// A machine of a lab.
#[derive(Debug, Clone)]
pub struct Machine {
    pub(crate) host: HostSpec,
    /// Its folder in the lab's: `root`, or `systems` and `state`, and `log` are in it.
    pub(crate) folder: PathBuf,
    pub(crate) systems: Systems,
    pub(crate) cgroups: Cgroups,
    pub(crate) network: Network,
}

impl Machine {
    pub fn name(&self) -> &str {
        &self.host.name
    }

    pub fn role(&self) -> Role {
        self.host.role
    }

    pub fn address(&self) -> Ipv4Addr {
        self.host.address()
    }

    /// Its root folder as this machine sees it, also while it is off. What lasts is not in it where it has two systems.
    pub fn root(&self) -> PathBuf {
        match self.systems {
            Systems::One => self.folder.join("root"),
            Systems::Ab => systems::running(&self.folder),
        }
    }

    /// What it printed while it booted.
    pub fn log(&self) -> PathBuf {
        self.folder.join("log")
    }

    /// Makes its root folder at a release.
    pub(crate) fn make(&self, template: &Template, release: &Release) -> Result<(), Error> {
        shell::make_folder(&self.folder)?;
        let root = self.folder.join("root");
        template.unpack(&root)?;
        lay_out(&root, release)?;
        self.make_own(&root)?;
        match self.systems {
            Systems::One => Ok(()),
            Systems::Ab => systems::split(&self.folder),
        }
    }

    /// What no other machine has: its name and its addresses.
    fn make_own(&self, root: &Path) -> Result<(), Error> {
        let write = |path: &str, text: &str| shell::write(&root.join(path), text);
        shell::write_program(
            &root.join("usr/local/sbin/lab-network"),
            &network::machine_script(&self.host),
        )?;
        write("etc/hostname", &format!("{}\n", self.name()))?;
        let identity = format!("{:032x}", fastrand::u128(..));
        write("etc/machine-id", &format!("{identity}\n"))?;
        write("etc/cni/net.d/10-pods.conflist", &network::cni_config(&self.host))
    }

    /// Turns it on; it is there when `systemd` has started everything.
    pub fn start(&self) -> Result<(), Error> {
        self.turn_on()?;
        self.await_boot()
    }

    /// Turns it on, and does not wait.
    pub fn turn_on(&self) -> Result<(), Error> {
        network::remove_device(&self.network, self.name());
        self.cgroups.make()?;
        let keeper = self.folder.join("keep-machine");
        shell::write_program(&keeper, include_str!("../files/keep-machine"))?;
        let log = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.log())
            .map_err(Error::file(self.log()))?;
        let errors = log.try_clone().map_err(Error::file(self.log()))?;
        // A session of its own: Ctrl-C in a terminal ends what started the lab, not its machines.
        let mut command = self.network.command("setsid");
        command
            .arg("--fork")
            .arg(&keeper)
            .arg(&self.folder)
            .args([self.name(), BRIDGE_NAME])
            .args(&self.cgroups.folders)
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(errors);
        let status = command.status().map_err(|source| Error::Spawn {
            what: format!("machine {}", self.name()),
            source,
        })?;
        if status.success() {
            Ok(())
        } else {
            Err(self.did_not(&format!("start ({status})")))
        }
    }

    pub(crate) fn await_boot(&self) -> Result<(), Error> {
        let what = format!("the boot of {}", self.name());
        wait_for(&what, Duration::from_secs(90), Duration::from_millis(200), || {
            if self.cgroups.processes().is_empty() {
                return Err(self.did_not("stay on").to_string());
            }
            self.exec_within(
                ["systemctl", "is-active", "containerd.service"],
                Duration::from_secs(10),
            )
            .map_err(|error| error.to_string())
        })
        .map(|_| ())
    }

    fn did_not(&self, what: &str) -> Error {
        Error::Failed {
            what: format!("machine {}", self.name()),
            status: format!("did not {what}"),
            said: shell::tail(&fs::read_to_string(self.log()).unwrap_or_default()),
        }
    }

    /// Its first process, by the number that this machine gives it.
    pub fn leader(&self) -> Option<i32> {
        leader_among(&self.cgroups.processes())
    }

    /// A program inside it, as root, to be started by the caller.
    pub fn command(&self, program: &str) -> Result<Command, Error> {
        let leader = self.leader().ok_or_else(|| Error::Off(self.name().to_owned()))?;
        let mut command = Command::new("nsenter");
        command
            .args([
                "--target",
                &leader.to_string(),
                "--mount",
                "--uts",
                "--ipc",
                "--net",
                "--pid",
                "--wdns=/",
            ])
            .args([
                "env",
                "-i",
                "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            ])
            .args(["HOME=/root", "LANG=C.UTF-8", "KUBECONFIG=/etc/kubernetes/admin.conf"])
            .arg(program);
        Ok(command)
    }

    /// Runs a program inside it to the end and gives back what it printed.
    pub fn exec<const N: usize>(&self, words: [&str; N]) -> Result<String, Error> {
        self.exec_within(words, PATIENCE)
    }

    /// The same with a bound of its own.
    pub fn exec_within<'a>(&self, words: impl IntoIterator<Item = &'a str>, within: Duration) -> Result<String, Error> {
        let mut words = words.into_iter();
        let program = words.next().unwrap_or("true");
        run(self.command(program)?.args(words), within)
    }

    /// Restarts it as its own `systemctl reboot` does, and waits until it is there again.
    pub fn reboot(&self) -> Result<(), Error> {
        let before = self.leader().ok_or_else(|| Error::Off(self.name().to_owned()))?;
        // The command may be cut off by what it asks for.
        let _ = self.exec_within(["systemctl", "reboot"], Duration::from_secs(30));
        let what = format!("the reboot of {}", self.name());
        wait_for(
            &what,
            Duration::from_secs(150),
            Duration::from_millis(100),
            || match self.leader() {
                Some(now) if now != before => Ok(()),
                _ => Err("the old system is still ending".to_owned()),
            },
        )?;
        self.await_boot()
    }

    /// Pulls the plug: everything in it is killed at once, nothing is told. `start` turns it on again.
    pub fn kill_power(&self) -> Result<(), Error> {
        let leader = self.leader().ok_or_else(|| Error::Off(self.name().to_owned()))?;
        if let Some(pid) = Pid::from_raw(leader) {
            let _ = kill_process(pid, Signal::KILL);
        }
        self.cgroups.end(Duration::from_secs(30))
    }

    /// Copies a file into it.
    pub fn copy_in(&self, from: &Path, to: &str) -> Result<(), Error> {
        let to = self.seen_from_outside(to);
        shell::make_folder(to.parent().unwrap_or(&to))?;
        // Beside it and renamed: a program that runs cannot be written, and a file of the distribution is shared with other machines.
        let mut beside = to.clone().into_os_string();
        beside.push(".copied");
        fs::copy(from, &beside).map_err(Error::file(&beside))?;
        fs::rename(&beside, &to).map_err(Error::file(&to))
    }

    /// Copies a file out of it.
    pub fn copy_out(&self, from: &str, to: &Path) -> Result<(), Error> {
        let from = self.seen_from_outside(from);
        fs::copy(&from, to).map_err(Error::file(&from))?;
        Ok(())
    }

    /// A path inside it; what is mounted inside a running machine (`/tmp`, `/run`) is seen only through its first process.
    pub fn seen_from_outside(&self, path: &str) -> PathBuf {
        match (self.leader(), self.systems) {
            (Some(leader), _) => PathBuf::from(format!("/proc/{leader}/root")).join(path.trim_start_matches('/')),
            (None, Systems::One) => self.root().join(path.trim_start_matches('/')),
            (None, Systems::Ab) => systems::outside(&self.folder, path),
        }
    }

    /// Every process in it, by the numbers that this machine gives them.
    pub(crate) fn processes(&self) -> std::collections::BTreeSet<i32> {
        self.cgroups.processes()
    }
}

/// Lays a system of a release out in a root folder that has a Debian already: the same for all machines.
pub(crate) fn lay_out(root: &Path, release: &Release) -> Result<(), Error> {
    for binary in release.binaries()? {
        let to = root.join(binary.to.trim_start_matches('/'));
        shell::make_folder(to.parent().unwrap_or(&to))?;
        fs::copy(&binary.from, &to).map_err(Error::file(&to))?;
    }
    let write = |path: &str, text: &str| shell::write(&root.join(path), text);
    for (path, text) in UNITS {
        write(path, text)?;
    }
    let wanted = root.join("etc/systemd/system/multi-user.target.wants");
    shell::make_folder(&wanted)?;
    for unit in ["lab-network", "containerd", "kubelet"] {
        let (folder, link) = (
            if unit == "kubelet" {
                "/usr/lib/systemd/system"
            } else {
                "/etc/systemd/system"
            },
            wanted.join(format!("{unit}.service")),
        );
        symlink(format!("{folder}/{unit}.service"), &link).map_err(Error::file(&link))?;
    }
    // Nobody logs in, and nothing of the distribution runs by the clock.
    for unit in [
        "console-getty.service",
        "getty.target",
        "apt-daily.timer",
        "apt-daily-upgrade.timer",
        "dpkg-db-backup.timer",
        // Takes an identity that is mounted, as where there are two systems, for one that was made up at boot.
        "systemd-machine-id-commit.service",
    ] {
        let link = root.join("etc/systemd/system").join(unit);
        symlink("/dev/null", &link).map_err(Error::file(&link))?;
    }
    // A program that ignores the polite signal would hold up a reboot for 90 seconds.
    write(
        "etc/systemd/system.conf.d/lab.conf",
        "[Manager]\nDefaultTimeoutStopSec=10s\n",
    )?;
    // The journal outlives a reboot, as on a real machine.
    write(
        "etc/systemd/journald.conf.d/lab.conf",
        "[Journal]\nStorage=persistent\nSystemMaxUse=64M\n",
    )?;
    shell::write_program(
        &root.join("usr/local/sbin/machine-init"),
        include_str!("../files/machine-init"),
    )?;
    write("etc/hosts", &network::hosts_file())?;
    let _ = fs::remove_file(root.join("etc/resolv.conf"));
    write("etc/resolv.conf", "")?;
    // CoreDNS refuses to start without a name server above it; nobody answers there.
    write("etc/kubelet-resolv.conf", "nameserver 10.77.0.1\n")?;
    let containerd = include_str!("../files/containerd.toml").replace("@PAUSE@", release.pause);
    write("etc/containerd/config.toml", &containerd)?;
    let mirror = format!("[host.\"http://{REGISTRY}:{REGISTRY_PORT}\"]\n  capabilities = [\"pull\", \"resolve\"]\n");
    write("etc/containerd/certs.d/_default/hosts.toml", &mirror)?;
    shell::make_folder(&root.join("usr/lib/modules"))
}

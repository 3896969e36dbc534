//! The careful upgrade by hand: what a person does who follows the kubeadm documentation, takes every control plane out of the load balancers
//! first and waits for everything to be well before the next. It is the baseline that Afloat is measured against, and knows nothing of Afloat.

use std::{
    fmt,
    io::{Read, Write},
    os::unix::net::UnixStream,
    thread,
    time::{Duration, Instant},
};

use serde::Serialize;

use crate::{Counts, Error, Lab, Machine, Progress, Release, Role, cluster::NOT_CHECKED, shell::wait_for};

const NEW_KUBEADM: &str = "/root/kubeadm-new";
const PATIENT: Duration = Duration::from_mins(5);
const BALANCERS: [&str; 2] = ["plain", "harsh"];

/// Seconds that one machine took, and for what.
#[derive(Debug, Clone, Serialize)]
pub struct MachineTimes {
    pub machine: String,
    pub kubeadm: f64,
    pub drain: f64,
    pub kubelet: f64,
    /// Until static pods were back and well; nothing for a worker.
    pub settle: f64,
    pub total: f64,
}

/// How an upgrade by hand went.
#[derive(Debug, Clone, Serialize)]
pub struct ByHand {
    pub from: String,
    pub to: String,
    pub machines: Vec<MachineTimes>,
    /// Fetching the new images on all machines, before the first is touched.
    pub pull: f64,
    /// From the first machine to the last.
    pub whole: f64,
    pub requests: Counts,
}

impl fmt::Display for ByHand {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "by hand, {} to {}", self.from, self.to)?;
        writeln!(
            out,
            "{:<8} {:>8} {:>8} {:>8} {:>8} {:>8}",
            "machine", "kubeadm", "drain", "kubelet", "settle", "total"
        )?;
        for times in &self.machines {
            writeln!(
                out,
                "{:<8} {:>7.1}s {:>7.1}s {:>7.1}s {:>7.1}s {:>7.1}s",
                times.machine, times.kubeadm, times.drain, times.kubelet, times.settle, times.total
            )?;
        }
        writeln!(out, "images {:.1}s, then all machines {:.1}s", self.pull, self.whole)?;
        writeln!(
            out,
            "requests: {} sent, {} to the API failed, {} to the workload failed",
            self.requests.sent(),
            self.requests.failed(),
            self.requests.pages_failed()
        )
    }
}

/// Upgrades the whole lab, with probers running from the first machine on.
pub fn upgrade_by_hand(lab: &Lab, to: &Release, progress: &Progress) -> Result<ByHand, Error> {
    let hand = Hand { lab, to, progress };
    let pulling = Instant::now();
    hand.pull_images()?;
    let pull = pulling.elapsed().as_secs_f64();
    progress.say("all machines have the images");
    let probers = lab.probers().sparing().start()?;
    let started = Instant::now();
    let machines = lab
        .machines()
        .iter()
        .enumerate()
        .map(|(index, machine)| hand.upgrade(machine, index == 0))
        .collect::<Result<_, _>>()?;
    let whole = started.elapsed().as_secs_f64();
    for what in ["daemonset/kube-proxy", "deployment/coredns"] {
        lab.kubectl(["--namespace=kube-system", "rollout", "status", what, "--timeout=240s"])?;
    }
    thread::sleep(Duration::from_secs(3));
    Ok(ByHand {
        from: lab.spec().version.clone(),
        to: to.version.to_owned(),
        machines,
        pull,
        whole,
        requests: probers.stop()?,
    })
}

struct Hand<'a> {
    lab: &'a Lab,
    to: &'a Release,
    progress: &'a Progress,
}

impl Hand<'_> {
    fn pull_images(&self) -> Result<(), Error> {
        let version = format!("--kubernetes-version={}", self.to.version);
        for machine in self.lab.machines() {
            self.install(&machine, "/usr/bin/kubeadm", NEW_KUBEADM)?;
            machine.exec([NEW_KUBEADM, "config", "images", "pull", &version])?;
        }
        Ok(())
    }

    fn install(&self, machine: &Machine, program: &str, to: &str) -> Result<(), Error> {
        let binaries = self.to.binaries()?;
        let from = binaries
            .iter()
            .find(|binary| binary.to == program)
            .map(|binary| &binary.from);
        from.map_or(Err(Error::Broken("looking for a program")), |from| {
            machine.copy_in(from, to)
        })
    }

    fn upgrade(&self, machine: &Machine, first: bool) -> Result<MachineTimes, Error> {
        let name = machine.name();
        let control_plane = machine.role() == Role::ControlPlane;
        let started = Instant::now();
        if control_plane {
            self.balance(&format!("set server {{}}/{name} state drain"))?;
            thread::sleep(Duration::from_secs(1));
            self.balance(&format!("shutdown sessions server {{}}/{name}"))?;
        }
        self.install(machine, "/usr/bin/kubeadm", "/usr/bin/kubeadm")?;
        let ignored = format!("--ignore-preflight-errors={NOT_CHECKED}");
        if first {
            machine.exec(["kubeadm", "upgrade", "apply", self.to.version, "--yes", &ignored])?;
        } else {
            machine.exec(["kubeadm", "upgrade", "node", &ignored])?;
        }
        let kubeadm = started.elapsed().as_secs_f64();
        self.progress.say(&format!("{name}: kubeadm is done"));
        let draining = Instant::now();
        if self.lab.machines().len() > 1 {
            self.lab.kubectl([
                "drain",
                name,
                "--ignore-daemonsets",
                "--delete-emptydir-data",
                "--timeout=240s",
            ])?;
        }
        let drain = draining.elapsed().as_secs_f64();
        let swapping = Instant::now();
        self.install(machine, "/usr/bin/kubelet", "/usr/bin/kubelet")?;
        self.install(machine, "/usr/bin/kubectl", "/usr/bin/kubectl")?;
        machine.exec(["systemctl", "restart", "kubelet"])?;
        self.await_node(name)?;
        let kubelet = swapping.elapsed().as_secs_f64();
        let settling = Instant::now();
        if control_plane {
            self.await_static_pods(machine)?;
            self.balance(&format!("set server {{}}/{name} state ready"))?;
        }
        let settle = settling.elapsed().as_secs_f64();
        self.lab.kubectl(["uncordon", name])?;
        let total = started.elapsed().as_secs_f64();
        self.progress.say(&format!("{name}: upgraded in {total:.0}s"));
        Ok(MachineTimes {
            machine: name.to_owned(),
            kubeadm,
            drain,
            kubelet,
            settle: if control_plane { settle } else { 0.0 },
            total,
        })
    }

    fn await_node(&self, name: &str) -> Result<(), Error> {
        let wanted = format!("{} True", self.to.version);
        let fields =
            "--output=jsonpath={.status.nodeInfo.kubeletVersion} {.status.conditions[?(@.type==\"Ready\")].status}";
        wait_for("the new kubelet", PATIENT, Duration::from_millis(300), || {
            match self.lab.kubectl(["get", "node", name, fields]) {
                Ok(now) if now == wanted => Ok(()),
                Ok(now) => Err(now),
                Err(error) => Err(error.to_string()),
            }
        })
    }

    /// A new kubelet restarts every static pod while the node says Ready: well is what is well five times in a row.
    fn await_static_pods(&self, machine: &Machine) -> Result<(), Error> {
        thread::sleep(Duration::from_secs(5));
        let node = format!("--field-selector=spec.nodeName={}", machine.name());
        let server = format!("--server=https://{}:6443", machine.address());
        let mut well = 0;
        wait_for("the static pods", PATIENT, Duration::from_secs(1), || {
            let ready = "--output=jsonpath={range .items[*]}{.status.conditions[?(@.type==\"Ready\")].status} {end}";
            let pods = self
                .lab
                .kubectl([
                    "--namespace=kube-system",
                    "get",
                    "pods",
                    "--selector=tier=control-plane",
                    &node,
                    ready,
                ])
                .unwrap_or_default();
            let answers = self
                .lab
                .kubectl([&server, "get", "--raw=/readyz", "--request-timeout=2s"]);
            let fine = pods.trim() == "True True True True" && answers.is_ok_and(|said| said == "ok");
            well = if fine { well + 1 } else { 0 };
            if well >= 5 {
                Ok(())
            } else {
                Err(format!("ready: {pods}"))
            }
        })
    }

    /// Tells both load balancers, as their administrator. `{}` is the name of each.
    fn balance(&self, order: &str) -> Result<(), Error> {
        let socket = self.lab.folder().join("balancer.sock");
        for balancer in BALANCERS {
            let said = UnixStream::connect(&socket).and_then(|mut stream| {
                stream.write_all(format!("{}\n", order.replace("{}", balancer)).as_bytes())?;
                let mut said = String::new();
                stream.read_to_string(&mut said)?;
                Ok(said)
            });
            let said = said.map_err(Error::file(&socket))?;
            if !said.trim().is_empty() {
                return Err(Error::Failed {
                    what: "the load balancer".to_owned(),
                    status: order.to_owned(),
                    said,
                });
            }
        }
        Ok(())
    }
}

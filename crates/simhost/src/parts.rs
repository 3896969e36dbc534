//! The kubelet of a simulated machine and the static pods of a control plane: when they start, when they are ready, what ends them. As
//! measured on real ones: a kubelet of another minor restarts every static pod while the Node still says Ready, an API server is
//! ready only with its local etcd, and containers survive their runtime's and their kubelet's restart.

use std::sync::Arc;

use afloat_node::flags::{minor, removed_in};
use afloat_node::host::{Signal, UnitState};
use afloat_node::paths;
use jiff::{SignedDuration, Timestamp};

use super::{SimHost, Unit, runtime, seconds};

/// Where the manifests of [`paths::PARTS`] lie, in the same order; asked for at every tick.
const MANIFESTS: [(&str, &str); 4] = [
    (
        "kube-controller-manager",
        "/etc/kubernetes/manifests/kube-controller-manager.yaml",
    ),
    ("kube-scheduler", "/etc/kubernetes/manifests/kube-scheduler.yaml"),
    ("kube-apiserver", "/etc/kubernetes/manifests/kube-apiserver.yaml"),
    ("etcd", "/etc/kubernetes/manifests/etcd.yaml"),
];

/// A kubelet that runs.
#[derive(Clone, Debug)]
pub struct Kubelet {
    pub version: String,
    pub since: Timestamp,
}

impl Kubelet {
    /// Until it has looked at its manifests, and until it has renewed its lease.
    pub fn changes(&self) -> [Timestamp; 2] {
        [self.since + seconds(1), self.since + seconds(2)]
    }
}

/// A static pod.
#[derive(Clone, Debug)]
pub struct Part {
    /// Tag of its image.
    version: Arc<str>,
    manifest: String,
    started: Timestamp,
    ready: Timestamp,
    /// When it will have ended.
    ends: Option<Timestamp>,
}

impl Part {
    pub fn changes(&self) -> impl Iterator<Item = Timestamp> {
        [Some(self.ready), self.ends].into_iter().flatten()
    }
}

/// A static pod, for whoever plays its kubelet.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct StaticPart {
    pub name: &'static str,
    /// Tag of its image.
    pub version: Arc<str>,
    pub ready: bool,
    pub started_at: Timestamp,
}

/// From a container's start until it answers.
fn warm_up(part: &str) -> SignedDuration {
    seconds(match part {
        "kube-apiserver" => 5,
        "etcd" => 3,
        _ => 2,
    })
}

/// From being asked until it has ended.
fn wind_down(part: &str) -> SignedDuration {
    seconds(if part == "kube-apiserver" { 3 } else { 1 })
}

/// What an API server has by its manifest until its kubelet kills it.
const GRACE: i64 = 30;

impl SimHost {
    /// The machine has run for a long time when the simulation begins.
    pub(super) fn start_long_ago(&mut self) {
        let now = self.now;
        self.now = now - seconds(3600);
        self.start_unit(paths::KUBELET_UNIT);
        self.now += seconds(60);
        self.settle();
        self.now = now;
        self.settle();
    }

    pub(super) fn start_unit(&mut self, unit: &str) {
        let state = match unit {
            paths::KUBELET_UNIT => self.start_kubelet(),
            paths::CONTAINERD_UNIT if self.has_broken_runtime() => {
                self.runtime_failures += 1;
                UnitState::Failed
            }
            _ => UnitState::Active,
        };
        let unit = self
            .units
            .entry(unit.to_owned())
            .or_insert(Unit { state, enabled: false });
        unit.state = state;
    }

    /// One that does not stay up, or that does not read the form of its configuration: it reads older ones than its own.
    fn has_broken_runtime(&self) -> bool {
        let version = self.runtime_version().unwrap_or_default();
        let config = self.disk.text(&self.runtime_config_path()).and_then(runtime::form_of);
        let unread = config > Some(runtime::native_form(version));
        unread || self.faults.broken_runtimes.iter().any(|broken| broken == version)
    }

    fn start_kubelet(&mut self) -> UnitState {
        let version = self.version_of(paths::KUBELET).unwrap_or_default().to_owned();
        let flags = [paths::KUBELET_FLAGS, paths::KUBELET_EXTRA].map(|path| self.disk.text(path).unwrap_or_default());
        let refused = flags.iter().any(|flags| !removed_in(flags, &version).is_empty());
        if version.is_empty() || refused || self.faults.broken_kubelets.contains(&version) {
            self.kubelet = None;
            return UnitState::Failed;
        }
        let minor = minor(&version);
        if self.parts_by != minor {
            // Every container's hash is another one to it.
            for part in self.parts.values_mut() {
                part.manifest.clear();
            }
            self.parts_by = minor;
        }
        self.kubelet = Some(Kubelet {
            version,
            since: self.now,
        });
        UnitState::Active
    }

    pub(super) fn stop_unit(&mut self, unit: &str) {
        if unit == paths::KUBELET_UNIT {
            self.kubelet = None;
        }
        if let Some(unit) = self.units.get_mut(unit) {
            unit.state = UnitState::Inactive;
        }
    }

    /// What has happened by now.
    pub(super) fn settle(&mut self) {
        self.settle_parts();
        while self.end_due_jobs() {
            self.settle_parts();
        }
    }

    fn settle_parts(&mut self) {
        let now = self.now;
        self.parts.retain(|_, part| part.ends.is_none_or(|ends| ends > now));
        let looks = self
            .kubelet
            .as_ref()
            .is_some_and(|kubelet| kubelet.since + seconds(1) <= now);
        // Workers have no static pods, and most machines are workers.
        let looks = looks && self.machine.is_control_plane();
        if !looks || self.unit_state(paths::CONTAINERD_UNIT) != UnitState::Active {
            return;
        }
        for (name, path) in MANIFESTS {
            let Some(manifest) = self.disk.text(path) else {
                self.parts.remove(name);
                continue;
            };
            if let Some(part) = self.parts.get_mut(name) {
                let lingers = self.faults.open_watches && name == "kube-apiserver";
                if part.manifest == manifest {
                    continue;
                }
                // The next one starts when this one has ended.
                if lingers && *part.ends.get_or_insert(now + seconds(GRACE)) > now {
                    continue;
                }
            }
            let version = manifest.lines().next().and_then(|line| line.rsplit(':').next());
            if name == "kube-apiserver" {
                let mut shared = self.shared.get();
                let server = shared.api_servers.entry(self.machine.name.clone()).or_default();
                version.unwrap_or_default().clone_into(server);
            }
            let slow = self.faults.slow_parts.get(name).copied().map(i64::from);
            let part = Part {
                version: Arc::from(version.unwrap_or_default()),
                manifest: manifest.to_owned(),
                started: now,
                ready: now + slow.map_or_else(|| warm_up(name), seconds),
                ends: None,
            };
            self.parts.insert(name, part);
            if name == "etcd" {
                self.open_data();
            }
        }
    }

    pub(super) fn is_ready(&self, name: &str) -> bool {
        self.parts.get(name).is_some_and(|part| {
            let mut broken = self.faults.broken_parts.iter();
            let broken = broken.any(|(broken, version)| broken == name && **version == *part.version);
            let has_data = name != "etcd" || self.runs_on_data(&part.version);
            part.ready <= self.now && part.ends.is_none() && !broken && has_data
        })
    }

    /// Whether this node's API server answers `/readyz` with ok.
    pub fn api_server_ready(&self) -> bool {
        let local_etcd = self.disk.get(MANIFESTS[3].1).is_some();
        self.is_ready("kube-apiserver") && (!local_etcd || self.etcd_healthy())
    }

    pub(super) fn part_answers(&self, name: &str) -> bool {
        self.is_ready(name)
    }

    /// Whether the kubelet runs and could renew its node's lease.
    pub fn kubelet_ready(&self) -> bool {
        let up = self
            .kubelet
            .as_ref()
            .is_some_and(|kubelet| kubelet.since + seconds(2) <= self.now);
        up && self.unit_state(paths::CONTAINERD_UNIT) == UnitState::Active && self.kubelets_api_answers()
    }

    /// A control plane's kubelet talks to its own API server.
    fn kubelets_api_answers(&self) -> bool {
        if self.machine.is_control_plane() {
            self.api_server_ready()
        } else {
            self.shared.get().api_reachable
        }
    }

    /// The static pods, in the order of their names.
    pub fn static_parts(&self) -> Vec<StaticPart> {
        let parts = self.parts.iter().map(|(name, part)| StaticPart {
            name,
            version: Arc::clone(&part.version),
            ready: if *name == "kube-apiserver" {
                self.api_server_ready()
            } else {
                self.is_ready(name)
            },
            started_at: part.started,
        });
        parts.collect()
    }

    pub(super) fn all_parts_ready(&self) -> bool {
        let is_well = |(part, path): (&str, &str)| self.disk.get(path).is_none() || self.is_ready(part);
        !self.machine.is_control_plane() || MANIFESTS.into_iter().all(is_well)
    }

    pub(super) fn runs_part(&self, name: &str) -> bool {
        self.parts.contains_key(name)
    }

    /// A process is known by its part and by when it started.
    pub(super) fn process_of(&self, name: &str) -> Option<String> {
        let part = self.parts.get(name)?;
        Some(format!("{name} {}", part.started))
    }

    /// The part whose process this is, while it is there.
    pub(super) fn part_of(&self, process: &str) -> Option<&'static str> {
        let mut names = self.parts.keys().copied();
        names.find(|name| self.process_of(name).as_deref() == Some(process))
    }

    /// A part that starts does not listen yet, and one that was told to end no longer.
    pub(super) fn api_server_listens(&self) -> bool {
        self.is_ready("kube-apiserver")
    }

    pub(super) fn signal_part(&mut self, name: &str, signal: Signal) {
        let stubborn = self.faults.stubborn_parts.contains(name);
        if let Some(part) = self.parts.get_mut(name) {
            match signal {
                Signal::Kill => part.ends = Some(self.now),
                Signal::Terminate if !stubborn => {
                    part.ends.get_or_insert(self.now + wind_down(name));
                }
                Signal::Terminate => {}
            }
        }
        self.settle();
    }

    /// The tag of the image of a part that runs.
    pub(super) fn tag_of(&self, name: &str) -> Option<Arc<str>> {
        self.parts.get(name).map(|part| Arc::clone(&part.version))
    }
}

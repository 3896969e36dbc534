//! A simulated machine behind the port of `afloat-node`: files, units, jobs, the static pods of a control plane, kubeadm with its real
//! preconditions, and a power supply that can fail at any operation. It does nothing by itself: time is brought by
//! [`SimHost::tick`], and what its kubelet would tell an API server is the world's to ask for.

mod cluster;
mod etcd;
mod files;
mod kubeadm;
mod layout;
mod parts;
mod port;
mod runtime;
mod systems;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use afloat_node::host::{Forward, Room, UnitState};
use afloat_node::paths;
use jiff::{SignedDuration, Timestamp};

pub use cluster::{Shared, SharedState};
pub use etcd::{Member, Own};
pub use files::{File, Tree};
pub use layout::{Bundle, Machine, etcd_tag};
pub use parts::StaticPart;
pub use systems::checksum;

use files::Disk;
use kubeadm::SimJob;
use parts::{Kubelet, Part};

/// When a machine or its engine dies: at which change through the port, counted from the first.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Crash {
    pub operation: u64,
    pub moment: Moment,
    /// The power goes; else only the caller is killed.
    pub power: bool,
}

/// At which moment of an operation.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Moment {
    Before,
    /// A line half written, a file staged and not yet renamed.
    Within,
    After,
}

/// What is wrong with a machine. Everything is well in the default.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    pub crash: Option<Crash>,
    /// So many calls of `kubeadm upgrade` fail.
    pub kubeadm_failures: u32,
    /// Parts (by name and version) that start and never become ready.
    pub broken_parts: BTreeSet<(String, String)>,
    /// Parts that take so many seconds from their start until they answer.
    pub slow_parts: BTreeMap<String, u32>,
    /// Kubelet versions that do not stay up.
    pub broken_kubelets: BTreeSet<String>,
    /// The address in `admin.conf` leads nowhere.
    pub endpoint_away: bool,
    /// What tells one boot from another cannot be read so many times.
    pub boot_failures: u32,
    /// There is no netfilter.
    pub no_netfilter: bool,
    /// Versions of containerd that do not stay up.
    pub broken_runtimes: BTreeSet<String>,
    /// Files cannot be copied so many times.
    pub copy_failures: u32,
    /// Parts that do not end when asked.
    pub stubborn_parts: BTreeSet<String>,
    /// Watches are open: an API server that its kubelet ends waits for them for as long as it may.
    pub open_watches: bool,
    /// Files that tar unpacks are not what the archive has, so many times.
    pub damaged_writes: u32,
    /// kubeadm finds this certificate or authority expired.
    pub expired_certificate: Option<String>,
    /// Tags of etcd that damage the data which they find, so that no etcd starts on it any more.
    pub damaging_etcds: BTreeSet<String>,
    /// Tags of etcd with which the whole cluster moves to their version: all others are at it already.
    pub moving_etcds: BTreeSet<String>,
    /// The new containerd cannot do this with its configuration (`migrate`, `dump`).
    pub refused_configs: BTreeSet<String>,
}

#[derive(Clone, Debug)]
struct Unit {
    state: UnitState,
    enabled: bool,
}

/// A machine.
#[derive(Clone, Debug)]
pub struct SimHost {
    pub machine: Machine,
    pub faults: Faults,
    pub member: Member,
    pub room: Room,
    pub shared: Shared,
    /// Addresses of other control planes whose API server does not answer.
    pub silent_peers: BTreeSet<String>,
    /// What containerd is started with.
    pub runtime_options: Vec<String>,
    /// How often it did not start.
    pub runtime_failures: u32,
    now: Timestamp,
    disk: Disk,
    units: BTreeMap<String, Unit>,
    kubelet: Option<Kubelet>,
    parts: BTreeMap<&'static str, Part>,
    jobs: BTreeMap<String, SimJob>,
    forward: Option<(Forward, Timestamp)>,
    /// Minor version of the kubelet that started the static pods.
    parts_by: Option<u32>,
    operations: u64,
    /// How often the machine's certificates were renewed.
    renewals: u32,
    boots: u32,
    down: bool,
}

impl SimHost {
    /// A machine that runs well at a version, with a bundle to stage from.
    pub fn new(machine: Machine, bundle: &Bundle, shared: Shared, now: Timestamp) -> Self {
        let member = Member {
            cluster_version: etcd_tag(&machine.version).to_owned(),
            own: Some(Own::first()),
            ..Member::default()
        };
        let active = |enabled| Unit {
            state: UnitState::Active,
            enabled,
        };
        let units = [paths::CONTAINERD_UNIT, paths::KUBELET_UNIT].map(|unit| (unit.to_owned(), active(true)));
        let mut host = Self {
            disk: Disk::new(layout::tree(&machine, bundle)),
            machine,
            faults: Faults::default(),
            member,
            room: Room {
                bytes: 1 << 40,
                inodes: 1 << 20,
            },
            shared,
            silent_peers: BTreeSet::new(),
            runtime_options: Vec::new(),
            runtime_failures: 0,
            now,
            units: BTreeMap::from(units),
            kubelet: None,
            parts: BTreeMap::new(),
            jobs: BTreeMap::new(),
            forward: None,
            parts_by: None,
            operations: 0,
            renewals: 0,
            boots: 1,
            down: false,
        };
        host.start_long_ago();
        host
    }

    /// Brings time, and with it what happens on the machine by itself.
    pub fn tick(&mut self, now: Timestamp) {
        // One after the other: what starts half-way is ready by the end.
        while let Some(next) = self.next_change().filter(|next| *next <= now) {
            self.now = next;
            self.settle();
        }
        self.now = self.now.max(now);
        self.settle();
    }

    /// When something on the machine changes next by itself.
    pub fn next_change(&self) -> Option<Timestamp> {
        let parts = self.parts.values().flat_map(Part::changes);
        let jobs = self.jobs.values().filter_map(SimJob::ends_at);
        let kubelet = self.kubelet.iter().flat_map(Kubelet::changes);
        let all = parts.chain(jobs).chain(kubelet);
        all.filter(|at| *at > self.now).min()
    }

    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// The power goes: what no one synced is lost, nothing runs until [`Self::boot`].
    pub fn lose_power(&mut self) {
        self.disk.lose_unsynced();
        self.jobs.clear();
        self.parts.clear();
        self.kubelet = None;
        self.forward = None;
        self.parts_by = None;
        self.down = true;
        for unit in self.units.values_mut() {
            unit.state = UnitState::Inactive;
        }
    }

    /// Starts what is enabled, in the system that its boot chooser chooses.
    pub fn boot(&mut self) {
        self.down = false;
        self.boots += 1;
        self.choose_system();
        let enabled: Vec<_> = self.units.iter().filter(|(_, unit)| unit.enabled).collect();
        let enabled: Vec<_> = enabled.into_iter().map(|(name, _)| name.clone()).collect();
        for unit in enabled {
            self.start_unit(&unit);
        }
        self.settle();
    }

    /// Both, as an orderly reboot does: nothing is lost.
    pub fn reboot(&mut self) {
        self.disk.sync();
        self.lose_power();
        self.boot();
    }

    pub fn is_down(&self) -> bool {
        self.down
    }

    /// The version the kubelet runs at; nothing while it does not run.
    pub fn kubelet_version(&self) -> Option<&str> {
        self.kubelet.as_ref().map(|kubelet| kubelet.version.as_str())
    }

    pub fn kubelet_running(&self) -> bool {
        self.kubelet.is_some()
    }

    /// Version of the runtime that is installed.
    pub fn runtime_version(&self) -> Option<&str> {
        self.version_of("/usr/local/bin/containerd")
    }

    /// Whether Afloat's unit is active: whether the engine is to be called.
    pub fn engine_running(&self) -> bool {
        self.unit_state(paths::UNIT) == UnitState::Active
    }

    /// Where new API connections go, if not here.
    pub fn forwarding_to(&self) -> Option<&[String]> {
        let (forward, until) = self.forward.as_ref()?;
        (*until > self.now).then_some(forward.peers.as_slice())
    }

    /// How many changes were asked for through the port so far.
    pub fn operations(&self) -> u64 {
        self.operations
    }

    /// Everything on the disk.
    pub fn tree(&self) -> &Tree {
        self.disk.tree()
    }

    /// A person, or another program, puts a file there.
    pub fn put(&mut self, path: &str, content: &str) {
        self.disk.write(path, content.as_bytes(), 0o644);
        self.settle();
    }

    fn unit_state(&self, unit: &str) -> UnitState {
        self.units.get(unit).map_or(UnitState::Unknown, |unit| unit.state)
    }

    /// The second word of a program: they are all `<name> <version>`.
    fn version_of(&self, program: &str) -> Option<&str> {
        let text = self.disk.text(program)?;
        text.split([' ', '\n']).nth(1)
    }
}

fn seconds(count: i64) -> SignedDuration {
    SignedDuration::from_secs(count)
}

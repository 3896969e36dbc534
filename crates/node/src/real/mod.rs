//! The port to a real machine: files, systemd, containerd, netfilter and the health of the parts, with nothing but what every
//! kubeadm host has. It must run in the machine's own mount namespace (`enter` goes there from a container) and as root.

mod clock;
mod containers;
pub mod drive;
mod endpoints;
pub mod enter;
mod etcd;
mod files;
mod forward;
mod https;
mod jobs;
mod manifests;
mod members;
mod peers;
mod programs;
mod units;

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use jiff::Timestamp;

use crate::digest::Digest;
use crate::host::{
    Answer, Command, Endpoint, EtcdMember, EtcdStatus, Forward, Host, HostError, Job, Listed, Room, Signal, UnitOrder,
    UnitState,
};
use crate::paths;
use containers::Containers;
use etcd::Gateway;
use https::Trust;
use peers::Peers;

/// How long somebody else may be at work before one gives up waiting for one's turn.
const TURN: Duration = Duration::from_mins(10);

/// A machine.
pub struct RealHost {
    /// The name of its Node.
    node: String,
    root: PathBuf,
    /// Where the bundle of a stage container is.
    brought: PathBuf,
    containers: Containers,
    anybody: Option<Trust>,
    peers: Peers,
}

/// What is wrong with a file that was read.
fn wrong_file(path: &Path) -> impl FnOnce(io::Error) -> HostError + use<> {
    files::failed("use", path)
}

impl RealHost {
    pub fn new(node: &str) -> Self {
        Self {
            node: node.to_owned(),
            root: PathBuf::from("/"),
            brought: PathBuf::from(paths::BROUGHT),
            containers: Containers::default(),
            anybody: None,
            peers: Peers::default(),
        }
    }

    /// With the bundle in another place than the root of the machine.
    #[must_use]
    pub fn with_bundle(mut self, folder: PathBuf) -> Self {
        self.brought = folder;
        self
    }

    /// Waits until nobody else carries on here; its turn ends when the file is dropped, or its process.
    pub fn turn(&self) -> Answer<File> {
        let path = self.at(paths::LOCK);
        if let Some(folder) = path.parent() {
            files::make_folder(folder)?;
        }
        let open = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path);
        let file = open.map_err(files::failed("open", &path))?;
        let until = Instant::now() + TURN;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(TryLockError::WouldBlock) if Instant::now() < until => {
                    std::thread::sleep(Duration::from_millis(20));
                }
                Err(error) => return Err(files::failed("lock", &path)(error.into())),
            }
        }
    }

    /// The time of the journal: it goes on evenly for as long as the machine runs.
    pub fn now(&self) -> Answer<Timestamp> {
        clock::now(&self.at(paths::CLOCK))
    }

    /// Where a path of the machine is to be found from here.
    fn at(&self, path: &str) -> PathBuf {
        match path.strip_prefix(paths::BROUGHT) {
            Some("") => self.brought.clone(),
            Some(rest) if rest.starts_with('/') => self.brought.join(rest.trim_start_matches('/')),
            _ => self.root.join(path.trim_start_matches('/')),
        }
    }

    fn text(&mut self, path: &str) -> Answer<String> {
        let content = self.read(path)?.unwrap_or_default();
        Ok(String::from_utf8_lossy(&content).into_owned())
    }

    fn manifest(&mut self, part: &str) -> Answer<String> {
        self.text(&paths::manifest(part))
    }

    fn anybody(&mut self) -> Answer<Trust> {
        let trust = match self.anybody.take() {
            Some(trust) => trust,
            None => https::anybody().map_err(wrong_file(Path::new("TLS")))?,
        };
        Ok(self.anybody.insert(trust).clone())
    }

    fn gateway(&mut self) -> Answer<Gateway> {
        let manifest = self.manifest("etcd")?;
        Gateway::new(&self.at(paths::PKI), &manifest, self.at(paths::ETCD_MEMBERS))
    }
}

impl Host for RealHost {
    fn read(&mut self, path: &str) -> Answer<Option<Vec<u8>>> {
        files::read(&self.at(path))
    }

    fn size(&mut self, path: &str) -> Answer<Option<u64>> {
        files::size(&self.at(path))
    }

    fn digest(&mut self, path: &str) -> Answer<Option<Digest>> {
        files::digest(&self.at(path))
    }

    fn list(&mut self, folder: &str) -> Answer<Vec<Listed>> {
        files::listed(&self.at(folder), folder)
    }

    fn write(&mut self, path: &str, content: &[u8], mode: u32) -> Answer<()> {
        files::write(&self.at(path), content, mode)
    }

    fn rewrite(&mut self, path: &str, content: &[u8]) -> Answer<()> {
        files::rewrite(&self.at(path), content)
    }

    fn copy(&mut self, from: &str, to: &str) -> Answer<()> {
        files::copy(&self.at(from), &self.at(to))
    }

    fn append(&mut self, path: &str, content: &[u8]) -> Answer<()> {
        files::append(&self.at(path), content)
    }

    fn rename(&mut self, from: &str, to: &str) -> Answer<()> {
        files::rename(&self.at(from), &self.at(to))
    }

    fn remove(&mut self, path: &str) -> Answer<()> {
        files::remove(&self.at(path))
    }

    fn sync(&mut self) -> Answer<()> {
        let folders = [paths::KUBERNETES, "/var/lib/kubelet", paths::HOME, "/usr/bin"];
        files::sync(&folders.map(|folder| self.at(folder)))
    }

    fn room(&mut self, path: &str) -> Answer<Room> {
        files::room(&self.at(path))
    }

    fn boot(&mut self) -> Answer<String> {
        containers::boot()
    }

    fn unit(&mut self, unit: &str) -> Answer<UnitState> {
        units::state(unit)
    }

    fn order(&mut self, unit: &str, order: UnitOrder) -> Answer<()> {
        units::order(unit, order)
    }

    fn command_line(&mut self, unit: &str) -> Answer<Vec<String>> {
        units::command_line(unit)
    }

    fn reload_units(&mut self) -> Answer<()> {
        units::reload()
    }

    fn run(&mut self, job: &str, command: &Command) -> Answer<Job> {
        jobs::run(job, command)
    }

    fn end_jobs(&mut self) -> Answer<()> {
        jobs::end_all()
    }

    fn runs(&mut self, container: &str) -> Answer<bool> {
        self.containers.runs(container)
    }

    fn signal(&mut self, container: &str, signal: Signal) -> Answer<()> {
        self.containers.signal(container, signal)
    }

    fn process(&mut self, container: &str) -> Answer<Option<String>> {
        self.containers.process(container)
    }

    fn lives(&mut self, process: &str) -> Answer<bool> {
        Ok(containers::lives(process))
    }

    fn kill(&mut self, process: &str) -> Answer<()> {
        containers::kill(process)
    }

    fn takes_connections(&mut self) -> Answer<bool> {
        endpoints::takes_connections(self)
    }

    fn forward(&mut self, forward: Option<&Forward>) -> Answer<()> {
        match forward {
            None => forward::end(),
            Some(forward) => {
                let served = manifests::served(&self.manifest("kube-apiserver")?);
                forward::set(forward, &served)
            }
        }
    }

    fn forwarding(&mut self) -> Answer<Option<Forward>> {
        forward::present()
    }

    fn serving(&mut self, peers: &[String]) -> Answer<Vec<String>> {
        let served = manifests::served(&self.manifest("kube-apiserver")?);
        let trust = self.anybody()?;
        Ok(self.peers.serving(peers, served.port, &trust))
    }

    fn well(&mut self, endpoint: Endpoint) -> Answer<bool> {
        endpoints::well(self, endpoint)
    }

    fn etcd(&mut self) -> Answer<EtcdStatus> {
        self.gateway()?.status()
    }

    fn hand_over_etcd(&mut self) -> Answer<()> {
        self.gateway()?.hand_over()
    }

    fn etcd_members(&mut self) -> Answer<Vec<EtcdMember>> {
        self.gateway()?.members()
    }

    fn remove_etcd_member(&mut self, id: &str) -> Answer<()> {
        self.gateway()?.remove(id)
    }

    fn add_etcd_learner(&mut self, peer_url: &str) -> Answer<Vec<EtcdMember>> {
        self.gateway()?.add(peer_url)
    }

    fn promote_etcd_learner(&mut self, id: &str) -> Answer<bool> {
        self.gateway()?.promote(id)
    }
}

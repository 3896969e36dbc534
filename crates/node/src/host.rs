//! The port to a machine: everything a step may ask of it, and nothing more. The simulated machine is in `afloat-sim`;
//! what a step makes of the answers is in `steps` and `instruction`.
//!
//! Two promises carry the whole crate. A file that is written or copied is never seen half done: it is staged beside
//! its target, synced, and renamed over it (`install`, not `cp`: a running binary cannot be written to). And a job goes
//! on when the caller does not: asking for it again tells how it is.

use crate::digest::Digest;

/// What a machine answers when it cannot.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum HostError {
    #[error("cannot {action} {object}: {message}")]
    Failed {
        action: &'static str,
        object: String,
        message: String,
    },
    /// The machine has no such means at all, as a kernel without netfilter.
    #[error("this machine cannot {0}")]
    Unsupported(&'static str),
    /// The power went, or the process was killed: nothing more is heard from here. Only a simulated machine says so.
    #[error("the machine went down")]
    Crashed,
}

/// A file as a folder lists it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Listed {
    /// Its whole path.
    pub path: String,
    pub bytes: u64,
}

/// Room on the file system of a path.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Room {
    pub bytes: u64,
    pub inodes: u64,
}

/// How a systemd unit is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum UnitState {
    Active,
    Inactive,
    Failed,
    /// There is no such unit.
    Unknown,
}

/// What a systemd unit is told.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum UnitOrder {
    Start,
    Stop,
    Restart,
    Enable,
    Disable,
}

/// A program to run, bounded in time.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Command {
    pub program: String,
    pub args: Vec<String>,
    /// A folder bound over another one, or a file over a file, for this command alone, in a mount namespace of its own.
    pub over: Option<Bind>,
    pub seconds: u32,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Bind {
    pub folder: String,
    pub over: String,
}

/// How a job is.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Job {
    Running,
    Ended {
        exit_code: i32,
        stdout: String,
        /// The last lines.
        stderr: String,
    },
}

/// How to end a container.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Signal {
    Terminate,
    Kill,
}

/// New connections to the API server's port go to the peers, until told otherwise or for so long.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Forward {
    /// Their addresses.
    pub peers: Vec<String>,
    /// The port sits in a set with this timeout: if everything on the node dies, the forwarding ends by itself.
    pub seconds: u32,
}

/// Something on this machine that can be asked whether it is well.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Endpoint {
    /// `https://<this node>:6443/readyz`
    ApiServer,
    /// `https://127.0.0.1:10257/healthz`
    ControllerManager,
    /// `https://127.0.0.1:10259/healthz`
    Scheduler,
    /// `http://127.0.0.1:2381/readyz`
    Etcd,
    /// The runtime's socket.
    Runtime,
    /// `http://127.0.0.1:10248/healthz`, and the node's lease is being renewed.
    Kubelet,
}

impl Endpoint {
    /// As people call it.
    pub fn word(self) -> &'static str {
        match self {
            Self::ApiServer => "the API server",
            Self::ControllerManager => "the controller manager",
            Self::Scheduler => "the scheduler",
            Self::Etcd => "etcd",
            Self::Runtime => "containerd",
            Self::Kubelet => "the kubelet",
        }
    }
}

/// A member of etcd as the others list it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct EtcdMember {
    pub id: String,
    /// Nothing until it has started for the first time.
    pub name: String,
    pub peer_urls: Vec<String>,
    /// It hears all and decides nothing yet.
    pub learner: bool,
}

/// What this node's etcd member knows.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct EtcdStatus {
    /// The member on this node answers and has a leader.
    pub healthy: bool,
    pub leads: bool,
    /// Version of this member, as `3.6.6`; nothing when it does not answer.
    pub version: String,
    /// The version all members agreed on: it never goes back.
    pub cluster_version: String,
    /// Entries this member is behind the furthest of the others.
    pub behind: u64,
    pub peers: Vec<EtcdPeer>,
}

/// Another member, seen from here.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct EtcdPeer {
    pub name: String,
    pub healthy: bool,
    /// Entries it is behind the leader.
    pub behind: u64,
}

pub type Answer<T> = Result<T, HostError>;

/// A machine that is being upgraded.
pub trait Host {
    /// The content of a file, or nothing when there is none.
    fn read(&mut self, path: &str) -> Answer<Option<Vec<u8>>>;
    /// Length of a file, or nothing when there is none.
    fn size(&mut self, path: &str) -> Answer<Option<u64>>;
    fn digest(&mut self, path: &str) -> Answer<Option<Digest>>;
    /// Every file under a folder, in the order of their paths.
    fn list(&mut self, folder: &str) -> Answer<Vec<Listed>>;
    /// Puts a file in place, whole and synced; folders that lack are made, for root alone.
    fn write(&mut self, path: &str, content: &[u8], mode: u32) -> Answer<()>;
    /// Puts other content into a file that is there: its owner and permissions stay.
    fn rewrite(&mut self, path: &str, content: &[u8]) -> Answer<()>;
    /// The same as `write` with what another file holds, its owner and permissions included.
    fn copy(&mut self, from: &str, to: &str) -> Answer<()>;
    /// Adds to the end of a file and syncs it, alone: two callers never mix.
    fn append(&mut self, path: &str, content: &[u8]) -> Answer<()>;
    /// Of a file, or of a folder with all in it.
    fn rename(&mut self, from: &str, to: &str) -> Answer<()>;
    /// Removes a file or a folder with all in it; that there is none is fine.
    fn remove(&mut self, path: &str) -> Answer<()>;
    /// What programs wrote is on the disk when this returns (they do not sync by themselves).
    fn sync(&mut self) -> Answer<()>;
    fn room(&mut self, path: &str) -> Answer<Room>;
    /// A word for the boot that the machine runs since; the next one has another.
    fn boot(&mut self) -> Answer<String>;

    fn unit(&mut self, unit: &str) -> Answer<UnitState>;
    fn order(&mut self, unit: &str, order: UnitOrder) -> Answer<()>;
    /// What the main process of a unit was started with; nothing while there is none.
    fn command_line(&mut self, unit: &str) -> Answer<Vec<String>>;
    /// Makes systemd read its unit files anew.
    fn reload_units(&mut self) -> Answer<()>;

    /// Starts a job, or tells how the one of this name is. A job outlives its caller, but not a reboot.
    fn run(&mut self, job: &str, command: &Command) -> Answer<Job>;
    /// Ends every job that still runs, and waits for them.
    fn end_jobs(&mut self) -> Answer<()>;

    /// Whether a container of this name runs (of static pods: their names are those of the parts).
    fn runs(&mut self, container: &str) -> Answer<bool>;
    fn signal(&mut self, container: &str, signal: Signal) -> Answer<()>;
    /// The process of a container, in words that fit no other one, also not after it or after a boot.
    fn process(&mut self, container: &str) -> Answer<Option<String>>;
    /// Whether this very process is still there.
    fn lives(&mut self, process: &str) -> Answer<bool>;
    /// Kills this very process; that it is gone is fine.
    fn kill(&mut self, process: &str) -> Answer<()>;
    /// Whether the API server here takes connections. One that was told to end does not, though it may go on for long.
    fn takes_connections(&mut self) -> Answer<bool>;

    /// Sets or renews the forwarding, or ends it.
    fn forward(&mut self, forward: Option<&Forward>) -> Answer<()>;
    /// Where it forwards to, and for how many seconds more, if it does.
    fn forwarding(&mut self) -> Answer<Option<Forward>>;
    /// Those of these control planes whose API server serves, by what was heard of them last.
    fn serving(&mut self, peers: &[String]) -> Answer<Vec<String>>;

    fn well(&mut self, endpoint: Endpoint) -> Answer<bool>;
    fn etcd(&mut self) -> Answer<EtcdStatus>;
    /// Gives etcd's leadership to another member, if this one has it.
    fn hand_over_etcd(&mut self) -> Answer<()>;
    /// The members, as a healthy one among the others lists them.
    fn etcd_members(&mut self) -> Answer<Vec<EtcdMember>>;
    /// Lets the others forget a member; that they know none of this id is fine.
    fn remove_etcd_member(&mut self, id: &str) -> Answer<()>;
    /// Lets them expect a new one at this address, as a learner; the members then.
    fn add_etcd_learner(&mut self, peer_url: &str) -> Answer<Vec<EtcdMember>>;
    /// Lets a learner decide too. Whether it does: not before it has caught up.
    fn promote_etcd_learner(&mut self, id: &str) -> Answer<bool>;
}

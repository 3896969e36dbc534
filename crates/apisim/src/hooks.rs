//! What a simulator may do to the server: see every write, make requests fail or wait, serve reads from the past, cut
//! watches. A server without hooks behaves as the real one does.

use std::time::Duration;

use crate::request::Verb;
use crate::resource::ResourceType;
use crate::store::{Change, TableKey};

/// A request as the simulator sees it, before it is carried out.
#[derive(Clone, Copy, Debug)]
pub struct RequestInfo<'a> {
    pub verb: Verb,
    pub resource: &'a ResourceType,
    pub namespace: &'a str,
    pub name: &'a str,
    pub subresource: &'a str,
    pub user_agent: &'a str,
}

/// What happens to a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fault {
    #[default]
    None,
    /// Refused with this code, nothing done.
    Refuse(u16),
    /// Carried out, then answered with this code: the reply was lost after the commit.
    LoseReply(u16),
    /// A read served as it was this many revisions ago.
    Stale(u64),
}

/// Decides the fate of requests. Called under the server's lock: it must not call back.
pub trait Faults: Send + Sync {
    fn on_request(&self, request: &RequestInfo<'_>) -> Fault;

    /// How long the answer takes; waited for outside the lock, by whoever carries the answer.
    fn latency(&self, _request: &RequestInfo<'_>) -> Duration {
        Duration::ZERO
    }
}

/// Sees every committed write in order. Called under the server's lock: it must not call back.
pub trait WriteObserver: Send + Sync {
    fn on_write(&self, table: &TableKey, change: &Change);
}

/// Where the log of a container comes from: the kubelet's part of `kubectl logs`.
pub trait PodLogs: Send + Sync {
    /// The whole log so far, or why there is none.
    fn read(&self, namespace: &str, pod: &str, container: &str) -> Result<String, String>;
}

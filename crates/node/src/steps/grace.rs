//! The grace of an API server that kubeadm replaces. Told to end, it takes no connections any more, answers what it has begun, and then
//! waits for open watches, which do not end: until the kubelet kills it after 30 seconds, and finds that 10 to 15 seconds later. Nothing
//! new reaches it in that time, so it gets as long as the swift way gives it.

use crate::host::{Answer, HostError};
use crate::instruction::{Context, Ran, Waiting};

/// Seconds that an API server has for what it has begun.
pub const SECONDS: u32 = 4;
const API_SERVER: &str = "kube-apiserver";
/// The fact that tells the process from all others: its successor takes no connections either while it starts.
const FACT: &str = "apiServer";

/// Remembers which process serves the API before kubeadm replaces it.
pub fn mark(c: &mut Context<'_>) -> Answer<Ran> {
    let process = c.host.process(API_SERVER)?.unwrap_or_default();
    Ok(Ran::Found { fact: (FACT, process) })
}

/// Waits for kubeadm, and for the API server that it has told to end no longer than need be.
pub fn shorten(c: &mut Context<'_>, waiting: Waiting) -> Answer<Ran> {
    match look(c) {
        Ok(Some(seen)) => Ok(seen),
        Err(HostError::Crashed) => Err(HostError::Crashed),
        // It may have its whole grace: kubeadm is not to be started a second time because of that.
        Ok(None) | Err(_) => Ok(Ran::Wait(waiting)),
    }
}

fn look(c: &mut Context<'_>) -> Answer<Option<Ran>> {
    let old = c.fact(FACT).unwrap_or_default().to_owned();
    if old.is_empty() || !c.host.lives(&old)? {
        return Ok(None);
    }
    // The way is open for its end from when its port is closed.
    match (c.host.takes_connections()?, c.state.open_since) {
        (true, None) => Ok(None),
        (true, Some(_)) => Ok(Some(Ran::Seen { open: false })),
        (false, None) => Ok(Some(Ran::Seen { open: true })),
        (false, Some(since)) => {
            if c.now.duration_since(since).as_secs() >= i64::from(SECONDS) {
                c.host.kill(&old)?;
            }
            Ok(None)
        }
    }
}

//! Standing aside: new API connections go to the other control planes before anything here is touched, as health checks of a
//! load balancer notice a missing API server only seconds later, and the `kubernetes` Service lists it for longer still.

use afloat_api::Reason;
use afloat_api::node::NodePlan;

use crate::host::{Answer, Forward, Host, HostError};
use crate::instruction::{Context, Ran};
use crate::paths;

/// Entries a member may be behind and still count as caught up.
const CAUGHT_UP: u64 = 100;
/// The forwarding outlives the dead man's switch by this: what is undone must not be open to clients.
const MARGIN_SECONDS: u32 = 120;

/// Refuses to begin unless every other etcd member could go on without this one.
pub fn check_etcd(c: &mut Context<'_>) -> Answer<Ran> {
    if c.host.size(&paths::manifest("etcd"))?.is_none() {
        return Ok(Ran::Done);
    }
    let status = c.host.etcd()?;
    let behind = status.peers.iter().map(|peer| peer.behind).max();
    let Some(peer) = status
        .peers
        .iter()
        .find(|peer| !peer.healthy || peer.behind > CAUGHT_UP)
    else {
        return Ok(Ran::Done);
    };
    let message = if peer.healthy {
        format!(
            "etcd member {} is {} entries behind the leader; needs ≤ {CAUGHT_UP}",
            peer.name, peer.behind
        )
    } else {
        format!(
            "etcd member {} is not healthy: without this node's there might be no quorum",
            peer.name
        )
    };
    Ok(Ran::Later {
        reason: Reason::WaitingForEtcd,
        message,
        etcd_behind: behind,
    })
}

/// The forwarding of this attempt.
fn table(plan: &NodePlan) -> Forward {
    Forward {
        peers: plan.peers.clone(),
        seconds: plan.undo_after_seconds.saturating_add(MARGIN_SECONDS),
    }
}

/// Renews the forwarding before it ends by itself, and sets it again after a reboot, which a table does not survive.
pub fn stay_aside(host: &mut dyn Host, plan: &NodePlan) -> Answer<()> {
    let table = table(plan);
    match host.forwarding()? {
        Some(left) if left > table.seconds / 2 => Ok(()),
        _ => host.forward(Some(&table)),
    }
}

/// Sends new connections to the peers; a machine that cannot is taken the conservative way.
pub fn forward(c: &mut Context<'_>) -> Answer<Ran> {
    let table = table(c.plan());
    let aside = match c.host.forward(Some(&table)) {
        Ok(()) => "yes",
        Err(HostError::Unsupported(_)) => "cannot",
        Err(other) => return Err(other),
    };
    Ok(Ran::Found {
        fact: ("aside", aside.to_owned()),
    })
}

/// Takes connections again.
pub fn end_forwarding(c: &mut Context<'_>) -> Answer<Ran> {
    if c.fact("aside") != Some("yes") {
        return Ok(Ran::Done);
    }
    c.host.forward(None)?;
    Ok(Ran::Found {
        fact: ("aside", "no".to_owned()),
    })
}

/// Gives leadership away, where there is one to give and somebody to take it: killing a member that leads loses writes.
pub fn hand_over(c: &mut Context<'_>) -> Answer<Ran> {
    if c.host.size(&paths::manifest("etcd"))?.is_none() {
        return Ok(Ran::Done);
    }
    let status = c.host.etcd()?;
    if status.healthy && status.leads && status.peers.iter().any(|peer| peer.healthy) {
        c.host.hand_over_etcd()?;
    }
    Ok(Ran::Done)
}

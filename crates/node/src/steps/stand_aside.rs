//! Standing aside: new API connections go to the other control planes before anything here is touched, as health checks of a
//! load balancer notice a missing API server only seconds later, and the `kubernetes` Service lists it for longer still.

use std::collections::BTreeSet;
use std::net::IpAddr;

use afloat_api::Reason;
use afloat_api::node::{NodePlan, steps};

use crate::host::{Answer, EtcdPeer, EtcdStatus, Forward, Host, HostError};
use crate::instruction::{Context, Ran, Waiting};
use crate::paths;

/// Entries a member may be behind and still count as caught up.
pub(crate) const CAUGHT_UP: u64 = 100;
/// The forwarding outlives the dead man's switch by this: what is undone must not be open to clients.
const MARGIN_SECONDS: u32 = 120;

/// Refuses to begin unless every other etcd member could go on without this one.
pub fn check_etcd(c: &mut Context<'_>) -> Answer<Ran> {
    if c.host.size(&paths::manifest("etcd"))?.is_none() {
        return Ok(Ran::Done);
    }
    let status = c.host.etcd()?;
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
    })
}

/// The member that is missed if this node's ends now: the others alone must be a majority, and know what was written. With fewer than three
/// there is none whoever ends, which was accepted before the node was taken.
fn missed(status: &EtcdStatus) -> Option<&EtcdPeer> {
    let members = status.peers.len() + 1;
    let carries_on = |peer: &&EtcdPeer| peer.healthy && peer.behind <= CAUGHT_UP;
    let others = status.peers.iter().filter(carries_on).count();
    let missed = status.peers.iter().find(|peer| !carries_on(peer))?;
    (status.healthy && members >= 3 && others * 2 <= members).then_some(missed)
}

/// Holds this node's etcd back from its end while the members that are left would be no majority: one may have gone since
/// the node stood aside. Nothing where it may end. On the way forward the dead man's switch bounds the wait, on the way back
/// there is nobody behind: a member that was not changed goes on running, and for any other a person has to help.
pub fn hold_etcd(c: &mut Context<'_>) -> Answer<Option<Ran>> {
    if c.host.size(&paths::manifest("etcd"))?.is_none() {
        return Ok(None);
    }
    let status = match c.host.etcd() {
        Ok(status) => status,
        Err(HostError::Crashed) => return Err(HostError::Crashed),
        // One that cannot be asked is none that others count on.
        Err(_) => return Ok(None),
    };
    let Some(peer) = missed(&status) else {
        return Ok(None);
    };
    let (name, behind) = (&peer.name, peer.behind);
    let message = if peer.healthy {
        format!(
            "etcd member {name} is {behind} entries behind: without this node's there would be no quorum that knows all"
        )
    } else {
        format!("etcd member {name} is away: without this node's there would be no quorum")
    };
    if c.step != steps::ROLLBACK {
        return Ok(Some(wait(message)));
    }
    if !changed(c, &paths::manifest("etcd"))? && !changed(c, paths::KUBELET)? {
        return Ok(Some(Ran::Done));
    }
    if c.now.duration_since(c.since).as_secs() < i64::from(c.plan().undo_after_seconds) {
        return Ok(Some(wait(message)));
    }
    Ok(Some(Ran::Failed {
        reason: Reason::RollbackFailed,
        message: format!("{message}: help: bring {name} back, then afloat rollback this node"),
    }))
}

fn wait(message: String) -> Ran {
    Ran::Wait(Waiting {
        reason: Reason::WaitingForEtcd,
        message,
    })
}

/// Whether a file is another one than the attempt found.
fn changed(c: &mut Context<'_>, path: &str) -> Answer<bool> {
    let kept = c.journal.kept.iter().find(|kept| kept.path == path);
    let Some(before) = kept.map(|kept| kept.digest) else {
        return Ok(false);
    };
    Ok(c.host.digest(path)? != before)
}

/// Waits for the other members: before anything is undone, as nothing may be begun that could not be finished, and last
/// before this node's is asked to end.
pub fn await_peers(c: &mut Context<'_>) -> Answer<Ran> {
    Ok(hold_etcd(c)?.unwrap_or(Ran::Done))
}

/// The forwarding of this attempt.
fn table(plan: &NodePlan, peers: Vec<String>) -> Forward {
    Forward {
        peers,
        seconds: plan.undo_after_seconds.saturating_add(MARGIN_SECONDS),
    }
}

/// Renews the forwarding before it ends by itself, sets it again after a reboot, which a table does not survive, and sets it anew when
/// another of the peers serves than before: what is sent to one that died would be lost while others could serve it.
pub fn stay_aside(host: &mut dyn Host, plan: &NodePlan) -> Answer<()> {
    let Some(present) = host.forwarding()? else {
        // The API server here may take connections at any moment, and a peer without power takes seconds to be known as such: it is left
        // out with the next look.
        return host.forward(Some(&table(plan, plan.peers.clone())));
    };
    let mut peers = host.serving(&plan.peers)?;
    if peers.is_empty() {
        // Perhaps it is this node that hears nobody.
        peers.clone_from(&present.peers);
    }
    let wanted = table(plan, peers);
    if present.seconds > wanted.seconds / 2 && same(&present.peers, &wanted.peers) {
        return Ok(());
    }
    host.forward(Some(&wanted))
}

/// Whether these are the same addresses, in whatever order and spelling.
fn same(one: &[String], other: &[String]) -> bool {
    let set = |peers: &[String]| -> BTreeSet<Result<IpAddr, String>> {
        let parsed = peers.iter().map(|peer| peer.parse().map_err(|_| peer.clone()));
        parsed.collect()
    };
    set(one) == set(other)
}

/// Sends new connections to the peers; a machine that cannot is taken the conservative way.
pub fn forward(c: &mut Context<'_>) -> Answer<Ran> {
    let mut peers = c.host.serving(&c.journal.plan.peers)?;
    if peers.is_empty() && c.step != steps::ROLLBACK {
        return Ok(Ran::Later {
            reason: Reason::WaitingForApiServer,
            message: format!(
                "no other control plane serves the API ({}): this node cannot stand aside",
                c.plan().peers.join(", ")
            ),
        });
    }
    if peers.is_empty() {
        peers.clone_from(&c.plan().peers);
    }
    let table = table(c.plan(), peers);
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

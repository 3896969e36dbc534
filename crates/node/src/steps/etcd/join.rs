//! A broken member removed from its cluster through a healthy one, and joined anew with nothing of its old data, as kubeadm joins one: as a
//! learner, which counts for no quorum, promoted once it has caught up. Never where etcd would lose its quorum by it.

use crate::host::{Answer, EtcdMember, HostError, UnitOrder};
use crate::instruction::{Context, Ran};
use crate::paths;
use crate::steps::{config, kubeadm, stand_aside};

use super::{CLUSTER, JOINING, data_folder, failed, found, free_folder, is_late, manifest, wait, words};

/// Stands for a member that the others do not list.
const NOBODY: &str = "-";

/// Holds as long as etcd could not do without this node's member. Every other one has to be healthy: of the voters that are left each
/// may be the one that is needed.
fn hold(c: &mut Context<'_>) -> Answer<Option<Ran>> {
    let status = c.host.etcd()?;
    let away = status.peers.iter().find(|peer| !peer.healthy);
    let message = match (away, status.peers.len()) {
        (None, 2..) => return Ok(None),
        // The other one alone decides nothing, not even that this one is to go.
        (_, 0 | 1) => {
            return Ok(Some(failed(
                "this node's etcd member is broken and cannot be joined anew: with two members the other one alone is no quorum; \
                 nothing of its data was changed: help: bring the member back by hand, or restore etcd from a backup"
                    .to_owned(),
            )));
        }
        (Some(peer), _) => format!(
            "this node's etcd member is broken and cannot be joined anew while member {} is not healthy: there might be no quorum",
            peer.name
        ),
    };
    // The old binary was waited for in the same instruction before.
    if !is_late(c, 2) {
        return Ok(Some(wait(message)));
    }
    Ok(Some(failed(format!(
        "{message}: help: bring that one back, then afloat rollback this node"
    ))))
}

/// Where the other members find this one.
fn own_url(manifest: &str) -> Option<&str> {
    config::flag(manifest, "--initial-advertise-peer-urls=")?
        .split(',')
        .next()
}

fn own<'a>(members: &'a [EtcdMember], url: &str) -> Option<&'a EtcdMember> {
    let listed_at = |member: &&EtcdMember| member.peer_urls.iter().any(|listed| listed == url);
    members.iter().find(listed_at)
}

fn unreadable() -> Ran {
    failed(format!(
        "{} does not say by --name and --initial-advertise-peer-urls which member it is: help: remove the member and let it join by hand",
        paths::manifest("etcd")
    ))
}

/// Sees that it can be done, and writes down which member goes and where its data goes, before either does.
pub fn check(c: &mut Context<'_>) -> Answer<Ran> {
    if let Some(held) = hold(c)? {
        return Ok(held);
    }
    let text = manifest(c)?;
    let Some(url) = own_url(&text).filter(|_| config::flag(&text, "--name=").is_some()) else {
        return Ok(unreadable());
    };
    if config::flag(&text, "--wal-dir=").is_some() {
        return Ok(failed(format!(
            "{} keeps etcd's log apart from its data (--wal-dir): help: remove the member and let it join by hand",
            paths::manifest("etcd")
        )));
    }
    let members = c.host.etcd_members()?;
    let id = own(&members, url).map_or(NOBODY, |member| &member.id);
    // What was moved by an undoing that came no further is still there to be named.
    let before = c.fact(JOINING).map(|fact| words(fact).skip(1).collect::<Vec<_>>());
    let before = before.unwrap_or_default().join(" ");
    let aside = free_folder(c)?;
    Ok(found(JOINING, format!("{id} {aside} {before}").trim_end()))
}

/// Nothing of the member runs, and etcd can do without it: also on a machine that restarted in between.
fn ready(c: &mut Context<'_>) -> Answer<Option<Ran>> {
    let ended = c.end(&["etcd"], kubeadm::SECONDS_ETCD)?;
    if ended != Ran::Done {
        return Ok(Some(ended));
    }
    let held = hold(c)?;
    if let Some(Ran::Failed { .. }) = held {
        // Whoever brings that one back asks for the undoing again, through the kubelet. Its etcd starts on nothing meanwhile.
        c.host.order(paths::KUBELET_UNIT, UnitOrder::Start)?;
    }
    Ok(held)
}

pub fn remove(c: &mut Context<'_>) -> Answer<Ran> {
    if let Some(held) = ready(c)? {
        return Ok(held);
    }
    let id = c.fact(JOINING).and_then(|fact| words(fact).next());
    let id = id.unwrap_or(NOBODY).to_owned();
    let members = c.host.etcd_members()?;
    if members.iter().all(|member| member.id != id) {
        return Ok(Ran::Done);
    }
    let removed = c.host.remove_etcd_member(&id);
    Ok(patiently(c, removed)?.map_or_else(|waits| waits, |()| Ran::Done))
}

/// For some seconds after members have met anew, etcd takes no change of them ("unhealthy cluster").
fn patiently<T>(c: &Context<'_>, answer: Answer<T>) -> Answer<Result<T, Ran>> {
    match answer {
        Ok(answer) => Ok(Ok(answer)),
        Err(HostError::Failed { message, .. }) if !is_late(c, 1) => {
            Ok(Err(wait(format!("etcd does not change its members yet: {message}"))))
        }
        Err(other) => Err(other),
    }
}

/// Adds it as a learner, unless that was done before; what the others then say is what it is told to join.
pub fn add(c: &mut Context<'_>) -> Answer<Ran> {
    if let Some(held) = ready(c)? {
        return Ok(held);
    }
    let text = manifest(c)?;
    let (Some(url), Some(name)) = (own_url(&text), config::flag(&text, "--name=")) else {
        return Ok(unreadable());
    };
    let mut members = c.host.etcd_members()?;
    if own(&members, url).is_none() {
        let added = c.host.add_etcd_learner(url);
        members = match patiently(c, added)? {
            Ok(members) => members,
            Err(waits) => return Ok(waits),
        };
    }
    let places = members.iter().flat_map(|member| {
        // It has no name before it has started.
        let is_own = member.peer_urls.iter().any(|listed| listed == url);
        let called = match member.name.as_str() {
            _ if is_own => name,
            "" => &member.id,
            given => given,
        };
        member.peer_urls.iter().map(move |url| format!("{called}={url}"))
    });
    let places: Vec<_> = places.collect();
    Ok(found(CLUSTER, places.join(",")))
}

/// The same manifest for a member that joins: by any other it would start a cluster of its own.
fn for_joining(manifest: &str, cluster: &str) -> Option<String> {
    let mut text = String::new();
    let mut named = false;
    for line in manifest.lines() {
        let flag = line.trim().trim_start_matches("- ").trim_matches(['"', '\'']);
        if flag.starts_with("--initial-cluster=") || flag.starts_with("--initial-cluster-state=") {
            continue;
        }
        text.push_str(line);
        text.push('\n');
        if flag.starts_with("--name=") && !named {
            named = true;
            let indent = line.split('-').next().unwrap_or_default();
            for flag in [
                format!("--initial-cluster={cluster}"),
                "--initial-cluster-state=existing".to_owned(),
            ] {
                text.push_str(indent);
                text.push_str("- ");
                text.push_str(&flag);
                text.push('\n');
            }
        }
    }
    named.then_some(text)
}

pub fn place_manifest(c: &mut Context<'_>) -> Answer<Ran> {
    let ended = c.end(&["etcd"], kubeadm::SECONDS_ETCD)?;
    if ended != Ran::Done {
        return Ok(ended);
    }
    let live = paths::manifest("etcd");
    let before = c.text(&live)?;
    let cluster = c.fact(CLUSTER).unwrap_or_default().to_owned();
    let Some(after) = for_joining(&before, &cluster) else {
        return Ok(unreadable());
    };
    if before != after {
        c.host.rewrite(&live, after.as_bytes())?;
    }
    Ok(Ran::Done)
}

/// Waits until the new member has all that the others have and decides with them.
pub fn await_joined(c: &mut Context<'_>) -> Answer<Ran> {
    let (open, what) = match joined(c) {
        Ok(seen) => seen,
        Err(HostError::Failed { message, .. }) => (false, format!("the other members cannot be asked: {message}")),
        Err(other) => return Err(other),
    };
    if open || !is_late(c, 1) {
        return Ok(c.in_a_row(open, wait(what)));
    }
    let seconds = c.plan().undo_after_seconds;
    let data = data_folder(c)?;
    Ok(failed(format!(
        "this node's etcd member was joined anew and is not healthy after {seconds} seconds: {what}; its former data is kept in {data}: \
         help: see why with crictl logs, then afloat rollback this node"
    )))
}

/// Whether it is one of them by now, and what it waits for if not.
fn joined(c: &mut Context<'_>) -> Answer<(bool, String)> {
    let text = manifest(c)?;
    let members = c.host.etcd_members()?;
    let Some(member) = own_url(&text).and_then(|url| own(&members, url)) else {
        return Ok((
            false,
            "the others no longer list it: somebody has removed it".to_owned(),
        ));
    };
    if member.learner && member.name.is_empty() {
        return Ok((false, "the new member has not started yet".to_owned()));
    }
    if member.learner && !c.host.promote_etcd_learner(&member.id)? {
        return Ok((false, "the new member has not caught up with the leader yet".to_owned()));
    }
    let status = c.host.etcd()?;
    if !status.healthy {
        return Ok((false, "the new member does not answer yet".to_owned()));
    }
    let behind = status.behind;
    let open = behind <= stand_aside::CAUGHT_UP;
    Ok((open, format!("the new member is {behind} entries behind the leader")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANIFEST: &str = "spec:\n  containers:\n  - command:\n    - etcd\n    - --data-dir=/var/lib/etcd\n    \
                            - --initial-advertise-peer-urls=https://10.0.0.1:2380\n    \
                            - --initial-cluster=cp-1=https://10.0.0.1:2380\n    - --name=cp-1\n    \
                            - --peer-client-cert-auth=true\n    image: registry.k8s.io/etcd:3.6.6-0\n";

    #[test]
    fn k2_a_manifest_for_joining_names_all_members_and_is_else_the_same() {
        let cluster = "cp-2=https://10.0.0.2:2380,cp-1=https://10.0.0.1:2380";
        let made = for_joining(MANIFEST, cluster).unwrap();
        assert!(made.contains(&format!(
            "\n    - --name=cp-1\n    - --initial-cluster={cluster}\n    - --initial-cluster-state=existing\n    - --peer"
        )));
        assert_eq!(made.matches("--initial-cluster=").count(), 1);
        assert_eq!(config::essence_of_etcd(&made), config::essence_of_etcd(MANIFEST));
        // Made again it is the same: the machine may have restarted in between.
        assert_eq!(for_joining(&made, cluster).as_deref(), Some(made.as_str()));
        assert_eq!(for_joining("spec:\n", cluster), None);
        assert_eq!(own_url(&made), Some("https://10.0.0.1:2380"));
    }
}

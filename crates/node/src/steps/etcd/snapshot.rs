//! The last resort of a member without peers: a copy of its whole data, taken while it is ended, before another version of it touches
//! them. Put back, all is as it was then, and whatever was written since is lost; so this is done only where nothing else starts.

use crate::host::{Answer, Endpoint};
use crate::instruction::{Context, Ran};
use crate::paths;
use crate::steps::{config, kubeadm};

use super::{RETURNED, RETURNING, SNAPSHOT, data_folder, failed, found, free_folder, is_late, manifest, wait};

/// Copies every file under a folder, to the same places under another, which holds nothing else then.
fn copy_all(c: &mut Context<'_>, from: &str, to: &str) -> Answer<()> {
    // Interrupted in the middle, it begins anew: the data may have changed since.
    c.host.remove(to)?;
    for file in c.host.list(from)? {
        let within = file.path.strip_prefix(from).unwrap_or_default();
        c.host.copy(&file.path, &format!("{to}{within}"))?;
    }
    Ok(())
}

pub fn take(c: &mut Context<'_>) -> Answer<Ran> {
    let text = c.text(&paths::manifest("etcd"))?;
    // A log that lies apart would not be in it, and half a copy is none.
    if text.is_empty() || config::flag(&text, "--wal-dir=").is_some() {
        return Ok(Ran::Done);
    }
    // A machine that restarted since has started it again.
    let ended = c.end(&["etcd"], kubeadm::SECONDS_ETCD)?;
    if ended != Ran::Done {
        return Ok(ended);
    }
    // Old data is never put over a member that has peers, so there is nothing to take.
    if !c.host.etcd()?.peers.is_empty() {
        return Ok(Ran::Done);
    }
    let data = format!("{}/member", data_folder(c)?);
    copy_all(c, &data, paths::ETCD_SNAPSHOT)?;
    Ok(found(SNAPSHOT, c.now.to_string()))
}

/// Sees that it is there, and writes down where the data goes that it replaces.
pub fn check(c: &mut Context<'_>) -> Answer<Ran> {
    if c.host.list(paths::ETCD_SNAPSHOT)?.is_empty() {
        return Ok(failed(format!(
            "etcd does not start on its data, and its snapshot in {} is gone: help: restore etcd from a backup",
            paths::ETCD_SNAPSHOT
        )));
    }
    let aside = free_folder(c)?;
    Ok(found(RETURNING, aside))
}

/// Without its manifest no kubelet starts it, whatever becomes of the machine: half of its data, or none, would be a new cluster.
pub fn withdraw(c: &mut Context<'_>) -> Answer<Ran> {
    let ended = c.end(&["etcd"], kubeadm::SECONDS_ETCD)?;
    if ended != Ran::Done {
        return Ok(ended);
    }
    if manifest(c)?.is_empty() {
        return Ok(failed("etcd's manifest of before the change is gone".to_owned()));
    }
    c.host.remove(&paths::manifest("etcd"))?;
    Ok(Ran::Done)
}

pub fn put_back(c: &mut Context<'_>) -> Answer<Ran> {
    let data = format!("{}/member", data_folder(c)?);
    copy_all(c, paths::ETCD_SNAPSHOT, &data)?;
    let since = c.fact(SNAPSHOT).unwrap_or("the upgrade").to_owned();
    Ok(found(RETURNED, since))
}

/// There is nothing further back to go to.
pub fn await_returned(c: &mut Context<'_>) -> Answer<Ran> {
    let well = c.host.well(Endpoint::Etcd)?;
    if well || !is_late(c, 1) {
        return Ok(c.in_a_row(well, wait("etcd does not answer on its snapshot yet")));
    }
    Ok(c.not_back(Endpoint::Etcd))
}

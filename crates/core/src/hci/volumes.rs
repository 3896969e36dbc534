//! Volumes that hold a node: which are still attached to it, and who uses them. Detaching them is done on the node's way out;
//! here it is only said what is waited for.

use std::sync::Arc;

use super::view::{Engine, Seen, Ticket, Volume};
use super::vms;
use crate::view::{Key, NodeName, View};

/// How many holders of a volume are named.
const NAMED: usize = 8;

/// The volumes attached to a node.
pub fn attached_to<'a>(view: &'a View, node: &NodeName) -> impl Iterator<Item = &'a Arc<Seen<Volume>>> {
    let node = node.clone();
    view.hci
        .volumes
        .values()
        .filter(move |volume| volume.attached() && volume.node.as_ref() == Some(&node))
}

/// Volumes attached to a node that nobody uses: they are to be detached.
pub fn unused_on<'a>(view: &'a View, node: &NodeName) -> impl Iterator<Item = &'a Arc<Seen<Volume>>> {
    attached_to(view, node).filter(|volume| volume.users.is_empty())
}

/// Attached volumes that have not all their replicas. One that has no replica at all (`faulted`) is not coming back by waiting.
pub fn degraded(view: &View) -> impl Iterator<Item = &Arc<Seen<Volume>>> {
    view.hci
        .volumes
        .values()
        .filter(|volume| volume.attached() && &*volume.robustness == "degraded")
}

/// Hosts from which on all replicas of a volume can be whole while one host is away.
const HOSTS_FOR_REDUNDANCY: usize = 3;

/// Volumes that have not what they need to lose a node: nothing moves until they have. Where there are fewer hosts than replicas a volume is never
/// whole in Longhorn's own words; there its engine has to have one replica on each host, or as many as it asks for.
pub fn not_whole(view: &View) -> Vec<&str> {
    let hosts = vms::hosts(view).count();
    if hosts >= HOSTS_FOR_REDUNDANCY {
        return degraded(view).map(|volume| &*volume.target.key.name).collect();
    }
    let lacks = |engine: &&Arc<Seen<Engine>>| engine.running && engine.whole < needed(view, engine, hosts);
    let engines = view.hci.engines.values().filter(lacks);
    engines.map(|engine| &*engine.volume).collect()
}

/// How many replicas of an engine's volume have to be whole. Of a volume that is not seen it is not known that it asks for fewer than there are hosts.
fn needed(view: &View, engine: &Seen<Engine>, hosts: usize) -> usize {
    let key = Key::new(&engine.target.key.namespace, &engine.volume);
    let wanted = view
        .hci
        .volumes
        .get(&key)
        .map_or(hosts, |volume| usize::try_from(volume.replicas).unwrap_or_default());
    wanted.min(hosts).max(1)
}

/// The tickets that keep a volume on its node.
pub fn tickets<'a>(view: &'a View, volume: &Seen<Volume>) -> impl Iterator<Item = &'a Ticket> {
    let (name, node) = (volume.target.key.name.clone(), volume.node.clone());
    let of_it = view
        .hci
        .attachments
        .values()
        .filter(move |attachment| *attachment.volume == *name);
    let all = of_it.flat_map(|attachment| &attachment.tickets);
    all.filter(move |ticket| ticket.node.is_none() || ticket.node == node)
}

/// Who holds a ticket.
fn holder(ticket: &Ticket) -> String {
    let whose = ticket.whose();
    match &*ticket.kind {
        "csi-attacher" => format!("volumeattachments.storage.k8s.io {whose}"),
        "longhorn-api" => format!("somebody at Longhorn's page or API, ticket {whose}"),
        "backup-controller" => format!("backup {whose}"),
        "snapshot-controller" => format!("snapshot {whose}"),
        "share-manager-controller" => format!("share manager {whose}"),
        other => format!("Longhorn's {other}, for {whose}"),
    }
}

/// What frees a volume of a ticket, and what it does.
pub fn way_out(volume: &Seen<Volume>, ticket: &Ticket) -> (String, &'static str) {
    let (name, whose) = (&volume.target.key.name, ticket.whose());
    let longhorn = |kind: &str| format!("kubectl -n longhorn-system describe {kind}.longhorn.io {whose}");
    match &*ticket.kind {
        "csi-attacher" => (
            format!("kubectl describe volumeattachments.storage.k8s.io {whose}"),
            "shows why it is not given up; it can be deleted if no pod on that node uses its volume",
        ),
        "backup-controller" => (longhorn("backups"), "shows how far it is; delete it if it hangs"),
        "snapshot-controller" => (longhorn("snapshots"), "shows how far it is; delete it if it hangs"),
        "share-manager-controller" => (longhorn("sharemanagers"), "shows who shares it"),
        _ => (
            format!("kubectl -n longhorn-system get volumeattachments.longhorn.io {name} -o yaml"),
            "shows the ticket that keeps it attached; delete the ticket if its owner is gone",
        ),
    }
}

/// Why a volume is attached, in words.
pub fn why_attached(view: &View, volume: &Seen<Volume>) -> String {
    let name = &volume.target.key.name;
    let holders: Vec<String> = tickets(view, volume).take(NAMED).map(holder).collect();
    match (volume.users.as_slice(), holders.as_slice()) {
        ([], []) if &*volume.robustness == "degraded" => format!("{name} (a replica is being rebuilt)"),
        ([], []) => format!("{name} (nobody uses it, it is being detached)"),
        ([], holders) => format!("{name} (no pod uses it; held by {})", holders.join(" and ")),
        ([one], _) => format!("{name} (used by pod {one})"),
        ([first, rest @ ..], _) => format!("{name} (used by pod {first} and {} more)", rest.len()),
    }
}

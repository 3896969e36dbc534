//! Volumes that hold a node: which are still attached to it, and who uses them. Detaching them is done on the node's way out;
//! here it is only said what is waited for.

use std::sync::Arc;

use super::view::{Engine, Seen, Volume};
use super::vms;
use crate::view::{Key, NodeName, View};

/// How many volumes are named before the rest is counted.
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

/// Why a volume is attached, in words.
pub fn why_attached(volume: &Seen<Volume>) -> String {
    let name = &volume.target.key.name;
    match volume.users.as_slice() {
        [] if &*volume.robustness == "degraded" => format!("{name} (a replica is being rebuilt)"),
        [] => format!("{name} (nobody uses it, it is being detached)"),
        [one] => format!("{name} (used by pod {one})"),
        [first, rest @ ..] => format!("{name} (used by pod {first} and {} more)", rest.len()),
    }
}

/// What a node that is being emptied waits for among volumes; nothing where it is none.
pub fn holding(view: &View, node: &NodeName) -> Option<String> {
    let mut words: Vec<String> = attached_to(view, node).map(|volume| why_attached(volume)).collect();
    if words.is_empty() {
        return None;
    }
    let hidden = words.len().saturating_sub(NAMED);
    words.truncate(NAMED);
    let more = if hidden > 0 {
        format!(" and {hidden} more")
    } else {
        String::new()
    };
    Some(format!("volumes that are still attached: {}{more}", words.join(", ")))
}

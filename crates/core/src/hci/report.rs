//! What is said at the end of an upgrade, in a few lines: nodes and their times, what they waited for, virtual machines that were moved or
//! stopped, checks that were skipped.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use afloat_api::annotations;
use afloat_api::harvester::Upgrade;
use jiff::{SignedDuration, Timestamp};

use super::config::{self, SKIPPED, annotation};
use super::times::Times;
use super::turn::{PREFLIGHT_PASSED, Turn};
use super::view::{Migration, Seen, Vm};
use super::{cleanup, nodes, vms};
use crate::view::{Key, NodeName, View};
use crate::words;

/// Virtual machines that are named one by one: with names of a usual length, some ten thousand characters.
const NAMED: usize = 200;

/// The report of a turn's upgrade.
pub(super) fn of(turn: &Turn<'_>) -> String {
    let said = text(turn.view, &turn.key, &turn.after, &turn.times, turn.now);
    match cleanup::unswept(turn) {
        Some(unswept) => format!("{said}; {unswept}"),
        None => said,
    }
}

/// When an upgrade was begun.
pub fn begun_at(upgrade: &Upgrade) -> Option<Timestamp> {
    let conditions = &upgrade.status.as_ref()?.conditions;
    let begun = conditions.iter().find(|condition| condition.kind == PREFLIGHT_PASSED)?;
    begun.last_transition_time.parse().ok()
}

/// Virtual machines that were stopped and do not run.
pub fn still_off<'a>(view: &'a View, upgrade: &Key) -> Vec<&'a str> {
    let Some(list) = view.hci.restore_list_of(upgrade) else {
        return Vec::new();
    };
    let runs = |name: &&str| {
        let (namespace, vm) = name.split_once('/').unwrap_or_default();
        let vmi = view.hci.vmis.get(&Key::new(namespace, vm));
        // One that is being started may have no place to run, and be alive nonetheless.
        vmi.is_some_and(|vmi| vmi.alive()) && !named(view, name).is_some_and(|vm| vm.is_stopped())
    };
    list.nodes
        .values()
        .flatten()
        .map(String::as_str)
        .filter(|vm| !runs(vm))
        .collect()
}

/// Virtual machines that a task has stopped and that do not run again.
pub fn stays_off<'a>(view: &'a View, upgrade: &Key) -> Vec<&'a str> {
    let Some(list) = view.hci.restore_list_of(upgrade) else {
        return Vec::new();
    };
    let off = |vm: &&str| named(view, vm).is_some_and(|vm| vm.is_stopped());
    let names: BTreeSet<&str> = list.nodes.values().flatten().map(String::as_str).collect();
    names.into_iter().filter(off).collect()
}

/// A virtual machine by `namespace/name`.
pub fn named<'a>(view: &'a View, name: &str) -> Option<&'a Seen<Vm>> {
    let (namespace, name) = name.split_once('/')?;
    view.hci.vms.get(&Key::new(namespace, name)).map(|vm| &**vm)
}

/// All names: nobody else names whoever is left out here. Only where an API server would refuse the length the rest is said where to be found.
pub fn all(names: &[&str]) -> String {
    let head = names.iter().take(NAMED).copied().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(NAMED) {
        0 => head,
        more => format!(
            "{head} and {more} more, each annotated with {}",
            annotations::RUN_BEFORE
        ),
    }
}

/// Nodes with a length of time each, the longest first.
fn longest(lengths: impl Iterator<Item = (String, SignedDuration)>) -> String {
    let mut all: Vec<(String, SignedDuration)> = lengths.collect();
    all.sort_by(|(one, length), (other, longer)| longer.cmp(length).then_with(|| one.cmp(other)));
    let words: Vec<String> = all
        .iter()
        .map(|(node, length)| format!("{node} {}", words::duration(*length)))
        .collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    nodes::some(&words)
}

/// Moves since the upgrade began, whoever asked for them, as far as KubeVirt still keeps them.
fn moves(view: &View, upgrade: &Upgrade) -> Option<String> {
    let since = begun_at(upgrade);
    let done = view.hci.migrations.values().filter(|migration| {
        let of_it = since.is_some_and(|since| migration.created_at.is_some_and(|made| made >= since));
        of_it && &*migration.phase == "Succeeded"
    });
    let moved: Vec<&Arc<Seen<Migration>>> = done.collect();
    let machines = moved
        .iter()
        .map(|migration| machine_of(migration))
        .collect::<BTreeSet<_>>()
        .len();
    let least = least_of(view, upgrade, &moved);
    (machines > 0).then(|| {
        let who = words::count(machines, "virtual machine was moved", "virtual machines were moved");
        let least = least.map_or_else(String::new, |least| format!(", {least} the least"));
        format!("{who} ({}{least})", words::count(moved.len(), "move", "moves"))
    })
}

/// How often virtual machines have to move in the least, by how many are on each node that can: everybody has to leave their node once, and those of the
/// node that goes first find none that is done, and have to leave the next one too.
pub fn least_moves(on_nodes: &[usize]) -> usize {
    match on_nodes {
        [_] => 0,
        all => all.iter().sum::<usize>() + all.iter().min().copied().unwrap_or_default(),
    }
}

/// The same of those that were moved, by where each of them was before; nothing where KubeVirt does not say that, or where they come back.
fn least_of(view: &View, upgrade: &Upgrade, done: &[&Arc<Seen<Migration>>]) -> Option<usize> {
    if config::migrate_back(upgrade).unwrap_or_default() {
        return None;
    }
    let mut first: BTreeMap<Key, &Arc<Seen<Migration>>> = BTreeMap::new();
    for migration in done {
        let slot = first.entry(machine_of(migration)).or_insert(migration);
        if migration.created_at < slot.created_at {
            *slot = migration;
        }
    }
    let mut on_nodes: BTreeMap<&NodeName, usize> = vms::hosts(view).map(|host| (&host.name, 0)).collect();
    for migration in first.values() {
        *on_nodes.entry(migration.source.as_ref()?).or_default() += 1;
    }
    Some(least_moves(&on_nodes.into_values().collect::<Vec<_>>()))
}

fn machine_of(migration: &Seen<Migration>) -> Key {
    Key::new(&migration.target.key.namespace, &migration.vmi)
}

fn text(view: &View, key: &Key, upgrade: &Upgrade, times: &Times, now: Timestamp) -> String {
    let count = upgrade.status.as_ref().map_or(0, |status| status.node_statuses.len());
    let took = begun_at(upgrade).map_or_else(String::new, |begun| format!(" in {}", words::since(begun, now)));
    let mut said = vec![format!("{} at the target{took}", words::count(count, "node", "nodes"))];
    let each = longest(
        times
            .0
            .iter()
            .filter_map(|(node, one)| Some((node.clone(), one.took()?))),
    );
    if !each.is_empty() {
        said.push(format!("each took: {each}"));
    }
    let waited = times.0.iter().filter(|(_, one)| one.waited > 0);
    let waited = longest(waited.map(|(node, one)| (node.clone(), SignedDuration::from_secs(one.waited))));
    if !waited.is_empty() {
        said.push(format!("waited for volumes or nodes before their turn: {waited}"));
    }
    said.extend(moves(view, upgrade));
    let list = view.hci.restore_list_of(key);
    let stopped = list.map_or(0, |list| list.nodes.values().map(BTreeSet::len).sum());
    if stopped > 0 {
        let off = still_off(view, key);
        let word = words::count(stopped, "virtual machine was stopped", "virtual machines were stopped");
        let fate = if off.is_empty() {
            "all run again".to_owned()
        } else {
            format!("not running: {}", all(&off))
        };
        said.push(format!("{word}, {fate}"));
    }
    if let Some(skipped) = annotation(upgrade, SKIPPED) {
        said.push(format!("skipped: {skipped}"));
    }
    said.join("; ")
}

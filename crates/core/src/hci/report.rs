//! What is said at the end of an upgrade, in a few lines: nodes, time, virtual machines that were stopped, checks that were skipped.

use afloat_api::harvester::Upgrade;
use jiff::Timestamp;

use super::config::{SKIPPED, annotation};
use super::nodes;
use super::turn::{PREFLIGHT_PASSED, Turn};
use crate::view::{Key, View};
use crate::words;

/// The report of a turn's upgrade.
pub(super) fn of(turn: &Turn<'_>) -> String {
    text(turn.view, &turn.after, &nodes::restore_list(turn), turn.now)
}

/// When an upgrade was begun.
pub fn begun_at(upgrade: &Upgrade) -> Option<Timestamp> {
    let conditions = &upgrade.status.as_ref()?.conditions;
    let begun = conditions.iter().find(|condition| condition.kind == PREFLIGHT_PASSED)?;
    begun.last_transition_time.parse().ok()
}

/// Virtual machines that were stopped and do not run.
pub fn still_off<'a>(view: &'a View, list: &Key) -> Vec<&'a str> {
    let Some(list) = view.hci.restore_lists.get(list) else {
        return Vec::new();
    };
    let runs = |vm: &&str| {
        let (namespace, name) = vm.split_once('/').unwrap_or_default();
        view.hci
            .vmis
            .get(&Key::new(namespace, name))
            .is_some_and(|vmi| vmi.alive())
    };
    list.nodes
        .values()
        .flatten()
        .map(String::as_str)
        .filter(|vm| !runs(vm))
        .collect()
}

fn text(view: &View, upgrade: &Upgrade, list: &Key, now: Timestamp) -> String {
    let count = upgrade.status.as_ref().map_or(0, |status| status.node_statuses.len());
    let took = begun_at(upgrade).map_or_else(String::new, |begun| format!(" in {}", words::since(begun, now)));
    let mut said = vec![format!("{} at the target{took}", words::count(count, "node", "nodes"))];
    let stopped = view
        .hci
        .restore_lists
        .get(list)
        .map_or(0, |list| list.nodes.values().map(std::collections::BTreeSet::len).sum());
    if stopped > 0 {
        let off = still_off(view, list);
        let word = words::count(stopped, "virtual machine was stopped", "virtual machines were stopped");
        let fate = if off.is_empty() {
            "all run again".to_owned()
        } else {
            format!("not running: {}", nodes::some(&off))
        };
        said.push(format!("{word}, {fate}"));
    }
    if let Some(skipped) = annotation(upgrade, SKIPPED) {
        said.push(format!("skipped: {skipped}"));
    }
    said.join("; ")
}

//! After a node is back: the virtual machines that were stopped for it run again, each as it was to run before; whoever KubeVirt would not start by
//! that word is started by another first, and gets its own back when it runs, which leaves it running. And those that were moved from it come back,
//! where the Upgrade asks for it (H22). One that a person has started, changed, moved or deleted meanwhile is theirs, and bears no note any more.

use std::collections::BTreeMap;

use afloat_api::harvester::{HarvesterNodeState as State, NodeUpgradeStatus};
use jiff::Timestamp;

use super::migrations::{AT_ONCE, ATTEMPTS, active, job_of, next_name, numbered, of_vm, prefix, rests_until, since};
use super::{Errand, HostDone, Look, recorded, waits};
use crate::hci::action::{JobKind, TaskWrite};
use crate::hci::config;
use crate::hci::nodes::some;
use crate::hci::view::{Migration, RestoreList, Run, Seen, Vm};
use crate::view::{Key, NodeName, View};

/// One look.
pub fn restore_vm(view: &View, errand: &Errand, _: &HostDone, now: Timestamp) -> Look {
    let list = recorded(view, errand);
    let upgrade = view.hci.upgrades.get(&errand.upgrade);
    let statuses = upgrade
        .and_then(|upgrade| upgrade.status.as_ref())
        .map(|status| &status.node_statuses);
    let held = |name: &str| match (&list, statuses) {
        (Some(list), Some(statuses)) => stopped_for_another(list, statuses, &errand.node, name),
        _ => false,
    };
    let names = list.as_ref().and_then(|list| list.nodes.get(errand.node.as_str()));
    let mut what = Vec::new();
    let (mut starting, mut settled) = (Vec::new(), Vec::new());
    let (mut coming, mut gone) = (Vec::new(), Vec::new());
    for name in names.into_iter().flatten().filter(|name| !held(name)) {
        let key = name.split_once('/').map(|(namespace, name)| Key::new(namespace, name));
        let Some(vm) = key.and_then(|key| view.hci.vms.get(&key)) else {
            gone.push(name.as_str());
            continue;
        };
        match next(view, vm) {
            Next::Theirs => {}
            Next::Write { run, after } => {
                let starts = vm.run_before.is_some() && vm.run.is_off();
                if starts { &mut starting } else { &mut settled }.push(name.as_str());
                let vm = vm.target.clone();
                what.push(TaskWrite::StartVm { vm, run, after });
            }
            Next::Coming => coming.push(name.as_str()),
        }
    }
    if what.is_empty() {
        if let Some(look) = come_back(view, errand, now) {
            return look;
        }
        if !coming.is_empty() {
            return waits(format!("waits until these run again: {}", some(&coming)));
        }
        let gone = if gone.is_empty() {
            String::new()
        } else {
            format!("; not there any more: {}", some(&gone))
        };
        let stay = if is_unheard(view, errand) {
            "; this KubeVirt cannot be told where a machine is to go, so that those that were moved stay where they are"
        } else {
            ""
        };
        return Look::Done {
            says: format!(
                "everybody who was stopped for {} is to run again{gone}{stay}",
                errand.node
            ),
        };
    }
    let said = [
        ("starts virtual machines again", starting),
        ("leaves each to its own word", settled),
    ];
    let said = said.iter().filter(|(_, names)| !names.is_empty());
    let said: Vec<String> = said.map(|(does, names)| format!("{does}: {}", some(names))).collect();
    Look::Write {
        what,
        says: said.join("; "),
    }
}

/// What comes next for a machine on record.
enum Next {
    /// Nobody of ours has stopped it, or nothing is left to do.
    Theirs,
    Write {
        run: Run,
        after: Option<Run>,
    },
    /// KubeVirt is at it.
    Coming,
}

fn next(view: &View, vm: &Seen<Vm>) -> Next {
    let there = view.hci.vmis.get(&vm.target.key);
    let to = |run: &Run| Next::Write {
        run: run.clone(),
        after: None,
    };
    if let Some(own) = vm.being_started() {
        return if there.is_some_and(|vmi| &*vmi.phase == "Running" && !vmi.deleting) {
            to(own)
        } else {
            Next::Coming
        };
    }
    match &vm.run_before {
        Some(before) if vm.run.is_off() && before.suffices() => to(before),
        // What still shuts down would pass for what was started, and end with its own word back.
        Some(_) if vm.run.is_off() && there.is_some() => Next::Coming,
        Some(before) if vm.run.is_off() => Next::Write {
            run: Run::started(),
            after: Some(before.clone()),
        },
        // A person has changed it since: their word stays, and the notes go.
        Some(_) => to(&vm.run),
        None if vm.run_after.is_some() => to(&vm.run),
        None => Next::Theirs,
    }
}

/// Whether a machine that is on record for a node is off for another one by now, whose work is under way: it was started once, went there, and
/// had to be stopped once more. It is that node's to start.
pub fn stopped_for_another(
    list: &RestoreList,
    statuses: &BTreeMap<String, NodeUpgradeStatus>,
    node: &NodeName,
    vm: &str,
) -> bool {
    let under_way = |name: &str| {
        let state = statuses.get(name).map(|status| status.state.parse());
        matches!(
            state,
            Some(Ok(State::PreDraining
                | State::PreDrained
                | State::PostDraining
                | State::WaitingReboot))
        )
    };
    let mut others = list.nodes.iter().filter(|(name, _)| name.as_str() != node.as_str());
    others.any(|(name, vms)| vms.contains(vm) && under_way(name))
}

/// The virtual machines that this upgrade has moved from a node, and that run elsewhere now.
pub fn moved_from<'a>(view: &'a View, upgrade: &'a Key, node: &'a NodeName) -> impl Iterator<Item = Key> + 'a {
    let errand = Errand {
        upgrade: upgrade.clone(),
        node: node.clone(),
    };
    view.hci.vmis.values().filter_map(move |vmi| {
        let key = &vmi.target.key;
        let elsewhere = vmi.alive() && vmi.node.as_ref().is_some_and(|at| at != node);
        let moves = numbered(view, key, &prefix(&errand, &key.name));
        let last = moves.iter().rev().find(|migration| &*migration.phase == "Succeeded")?;
        let ours = last.source.as_ref() == Some(node);
        // Whoever moved it after us wants it where it is.
        let later = |other: &Migration| &*other.phase == "Succeeded" && other.created_at > last.created_at;
        (elsewhere && ours && !of_vm(view, key).any(|other| later(other))).then(|| key.clone())
    })
}

/// Asks for the way back, a few at a time. One that does not come after some attempts stays where it is: it runs.
fn come_back(view: &View, errand: &Errand, now: Timestamp) -> Option<Look> {
    let upgrade = view.hci.upgrades.get(&errand.upgrade)?;
    if !config::migrate_back(upgrade).unwrap_or_default() || is_unheard(view, errand) {
        return None;
    }
    let (mut under_way, mut names, mut again) = (0, Vec::new(), None::<Timestamp>);
    let mut wanting = Vec::new();
    let job = job_of(view, errand, JobKind::RestoreVm).map(|job| &**job);
    for key in moved_from(view, &errand.upgrade, &errand.node) {
        let tried = since(job, numbered(view, &key, &back(errand, &key)));
        let failed = tried.iter().filter(|migration| &*migration.phase == "Failed").count();
        if failed >= ATTEMPTS {
            continue;
        }
        let rests = tried.iter().filter_map(|migration| rests_until(migration)).max();
        if active(view, &key).is_some() {
            under_way += 1;
            names.push(format!("{key} (on its way)"));
        } else if let Some(until) = rests.filter(|until| *until > now) {
            names.push(format!("{key} (tried again at {until:.0})"));
            again = Some(again.map_or(until, |other| other.min(until)));
        } else {
            names.push(key.to_string());
            wanting.push(key);
        }
    }
    if names.is_empty() {
        return None;
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let says = format!(
        "waits for virtual machines to come back to {}: {}",
        errand.node,
        some(&names)
    );
    let moves: Vec<TaskWrite> = wanting
        .into_iter()
        .take(AT_ONCE.saturating_sub(under_way))
        .map(|key| TaskWrite::Migrate {
            key: next_name(view, &key, &back(errand, &key)),
            vmi: key.name,
            to: Some(errand.node.clone()),
        })
        .collect();
    Some(if moves.is_empty() {
        Look::Wait { says, again }
    } else {
        Look::Write { what: moves, says }
    })
}

/// Whether the wish where a machine is to go was dropped: a KubeVirt before v1.6 does not know it, and takes the machine anywhere.
fn is_unheard(view: &View, errand: &Errand) -> bool {
    let dropped = |migration: &Seen<Migration>| {
        let key = &migration.target.key;
        let name = back(errand, &Key::new(&key.namespace, &migration.vmi));
        let numbered = key.name.strip_prefix(&*name).is_some_and(|rest| rest.starts_with('-'));
        numbered && migration.to.is_none()
    };
    view.hci.migrations.values().any(|migration| dropped(migration))
}

fn back(errand: &Errand, vm: &Key) -> String {
    format!("{}-back", prefix(errand, &vm.name))
}

//! Before Rancher drains a node: virtual machines leave it by migration, or are stopped where they cannot and are on record; nothing of
//! Longhorn is left on it that nobody uses. The order is upstream's (H46). Machines are moved by asking for each migration: upstream
//! relies on KubeVirt noticing the taint, which another controller may take away.

use std::sync::Arc;

use afloat_api::annotations;
use jiff::Timestamp;

use super::migrations::{
    AT_ONCE, ATTEMPTS, active, ends_until, is_ours, job_of, next_name, numbered, prefix, rests_until, since,
};
use super::{Errand, HostDone, HostWork, Look, is_ending, recorded, waits};
use crate::hci::action::{JobKind, TaskWrite};
use crate::hci::nodes::some;
use crate::hci::view::{Job, Migration, Seen, Vmi};
use crate::hci::{vms, volumes};
use crate::view::{Key, Node, Taint, TaintEffect, View};

/// One look of the Job that empties a node and does nothing else.
pub fn emptied(view: &View, errand: &Errand, host: &HostDone, now: Timestamp) -> Look {
    if is_ending(view, errand) {
        return ended(errand);
    }
    pre_drain(view, errand, host, now)
}

/// Nothing more is done: the Job is about to be deleted, and the node put back.
pub(super) fn ended(errand: &Errand) -> Look {
    waits(format!(
        "upgrade {} is being ended: nothing more is begun",
        errand.upgrade
    ))
}

/// One look at a node that is emptied.
pub fn pre_drain(view: &View, errand: &Errand, host: &HostDone, now: Timestamp) -> Look {
    let Some(node) = view.nodes.get(&errand.node) else {
        return Look::Failed {
            says: format!("node {} is gone", errand.node),
        };
    };
    if !host.contains(&HostWork::RecoverAgent) {
        return Look::Host(HostWork::RecoverAgent);
    }
    let steps = [storage, stop, taint, empty, budgets, detach];
    for step in steps {
        if let Some(look) = step(view, errand, node, now) {
            return look;
        }
    }
    for work in [HostWork::RemoveCanalConfig, HostWork::DisableCharts] {
        if !host.contains(&work) {
            return Look::Host(work);
        }
    }
    Look::Done {
        says: format!("node {} is empty", errand.node),
    }
}

/// Nothing moves while Longhorn has not what it needs to lose a node.
fn storage(view: &View, _: &Errand, _: &Node, _: Timestamp) -> Option<Look> {
    let names = volumes::not_whole(view);
    let says = || format!("waits for volumes that have not all their replicas: {}", some(&names));
    (!names.is_empty()).then(|| waits(says()))
}

/// Stops who cannot migrate, once that is on record.
fn stop(view: &View, errand: &Errand, _: &Node, _: Timestamp) -> Option<Look> {
    let list = recorded(view, errand);
    let on_record = list.as_ref().and_then(|list| list.nodes.get(errand.node.as_str()));
    let is_known = |vm: &Key| on_record.is_some_and(|known| known.contains(&vm.to_string()));
    let bound = vms::bound(view, &errand.node);
    let (known, unknown): (Vec<&vms::Bound>, Vec<&vms::Bound>) = bound.iter().partition(|bound| is_known(&bound.vm));
    let mut what = Vec::new();
    let mut names = Vec::new();
    for bound in known {
        let Some(vm) = view.hci.vms.get(&bound.vm).filter(|vm| !vm.run.is_off()) else {
            continue;
        };
        names.push(format!("{} ({})", bound.vm, bound.reasons()));
        what.push(TaskWrite::StopVm {
            vm: vm.target.clone(),
            off: vm.run.off(),
            before: vm.own_run().clone(),
        });
    }
    if !what.is_empty() {
        let says = format!("stops virtual machines that cannot be moved: {}", names.join(", "));
        return Some(Look::Write { what, says });
    }
    let missing: Vec<String> = unknown
        .iter()
        .filter(|bound| !bound.lacks_room_alone())
        .map(|bound| format!("{} ({})", bound.vm, bound.reasons()))
        .collect();
    let missing: Vec<&str> = missing.iter().map(String::as_str).collect();
    (!missing.is_empty()).then(|| {
        waits(format!(
            "waits until these can move, or are on record to be stopped: {}",
            some(&missing)
        ))
    })
}

/// Nobody new comes.
fn taint(_: &View, errand: &Errand, node: &Node, _: Timestamp) -> Option<Look> {
    let is_ours =
        |taint: &Taint| &*taint.key == annotations::KUBEVIRT_DRAIN_TAINT && taint.effect == TaintEffect::NoSchedule;
    if node.taints.iter().any(is_ours) {
        return None;
    }
    let ours = Taint {
        key: Arc::from(annotations::KUBEVIRT_DRAIN_TAINT),
        value: Arc::from(annotations::KUBEVIRT_DRAIN_TAINT_VALUE),
        effect: TaintEffect::NoSchedule,
    };
    let taints = node.taints.iter().cloned().chain([ours]).collect();
    Some(Look::Write {
        what: vec![TaskWrite::TaintForDrain {
            node: node.target(),
            taints,
        }],
        says: format!("keeps new virtual machines from {}", errand.node),
    })
}

/// What is found about those who are still there.
#[derive(Default)]
struct Leaving<'a> {
    under_way: usize,
    names: Vec<String>,
    again: Option<Timestamp>,
    wanting: Vec<&'a Key>,
    /// Migrations that did not end in time: to be noted, then to be cancelled.
    late: Vec<(&'a Key, &'a Seen<Migration>)>,
    cancel: Vec<TaskWrite>,
    gives_up: Option<String>,
}

impl Leaving<'_> {
    fn looks_at(&mut self, moment: Timestamp) {
        self.again = Some(self.again.map_or(moment, |other| other.min(moment)));
    }
}

/// Everybody who is still there moves, a few at a time.
fn empty(view: &View, errand: &Errand, _: &Node, now: Timestamp) -> Option<Look> {
    let there: Vec<&Arc<Seen<Vmi>>> = view.hci.vmis_on(&errand.node).filter(|vmi| !vmi.of_upgrade).collect();
    if there.is_empty() {
        return None;
    }
    let job = job_of(view, errand, JobKind::PreDrain).map(|job| &**job);
    let mut leaving = Leaving::default();
    for vmi in there {
        let key = &vmi.target.key;
        if view.hci.vms.get(key).is_some_and(|vm| vm.run.is_off()) {
            leaving.names.push(format!("{key} (is being stopped)"));
        } else if let Some(active) = active(view, key) {
            moving(&mut leaving, errand, job, vmi, active, now);
        } else {
            staying(&mut leaving, view, errand, job, key, now);
        }
    }
    if let Some(says) = leaving.gives_up {
        return Some(Look::Failed { says });
    }
    let names: Vec<&str> = leaving.names.iter().map(String::as_str).collect();
    let says = format!("waits for virtual machines to leave {}: {}", errand.node, some(&names));
    if let Some(job) = job.filter(|_| !leaving.late.is_empty()) {
        let mut all = job.cancelled.clone();
        for (vm, migration) in leaving.late {
            let uids = all.0.entry(vm.to_string()).or_default();
            uids.insert(migration.target.uid.clone());
        }
        let job = job.target.clone();
        let what = vec![TaskWrite::NoteCancelled { job, all }];
        return Some(Look::Write { what, says });
    }
    let free = AT_ONCE.saturating_sub(leaving.under_way);
    let moves = leaving.wanting.into_iter().take(free).map(|key| TaskWrite::Migrate {
        key: next_name(view, key, &prefix(errand, &key.name)),
        vmi: Arc::clone(&key.name),
        to: None,
    });
    let what: Vec<TaskWrite> = leaving.cancel.into_iter().chain(moves).collect();
    let again = leaving.again;
    Some(if what.is_empty() {
        Look::Wait { says, again }
    } else {
        Look::Write { what, says }
    })
}

/// One whose migration is under way: as long as it may be. One of somebody else's is left to them, and keeps nobody else from moving.
fn moving<'a>(
    leaving: &mut Leaving<'a>,
    errand: &Errand,
    job: Option<&Seen<Job>>,
    vmi: &'a Seen<Vmi>,
    migration: &'a Seen<Migration>,
    now: Timestamp,
) {
    let key = &vmi.target.key;
    let phase = if migration.phase.is_empty() {
        "Pending"
    } else {
        &*migration.phase
    };
    let until = ends_until(migration, Some(&vmi.what));
    let Some(late) = until.filter(|until| *until <= now) else {
        leaving.under_way += 1;
        let limit = until.map_or_else(String::new, |until| format!(", cancelled at {until:.0}"));
        leaving.names.push(format!("{key} (migration {phase}{limit})"));
        if let Some(until) = until {
            leaving.looks_at(until);
        }
        return;
    };
    let noted = job.is_some_and(|job| job.cancelled.has(key, &migration.target.uid));
    let ours = is_ours(migration, &prefix(errand, &key.name)) && job.is_some();
    if !ours {
        let migration = &migration.target.key;
        leaving.names.push(format!(
            "{key} (migration {} of somebody else's is {phase} and should have ended by {late:.0}; to cancel it: kubectl -n {} delete vmim {})",
            migration.name, migration.namespace, migration.name
        ));
        return;
    }
    leaving.under_way += 1;
    leaving.names.push(format!(
        "{key} (migration {phase}, not ended by {late:.0}: it is cancelled)"
    ));
    if !noted {
        leaving.late.push((key, migration));
    } else if !migration.deleting {
        let migration = migration.target.clone();
        leaving.cancel.push(TaskWrite::CancelMigration { migration });
    }
}

/// One that is not on its way: it has tries left, or has not.
fn staying<'a>(
    leaving: &mut Leaving<'a>,
    view: &View,
    errand: &Errand,
    job: Option<&Seen<Job>>,
    key: &'a Key,
    now: Timestamp,
) {
    let cancelled = job.map_or(0, |job| job.cancelled.count(key));
    let noted = |migration: &Seen<Migration>| job.is_some_and(|job| job.cancelled.has(key, &migration.target.uid));
    let mut tried = since(job, numbered(view, key, &prefix(errand, &key.name)));
    tried.retain(|migration| !noted(migration));
    let failed = tried.iter().filter(|migration| &*migration.phase == "Failed").count() + cancelled;
    if failed >= ATTEMPTS {
        let why = tried.iter().rev().find_map(|migration| migration.message.as_deref());
        let why = why.unwrap_or(if cancelled > 0 {
            "it did not end in time, and was cancelled"
        } else {
            "KubeVirt does not say why"
        });
        leaving.gives_up = Some(format!(
            "virtual machine {key} does not leave: {failed} migrations failed, the last one because {why}. Move or stop it (virtctl migrate \
             {name} -n {namespace}, or virtctl stop), then: afloat resume {upgrade}",
            name = key.name,
            namespace = key.namespace,
            upgrade = errand.upgrade.name,
        ));
        return;
    }
    let rests = tried.iter().filter_map(|migration| rests_until(migration)).max();
    if let Some(until) = rests.filter(|until| *until > now) {
        leaving.names.push(format!(
            "{key} (migration failed {failed} of {ATTEMPTS} times, tried again at {until:.0})"
        ));
        leaving.looks_at(until);
    } else {
        leaving.names.push(format!("{key} (waits for its migration)"));
        leaving.wanting.push(key);
    }
}

/// Budgets of migrations would keep Rancher's drain waiting.
fn budgets(view: &View, errand: &Errand, _: &Node, _: Timestamp) -> Option<Look> {
    let names = vms::evacuation_budgets(view, &errand.node);
    let says = || format!("waits until the budgets of migrations are gone: {}", some(&names));
    (!names.is_empty()).then(|| waits(says()))
}

/// Volumes that nobody uses go (H43); the others are the drain's part.
fn detach(view: &View, errand: &Errand, _: &Node, _: Timestamp) -> Option<Look> {
    let unused: Vec<_> = volumes::unused_on(view, &errand.node).collect();
    let wanted: Vec<_> = unused.iter().filter(|volume| volume.wanted.is_some()).collect();
    if !wanted.is_empty() {
        let names: Vec<&str> = wanted.iter().map(|volume| &*volume.target.key.name).collect();
        let says = format!("detaches volumes that nobody uses: {}", some(&names));
        let what = wanted.iter().map(|volume| TaskWrite::DetachVolume {
            volume: volume.target.clone(),
        });
        return Some(Look::Write {
            what: what.collect(),
            says,
        });
    }
    let names: Vec<String> = unused
        .iter()
        .map(|volume| volumes::why_attached(view, volume))
        .collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    (!names.is_empty()).then(|| waits(format!("waits until these volumes are detached: {}", some(&names))))
}

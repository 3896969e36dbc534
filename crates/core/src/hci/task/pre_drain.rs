//! Before Rancher drains a node: virtual machines leave it by migration, or are stopped where they cannot and are on record; nothing of
//! Longhorn is left on it that nobody uses. The order is upstream's (H46). Machines are moved by asking for each migration: upstream
//! relies on KubeVirt noticing the taint, which another controller may take away.

use std::sync::Arc;

use afloat_api::annotations;
use jiff::Timestamp;

use super::migrations::{AT_ONCE, ATTEMPTS, active, job_of, next_name, numbered, prefix, rests_until, since};
use super::{Errand, HostDone, HostWork, Look, is_ending, recorded, waits};
use crate::hci::action::{JobKind, TaskWrite};
use crate::hci::nodes::some;
use crate::hci::view::{Seen, Vmi};
use crate::hci::{vms, volumes};
use crate::view::{Key, Node, Taint, TaintEffect, View};

/// What KubeVirt calls the budgets that guard a machine while it moves.
const EVACUATION_BUDGET: &str = "kubevirt-migration-pdb-";
/// Hosts from which on all replicas of a volume can be whole while one host is away.
const HOSTS_FOR_REDUNDANCY: usize = 3;

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
    let names: Vec<&str> = if vms::hosts(view).count() >= HOSTS_FOR_REDUNDANCY {
        volumes::degraded(view).map(|volume| &*volume.target.key.name).collect()
    } else {
        let broken = view
            .hci
            .engines
            .values()
            .filter(|engine| engine.running && engine.whole == 0);
        broken.map(|engine| &*engine.volume).collect()
    };
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
            before: vm.run.clone(),
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

/// Everybody who is still there moves, a few at a time.
fn empty(view: &View, errand: &Errand, _: &Node, now: Timestamp) -> Option<Look> {
    let there: Vec<&Arc<Seen<Vmi>>> = view.hci.vmis_on(&errand.node).filter(|vmi| !vmi.of_upgrade).collect();
    if there.is_empty() {
        return None;
    }
    let mut moves = Vec::new();
    let (mut under_way, mut names, mut again) = (0, Vec::new(), None::<Timestamp>);
    let mut wanting: Vec<&Key> = Vec::new();
    let job = job_of(view, errand, JobKind::PreDrain).map(|job| &**job);
    for vmi in there {
        let key = &vmi.target.key;
        let stopping = view.hci.vms.get(key).is_some_and(|vm| vm.run.is_off());
        let tried = since(job, numbered(view, key, &prefix(errand, &key.name)));
        let failed = tried.iter().filter(|migration| &*migration.phase == "Failed").count();
        if stopping {
            names.push(format!("{key} (is being stopped)"));
        } else if let Some(active) = active(view, key) {
            under_way += 1;
            let phase = if active.phase.is_empty() {
                "Pending"
            } else {
                &*active.phase
            };
            names.push(format!("{key} (migration {phase})"));
        } else if failed >= ATTEMPTS {
            let why = tried.iter().rev().find_map(|migration| migration.message.as_deref());
            return Some(Look::Failed {
                says: format!(
                    "virtual machine {key} does not leave: {failed} migrations failed, the last one because {}. Move or stop it \
                     (virtctl migrate {name} -n {namespace}, or virtctl stop), then: afloat resume {upgrade}",
                    why.unwrap_or("KubeVirt does not say why"),
                    name = key.name,
                    namespace = key.namespace,
                    upgrade = errand.upgrade.name,
                ),
            });
        } else if let Some(until) = tried
            .iter()
            .filter_map(|migration| rests_until(migration))
            .max()
            .filter(|until| *until > now)
        {
            names.push(format!(
                "{key} (migration failed {failed} of {ATTEMPTS} times, tried again at {until:.0})"
            ));
            again = Some(again.map_or(until, |other| other.min(until)));
        } else {
            names.push(format!("{key} (waits for its migration)"));
            wanting.push(key);
        }
    }
    for key in wanting.into_iter().take(AT_ONCE.saturating_sub(under_way)) {
        moves.push(TaskWrite::Migrate {
            key: next_name(view, key, &prefix(errand, &key.name)),
            vmi: Arc::clone(&key.name),
            to: None,
        });
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let says = format!("waits for virtual machines to leave {}: {}", errand.node, some(&names));
    Some(if moves.is_empty() {
        Look::Wait { says, again }
    } else {
        Look::Write { what: moves, says }
    })
}

/// Budgets of migrations would keep Rancher's drain waiting.
fn budgets(view: &View, _: &Errand, _: &Node, _: Timestamp) -> Option<Look> {
    let names: Vec<&str> = view
        .budgets
        .keys()
        .filter(|key| key.name.starts_with(EVACUATION_BUDGET))
        .map(|key| &*key.name)
        .collect();
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
    let names: Vec<String> = unused.iter().map(|volume| volumes::why_attached(volume)).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    (!names.is_empty()).then(|| waits(format!("waits until these volumes are detached: {}", some(&names))))
}

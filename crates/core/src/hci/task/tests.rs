//! Tasks, look by look: the order of upstream's work before a drain, everything bounded, nobody stopped who is not on record, and a run
//! that begins anew at any look.

use std::collections::BTreeSet;
use std::sync::Arc;

use afloat_api::annotations;
use jiff::Timestamp;

use super::*;
use crate::hci::tests::world::World;
use crate::hci::view::{Engine, HciObject, Migration, RestoreList, Run, Vm, Vmi, Volume};
use crate::view::{NodeName, PodBudget, Revision, Selector, Uid};

pub(super) const NODE: &str = "node-1";

pub(super) fn errand() -> Errand {
    Errand {
        upgrade: World::key(),
        node: NodeName::from(NODE),
    }
}

pub(super) fn now() -> Timestamp {
    "2026-11-15T12:00:00Z".parse().unwrap()
}

/// All host work done.
fn host() -> HostDone {
    [
        HostWork::RecoverAgent,
        HostWork::RemoveCanalConfig,
        HostWork::DisableCharts,
    ]
    .into()
}

fn look(world: &World) -> Look {
    pre_drain(&world.view, &errand(), &host(), now())
}

fn written(look: Look) -> Vec<TaskWrite> {
    match look {
        Look::Write { what, .. } => what,
        other => panic!("{other:?}"),
    }
}

fn runs(world: &mut World, name: &str, run: Run) {
    let vm = Vm { run, ..Vm::default() };
    world.take("shop", name, vm, HciObject::Vm);
}

fn record(world: &mut World, vms: &[&str]) {
    let names: BTreeSet<String> = vms.iter().map(|name| format!("shop/{name}")).collect();
    let list = RestoreList {
        nodes: [(NODE.to_owned(), names)].into(),
        ..RestoreList::default()
    };
    let name = format!("{}-restore-vm", World::key().name);
    world.take("harvester-system", &name, list, HciObject::RestoreList);
}

fn migration(world: &mut World, attempt: usize, phase: &str, why: Option<&str>) {
    let migration = Migration {
        vmi: Arc::from("web"),
        phase: Arc::from(phase),
        to: None,
        source: Some(NodeName::from(NODE)),
        message: why.map(Arc::from),
        created_at: Some(now()),
        ended_at: None,
    };
    let name = format!("{}-web-{attempt}", World::key().name);
    world.take("shop", &name, migration, HciObject::Migration);
}

#[test]
fn h46_the_host_comes_first_and_last() {
    let mut world = World::new(3);
    world.taint(NODE);
    let mut done = HostDone::new();
    let mut order = Vec::new();
    for _ in 0..4 {
        match pre_drain(&world.view, &errand(), &done, now()) {
            Look::Host(work) => {
                order.push(work);
                done.insert(work);
            }
            other => assert!(matches!(other, Look::Done { .. }), "{other:?}"),
        }
    }
    assert_eq!(
        order,
        [
            HostWork::RecoverAgent,
            HostWork::RemoveCanalConfig,
            HostWork::DisableCharts
        ]
    );
}

/// Objects may have longer names than labels: the list is found where it was written, whatever the length of the Upgrade's.
#[test]
fn h27_the_list_of_an_upgrade_with_a_long_name_is_found() {
    for length in [40, 52, 53, 63] {
        let mut world = World::new(3);
        world.start();
        let upgrade = Key::new("harvester-system", &"u".repeat(length));
        let seen = world.view.hci.upgrades.remove(&World::key()).unwrap();
        world.view.hci.upgrades.insert(upgrade.clone(), seen);
        world.taint(NODE);
        world.add_vm("gpu", NODE, |vmi| vmi.host_devices = true);
        runs(&mut world, "gpu", Run::Switch(true));
        let list = RestoreList {
            nodes: [(NODE.to_owned(), ["shop/gpu".to_owned()].into())].into(),
            ..RestoreList::default()
        };
        let name = format!("{}-restore-vm", upgrade.name);
        world.take("harvester-system", &name, list, HciObject::RestoreList);
        let errand = Errand { upgrade, ..errand() };
        let look = pre_drain(&world.view, &errand, &host(), now());
        assert!(matches!(look, Look::Write { .. }), "{length}: {look:?}");
    }
}

#[test]
fn h46_nothing_moves_while_volumes_are_being_rebuilt() {
    let mut world = World::new(3);
    world.add_vm("web", NODE, |_| {});
    let degraded = Volume {
        state: Arc::from("attached"),
        robustness: Arc::from("degraded"),
        ..Volume::default()
    };
    world.take("longhorn-system", "pvc-7", degraded, HciObject::Volume);
    let look = look(&world);
    assert!(matches!(look, Look::Wait { .. }));
    assert!(look.words().contains("pvc-7"), "{look:?}");
}

#[test]
fn h46_on_two_nodes_nothing_moves_while_one_replica_alone_is_whole() {
    for (replicas, whole, waits) in [(3, 1, true), (3, 2, false), (1, 1, false), (1, 0, true)] {
        let mut world = World::new(2);
        world.add_vm("web", NODE, |_| {});
        let volume = Volume {
            state: Arc::from("attached"),
            robustness: Arc::from("degraded"),
            replicas,
            ..Volume::default()
        };
        world.take("longhorn-system", "pvc-7", volume, HciObject::Volume);
        let engine = Engine {
            volume: Arc::from("pvc-7"),
            running: true,
            whole,
            ..Engine::default()
        };
        world.take("longhorn-system", "pvc-7-e-0", engine, HciObject::Engine);
        let look = look(&world);
        let held = look.words().contains("all their replicas: pvc-7");
        assert_eq!(held, waits, "{whole} of {replicas}: {look:?}");
    }
}

#[test]
fn h27_whoever_cannot_move_is_stopped_only_once_on_record() {
    let mut world = World::new(3);
    world.add_vm("gpu", NODE, |vmi| vmi.host_devices = true);
    runs(&mut world, "gpu", Run::Strategy(Arc::from("RerunOnFailure")));
    let before = look(&world);
    assert!(matches!(before, Look::Wait { .. }), "{before:?}");
    assert!(
        before.words().contains("shop/gpu (it uses a device of its host)"),
        "{before:?}"
    );
    record(&mut world, &["gpu"]);
    let stops = written(look(&world));
    let TaskWrite::StopVm { vm, off, before } = &stops[0] else {
        panic!("{stops:?}");
    };
    assert_eq!((stops.len(), vm.key.to_string().as_str()), (1, "shop/gpu"));
    assert_eq!(off.to_text(), "Halted");
    assert_eq!(before.to_text(), "RerunOnFailure", "how it was to run is not lost");
}

#[test]
fn h29_the_taint_comes_before_the_first_migration_and_keeps_other_taints() {
    let mut world = World::new(3);
    world.add_vm("web", NODE, |_| {});
    runs(&mut world, "web", Run::Switch(true));
    let tainted = written(look(&world));
    let TaskWrite::TaintForDrain { taints, .. } = &tainted[0] else {
        panic!("{tainted:?}");
    };
    assert!(
        taints
            .iter()
            .any(|taint| &*taint.key == annotations::KUBEVIRT_DRAIN_TAINT)
    );
    world.taint(NODE);
    let moves = written(look(&world));
    assert!(
        matches!(&moves[0], TaskWrite::Migrate { vmi, .. } if &**vmi == "web"),
        "{moves:?}"
    );
}

#[test]
fn h22_machines_move_two_at_a_time() {
    let mut world = World::new(3);
    world.taint(NODE);
    for name in ["a", "b", "c", "web"] {
        world.add_vm(name, NODE, |_| {});
        runs(&mut world, name, Run::Switch(true));
    }
    assert_eq!(written(look(&world)).len(), 2);
    migration(&mut world, 1, "Running", None);
    let moves = written(look(&world));
    assert_eq!(moves.len(), 1, "one is under way");
    assert!(!matches!(&moves[0], TaskWrite::Migrate { vmi, .. } if &**vmi == "web"));
}

#[test]
fn a_migration_that_fails_is_tried_again_later_and_not_for_ever() {
    let mut world = World::new(3);
    world.taint(NODE);
    world.add_vm("web", NODE, |_| {});
    runs(&mut world, "web", Run::Switch(true));
    migration(&mut world, 1, "Failed", Some("the target ran out of memory"));
    let rests = look(&world);
    let Look::Wait { again: Some(again), .. } = rests else {
        panic!("{rests:?}");
    };
    let moves = written(pre_drain(&world.view, &errand(), &host(), again));
    let TaskWrite::Migrate { key, .. } = &moves[0] else {
        panic!("{moves:?}");
    };
    assert!(key.name.ends_with("-web-2"), "{key}");
    for attempt in [2, 3] {
        migration(&mut world, attempt, "Failed", Some("the target ran out of memory"));
    }
    let gives_up = look(&world);
    assert!(matches!(gives_up, Look::Failed { .. }), "{gives_up:?}");
    for word in ["shop/web", "the target ran out of memory", "afloat resume"] {
        assert!(gives_up.words().contains(word), "{word}: {gives_up:?}");
    }
}

#[test]
fn a_migration_that_a_person_began_counts() {
    let mut world = World::new(3);
    world.taint(NODE);
    world.add_vm("web", NODE, |_| {});
    let theirs = Migration {
        vmi: Arc::from("web"),
        phase: Arc::from("Scheduling"),
        ..Migration::default()
    };
    world.take("shop", "by-hand", theirs, HciObject::Migration);
    let waits = look(&world);
    assert!(matches!(&waits, Look::Wait { .. }), "{waits:?}");
    assert!(waits.words().contains("shop/web (migration Scheduling)"), "{waits:?}");
}

#[test]
fn h46_budgets_of_migrations_are_waited_for_by_name() {
    let mut world = World::new(3);
    world.taint(NODE);
    let key = Key::new("shop", "kubevirt-migration-pdb-x7");
    let budget = PodBudget {
        key: key.clone(),
        uid: Uid::from("u-pdb"),
        revision: Revision(7),
        selector: Selector::default(),
        up_to_date: true,
        disruptions_allowed: 0,
        current_healthy: 2,
        desired_healthy: 2,
        expected_pods: 2,
        unhealthy_may_go: false,
    };
    world.view.budgets.insert(key, Arc::new(budget));
    for (source, waits) in [("node-2", false), (NODE, true)] {
        let leaving = Migration {
            vmi: Arc::from("web"),
            phase: Arc::from("Succeeded"),
            source: Some(NodeName::from(source)),
            ..Migration::default()
        };
        world.take("shop", "x7", leaving, HciObject::Migration);
        let named = look(&world).words().contains("kubevirt-migration-pdb-x7");
        assert_eq!(named, waits, "that of a machine that left {source}");
        let (_, told) = crate::hci::waits::emptying(&world.view, &world.node(NODE));
        assert_eq!(told.contains("kubevirt-migration-pdb-x7"), waits, "{told}");
    }
}

#[test]
fn h43_unused_volumes_are_detached_and_then_waited_for() {
    let mut world = World::new(3);
    world.taint(NODE);
    let mut volume = Volume {
        state: Arc::from("attached"),
        robustness: Arc::from("healthy"),
        node: Some(NodeName::from(NODE)),
        wanted: Some(NodeName::from(NODE)),
        ..Volume::default()
    };
    world.take("longhorn-system", "idle", volume.clone(), HciObject::Volume);
    let used = Volume {
        users: vec![Arc::from("virt-launcher-web")],
        ..volume.clone()
    };
    world.take("longhorn-system", "used", used, HciObject::Volume);
    let detached = written(look(&world));
    assert!(
        matches!(detached.as_slice(), [TaskWrite::DetachVolume { volume }] if &*volume.key.name == "idle"),
        "{detached:?}"
    );
    volume.wanted = None;
    world.take("longhorn-system", "idle", volume, HciObject::Volume);
    assert!(
        look(&world)
            .words()
            .contains("waits until these volumes are detached: idle")
    );
}

#[test]
fn h22_whoever_was_stopped_runs_again_as_before_and_others_are_left_alone() {
    let mut world = World::new(3);
    record(&mut world, &["started", "gone", "by-us", "by-a-person"]);
    let vm = |run: &str, before: Option<&str>| Vm {
        run: Run::from_text(run),
        run_before: before.map(Run::from_text),
        ..Vm::default()
    };
    world.take("shop", "started", vm("Always", None), HciObject::Vm);
    world.take(
        "shop",
        "by-us",
        vm("running=false", Some("running=true")),
        HciObject::Vm,
    );
    world.take("shop", "by-a-person", vm("Halted", None), HciObject::Vm);
    let starts = written(restore_vm(&world.view, &errand(), &HostDone::new(), now()));
    let [TaskWrite::StartVm { vm: target, run, .. }] = starts.as_slice() else {
        panic!("{starts:?}");
    };
    assert_eq!(target.key.to_string(), "shop/by-us");
    assert_eq!(*run, Run::Switch(true));
    world.take("shop", "by-us", vm("running=true", None), HciObject::Vm);
    let done = restore_vm(&world.view, &errand(), &HostDone::new(), now());
    assert!(matches!(done, Look::Done { .. }));
    assert!(done.words().contains("shop/gone"), "{done:?}");
}

#[test]
fn h22_whoever_its_own_word_does_not_start_is_started_by_another_until_it_runs() {
    for (own, started) in [
        ("Manual", "Always"),
        ("RerunOnFailure", "Always"),
        ("Once", "Once"),
        ("running=true", "running=true"),
    ] {
        let mut world = World::new(3);
        record(&mut world, &["db"]);
        let key = Key::new("shop", "db");
        world.add_vm("db", NODE, |_| {});
        noted(&mut world, "Halted", Some(own), None);
        if own != started {
            let waits = restored(&world);
            assert_eq!(waits.words(), "waits until these run again: shop/db", "it shuts down");
        }
        world.remove_vmi("db");
        let after = (own != started).then_some(own);
        assert_eq!(start_of(&world), (started.to_owned(), after.map(str::to_owned)));
        noted(&mut world, started, None, after);
        if own != started {
            for phase in ["", "Scheduling", "Running"] {
                let waits = restored(&world);
                assert_eq!(waits.words(), "waits until these run again: shop/db", "{own}");
                assert!(
                    world.view.hci.vms[&key].is_stopped(),
                    "{own}: it is named, whoever ends now"
                );
                let vmi = Vmi {
                    phase: phase.into(),
                    ..Vmi::default()
                };
                world.take("shop", "db", vmi, HciObject::Vmi);
            }
            let vmi = |world: &mut World, deleting| {
                let vmi = world.view.hci.vmis.get_mut(&key).unwrap();
                Arc::make_mut(vmi).deleting = deleting;
            };
            vmi(&mut world, true);
            assert!(matches!(restored(&world), Look::Wait { .. }), "{own}: it restarts");
            vmi(&mut world, false);
            assert_eq!(start_of(&world), (own.to_owned(), None));
            noted(&mut world, own, None, None);
        }
        assert!(matches!(restored(&world), Look::Done { .. }), "{own}");
    }
}

#[test]
fn h22_a_person_has_the_last_word_and_no_note_is_left() {
    for (run, before, after) in [
        ("Always", Some("Manual"), None),
        ("Manual", Some("Manual"), None),
        ("RerunOnFailure", None, Some("Manual")),
        ("Manual", None, Some("Manual")),
        ("Halted", None, Some("Manual")),
    ] {
        let mut world = World::new(3);
        record(&mut world, &["db"]);
        noted(&mut world, run, before, after);
        assert!(!world.view.hci.vms[&Key::new("shop", "db")].is_stopped(), "{run}");
        assert_eq!(start_of(&world), (run.to_owned(), None), "{before:?} {after:?}");
    }
}

#[test]
fn h27_whoever_is_stopped_once_more_while_being_started_keeps_its_own_word() {
    for (after, own) in [(Some("Manual"), "Manual"), (None, "Always")] {
        let mut world = World::new(3);
        world.add_vm("db", NODE, |vmi| vmi.host_devices = true);
        record(&mut world, &["db"]);
        noted(&mut world, "Always", None, after);
        let stops = written(look(&world));
        let [TaskWrite::StopVm { before, .. }] = stops.as_slice() else {
            panic!("{stops:?}");
        };
        assert_eq!(before.to_text(), own);
    }
}

/// A virtual machine as it is to run, with the notes of tasks.
fn noted(world: &mut World, run: &str, before: Option<&str>, after: Option<&str>) {
    let vm = Vm {
        run: Run::from_text(run),
        run_before: before.map(Run::from_text),
        run_after: after.map(Run::from_text),
        ..Vm::default()
    };
    world.take("shop", "db", vm, HciObject::Vm);
}

/// The one start that is written, and what is noted with it.
fn start_of(world: &World) -> (String, Option<String>) {
    let starts = written(restored(world));
    let [TaskWrite::StartVm { run, after, .. }] = starts.as_slice() else {
        panic!("{starts:?}");
    };
    (run.to_text(), after.as_ref().map(Run::to_text))
}

/// It was started for the node, went to the next one, and is off once more for that one.
#[test]
fn h22_whoever_is_off_for_another_node_by_now_is_that_nodes_to_start() {
    let mut world = World::new(3);
    world.start();
    let vm = Vm {
        run: Run::from_text("Halted"),
        run_before: Some(Run::from_text("Always")),
        ..Vm::default()
    };
    world.take("shop", "gpu", vm, HciObject::Vm);
    let names: BTreeSet<String> = ["shop/gpu".to_owned()].into();
    let list = RestoreList {
        nodes: [(NODE.to_owned(), names.clone()), ("node-2".to_owned(), names)].into(),
        ..RestoreList::default()
    };
    let name = format!("{}-restore-vm", World::key().name);
    world.take("harvester-system", &name, list, HciObject::RestoreList);
    for (state, starts) in [
        ("Pre-draining", false),
        ("Waiting Reboot", false),
        ("Succeeded", true),
        ("Failed", true),
    ] {
        world.change_upgrade(|upgrade| {
            let statuses = &mut upgrade.status.get_or_insert_default().node_statuses;
            statuses.entry("node-2".to_owned()).or_default().state = state.to_owned();
        });
        let look = restore_vm(&world.view, &errand(), &HostDone::new(), now());
        assert_eq!(matches!(look, Look::Write { .. }), starts, "{state}: {look:?}");
    }
}

/// `web` was moved from the node by the upgrade and runs on another one.
fn moved() -> World {
    let mut world = World::new(3);
    world.start_with(&[(annotations::MIGRATE_BACK, "true")]);
    world.add_vm("web", "node-2", |_| {});
    runs(&mut world, "web", Run::Switch(true));
    migration(&mut world, 1, "Succeeded", None);
    world
}

fn restored(world: &World) -> Look {
    restore_vm(&world.view, &errand(), &HostDone::new(), now())
}

fn comes_back(world: &mut World, attempt: usize, phase: &str) {
    let migration = Migration {
        vmi: Arc::from("web"),
        phase: Arc::from(phase),
        source: Some(NodeName::from("node-2")),
        to: Some(NodeName::from(NODE)),
        created_at: Some(now()),
        ..Migration::default()
    };
    let name = format!("{}-web-back-{attempt}", World::key().name);
    world.take("shop", &name, migration, HciObject::Migration);
}

#[test]
fn h22_whoever_was_moved_comes_back_where_that_is_asked_for() {
    let mut world = moved();
    let moves = written(restored(&world));
    let [TaskWrite::Migrate { key, vmi, to }] = moves.as_slice() else {
        panic!("{moves:?}");
    };
    assert_eq!((&**vmi, to.as_ref().map(NodeName::as_str)), ("web", Some(NODE)));
    assert!(key.name.ends_with("-web-back-1"), "{key}");
    comes_back(&mut world, 1, "Running");
    let waits = restored(&world);
    assert!(waits.words().contains("shop/web (on its way)"), "{waits:?}");
    comes_back(&mut world, 1, "Succeeded");
    world.add_vm("web", NODE, |_| {});
    assert!(matches!(restored(&world), Look::Done { .. }));
}

#[test]
fn h22_nobody_comes_back_unasked_or_against_a_persons_will_or_for_ever() {
    let mut unasked = moved();
    unasked.start();
    let mut by_a_person = moved();
    let theirs = Migration {
        vmi: Arc::from("web"),
        phase: Arc::from("Succeeded"),
        created_at: Some(now() + jiff::SignedDuration::from_secs(60)),
        ..Migration::default()
    };
    by_a_person.take("shop", "by-hand", theirs, HciObject::Migration);
    let mut tried = moved();
    for attempt in 1..=3 {
        comes_back(&mut tried, attempt, "Failed");
    }
    for (why, world) in [
        ("unasked", unasked),
        ("moved by a person", by_a_person),
        ("tried", tried),
    ] {
        let end = restored(&world);
        assert!(matches!(end, Look::Done { .. }), "{why}: {end:?}");
    }
}

#[test]
fn h22_nobody_is_moved_on_by_a_kubevirt_that_does_not_hear_where_to() {
    let mut world = moved();
    comes_back(&mut world, 1, "Failed");
    let name = Key::new("shop", &format!("{}-web-back-1", World::key().name));
    let mut unheard = world.view.hci.migrations[&name].what.clone();
    (unheard.to, unheard.ended_at) = (None, Some(now() - jiff::SignedDuration::from_hours(1)));
    world.take("shop", &name.name, unheard, HciObject::Migration);
    let end = restored(&world);
    assert!(matches!(end, Look::Done { .. }), "{end:?}");
    assert!(
        end.words().contains("cannot be told where a machine is to go"),
        "{end:?}"
    );
}

#[test]
fn a_node_that_is_gone_ends_the_task() {
    let world = World::new(3);
    let nobody = Errand {
        node: NodeName::from("node-9"),
        ..errand()
    };
    let ended = pre_drain(&world.view, &nobody, &host(), now());
    assert!(ended.words().contains("node-9 is gone"), "{ended:?}");
}

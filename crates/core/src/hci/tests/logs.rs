//! Logs are collected while an upgrade goes on and not after, and asked for again where somebody ended before they were.

use super::world::{COLLECTING, NAME, World};
use crate::hci::action::JobKind;
use crate::hci::view::{HciKind, HciObject, Upstream};
use crate::view::Key;

const STARTED: &[(&str, &str)] = &[("Started", "True")];

fn key() -> Key {
    Key::new("harvester-system", &format!("{NAME}-upgradelog"))
}

/// What is said to a log's controller.
fn said(world: &World) -> Option<(bool, bool)> {
    let log = world.view.hci.logs.get(&key())?;
    Some((log.started(), log.stopped()))
}

/// A person creates an Upgrade that wants logs.
fn start(world: &mut World) {
    world.start();
    world.change_upgrade(|upgrade| upgrade.spec.log_enabled = true);
}

#[test]
fn h41_a_log_that_could_not_be_made_is_asked_for_again_in_time_and_then_said() {
    let mut world = World::new(3);
    world.log = &[];
    start(&mut world);
    world.settle();
    let lost = |world: &mut World| world.view.hci.remove(HciKind::UpgradeLog, &key());
    assert!(lost(&mut world), "it was made");
    world.settle();
    assert!(lost(&mut world), "and is made again by whoever comes after a crash");
    world.pass(6);
    world.settle();
    let (status, message) = world.condition("LogReady");
    assert_eq!(status, "False");
    assert!(message.contains("could not be made within 5 minutes"), "{message}");
    assert!(!lost(&mut world), "not after its time");
    world.reach_nodes();
}

#[test]
fn h41_a_log_that_never_starts_is_told_apart_from_one_that_is_not_there() {
    let mut world = World::new(3);
    world.log = &[];
    start(&mut world);
    world.settle();
    world.pass(6);
    world.settle();
    let (_, message) = world.condition("LogReady");
    assert!(message.contains("did not start within 5 minutes"), "{message}");
}

fn finish(world: &mut World) {
    world.reach_nodes();
    for node in ["node-1", "node-2", "node-3"] {
        world.take_through(node);
    }
    world.clean_up();
}

#[test]
fn rule_7_the_collecting_of_logs_ends_with_the_upgrade_however_that_ends() {
    for end in ["Succeeded", "Failed", "aborted"] {
        let mut world = World::new(3);
        start(&mut world);
        world.settle();
        assert_eq!(said(&world), Some((true, false)), "{end}");
        match end {
            "Succeeded" => finish(&mut world),
            "Failed" => {
                world.preload();
                world.fail(JobKind::ApplyManifests, None, "helm");
            }
            _ => {
                world.annotate("afloat.dev/abort", "true");
                world.settle();
            }
        }
        assert!(crate::hci::over(&world.upgrade()), "{end}: {:?}", world.decide());
        assert_eq!(said(&world), Some((true, true)), "{end}");
        assert_eq!(world.upgrade().status.unwrap().upgrade_log, &*key().name, "{end}");
        assert!(world.decide().actions.is_empty(), "{end}");
    }
}

#[test]
fn rule_7_a_log_that_never_started_goes_and_one_that_starts_late_is_stopped() {
    // Harvester's controller heeds no `Stopped` before it collects, then or later.
    for (says, left) in [(&[][..], None), (COLLECTING, Some((true, true)))] {
        let mut world = World::new(3);
        world.log = &[];
        start(&mut world);
        world.settle();
        world.pass(6);
        world.settle();
        assert_eq!(world.condition("LogReady").0, "False");
        world.put_log(&key().name, says);
        finish(&mut world);
        assert!(crate::hci::over(&world.upgrade()));
        assert_eq!(said(&world), left, "{says:?}");
    }
}

#[test]
fn a_log_that_is_just_starting_when_its_upgrade_ends_is_stopped_once_that_is_heeded() {
    let mut world = World::new(3);
    world.log = STARTED;
    start(&mut world);
    finish(&mut world);
    assert!(crate::hci::over(&world.upgrade()), "nobody waits for it");
    assert_eq!(said(&world), Some((true, false)));
    let affected = |world: &World| crate::affected(&world.view, &crate::Changed::Hci(HciKind::UpgradeLog));
    assert!(affected(&world).is_empty());
    world.put_log(&key().name, COLLECTING);
    assert!(!affected(&world).is_empty());
    world.settle();
    assert_eq!(said(&world), Some((true, true)));
    assert!(affected(&world).is_empty());
}

#[test]
fn logs_that_a_person_has_dismissed_are_deleted_once_the_upgrade_is_over() {
    let mut world = World::new(3);
    start(&mut world);
    world.settle();
    world.change_upgrade(|upgrade| {
        let labels = upgrade.metadata.labels.get_or_insert_default();
        labels.insert("harvesterhci.io/read-message".to_owned(), "true".to_owned());
    });
    world.settle();
    assert!(said(&world).is_some(), "it is under way");
    finish(&mut world);
    assert_eq!(said(&world), None);
    let dismissed = |world: &World| world.upgrade().status.unwrap().upgrade_log.is_empty();
    assert!(crate::hci::over(&world.upgrade()));
    assert!(dismissed(&world));
    assert!(world.decide().actions.is_empty());

    let mut world = World::new(3);
    start(&mut world);
    finish(&mut world);
    assert!(!dismissed(&world));
    world.change_upgrade(|upgrade| {
        let labels = upgrade.metadata.labels.get_or_insert_default();
        labels.insert("harvesterhci.io/read-message".to_owned(), "true".to_owned());
    });
    assert!(crate::hci::lingers(&world.view, &world.upgrade()));
    world.settle();
    assert_eq!((said(&world), dismissed(&world)), (None, true));
}

#[test]
fn logs_of_an_upgrade_of_harvesters_own_controller_are_left_to_it() {
    let mut world = World::new(3);
    start(&mut world);
    finish(&mut world);
    world.put_log(&key().name, COLLECTING);
    assert!(crate::hci::lingers(&world.view, &world.upgrade()));
    let running = Upstream {
        replicas: 3,
        ..Upstream::default()
    };
    world.take("harvester-system", "harvester", running, HciObject::Upstream);
    assert!(!crate::hci::lingers(&world.view, &world.upgrade()));
}

#[test]
fn the_logs_of_an_upgrade_that_was_resumed_are_waited_for_anew_where_they_had_not_begun() {
    let mut world = World::new(3);
    world.log = &[];
    start(&mut world);
    world.settle();
    world.annotate("afloat.dev/abort", "true");
    world.settle();
    assert_eq!(said(&world), None, "it held nothing");
    world.pass(60);
    world.log = COLLECTING;
    world.annotate("afloat.dev/wish", "resume");
    world.settle();
    assert_eq!(world.condition("LogReady").0, "True");
    assert_eq!(said(&world), Some((true, false)));
}

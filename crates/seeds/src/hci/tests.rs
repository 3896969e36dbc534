use std::sync::Arc;

use afloat_api::harvester::Upgrade;
use afloat_core::Changed;
use afloat_core::hci::action::HciAction;
use afloat_core::hci::view::{HciKind, HciObject, Seen};
use afloat_core::view::View;
use afloat_scenes::{Deed, HciScenario};

use super::execute::{Answer, Executor};
use super::eyes::Eyes;
use super::run::played;
use super::store::Shelf;
use super::world::World;
use super::{Hci, Options};
use crate::faults::Plan;
use crate::minimise::command;
use crate::store::{Refused, Writer};
use crate::suite::Suite as _;

/// So many runs tell what a preference is worth.
const RUNS: u64 = 20;

/// Clean runs end as their scenario says, and no rule is broken on the way.
#[test]
fn every_scenario_ends_as_it_says_when_nothing_else_goes_wrong() {
    let mut wrong = Vec::new();
    for scenario in HciScenario::all() {
        let outcome = Hci::run(&Options::clean(scenario));
        if let Some(broken) = outcome.broken {
            wrong.push(format!("{}: {broken}", scenario.name()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_same_seed_leaves_the_same_trace_byte_for_byte() {
    for (seed, name) in [
        (3, "harvester-three-nodes"),
        (8, "harvester-paused-twice"),
        (21, "harvester-single-node"),
    ] {
        let options = Options {
            trace: true,
            ..Options::new(seed, HciScenario::named(name).unwrap())
        };
        let (first, second) = (Hci::run(&options), Hci::run(&options));
        assert!(first.trace.as_ref().unwrap().lines().count() > 100);
        assert_eq!(first.trace, second.trace, "{}", command(&options));
    }
}

/// Moves over some runs without faults, and how many machines were moved once.
fn moved(deaf: bool) -> (usize, usize) {
    let scenario = HciScenario::named("harvester-three-nodes").unwrap();
    let (mut moves, mut once) = (0, 0);
    for seed in 1..=RUNS {
        let options = Options {
            seed,
            ..Options::clean(scenario)
        };
        let world = played(&options, |world| world.deaf = deaf);
        assert!(world.rules.broken().is_none(), "{:?}", world.rules.broken());
        let all = world.moves();
        moves += all.values().sum::<usize>();
        once += all.values().filter(|times| **times == 1).count();
    }
    (moves, once)
}

/// 27 machines can move. The nine of node-1 find no node that is done, and have to move once more; everybody else has to move once.
#[test]
fn no_virtual_machine_moves_more_often_than_it_has_to_because_nodes_say_that_they_are_not_done() {
    let runs = usize::try_from(RUNS).unwrap();
    let (moves, once) = moved(false);
    assert_eq!((moves, once), (36 * runs, 18 * runs));
    let (deaf, once) = moved(true);
    println!("in {RUNS} runs {moves} moves, without the taint {deaf} ({once} machines moved once)");
    assert!(deaf > moves, "{deaf} without the taint, {moves} with it");
}

fn laid(name: &str) -> World {
    let script = HciScenario::named(name).unwrap().describe();
    let mut world = World::new(7, script, Plan::none());
    world.lay();
    world
}

fn longhorn_setting(view: &View) -> String {
    let mut settings = view.hci.longhorn_settings.values();
    settings.next().map(|setting| setting.what.to_string()).unwrap()
}

#[test]
fn eyes_that_open_on_the_past_see_it_and_catch_up() {
    let mut world = laid("harvester-two-nodes");
    let past = world.store.revision();
    let setting = world.store.hci.longhorn_settings.values().next().unwrap().clone();
    world.change(Writer::Person, HciObject::LonghornSetting, &setting, |value| {
        *value = "1800".into();
    });
    let place = Shelf::Hci(HciKind::LonghornSetting);
    let mut eyes = Eyes::open(&world.store, vec![place, Shelf::Node], past);
    assert_eq!(
        (longhorn_setting(&eyes.view), eyes.view.nodes.len()),
        ("600".to_owned(), 2)
    );
    eyes.hold(place, 5000);
    let mut changed = Vec::new();
    let again = eyes.sync(&world.store, 1000, |_, all| all, &mut changed);
    assert_eq!((again, changed.len()), (Some(5000), 0), "its watch says nothing yet");
    eyes.sync(&world.store, 5000, |_, all| all, &mut changed);
    assert_eq!(longhorn_setting(&eyes.view), "1800");
    assert_eq!(changed, [Changed::Hci(HciKind::LonghornSetting)]);
}

#[test]
fn what_an_own_write_has_deleted_does_not_come_back_with_an_older_event() {
    let mut world = laid("harvester-two-nodes");
    let place = Shelf::Hci(HciKind::Machine);
    let mut eyes = Eyes::open(&world.store, vec![place], 0);
    let machine = world.store.hci.machines.values().next().unwrap().target.clone();
    world.remove(Writer::Operator(0), "delete", HciKind::Machine, &machine.key);
    let answer = Answer::Gone(place, machine.clone(), world.store.revision());
    eyes.answered(&answer);
    // The watch tells of the making first, and of the end later.
    let mut made = true;
    eyes.sync(
        &world.store,
        0,
        |_, all| if std::mem::take(&mut made) { all - 1 } else { all },
        &mut Vec::new(),
    );
    assert!(!eyes.view.hci.machines.contains_key(&machine.key));
    assert_eq!(eyes.view.hci.machines.len(), 1, "the other one is seen");
}

#[test]
fn writes_go_to_the_object_in_the_state_that_was_decided_on_or_nowhere() {
    let mut world = laid("harvester-two-nodes");
    world.ask("up", false, std::collections::BTreeMap::new());
    let seen = world.upgrade().unwrap().clone();
    let mut after = seen.what.clone();
    after.metadata.finalizers = Some(vec!["afloat.dev/cleanup".to_owned()]);
    let write = |world: &mut World, seen: &Seen<Upgrade>, after: &Upgrade| {
        let action = HciAction::WriteUpgrade {
            target: seen.target.clone(),
            before: Arc::new(seen.what.clone()),
            after: Box::new(after.clone()),
        };
        let mut executor = Executor {
            world,
            writer: Writer::Operator(0),
            verb: action.name(),
            bug: None,
        };
        executor.execute(&action)
    };
    assert!(matches!(write(&mut world, &seen, &after), Ok(Answer::Hci(_))));
    assert!(
        matches!(write(&mut world, &seen, &after), Err(Refused::Conflict)),
        "an old state"
    );
    world.does(&Deed::DeleteUpgrade);
    let held = world.upgrade().unwrap().clone();
    assert!(held.deleting, "a finalizer holds it");
    let mut free = held.what.clone();
    free.metadata.finalizers = None;
    assert!(matches!(write(&mut world, &held, &free), Ok(Answer::Gone(..))));
    assert!(world.upgrade().is_none());
}

//! Migrations that fail, that never end, and that KubeVirt has taken away: how often each machine is tried, and what is said.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::tests::{NODE, errand, now};
use super::*;
use crate::hci::tests::world::World;
use crate::hci::view::{Cancelled, HciKind, HciObject, Job, Migration};

fn ago(minutes: i64) -> Timestamp {
    now() - SignedDuration::from_mins(minutes)
}

/// A machine on the node, and a Job that was made so many minutes ago.
fn world(made: i64) -> World {
    let mut world = World::new(3);
    world.add_vm("web", NODE, |_| {});
    world.taint(NODE);
    let job = Job {
        created_at: Some(ago(made)),
        ..Job::default()
    };
    let key = World::job_key(JobKind::PreDrain, Some(NODE));
    world.take(&key.namespace, &key.name, job, HciObject::Job);
    world
}

fn migration(world: &mut World, number: usize, phase: &str, minutes: i64) {
    let migration = Migration {
        vmi: Arc::from("web"),
        phase: Arc::from(phase),
        source: Some(NodeName::from(NODE)),
        message: (phase == "Failed").then(|| Arc::from("the target ran out of memory")),
        created_at: Some(ago(minutes)),
        ..Migration::default()
    };
    let name = format!("{}-web-{number}", World::key().name);
    world.take("shop", &name, migration, HciObject::Migration);
}

fn look(world: &World) -> Look {
    let host = HostDone::from([HostWork::RecoverAgent]);
    pre_drain(&world.view, &errand(), &host, now())
}

/// The name of the only migration that is asked for.
fn asked(world: &World) -> String {
    match look(world) {
        Look::Write { what, .. } => match what.as_slice() {
            [TaskWrite::Migrate { key, .. }] => key.name.to_string(),
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_failed_on_another_node_or_before_a_person_resumed_does_not_count() {
    let mut world = world(1);
    for number in 1..=3 {
        migration(&mut world, number, "Failed", 10);
    }
    assert_eq!(asked(&world), format!("{}-web-4", World::key().name));
    for number in 4..=6 {
        migration(&mut world, number, "Failed", 1);
    }
    let gives_up = look(&world);
    assert!(matches!(gives_up, Look::Failed { .. }), "{gives_up:?}");
    assert!(gives_up.words().contains("3 migrations failed"), "{gives_up:?}");
}

#[test]
fn a_name_is_not_used_again_where_kubevirt_has_taken_away_the_first_ones() {
    let mut world = world(30);
    migration(&mut world, 2, "Failed", 10);
    assert_eq!(asked(&world), format!("{}-web-3", World::key().name));
}

fn writes(world: &World) -> Vec<TaskWrite> {
    match look(world) {
        Look::Write { what, .. } => what,
        other => panic!("{other:?}"),
    }
}

/// The task has written on its Job what it cancels.
fn note(world: &mut World, all: &Cancelled) {
    let key = World::job_key(JobKind::PreDrain, Some(NODE));
    let mut job = world.view.hci.jobs[&key].what.clone();
    job.cancelled = all.clone();
    world.take(&key.namespace, &key.name, job, HciObject::Job);
}

#[test]
fn a_migration_that_never_ends_is_noted_then_cancelled_and_counts() {
    let mut world = world(60);
    world.add_vm("api", NODE, |_| {});
    for number in 1..=3 {
        migration(&mut world, number, "Scheduling", 16);
        let noted = writes(&world);
        let [TaskWrite::NoteCancelled { all, .. }] = noted.as_slice() else {
            panic!("{noted:?}");
        };
        let uids = &all.0["shop/web"];
        assert_eq!(uids.len(), number, "{noted:?}");
        let all = all.clone();
        note(&mut world, &all);
        let cancelled = writes(&world);
        let TaskWrite::CancelMigration { migration } = &cancelled[0] else {
            panic!("{cancelled:?}");
        };
        assert!(uids_of(&all).contains(&migration.uid));
        assert_eq!(cancelled.len(), 2, "the other one goes meanwhile: {cancelled:?}");
        let key = migration.key.clone();
        world.view.hci.remove(HciKind::Migration, &key);
    }
    let gives_up = look(&world);
    assert!(matches!(gives_up, Look::Failed { .. }), "{gives_up:?}");
    for words in ["shop/web does not leave: 3 migrations failed", "it did not end in time"] {
        assert!(gives_up.words().contains(words), "{gives_up:?}");
    }
}

fn uids_of(all: &Cancelled) -> Vec<crate::view::Uid> {
    all.0.values().flatten().cloned().collect()
}

#[test]
fn a_machine_with_much_memory_has_the_time_that_kubevirt_gives_it() {
    let mut world = world(120);
    world.add_vm("web", NODE, |vmi| vmi.requests.memory = 64 << 30);
    for (minutes, late) in [(100, false), (174, false), (176, true)] {
        migration(&mut world, 1, "Running", minutes);
        let look = look(&world);
        assert_eq!(matches!(look, Look::Write { .. }), late, "{minutes}: {look:?}");
        if !late {
            let Look::Wait { again, .. } = look else {
                panic!("{look:?}")
            };
            assert_eq!(again, Some(ago(minutes) + SignedDuration::from_mins(175)));
        }
    }
}

#[test]
fn a_migration_of_somebody_elses_is_named_and_keeps_no_other_machine_from_moving() {
    let mut world = world(60);
    for name in ["api", "db", "web"] {
        world.add_vm(name, NODE, |_| {});
        if name == "web" {
            continue;
        }
        let theirs = Migration {
            vmi: Arc::from(name),
            phase: Arc::from("Pending"),
            created_at: Some(ago(30)),
            ..Migration::default()
        };
        world.take("shop", &format!("by-hand-{name}"), theirs, HciObject::Migration);
    }
    let look = look(&world);
    assert!(
        look.words().contains("kubectl -n shop delete vmim by-hand-api"),
        "{look:?}"
    );
    let Look::Write { what, .. } = look else {
        panic!("{look:?}")
    };
    let [TaskWrite::Migrate { vmi, .. }] = what.as_slice() else {
        panic!("{what:?}")
    };
    assert_eq!(&**vmi, "web");
}

#[test]
fn what_is_noted_can_be_read_again_and_what_somebody_else_wrote_counts_as_nothing() {
    let all = Cancelled([("shop/web".to_owned(), [crate::testing::uid("m-1")].into())].into());
    assert_eq!(Cancelled::from_text(&all.to_text()), all);
    assert_eq!(Cancelled::from_text("3"), Cancelled::default());
}

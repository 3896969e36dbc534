//! Migrations that fail, that never end, and that KubeVirt has taken away: how often each machine is tried, and what is said.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::tests::{NODE, errand, now};
use super::*;
use crate::hci::tests::world::World;
use crate::hci::view::{HciObject, Job, Migration};

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

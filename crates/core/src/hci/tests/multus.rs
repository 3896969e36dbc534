//! RKE2 is kept from bringing its multus while nodes of two releases are in one cluster, and on none of them after.

use super::world::World;
use crate::hci::action::{HciAction, JobKind};
use crate::hci::task::{Errand, HostDone, HostWork, Look, look};
use crate::view::NodeName;

const NODES: [&str; 3] = ["node-1", "node-2", "node-3"];
const HELD: &str = "harvesterhci.io/apply-skip-rke2-manifests-plan-completed";
const LET_GO: &str = "harvesterhci.io/remove-skip-rke2-manifests-plan-completed";
const IMAGES: &str = "harvesterhci.io/image-cleanup-plan-completed";

fn says(world: &World, key: &str) -> Option<String> {
    world.upgrade().metadata.annotations?.get(key).cloned()
}

fn asked(world: &World) -> bool {
    world.view.hci.local_cluster().unwrap().rolled_out_for.is_some()
}

/// Up to where multus is held on all nodes.
fn about_to_hold() -> World {
    let mut world = World::new(3);
    world.multus_hangs = true;
    world.start();
    world.reach_nodes();
    world
}

fn all(world: &mut World, kind: JobKind) {
    for node in NODES {
        world.complete(kind, Some(node));
    }
}

#[test]
fn multus_is_held_on_every_node_before_rancher_is_asked_and_let_go_on_all_in_the_end() {
    let mut world = about_to_hold();
    assert!(!asked(&world), "not before all have it");
    let said = world.condition("SystemServicesUpgraded").1;
    assert!(said.contains("skip-manifests-apply-node-3"), "{said}");
    for node in NODES {
        assert!(world.has_job(JobKind::HoldMultus, Some(node)), "{node}");
    }
    assert_eq!(says(&world, HELD), None);
    all(&mut world, JobKind::HoldMultus);
    assert_eq!(says(&world, HELD).as_deref(), Some("true"));
    assert!(asked(&world));
    for node in NODES {
        world.take_through(node);
    }
    assert!(!world.has_job(JobKind::CleanUp, Some("node-1")), "one after the other");
    assert_eq!(says(&world, LET_GO), None);
    all(&mut world, JobKind::LetMultusGo);
    assert_eq!(says(&world, LET_GO).as_deref(), Some("true"));
    world.clean_up();
    assert_eq!(world.condition("Completed").0, "True");
    assert_eq!(says(&world, IMAGES).as_deref(), Some("true"));
    let jobs = world.done.iter().filter(|action| match action {
        HciAction::CreateJob(job) => matches!(job.kind, JobKind::HoldMultus | JobKind::LetMultusGo),
        _ => false,
    });
    assert_eq!(jobs.count(), 6, "each once");
}

#[test]
fn a_node_that_does_not_answer_holds_nobody_up_and_is_named() {
    let mut world = about_to_hold();
    world.complete(JobKind::HoldMultus, Some("node-1"));
    world.fail(JobKind::HoldMultus, Some("node-2"), "DeadlineExceeded");
    assert!(!asked(&world));
    // Nobody sees the end of a Job whose node is away.
    world.pass(15);
    world.settle();
    assert!(asked(&world));
    let told = |world: &World, what: &str| world.events.iter().any(|event| event.message.contains(what));
    assert!(told(
        &world,
        "node-2 (DeadlineExceeded), node-3 (not within 15 minutes)"
    ));
    for node in NODES {
        world.take_through(node);
    }
    for node in ["node-1", "node-2"] {
        world.complete(JobKind::LetMultusGo, Some(node));
    }
    world.pass(15);
    world.settle();
    world.clean_up();
    let (status, report) = world.condition("Completed");
    assert_eq!(status, "True", "{:?}", world.decide());
    let named = "until you remove /var/lib/rancher/rke2/server/manifests/rke2-multus.yaml.skip, on node-3";
    assert!(report.contains(named), "{report}");
    assert!(world.decide().actions.is_empty());
}

#[test]
fn rule_7_multus_is_let_go_however_the_upgrade_ends_also_where_no_job_that_held_it_was_seen() {
    for end in ["Failed", "aborted", "deleted"] {
        let mut world = about_to_hold();
        match end {
            "Failed" => {
                all(&mut world, JobKind::HoldMultus);
                world.rancher_asks("node-1");
                world.fail(JobKind::PreDrain, Some("node-1"), "no");
            }
            "aborted" => {
                world.view.hci.jobs.retain(|key, _| !key.name.contains("skip"));
                world.annotate("afloat.dev/abort", "true");
            }
            _ => world.delete(),
        }
        world.settle();
        for node in NODES {
            assert!(world.has_job(JobKind::LetMultusGo, Some(node)), "{end} {node}");
            assert_eq!(
                world.has_job(JobKind::HoldMultus, Some(node)),
                end == "Failed",
                "{end} {node}"
            );
        }
        if end == "deleted" {
            assert!(!world.deleted());
        }
        all(&mut world, JobKind::LetMultusGo);
        // Nodes are seen as they are by now.
        world.change_node("node-3", |_| {});
        world.settle();
        if end == "deleted" {
            assert!(world.deleted());
        } else {
            assert!(crate::hci::over(&world.upgrade()), "{end}: {:?}", world.decide());
        }
    }
}

#[test]
fn an_upgrade_that_is_resumed_holds_multus_again() {
    let mut world = about_to_hold();
    all(&mut world, JobKind::HoldMultus);
    world.rancher_asks("node-1");
    world.fail(JobKind::PreDrain, Some("node-1"), "no");
    all(&mut world, JobKind::LetMultusGo);
    assert!(crate::hci::over(&world.upgrade()));
    world.multus_hangs = false;
    world.annotate("afloat.dev/wish", "resume");
    world.settle();
    assert_eq!(
        (says(&world, HELD).as_deref(), says(&world, LET_GO)),
        (Some("true"), None)
    );
    assert!(!world.has_job(JobKind::LetMultusGo, Some("node-1")));
}

#[test]
fn the_only_node_of_a_cluster_has_nothing_to_wait_for() {
    let mut world = World::new(1);
    world.multus_hangs = true;
    world.start();
    world.reach_nodes();
    world.settle();
    assert!(world.has_job(JobKind::SingleNodeUpgrade, Some("node-1")));
    assert!(!world.has_job(JobKind::HoldMultus, Some("node-1")));
}

#[test]
fn jobs_that_put_back_are_known_by_names_that_had_to_be_cut_too() {
    let mut world = about_to_hold();
    let long = "hvst-upgrade-of-a-cluster-with-a-very-long-name";
    let mut upgrade = world.upgrade();
    upgrade.metadata.name = Some(long.to_owned());
    let node = NodeName::from("node-1");
    let mut job = world.view.hci.jobs[&World::job_key(JobKind::HoldMultus, Some("node-1"))]
        .what
        .clone();
    job.complete = false;
    for (kind, lingers) in [
        (JobKind::LetMultusGo, false),
        (JobKind::RestoreVm, false),
        (JobKind::HoldMultus, true),
    ] {
        world.view.hci.jobs.clear();
        world.view.workloads.clear();
        world.view.hci.services.clear();
        world.view.hci.images.clear();
        world.take(
            "harvester-system",
            &kind.name(long, Some(&node)),
            job.clone(),
            crate::hci::view::HciObject::Job,
        );
        assert_eq!(crate::hci::lingers(&world.view, &upgrade), lingers, "{kind:?}");
    }
}

#[test]
fn nobody_holds_multus_for_an_upgrade_that_is_over_by_then() {
    let errand = Errand {
        upgrade: World::key(),
        node: NodeName::from("node-1"),
    };
    let looks = |world: &World| look(JobKind::HoldMultus, &world.view, &errand, &HostDone::new(), world.now);
    let mut world = about_to_hold();
    assert_eq!(looks(&world), Look::Host(HostWork::HoldMultus));
    world.annotate("afloat.dev/abort", "true");
    assert!(matches!(looks(&world), Look::Done { .. }));
    world.view.hci.upgrades.clear();
    assert!(matches!(looks(&world), Look::Done { .. }));
}

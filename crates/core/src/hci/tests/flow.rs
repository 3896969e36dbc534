//! The way of an upgrade from its creation to its end, phase by phase.

use std::sync::Arc;

use afloat_api::labels;

use super::world::{NAME, NEW_OS, NEW_RKE2, RELEASE, World};
use crate::hci::action::{HciAction, JobKind};
use crate::hci::view::{Attachment, Engine, HciKind, HciObject, LocalCluster, Ticket, Upstream, Volume};
use crate::hci::{Request, admit};
use crate::view::{Key, NodeName};

fn count(world: &World, wanted: impl Fn(&HciAction) -> bool) -> usize {
    world.done.iter().filter(|action| wanted(action)).count()
}

#[test]
fn h40_h41_phases_follow_each_other_with_the_labels_of_the_contract() {
    let mut world = World::new(3);
    world.start();
    let mut seen = Vec::new();
    let mut note = |world: &World| {
        let phase = world.phase();
        if seen.last() != Some(&phase) {
            seen.push(phase);
        }
    };
    for _ in 0..40 {
        let decision = world.decide();
        if decision.actions.is_empty() {
            break;
        }
        world.settle();
        note(&world);
    }
    assert_eq!(world.label(labels::HARVESTER_LATEST_UPGRADE), "true");
    world.preload();
    note(&world);
    world.complete(JobKind::ApplyManifests, None);
    note(&world);
    for node in ["node-2", "node-1", "node-3"] {
        world.take_through(node);
    }
    world.clean_up();
    note(&world);
    assert_eq!(
        seen,
        [
            "PreparingNodes",
            "UpgradingSystemServices",
            "UpgradingNodes",
            "Succeeded"
        ]
    );
    let written: Vec<String> = world
        .done
        .iter()
        .filter_map(|action| match action {
            HciAction::WriteUpgrade { after, .. } => after
                .metadata
                .labels
                .as_ref()?
                .get(labels::HARVESTER_UPGRADE_STATE)
                .cloned(),
            _ => None,
        })
        .collect();
    let mut order = written.clone();
    order.dedup();
    let contract = "PreparingLoggingInfra LoggingInfraPrepared PreparingRepo RepoPrepared PreparingNodes \
                    UpgradingSystemServices UpgradingNodes Succeeded";
    // Two states may be reached in one write; none is out of order.
    let mut rest = contract.split(' ');
    assert!(order.iter().all(|state| rest.any(|next| next == state)), "{order:?}");
    assert_eq!(world.condition("Completed").0, "True");
    assert_eq!(world.label(labels::HARVESTER_UPGRADE_CLEANUP), "Succeeded");
    world.assert_nothing_left();
    assert!(world.decide().actions.is_empty(), "nothing is written any more");
}

#[test]
fn h24_h42_rancher_is_asked_once_with_version_hooks_and_one_node_at_a_time() {
    let mut world = World::new(3);
    world.start();
    world.reach_nodes();
    let cluster = world.view.hci.local_cluster().unwrap().what.clone();
    assert_eq!(&*cluster.kubernetes_version, NEW_RKE2);
    assert_eq!(cluster.provision_generation, 8);
    for key in ["controlPlaneDrainOptions", "workerDrainOptions"] {
        let options = &cluster.strategy[key];
        for switch in ["enabled", "force", "ignoreDaemonSets", "deleteEmptyDirData"] {
            assert_eq!(options[switch], true, "{key}.{switch}");
        }
        assert_eq!(options["preDrainHooks"][0]["annotation"], "harvesterhci.io/pre-hook");
        assert_eq!(options["postDrainHooks"][0]["annotation"], "harvesterhci.io/post-hook");
    }
    assert_eq!(cluster.strategy["controlPlaneConcurrency"], "1");
    assert_eq!(cluster.strategy["workerConcurrency"], "1");
    for node in ["node-1", "node-2", "node-3"] {
        world.take_through(node);
    }
    world.clean_up();
    let asked = |action: &HciAction| matches!(action, HciAction::PatchCluster { change, .. } if change.rolled_out_for.is_some());
    assert_eq!(count(&world, asked), 1);
    let after = world.view.hci.local_cluster().unwrap().what.clone();
    assert_eq!((&*after.kubernetes_version, after.provision_generation), (NEW_RKE2, 8));
    assert_eq!(
        after.strategy,
        serde_json::json!({ "controlPlaneConcurrency": "2" }),
        "as it was before"
    );
}

#[test]
fn h28_h45_h46_h47_h48_a_node_is_drained_once_between_two_questions() {
    let mut world = World::new(3);
    world.start();
    world.reach_nodes();
    world.rancher_asks("node-2");
    assert_eq!(world.state("node-2"), "Pre-draining");
    assert!(world.has_job(JobKind::PreDrain, Some("node-2")));
    assert_eq!(world.plan("node-2").pre_hook, None, "not before the Job is done");
    world.complete(JobKind::PreDrain, Some("node-2"));
    assert_eq!(world.state("node-2"), "Pre-drained");
    assert_eq!(world.plan("node-2").pre_hook.as_deref(), Some("drain-1"));
    world.rancher_upgrades("node-2");
    assert_eq!(world.state("node-2"), "Post-draining");
    world.complete(JobKind::PostDrain, Some("node-2"));
    assert_eq!(world.state("node-2"), "Waiting Reboot");
    assert_eq!(world.node("node-2").hci.pending_os_image.as_deref(), Some(NEW_OS));
    assert_eq!(world.plan("node-2").post_hook, None);
    world.boots("node-2", NEW_OS);
    assert_eq!(world.state("node-2"), "Succeeded");
    assert_eq!(world.plan("node-2").post_hook.as_deref(), Some("drain-1"));
    assert_eq!(world.node("node-2").hci.pending_os_image, None);
    let drains = |action: &HciAction| matches!(action, HciAction::CreateJob(job) if job.kind == JobKind::PreDrain);
    assert_eq!(count(&world, drains), 1);
}

#[test]
fn h47_a_node_that_has_the_system_already_is_done_at_once() {
    let mut world = World::new(3);
    world.start();
    world.reach_nodes();
    world.rancher_asks("node-1");
    world.complete(JobKind::PreDrain, Some("node-1"));
    world.change_node("node-1", |node| node.os_image = Arc::from(NEW_OS));
    world.rancher_upgrades("node-1");
    world.complete(JobKind::PostDrain, Some("node-1"));
    assert_eq!(world.state("node-1"), "Succeeded");
    assert_eq!(world.node("node-1").hci.pending_os_image, None);
}

#[test]
fn h48_a_node_that_boots_the_old_system_again_fails_with_what_was_seen() {
    let mut world = World::new(3);
    world.start();
    world.reach_nodes();
    world.rancher_asks("node-1");
    world.restart("node-1");
    world.pass(59);
    world.settle();
    assert_eq!(world.state("node-1"), "Waiting Reboot");
    world.pass(2);
    world.settle();
    assert_eq!(world.state("node-1"), "Failed");
    assert!(
        world.told("node-1").contains("Harvester v1.6.0"),
        "{}",
        world.told("node-1")
    );
    assert_eq!(world.condition("Completed").0, "False");
    world.assert_nothing_left();
    let cluster = world.view.hci.local_cluster().unwrap();
    assert!(
        cluster.rolled_out_for.is_some(),
        "the questions stay, or Rancher would go on by itself"
    );
}

#[test]
fn h47_a_node_that_restarts_is_marked_also_where_whoever_had_said_so_ended_before_it_was() {
    let mut world = World::new(3);
    world.start();
    world.reach_nodes();
    world.rancher_asks("node-1");
    world.restart("node-1");
    world.change_node("node-1", |node| node.hci.pending_os_image = None);
    world.settle();
    assert_eq!(world.node("node-1").hci.pending_os_image.as_deref(), Some(NEW_OS));
}

#[test]
fn h48_a_job_that_is_deleted_while_its_node_restarts_is_run_again_and_the_restart_still_has_an_end() {
    let mut world = World::new(3);
    world.start();
    world.reach_nodes();
    world.rancher_asks("node-1");
    world.restart("node-1");
    world.pass(30);
    let job = World::job_key(JobKind::PostDrain, Some("node-1"));
    world.view.hci.remove(HciKind::Job, &job);
    world.settle();
    assert_eq!(world.state("node-1"), "Post-draining");
    assert!(world.has_job(JobKind::PostDrain, Some("node-1")));

    world.complete(JobKind::PostDrain, Some("node-1"));
    assert_eq!(world.state("node-1"), "Waiting Reboot");
    world.pass(61);
    world.settle();
    assert_eq!(world.state("node-1"), "Failed");
}

#[test]
fn h48_the_job_of_a_single_node_is_run_again_too() {
    let mut world = World::new(1);
    world.start();
    world.reach_nodes();
    world.complete(JobKind::SingleNodeUpgrade, Some("node-1"));
    assert_eq!(world.state("node-1"), "Waiting Reboot");
    let job = World::job_key(JobKind::SingleNodeUpgrade, Some("node-1"));
    world.view.hci.remove(HciKind::Job, &job);
    world.settle();
    assert!(world.has_job(JobKind::SingleNodeUpgrade, Some("node-1")));
    world.complete(JobKind::SingleNodeUpgrade, Some("node-1"));
    assert_eq!(world.state("node-1"), "Waiting Reboot");
    world.change_node("node-1", |node| node.kubelet_version = NEW_RKE2.parse().ok());
    world.boots("node-1", NEW_OS);
    assert_eq!(world.state("node-1"), "Succeeded");
}

#[test]
fn h49_a_second_node_is_never_emptied_while_one_is_in_flight() {
    let mut world = World::new(3);
    world.start();
    world.reach_nodes();
    world.rancher_asks("node-1");
    world.rancher_asks("node-3");
    assert_eq!(world.state("node-3"), "Images preloaded");
    assert!(
        world.told("node-3").contains("waits for node-1"),
        "{}",
        world.told("node-3")
    );
    assert!(!world.has_job(JobKind::PreDrain, Some("node-3")));
    world.finish("node-1");
    assert_eq!(world.state("node-3"), "Pre-draining");
    // Both answered: nothing to do about that node any more.
    let before = world.done.len();
    world.settle();
    assert_eq!(world.done.len(), before);
}

#[test]
fn h21_h51_a_repository_serves_when_its_release_was_read_and_is_started_anew_when_it_does_not_answer() {
    let mut world = World::new(3);
    world.start();
    world.settle();
    assert!(
        world
            .view
            .hci
            .services
            .contains_key(&Key::new("harvester-system", &format!("upgrade-repo-{NAME}")))
    );
    let image = |action: &HciAction| matches!(action, HciAction::CreateImage { url, .. } if &**url == "https://example.com/harvester.iso");
    assert_eq!(count(&world, image), 1);
    for _ in 0..4 {
        world.answer(Err("connection refused"));
        world.settle();
    }
    let restart = |action: &HciAction| matches!(action, HciAction::RestartRepo { .. });
    assert_eq!(count(&world, restart), 1, "after three failures, once");
    world.answer(Ok(RELEASE));
    world.settle();
    assert_eq!(world.phase(), "PreparingNodes", "the upgrade went on meanwhile");
}

#[test]
fn h21_an_external_repository_needs_no_image_and_no_deployment() {
    let mut world = World::new(3);
    world.start_with(&[("afloat.dev/repo-url", "http://mirror.example/harvester")]);
    world.answer(Ok(RELEASE));
    world.settle();
    assert_eq!(world.phase(), "PreparingNodes");
    let made = |action: &HciAction| matches!(action, HciAction::CreateImage { .. } | HciAction::CreateRepo(_));
    assert_eq!(count(&world, made), 0);
    let job = world.done.iter().find_map(|action| match action {
        HciAction::CreateJob(job) => Some(job.repo.to_string()),
        _ => None,
    });
    assert_eq!(job.as_deref(), Some("http://mirror.example/harvester"));
}

#[test]
fn h23_h25_charts_rest_while_rancher_and_harvester_are_upgraded_and_a_failure_can_be_resumed() {
    let mut world = World::new(3);
    world.start();
    world.settle();
    world.preload();
    let chart = Key::new("fleet-local", "harvester");
    assert!(world.view.hci.charts[&chart].paused);
    assert!(world.has_job(JobKind::ApplyManifests, None));
    world.fail(JobKind::ApplyManifests, None, "rancher 2.12.2 did not become ready");
    assert_eq!(world.condition("SystemServicesUpgraded").0, "False");
    assert!(world.condition("Completed").1.contains("did not become ready"));
    world.assert_nothing_left();
    world.annotate("afloat.dev/wish", "resume");
    world.settle();
    assert!(world.view.hci.charts[&chart].paused, "it goes on where it stopped");
    assert!(world.has_job(JobKind::ApplyManifests, None));
    world.complete(JobKind::ApplyManifests, None);
    for node in ["node-1", "node-2", "node-3"] {
        world.take_through(node);
    }
    world.clean_up();
    assert_eq!(world.condition("Completed").0, "True");
    world.assert_nothing_left();
}

#[test]
fn h26_images_of_the_release_before_are_removed_from_every_node_and_a_failure_of_that_holds_nobody_up() {
    let mut world = World::new(2);
    world.start();
    world.reach_nodes();
    for node in ["node-1", "node-2"] {
        world.take_through(node);
    }
    assert_eq!(world.label(labels::HARVESTER_UPGRADE_CLEANUP), "Pending");
    world.complete(JobKind::CleanUp, Some("node-1"));
    assert_eq!(world.label(labels::HARVESTER_UPGRADE_CLEANUP), "Pending");
    world.fail(JobKind::CleanUp, Some("node-2"), "crictl timed out");
    assert_eq!(world.label(labels::HARVESTER_UPGRADE_CLEANUP), "Succeeded");
    let report = world.condition("Completed").1;
    let said = "images of the release before stay: node-2 (crictl timed out)";
    assert!(report.contains(said) && !report.contains("node-1 ("), "{report}");
}

#[test]
fn h50_what_rancher_says_is_shown_where_a_person_looks() {
    let mut world = World::new(3);
    world.start();
    world.reach_nodes();
    world.rancher_asks("node-1");
    world.complete(JobKind::PreDrain, Some("node-1"));
    let cluster = LocalCluster {
        checkpoint: Some(Arc::from("draining bootstrap node(s) custom-node-1: draining node")),
        ..world.view.hci.local_cluster().unwrap().what.clone()
    };
    world.take("fleet-local", "local", cluster, HciObject::Cluster);
    world.settle();
    assert!(
        world
            .condition("NodesUpgraded")
            .1
            .contains("draining bootstrap node(s)")
    );
    assert!(
        world.told("node-1").contains("draining bootstrap node(s)"),
        "{}",
        world.told("node-1")
    );
}

#[test]
fn h43_a_node_waits_by_name_for_volumes_that_cannot_be_detached_yet() {
    let mut world = World::new(3);
    world.start();
    world.reach_nodes();
    world.rancher_asks("node-1");
    let volume = Volume {
        state: Arc::from("attached"),
        robustness: Arc::from("healthy"),
        node: Some(NodeName::from("node-1")),
        replicas: 3,
        ..Volume::default()
    };
    world.take("longhorn-system", "pvc-34a5c936", volume, HciObject::Volume);
    world.settle();
    assert!(
        world.told("node-1").contains("pvc-34a5c936"),
        "{}",
        world.told("node-1")
    );
    let said = crate::hci::explain(&world.view, &World::key()).unwrap().to_string();
    assert!(
        said.contains("volume pvc-34a5c936") && said.contains("volumeattachments.longhorn.io pvc-34a5c936"),
        "{said}"
    );
}

#[test]
fn h43_whoever_holds_a_volume_is_named_with_a_way_out() {
    for (kind, id, held, way) in [
        (
            "csi-attacher",
            "csi-0f3a",
            "held by volumeattachments.storage.k8s.io csi-0f3a)",
            "kubectl describe volumeattachments.storage.k8s.io csi-0f3a",
        ),
        (
            "backup-controller",
            "backup-controller-backup-12",
            "held by backup backup-12)",
            "kubectl -n longhorn-system describe backups.longhorn.io backup-12",
        ),
        (
            "volume-clone-controller",
            "volume-clone-controller-pvc-2",
            "held by Longhorn's volume-clone-controller, for pvc-2)",
            "get volumeattachments.longhorn.io pvc-1 -o yaml",
        ),
    ] {
        let mut world = World::new(3);
        world.start();
        world.reach_nodes();
        world.rancher_asks("node-1");
        let volume = Volume {
            state: Arc::from("attached"),
            robustness: Arc::from("healthy"),
            node: Some(NodeName::from("node-1")),
            replicas: 3,
            ..Volume::default()
        };
        world.take("longhorn-system", "pvc-1", volume, HciObject::Volume);
        let ticket = |id: &str, node: &str| Ticket {
            id: Arc::from(id),
            kind: Arc::from(kind),
            node: Some(NodeName::from(node)),
        };
        let attachment = Attachment {
            volume: Arc::from("pvc-1"),
            tickets: vec![ticket(id, "node-1"), ticket("of-another-node", "node-2")],
        };
        world.take("longhorn-system", "pvc-1", attachment, HciObject::Attachment);
        let of_another = Attachment {
            volume: Arc::from("pvc-9"),
            tickets: vec![ticket("of-another-volume", "node-1")],
        };
        world.take("longhorn-system", "pvc-9", of_another, HciObject::Attachment);
        world.settle();
        let told = world.told("node-1");
        assert!(told.contains(held) && !told.contains("of-another"), "{told}");
        let said = crate::hci::explain(&world.view, &World::key()).unwrap().to_string();
        assert!(said.contains(held) && said.contains(way), "{said}");
    }
}

#[test]
fn a_volume_without_all_its_replicas_and_a_node_that_is_away_hold_the_next_node_back() {
    let mut world = World::new(3);
    world.start();
    world.reach_nodes();
    let volume = |robustness: &str| Volume {
        state: Arc::from("attached"),
        robustness: Arc::from(robustness),
        node: Some(NodeName::from("node-2")),
        replicas: 3,
        ..Volume::default()
    };
    world.take("longhorn-system", "pvc-1", volume("degraded"), HciObject::Volume);
    world.change_node("node-3", |node| node.ready.ready = false);
    world.rancher_asks("node-1");
    assert!(
        world.told("node-1").contains("node-3, which is not Ready"),
        "{}",
        world.told("node-1")
    );
    world.change_node("node-3", |node| node.ready.ready = true);
    world.settle();
    assert!(world.told("node-1").contains("pvc-1"), "{}", world.told("node-1"));
    world.take("longhorn-system", "pvc-1", volume("healthy"), HciObject::Volume);
    world.settle();
    assert_eq!(world.state("node-1"), "Pre-draining");
}

/// On two nodes: replicas asked for, replicas that are whole, and whether a node may be taken away from them.
const ON_TWO_NODES: [(i32, usize, bool); 5] = [(3, 1, false), (2, 1, false), (3, 2, true), (1, 1, true), (1, 0, false)];

#[test]
fn on_two_nodes_the_only_whole_replica_of_a_volume_is_not_taken_away() {
    for (replicas, whole, goes) in ON_TWO_NODES {
        let mut world = World::new(2);
        world.start();
        world.reach_nodes();
        world.take_through("node-1");
        let volume = Volume {
            state: Arc::from("attached"),
            robustness: Arc::from("degraded"),
            node: Some(NodeName::from("node-2")),
            replicas,
            ..Volume::default()
        };
        world.take("longhorn-system", "pvc-1", volume, HciObject::Volume);
        let engine = |whole| Engine {
            volume: Arc::from("pvc-1"),
            node: Some(NodeName::from("node-2")),
            running: true,
            whole,
        };
        world.take("longhorn-system", "pvc-1-e-0", engine(whole), HciObject::Engine);
        world.rancher_asks("node-2");
        let case = format!("{whole} of {replicas}: {}", world.told("node-2"));
        assert_eq!(world.state("node-2") == "Pre-draining", goes, "{case}");
        assert_eq!(
            world.told("node-2").contains("all their replicas: pvc-1"),
            !goes,
            "{case}"
        );
        world.take("longhorn-system", "pvc-1-e-0", engine(2), HciObject::Engine);
        world.settle();
        assert_eq!(world.state("node-2"), "Pre-draining", "{case}");
    }
}

#[test]
fn images_come_as_many_at_once_as_the_setting_says() {
    for (strategy, at_once) in [
        (r#"{"type":"sequential"}"#, 1),
        (r#"{"type":"parallel","concurrency":2}"#, 2),
        (r#"{"type":"parallel"}"#, 4),
        (r#"{"type":"parallel","concurrency":9}"#, 4),
        (r#"{"type":"skip"}"#, 0),
    ] {
        let mut world = World::new(4);
        world.setting(&format!(r#"{{"imagePreloadOption":{{"strategy":{strategy}}}}}"#));
        world.start();
        world.settle();
        let made = count(
            &world,
            |action| matches!(action, HciAction::CreateJob(job) if job.kind == JobKind::Prepare),
        );
        assert_eq!(made, at_once, "{strategy}");
        world.preload();
        assert_eq!(world.phase(), "UpgradingSystemServices", "{strategy}");
    }
}

#[test]
fn harvesters_own_controller_is_left_alone_and_the_person_is_told() {
    let mut world = World::new(3);
    let running = |off| Upstream {
        replicas: 1,
        off,
        ..Upstream::default()
    };
    world.take("harvester-system", "harvester", running(false), HciObject::Upstream);
    world.start();
    world.settle();
    assert!(world.done.is_empty(), "{:?}", world.done);
    assert!(
        world.events[0]
            .message
            .contains("runs Harvester's own upgrade controller"),
        "{:?}",
        world.events
    );
    world.take("harvester-system", "harvester", running(true), HciObject::Upstream);
    world.settle();
    assert_eq!(world.condition("Completed").0, "Unknown");
    let mut theirs = World::new(3);
    theirs.start();
    theirs.change_upgrade(|upgrade| {
        upgrade.metadata.finalizers = Some(vec![afloat_api::harvester::UPSTREAM_FINALIZER.to_owned()]);
    });
    theirs.settle();
    assert!(theirs.done.is_empty());
}

#[test]
fn a_node_that_is_gone_holds_nobody_up() {
    let mut world = World::new(3);
    world.start();
    world.reach_nodes();
    world.take_through("node-1");
    world.view.nodes.remove("node-3");
    world.take_through("node-2");
    world.clean_up();
    assert_eq!(world.condition("Completed").0, "True");
}

/// Upstream #11011: a Node is deleted, and its kubelet registers it again.
#[test]
fn a_node_that_is_gone_amid_its_turn_and_comes_back_is_finished() {
    let mut world = World::new(3);
    world.start();
    world.reach_nodes();
    world.take_through("node-1");
    world.rancher_asks("node-2");
    world.complete(JobKind::PreDrain, Some("node-2"));
    assert_eq!(world.state("node-2"), "Pre-drained");
    let node = world.node("node-2");
    world.view.nodes.remove("node-2");
    world.settle();
    assert_eq!(world.state("node-2"), "");
    let asked = Request::CreateNode("node-2");
    assert!(admit(&world.view, &asked).allowed());
    assert!(
        !admit(&world.view, &Request::CreateNode("node-9")).allowed(),
        "a new one"
    );
    world.view.nodes.insert(node.name.clone(), Arc::new(node));
    world.change_node("node-2", |node| node.uid = crate::testing::uid("node-2-again"));
    world.settle();
    assert_eq!(world.state("node-2"), "Pre-drained");
    world.rancher_upgrades("node-2");
    assert_eq!(world.state("node-2"), "Post-draining");
    world.complete(JobKind::PostDrain, Some("node-2"));
    world.boots("node-2", NEW_OS);
    world.rancher_ends("node-2");
    // One that was done is not drained once more, and holds nobody up.
    let node = world.node("node-1");
    world.view.nodes.remove("node-1");
    world.settle();
    world.view.nodes.insert(node.name.clone(), Arc::new(node));
    world.settle();
    assert_eq!(world.state("node-1"), "Images preloaded");
    world.take_through("node-3");
    world.pass(6);
    world.settle();
    world.clean_up();
    assert_eq!(world.condition("Completed").0, "True");
    world.assert_nothing_left();
}

#[test]
fn a_hundred_nodes_with_three_thousand_machines_come_to_rest() {
    let mut world = World::new(100);
    world.setting(r#"{"imagePreloadOption":{"strategy":{"type":"skip"}},"nodeUpgradeOption":{"mode":"manual"}}"#);
    for number in 0..3000 {
        let node = super::world::name(number % 100 + 1);
        world.add_vm(&format!("vm-{number}"), &node, |_| {});
    }
    world.start();
    world.reach_nodes();
    world.unpause("node-7");
    world.rancher_asks("node-7");
    assert_eq!(world.state("node-7"), "Pre-draining");
    assert!(world.decide().actions.is_empty());
}

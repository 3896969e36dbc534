//! The ways an upgrade ends before its target: deleted or aborted, in every state of a node.

use std::sync::Arc;

use super::world::World;
use crate::action::Action;
use crate::hci::action::JobKind;
use crate::hci::view::{Addon, HciKind, HciObject};
use crate::view::Key;

/// Brings node-1 into a state.
fn in_state(state: &str) -> World {
    let mut world = World::new(3);
    world.start();
    world.reach_nodes();
    world.rancher_asks("node-1");
    if state == "Pre-draining" {
        world.taint("node-1");
        return world;
    }
    world.complete(JobKind::PreDrain, Some("node-1"));
    if state == "Pre-drained" {
        return world;
    }
    world.rancher_upgrades("node-1");
    if state == "Post-draining" {
        return world;
    }
    world.complete(JobKind::PostDrain, Some("node-1"));
    world
}

/// Node-1 from its state to its end.
fn finish(world: &mut World) {
    if world.state("node-1") == "Pre-drained" {
        world.rancher_upgrades("node-1");
    }
    if world.state("node-1") == "Post-draining" {
        world.complete(JobKind::PostDrain, Some("node-1"));
    }
    if !world.deleted() && world.state("node-1") == "Waiting Reboot" {
        world.boots("node-1", super::world::NEW_OS);
    }
}

#[test]
fn h9_deleted_in_each_state_of_a_node_nothing_is_left_and_no_other_node_begins() {
    for state in ["Pre-draining", "Pre-drained", "Post-draining", "Waiting Reboot"] {
        let mut world = in_state(state);
        assert_eq!(world.state("node-1"), state);
        world.delete();
        world.rancher_asks("node-2");
        if state != "Pre-draining" {
            assert!(!world.deleted(), "{state}: a node that was drained is finished first");
            finish(&mut world);
        }
        assert!(world.deleted(), "{state}: {:?}", world.decide());
        assert!(!world.has_job(JobKind::PreDrain, Some("node-2")), "{state}");
        world.assert_nothing_left();
    }
}

#[test]
fn an_abort_before_the_drain_puts_rancher_back_and_one_after_it_keeps_its_questions() {
    let mut world = in_state("Pre-draining");
    world.serve_rancher("v2.12.2");
    world.annotate("afloat.dev/abort", "true");
    world.settle();
    assert_eq!(world.condition("Completed").0, "False");
    let told = world.condition("Completed").1;
    assert!(told.contains("nodes are as they were"), "{told}");
    assert!(told.contains("staying there: Rancher v2.12.2"), "{told}");
    let cluster = world.view.hci.local_cluster().unwrap().what.clone();
    assert_eq!(&*cluster.kubernetes_version, super::world::OLD_RKE2);
    assert_eq!(cluster.strategy["controlPlaneConcurrency"], "2");
    world.assert_nothing_left();

    let mut world = in_state("Pre-drained");
    world.annotate("afloat.dev/abort", "true");
    world.settle();
    finish(&mut world);
    assert_eq!(world.state("node-1"), "Succeeded");
    assert!(
        world.condition("Completed").1.contains("hooks stay"),
        "{:?}",
        world.condition("Completed")
    );
    let cluster = world.view.hci.local_cluster().unwrap();
    assert_eq!(
        cluster.strategy["controlPlaneDrainOptions"]["preDrainHooks"][0]["annotation"],
        "harvesterhci.io/pre-hook"
    );
    world.assert_nothing_left();
}

/// Rancher and charts are being upgraded; KubeVirt's way to renew machines is taken away for the time.
fn in_services() -> World {
    let mut world = World::new(3);
    world.start();
    world.settle();
    world.preload();
    assert_eq!(world.phase(), "UpgradingSystemServices");
    let (key, mut chart) = {
        let chart = world.view.hci.charts.values().next().unwrap();
        (chart.target.key.clone(), chart.what.clone())
    };
    chart.paused = false;
    chart.update_methods = Arc::from("[]");
    chart.update_methods_before = Some(Arc::from(r#"["LiveMigrate"]"#));
    world.take(&key.namespace, &key.name, chart, HciObject::Chart);
    world
}

#[test]
fn an_upgrade_that_is_ended_while_services_are_upgraded_waits_for_their_job_and_puts_charts_back() {
    for delete in [false, true] {
        let mut world = in_services();
        if delete {
            world.delete();
        } else {
            world.annotate("afloat.dev/abort", "true");
        }
        world.settle();
        assert!(world.has_job(JobKind::ApplyManifests, None), "it ends by itself");
        let told = world.condition("SystemServicesUpgraded").1;
        assert!(told.contains("job/hvst-upgrade-x7k2p-apply-manifests"), "{told}");
        world.complete(JobKind::ApplyManifests, None);
        assert!(
            !world.has_job(JobKind::ApplyManifests, None),
            "it has not done its work"
        );
        assert_eq!(world.deleted(), delete);
        let chart = world.view.hci.charts.values().next().unwrap();
        assert_eq!(&*chart.update_methods, r#"["LiveMigrate"]"#);
        assert_eq!(chart.update_methods_before, None);
        world.assert_nothing_left();
        if !delete {
            world.annotate("afloat.dev/wish", "resume");
            world.settle();
            assert!(world.has_job(JobKind::ApplyManifests, None), "it is made anew");
        }
    }
}

#[test]
fn a_job_that_does_not_end_with_its_upgrade_is_ended_in_time() {
    let mut world = in_services();
    world.annotate("afloat.dev/abort", "true");
    world.settle();
    world.pass(29);
    world.settle();
    assert!(world.has_job(JobKind::ApplyManifests, None));
    world.pass(1);
    world.settle();
    assert!(!world.has_job(JobKind::ApplyManifests, None));
    assert!(crate::hci::over(&world.upgrade()));
    assert!(world.condition("Completed").1.contains("everything is as it was"));
    world.assert_nothing_left();
}

#[test]
fn an_upgrade_can_be_aborted_while_a_node_is_paused() {
    let mut world = World::new(3);
    world.setting(r#"{"imagePreloadOption":{"strategy":{"type":"skip"}},"nodeUpgradeOption":{"mode":"manual"}}"#);
    world.start();
    world.reach_nodes();
    world.rancher_asks("node-1");
    assert_eq!(world.state("node-1"), "Node-upgrade paused");
    world.annotate("afloat.dev/abort", "true");
    world.settle();
    assert_eq!(world.condition("Completed").0, "False");
    world.assert_nothing_left();
}

#[test]
fn a_node_whose_job_failed_is_tried_again_from_where_rancher_is() {
    let mut world = in_state("Post-draining");
    world.fail(JobKind::PostDrain, Some("node-1"), "the image could not be written");
    assert_eq!(world.condition("Completed").0, "False");
    world.annotate("afloat.dev/wish", "resume");
    world.settle();
    assert_eq!(world.state("node-1"), "Post-draining");
    assert!(world.has_job(JobKind::PostDrain, Some("node-1")));
    finish(&mut world);
    world.rancher_ends("node-1");
    for node in ["node-2", "node-3"] {
        world.take_through(node);
    }
    world.clean_up();
    assert_eq!(world.condition("Completed").0, "True");
    world.assert_nothing_left();
}

#[test]
fn a_single_node_is_open_to_virtual_machines_again_even_if_the_first_try_of_that_was_lost() {
    let mut world = World::new(1);
    world.one_by_one = true;
    world.start();
    world.reach_nodes();
    world.taint("node-1");
    world.change_node("node-1", |node| {
        node.kubelet_version = super::world::NEW_RKE2.parse().ok();
        node.os_image = super::world::NEW_OS.into();
    });
    world.complete(JobKind::SingleNodeUpgrade, Some("node-1"));
    world.clean_up();
    assert_eq!(world.condition("Completed").0, "True");
    world.assert_nothing_left();
}

#[test]
fn a_node_that_booted_the_old_system_is_worked_on_again_after_a_resume_unless_it_is_at_the_target_by_then() {
    for mended in [false, true] {
        let mut world = in_state("Waiting Reboot");
        world.boots("node-1", super::world::OLD_OS);
        world.pass(61);
        world.settle();
        assert_eq!(world.condition("Completed").0, "False", "{mended}");
        if mended {
            world.boots("node-1", super::world::NEW_OS);
        }
        world.annotate("afloat.dev/wish", "resume");
        world.settle();
        let state = if mended { "Succeeded" } else { "Post-draining" };
        assert_eq!(world.state("node-1"), state);
    }
}

#[test]
fn a_job_before_the_drain_that_took_too_long_says_what_it_waited_for() {
    let mut world = World::new(3);
    world.add_vm("stays", "node-1", |_| {});
    world.start();
    world.reach_nodes();
    world.rancher_asks("node-1");
    let deadline = "Job was active longer than specified deadline";
    world.fail(JobKind::PreDrain, Some("node-1"), deadline);
    let told = world.condition("Completed").1;
    for words in [deadline, "in the end it waits for virtual machines", "stays"] {
        assert!(told.contains(words), "{words}: {told}");
    }
}

#[test]
fn a_job_deleted_by_hand_is_made_again() {
    let mut world = in_state("Pre-draining");
    world
        .view
        .hci
        .jobs
        .remove(&World::job_key(JobKind::PreDrain, Some("node-1")));
    world.settle();
    assert!(world.has_job(JobKind::PreDrain, Some("node-1")));
}

#[test]
fn a_crash_after_any_write_leads_to_the_same_end() {
    // Each decision is carried out only up to its first action before the next is made.
    let mut world = World::new(3);
    world.one_by_one = true;
    world.start();
    world.reach_nodes();
    for node in ["node-1", "node-2", "node-3"] {
        world.take_through(node);
    }
    world.clean_up();
    assert_eq!(world.condition("Completed").0, "True");
    world.assert_nothing_left();
}

/// Somebody has deleted a Job that had done its work.
fn lose(world: &mut World, kind: JobKind) {
    let key = World::job_key(kind, Some("node-1"));
    assert!(world.view.hci.remove(HciKind::Job, &key));
}

#[test]
fn a_taint_goes_in_the_end_also_where_the_job_that_put_it_there_is_gone() {
    let mut world = in_state("Waiting Reboot");
    world.taint("node-1");
    lose(&mut world, JobKind::PreDrain);
    world.pass(61);
    world.settle();
    assert_eq!(world.state("node-1"), "Failed", "it has booted the old system");
    assert!(world.node("node-1").taints.is_empty());
}

#[test]
fn a_node_that_is_put_back_has_its_taint_taken_before_it_is_forgotten_whose_that_is() {
    let mut world = in_state("Pre-draining");
    world.delete();
    let decision = world.decide();
    let names: Vec<&str> = decision.actions.iter().map(Action::name).collect();
    let place = |name: &str| names.iter().position(|other| *other == name);
    assert!(place("untaint").is_some(), "{names:?}");
    assert!(place("untaint") < place("write-hci-upgrade"), "{names:?}");
}

#[test]
fn a_node_that_rancher_drains_is_finished_also_where_somebody_with_old_news_said_that_it_is_being_emptied() {
    let mut world = in_state("Pre-drained");
    lose(&mut world, JobKind::PreDrain);
    world.change_upgrade(|upgrade| {
        let statuses = &mut upgrade.status.get_or_insert_default().node_statuses;
        "Pre-draining".clone_into(&mut statuses.get_mut("node-1").unwrap().state);
    });
    world.settle();
    assert_eq!(world.state("node-1"), "Pre-drained");
    assert!(!world.has_job(JobKind::PreDrain, Some("node-1")));
    finish(&mut world);
    assert_eq!(world.state("node-1"), "Succeeded");
}

#[test]
fn rancher_is_answered_about_a_node_that_is_done_also_where_a_person_has_deleted_its_job() {
    let mut world = in_state("Waiting Reboot");
    lose(&mut world, JobKind::PostDrain);
    world.boots("node-1", super::world::NEW_OS);
    assert_eq!(world.state("node-1"), "Succeeded");
    let plan = world.plan("node-1");
    assert_eq!((plan.post_hook.is_some(), plan.post_hook), (true, plan.post_drain));
}

#[test]
fn a_repository_that_becomes_ready_wakes_the_upgrade_that_waits_for_it() {
    let mut world = World::new(3);
    world.start();
    let concerned = crate::affected(&world.view, &crate::Changed::Workload);
    assert_eq!(concerned, [crate::Subject::Hci(World::key())].into());
}

#[test]
fn a_pod_or_budget_that_changes_wakes_the_upgrade_that_names_it() {
    let key = Key::new("shop", "web");
    let woken = |world: &World, change: &crate::Changed| !crate::affected(&world.view, change).is_empty();
    let pod = |node: &str| crate::Changed::Pod(Some(crate::view::NodeName::from(node)));
    for state in ["Pre-draining", "Pre-drained"] {
        let world = in_state(state);
        assert!(woken(&world, &crate::Changed::Budget(key.clone())), "{state}");
        assert!(woken(&world, &pod("node-1")), "{state}");
        assert!(!woken(&world, &pod("node-2")), "{state}: it says nothing of that node");
    }
    let world = in_state("Post-draining");
    assert!(!woken(&world, &crate::Changed::Budget(key)), "nobody waits for one");
}

#[test]
fn what_comes_late_to_an_upgrade_that_is_over_goes_too() {
    let mut world = in_state("Pre-draining");
    world.annotate("afloat.dev/abort", "true");
    world.settle();
    assert!(crate::hci::over(&world.upgrade()), "{:?}", world.decide());
    let affected = |world: &World| crate::affected(&world.view, &crate::Changed::Hci(HciKind::Service));
    assert!(affected(&world).is_empty(), "nothing is left to do about it");
    let key = Key::new("harvester-system", &format!("upgrade-repo-{}", World::key().name));
    world.take(&key.namespace, &key.name, (), HciObject::Service);
    assert!(!affected(&world).is_empty());
    world.settle();
    assert!(world.view.hci.services.is_empty());
}

#[test]
fn nothing_around_an_upgrade_is_written_before_it_is_seen_that_the_upgrade_is_as_it_was() {
    let mut world = World::new(3);
    world.start();
    world.settle();
    world.preload();
    // Its charts are paused and its Job made: on the way there the Upgrade itself is not written any more.
    world
        .view
        .hci
        .jobs
        .remove(&World::job_key(JobKind::ApplyManifests, None));
    let decision = world.decide();
    let names: Vec<&str> = decision.actions.iter().map(Action::name).collect();
    assert_eq!(names, ["confirm-upgrade", "create-job"]);
    let Action::Hci(first) = &decision.actions[0] else {
        panic!("{names:?}")
    };
    let target = crate::objects::target_of(&world.upgrade().metadata);
    assert_eq!(**first, crate::hci::action::HciAction::Confirm { target });
}

#[test]
fn a_taint_that_is_seen_only_after_its_node_was_put_back_goes_too() {
    let mut world = in_state("Pre-draining");
    world.change_node("node-1", |node| node.taints.clear());
    world.annotate("afloat.dev/abort", "true");
    // One decision: it is put back, and nothing is tidied yet.
    for action in world.decide().actions {
        if let Action::Hci(action) = action {
            world.carry_out(&action);
        }
    }
    assert_eq!(world.state("node-1"), "Images preloaded");
    world.taint("node-1");
    world.settle();
    assert!(crate::hci::over(&world.upgrade()));
    world.assert_nothing_left();
}

#[test]
fn rancher_is_asked_again_where_an_upgrade_was_resumed_by_whoever_had_not_seen_that_all_was_put_back() {
    let mut world = World::new(3);
    world.start();
    world.reach_nodes();
    let cluster = world.view.hci.local_cluster().unwrap().clone();
    assert!(cluster.rolled_out_for.is_some());
    let mut put_back = cluster.what.clone();
    put_back.rolled_out_for = None;
    put_back.before = None;
    let key = cluster.target.key.clone();
    world.take(&key.namespace, &key.name, put_back, HciObject::Cluster);
    world.settle();
    let asked = world.view.hci.local_cluster().unwrap();
    assert_eq!(asked.rolled_out_for, cluster.rolled_out_for);
    assert_eq!(asked.provision_generation, cluster.provision_generation + 1);
}

/// The replica that ends the upgrade has not seen what another one has set: nothing seems to have to be put back.
#[test]
fn h9_settings_are_written_also_where_an_old_view_shows_them_as_they_were() {
    let set = |world: &mut World, wait: &str, enabled: bool| {
        let descheduler = Addon {
            enabled,
            status: Arc::from("AddonDeploySuccessful"),
            ..Addon::default()
        };
        world.take("kube-system", "descheduler", descheduler, HciObject::Addon);
        let name = "replica-replenishment-wait-interval";
        world.take("longhorn-system", name, Arc::from(wait), HciObject::LonghornSetting);
    };
    let seen = |world: &World| {
        let hci = &world.view.hci;
        let waits = hci.longhorn_settings.values().map(|setting| setting.what.to_string());
        (
            waits.collect::<String>(),
            hci.addons.values().all(|addon| addon.enabled),
        )
    };
    // As it was set, as an old view shows it, and as a person has set it meanwhile.
    for (wait, enabled, ends_with) in [("1800", false, "600"), ("600", true, "600"), ("900", true, "900")] {
        let mut world = World::new(3);
        set(&mut world, "600", true);
        world.start();
        world.reach_nodes();
        assert_eq!(seen(&world), ("1800".to_owned(), false));
        set(&mut world, wait, enabled);
        world.done.clear();
        world.annotate("afloat.dev/abort", "true");
        world.settle();
        let written: Vec<&str> = world.done.iter().map(crate::hci::action::HciAction::name).collect();
        for write in ["set-longhorn", "enable-addon"] {
            assert_eq!(
                written.iter().filter(|name| **name == write).count(),
                1,
                "{wait}: {written:?}"
            );
        }
        assert_eq!(seen(&world), (ends_with.to_owned(), true));
    }
}

/// What a person has changed between an end and its resuming is what counts at the next end; so it does where whoever resumed had not seen it yet.
#[test]
fn rule_7_a_setting_that_was_changed_before_an_upgrade_was_resumed_is_put_back_as_it_was_then() {
    let name = "replica-replenishment-wait-interval";
    let set = |world: &mut World, wait: &str| {
        world.take("longhorn-system", name, Arc::from(wait), HciObject::LonghornSetting);
    };
    let seen = |world: &World| {
        let settings = world.view.hci.longhorn_settings.values();
        settings.map(|setting| setting.what.to_string()).collect::<String>()
    };
    for refused in [false, true] {
        let mut world = in_state("Pre-draining");
        world.annotate("afloat.dev/abort", "true");
        world.settle();
        assert_eq!(seen(&world), "600");
        if !refused {
            set(&mut world, "300");
        }
        world.annotate("afloat.dev/wish", "resume");
        if refused {
            // The Upgrade is written as decided on an old view, and the setting is not.
            while !world
                .decide()
                .actions
                .iter()
                .any(|action| action.name() == "set-longhorn")
            {
                world.one_decision(|_| true);
            }
            world.one_decision(|name| name != "set-longhorn");
            set(&mut world, "300");
        }
        world.settle();
        assert_eq!(seen(&world), "1800");
        world.annotate("afloat.dev/abort", "true");
        world.settle();
        assert_eq!(seen(&world), "300", "refused: {refused}");
    }
}

/// The task of a Job that is deleted writes once more what it had decided on before.
#[test]
fn rule_7_a_drain_taint_that_comes_late_goes_too_unless_it_is_somebody_elses() {
    let over = || {
        let mut world = in_state("Pre-draining");
        world.annotate("afloat.dev/abort", "true");
        world.settle();
        assert!(crate::hci::over(&world.upgrade()));
        world
    };
    let mut world = over();
    world.taint("node-1");
    let woken = crate::affected(&world.view, &crate::Changed::Node("node-1".into()));
    assert!(!woken.is_empty());
    world.settle();
    world.assert_nothing_left();
    let stays = |mut world: World, node: &str| {
        world.taint(node);
        world.settle();
        assert_eq!(world.node(node).taints.len(), 1);
    };
    stays(over(), "node-2");
    let mut later = over();
    later.pass(11);
    stays(later, "node-1");
    let mut maintained = over();
    maintained.change_node("node-1", |node| node.hci.maintenance = Some(Arc::from("running")));
    stays(maintained, "node-1");
    let mut followed = over();
    followed.change_upgrade(|upgrade| {
        upgrade
            .metadata
            .labels
            .as_mut()
            .unwrap()
            .remove(afloat_api::labels::HARVESTER_LATEST_UPGRADE);
    });
    stays(followed, "node-1");
}

#[test]
fn a_repository_that_is_lost_while_a_node_is_finished_for_an_upgrade_that_is_ended_is_made_again() {
    for deleted in [false, true] {
        let mut world = in_state("Pre-drained");
        world.view.workloads.clear();
        if deleted {
            world.delete();
        } else {
            world.annotate("afloat.dev/abort", "true");
        }
        world.settle();
        assert_eq!(world.view.workloads.len(), 1, "deleted: {deleted}");
        finish(&mut world);
        world.assert_nothing_left();
    }
}

/// Harvester's images have finalizers of its own: one that was deleted with its upgrade may still be there when another of that name begins.
#[test]
fn rule_10_an_image_that_is_being_deleted_is_not_taken_for_that_of_a_new_upgrade_of_the_same_name() {
    let mut world = World::new(3);
    let key = World::key();
    let dying = crate::hci::view::Image {
        upgrade: Some(key.name.clone()),
        imported: true,
        ..crate::hci::view::Image::default()
    };
    world.take(&key.namespace, &key.name, dying, HciObject::Image);
    let mut image = (*world.view.hci.images[&key]).clone();
    image.deleting = true;
    world.view.hci.take(HciObject::Image(Arc::new(image)));
    world.start();
    world.settle();
    let (status, told) = world.condition("ImageReady");
    assert_eq!(status, "Unknown");
    assert!(told.contains("another one of that name is being deleted"), "{told}");
    world.view.hci.images.clear();
    world.settle();
    assert_eq!(world.condition("ImageReady").0, "True");
}

#[test]
fn rule_9_whoever_was_stopped_for_an_earlier_upgrade_of_the_same_name_is_not_on_record_for_this_one() {
    let mut world = in_state("Pre-draining");
    let key = crate::hci::view::RestoreList::key(&World::key().name);
    let theirs = crate::hci::view::RestoreList {
        upgrade_uid: Some(crate::testing::uid("an-earlier-one")),
        nodes: [("node-1".to_owned(), ["shop/db".to_owned()].into())].into(),
    };
    world.take(&key.namespace, &key.name, theirs, HciObject::RestoreList);
    assert!(world.view.hci.restore_list_of(&World::key()).is_none());
    world.add_vm("db", "node-1", |vmi| vmi.host_devices = true);
    world.settle();
    let recorded = world.done.iter().any(|action| action.name() == "record-vms");
    assert!(recorded, "it is on record, for another one");
}

//! Pausing nodes: who pauses, where, until when, and what is left of it.

use afloat_api::annotations;

use super::world::{NEW_OS, World};
use crate::hci::action::JobKind;
use crate::hci::view::Vmi;

fn manual(nodes: &str) -> String {
    format!(
        r#"{{"imagePreloadOption":{{"strategy":{{"type":"skip"}}}},"nodeUpgradeOption":{{"strategy":{{"mode":"manual"{nodes}}}}}}}"#
    )
}

fn paused(world: &World) -> Vec<String> {
    let held = world.view.nodes.values().filter(|node| node.hci.pause.is_some());
    held.map(|node| node.name.to_string()).collect()
}

#[test]
fn h5_nodes_that_are_to_pause_get_the_annotation_when_the_upgrade_starts() {
    for (setting, expected) in [
        (manual(r#","pauseNodes":["node-2","node-3"]"#), vec!["node-2", "node-3"]),
        (manual(""), vec!["node-1", "node-2", "node-3"]),
        (String::new(), vec![]),
    ] {
        let mut world = World::new(3);
        world.setting(&setting);
        world.start();
        world.settle();
        assert_eq!(paused(&world), expected, "{setting}");
    }
}

#[test]
fn h5_the_map_on_the_upgrade_is_another_way_to_write_the_same() {
    let mut world = World::new(3);
    world.start_with(&[(
        annotations::HARVESTER_PAUSE_MAP,
        r#"{"node-1":"pause","node-2":"pause"}"#,
    )]);
    world.reach_nodes();
    assert_eq!(paused(&world), ["node-1", "node-2"]);
    world.rancher_asks("node-1");
    assert_eq!(world.state("node-1"), "Node-upgrade paused");
    world.annotate(
        annotations::HARVESTER_PAUSE_MAP,
        r#"{"node-1":"unpause","node-2":"pause"}"#,
    );
    world.settle();
    assert_eq!(paused(&world), ["node-2"]);
    assert_eq!(world.state("node-1"), "Pre-draining");
    // And the other way round: the node's annotation goes, the map follows.
    world.unpause("node-2");
    world.settle();
    let map = world.upgrade().metadata.annotations.unwrap()[annotations::HARVESTER_PAUSE_MAP].clone();
    assert_eq!(map, r#"{"node-1":"unpause","node-2":"unpause"}"#);
    assert_eq!(paused(&world), Vec::<String>::new(), "it is not put there again");
}

#[test]
fn h2_h5_a_node_that_joins_pauses_where_every_node_does() {
    for (setting, own_map, in_preload, pauses) in [
        (manual(""), None, false, true),
        (manual("").replace("skip", "sequential"), None, true, true),
        (manual(""), Some(r#"{"node-1":"pause"}"#), false, true),
        (manual(r#","pauseNodes":["node-1"]"#), None, false, false),
        (String::new(), None, false, false),
    ] {
        let mut world = World::new(3);
        world.setting(&setting);
        let map = own_map.map(|map| (annotations::HARVESTER_PAUSE_MAP, map));
        world.start_with(map.as_slice());
        world.settle();
        if !in_preload {
            world.preload();
            world.complete(JobKind::ApplyManifests, None);
        }
        let before = paused(&world);
        world.pass(10);
        world.add_node("node-4");
        let born = world.now;
        world.change_node("node-4", |node| node.created_at = born);
        world.rancher_asks("node-4");
        if in_preload {
            world.preload();
            world.complete(JobKind::ApplyManifests, None);
        }
        assert_eq!(paused(&world).contains(&"node-4".to_owned()), pauses, "{setting}");
        let mut others = paused(&world);
        others.retain(|node| node != "node-4");
        assert_eq!(others, before, "nobody else is held by it");
        assert_eq!(
            world.state("node-4") == "Node-upgrade paused",
            pauses,
            "{setting}: {}",
            world.state("node-4")
        );
        assert!(!pauses || !world.has_job(JobKind::PreDrain, Some("node-4")));
        if pauses {
            world.unpause("node-4");
            world.settle();
            assert_eq!(world.state("node-4"), "Pre-draining", "{setting}");
        }
    }
}

#[test]
fn h7_a_pause_taken_away_while_the_upgrade_was_written_is_looked_at_again() {
    let mut world = World::new(3);
    world.setting(&manual(r#","pauseNodes":["node-2"]"#));
    world.start();
    world.reach_nodes();
    world.rancher_asks("node-2");
    world.unpause("node-2");
    // The Upgrade was written between the person's request and its news: nobody can tell by then that the pause had been seen.
    let certain = std::mem::replace(&mut world.view.nodes_as_of, crate::view::Revision(0));
    world.settle();
    assert_eq!(world.state("node-2"), "Node-upgrade paused");
    let again = world.decide().again.unwrap();
    assert!(again <= world.now + jiff::SignedDuration::from_secs(5), "{again}");
    // A heartbeat brings certainty, and wakes nobody.
    world.view.nodes_as_of = certain;
    world.settle();
    assert_eq!(world.state("node-2"), "Pre-draining");
}

#[test]
fn h4_a_later_change_of_the_setting_changes_nothing() {
    let mut world = World::new(3);
    world.setting(&manual(r#","pauseNodes":["node-2"]"#));
    world.start();
    world.settle();
    world.setting(&manual(""));
    world.settle();
    assert_eq!(paused(&world), ["node-2"]);
    let mut automatic = World::new(3);
    automatic.start();
    automatic.settle();
    automatic.setting(&manual(""));
    automatic.preload();
    automatic.complete(JobKind::ApplyManifests, None);
    automatic.rancher_asks("node-1");
    assert_eq!(automatic.state("node-1"), "Pre-draining");
}

#[test]
fn h6_h7_a_paused_node_gets_its_job_when_the_annotation_goes_and_not_before() {
    let mut world = World::new(3);
    world.setting(&manual(r#","pauseNodes":["node-2"]"#));
    world.start();
    world.reach_nodes();
    world.rancher_asks("node-2");
    assert_eq!(world.state("node-2"), "Node-upgrade paused");
    assert!(!world.has_job(JobKind::PreDrain, Some("node-2")));
    let status = world.upgrade().status.unwrap().node_statuses["node-2"].clone();
    assert_eq!(status.reason, "AdministrativelyPaused");
    assert!(
        status
            .message
            .starts_with("Node upgrade paused as requested by the user"),
        "{}",
        status.message
    );
    assert!(status.message.contains("holds up node-1, node-3"), "{}", status.message);
    assert!(
        status
            .message
            .contains("kubectl annotate node node-2 harvesterhci.io/node-upgrade-pause-")
    );
    world.pass(600);
    world.settle();
    assert_eq!(
        world.state("node-2"),
        "Node-upgrade paused",
        "a pause has no end of its own"
    );
    world.unpause("node-2");
    world.settle();
    assert_eq!(world.state("node-2"), "Pre-draining");
    assert!(world.has_job(JobKind::PreDrain, Some("node-2")));
}

#[test]
fn h10_h12_a_single_node_pauses_on_entering_the_node_phase() {
    let mut world = World::new(1);
    let short = r#"{"imagePreloadOption":{"strategy":{"type":"skip"}},"nodeUpgradeOption":{"mode":"manual"}}"#;
    world.setting(short);
    world.start();
    world.reach_nodes();
    assert_eq!(world.state("node-1"), "Node-upgrade paused");
    assert_eq!(world.phase(), "UpgradingSystemServices");
    assert!(!world.has_job(JobKind::SingleNodeUpgrade, Some("node-1")));
    world.unpause("node-1");
    world.settle();
    assert!(world.has_job(JobKind::SingleNodeUpgrade, Some("node-1")));
    assert!(
        world.view.hci.local_cluster().unwrap().rolled_out_for.is_none(),
        "one Job, no hooks"
    );
    world.change_node("node-1", |node| node.kubelet_version = "v1.34.1+rke2r1".parse().ok());
    world.complete(JobKind::SingleNodeUpgrade, Some("node-1"));
    assert_eq!(world.state("node-1"), "Waiting Reboot");
    world.boots("node-1", NEW_OS);
    assert_eq!(world.state("node-1"), "Succeeded");
    world.clean_up();
    assert_eq!(world.condition("Completed").0, "True");
    world.assert_nothing_left();
}

#[test]
fn h9_h12_three_nodes_with_two_paused_leave_no_annotation_at_the_end() {
    let mut world = World::new(3);
    let short = r#"{"imagePreloadOption":{"strategy":{"type":"skip"}},"nodeUpgradeOption":{"mode":"manual","pauseNodes":["node-2","node-3"]}}"#;
    world.setting(short);
    world.start();
    world.reach_nodes();
    world.take_through("node-1");
    for node in ["node-3", "node-2"] {
        world.rancher_asks(node);
        assert_eq!(world.state(node), "Node-upgrade paused");
        world.unpause(node);
        world.settle();
        world.finish(node);
    }
    world.clean_up();
    assert_eq!(world.condition("Completed").0, "True");
    world.assert_nothing_left();
}

#[test]
fn h9_h12_an_upgrade_deleted_during_preload_leaves_no_annotation() {
    let mut world = World::new(3);
    world.setting(r#"{"imagePreloadOption":{"strategy":{"type":"sequential"}},"nodeUpgradeOption":{"mode":"manual"}}"#);
    world.start();
    world.settle();
    assert_eq!(paused(&world).len(), 3);
    assert_eq!(world.phase(), "PreparingNodes");
    world.delete();
    world.settle();
    assert!(world.deleted());
    world.assert_nothing_left();
}

#[test]
fn h9_a_failure_leaves_no_annotation() {
    let mut world = World::new(3);
    world.setting(r#"{"imagePreloadOption":{"strategy":{"type":"sequential"}},"nodeUpgradeOption":{"mode":"manual"}}"#);
    world.start();
    world.settle();
    world.fail(JobKind::Prepare, Some("node-1"), "no space left on device");
    assert_eq!(world.state("node-1"), "Failed");
    assert_eq!(world.phase(), "Failed");
    assert!(world.condition("Completed").1.contains("no space left"));
    world.assert_nothing_left();
}

#[test]
fn h11_what_a_person_moves_or_stops_during_the_pause_is_seen_and_not_repeated() {
    let mut world = World::new(3);
    world.setting(&manual(r#","pauseNodes":["node-2"]"#));
    let pinned = |vmi: &mut Vmi| vmi.host_devices = true;
    world.add_vm("with-gpu", "node-2", pinned);
    world.add_vm("with-usb", "node-2", pinned);
    world.start();
    world.reach_nodes();
    world.rancher_asks("node-2");
    // The person shuts one down and leaves the other.
    world.remove_vmi("with-gpu");
    world.settle();
    assert!(
        world.recorded("node-2").is_empty(),
        "nothing is recorded while it is paused"
    );
    world.unpause("node-2");
    world.settle();
    assert_eq!(
        world.recorded("node-2").into_iter().collect::<Vec<_>>(),
        ["shop/with-usb"]
    );
}

#[test]
fn a_pause_of_the_whole_upgrade_starts_nothing_new_and_names_the_way_on() {
    let mut world = World::new(3);
    world.start();
    world.reach_nodes();
    world.annotate(annotations::PAUSE, "held by afloat pause");
    world.rancher_asks("node-1");
    assert_eq!(world.state("node-1"), "Images preloaded");
    assert!(
        world.told("node-1").contains("afloat resume"),
        "{}",
        world.told("node-1")
    );
    world.change_upgrade(|upgrade| {
        upgrade
            .metadata
            .annotations
            .as_mut()
            .unwrap()
            .remove(annotations::PAUSE);
    });
    world.settle();
    assert_eq!(world.state("node-1"), "Pre-draining");
}

#[test]
fn a_missing_annotation_counts_only_once_nodes_were_seen_since() {
    let mut world = World::new(3);
    world.setting(&manual(""));
    world.start();
    world.reach_nodes();
    world.rancher_asks("node-1");
    // An operator that just started: the Upgrade is newer than the list of nodes, which has not the annotation yet.
    let seen = world.view.nodes_as_of;
    world.unpause("node-1");
    world.view.nodes_as_of = seen;
    world.change_upgrade(|_| {});
    world.settle();
    assert_eq!(world.state("node-1"), "Node-upgrade paused");
    world.change_node("node-1", |_| {});
    world.settle();
    assert_eq!(world.state("node-1"), "Pre-draining");
}

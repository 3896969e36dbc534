//! Upgrades and nodes that are held, by whom, and what is left of it in the end.

use super::*;
use crate::view::{Node, Revision, Uid};

fn paused_workers() -> ClusterUpgradeSpec {
    ClusterUpgradeSpec {
        node_upgrade_option: Some(NodeUpgradeOption {
            strategy: Some(NodeUpgradeStrategy {
                mode: Some(NodeUpgradeMode::Manual),
                pause_nodes: vec!["worker-1".to_owned()],
            }),
        }),
        ..spec()
    }
}

#[test]
fn paused_means_that_no_further_node_starts() {
    let (mut table, key) = table(3, 1, spec());
    table.stage_all();
    table.edit(&key, |upgrade| upgrade.spec.paused = Some(true));
    table.becomes("cp-1", NodeState::Succeeded, None);
    table.stage_all();
    assert!(table.going().is_empty() && table.slots(&key).is_empty());
    table.edit(&key, |upgrade| upgrade.spec.paused = None);
    table.stage_all();
    assert_eq!(table.going(), ["cp-2"]);
}

#[test]
fn a_paused_node_blocks_itself_and_not_the_others() {
    let manual = ClusterUpgradeSpec {
        node_upgrade_option: Some(NodeUpgradeOption {
            strategy: Some(NodeUpgradeStrategy {
                mode: Some(NodeUpgradeMode::Manual),
                pause_nodes: vec!["worker-1".to_owned()],
            }),
        }),
        ..spec()
    };
    let (mut table, key) = table(1, 3, manual);
    let rounds = table.run(&key);
    assert_eq!(rounds.concat(), ["cp-1", "worker-2", "worker-3"]);
    let waiting = table.view().upgrades[&key].status.clone().unwrap().waiting;
    assert_eq!(
        (waiting[0].node.as_str(), waiting[0].wait.reason.as_str()),
        ("worker-1", "NodePaused")
    );
    table.cluster.node("worker-1", |node| node.pause = None);
    assert_eq!(table.run(&key).concat(), ["worker-1"]);
    assert_eq!(table.phase(&key), Phase::Succeeded);
}

#[test]
fn a_node_that_is_paused_before_it_begins_gives_its_slot_to_another() {
    let (mut table, key) = table(1, 2, spec());
    table.stage_all();
    table.becomes("cp-1", NodeState::Succeeded, None);
    table.stage_all();
    assert_eq!(table.going(), ["worker-1"]);
    table
        .cluster
        .node("worker-1", |node| node.pause = Some("by ops".into()));
    table.settle();
    let upgrade = table.node_upgrade("worker-1");
    assert_eq!(upgrade.spec.desired, DesiredNodeState::RolledBack);
    table.becomes("worker-1", NodeState::RolledBack, Some(Reason::NodePaused));
    table.stage_all();
    assert_eq!(table.slot_nodes(&key), ["worker-2"]);
    assert_eq!(table.node_upgrade("worker-1").spec.attempt, 2);
}

#[test]
fn the_end_of_an_upgrade_that_waits_leaves_the_pauses_of_the_one_at_work() {
    let (mut table, first) = table(1, 2, paused_workers());
    table.stage_all();
    assert!(table.view().nodes["worker-1"].pause.is_some());
    let second = table.upgrade("edge-2", spec());
    table.settle();
    table.edit(&second, |upgrade| upgrade.spec.abort = Some(true));
    table.settle();
    assert_eq!(table.phase(&second), Phase::Aborted);
    assert!(
        table.view().nodes["worker-1"].pause.is_some(),
        "held by the upgrade at work"
    );
    table.edit(&first, |upgrade| upgrade.spec.abort = Some(true));
    table.settle();
    table.becomes("cp-1", NodeState::RolledBack, Some(Reason::Aborted));
    table.settle();
    assert!(
        table.view().nodes["worker-1"].pause.is_none(),
        "taken back by the one that put it there"
    );
}

#[test]
fn a_pause_that_came_after_the_end_is_taken_back() {
    let (mut table, key) = table(1, 2, paused_workers());
    table.stage_all();
    let by = table.view().nodes["worker-1"].paused_by.clone();
    assert_eq!(
        by.as_ref().map(Uid::as_str),
        table.view().upgrades[&key].metadata.uid.as_deref()
    );
    table.edit(&key, |upgrade| upgrade.spec.abort = Some(true));
    table.settle();
    table.becomes("cp-1", NodeState::RolledBack, Some(Reason::Aborted));
    table.settle();
    assert!(table.view().lock.is_none(), "all of it is over");
    // Requests of a turn that was decided before the end, and that were slow.
    let late = |pause: &str| {
        let pause = Some(pause.into());
        let by = by.clone();
        move |node: &mut Node| {
            node.pause = pause;
            node.paused_by = by;
        }
    };
    table.cluster.node("worker-1", late("true"));
    table.cluster.node("worker-2", late("a person looks at it"));
    table.settle();
    let worker = &table.view().nodes["worker-1"];
    assert_eq!((&worker.pause, &worker.paused_by), (&None, &None));
    let worker = &table.view().nodes["worker-2"];
    assert_eq!(worker.paused_by, None);
    assert_eq!(
        worker.pause.as_deref(),
        Some("a person looks at it"),
        "what a person wrote stays"
    );
}

/// The answer to a pause got lost, the watch of nodes lags, and the upgrade is deleted: nobody would take the pause back afterwards.
#[test]
fn a_pause_that_is_not_seen_yet_does_not_outlive_its_deleted_upgrade() {
    let (mut table, key) = table(1, 2, paused_workers());
    table.stage_all();
    let paused = table.view().nodes["worker-1"].clone();
    table.cluster.node("worker-1", |node| {
        node.pause = None;
        node.paused_by = None;
    });
    let now = table.now;
    table.edit(&key, |upgrade| upgrade.metadata.deletion_timestamp = Some(Time(now)));
    table.becomes("cp-1", NodeState::RolledBack, Some(Reason::Aborted));
    for _ in 0..20 {
        table.cluster.view.nodes_as_of = Revision(1);
        let decision = table.decide(&Subject::Upgrade(key.clone()));
        table.carry_out(&decision);
    }
    table.cluster.view.nodes_as_of = Revision(1);
    assert!(table.view().lock.is_none() && table.phase(&key) == Phase::Aborted);
    let unsure = table.decide(&Subject::Upgrade(key.clone()));
    assert!(unsure.actions.is_empty() && unsure.nodes_since.is_some(), "{unsure:?}");
    table.cluster.view.nodes.insert(paused.name.clone(), paused);
    table.cluster.view.nodes_as_of = Revision(u64::MAX);
    table.settle();
    assert!(table.view().nodes["worker-1"].pause.is_none());
    assert_eq!(table.view().upgrades[&key].metadata.finalizers, None);
}

#[test]
fn what_is_put_off_until_a_status_stands_is_not_forgotten() {
    let (mut table, key) = table(1, 2, paused_workers());
    table.stage_all();
    table.edit(&key, |upgrade| {
        let status = upgrade.status.get_or_insert_default();
        (status.phase, status.slots) = (Some(Phase::Aborted), Vec::new());
        // A person has edited it since: that is said before anything else is done, and nobody is woken by what one says oneself.
        upgrade.metadata.generation = Some(7);
    });
    let now = jiff::Timestamp::UNIX_EPOCH;
    let decision = crate::decide(table.view(), &Subject::Upgrade(key), now);
    let names: Vec<_> = decision.actions.iter().map(Action::name).collect();
    assert_eq!((names, decision.again), (vec!["write-upgrade-status"], Some(now)));
}

/// Put there by a process that ended before it could look whether its upgrade was still there.
#[test]
fn a_pause_of_an_upgrade_that_is_gone_is_taken_back_by_the_next_one() {
    let (mut table, key) = table(1, 2, paused_workers());
    for (node, pause) in [("worker-2", "true"), ("cp-1", "ours, now")] {
        table.cluster.node(node, |node| {
            node.pause = Some(pause.into());
            node.paused_by = Some("gone".into());
        });
    }
    table.stage_all();
    let held = |table: &Table, node: &str| {
        let node = &table.view().nodes[node];
        (node.pause.clone(), node.paused_by.clone())
    };
    assert_eq!(held(&table, "worker-2"), (None, None));
    let by_person = Some("ours, now".into());
    assert_eq!(held(&table, "cp-1"), (by_person, None), "a person has written over it");
    let own = Some(Uid::from("edge-1-uid"));
    assert_eq!(held(&table, "worker-1"), (Some("true".into()), own));
    assert!(table.phase(&key) > Phase::Preflight);
}

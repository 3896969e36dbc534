//! How files and images are brought to the nodes: how many at once, and whether anybody waits for all of them.

use afloat_api::NodeState;
use afloat_api::clusterupgrade::{ImagePreloadOption, ImagePreloadStrategy, ImagePreloadType, Phase};

use super::*;
use crate::changed::Changed;
use crate::subject::affected;

fn preload(kind: ImagePreloadType, concurrency: Option<i32>) -> ClusterUpgradeSpec {
    ClusterUpgradeSpec {
        image_preload_option: Some(ImagePreloadOption {
            strategy: Some(ImagePreloadStrategy { kind, concurrency }),
        }),
        ..spec()
    }
}

/// The nodes that something is brought to.
fn staging(table: &Table) -> Vec<String> {
    let upgrades = table.view().node_upgrades().values();
    let busy = upgrades.filter(|upgrade| {
        let state = upgrade
            .status
            .as_ref()
            .and_then(|status| status.state)
            .unwrap_or_default();
        matches!(state, NodeState::Pending | NodeState::Staging)
    });
    let mut names: Vec<_> = busy.map(|upgrade| upgrade.spec.node.name.clone()).collect();
    names.sort();
    names
}

/// Stages whoever is due, one round after the other, until nobody is; and says who was at once.
fn rounds(table: &mut Table) -> Vec<Vec<String>> {
    let mut rounds = Vec::new();
    loop {
        table.settle();
        let busy = staging(table);
        if busy.is_empty() {
            return rounds;
        }
        for node in &busy {
            table.becomes(node, NodeState::Staged, None);
        }
        rounds.push(busy);
    }
}

#[test]
fn one_after_the_other_is_one_of_the_whole_cluster_and_nobody_is_disrupted_before_the_last() {
    let (mut table, key) = table(3, 2, preload(ImagePreloadType::Sequential, None));
    table.settle();
    for node in ["cp-1", "cp-2", "cp-3", "worker-1", "worker-2"] {
        assert_eq!(staging(&table), [node]);
        assert_eq!((table.phase(&key), table.slots(&key).len()), (Phase::Prepare, 0));
        table.becomes(node, NodeState::Staged, None);
        table.settle();
    }
    assert_eq!(table.slot_nodes(&key), ["cp-1"]);
}

#[test]
fn several_at_once_are_as_many_as_was_said_in_all_groups_together() {
    let (mut two, _) = table(1, 4, preload(ImagePreloadType::Parallel, Some(2)));
    let at_once: Vec<usize> = rounds(&mut two).iter().map(Vec::len).collect();
    assert_eq!(at_once, [2, 2, 1], "of whatever group");
    for unbounded in [None, Some(0)] {
        let (mut all, _) = table(3, 12, preload(ImagePreloadType::Parallel, unbounded));
        assert_eq!(rounds(&mut all)[0].len(), 15, "{unbounded:?}");
    }
    let (mut default, _) = table(3, 12, spec());
    assert_eq!(
        rounds(&mut default)[0].len(),
        13,
        "three control planes, and ten workers"
    );
}

#[test]
fn where_preloading_is_skipped_the_first_goes_as_soon_as_it_is_ready() {
    let (mut table, key) = table(3, 2, preload(ImagePreloadType::Skip, None));
    table.settle();
    assert_eq!(staging(&table), ["cp-1", "worker-1"], "one of each group");
    assert_eq!(table.phase(&key), Phase::ControlPlane);
    table.becomes("cp-1", NodeState::Staged, None);
    table.settle();
    assert_eq!(table.slot_nodes(&key), ["cp-1"], "the others have nothing yet");
    assert_eq!(table.run(&key).concat().len(), 5);
    assert_eq!(table.phase(&key), Phase::Succeeded);
}

#[test]
fn a_node_that_is_away_keeps_no_other_from_being_staged() {
    let (mut table, _) = table(1, 3, preload(ImagePreloadType::Sequential, None));
    table.settle();
    table.becomes("cp-1", NodeState::Staged, None);
    table.settle();
    assert_eq!(staging(&table), ["worker-1"]);
    let before = table.view().nodes["worker-1"].clone();
    table.cluster.node("worker-1", |node| node.ready.ready = false);
    // Only who is woken decides: nothing else may happen for long.
    let changed = Changed::node(Some(&before), &table.view().nodes["worker-1"]);
    for subject in affected(table.view(), &changed) {
        let decision = table.decide(&subject);
        table.carry_out(&decision);
    }
    assert_eq!(staging(&table), ["worker-1", "worker-2"]);
}

#[test]
fn nothing_is_brought_to_control_planes_while_one_is_away_and_none_goes_before_all_have_it() {
    let far = ClusterUpgradeSpec {
        kubernetes_version: "v1.37.1".to_owned(),
        ..spec()
    };
    let mut table = Table::new(Cluster::new(3, 0, FROM).images(&[TO, "v1.37.1"]));
    let key = table.upgrade("edge-1", far);
    table.stage_all();
    for node in ["cp-1", "cp-2"] {
        assert_eq!(table.slot_nodes(&key), [node]);
        table.becomes(node, NodeState::Succeeded, None);
        table.settle();
    }
    // At its new version, and not well yet.
    table.becomes("cp-3", NodeState::Verifying, None);
    table.cluster.upgrade("cp-3", TO);
    table.settle();
    assert_eq!(table.slot_nodes(&key), ["cp-3"]);
    assert_eq!(staging(&table), Vec::<String>::new(), "for the next hop");
    table.becomes("cp-3", NodeState::Succeeded, None);
    table.settle();
    assert_eq!(staging(&table), ["cp-1", "cp-2", "cp-3"]);
    for node in ["cp-1", "cp-2"] {
        table.becomes(node, NodeState::Staged, None);
        table.settle();
        assert_eq!(table.slot_nodes(&key), Vec::<String>::new(), "cp-3 is being staged");
    }
    let said = format!("{:?}", table.view().upgrades[&key].status);
    assert!(
        said.contains("v1.37.1 is brought to cp-3 before the next node goes"),
        "{said}"
    );
    table.becomes("cp-3", NodeState::Staged, None);
    table.settle();
    assert_eq!(table.slot_nodes(&key), ["cp-1"]);
}

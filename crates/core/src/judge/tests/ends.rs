//! The end of an upgrade: not before every machine that was there by then was seen.

use super::*;

fn ends(decision: &crate::action::Decision) -> bool {
    let mut actions = decision.actions.iter();
    actions.any(|action| matches!(action, Action::WriteUpgradeStatus { status, .. } if status.finished_at.is_some()))
}

/// Two workers, of which the second has left before its turn came; the rest is done.
fn table_with_a_leaver() -> (Table, Key, std::sync::Arc<crate::view::Node>) {
    let (mut table, key) = table(1, 2, spec());
    table.stage_all();
    table.becomes("cp-1", NodeState::Succeeded, None);
    table.stage_all();
    let left = table.cluster.view.nodes.remove("worker-2").unwrap();
    let upgrade = crate::objects::key_of(&table.node_upgrade("worker-2").metadata);
    table.cluster.view.remove_node_upgrade(&upgrade);
    table.becomes("worker-1", NodeState::Succeeded, None);
    (table, key, left)
}

/// A machine was replaced: its leaving was seen, its successor's coming was not, but another replica has listed it.
#[test]
fn an_upgrade_does_not_end_while_a_machine_that_is_listed_may_only_be_unseen() {
    let (mut table, key, left) = table_with_a_leaver();
    let seen = table.view().nodes_as_of;
    table.cluster.view.nodes_as_of = crate::view::Revision(1);
    let subject = Subject::Upgrade(key.clone());
    for _ in 0..3 {
        let decision = table.decide(&subject);
        assert!(!ends(&decision) && decision.nodes_since.is_some(), "{decision:?}");
        table.carry_out(&decision);
        table.cluster.view.nodes_as_of = crate::view::Revision(1);
    }
    table.cluster.view.nodes.insert(left.name.clone(), left);
    table.cluster.view.nodes_as_of = seen;
    assert_eq!(table.run(&key).concat(), ["worker-2"]);
    assert_eq!(table.phase(&key), Phase::Succeeded);
}

/// A machine was replaced, and nobody has seen its successor yet, which joined a moment later.
#[test]
fn an_upgrade_that_saw_a_machine_leave_looks_once_more_before_it_ends() {
    let subject = |key: &Key| Subject::Upgrade(key.clone());
    let says = |decision: &crate::action::Decision| format!("{decision:?}").contains("worker-2 left: looks once more");
    let (mut table, key, left) = table_with_a_leaver();
    let first = table.decide(&subject(&key));
    assert!(says(&first) && !ends(&first) && first.again.is_some(), "{first:?}");
    let before = table.view().nodes_as_of;
    table.carry_out(&first);
    let after = table.view().nodes_as_of;

    let looked = table.decide(&subject(&key));
    assert!(ends(&looked), "nobody has joined: {looked:?}");

    table.cluster.view.nodes_as_of = before;
    let blind = table.decide(&subject(&key));
    assert!(
        !ends(&blind) && blind.again.is_some(),
        "seen before it was said: {blind:?}"
    );

    let successor = crate::view::Node {
        uid: crate::view::Uid::from("worker-2-anew"),
        ..(*left).clone()
    };
    table
        .cluster
        .view
        .nodes
        .insert(successor.name.clone(), successor.into());
    table.cluster.view.nodes_as_of = after;
    assert_eq!(table.run(&key).concat(), ["worker-2"]);
    assert_eq!(table.phase(&key), Phase::Succeeded);
}

/// Another replica has seen the machine leave and ended its upgrade; this one has heard of the upgrade and not of the machine.
#[test]
fn an_upgrade_does_not_end_on_a_view_in_which_a_machine_that_left_is_still_there() {
    let (mut table, key) = table(1, 2, spec());
    table.stage_all();
    table.becomes("cp-1", NodeState::Succeeded, None);
    table.stage_all();
    table.becomes("worker-1", NodeState::Succeeded, None);
    let before = table.view().nodes_as_of;
    table.becomes("worker-2", NodeState::Failed, Some(Reason::ObjectGone));
    let subject = Subject::Upgrade(key);
    for _ in 0..3 {
        table.cluster.view.nodes_as_of = before;
        let decision = table.decide(&subject);
        assert!(!ends(&decision) && decision.again.is_some(), "{decision:?}");
        table.carry_out(&decision);
    }
    table.cluster.view.nodes_as_of = crate::view::Revision(u64::MAX);
    assert!(ends(&table.decide(&subject)));
}

/// The answer to the write that gave the last node back is there before the watch tells of it, and of a machine that joined
/// just before.
#[test]
fn an_upgrade_does_not_end_while_the_watch_of_nodes_is_behind_an_own_write() {
    let (mut table, key) = table(1, 1, spec());
    table.stage_all();
    table.becomes("cp-1", NodeState::Succeeded, None);
    table.stage_all();
    let joined = crate::view::Node {
        name: crate::view::NodeName::from("worker-2"),
        uid: crate::view::Uid::from("worker-2-uid"),
        ..(*table.view().nodes["worker-1"]).clone()
    };
    let behind = table.view().nodes_as_of;
    table.becomes("worker-1", NodeState::Succeeded, None);
    let answered = table.view().nodes_as_of;
    table.cluster.node("worker-1", |node| node.revision = answered);
    let subject = Subject::Upgrade(key.clone());
    for _ in 0..3 {
        table.cluster.view.nodes_as_of = behind;
        let decision = table.decide(&subject);
        let again = decision.again.is_some_and(|again| again > table.now);
        assert!(!ends(&decision) && again, "{decision:?}");
        table.carry_out(&decision);
    }
    // Nothing was written to a node since: that the upgrade itself was must not keep it waiting.
    table.cluster.view.nodes_as_of = answered;
    assert!(ends(&table.decide(&subject)), "nobody has joined");
    table.cluster.view.nodes.insert(joined.name.clone(), joined.into());
    assert_eq!(table.run(&key).concat(), ["worker-2"]);
    assert_eq!(table.phase(&key), Phase::Succeeded);
}

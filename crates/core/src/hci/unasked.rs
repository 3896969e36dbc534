//! Where no node is at work: what Rancher says of itself, that it asks about no node where it could, and nodes that it has no reason to ask about.
//! Those are at the target already, by an attempt before this one or because they joined with the release: nobody would ever answer about them.

use std::sync::Arc;

use afloat_api::Reason;
use afloat_api::harvester::{HarvesterNodeState as State, UpgradeCondition as Is};
use jiff::Timestamp;

use super::turn::{Tri, Turn, minutes_after, moment};
use super::{deadlines, image, nodes, waits};
use crate::view::{Node, NodeName};

/// How long Rancher may take to ask about nodes that are at the target: another generation can be a reason to it, and whoever is done is not emptied
/// before its drain any more.
const THERE_MINUTES: i64 = 5;
/// What is said of such a node.
const THERE: &str = "was at the target already";

/// Rancher's own words (H50), and that it asks about no node where it could. Ends the wait for nodes that are at the target.
pub fn say(turn: &mut Turn<'_>) {
    let cluster = turn.view.hci.local_cluster();
    let checkpoint = cluster.and_then(|cluster| cluster.checkpoint.clone());
    let open = nobody_asked(turn);
    let since = deadlines::unasked_since(turn, &open);
    let there = all_there(turn, &open).filter(|_| checkpoint.is_none());
    let waits = match (since, there) {
        (None, _) => None,
        (Some(since), None) => Some(deadlines::unasked(turn, &open, since)),
        (Some(since), Some(there)) => match not_yet(turn, &open, since) {
            None => return done(turn, &there),
            waits => waits,
        },
    };
    let told = checkpoint.map_or_else(String::new, |text| format!("Rancher: {text}"));
    let (reason, message) = match waits {
        None => (String::new(), told),
        Some(waits) if told.is_empty() => (Reason::WaitingForRancher.to_string(), waits),
        Some(waits) => (Reason::WaitingForRancher.to_string(), format!("{waits}. {told}")),
    };
    turn.set(Is::NodesUpgraded, Tri::Unknown, &reason, &message);
}

/// Nodes that are not done, where Rancher has asked about none of them and none is at work; nothing where it waits for us.
fn nobody_asked(turn: &Turn<'_>) -> Vec<String> {
    let mut open = Vec::new();
    for name in turn.status().node_statuses.keys() {
        let plan = turn.view.hci.plan_of(&NodeName::from(name.as_str()));
        match turn.node_state(name) {
            Some(State::Succeeded) => {}
            Some(State::ImagesPreloaded) if !plan.is_some_and(|plan| plan.asks_pre_drain()) => open.push(name.clone()),
            _ => return Vec::new(),
        }
    }
    open
}

/// These nodes, where each of them is at the target.
fn all_there(turn: &Turn<'_>, names: &[String]) -> Option<Vec<Arc<Node>>> {
    let release = image::release(turn)?;
    let there = |name: &String| {
        let node = turn.view.nodes.get(name.as_str())?;
        waits::at_target(node, &release).ok()?;
        Some(Arc::clone(node))
    };
    names.iter().map(there).collect()
}

/// What is said of nodes that are at the target while Rancher may still ask about them.
fn not_yet(turn: &mut Turn<'_>, names: &[String], since: Timestamp) -> Option<String> {
    let until = minutes_after(since, THERE_MINUTES);
    if turn.now >= until {
        return None;
    }
    turn.look_at(until);
    let some: Vec<&str> = names.iter().map(String::as_str).collect();
    let are = if some.len() == 1 { "is" } else { "are" };
    Some(format!(
        "{} {are} at the target already: done at {}, unless Rancher asks before that",
        nodes::some(&some),
        moment(until)
    ))
}

fn done(turn: &mut Turn<'_>, there: &[Arc<Node>]) {
    for node in there {
        turn.set_node(node.name.as_str(), State::Succeeded, "", THERE);
        turn.tell(false, Reason::Succeeded, &format!("node {} {THERE}", node.name));
        nodes::done(turn, node);
    }
    deadlines::unasked_since(turn, &[]);
}

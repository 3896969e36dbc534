//! Nodes that are not done yet say so, by a taint of our own that keeps nobody away (`PreferNoSchedule`): whoever leaves a node goes to one that is
//! done where there is a choice, and is not moved once more. It comes before Rancher is asked, and goes with the node's turn; however the upgrade
//! ends, none is left. A person who takes it from a node has the last word: nobody looks for it there again until the upgrade is resumed.

use std::sync::Arc;

use afloat_api::annotations::{PENDING_AS_OF, UPGRADE_PENDING_TAINT};
use afloat_api::harvester::{HarvesterNodeState as State, Upgrade, UpgradeCondition as Is};
use afloat_api::names;

use super::action::HciAction;
use super::turn::{Tri, Turn};
use super::vms;
use crate::view::{Node, Revision, Taint, TaintEffect, View};

/// From so many hosts on whoever leaves one of them has a choice.
const HOSTS: usize = 3;

/// The taint's value: a name may be longer than one.
fn value(upgrade: &str) -> String {
    names::cut(upgrade)
}

pub fn is_ours(taint: &Taint) -> bool {
    &*taint.key == UPGRADE_PENDING_TAINT
}

/// Whether every node that is not done says so; has it said where it is not.
pub fn told(turn: &mut Turn<'_>) -> bool {
    let nodes: Vec<Arc<Node>> = turn.view.nodes.values().cloned().collect();
    // Each of them is told in the same turn.
    let silent = nodes.iter().filter(|node| !tells(turn, node)).count();
    silent == 0
}

/// The same of one node. That all of it is on record stands on the Upgrade once it does: what is put back is not looked for in a view from before.
pub fn tells(turn: &mut Turn<'_>, node: &Node) -> bool {
    let mut hosts = vms::hosts(turn.view);
    let is_host = hosts.any(|host| host.name == node.name);
    let done = turn.node_state(node.name.as_str()) == Some(State::Succeeded);
    if !is_host || done || vms::hosts(turn.view).count() < HOSTS {
        return true;
    }
    let ours = Taint {
        key: Arc::from(UPGRADE_PENDING_TAINT),
        value: Arc::from(value(turn.name())),
        effect: TaintEffect::PreferNoSchedule,
    };
    if node.taints.contains(&ours) {
        let as_of = as_of(turn).unwrap_or_default().max(node.revision);
        turn.annotate(PENDING_AS_OF, Some(&as_of.0.to_string()));
        return true;
    }
    let others = node.taints.iter().filter(|taint| !is_ours(taint)).cloned();
    turn.first(HciAction::TaintPending {
        node: node.target(),
        taints: others.chain([ours]).collect(),
    });
    false
}

fn as_of(turn: &Turn<'_>) -> Option<Revision> {
    turn.annotation(PENDING_AS_OF)?.parse().ok().map(Revision)
}

/// Whether nodes were seen since the last of them was told: before that, a taint that is missing may only not have been read yet. Asks for them
/// where they were not.
pub fn all_seen(turn: &mut Turn<'_>) -> bool {
    let served = turn.condition(Is::SystemServicesUpgraded) == Some(Tri::True);
    let choice = vms::hosts(turn.view).count() >= HOSTS;
    let telling = choice && served && turn.condition(Is::NodesUpgraded).is_none();
    // Whoever was about to tell them has not said so yet.
    let as_of = as_of(turn).or_else(|| telling.then_some(turn.target.revision));
    match as_of.filter(|as_of| turn.view.nodes_as_of < *as_of) {
        Some(as_of) => {
            turn.see_nodes_since(as_of);
            false
        }
        None => true,
    }
}

/// Nodes that still say it for an upgrade that is over: what was on its way when it ended comes late.
pub fn left<'a>(view: &'a View, upgrade: &'a Upgrade) -> impl Iterator<Item = &'a Arc<Node>> {
    let value = value(upgrade.metadata.name.as_deref().unwrap_or_default());
    let says = move |node: &&Arc<Node>| {
        let mut taints = node.taints.iter();
        taints.any(|taint| is_ours(taint) && *taint.value == *value)
    };
    view.nodes.values().filter(says)
}

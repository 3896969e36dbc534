//! The pause of nodes. There is one truth, the annotation of the Node; the map on the Upgrade is another way to write it and is kept
//! the same. Both are written when an upgrade starts, and both let a node go on when a person takes the pause away.

use afloat_api::annotations;
use afloat_api::harvester::{HarvesterNodeState, NodePause, PauseMapValue};

use super::action::{HciAction, NodeMark};
use super::config::{self, PAUSES_APPLIED, PauseMap};
use super::report;
use super::turn::Turn;
use crate::view::{Node, UNTIL_SEEN};

/// The map an upgrade starts with: the person's own, or what the setting says.
pub fn initial(turn: &Turn<'_>, pause: &NodePause) -> PauseMap {
    if turn.annotation(annotations::HARVESTER_PAUSE_MAP).is_some() {
        // A map that cannot be read was refused before.
        return config::pause_map(&turn.after).unwrap_or_default();
    }
    let nodes = turn.view.nodes.keys().map(ToString::to_string);
    nodes
        .filter(|node| pause.holds(node))
        .map(|node| (node, PauseMapValue::Pause))
        .collect()
}

/// Carries changes of the map over to the nodes, and the other way round. Whether anything was to be written.
pub fn carry_over(turn: &mut Turn<'_>) -> bool {
    // Unreadable: what was applied last stands; upstream would let every node go.
    let Ok(mut map) = config::pause_map(&turn.after) else {
        return false;
    };
    let applied = config::pauses_applied(&turn.after);
    for node in joined_to_pause(turn) {
        map.entry(node).or_insert(PauseMapValue::Pause);
    }
    let (mut marks, mut unsure) = (Vec::new(), false);
    for (name, value) in &mut map {
        let Some(node) = turn.view.nodes.get(name.as_str()) else {
            continue;
        };
        let held = node.hci.pause.is_some();
        let new = applied.get(name) != Some(value);
        match *value {
            PauseMapValue::Pause if new && !held && !begun(turn, name) => {
                let by = turn.target.key.name.clone();
                marks.push((node.target(), Some(by)));
            }
            PauseMapValue::Unpause if new && held => marks.push((node.target(), None)),
            // A person took the annotation away: the map follows.
            PauseMapValue::Pause if !new && !held && seen_since(turn) => *value = PauseMapValue::Unpause,
            PauseMapValue::Pause if !new && !held => unsure = true,
            _ => {}
        }
    }
    if unsure {
        turn.look_at(turn.now + UNTIL_SEEN);
    }
    let wrote = !marks.is_empty();
    for (node, value) in marks {
        let mark = NodeMark::Pause;
        turn.first(HciAction::MarkNode { node, mark, value });
    }
    let (text, before) = (config::written(&map), config::written(&applied));
    if text != before && !(map.is_empty() && applied.is_empty()) {
        turn.annotate(annotations::HARVESTER_PAUSE_MAP, Some(&text));
        turn.annotate(PAUSES_APPLIED, Some(&text));
    }
    wrote
}

/// Nodes that came since the upgrade began, where every node is to pause. A person's own map is about the nodes that were there.
fn joined_to_pause(turn: &Turn<'_>) -> Vec<String> {
    let all = config::config(turn.view, &turn.after).is_ok_and(|config| config.pause == NodePause::All);
    let Some(begun) = report::begun_at(&turn.before).filter(|_| all) else {
        return Vec::new();
    };
    let joined = turn.view.nodes.values().filter(|node| node.created_at > begun);
    joined.map(|node| node.name.to_string()).collect()
}

/// Whether nodes were seen since the Upgrade was last written: before that, an annotation that is missing may only not have
/// been read yet. Whoever finds that they were not looks again.
fn seen_since(turn: &Turn<'_>) -> bool {
    turn.view.nodes_as_of >= turn.target.revision
}

fn begun(turn: &Turn<'_>, node: &str) -> bool {
    turn.node_state(node)
        .is_some_and(|state| state > HarvesterNodeState::Paused)
}

/// Whether a node is held back.
pub fn holds(turn: &Turn<'_>, node: &Node) -> bool {
    if node.hci.pause.is_some() {
        return true;
    }
    let map = config::pause_map(&turn.after).unwrap_or_default();
    map.get(node.name.as_str()) == Some(&PauseMapValue::Pause) && !seen_since(turn)
}

/// The command that lets a node go on, as people of Harvester know it.
pub fn way_on(node: &str) -> String {
    format!("kubectl annotate node {node} {}-", annotations::HARVESTER_NODE_PAUSE)
}

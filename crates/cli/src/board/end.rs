//! The last words about an upgrade: where the cluster is, what it took, what to do next.

use super::Board;
use super::text::Layout;
use crate::table::{Tone, cut, paint};
use afloat_api::NodeState;
use afloat_api::clusterupgrade::Phase;
use afloat_core::words;

/// An upgrade that is over, as lines; the first one answers.
pub fn lines(board: &Board, layout: Layout) -> Vec<String> {
    let (first, tone) = match board.phase {
        Phase::Succeeded => (format!("{} is at {}.", board.name, board.to), Tone::Good),
        Phase::Aborted => (format!("{} was ended before {}.", board.name, board.to), Tone::Careful),
        _ => (format!("{} stopped short of {}.", board.name, board.to), Tone::Bad),
    };
    let mut lines = vec![format!("{first}   {}", figures(board))];
    if board.phase != Phase::Succeeded && !board.message.is_empty() {
        lines.push(board.message.clone());
    }
    lines.extend(longest(board));
    for failed in &board.failed {
        let back = if failed.rolled_back { ", put back as it was" } else { "" };
        lines.push(format!(
            "  {}  failed in {}{back}: {}",
            failed.node, failed.state, failed.message
        ));
    }
    lines.extend(left_out(board));
    lines.extend(next(board));
    let painted = lines.iter().enumerate().map(|(place, line)| {
        let tone = if place == 0 { tone } else { Tone::Plain };
        paint(&cut(line, layout.width), tone, layout.colour)
    });
    painted.collect()
}

fn figures(board: &Board) -> String {
    let mut parts = vec![format!("{} of {} nodes", board.nodes_done(), board.nodes.len())];
    if let (Some(start), Some(end)) = (board.started_at, board.finished_at) {
        parts.push(words::duration(end.duration_since(start)));
    }
    let moved = usize::try_from(board.pods_moved).unwrap_or_default();
    parts.push(format!("{} moved", words::count(moved, "pod", "pods")));
    if !board.failed.is_empty() {
        parts.push(format!("{} set aside", board.failed.len()));
    }
    parts.join(", ")
}

fn longest(board: &Board) -> Option<String> {
    let node = board
        .nodes
        .iter()
        .filter(|node| node.taken.is_some())
        .max_by_key(|node| node.taken)?;
    let step = node.longest_step.as_ref().map_or_else(String::new, |(step, length)| {
        format!(" ({} in {step})", words::duration(*length))
    });
    Some(format!("Longest: {} {}{step}", node.name, words::duration(node.taken?)))
}

/// Nodes that are elsewhere although the whole has arrived: set aside, or put back by a person.
fn left_out(board: &Board) -> Option<String> {
    let others = board.nodes.iter().filter(|node| node.state != NodeState::Succeeded);
    let others: Vec<String> = others.map(|node| format!("{} ({})", node.name, node.state)).collect();
    let some = board.phase == Phase::Succeeded && !others.is_empty();
    some.then(|| format!("Not at {}: {}", board.to, others.join(", ")))
}

fn next(board: &Board) -> Option<String> {
    match board.phase {
        Phase::Succeeded
            if board
                .nodes
                .iter()
                .any(|node| !node.control_plane && node.taken.is_some()) =>
        {
            Some("Undo a worker: afloat rollback NODE".to_owned())
        }
        Phase::Succeeded => None,
        _ => Some(format!(
            "Go on with the nodes that are not there yet: afloat upgrade --to {}",
            board.to
        )),
    }
}

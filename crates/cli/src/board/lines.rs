//! What changed between two moments, a line each, for pipes and logs.

use super::{Board, WaitRow, text};
use crate::picture::text::clock;
use crate::table::pad;
use afloat_api::NodeState;
use afloat_core::words;

/// The lines between two boards of one upgrade; without one before, where it stands.
pub fn between(before: Option<&Board>, after: &Board) -> Vec<String> {
    let time = clock(after.time);
    let longest = after.nodes.iter().map(|node| node.name.chars().count());
    let width = longest.max().unwrap_or(0).max(after.name.chars().count());
    let line = |subject: &str, step: String, note: String| {
        let text = format!("{time} {}  {step:<24}  {note}", pad(subject, width));
        text.trim_end().to_owned()
    };
    let Some(before) = before else {
        return vec![format!("{time} {}", text::heading(after))];
    };
    let mut lines = Vec::new();
    if before.phase != after.phase {
        let step = format!("{} → {}", text::phase_word(before.phase), text::phase_word(after.phase));
        lines.push(line(&after.name, step, String::new()));
    }
    if before.paused != after.paused {
        let step = if after.paused { "paused" } else { "resumed" };
        lines.push(line(&after.name, step.to_owned(), String::new()));
    }
    if !before.aborting && after.aborting {
        lines.push(line(&after.name, "being aborted".to_owned(), String::new()));
    }
    for node in &after.nodes {
        let known = before.nodes.iter().find(|known| known.name == node.name);
        let Some(known) = known else {
            lines.push(line(&node.name, format!("new → {}", node.state), String::new()));
            continue;
        };
        if known.state != node.state {
            let note = match (node.state, node.taken) {
                (NodeState::Succeeded, Some(taken)) => words::duration(taken),
                _ => node.note.clone(),
            };
            lines.push(line(&node.name, format!("{} → {}", known.state, node.state), note));
        } else if known.step != node.step && !node.step.is_empty() && node.state != NodeState::Draining {
            lines.push(line(&node.name, node.state.to_string(), node.step.clone()));
        }
    }
    for known in &before.nodes {
        if after.nodes.iter().all(|node| node.name != known.name) {
            lines.push(line(&known.name, format!("{} → gone", known.state), String::new()));
        }
    }
    // Those that only wait for their turn would say it one after the other.
    let held = |wait: &&WaitRow| wait.in_flight || wait.state == NodeState::Paused;
    for wait in after.waits.iter().filter(held) {
        let same = |known: &WaitRow| known.node == wait.node && known.wait.reason == wait.wait.reason;
        if !before.waits.iter().any(same) {
            lines.push(line(
                &wait.node,
                format!("{} waits", wait.state),
                wait.wait.message.clone(),
            ));
        }
    }
    lines
}

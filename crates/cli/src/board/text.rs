//! The board as text: a line that answers, what is waited for, a table of nodes, the budget. Fits the width it is given
//! and, when asked to, the height.

use super::{Board, NodeRow, WaitRow, over};
use crate::preflight;
use crate::table::{Cell, Tone, cut, paint, plain, table, toned};
use afloat_api::NodeState;
use afloat_api::clusterupgrade::Phase;
use afloat_core::words;
use jiff::SignedDuration;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// More nodes than this are summed up unless all were asked for.
const MOST_ROWS: usize = 40;
/// More waits than this are summed up unless all were asked for.
const MOST_WAITS: usize = 3;

/// How to lay out.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    pub wide: bool,
    pub colour: bool,
    /// Columns there are; lines are cut, never wrapped.
    pub width: usize,
    /// Lines there are, or as many as it takes.
    pub height: Option<usize>,
}

/// The whole board as lines.
pub fn lines(board: &Board, layout: Layout) -> Vec<String> {
    if over(board.phase) {
        return super::end::lines(board, layout);
    }
    let mut lines = vec![paint(&cut(&heading(board), layout.width), Tone::Heading, layout.colour)];
    lines.extend(
        standing(board, layout)
            .iter()
            .map(|line| paint(&cut(line, layout.width), Tone::Careful, layout.colour)),
    );
    let foot = cut(&footer(board), layout.width);
    if board.refused() {
        lines.push(String::new());
        lines.extend(preflight::finding_lines(&board.findings, layout.width, layout.colour));
        lines.push(String::new());
        lines.push("Fix the errors, and it begins by itself; accept a warning with:".to_owned());
        lines.push(format!("  {}", preflight::accepting(&board.to, &board.findings)));
        return lines;
    }
    let room = layout.height.map(|height| height.saturating_sub(lines.len() + 3));
    lines.push(String::new());
    lines.extend(nodes(board, layout, room));
    lines.push(String::new());
    lines.push(foot);
    lines
}

/// The line that answers: which upgrade, where, how far, how long.
pub fn heading(board: &Board) -> String {
    let (done, all) = board.progress();
    let mut words = match &board.from {
        Some(from) => format!("Upgrade {}  {from} → {}", board.name, board.to),
        None => format!("Upgrade {}  to {}", board.name, board.to),
    };
    let phase = match (board.paused, board.aborting) {
        (_, true) => format!("{}, being aborted", phase_word(board.phase)),
        (true, _) => format!("{}, paused", phase_word(board.phase)),
        _ => phase_word(board.phase).to_owned(),
    };
    let _infallible = write!(words, "   {phase}   {done} of {all}");
    let Some(started) = board.started_at else {
        return words;
    };
    let so_far = board.time.duration_since(started);
    match &board.estimate {
        Some(estimate) if estimate.finish_at > board.time => {
            let left = estimate.finish_at.duration_since(board.time);
            let share = percent(so_far, left);
            let _infallible = write!(
                words,
                "   {share}% · {} so far, about {} left ({})",
                words::duration(so_far),
                about(left),
                estimate.basis
            );
        }
        _ => {
            let _infallible = write!(words, "   {} so far", words::duration(so_far));
        }
    }
    words
}

fn percent(so_far: SignedDuration, left: SignedDuration) -> i64 {
    let (so_far, left) = (so_far.as_secs().max(0), left.as_secs().max(0));
    so_far * 100 / (so_far + left).max(1)
}

/// An estimate is not given to the second.
fn about(length: SignedDuration) -> String {
    match length.as_secs() {
        seconds if seconds < 60 => format!("{}s", seconds.max(0)),
        seconds if seconds < 3600 => format!("{}m", (seconds + 30) / 60),
        seconds => format!("{}h{:02}m", seconds / 3600, seconds / 60 % 60),
    }
}

pub fn phase_word(phase: Phase) -> &'static str {
    match phase {
        Phase::Pending => "Not begun",
        Phase::SystemServices => "System services",
        Phase::ControlPlane => "Control plane",
        Phase::AddOns => "Add-ons",
        other => other.into(),
    }
}

/// What is waited for, and what would end it.
fn standing(board: &Board, layout: Layout) -> Vec<String> {
    if !board.seen {
        return vec!["No operator has looked at it yet: is `afloat controller` running in the cluster?".to_owned()];
    }
    let mut lines = Vec::new();
    if board.paused {
        lines.push("Paused: no further node starts. To let it go on: afloat resume".to_owned());
    }
    let most = if layout.wide { usize::MAX } else { MOST_WAITS };
    lines.extend(board.waits.iter().take(most).map(|wait| wait_line(board, wait)));
    let hidden = board.waits.len().saturating_sub(most);
    if hidden > 0 {
        let waits = words::count(hidden, "more node waits", "more nodes wait");
        lines.push(format!("{waits}: afloat status -o wide"));
    }
    let whole = board.waits.is_empty() && !board.paused && !board.refused();
    if whole && !board.message.is_empty() && board.reason != "InProgress" {
        lines.push(format!("Waiting: {}", board.message));
    }
    lines
}

fn wait_line(board: &Board, row: &WaitRow) -> String {
    let since = words::since(row.wait.since.0, board.time);
    let left = row.wait.until.as_ref().map_or_else(String::new, |until| {
        format!(", {} left", words::duration(until.0.duration_since(board.time)))
    });
    format!("Waiting on {}: {}   since {since}{left}", row.node, row.wait.message)
}

fn nodes(board: &Board, layout: Layout, room: Option<usize>) -> Vec<String> {
    let most = if layout.wide { usize::MAX } else { MOST_ROWS };
    // One line for the titles, one for those that do not fit.
    let most = room.map_or(most, |room| most.min(room.saturating_sub(2).max(1)));
    let all: Vec<&NodeRow> = board.nodes.iter().collect();
    let (shown, hidden) = if all.len() <= most {
        (all, Vec::new())
    } else {
        choose(board, most)
    };
    let mut lines = table(&cells(board, &shown, layout.wide), layout.width, layout.colour);
    if !hidden.is_empty() {
        lines.push(cut(&format!("  … and {}", summary(&hidden)), layout.width));
    }
    lines
}

/// Those something happens to come first, then those that wait for their turn.
fn choose(board: &Board, most: usize) -> (Vec<&NodeRow>, Vec<&NodeRow>) {
    let weight = |node: &NodeRow| match node.state {
        _ if node.in_flight => 0,
        NodeState::Failed | NodeState::RolledBack => 1,
        NodeState::Paused => 2,
        NodeState::Succeeded => 4,
        _ => 3,
    };
    let mut order: Vec<(usize, &NodeRow)> = board.nodes.iter().enumerate().collect();
    order.sort_by_key(|(place, node)| (weight(node), *place));
    let hidden = order.split_off(most.min(order.len()));
    order.sort_by_key(|(place, _)| *place);
    let shown = order.into_iter().map(|(_, node)| node).collect();
    (shown, hidden.into_iter().map(|(_, node)| node).collect())
}

fn cells(board: &Board, nodes: &[&NodeRow], wide: bool) -> Vec<Vec<Cell>> {
    let mut titles = vec!["NODE", "ROLE", "VERSION", "STATE", "STEP", "FOR"];
    if wide {
        titles.extend(["GROUP", "ZONE", "ATTEMPT"]);
    }
    titles.push("NOTE");
    let mut rows = vec![titles.into_iter().map(plain).collect::<Vec<_>>()];
    for node in nodes {
        let version = match &node.target {
            Some(target) => format!("{} → {target}", node.version),
            None => node.version.clone(),
        };
        let time = match (node.taken, node.since) {
            (Some(taken), _) => words::duration(taken),
            (None, Some(since)) if node.state != NodeState::Succeeded => words::since(since, board.time),
            _ => String::new(),
        };
        let mut row = vec![
            plain(&node.name),
            plain(node.role),
            plain(version),
            toned(node.state.to_string(), tone(node.state)),
            plain(&node.step),
            plain(time),
        ];
        if wide {
            row.extend([plain(&node.group), plain(&node.zone), plain(node.attempt.to_string())]);
        }
        row.push(plain(&node.note));
        rows.push(row);
    }
    rows
}

fn tone(state: NodeState) -> Tone {
    match state {
        NodeState::Succeeded => Tone::Good,
        NodeState::Failed | NodeState::RollingBack | NodeState::RolledBack => Tone::Bad,
        NodeState::Pending | NodeState::Staging | NodeState::Staged => Tone::Plain,
        _ => Tone::Careful,
    }
}

fn summary(hidden: &[&NodeRow]) -> String {
    let mut states: BTreeMap<String, usize> = BTreeMap::new();
    for node in hidden {
        *states.entry(node.state.to_string()).or_default() += 1;
    }
    let states = states.into_iter().map(|(state, count)| format!("{count} {state}"));
    let states = states.collect::<Vec<_>>().join(", ");
    format!(
        "{} ({states}); all of them: afloat status -o wide",
        words::count(hidden.len(), "more node", "more nodes")
    )
}

fn footer(board: &Board) -> String {
    let budget = board.budget;
    let mut parts = vec![
        format!("pods moved: {}", board.pods_moved),
        format!("budget: {} of {} in use", budget.used, budget.most),
    ];
    if budget.failed > 0 || budget.most_failed > 0 {
        parts.push(format!("failed: {} of {} allowed", budget.failed, budget.most_failed));
    }
    parts.join(" · ")
}

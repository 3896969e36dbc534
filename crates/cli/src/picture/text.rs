//! The picture as text: a heading that answers what this is, a table of nodes, the budgets, what happened last.
//! Fits the width it is given and, when asked to, the height.

use super::{BudgetRow, EventRow, NodeRow, Picture};
use crate::table::{self, Cell, Tone, cut, pad, paint, plain};
use jiff::tz::TimeZone;

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

/// The whole picture as lines.
pub fn lines(picture: &Picture, layout: Layout) -> Vec<String> {
    let mut lines = heading(picture, layout);
    let budgets = table::table(&budget_cells(&picture.budgets), layout.width, layout.colour);
    let events = event_lines(&picture.events, layout);
    let nodes = table::table(&node_cells(&picture.nodes, layout.wide), layout.width, layout.colour);
    let Some(height) = layout.height else {
        lines.push(String::new());
        lines.extend(nodes);
        lines.extend(section(budgets));
        lines.extend(section(events));
        return lines;
    };
    // The nodes matter most, then budgets, then events; each gives way to the one before it.
    let mut left = height.saturating_sub(lines.len() + 1);
    lines.push(String::new());
    for block in [clip(nodes, left, layout.width), section(budgets), section(events)] {
        if block.len() <= left {
            left -= block.len();
            lines.extend(block);
        } else if left > 3 {
            lines.extend(block.into_iter().take(left));
            left = 0;
        }
    }
    lines
}

fn section(block: Vec<String>) -> Vec<String> {
    if block.is_empty() {
        block
    } else {
        std::iter::once(String::new()).chain(block).collect()
    }
}

/// Cuts a table to a height and says what is missing.
fn clip(mut block: Vec<String>, height: usize, width: usize) -> Vec<String> {
    if block.len() > height && height > 2 {
        let hidden = block.len() - (height - 1);
        block.truncate(height - 1);
        block.push(cut(&format!("  … and {hidden} more nodes"), width));
    }
    block
}

fn heading(picture: &Picture, layout: Layout) -> Vec<String> {
    let pods = &picture.pods;
    let mut parts = vec![
        format!("Sandbox {}", picture.version),
        format!("{} of {} nodes ready", picture.ready_nodes(), picture.nodes.len()),
        format!("{} of {} pods ready", pods.ready, pods.meant_to_run()),
    ];
    let extra = [
        (pods.ending, "ending"),
        (pods.succeeded, "done"),
        (pods.failed, "failed"),
    ];
    parts.extend(
        extra
            .into_iter()
            .filter(|(number, _)| *number > 0)
            .map(|(number, what)| format!("{number} {what}")),
    );
    let first = Cell {
        text: parts.join(" · "),
        tone: Tone::Heading,
    };
    let second = if picture.unsettled.is_empty() {
        Cell {
            text: "Settled: everything is as asked for".to_owned(),
            tone: Tone::Good,
        }
    } else {
        Cell {
            text: format!("Settling: {}", picture.unsettled.join("; ")),
            tone: Tone::Careful,
        }
    };
    [first, second]
        .iter()
        .map(|cell| paint(&cut(&cell.text, layout.width), cell.tone, layout.colour))
        .collect()
}

fn node_cells(nodes: &[NodeRow], wide: bool) -> Vec<Vec<Cell>> {
    let mut titles = vec!["NODE", "ROLE", "VERSION", "STATE", "PODS", "CPU", "MEM"];
    if wide {
        titles.extend(["ZONE", "ADDRESS", "RUNTIME"]);
    }
    titles.push("NOTE");
    let mut rows = vec![titles.into_iter().map(plain).collect::<Vec<_>>()];
    for node in nodes {
        let tone = match (node.state, node.cordoned) {
            ("Ready", false) => Tone::Good,
            ("Ready" | "Starting", _) => Tone::Careful,
            _ => Tone::Bad,
        };
        let mut row = vec![
            plain(&node.name),
            plain(node.role),
            plain(&node.version),
            Cell {
                text: node.state.to_owned(),
                tone,
            },
            plain(node.pods.to_string()),
            plain(share(node.cpu_requested, node.cpu_allocatable)),
            plain(share(node.memory_requested, node.memory_allocatable)),
        ];
        if wide {
            row.extend([plain(&node.zone), plain(&node.address), plain(&node.runtime)]);
        }
        row.push(plain(&node.note));
        rows.push(row);
    }
    rows
}

fn share(part: u64, whole: u64) -> String {
    (part * 100)
        .checked_div(whole)
        .map_or_else(|| "-".to_owned(), |percent| format!("{percent}%"))
}

fn budget_cells(budgets: &[BudgetRow]) -> Vec<Vec<Cell>> {
    if budgets.is_empty() {
        return Vec::new();
    }
    let titles = ["BUDGET", "MAY GO", "HEALTHY", "MUST STAY", "NOTE"];
    let mut rows = vec![titles.into_iter().map(plain).collect::<Vec<_>>()];
    for budget in budgets {
        let tone = if budget.allowed > 0 { Tone::Good } else { Tone::Careful };
        rows.push(vec![
            plain(format!("{}/{}", budget.namespace, budget.name)),
            Cell {
                text: budget.allowed.to_string(),
                tone,
            },
            plain(format!("{} of {}", budget.healthy, budget.expected)),
            plain(budget.desired.to_string()),
            plain(&budget.note),
        ]);
    }
    rows
}

fn event_lines(events: &[EventRow], layout: Layout) -> Vec<String> {
    if events.is_empty() {
        return Vec::new();
    }
    let width = events
        .iter()
        .map(|event| event.object.chars().count())
        .max()
        .unwrap_or(0)
        .min(layout.width / 3);
    let newest_first = events.iter().rev().map(|event| {
        let mark = if event.warning { "!" } else { " " };
        let object = pad(&cut(&event.object, width), width);
        // "Started: Started container web" would say it twice.
        let reason = if event.message.starts_with(&event.reason) {
            String::new()
        } else {
            format!("{}: ", event.reason)
        };
        let line = format!("{mark} {}  {object}  {reason}{}", clock(event.time), event.message);
        let tone = if event.warning { Tone::Careful } else { Tone::Plain };
        paint(&cut(&line, layout.width), tone, layout.colour)
    });
    std::iter::once("  RECENT".to_owned()).chain(newest_first).collect()
}

/// The time of day where the reader is.
pub fn clock(time: jiff::Timestamp) -> String {
    time.to_zoned(TimeZone::system()).strftime("%H:%M:%S").to_string()
}

//! Waits that belong to no Job, and so have nobody else to end them: before a node's turn, and while Rancher drains it. Each says since
//! when it lasts and until when it may.

use afloat_api::harvester::{HarvesterNodeState as State, NAMESPACE};
use afloat_api::{Reason, annotations};
use jiff::Timestamp;

use super::turn::{Turn, minutes_after, moment};
use super::{config, nodes};
use crate::view::Node;

/// What counts where a person changed a deadline into something that is no number: a day, rather than what they did not want any more.
const UNREADABLE_MINUTES: i64 = 24 * 60;

/// A node that Rancher asked for may not go yet. What a person holds waits for that person, and what waits for another node has that
/// one's deadlines; for a volume, or for a node that is away, it waits so long and no longer. Nothing was done to it by then.
pub fn kept_waiting(turn: &mut Turn<'_>, node: &Node, reason: Reason, message: &str) {
    let (name, word) = (node.name.as_str(), reason.to_string());
    if !matches!(reason, Reason::WaitingForVolume | Reason::WaitingForNode) {
        turn.times.goes_on(name, turn.now);
        return turn.set_node(name, State::ImagesPreloaded, &word, message);
    }
    let minutes = config::wait_minutes(&turn.after).unwrap_or(UNREADABLE_MINUTES);
    let since = turn.times.is_held(name, turn.now);
    let until = minutes_after(since, minutes);
    if turn.now >= until {
        turn.times.goes_on(name, turn.now);
        let message = format!(
            "did not get its turn within {minutes} minutes: it {message}. Nothing was done to it. Mend that, then: afloat resume {0}; \
             to wait longer, before that: kubectl -n {1} annotate upgrade {0} {2}={3} --overwrite",
            turn.name(),
            NAMESPACE,
            annotations::WAIT_MINUTES,
            minutes.saturating_mul(2),
        );
        return nodes::node_failed(turn, &node.name, Reason::DeadlineExceeded, &message);
    }
    turn.look_at(until);
    let message = format!("{message} (since {}, until {})", moment(since), moment(until));
    turn.set_node(name, State::ImagesPreloaded, &word, &message);
}

/// Since when Rancher may drain a node and until when it should be done; or, after that, that it is overdue. The upgrade does not fail for it:
/// Rancher is at work and goes on by itself as soon as it can, and an upgrade that had ended would not be there to answer it.
pub fn drain(turn: &mut Turn<'_>, name: &str, message: &str) -> String {
    let minutes = config::drain_minutes(&turn.after).unwrap_or(UNREADABLE_MINUTES);
    let times = turn.times.0.entry(name.to_owned()).or_default();
    let since = *times.drained.get_or_insert(turn.now);
    let until = minutes_after(since, minutes);
    if turn.now < until {
        turn.look_at(until);
        return format!("{message} (since {}, until {})", moment(since), moment(until));
    }
    let text = format!(
        "overdue since {}: Rancher has not drained it and upgraded RKE2 within {minutes} minutes. {message}. It goes on by itself once that is gone",
        moment(until)
    );
    if !std::mem::replace(&mut times.overdue, true) {
        turn.tell(true, Reason::DeadlineExceeded, &format!("node {name}: {text}"));
    }
    text
}

/// Rancher could ask about any of these nodes, and asks about none: since when. Nothing where it waits for us.
pub fn unasked_since(turn: &mut Turn<'_>, nodes: &[String]) -> Option<Timestamp> {
    let first = nodes.first();
    for (node, times) in &mut turn.times.0 {
        if Some(node) != first && times.unasked.take().is_some() {
            times.overdue = false;
        }
    }
    let now = turn.now;
    let times = turn.times.0.entry(first?.clone()).or_default();
    Some(*times.unasked.get_or_insert(now))
}

/// The same in words, and until when it should have. It is Rancher's to choose, and it goes on by itself once it does: the upgrade does not fail for it,
/// but says when it is overdue.
pub fn unasked(turn: &mut Turn<'_>, nodes: &[String], since: Timestamp) -> String {
    let minutes = config::drain_minutes(&turn.after).unwrap_or(UNREADABLE_MINUTES);
    let until = minutes_after(since, minutes);
    let names: Vec<&str> = nodes.iter().map(String::as_str).collect();
    let some = nodes::some(&names);
    if turn.now < until {
        turn.look_at(until);
        let (since, until) = (moment(since), moment(until));
        return format!("waits for Rancher to ask about {some} (since {since}, until {until})");
    }
    let text = format!(
        "overdue since {}: Rancher has asked about none of {some} within {minutes} minutes; what it is at: kubectl -n cattle-system logs \
         deployment/rancher --tail=50. It goes on by itself once it asks",
        moment(until)
    );
    let first = names.first().copied().unwrap_or_default();
    let times = turn.times.0.entry(first.to_owned()).or_default();
    if !std::mem::replace(&mut times.overdue, true) {
        turn.tell(true, Reason::DeadlineExceeded, &text);
    }
    text
}

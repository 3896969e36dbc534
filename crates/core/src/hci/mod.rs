//! Upgrades of Harvester-like clusters, decided as everything else here: the view comes in, a decision goes out. Names, states and
//! order are those of the front door people know; Rancher says whose turn it is through its plan secrets, and what may not
//! happen yet is held back here.
//!
//! What is done *on* a node (moving virtual machines, the operating system) is the work of Jobs; what they do next is decided in
//! [`task`].

pub mod action;
mod admit;
mod alone;
mod cleanup;
pub mod config;
mod deadlines;
mod explain;
mod flow;
mod image;
mod logs;
mod multus;
mod nodes;
pub mod pause;
mod pending;
pub mod preflight;
pub mod release;
pub mod report;
mod rollout;
pub mod rules;
mod skew;
pub mod task;
#[cfg(test)]
mod tests;
mod tidy;
pub mod times;
mod turn;
mod unasked;
pub mod view;
pub mod vms;
pub mod volumes;
mod waits;

use action::HciAction;
use afloat_api::harvester::{UPSTREAM_FINALIZER, Upgrade};
use jiff::Timestamp;

pub use admit::{Request, Verdict, Wrong, admit};
pub use explain::{explain, running};
pub use tidy::lingers;
pub use turn::{PREFLIGHT_PASSED, Tri, condition_of};

use crate::action::{Action, Decision};
use crate::objects::target_of;
use crate::view::{Key, View};

/// Decides on one Upgrade of Harvester.
pub fn decide(view: &View, key: &Key, now: Timestamp) -> Decision {
    let Some(upgrade) = view.hci.upgrades.get(key) else {
        return Decision::default();
    };
    let mut turn = turn::Turn::new(view, upgrade, now);
    flow::go(&mut turn);
    turn.finish()
}

/// Nothing is written on old news: a decision that would begin with another object than the Upgrade asks first whether that is as it was seen. What is
/// changed around an upgrade is found and put back through its object: after its end nobody would look for it.
pub fn confirmed(view: &View, key: &Key, mut decision: Decision) -> Decision {
    let writes_it = |action: &Action| match action {
        Action::Hci(action) => matches!(**action, HciAction::WriteUpgrade { .. }),
        _ => false,
    };
    let begins_elsewhere = decision.actions.first().is_some_and(|first| !writes_it(first));
    if let Some(upgrade) = view.hci.upgrades.get(key).filter(|_| begins_elsewhere) {
        let target = target_of(&upgrade.what.metadata);
        let confirm = Action::Hci(Box::new(HciAction::Confirm { target }));
        decision.actions.insert(0, confirm);
    }
    decision
}

/// Why Afloat leaves an Upgrade alone: somebody else's controller upgrades. Two would undo each other's work.
pub fn upstream_at_work(view: &View, upgrade: &Upgrade) -> Option<String> {
    let finalizers = upgrade.metadata.finalizers.as_deref().unwrap_or_default();
    if finalizers.iter().any(|one| one == UPSTREAM_FINALIZER) {
        return Some(format!(
            "Harvester's own controller has taken this Upgrade (finalizer {UPSTREAM_FINALIZER}): Afloat leaves it alone"
        ));
    }
    let running = view
        .hci
        .upstream
        .values()
        .find(|upstream| upstream.replicas > 0 && !upstream.off)?;
    Some(format!(
        "deployment/{} runs Harvester's own upgrade controller: Afloat leaves Upgrades alone while it does. Once its upgrade \
         controller is switched off, say so: kubectl -n {} annotate deployment {} afloat.dev/harvester-upgrades=off",
        running.target.key, running.target.key.namespace, running.target.key.name
    ))
}

/// Whether a person wants something of an Upgrade that has ended: its deletion, or that it goes on.
pub fn wished(upgrade: &Upgrade) -> bool {
    upgrade.metadata.deletion_timestamp.is_some()
        || config::annotation(upgrade, afloat_api::annotations::WISH).is_some()
}

/// Whether an Upgrade has ended and nothing of it is left to do.
pub fn over(upgrade: &Upgrade) -> bool {
    use afloat_api::labels;
    matches!(condition_of(upgrade, "Completed"), Some(Tri::True | Tri::False))
        && config::label(upgrade, labels::HARVESTER_UPGRADE_CLEANUP) == Some("Succeeded")
}

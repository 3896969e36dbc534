//! The place where the core is plugged in: whom a change concerns, and what is to be done. The loop knows no more of it, so
//! that tests can put something simpler there.

use std::collections::BTreeSet;

use afloat_core::action::Decision;
use afloat_core::view::{Key, View};
use afloat_core::{Changed, Subject};
use jiff::Timestamp;

/// Decides. Pure: the same view and the same moment give the same decision.
pub trait Mind: Send + Sync {
    /// Whom a change may lead on.
    fn affected(&self, view: &View, changed: &Changed) -> BTreeSet<Subject>;

    fn decide(&self, view: &View, subject: &Subject, now: Timestamp) -> Decision;
}

/// The core itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct Core;

impl Mind for Core {
    fn affected(&self, view: &View, changed: &Changed) -> BTreeSet<Subject> {
        afloat_core::affected(view, changed)
    }

    fn decide(&self, view: &View, subject: &Subject, now: Timestamp) -> Decision {
        afloat_core::decide(view, subject, now)
    }
}

/// Everybody there is: looked at once when the operator starts.
pub fn everybody(view: &View) -> BTreeSet<Subject> {
    let upgrades = view.upgrades.keys().cloned().map(Subject::Upgrade);
    let control_planes = view.control_planes.keys().cloned().map(Subject::ControlPlane);
    let workers = view.workers.keys().cloned().map(Subject::Workers);
    let nodes = view.node_upgrades().keys().cloned().map(Subject::Node);
    let hci = view.hci.upgrades.keys().cloned().map(Subject::Hci);
    let all = upgrades.chain(control_planes).chain(workers).chain(nodes);
    all.chain(hci).collect()
}

/// One word for logs and metrics, and the object's key.
pub fn told(subject: &Subject) -> (&'static str, &Key) {
    match subject {
        Subject::Upgrade(key) => ("upgrade", key),
        Subject::ControlPlane(key) => ("control-plane", key),
        Subject::Workers(key) => ("workers", key),
        Subject::Node(key) => ("node", key),
        Subject::Hci(key) => ("hci", key),
    }
}

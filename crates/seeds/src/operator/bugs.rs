//! Ten bugs that an operator could have, put in on purpose: whoever runs the simulator with one of them must see a rule
//! broken, or that rule is worth nothing. They live in the driver and never in the core.

use std::sync::Arc;

use afloat_api::{NodeRole, NodeState};
use afloat_core::action::{Action, Decision};
use afloat_core::view::{Node, Ready, View};

/// One bug.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Bug {
    /// Writes go through whatever happened meanwhile.
    DropRevision,
    /// The first slot goes to any node.
    ShuffleOrder,
    /// Writes go to whoever has the name now.
    IgnoreUid,
    /// A node is given back while its steps still run.
    UncordonEarly,
    /// Nodes start without a recorded slot.
    ForgetLedger,
    /// A closed gate stops nobody.
    SkipGate,
    /// A node that is broken counts as in service.
    CountBroken,
    /// Pods are deleted, not evicted.
    EvictPastBudget,
    /// A pause ends by itself.
    ResumeByItself,
    /// What was written on a node stays there.
    LeaveAnnotation,
}

impl Bug {
    pub const ALL: [Self; 10] = [
        Self::DropRevision,
        Self::ShuffleOrder,
        Self::IgnoreUid,
        Self::UncordonEarly,
        Self::ForgetLedger,
        Self::SkipGate,
        Self::CountBroken,
        Self::EvictPastBudget,
        Self::ResumeByItself,
        Self::LeaveAnnotation,
    ];

    pub fn word(self) -> &'static str {
        match self {
            Self::DropRevision => "drop-revision",
            Self::ShuffleOrder => "shuffle-order",
            Self::IgnoreUid => "ignore-uid",
            Self::UncordonEarly => "uncordon-early",
            Self::ForgetLedger => "forget-ledger",
            Self::SkipGate => "skip-gate",
            Self::CountBroken => "count-broken",
            Self::EvictPastBudget => "evict-past-budget",
            Self::ResumeByItself => "resume-by-itself",
            Self::LeaveAnnotation => "leave-annotation",
        }
    }

    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|bug| bug.word() == word)
    }

    /// What an operator with this bug sees.
    pub fn distort_view(self, view: &View) -> Option<View> {
        let mut seen = view.clone();
        match self {
            Self::SkipGate => seen.gates.values_mut().for_each(|gate| gate.open = true),
            Self::CountBroken => {
                for node in seen.nodes.values_mut().filter(|node| !node.ready.ready) {
                    *node = Arc::new(Node {
                        ready: Ready {
                            ready: true,
                            since: node.created_at,
                        },
                        ..Node::clone(node)
                    });
                }
            }
            Self::ResumeByItself => {
                for upgrade in seen
                    .upgrades
                    .values_mut()
                    .filter(|upgrade| upgrade.spec.paused == Some(true))
                {
                    let mut resumed = afloat_api::ClusterUpgrade::clone(upgrade);
                    resumed.spec.paused = None;
                    *upgrade = Arc::new(resumed);
                }
            }
            _ => return None,
        }
        Some(seen)
    }

    /// What it makes of a decision.
    pub fn distort_decision(self, decision: &mut Decision, view: &View, rng: &mut fastrand::Rng) {
        match self {
            Self::ShuffleOrder => shuffle_slots(decision, view, rng),
            Self::ForgetLedger => {
                for action in &mut decision.actions {
                    if let Action::WriteUpgradeStatus { status, .. } = action {
                        forget_slots(status, view);
                    }
                }
            }
            Self::UncordonEarly => uncordon_early(decision, view),
            _ => {}
        }
    }
}

/// Every new slot is given to some other node.
fn shuffle_slots(decision: &mut Decision, view: &View, rng: &mut fastrand::Rng) {
    for action in &mut decision.actions {
        let Action::WriteUpgradeStatus { target, status } = action else {
            continue;
        };
        let known: Vec<String> = view
            .upgrades
            .get(&target.key)
            .and_then(|upgrade| upgrade.status.as_ref())
            .map(|status| status.slots.iter().map(|slot| slot.node.clone()).collect())
            .unwrap_or_default();
        for slot in &mut status.slots {
            if known.contains(&slot.node) {
                continue;
            }
            let nth = rng.usize(0..view.nodes.len().max(1));
            if let Some(node) = view.nodes.values().nth(nth) {
                node.name.as_str().clone_into(&mut slot.node);
                node.uid.as_str().clone_into(&mut slot.node_uid);
                slot.role = if node.control_plane {
                    NodeRole::ControlPlane
                } else {
                    NodeRole::Worker
                };
            }
        }
    }
}

/// Slots of nodes that have begun are dropped: their places look free.
fn forget_slots(status: &mut afloat_api::ClusterUpgradeStatus, view: &View) {
    status.slots.retain(|slot| {
        let begun = view.node_upgrades_of(&slot.node).any(|(_, upgrade)| {
            let state = upgrade.status.as_ref().and_then(|status| status.state);
            matches!(
                state,
                Some(NodeState::Draining | NodeState::StandingAside | NodeState::Upgrading)
            )
        });
        !begun
    });
}

fn uncordon_early(decision: &mut Decision, view: &View) {
    let mut early = Vec::new();
    for action in &decision.actions {
        if let Action::WriteNodeStatus { target, status } = action
            && status.state == Some(NodeState::Upgrading)
            && let Some(upgrade) = view.node_upgrade(&target.key)
            && let Some(node) = view.nodes.get(upgrade.spec.node.name.as_str())
        {
            early.push(Action::Uncordon { node: node.target() });
        }
    }
    decision.actions.extend(early);
}

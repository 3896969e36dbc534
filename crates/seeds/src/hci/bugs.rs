//! Bugs that an operator of Harvester-like clusters could have, put in on purpose: whoever runs the simulator with one of them must see a
//! rule broken, or that rule is worth nothing. They live in the driver and never in the core.

use std::sync::Arc;

use afloat_core::action::{Action, Decision};
use afloat_core::hci::action::{HciAction, Hook};
use afloat_core::view::{Node, View};

/// One bug.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Bug {
    /// Writes go through whatever happened meanwhile.
    DropRevision,
    /// Writes go to whoever has the name now.
    IgnoreUid,
    /// Rancher is answered as soon as it asks.
    AnswerEarly,
    /// A node that a person holds is taken all the same.
    SkipPause,
    /// A node that is away counts as in service.
    CountAway,
    /// Who will be stopped is not written down.
    ForgetRecord,
    /// Who was stopped is not started again.
    ForgetStart,
    /// The taint of a node stays there.
    LeaveTaint,
    /// A node that is done goes on saying that it is not.
    KeepPending,
    /// For whom Rancher was asked is not noted.
    AskTwice,
    /// Volumes are taken off whoever uses them.
    DetachUsed,
}

impl Bug {
    pub const ALL: [Self; 11] = [
        Self::DropRevision,
        Self::IgnoreUid,
        Self::AnswerEarly,
        Self::SkipPause,
        Self::CountAway,
        Self::ForgetRecord,
        Self::ForgetStart,
        Self::LeaveTaint,
        Self::KeepPending,
        Self::AskTwice,
        Self::DetachUsed,
    ];

    pub fn word(self) -> &'static str {
        match self {
            Self::DropRevision => "drop-revision",
            Self::IgnoreUid => "ignore-uid",
            Self::AnswerEarly => "answer-early",
            Self::SkipPause => "skip-pause",
            Self::CountAway => "count-away",
            Self::ForgetRecord => "forget-record",
            Self::ForgetStart => "forget-start",
            Self::LeaveTaint => "leave-taint",
            Self::KeepPending => "keep-pending",
            Self::AskTwice => "ask-twice",
            Self::DetachUsed => "detach-used",
        }
    }

    /// What an operator with this bug sees.
    pub fn distort_view(self, view: &View) -> Option<View> {
        let change: fn(&mut Node) = match self {
            Self::SkipPause => |node| node.hci.pause = None,
            Self::CountAway => |node| node.ready.ready = true,
            _ => return None,
        };
        let mut seen = view.clone();
        for node in seen.nodes.values_mut() {
            change(Arc::make_mut(node));
        }
        if self == Self::SkipPause {
            seen.nodes_as_of = afloat_core::view::Revision(u64::MAX);
        }
        Some(seen)
    }

    /// What its tasks see.
    pub fn distort_task(self, view: &View) -> Option<View> {
        if self != Self::DetachUsed {
            return None;
        }
        let mut seen = view.clone();
        for volume in seen.hci.volumes.values_mut() {
            Arc::make_mut(volume).what.users.clear();
        }
        // It does not wait for those who use them, either.
        let keys: Vec<_> = seen.hci.vmis.keys().cloned().collect();
        for key in keys {
            seen.hci.remove(afloat_core::hci::view::HciKind::Vmi, &key);
        }
        Some(seen)
    }

    /// What it makes of a decision.
    pub fn distort_decision(self, decision: &mut Decision, view: &View) {
        if self != Self::AnswerEarly {
            return;
        }
        for plan in view.hci.plans.values().filter(|plan| plan.asks_pre_drain()) {
            if let Some(value) = &plan.pre_drain {
                decision.actions.push(Action::Hci(Box::new(HciAction::Answer {
                    secret: plan.target.clone(),
                    hook: Hook::PreDrain,
                    value: Arc::from(value.as_str()),
                })));
            }
        }
    }
}

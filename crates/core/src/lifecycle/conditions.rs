//! The conditions of a node's upgrade. What follows from the state alone is set here, at the end of every turn; what was seen or
//! done on the way is set where it is.

use std::str::FromStr as _;

use afloat_api::{ConditionType, NodeState, Reason};

use super::turn::{Turn, reason_of};
use crate::objects::set_condition;

impl Turn<'_> {
    pub fn condition(&mut self, kind: ConditionType, status: bool, reason: Reason, message: &str) {
        let kind: &'static str = kind.into();
        set_condition(
            &mut self.status.conditions,
            kind,
            status,
            reason,
            message,
            (self.now, None),
        );
    }

    pub fn holds(&self, kind: ConditionType) -> bool {
        let kind: &'static str = kind.into();
        let conditions = &self.status.conditions;
        conditions
            .iter()
            .any(|condition| condition.type_ == kind && condition.status == "True")
    }

    /// What was seen in an earlier attempt, or before an undoing, says nothing any more.
    pub fn forget(&mut self, kinds: &[ConditionType]) {
        self.status
            .conditions
            .retain(|condition| ConditionType::from_str(&condition.type_).map_or(true, |kind| !kinds.contains(&kind)));
    }

    /// Those that follow from the state.
    pub(super) fn judge_conditions(&mut self) {
        let state = self.state();
        let reason = self.failure_reason().filter(|_| {
            matches!(
                state,
                NodeState::Failed | NodeState::RollingBack | NodeState::RolledBack
            )
        });
        let reason = reason.unwrap_or_else(|| reason_of(state));
        let target = &self.upgrade.spec.kubelet_version;
        let ready = state == NodeState::Succeeded;
        let message = if ready {
            format!("at {target} and seen to work")
        } else {
            format!("{state}; not at {target} and seen to work")
        };
        self.condition(ConditionType::Ready, ready, reason, &message);
        let idle = matches!(
            state,
            NodeState::Pending | NodeState::Staged | NodeState::Paused | NodeState::Succeeded | NodeState::RolledBack
        );
        let progressing = !idle && !self.failed_for_good();
        self.condition(ConditionType::Progressing, progressing, reason, &state.to_string());
        if state == NodeState::Paused || self.holds(ConditionType::Paused) {
            let paused = state == NodeState::Paused;
            self.condition(ConditionType::Paused, paused, reason, &state.to_string());
        }
        let stalled = self.stalled();
        let (stalled, reason, message) = match stalled {
            Some((reason, message)) => (true, reason, message),
            None => (false, reason, String::new()),
        };
        self.condition(ConditionType::Stalled, stalled, reason, &message);
    }

    /// Why nothing moves until a person acts.
    fn stalled(&self) -> Option<(Reason, String)> {
        if self.failed_for_good() {
            let failure = self.status.failure.as_ref()?;
            return Some((self.failure_reason()?, failure.message.clone()));
        }
        let wait = self.status.waiting_for.as_ref()?;
        let reason = Reason::from_str(&wait.reason).ok()?;
        let needs_a_person = matches!(
            reason,
            Reason::LocalData
                | Reason::UnmanagedPod
                | Reason::SeveralPodDisruptionBudgets
                | Reason::NodePaused
                | Reason::PausedByUser
        );
        needs_a_person.then(|| (reason, wait.message.clone()))
    }
}

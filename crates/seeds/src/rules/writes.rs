//! Rules about single writes: to the object that was decided on, states that only move on, evictions by leave of a budget. What
//! is written to nodes and to the ledger is judged in [`super::nodes`] and [`super::ledger`].

use afloat_api::NodeState;
use afloat_core::action::Task;
use afloat_core::view::{Pod, PodPhase};

use super::{Rules, uid_before};
use crate::store::{Store, Writer, Written};
use crate::time::stamp;

impl Rules {
    /// Rule 10: what is written goes to the object that was decided on.
    pub(super) fn uid_is_the_one(&mut self, store: &Store, written: &Written) {
        self.judge(10);
        let Some(doing) = &self.doing else { return };
        let Some(target) = &doing.target else { return };
        if let Some(before) = uid_before(store, written)
            && before != target.uid
        {
            let what = format!(
                "{} of {} was decided for uid {} and written to uid {before}",
                doing.name, target.key, target.uid
            );
            self.breaks(10, what);
        }
    }

    /// States only move on within an attempt.
    pub(super) fn node_upgrade_written(&mut self, store: &Store, written: &Written) {
        let change = &store.node_upgrades.changes()[written.index];
        let (Some(before), Some(after)) = (&change.before, &change.after) else {
            return;
        };
        let (Some(old), Some(new)) = (&before.status, &after.status) else {
            return;
        };
        if old.attempt != new.attempt {
            if new.attempt < old.attempt {
                self.breaks(0, format!("{} goes back to attempt {:?}", change.key, new.attempt));
            }
            return;
        }
        let (Some(from), Some(to)) = (old.state, new.state) else {
            return;
        };
        let paused = matches!((from, to), (NodeState::Paused, NodeState::Staged));
        // The undoing itself may fail, and the machine may leave while it goes on: only a person can help then.
        let stuck = (from, to) == (NodeState::RollingBack, NodeState::Failed)
            && new
                .failure
                .as_ref()
                .is_some_and(|failure| matches!(failure.reason.as_str(), "RollbackFailed" | "ObjectGone"));
        if rank(to) < rank(from) && !paused && !stuck {
            self.breaks(
                0,
                format!("{} goes back from {from} to {to} within one attempt", change.key),
            );
        }
    }

    /// Rule 5: what disturbs a node is sent to a cordoned one.
    fn work_is_sent(&mut self, store: &Store, pod: &Pod) {
        let Some(node) = pod.node.as_ref().filter(|_| disturbs(pod)) else {
            return;
        };
        self.judge(5);
        if store.nodes.get(node).is_none_or(|node| !node.unschedulable) {
            self.breaks(5, format!("{} is made although {node} is not cordoned", pod.key));
        }
    }

    /// Rules 5 and 8: a pod goes only from a node that is out of service, and one that serves only by the leave of its budget.
    pub(super) fn pod_written(&mut self, store: &Store, written: &Written) {
        if !matches!(written.writer, Writer::Operator(_)) {
            return;
        }
        let change = &store.pods.changes()[written.index];
        let Some(before) = &change.before else {
            if let Some(made) = &change.after {
                self.work_is_sent(store, made);
            }
            return;
        };
        let going = change.after.as_ref().is_none_or(|after| after.ending.is_some()) && before.ending.is_none();
        if !going || before.task.is_some() {
            return;
        }
        self.judge(8);
        if before.static_part.is_some() || daemon(before) {
            self.breaks(8, format!("{} is evicted although it comes back at once", before.key));
            return;
        }
        let node = before.node.as_ref().and_then(|node| store.nodes.get(node));
        if let Some(node) = node.filter(|node| !node.unschedulable) {
            self.breaks(
                5,
                format!("{} is asked to leave {}, which is not cordoned", before.key, node.name),
            );
            return;
        }
        if before.phase != PodPhase::Running || !before.ready {
            return;
        }
        let budgets: Vec<_> = store
            .budgets
            .values()
            .filter(|budget| {
                budget.key.namespace == before.key.namespace && budget.selector.matches(&before.shape.labels)
            })
            .collect();
        for budget in budgets {
            // The handler counts down and marks the pod before it deletes it.
            let allowed = store
                .disrupted
                .get(&budget.key)
                .is_some_and(|pods| pods.contains_key(&before.uid));
            let said = self.doing.as_ref().and_then(|doing| doing.override_of.as_ref()) == Some(&budget.key)
                && overridden(store, &budget.key, store.now);
            if !allowed && !said {
                self.breaks(8, format!("{} goes past its budget {}", before.key, budget.key));
                return;
            }
        }
    }
}

fn overridden(store: &Store, budget: &afloat_core::view::Key, now: u64) -> bool {
    store.upgrades.values().any(|upgrade| {
        let overrides = upgrade.spec.drain.iter().flat_map(|drain| &drain.override_budgets);
        overrides
            .into_iter()
            .any(|said| *said.name == *budget.name && *said.namespace == *budget.namespace && said.until.0 > stamp(now))
    })
}

/// The order of states within an attempt; those of a failure come after all others.
pub(super) fn rank(state: NodeState) -> u8 {
    match state {
        NodeState::Staging => 1,
        NodeState::Staged => 2,
        NodeState::Paused => 3,
        NodeState::Draining => 4,
        NodeState::StandingAside => 5,
        NodeState::Upgrading => 6,
        NodeState::Verifying => 7,
        NodeState::Succeeded => 8,
        NodeState::Failed => 9,
        NodeState::RollingBack => 10,
        NodeState::RolledBack => 11,
        // Pending, and Rancher's.
        _ => 0,
    }
}

/// One of Afloat's pods that does more than to bring things.
pub(super) fn disturbs(pod: &Pod) -> bool {
    let task = pod.task.as_ref();
    task.is_some_and(|report| *report.task != *Task::Stage.word())
}

pub(super) fn daemon(pod: &Pod) -> bool {
    pod.shape
        .owner
        .as_ref()
        .is_some_and(|owner| &*owner.kind == "DaemonSet")
}

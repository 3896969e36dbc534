//! One turn at one node: what is known at its beginning, and what it has decided so far. The states themselves are in the
//! modules beside this one.

use std::str::FromStr as _;
use std::sync::Arc;

use afloat_api::kubeadm::{Failure, NodeBefore, StateRecord};
use afloat_api::{NodeKubeadmUpgrade, NodeKubeadmUpgradeStatus, NodeState, ObjectRef, Reason, Wait};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::action::{Action, Decision, Event, EventObject};
use crate::objects::{Standing, revision_of, target_of};
use crate::settings::{self, NodeSettings};
use crate::view::{Node, Pod, Revision, UNTIL_SEEN, Uid, View};

/// Room for the states of several attempts; the CRD allows no more.
const HISTORY: usize = 32;
/// Longest messages that the CRD takes.
pub(super) const WAIT_MESSAGE: usize = 512;
pub(super) const LONG_MESSAGE: usize = 1024;

pub(super) struct Turn<'a> {
    pub view: &'a View,
    pub upgrade: &'a NodeKubeadmUpgrade,
    pub now: Timestamp,
    /// The Node, where the one with the uid of the spec is there.
    pub node: Option<&'a Node>,
    pub settings: NodeSettings,
    /// What the cordon is signed with.
    pub signature: Uid,
    /// The status as it is; none before the first turn.
    pub old: Option<&'a NodeKubeadmUpgradeStatus>,
    pub status: NodeKubeadmUpgradeStatus,
    /// What was waited for at the beginning; a wait that goes on keeps its beginning.
    last_wait: Option<Wait>,
    entered: bool,
    guarded: bool,
    bypass: Option<Action>,
    first: Option<Action>,
    actions: Vec<Action>,
    failure_event: Option<Reason>,
    again: Option<Timestamp>,
    nodes_since: Option<Revision>,
}

impl<'a> Turn<'a> {
    pub fn new(view: &'a View, upgrade: &'a NodeKubeadmUpgrade, now: Timestamp) -> Self {
        let mut status = upgrade.status.clone().unwrap_or_default();
        let node = view.nodes.get(upgrade.spec.node.name.as_str());
        Self {
            view,
            upgrade,
            now,
            node: node
                .map(|node| &**node)
                .filter(|node| node.uid.as_str() == upgrade.spec.node.uid),
            settings: settings::of_node(view, upgrade),
            signature: settings::upgrade_uid(upgrade),
            last_wait: status.waiting_for.take(),
            old: upgrade.status.as_ref(),
            status,
            entered: false,
            guarded: false,
            bypass: None,
            first: None,
            actions: Vec::new(),
            failure_event: None,
            again: None,
            nodes_since: None,
        }
    }

    pub fn state(&self) -> NodeState {
        self.status.state.unwrap_or_default()
    }

    /// The attempt the status is about; 0 before the first.
    pub fn attempt(&self) -> i32 {
        self.status.attempt.unwrap_or_default()
    }

    pub fn deleting(&self) -> bool {
        self.upgrade.metadata.deletion_timestamp.is_some()
    }

    pub fn failure_reason(&self) -> Option<Reason> {
        let failure = self.status.failure.as_ref()?;
        Reason::from_str(&failure.reason).ok()
    }

    pub fn failed_for_good(&self) -> bool {
        self.state() == NodeState::Failed
            && matches!(self.failure_reason(), Some(Reason::RollbackFailed | Reason::ObjectGone))
    }

    /// Whether the machine may have been changed and not put back: the pod with the steps is made right after this is recorded. What an
    /// earlier attempt did and could not undo is still there.
    pub fn touched(&self) -> bool {
        let over = |record: &&StateRecord| {
            record.attempt != self.attempt() && matches!(record.state, NodeState::Succeeded | NodeState::RolledBack)
        };
        let mut open = self.status.history.iter().rev().take_while(|record| !over(record));
        open.any(|record| matches!(record.state, NodeState::StandingAside | NodeState::Upgrading))
    }

    pub fn overdue(&self) -> bool {
        self.status
            .deadline
            .as_ref()
            .is_some_and(|deadline| deadline.0 <= self.now)
    }

    pub fn node_ref(&self) -> ObjectRef {
        ObjectRef {
            api_version: Some("v1".to_owned()),
            kind: "Node".to_owned(),
            namespace: None,
            name: self.upgrade.spec.node.name.clone(),
            uid: Some(self.upgrade.spec.node.uid.clone()),
        }
    }

    /// Goes over into a state. One that is left within the same turn was never there for anybody, and is not recorded.
    pub fn enter(&mut self, state: NodeState, allowance: Option<SignedDuration>) {
        if self.entered {
            self.status.history.pop();
        }
        self.entered = true;
        self.last_wait = None;
        self.status.waiting_for = None;
        self.status.state = Some(state);
        self.status.state_since = Some(Time(self.now));
        self.status.deadline = allowance.map(|allowance| Time(later(self.now, allowance)));
        self.status.history.push(StateRecord {
            state,
            at: Time(self.now),
            attempt: self.attempt().max(1),
        });
        let surplus = self.status.history.len().saturating_sub(HISTORY);
        self.status.history.drain(..surplus);
    }

    /// Ends the attempt in failure; the first cause stays.
    pub fn fail(&mut self, reason: Reason, message: &str, blocked_by: Option<ObjectRef>) {
        self.record_failure(reason, message, blocked_by);
        self.enter(NodeState::Failed, None);
    }

    pub fn record_failure(&mut self, reason: Reason, message: &str, blocked_by: Option<ObjectRef>) {
        if self.status.failure.is_some() {
            return;
        }
        self.failure_event = Some(reason);
        self.status.failure = Some(Failure {
            state: self.state(),
            reason: reason.to_string(),
            message: short(message, LONG_MESSAGE),
            at: Time(self.now),
            blocked_by,
        });
    }

    /// Names what is waited for, until the deadline of the state.
    pub fn wait(&mut self, reason: Reason, message: &str, blocked_by: Option<ObjectRef>) {
        let reason = reason.to_string();
        let since = self
            .last_wait
            .as_ref()
            .filter(|last| last.reason == reason && last.blocked_by == blocked_by)
            .map_or(Time(self.now), |last| last.since.clone());
        self.status.waiting_for = Some(Wait {
            reason,
            message: short(message, WAIT_MESSAGE),
            since,
            until: self.status.deadline.clone(),
            blocked_by,
        });
    }

    /// The object that was waited for at the end of the last turn.
    pub fn waited_for(&self) -> Option<&ObjectRef> {
        self.last_wait.as_ref()?.blocked_by.as_ref()
    }

    pub fn look_again(&mut self, at: Timestamp) {
        if at > self.now {
            self.again = Some(self.again.map_or(at, |other| other.min(at)));
        }
    }

    /// Looks again when what is seen has caught up.
    pub fn look_soon(&mut self) {
        self.look_again(later(self.now, UNTIL_SEEN));
    }

    /// Does something after the status is written.
    pub fn act(&mut self, action: Action) {
        self.actions.push(action);
    }

    /// Does something after the status is written, be it unchanged: a view that is out of date must not get as far as that.
    pub fn act_guarded(&mut self, action: Action) {
        self.guarded = true;
        self.actions.push(action);
    }

    /// Does something before the status is written: what this turn says rests on it.
    pub fn act_before(&mut self, action: Action) {
        self.guarded = true;
        self.first = Some(action);
    }

    pub fn has_act_before(&self) -> bool {
        self.first.is_some()
    }

    /// Takes back what this turn was about to do, where it turns out to be too late for it.
    pub fn drop_actions(&mut self) {
        self.actions.clear();
    }

    /// The one thing that is done without a write to the status, since it is guarded by itself.
    pub fn instead_of_status(&mut self, action: Action) {
        self.bypass = Some(action);
    }

    /// Whether nodes were seen at a moment after this object was last written; if not, it is looked again soon. That a node is
    /// missing, cordoned or not says something only then: different kinds may be of different moments.
    pub fn nodes_are_current(&mut self) -> bool {
        let written = revision_of(&self.upgrade.metadata);
        let current = self.view.nodes_as_of >= written;
        if !current {
            self.look_soon();
            self.nodes_since = Some(written);
        }
        current
    }

    /// Whether what is seen of the node's cordon came after this object was last written.
    pub fn cordon_is_certain(&mut self, node: &Node) -> bool {
        node.revision > revision_of(&self.upgrade.metadata) || self.nodes_are_current()
    }

    /// Sees to it that the node is unschedulable; `false` where that has yet to be written. Before that it is recorded that the
    /// cordon is ours, so that it is taken back whatever happens in between.
    pub fn ensure_cordoned(&mut self, node: &Node) -> bool {
        if node.unschedulable {
            return true;
        }
        self.status.before.get_or_insert_with(|| before(node)).unschedulable = false;
        self.status.cordoned_by_afloat = true;
        let (node, by) = (node.target(), self.signature.clone());
        self.act_guarded(Action::Cordon { node, by });
        false
    }

    /// Whether every upgrade is seen that the node may have been cordoned for. Their watch tells nothing while none of them is written; what
    /// this object said when it knew of the cordon already is newer than all of those.
    pub fn upgrades_are_current(&self, node: &Node) -> bool {
        let as_of = self.view.node_upgrades_as_of;
        let said = self.last_wait.is_some() && matches!(self.state(), NodeState::Succeeded | NodeState::RolledBack);
        as_of >= node.revision || (said && as_of >= revision_of(&self.upgrade.metadata))
    }

    /// Whether the node is cordoned for this object: as it recorded, or by a request that came late, from a replica that was no
    /// longer the one to act. The same upgrade signs for its other hops too: one that is at work may be meant.
    pub fn cordon_is_ours(&self, node: &Node) -> bool {
        let other_at_work = || {
            let mut others = self.view.node_upgrades_of(&self.upgrade.spec.node.name);
            !self.upgrades_are_current(node)
                || others.any(|(_, other)| {
                    other.metadata.uid != self.upgrade.metadata.uid
                        && settings::upgrade_uid(other) == self.signature
                        && !Standing::of(other).ended()
                })
        };
        node.cordoned_by.as_ref() == Some(&self.signature)
            && (self.status.cordoned_by_afloat || (self.has_been_staged() && !other_at_work()))
    }

    /// Whether this object may ever have asked for a cordon: none does before everything is on its node, in whatever attempt. The same
    /// signature is on a node that an object before this one could not put back, and there it stays: that the machine took what was
    /// brought to it is the first sign that nothing of the other is left half done, since its journal lets nobody else begin before.
    pub fn has_been_staged(&self) -> bool {
        self.status
            .history
            .iter()
            .any(|record| record.state == NodeState::Staged)
    }

    /// Takes our cordon back; `false` where there is none (any more). A cordon without our signature is somebody else's.
    pub fn uncordon(&mut self, node: &Node) -> bool {
        if self.cordon_is_ours(node) {
            self.act_guarded(Action::Uncordon { node: node.target() });
            return true;
        }
        if self.status.cordoned_by_afloat && !self.cordon_is_certain(node) {
            // An old view may show the node as it was before we cordoned it.
            return true;
        }
        self.status.cordoned_by_afloat = false;
        false
    }

    /// Whether the node is unschedulable by somebody else's hand.
    pub fn cordoned_by_others(&self, node: &Node) -> bool {
        node.unschedulable && node.cordoned_by.as_ref() != Some(&self.signature)
    }

    pub fn finish(mut self) -> Decision {
        if let Some(action) = self.bypass {
            return Decision {
                actions: vec![action],
                ..Decision::default()
            };
        }
        self.status.observed_generation = self.upgrade.metadata.generation;
        self.judge_conditions();
        if let Some(deadline) = self.status.deadline.clone() {
            self.look_again(deadline.0);
        }
        let events = self.events();
        let mut actions: Vec<Action> = self.first.take().into_iter().collect();
        if self.guarded || self.old != Some(&self.status) {
            actions.push(Action::WriteNodeStatus {
                target: target_of(&self.upgrade.metadata),
                status: Box::new(self.status),
            });
        }
        actions.append(&mut self.actions);
        Decision {
            actions,
            events,
            again: self.again,
            nodes_since: self.nodes_since,
        }
    }

    fn events(&self) -> Vec<Event> {
        let event = |warning, reason, message: String| Event {
            object: EventObject::NodeUpgrade(target_of(&self.upgrade.metadata)),
            warning,
            reason,
            message: Arc::from(message),
        };
        let name = &self.upgrade.spec.node.name;
        let mut events = Vec::new();
        if let (Some(reason), Some(failure)) = (self.failure_event, &self.status.failure) {
            let asked_for = matches!(reason, Reason::RolledBack | Reason::Aborted | Reason::Deferred);
            events.push(event(!asked_for, reason, format!("{name}: {}", failure.message)));
        }
        if self.entered && self.state() != NodeState::Failed {
            let state = self.state();
            let message = match self.old.and_then(|old| old.state) {
                Some(old) if old != state => format!("{name}: {old} → {state}"),
                _ => format!("{name}: {state}"),
            };
            events.push(event(false, reason_of(state), message));
        }
        if let Some(wait) = &self.status.waiting_for {
            let known = self.old.and_then(|old| old.waiting_for.as_ref());
            let new = known.is_none_or(|old| old.reason != wait.reason || old.blocked_by != wait.blocked_by);
            if let (true, Ok(reason)) = (new, Reason::from_str(&wait.reason)) {
                events.push(event(false, reason, format!("{name}: {}", wait.message)));
            }
        }
        events
    }
}

/// The word for a state in events and conditions.
pub(super) fn reason_of(state: NodeState) -> Reason {
    match state {
        NodeState::Pending => Reason::NotStarted,
        NodeState::Paused => Reason::NodePaused,
        NodeState::Succeeded => Reason::Succeeded,
        NodeState::Failed => Reason::Failed,
        NodeState::RollingBack => Reason::RollingBack,
        NodeState::RolledBack => Reason::RolledBack,
        _ => Reason::InProgress,
    }
}

/// What a node is, to be compared with later.
pub(super) fn before(node: &Node) -> NodeBefore {
    NodeBefore {
        kubelet_version: node
            .kubelet_version
            .as_ref()
            .map(ToString::to_string)
            .unwrap_or_default(),
        container_runtime_version: Some(node.container_runtime_version.to_string()),
        os_image: Some(node.os_image.to_string()),
        unschedulable: node.unschedulable,
    }
}

pub(super) fn pod_ref(pod: &Pod) -> ObjectRef {
    ObjectRef {
        api_version: Some("v1".to_owned()),
        kind: "Pod".to_owned(),
        namespace: Some(pod.key.namespace.to_string()),
        name: pod.key.name.to_string(),
        uid: Some(pod.uid.to_string()),
    }
}

/// A moment that lies beyond all time is never reached, which is what it then means.
pub(super) fn later(moment: Timestamp, by: SignedDuration) -> Timestamp {
    moment.checked_add(by).unwrap_or(Timestamp::MAX)
}

/// Cuts a text to what the CRD takes, by characters as the schema counts.
pub(super) fn short(text: &str, longest: usize) -> String {
    if text.chars().count() <= longest {
        return text.to_owned();
    }
    let mut cut: String = text.chars().take(longest.saturating_sub(1)).collect();
    cut.push('…');
    cut
}

//! One turn about one Upgrade: what it was, what it becomes, and what else is to be written before and after. Which of it is done
//! is decided elsewhere; here are the words: conditions, labels, states of nodes, Jobs.

use std::sync::Arc;

use afloat_api::harvester::{
    HarvesterCondition, HarvesterNodeState, NAMESPACE, NodeUpgradeStatus, Upgrade, UpgradeCondition, UpgradeState,
    UpgradeStatus,
};
use afloat_api::{Reason, annotations, labels, names};
use jiff::{SignedDuration, Timestamp};

use super::action::{HciAction, HciJob, JobKind};
use super::config;
use super::times::Times;
use super::view::{Job, Seen};
use crate::action::{Action, Decision, Event, EventObject};
use crate::objects::target_of;
use crate::view::{Key, NodeName, Revision, Target, UNTIL_SEEN, View};

/// `True`, `False` or `Unknown`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Tri {
    True,
    False,
    Unknown,
}

impl Tri {
    pub fn word(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

/// The condition of Afloat's own beside those of the contract.
pub const PREFLIGHT_PASSED: &str = "PreflightPassed";

pub struct Turn<'a> {
    pub view: &'a View,
    pub now: Timestamp,
    pub key: Key,
    pub target: Target,
    pub before: Arc<Upgrade>,
    pub after: Upgrade,
    /// Written before the Upgrade: what has to be on record before it is said.
    first: Vec<HciAction>,
    /// Written after it: what it allows.
    then: Vec<HciAction>,
    events: Vec<Event>,
    again: Option<Timestamp>,
    nodes_since: Option<Revision>,
    pub times: Times,
}

impl<'a> Turn<'a> {
    pub fn new(view: &'a View, upgrade: &Seen<Upgrade>, now: Timestamp) -> Self {
        let target = target_of(&upgrade.what.metadata);
        let before = Arc::new(upgrade.what.clone());
        Self {
            view,
            now,
            key: target.key.clone(),
            target,
            after: (*before).clone(),
            times: Times::of(&before),
            before,
            first: Vec::new(),
            then: Vec::new(),
            events: Vec::new(),
            again: None,
            nodes_since: None,
        }
    }

    pub fn finish(mut self) -> Decision {
        if self.times != Times::of(&self.before) {
            let times = self.times.written();
            self.annotate(annotations::NODE_TIMES, Some(&times));
        }
        let mut actions = self.first;
        if self.after != *self.before {
            actions.push(HciAction::WriteUpgrade {
                target: self.target,
                before: self.before,
                after: Box::new(self.after),
            });
        }
        actions.extend(self.then);
        Decision {
            actions: actions
                .into_iter()
                .map(|action| Action::Hci(Box::new(action)))
                .collect(),
            events: self.events,
            again: self.again,
            nodes_since: self.nodes_since,
        }
    }

    pub fn name(&self) -> &str {
        &self.target.key.name
    }

    pub fn first(&mut self, action: HciAction) {
        self.first.push(action);
    }

    pub fn then(&mut self, action: HciAction) {
        self.then.push(action);
    }

    /// Whether anything would be written but the Upgrade itself.
    pub fn idle(&self) -> bool {
        self.first.is_empty() && self.then.is_empty()
    }

    pub fn tell(&mut self, warning: bool, reason: Reason, message: &str) {
        self.events.push(Event {
            object: EventObject::Hci(self.target.clone()),
            warning,
            reason,
            message: Arc::from(message),
        });
    }

    /// Looks again at a moment even if nothing changes.
    pub fn look_at(&mut self, moment: Timestamp) {
        self.again = Some(self.again.map_or(moment, |again| again.min(moment)));
    }

    /// Looks again once nodes are seen as of `since`: nothing that happens may ever tell.
    pub fn see_nodes_since(&mut self, since: Revision) {
        self.look_at(self.now + UNTIL_SEEN);
        self.nodes_since = self.nodes_since.max(Some(since));
    }

    pub fn status(&self) -> &UpgradeStatus {
        static NONE: std::sync::LazyLock<UpgradeStatus> = std::sync::LazyLock::new(UpgradeStatus::default);
        self.after.status.as_ref().unwrap_or(&NONE)
    }

    pub fn status_mut(&mut self) -> &mut UpgradeStatus {
        self.after.status.get_or_insert_default()
    }

    /// The status of a condition; `None` where it is absent.
    pub fn condition(&self, kind: UpgradeCondition) -> Option<Tri> {
        condition_of(&self.after, kind.into())
    }

    pub fn set(&mut self, kind: UpgradeCondition, status: Tri, reason: &str, message: &str) {
        self.set_any(kind.into(), status, reason, message);
    }

    /// Sets a condition; its times change only with what it says, or every turn would write.
    pub fn set_any(&mut self, kind: &str, status: Tri, reason: &str, message: &str) {
        let now = moment(self.now);
        let conditions = &mut self.status_mut().conditions;
        let index = conditions.iter().position(|condition| condition.kind == kind);
        let index = index.unwrap_or_else(|| {
            conditions.push(HarvesterCondition {
                kind: kind.to_owned(),
                ..HarvesterCondition::default()
            });
            conditions.len() - 1
        });
        let condition = &mut conditions[index];
        if condition.status == status.word() && condition.reason == reason && condition.message == message {
            return;
        }
        if condition.status != status.word() {
            condition.last_transition_time.clone_from(&now);
        }
        status.word().clone_into(&mut condition.status);
        reason.clone_into(&mut condition.reason);
        message.clone_into(&mut condition.message);
        condition.last_update_time = now;
    }

    pub fn message(&self, kind: UpgradeCondition) -> String {
        self.said(kind).map(|said| said.message.clone()).unwrap_or_default()
    }

    pub fn reason(&self, kind: UpgradeCondition) -> String {
        self.said(kind).map(|said| said.reason.clone()).unwrap_or_default()
    }

    fn said(&self, kind: UpgradeCondition) -> Option<&HarvesterCondition> {
        let word: &str = kind.into();
        self.status().conditions.iter().find(|condition| condition.kind == word)
    }

    /// Forgets a condition, so that its step begins again.
    pub fn unset(&mut self, kind: UpgradeCondition) {
        let word: &str = kind.into();
        self.status_mut().conditions.retain(|condition| condition.kind != word);
    }

    /// When a condition got its status.
    pub fn since(&self, kind: UpgradeCondition) -> Option<Timestamp> {
        self.said(kind)?.last_transition_time.parse().ok()
    }

    /// Since when a condition says what it says, where that is said for this reason.
    pub fn said_since(&self, kind: UpgradeCondition, reason: &str) -> Option<Timestamp> {
        let said = self.said(kind).filter(|said| said.reason == reason)?;
        said.last_update_time.parse().ok()
    }

    pub fn label(&mut self, key: &str, value: Option<&str>) {
        let labels = self.after.metadata.labels.get_or_insert_default();
        match value {
            Some(value) => labels.insert(key.to_owned(), value.to_owned()),
            None => labels.remove(key),
        };
    }

    pub fn annotate(&mut self, key: &str, value: Option<&str>) {
        let all = self.after.metadata.annotations.get_or_insert_default();
        match value {
            Some(value) => all.insert(key.to_owned(), value.to_owned()),
            None => all.remove(key),
        };
    }

    pub fn annotation(&self, key: &str) -> Option<&str> {
        config::annotation(&self.after, key)
    }

    pub fn state_label(&mut self, state: UpgradeState) {
        self.label(labels::HARVESTER_UPGRADE_STATE, Some(state.into()));
    }

    pub fn finalizer(&mut self, present: bool) {
        let all = self.after.metadata.finalizers.get_or_insert_default();
        all.retain(|one| one != names::FINALIZER);
        if present {
            all.push(names::FINALIZER.to_owned());
        }
    }

    pub fn has_finalizer(&self) -> bool {
        let all = self.after.metadata.finalizers.as_deref().unwrap_or_default();
        all.iter().any(|one| one == names::FINALIZER)
    }

    /// Where a node is; `None` where it has no state, or one of somebody else's words.
    pub fn node_state(&self, node: &str) -> Option<HarvesterNodeState> {
        self.status().node_statuses.get(node)?.state.parse().ok()
    }

    pub fn set_node(&mut self, node: &str, state: HarvesterNodeState, reason: &str, message: &str) {
        let status = NodeUpgradeStatus {
            state: state.to_string(),
            reason: reason.to_owned(),
            message: message.to_owned(),
        };
        if self.node_state(node) != Some(state) {
            self.times.enters(node, state, self.now);
        }
        self.status_mut().node_statuses.insert(node.to_owned(), status);
    }

    pub fn job_key(&self, kind: JobKind, node: Option<&NodeName>) -> Key {
        Key::new(NAMESPACE, &kind.name(self.name(), node))
    }

    /// The Job of this upgrade, not that of an earlier one of the same name.
    pub fn job(&self, kind: JobKind, node: Option<&NodeName>) -> Option<Arc<Seen<Job>>> {
        let job = self.view.hci.jobs.get(&self.job_key(kind, node))?;
        let ours = job.upgrade_uid.as_ref() == Some(&self.target.uid);
        (ours && !job.deleting).then(|| Arc::clone(job))
    }

    /// Something of the Job's name is still there: it cannot be made yet.
    pub fn job_in_the_way(&self, kind: JobKind, node: Option<&NodeName>) -> bool {
        self.view.hci.jobs.contains_key(&self.job_key(kind, node)) && self.job(kind, node).is_none()
    }

    /// There is no Job of that name, of this upgrade or of another.
    pub fn job_missing(&self, kind: JobKind, node: &NodeName) -> bool {
        !self.view.hci.jobs.contains_key(&self.job_key(kind, Some(node)))
    }

    /// Has a Job made, after the Upgrade was written.
    pub fn create_job(&mut self, kind: JobKind, node: Option<&NodeName>) {
        let key = self.job_key(kind, node);
        let job = HciJob {
            key,
            kind,
            node: node.cloned(),
            upgrade: self.target.clone(),
            image: self.image(),
            repo: Arc::from(self.repo_url()),
            previous: Arc::from(self.status().previous_version.as_str()),
        };
        self.then(HciAction::CreateJob(Box::new(job)));
    }

    /// The image of Jobs and of the repository.
    pub fn image(&self) -> Arc<str> {
        let own = self
            .after
            .spec
            .upgrade_image
            .as_deref()
            .filter(|image| !image.is_empty());
        own.map_or_else(|| Arc::clone(&self.view.hci.image), Arc::from)
    }

    /// Where the release is served.
    pub fn repo_url(&self) -> String {
        match config::repo_url(&self.after) {
            Ok(Some(url)) => url.to_owned(),
            _ => format!("http://{}.{NAMESPACE}", self.repo_name()),
        }
    }

    pub fn repo_name(&self) -> String {
        afloat_api::names::cut(&format!("upgrade-repo-{}", self.name()))
    }
}

pub fn minutes_after(start: Timestamp, minutes: i64) -> Timestamp {
    start
        .saturating_add(SignedDuration::from_mins(minutes))
        .unwrap_or(Timestamp::MAX)
}

/// The status of a condition of an Upgrade.
pub fn condition_of(upgrade: &Upgrade, kind: &str) -> Option<Tri> {
    let conditions = &upgrade.status.as_ref()?.conditions;
    let condition = conditions.iter().find(|condition| condition.kind == kind)?;
    Some(match condition.status.as_str() {
        "True" => Tri::True,
        "False" => Tri::False,
        _ => Tri::Unknown,
    })
}

/// A moment as the API server writes it.
pub fn moment(now: Timestamp) -> String {
    format!("{now:.0}")
}

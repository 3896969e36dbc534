//! What the status of a ClusterUpgrade says: phases, counters, who waits for what, who failed, conditions. Written so that
//! a turn in which nothing happened changes nothing.

use std::collections::BTreeMap;

use afloat_api::clusterupgrade::{
    Finding, MAX_FINDINGS, MAX_LISTED_NODES, NodeCounters, NodeFailure, NodeWait, Phase, PhaseRecord, Preflight,
    Severity,
};
use afloat_api::{ClusterUpgradeStatus, ConditionType, NodeState, Reason, Wait};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::roster::{Roster, Standings, is_there};
use super::{Turn, estimate, over};
use crate::gates::Closed;
use crate::objects::{Standing, set_condition};
use crate::version::KubernetesVersion;
use crate::view::{Node, NodeName, View};

/// The words of a node's failure.
pub fn failure_text(standing: Standing<'_>) -> String {
    let failure = standing
        .upgrade
        .status
        .as_ref()
        .and_then(|status| status.failure.as_ref());
    failure.map_or_else(
        || "no reason was recorded".to_owned(),
        |failure| failure.message.clone(),
    )
}

/// What keeps the node whose turn it is tells more than what keeps those after it: least first.
fn says_little(wait: &NodeWait) -> u8 {
    match wait.wait.reason.parse().unwrap_or(Reason::InProgress) {
        Reason::WaitingForEarlierNode | Reason::WaitingForBudget => 2,
        Reason::NodePaused => 1,
        _ => 0,
    }
}

/// The wait that an upgrade is summed up by.
pub fn first_wait(status: &ClusterUpgradeStatus) -> Option<&NodeWait> {
    status.waiting.iter().min_by_key(|wait| says_little(wait))
}

fn short(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let mut cut = text.chars().take(most - 1).collect::<String>();
    while cut.len() > most - '…'.len_utf8() {
        cut.pop();
    }
    cut.push('…');
    cut
}

impl Turn<'_> {
    /// Goes on to a phase; the one before is over.
    pub(super) fn enter(&mut self, phase: Phase) {
        if self.status.phase == Some(phase) {
            return;
        }
        for record in &mut self.status.phases {
            if record.finished_at.is_none() && record.name != phase {
                record.finished_at = Some(Time(self.now));
            }
        }
        if !over(phase) {
            match self.status.phases.iter_mut().find(|record| record.name == phase) {
                // The control plane comes round again where a target is several minor versions away.
                Some(record) => record.finished_at = None,
                None => self.status.phases.push(PhaseRecord {
                    name: phase,
                    started_at: Time(self.now),
                    finished_at: None,
                    message: None,
                }),
            }
        }
        self.status.phase = Some(phase);
    }

    pub(super) fn record_findings(&mut self, findings: &[Finding]) {
        let listed: Vec<Finding> = findings.iter().take(MAX_FINDINGS).cloned().collect();
        if self
            .status
            .preflight
            .as_ref()
            .is_some_and(|preflight| preflight.findings == listed)
        {
            return;
        }
        let count = |severity: Severity| {
            let matching = findings.iter().filter(|finding| finding.severity == severity).count();
            i32::try_from(matching).unwrap_or(i32::MAX)
        };
        self.status.preflight = Some(Preflight {
            at: Time(self.now),
            errors: count(Severity::Error),
            warnings: count(Severity::Warning),
            findings: listed,
        });
    }

    /// What there is to say about an upgrade that goes on.
    pub(super) fn sum_up(&mut self) {
        self.count();
        let (reason, message) = self.headline();
        self.conclude(reason, &message);
    }

    /// Counters, lists and estimate.
    pub(super) fn count(&mut self) {
        let current = current(self.view, &self.roster);
        let mut counts: BTreeMap<NodeState, i32> = BTreeMap::new();
        let (mut succeeded, mut total) = (0, 0);
        let mut left = (0, 0);
        for (node, standing) in current.of_nodes(self.view) {
            total += 1;
            let state = self.state_of(standing, node);
            *counts.entry(state).or_default() += 1;
            match state {
                NodeState::Succeeded => succeeded += 1,
                NodeState::RolledBack | NodeState::Failed => {}
                _ if node.control_plane => left.0 += 1,
                _ => left.1 += 1,
            }
        }
        let done: Vec<Standing<'_>> = self
            .roster
            .standings()
            .map(|(_, standing)| standing)
            .filter(|standing| standing.succeeded())
            .collect();
        let lanes = self.status.slots.len();
        self.status.estimate = estimate::estimate(&done, left, lanes, self.status.estimate.as_ref(), self.now);
        let failed = self
            .roster
            .standings()
            .filter(|(_, standing)| standing.failed())
            .count();
        self.status.nodes = Some(NodeCounters {
            total,
            succeeded,
            in_flight: i32::try_from(self.status.slots.len()).unwrap_or(i32::MAX),
            failed: i32::try_from(failed).unwrap_or(i32::MAX),
            by_state: counts
                .into_iter()
                .map(|(state, count)| (state.to_string(), count))
                .collect(),
        });
        self.status.progress = Some(format!("{succeeded}/{total}"));
        self.list_failed();
        self.list_waiting();
    }

    /// Who waits, and for what.
    pub(super) fn list_waiting(&mut self) {
        let current = current(self.view, &self.roster);
        let held: Vec<(&NodeName, &Closed, NodeState)> = self
            .held
            .iter()
            .filter(|(node, _)| !node.as_str().is_empty())
            .map(|(node, closed)| {
                let standing = current.get(node.as_str());
                (node, closed, standing.map_or(NodeState::Staged, Standing::state))
            })
            .collect();
        self.status.waiting = self.waiting(&held);
    }

    /// Where a node is, as a person counts: in the upgrade it is in now, else by its version.
    fn state_of(&self, standing: Option<Standing<'_>>, node: &Node) -> NodeState {
        let target = &self.upgrade.spec.kubernetes_version;
        let at_target = || {
            node.kubelet_version
                .as_ref()
                .is_some_and(|version| version.is_written(target))
        };
        match standing {
            // One hop is done, the next has no object yet.
            Some(standing) if standing.succeeded() && standing.upgrade.spec.kubelet_version != *target => {
                NodeState::Pending
            }
            Some(standing) => standing.state(),
            None if !self.bundle_is_new() && at_target() => NodeState::Succeeded,
            None => NodeState::Pending,
        }
    }

    fn list_failed(&mut self) {
        let mut failed: Vec<NodeFailure> = self
            .roster
            .standings()
            .map(|(_, standing)| standing)
            .filter(|standing| standing.failed())
            .filter_map(|standing| {
                let failure = standing.upgrade.status.as_ref()?.failure.as_ref()?;
                Some(NodeFailure {
                    node: standing.node().to_owned(),
                    state: failure.state,
                    reason: failure.reason.clone(),
                    message: short(&failure.message, 512),
                    at: failure.at.clone(),
                    attempt: standing.upgrade.spec.attempt,
                    rolled_back: standing.state() == NodeState::RolledBack,
                    blocked_by: failure.blocked_by.clone(),
                })
            })
            .collect();
        failed.sort_by(|one, other| (&one.at.0, &one.node).cmp(&(&other.at.0, &other.node)));
        failed.dedup_by(|one, other| one.node == other.node);
        failed.truncate(MAX_LISTED_NODES);
        self.status.failed = failed;
    }

    /// Who waits for what: nodes that say so themselves, and those that are held back.
    fn waiting(&self, held: &[(&NodeName, &Closed, NodeState)]) -> Vec<NodeWait> {
        let mut waiting: BTreeMap<String, NodeWait> = BTreeMap::new();
        for (_, standing) in self.roster.standings().filter(|(_, standing)| !standing.ended()) {
            let wait = standing
                .upgrade
                .status
                .as_ref()
                .and_then(|status| status.waiting_for.clone());
            let current = standing.upgrade.status.as_ref().and_then(|status| status.attempt)
                == Some(standing.upgrade.spec.attempt);
            if let Some(wait) = wait.filter(|_| current) {
                let node = standing.node().to_owned();
                let state = standing.state();
                waiting.insert(node.clone(), NodeWait { node, state, wait });
            }
        }
        for (node, closed, state) in held {
            let reason: &'static str = closed.reason.into();
            let before = self.status.waiting.iter();
            let since = before
                .filter(|wait| wait.node == node.as_str() && wait.wait.reason == reason)
                .map(|wait| wait.wait.since.clone())
                .next();
            waiting.entry(node.to_string()).or_insert_with(|| NodeWait {
                node: node.to_string(),
                state: *state,
                wait: wait_of(closed, since.unwrap_or(Time(self.now))),
            });
        }
        let mut waiting: Vec<NodeWait> = waiting.into_values().collect();
        // What is cut off is named nowhere, and whoever would end it wakes nobody.
        let order = |wait: &NodeWait| (says_little(wait), wait.wait.since.0, wait.node.clone());
        waiting.sort_by_cached_key(order);
        waiting.truncate(MAX_LISTED_NODES);
        waiting.sort_by(|one, other| (&one.wait.since.0, &one.node).cmp(&(&other.wait.since.0, &other.node)));
        waiting
    }

    /// The one sentence about an upgrade that goes on.
    fn headline(&self) -> (Reason, String) {
        if let Some((_, closed)) = self.held.iter().find(|(node, _)| node.as_str().is_empty()) {
            return (closed.reason, closed.message.clone());
        }
        if let Some(preflight) = self
            .status
            .preflight
            .as_ref()
            .filter(|_| self.phase() == Phase::Preflight)
        {
            let open = preflight.findings.iter().filter(|finding| blocks(finding)).count();
            if open > 0 {
                let message = format!(
                    "{} errors, {} warnings: nothing was changed; fix the errors, accept warnings in spec.accept",
                    preflight.errors, preflight.warnings
                );
                return (Reason::PreflightFailed, message);
            }
        }
        if self.upgrade.spec.abort == Some(true) || self.deleting() {
            return (
                Reason::RollingBack,
                "nodes in flight are put back as they were".to_owned(),
            );
        }
        let first = first_wait(&self.status).filter(|wait| says_little(wait) == 0 || self.status.slots.is_empty());
        if let Some(wait) = first {
            let reason = wait.wait.reason.parse().unwrap_or(Reason::InProgress);
            return (reason, short(&format!("{}: {}", wait.node, wait.wait.message), 512));
        }
        let progress = self.status.progress.as_deref().unwrap_or_default();
        (Reason::InProgress, format!("{}: {progress} nodes done", self.phase()))
    }

    /// The conditions, from the reason and the sentence of the whole.
    pub(super) fn conclude(&mut self, reason: Reason, message: &str) {
        let phase = self.phase();
        let stamp = (self.now, self.upgrade.metadata.generation);
        let preflighted = phase > Phase::Preflight && self.status.started_at.is_some();
        let message = short(message, 1024);
        let paused = self.upgrade.spec.paused == Some(true);
        let stalled = matches!(phase, Phase::Failed)
            || matches!(
                reason,
                Reason::PreflightFailed
                    | Reason::WaitingForOtherUpgrade
                    | Reason::BundleUnavailable
                    | Reason::VersionSkew
            );
        let failed = self.status.failed.len();
        let conditions = &mut self.status.conditions;
        let mut set = |kind: ConditionType, value: bool, reason: Reason, text: &str| {
            set_condition(conditions, kind.into(), value, reason, text, stamp);
        };
        set(ConditionType::Ready, phase == Phase::Succeeded, reason, &message);
        set(
            ConditionType::Progressing,
            !over(phase) && !stalled && !paused,
            reason,
            &message,
        );
        set(
            ConditionType::Stalled,
            stalled,
            reason,
            if stalled { &message } else { "" },
        );
        let paused_reason = if paused {
            Reason::PausedByUser
        } else {
            Reason::InProgress
        };
        set(
            ConditionType::Paused,
            paused,
            paused_reason,
            if paused { "spec.paused is true" } else { "" },
        );
        let degraded = format!("{failed} nodes failed and were set aside");
        let (degraded_reason, text) = if failed > 0 {
            (Reason::Failed, degraded.as_str())
        } else {
            (Reason::InProgress, "")
        };
        set(ConditionType::Degraded, failed > 0, degraded_reason, text);
        let preflight = if preflighted { Reason::Succeeded } else { reason };
        set(
            ConditionType::PreflightPassed,
            preflighted,
            preflight,
            if preflighted { "" } else { &message },
        );
        let planes = phase > Phase::ControlPlane && !matches!(phase, Phase::Failed | Phase::Aborted);
        let planes_reason = if planes { Reason::Succeeded } else { Reason::InProgress };
        set(ConditionType::ControlPlaneUpgraded, planes, planes_reason, "");
        let workers = phase == Phase::Succeeded;
        let workers_reason = if workers { Reason::Succeeded } else { Reason::InProgress };
        set(ConditionType::WorkersUpgraded, workers, workers_reason, "");
        if over(phase) {
            set(ConditionType::CleanedUp, true, Reason::Succeeded, "");
        }
    }
}

/// Of each node the upgrade it is in now, else the last one.
fn current<'a>(view: &View, roster: &Roster<'a>) -> Standings<'a> {
    let all = roster.standings().map(|(_, standing)| (standing.node(), standing));
    // Of two machines under one name only the one that is there is told about.
    Standings::sorted(all.collect(), |next, kept| {
        if next.node_uid() == kept.node_uid() {
            is_nearer(next, kept)
        } else {
            is_there(view, next)
        }
    })
}

/// Whether `standing` tells more about where a node is than `other`, an upgrade of the same node.
fn is_nearer(standing: Standing<'_>, other: Standing<'_>) -> bool {
    let version = |standing: Standing<'_>| standing.upgrade.spec.kubelet_version.parse::<KubernetesVersion>().ok();
    match (other.ended(), standing.ended()) {
        (true, false) => true,
        (false, true) => false,
        // Two that are not over: the later hop is only staged ahead.
        (false, false) => version(standing) < version(other),
        (true, true) => version(standing) > version(other),
    }
}

fn blocks(finding: &Finding) -> bool {
    match finding.severity {
        Severity::Error => true,
        Severity::Warning => !finding.accepted,
        Severity::Info => false,
    }
}

fn wait_of(closed: &Closed, since: Time) -> Wait {
    Wait {
        reason: closed.reason.to_string(),
        message: short(&closed.message, 512),
        since,
        until: closed.until.map(Time),
        blocked_by: closed.blocked_by.clone(),
    }
}

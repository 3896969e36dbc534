//! The one judge of a cluster: leads a ClusterUpgrade through its phases, grants slots, and knows when to stop. What happens
//! to a node that holds a slot is in [`crate::lifecycle`]; what may hold a node back in [`crate::gates`].

mod children;
mod estimate;
mod group;
mod report;
mod roster;
mod slots;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use afloat_api::clusterupgrade::{Phase, Slot};
use afloat_api::kubeadm::DesiredNodeState;
use afloat_api::{ClusterUpgrade, ClusterUpgradeStatus, NodeRole, ObjectRef, Reason, labels, names};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::action::{Action, Decision, Event, EventObject};
use crate::gates::{self, Closed};
use crate::objects::{Standing, target_of};
use crate::plan::{self, Stage, StageKind};
use crate::preflight;
use crate::settings::Settings;
use crate::version::{KubeletSkew, KubernetesVersion};
use crate::view::{Key, Node, NodeName, Target, Uid, View, Wish};
use crate::window::{self, WindowState};

use roster::Roster;
use slots::Granting;

/// How often the preflight looks again at what no watch of the judge reports.
const LOOK_AGAIN: SignedDuration = SignedDuration::from_secs(30);
/// Machines in one group object: far below etcd's limit for an object.
const GROUP_SIZE: usize = 1000;

pub fn decide_control_plane(view: &View, key: &Key, now: Timestamp) -> Decision {
    group::control_plane(view, key).map_or_else(Decision::default, |group| group::decide(view, group, now))
}

pub fn decide_workers(view: &View, key: &Key, now: Timestamp) -> Decision {
    group::workers(view, key).map_or_else(Decision::default, |group| group::decide(view, group, now))
}

/// One turn of a ClusterUpgrade.
pub fn decide_upgrade(view: &View, key: &Key, now: Timestamp) -> Decision {
    let Some(upgrade) = view.upgrades.get(key) else {
        return Decision::default();
    };
    // A cluster of Cluster API has another judge.
    if upgrade.spec.cluster_ref.is_some() {
        return Decision::default();
    }
    let uid = upgrade.metadata.uid.as_deref().unwrap_or_default();
    let mut turn = Turn {
        view,
        key,
        upgrade,
        uid: Uid::from(uid),
        target: target_of(&upgrade.metadata),
        roster: Roster::of_upgrade(view, uid),
        now,
        status: upgrade.status.clone().unwrap_or_default(),
        held: Vec::new(),
        before: Vec::new(),
        after: Vec::new(),
        events: Vec::new(),
        again: None,
    };
    turn.decide();
    turn.finish()
}

/// Whether children may be made and nodes begun in this phase.
pub(crate) fn works(phase: Phase) -> bool {
    matches!(phase, Phase::Prepare | Phase::ControlPlane | Phase::Workers)
}

fn over(phase: Phase) -> bool {
    matches!(phase, Phase::Succeeded | Phase::Failed | Phase::Aborted)
}

/// A control plane can be undone until the first worker has started: its kubelets would be newer than the API server.
pub fn undo_refused(view: &View, standing: Standing<'_>) -> Option<String> {
    if standing.upgrade.spec.role == NodeRole::Worker {
        return None;
    }
    let uid_of = |upgrade: &afloat_api::NodeKubeadmUpgrade| {
        let labels = upgrade.metadata.labels.as_ref();
        labels.and_then(|labels| labels.get(labels::UPGRADE_UID)).cloned()
    };
    let mine = uid_of(standing.upgrade);
    view.node_upgrades()
        .values()
        .find(|other| {
            other.spec.role == NodeRole::Worker
                && uid_of(other) == mine
                && (other.spec.desired != DesiredNodeState::Staged || other.spec.attempt > 1)
        })
        .map(|worker| {
            format!(
                "{} cannot be undone any more: {} has begun, and a kubelet must not be newer than its API server",
                standing.node(),
                worker.spec.node.name
            )
        })
}

struct Turn<'a> {
    view: &'a View,
    key: &'a Key,
    upgrade: &'a ClusterUpgrade,
    uid: Uid,
    target: Target,
    roster: Roster<'a>,
    now: Timestamp,
    /// The status as it will be.
    status: ClusterUpgradeStatus,
    /// Nodes that could go and are held back, by what.
    held: Vec<(NodeName, Closed)>,
    /// Actions before and after the status is written.
    before: Vec<Action>,
    after: Vec<Action>,
    events: Vec<Event>,
    again: Option<Timestamp>,
}

impl Turn<'_> {
    fn phase(&self) -> Phase {
        self.status.phase.unwrap_or_default()
    }

    fn deleting(&self) -> bool {
        self.upgrade.metadata.deletion_timestamp.is_some()
    }

    fn holds_finalizer(&self) -> bool {
        let finalizers = self.upgrade.metadata.finalizers.as_deref().unwrap_or_default();
        finalizers.iter().any(|finalizer| finalizer == names::FINALIZER)
    }

    fn decide(&mut self) {
        if over(self.phase()) {
            return self.after_the_end();
        }
        if *self.key.namespace != *self.view.home {
            let message = format!(
                "without clusterRef an upgrade is heeded in the operator's own namespace only: create it in {}",
                self.view.home
            );
            return self.end(Phase::Failed, Reason::InvalidSpec, &message);
        }
        if !self.holds_finalizer() {
            if !self.deleting() {
                self.before.push(Action::SetUpgradeFinalizer {
                    target: self.target.clone(),
                    present: true,
                });
            }
            return;
        }
        let settings = match Settings::read(&self.upgrade.spec) {
            Ok(settings) => settings,
            Err(invalid) => return self.end(Phase::Failed, Reason::InvalidSpec, &invalid.to_string()),
        };
        self.release_slots();
        if settings.abort || self.deleting() {
            return self.abort();
        }
        match self.phase() {
            Phase::Pending | Phase::Preflight => self.preflight(&settings),
            _ => self.work(&settings),
        }
    }

    /// Nothing is left of an upgrade that is over: lock and finalizer go, and the slot of an undoing comes and goes.
    fn after_the_end(&mut self) {
        self.release_slots();
        if let Ok(settings) = Settings::read(&self.upgrade.spec) {
            self.grant_undoing(&settings);
        }
        if let Some(lock) = self.view.lock.as_ref().filter(|lock| lock.holder == self.uid) {
            self.after.push(Action::ReleaseLock {
                lock: lock.target.clone(),
            });
        } else if self.deleting() && self.holds_finalizer() && self.status.slots.is_empty() {
            self.after.push(Action::SetUpgradeFinalizer {
                target: self.target.clone(),
                present: false,
            });
        }
    }

    fn release_slots(&mut self) {
        self.status.slots = slots::still_held(self.view, &self.roster, &self.status.slots, self.target.revision);
    }

    /// A control plane that was not asked often enough yet is neither well nor ill: an operator that has just started would
    /// otherwise find a whole control plane broken, and say so.
    fn still_asking(&self) -> bool {
        self.view.control_plane_nodes().any(|node| {
            let health = self.view.health.get(&node.name);
            health.is_none_or(|health| (1..gates::READY_IN_A_ROW).contains(&health.readyz_in_a_row))
        })
    }

    fn preflight(&mut self, settings: &Settings) {
        if self.still_asking() {
            self.again = Some(self.now + LOOK_AGAIN);
            self.enter(Phase::Preflight);
            return self.hold_all(Closed {
                reason: Reason::WaitingForApiServer,
                message: "the control planes are being asked whether they are ready".to_owned(),
                blocked_by: None,
                until: None,
            });
        }
        let findings = preflight::findings(self.view, self.key, settings, self.now);
        let passes = preflight::passes(&findings);
        self.record_findings(&findings);
        self.enter(Phase::Preflight);
        self.again = Some(self.now + LOOK_AGAIN);
        if !passes {
            return;
        }
        match &self.view.lock {
            Some(lock) if lock.holder != self.uid => {
                self.hold_all(self.other_upgrade(&lock.holder));
                return;
            }
            Some(_) => {}
            None => self.before.push(Action::TakeLock {
                namespace: Arc::clone(&self.view.home),
                holder: self.uid.clone(),
                upgrade: Arc::clone(&self.key.name),
            }),
        }
        let Ok(stages) = plan::path(self.view, settings) else {
            return;
        };
        self.status.started_at = Some(Time(self.now));
        self.status.from_version = self.oldest_api_server().map(ToString::to_string);
        self.status.version_path = stages
            .iter()
            .filter(|stage| stage.kind == StageKind::ControlPlane)
            .map(|stage| stage.version.to_string())
            .collect();
        self.enter(Phase::Prepare);
        self.event(false, Reason::InProgress, &format!("upgrade to {} begins", settings.to));
    }

    /// The version the cluster begins with: the oldest of its API servers.
    fn oldest_api_server(&self) -> Option<&KubernetesVersion> {
        self.view
            .control_plane_nodes()
            .filter_map(|node| plan::api_server_version(self.view, node))
            .min()
    }

    fn other_upgrade(&self, holder: &Uid) -> Closed {
        let other = self
            .view
            .upgrades
            .values()
            .find(|other| other.metadata.uid.as_deref() == Some(holder.as_str()));
        let namespace = &self.view.home;
        let (message, name) = match other {
            Some(other) => {
                let name = other.metadata.name.clone().unwrap_or_default();
                (
                    format!("clusterupgrade/{name} is under way; it ends by itself, or: afloat abort {name}"),
                    name,
                )
            }
            None => (
                format!(
                    "the lock is held by an upgrade that is not there any more: kubectl -n {namespace} delete lease {}",
                    names::LOCK
                ),
                names::LOCK.to_owned(),
            ),
        };
        Closed {
            reason: Reason::WaitingForOtherUpgrade,
            message,
            blocked_by: Some(ObjectRef {
                kind: "ClusterUpgrade".to_owned(),
                namespace: Some(namespace.to_string()),
                name,
                ..ObjectRef::default()
            }),
            until: None,
        }
    }

    /// The upgrade as a whole waits.
    fn hold_all(&mut self, closed: Closed) {
        self.held.push((NodeName::from(""), closed));
    }

    fn work(&mut self, settings: &Settings) {
        match &self.view.lock {
            Some(lock) if lock.holder == self.uid => {}
            Some(lock) => return self.hold_all(self.other_upgrade(&lock.holder)),
            None => {
                self.before.push(Action::TakeLock {
                    namespace: Arc::clone(&self.view.home),
                    holder: self.uid.clone(),
                    upgrade: Arc::clone(&self.key.name),
                });
            }
        }
        let stages = match self.stages(settings) {
            Ok(stages) => stages,
            Err(error) => {
                return self.hold_all(Closed {
                    reason: error.reason(),
                    message: error.to_string(),
                    blocked_by: None,
                    until: None,
                });
            }
        };
        if let Some((reason, message)) = self.stop(settings) {
            if self.status.slots.is_empty() {
                self.end(Phase::Failed, reason, &message);
            }
            return;
        }
        let Some(stage) = stages.first().cloned() else {
            if self.status.slots.is_empty() {
                let message = format!("every node is at {}", settings.to);
                self.end(Phase::Succeeded, Reason::Succeeded, &message);
            }
            return;
        };
        if let Some(message) = self.skew_stops(&stage) {
            return self.end(Phase::Failed, Reason::VersionSkew, &message);
        }
        self.ensure_groups(&stage, settings);
        // Staging needs no slot and runs ahead, also on the workers that come after the first control planes.
        if let Some(next) = stages.iter().find(|stage| stage.kind == StageKind::Workers) {
            self.ensure_groups(next, settings);
        }
        if self.phase() == Phase::Prepare && !self.prepared(&stages) {
            return;
        }
        self.enter(match stage.kind {
            StageKind::ControlPlane => Phase::ControlPlane,
            StageKind::Workers => Phase::Workers,
        });
        self.grant(&stage, settings);
    }

    /// What is still to be done: stages that every node has behind it, or was set aside in, are left out. Versions on the
    /// way stay those the upgrade began with, whatever images come meanwhile.
    fn stages(&self, settings: &Settings) -> Result<Vec<Stage>, plan::PathError> {
        let mut stages = plan::path(self.view, settings)?;
        for stage in &mut stages {
            let pinned = self
                .status
                .version_path
                .iter()
                .filter_map(|text| text.parse().ok())
                .find(|version: &KubernetesVersion| version.minor_version() == stage.version.minor_version());
            if let Some(pinned) = pinned {
                stage.version = pinned;
            }
        }
        stages.retain(|stage| !self.complete(stage));
        Ok(stages)
    }

    fn complete(&self, stage: &Stage) -> bool {
        self.nodes_of(stage.kind).all(|node| self.past(stage, node))
    }

    fn nodes_of(&self, kind: StageKind) -> impl Iterator<Item = &Arc<Node>> {
        self.view
            .nodes
            .values()
            .filter(move |node| node.control_plane == (kind == StageKind::ControlPlane) && !node.deleting)
    }

    /// Whether a node has nothing more to do in a stage.
    fn past(&self, stage: &Stage, node: &Node) -> bool {
        match self.roster.standing(stage, node) {
            Some(standing) => standing.succeeded() && standing.ended() || standing.set_aside(),
            None => !plan::needs(self.view, node, stage, self.bundle_is_new()),
        }
    }

    /// The same version with other contents is an upgrade too (P46): only a node's own upgrade says that it has them.
    fn bundle_is_new(&self) -> bool {
        self.upgrade.spec.bundle.is_some()
            && self.status.from_version.as_ref() == Some(&self.upgrade.spec.kubernetes_version)
    }

    /// Why no further node may start, once those in flight have ended.
    fn stop(&self, settings: &Settings) -> Option<(Reason, String)> {
        let failed: Vec<Standing<'_>> = self
            .roster
            .standings()
            .map(|(_, standing)| standing)
            .filter(|standing| standing.failed())
            .collect();
        let control_plane = self
            .roster
            .standings()
            .map(|(_, standing)| standing)
            .find(|standing| standing.upgrade.spec.role != NodeRole::Worker && standing.set_aside());
        if let Some(standing) = control_plane {
            let why = report::failure_text(standing);
            let message = format!("control plane {} was put back: {why}", standing.node());
            return Some((Reason::ControlPlaneFailed, message));
        }
        (failed.len() > settings.max_failed).then(|| {
            let last = failed
                .first()
                .map(|standing| format!("{}: {}", standing.node(), report::failure_text(*standing)));
            let message = format!(
                "{} of at most {} workers failed ({})",
                failed.len(),
                settings.max_failed,
                last.unwrap_or_default()
            );
            (Reason::TooManyFailures, message)
        })
    }

    /// A worker that was set aside must not be left further behind than the skew policy allows.
    fn skew_stops(&self, stage: &Stage) -> Option<String> {
        if stage.kind != StageKind::ControlPlane {
            return None;
        }
        let behind = self.view.worker_nodes().find(|node| {
            node.kubelet_version
                .as_ref()
                .is_some_and(|kubelet| kubelet.kubelet_skew(&stage.version) != KubeletSkew::Allowed)
        })?;
        Some(format!(
            "{} was set aside and would be too far behind a control plane at {}: repair it, then create another ClusterUpgrade",
            behind.name, stage.version
        ))
    }

    fn ensure_groups(&mut self, stage: &Stage, settings: &Settings) {
        let view = self.view;
        let nodes = self.nodes_of(stage.kind).map(AsRef::as_ref);
        let order = plan::order(view, nodes, stage.kind, settings);
        let listed = self.roster.listed(stage);
        let missing: Vec<&Node> = order
            .iter()
            .filter_map(|name| view.nodes.get(name))
            .map(AsRef::as_ref)
            .filter(|node| !self.past(stage, node) && !listed.contains(&(node.name.as_str(), node.uid.as_str())))
            .collect();
        if missing.is_empty() {
            return;
        }
        match stage.kind {
            StageKind::ControlPlane => self.add_control_planes(stage, &missing),
            StageKind::Workers => self.add_workers(stage, &missing, settings),
        }
    }

    fn add_control_planes(&mut self, stage: &Stage, missing: &[&Node]) {
        let mut machines: Vec<ObjectRef> = missing.iter().map(|node| children::machine(node)).collect();
        let existing = self.roster.serving(stage).next().map(|members| members.group);
        let action = if let Some(group) = existing {
            let mut all = group.machines().to_vec();
            all.retain(|old| machines.iter().all(|new| new.name != old.name));
            all.append(&mut machines);
            Action::SetControlPlaneMachines {
                target: group.target(),
                machines: all,
            }
        } else {
            Action::CreateControlPlaneUpgrade(Box::new(children::control_plane(
                self.view,
                self.upgrade,
                stage,
                machines,
            )))
        };
        self.after.push(action);
    }

    fn add_workers(&mut self, stage: &Stage, missing: &[&Node], settings: &Settings) {
        let total = self.view.worker_nodes().count();
        let concurrent = settings.max_unavailable.of(total);
        let mut by_group: std::collections::BTreeMap<&str, Vec<ObjectRef>> = std::collections::BTreeMap::new();
        for node in missing {
            by_group
                .entry(plan::group_of(node))
                .or_default()
                .push(children::machine(node));
        }
        for (name, machines) in by_group {
            let existing: Vec<_> = self
                .roster
                .serving(stage)
                .map(|members| members.group)
                .filter(|group| {
                    let labels = group.meta().labels.as_ref();
                    let label = labels.and_then(|labels| labels.get(labels::GROUP));
                    label.is_some_and(|label| label == name || label.starts_with(&format!("{name}-part-")))
                })
                .collect();
            let open = existing
                .iter()
                .find(|group| group.machines().len() + machines.len() <= GROUP_SIZE);
            if let Some(group) = open {
                let mut all = group.machines().to_vec();
                all.retain(|old| machines.iter().all(|new| new.name != old.name));
                all.extend(machines);
                self.after.push(Action::SetWorkersMachines {
                    target: group.target(),
                    machines: all,
                });
                continue;
            }
            for (index, part) in machines.chunks(GROUP_SIZE).enumerate() {
                let number = existing.len() + index;
                let part_name = if number == 0 {
                    name.to_owned()
                } else {
                    format!("{name}-part-{}", number + 1)
                };
                let group = children::workers(self.upgrade, stage, &part_name, part.to_vec(), concurrent);
                self.after.push(Action::CreateWorkersUpgrade(Box::new(group)));
            }
        }
    }

    /// Everything the first nodes need is on all of them, or cannot be brought there.
    fn prepared(&self, stages: &[Stage]) -> bool {
        let first = stages.first();
        let workers = stages.iter().find(|stage| stage.kind == StageKind::Workers);
        first.into_iter().chain(workers).all(|stage| {
            self.nodes_of(stage.kind).all(|node| {
                self.past(stage, node)
                    || !node.ready.ready
                    || self
                        .roster
                        .standing(stage, node)
                        .is_some_and(|standing| standing.ready_to_go() || standing.in_flight() || standing.ended())
            })
        })
    }

    fn grant(&mut self, stage: &Stage, settings: &Settings) {
        if settings.paused || self.roster.serving(stage).any(|members| members.group.paused()) {
            return self.hold_all(Closed {
                reason: Reason::PausedByUser,
                message: format!("paused; afloat resume {} lets it go on", self.key.name),
                blocked_by: None,
                until: None,
            });
        }
        if let Some(window) = &settings.window {
            match window::state(window, self.now) {
                Ok(WindowState::Open { until }) => self.wake(until),
                Ok(WindowState::Closed { opens_at }) => {
                    self.wake(opens_at);
                    return self.hold_all(Closed {
                        reason: Reason::OutsideWindow,
                        message: "outside the window in which nodes may be disrupted".to_owned(),
                        blocked_by: None,
                        until: Some(opens_at),
                    });
                }
                Err(error) => {
                    return self.hold_all(Closed {
                        reason: Reason::InvalidSpec,
                        message: format!("spec.window: {error}"),
                        blocked_by: None,
                        until: None,
                    });
                }
            }
        }
        let granting = Granting {
            view: self.view,
            roster: &self.roster,
            stage,
            settings,
            upgrade: Some(self.key),
            downtime_accepted: true,
            now: self.now,
        };
        let granted = granting.grant(&self.status.slots);
        self.held = granted.held;
        self.status.slots.extend(granted.slots);
        self.grant_undoing(settings);
    }

    /// A node whose upgrade a person wants undone needs a slot as well.
    fn grant_undoing(&mut self, settings: &Settings) {
        if settings.abort || !self.status.slots.is_empty() {
            return;
        }
        let wished =
            self.roster.standings().map(|(_, standing)| standing).find(|standing| {
                standing.succeeded()
                    && undo_refused(self.view, *standing).is_none()
                    && self.view.nodes.get(standing.node()).is_some_and(|node| {
                        node.wish == Some(Wish::Rollback) && node.uid.as_str() == standing.node_uid()
                    })
            });
        if let Some(standing) = wished {
            self.status.slots.push(Slot {
                node: standing.node().to_owned(),
                node_uid: standing.node_uid().to_owned(),
                role: standing.upgrade.spec.role,
                attempt: standing.upgrade.spec.attempt,
                version: standing.upgrade.spec.kubelet_version.clone(),
                taken_at: Time(self.now),
                failure_domain: None,
            });
        }
    }

    /// Nodes in flight are put back by their groups; the upgrade is over when no slot is held.
    fn abort(&mut self) {
        if self.status.slots.is_empty() {
            let message = if self.deleting() {
                "deleted"
            } else {
                "aborted by a person"
            };
            self.end(Phase::Aborted, Reason::Aborted, message);
        }
    }

    /// Ends the upgrade: the pauses it has put on nodes go, and the status says how it ended.
    fn end(&mut self, phase: Phase, reason: Reason, message: &str) {
        for node in self.view.nodes.values() {
            if node.pause.as_deref() == Some("true") {
                self.before.push(Action::UnpauseNode { node: node.target() });
            }
        }
        self.held.clear();
        self.count();
        self.enter(phase);
        self.status.finished_at = Some(Time(self.now));
        self.status.estimate = None;
        self.event(phase != Phase::Succeeded, reason, message);
        self.conclude(reason, message);
    }

    fn wake(&mut self, moment: Timestamp) {
        self.again = Some(self.again.map_or(moment, |earlier| earlier.min(moment)));
    }

    fn event(&mut self, warning: bool, reason: Reason, message: &str) {
        self.events.push(Event {
            object: EventObject::Upgrade(self.target.clone()),
            warning,
            reason,
            message: Arc::from(message),
        });
    }

    fn finish(mut self) -> Decision {
        if !over(self.phase()) {
            self.sum_up();
        }
        self.status.observed_generation = self.upgrade.metadata.generation;
        let changed = self.upgrade.status.as_ref() != Some(&self.status) && self.holds_finalizer();
        let mut actions = self.before;
        if changed {
            actions.push(Action::WriteUpgradeStatus {
                target: self.target,
                status: Box::new(self.status),
            });
            // What follows from the new status is decided on it: a turn of its own, after the write is known to stand.
            if self
                .upgrade
                .status
                .as_ref()
                .is_none_or(|before| before.phase.is_none_or(|phase| !works(phase)))
            {
                self.after.clear();
            }
        }
        actions.extend(self.after);
        Decision {
            actions,
            events: if changed { self.events } else { Vec::new() },
            again: self.again,
        }
    }
}

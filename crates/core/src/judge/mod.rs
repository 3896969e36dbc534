//! The one judge of a cluster: leads a ClusterUpgrade through its phases, grants slots, and knows when to stop. What happens
//! to a node that holds a slot is in [`crate::lifecycle`]; what may hold a node back in [`crate::gates`].

mod alone;
mod children;
mod estimate;
mod group;
mod groups;
mod lock;
mod report;
mod roster;
mod slots;
mod stages;
mod start;
#[cfg(test)]
mod tests;
mod undoing;
mod wishes;

use std::sync::Arc;

use afloat_api::clusterupgrade::Phase;
use afloat_api::{ClusterUpgrade, ClusterUpgradeStatus, Reason, names};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::action::{Action, Decision, Event, EventObject};
use crate::gates::{self, Closed};
use crate::objects::target_of;
use crate::plan::{self, Stage, StageKind};
use crate::preflight;
use crate::settings::Settings;
use crate::version::KubernetesVersion;
use crate::view::{Key, Node, NodeName, Revision, Target, UNTIL_SEEN, Uid, View};
use crate::window::{self, WindowState};

pub(crate) use alone::wounded;
pub(crate) use group::{control_plane, settings_alone, stages_by_turns, workers};
pub(crate) use lock::taken_by_another;
pub use report::first_wait;
pub(crate) use roster::Group;
use roster::Roster;
use slots::Granting;
pub use undoing::undo_refused;

/// How soon it is looked whether a watch has told of an own write that was answered: that wakes nobody, and comes at once as a rule.
const UNTIL_HEARD: SignedDuration = SignedDuration::from_millis(200);
/// How often the preflight looks again at what no watch of the judge reports.
const LOOK_AGAIN: SignedDuration = SignedDuration::from_secs(30);

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
        nodes_since: None,
    };
    turn.decide();
    turn.finish()
}

/// Whether children may be made and nodes begun in this phase.
pub(crate) fn works(phase: Phase) -> bool {
    matches!(phase, Phase::Prepare | Phase::ControlPlane | Phase::Workers)
}

pub(crate) fn over(phase: Phase) -> bool {
    matches!(phase, Phase::Succeeded | Phase::Failed | Phase::Aborted)
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
    nodes_since: Option<Revision>,
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

    /// Nothing is left of an upgrade that is over: the pauses it has put on nodes go, then the lock, then the finalizer. The
    /// slot of an undoing comes and goes. A pause may also come late, from a turn that was decided before the end: it is signed.
    fn after_the_end(&mut self) {
        self.release_slots();
        if let Ok(settings) = Settings::read(&self.upgrade.spec) {
            self.grant_undoing(&settings);
            self.list_waiting();
        }
        if !self.status.slots.is_empty() {
            return;
        }
        let lock = self.view.lock.as_ref().filter(|lock| lock.holder == self.uid);
        // Whoever has the lock takes back every such pause: an operator that knew of no signatures may have put it there.
        let holds = lock.is_some();
        let uid = self.uid.clone();
        self.take_back_pauses(|node, own| node.paused_by.as_ref() == Some(&uid) || (own && holds));
        if let Some(lock) = lock {
            self.after.push(Action::ReleaseLock {
                lock: lock.target.clone(),
            });
        } else if self.deleting() && self.holds_finalizer() {
            // Whoever put a pause on a node has done so before the upgrade was seen to end, and may not have heard of it. With the finalizer
            // goes the last one who would take it back.
            if self.view.nodes_as_of < self.target.revision {
                return self.see_nodes_since(self.target.revision);
            }
            self.after.push(Action::SetUpgradeFinalizer {
                target: self.target.clone(),
                present: false,
            });
        }
    }

    /// Takes back pauses that an upgrade has put on nodes, but for what a person has written over one.
    fn take_back_pauses(&mut self, which: impl Fn(&Node, bool) -> bool) {
        for node in self.view.nodes.values() {
            let own = node.pause.as_deref() == Some("true");
            if which(node, own) {
                self.after.push(Action::UnpauseNode {
                    node: node.target(),
                    left: node.pause.clone().filter(|_| !own),
                });
            }
        }
    }

    fn release_slots(&mut self) {
        let ledger_as_of = self.target.revision;
        self.status.slots = slots::still_held(self.view, &self.roster, &self.status.slots, ledger_as_of);
        if slots::may_have_left(self.view, &self.status.slots) {
            self.see_nodes_since(ledger_as_of);
        }
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
        if let Err(closed) = self.lock() {
            return self.hold_all(*closed);
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

    /// The upgrade as a whole waits.
    fn hold_all(&mut self, closed: Closed) {
        self.held.push((NodeName::from(""), closed));
    }

    fn work(&mut self, settings: &Settings) {
        if let Err(closed) = self.lock() {
            return self.hold_all(*closed);
        }
        // Of an upgrade that is over: one that was deleted as it put the pause there may not have known of it, and nobody else is at work.
        let uid = self.uid.clone();
        self.take_back_pauses(|node, _| node.paused_by.as_ref().is_some_and(|by| *by != uid));
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
            if !self.status.slots.is_empty() {
                return;
            }
            if self.nodes_are_behind() {
                return self.wake(self.now + UNTIL_HEARD);
            }
            if let Some(closed) = self.looks_once_more() {
                self.see_nodes_since(self.newest_list());
                return self.hold_all(closed);
            }
            let message = self.arrived(settings);
            return self.end(Phase::Succeeded, Reason::Succeeded, &message);
        };
        if let Some(message) = self.skew_stops(&stage) {
            return self.end(Phase::Failed, Reason::VersionSkew, &message);
        }
        // Bringing files keeps disks busy, and etcd waits for the disks of its members: not while one of these is away.
        if stage.kind == StageKind::ControlPlane && self.is_in_hop_before(&stage) {
            return;
        }
        self.ensure_groups(&stage, settings);
        // Staging needs no slot and runs ahead, also on the workers that come after the first control planes.
        if let Some(next) = stages.iter().find(|stage| stage.kind == StageKind::Workers) {
            self.ensure_groups(next, settings);
        }
        if settings.staging.ahead
            && let Some(closed) = self.unprepared(&stages)
        {
            if self.phase() != Phase::Prepare && self.status.slots.is_empty() {
                self.hold_all(closed);
            }
            return;
        }
        // Its versions are there before it is well, and before its slot is given back: workers wait for all of it (K32).
        if stage.kind == StageKind::Workers && self.holds_control_plane() {
            return;
        }
        self.enter(match stage.kind {
            StageKind::ControlPlane => Phase::ControlPlane,
            StageKind::Workers => Phase::Workers,
        });
        self.grant(&stage, settings);
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
        if self.undoes_control_plane_first() {
            return self.grant_undoing(settings);
        }
        let granting = Granting {
            view: self.view,
            roster: &self.roster,
            stage,
            settings,
            upgrade: Some(self.key),
            downtime_accepted: preflight::downtime_accepted(self.view, self.key, settings),
            ledger_as_of: self.target.revision,
            now: self.now,
        };
        let granted = granting.grant(&self.status.slots);
        if granted.behind {
            self.see_nodes_since(self.target.revision);
        }
        self.held = granted.held;
        self.status.slots.extend(granted.slots);
        self.grant_undoing(settings);
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

    /// Ends the upgrade: the status says how; what has to be taken back goes in the turns after it.
    fn end(&mut self, phase: Phase, reason: Reason, message: &str) {
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

    /// Looks again once nodes are seen as of `since`.
    fn see_nodes_since(&mut self, since: Revision) {
        self.wake(self.now + UNTIL_SEEN);
        if self.view.nodes_as_of < since {
            self.nodes_since = self.nodes_since.max(Some(since));
        }
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
        // Nothing is said before the finalizer is held, but that it will never be.
        let may_say = self.holds_finalizer() || over(self.phase());
        let changed = self.upgrade.status.as_ref() != Some(&self.status) && may_say;
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
                && !self.after.is_empty()
            {
                self.after.clear();
                self.again = Some(self.now);
            }
        }
        actions.extend(self.after);
        Decision {
            actions,
            events: if changed { self.events } else { Vec::new() },
            again: self.again,
            nodes_since: self.nodes_since,
        }
    }
}

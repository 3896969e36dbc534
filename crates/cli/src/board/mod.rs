//! How an upgrade stands, as people are shown it: taken from a view, without I/O, the same for `afloat status`, for the lines
//! of a pipe, for the end, and for `-o json`. How it is laid out is in `text`, what changed between two moments in `lines`,
//! the last words in `end`, what was waited for on the way in `waited`.

pub mod end;
pub mod lines;
mod rows;
#[cfg(test)]
mod tests;
pub mod text;
pub mod waited;

use afloat_api::clusterupgrade::{Finding, NodeFailure, Phase};
use afloat_api::{ClusterUpgrade, NodeState, Reason, Wait};
use afloat_core::settings::Settings;
use afloat_core::view::{Key, View};
use jiff::Timestamp;
use serde::Serialize;

pub use rows::NodeRow;

/// An upgrade at a moment.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[allow(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub struct Board {
    pub time: Timestamp,
    pub namespace: String,
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    pub to: String,
    /// The versions the control plane goes through.
    pub path: Vec<String>,
    pub phase: Phase,
    /// The operator has looked at it.
    pub seen: bool,
    pub paused: bool,
    pub aborting: bool,
    /// Stable word and sentence for how the whole stands.
    pub reason: String,
    pub message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub estimate: Option<Expected>,
    pub nodes: Vec<NodeRow>,
    pub waits: Vec<WaitRow>,
    pub failed: Vec<NodeFailure>,
    /// What the preflight found and nobody accepted, while that stops the upgrade.
    pub findings: Vec<Finding>,
    pub budget: BudgetUse,
    pub pods_moved: i64,
}

/// When the end is expected, and why.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Expected {
    pub finish_at: Timestamp,
    pub basis: String,
}

/// A node that waits, and for what.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WaitRow {
    pub node: String,
    pub state: NodeState,
    /// The node holds a slot: others wait for it.
    pub in_flight: bool,
    #[serde(flatten)]
    pub wait: Wait,
}

/// How much of what may be out of service is.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BudgetUse {
    pub used: usize,
    pub most: usize,
    pub failed: usize,
    pub most_failed: usize,
}

/// The upgrade has ended, well or not.
pub fn over(phase: Phase) -> bool {
    matches!(phase, Phase::Succeeded | Phase::Failed | Phase::Aborted)
}

pub fn phase_of(upgrade: &ClusterUpgrade) -> Phase {
    let status = upgrade.status.as_ref();
    status.and_then(|status| status.phase).unwrap_or_default()
}

impl Board {
    /// `None` where there is no such upgrade.
    pub fn of(view: &View, key: &Key, now: Timestamp) -> Option<Self> {
        let upgrade = view.upgrades.get(key)?;
        let status = upgrade.status.clone().unwrap_or_default();
        let ready = status.conditions.iter().find(|condition| condition.type_ == "Ready");
        let phase = phase_of(upgrade);
        let stopped = phase == Phase::Preflight;
        Some(Self {
            time: now,
            namespace: key.namespace.to_string(),
            name: key.name.to_string(),
            from: status.from_version.clone(),
            to: upgrade.spec.kubernetes_version.clone(),
            path: status.version_path.clone(),
            phase,
            seen: status.phase.is_some(),
            paused: upgrade.spec.paused == Some(true) && !over(phase),
            aborting: upgrade.spec.abort == Some(true) && !over(phase),
            reason: ready.map_or_else(|| Reason::NotStarted.to_string(), |ready| ready.reason.clone()),
            message: ready.map(|ready| ready.message.clone()).unwrap_or_default(),
            started_at: status.started_at.as_ref().map(|time| time.0),
            finished_at: status.finished_at.as_ref().map(|time| time.0),
            estimate: status.estimate.as_ref().map(|estimate| Expected {
                finish_at: estimate.finish_at.0,
                basis: estimate.basis.clone(),
            }),
            nodes: rows::rows(view, upgrade),
            waits: waits(upgrade),
            failed: status.failed.clone(),
            findings: if stopped { blocking(upgrade) } else { Vec::new() },
            budget: budget(view, upgrade, phase),
            pods_moved: rows::pods_moved(view, upgrade),
        })
    }

    /// Nodes at the target, and all of them: of the control plane or of the workers alone while their phase lasts.
    pub fn progress(&self) -> (usize, usize) {
        let counted = self.nodes.iter().filter(|node| match self.phase {
            Phase::ControlPlane => node.control_plane,
            Phase::Workers => !node.control_plane,
            _ => true,
        });
        let (mut done, mut all) = (0, 0);
        for node in counted {
            all += 1;
            done += usize::from(node.state == NodeState::Succeeded);
        }
        (done, all)
    }

    pub fn nodes_done(&self) -> usize {
        let done = self.nodes.iter().filter(|node| node.state == NodeState::Succeeded);
        done.count()
    }

    /// The nodes something is being done to.
    pub fn in_flight(&self) -> impl Iterator<Item = &NodeRow> {
        self.nodes.iter().filter(|node| node.in_flight)
    }

    /// Nothing goes on until a person lets it: the whole is paused, or every node that could go is.
    pub fn held(&self) -> bool {
        if over(self.phase) || self.aborting || self.budget.used > 0 || self.in_flight().next().is_some() {
            return false;
        }
        let on_nodes = !self.waits.is_empty()
            && self.started_at.is_some()
            && self
                .waits
                .iter()
                .all(|wait| wait.wait.reason == Reason::NodePaused.to_string());
        self.paused || on_nodes
    }

    /// The preflight stops it.
    pub fn refused(&self) -> bool {
        self.phase == Phase::Preflight && !self.findings.is_empty()
    }
}

/// Who waits; whoever holds a slot first, for it keeps the others waiting.
fn waits(upgrade: &ClusterUpgrade) -> Vec<WaitRow> {
    let Some(status) = &upgrade.status else {
        return Vec::new();
    };
    let rows = status.waiting.iter().map(|wait| WaitRow {
        node: wait.node.clone(),
        state: wait.state,
        in_flight: status.slots.iter().any(|slot| slot.node == wait.node),
        wait: wait.wait.clone(),
    });
    let mut rows: Vec<WaitRow> = rows.collect();
    rows.sort_by_key(|wait| !wait.in_flight);
    rows
}

/// What stops an upgrade before it begins.
fn blocking(upgrade: &ClusterUpgrade) -> Vec<Finding> {
    let preflight = upgrade.status.as_ref().and_then(|status| status.preflight.as_ref());
    let findings = preflight
        .map(|preflight| preflight.findings.clone())
        .unwrap_or_default();
    let stops = |finding: &Finding| !afloat_core::preflight::passes(std::slice::from_ref(finding));
    findings.into_iter().filter(stops).collect()
}

fn budget(view: &View, upgrade: &ClusterUpgrade, phase: Phase) -> BudgetUse {
    let status = upgrade.status.as_ref();
    let settings = Settings::read(&upgrade.spec).ok();
    let workers = view.worker_nodes().count();
    let most = match (&settings, phase) {
        (Some(settings), Phase::Workers) => settings.max_unavailable.of(workers),
        _ => 1,
    };
    BudgetUse {
        used: status.map_or(0, |status| status.slots.len()),
        most,
        failed: status.map_or(0, |status| status.failed.len()),
        most_failed: settings.map_or(0, |settings| settings.max_failed),
    }
}

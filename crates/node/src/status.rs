//! The journal in plain words, for a person who stands before the machine: where it is, what it waits for, what happens by itself and
//! when. Nothing is decided or changed here.

use afloat_api::node::{StepOutcome, steps as names};
use jiff::Timestamp;
use serde::Serialize;

use crate::journal::{Journal, StepState};
use crate::steps;

/// An attempt as far as it has come.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    pub upgrade: String,
    pub attempt: i32,
    pub node: String,
    pub role: String,
    pub kubernetes_version: String,
    pub kubelet_version: String,
    /// The way a control plane is taken, once it was chosen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// Whether nothing is left to do or to undo.
    pub over: bool,
    pub steps: Vec<StepStatus>,
    /// When the host puts everything back by itself, unless the node is well by then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub undo_at: Option<Timestamp>,
    /// New API connections go to these.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub forwarding_to: Vec<String>,
    /// Files that were kept to be put back.
    pub kept: Vec<String>,
}

/// One step of it.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StepStatus {
    pub step: String,
    pub state: StepWord,
    /// What it does, or how it ended.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub note: String,
    /// Since when it does that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
pub enum StepWord {
    Pending,
    Running,
    Done,
    Skipped,
    Later,
    Failed,
    Undone,
}

impl StepWord {
    pub fn word(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Done => "done",
            Self::Skipped => "skipped",
            Self::Later => "later",
            Self::Failed => "failed",
            Self::Undone => "undone",
        }
    }
}

/// What a journal says.
pub fn of(journal: &Journal) -> Status {
    let plan = &journal.plan;
    let undone = journal.undoing().is_some_and(StepState::succeeded);
    let order = steps::ORDER.iter().copied();
    let undoing = journal.undoing().map(|_| names::ROLLBACK);
    let forwards = journal.facts.get("aside").is_some_and(|aside| aside == "yes");
    let undo_at = journal.undo_at().filter(|_| journal.undoing().is_none());
    Status {
        upgrade: plan.upgrade.clone(),
        attempt: plan.attempt,
        node: plan.node.clone(),
        role: plan.role.to_string(),
        kubernetes_version: plan.kubernetes_version.clone(),
        kubelet_version: plan.kubelet_version.clone(),
        method: journal.facts.get("method").cloned(),
        over: journal.is_over(),
        steps: order.chain(undoing).map(|name| step(journal, name, undone)).collect(),
        undo_at,
        forwarding_to: if forwards { plan.peers.clone() } else { Vec::new() },
        kept: journal.kept.iter().map(|kept| kept.path.clone()).collect(),
    }
}

fn step(journal: &Journal, name: &str, undone: bool) -> StepStatus {
    let state = journal.step(name).filter(|state| state.begun > 0);
    let (word, note, since) = match state {
        None => (StepWord::Pending, String::new(), None),
        Some(state) => match (&state.ended, &state.intent) {
            (Some((_, report)), _) => (outcome(report.outcome), report.message.clone(), None),
            (None, Some((what, since))) => (StepWord::Running, what.clone(), Some(*since)),
            (None, None) => (StepWord::Running, String::new(), None),
        },
    };
    let put_back = undone && name != names::ROLLBACK && matches!(word, StepWord::Done | StepWord::Running);
    StepStatus {
        step: name.to_owned(),
        state: if put_back { StepWord::Undone } else { word },
        note,
        since,
    }
}

fn outcome(outcome: StepOutcome) -> StepWord {
    match outcome {
        StepOutcome::Done => StepWord::Done,
        StepOutcome::Skipped => StepWord::Skipped,
        StepOutcome::Later => StepWord::Later,
        StepOutcome::Failed => StepWord::Failed,
        StepOutcome::Undone => StepWord::Undone,
    }
}

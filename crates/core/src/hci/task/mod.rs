//! What the Jobs of an upgrade do on their node, as decisions: one look at the cluster at a time says what is done next, what is waited
//! for, or that it is over. Nothing is remembered between looks but what the cluster and the host show, so that a Job that is killed and
//! started again goes on where it was. Carrying out is for the operator's task runner; what the host does is behind its port.

mod pre_drain;
mod restore_vm;

use std::sync::Arc;

use jiff::Timestamp;

use super::action::TaskWrite;
use crate::view::{Key, NodeName, View};

pub use pre_drain::pre_drain;
pub use restore_vm::restore_vm;

/// Whom a task works for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Errand {
    /// The Upgrade.
    pub upgrade: Key,
    pub node: NodeName,
}

/// What is done on the host itself; each can be done again without harm.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, strum::EnumString, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum HostWork {
    /// Rancher's agent is taken out of what an earlier upgrade left it in, and runs.
    RecoverAgent,
    /// The network configuration that the new release brings by itself is taken away.
    RemoveCanalConfig,
    /// The old release's own charts are not installed again when its server restarts.
    DisableCharts,
}

impl HostWork {
    /// The word on the command line.
    pub fn word(self) -> &'static str {
        self.into()
    }

    /// What a person reads about it.
    pub fn words(self) -> &'static str {
        match self {
            Self::RecoverAgent => "recovers Rancher's agent on the host",
            Self::RemoveCanalConfig => "removes the old canal configuration",
            Self::DisableCharts => "keeps the old release's charts from being installed again",
        }
    }
}

/// What a look came to.
#[derive(Clone, Debug, PartialEq)]
pub enum Look {
    /// To be written now; then it is looked again.
    Write { what: Vec<TaskWrite>, says: String },
    /// To be done on the host now.
    Host(HostWork),
    /// Something has to happen first; looked at again when anything changes, and at this time at the latest.
    Wait { says: String, again: Option<Timestamp> },
    /// Nothing is left to do.
    Done { says: String },
    /// It cannot go on by itself.
    Failed { says: String },
}

/// What was done on the host so far by this run of the task.
pub type HostDone = std::collections::BTreeSet<HostWork>;

fn waits(says: String) -> Look {
    Look::Wait { says, again: None }
}

/// The virtual machines that were written down for a node before they are stopped, each `namespace/name`.
fn recorded(view: &View, errand: &Errand) -> Option<Arc<super::view::Seen<super::view::RestoreList>>> {
    let name = format!("{}-restore-vm", errand.upgrade.name);
    let key = Key::new(&errand.upgrade.namespace, &afloat_api::names::cut(&name));
    view.hci.restore_lists.get(&key).cloned()
}

#[cfg(test)]
mod tests;

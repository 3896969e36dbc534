//! Whose journal the machine has: one attempt at a time, the next when the one before is over, and none of those that were over again.

use afloat_api::node::NodePlan;

use super::{Engine, EngineError};
use crate::host::Host;
use crate::journal::Journal;
use crate::paths;

impl Engine {
    pub(super) fn load(&mut self, host: &mut dyn Host) -> Result<Option<&mut Journal>, EngineError> {
        let stale = match &self.journal {
            Some(journal) => journal.is_stale(host)?,
            None => true,
        };
        if stale {
            self.journal = None;
            self.journal = Journal::read(host)?;
        }
        Ok(self.journal.as_mut())
    }

    /// The journal of this attempt, opened if there is none; one of another attempt makes room if it is over.
    pub(super) fn journal_of(
        &mut self,
        host: &mut dyn Host,
        plan: &NodePlan,
        to_undo: bool,
    ) -> Result<&mut Journal, EngineError> {
        self.load(host)?;
        let journal = match self.journal.take() {
            Some(found) if found.plan.upgrade == plan.upgrade && found.plan.attempt == plan.attempt => found,
            // What an earlier attempt left unfinished is what there is to undo.
            Some(found) if to_undo && found.plan.upgrade == plan.upgrade && !found.is_over() => found,
            Some(found) if !found.is_over() => {
                return Err(EngineError::Unfinished {
                    upgrade: found.plan.upgrade,
                    attempt: found.plan.attempt,
                });
            }
            // The containers of a pod run again when its machine was restarted, also when all they had to do is long done.
            _ if host.size(&archived(plan))?.is_some() => {
                return Err(EngineError::Superseded {
                    upgrade: plan.upgrade.clone(),
                    attempt: plan.attempt,
                });
            }
            found => {
                if let Some(old) = found {
                    host.rename(paths::JOURNAL, &archived(&old.plan))?;
                }
                host.remove(paths::KEPT)?;
                Journal::open(host, plan)?
            }
        };
        Ok(self.journal.insert(journal))
    }
}

/// Where the journal of an attempt is kept once another has begun.
fn archived(plan: &NodePlan) -> String {
    format!("{}/{}-{}", paths::ARCHIVE, plan.upgrade, plan.attempt)
}

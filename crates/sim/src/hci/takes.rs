//! Work that takes its time: when it will be done is thrown once, as quick as the world is, and forgotten when it is.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;

use crate::actor::Turn;
use crate::clock::{after, dice};
use crate::object::ObjectRef;

/// Work under way, by what it is done to.
#[derive(Debug, Default)]
pub(super) struct Takes(BTreeMap<ObjectRef, Timestamp>);

impl Takes {
    /// Whether work that takes up to so long is done; otherwise when it will be. It begins when it is first asked for.
    pub fn done(&mut self, item: &ObjectRef, upper: Duration, turn: &mut Turn<'_>) -> Result<(), Timestamp> {
        let due = *self
            .0
            .entry(item.clone())
            .or_insert_with(|| after(turn.now, dice(turn.rng, upper).div_f64(turn.timings.pace)));
        if due > turn.now {
            return Err(due);
        }
        self.0.remove(item);
        Ok(())
    }

    /// Nobody does it any more.
    pub fn forget(&mut self, item: &ObjectRef) {
        self.0.remove(item);
    }
}

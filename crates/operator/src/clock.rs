//! Time as the operator sees it: a wall clock that is given to it, so that tests and the sandbox can be in their own time.
//! Nothing in this crate reads any other.

use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

/// Tells the time.
pub trait Clock: Send + Sync {
    fn now(&self) -> Timestamp;

    /// How long to sleep until `moment`; nothing when it has passed.
    fn until(&self, moment: Timestamp) -> Duration {
        Duration::try_from(moment.duration_since(self.now())).unwrap_or(Duration::ZERO)
    }
}

/// The clock of the machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}

/// Begins at a moment and follows tokio's time: paused time in tests moves it too.
#[derive(Clone, Copy, Debug)]
pub struct TokioClock {
    epoch: Timestamp,
    started: Instant,
}

impl TokioClock {
    /// Shows `epoch` at this instant.
    pub fn starting_at(epoch: Timestamp) -> Self {
        Self {
            epoch,
            started: Instant::now(),
        }
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Timestamp {
        self.epoch
            .saturating_add(self.started.elapsed())
            .unwrap_or(Timestamp::MAX)
    }
}

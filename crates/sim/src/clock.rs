//! Time as the simulated world sees it: an epoch plus tokio's time, so that paused time in tests moves every actor
//! together, and the durations of simulated work, which a speed factor shortens. No actor reads any other clock.

use jiff::{SignedDuration, Timestamp};
use std::time::Duration;
use tokio::time::Instant;

/// A wall clock that follows tokio's time.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    epoch: Timestamp,
    started: Instant,
}

impl Clock {
    /// A clock that shows `epoch` at this instant.
    pub fn starting_at(epoch: Timestamp) -> Self {
        Self {
            epoch,
            started: Instant::now(),
        }
    }

    pub fn now(&self) -> Timestamp {
        self.epoch
            .saturating_add(self.started.elapsed())
            .unwrap_or(Timestamp::MAX)
    }

    /// How long to sleep until `moment`; nothing when it has passed.
    pub fn until(&self, moment: Timestamp) -> Duration {
        Duration::try_from(moment.duration_since(self.now())).unwrap_or(Duration::ZERO)
    }
}

/// How long things take in the simulated world. The defaults are those of a small, healthy cluster.
#[derive(Clone, Debug)]
pub struct Timings {
    /// From the kubelet's start to its first Ready.
    pub node_boot: Duration,
    /// A quarter of the lease duration, as the kubelet does it.
    pub lease_renewal: Duration,
    /// The kubelet posts an unchanged status this rarely (`nodeStatusReportFrequency`).
    pub node_status: Duration,
    /// Without a renewal for so long, a node is Unknown (`--node-monitor-grace-period`).
    pub node_grace: Duration,
    /// Sandbox, volumes and image of a pod; the upper bound of what the dice say.
    pub pod_setup: Duration,
    /// One container from started to up.
    pub container_start: Duration,
    /// What an init container works.
    pub init_container: Duration,
    /// What a container works that is meant to end.
    pub batch_work: Duration,
    /// From SIGTERM to the container's end, unless the grace period is shorter.
    pub termination: Duration,
    /// How much quicker than life the work on a machine goes.
    pub pace: f64,
    /// The least time between two looks at work that goes on: hundreds of machines at a quick pace would keep one thread busy with looking.
    pub rest: Duration,
}

impl Default for Timings {
    fn default() -> Self {
        Self {
            node_boot: Duration::from_millis(1500),
            lease_renewal: Duration::from_secs(10),
            node_status: Duration::from_mins(5),
            node_grace: Duration::from_secs(50),
            pod_setup: Duration::from_millis(1200),
            container_start: Duration::from_millis(600),
            init_container: Duration::from_millis(800),
            batch_work: Duration::from_secs(6),
            termination: Duration::from_millis(1500),
            pace: 1.0,
            rest: Duration::ZERO,
        }
    }
}

impl Timings {
    /// The same world, `factor` times as quick at what it does. Heartbeats and their grace keep their length:
    /// they are promises to the API server, not work.
    #[must_use]
    pub fn faster(mut self, factor: f64) -> Self {
        let factor = if factor.is_finite() && factor > 0.0 {
            factor
        } else {
            1.0
        };
        self.pace *= factor;
        for duration in [
            &mut self.node_boot,
            &mut self.pod_setup,
            &mut self.container_start,
            &mut self.init_container,
            &mut self.batch_work,
            &mut self.termination,
        ] {
            *duration = Duration::try_from_secs_f64(duration.as_secs_f64() / factor).unwrap_or(Duration::MAX);
        }
        self
    }
}

/// `moment` moved by `duration`, at the edge of time when it would leave it.
pub fn after(moment: Timestamp, duration: Duration) -> Timestamp {
    SignedDuration::try_from(duration)
        .ok()
        .and_then(|signed| moment.checked_add(signed).ok())
        .unwrap_or(Timestamp::MAX)
}

/// Somewhere between half of `upper` and `upper`: simulated work never takes exactly as long twice.
pub fn dice(rng: &mut fastrand::Rng, upper: Duration) -> Duration {
    upper.mul_f64(0.5 + rng.f64() / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn clock_follows_paused_time() {
        let epoch: Timestamp = "2026-11-15T08:00:00Z".parse().unwrap();
        let clock = Clock::starting_at(epoch);
        tokio::time::advance(Duration::from_secs(90)).await;
        assert_eq!(clock.now(), after(epoch, Duration::from_secs(90)));
        assert_eq!(
            clock.until(after(epoch, Duration::from_secs(100))),
            Duration::from_secs(10)
        );
        assert_eq!(clock.until(epoch), Duration::ZERO);
    }

    #[test]
    fn speed_shortens_work_and_leaves_heartbeats() {
        let quick = Timings::default().faster(10.0);
        assert_eq!(quick.termination, Duration::from_millis(150));
        assert_eq!(quick.lease_renewal, Duration::from_secs(10));
        assert_eq!(
            Timings::default().faster(0.0).termination,
            Timings::default().termination
        );
    }
}

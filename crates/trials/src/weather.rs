//! What goes wrong between the operator and the API server: refusals, replies lost after the commit, reads from the past,
//! slow answers, and the server being away while every control plane is. Chosen by swarm: each class is on or off for a
//! seed, then has a rate. People and machines are not here but in `trial`.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use afloat_apisim::Verb;
use afloat_apisim::hooks::{Fault, Faults, RequestInfo};
use afloat_sim::kubelet::HealthBoard;

use crate::play::OPERATOR;

/// Out of a thousand requests of the operator, so many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rates {
    pub refused: u32,
    pub conflicts: u32,
    pub lost_replies: u32,
    pub stale_reads: u32,
    pub slow: u32,
}

impl Rates {
    /// Half of the classes are off in most seeds: what only shows when another one is quiet is found as well.
    pub fn drawn(rng: &mut fastrand::Rng) -> Self {
        let mut class = |most: u32| if rng.bool() { rng.u32(1..=most) } else { 0 };
        Self {
            refused: class(40),
            conflicts: class(40),
            lost_replies: class(30),
            stale_reads: class(100),
            slow: class(200),
        }
    }
}

/// Somebody who hears of every request of an operator that the server carries out.
pub trait Hears: Send + Sync {
    fn asked(&self, request: &RequestInfo<'_>);
}

struct State {
    rng: fastrand::Rng,
    calm: bool,
}

/// The weather of a trial.
pub struct Weather {
    rates: Rates,
    state: Mutex<State>,
    health: HealthBoard,
    hears: Arc<dyn Hears>,
}

/// How far back a stale read may be.
const OLDEST: u64 = 200;

impl Weather {
    pub fn new(rates: Rates, rng: fastrand::Rng, health: HealthBoard, hears: Arc<dyn Hears>) -> Self {
        Self {
            rates,
            state: Mutex::new(State { rng, calm: false }),
            health,
            hears,
        }
    }

    /// From here on only the machines themselves make trouble.
    pub fn calm_down(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).calm = true;
    }

    fn drawn(&self, request: &RequestInfo<'_>) -> Fault {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.calm || request.user_agent != OPERATOR {
            return Fault::None;
        }
        let rates = self.rates;
        let mut hit = |rate: u32| rate > 0 && state.rng.u32(..1000) < rate;
        let reads = matches!(request.verb, Verb::Get | Verb::List | Verb::Watch);
        if hit(rates.refused) {
            return Fault::Refuse([429, 500, 503, 504][state.rng.usize(..4)]);
        }
        if reads {
            // A list from the past is what a client gets from an API server that lags behind.
            if request.verb != Verb::Watch && hit(rates.stale_reads) {
                return Fault::Stale(state.rng.u64(1..OLDEST));
            }
            return Fault::None;
        }
        if hit(rates.conflicts) {
            return Fault::Refuse(409);
        }
        if hit(rates.lost_replies) {
            return Fault::LoseReply([500, 504][state.rng.usize(..2)]);
        }
        Fault::None
    }
}

impl Faults for Weather {
    fn on_request(&self, request: &RequestInfo<'_>) -> Fault {
        if self.health.api_is_away() {
            return Fault::Refuse(503);
        }
        let fault = self.drawn(request);
        if request.user_agent == OPERATOR && !matches!(fault, Fault::Refuse(_)) {
            self.hears.asked(request);
        }
        fault
    }

    fn latency(&self, request: &RequestInfo<'_>) -> Duration {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.calm || request.user_agent != OPERATOR || state.rng.u32(..1000) >= self.rates.slow {
            return Duration::ZERO;
        }
        Duration::from_millis(state.rng.u64(1..3000))
    }
}

//! Everything that talks to an API server: the clients with their time limits, the watches that keep the core's view true,
//! and carrying out what the core decides. What to do is decided in `afloat-core`, never here.

pub mod clients;
pub mod clock;
pub mod counting;
pub mod discovery;
pub mod elect;
pub mod events;
pub mod execute;
pub mod gates;
pub mod hci;
pub mod metrics;
pub mod mind;
pub mod pages;
pub mod prober;
mod queue;
mod run;
pub mod snapshot;
pub mod status;
pub mod task;
mod telling;
mod turns;
pub mod webhook;

pub use run::{LEADER_LEASE, OperatorConfig, OperatorError, run};

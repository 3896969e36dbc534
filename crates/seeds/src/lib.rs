//! Tier 1: a cluster, its people and its faults as one discrete-event simulation on typed objects, in one thread, with one
//! source of chance. The operator's part is played by the real core; storage, actors and hosts are simulated, and the rules
//! of the design are checked after every write. No client, no async and no JSON: those are tier 2's to try.

pub mod build;
mod ends;
pub mod faults;
pub mod hci;
pub mod machine;
pub mod minimise;
pub mod operator;
pub mod queue;
pub mod rules;
pub mod run;
pub mod scenario;
pub mod store;
pub mod suite;
pub mod systematic;
pub mod time;
mod trace;
pub mod traffic;
pub mod world;

#[cfg(test)]
mod tests;

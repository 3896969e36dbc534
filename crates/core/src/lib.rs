//! The pure heart of Afloat: a view of the cluster and the present moment come in, a decision goes out as data.
//!
//! No clock, no randomness, no environment, no async and no Kubernetes client live here, and Cargo sees to it: none of them is
//! among the dependencies (`tests/borders.rs`). Whoever wants the core to know something puts it into the view; whoever wants
//! something done carries out the decision. So one and the same code plans on a snapshot, runs in the operator, and is tried
//! a million times by the simulator.
//!
//! This is the room for everything that is judged rather than carried out: versions and the ways between them
//! ([`version`]), and with them plan, order, gates, budget and explanation.

pub mod action;
pub mod capacity;
pub mod changed;
pub mod explain;
pub mod gates;
pub mod hci;
pub mod invariants;
pub mod judge;
pub mod lifecycle;
pub mod objects;
pub mod plan;
pub mod preflight;
pub mod settings;
pub mod subject;
#[cfg(test)]
mod testing;
pub mod version;
pub mod view;
pub mod window;
pub mod words;

pub use changed::Changed;
pub use subject::{Subject, affected, decide};
pub use version::{KubernetesVersion, VersionError};

//! Whole upgrades and their corners, on a cluster in memory.

mod alone;
mod carry;
mod deadlines;
mod ends;
mod flow;
mod front_door;
mod latest;
mod logs;
mod multus;
mod pauses;
mod pending;
mod preflight;
mod second;
mod stopped;
mod vms;
pub mod world;

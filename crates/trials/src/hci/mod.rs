//! Whole upgrades of Harvester-like clusters by the real operator and the real tasks of its Jobs, under paused time: every scenario of
//! `afloat_sim::hci` to the end it names, and the same with whatever a seed makes go wrong. The actors are in `afloat-sim`.

pub mod crash;
pub mod play;
pub mod trial;
pub mod verdict;
pub mod watchman;

pub use play::HciPlay;
pub use verdict::tried;

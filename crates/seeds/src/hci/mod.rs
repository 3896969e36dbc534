//! Tier 1 of Harvester-like clusters: whole upgrades by seed on the core's own view types, in one thread and without JSON on the way. The
//! scenarios are those of `afloat-scenes`; the operator's part and the tasks of its Jobs are played by the real core; Rancher, KubeVirt,
//! Longhorn, fleet, Harvester's small parts, machines and people are actors here.

mod bugs;
mod ends;
mod execute;
mod eyes;
mod fleet;
mod ground;
mod kubevirt;
mod longhorn;
mod machines;
mod operator;
mod parts;
mod people;
mod rancher;
mod reactions;
mod rules;
mod run;
mod store;
mod tasks;
#[cfg(test)]
mod tests;
mod trace;
mod trouble;
mod world;

pub use bugs::Bug;
pub use run::Hci;

/// What to run of them.
pub type Options = super::suite::Options<Hci>;

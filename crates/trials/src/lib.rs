//! Whole upgrades by the real operator over a `kube::Client`, on a simulated cluster behind the embedded API server, under
//! paused time: tier 2 of the simulator. A seed says what goes wrong; the rules are looked at after every write. The actors are
//! in `afloat-sim`, the quicker tier 1 (the core alone, no server) in its `tier1`.

pub mod hci;
pub mod play;
pub mod record;
pub mod trial;
pub mod weather;

//! Harvester-like clusters by name: what is on each, what goes wrong there, what people do meanwhile, and how it must end. Told once and in
//! words of its own, so that both simulators play the same: `afloat-sim` by requests to an API server, `afloat-seeds` on its storage.

mod again;
mod deleted;
mod ground;
mod people;
mod placing;
mod script;
mod trouble;
mod with_people;
mod with_trouble;

pub use ground::{
    Binding, Ground, NEW_KUBERNETES, NEW_OS, NEW_RANCHER, NEW_RELEASE, OLD_KUBERNETES, OLD_OS, OLD_RELEASE, SYSTEM,
    VmShape,
};
pub use people::{Act, Deed, Moment, SECOND_UPGRADE};
pub use placing::{Candidate, best};
pub use script::{End, HciScenario, Script};
pub use trouble::{MachineTrouble, PartsTrouble, PowerCut, Trouble, VolumeTrouble};

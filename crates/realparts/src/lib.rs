//! Real Kubernetes parts for tests: which ones there are and where their builds are kept (`catalogue`), definitions of others' kinds
//! (`definitions`), and throw-away
//! control planes made of them on free loopback ports (`control_plane`), with a small blocking HTTPS client to ask them things; or one
//! part by itself (`Guarded`).
//! Building is `cargo xtask components`; nothing here compiles Go or reaches beyond the loopback interface.

mod catalogue;
mod certificates;
pub mod client;
mod control_plane;
mod definitions;
mod error;
mod launch;
mod process;
mod table;

pub use catalogue::{Components, GoToolchain, Paths, Recipe, cache_root};
pub use control_plane::{ControlPlane, Options};
pub use definitions::Definitions;
pub use error::Error;
pub use process::Guarded;
pub use table::{Component, Set};

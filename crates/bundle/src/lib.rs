//! The bundle: everything one Kubernetes version needs, as one OCI image that is the upgrader image at the same time. It is made,
//! checked, carried to registries and served here, without Docker and without an API server; what a machine does with it is in
//! `afloat-node`, what a person reads about it in `afloat-cli`.

pub mod archive;
pub mod contents;
pub mod create;
pub mod elf;
mod error;
pub mod input;
pub mod inspect;
pub mod key;
pub mod layout;
pub mod oci;
pub mod progress;
pub mod reference;
pub mod registry;
pub mod sbom;
pub mod serve;
pub mod verify;

pub use afloat_node::signature::PublicKeys;
pub use error::{Complaint, Error, Result};

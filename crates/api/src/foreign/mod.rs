//! Kinds of other projects, with the fields that Afloat reads and no more. They are read and patched, never written whole.

pub mod capi;
pub mod kubevirt;
pub mod longhorn;
pub mod rancher;

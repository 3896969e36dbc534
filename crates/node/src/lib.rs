//! What runs on a machine that is being upgraded: the steps, the journal that is the truth about them, the engine that carries
//! out one instruction at a time, and the undoing, all behind the `Host` port. Nothing here speaks to an API server by itself
//! (kubeadm and kubectl do, with the credentials that lie on a control plane anyway), and nothing here decides when a node may go.

pub mod bundle;
pub mod digest;
pub mod engine;
pub mod flags;
pub mod host;
pub mod instruction;
pub mod journal;
pub mod paths;
pub mod rancher;
pub mod real;
pub mod release;
pub mod signature;
pub mod status;
pub mod steps;
pub mod touches;

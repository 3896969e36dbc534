//! Compares `apisim` with the real kube-apiserver: the same requests go to both, and status codes, bodies, headers that carry meaning and watch
//! events must be equal once what is bound to differ (uids, times, revisions) is masked. Named cases live in `cases/*.yaml`, random sequences are
//! made by `sequences`; differences that we accept, each with its reason, in `accepted.yaml`. Nothing here knows how either server works.

pub mod accepted;
mod body;
pub mod case;
mod compare;
mod discovery;
mod events;
mod mask;
mod placeholders;
pub mod report;
mod rules;
mod run;
pub mod sequences;
pub mod suite;
pub mod target;

pub use compare::Difference;
pub use run::{Answer, Recording};

/// Why a run could not be made, as opposed to what it found.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    RealParts(#[from] afloat_realparts::Error),
    #[error("{path}: {message}")]
    File { path: String, message: String },
    #[error("{0}")]
    Target(String),
}

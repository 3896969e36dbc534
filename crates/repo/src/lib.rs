//! The repo: the files of a release, out of a folder or an ISO image, served over HTTP to the nodes of a cluster. Here live the
//! server, its limits and its own pages (`/healthz`, `/readyz`, `/metrics`), and the client that brings files from it. What a release means,
//! and who is to fetch it, is decided elsewhere; nothing can be written through it.

mod account;
mod answer;
mod body;
mod checksum;
mod client;
mod condition;
mod draft;
mod listing;
mod media;
mod metrics;
mod options;
mod path;
mod range;
mod server;
mod source;
mod stall;

pub use account::Arrival;
pub use answer::Repo;
pub use body::Served;
pub use client::{BringError, Client};
pub use options::{Options, Place, PlaceError};
pub use path::{PathError, Wanted};
pub use range::{Part, part};
pub use server::serve;
pub use source::{OpenError, RELEASE_FILE, Source};

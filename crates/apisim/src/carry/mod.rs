//! How requests reach the server and answers leave it: under a `kube::Client` in the same process, and over HTTPS for
//! everyone else. The only part of the crate that waits.

mod body;
pub mod https;
mod service;

pub use body::ReplyStream;
pub use service::InProcess;

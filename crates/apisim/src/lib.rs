//! A Kubernetes API server in memory: storage with one global revision, watches, the patch forms, server-side apply,
//! finalizers, eviction, custom resources. The rules live in [`ApiServer`], which does no I/O; `carry` puts it under a
//! `kube::Client` and serves it over HTTPS, and the simulator calls it directly. What a schema says about an object
//! lives in `afloat-apischema`; actors that *use* the API (kubelets, schedulers) live in `afloat-sim`.

mod carry;
pub mod clock;
pub mod discovery;
pub mod gc;
pub mod hooks;
pub mod openapi;
pub mod printing;
mod protobuf;
pub mod registry;
mod request;
pub mod resource;
mod server;
pub mod status;
pub mod store;

pub use carry::{InProcess, ReplyStream, https};
pub use clock::{Clock, ManualClock, SystemClock};
pub use request::Verb;
pub use server::{ApiServer, Options, Reply, ReplyBody, Watch};

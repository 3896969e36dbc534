//! The simulated world: kubelets, a scheduler, workload and disruption controllers, and the clusters they make up.
//! Every actor is a state machine without I/O that speaks to an API server through a driver, as an ordinary client;
//! what the API server itself does (garbage collection included) is not here.

pub mod actor;
pub mod clock;
pub mod disruption;
pub mod driver;
mod events;
pub mod feed;
mod hash;
pub mod hci;
pub mod kubelet;
pub mod machine;
pub mod node_lifecycle;
pub mod object;
pub mod quantity;
pub mod queue;
pub mod request;
pub mod scenario;
pub mod scheduler;
pub mod select;
#[cfg(test)]
mod testing;
pub mod tier2;
pub mod view;
pub mod workload;
pub mod world;

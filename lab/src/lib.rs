//! Real kubeadm machines on one machine, for tests and for people: systemd-nspawn machines with systemd, containerd and kubelet in a network
//! of their own, a load balancer and a registry beside them, and probers that count failed requests. Nothing here knows Afloat.

mod archive;
mod by_hand;
mod cgroup;
mod checks;
mod cluster;
mod contents;
mod error;
mod home;
mod images;
mod lab;
mod machine;
mod network;
mod parts;
mod probe;
mod release;
mod services;
mod shell;
mod spec;
mod systems;
mod template;

pub use by_hand::{ByHand, MachineTimes, upgrade_by_hand};
pub use error::Error;
pub use lab::{Lab, Progress};
pub use machine::{Machine, PATIENCE};
pub use parts::write_parts;
pub use probe::{Count, Counts, Kind, Probers, Running};
pub use release::{Binary, Release};
pub use spec::{Role, Spec};
pub use systems::{FIRST_SYSTEM, Systems, write_system};

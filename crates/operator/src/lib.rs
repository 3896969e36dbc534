//! Everything that talks to an API server. So far what every controller stands on: the clients with their time limits,
//! and finding out which optional APIs the cluster has. What to do is decided in `afloat-core`, never here.

pub mod clients;
pub mod discovery;
pub mod status;

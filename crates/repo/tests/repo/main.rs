//! The server as its clients see it: in this process, and over real sockets of this machine.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by failing")]

mod bring;
mod checksums;
mod client;
mod files;
mod images;
mod iso;
mod limits;
mod paths;

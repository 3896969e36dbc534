//! `afloat repo …`: what people can write after it.

use super::people::length;
use afloat_repo::{Options, Place};
use clap::{Args, Subcommand};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

pub const EXAMPLES: &str = "\
Examples:
  afloat repo serve harvester-v1.8.0.iso --listen 0.0.0.0:8080    a release, for the nodes that are upgraded to it";

const SERVE_EXAMPLES: &str = "\
Examples:
  afloat repo serve harvester-v1.8.0.iso                       for this machine: http://127.0.0.1:8080/harvester-iso/
  afloat repo serve /srv/release --listen 0.0.0.0:8080         a folder, for everyone who can reach this machine
  curl -O http://127.0.0.1:8080/harvester-iso/rootfs.squashfs  the whole file; curl -C - goes on where it broke off
  curl http://127.0.0.1:8080/harvester-iso/rootfs.squashfs.sha512 | sha512sum -c

An image is read as it is: no mount, no privilege. Nothing can be written. /healthz, /readyz and /metrics are served beside it.
To upgrade from it: kubectl -n harvester-system annotate upgrade NAME afloat.dev/repo-url=http://HOST:8080";

#[derive(Debug, Subcommand)]
pub enum Repo {
    /// Serve a release over HTTP, out of a folder or an ISO image
    #[command(after_help = SERVE_EXAMPLES)]
    Serve(Serve),
}

#[derive(Args, Debug)]
pub struct Serve {
    /// The folder, or the ISO image, to serve
    #[arg(value_name = "PATH")]
    pub path: PathBuf,
    /// Where to listen; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    pub listen: SocketAddr,
    /// The path under which the files are found
    #[arg(long, value_name = "PATH", default_value = "/harvester-iso")]
    pub at: Place,
    /// Serve files whose names begin with a dot as well
    #[arg(long)]
    pub hidden: bool,
    /// Connections served at once
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = count)]
    pub max_connections: usize,
    /// Files sent at once
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = count)]
    pub max_requests: usize,
    /// How long a client may take to ask, and be idle
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = length)]
    pub header_timeout: Duration,
    /// How long a client may take nothing of what it is sent
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = length)]
    pub stall_timeout: Duration,
    /// How long files under way may take after the end was asked for
    #[arg(long, value_name = "TIME", default_value = "25s", value_parser = length)]
    pub grace: Duration,
}

impl Serve {
    pub fn options(&self) -> Options {
        Options {
            place: self.at.clone(),
            hidden: self.hidden,
            max_connections: self.max_connections,
            max_requests: self.max_requests,
            header_timeout: self.header_timeout,
            stall_timeout: self.stall_timeout,
            grace: self.grace,
            ..Options::default()
        }
    }
}

fn count(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(count @ 1..=100_000) => Ok(count),
        _ => Err("a number between 1 and 100000 is needed".to_owned()),
    }
}

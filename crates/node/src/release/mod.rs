//! What a release of Harvester wants done on a host: its images, Rancher's chart, the configuration of RKE2, and the operating system. Each can be done again
//! without harm. How its files come to the host, and when what is done, is decided elsewhere.

pub mod images;
pub mod lists;
pub mod multus;
pub mod rancher_chart;
pub mod server;
pub mod system;

use crate::host::{Answer, Command, Host, HostError, Job};

/// Where a release's files lie while they are needed: on the partition that lasts. Elsewhere Harvester's system keeps files in memory.
pub const FOLDER: &str = "/usr/local/upgrade_tmp";

/// Runs a program to its end and says what it said. `run` names this attempt: what a job of an earlier one said is not taken for it.
fn to_end(host: &mut dyn Host, run: &str, what: &str, command: &Command) -> Answer<String> {
    let name = format!("hci-{run}-{what}");
    // A job is waited for a moment each time it is asked about, and ends by itself in time.
    for _ in 0..=command.seconds.saturating_mul(2) {
        match host.run(&name, command)? {
            Job::Running => {}
            Job::Ended {
                exit_code: 0, stdout, ..
            } => return Ok(stdout),
            Job::Ended { exit_code, stderr, .. } => {
                return Err(failed(
                    command,
                    &format!("it ended with {exit_code}: {}", stderr.trim()),
                ));
            }
        }
    }
    Err(failed(command, &format!("not done within {}s", command.seconds)))
}

fn failed(command: &Command, message: &str) -> HostError {
    HostError::Failed {
        action: "run",
        object: format!("{} {}", command.program, command.args.join(" ")),
        message: message.to_owned(),
    }
}

fn command(program: &str, args: &[&str], seconds: u32) -> Command {
    Command {
        program: program.to_owned(),
        args: args.iter().map(|&arg| arg.to_owned()).collect(),
        over: None,
        seconds,
    }
}

#[cfg(test)]
mod tests;

//! `afloat bundle …`: makes, checks, carries and serves bundles. The work is in `afloat-bundle`; here is what people are told.

mod carry;
mod make;
pub mod publish;
mod telling;
#[cfg(test)]
mod tests;

use crate::args::bundle::Bundle;
use crate::cluster::Cluster;
use crate::problem::{Code, Problem};
use crate::screen::Screen;
use afloat_bundle::Error;

/// Complaints that are listed before the rest is counted.
const LISTED: usize = 20;

pub async fn run(command: Bundle) -> Result<Code, Problem> {
    let mut screen = Screen::stdout();
    match command {
        Bundle::Create(arguments) => make::create(&arguments, &mut screen),
        Bundle::Inspect(arguments) => make::inspect(&arguments, &mut screen),
        Bundle::Verify(arguments) => make::verify(&arguments, &mut screen),
        Bundle::Keygen(arguments) => make::keygen(&arguments, &mut screen),
        Bundle::Push(arguments) => {
            // A cluster that does not answer is better known before a gigabyte has travelled.
            let cluster = if arguments.publish {
                Some(Cluster::connect(&arguments.place).await?)
            } else {
                None
            };
            carry::push(&arguments, cluster.as_ref(), &mut screen).await
        }
        Bundle::Pull(arguments) => carry::pull(&arguments, &mut screen).await,
        Bundle::Serve(arguments) => carry::serve(&arguments, &mut screen).await,
        Bundle::Publish(arguments) => publish::run(&arguments, &mut screen).await,
    }
}

/// What went wrong with a bundle, for people.
fn problem(error: &Error) -> Problem {
    let mut problem = match error {
        Error::Inputs(complaints) => {
            let what = match complaints.len() {
                1 => "this cannot go into a bundle".to_owned(),
                count => format!("these {count} cannot go into a bundle"),
            };
            let mut problem = Problem::new(Code::Failed, what);
            for complaint in complaints.iter().take(LISTED) {
                problem = problem.because(complaint.to_string());
                if let Some(help) = &complaint.help {
                    problem = problem.help(help.clone());
                }
            }
            problem
        }
        other => Problem::new(Code::Failed, other.to_string()),
    };
    if let Some(help) = error.help() {
        problem = problem.help(help);
    }
    problem
}

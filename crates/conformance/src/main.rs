//! `conformance`: compares the simulated API server with the real one and says where they differ.

use std::{io::IsTerminal, process::ExitCode};

use afloat_conformance::suite::{self, Plan};
use clap::Parser;

#[derive(Parser)]
#[command(
    name = "conformance",
    about = "Sends the same requests to apisim and to the real kube-apiserver, and compares"
)]
struct Arguments {
    /// Only cases whose theme/name contains this; no sequences unless asked for
    #[arg(long)]
    filter: Option<String>,
    /// How many random sequences
    #[arg(long, env = "AFLOAT_SEQUENCES")]
    sequences: Option<usize>,
    /// Seed of the random sequences; that of a sequence is in its name, so that it can be run alone
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only the real server: checks that the cases do what they say
    #[arg(long)]
    real_only: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let sequences = arguments
        .sequences
        .unwrap_or(if arguments.filter.is_some() { 0 } else { 500 });
    let plan = Plan {
        filter: arguments.filter,
        cases: true,
        rules: true,
        sequences,
        seed: arguments.seed,
        real_only: arguments.real_only,
    };
    let mut progress = |what: &str| {
        if std::io::stderr().is_terminal() {
            eprint!("\r\u{1b}[K{what}");
        }
    };
    let result = suite::run(&plan, &mut progress);
    progress("");
    match result {
        Ok(report) => {
            println!("{report}");
            if report.is_fine() {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            }
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

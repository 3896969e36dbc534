//! The `afloat` binary: reads the command line, runs the command, turns what went wrong into words and an exit code.
//! What a command does lives in its own module.

mod args;
mod picture;
mod problem;
mod sandbox;
mod terminal;

use args::{Cli, Command, VersionOutput};
use clap::{CommandFactory as _, Parser as _};
use problem::{Code, Problem};
use std::process::ExitCode;

/// The sandbox makes and drops small JSON maps all day, at which the system's allocator is slow.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(cli.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let code = error
                .downcast_ref::<Problem>()
                .map_or(Code::Failed, |problem| problem.code);
            match error.downcast_ref::<Problem>() {
                Some(problem) => eprintln!("{problem}"),
                None => eprintln!("error: {error:#}"),
            }
            ExitCode::from(code as u8)
        }
    }
}

fn run(command: Command) -> anyhow::Result<()> {
    start_logging();
    match command {
        Command::Completion { shell } => {
            clap_complete::generate(shell, &mut Cli::command(), "afloat", &mut std::io::stdout());
            Ok(())
        }
        Command::Version { output } => {
            print_version(output)?;
            Ok(())
        }
        Command::Sandbox(arguments) => {
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
            let result = runtime.block_on(sandbox::run(arguments));
            // Watches that are still open hold nothing anyone waits for.
            runtime.shutdown_background();
            Ok(result?)
        }
    }
}

fn print_version(output: VersionOutput) -> Result<(), serde_json::Error> {
    let version = env!("CARGO_PKG_VERSION");
    let kubernetes = afloat_sim::scenario::DEFAULT_VERSION;
    match output {
        VersionOutput::Text => terminal::print(&format!("afloat {version}\nsandbox Kubernetes {kubernetes}\n")),
        VersionOutput::Json => {
            let value = serde_json::json!({ "version": version, "sandboxKubernetesVersion": kubernetes });
            terminal::print(&format!("{}\n", serde_json::to_string_pretty(&value)?));
        }
    }
    Ok(())
}

/// Logs are for finding faults in afloat itself: off unless `AFLOAT_LOG` asks for them.
fn start_logging() {
    if let Ok(filter) = tracing_subscriber::EnvFilter::try_from_env("AFLOAT_LOG") {
        tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_writer(std::io::stderr)
            .init();
    }
}

//! The `afloat` binary: reads the command line, runs the command, turns what went wrong into words and an exit code.
//! What a command does lives in its own module.

mod args;
mod board;
mod bundle;
mod cluster;
#[cfg(test)]
mod commands_tests;
mod controller;
mod follow;
mod hci;
#[cfg(test)]
mod hci_tests;
mod hold;
mod node;
mod picture;
mod preflight;
mod problem;
mod repo;
mod sandbox;
mod screen;
mod status;
mod table;
mod task;
mod terminal;
#[cfg(test)]
mod testing;
mod upgrade;
mod which;

use afloat_operator::task::Task;
use args::hci::Hci;
use args::{Cli, Command, VersionOutput};
use clap::{CommandFactory as _, Parser as _};
use problem::{Code, Problem};
use std::io::IsTerminal as _;
use std::process::ExitCode;

/// The sandbox makes and drops small JSON maps all day, at which the system's allocator is slow.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(cli.command) {
        Ok(code) => code,
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

fn run(command: Command) -> anyhow::Result<ExitCode> {
    start_logging(matches!(command, Command::Controller(_) | Command::Repo(_)));
    let ended = match command {
        // Without a runtime: it enters the machine first, which a process with threads cannot. Its exit codes are those of steps.
        Command::Node(arguments) => return Ok(node::run(&arguments)?),
        Command::Hci(Hci::Host { order, names }) => Ok(task::work_on_host(order, &names)?),
        Command::Hci(Hci::ApplyManifests(arguments)) => wait(task::run_for_all(Task::ApplyManifests, arguments)),
        Command::Hci(Hci::Prepare(arguments)) => wait(task::run_with(Task::Prepare, arguments)),
        Command::Hci(Hci::PreDrain(arguments)) => wait(task::run(Task::PreDrain, arguments)),
        Command::Hci(Hci::PostDrain(arguments)) => wait(task::run_with(Task::PostDrain, arguments)),
        Command::Hci(Hci::SingleNodeUpgrade(arguments)) => wait(task::run_with(Task::SingleNode, arguments)),
        Command::Hci(Hci::RestoreVm(arguments)) => wait(task::run(Task::RestoreVm, arguments)),
        Command::Hci(Hci::CleanUp(arguments)) => wait(task::run_with(Task::CleanUp, arguments)),
        Command::Hci(Hci::SkipManifestsApply(arguments)) => wait(task::run(Task::HoldMultus, arguments)),
        Command::Hci(Hci::SkipManifestsRemove(arguments)) => wait(task::run(Task::LetMultusGo, arguments)),
        Command::Completion { shell } => {
            clap_complete::generate(shell, &mut Cli::command(), "afloat", &mut std::io::stdout());
            Ok(Code::Done)
        }
        Command::Version { output } => {
            print_version(output)?;
            Ok(Code::Done)
        }
        Command::Sandbox(arguments) => wait(sandbox::run(arguments)),
        Command::Upgrade(arguments) => wait(upgrade::run(*arguments)),
        Command::Status(arguments) => wait(status::run(arguments)),
        Command::Explain(arguments) => wait(status::run_explain(arguments)),
        Command::Pause(arguments) => wait(hold::run_pause(arguments)),
        Command::Resume(arguments) => wait(hold::run_resume(arguments)),
        Command::Defer(arguments) => wait(hold::run_defer(arguments)),
        Command::Rollback(arguments) => wait(hold::run_rollback(arguments)),
        Command::Abort(arguments) => wait(hold::run_abort(arguments)),
        Command::Bundle(command) => wait(bundle::run(command)),
        Command::Repo(command) => wait(repo::run(command)),
        Command::Controller(arguments) => wait(controller::run(arguments)),
    };
    ended.map(|code| ExitCode::from(code as u8))
}

fn wait(work: impl Future<Output = Result<Code, Problem>>) -> anyhow::Result<Code> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let result = runtime.block_on(work);
    // Watches that are still open hold nothing anyone waits for.
    runtime.shutdown_background();
    Ok(result?)
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

/// Logs are for finding faults in afloat itself: off unless `AFLOAT_LOG` asks for them. A server tells what it does.
fn start_logging(server: bool) {
    let asked = tracing_subscriber::EnvFilter::try_from_env("AFLOAT_LOG");
    let filter = match asked {
        Ok(filter) => filter,
        Err(_) if server => tracing_subscriber::EnvFilter::new("info"),
        Err(_) => return,
    };
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
}

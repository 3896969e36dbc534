//! `afloat node`: enters the machine, lets `afloat-node` do the work, prints what changes, and ends with the report and the exit code
//! that the operator reads. No logic of its own.

use crate::args::node::{Node, NodeCommand, StatusOutput};
use crate::problem::{Code, Problem};
use crate::table::{Tone, plain, table, toned};
use crate::terminal;
use afloat_api::node::{NodePlan, StepReport, exit, steps};
use afloat_core::words::duration;
use afloat_node::engine::Engine;
use afloat_node::host::Host as _;
use afloat_node::real::{RealHost, drive, enter};
use afloat_node::status::{Status, StepWord};
use afloat_node::{paths, status};
use jiff::Timestamp;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

/// Where the kubelet reads a container's last words.
const TERMINATION_LOG: &str = "/dev/termination-log";

pub fn run(arguments: &Node) -> Result<ExitCode, Problem> {
    let (name, bundle) = match &arguments.command {
        NodeCommand::Done => return Ok(ExitCode::SUCCESS),
        NodeCommand::Engine => return run_engine(),
        NodeCommand::Status { output } => return print_status(*output),
        NodeCommand::Stage { bundle } => (steps::STAGE, bundle.as_path()),
        NodeCommand::StandAside => (steps::STAND_ASIDE, Path::new(paths::BROUGHT)),
        NodeCommand::Containerd => (steps::CONTAINERD, Path::new(paths::BROUGHT)),
        NodeCommand::Cni => (steps::CNI, Path::new(paths::BROUGHT)),
        NodeCommand::Kubeadm => (steps::KUBEADM, Path::new(paths::BROUGHT)),
        NodeCommand::Kubelet => (steps::KUBELET, Path::new(paths::BROUGHT)),
        NodeCommand::ComeBack => (steps::COME_BACK, Path::new(paths::BROUGHT)),
        NodeCommand::Rollback => (steps::ROLLBACK, Path::new(paths::BROUGHT)),
    };
    run_step(name, bundle)
}

fn run_step(step: &str, bundle: &Path) -> Result<ExitCode, Problem> {
    // The container's own, open before the machine is entered.
    let last_words = OpenOptions::new().write(true).open(TERMINATION_LOG).ok();
    let entered = enter::machine(bundle).map_err(|error| cannot(step, &error))?;
    let plan = plan_of(step)?;
    let mut host = RealHost::new(&plan.node).with_bundle(entered.bundle.clone());
    let (code, report) = drive::step(&mut host, &plan, step, &mut |message| say(step, message));
    say(step, &report.message);
    leave(last_words, &report);
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)))
}

/// The plan from the environment; a person who undoes by hand has none, and takes what the journal says.
fn plan_of(step: &str) -> Result<NodePlan, Problem> {
    let from_env = NodePlan::from_env(|name| std::env::var(name).ok());
    if step != steps::ROLLBACK {
        return from_env.map_err(|error| cannot(step, &error));
    }
    if let Ok(plan) = from_env {
        return Ok(plan);
    }
    let mut engine = Engine::default();
    let journal = engine
        .journal(&mut RealHost::new(""))
        .map_err(|error| cannot(step, &error))?;
    let plan = journal.map(|journal| journal.plan.clone());
    plan.ok_or_else(|| {
        Problem::new(Code::Failed, "there is nothing to undo").because(format!("{} is not there", paths::JOURNAL))
    })
}

fn say(step: &str, message: &str) {
    let now = Timestamp::now().strftime("%H:%M:%S");
    terminal::print(&format!("{now} {step}: {message}\n"));
}

fn leave(last_words: Option<File>, report: &StepReport) {
    if let Some(mut file) = last_words {
        let text = drive::termination_message(report);
        // The exit code says the most important, and the log the rest.
        let _ = file.write_all(text.as_bytes());
    }
}

fn run_engine() -> Result<ExitCode, Problem> {
    let cannot = |error: &dyn std::error::Error| Problem::new(Code::Failed, "the engine cannot go on").source(error);
    let mut engine = Engine::default();
    enter::machine(Path::new(paths::BROUGHT)).map_err(|error| cannot(&error))?;
    let node = match engine.journal(&mut RealHost::new("")) {
        Ok(journal) => journal.map(|journal| journal.plan.node.clone()),
        Err(error) => return Err(cannot(&error)),
    };
    // Without a journal there is nothing to carry on.
    let Some(node) = node else {
        return Ok(ExitCode::SUCCESS);
    };
    let ended = drive::engine(&mut RealHost::new(&node), &mut |message| {
        terminal::print(&format!("{message}\n"));
    });
    ended.map_err(|error| cannot(&error))?;
    Ok(ExitCode::from(u8::try_from(exit::DONE).unwrap_or(0)))
}

fn cannot(step: &str, error: &dyn std::error::Error) -> Problem {
    Problem::new(Code::Failed, format!("the step {step} cannot be taken here")).source(error)
}

fn print_status(output: StatusOutput) -> Result<ExitCode, Problem> {
    let mut engine = Engine::default();
    let mut host = RealHost::new("");
    let read = engine.journal(&mut host);
    let journal = read.map_err(|error| {
        Problem::new(Code::Failed, "the journal cannot be read")
            .source(&error)
            .help("run it as root, on the machine itself")
    })?;
    let mut found = journal.map(status::of);
    if let Some(found) = found.as_mut().filter(|found| !found.forwarding_to.is_empty())
        && let Ok(Some(table)) = host.forwarding()
    {
        // Of all peers those that served when it was last looked at.
        found.forwarding_to = table.peers;
    }
    match (output, found) {
        (StatusOutput::Text, None) => terminal::print("Afloat has nothing under way on this machine, and never had.\n"),
        (StatusOutput::Text, Some(found)) => {
            let (width, _) = terminal::size();
            let width = if terminal::stdout_is_terminal() { width } else { 400 };
            // By the clock that the journal was written by.
            let now = host.now().unwrap_or_else(|_| Timestamp::now());
            terminal::print(&text(&found, now, width, terminal::colour()));
        }
        (StatusOutput::Json, found) => {
            let json = serde_json::to_string_pretty(&found);
            terminal::print(&format!("{}\n", json.unwrap_or_default()));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn tone(word: StepWord) -> Tone {
    match word {
        StepWord::Done | StepWord::Skipped => Tone::Good,
        StepWord::Running | StepWord::Later => Tone::Careful,
        StepWord::Failed | StepWord::Undone => Tone::Bad,
        StepWord::Pending => Tone::Plain,
    }
}

fn text(status: &Status, now: Timestamp, width: usize, colour: bool) -> String {
    let running = status.steps.iter().find(|step| step.state == StepWord::Running);
    let now_doing = match running {
        Some(step) => format!("{} runs", step.step),
        None if status.over => "nothing is left to do".to_owned(),
        None => "waits to be asked for the next step".to_owned(),
    };
    let mut lines = vec![
        format!(
            "{} ({}) to {}: {now_doing}",
            status.node, status.role, status.kubelet_version
        ),
        String::new(),
    ];
    let mut rows = vec![
        ["STEP", "STATE", "FOR", "NOTE"]
            .map(|head| toned(head, Tone::Heading))
            .into(),
    ];
    for step in &status.steps {
        let time = step
            .since
            .map_or(String::new(), |since| duration(now.duration_since(since)));
        let word = toned(step.state.word(), tone(step.state));
        rows.push(vec![
            plain(step.step.as_str()),
            word,
            plain(time),
            plain(step.note.as_str()),
        ]);
    }
    lines.extend(table(&rows, width, colour));
    lines.push(String::new());
    if let Some(method) = &status.method {
        lines.push(format!("The control plane is taken this way: {method}"));
    }
    if !status.forwarding_to.is_empty() {
        lines.push(format!("New API connections go to {}", status.forwarding_to.join(", ")));
    }
    if let Some(at) = status.undo_at {
        let left = if at > now {
            duration(at.duration_since(now))
        } else {
            "now".to_owned()
        };
        lines.push(format!(
            "Unless the node is well by then, it puts everything back by itself: in {left} ({at:.0})"
        ));
    }
    let kept = status.kept.len();
    lines.push(format!("{kept} files are kept under {} to be put back", paths::KEPT));
    if !status.over {
        lines.push("Undo it all: afloat node rollback".to_owned());
    }
    lines.push(format!(
        "Journal of upgrade {}, attempt {}: {}",
        status.upgrade,
        status.attempt,
        paths::JOURNAL
    ));
    lines.push(String::new());
    lines.join("\n")
}

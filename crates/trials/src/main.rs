//! Tries whole upgrades by seed: one in this process, many in a process each. Exits with 1 when a rule was broken, and prints
//! the one line that repeats it.

mod entropy;

use std::io::Write as _;
use std::process::{Command, ExitCode, Output};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use afloat_sim::hci::HciScenario;
use afloat_trials::hci;
use afloat_trials::trial::{self, Outcome};
use clap::Parser;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[derive(Debug, Parser)]
#[command(about = "Tries to break an upgrade by the real operator on a simulated cluster, by seed")]
struct Args {
    /// Try this one seed
    #[arg(long)]
    seed: Option<u64>,
    /// With --seed: print every write
    #[arg(long)]
    trace: bool,
    /// How many seeds to try, each in a process of its own
    #[arg(long, default_value_t = 100)]
    seeds: u64,
    /// The first of them
    #[arg(long, default_value_t = 1)]
    from: u64,
    /// Processes at once; as many as processors where left out
    #[arg(long)]
    jobs: Option<usize>,
    /// Harvester-like clusters, instead of those of kubeadm
    #[arg(long)]
    hci: bool,
    /// With --hci: this scenario, instead of one that the seed chooses
    #[arg(long, requires = "hci", value_parser = scenario)]
    scenario: Option<HciScenario>,
    /// With --scenario: no storm, but a crash of the operator and the tasks after this one write
    #[arg(long, requires = "scenario", conflicts_with = "seed")]
    crash: Option<u64>,
    /// With --scenario: such a crash after every write, each in a process of its own
    #[arg(long, requires = "scenario", conflicts_with_all = ["seed", "crash"])]
    systematic: bool,
}

fn scenario(name: &str) -> Result<HciScenario, String> {
    let names = || HciScenario::all().map(HciScenario::name).collect::<Vec<_>>().join(", ");
    HciScenario::named(name).ok_or_else(|| format!("there is no such scenario; choose one of {}", names()))
}

impl Args {
    /// What a process that tries one seed has to be told besides.
    fn rest(&self) -> Vec<&'static str> {
        let named = self.scenario.map(|scenario| ["--scenario", scenario.name()]);
        let hci = self.hci.then_some("--hci");
        hci.into_iter().chain(named.into_iter().flatten()).collect()
    }
}

fn main() -> ExitCode {
    let args = Args::parse();
    match (args.seed, args.crash) {
        (Some(seed), _) => one(seed, &args),
        (None, Some(after)) => crash(after, &args),
        (None, None) if args.systematic => systematic(&args),
        (None, None) => many(&args, "seed", args.from..args.from + args.seeds),
    }
}

fn say(line: &str) {
    let _ = writeln!(std::io::stdout().lock(), "{line}");
}

/// Everything that is drawn follows from the seed, and time passes as quickly as it can.
fn paused(seed: u64) -> std::io::Result<tokio::runtime::Runtime> {
    entropy::seed(seed);
    // Back-off draws its jitter from here, which otherwise begins with the time of day.
    fastrand::seed(seed);
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
}

fn one(seed: u64, args: &Args) -> ExitCode {
    let runtime = match paused(seed) {
        Ok(runtime) => runtime,
        Err(error) => {
            say(&format!("seed {seed}: no runtime: {error}"));
            return ExitCode::FAILURE;
        }
    };
    let outcome = if args.hci {
        let outcome = runtime.block_on(hci::trial::run(seed, args.scenario));
        outcome.map(|outcome| told_hci(seed, args, &outcome))
    } else {
        let outcome = runtime.block_on(trial::run(seed, args.trace));
        outcome.map(|outcome| told(seed, &outcome))
    };
    // The process ends here: to take the world apart object by object would be work for nobody.
    std::mem::forget(runtime);
    outcome.unwrap_or_else(|error| {
        say(&format!("seed {seed} BROKEN the trial itself: {error}"));
        ExitCode::FAILURE
    })
}

/// Runs the scenario with a crash after a write; without any where it is 0.
fn crashed(after: u64, args: &Args) -> Result<hci::crash::Outcome, String> {
    let scenario = args.scenario.ok_or("there is no scenario")?;
    let runtime = paused(after).map_err(|error| format!("no runtime: {error}"))?;
    let outcome = runtime.block_on(hci::crash::run(scenario, after));
    outcome.map_err(|error| format!("the trial itself: {error}"))
}

fn crash(after: u64, args: &Args) -> ExitCode {
    match crashed(after, args) {
        Ok(outcome) if outcome.broken.is_empty() => {
            say(&format!("held with a crash after write {after}: {}", outcome.crashed));
            ExitCode::SUCCESS
        }
        Ok(outcome) => {
            let repeat = format!("repeat: make trials ARGS=\"{} --crash {after}\"", args.rest().join(" "));
            say(&format!("BROKEN\n  {}\n  {repeat}", outcome.broken.join("\n  ")));
            ExitCode::FAILURE
        }
        Err(error) => {
            say(&format!("BROKEN {error}"));
            ExitCode::FAILURE
        }
    }
}

fn systematic(args: &Args) -> ExitCode {
    match crashed(0, args) {
        Ok(outcome) => many(args, "crash", 1..outcome.writes + 1),
        Err(error) => {
            say(&error);
            ExitCode::FAILURE
        }
    }
}

fn told_hci(seed: u64, args: &Args, outcome: &hci::trial::Outcome) -> ExitCode {
    let held = outcome.broken.is_empty();
    say(&format!(
        "seed {seed} {} after {} s, {} writes ({})",
        if held { "held" } else { "BROKEN" },
        outcome.took.as_secs(),
        outcome.writes,
        outcome.chosen,
    ));
    for broken in &outcome.broken {
        say(&format!("  {broken}"));
    }
    if held {
        return ExitCode::SUCCESS;
    }
    say(&format!(
        "  repeat: make trials SEED={seed} ARGS=\"{}\"",
        args.rest().join(" ")
    ));
    ExitCode::FAILURE
}

fn told(seed: u64, outcome: &Outcome) -> ExitCode {
    let said = &outcome.said;
    let _ = std::io::stdout().lock().write_all(said.trace.as_bytes());
    let phase = outcome.phase.map_or("gone".to_owned(), |phase| phase.to_string());
    say(&format!(
        "seed {seed} {} {phase} after {} s, {} writes, {} requests, {} evictions, trace {:016x} ({})",
        if said.broken.is_empty() { "held" } else { "BROKEN" },
        outcome.took.as_secs(),
        said.writes,
        said.asked,
        said.evictions,
        said.digest,
        outcome.chosen,
    ));
    for broken in &said.broken {
        say(&format!("  {broken}"));
    }
    if said.broken.is_empty() {
        ExitCode::SUCCESS
    } else {
        say(&format!("  repeat: make trials SEED={seed}"));
        ExitCode::FAILURE
    }
}

/// Tries every number of a range, each in a process of its own that is told it by this flag.
fn many(args: &Args, flag: &str, range: std::ops::Range<u64>) -> ExitCode {
    let begun = Instant::now();
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(error) => {
            say(&format!("this program cannot be found again: {error}"));
            return ExitCode::FAILURE;
        }
    };
    let next = AtomicU64::new(range.start);
    let broken = Mutex::new(Vec::new());
    let jobs = args
        .jobs
        .or_else(|| std::thread::available_parallelism().ok().map(usize::from))
        .unwrap_or(1);
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= range.end {
                        return;
                    }
                    let run = Command::new(&program)
                        .args([format!("--{flag}"), seed.to_string()])
                        .args(args.rest())
                        .output();
                    if let Some(text) = failed(flag, seed, run) {
                        say(&text);
                        broken
                            .lock()
                            .unwrap_or_else(std::sync::PoisonError::into_inner)
                            .push(seed);
                    }
                }
            });
        }
    });
    let broken = broken.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    let (seconds, tried) = (begun.elapsed().as_secs_f64(), range.end - range.start);
    say(&format!(
        "{tried} tried ({flag}) in {seconds:.0} s, {:.1} a second, {} broken",
        f64::from(u32::try_from(tried).unwrap_or(u32::MAX)) / seconds,
        broken.len()
    ));
    if broken.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// What a process that failed had to say.
fn failed(flag: &str, seed: u64, run: std::io::Result<Output>) -> Option<String> {
    match run {
        Ok(output) if output.status.success() => None,
        Ok(output) => {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
            Some(format!(
                "{flag} {seed}: {}\n{}",
                text(&output.stdout),
                text(&output.stderr)
            ))
        }
        Err(error) => Some(format!("{flag} {seed} could not be tried: {error}")),
    }
}

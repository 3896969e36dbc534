//! Tries whole upgrades by seed: one in this process, many in a process each. Exits with 1 when a rule was broken, and prints
//! the one line that repeats it.

mod entropy;

use std::io::Write as _;
use std::process::{Command, ExitCode, Output};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

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
}

fn main() -> ExitCode {
    let args = Args::parse();
    match args.seed {
        Some(seed) => one(seed, args.trace),
        None => many(&args),
    }
}

fn say(line: &str) {
    let _ = writeln!(std::io::stdout().lock(), "{line}");
}

fn one(seed: u64, trace: bool) -> ExitCode {
    entropy::seed(seed);
    // Back-off draws its jitter from here, which otherwise begins with the time of day.
    fastrand::seed(seed);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build();
    let outcome = match runtime {
        Ok(runtime) => runtime.block_on(trial::run(seed, trace)),
        Err(error) => {
            say(&format!("seed {seed}: no runtime: {error}"));
            return ExitCode::FAILURE;
        }
    };
    match outcome {
        Ok(outcome) => told(seed, &outcome),
        Err(error) => {
            say(&format!("seed {seed} BROKEN the trial itself: {error}"));
            ExitCode::FAILURE
        }
    }
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

fn many(args: &Args) -> ExitCode {
    let begun = Instant::now();
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(error) => {
            say(&format!("this program cannot be found again: {error}"));
            return ExitCode::FAILURE;
        }
    };
    let next = AtomicU64::new(args.from);
    let end = args.from + args.seeds;
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
                    if seed >= end {
                        return;
                    }
                    let run = Command::new(&program).args(["--seed", &seed.to_string()]).output();
                    if let Some(text) = failed(seed, run) {
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
    let seconds = begun.elapsed().as_secs_f64();
    say(&format!(
        "{} seeds in {seconds:.0} s, {:.1} a second, {} broken",
        args.seeds,
        f64::from(u32::try_from(args.seeds).unwrap_or(u32::MAX)) / seconds,
        broken.len()
    ));
    if broken.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// What a process that failed had to say.
fn failed(seed: u64, run: std::io::Result<Output>) -> Option<String> {
    match run {
        Ok(output) if output.status.success() => None,
        Ok(output) => {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
            Some(format!(
                "seed {seed}: {}\n{}",
                text(&output.stdout),
                text(&output.stderr)
            ))
        }
        Err(error) => Some(format!("seed {seed} could not be tried: {error}")),
    }
}

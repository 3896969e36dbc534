//! Runs the simulator: many seeds of all scenarios, one seed again with its trace, or the systematic mode. Exits with 1 when
//! a rule was broken, and prints the one line that repeats it.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use afloat_seeds::faults::Class;
use afloat_seeds::hci::Hci;
use afloat_seeds::minimise::{command, minimise, read_ranges};
use afloat_seeds::run::Kubeadm;
use afloat_seeds::suite::{Options, Outcome, RULES, Suite};
use afloat_seeds::systematic::try_all;
use afloat_seeds::traffic::Clients;
use clap::Parser;

/// A run makes and drops many small objects: a third of its time with the system's allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[allow(
    clippy::struct_excessive_bools,
    reason = "each is a switch of its own on the command line"
)]
#[derive(Debug, Parser)]
#[command(about = "Tries to break an upgrade: simulated clusters, people and faults, by seed")]
struct Args {
    /// Harvester-like clusters in place of kubeadm ones
    #[arg(long)]
    hci: bool,
    /// How many seeds to run
    #[arg(long, default_value_t = 1000)]
    seeds: u64,
    /// Run this one seed and print its trace
    #[arg(long)]
    seed: Option<u64>,
    /// The first seed of many
    #[arg(long, default_value_t = 1)]
    from: u64,
    /// One scenario; all of them in turn where left out
    #[arg(long)]
    scenario: Option<String>,
    /// A crash after every request of the operator, for every scenario
    #[arg(long)]
    systematic: bool,
    /// With --systematic: stale restarts from every age, not from a sample
    #[arg(long)]
    every: bool,
    /// Without faults and people
    #[arg(long)]
    clean: bool,
    /// An operator with this bug: the run succeeds when a rule breaks
    #[arg(long)]
    bug: Option<String>,
    /// Classes of faults to switch off, with commas
    #[arg(long, value_delimiter = ',')]
    without: Vec<String>,
    /// Faults to leave out, by their place in the list, as 0-3,7
    #[arg(long, value_parser = numbers)]
    leave_out: Option<Numbers>,
    /// A crash after this request, from a view so many revisions old, as 17:25
    #[arg(long, value_parser = crash)]
    crash: Option<(usize, u64)>,
    /// Threads; as many as processors where left out
    #[arg(long)]
    threads: Option<usize>,
    /// Go on for so long instead of counting seeds
    #[arg(long)]
    hours: Option<f64>,
    /// Measure how many seeds of ten nodes one core does in a second
    #[arg(long)]
    bench: bool,
    /// List the scenarios
    #[arg(long)]
    list: bool,
}

/// How often a long run says how far it is.
const TOLD_EVERY: Duration = Duration::from_mins(1);

#[derive(Clone, Debug)]
struct Numbers(BTreeSet<usize>);

fn numbers(text: &str) -> Result<Numbers, String> {
    read_ranges(text)
        .map(Numbers)
        .ok_or_else(|| "write numbers as 0-3,7".to_owned())
}

fn crash(text: &str) -> Result<(usize, u64), String> {
    let (request, back) = text.split_once(':').unwrap_or((text, "0"));
    match (request.parse(), back.parse()) {
        (Ok(request), Ok(back)) => Ok((request, back)),
        _ => Err("write a request and how old the view is, as 17:25".to_owned()),
    }
}

fn main() -> ExitCode {
    let args = Args::parse();
    if args.hci {
        start::<Hci>(&args)
    } else {
        start::<Kubeadm>(&args)
    }
}

/// What was asked for, in the words of one world.
struct Asked<'a, S: Suite> {
    args: &'a Args,
    scenario: Option<S::Scenario>,
    bug: Option<S::Bug>,
    without: BTreeSet<Class>,
}

impl<'a, S: Suite> Asked<'a, S> {
    fn read(args: &'a Args) -> Result<Self, String> {
        let scenario = args
            .scenario
            .as_deref()
            .map(|name| S::named(name).ok_or_else(|| format!("there is no scenario {name:?}: --list shows them")));
        let bug = args.bug.as_deref().map(|word| {
            let words: Vec<&str> = S::bugs().into_iter().map(S::bug_word).collect();
            let bug = S::bugs().into_iter().find(|bug| S::bug_word(*bug) == word);
            bug.ok_or_else(|| format!("there is no bug {word:?}: choose one of {}", words.join(", ")))
        });
        let class = |word: &String| {
            let words: Vec<&str> = S::CLASSES.iter().map(|class| class.word()).collect();
            let class = S::CLASSES.iter().copied().find(|class| class.word() == word);
            class.ok_or_else(|| format!("there is no class {word:?}: choose of {}", words.join(", ")))
        };
        Ok(Self {
            args,
            scenario: scenario.transpose()?,
            bug: bug.transpose()?,
            without: args.without.iter().map(class).collect::<Result<_, _>>()?,
        })
    }

    fn scenario_of(&self, seed: u64) -> Option<S::Scenario> {
        self.scenario.or_else(|| S::scenario_of(seed))
    }

    fn options(&self, seed: u64, scenario: S::Scenario) -> Options<S> {
        Options {
            clean: self.args.clean,
            without: self.without.clone(),
            left_out: self.args.leave_out.clone().map(|numbers| numbers.0).unwrap_or_default(),
            crash: self.args.crash,
            bug: self.bug,
            ..Options::new(seed, scenario)
        }
    }
}

fn start<S: Suite>(args: &Args) -> ExitCode {
    let asked = match Asked::<S>::read(args) {
        Ok(asked) => asked,
        Err(problem) => {
            let _ = writeln!(std::io::stderr(), "error: {problem}");
            return ExitCode::from(2);
        }
    };
    if args.list {
        let mut out = std::io::stdout().lock();
        for scenario in S::scenarios() {
            let _ = writeln!(out, "{:<32} {}", S::name(scenario), S::summary(scenario));
        }
        return ExitCode::SUCCESS;
    }
    if args.bench {
        return bench(&asked);
    }
    if args.seed.is_some() || args.clean || args.crash.is_some() {
        return one(&asked);
    }
    if args.systematic {
        return systematic(&asked);
    }
    many(&asked)
}

/// One run, with its trace.
fn one<S: Suite>(asked: &Asked<'_, S>) -> ExitCode {
    let seed = asked.args.seed.unwrap_or_default();
    let Some(scenario) = asked.scenario_of(seed) else {
        return ExitCode::FAILURE;
    };
    let mut options = asked.options(seed, scenario);
    options.trace = true;
    let outcome = S::run(&options);
    let mut out = std::io::stdout().lock();
    let _ = write!(out, "{}", outcome.trace.as_deref().unwrap_or_default());
    let _ = writeln!(
        out,
        "{}: {} after {} events, {} requests, {} faults",
        S::name(scenario),
        outcome.ends.join(", "),
        outcome.events,
        outcome.requests,
        outcome.faults.len()
    );
    tell_of_clients(&mut out, outcome.clients);
    match outcome.broken {
        None => ExitCode::SUCCESS,
        Some(broken) => {
            let _ = writeln!(out, "BROKEN {broken}");
            ExitCode::FAILURE
        }
    }
}

/// What clients asked for, where there are some.
fn tell_of_clients(out: &mut impl std::io::Write, clients: Clients) {
    let Clients { sent, lost } = clients;
    if sent > 0 {
        let _ = writeln!(
            out,
            "clients       {sent} requests while API servers changed, {lost} lost by faults or where none could answer"
        );
    }
}

/// Time this thread was on a processor: others may be busy with something else meanwhile. Nothing where nobody counts it.
fn on_processor() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let nanos = text.split_whitespace().next()?.parse().ok()?;
    Some(Duration::from_nanos(nanos))
}

/// One scenario, with every actor and every rule, in one thread.
fn bench<S: Suite>(asked: &Asked<'_, S>) -> ExitCode {
    let args = asked.args;
    let Some(scenario) = asked.scenario.or_else(|| S::named(S::MEASURED)) else {
        return ExitCode::FAILURE;
    };
    let (started, before) = (Instant::now(), on_processor());
    let mut tally = Tally::<S>::new();
    for seed in args.from..args.from + args.seeds {
        let options = asked.options(seed, scenario);
        tally.take(&options, &S::run(&options));
    }
    let took = match (before, on_processor()) {
        (Some(before), Some(after)) => after.saturating_sub(before),
        _ => started.elapsed(),
    };
    #[allow(clippy::cast_precision_loss, reason = "rates for people")]
    let (seeds, events, decisions) = (tally.seeds as f64, tally.events as f64, tally.decisions as f64);
    let _ = writeln!(
        std::io::stdout(),
        "{:.0} seeds/s per core of {} ({:.0} events and {:.0} decisions each; {} seeds, {} broken)",
        seeds / took.as_secs_f64(),
        S::name(scenario),
        events / seeds,
        decisions / seeds,
        tally.seeds,
        tally.failed.len()
    );
    ExitCode::SUCCESS
}

struct Tally<S: Suite> {
    seeds: u64,
    events: u64,
    requests: u64,
    decisions: u64,
    ends: BTreeMap<(&'static str, String), u64>,
    judged: [u64; RULES],
    clients: Clients,
    failed: Vec<Options<S>>,
}

impl<S: Suite> Tally<S> {
    fn new() -> Self {
        Self {
            seeds: 0,
            events: 0,
            requests: 0,
            decisions: 0,
            ends: BTreeMap::new(),
            judged: [0; RULES],
            clients: Clients::default(),
            failed: Vec::new(),
        }
    }

    fn take(&mut self, options: &Options<S>, outcome: &Outcome) {
        self.seeds += 1;
        self.events += outcome.events;
        self.decisions += outcome.decisions;
        self.requests += u64::try_from(outcome.requests).unwrap_or_default();
        for end in &outcome.ends {
            *self.ends.entry((S::name(options.scenario), end.clone())).or_default() += 1;
        }
        for (sum, count) in self.judged.iter_mut().zip(outcome.judged) {
            *sum += count;
        }
        self.clients.sent += outcome.clients.sent;
        self.clients.lost += outcome.clients.lost;
        if outcome.broken.is_some() {
            self.failed.push(options.clone());
        }
    }
}

fn many<S: Suite>(asked: &Asked<'_, S>) -> ExitCode {
    let args = asked.args;
    let started = Instant::now();
    let limit = args.hours.map(|hours| Duration::from_secs_f64(hours * 3600.0));
    let threads = args
        .threads
        .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, Into::into));
    let next = AtomicU64::new(args.from);
    let last = args.from + args.seeds;
    let stop = AtomicBool::new(false);
    let tally = Mutex::new(Tally::<S>::new());
    let told = Mutex::new(started);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    let over = limit.map_or(seed >= last, |limit| started.elapsed() >= limit);
                    if over || stop.load(Ordering::Relaxed) {
                        break;
                    }
                    let Some(scenario) = asked.scenario_of(seed) else { break };
                    let options = asked.options(seed, scenario);
                    let outcome = S::run(&options);
                    let mut tally = tally.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                    tally.take(&options, &outcome);
                    // A long run is not waited for: whoever looks begins with it at once.
                    if let (Some(broken), None) = (&outcome.broken, asked.bug) {
                        let _ = writeln!(std::io::stderr(), "BROKEN {broken}\n  {}", command(&options));
                    }
                    if tally.failed.len() >= 10 {
                        stop.store(true, Ordering::Relaxed);
                    }
                    let mut told = told.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                    if told.elapsed() >= TOLD_EVERY {
                        *told = Instant::now();
                        tell(&tally, started.elapsed(), limit.is_none().then_some(args.seeds));
                    }
                }
            });
        }
    });
    let tally = tally.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    report(args, &tally, started.elapsed(), threads)
}

/// How far a long run has come, beside what it prints at its end.
fn tell<S: Suite>(tally: &Tally<S>, took: Duration, of: Option<u64>) {
    #[allow(clippy::cast_precision_loss, reason = "a rate for people")]
    let rate = tally.seeds as f64 / took.as_secs_f64();
    #[allow(clippy::cast_precision_loss, reason = "an estimate for people")]
    let left = of.map(|all| all.saturating_sub(tally.seeds) as f64 / rate / 60.0);
    let all = of.map_or_else(String::new, |all| format!(" of {all}"));
    let left = left.map_or_else(String::new, |minutes| format!(", about {minutes:.0} minutes left"));
    let (seeds, broken) = (tally.seeds, tally.failed.len());
    let _ = writeln!(
        std::io::stderr(),
        "{seeds}{all} seeds, {broken} broken, {rate:.0} seeds/s{left}"
    );
}

fn report<S: Suite>(args: &Args, tally: &Tally<S>, took: Duration, threads: usize) -> ExitCode {
    let mut out = std::io::stdout().lock();
    let mut last = "";
    for ((scenario, end), count) in &tally.ends {
        let name = if *scenario == last { "" } else { scenario };
        let _ = writeln!(out, "{name:<32} {count:>8}  {end}");
        last = scenario;
    }
    let seconds = took.as_secs_f64();
    #[allow(clippy::cast_precision_loss, reason = "a rate for people")]
    let rate = tally.seeds as f64 / seconds;
    let judged: Vec<String> = (1..13).map(|rule| format!("{rule}:{}", tally.judged[rule])).collect();
    let _ = writeln!(out, "\nrules judged  {}", judged.join(" "));
    tell_of_clients(&mut out, tally.clients);
    let _ = writeln!(
        out,
        "{} seeds in {seconds:.1} s on {threads} threads: {rate:.0} seeds/s; {} events, {} decisions, {} requests; {} broken",
        tally.seeds,
        tally.events,
        tally.decisions,
        tally.requests,
        tally.failed.len()
    );
    let mut failed = tally.failed.clone();
    failed.sort_by_key(|options| options.seed);
    for options in &failed {
        let _ = writeln!(out, "broken: {}", command(options));
    }
    for options in failed.iter().take(2) {
        let (small, outcome) = minimise(options);
        if let Some(broken) = outcome.broken {
            let _ = writeln!(out, "BROKEN {broken}\n  {}", command(&small));
        }
    }
    if tally.failed.is_empty() == args.bug.is_none() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn systematic<S: Suite>(asked: &Asked<'_, S>) -> ExitCode {
    let args = asked.args;
    let started = Instant::now();
    let (mut plans, mut broken) = (0, 0);
    let scenarios = asked.scenario.map_or_else(S::scenarios, |only| vec![only]);
    let next = AtomicU64::new(0);
    let results = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..args.threads.unwrap_or(2) {
            scope.spawn(|| {
                loop {
                    let index = usize::try_from(next.fetch_add(1, Ordering::Relaxed)).unwrap_or(usize::MAX);
                    let Some(scenario) = scenarios.get(index) else { break };
                    let tried = try_all::<S>(*scenario, args.every);
                    let mut results = results.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                    results.push((S::name(*scenario), tried));
                }
            });
        }
    });
    let mut results = results.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    results.sort_by_key(|(name, _)| *name);
    let mut out = std::io::stdout().lock();
    for (name, tried) in &results {
        plans += tried.plans;
        broken += tried.found.len();
        let _ = writeln!(
            out,
            "{name:<32} {:>6} plans  {:>4} broken",
            tried.plans,
            tried.found.len()
        );
        for found in tried.found.iter().take(2) {
            if let Some(broken) = &found.outcome.broken {
                let _ = writeln!(out, "  BROKEN {broken}\n    {}", command(&found.options));
            }
        }
    }
    let _ = writeln!(
        out,
        "{plans} plans in {:.1} s: {broken} broken",
        started.elapsed().as_secs_f64()
    );
    if broken == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

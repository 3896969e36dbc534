//! `bench-nodes`: the same upgrade by hand, by Afloat's conservative way and by its swift one, each on a lab that is made anew, in one run on
//! one machine. Prints a table, writes it as JSON, and fails where Afloat lost a request or is slower than its bars allow.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use afloat_e2e::{Account, Error, Site};
use afloat_lab::{Counts, Lab, Progress, Release, Role, Spec, upgrade_by_hand};
use clap::{Parser, ValueEnum};
use serde::{Deserialize, Serialize};
use serde_json::json;

const LONG: Duration = Duration::from_mins(40);

#[derive(Debug, Parser)]
#[command(
    name = "bench-nodes",
    about = "Measures upgrades of real machines against the one by hand"
)]
struct Arguments {
    #[arg(long, default_value_t = 3)]
    control_planes: u8,
    #[arg(long, default_value_t = 2)]
    workers: u8,
    /// The ways that are measured; the first is what the others are compared with
    #[arg(long, value_delimiter = ',', default_values_t = [Way::ByHand, Way::Conservative, Way::Swift])]
    ways: Vec<Way>,
    #[arg(long, default_value = "v1.36.3")]
    to: String,
    /// Where the figures go as JSON
    #[arg(long)]
    output: PathBuf,
    /// Takes up a run that was cut off: ways whose figures are there are not measured again
    #[arg(long)]
    resume: bool,
}

#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize, ValueEnum, strum::Display)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
enum Way {
    ByHand,
    Conservative,
    Swift,
}

impl Way {
    /// The most that a control plane and the whole upgrade may take, as a share of what they take by hand.
    fn bars(self) -> (Option<f64>, Option<f64>) {
        match self {
            Self::ByHand => (None, None),
            Self::Conservative => (Some(0.6), None),
            Self::Swift => (Some(0.3), Some(0.4)),
        }
    }
}

/// What one way took, in seconds.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Outcome {
    way: Way,
    /// Bringing files and images to the machines, before the first is touched.
    ahead: f64,
    /// From the first machine that is touched to the end.
    whole: f64,
    /// How long each machine took. By hand from its first command to its last, by Afloat from cordon to end.
    machines: Vec<(String, f64)>,
    control_plane: f64,
    worker: f64,
    sent: u64,
    lost: u64,
    /// Put off by an API server that ended, and answered by another one.
    #[serde(default)]
    put_off: u64,
    pages_lost: u64,
}

impl Outcome {
    fn of(way: Way, lab: &Lab, (ahead, whole): (f64, f64), machines: Vec<(String, f64)>, counts: &Counts) -> Self {
        let mean = |role: Role| {
            let role_of = |name: &str| lab.machine(name).is_ok_and(|machine| machine.role() == role);
            let times: Vec<f64> = machines
                .iter()
                .filter(|(name, _)| role_of(name))
                .map(|(_, took)| *took)
                .collect();
            times.iter().sum::<f64>() / f64::from(u32::try_from(times.len()).unwrap_or(1).max(1))
        };
        Self {
            way,
            ahead,
            whole,
            control_plane: mean(Role::ControlPlane),
            worker: mean(Role::Worker),
            machines,
            sent: counts.sent(),
            lost: counts.failed(),
            put_off: counts.put_off(),
            pages_lost: counts.pages_failed(),
        }
    }
}

fn by_hand(spec: &Spec, to: &str) -> Result<Outcome, Error> {
    let lab = Lab::up(spec)?;
    let went = upgrade_by_hand(&lab, &Release::of(to)?, &Progress::new(false))?;
    println!("{}{went}", went.requests);
    let silent = unheard(&went.requests);
    if !silent.is_empty() {
        return Err(Error::Unexpected("the upgrade by hand".to_owned(), silent.join("; ")));
    }
    let machines = went.machines.iter().map(|times| (times.machine.clone(), times.total));
    let machines = machines.collect();
    Ok(Outcome::of(
        Way::ByHand,
        &lab,
        (went.pull, went.whole),
        machines,
        &went.requests,
    ))
}

fn by_afloat(spec: &Spec, to: &str, way: Way) -> Result<Outcome, Error> {
    let site = Site::up(spec, to)?;
    let method = if way == Way::Swift { "Swift" } else { "Conservative" };
    let begun = Instant::now();
    site.stage("measured", json!({"controlPlane": {"method": method}}), LONG)?;
    let ahead = begun.elapsed().as_secs_f64();
    let probers = site.lab.probers().sparing().start()?;
    site.let_go("measured")?;
    let followed = site.upgrade(&[], LONG, Some(&probers), |_| Ok(()))?;
    let whole = followed.took.as_secs_f64();
    site.settled(LONG)?;
    let (account, counts) = (site.account(&followed)?, probers.stop()?);
    println!("{}\n{counts}\n{account}", followed.said);
    if followed.exit_code != Some(0) {
        let ended = format!("it ended with {:?}:\n{}", followed.exit_code, site.diagnosis());
        return Err(Error::Unexpected("afloat upgrade".to_owned(), ended));
    }
    check(way, &site.lab, &account, &counts)?;
    let machines = account.nodes.iter();
    let machines = machines.map(|node| (node.node.clone(), node.window.unwrap_or_default()));
    Ok(Outcome::of(way, &site.lab, (ahead, whole), machines.collect(), &counts))
}

/// Figures of another way, or of probers that did not ask, say nothing of this one.
fn check(way: Way, lab: &Lab, account: &Account, counts: &Counts) -> Result<(), Error> {
    let of = |role| lab.machines().into_iter().filter(move |machine| machine.role() == role);
    let names = |role| of(role).map(|machine| machine.name().to_owned());
    let all: Vec<String> = names(Role::ControlPlane).chain(names(Role::Worker)).collect();
    let mut wrong = account.lacks(&all.iter().map(String::as_str).collect::<Vec<_>>());
    for node in &account.nodes {
        if names(Role::ControlPlane).any(|name| name == node.node) {
            wrong.extend(other_way(way, &node.node, node.way.as_deref()));
        }
    }
    wrong.extend(unheard(counts));
    if wrong.is_empty() {
        return Ok(());
    }
    Err(Error::Unexpected(format!("the {way} way"), wrong.join("; ")))
}

/// As a machine wrote it down: `swift`, or `conservative: why`.
fn other_way(wanted: Way, node: &str, taken: Option<&str>) -> Option<String> {
    let taken = taken.unwrap_or("no way that it wrote down");
    let same = taken.split(':').next() == Some(wanted.to_string().as_str());
    (!same).then(|| format!("{node} was taken the way {taken}"))
}

fn unheard(counts: &Counts) -> Vec<String> {
    counts.silent(&["balancer harsh", "pod on cp-1"])
}

/// The table, and what missed its bar.
fn judged(outcomes: &[Outcome]) -> (String, Vec<String>) {
    let mut table = format!(
        "{:<13} {:>8} {:>14} {:>6} {:>8} {:>9} {:>6} {:>8} {:>5} {:>7} {:>6}\n",
        "WAY", "AHEAD", "CONTROL PLANE", "RATIO", "WORKER", "WHOLE", "RATIO", "REQUESTS", "LOST", "PUT-OFF", "PAGES"
    );
    let mut missed = Vec::new();
    let Some(base) = outcomes.first() else {
        return (table, missed);
    };
    for one in outcomes {
        let plane = one.control_plane / base.control_plane;
        let whole = one.whole / base.whole;
        let row = format!(
            "{:<13} {:>7.1}s {:>13.1}s {plane:>6.2} {:>7.1}s {:>8.1}s {whole:>6.2} {:>8} {:>5} {:>7} {:>6}\n",
            one.way.to_string(),
            one.ahead,
            one.control_plane,
            one.worker,
            one.whole,
            one.sent,
            one.lost,
            one.put_off,
            one.pages_lost
        );
        table.push_str(&row);
        let bars = one.way.bars();
        for (what, ratio, bar) in [("a control plane", plane, bars.0), ("the whole", whole, bars.1)] {
            if base.way == Way::ByHand && bar.is_some_and(|bar| ratio > bar) {
                missed.push(format!("{}: {what} took {ratio:.2} of the time by hand", one.way));
            }
        }
        if one.way != Way::ByHand && one.lost > 0 {
            missed.push(format!("{}: {} requests to the API failed", one.way, one.lost));
        }
        if one.way != Way::ByHand && one.pages_lost > 0 {
            missed.push(format!(
                "{}: {} requests to the workload failed",
                one.way, one.pages_lost
            ));
        }
    }
    (table, missed)
}

fn run(arguments: &Arguments) -> Result<Vec<String>, Error> {
    let spec = Spec {
        name: "e2e-bench".to_owned(),
        control_planes: arguments.control_planes,
        workers: arguments.workers,
        ..Spec::default()
    };
    let file = |source| Error::File {
        path: arguments.output.clone(),
        source,
    };
    let mut outcomes: Vec<Outcome> = Vec::new();
    if arguments.resume {
        let text = std::fs::read_to_string(&arguments.output).map_err(file)?;
        outcomes = serde_json::from_str(&text).map_err(|error| file(error.into()))?;
    }
    for way in &arguments.ways {
        if outcomes.iter().any(|outcome| outcome.way == *way) {
            continue;
        }
        if !outcomes.is_empty() {
            println!("{}", judged(&outcomes).0);
        }
        outcomes.push(match way {
            Way::ByHand => by_hand(&spec, &arguments.to)?,
            way => by_afloat(&spec, &arguments.to, *way)?,
        });
        // After every way: a run of half an hour that is cut off has said something.
        let written = serde_json::to_string_pretty(&outcomes).map_err(std::io::Error::other);
        written
            .and_then(|text| std::fs::write(&arguments.output, text))
            .map_err(file)?;
    }
    let (table, missed) = judged(&outcomes);
    println!("{table}");
    Ok(missed)
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(missed) if missed.is_empty() => ExitCode::SUCCESS,
        Ok(missed) => {
            eprintln!("missed: {}", missed.join("; "));
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(way: Way, seconds: f64) -> Outcome {
        Outcome {
            way,
            ahead: 0.0,
            whole: seconds,
            machines: Vec::new(),
            control_plane: seconds,
            worker: seconds,
            sent: 100,
            lost: 0,
            put_off: 0,
            pages_lost: 0,
        }
    }

    #[test]
    fn another_way_than_the_one_asked_for_is_named() {
        for (taken, wrong) in [
            (Some("swift"), true),
            (Some("conservative: asked for"), false),
            (None, true),
        ] {
            assert_eq!(
                other_way(Way::Conservative, "cp-1", taken).is_some(),
                wrong,
                "{taken:?}"
            );
        }
        assert_eq!(other_way(Way::Swift, "cp-1", Some("swift")), None);
    }

    #[test]
    fn requests_that_were_lost_miss_the_bar_both_those_to_the_api_and_those_to_the_workload() {
        let mut swift = outcome(Way::Swift, 20.0);
        let by_hand = || Outcome {
            pages_lost: 7,
            lost: 7,
            ..outcome(Way::ByHand, 100.0)
        };
        swift.pages_lost = 2;
        let (_, missed) = judged(&[by_hand(), swift]);
        assert_eq!(missed, ["swift: 2 requests to the workload failed"]);
        let (_, missed) = judged(&[by_hand(), outcome(Way::Swift, 20.0)]);
        assert!(missed.is_empty(), "{missed:?}");
    }
}

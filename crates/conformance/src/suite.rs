//! A whole run: every named case and every random sequence on both servers, into one report.

use std::{path::PathBuf, time::Duration};

use crate::{
    Error,
    accepted::AcceptedList,
    case::{self, Case},
    mask::Patterns,
    report::{Finding, Report},
    run::{self, Reading},
    sequences,
    target::{RealTarget, Target},
};

/// What to run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Only cases whose `theme/name` contains this.
    pub filter: Option<String>,
    pub sequences: usize,
    pub seed: u64,
    /// No simulator: only checks that the real server does what the cases say it does.
    pub real_only: bool,
}

/// The two servers, and what is needed to compare them.
pub(crate) struct Pair {
    pub(crate) real: Box<dyn Target>,
    pub(crate) sim: Option<Box<dyn Target>>,
    pub(crate) patterns: Patterns,
}

/// What both said to one case.
pub(crate) struct Outcome {
    pub(crate) requests: usize,
    pub(crate) complaints: Vec<String>,
    pub(crate) differences: Vec<crate::Difference>,
}

const REAL: Reading<'_> = Reading { due: Duration::from_secs(5), surplus: Duration::from_millis(40), counts: None };
const SIM: Reading<'_> = Reading { due: Duration::from_millis(200), surplus: Duration::from_millis(1), counts: None };

impl Pair {
    pub(crate) fn start(real_only: bool) -> Result<Self, Error> {
        let _ = real_only;
        Ok(Self { real: Box::new(RealTarget::start()?), sim: None, patterns: Patterns::new()? })
    }

    /// The simulator goes first: how many events it gives says how many to wait for.
    pub(crate) fn case(&mut self, case: &Case, namespace: &str) -> Result<Outcome, Error> {
        let sim = match &mut self.sim {
            Some(sim) => Some(run::case(&mut **sim, case, namespace, SIM)?),
            None => None,
        };
        let counts = sim.as_ref().map(run::Recording::event_counts);
        let reading = Reading { counts: counts.as_deref(), ..REAL };
        let real = run::case(&mut *self.real, case, namespace, reading)?;
        let differences = sim.map(|sim| real.differences(&sim, &self.patterns)).unwrap_or_default();
        Ok(Outcome { requests: real.requests, complaints: real.complaints, differences })
    }
}

/// Runs it all. `progress` is told what is being run.
pub fn run(plan: &Plan, progress: &mut dyn FnMut(&str)) -> Result<Report, Error> {
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let themes = case::load(&here.join("cases"))?;
    let mut accepted = AcceptedList::load(&here.join("accepted.yaml"))?;
    let mut report = Report::new(plan);
    progress("starting etcd and kube-apiserver");
    let mut pair = Pair::start(plan.real_only)?;
    for setup in themes.iter().filter(|theme| theme.name.starts_with('_')).flat_map(|theme| &theme.cases) {
        let outcome = pair.case(setup, &setup.name)?;
        report.set_up(&setup.name, outcome.complaints);
    }
    for theme in themes.iter().filter(|theme| !theme.name.starts_with('_')) {
        for case in &theme.cases {
            let name = format!("{}/{}", theme.name, case.name);
            if plan.filter.as_ref().is_some_and(|filter| !name.contains(filter.as_str())) {
                continue;
            }
            progress(&name);
            let mut outcome = pair.case(case, &case.name)?;
            outcome.differences.retain(|difference| !accepted.covers(&name, difference));
            report.add_case(&theme.name, Finding::new(name, outcome));
        }
    }
    sequences::run(plan, &mut pair, &mut accepted, &mut report, progress)?;
    report.finish(&accepted, plan);
    Ok(report)
}

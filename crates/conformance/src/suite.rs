//! A whole run: every named case and every random sequence on both servers, into one report.

use std::{path::PathBuf, sync::Arc, time::Duration};

use crate::{
    Error,
    accepted::AcceptedList,
    case::{self, Case},
    events::Reading,
    mask::Patterns,
    report::{Finding, Report},
    rules, run, sequences,
    target::{RealTarget, SimTarget},
};

/// What to run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Only cases whose `theme/name` contains this.
    pub filter: Option<String>,
    /// Whether to run the named cases.
    pub cases: bool,
    /// Whether to run the cases of our own validation rules.
    pub rules: bool,
    pub sequences: usize,
    pub seed: u64,
    /// No simulator: only checks that the real server does what the cases say it does.
    pub real_only: bool,
}

/// Fewer sequences may leave out one that shows an accepted difference.
const TELLING_SEQUENCES: usize = 500;

impl Plan {
    /// Whether the part of the run that an accepted difference is about was run whole, so that one which did not show is none any more.
    pub(crate) fn settles(&self, case: &str) -> bool {
        let run = match case.split('/').next() {
            Some("sequence") => self.sequences >= TELLING_SEQUENCES,
            Some("rules") => self.rules,
            _ => self.cases,
        };
        run && self.filter.is_none() && !self.real_only
    }
}

/// The two servers, and what is needed to compare them.
pub(crate) struct Pair {
    real: RealTarget,
    sim: Option<SimTarget>,
    patterns: Arc<Patterns>,
    /// Run on every server before anything else.
    set_up: Arc<Vec<Case>>,
}

/// What both said to one case.
pub(crate) struct Outcome {
    pub(crate) requests: usize,
    pub(crate) complaints: Vec<String>,
    pub(crate) differences: Vec<crate::Difference>,
}

const REAL: Reading<'_> = Reading {
    due: Duration::from_secs(20),
    surplus: Duration::from_millis(40),
    counts: None,
};
const SIM: Reading<'_> = Reading {
    due: Duration::from_millis(200),
    surplus: Duration::from_millis(1),
    counts: None,
};

impl Pair {
    fn start(real_only: bool, set_up: Vec<Case>) -> Result<Self, Error> {
        let sim = (!real_only).then(SimTarget::start);
        Ok(Self {
            real: RealTarget::start()?,
            sim,
            patterns: Arc::new(Patterns::new()?),
            set_up: Arc::new(set_up),
        })
    }

    /// The same real server over another connection, with a new simulator.
    pub(crate) fn another(&self) -> Result<Self, Error> {
        let mut sim = SimTarget::start();
        for case in self.set_up.iter() {
            run::case(&mut sim, case, &case.name, SIM)?;
        }
        Ok(Self {
            real: self.real.another(),
            sim: Some(sim),
            patterns: Arc::clone(&self.patterns),
            set_up: Arc::clone(&self.set_up),
        })
    }

    /// The simulator goes first: how many events it gives says how many to wait for.
    pub(crate) fn case(&mut self, case: &Case, namespace: &str) -> Result<Outcome, Error> {
        let sim = match &mut self.sim {
            Some(sim) => Some(run::case(sim, case, namespace, SIM)?),
            None => None,
        };
        let counts = sim.as_ref().map(run::Recording::event_counts);
        let reading = Reading {
            counts: counts.as_deref(),
            ..REAL
        };
        let real = run::case(&mut self.real, case, namespace, reading)?;
        let differences = sim
            .map(|sim| real.differences(&sim, &self.patterns))
            .unwrap_or_default();
        Ok(Outcome {
            requests: real.requests,
            complaints: real.complaints,
            differences,
        })
    }
}

/// Runs it all. `progress` is told what is being run.
pub fn run(plan: &Plan, progress: &mut dyn FnMut(&str)) -> Result<Report, Error> {
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let mut themes = case::load(&here.join("cases"))?;
    let set_up: Vec<Case> = themes
        .extract_if(.., |theme| theme.name.starts_with('_'))
        .flat_map(|theme| theme.cases)
        .collect();
    if !plan.cases {
        themes.clear();
    }
    if plan.rules {
        themes.push(rules::theme(&here.join("../.."))?);
    }
    let mut accepted = AcceptedList::load(&here.join("accepted.yaml"))?;
    let mut report = Report::new(plan);
    progress("starting etcd and kube-apiserver");
    let mut pair = Pair::start(plan.real_only, set_up)?;
    for case in Arc::clone(&pair.set_up).iter() {
        let mut outcome = pair.case(case, &case.name)?;
        let name = format!("set-up/{}", case.name);
        outcome
            .differences
            .retain(|difference| !accepted.covers(&name, difference));
        report.add_case("set-up", Finding::new(name, outcome));
    }
    for theme in &themes {
        for case in &theme.cases {
            let name = format!("{}/{}", theme.name, case.name);
            let wanted = plan.filter.as_ref().is_none_or(|filter| name.contains(filter.as_str()));
            // Without its definitions no case of a theme would mean anything.
            let needed = case.name == "install"
                && plan
                    .filter
                    .as_ref()
                    .is_none_or(|filter| filter.starts_with(&theme.name));
            if !wanted && !needed {
                continue;
            }
            progress(&name);
            let mut outcome = pair.case(case, &case.name)?;
            outcome
                .differences
                .retain(|difference| !accepted.covers(&name, difference));
            report.add_case(&theme.name, Finding::new(name, outcome));
        }
    }
    sequences::run(plan, &pair, &mut accepted, &mut report, progress)?;
    report.finish(&accepted, plan);
    Ok(report)
}

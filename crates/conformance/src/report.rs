//! What a run found, and how it is told: counts first, then each case that differs, with both answers.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    fmt,
};

use crate::{
    Difference,
    accepted::AcceptedList,
    suite::{Outcome, Plan},
};

/// One case or sequence that is not as it should be, or is.
#[derive(Debug)]
pub struct Finding {
    pub name: String,
    pub requests: usize,
    pub complaints: Vec<String>,
    pub differences: Vec<Difference>,
    /// For a sequence: its steps, as few as show the difference.
    pub steps: Vec<String>,
}

impl Finding {
    pub(crate) fn new(name: String, outcome: Outcome) -> Self {
        let Outcome {
            requests,
            complaints,
            differences,
        } = outcome;
        Self {
            name,
            requests,
            complaints,
            differences,
            steps: Vec::new(),
        }
    }

    /// What sequences that show the same difference have in common.
    fn signature(&self) -> String {
        let bare = |text: &str| {
            text.chars()
                .filter(|letter| !letter.is_ascii_digit())
                .collect::<String>()
        };
        let places = self.differences.iter().map(|difference| {
            let word = difference.step.split(' ').next().unwrap_or_default();
            let told = if difference.path == "body.message" {
                format!("{:?}", difference.real)
            } else {
                String::new()
            };
            let told: String = told.split('"').step_by(2).take(4).collect();
            format!("{word} {} {}", bare(&difference.path), bare(&told))
        });
        places.collect::<Vec<_>>().join("\n")
    }

    fn is_fine(&self) -> bool {
        self.complaints.is_empty() && self.differences.is_empty()
    }
}

#[derive(Debug, Default)]
struct Count {
    cases: usize,
    requests: usize,
    differing: usize,
}

/// The result of a run.
#[derive(Debug)]
pub struct Report {
    themes: BTreeMap<String, Count>,
    sequences: Count,
    seed: u64,
    real_only: bool,
    accepted: usize,
    unused: Vec<String>,
    pub findings: Vec<Finding>,
}

impl Report {
    pub(crate) fn new(plan: &Plan) -> Self {
        Self {
            themes: BTreeMap::new(),
            sequences: Count::default(),
            seed: plan.seed,
            real_only: plan.real_only,
            accepted: 0,
            unused: Vec::new(),
            findings: Vec::new(),
        }
    }

    /// Nothing differs that is not accepted, and every accepted difference is still there.
    pub fn is_fine(&self) -> bool {
        self.findings.is_empty() && self.unused.is_empty()
    }

    pub fn cases(&self) -> usize {
        self.themes.values().map(|count| count.cases).sum()
    }

    /// Requests that went to each server.
    pub fn requests(&self) -> usize {
        self.themes.values().map(|count| count.requests).sum::<usize>() + self.sequences.requests
    }

    pub fn sequences(&self) -> usize {
        self.sequences.cases
    }

    pub(crate) fn add_case(&mut self, theme: &str, finding: Finding) {
        let count = self.themes.entry(theme.to_owned()).or_default();
        count.cases += 1;
        count.requests += finding.requests;
        count.differing += usize::from(!finding.is_fine());
        self.note(finding);
    }

    pub(crate) fn add_sequence(&mut self, finding: Finding) {
        self.sequences.cases += 1;
        self.sequences.requests += finding.requests;
        self.sequences.differing += usize::from(!finding.is_fine());
        self.note(finding);
    }

    fn note(&mut self, finding: Finding) {
        if !finding.is_fine() {
            self.findings.push(finding);
        }
    }

    /// Entries that covered nothing are told only when what they are about was run: a filter leaves some out by intent.
    pub(crate) fn finish(&mut self, accepted: &AcceptedList, plan: &Plan) {
        self.accepted = accepted.uses();
        let stale = accepted.unused().filter(|entry| plan.settles(&entry.case));
        self.unused = stale
            .map(|entry| {
                let step = entry.step.as_deref().unwrap_or("*");
                format!("{} {step} {}: {}", entry.case, entry.path, entry.reason)
            })
            .collect();
    }
}

impl Report {
    /// Where differences are, most frequent first: many cases often have one cause.
    fn places(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut places: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        for finding in &self.findings {
            for difference in &finding.differences {
                let place: String = difference
                    .path
                    .chars()
                    .filter(|letter| !letter.is_ascii_digit())
                    .collect();
                let cases = places.entry(place).or_default();
                if cases.last() != Some(&finding.name.as_str()) {
                    cases.push(&finding.name);
                }
            }
        }
        let mut places: Vec<_> = places.into_iter().collect();
        places.sort_by_key(|(_, cases)| std::cmp::Reverse(cases.len()));
        if !places.is_empty() {
            writeln!(out, "\nCASES  PLACE")?;
        }
        for (place, cases) in places.iter().take(40) {
            let some: Vec<&str> = cases.iter().take(3).copied().collect();
            writeln!(out, "{:>5}  {place}  ({})", cases.len(), some.join(", "))?;
        }
        Ok(())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown: BTreeMap<String, &str> = BTreeMap::new();
        for finding in &self.findings {
            if !finding.steps.is_empty() {
                match shown.entry(finding.signature()) {
                    Entry::Occupied(first) => {
                        writeln!(out, "\n{} differs as {} does", finding.name, first.get())?;
                        continue;
                    }
                    Entry::Vacant(place) => drop(place.insert(&finding.name)),
                }
            }
            writeln!(out, "\n{}", finding.name)?;
            for step in &finding.steps {
                writeln!(out, "  | {step}")?;
            }
            for complaint in &finding.complaints {
                writeln!(out, "  {}: {complaint}", if self.real_only { "real" } else { "case" })?;
            }
            for difference in &finding.differences {
                writeln!(out, "{difference}")?;
            }
        }
        for entry in &self.unused {
            writeln!(out, "\naccepted.yaml covers nothing any more with: {entry}")?;
        }
        self.places(out)?;
        writeln!(
            out,
            "\n{:<20} {:>6} {:>9} {:>10}",
            "THEME", "CASES", "REQUESTS", "DIFFERING"
        )?;
        let sequences = ("random sequences".to_owned(), &self.sequences);
        for (name, count) in self
            .themes
            .iter()
            .map(|(name, count)| (name.clone(), count))
            .chain([sequences])
        {
            writeln!(
                out,
                "{name:<20} {:>6} {:>9} {:>10}",
                count.cases, count.requests, count.differing
            )?;
        }
        write!(
            out,
            "\n{} cases and {} sequences (seed {}), {} requests to each server: {} differ, {} differences accepted",
            self.cases(),
            self.sequences.cases,
            self.seed,
            self.requests(),
            self.findings.len(),
            self.accepted
        )
    }
}

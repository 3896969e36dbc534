//! A world that can be tried by seed: what minimising, the systematic mode and the command line need of it, and what a run is told and
//! brings. There is one of kubeadm clusters ([`crate::run`]) and one of Harvester-like ones ([`crate::hci`]).

use std::collections::BTreeSet;
use std::fmt::Debug;

use super::faults::{Class, Fault};
use super::rules::Broken;
use super::time::Millis;
use super::traffic::Clients;

/// How many numbers rules have, and one more for what follows from several.
pub const RULES: usize = 13;

/// A world and its scenarios.
pub trait Suite: Clone + Debug + Send + Sync + 'static {
    type Scenario: Copy + Debug + Send + Sync;
    type Bug: Copy + Debug + Send + Sync;
    /// What the command line needs to mean this one; empty for the usual.
    const FLAG: &'static str;
    /// Classes of faults that it knows.
    const CLASSES: &'static [Class];
    /// The scenario in which speed is measured.
    const MEASURED: &'static str;

    fn scenarios() -> Vec<Self::Scenario>;
    fn name(scenario: Self::Scenario) -> &'static str;
    fn summary(scenario: Self::Scenario) -> &'static str;
    fn bugs() -> Vec<Self::Bug>;
    fn bug_word(bug: Self::Bug) -> &'static str;
    fn run(options: &Options<Self>) -> Outcome;

    fn named(name: &str) -> Option<Self::Scenario> {
        Self::scenarios()
            .into_iter()
            .find(|scenario| Self::name(*scenario) == name)
    }

    /// Seeds go through the scenarios in turn.
    fn scenario_of(seed: u64) -> Option<Self::Scenario> {
        let all = Self::scenarios();
        let many = u64::try_from(all.len()).unwrap_or(1).max(1);
        all.get(usize::try_from(seed % many).unwrap_or_default()).copied()
    }
}

/// What to run.
#[derive(Clone, Debug)]
pub struct Options<S: Suite> {
    pub seed: u64,
    pub scenario: S::Scenario,
    /// Without faults and people.
    pub clean: bool,
    /// Classes that are switched off.
    pub without: BTreeSet<Class>,
    /// Faults that are left out, by their place in the list.
    pub left_out: BTreeSet<usize>,
    /// A crash after the n-th request, and how many revisions back whoever made it comes up.
    pub crash: Option<(usize, u64)>,
    pub bug: Option<S::Bug>,
    pub trace: bool,
}

impl<S: Suite> Options<S> {
    pub fn new(seed: u64, scenario: S::Scenario) -> Self {
        Self {
            seed,
            scenario,
            clean: false,
            without: BTreeSet::new(),
            left_out: BTreeSet::new(),
            crash: None,
            bug: None,
            trace: false,
        }
    }

    pub fn clean(scenario: S::Scenario) -> Self {
        Self {
            clean: true,
            ..Self::new(0, scenario)
        }
    }
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub broken: Option<Broken>,
    /// How the upgrades of the run ended, in a word each.
    pub ends: Vec<String>,
    pub simulated: Millis,
    pub events: u64,
    pub decisions: u64,
    /// Requests of the operator, and of its tasks.
    pub requests: usize,
    pub revision: u64,
    pub faults: Vec<(Class, Fault)>,
    pub judged: [u64; RULES],
    /// What clients asked the cluster for meanwhile, where there are some.
    pub clients: Clients,
    pub trace: Option<String>,
}

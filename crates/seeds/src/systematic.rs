//! The systematic mode: one clean run of a scenario, then the same again with the operator, or whichever task of it, ending after every
//! single one of its requests, and coming back from views of every age. What chance would need years to hit is tried once each.

use super::suite::{Options, Outcome, Suite};

/// Of a sample: how old the views are that an operator comes back from, in revisions, and after each how many requests.
const OLD: u64 = 25;
const EVERY: usize = 8;

/// A plan that broke a rule.
#[derive(Debug)]
pub struct Found<S: Suite> {
    pub options: Options<S>,
    pub outcome: Outcome,
}

/// What was tried.
#[derive(Debug)]
pub struct Tried<S: Suite> {
    pub plans: usize,
    pub found: Vec<Found<S>>,
}

/// Tries a scenario with a crash after every request, and stale restarts at sampled revisions, or at `every` one.
pub fn try_all<S: Suite>(scenario: S::Scenario, every: bool) -> Tried<S> {
    let mut tried = Tried {
        plans: 0,
        found: Vec::new(),
    };
    let clean = Options::clean(scenario);
    let outcome = S::run(&clean);
    let (requests, revision) = (outcome.requests, outcome.revision);
    tried.take(clean.clone(), outcome);
    for request in 0..requests {
        let ages: Vec<u64> = if every {
            // Every revision that the clean run had is met by some age at some request.
            (0..revision).step_by(7).collect()
        } else if request % EVERY == 0 {
            vec![0, OLD]
        } else {
            vec![0]
        };
        for back in ages {
            let options = Options {
                crash: Some((request, back)),
                ..clean.clone()
            };
            let outcome = S::run(&options);
            tried.take(options, outcome);
        }
    }
    tried
}

impl<S: Suite> Tried<S> {
    fn take(&mut self, options: Options<S>, outcome: Outcome) {
        self.plans += 1;
        if outcome.broken.is_some() {
            self.found.push(Found { options, outcome });
        }
    }
}

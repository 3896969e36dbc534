//! Random sequences of requests on both servers: made from seeds, run side by side in a few threads, and, where the servers disagree, cut down to
//! the fewest steps that still show it. What requests are about is `universe`, which one is next is `generate`, how it is drawn is
//! `requests`.

mod generate;
mod requests;
mod universe;

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
};

use generate::Sequence;
use universe::Kind;

use crate::{
    Error,
    accepted::AcceptedList,
    case::{Case, Step},
    report::{Finding, Report},
    suite::{Outcome, Pair, Plan},
};

/// The real server waits for its storage most of the time, so more than one sequence is on its way at once.
const THREADS: usize = 3;
/// Runs that go into making one failing sequence short.
const SHRINKING_RUNS: usize = 60;
/// Failing sequences that are made short; past these the reader has enough, and the run should end.
const SHRUNK: usize = 40;

struct Shared<'a> {
    plan: &'a Plan,
    kinds: Vec<Kind>,
    next: AtomicUsize,
    shrunk: AtomicUsize,
    accepted: Mutex<&'a mut AcceptedList>,
}

pub(crate) fn run(
    plan: &Plan,
    pair: &Pair,
    accepted: &mut AcceptedList,
    report: &mut Report,
    progress: &mut dyn FnMut(&str),
) -> Result<(), Error> {
    if plan.sequences == 0 || plan.real_only {
        return Ok(());
    }
    let shared = Shared {
        plan,
        kinds: universe::load()?,
        next: AtomicUsize::new(0),
        shrunk: AtomicUsize::new(0),
        accepted: Mutex::new(accepted),
    };
    let pairs = (0..THREADS).map(|_| pair.another()).collect::<Result<Vec<_>, _>>()?;
    let (sender, results) = mpsc::channel();
    let mut findings = Vec::new();
    thread::scope(|scope| {
        for mut pair in pairs {
            let (sender, shared) = (sender.clone(), &shared);
            scope.spawn(move || {
                while let Some(seed) = shared.take() {
                    if sender.send(shared.sequence(&mut pair, seed)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        for finding in results {
            findings.push(finding);
            progress(&format!("sequence {} of {}", findings.len(), plan.sequences));
        }
    });
    let mut findings = findings.into_iter().collect::<Result<Vec<_>, _>>()?;
    findings.sort_by_key(|(seed, _)| *seed);
    for (_, finding) in findings {
        report.add_sequence(finding);
    }
    Ok(())
}

impl Shared<'_> {
    fn take(&self) -> Option<u64> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        (number < self.plan.sequences).then(|| self.plan.seed.wrapping_add(number as u64))
    }

    fn sequence(&self, pair: &mut Pair, seed: u64) -> Result<(u64, Finding), Error> {
        let mut sequence = generate::sequence(&self.kinds, seed);
        let mut outcome = self.attempt(pair, &sequence, seed, 0)?;
        let requests = outcome.requests;
        if !outcome.differences.is_empty() && self.shrunk.fetch_add(1, Ordering::Relaxed) < SHRUNK {
            (sequence, outcome) = self.shrink(pair, sequence, outcome, seed)?;
        }
        let steps = if outcome.differences.is_empty() {
            Vec::new()
        } else {
            sequence.middle.iter().map(Step::shown).collect()
        };
        // What follows the first difference follows from it.
        let first = first_difference(&outcome);
        outcome.differences.retain(|difference| difference.index == first);
        // Sequences expect nothing of the real server, so there is nothing to complain about.
        outcome.complaints.clear();
        Ok((
            seed,
            Finding {
                requests,
                steps,
                ..Finding::new(format!("sequence/{seed}"), outcome)
            },
        ))
    }

    /// Every attempt has a namespace of its own: nothing ends the life of a namespace on a server without controllers.
    fn attempt(&self, pair: &mut Pair, sequence: &Sequence, seed: u64, attempt: usize) -> Result<Outcome, Error> {
        let namespace = format!("seq-{seed}-{attempt}");
        let mut steps = sequence.start.clone();
        steps.extend(sequence.middle.iter().cloned());
        steps.extend(sequence.end.iter().cloned());
        let case = Case {
            name: namespace.clone(),
            namespace: true,
            steps,
        };
        let mut outcome = pair.case(&case, &namespace)?;
        let mut accepted = self.accepted.lock().unwrap_or_else(PoisonError::into_inner);
        outcome
            .differences
            .retain(|difference| !accepted.covers(&format!("sequence/{seed}"), difference));
        Ok(outcome)
    }

    /// Takes steps away, in halves, quarters and so on down to single ones, as long as something still differs.
    fn shrink(
        &self,
        pair: &mut Pair,
        mut sequence: Sequence,
        mut outcome: Outcome,
        seed: u64,
    ) -> Result<(Sequence, Outcome), Error> {
        let mut runs = 0;
        let first = first_difference(&outcome);
        if let Some(length) = first
            .checked_sub(sequence.start.len())
            .filter(|length| *length <= sequence.middle.len())
        {
            sequence.middle.truncate(length);
            sequence.end.clear();
        }
        let mut chunk = sequence.middle.len().div_ceil(2).max(1);
        loop {
            let mut from = sequence.middle.len();
            while from > 0 && runs < SHRINKING_RUNS {
                from = from.saturating_sub(chunk);
                let mut candidate = sequence.clone();
                candidate.middle.drain(from..(from + chunk).min(sequence.middle.len()));
                runs += 1;
                let result = self.attempt(pair, &candidate, seed, runs)?;
                if !result.differences.is_empty() {
                    (sequence, outcome) = (candidate, result);
                }
            }
            if chunk == 1 || runs >= SHRINKING_RUNS {
                return Ok((sequence, outcome));
            }
            chunk /= 2;
        }
    }
}

/// The number of the first step that differs.
fn first_difference(outcome: &Outcome) -> usize {
    outcome
        .differences
        .iter()
        .map(|difference| difference.index)
        .min()
        .unwrap_or_default()
}

//! The engine: carries on what the journal says was asked, one instruction at a time, and undoes it all if the node does not come
//! back in time. It keeps nothing in memory that matters: dropped between any two calls, or within one, the next call goes on
//! from the journal. What the instructions are is in `steps`.

mod journals;

use std::time::Duration;

use afloat_api::Reason;
use afloat_api::node::{NodePlan, StepOutcome, StepReport, exit, steps as names};
use jiff::Timestamp;

use crate::host::{Host, HostError, UnitOrder};
use crate::instruction::{Context, Instruction, LOOK, Ran, Waiting, first_unwell, tried};
use crate::journal::{Entry, Journal, JournalError, StepState};
use crate::paths;
use crate::steps::{self, Program, stage, stand_aside};

/// How often an instruction that did not work is tried again.
const RETRIES: u32 = 3;
/// The same for an undoing that the host began by itself: nobody else is there to try it again.
const RETRIES_UNASKED: u32 = 30;
/// Between two tries where no step container decides it.
const BETWEEN_TRIES: Duration = Duration::from_secs(5);
/// How often a node that stands aside looks at whom it forwards to while nothing else happens.
const ASIDE: Duration = Duration::from_secs(2);

/// When the engine wants to be called again.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Next {
    Again {
        after: Duration,
        waiting: Option<Waiting>,
    },
    /// Only when something is asked for.
    Idle,
}

/// How a step is.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Followed {
    Running { message: String },
    Ended { exit_code: i32, report: StepReport },
}

/// Why the engine cannot go on.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum EngineError {
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error(transparent)]
    Host(#[from] HostError),
    #[error(
        "attempt {attempt} of upgrade {upgrade} has changed this node and was neither finished nor undone: \
         help: afloat rollback the node first"
    )]
    Unfinished { upgrade: String, attempt: i32 },
    #[error(
        "attempt {attempt} of upgrade {upgrade} is over on this node, and another has begun since: nothing was done"
    )]
    Superseded { upgrade: String, attempt: i32 },
}

impl EngineError {
    /// Whether the machine itself went away; only a simulated one says so.
    pub fn is_crash(&self) -> bool {
        matches!(
            self,
            Self::Host(HostError::Crashed) | Self::Journal(JournalError::Host(HostError::Crashed))
        )
    }
}

/// The engine of a machine; what it holds is only a copy of the journal, read anew when the file is another one.
#[derive(Clone, Debug, Default)]
pub struct Engine {
    journal: Option<Journal>,
}

const AT_ONCE: Next = Next::Again {
    after: Duration::ZERO,
    waiting: None,
};

impl Engine {
    /// Asks for a step. Asking again is fine; after `LATER` it is what makes it go on.
    pub fn begin(
        &mut self,
        host: &mut dyn Host,
        plan: &NodePlan,
        step: &str,
        now: Timestamp,
    ) -> Result<(), EngineError> {
        if step == names::ROLLBACK {
            return self.begin_rollback(host, plan, now);
        }
        let journal = self.journal_of(host, plan, false)?;
        let open = match journal.step(step).and_then(|state| state.ended.as_ref()) {
            Some((code, _)) => *code == exit::LATER,
            None => journal.step(step).is_none_or(|state| state.begun == 0),
        };
        if open && journal.undoing().is_none() {
            begun(host, journal, step, now, None)?;
        }
        start_unit(host)
    }

    /// Asks for everything to be undone.
    pub fn begin_rollback(&mut self, host: &mut dyn Host, plan: &NodePlan, now: Timestamp) -> Result<(), EngineError> {
        let journal = self.journal_of(host, plan, true)?;
        let open = match journal.undoing().map(|state| &state.ended) {
            None => true,
            Some(None) => false,
            Some(Some((code, _))) => *code != exit::DONE,
        };
        if open {
            begun(host, journal, names::ROLLBACK, now, None)?;
        }
        start_unit(host)
    }

    /// How a step is, as far as the journal says.
    pub fn follow(&mut self, host: &mut dyn Host, step: &str) -> Result<Followed, EngineError> {
        let Some(journal) = self.load(host)? else {
            return Ok(Followed::Running {
                message: "waits for the journal".to_owned(),
            });
        };
        if let Some(undoing) = journal.undoing()
            && step != names::ROLLBACK
        {
            let Some((code, report)) = &undoing.ended else {
                return Ok(Followed::Running {
                    message: format!("undoes everything: {}", doing(undoing)),
                });
            };
            let undone = *code == exit::DONE;
            return Ok(Followed::Ended {
                exit_code: if undone { exit::UNDONE } else { exit::FAILED },
                report: StepReport {
                    outcome: if undone {
                        StepOutcome::Undone
                    } else {
                        StepOutcome::Failed
                    },
                    reason: Some(
                        if undone {
                            Reason::UndoneByHost
                        } else {
                            Reason::RollbackFailed
                        }
                        .to_string(),
                    ),
                    message: report.message.clone(),
                    ..StepReport::default()
                },
            });
        }
        Ok(match journal.step(step) {
            Some(state) => match &state.ended {
                Some((exit_code, report)) => Followed::Ended {
                    exit_code: *exit_code,
                    report: report.clone(),
                },
                None => Followed::Running { message: doing(state) },
            },
            None => Followed::Running {
                message: "was not begun".to_owned(),
            },
        })
    }

    /// The journal, if there is one.
    pub fn journal(&mut self, host: &mut dyn Host) -> Result<Option<&Journal>, EngineError> {
        Ok(self.load(host)?.map(|journal| &*journal))
    }

    /// Carries on by one instruction. `now` goes on evenly for as long as the machine runs; only a boot may find another clock.
    pub fn advance(&mut self, host: &mut dyn Host, now: Timestamp) -> Result<Next, EngineError> {
        let Some(journal) = self.load(host)? else {
            return Ok(Next::Idle);
        };
        let aside = journal.facts.get("aside").map(String::as_str) == Some("yes");
        let undoing = journal.undoing().cloned();
        if undoing.as_ref().is_some_and(StepState::succeeded) {
            // The last thing that is left of the attempt; done by what is there, so a crash here is made good.
            stage::remove_unit(host)?;
            return Ok(Next::Idle);
        }
        note_boot(host, journal, now)?;
        let stays = if aside {
            stand_aside::stay_aside(host, &journal.plan)
        } else {
            Ok(())
        };
        match stays {
            // Nobody has taken the node away: what is sent here is served, or the step waits.
            Err(error) if journal.armed.is_none() && undoing.is_none() => return Err(error.into()),
            Err(HostError::Crashed) => return Err(HostError::Crashed.into()),
            // One that is away comes back all the same, or is put back: a kernel without address translation must not keep it from that.
            Err(_) | Ok(()) => {}
        }
        if undoing.is_none() && time_is_up(journal, now) {
            return dead_man(host, journal, now);
        }
        if let Some((step, _)) = journal.running() {
            let step = step.clone();
            return carry_on(host, journal, &step, now);
        }
        let until_deadline = journal.undo_at().filter(|_| undoing.is_none());
        let until_deadline = until_deadline.map(|at| until(at, now));
        let next = [until_deadline, aside.then_some(ASIDE)].into_iter().flatten().min();
        Ok(next.map_or(Next::Idle, |after| Next::Again { after, waiting: None }))
    }
}

fn start_unit(host: &mut dyn Host) -> Result<(), EngineError> {
    if host.size(paths::UNIT_FILE)?.is_some() {
        host.order(paths::UNIT, UnitOrder::Start)?;
    }
    Ok(())
}

fn begun(
    host: &mut dyn Host,
    journal: &mut Journal,
    step: &str,
    now: Timestamp,
    unasked: Option<String>,
) -> Result<(), EngineError> {
    let entry = Entry::Begun {
        step: step.to_owned(),
        at: now,
        unasked,
    };
    Ok(journal.add(host, &entry)?)
}

/// What a step is at, for people.
pub fn doing(state: &StepState) -> String {
    let intent = state.intent.as_ref();
    intent.map_or_else(|| "goes on".to_owned(), |(what, _)| what.clone())
}

/// Writes down that the machine was started since: what it is given time for begins then.
fn note_boot(host: &mut dyn Host, journal: &mut Journal, now: Timestamp) -> Result<(), EngineError> {
    if journal.running().is_none() && journal.armed.is_none() {
        return Ok(());
    }
    let id = match host.boot() {
        Ok(id) => Some(id),
        Err(HostError::Crashed) => return Err(HostError::Crashed.into()),
        // What cannot be told from the boot before is no other one; it is asked for again with the next instruction.
        Err(_) => journal.boot.clone(),
    };
    let Some(id) = id else { return Ok(()) };
    if journal.boot.as_ref() == Some(&id) {
        return Ok(());
    }
    Ok(journal.add(host, &Entry::Booted { id, at: now })?)
}

fn time_is_up(journal: &Journal, now: Timestamp) -> bool {
    journal.undo_at().is_some_and(|deadline| now >= deadline)
}

fn until(at: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(at.duration_since(now)).unwrap_or(Duration::ZERO)
}

/// The time is up: a node that is well gets it anew, any other is put back.
fn dead_man(host: &mut dyn Host, journal: &mut Journal, now: Timestamp) -> Result<Next, EngineError> {
    match first_unwell(host, &journal.plan)? {
        None => journal.add(host, &Entry::Alive { at: now })?,
        Some(endpoint) => {
            let seconds = journal.plan.undo_after_seconds;
            let why = format!("{} did not come back within {seconds} seconds", endpoint.word());
            begun(host, journal, names::ROLLBACK, now, Some(why))?;
        }
    }
    Ok(AT_ONCE)
}

/// One instruction of a step.
fn carry_on(host: &mut dyn Host, journal: &mut Journal, step: &str, now: Timestamp) -> Result<Next, EngineError> {
    let program = match steps::program(step, journal) {
        Program::Instructions(program) => program,
        Program::Skipped(why) => return end_skipped(host, journal, step, why.to_owned()),
        Program::Unknown => {
            let message = format!("there is no step {step}");
            return fail(host, journal, step, now, Reason::StepFailed, message);
        }
    };
    let number = journal.step(step).map_or(0, |state| state.done);
    let Some(instruction) = program.get(number) else {
        let report = steps::report(step, journal);
        return end(host, journal, step, exit::DONE, report);
    };
    if let Some((what, _)) = journal.step(step).and_then(|state| state.intent.as_ref()) {
        if *what != instruction.what() {
            let message = format!("the journal was written by another version of afloat: it {what}");
            return fail(host, journal, step, now, Reason::StepFailed, message);
        }
    } else if instruction.has_intent() {
        intend(host, journal, step, number, instruction, now)?;
    }
    let ran = run(host, journal, step, instruction, now)?;
    take(host, journal, (step, number), ran, now)
}

fn intend(
    host: &mut dyn Host,
    journal: &mut Journal,
    step: &str,
    number: usize,
    instruction: &Instruction,
    now: Timestamp,
) -> Result<(), EngineError> {
    let disrupts = instruction.disrupts();
    // The time runs from when the node was last known to be well.
    if disrupts && journal.armed.is_some() && first_unwell(host, &journal.plan)?.is_none() {
        journal.add(host, &Entry::Alive { at: now })?;
    }
    let entry = Entry::Intent {
        step: step.to_owned(),
        number,
        what: instruction.what(),
        at: now,
        disrupts,
    };
    Ok(journal.add(host, &entry)?)
}

fn run(
    host: &mut dyn Host,
    journal: &Journal,
    step: &str,
    instruction: &Instruction,
    now: Timestamp,
) -> Result<Ran, EngineError> {
    let new = StepState::default();
    let state = journal.step(step).unwrap_or(&new);
    let mut context = Context {
        host,
        journal,
        step,
        since: journal.waited_since(state.intent.as_ref().map_or(now, |(_, since)| *since)),
        state,
        now,
    };
    Ok(instruction.run(&mut context).or_else(tried)?)
}

fn take(
    host: &mut dyn Host,
    journal: &mut Journal,
    (step, number): (&str, usize),
    ran: Ran,
    now: Timestamp,
) -> Result<Next, EngineError> {
    let done = |kept, fact: Option<(&'static str, String)>| Entry::Done {
        step: step.to_owned(),
        number,
        kept,
        fact: fact.map(|(name, value)| (name.to_owned(), value)),
    };
    match ran {
        Ran::Done => journal.add(host, &done(Vec::new(), None))?,
        Ran::Found { fact } => journal.add(host, &done(Vec::new(), Some(fact)))?,
        Ran::Kept { kept, fact } => journal.add(host, &done(kept, fact))?,
        Ran::Wait(waiting) => {
            return Ok(Next::Again {
                after: LOOK,
                waiting: Some(waiting),
            });
        }
        Ran::Seen { open } => {
            let (step, at) = (step.to_owned(), Some(now));
            journal.add(host, &Entry::Seen { step, open, at })?;
            return Ok(Next::Again {
                after: LOOK,
                waiting: None,
            });
        }
        Ran::Later { reason, message } => {
            let report = StepReport {
                outcome: StepOutcome::Later,
                message,
                reason: Some(reason.to_string()),
                method: None,
            };
            return end(host, journal, step, exit::LATER, report);
        }
        Ran::Tried(message) => return try_again(host, journal, step, now, message),
        Ran::Failed { reason, message } => return fail(host, journal, step, now, reason, message),
        Ran::Skip(why) => return end_skipped(host, journal, step, why),
    }
    Ok(AT_ONCE)
}

fn end(
    host: &mut dyn Host,
    journal: &mut Journal,
    step: &str,
    exit_code: i32,
    report: StepReport,
) -> Result<Next, EngineError> {
    let entry = Entry::Ended {
        step: step.to_owned(),
        exit_code,
        report,
    };
    journal.add(host, &entry)?;
    Ok(AT_ONCE)
}

fn end_skipped(host: &mut dyn Host, journal: &mut Journal, step: &str, why: String) -> Result<Next, EngineError> {
    let report = StepReport {
        outcome: StepOutcome::Skipped,
        message: why,
        ..StepReport::default()
    };
    end(host, journal, step, exit::DONE, report)
}

/// A node whose parts are down cannot start a step container again: only the host itself can go on.
fn is_away(host: &mut dyn Host, journal: &Journal) -> Result<bool, EngineError> {
    Ok(journal.armed.is_some() && first_unwell(host, &journal.plan)?.is_some())
}

fn try_again(
    host: &mut dyn Host,
    journal: &mut Journal,
    step: &str,
    now: Timestamp,
    message: String,
) -> Result<Next, EngineError> {
    let entry = Entry::Tried {
        step: step.to_owned(),
        message: message.clone(),
    };
    journal.add(host, &entry)?;
    let state = journal.step(step).cloned().unwrap_or_default();
    let retries = if state.unasked.is_some() {
        RETRIES_UNASKED
    } else {
        RETRIES
    };
    if state.tries > retries {
        let reason = if step == names::ROLLBACK {
            Reason::RollbackFailed
        } else {
            Reason::StepFailed
        };
        return fail(host, journal, step, now, reason, message);
    }
    if state.unasked.is_some() || is_away(host, journal)? {
        let reason = Reason::WaitingForStep;
        return Ok(Next::Again {
            after: BETWEEN_TRIES,
            waiting: Some(Waiting { reason, message }),
        });
    }
    let report = StepReport {
        outcome: StepOutcome::Later,
        message,
        reason: Some(Reason::WaitingForStep.to_string()),
        ..StepReport::default()
    };
    end(host, journal, step, exit::LATER, report)
}

/// The step will not work. If it took the node away, the host puts it back at once: waiting would change nothing.
fn fail(
    host: &mut dyn Host,
    journal: &mut Journal,
    step: &str,
    now: Timestamp,
    reason: Reason,
    message: String,
) -> Result<Next, EngineError> {
    if step != names::ROLLBACK && is_away(host, journal)? {
        begun(host, journal, names::ROLLBACK, now, Some(message))?;
        return Ok(AT_ONCE);
    }
    let report = StepReport {
        outcome: StepOutcome::Failed,
        message,
        reason: Some(reason.to_string()),
        ..StepReport::default()
    };
    end(host, journal, step, exit::FAILED, report)
}

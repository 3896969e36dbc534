//! Who calls the engine on a real machine. A step container asks for its step and follows it; the unit on the host carries it out, so
//! that it goes on when runtime, kubelet and container are gone. Only staging is carried out by its container: the bundle is there.

use std::thread;
use std::time::{Duration, Instant};

use afloat_api::Reason;
use afloat_api::node::{NodePlan, StepOutcome, StepReport, exit, steps};

use crate::engine::{Engine, EngineError, Followed, Next, doing};
use crate::host::{Host as _, UnitOrder};
use crate::journal::JournalError;
use crate::paths;
use crate::real::RealHost;

/// Between two looks at the journal.
const LOOK: Duration = Duration::from_millis(200);
/// How often the unit is seen to: one that ended a moment before it was asked for something is started again.
const ASK_AGAIN: Duration = Duration::from_secs(5);
/// How long a container follows a step before it starts anew; the step goes on meanwhile.
const FOLLOW: Duration = Duration::from_hours(1);
/// How often the unit of an undoing that has ended is looked for.
const LEAVE: u32 = 50;
/// What the kubelet takes of a termination message.
const LONGEST_MESSAGE: usize = 4096;

/// Asks for a step and follows it to its end; whatever changes on the way is told.
pub fn step(host: &mut RealHost, plan: &NodePlan, step: &str, tell: &mut dyn FnMut(&str)) -> (i32, StepReport) {
    match follow(host, plan, step, tell) {
        Ok(ended) => ended,
        Err(error) => {
            // A machine that cannot be worked on now may be later; a journal in the way stays there.
            let (code, outcome) = match error {
                EngineError::Host(_) | EngineError::Journal(JournalError::Host(_)) => (exit::LATER, StepOutcome::Later),
                _ => (exit::FAILED, StepOutcome::Failed),
            };
            let report = StepReport {
                outcome,
                message: error.to_string(),
                reason: Some(Reason::StepFailed.to_string()),
                ..StepReport::default()
            };
            (code, report)
        }
    }
}

fn follow(
    host: &mut RealHost,
    plan: &NodePlan,
    step: &str,
    tell: &mut dyn FnMut(&str),
) -> Result<(i32, StepReport), EngineError> {
    let mut engine = Engine::default();
    let mut told = String::new();
    let mut asked = None;
    let mut leaving = 0;
    let until = Instant::now() + FOLLOW;
    while Instant::now() < until {
        if asked.is_none_or(|at: Instant| at.elapsed() >= ASK_AGAIN) {
            let _turn = host.turn()?;
            if asked.is_none() {
                let now = host.now()?;
                engine.begin(host, plan, step, now)?;
            } else if has_unit(host)? {
                host.order(paths::UNIT, UnitOrder::Start)?;
            }
            asked = Some(Instant::now());
        }
        match engine.follow(host, step)? {
            // The last thing an undoing does is to take its own unit away.
            Followed::Ended { exit_code, .. }
                if step == steps::ROLLBACK && exit_code == exit::DONE && leaving < LEAVE && has_unit(host)? =>
            {
                leaving += 1;
            }
            Followed::Ended { exit_code, report } => return Ok((exit_code, report)),
            Followed::Running { message } if message != told => {
                tell(&message);
                told = message;
            }
            Followed::Running { .. } => {}
        }
        if is_ours(host, step)? {
            let _turn = host.turn()?;
            let now = host.now()?;
            if let Next::Again { after, .. } = engine.advance(host, now)? {
                thread::sleep(after.min(LOOK));
                continue;
            }
        }
        thread::sleep(LOOK);
    }
    let message = format!("{told}: still going on; it is followed anew");
    Ok((
        exit::LATER,
        StepReport {
            outcome: StepOutcome::Later,
            message,
            reason: Some(Reason::WaitingForStep.to_string()),
            ..StepReport::default()
        },
    ))
}

/// Whether whoever asked has to carry the step out as well.
fn is_ours(host: &mut RealHost, step: &str) -> Result<bool, EngineError> {
    Ok(step == steps::STAGE || !has_unit(host)?)
}

fn has_unit(host: &mut RealHost) -> Result<bool, EngineError> {
    Ok(host.size(paths::UNIT_FILE)?.is_some())
}

/// Carries on until there is nothing to do; what the unit on the host runs.
pub fn engine(host: &mut RealHost, tell: &mut dyn FnMut(&str)) -> Result<(), EngineError> {
    let mut engine = Engine::default();
    let mut told = (String::new(), String::new());
    loop {
        let next = {
            let _turn = host.turn()?;
            let journal = engine.journal(host)?;
            let running =
                journal.and_then(|journal| journal.running().map(|(step, state)| (step.clone(), doing(state))));
            match running {
                // Its container carries staging out, and asks for this unit again afterwards.
                Some((step, _)) if step == steps::STAGE => return Ok(()),
                Some((step, does)) if told != (step.clone(), does.clone()) => {
                    tell(&format!("{step}: {does}"));
                    told = (step, does);
                }
                _ => {}
            }
            let now = host.now()?;
            engine.advance(host, now)?
        };
        match next {
            Next::Idle => return Ok(()),
            Next::Again { after, .. } => wait(host, after)?,
        }
    }
}

/// So long, or until something is asked for.
fn wait(host: &mut RealHost, time: Duration) -> Result<(), EngineError> {
    let until = Instant::now() + time;
    let before = host.size(paths::JOURNAL)?;
    while let Some(left) = until.checked_duration_since(Instant::now()) {
        thread::sleep(left.min(LOOK));
        if host.size(paths::JOURNAL)? != before {
            break;
        }
    }
    Ok(())
}

/// A report as a termination message: whole JSON, whatever is too long in it cut.
pub fn termination_message(report: &StepReport) -> String {
    let mut report = report.clone();
    loop {
        let text = serde_json::to_string(&report).unwrap_or_default();
        let Some(over) = text.len().checked_sub(LONGEST_MESSAGE).filter(|over| *over > 0) else {
            return text;
        };
        // Each byte of the message is at least one of the text.
        let longest = [Some(&mut report.message), report.method.as_mut()];
        let Some(longest) = longest.into_iter().flatten().max_by_key(|text| text.len()) else {
            return String::new();
        };
        // At most half at once: there may be another that is as long.
        let mut keep = longest.len().saturating_sub((over + 3).min(longest.len() / 2).max(1));
        while !longest.is_char_boundary(keep) {
            keep -= 1;
        }
        longest.truncate(keep);
        if !longest.is_empty() {
            longest.push('…');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p24_a_termination_message_fits_and_stays_json() {
        let short = StepReport {
            message: "done".to_owned(),
            ..StepReport::default()
        };
        assert_eq!(termination_message(&short), r#"{"outcome":"Done","message":"done"}"#);
        for part in ["ä\"\n", "x", "日本"] {
            let report = StepReport {
                message: part.repeat(3000),
                method: Some(part.repeat(2000)),
                reason: Some("StepFailed".to_owned()),
                ..StepReport::default()
            };
            let text = termination_message(&report);
            assert!(text.len() <= LONGEST_MESSAGE, "{}", text.len());
            let read: StepReport = serde_json::from_str(&text).unwrap();
            assert_eq!(read.reason.as_deref(), Some("StepFailed"));
            assert!(read.message.ends_with('…') && !read.message.is_empty());
        }
    }
}

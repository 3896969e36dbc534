//! Turns: a subject is decided on, its actions carried out one request at a time, each at its own moment, and what came of
//! it decides when the subject is looked at again.

use afloat_core::action::Action;
use afloat_core::view::Revision;
use afloat_core::{Subject, decide};
use jiff::SignedDuration;

use super::execute::Executor;
use super::{OperatorEvent, TURNS, Turn, feed};
use crate::faults::RequestFault;
use crate::rules::Seen;
use crate::store::{KindName, Refused, Writer};
use crate::time::{MINUTE, Millis, SECOND, millis, stamp};
use crate::world::{Event, World};

/// How long after a change it is decided what follows from it, at most: what comes in between is decided on at once.
const SOON: Millis = 20;

impl World {
    /// Decides a little later on what has queued up.
    pub(super) fn plan_turns(&mut self, index: usize) {
        let operator = &self.operators[index];
        if operator.turns_planned || operator.queue.is_empty() || !operator.alive {
            return;
        }
        let incarnation = operator.incarnation;
        self.operators[index].turns_planned = true;
        let after = self.some(0, SOON);
        self.later(after, Event::Operator(index, incarnation, OperatorEvent::Turns));
    }

    pub(super) fn begin_turns(&mut self, index: usize) {
        loop {
            let operator = &mut self.operators[index];
            if operator.turns.len() >= TURNS {
                return;
            }
            let next = operator
                .queue
                .iter()
                .find(|subject| !operator.turns.contains_key(*subject))
                .cloned();
            let Some(subject) = next else { return };
            operator.queue.remove(&subject);
            self.begin_turn(index, subject);
        }
    }

    fn begin_turn(&mut self, index: usize, subject: Subject) {
        let skewed = SignedDuration::from_millis(if index == 0 { self.plan.skew } else { 0 });
        let now = stamp(self.now).checked_add(skewed).unwrap_or_else(|_| stamp(self.now));
        let operator = &mut self.operators[index];
        let distorted = operator.bug.and_then(|bug| bug.distort_view(&operator.view));
        let view = distorted.as_ref().unwrap_or(&operator.view);
        let mut decision = decide(view, &subject, now);
        self.decisions += 1;
        if let Some(bug) = operator.bug {
            bug.distort_decision(&mut decision, &operator.view, &mut self.rng);
        }
        operator.again.remove(&subject);
        match decision.nodes_since {
            Some(since) => {
                operator.unsure.insert(subject.clone(), since);
            }
            None => {
                operator.unsure.remove(&subject);
            }
        }
        if let Some(at) = decision.again {
            let real = at.checked_sub(skewed).unwrap_or(at);
            let at = millis(real).max(self.now + 1);
            operator.again.insert(subject.clone(), at);
            let incarnation = operator.incarnation;
            self.queue.push(
                at,
                Event::Operator(index, incarnation, OperatorEvent::Again(subject.clone())),
            );
        }
        if decision.nodes_since.is_some() {
            let after = self.some(2, self.plan.latency.max(3));
            self.plan_roll_call(index, after);
        }
        if decision.actions.is_empty() {
            self.operators[index].failures.remove(&subject);
            return;
        }
        let seen = self.seen(index);
        let turn = Turn {
            actions: decision.actions.into(),
            seen,
        };
        self.operators[index].turns.insert(subject.clone(), turn);
        self.act_later(index, subject);
    }

    fn plan_roll_call(&mut self, index: usize, after: Millis) {
        let operator = &mut self.operators[index];
        if !std::mem::replace(&mut operator.roll_call_planned, true) {
            let incarnation = operator.incarnation;
            self.later(after, Event::Operator(index, incarnation, OperatorEvent::RollCall));
        }
    }

    /// As the real loop: asked again for as long as somebody waits for it.
    pub(super) fn call_roll(&mut self, index: usize) {
        self.operators[index].roll_call_planned = false;
        if self.operators[index].unsure.is_empty() {
            return;
        }
        if self.api_serves() {
            self.operators[index].roll_called = Some(self.store.revision());
            self.judge_roll_call(index);
            self.plan_turns(index);
        }
        self.plan_roll_call(index, SECOND);
    }

    /// What is seen is as of the roll call once the watch of nodes has told all that had happened by then.
    pub(super) fn judge_roll_call(&mut self, index: usize) {
        let operator = &mut self.operators[index];
        let told = operator.cursors[KindName::Node.index()];
        let heard = |at: &mut u64| told >= feed::length_at(&self.store, KindName::Node, *at);
        if let Some(at) = operator.roll_called.take_if(heard) {
            operator.view.nodes_as_of = operator.view.nodes_as_of.max(Revision(at));
        }
        let as_of = operator.view.nodes_as_of;
        let sure = operator.unsure.extract_if(.., |_, since| *since <= as_of);
        operator.queue.extend(sure.map(|(subject, _)| subject));
    }

    fn seen(&self, index: usize) -> Seen {
        let operator = &self.operators[index];
        let cursors = &operator.cursors;
        let newest = operator.view.nodes.values().map(|node| node.revision.0).max();
        let mut seen = Seen {
            newest_node: newest.unwrap_or_default(),
            ..Seen::default()
        };
        for kind in KindName::ALL {
            seen.revisions[kind.index()] = feed::revision_at(&self.store, kind, cursors[kind.index()]);
        }
        seen
    }

    fn act_later(&mut self, index: usize, subject: Subject) {
        let after = self.some(2, self.plan.latency.max(3));
        let incarnation = self.operators[index].incarnation;
        self.later(after, Event::Operator(index, incarnation, OperatorEvent::Act(subject)));
    }

    /// One request.
    pub(super) fn act_on(&mut self, index: usize, subject: &Subject) {
        let Some(turn) = self.operators[index].turns.get_mut(subject) else {
            return;
        };
        let Some(action) = turn.actions.pop_front() else {
            self.end_turn(index, subject, None);
            return;
        };
        let seen = turn.seen.clone();
        let fault = if self.calm {
            None
        } else {
            self.plan.of_request(self.requests)
        };
        self.requests += 1;
        if !self.api_serves() {
            self.end_turn(index, subject, Some(Refused::Unavailable));
            return;
        }
        if let Some(RequestFault::Refuse(refused)) = fault {
            let evicted = matches!(action, Action::Evict { .. }) && refused == Refused::TooManyRequests;
            if !evicted {
                self.end_turn(index, subject, Some(refused));
                return;
            }
        }
        let writer = Writer::Operator(u8::try_from(index).unwrap_or_default());
        let bug = self.operators[index].bug;
        self.rules.about_to(&action, &seen, self.now);
        let mut executor = Executor {
            store: &mut self.store,
            writer,
            bug,
        };
        let verb = action.name();
        let result = executor.execute(action);
        if result.as_ref().err() == Some(&Refused::Invalid) {
            self.rules
                .breaks(0, format!("{verb} is refused as invalid, and will be for ever"));
        }
        self.settle();
        match (fault, result) {
            (Some(RequestFault::CrashAfter { back }), Ok(_)) => self.crash_operator(index, back),
            (Some(RequestFault::ReplyLost), Ok(_)) => self.end_turn(index, subject, Some(Refused::Unavailable)),
            (_, Ok(answer)) => {
                // A crash within `settle` (its own pod was evicted) ends the turn too.
                let operator = &mut self.operators[index];
                if !operator.alive {
                    return;
                }
                let changed = feed::take_answer(&mut operator.view, &answer);
                self.take_changes(index, changed.as_slice());
                let operator = &mut self.operators[index];
                let more = operator.turns.get(subject).is_some_and(|turn| !turn.actions.is_empty());
                if more {
                    self.act_later(index, subject.clone());
                } else {
                    self.end_turn(index, subject, None);
                }
            }
            (_, Err(refused)) => self.end_turn(index, subject, Some(refused)),
        }
    }

    /// A turn ends; a refused one is decided anew, a little later each time.
    fn end_turn(&mut self, index: usize, subject: &Subject, refused: Option<Refused>) {
        let operator = &mut self.operators[index];
        operator.turns.remove(subject);
        if refused.is_none() {
            // What follows from its writes is decided when they are seen: in the answers at once, or by the watches.
            operator.failures.remove(subject);
        } else {
            let failures = operator.failures.entry(subject.clone()).or_default();
            *failures += 1;
            let wait = (200 << (*failures).min(9)).min(MINUTE);
            let at = self.now + wait;
            operator.again.insert(subject.clone(), at);
            let incarnation = operator.incarnation;
            let again = OperatorEvent::Again(subject.clone());
            self.queue.push(at, Event::Operator(index, incarnation, again));
        }
        self.plan_turns(index);
    }
}

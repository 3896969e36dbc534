//! Runs actors against an API server: takes in what the watches say, lets each actor decide, sends what it decided,
//! takes the answers in at once. One task; requests are concurrent within bounds, decisions never are.

use crate::actor::{Actor, Turn};
use crate::clock::{Clock, Timings};
use crate::feed::{Feed, Intake};
use crate::object::{Kind, Object, ObjectRef};
use crate::queue::Queue;
use crate::request::{Failure, Request, Verb};
use crate::view::{Change, View};
use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use kube::core::TypeMeta;
use std::collections::VecDeque;
use std::time::Duration;

/// Objects one actor may have requests under way for.
const CONCURRENT: usize = 64;
/// A request that takes longer is given up, and decided anew.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// The wait when nothing is due.
const IDLE: Duration = Duration::from_mins(10);

struct Seat {
    actor: Box<dyn Actor>,
    queue: Queue,
    under_way: usize,
}

struct Finished {
    seat: usize,
    item: ObjectRef,
    answers: Vec<(Request, Result<String, Failure>)>,
}

/// The actors of a process and all they know.
pub struct Driver {
    client: kube::Client,
    clock: Clock,
    timings: Timings,
    rng: fastrand::Rng,
    view: View,
    seats: Vec<Seat>,
    under_way: FuturesUnordered<BoxFuture<'static, Finished>>,
}

impl Driver {
    pub fn new(client: kube::Client, clock: Clock, timings: Timings, seed: u64, actors: Vec<Box<dyn Actor>>) -> Self {
        let seats = actors
            .into_iter()
            .map(|actor| Seat {
                actor,
                queue: Queue::default(),
                under_way: 0,
            })
            .collect();
        Self {
            client,
            clock,
            timings,
            rng: fastrand::Rng::with_seed(seed),
            view: View::default(),
            seats,
            under_way: FuturesUnordered::new(),
        }
    }

    /// Runs until the watches end or the future is dropped.
    pub async fn run(mut self, kinds: &[Kind]) {
        let mut feed = Feed::start(&self.client, kinds);
        let mut intake = Intake::default();
        while !intake.complete(kinds) {
            let Some(news) = feed.next().await else { return };
            let changes = intake.take(news, &mut self.view);
            self.tell(changes);
        }
        for seat in &mut self.seats {
            seat.actor.start(&mut seat.queue);
        }
        loop {
            self.work();
            let pause = self.pause();
            tokio::select! {
                biased;
                Some(finished) = self.under_way.next(), if !self.under_way.is_empty() => self.finish(finished),
                news = feed.next() => {
                    let Some(news) = news else { return };
                    let changes = intake.take(news, &mut self.view);
                    self.tell(changes);
                    // A burst is taken in whole before anyone decides: fewer, better decisions.
                    while let Some(news) = feed.ready() {
                        let changes = intake.take(news, &mut self.view);
                        self.tell(changes);
                    }
                }
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    fn pause(&self) -> Duration {
        let due = self
            .seats
            .iter()
            .filter(|seat| seat.under_way < CONCURRENT)
            .filter_map(|seat| seat.queue.next_due())
            .min();
        // Tokio's timer has a resolution of a millisecond: rounding up keeps an early waking from spinning.
        due.map_or(IDLE, |due| self.clock.until(due) + Duration::from_millis(1))
    }

    fn tell(&mut self, changes: impl IntoIterator<Item = Change>) {
        let now = self.clock.now();
        for change in changes {
            for seat in &mut self.seats {
                seat.actor.observe(&change, &self.view, now, &mut seat.queue);
            }
        }
    }

    /// Lets every actor decide about what is due, as long as it has room for requests.
    fn work(&mut self) {
        let now = self.clock.now();
        for (index, seat) in self.seats.iter_mut().enumerate() {
            while seat.under_way < CONCURRENT {
                let Some(item) = seat.queue.take(now) else { break };
                let mut turn = Turn {
                    view: &self.view,
                    now,
                    rng: &mut self.rng,
                    timings: &self.timings,
                };
                let decision = seat.actor.decide(&item, &mut turn);
                if let Some(again) = decision.again {
                    seat.queue.add_at(item.clone(), again);
                }
                if decision.requests.is_empty() {
                    seat.queue.done(&item);
                } else {
                    seat.under_way += 1;
                    let client = self.client.clone();
                    self.under_way
                        .push(Box::pin(carry_out(client, index, item, decision.requests.into())));
                }
            }
        }
    }

    fn finish(&mut self, finished: Finished) {
        let Finished {
            seat: index,
            item,
            answers,
        } = finished;
        let now = self.clock.now();
        let mut failure = None;
        let mut changes = Vec::new();
        for (request, answer) in answers {
            match answer {
                Ok(answer) => changes.extend(take_in(&mut self.view, &request, &answer)),
                Err(refusal) if !request.best_effort => {
                    tracing::debug!(path = request.path(), %refusal, "request refused");
                    failure = Some(refusal);
                }
                Err(_) => {}
            }
        }
        self.tell(changes);
        let Some(seat) = self.seats.get_mut(index) else { return };
        seat.under_way -= 1;
        match failure {
            None => seat.queue.done(&item),
            Some(failure) => {
                if !failure.is_expected() {
                    tracing::warn!(actor = seat.actor.name(), ?item, %failure, "request refused, trying again later");
                }
                seat.actor.refused(&item, &failure);
                seat.queue.failed(&item, now);
            }
        }
    }
}

async fn carry_out(client: kube::Client, seat: usize, item: ObjectRef, mut requests: VecDeque<Request>) -> Finished {
    let mut answers = Vec::with_capacity(requests.len());
    while let Some(request) = requests.pop_front() {
        let answer = tokio::time::timeout(REQUEST_TIMEOUT, request.send(&client))
            .await
            .unwrap_or_else(|_| {
                Err(Failure {
                    code: 0,
                    reason: "TimedOut".into(),
                    message: format!("no answer in {REQUEST_TIMEOUT:?}"),
                })
            });
        let ends = answer.is_err() && !request.best_effort;
        answers.push((request, answer));
        if ends {
            break;
        }
    }
    Finished { seat, item, answers }
}

/// Takes the answer to an own write into the view, so that the next decision knows of it.
fn take_in(view: &mut View, request: &Request, answer: &str) -> Option<Change> {
    let target = request.target()?;
    let (_, kind) = target.kind.type_meta();
    // That to a binding, and to most deletions, is not the object; that to any other write is.
    let is_plain = request.verb != Verb::Delete && matches!(request.subresource, None | Some("status"));
    let is_object = is_plain || serde_json::from_str::<TypeMeta>(answer).is_ok_and(|answer| answer.kind == kind);
    if request.verb == Verb::Delete {
        let parsed = is_object.then(|| target.kind.read(answer)).flatten();
        if let Some(object) = parsed.filter(lingers) {
            return view.apply(object);
        }
        let gone = request.body.as_ref()?["preconditions"]["uid"].as_str()?;
        return view.remove(&target, gone);
    }
    let object = if is_object {
        target.kind.read(answer)?
    } else {
        return None;
    };
    view.apply(object)
}

/// After a deletion the object is still there while its grace or a finalizer holds it.
fn lingers(object: &Object) -> bool {
    let meta = object.meta();
    meta.deletion_timestamp.is_some()
        && (meta.deletion_grace_period_seconds.unwrap_or(0) > 0
            || meta.finalizers.as_ref().is_some_and(|f| !f.is_empty()))
}

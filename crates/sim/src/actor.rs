//! What every simulated actor is: a state machine that maps changes to work and looks at one object at a time,
//! without I/O. A driver feeds it, carries out what it decides and tells it what was refused.

use crate::clock::Timings;
use crate::object::ObjectRef;
use crate::queue::Queue;
use crate::request::{Failure, Request};
use crate::view::{Change, View};
use jiff::Timestamp;

/// What an actor may look at while it decides.
pub struct Turn<'a> {
    pub view: &'a View,
    pub now: Timestamp,
    pub rng: &'a mut fastrand::Rng,
    pub timings: &'a Timings,
}

/// What an actor decided about one object: requests in order, the first refusal ends them.
#[derive(Debug, Default)]
pub struct Decision {
    pub requests: Vec<Request>,
    /// When to look at the object again, whatever happens.
    pub again: Option<Timestamp>,
}

impl Decision {
    pub fn nothing() -> Self {
        Self::default()
    }

    pub fn request(request: Request) -> Self {
        Self {
            requests: vec![request],
            again: None,
        }
    }

    pub fn requests(requests: Vec<Request>) -> Self {
        Self { requests, again: None }
    }

    pub fn at(again: Timestamp) -> Self {
        Self {
            requests: Vec::new(),
            again: Some(again),
        }
    }

    #[must_use]
    pub fn and_at(mut self, again: Option<Timestamp>) -> Self {
        self.again = again;
        self
    }
}

/// A simulated part of the cluster.
pub trait Actor: Send {
    fn name(&self) -> &'static str;

    /// Called once, when everything that exists has been seen.
    fn start(&mut self, _queue: &mut Queue) {}

    /// Marks what has to be looked at because of a change.
    fn observe(&mut self, change: &Change, view: &View, now: Timestamp, queue: &mut Queue);

    /// Decides about one object.
    fn decide(&mut self, item: &ObjectRef, turn: &mut Turn<'_>) -> Decision;

    /// A request was refused; the object is looked at again in any case.
    fn refused(&mut self, _item: &ObjectRef, _failure: &Failure) {}
}

//! The work queue of an actor: which objects to look at, now or at a time, never one twice at once. The rules are
//! those of client-go's work queue; time is an argument.

use crate::clock::after;
use crate::object::ObjectRef;
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

const FIRST_RETRY: Duration = Duration::from_millis(50);
const LONGEST_RETRY: Duration = Duration::from_secs(10);

/// Objects waiting to be looked at.
#[derive(Debug, Default)]
pub struct Queue {
    ready: VecDeque<ObjectRef>,
    queued: BTreeSet<ObjectRef>,
    /// Being worked on; what is added meanwhile waits until that ends.
    working: BTreeMap<ObjectRef, bool>,
    timed: BTreeSet<(Timestamp, ObjectRef)>,
    due: BTreeMap<ObjectRef, Timestamp>,
    failures: BTreeMap<ObjectRef, u32>,
}

impl Queue {
    /// Look at it as soon as possible.
    pub fn add(&mut self, item: ObjectRef) {
        if let Some(again) = self.working.get_mut(&item) {
            *again = true;
        } else if self.queued.insert(item.clone()) {
            self.ready.push_back(item);
        }
    }

    /// Look at it at `moment`, or earlier when an earlier wish stands.
    pub fn add_at(&mut self, item: ObjectRef, moment: Timestamp) {
        if let Some(earlier) = self.due.get(&item) {
            if *earlier <= moment {
                return;
            }
            self.timed.remove(&(*earlier, item.clone()));
        }
        self.due.insert(item.clone(), moment);
        self.timed.insert((moment, item));
    }

    /// Takes the next object to look at.
    pub fn take(&mut self, now: Timestamp) -> Option<ObjectRef> {
        while let Some((moment, _)) = self.timed.first() {
            if *moment > now {
                break;
            }
            if let Some((_, item)) = self.timed.pop_first() {
                self.due.remove(&item);
                self.add(item);
            }
        }
        let item = self.ready.pop_front()?;
        self.queued.remove(&item);
        self.working.insert(item.clone(), false);
        Some(item)
    }

    /// The look ended well.
    pub fn done(&mut self, item: &ObjectRef) {
        self.failures.remove(item);
        self.release(item);
    }

    /// The look ended badly: once more, later each time.
    pub fn failed(&mut self, item: &ObjectRef, now: Timestamp) {
        let failures = self.failures.entry(item.clone()).or_default();
        let delay = FIRST_RETRY.saturating_mul(1 << (*failures).min(10)).min(LONGEST_RETRY);
        *failures += 1;
        self.release(item);
        self.add_at(item.clone(), after(now, delay));
    }

    fn release(&mut self, item: &ObjectRef) {
        if self.working.remove(item) == Some(true) {
            self.add(item.clone());
        }
    }

    /// When the next timed object is due.
    pub fn next_due(&self) -> Option<Timestamp> {
        self.timed.first().map(|(moment, _)| *moment)
    }

    pub fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::{Key, Kind};

    fn item(name: &str) -> ObjectRef {
        ObjectRef::new(Kind::Pod, Key::new("shop", name))
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn one_object_is_never_worked_on_twice_at_once() {
        let mut queue = Queue::default();
        queue.add(item("a"));
        queue.add(item("a"));
        assert_eq!(queue.take(at(0)), Some(item("a")));
        queue.add(item("a"));
        assert_eq!(queue.take(at(0)), None, "still being worked on");
        queue.done(&item("a"));
        assert_eq!(queue.take(at(0)), Some(item("a")), "what came meanwhile is not lost");
        queue.done(&item("a"));
        assert_eq!(queue.take(at(0)), None);
    }

    #[test]
    fn the_earliest_wish_counts() {
        let mut queue = Queue::default();
        queue.add_at(item("a"), at(20));
        queue.add_at(item("a"), at(10));
        queue.add_at(item("a"), at(30));
        assert_eq!(queue.next_due(), Some(at(10)));
        assert_eq!(queue.take(at(9)), None);
        assert_eq!(queue.take(at(10)), Some(item("a")));
        assert_eq!(queue.next_due(), None);
    }

    #[test]
    fn failures_wait_longer_each_time_and_success_forgives() {
        let mut queue = Queue::default();
        queue.add(item("a"));
        let mut now = at(0);
        let mut waits = Vec::new();
        for _ in 0..12 {
            let taken = queue.take(now).unwrap();
            queue.failed(&taken, now);
            let due = queue.next_due().unwrap();
            waits.push(due.duration_since(now).as_millis());
            now = due;
        }
        assert_eq!(waits[..3], [50, 100, 200]);
        assert_eq!(waits[11], 10_000);
        let taken = queue.take(now).unwrap();
        queue.done(&taken);
        assert_eq!(queue.next_due(), None);
    }
}

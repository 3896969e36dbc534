//! Whom to look at, now or at a time, and never one twice at once. A subject waits in it once however often it is named, so
//! that it never grows beyond the number of subjects. Time is an argument.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use jiff::Timestamp;

const FIRST_RETRY: Duration = Duration::from_millis(50);
const LONGEST_RETRY: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub struct Queue<T> {
    ready: VecDeque<T>,
    queued: BTreeSet<T>,
    /// Having their turn; `true` where something came meanwhile.
    working: BTreeMap<T, bool>,
    timed: BTreeSet<(Timestamp, T)>,
    due: BTreeMap<T, Timestamp>,
    /// Whoever was refused waits until then, whatever comes meanwhile: how often in a row, and until when.
    refused: BTreeMap<T, (u32, Timestamp)>,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self {
            ready: VecDeque::new(),
            queued: BTreeSet::new(),
            working: BTreeMap::new(),
            timed: BTreeSet::new(),
            due: BTreeMap::new(),
            refused: BTreeMap::new(),
        }
    }
}

impl<T: Clone + Ord> Queue<T> {
    /// Look at it as soon as it may be.
    pub fn add(&mut self, item: T, now: Timestamp) {
        if let Some(again) = self.working.get_mut(&item) {
            *again = true;
            return;
        }
        match self.refused.get(&item) {
            Some((_, until)) if *until > now => {
                let until = *until;
                self.add_at(item, until);
            }
            _ => {
                if self.queued.insert(item.clone()) {
                    self.ready.push_back(item);
                }
            }
        }
    }

    /// Look at it at `moment`, or earlier where an earlier wish stands.
    pub fn add_at(&mut self, item: T, moment: Timestamp) {
        if let Some(earlier) = self.due.get(&item) {
            if *earlier <= moment {
                return;
            }
            self.timed.remove(&(*earlier, item.clone()));
        }
        self.due.insert(item.clone(), moment);
        self.timed.insert((moment, item));
    }

    /// The next to be looked at; it is not given out again before it is done.
    pub fn take(&mut self, now: Timestamp) -> Option<T> {
        while self.timed.first().is_some_and(|(moment, _)| *moment <= now) {
            if let Some((_, item)) = self.timed.pop_first() {
                self.due.remove(&item);
                self.add(item, now);
            }
        }
        let item = self.ready.pop_front()?;
        self.queued.remove(&item);
        self.working.insert(item.clone(), false);
        Some(item)
    }

    /// The turn ended well.
    pub fn done(&mut self, item: &T, now: Timestamp) {
        self.refused.remove(item);
        self.release(item, now);
    }

    /// The turn ended with a refusal: once more, later each time.
    pub fn refused(&mut self, item: &T, now: Timestamp) {
        let times = self.refused.get(item).map_or(0, |(times, _)| *times);
        let delay = FIRST_RETRY.saturating_mul(1 << times.min(10)).min(LONGEST_RETRY);
        let until = now.saturating_add(delay).unwrap_or(Timestamp::MAX);
        self.refused.insert(item.clone(), (times + 1, until));
        self.release(item, now);
        self.add_at(item.clone(), until);
    }

    fn release(&mut self, item: &T, now: Timestamp) {
        if self.working.remove(item) == Some(true) {
            self.add(item.clone(), now);
        }
    }

    /// When the next one is due that waits for its time.
    pub fn next_due(&self) -> Option<Timestamp> {
        self.timed.first().map(|(moment, _)| *moment)
    }

    /// How many wait to be looked at now.
    pub fn depth(&self) -> usize {
        self.ready.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn one_subject_never_has_two_turns_at_once() {
        let mut queue = Queue::default();
        queue.add("a", at(0));
        queue.add("a", at(0));
        assert_eq!((queue.depth(), queue.take(at(0))), (1, Some("a")));
        queue.add("a", at(0));
        assert_eq!(queue.take(at(0)), None, "still having its turn");
        queue.done(&"a", at(0));
        assert_eq!(queue.take(at(0)), Some("a"), "what came meanwhile is not lost");
        queue.done(&"a", at(0));
        assert_eq!(queue.take(at(0)), None);
    }

    #[test]
    fn the_earliest_wish_counts() {
        let mut queue = Queue::default();
        for second in [20, 10, 30] {
            queue.add_at("a", at(second));
        }
        assert_eq!(queue.next_due(), Some(at(10)));
        assert_eq!(queue.take(at(9)), None);
        assert_eq!(queue.take(at(10)), Some("a"));
        assert_eq!(queue.next_due(), None);
    }

    #[test]
    fn whoever_is_refused_waits_longer_each_time_and_no_news_shortens_it() {
        let mut queue = Queue::default();
        queue.add("a", at(0));
        let (mut now, mut waits) = (at(0), Vec::new());
        for _ in 0..12 {
            let taken = queue.take(now).unwrap();
            queue.refused(&taken, now);
            queue.add("a", now);
            assert_eq!(queue.take(now), None, "not before its time");
            let due = queue.next_due().unwrap();
            waits.push(due.duration_since(now).as_millis());
            now = due;
        }
        assert_eq!((&waits[..3], waits[11]), (&[50, 100, 200][..], 30_000));
        let taken = queue.take(now).unwrap();
        queue.done(&taken, now);
        queue.add("a", now);
        assert_eq!(queue.take(now), Some("a"), "success forgives");
    }
}

//! What happens next: events in the order of their time, those of one time in the order in which they were planned.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use super::time::Millis;

struct Planned<E> {
    at: Millis,
    sequence: u64,
    event: E,
}

impl<E> PartialEq for Planned<E> {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.sequence) == (other.at, other.sequence)
    }
}

impl<E> Eq for Planned<E> {}

impl<E> PartialOrd for Planned<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Planned<E> {
    /// Turned round: the heap gives its greatest, and the earliest is wanted.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.sequence).cmp(&(self.at, self.sequence))
    }
}

/// Events to come.
pub struct Queue<E> {
    heap: BinaryHeap<Planned<E>>,
    sequence: u64,
}

impl<E> Default for Queue<E> {
    fn default() -> Self {
        Self {
            heap: BinaryHeap::new(),
            sequence: 0,
        }
    }
}

impl<E> Queue<E> {
    pub fn push(&mut self, at: Millis, event: E) {
        self.sequence += 1;
        self.heap.push(Planned {
            at,
            sequence: self.sequence,
            event,
        });
    }

    pub fn pop(&mut self) -> Option<(Millis, E)> {
        self.heap.pop().map(|planned| (planned.at, planned.event))
    }

    pub fn next_at(&self) -> Option<Millis> {
        self.heap.peek().map(|planned| planned.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_comes_first_and_equals_in_the_order_of_their_planning() {
        let mut queue = Queue::default();
        for (at, event) in [(5, 'c'), (1, 'a'), (5, 'd'), (2, 'b')] {
            queue.push(at, event);
        }
        let order: String = std::iter::from_fn(|| queue.pop()).map(|(_, event)| event).collect();
        assert_eq!(order, "abcd");
    }
}

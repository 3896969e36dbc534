//! What happens next: events in the order of their time, those of one time in the order in which they were planned.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::time::Millis;

/// Events to come. The heap moves its entries about at every step: they are small, and the events lie still beside it.
pub struct Queue<E> {
    /// Time, number, and place of the event.
    heap: BinaryHeap<Reverse<(Millis, u64, usize)>>,
    events: Vec<Option<E>>,
    free: Vec<usize>,
    sequence: u64,
}

impl<E> Default for Queue<E> {
    fn default() -> Self {
        Self {
            heap: BinaryHeap::new(),
            events: Vec::new(),
            free: Vec::new(),
            sequence: 0,
        }
    }
}

impl<E> Queue<E> {
    pub fn push(&mut self, at: Millis, event: E) {
        self.sequence += 1;
        let place = self.free.pop().unwrap_or_else(|| {
            self.events.push(None);
            self.events.len() - 1
        });
        if let Some(room) = self.events.get_mut(place) {
            *room = Some(event);
        }
        self.heap.push(Reverse((at, self.sequence, place)));
    }

    pub fn pop(&mut self) -> Option<(Millis, E)> {
        let Reverse((at, _, place)) = self.heap.pop()?;
        let event = self.events.get_mut(place)?.take()?;
        self.free.push(place);
        Some((at, event))
    }

    pub fn next_at(&self) -> Option<Millis> {
        self.heap.peek().map(|Reverse((at, _, _))| *at)
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
        assert_eq!(queue.pop(), Some((1, 'a')));
        queue.push(3, 'x');
        let order: String = std::iter::from_fn(|| queue.pop()).map(|(_, event)| event).collect();
        assert_eq!(order, "bxcd");
        assert_eq!((queue.pop(), queue.events.len()), (None, 4));
    }
}

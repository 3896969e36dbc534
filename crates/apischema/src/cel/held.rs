//! Which values have held before, so that rules need not run over them again. Remembered by a mark of 128 bits, not by the values
//! themselves, and only so many of them.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::sync::{Mutex, PoisonError};

/// So many are remembered; then all are forgotten, and those that are still written are soon known again.
const MOST: usize = 8192;

/// What tells a value from all others: two hashes of it, which are the same in every process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Mark(u64, u64);

impl Mark {
    pub fn of(value: &impl Hash) -> Self {
        let half = |salt: u8| {
            let mut hasher = DefaultHasher::new();
            salt.hash(&mut hasher);
            value.hash(&mut hasher);
            hasher.finish()
        };
        Self(half(0), half(1))
    }
}

/// The marks of what has held.
#[derive(Default)]
pub(super) struct Held(Mutex<BTreeSet<Mark>>);

impl Held {
    pub fn contains(&self, mark: Mark) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains(&mark)
    }

    pub fn remember(&self, mark: Mark) {
        let mut marks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if marks.len() >= MOST {
            marks.clear();
        }
        marks.insert(mark);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_differs_has_another_mark_and_no_more_is_remembered_than_fits() {
        let values = [
            json!(1),
            json!("1"),
            json!([1]),
            json!({ "a": 1 }),
            json!({ "a": null }),
        ];
        let marks: BTreeSet<Mark> = values.iter().map(Mark::of).collect();
        assert_eq!(marks.len(), values.len());
        assert_eq!(Mark::of(&json!({ "a": [1] })), Mark::of(&json!({ "a": [1] })));
        let held = Held::default();
        (0..=MOST * 2).for_each(|number| held.remember(Mark::of(&number)));
        assert!(held.contains(Mark::of(&(MOST * 2))) && !held.contains(Mark::of(&0)));
        assert_eq!(held.0.lock().unwrap().len(), 1);
    }
}

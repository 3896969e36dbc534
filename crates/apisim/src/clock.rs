//! Where time and identity come from. Both are injected, so that two runs with the same seed and the same requests
//! give the same bytes.

use std::sync::{Mutex, PoisonError};

use jiff::{SignedDuration, Timestamp};

/// The server's only source of time.
pub trait Clock: Send + Sync {
    fn now(&self) -> Timestamp;
}

/// The machine's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}

/// A clock that stands still until it is told to move.
#[derive(Debug)]
pub struct ManualClock(Mutex<Timestamp>);

impl ManualClock {
    pub fn new(start: Timestamp) -> Self {
        Self(Mutex::new(start))
    }

    pub fn advance(&self, by: SignedDuration) {
        let mut now = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *now = now.saturating_add(by).unwrap_or(*now);
    }

    pub fn set(&self, to: Timestamp) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = to;
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// RFC 3339 with whole seconds, as `metav1.Time` is written.
pub fn rfc3339_seconds(time: Timestamp) -> String {
    Timestamp::from_second(time.as_second()).unwrap_or(time).to_string()
}

/// A seeded generator (SplitMix64) for uids and generated names: small, fast, the same everywhere.
#[derive(Clone, Debug)]
pub struct Identities(u64);

/// Letters that cannot form words; upstream's alphabet for generated names.
const NAME_ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

impl Identities {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next_number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A version 4 UUID.
    pub fn uid(&mut self) -> String {
        let (high, low) = (self.next_number(), self.next_number());
        format!(
            "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
            high >> 32,
            (high >> 16) & 0xffff,
            high & 0xfff,
            0x8000 | ((low >> 48) & 0x3fff),
            low & 0xffff_ffff_ffff
        )
    }

    /// The five characters that complete a `generateName`.
    pub fn name_suffix(&mut self) -> String {
        let mut bits = self.next_number();
        (0..5)
            .map(|_| {
                let index = usize::try_from(bits % NAME_ALPHABET.len() as u64).unwrap_or(0);
                bits /= NAME_ALPHABET.len() as u64;
                char::from(NAME_ALPHABET[index])
            })
            .collect()
    }
}

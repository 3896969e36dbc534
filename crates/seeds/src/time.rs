//! Simulated time: thousandths of a second since a fixed Monday morning. No clock of this machine is ever read.

use jiff::Timestamp;

/// Thousandths of a second since [`start`].
pub type Millis = u64;

pub const SECOND: Millis = 1000;
pub const MINUTE: Millis = 60 * SECOND;
pub const HOUR: Millis = 60 * MINUTE;

/// Monday 2026-01-05T08:00:00Z, in seconds since the epoch.
const START_SECONDS: i64 = 1_767_600_000;

/// The moment as the API server would write it.
pub fn stamp(at: Millis) -> Timestamp {
    let nanos = i32::try_from(at % SECOND).unwrap_or_default() * 1_000_000;
    let seconds = START_SECONDS + i64::try_from(at / SECOND).unwrap_or_default();
    Timestamp::new(seconds, nanos).unwrap_or(Timestamp::UNIX_EPOCH)
}

/// The same as objects keep it: whole seconds.
pub fn second(at: Millis) -> Timestamp {
    stamp(at - at % SECOND)
}

/// The other way round; what lies before the start is the start. Rounded up, so that a moment named by a decision has
/// passed when it is looked at again.
pub fn millis(at: Timestamp) -> Millis {
    let since = at.as_millisecond() - START_SECONDS * 1000;
    let up = i64::from(at.subsec_nanosecond() % 1_000_000 != 0);
    u64::try_from(since + up).unwrap_or_default()
}

/// `1:02:03.456`, for traces.
pub fn clock(at: Millis) -> String {
    format!(
        "{}:{:02}:{:02}.{:03}",
        at / HOUR,
        at / MINUTE % 60,
        at / SECOND % 60,
        at % SECOND
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_survives_the_way_to_a_timestamp_and_back() {
        for at in [0, 1, 999, 1000, 61_001, 90 * HOUR + 1] {
            assert_eq!(millis(stamp(at)), at);
        }
        assert_eq!(stamp(0).to_string(), "2026-01-05T08:00:00Z");
        assert_eq!(clock(HOUR + 2 * MINUTE + 3456), "1:02:03.456");
    }
}

//! How Afloat says times and counts to people: the same way in statuses, events, the command line and reports.

use jiff::{SignedDuration, Timestamp};

/// A length of time, rounded for people: `3m12s`, `2h05m`, `4d3h`.
pub fn duration(length: SignedDuration) -> String {
    let seconds = length.as_secs().max(0);
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    let rest = seconds % 60;
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{rest}s"),
        (0, 0, _) => format!("{minutes}m{rest:02}s"),
        (0, _, _) => format!("{hours}h{minutes:02}m"),
        _ => format!("{days}d{hours}h"),
    }
}

/// How long ago something was.
pub fn since(then: Timestamp, now: Timestamp) -> String {
    duration(now.duration_since(then))
}

/// `1 pod`, `3 pods`.
pub fn count(number: usize, one: &str, many: &str) -> String {
    if number == 1 {
        format!("1 {one}")
    } else {
        format!("{number} {many}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_time_are_rounded_for_people() {
        for (seconds, said) in [
            (0, "0s"),
            (59, "59s"),
            (192, "3m12s"),
            (3600, "1h00m"),
            (7500, "2h05m"),
            (357_000, "4d3h"),
            (-5, "0s"),
        ] {
            assert_eq!(duration(SignedDuration::from_secs(seconds)), said);
        }
    }
}

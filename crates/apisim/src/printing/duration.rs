//! Elapsed time as a person reads it in a printed table: two or three significant figures, fewer the longer it is.

use jiff::{SignedDuration, Timestamp};

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
const DAY_HOURS: i64 = 24;
const YEAR_HOURS: i64 = 365 * DAY_HOURS;

/// What the API server prints for a duration: `87s`, `5m30s`, `3d4h`, `2y40d`.
pub fn human_duration(elapsed: SignedDuration) -> String {
    let seconds = elapsed.as_secs();
    // Clocks differ a little between machines: up to two seconds in the future count as now.
    if seconds < -1 {
        return "<invalid>".to_owned();
    }
    if seconds < 0 {
        return "0s".to_owned();
    }
    if seconds < 2 * MINUTE {
        return format!("{seconds}s");
    }
    let minutes = seconds / MINUTE;
    if minutes < 10 {
        return pair(minutes, "m", seconds % MINUTE, "s");
    }
    if minutes < 180 {
        return format!("{minutes}m");
    }
    let hours = seconds / HOUR;
    if hours < 8 {
        return pair(hours, "h", minutes % 60, "m");
    }
    if hours < 2 * DAY_HOURS {
        return format!("{hours}h");
    }
    let days = hours / DAY_HOURS;
    if hours < 8 * DAY_HOURS {
        return pair(days, "d", hours % DAY_HOURS, "h");
    }
    if hours < 2 * YEAR_HOURS {
        return format!("{days}d");
    }
    if hours < 8 * YEAR_HOURS {
        return pair(days / 365, "y", days % 365, "d");
    }
    format!("{}y", days / 365)
}

/// The age of a moment written as RFC 3339; `<unknown>` when there is none.
pub fn since(moment: Option<&str>, now: Timestamp) -> String {
    match moment.and_then(|text| text.parse::<Timestamp>().ok()) {
        Some(then) => human_duration(now.duration_since(then)),
        None => "<unknown>".to_owned(),
    }
}

fn pair(large: i64, large_unit: &str, small: i64, small_unit: &str) -> String {
    if small == 0 {
        format!("{large}{large_unit}")
    } else {
        format!("{large}{large_unit}{small}{small_unit}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duration_has_the_precision_of_its_size() {
        let cases = [
            (-3, "<invalid>"),
            (-2, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (330, "5m30s"),
            (599, "9m59s"),
            (600, "10m"),
            (3 * HOUR - 1, "179m"),
            (3 * HOUR, "3h"),
            (7 * HOUR + 59 * MINUTE, "7h59m"),
            (8 * HOUR, "8h"),
            (47 * HOUR, "47h"),
            (48 * HOUR, "2d"),
            (76 * HOUR, "3d4h"),
            (191 * HOUR, "7d23h"),
            (192 * HOUR, "8d"),
            (729 * 24 * HOUR, "729d"),
            (730 * 24 * HOUR, "2y"),
            (770 * 24 * HOUR, "2y40d"),
            (8 * 365 * 24 * HOUR, "8y"),
            (3000 * 24 * HOUR, "8y"),
        ];
        for (seconds, printed) in cases {
            assert_eq!(
                human_duration(SignedDuration::from_secs(seconds)),
                printed,
                "{seconds} seconds"
            );
        }
        assert_eq!(human_duration(SignedDuration::from_millis(-1900)), "0s");
    }

    #[test]
    fn moment_that_is_not_there_has_no_age() {
        let now = "2026-01-01T00:10:00Z".parse().unwrap();
        assert_eq!(since(Some("2026-01-01T00:00:00Z"), now), "10m");
        assert_eq!(since(None, now), "<unknown>");
    }
}

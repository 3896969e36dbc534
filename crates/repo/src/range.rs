//! Which part of a file a `Range` header asks for (RFC 9110, 14.1 and 14.2): one range of bytes. Anything else in the header is
//! ignored, as the standard allows, and the whole file sent.

/// What is to be sent of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Whole,
    /// `first..first + length`, within the file and not empty.
    Bytes {
        first: u64,
        length: u64,
    },
    /// A range that the file does not have.
    Unsatisfiable,
}

/// The part of a file of `size` bytes that `header` asks for.
pub fn part(header: &str, size: u64) -> Part {
    read(header, size).unwrap_or(Part::Whole)
}

/// None for what is to be ignored: another unit, several ranges, what is no range.
fn read(header: &str, size: u64) -> Option<Part> {
    let (unit, ranges) = header.split_once('=')?;
    if !unit.eq_ignore_ascii_case("bytes") {
        return None;
    }
    let (first, last) = ranges.trim_matches([' ', '\t']).split_once('-')?;
    if first.is_empty() {
        return Some(suffix(number(last)?, size));
    }
    let first = number(first)?;
    let last = if last.is_empty() { u64::MAX } else { number(last)? };
    if last < first {
        return None;
    }
    if first >= size {
        return Some(Part::Unsatisfiable);
    }
    let length = (last.min(size - 1) - first).saturating_add(1);
    Some(Part::Bytes { first, length })
}

fn suffix(length: u64, size: u64) -> Part {
    match (length, size) {
        (0, _) => Part::Unsatisfiable,
        // The standard calls it satisfiable, and has no way to write the range: the whole says the same.
        (_, 0) => Part::Whole,
        _ => Part::Bytes {
            first: size.saturating_sub(length),
            length: length.min(size),
        },
    }
}

/// Digits alone. A number beyond all files is as good as the largest there is.
fn number(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bytes(first: u64, length: u64) -> Part {
        Part::Bytes { first, length }
    }

    #[test]
    fn h51_every_form_of_a_range() {
        for (header, size, expected) in [
            // A range with both ends; the last is part of it.
            ("bytes=0-0", 10, bytes(0, 1)),
            ("bytes=2-5", 10, bytes(2, 4)),
            ("bytes=0-9", 10, bytes(0, 10)),
            ("bytes=0-99", 10, bytes(0, 10)),
            ("bytes=9-9", 10, bytes(9, 1)),
            ("BYTES=2-5", 10, bytes(2, 4)),
            ("bytes= 2-5 ", 10, bytes(2, 4)),
            ("bytes=002-005", 10, bytes(2, 4)),
            ("bytes=0-99999999999999999999999", 10, bytes(0, 10)),
            // Open at the end.
            ("bytes=0-", 10, bytes(0, 10)),
            ("bytes=7-", 10, bytes(7, 3)),
            // The last so many.
            ("bytes=-1", 10, bytes(9, 1)),
            ("bytes=-10", 10, bytes(0, 10)),
            ("bytes=-11", 10, bytes(0, 10)),
            ("bytes=-99999999999999999999999", 10, bytes(0, 10)),
            // Beyond the file.
            ("bytes=10-", 10, Part::Unsatisfiable),
            ("bytes=10-20", 10, Part::Unsatisfiable),
            ("bytes=-0", 10, Part::Unsatisfiable),
            ("bytes=99999999999999999999999-", 10, Part::Unsatisfiable),
            ("bytes=0-", 0, Part::Unsatisfiable),
            ("bytes=0-0", 0, Part::Unsatisfiable),
            ("bytes=-5", 0, Part::Whole),
            // Ignored: no range, another unit, or several.
            ("bytes=5-2", 10, Part::Whole),
            ("bytes=-", 10, Part::Whole),
            ("bytes=", 10, Part::Whole),
            ("bytes", 10, Part::Whole),
            ("", 10, Part::Whole),
            ("bytes=a-b", 10, Part::Whole),
            ("bytes=+1-2", 10, Part::Whole),
            ("bytes=1-2-3", 10, Part::Whole),
            ("bytes=--1", 10, Part::Whole),
            ("bytes=0x1-2", 10, Part::Whole),
            ("bytes 0-1", 10, Part::Whole),
            ("lines=0-1", 10, Part::Whole),
            ("bytes=0-1,3-4", 10, Part::Whole),
            ("bytes=0-1,", 10, Part::Whole),
        ] {
            assert_eq!(part(header, size), expected, "{header:?} of {size}");
        }
        assert_eq!(part("bytes=0-", u64::MAX), bytes(0, u64::MAX));
    }

    /// The bytes a range means, counted one by one.
    fn counted(first: Option<u64>, last: Option<u64>, size: u64) -> Vec<u64> {
        let wanted = |at: &u64| match (first, last) {
            (Some(first), last) => *at >= first && last.is_none_or(|last| *at <= last),
            (None, Some(length)) => size - at <= length,
            (None, None) => true,
        };
        (0..size).filter(wanted).collect()
    }

    proptest! {
        #[test]
        fn h51_a_range_is_the_bytes_it_names(
            first in proptest::option::of(0u64..40),
            last in proptest::option::of(0u64..40),
            size in 0u64..40,
        ) {
            let text = |end: Option<u64>| end.map(|end| end.to_string()).unwrap_or_default();
            let expected = counted(first, last, size);
            let valid = (first.is_some() || last.is_some()) && !matches!((first, last), (Some(first), Some(last)) if last < first);
            match part(&format!("bytes={}-{}", text(first), text(last)), size) {
                Part::Bytes { first, length } => {
                    prop_assert!(valid);
                    prop_assert_eq!((first..first + length).collect::<Vec<_>>(), expected);
                }
                Part::Unsatisfiable => prop_assert!(valid && expected.is_empty()),
                Part::Whole => prop_assert!(!valid || (size == 0 && first.is_none())),
            }
        }

        #[test]
        fn h51_no_header_asks_for_what_is_not_there(header in "(bytes=)?[0-9,= \\-]{0,50}", size in any::<u64>()) {
            if let Part::Bytes { first, length } = part(&header, size) {
                prop_assert!(length > 0);
                prop_assert!(first.checked_add(length).is_some_and(|end| end <= size));
            }
        }
    }
}

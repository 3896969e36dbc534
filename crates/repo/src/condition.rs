//! Conditional requests (RFC 9110, 13): what a client knows already, by the mark of the file (`ETag`) or its date.

use http::HeaderMap;
use http::header::{HeaderName, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE};
use jiff::Timestamp;
use jiff::fmt::rfc2822;

/// What tells one state of a file from another.
#[derive(Clone, Debug)]
pub struct Validators {
    /// With its quotes.
    etag: String,
    /// In whole seconds, as headers have it.
    modified: Option<i64>,
}

/// What the conditions of a request come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Send,
    NotModified,
    Failed,
}

impl Validators {
    pub fn new(mark: &str, modified: Option<Timestamp>) -> Self {
        Self {
            etag: format!("\"{mark}\""),
            modified: modified.map(Timestamp::as_second),
        }
    }

    pub fn etag(&self) -> &str {
        &self.etag
    }

    pub fn last_modified(&self) -> Option<String> {
        let time = Timestamp::from_second(self.modified?).ok()?;
        rfc2822::DateTimePrinter::new().timestamp_to_rfc9110_string(&time).ok()
    }

    /// In the order the standard sets. A date that is none is ignored.
    pub fn judge(&self, headers: &HeaderMap) -> Verdict {
        let unchanged = |name| {
            let asked = date(text(headers, name)?)?;
            self.modified.map(|modified| modified <= asked)
        };
        let matches = match list(headers, IF_MATCH) {
            Some(tags) => self.named_in(&tags, true),
            None => unchanged(IF_UNMODIFIED_SINCE).unwrap_or(true),
        };
        if !matches {
            return Verdict::Failed;
        }
        let known = match list(headers, IF_NONE_MATCH) {
            Some(tags) => self.named_in(&tags, false),
            None => unchanged(IF_MODIFIED_SINCE).unwrap_or(false),
        };
        if known { Verdict::NotModified } else { Verdict::Send }
    }

    /// Whether a part may be sent: what the client has of the file is of this same state.
    pub fn range_holds(&self, headers: &HeaderMap) -> bool {
        let Some(value) = headers.get(IF_RANGE) else {
            return true;
        };
        let value = value.to_str().unwrap_or_default().trim();
        if value.starts_with('"') || value.starts_with("W/") {
            value == self.etag
        } else {
            self.modified.is_some() && date(value) == self.modified
        }
    }

    /// A weak mark never stands for the same bytes.
    fn named_in(&self, tags: &str, strong: bool) -> bool {
        tags.split(',').map(str::trim).any(|tag| {
            let bare = tag.strip_prefix("W/");
            tag == "*" || tag == self.etag || (!strong && bare == Some(self.etag.as_str()))
        })
    }
}

fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// All lines of a header, as one.
fn list(headers: &HeaderMap, name: HeaderName) -> Option<String> {
    let mut lines = headers.get_all(name).iter().peekable();
    lines.peek()?;
    let lines: Vec<&str> = lines.filter_map(|line| line.to_str().ok()).collect();
    Some(lines.join(","))
}

fn date(text: &str) -> Option<i64> {
    let parsed = rfc2822::DateTimeParser::new().parse_timestamp(text.trim()).ok()?;
    Some(parsed.as_second())
}

#[cfg(test)]
mod tests {
    use super::*;
    use Verdict::{Failed, NotModified, Send};

    const DATE: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    const LATER: &str = "Sun, 06 Nov 1994 08:49:38 GMT";
    const EARLIER: &str = "Sun, 06 Nov 1994 08:49:36 GMT";

    fn known() -> Validators {
        // Half a second later, which a header cannot say.
        let time = Timestamp::new(784_111_777, 500_000_000).unwrap();
        Validators::new("a-1", Some(time))
    }

    fn headers(lines: &[(HeaderName, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(name, value.parse().unwrap());
        }
        headers
    }

    #[test]
    fn h51_conditions_in_their_order() {
        assert_eq!(known().last_modified().as_deref(), Some(DATE));
        let table: &[(&[(HeaderName, &str)], Verdict)] = &[
            (&[], Send),
            (&[(IF_NONE_MATCH, "\"a-1\"")], NotModified),
            (&[(IF_NONE_MATCH, "W/\"a-1\"")], NotModified),
            (&[(IF_NONE_MATCH, "\"b\", \"a-1\"")], NotModified),
            (&[(IF_NONE_MATCH, "\"b\""), (IF_NONE_MATCH, "\"a-1\"")], NotModified),
            (&[(IF_NONE_MATCH, "*")], NotModified),
            (&[(IF_NONE_MATCH, "\"b\"")], Send),
            (&[(IF_NONE_MATCH, "a-1")], Send),
            (&[(IF_MODIFIED_SINCE, DATE)], NotModified),
            (&[(IF_MODIFIED_SINCE, LATER)], NotModified),
            (&[(IF_MODIFIED_SINCE, EARLIER)], Send),
            (&[(IF_MODIFIED_SINCE, "yesterday")], Send),
            // The mark is the better witness.
            (&[(IF_NONE_MATCH, "\"b\""), (IF_MODIFIED_SINCE, LATER)], Send),
            (&[(IF_NONE_MATCH, "\"a-1\""), (IF_MODIFIED_SINCE, EARLIER)], NotModified),
            (&[(IF_MATCH, "\"a-1\"")], Send),
            (&[(IF_MATCH, "*")], Send),
            (&[(IF_MATCH, "W/\"a-1\"")], Failed),
            (&[(IF_MATCH, "\"b\"")], Failed),
            (&[(IF_UNMODIFIED_SINCE, DATE)], Send),
            (&[(IF_UNMODIFIED_SINCE, EARLIER)], Failed),
            (&[(IF_UNMODIFIED_SINCE, "yesterday")], Send),
            (&[(IF_MATCH, "\"a-1\""), (IF_UNMODIFIED_SINCE, EARLIER)], Send),
            (&[(IF_MATCH, "\"b\""), (IF_NONE_MATCH, "\"a-1\"")], Failed),
        ];
        for (lines, verdict) in table {
            assert_eq!(known().judge(&headers(lines)), *verdict, "{lines:?}");
        }
    }

    #[test]
    fn h51_a_part_is_sent_only_of_the_same_file() {
        for (value, holds) in [
            ("\"a-1\"", true),
            ("\"b\"", false),
            ("W/\"a-1\"", false),
            (DATE, true),
            (LATER, false),
            (EARLIER, false),
            ("a-1", false),
            ("", false),
        ] {
            assert_eq!(known().range_holds(&headers(&[(IF_RANGE, value)])), holds, "{value:?}");
        }
        assert!(known().range_holds(&HeaderMap::new()));
        let dateless = Validators::new("a-1", None);
        assert!(!dateless.range_holds(&headers(&[(IF_RANGE, "yesterday")])));
        assert_eq!(dateless.judge(&headers(&[(IF_MODIFIED_SINCE, DATE)])), Send);
    }
}

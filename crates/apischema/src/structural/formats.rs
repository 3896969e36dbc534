//! `format`: which names the API server knows for which type, and what it accepts as each. An unknown format means
//! nothing, as upstream strips it before validating.

use std::net::{IpAddr, Ipv4Addr};
use std::str::FromStr;

use super::{names, pattern};
use crate::schema::JsonType;

const UUID: &str = r"(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}$";
const UUID3: &str = r"(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?3[0-9a-f]{3}-?[0-9a-f]{4}-?[0-9a-f]{12}$";
const UUID4: &str = r"(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?4[0-9a-f]{3}-?[89ab][0-9a-f]{3}-?[0-9a-f]{12}$";
const UUID5: &str = r"(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?5[0-9a-f]{3}-?[89ab][0-9a-f]{3}-?[0-9a-f]{12}$";
const HOSTNAME: &str = r"^([a-zA-Z0-9\p{S}\p{L}]((-?[a-zA-Z0-9\p{S}\p{L}]{0,62})?)|([a-zA-Z0-9\p{S}\p{L}](([a-zA-Z0-9-\p{S}\p{L}]{0,61}[a-zA-Z0-9\p{S}\p{L}])?)(\.)){1,}([a-zA-Z\p{L}]){2,63})$";
const BASE64: &str = r"^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})$";
const TIME: &str = r"^([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))$";
const SSN: &str = r"^\d{3}[- ]?\d{2}[- ]?\d{4}$";
const HEX_COLOR: &str = r"^#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})$";
const RGB_COLOR: &str = r"^rgb\(\s*(0|[1-9]\d?|1\d\d?|2[0-4]\d|25[0-5])\s*,\s*(0|[1-9]\d?|1\d\d?|2[0-4]\d|25[0-5])\s*,\s*(0|[1-9]\d?|1\d\d?|2[0-4]\d|25[0-5])\s*\)$";
const EMAIL: &str = r#"^([^<>]*<)?("[^"]+"|[^\s@<>()\[\],;:"]+)@[^\s@<>,;:"]+>?$"#;
const BSON_ID: &str = r"^[0-9a-fA-F]{24}$";
const ISBN: &str = r"^[- ]*(\d[- ]*){9}[\dXx]$|^[- ]*(\d[- ]*){12}\d$";
const CREDIT_CARD: &str = r"^(?:4[0-9]{12}(?:[0-9]{3})?|5[1-5][0-9]{14}|6(?:011|5[0-9][0-9])[0-9]{12}|3[47][0-9]{13}|3(?:0[0-5]|[68][0-9])[0-9]{11}|(?:2131|1800|35\d{3})\d{11})$";
const MAC: &str =
    r"(?i)^[0-9a-f]{2}([:-][0-9a-f]{2}){5}([:-][0-9a-f]{2}([:-][0-9a-f]{2})?)?$|^[0-9a-f]{4}(\.[0-9a-f]{4}){2,3}$";
const LONG_DURATION: &str = r"(\d+)\s*(ns|nano|us|µs|micro|ms|milli|s|sec|m|min|h|hr|hour|d|day|w|wk|week)";

const TEXT_FORMATS: [&str; 26] = [
    "bsonobjectid",
    "uri",
    "email",
    "hostname",
    "ipv4",
    "ipv6",
    "cidr",
    "mac",
    "uuid",
    "uuid3",
    "uuid4",
    "uuid5",
    "isbn",
    "isbn10",
    "isbn13",
    "creditcard",
    "ssn",
    "hexcolor",
    "rgbcolor",
    "byte",
    "password",
    "date",
    "duration",
    "datetime",
    "k8sshortname",
    "k8slongname",
];

/// Whether a format means anything for a type.
pub fn is_supported(format: &str, json_type: JsonType) -> bool {
    match json_type {
        JsonType::String | JsonType::Any => TEXT_FORMATS.contains(&format.replace('-', "").as_str()),
        JsonType::Integer => matches!(format, "int32" | "int64"),
        JsonType::Number => matches!(format, "float" | "double"),
        _ => false,
    }
}

/// Whether the text is of a (supported) format.
pub fn accepts(format: &str, text: &str) -> bool {
    let fits = |pattern: &str| pattern::matches(pattern, text).unwrap_or(false);
    match format.replace('-', "").as_str() {
        "datetime" => is_date_time(text),
        "date" => is_date(text),
        "duration" => is_duration(text),
        "uri" => is_uri(text),
        "email" => fits(EMAIL),
        "hostname" => text.len() <= 255 && text.split('.').all(|part| part.len() <= 63) && fits(HOSTNAME),
        "ipv4" => Ipv4Addr::from_str(text).is_ok(),
        "ipv6" => matches!(IpAddr::from_str(text), Ok(IpAddr::V6(_))),
        "cidr" => is_cidr(text),
        "mac" => fits(MAC),
        "uuid" => fits(UUID),
        "uuid3" => fits(UUID3),
        "uuid4" => fits(UUID4),
        "uuid5" => fits(UUID5),
        "isbn" | "isbn10" | "isbn13" => fits(ISBN),
        "creditcard" => {
            let digits: String = text.chars().filter(char::is_ascii_digit).collect();
            pattern::matches(CREDIT_CARD, &digits).unwrap_or(false)
        }
        "ssn" => fits(SSN),
        "hexcolor" => fits(HEX_COLOR),
        "rgbcolor" => fits(RGB_COLOR),
        "byte" => fits(BASE64),
        "bsonobjectid" => fits(BSON_ID),
        "k8sshortname" => names::dns_label(text).is_empty(),
        "k8slongname" => names::dns_subdomain(text).is_empty(),
        _ => true,
    }
}

fn is_date(text: &str) -> bool {
    text.len() == 10 && text.as_bytes()[4] == b'-' && jiff::civil::Date::from_str(text).is_ok()
}

fn is_date_time(text: &str) -> bool {
    let lower = text.to_lowercase();
    let mut parts = lower.split('t');
    let (Some(date), Some(time)) = (parts.next(), parts.next()) else {
        return false;
    };
    is_date(date) && pattern::matches(TIME, time).unwrap_or(false)
}

/// Go's `time.ParseDuration`, or the longer units that upstream reads beside it.
fn is_duration(text: &str) -> bool {
    is_go_duration(text) || pattern::matches(LONG_DURATION, text).unwrap_or(false)
}

fn is_go_duration(text: &str) -> bool {
    let rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    rest == "0" || pattern::matches(r"^(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+$", rest).unwrap_or(false)
}

/// What Go's `url.ParseRequestURI` takes: an absolute path, or a scheme with something behind it.
fn is_uri(text: &str) -> bool {
    if text
        .chars()
        .any(|character| character.is_ascii_control() || character == ' ')
    {
        return false;
    }
    if text.starts_with('/') {
        return true;
    }
    text.split_once(':').is_some_and(|(scheme, rest)| {
        let named = scheme.starts_with(|first: char| first.is_ascii_alphabetic())
            && scheme
                .chars()
                .all(|letter| letter.is_ascii_alphanumeric() || matches!(letter, '+' | '-' | '.'));
        named && !rest.is_empty()
    })
}

fn is_cidr(text: &str) -> bool {
    let Some((address, length)) = text.split_once('/') else {
        return false;
    };
    let Ok(length) = u8::from_str(length) else { return false };
    match IpAddr::from_str(address) {
        Ok(IpAddr::V4(_)) => length <= 32,
        Ok(IpAddr::V6(_)) => length <= 128,
        Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_accept_what_upstream_accepts() {
        for (format, text, expected) in [
            ("date-time", "2024-01-02T03:04:05Z", true),
            ("date-time", "2024-01-02T03:04:05.123+01:00", true),
            ("date-time", "2024-13-02T03:04:05Z", false),
            ("date-time", "2024-01-02 03:04:05", false),
            ("date", "2024-02-30", false),
            ("duration", "1h30m", true),
            ("duration", "5 days", true),
            ("duration", "x", false),
            ("ipv4", "1.2.3.4", true),
            ("ipv4", "::1", false),
            ("ipv6", "::1", true),
            ("cidr", "10.0.0.0/8", true),
            ("cidr", "10.0.0.0/33", false),
            ("uuid", "123E4567-e89b-12d3-a456-426614174000", true),
            ("uuid", "x", false),
            ("byte", "aGk=", true),
            ("byte", "a", false),
            ("uri", "https://example.com/x", true),
            ("uri", "example", false),
            ("mac", "00:11:22:33:44:55", true),
            ("hostname", "a.example", true),
            ("email", "a@example.com", true),
            ("email", "a", false),
            ("k8s-short-name", "A", false),
        ] {
            assert_eq!(accepts(format, text), expected, "{format} {text}");
        }
        assert!(!is_supported("int32", JsonType::String));
        assert!(is_supported("date-time", JsonType::String));
        assert!(!is_supported("int-or-string", JsonType::IntOrString));
    }
}

//! Resource quantities (`500m`, `1Gi`): reading, comparing, and the canonical text that the API server prints. Exact to
//! a billionth, as upstream; amounts beyond what fits there are capped.

use std::cmp::Ordering;

/// What the API server says about a text that is no quantity.
pub const FORMAT_ERROR: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
/// What it says about a text of the right form with an unknown suffix.
pub const SUFFIX_ERROR: &str = "unable to parse quantity's suffix";

const NANO: i128 = 1_000_000_000;
/// Upstream counts digits to decide whether 64-bit arithmetic is exact.
const INT64_DIGITS: usize = 18;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    DecimalSi,
    BinarySi,
    DecimalExponent,
}

/// An amount in billionths, with the form it was written in.
#[derive(Clone, Debug)]
pub struct Quantity {
    nanos: i128,
    format: Format,
    /// The text as written, where upstream keeps it.
    text: Option<String>,
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

/// The canonical text of a quantity, or nothing when the text is none.
pub fn canonical(text: &str) -> Option<String> {
    Quantity::parse(text).ok().map(|quantity| quantity.to_text())
}

/// A canonical text rounded up to thousandths, where it is finer: amounts of resources know nothing smaller.
pub(super) fn rounded_to_milli(text: &str) -> Option<String> {
    const MILLI: i128 = NANO / 1000;
    if !text.ends_with(['n', 'u']) && !text.contains(['.', 'e']) {
        return None;
    }
    let mut quantity = Quantity::parse(text)
        .ok()
        .filter(|quantity| quantity.nanos % MILLI != 0)?;
    quantity.nanos = quantity.milli().saturating_mul(MILLI);
    quantity.text = None;
    Some(quantity.to_text())
}

struct Parts<'a> {
    negative: bool,
    whole: &'a str,
    fraction: &'a str,
    suffix: &'a str,
}

fn digits(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text.split_at(end)
}

fn split(text: &str) -> Option<Parts<'_>> {
    let (negative, unsigned) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let (whole, rest) = digits(unsigned);
    let (fraction, suffix) = match rest.strip_prefix('.') {
        Some(rest) => digits(rest),
        None => ("", rest),
    };
    if whole.is_empty() && fraction.is_empty() && !rest.starts_with('.') {
        return None;
    }
    let after_letters = suffix.trim_start_matches(|c: char| "eEinumkKMGTP".contains(c));
    let exponent = after_letters.strip_prefix(['+', '-']).unwrap_or(after_letters);
    if !exponent.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let whole = whole.trim_start_matches('0');
    Some(Parts {
        negative,
        whole: if whole.is_empty() { "0" } else { whole },
        fraction,
        suffix,
    })
}

fn interpret(suffix: &str) -> Option<(Format, i32)> {
    let known = match suffix {
        "n" => (Format::DecimalSi, -9),
        "u" => (Format::DecimalSi, -6),
        "m" => (Format::DecimalSi, -3),
        "" => (Format::DecimalSi, 0),
        "k" => (Format::DecimalSi, 3),
        "M" => (Format::DecimalSi, 6),
        "G" => (Format::DecimalSi, 9),
        "T" => (Format::DecimalSi, 12),
        "P" => (Format::DecimalSi, 15),
        "E" => (Format::DecimalSi, 18),
        "Ki" => (Format::BinarySi, 10),
        "Mi" => (Format::BinarySi, 20),
        "Gi" => (Format::BinarySi, 30),
        "Ti" => (Format::BinarySi, 40),
        "Pi" => (Format::BinarySi, 50),
        "Ei" => (Format::BinarySi, 60),
        _ => {
            let exponent = suffix.strip_prefix(['e', 'E'])?;
            (
                Format::DecimalExponent,
                exponent.strip_prefix('+').unwrap_or(exponent).parse().ok()?,
            )
        }
    };
    Some(known)
}

impl Quantity {
    /// Reads a quantity; the error is the text that the API server answers with.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        if text == "0" {
            return Ok(Self {
                nanos: 0,
                format: Format::DecimalSi,
                text: Some(text.to_owned()),
            });
        }
        let parts = split(text).ok_or(FORMAT_ERROR)?;
        let (format, exponent) = interpret(parts.suffix).ok_or(SUFFIX_ERROR)?;
        let shifted = format!("{}{}", parts.whole, parts.fraction);
        let mantissa: i128 = shifted.parse().unwrap_or(i128::MAX);
        let places = i32::try_from(parts.fraction.len()).unwrap_or(i32::MAX);
        let nanos = match format {
            Format::BinarySi => {
                let scaled = mantissa.saturating_mul(1i128 << exponent).saturating_mul(NANO);
                divide_up(scaled, power_of_ten(places)).min(i128::from(i64::MAX) * NANO)
            }
            _ => match exponent.saturating_sub(places).saturating_add(9) {
                power @ 0.. => mantissa.saturating_mul(power_of_ten(power)),
                power => divide_up(mantissa, power_of_ten(-power)),
            },
        };
        let kept = keeps_text(format, exponent, &shifted, &parts);
        Ok(Self {
            nanos: if parts.negative { -nanos } else { nanos },
            format: if format == Format::BinarySi && nanos > 0 && nanos < NANO {
                Format::DecimalSi
            } else {
                format
            },
            text: kept.then(|| text.to_owned()),
        })
    }

    pub fn is_negative(&self) -> bool {
        self.nanos < 0
    }

    pub fn is_zero(&self) -> bool {
        self.nanos == 0
    }

    /// Whether it is a whole number.
    pub fn is_integer(&self) -> bool {
        self.nanos % NANO == 0
    }

    /// The amount in thousandths, rounded away from zero.
    pub fn milli(&self) -> i128 {
        divide_up(self.nanos.abs(), NANO / 1000) * self.nanos.signum()
    }

    /// The canonical text.
    pub fn to_text(&self) -> String {
        if let Some(text) = &self.text {
            return text.clone();
        }
        if self.nanos == 0 {
            return "0".to_owned();
        }
        let whole = self.nanos / NANO;
        if self.format == Format::BinarySi && self.is_integer() && whole.abs() >= 1024 {
            return binary_text(whole);
        }
        decimal_text(self.nanos, self.format == Format::DecimalExponent)
    }
}

/// Upstream keeps the text where it believes it canonical already. That is a test on digits only, so `1.500` stays.
fn keeps_text(format: Format, exponent: i32, shifted: &str, parts: &Parts<'_>) -> bool {
    if format == Format::BinarySi {
        // 64-bit shortcuts are only taken where 15 digits are enough for number and suffix together.
        let digits = i32::try_from(parts.whole.len()).unwrap_or(i32::MAX);
        let fits = 15 - digits - exponent.saturating_mul(3) / 10 > 0;
        return parts.fraction.is_empty() && fits && shifted.parse::<i64>().is_ok_and(|value| value & 7 != 0);
    }
    let places = i32::try_from(parts.fraction.len()).unwrap_or(i32::MAX);
    let scale = exponent.saturating_sub(places);
    shifted.len() <= INT64_DIGITS
        && scale >= -9
        && scale % 3 == 0
        && !shifted.ends_with("000")
        && !shifted.starts_with('0')
}

fn power_of_ten(power: i32) -> i128 {
    u32::try_from(power)
        .ok()
        .and_then(|power| 10i128.checked_pow(power))
        .unwrap_or(i128::MAX)
}

fn divide_up(value: i128, divisor: i128) -> i128 {
    value / divisor + i128::from(value % divisor != 0)
}

fn binary_text(whole: i128) -> String {
    const SUFFIXES: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    let (mut value, mut step) = (whole, 0);
    while value.abs() >= 1024 && value % 1024 == 0 && step + 1 < SUFFIXES.len() {
        value /= 1024;
        step += 1;
    }
    format!("{value}{}", SUFFIXES[step])
}

fn decimal_text(nanos: i128, exponential: bool) -> String {
    const SUFFIXES: [(i32, &str); 10] = [
        (-9, "n"),
        (-6, "u"),
        (-3, "m"),
        (0, ""),
        (3, "k"),
        (6, "M"),
        (9, "G"),
        (12, "T"),
        (15, "P"),
        (18, "E"),
    ];
    let (mut value, mut exponent) = (nanos, -9);
    while value % 1000 == 0 && (exponential || exponent < 18) {
        value /= 1000;
        exponent += 3;
    }
    if exponential && exponent != 0 {
        return format!("{value}e{exponent}");
    }
    let suffix = SUFFIXES
        .iter()
        .find(|(known, _)| *known == exponent)
        .map_or("", |(_, suffix)| suffix);
    format!("{value}{suffix}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_become_canonical_as_upstream_prints_them() {
        // Recorded from a real server: limits of a container as written and as read back.
        for (written, printed) in [
            ("0.5", "500m"),
            ("1024Mi", "1Gi"),
            ("100m", "100m"),
            ("1000m", "1"),
            ("1.5Gi", "1536Mi"),
            ("0", "0"),
            ("0.0", "0"),
            ("1e3", "1e3"),
            ("1000", "1k"),
            ("1500", "1500"),
            ("1.500", "1.500"),
            ("1.5", "1500m"),
            ("128974848", "128974848"),
            ("0.1Ki", "102400m"),
            ("3Mi", "3Mi"),
            ("1048576Ki", "1Gi"),
            ("12e6", "12e6"),
            ("1E", "1E"),
            ("+5", "+5"),
            ("1.G", "1.G"),
            ("8Ki", "8Ki"),
            ("10000000000000000000", "10E"),
            ("1e-3", "1e-3"),
            (".5", "500m"),
            ("5.", "5."),
            ("16Ei", "9223372036854775807"),
            ("1e20", "100e18"),
            ("0.1Gi", "107374182400m"),
            ("1.25Mi", "1280Ki"),
            ("00012", "00012"),
            ("1.10", "1100m"),
            ("12345.678", "12345.678"),
            ("999Ei", "9223372036854775807"),
        ] {
            assert_eq!(canonical(written).as_deref(), Some(printed), "{written}");
        }
    }

    #[test]
    fn resources_are_rounded_up_to_thousandths() {
        for (canonical, rounded) in [
            ("1u", "1m"),
            ("-1u", "-1m"),
            ("1n", "1m"),
            ("1.0000001", "1001m"),
            ("1e-6", "1e-3"),
        ] {
            assert_eq!(rounded_to_milli(canonical).as_deref(), Some(rounded), "{canonical}");
        }
        assert_eq!(rounded_to_milli("100m"), None);
    }

    #[test]
    fn other_texts_are_refused() {
        for text in ["", "x", "1x", "1.2.3", "--1", "1 ", "1Kix", "1e"] {
            assert_eq!(canonical(text), None, "{text}");
        }
    }

    #[test]
    fn amounts_compare_by_value() {
        let parse = |text: &str| Quantity::parse(text).expect(text);
        assert_eq!(parse("1Gi"), parse("1024Mi"));
        assert!(parse("1G") < parse("1Gi"));
        assert!(parse("-1").is_negative());
        assert!(!parse("100m").is_integer());
    }
}

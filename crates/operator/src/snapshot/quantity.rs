//! Amounts as Kubernetes writes them (`250m`, `1.5Gi`, `1e3`), as whole numbers. Rounded up where they are asked for and
//! down where they are offered, so that what is judged to fit fits.

use std::collections::BTreeMap;
use std::sync::Arc;

use afloat_core::view::Resources;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// Which way a part of a unit goes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Rounding {
    Up,
    Down,
}

/// A text that is no amount.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{0:?} is no amount of a resource")]
pub struct NotAnAmount(String);

/// `text` in units of `1 / per_unit`: thousandths with 1000, whole ones with 1. What is too large for a number stays at
/// the largest.
pub fn amount(text: &str, per_unit: i128, rounding: Rounding) -> Result<i64, NotAnAmount> {
    let wrong = || NotAnAmount(text.to_owned());
    let (numeral, multiply, divide) = scale(text).ok_or_else(wrong)?;
    let (negative, digits) = match numeral.as_bytes().first() {
        Some(b'-') => (true, &numeral[1..]),
        Some(b'+') => (false, &numeral[1..]),
        _ => (false, numeral),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    // Beyond nine places nothing is told apart: Kubernetes itself keeps no more than nano units.
    let fraction = fraction.get(..9).unwrap_or(fraction);
    let numeral = format!("{whole}{fraction}");
    if numeral.is_empty() || !numeral.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(wrong());
    }
    let mantissa: i128 = numeral.parse().unwrap_or(i128::MAX);
    let places = u32::try_from(fraction.len()).unwrap_or(0);
    let over = mantissa.saturating_mul(multiply).saturating_mul(per_unit);
    let under = divide.saturating_mul(10i128.saturating_pow(places));
    let (floor, rest) = (over / under, over % under);
    let rounded = if rest != 0 && (rounding == Rounding::Up) != negative {
        floor.saturating_add(1)
    } else {
        floor
    };
    let signed = if negative { -rounded } else { rounded };
    Ok(i64::try_from(signed).unwrap_or(if negative { i64::MIN } else { i64::MAX }))
}

/// The numeral, and what its suffix or exponent multiplies and divides it by.
fn scale(text: &str) -> Option<(&str, i128, i128)> {
    const SUFFIXES: [(&str, i128, i128); 15] = [
        ("Ki", 1 << 10, 1),
        ("Mi", 1 << 20, 1),
        ("Gi", 1 << 30, 1),
        ("Ti", 1 << 40, 1),
        ("Pi", 1 << 50, 1),
        ("Ei", 1 << 60, 1),
        ("n", 1, 1_000_000_000),
        ("u", 1, 1_000_000),
        ("m", 1, 1_000),
        ("k", 1_000, 1),
        ("M", 1_000_000, 1),
        ("G", 1_000_000_000, 1),
        ("T", 1_000_000_000_000, 1),
        ("P", 1_000_000_000_000_000, 1),
        ("E", 1_000_000_000_000_000_000, 1),
    ];
    for (suffix, multiply, divide) in SUFFIXES {
        if let Some(numeral) = text.strip_suffix(suffix) {
            return Some((numeral, multiply, divide));
        }
    }
    let Some((numeral, exponent)) = text.split_once(['e', 'E']) else {
        return Some((text, 1, 1));
    };
    let exponent: i32 = exponent.parse().ok()?;
    let power = 10i128.checked_pow(exponent.unsigned_abs())?;
    Some(if exponent < 0 {
        (numeral, 1, power)
    } else {
        (numeral, power, 1)
    })
}

/// A list of resources.
pub fn resources(amounts: &BTreeMap<String, Quantity>, rounding: Rounding) -> Result<Resources, NotAnAmount> {
    let mut resources = Resources::default();
    for (name, quantity) in amounts {
        match name.as_str() {
            "cpu" => resources.cpu_milli = amount(&quantity.0, 1000, rounding)?,
            "memory" => resources.memory = amount(&quantity.0, 1, rounding)?,
            "pods" => resources.pods = amount(&quantity.0, 1, rounding)?,
            other => {
                let amount = amount(&quantity.0, 1, rounding)?;
                resources.others.insert(Arc::from(other), amount);
            }
        }
    }
    Ok(resources)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_read_as_kubernetes_writes_them() {
        for (text, per_unit, up, down) in [
            ("1", 1000, 1000, 1000),
            ("250m", 1000, 250, 250),
            ("0.1", 1000, 100, 100),
            ("1.5Gi", 1, 1_610_612_736, 1_610_612_736),
            ("128974848", 1, 128_974_848, 128_974_848),
            ("129e6", 1, 129_000_000, 129_000_000),
            ("129M", 1, 129_000_000, 129_000_000),
            ("1500u", 1000, 2, 1),
            ("100n", 1, 1, 0),
            ("5E", 1, 5_000_000_000_000_000_000, 5_000_000_000_000_000_000),
            ("99E", 1, i64::MAX, i64::MAX),
            ("-1.5", 1, -1, -2),
            (".5", 1000, 500, 500),
            ("1e-3", 1000, 1, 1),
        ] {
            assert_eq!(amount(text, per_unit, Rounding::Up), Ok(up), "{text} up");
            assert_eq!(amount(text, per_unit, Rounding::Down), Ok(down), "{text} down");
        }
    }

    #[test]
    fn what_is_no_amount_is_said_to_be_none() {
        for text in ["", "Gi", "1.2.3", "many", "1e", "1e99", "0x10"] {
            assert!(amount(text, 1, Rounding::Up).is_err(), "{text}");
        }
    }
}

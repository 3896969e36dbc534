//! Checks of one value against one schema node, without its children: type, format, bounds, enumeration.

use serde_json::Value;

use super::{formats, pattern};
use crate::field_error::{ErrorKind, go_float, go_json, go_quote};
use crate::schema::{JsonType, Node};

/// One finding with the path as the validator of upstream writes it, which is also part of the message.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Finding {
    pub kind: ErrorKind,
    /// `None` for findings that upstream reports without a place.
    pub name: Option<String>,
    pub value: Option<Value>,
    pub message: String,
}

impl Finding {
    pub fn new(kind: ErrorKind, name: &str, value: impl Into<Value>, message: String) -> Self {
        Self {
            kind,
            name: Some(name.to_owned()),
            value: Some(value.into()),
            message,
        }
    }

    pub fn without_place(message: String) -> Self {
        Self {
            kind: ErrorKind::Invalid,
            name: None,
            value: Some(Value::from("")),
            message,
        }
    }
}

/// The name of the type in messages; a node without a type has none.
fn type_name(json_type: JsonType) -> Option<&'static str> {
    match json_type {
        JsonType::Object => Some("object"),
        JsonType::Array => Some("array"),
        JsonType::String => Some("string"),
        JsonType::Integer => Some("integer"),
        JsonType::Number => Some("number"),
        JsonType::Boolean => Some("boolean"),
        JsonType::IntOrString => Some("integer,string"),
        JsonType::Any => None,
    }
}

/// The type and number format that upstream infers from a decoded value.
fn inferred(value: &Value) -> (&'static str, &'static str) {
    match value {
        Value::Null => ("null", ""),
        Value::Bool(_) => ("boolean", ""),
        Value::Number(number) if number.is_f64() => ("number", "float64"),
        Value::Number(_) => ("integer", "int64"),
        Value::String(_) => ("string", ""),
        Value::Array(_) => ("array", ""),
        Value::Object(_) => ("object", ""),
    }
}

fn is_of_type(value: &Value, json_type: JsonType) -> bool {
    match json_type {
        JsonType::Object => value.is_object(),
        JsonType::Array => value.is_array(),
        JsonType::String => value.is_string(),
        JsonType::Integer => is_whole(value),
        JsonType::Number => value.is_number(),
        JsonType::Boolean => value.is_boolean(),
        JsonType::IntOrString => value.is_string() || is_whole(value),
        JsonType::Any => true,
    }
}

fn is_whole(value: &Value) -> bool {
    value.as_i64().is_some()
        || value
            .as_f64()
            .is_some_and(|float| float.fract() == 0.0 && float.abs() < 9.3e18)
}

pub(super) fn format_of(node: &Node) -> Option<&str> {
    node.format
        .as_deref()
        .filter(|format| formats::is_supported(format, node.json_type))
}

/// `Ok(true)` when the type was looked at and fits, `Ok(false)` when there is nothing to look at.
pub(super) fn check_type(node: &Node, value: &Value, path: &str) -> Result<bool, Finding> {
    let format = format_of(node);
    let wanted = type_name(node.json_type);
    if wanted.is_none() && format.is_none() {
        return Ok(false);
    }
    let (found, found_format) = inferred(value);
    let mismatch = |wanted: &str, found: &str| {
        let message = format!("{path} in body must be of type {wanted}: {}", go_quote(found));
        Err(Finding::new(ErrorKind::TypeInvalid, path, found, message))
    };
    if value.is_null() {
        return match wanted {
            Some(wanted) if !node.nullable => mismatch(wanted, "null"),
            _ => Ok(true),
        };
    }
    let texty = value.is_string() || value.is_array();
    let numeric = matches!(
        node.json_type,
        JsonType::Integer | JsonType::Number | JsonType::IntOrString
    );
    let fits = wanted.is_some() && is_of_type(value, node.json_type);
    if let Some(format) = format {
        if !texty && !fits {
            return mismatch(format, found_format);
        }
        // Upstream lets any text or list pass here when a format is given; the format check itself sees texts only.
        if texty && !numeric {
            return Ok(true);
        }
    }
    if fits {
        Ok(true)
    } else {
        mismatch(wanted.unwrap_or_default(), found)
    }
}

pub(super) fn check_text(node: &Node, text: &str, path: &str) -> Option<Finding> {
    let limits = &node.limits;
    // Counting characters only where bytes do not settle it already.
    let length = || text.chars().count() as u64;
    if let Some(max) = limits.max_length
        && text.len() as u64 > max
        && length() > max
    {
        let unit = if max == 1 { "byte" } else { "bytes" };
        return Some(Finding {
            kind: ErrorKind::TooLong,
            name: Some(path.to_owned()),
            value: None,
            message: format!("may not be more than {max} {unit}"),
        });
    }
    if let Some(min) = limits.min_length
        && length() < min
    {
        let message = format!("{path} in body should be at least {min} chars long");
        return Some(Finding::new(ErrorKind::Invalid, path, text, message));
    }
    let pattern = limits.pattern.as_deref().filter(|pattern| !pattern.is_empty())?;
    let shown = match pattern::matches(pattern, text) {
        Ok(true) => return None,
        Ok(false) => pattern.to_owned(),
        Err(complaint) => format!("{pattern}, but pattern is invalid: {complaint}"),
    };
    Some(Finding::new(
        ErrorKind::Invalid,
        path,
        text,
        format!("{path} in body should match '{shown}'"),
    ))
}

pub(super) fn check_format(node: &Node, text: &str, path: &str) -> Option<Finding> {
    let format = format_of(node)?;
    if !matches!(node.json_type, JsonType::String | JsonType::Any) || formats::accepts(format, text) {
        return None;
    }
    let message = format!("{path} in body must be of type {format}: {}", go_quote(text));
    Some(Finding::new(ErrorKind::TypeInvalid, path, text, message))
}

pub(super) fn check_number(node: &Node, value: &Value, path: &str, found: &mut Vec<Finding>) {
    let limits = &node.limits;
    let Some(float) = value.as_f64() else { return };
    let whole = value.as_i64();
    if let Some(text) = out_of_range(node, value, path) {
        found.push(Finding::without_place(text));
    }
    let mut fail = |words: String| {
        found.push(Finding::new(
            ErrorKind::Invalid,
            path,
            value.clone(),
            format!("{path} in body should be {words}"),
        ));
    };
    // Whole numbers are compared as such with the truncated bound, everything else as floats: upstream's "native type".
    if let Some(factor) = limits.multiple_of {
        let divides = match whole {
            Some(whole) => truncated(factor) > 0 && whole % truncated(factor) == 0,
            None => (float / factor).fract() == 0.0,
        };
        if !divides {
            fail(format!("a multiple of {}", shown(factor, whole)));
        }
    }
    if let Some(min) = limits.minimum {
        let below = match whole {
            Some(whole) if limits.exclusive_minimum => whole <= truncated(min),
            Some(whole) => whole < truncated(min),
            None if limits.exclusive_minimum => float <= min,
            None => float < min,
        };
        if below {
            let words = if limits.exclusive_minimum {
                "greater than"
            } else {
                "greater than or equal to"
            };
            fail(format!("{words} {}", shown(min, whole)));
        }
    }
    if let Some(max) = limits.maximum {
        let above = match whole {
            Some(whole) if limits.exclusive_maximum => whole >= truncated(max),
            Some(whole) => whole > truncated(max),
            None if limits.exclusive_maximum => float >= max,
            None => float > max,
        };
        if above {
            let words = if limits.exclusive_maximum {
                "less than"
            } else {
                "less than or equal to"
            };
            fail(format!("{words} {}", shown(max, whole)));
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "upstream truncates bounds for whole numbers in the same way"
)]
fn truncated(bound: f64) -> i64 {
    bound as i64
}

fn shown(bound: f64, whole: Option<i64>) -> String {
    if whole.is_some() {
        truncated(bound).to_string()
    } else {
        go_float(bound)
    }
}

fn out_of_range(node: &Node, value: &Value, path: &str) -> Option<String> {
    let whole = value.as_i64();
    if node.json_type != JsonType::Integer {
        let too_large =
            format_of(node) == Some("float") && value.as_f64().is_some_and(|float| float.abs() > f64::from(f32::MAX));
        return too_large.then(|| format!("Checked value must be of type number with format float in {path}"));
    }
    match format_of(node) {
        Some("int32") if whole.is_none_or(|whole| i32::try_from(whole).is_err()) => Some(format!(
            "Checked value must be of type integer with format int32 in {path}"
        )),
        Some("int64") if whole.is_none() => Some(format!(
            "Checked value must be of type integer with format int64 in {path}"
        )),
        None if whole.is_none() => Some(format!(
            "Checked value must be of type integer (default format) in {path}"
        )),
        _ => None,
    }
}

pub(super) fn check_enum(node: &Node, value: &Value, path: &str) -> Option<Finding> {
    let same = |allowed: &Value| match (allowed.as_f64(), value.as_f64()) {
        (Some(left), Some(right)) => left.total_cmp(&right).is_eq(),
        _ => !allowed.is_null() && allowed == value,
    };
    if node.enum_values.is_empty() || node.enum_values.iter().any(same) {
        return None;
    }
    let supported: Vec<String> = node
        .enum_values
        .iter()
        .map(|allowed| go_quote(&allowed.as_str().map_or_else(|| go_json(allowed), str::to_owned)))
        .collect();
    let message = format!("supported values: {}", supported.join(", "));
    Some(Finding::new(ErrorKind::NotSupported, path, value.clone(), message))
}

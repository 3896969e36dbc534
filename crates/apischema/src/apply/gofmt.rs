//! How Go prints JSON values. Messages of the API server show values in this notation, and clients compare messages.

use std::fmt::Write as _;

use serde_json::{Number, Value};

/// `%v` of a decoded JSON value.
pub(crate) fn plain(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::Bool(flag) => flag.to_string(),
        Value::Number(number) => number_text(number),
        Value::String(text) => text.clone(),
        Value::Array(items) => plain_list(items),
        Value::Object(fields) => {
            let inner: Vec<String> = fields
                .iter()
                .map(|(name, value)| format!("{name}:{}", plain(value)))
                .collect();
            format!("map[{}]", inner.join(" "))
        }
    }
}

/// `%v` of a list of decoded JSON values.
pub(crate) fn plain_list(items: &[Value]) -> String {
    let inner: Vec<String> = items.iter().map(plain).collect();
    format!("[{}]", inner.join(" "))
}

/// `%#v` of a decoded JSON value.
pub(crate) fn syntax(value: &Value) -> String {
    match value {
        Value::Null => "interface {}(nil)".to_owned(),
        Value::String(text) => quoted(text),
        Value::Array(items) => {
            let inner: Vec<String> = items.iter().map(syntax).collect();
            format!("[]interface {{}}{{{}}}", inner.join(", "))
        }
        Value::Object(fields) => {
            let inner: Vec<String> = fields
                .iter()
                .map(|(name, value)| format!("{}:{}", quoted(name), syntax(value)))
                .collect();
            format!("map[string]interface {{}}{{{}}}", inner.join(", "))
        }
        other => plain(other),
    }
}

/// `%T` of a decoded JSON value.
pub(crate) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// A value inside a path element, as structured-merge-diff prints it.
pub(super) fn path_value(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::String(text) => quoted(text),
        Value::Array(items) => {
            let inner: Vec<String> = items.iter().map(path_value).collect();
            format!("[{}]", inner.join(","))
        }
        Value::Object(fields) => {
            let inner: Vec<String> = fields
                .iter()
                .map(|(name, value)| format!("{name}={}", path_value(value)))
                .collect();
            inner.concat()
        }
        // Keys come out of JSON, where Go reads every number as a float64.
        Value::Number(number) => number.as_f64().map(float).unwrap_or_default(),
        Value::Bool(flag) => flag.to_string(),
    }
}

/// `%q`.
pub(crate) fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\u{b}' => out.push_str("\\v"),
            c if (c as u32) < 0x20 || c as u32 == 0x7f => {
                let _ = write!(out, "\\x{:02x}", c as u32);
            }
            c if c.is_control() => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

fn number_text(number: &Number) -> String {
    if number.is_f64() {
        number.as_f64().map(float).unwrap_or_default()
    } else {
        number.to_string()
    }
}

/// `%v` of a float64: shortest form, with an exponent from 1e6 on and below 1e-4.
fn float(value: f64) -> String {
    let scientific = format!("{value:e}");
    let Some((mantissa, exponent)) = scientific.split_once('e') else {
        return scientific;
    };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if value == 0.0 || (-4..6).contains(&exponent) {
        return format!("{value}");
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.abs())
}

//! Values as Go prints them in the messages of the API server: quoted text, numbers in Go's notations, `%v` and JSON.
//! Which value a message shows is the message's business.

use std::fmt::Write as _;

use serde_json::Value;

/// A value as the messages show it: text quoted, plain numbers and booleans, everything else as JSON.
pub fn go_value(value: &Value) -> String {
    match value {
        Value::String(text) => go_quote(text),
        Value::Number(number) => go_number(number),
        Value::Bool(flag) => flag.to_string(),
        other => go_json(other),
    }
}

/// Go's `%v` of a JSON number: integers plain, others in the shortest form, with an exponent from a million on.
pub fn go_number(number: &serde_json::Number) -> String {
    if number.is_i64() || number.is_u64() {
        return number.to_string();
    }
    go_float(number.as_f64().unwrap_or_default())
}

/// Go's `%v` of a float (`1e+06`, `0.5`, `3`).
pub fn go_float(value: f64) -> String {
    match decimal_exponent(value) {
        Some(power) if !(-4..6).contains(&power) => {
            let mantissa = format!("{value:e}");
            let mantissa = mantissa.split('e').next().unwrap_or_default();
            let sign = if power < 0 { '-' } else { '+' };
            format!("{mantissa}e{sign}{:02}", power.abs())
        }
        _ => format!("{value}"),
    }
}

/// How Go's JSON writes a float: plain digits between a millionth and 10^21.
fn json_float(value: f64) -> String {
    match decimal_exponent(value) {
        Some(power) if !(-6..21).contains(&power) => {
            format!("{value:e}").replace('e', if power < 0 { "e" } else { "e+" })
        }
        _ => format!("{value}"),
    }
}

fn decimal_exponent(value: f64) -> Option<i32> {
    if value == 0.0 || !value.is_finite() {
        return None;
    }
    format!("{value:e}")
        .split_once('e')
        .and_then(|(_, power)| power.parse().ok())
}

/// A value as Go's `%v` prints it.
pub fn go_print(value: &Value) -> String {
    match value {
        Value::Object(fields) => {
            let fields: Vec<String> = fields
                .iter()
                .map(|(key, value)| format!("{key}:{}", go_print(value)))
                .collect();
            format!("map[{}]", fields.join(" "))
        }
        Value::Array(items) => format!("[{}]", items.iter().map(go_print).collect::<Vec<_>>().join(" ")),
        Value::String(text) => text.clone(),
        Value::Null => "<nil>".into(),
        other => other.to_string(),
    }
}

/// Go's `%q`.
pub fn go_quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{b}' => out.push_str("\\v"),
            ' '..='~' => out.push(character),
            _ if character.is_ascii() => {
                let _ = write!(out, "\\x{:02x}", u32::from(character));
            }
            _ if is_printable(character) => out.push(character),
            _ if u32::from(character) > 0xffff => {
                let _ = write!(out, "\\U{:08x}", u32::from(character));
            }
            _ => {
                let _ = write!(out, "\\u{:04x}", u32::from(character));
            }
        }
    }
    out.push('"');
    out
}

/// Letters, marks, numbers, punctuation and symbols. A leading letter keeps `escape_debug` from treating a mark as one
/// that would attach to the opening quote.
fn is_printable(character: char) -> bool {
    let pair: String = ['a', character].iter().collect();
    !pair.escape_debug().any(|piece| piece == '\\')
}

/// Go's `json.Marshal`: no blanks, floats without a needless fraction, and `<`, `>`, `&` and the two line separators
/// escaped.
pub fn go_json(value: &Value) -> String {
    let mut out = String::new();
    write_json(value, &mut out);
    out
}

fn write_json(value: &Value, out: &mut String) {
    match value {
        Value::Object(fields) => {
            out.push('{');
            for (position, (key, child)) in fields.iter().enumerate() {
                if position > 0 {
                    out.push(',');
                }
                write_json_text(key, out);
                out.push(':');
                write_json(child, out);
            }
            out.push('}');
        }
        Value::Array(items) => {
            out.push('[');
            for (position, child) in items.iter().enumerate() {
                if position > 0 {
                    out.push(',');
                }
                write_json(child, out);
            }
            out.push(']');
        }
        Value::String(text) => write_json_text(text, out),
        Value::Number(number) if number.is_f64() => out.push_str(&json_float(number.as_f64().unwrap_or_default())),
        plain => {
            let _ = write!(out, "{plain}");
        }
    }
}

fn write_json_text(text: &str, out: &mut String) {
    for character in Value::from(text).to_string().chars() {
        match character {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                let _ = write!(out, "\\u{:04x}", u32::from(character));
            }
            other => out.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_print_as_go_prints_them() {
        for (value, verb, json) in [
            (1e6, "1e+06", "1000000"),
            (1e5, "100000", "100000"),
            (123_456_789.0, "1.23456789e+08", "123456789"),
            (1e21, "1e+21", "1e+21"),
            (0.0001, "0.0001", "0.0001"),
            (0.00001, "1e-05", "0.00001"),
            (1e-7, "1e-07", "1e-7"),
            (-0.5, "-0.5", "-0.5"),
        ] {
            assert_eq!((go_float(value), json_float(value)), (verb.to_owned(), json.to_owned()));
        }
    }

    #[test]
    fn quoting_follows_go() {
        assert_eq!(
            go_quote("a\u{a0}\u{301}\u{200b}\0\u{7f}\u{1F600}\u{feff}\u{E0001}é"),
            "\"a\\u00a0\u{301}\\u200b\\x00\\x7f\u{1F600}\\ufeff\\U000e0001é\""
        );
    }
}

//! Values as Go prints them, where that differs from Rust: floating point numbers, and JSON that is safe inside HTML.

use serde_json::{Number, Value};

/// A value as text in a cell: scalars bare, everything else as JSON.
pub fn printed(value: &Value) -> String {
    match value {
        Value::Null => "<no value>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Number(number) => match float_of(number) {
            Some(float) => bare_float(float),
            None => number.to_string(),
        },
        Value::Bool(truth) => truth.to_string(),
        Value::Array(_) | Value::Object(_) => json(value),
    }
}

/// A number in a cell of type `number`: whole ones have no fraction.
pub fn number(number: &Number) -> Value {
    match float_of(number).map(json_float) {
        Some(text) => text
            .parse::<i64>()
            .map_or_else(|_| Value::Number(number.clone()), Value::from),
        None => Value::Number(number.clone()),
    }
}

/// JSON as Go's encoder writes it: keys in order, `<`, `>` and `&` escaped.
fn json(value: &Value) -> String {
    match value {
        Value::Array(list) => format!("[{}]", list.iter().map(json).collect::<Vec<_>>().join(",")),
        Value::Object(map) => {
            let members: Vec<String> = map
                .iter()
                .map(|(key, value)| format!("{}:{}", json_text(key), json(value)))
                .collect();
            format!("{{{}}}", members.join(","))
        }
        Value::String(text) => json_text(text),
        Value::Number(number) => match float_of(number) {
            Some(float) => json_float(float),
            None => number.to_string(),
        },
        Value::Bool(_) | Value::Null => value.to_string(),
    }
}

fn json_text(text: &str) -> String {
    let mut written = Value::from(text).to_string();
    for (character, escaped) in [
        ("<", "\\u003c"),
        (">", "\\u003e"),
        ("&", "\\u0026"),
        ("\u{2028}", "\\u2028"),
        ("\u{2029}", "\\u2029"),
    ] {
        written = written.replace(character, escaped);
    }
    written
}

/// What Go would hold as a float: fractions, and integers beyond 64 bits.
fn float_of(number: &Number) -> Option<f64> {
    if number.is_i64() { None } else { number.as_f64() }
}

/// As `fmt.Print`: with an exponent below 1e-4 and from 1e6 on.
fn bare_float(float: f64) -> String {
    float_text(float, -4, 6)
}

/// As `encoding/json`: with an exponent below 1e-6 and from 1e21 on, small ones without a leading zero.
fn json_float(float: f64) -> String {
    float_text(float, -6, 21).replace("e-0", "e-")
}

/// Shortest form; with an exponent of at least two digits where the power of ten is below `small` or not below
/// `large`.
fn float_text(float: f64, small: i32, large: i32) -> String {
    let scientific = format!("{float:e}");
    let Some((digits, exponent)) = scientific.split_once('e') else {
        return scientific;
    };
    let power: i32 = exponent.parse().unwrap_or_default();
    if float != 0.0 && (power < small || power >= large) {
        let sign = if power < 0 { '-' } else { '+' };
        return format!("{digits}e{sign}{:02}", power.abs());
    }
    format!("{float}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn value_prints_as_go_prints_it() {
        let cases = [
            (json!("plain <&>"), "plain <&>"),
            (json!(42), "42"),
            (json!(1.5), "1.5"),
            (json!(2.0), "2"),
            (json!(1e20), "1e+20"),
            (json!(1e21), "1e+21"),
            (json!(1e-7), "1e-07"),
            (json!(0.0001), "0.0001"),
            (json!(1_234_567.5), "1.2345675e+06"),
            (json!([1_234_567.5, 1e-7, 1e21, 2.0]), "[1234567.5,1e-7,1e+21,2]"),
            (json!(true), "true"),
            (json!(null), "<no value>"),
            (json!([]), "[]"),
            (
                json!({"b": 1, "a": [1, "x", null, true, 1.5], "z": "<&>\"q\""}),
                r#"{"a":[1,"x",null,true,1.5],"b":1,"z":"\u003c\u0026\u003e\"q\""}"#,
            ),
        ];
        for (value, expected) in cases {
            assert_eq!(printed(&value), expected, "{value}");
        }
        assert_eq!(number(json!(2.0).as_number().unwrap()), json!(2));
        assert_eq!(number(json!(2.5).as_number().unwrap()), json!(2.5));
    }
}

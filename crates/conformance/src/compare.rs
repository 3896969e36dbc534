//! Finds where two masked answers differ: one entry a place, with the path to it and both values.

use std::fmt;

use serde_json::Value;

use crate::run::Answer;

/// One place where the two servers disagree.
#[derive(Debug, Clone, PartialEq)]
pub struct Difference {
    /// Number of the step, from 1; 0 for the whole.
    pub index: usize,
    /// The step's action.
    pub step: String,
    /// Such as `status`, `body.metadata.labels.a` or `events[2].type`.
    pub path: String,
    pub real: Option<Value>,
    pub sim: Option<Value>,
}

impl fmt::Display for Difference {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "  step {} {}: {}", self.index, self.step, self.path)?;
        writeln!(out, "    real: {}", shown(self.real.as_ref()))?;
        write!(out, "    sim:  {}", shown(self.sim.as_ref()))
    }
}

fn shown(value: Option<&Value>) -> String {
    let text = value.map_or_else(|| "(nothing)".to_owned(), Value::to_string);
    if text.chars().count() > 1200 {
        text.chars().take(1200).chain("…".chars()).collect()
    } else {
        text
    }
}

/// All differences between two answers to the same step.
pub(crate) fn answers(real: &Answer, sim: &Answer) -> Vec<Difference> {
    let mut found = Vec::new();
    let mut collect = |path: &str, real: &Value, sim: &Value| values(path, real, sim, &mut found);
    collect("status", &Value::from(real.status), &Value::from(sim.status));
    collect("headers", &real.headers, &sim.headers);
    collect("body", &real.body, &sim.body);
    if real.events != sim.events {
        collect(
            "events",
            &Value::from(real.events.clone()),
            &Value::from(sim.events.clone()),
        );
    }
    found
        .into_iter()
        .map(|(path, left, right)| Difference {
            index: real.index,
            step: real.step.clone(),
            path,
            real: left,
            sim: right,
        })
        .collect()
}

type Found = Vec<(String, Option<Value>, Option<Value>)>;

fn values(path: &str, real: &Value, sim: &Value, found: &mut Found) {
    match (real, sim) {
        (Value::Object(left), Value::Object(right)) => {
            for (key, value) in left {
                let inner = format!("{path}.{key}");
                match right.get(key) {
                    Some(other) => values(&inner, value, other, found),
                    None => found.push((inner, Some(value.clone()), None)),
                }
            }
            for (key, value) in right.iter().filter(|(key, _)| !left.contains_key(*key)) {
                found.push((format!("{path}.{key}"), None, Some(value.clone())));
            }
        }
        (Value::Array(left), Value::Array(right)) if left.len() == right.len() => {
            for (index, (value, other)) in left.iter().zip(right).enumerate() {
                values(&format!("{path}[{index}]"), value, other, found);
            }
        }
        // Only where they part: what is equal before and after would hide it.
        (Value::Array(left), Value::Array(right)) => {
            let shorter = left.len().min(right.len());
            let before = left.iter().zip(right).take_while(|(one, other)| one == other).count();
            let after = left
                .iter()
                .rev()
                .zip(right.iter().rev())
                .take_while(|(one, other)| one == other)
                .count();
            let after = after.min(shorter - before);
            let rest = |items: &[Value]| Some(Value::from(&items[before..items.len() - after]));
            found.push((format!("{path}[{before}..]"), rest(left), rest(right)));
        }
        _ if real == sim => {}
        _ => found.push((path.to_owned(), Some(real.clone()), Some(sim.clone()))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_place_once_with_both_values() {
        let mut found = Vec::new();
        values(
            "body",
            &json!({"a": [1, {"b": 2}], "c": 3}),
            &json!({"a": [1, {"b": 4}], "d": 5}),
            &mut found,
        );
        let paths: Vec<&str> = found.iter().map(|(path, _, _)| path.as_str()).collect();
        assert_eq!(paths, ["body.a[1].b", "body.c", "body.d"]);
        assert_eq!(found[1], ("body.c".to_owned(), Some(json!(3)), None));
    }

    #[test]
    fn lists_of_different_length_are_one_difference() {
        let mut found = Vec::new();
        values("events", &json!([1, 2, 3, 4]), &json!([1, 5, 4]), &mut found);
        assert_eq!(
            found,
            [("events[1..]".to_owned(), Some(json!([2, 3])), Some(json!([5])))]
        );
    }
}

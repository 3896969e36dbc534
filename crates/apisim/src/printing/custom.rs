//! Printing custom resources: the columns that their definition names, filled by JSONPath.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::column::NAME;
use super::duration;
use super::gojson;
use super::jsonpath::JsonPath;
use crate::resource::PrinterColumn;

/// The columns of one custom resource version, with their paths read.
pub struct CustomPrinter<'a> {
    columns: Vec<(&'a PrinterColumn, JsonPath)>,
    /// Without columns of its own, a kind shows its age.
    age_only: bool,
}

impl<'a> CustomPrinter<'a> {
    /// Stops at the first column whose path cannot be read, as the real server does.
    pub fn new(columns: &'a [PrinterColumn]) -> Self {
        let read = columns
            .iter()
            .map_while(|column| Some((column, JsonPath::parse(&column.json_path)?)))
            .collect();
        Self {
            columns: read,
            age_only: columns.is_empty(),
        }
    }

    pub fn definitions(&self) -> Value {
        let mut definitions = vec![NAME.definition()];
        if self.age_only {
            definitions.push(json!({"name": "Age", "type": "date", "format": "", "description": "", "priority": 0}));
        }
        definitions.extend(self.columns.iter().map(|(column, _)| {
            let description = if column.description.is_empty() {
                format!(
                    "Custom resource definition column (in JSONPath format): {}",
                    column.json_path
                )
            } else {
                column.description.clone()
            };
            json!({
                "name": column.name,
                "type": column.column_type,
                "format": column.format,
                "description": description,
                "priority": column.priority,
            })
        }));
        Value::Array(definitions)
    }

    pub fn row(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
        let mut cells = vec![json!(text("/metadata/name").unwrap_or_default())];
        if self.age_only {
            cells.push(
                text("/metadata/creationTimestamp")
                    .map_or(Value::Null, |created| json!(duration::since(Some(created), now))),
            );
        }
        cells.extend(self.columns.iter().map(|(column, path)| match path.find(object) {
            Ok(found) if !found.is_empty() => cell(&column.column_type, &found[0], now),
            _ => Value::Null,
        }));
        cells
    }
}

fn cell(column_type: &str, value: &Value, now: Timestamp) -> Value {
    match (column_type, value) {
        ("string", _) => json!(gojson::printed(value)),
        ("integer", Value::Number(number)) => match number.as_i64() {
            Some(_) => value.clone(),
            None => number.as_f64().map_or(Value::Null, |number| json!(truncated(number))),
        },
        ("number", Value::Number(number)) => gojson::number(number),
        ("boolean", Value::Bool(_)) => value.clone(),
        ("date", Value::String(moment)) if moment.is_empty() || moment == "null" => json!("<unknown>"),
        ("date", Value::String(moment)) => match moment.parse::<Timestamp>() {
            Ok(then) => json!(duration::human_duration(now.duration_since(then))),
            Err(_) => json!("<invalid>"),
        },
        _ => Value::Null,
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "a fraction loses its part behind the point, as in Go"
)]
fn truncated(number: f64) -> i64 {
    number as i64
}

//! Figures, each with its bar, as a table and as JSON. The document also holds what other benches wrote: each replaces its own part.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use serde_json::{Map, Value, json};

/// Where all figures go unless told otherwise.
pub fn default_output() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    target
        .unwrap_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target"))
        .join("bench.json")
}

/// One figure, the bar it has to stay below, and what we would like.
#[derive(Clone, Debug)]
pub struct Figure {
    pub name: String,
    pub value: f64,
    pub unit: &'static str,
    pub bar: Option<f64>,
    pub goal: Option<f64>,
}

impl Figure {
    pub fn new(name: impl Into<String>, value: f64, unit: &'static str) -> Self {
        Self {
            name: name.into(),
            value,
            unit,
            bar: None,
            goal: None,
        }
    }

    #[must_use]
    pub fn below(mut self, bar: f64) -> Self {
        self.bar = Some(bar);
        self
    }

    #[must_use]
    pub fn goal(mut self, goal: f64) -> Self {
        self.goal = Some(goal);
        self
    }

    pub fn holds(&self) -> bool {
        self.bar.is_none_or(|bar| self.value <= bar)
    }

    pub fn json(&self) -> Value {
        json!({
            "name": self.name, "value": self.value, "unit": self.unit,
            "bar": self.bar, "goal": self.goal, "holds": self.bar.map(|_| self.holds()),
        })
    }
}

/// Prints figures as soon as they are there: the whole takes a while.
pub fn tell(figures: Vec<Figure>) -> Vec<Figure> {
    println!(
        "\n{:<62} {:>10} {:<9} {:>8} {:>8}",
        "FIGURE", "VALUE", "UNIT", "BAR", "GOAL"
    );
    for figure in &figures {
        let word = |limit: Option<f64>| limit.map(|limit| format!("{limit}")).unwrap_or_default();
        let verdict = if figure.holds() { "" } else { "missed" };
        println!(
            "{:<62} {:>10.2} {:<9} {:>8} {:>8} {verdict}",
            figure.name,
            figure.value,
            figure.unit,
            word(figure.bar),
            word(figure.goal)
        );
    }
    figures
}

/// The median, 99 of 100 and the longest of some times.
pub fn times(name: &str, mut times: Vec<Duration>, bar: f64) -> Vec<Figure> {
    times.sort_unstable();
    let at = |share: usize| times.get((times.len() * share / 100).min(times.len().saturating_sub(1)));
    let milliseconds = |time: Option<&Duration>| time.copied().unwrap_or_default().as_secs_f64() * 1e3;
    let count = times.len();
    vec![
        Figure::new(format!("{name}, half of {count}"), milliseconds(at(50)), "ms"),
        Figure::new(format!("{name}, 99 of 100"), milliseconds(at(99)), "ms").below(bar),
        Figure::new(format!("{name}, longest"), milliseconds(times.last()), "ms"),
    ]
}

#[allow(clippy::cast_precision_loss, reason = "figures for people")]
pub fn number(count: u64) -> f64 {
    count as f64
}

/// What was measured so far, by whatever bench.
pub struct Document {
    path: PathBuf,
    parts: Map<String, Value>,
}

impl Document {
    /// What is there is kept; what cannot be read is not worth keeping.
    pub fn open(path: &Path) -> Self {
        let text = std::fs::read(path).unwrap_or_default();
        Self {
            path: path.to_owned(),
            parts: serde_json::from_slice(&text).unwrap_or_default(),
        }
    }

    pub fn put(&mut self, name: &str, part: Value) {
        self.parts.insert(name.to_owned(), part);
    }

    pub fn write(&self) -> anyhow::Result<()> {
        if let Some(folder) = self.path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let text = format!("{:#}\n", Value::Object(self.parts.clone()));
        std::fs::write(&self.path, text).with_context(|| format!("{} cannot be written", self.path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_keeps_what_others_wrote() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bench.json");
        std::fs::write(&path, r#"{"figures": [1], "costs": [2]}"#).unwrap();
        let mut document = Document::open(&path);
        document.put("costs", json!([3]));
        document.write().unwrap();
        let read: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        assert_eq!(read, json!({"figures": [1], "costs": [3]}));
    }

    #[test]
    fn times_are_told_by_their_order() {
        let figures = times("pause", (1..=200).map(Duration::from_millis).collect(), 50.0);
        let values: Vec<f64> = figures.iter().map(|figure| figure.value.round()).collect();
        assert_eq!(values, [101.0, 199.0, 200.0]);
        assert!(!figures.iter().all(Figure::holds), "199 ms is over the bar");
        let none = times("none", Vec::new(), 50.0);
        assert!(none.iter().all(|figure| figure.value.abs() < f64::EPSILON));
    }
}

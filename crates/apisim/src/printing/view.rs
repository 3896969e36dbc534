//! Reading an object while it is printed: fields by JSON pointer with the zero values that Go would have, and the
//! small formats that several printers share.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::Value;

use super::duration;

/// An object, or a part of one, and the moment at which it is printed.
#[derive(Clone, Copy)]
pub struct View<'a> {
    value: &'a Value,
    now: Timestamp,
}

impl<'a> View<'a> {
    pub fn new(value: &'a Value, now: Timestamp) -> Self {
        Self { value, now }
    }

    pub fn now(self) -> Timestamp {
        self.now
    }

    /// The value at a JSON pointer; `null` counts as absent.
    pub fn at(self, pointer: &str) -> Option<&'a Value> {
        self.value.pointer(pointer).filter(|value| !value.is_null())
    }

    pub fn part(self, pointer: &str) -> Option<View<'a>> {
        self.at(pointer).map(|value| View { value, now: self.now })
    }

    pub fn text(self, pointer: &str) -> &'a str {
        self.at(pointer).and_then(Value::as_str).unwrap_or_default()
    }

    /// The text, or a word for its absence (an empty text is absent too).
    pub fn text_or(self, pointer: &str, absent: &'a str) -> &'a str {
        let text = self.text(pointer);
        if text.is_empty() { absent } else { text }
    }

    pub fn integer(self, pointer: &str) -> i64 {
        self.at(pointer).and_then(Value::as_i64).unwrap_or_default()
    }

    pub fn flag(self, pointer: &str) -> Option<bool> {
        self.at(pointer).and_then(Value::as_bool)
    }

    /// The members of a list; none when it is absent.
    pub fn each(self, pointer: &str) -> impl DoubleEndedIterator<Item = View<'a>> + ExactSizeIterator {
        let list = self
            .at(pointer)
            .and_then(Value::as_array)
            .map(Vec::as_slice)
            .unwrap_or_default();
        list.iter().map(move |value| View { value, now: self.now })
    }

    /// Number of members of a list or map.
    pub fn count(self, pointer: &str) -> usize {
        match self.at(pointer) {
            Some(Value::Array(list)) => list.len(),
            Some(Value::Object(map)) => map.len(),
            _ => 0,
        }
    }

    /// The texts of a list.
    pub fn texts(self, pointer: &str) -> Vec<&'a str> {
        self.at(pointer)
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect()
    }

    pub fn name(self) -> &'a str {
        self.text("/metadata/name")
    }

    pub fn annotation(self, key: &str) -> Option<&'a str> {
        self.at("/metadata/annotations")?.get(key)?.as_str()
    }

    pub fn is_deleted(self) -> bool {
        self.at("/metadata/deletionTimestamp").is_some()
    }

    pub fn age(self) -> String {
        self.since("/metadata/creationTimestamp")
    }

    pub fn since(self, pointer: &str) -> String {
        duration::since(self.at(pointer).and_then(Value::as_str), self.now)
    }

    pub fn moment(self, pointer: &str) -> Option<Timestamp> {
        self.text(pointer).parse().ok()
    }

    /// The condition of a type, from a list that holds at most one of each.
    pub fn condition(self, pointer: &str, condition_type: &str) -> Option<View<'a>> {
        self.each(pointer)
            .find(|condition| condition.text("/type") == condition_type)
    }

    pub fn condition_is_true(self, pointer: &str, condition_type: &str) -> bool {
        self.condition(pointer, condition_type)
            .is_some_and(|condition| condition.text("/status") == "True")
    }

    /// A number or a text, as an `IntOrString` prints.
    pub fn int_or_string(self, pointer: &str) -> Option<String> {
        match self.at(pointer)? {
            Value::String(text) => Some(text.clone()),
            other => Some(other.to_string()),
        }
    }

    /// `name,name` and `image,image` of the containers under a pod template.
    pub fn containers(self, pointer: &str) -> (String, String) {
        let column = |field: &str| {
            let texts: Vec<&str> = self.each(pointer).map(|container| container.text(field)).collect();
            texts.join(",")
        };
        (column("/name"), column("/image"))
    }

    /// `a=b,c=d`, or `<none>`.
    pub fn labels(self, pointer: &str) -> String {
        let Some(labels) = self.at(pointer).and_then(Value::as_object) else {
            return "<none>".to_owned();
        };
        let sorted: BTreeMap<&str, &str> = labels
            .iter()
            .map(|(key, value)| (key.as_str(), value.as_str().unwrap_or_default()))
            .collect();
        let pairs: Vec<String> = sorted
            .into_iter()
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        or_none(pairs.join(","))
    }

    /// A label selector as `kubectl -l` would take it; empty when it selects all or nothing.
    pub fn selector(self, pointer: &str) -> String {
        let Some(selector) = self.part(pointer) else {
            return String::new();
        };
        let mut requirements: Vec<(String, String)> = Vec::new();
        for (key, value) in selector
            .at("/matchLabels")
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
        {
            requirements.push((key.clone(), format!("{key}={}", value.as_str().unwrap_or_default())));
        }
        for expression in selector.each("/matchExpressions") {
            let key = expression.text("/key");
            let mut values = expression.texts("/values");
            values.sort_unstable();
            let values = values.join(",");
            let requirement = match expression.text("/operator") {
                "In" => format!("{key} in ({values})"),
                "NotIn" => format!("{key} notin ({values})"),
                "Exists" => key.to_owned(),
                _ => format!("!{key}"),
            };
            requirements.push((key.to_owned(), requirement));
        }
        // The real server's order is by key only; equal keys keep the order in which they were written.
        requirements.sort_by(|one, other| one.0.cmp(&other.0));
        let texts: Vec<String> = requirements.into_iter().map(|(_, text)| text).collect();
        texts.join(",")
    }
}

pub fn or_none(text: String) -> String {
    if text.is_empty() { "<none>".to_owned() } else { text }
}

/// The first `shown` texts, and how many more there are.
pub fn with_more(texts: &[String], shown: usize, separator: &str) -> String {
    let listed = texts.iter().take(shown).cloned().collect::<Vec<_>>().join(separator);
    match texts.len().checked_sub(shown) {
        Some(more) if more > 0 => format!("{listed} + {more} more..."),
        _ => listed,
    }
}

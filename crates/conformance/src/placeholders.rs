//! Fills in what differs between runs and between servers: `$ns`, `$core` and the like for paths, `${name.path}` for a value out of an earlier
//! answer, `{$of: name, $with: {}}` for a whole answer with some fields changed, `$fill:N` for N characters. A value that an earlier answer did not have becomes `missing`, or the first revision, on both servers alike.

use std::collections::BTreeMap;

use serde_json::Value;

/// What a case knows while it runs on one server.
#[derive(Debug, Default)]
pub(crate) struct Placeholders {
    words: Vec<(&'static str, String)>,
    kept: BTreeMap<String, Value>,
}

impl Placeholders {
    pub(crate) fn new(namespace: &str) -> Self {
        let group = |group: &str| format!("/apis/{group}/namespaces/{namespace}");
        let words = vec![
            ("$core", format!("/api/v1/namespaces/{namespace}")),
            ("$apps", group("apps/v1")),
            ("$batch", group("batch/v1")),
            ("$policy", group("policy/v1")),
            ("$leases", group("coordination.k8s.io/v1") + "/leases"),
            ("$widgets", group("conformance.afloat.dev/v1") + "/widgets"),
            (
                "$crds",
                "/apis/apiextensions.k8s.io/v1/customresourcedefinitions".to_owned(),
            ),
            ("$ns", namespace.to_owned()),
        ];
        Self {
            words,
            kept: BTreeMap::new(),
        }
    }

    pub(crate) fn keep(&mut self, name: &str, body: Value) {
        self.kept.insert(name.to_owned(), body);
    }

    pub(crate) fn text(&self, text: &str) -> String {
        let mut out = text.to_owned();
        for (word, value) in &self.words {
            out = out.replace(word, value);
        }
        while let Some(start) = out.find("${") {
            let Some(length) = out[start..].find('}') else { break };
            let value = self.lookup(&out[start + 2..start + length]);
            out.replace_range(start..=start + length, &value);
        }
        while let Some(start) = out.find("$fill:") {
            let digits: String = out[start + 6..].chars().take_while(char::is_ascii_digit).collect();
            let filler = "x".repeat(digits.parse().unwrap_or_default());
            out.replace_range(start..start + 6 + digits.len(), &filler);
        }
        out
    }

    pub(crate) fn json(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.text(text)),
            Value::Array(items) => items.iter().map(|item| self.json(item)).collect(),
            Value::Object(fields) if fields.contains_key("$of") => {
                let mut body = value["$of"]
                    .as_str()
                    .and_then(|name| self.kept.get(name))
                    .cloned()
                    .unwrap_or_default();
                change(&mut body, &self.json(&value["$with"]));
                body
            }
            Value::Object(fields) => Value::Object(
                fields
                    .iter()
                    .map(|(key, field)| (self.text(key), self.json(field)))
                    .collect(),
            ),
            other => other.clone(),
        }
    }

    fn lookup(&self, expression: &str) -> String {
        let (name, path) = expression.split_once('.').unwrap_or((expression, ""));
        match self.kept.get(name).and_then(|body| at(body, path)) {
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
            // Old, but a revision: nonsense would be refused before anything of interest happens.
            None if path.ends_with("resourceVersion") => "1".to_owned(),
            None => "missing".to_owned(),
        }
    }
}

/// Changes an earlier answer by a merge patch.
fn change(body: &mut Value, patch: &Value) {
    let Value::Object(fields) = patch else {
        *body = patch.clone();
        return;
    };
    if !body.is_object() {
        *body = Value::Object(serde_json::Map::new());
    }
    for (key, field) in fields {
        match (field, body.as_object_mut()) {
            (Value::Null, Some(inner)) => drop(inner.remove(key)),
            _ => change(&mut body[key], field),
        }
    }
}

/// The value at a dotted path; numbers index lists, and `\.` is a dot within a name.
pub(crate) fn at<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    let escaped = path.replace("\\.", "\u{0}");
    escaped
        .split('.')
        .filter(|part| !part.is_empty())
        .try_fold(value, |inner, part| {
            let name = part.replace('\u{0}', ".");
            match inner {
                Value::Array(items) => items.get(name.parse::<usize>().ok()?),
                other => other.get(&name),
            }
        })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn earlier_answers_paths_and_filling() {
        let mut placeholders = Placeholders::new("here");
        placeholders.keep(
            "pod",
            json!({"metadata": {"labels": {"a.b": "c"}, "n": 7}, "list": [{"x": 1}]}),
        );
        assert_eq!(
            placeholders.text("$core/pods?x=${pod.metadata.n}"),
            "/api/v1/namespaces/here/pods?x=7"
        );
        assert_eq!(
            placeholders.text("${pod.metadata.labels.a\\.b} ${pod.list.0.x} ${pod.no}"),
            "c 1 missing"
        );
        assert_eq!(
            placeholders.json(&json!({"$ns": ["$fill:3"]})),
            json!({"here": ["xxx"]})
        );
        let sent_back = json!({"$of": "pod", "$with": {"metadata": {"n": null}, "list": []}});
        assert_eq!(
            placeholders.json(&sent_back),
            json!({"metadata": {"labels": {"a.b": "c"}}, "list": []})
        );
    }
}

//! What the body of an answer or the line of a watch means, whatever it is written in.

use serde_json::Value;

/// JSON as it is, YAML as what it means, anything else as text.
pub(crate) fn parse_body(bytes: &[u8]) -> Value {
    if bytes.is_empty() {
        return Value::Null;
    }
    serde_json::from_slice(bytes).unwrap_or_else(|_| {
        let text = String::from_utf8_lossy(bytes).into_owned();
        let looks_like_yaml = text.starts_with("apiVersion:") || text.starts_with("kind:");
        looks_like_yaml
            .then(|| serde_saphyr::from_str(&text).ok())
            .flatten()
            .unwrap_or(Value::String(text))
    })
}

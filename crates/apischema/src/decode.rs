//! From the bytes of a request to a value: JSON and YAML, with the complaints of Go's decoder about syntax, and the
//! report of fields that are given twice or unknown. What the fields mean for a kind is the schema's business.

mod json;

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde_json::Value;

use crate::field_error::go_quote;

/// How the body is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Json,
    Yaml,
}

/// What to do about unknown and duplicate fields (`fieldValidation`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldValidation {
    Ignore,
    Warn,
    Strict,
}

impl FieldValidation {
    /// Reads the query parameter; none means to warn. `None` for a word that the API server does not know.
    pub fn parse(parameter: Option<&str>) -> Option<Self> {
        match parameter.unwrap_or_default() {
            "" | "Warn" => Some(Self::Warn),
            "Ignore" => Some(Self::Ignore),
            "Strict" => Some(Self::Strict),
            _ => None,
        }
    }
}

/// The body does not parse; the text is Go's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct DecodeError(pub String);

/// A parsed body.
#[derive(Clone, Debug, PartialEq)]
pub struct Decoded {
    /// Later fields win over earlier ones of the same name.
    pub value: Value,
    /// Whether some object names a field twice; [`strict_problems`] tells which.
    pub has_duplicates: bool,
    /// The complaint of the YAML decoder about keys given twice, which comes before all others.
    pub yaml_duplicates: Option<String>,
}

/// Parses a body. An error reads as the API server's after `couldn't get version/kind; json parse error: ` for JSON.
pub fn parse(bytes: &[u8], format: Format) -> Result<Decoded, DecodeError> {
    match format {
        Format::Json => {
            let (value, has_duplicates) = json::parse(bytes)?;
            Ok(Decoded {
                value,
                has_duplicates,
                yaml_duplicates: None,
            })
        }
        Format::Yaml => parse_yaml(bytes),
    }
}

/// YAML becomes JSON before anything else sees it; Go's converter reads YAML 1.1 words (`yes`, `off`) as booleans.
fn parse_yaml(bytes: &[u8]) -> Result<Decoded, DecodeError> {
    use serde_saphyr::options::DuplicateKeyPolicy;
    let text =
        std::str::from_utf8(bytes).map_err(|_| DecodeError("yaml: control characters are not allowed".to_owned()))?;
    let text = first_document(text);
    if text.trim_start_matches([' ', '\n']).starts_with('\t') {
        return Err(DecodeError(
            "yaml: found character that cannot start any token".to_owned(),
        ));
    }
    let strict = serde_saphyr::options! { duplicate_keys: DuplicateKeyPolicy::Error, legacy_octal_numbers: true };
    let lenient = serde_saphyr::options! { duplicate_keys: DuplicateKeyPolicy::LastWins, legacy_octal_numbers: true };
    let (value, yaml_duplicates) = match serde_saphyr::from_str_with_options::<Value>(text, strict) {
        Ok(value) => (value, None),
        Err(error) => {
            let value =
                serde_saphyr::from_str_with_options::<Value>(text, lenient).map_err(|error| yaml_error(&error))?;
            let line = error.location().map_or(0, |location| location.line());
            let key = text
                .lines()
                .nth(usize::try_from(line).unwrap_or_default().saturating_sub(1))
                .unwrap_or_default();
            (value, Some(duplicate_key_text(line, key)))
        }
    };
    if depth(&value) > json::MAX_DEPTH {
        return Err(DecodeError("exceeded max depth".to_owned()));
    }
    Ok(Decoded {
        value: json::plain_numbers(value),
        has_duplicates: false,
        yaml_duplicates,
    })
}

/// Go reads the first document of several and leaves the rest.
fn first_document(text: &str) -> &str {
    let body = text.trim_start_matches(|character: char| character.is_whitespace());
    let start = text.len() - body.len();
    let skip = start + if body.starts_with("---") { 3 } else { 0 };
    text[skip..].find("\n---").map_or(text, |end| &text[..=skip + end])
}

/// The commonest complaints in the words of Go's parser, which leaves the first line unsaid in some of them.
fn yaml_error(error: &serde_saphyr::Error) -> DecodeError {
    let line = error.location().map_or(1, |location| location.line());
    let text = error.to_string();
    let first = text.lines().next().unwrap_or_default();
    let place = format!("line {line}: ");
    let (place, words) = if first.contains("mapping values are not allowed") {
        (
            if line > 1 { place } else { String::new() },
            "mapping values are not allowed in this context",
        )
    } else if first.contains("tabs disallowed") {
        (place, "found character that cannot start any token")
    } else if first.contains("unclosed bracket") {
        (place, "did not find expected node content")
    } else {
        (place, first)
    };
    DecodeError(format!("yaml: {place}{words}"))
}

fn duplicate_key_text(line: u64, source: &str) -> String {
    let key = source
        .trim_start()
        .trim_start_matches("- ")
        .split(':')
        .next()
        .unwrap_or_default()
        .trim();
    format!(
        "yaml: unmarshal errors:\n  line {line}: key {} already set in map",
        go_quote(key.trim_matches(['"', '\'']))
    )
}

fn depth(value: &Value) -> usize {
    match value {
        Value::Object(fields) => 1 + fields.values().map(depth).max().unwrap_or_default(),
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or_default(),
        _ => 0,
    }
}

/// Who reports the unknown fields, which decides on the order and on repetitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reporter {
    /// One pass over the document: everything in its order, nothing about a field that is unknown anyway.
    Typed,
    /// Duplicates first, then what pruning and coercion removed.
    CustomResource,
}

/// The complaints about a body, as they stand in warnings and in the strict error: `unknown field "spec.foo"`,
/// `duplicate field "x"`. `unknown` are the paths that decoding dropped, in the order of the report.
pub fn strict_problems(
    body: &[u8],
    format: Format,
    decoded: &Decoded,
    unknown: &[String],
    reporter: Reporter,
) -> Vec<String> {
    let mut problems: Vec<String> = decoded.yaml_duplicates.iter().cloned().collect();
    let is_json = format == Format::Json;
    let trace = if is_json && (decoded.has_duplicates || !unknown.is_empty()) {
        json::trace(body)
    } else {
        Vec::new()
    };
    let unknown_text = |path: &str| format!("unknown field {}", go_quote(path));
    let duplicate_text = |path: &str| format!("duplicate field {}", go_quote(path));
    if reporter == Reporter::Typed && is_json {
        let mut pending: BTreeSet<&str> = unknown.iter().map(String::as_str).collect();
        for (path, repeated) in &trace {
            if pending.remove(path.as_str()) {
                problems.push(unknown_text(path));
            } else if *repeated && !unknown.iter().any(|dropped| is_within(path, dropped)) {
                problems.push(duplicate_text(path));
            }
        }
        problems.extend(pending.into_iter().map(unknown_text));
    } else {
        let mut seen = BTreeSet::new();
        let repeated = trace
            .iter()
            .filter(|(path, repeated)| *repeated && seen.insert(path.as_str()));
        problems.extend(repeated.map(|(path, _)| duplicate_text(path)));
        problems.extend(unknown.iter().map(|path| unknown_text(path)));
    }
    problems.truncate(100);
    problems
}

fn is_within(path: &str, ancestor: &str) -> bool {
    path.strip_prefix(ancestor)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

/// `strict decoding error: unknown field "spec.foo", duplicate field "x"`.
pub fn strict_error(problems: &[String]) -> String {
    format!("strict decoding error: {}", problems.join(", "))
}

/// What the API server answers when a body is of the right form but cannot be read as the kind.
pub fn cannot_be_handled(kind: &str, version: &str, as_kind: &str, text: &str) -> String {
    format!(
        "{kind} in version {} cannot be handled as a {as_kind}: {text}",
        go_quote(version)
    )
}

/// What the API server answers when a body is not an object of any kind; it repeats the start of it.
pub fn unrecognized(as_kind: &str, body: &[u8], format: Format, error: &str) -> String {
    let error = match format {
        Format::Json => format!("couldn't get version/kind; json parse error: {error}"),
        Format::Yaml => error.to_owned(),
    };
    format!(
        "the object provided is unrecognized (must be of type {as_kind}): {error} ({})",
        body_summary(body)
    )
}

/// Upstream prints what looks like JSON as text, everything else in hexadecimal, and no more than thirty bytes of it.
pub fn body_summary(body: &[u8]) -> String {
    if body.is_empty() {
        return "<empty>".to_owned();
    }
    let start = &body[..body.len().min(30)];
    let dots = if body.len() > 30 { " ..." } else { "" };
    let first = body.iter().find(|byte| !byte.is_ascii_whitespace());
    if first == Some(&b'{') {
        return format!("{}{dots}", String::from_utf8_lossy(start));
    }
    let mut hex = String::with_capacity(64);
    for byte in start {
        let _ = write!(hex, "{byte:02x}");
    }
    hex + dots
}

/// The type of a body for [`unrecognized`]: an error when `apiVersion` or `kind` is no text, or the body no object.
pub fn type_of(value: &Value) -> Result<(String, String), DecodeError> {
    const STRUCT: &str =
        r#"struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#;
    let fields = match value {
        Value::Object(fields) => fields,
        Value::Null => return Ok((String::new(), String::new())),
        other => {
            let found = go_type_word(other);
            return Err(DecodeError(format!(
                "json: cannot unmarshal {found} into Go value of type {STRUCT}"
            )));
        }
    };
    let text = |key: &str| match fields.get(key) {
        Some(Value::String(text)) => Ok(text.clone()),
        None | Some(Value::Null) => Ok(String::new()),
        Some(other) => Err(DecodeError(format!(
            "json: cannot unmarshal {} into Go struct field .{key} of type string",
            go_type_word(other)
        ))),
    };
    Ok((text("apiVersion")?, text("kind")?))
}

fn go_type_word(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

#[cfg(test)]
mod tests;

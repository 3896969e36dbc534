//! `FieldsV1`, the notation of field sets inside `managedFields`: reading it from the tree that a client sends, and
//! writing it as text. What is done with that text is in the sibling module.

use std::fmt::Write as _;

use serde_json::Value;

use super::fieldset::{FieldSet, PathElement, Subset};

impl FieldSet {
    /// Reads a set. Keys of unknown kinds are dropped, as upstream does for what a later version may write.
    ///
    /// # Errors
    /// When it is not a tree of maps, or a key is not a path element.
    pub fn from_json(fields: &Value) -> Result<Self, String> {
        Ok(read(fields)?.children)
    }

    /// The notation as text, in upstream's canonical order (which a sorted map cannot keep for numeric keys).
    pub fn to_json_string(&self) -> String {
        let mut out = String::new();
        write_text(self, false, &mut out);
        out
    }
}

/// A node that says nothing below itself is a member even without the `.`.
fn read(fields: &Value) -> Result<Subset, String> {
    let fields = match fields {
        Value::Object(fields) => fields,
        Value::Null => return Ok(Subset::leaf()),
        _ => return Err("ReadMapCB: expect { or n, but found something else".to_owned()),
    };
    let mut subset = Subset::default();
    for (key, below) in fields {
        if key == "." {
            subset.member = true;
        } else if let Some(element) = parse_element(key)? {
            subset.children.push(element, read(below)?);
        }
    }
    subset.member |= subset.children.is_empty();
    Ok(subset)
}

pub(super) fn parse_element(key: &str) -> Result<Option<PathElement>, String> {
    let bytes = key.as_bytes();
    if bytes.len() < 2 {
        return Err("parsing key as path element: key must be 2 characters long:".to_owned());
    }
    if bytes[1] != b':' {
        return Err(format!("parsing key as path element: missing colon: {key}"));
    }
    let content = &key[2..];
    let parsed = |content: &str| {
        serde_json::from_str::<Value>(content).map_err(|error| format!("parsing key as path element: {error}"))
    };
    let element = match bytes[0] {
        b'f' => PathElement::Field(content.to_owned()),
        b'v' => PathElement::Value(parsed(content)?),
        b'k' => match parsed(content)? {
            Value::Object(fields) => {
                let mut fields: Vec<(String, Value)> = fields.into_iter().collect();
                fields.sort_by(|left, right| left.0.cmp(&right.0));
                PathElement::Key(fields)
            }
            _ => return Err("parsing key as path element: expect { or n".to_owned()),
        },
        b'i' => PathElement::Index(content.parse().map_err(|_| {
            let quoted = super::gofmt::quoted(content);
            format!("parsing key as path element: strconv.Atoi: parsing {quoted}: invalid syntax")
        })?),
        _ => return Ok(None),
    };
    Ok(Some(element))
}

/// Whether a text stands in JSON as it is, also where Go escapes what could be read as HTML.
pub(super) fn is_plain(text: &str) -> bool {
    text.bytes()
        .all(|byte| (0x20..0x7f).contains(&byte) && !matches!(byte, b'"' | b'\\' | b'<' | b'>' | b'&'))
}

fn push_quoted(out: &mut String, text: &str) {
    if is_plain(text) {
        out.push('"');
        out.push_str(text);
        out.push('"');
    } else {
        out.push_str(&escape_html(&Value::from(text).to_string()));
    }
}

/// Writes the key of an element in the notation, quoted.
pub(super) fn push_element(out: &mut String, element: &PathElement) {
    let key = match element {
        PathElement::Field(name) if is_plain(name) => {
            out.push_str("\"f:");
            out.push_str(name);
            out.push('"');
            return;
        }
        PathElement::Field(name) => format!("f:{name}"),
        PathElement::Key(fields) => {
            let mut key = String::from("k:{");
            for (position, (name, value)) in fields.iter().enumerate() {
                if position > 0 {
                    key.push(',');
                }
                push_quoted(&mut key, name);
                key.push(':');
                push_scalar(&mut key, value);
            }
            key.push('}');
            key
        }
        PathElement::Value(value) => {
            let mut key = String::from("v:");
            push_scalar(&mut key, value);
            key
        }
        PathElement::Index(index) => format!("i:{index}"),
    };
    push_quoted(out, &key);
}

/// Go writes whole floats as integers; everything else as JSON does, with `<`, `>` and `&` escaped.
fn push_scalar(out: &mut String, value: &Value) {
    match value {
        Value::String(text) => push_quoted(out, text),
        Value::Number(number) if number.is_f64() => {
            let float = number.as_f64().unwrap_or(0.0);
            if float.fract() == 0.0 && float.abs() < 1e21 {
                let _ = write!(out, "{float:.0}");
            } else {
                out.push_str(&number.to_string());
            }
        }
        other => out.push_str(&escape_html(&other.to_string())),
    }
}

/// What Go's JSON encoder does to text that could be read as HTML.
pub(super) fn escape_html(text: &str) -> String {
    text.replace('<', "\\u003c")
        .replace('>', "\\u003e")
        .replace('&', "\\u0026")
        .replace('\u{2028}', "\\u2028")
        .replace('\u{2029}', "\\u2029")
}

fn write_text(set: &FieldSet, with_self: bool, out: &mut String) {
    out.push('{');
    let mut separator = "";
    if with_self && !set.is_empty() {
        out.push_str("\".\":{}");
        separator = ",";
    }
    for (element, subset) in &set.nodes {
        out.push_str(separator);
        separator = ",";
        push_element(out, element);
        out.push(':');
        write_text(&subset.children, subset.member, out);
    }
    out.push('}');
}

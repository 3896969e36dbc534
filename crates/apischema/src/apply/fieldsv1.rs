//! `FieldsV1`, the notation of field sets inside `managedFields`: reading, writing, and the questions that can be
//! answered on the written form without reading it (most updates touch a few fields of an object with many owners).

use serde_json::{Map, Value};

use super::fieldset::{FieldSet, PathElement, Subset};

impl FieldSet {
    /// Reads a set. Keys of unknown kinds are dropped, as upstream does for what a later version may write.
    ///
    /// # Errors
    /// When it is not a tree of maps, or a key is not a path element.
    pub fn from_json(fields: &Value) -> Result<Self, String> {
        Ok(read(fields)?.children)
    }

    pub fn to_json(&self) -> Value {
        Value::Object(write(self, false))
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

fn parse_element(key: &str) -> Result<Option<PathElement>, String> {
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

/// The key of an element in the notation.
pub(super) fn element_key(element: &PathElement) -> String {
    match element {
        PathElement::Field(name) => {
            let mut key = String::with_capacity(name.len() + 2);
            key.push_str("f:");
            key.push_str(name);
            key
        }
        PathElement::Key(fields) => {
            let mut key = String::from("k:{");
            for (position, (name, value)) in fields.iter().enumerate() {
                if position > 0 {
                    key.push(',');
                }
                key.push_str(&Value::String(name.clone()).to_string());
                key.push(':');
                key.push_str(&scalar_text(value));
            }
            key.push('}');
            key
        }
        PathElement::Value(value) => format!("v:{}", scalar_text(value)),
        PathElement::Index(index) => format!("i:{index}"),
    }
}

/// Go writes whole floats as integers; everything else as JSON does, with `<`, `>` and `&` escaped.
fn scalar_text(value: &Value) -> String {
    match value {
        Value::Number(number) if number.is_f64() => {
            let float = number.as_f64().unwrap_or(0.0);
            if float.fract() == 0.0 && float.abs() < 1e21 {
                format!("{float:.0}")
            } else {
                number.to_string()
            }
        }
        other => {
            let text = other.to_string();
            if text.contains(['<', '>', '&', '\u{2028}', '\u{2029}']) {
                escape_html(&text)
            } else {
                text
            }
        }
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

fn write(set: &FieldSet, with_self: bool) -> Map<String, Value> {
    let mut out = Map::new();
    if with_self && !set.is_empty() {
        out.insert(".".to_owned(), Value::Object(Map::new()));
    }
    for (element, subset) in &set.nodes {
        out.insert(
            element_key(element),
            Value::Object(write(&subset.children, subset.member)),
        );
    }
    out
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
        out.push_str(&escape_html(&Value::String(element_key(element)).to_string()));
        out.push(':');
        write_text(&subset.children, subset.member, out);
    }
    out.push('}');
}

/// Whether a written set has any member of `set`.
pub(super) fn written_intersects(written: &Value, set: &FieldSet) -> bool {
    let Some(fields) = written.as_object() else {
        return false;
    };
    set.nodes.iter().any(|(element, subset)| {
        fields
            .get(&element_key(element))
            .is_some_and(|below| (subset.member && is_member(below)) || written_intersects(below, &subset.children))
    })
}

/// Whether a written set has every member of `set`.
pub(super) fn written_contains(written: &Value, set: &FieldSet) -> bool {
    let Some(fields) = written.as_object() else {
        return set.is_empty();
    };
    set.nodes.iter().all(|(element, subset)| {
        fields
            .get(&element_key(element))
            .is_some_and(|below| (!subset.member || is_member(below)) && written_contains(below, &subset.children))
    })
}

fn is_member(below: &Value) -> bool {
    below
        .as_object()
        .is_none_or(|fields| fields.is_empty() || fields.contains_key("."))
}

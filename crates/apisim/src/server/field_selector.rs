//! Field selectors: which fields of which kind can be selected on, and matching them.

use serde_json::Value;

use crate::resource::ResourceType;
use crate::store::Object;

/// Terms that must all hold: field, expected value, and whether it must be equal or different.
#[derive(Clone, Debug, Default)]
pub struct FieldSelector(Vec<Term>);

#[derive(Clone, Debug)]
struct Term {
    field: String,
    value: String,
    equal: bool,
}

/// Fields beyond `metadata.name` and `metadata.namespace`, as upstream's conversion functions list them.
fn selectable(group: &str, kind: &str) -> &'static [&'static str] {
    match (group, kind) {
        ("", "Pod") => &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.podIPs",
            "status.nominatedNodeName",
        ],
        ("", "Node") => &["spec.unschedulable"],
        ("", "Namespace") => &["status.phase"],
        ("", "Secret") => &["type"],
        ("", "Service") => &["spec.clusterIP", "spec.type"],
        ("", "ReplicationController") | ("apps", "ReplicaSet") => &["status.replicas"],
        ("batch", "Job") => &["status.successful"],
        ("", "Event") => &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ],
        ("events.k8s.io", "Event") => &[
            "regarding.kind",
            "regarding.namespace",
            "regarding.name",
            "regarding.uid",
            "regarding.apiVersion",
            "regarding.resourceVersion",
            "regarding.fieldPath",
            "reason",
            "reportingController",
            "type",
        ],
        _ => &[],
    }
}

impl FieldSelector {
    /// Reads the text for a resource; the error is what the real server says.
    pub fn parse(text: &str, resource: &ResourceType) -> Result<Self, String> {
        let mut terms = Vec::new();
        for term in split_terms(text).iter().filter(|term| !term.is_empty()) {
            let (field, value, equal) =
                split_term(term).ok_or_else(|| format!("invalid selector: '{text}'; can't understand '{term}'"))?;
            terms.push(Term {
                field: field.to_owned(),
                value: unescape(value)?,
                equal,
            });
        }
        for term in &terms {
            if !is_supported(&term.field, resource) {
                return Err(unsupported(&term.field, resource));
            }
        }
        Ok(Self(terms))
    }

    pub fn is_everything(&self) -> bool {
        self.0.is_empty()
    }

    /// Selects one object by name, as the old form of a watch does.
    pub fn require_name(&mut self, name: &str) {
        self.0.push(Term {
            field: "metadata.name".into(),
            value: name.to_owned(),
            equal: true,
        });
    }

    /// The name that a selector pins down, so that a list needs to look at one object only.
    pub fn exact_name(&self) -> Option<&str> {
        self.0
            .iter()
            .find(|term| term.equal && term.field == "metadata.name")
            .map(|term| term.value.as_str())
    }

    /// The node that a selector of pods pins down: storage knows what is on it.
    pub fn exact_node(&self) -> Option<&str> {
        self.0
            .iter()
            .find(|term| term.equal && term.field == "spec.nodeName" && !term.value.is_empty())
            .map(|term| term.value.as_str())
    }

    /// Names are looked at first: for them nobody has to read the text of an object that is kept as such.
    pub fn matches(&self, object: &Object) -> bool {
        let named = |term: &Term| match term.field.as_str() {
            "metadata.name" => Some(object.name()),
            "metadata.namespace" => Some(object.namespace()),
            _ => None,
        };
        let mut others = self.0.iter().filter(|term| named(term).is_none()).peekable();
        self.0
            .iter()
            .all(|term| named(term).is_none_or(|text| (text == term.value) == term.equal))
            && (others.peek().is_none()
                || object.read(|value| others.all(|term| (field_text(value, &term.field) == term.value) == term.equal)))
    }
}

fn is_supported(field: &str, resource: &ResourceType) -> bool {
    let known = selectable(&resource.gv.group, &resource.kind);
    let custom = resource.custom().is_some_and(|custom| {
        custom
            .selectable_fields
            .iter()
            .any(|path| path.trim_start_matches('.') == field)
    });
    matches!(field, "metadata.name" | "metadata.namespace") || known.contains(&field) || custom
}

fn unsupported(field: &str, resource: &ResourceType) -> String {
    let quoted = afloat_apischema::field_error::go_quote(field);
    if resource.is_custom() {
        return format!("field label not supported: {field}");
    }
    match selectable(&resource.gv.group, &resource.kind) {
        [] => format!("{quoted} is not a known field selector: only \"metadata.name\", \"metadata.namespace\""),
        _ => format!("field label not supported: {field}"),
    }
}

/// The value that a selector compares: text as it is, numbers and booleans printed, everything else empty.
fn field_text(value: &Value, field: &str) -> String {
    let path = match field {
        // The events API names the stored fields otherwise.
        "reportingController" => "reportingComponent",
        "status.successful" => "status.succeeded",
        other => other,
    };
    let renamed = path
        .strip_prefix("regarding.")
        .map(|rest| format!("involvedObject.{rest}"));
    let path = renamed.as_deref().unwrap_or(path);
    if path == "source" {
        let component = value["source"]["component"].as_str().unwrap_or_default();
        return if component.is_empty() {
            text_at(value, "reportingComponent")
        } else {
            component.to_owned()
        };
    }
    let text = text_at(value, path);
    match path {
        "spec.unschedulable" | "spec.hostNetwork" if text.is_empty() => "false".into(),
        "status.replicas" | "status.succeeded" if text.is_empty() => "0".into(),
        _ => text,
    }
}

fn text_at(value: &Value, path: &str) -> String {
    let found = path.split('.').try_fold(value, |value, key| value.get(key));
    match found {
        Some(Value::String(text)) => text.clone(),
        Some(other @ (Value::Bool(_) | Value::Number(_))) => other.to_string(),
        _ => String::new(),
    }
}

/// Splits at commas that are not escaped.
fn split_terms(text: &str) -> Vec<String> {
    let mut terms = vec![String::new()];
    let mut escaped = false;
    for letter in text.chars() {
        if letter == ',' && !escaped {
            terms.push(String::new());
        } else if let Some(term) = terms.last_mut() {
            term.push(letter);
        }
        escaped = letter == '\\' && !escaped;
    }
    terms
}

fn split_term(term: &str) -> Option<(&str, &str, bool)> {
    for (index, _) in term.char_indices() {
        let rest = &term[index..];
        for (sign, equal) in [("!=", false), ("==", true), ("=", true)] {
            if let Some(value) = rest.strip_prefix(sign) {
                return Some((&term[..index], value, equal));
            }
        }
    }
    None
}

fn unescape(value: &str) -> Result<String, String> {
    let mut plain = String::new();
    let mut letters = value.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => match letters.next() {
                Some(next @ ('\\' | ',' | '=')) => plain.push(next),
                Some(next) => return Err(format!("invalid field selector: invalid escape sequence: \\{next}")),
                None => return Err("invalid field selector: invalid escape sequence: \\".into()),
            },
            ',' | '=' => {
                return Err(format!(
                    "invalid field selector: unescaped character in value: {}",
                    u32::from(letter)
                ));
            }
            other => plain.push(other),
        }
    }
    Ok(plain)
}

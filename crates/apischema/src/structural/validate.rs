//! Validation of a value against a structural schema, in the texts, the order within one value and the quirks of the
//! OpenAPI validator that the API server uses. On update, findings below an unchanged part are forgiven (ratcheting).

use serde_json::Value;

use super::correlate::{correlated_equal, correlated_item};
use super::leaf::{self, Finding};
use crate::field_error::{ErrorKind, FieldError, Path};
use crate::schema::{SchemaId, SchemaRef};

/// Everything wrong with a new value.
pub fn validate(value: &Value, schema: SchemaRef<'_>) -> Vec<FieldError> {
    validate_at(value, None, schema, &Path::root())
}

/// Everything wrong with a value that was not so in `old` already.
pub fn validate_update(value: &Value, old: &Value, schema: SchemaRef<'_>) -> Vec<FieldError> {
    validate_at(value, Some(old), schema, &Path::root())
}

/// Validation of a part of an object: the paths in the messages start at that part, as upstream's do for `status`.
pub fn validate_at(value: &Value, old: Option<&Value>, schema: SchemaRef<'_>, base: &Path) -> Vec<FieldError> {
    let mut outcome = Outcome::default();
    check_ratcheting(value, old, schema, &Place::Root, &mut outcome);
    outcome
        .findings
        .into_iter()
        .map(|finding| field_error(finding, base))
        .collect()
}

fn field_error(finding: Finding, base: &Path) -> FieldError {
    let path = match finding
        .name
        .as_deref()
        .map(|name| name.strip_prefix('.').unwrap_or(name))
    {
        Some(name) if !name.is_empty() => base.child(name),
        _ => base.clone(),
    };
    FieldError::new(finding.kind, &path, finding.value, finding.message)
}

/// Where the walk is; written out only when there is something to say.
enum Place<'a> {
    Root,
    Property(&'a Place<'a>, &'a str),
    Additional(&'a Place<'a>, &'a str),
    Index(&'a Place<'a>, usize),
}

impl Place<'_> {
    fn text(&self) -> String {
        match self {
            Place::Root => String::new(),
            Place::Property(parent, name) => {
                let parent = parent.text();
                if parent.is_empty() {
                    (*name).to_owned()
                } else {
                    format!("{parent}.{name}")
                }
            }
            Place::Additional(parent, name) => format!("{}.{name}", parent.text()),
            Place::Index(parent, index) => format!("{}[{index}]", parent.text()),
        }
    }
}

/// Findings, and upstream's count of checks made, by which it picks the closest of several alternatives.
#[derive(Default)]
struct Outcome {
    findings: Vec<Finding>,
    checks: usize,
}

impl Outcome {
    fn push(&mut self, finding: Finding) {
        if !self
            .findings
            .iter()
            .any(|known| known.message == finding.message && known.name == finding.name)
        {
            self.findings.push(finding);
        }
    }

    fn merge(&mut self, other: Self) {
        self.checks += other.checks;
        for finding in other.findings {
            self.push(finding);
        }
    }

    fn is_valid(&self) -> bool {
        self.findings.is_empty()
    }
}

fn check_ratcheting(
    value: &Value,
    old: Option<&Value>,
    schema: SchemaRef<'_>,
    place: &Place<'_>,
    outcome: &mut Outcome,
) {
    let Some(old_value) = old else {
        return check(value, None, schema, place, outcome);
    };
    let mut own = Outcome::default();
    check(value, old, schema, place, &mut own);
    if !own.is_valid() && correlated_equal(value, old_value, schema) {
        own.findings.clear();
    }
    outcome.merge(own);
}

fn check(value: &Value, old: Option<&Value>, schema: SchemaRef<'_>, place: &Place<'_>, outcome: &mut Outcome) {
    let node = schema.node();
    if let Ok(looked) = leaf::check_type(node, value, "") {
        outcome.checks += if looked { 2 } else { 0 };
    } else {
        outcome.checks += 1;
        // Only now the path is worth writing.
        if let Err(finding) = leaf::check_type(node, value, &place.text()) {
            outcome.push(finding);
        }
    }
    if !value.is_null() {
        check_compositions(value, old, schema, place, outcome);
        match value {
            Value::String(text) => {
                check_leaf(place, outcome, |path| leaf::check_text(node, text, path));
                check_leaf(place, outcome, |path| leaf::check_format(node, text, path));
            }
            Value::Number(_) => {
                let mut found = Vec::new();
                leaf::check_number(node, value, "", &mut found);
                if !found.is_empty() {
                    found.clear();
                    leaf::check_number(node, value, &place.text(), &mut found);
                    for finding in found {
                        outcome.push(finding);
                    }
                }
                outcome.checks += 2;
            }
            Value::Array(items) => check_array(items, old, schema, place, outcome),
            _ => {}
        }
    }
    check_leaf(place, outcome, |path| leaf::check_enum(node, value, path));
    if value.is_object() {
        check_object(value, old, schema, place, outcome);
    }
    outcome.checks += 1;
}

fn check_leaf(place: &Place<'_>, outcome: &mut Outcome, leaf: impl Fn(&str) -> Option<Finding>) {
    outcome.checks += 1;
    if leaf("").is_some()
        && let Some(finding) = leaf(&place.text())
    {
        outcome.push(finding);
    }
}

fn check_array(items: &[Value], old: Option<&Value>, schema: SchemaRef<'_>, place: &Place<'_>, outcome: &mut Outcome) {
    let node = schema.node();
    if let Some(item_schema) = schema.items() {
        let old_items = old.and_then(Value::as_array);
        for (index, item) in items.iter().enumerate() {
            let old_item = old_items.and_then(|old_items| correlated_item(schema, old_items, item));
            check_ratcheting(item, old_item, item_schema, &Place::Index(place, index), outcome);
        }
    }
    let size = items.len() as u64;
    if let Some(min) = node.limits.min_items
        && size < min
    {
        let path = place.text();
        let message = format!("{path} in body should have at least {min} items");
        outcome.push(Finding::new(ErrorKind::Invalid, &path, size, message));
    }
    if let Some(max) = node.limits.max_items
        && size > max
    {
        outcome.push(too_many(place, size, max));
    }
    if node.limits.unique_items
        && items
            .iter()
            .enumerate()
            .any(|(index, item)| items[..index].contains(item))
    {
        let path = place.text();
        let message = format!("{path} in body shouldn't contain duplicates");
        outcome.push(Finding::new(ErrorKind::Invalid, &path, "", message));
    }
    outcome.checks += 2;
}

fn too_many(place: &Place<'_>, size: u64, max: u64) -> Finding {
    let unit = if max == 1 { "item" } else { "items" };
    Finding::new(
        ErrorKind::TooMany,
        &place.text(),
        size,
        format!("must have at most {max} {unit}"),
    )
}

fn check_object(value: &Value, old: Option<&Value>, schema: SchemaRef<'_>, place: &Place<'_>, outcome: &mut Outcome) {
    let node = schema.node();
    let Some(fields) = value.as_object() else { return };
    let size = fields.len() as u64;
    if let Some(min) = node.limits.min_properties
        && size < min
    {
        let path = place.text();
        let message = format!("{path} in body should have at least {min} properties");
        outcome.push(Finding::new(ErrorKind::Invalid, &path, size, message));
    }
    if let Some(max) = node.limits.max_properties
        && size > max
    {
        outcome.push(too_many(place, size, max));
    }
    let at_root = matches!(place, Place::Root);
    for (name, child) in fields {
        // The type of the root cannot be told to be unchanged: both sides were converted to the same.
        let old_child = old
            .filter(|_| !(at_root && matches!(name.as_str(), "apiVersion" | "kind")))
            .and_then(|old| old.get(name));
        if let Some(id) = node.properties.get(name) {
            check_ratcheting(
                child,
                old_child,
                schema.child(*id),
                &Place::Property(place, name),
                outcome,
            );
        } else if let Some(additional) = schema.additional() {
            check_ratcheting(child, old_child, additional, &Place::Additional(place, name), outcome);
        }
    }
    for name in &node.required {
        if !fields.contains_key(name) {
            outcome.push(Finding {
                kind: ErrorKind::Required,
                name: Some(Place::Additional(place, name).text()),
                value: None,
                message: String::new(),
            });
        }
    }
    outcome.checks += 1;
}

/// `anyOf`, `oneOf`, `allOf`, `not`. Their own findings are not forgiven when unchanged, those below are.
fn check_compositions(
    value: &Value,
    old: Option<&Value>,
    schema: SchemaRef<'_>,
    place: &Place<'_>,
    outcome: &mut Outcome,
) {
    let node = schema.node();
    outcome.checks += 2;
    let check_branch = |id: &SchemaId| {
        let mut own = Outcome::default();
        check(value, old, schema.child(*id), place, &mut own);
        own
    };
    let quoted = || crate::field_error::go_quote(&place.text());
    if !node.any_of.is_empty() {
        let (valid, best) = closest(node.any_of.iter().map(check_branch), true);
        if valid == 0 {
            outcome.push(Finding::without_place(format!(
                "{} must validate at least one schema (anyOf)",
                quoted()
            )));
        }
        if let Some(best) = best {
            outcome.merge(best);
        }
    }
    if !node.one_of.is_empty() {
        let (valid, best) = closest(node.one_of.iter().map(check_branch), false);
        if valid != 1 {
            let found = if valid == 0 {
                "Found none valid".to_owned()
            } else {
                format!("Found {valid} valid alternatives")
            };
            outcome.push(Finding::without_place(format!(
                "{} must validate one and only one schema (oneOf). {found}",
                quoted()
            )));
        }
        if let Some(best) = best {
            outcome.merge(best);
        }
    }
    if !node.all_of.is_empty() {
        let mut valid = 0;
        for id in &node.all_of {
            let own = check_branch(id);
            valid += usize::from(own.is_valid());
            outcome.merge(own);
        }
        if valid != node.all_of.len() {
            let addition = if valid == 0 { ". None validated" } else { "" };
            outcome.push(Finding::without_place(format!(
                "{} must validate all the schemas (allOf){addition}",
                quoted()
            )));
        }
    }
    if node.not.as_ref().is_some_and(|not| check_branch(not).is_valid()) {
        outcome.push(Finding::without_place(format!(
            "{} must not validate the schema (not)",
            quoted()
        )));
    }
}

/// How many alternatives fit, and the outcome to report: the first that fits, else the one with most checks made.
fn closest(tried: impl Iterator<Item = Outcome>, stop_at_first: bool) -> (usize, Option<Outcome>) {
    let mut valid = 0;
    let mut best: Option<Outcome> = None;
    for outcome in tried {
        if outcome.is_valid() {
            valid += 1;
            if valid == 1 {
                best = Some(outcome);
            }
            if stop_at_first {
                break;
            }
        } else if valid == 0 && best.as_ref().is_none_or(|best| outcome.checks > best.checks) {
            best = Some(outcome);
        }
    }
    (valid, best)
}

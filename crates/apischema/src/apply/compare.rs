//! The difference of two objects as sets of paths: removed, modified, added. Equal parts are skipped without a look at
//! the schema, so that the cost of a small change is little more than one comparison of the objects.

use std::cmp::Ordering;

use serde_json::{Map, Value};

use super::fieldset::{FieldSet, PathElement, Subset};
use super::types::{Form, Scalar, Type};

/// Where and how two values differ.
#[derive(Debug, Default)]
pub(super) struct Diff<S> {
    pub removed: S,
    pub modified: S,
    pub added: S,
}

/// The difference of whole objects.
pub(super) type Comparison = Diff<FieldSet>;

impl Diff<Subset> {
    fn absorb(&mut self, other: Self) {
        self.removed.absorb(other.removed);
        self.modified.absorb(other.modified);
        self.added.absorb(other.added);
    }

    fn leaf(left: Option<&Value>, right: Option<&Value>) -> Self {
        let mut diff = Self::default();
        match (left, right) {
            (None, _) => diff.added = Subset::leaf(),
            (_, None) => diff.removed = Subset::leaf(),
            (Some(left), Some(right)) => {
                if !same_value(left, right) {
                    diff.modified = Subset::leaf();
                }
            }
        }
        diff
    }

    fn push(&mut self, element: PathElement, found: Self) {
        // Most of the time only one of the three says anything: the element is moved there, and copied for the others.
        let parts = [
            (&mut self.removed, found.removed),
            (&mut self.modified, found.modified),
            (&mut self.added, found.added),
        ];
        let mut element = Some(element);
        let mut left = parts.iter().filter(|(_, part)| !part.is_empty()).count();
        for (own, part) in parts {
            if part.is_empty() {
                continue;
            }
            left -= 1;
            let here = if left == 0 { element.take() } else { element.clone() };
            if let Some(here) = here {
                own.children.push(here, part);
            }
        }
    }
}

impl Comparison {
    /// Everything that changed, in whatever way.
    pub fn all(&self) -> [&FieldSet; 3] {
        [&self.modified, &self.added, &self.removed]
    }

    /// Forgets what a strategy resets anyway.
    pub fn exclude(&mut self, reset: &FieldSet) {
        for set in [&mut self.removed, &mut self.modified, &mut self.added] {
            *set = set.recursive_difference(reset);
        }
    }
}

/// Compares two objects.
///
/// # Errors
/// When the parts that differ do not have the schema's shape, with upstream's words.
pub(super) fn compare(root: Type<'_>, left: &Value, right: &Value) -> Result<Comparison, String> {
    let found = compare_at(root, Some(left), Some(right))?;
    Ok(Diff {
        removed: found.removed.children,
        modified: found.modified.children,
        added: found.added.children,
    })
}

/// Equality by value: numbers numerically, whatever their notation.
pub(super) fn same_value(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(l), Value::Number(r)) => l == r || (l.is_f64() != r.is_f64() && l.as_f64() == r.as_f64()),
        (Value::Array(l), Value::Array(r)) => l.len() == r.len() && l.iter().zip(r).all(|(l, r)| same_value(l, r)),
        (Value::Object(l), Value::Object(r)) => {
            l.len() == r.len() && l.iter().all(|(key, l)| r.get(key).is_some_and(|r| same_value(l, r)))
        }
        _ => left == right,
    }
}

fn compare_at(ty: Type<'_>, left: Option<&Value>, right: Option<&Value>) -> Result<Diff<Subset>, String> {
    let (left_form, right_form) = (left.map(|value| ty.form(value)), right.map(|value| ty.form(value)));
    let mut diff = Diff::default();
    // A value may change its form (a scalar that becomes a map): both forms then have their say.
    if let Some(form) = left_form
        && right_form.is_some_and(|right| right != form)
    {
        diff.absorb(compare_form(ty, form, left, right)?.0);
    }
    let Some(form) = right_form.or(left_form) else {
        return Ok(diff);
    };
    let (found, is_leaf) = compare_form(ty, form, left, right)?;
    diff.absorb(found);
    if !is_leaf {
        match (left, right) {
            (None, _) => diff.added.member = true,
            (_, None) => diff.removed.member = true,
            _ => {}
        }
    }
    Ok(diff)
}

fn compare_form(
    ty: Type<'_>,
    form: Form,
    left: Option<&Value>,
    right: Option<&Value>,
) -> Result<(Diff<Subset>, bool), String> {
    match form {
        Form::Nothing => Err("schema error: invalid atom: inlined".to_owned()),
        Form::Scalar => {
            let wrong = |value: Option<&Value>| value.is_some_and(|value| !admits_scalar(ty.scalar(), value));
            if wrong(left) && wrong(right) {
                return Err("expected a scalar on one side".to_owned());
            }
            Ok((Diff::leaf(left, right), true))
        }
        Form::Map => {
            let (left_map, right_map) = (left.and_then(Value::as_object), right.and_then(Value::as_object));
            let nothing = |map: Option<&Map<String, Value>>| map.is_none_or(Map::is_empty);
            if ty.whole_map() || (nothing(left_map) && nothing(right_map)) {
                return Ok((Diff::leaf(left, right), true));
            }
            Ok((compare_maps(ty, left_map, right_map)?, false))
        }
        Form::List => {
            let (left_list, right_list) = (left.and_then(Value::as_array), right.and_then(Value::as_array));
            let nothing = |list: Option<&Vec<Value>>| list.is_none_or(Vec::is_empty);
            if ty.whole_list() || (nothing(left_list) && nothing(right_list)) {
                return Ok((Diff::leaf(left, right), true));
            }
            let diff = compare_lists(
                ty,
                left_list.map_or(&[][..], Vec::as_slice),
                right_list.map_or(&[][..], Vec::as_slice),
            )?;
            Ok((diff, false))
        }
    }
}

/// Whether a type admits a scalar value; null passes everywhere.
pub(super) fn admits_scalar(scalar: Scalar, value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Number(_) => matches!(scalar, Scalar::Numeric | Scalar::Any),
        Value::String(_) => matches!(scalar, Scalar::String | Scalar::Any),
        Value::Bool(_) => matches!(scalar, Scalar::Boolean | Scalar::Any),
        Value::Array(_) | Value::Object(_) => false,
    }
}

fn compare_maps(
    ty: Type<'_>,
    left: Option<&Map<String, Value>>,
    right: Option<&Map<String, Value>>,
) -> Result<Diff<Subset>, String> {
    let mut diff = Diff::default();
    for (name, value) in left.into_iter().flatten() {
        let other = right.and_then(|right| right.get(name));
        if other == Some(value) {
            continue;
        }
        let found = compare_at(ty.field(name), Some(value), other)?;
        diff.push(PathElement::Field(name.clone()), found);
    }
    for (name, value) in right.into_iter().flatten() {
        if left.is_none_or(|left| !left.contains_key(name)) {
            let found = added_at(ty.field(name), value)?;
            diff.added.children.push(PathElement::Field(name.clone()), found);
        }
    }
    Ok(diff)
}

/// What [`compare_at`] finds added when there was nothing before: most of what a create compares.
fn added_at(ty: Type<'_>, value: &Value) -> Result<Subset, String> {
    let mut subset = Subset::leaf();
    match (ty.form(value), value) {
        (Form::Nothing, _) => return Err("schema error: invalid atom: inlined".to_owned()),
        (Form::Map, Value::Object(fields)) if !ty.whole_map() => {
            subset.children.nodes.reserve_exact(fields.len());
            for (name, value) in fields {
                let found = added_at(ty.field(name), value)?;
                subset.children.push(PathElement::Field(name.clone()), found);
            }
        }
        (Form::List, Value::Array(items)) if !ty.whole_list() && !items.is_empty() => {
            subset.children = compare_lists(ty, &[], items)?.added.children;
        }
        _ => {}
    }
    Ok(subset)
}

/// The items of both lists that share one path element.
struct Group<'v> {
    element: PathElement,
    left: Vec<&'v Value>,
    right: Vec<&'v Value>,
}

fn compare_lists(ty: Type<'_>, left: &[Value], right: &[Value]) -> Result<Diff<Subset>, String> {
    let mut groups: Vec<Group<'_>> = Vec::with_capacity(left.len().max(right.len()));
    for (list, is_left) in [(left, true), (right, false)] {
        for (position, item) in list.iter().enumerate() {
            let element = ty
                .item_element(item)
                .map_err(|why| format!("element {position}: {why}"))?;
            let at = groups
                .binary_search_by(|group| group.element.cmp(&element))
                .unwrap_or_else(|at| {
                    groups.insert(
                        at,
                        Group {
                            element,
                            left: Vec::new(),
                            right: Vec::new(),
                        },
                    );
                    at
                });
            let side = if is_left {
                &mut groups[at].left
            } else {
                &mut groups[at].right
            };
            side.push(item);
        }
    }
    let mut diff = Diff::default();
    for group in groups {
        let found = compare_group(ty, &group)?;
        diff.push(group.element, found);
    }
    Ok(diff)
}

/// Items one to one; items that share a key (which only old objects can have) are one leaf together.
fn compare_group(ty: Type<'_>, group: &Group<'_>) -> Result<Diff<Subset>, String> {
    let (left, right) = (&group.left, &group.right);
    if left.len() <= 1 && right.len() <= 1 {
        let (left, right) = (left.first().copied(), right.first().copied());
        return match (left, right) {
            (None, Some(right)) => Ok(Diff {
                added: added_at(ty.item(), right)?,
                ..Diff::default()
            }),
            _ if left == right => Ok(Diff::default()),
            _ => compare_at(ty.item(), left, right),
        };
    }
    let mut diff = Diff::<Subset>::default();
    match (left.len().cmp(&1), right.len().cmp(&1)) {
        (Ordering::Greater, Ordering::Greater) => {
            let same = left.len() == right.len() && left.iter().zip(right).all(|(l, r)| same_value(l, r));
            diff.modified.member = !same;
        }
        (Ordering::Greater, _) => {
            if let Some(right) = right.first() {
                diff = compare_at(ty.item(), None, Some(right))?;
            }
            diff.removed.member = true;
        }
        _ => {
            if let Some(left) = left.first() {
                diff = compare_at(ty.item(), Some(left), None)?;
            }
            diff.added.member = true;
        }
    }
    Ok(diff)
}

//! Walks over one typed value: checking its shape, listing its fields, taking fields out. The comparison and the merge
//! of two values are in the sibling modules.

use serde_json::{Map, Value};

use super::compare::admits_scalar;
use super::fieldset::{FieldSet, PathElement, Subset};
use super::gofmt;
use super::types::{Form, Scalar, Type};

/// What is wrong with a value, and where.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Fault {
    path: String,
    message: String,
}

impl Fault {
    pub fn new(message: String) -> Self {
        Self {
            path: String::new(),
            message,
        }
    }

    fn below(mut self, element: &PathElement) -> Self {
        self.path = format!("{element}{}", self.path);
        self
    }
}

/// All faults in one message, as upstream words them.
pub(super) fn fault_message(faults: &[Fault]) -> String {
    let line = |fault: &Fault| {
        if fault.path.is_empty() {
            fault.message.clone()
        } else {
            format!("{}: {}", fault.path, fault.message)
        }
    };
    match faults {
        [only] => line(only),
        many => {
            let lines: Vec<String> = many.iter().map(|fault| format!("  {}", line(fault))).collect();
            format!("errors:\n{}", lines.join("\n"))
        }
    }
}

/// What is wrong with the shape of a value.
pub(super) fn validate(ty: Type<'_>, value: &Value, allow_duplicates: bool) -> Vec<Fault> {
    match (ty.form(value), value) {
        (Form::Nothing, _) => vec![Fault::new("schema error: invalid atom: inlined".to_owned())],
        (Form::Scalar, value) => scalar_fault(ty.scalar(), value).into_iter().collect(),
        (Form::Map | Form::List, Value::Null) => Vec::new(),
        (Form::Map, Value::Object(fields)) => validate_map(ty, fields, allow_duplicates),
        (Form::Map, other) => vec![Fault::new(format!("expected map, got &{{{}}}", gofmt::plain(other)))],
        (Form::List, Value::Array(items)) => validate_list(ty, items, allow_duplicates),
        (Form::List, other) => vec![Fault::new(format!("expected list, got &{{{}}}", gofmt::plain(other)))],
    }
}

fn scalar_fault(scalar: Scalar, value: &Value) -> Option<Fault> {
    if admits_scalar(scalar, value) {
        return None;
    }
    let message = match scalar {
        Scalar::Numeric => format!("expected numeric (int or float), got {}", gofmt::type_name(value)),
        Scalar::String => format!(
            "expected string, got &value.valueUnstructured{{Value:{}}}",
            gofmt::syntax(value)
        ),
        Scalar::Boolean => format!("expected boolean, got &{{{}}}", gofmt::plain(value)),
        Scalar::Any => format!("expected any scalar, got &{{{}}}", gofmt::plain(value)),
    };
    Some(Fault::new(message))
}

fn validate_map(ty: Type<'_>, fields: &Map<String, Value>, allow_duplicates: bool) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (name, value) in fields {
        let element = PathElement::Field(name.clone());
        let field = ty.field(name);
        if matches!(field, Type::Undeclared) {
            faults.push(Fault::new("field not declared in schema".to_owned()).below(&element));
            return faults;
        }
        faults.extend(
            validate(field, value, allow_duplicates)
                .into_iter()
                .map(|fault| fault.below(&element)),
        );
    }
    faults
}

fn validate_list(ty: Type<'_>, items: &[Value], allow_duplicates: bool) -> Vec<Fault> {
    let mut faults = Vec::new();
    let mut seen = FieldSet::default();
    for (position, item) in items.iter().enumerate() {
        let element = if ty.whole_list() {
            PathElement::Index(i64::try_from(position).unwrap_or(i64::MAX))
        } else {
            match ty.item_element(item) {
                Ok(element) => element,
                Err(why) => {
                    faults.push(Fault::new(format!("element {position}: {why}")));
                    return faults;
                }
            }
        };
        if !ty.whole_list() {
            if seen.get(&element).is_some() && !allow_duplicates {
                faults.push(Fault::new(format!("duplicate entries for key {element}")));
            }
            seen.push(element.clone(), Subset::leaf());
        }
        faults.extend(
            validate(ty.item(), item, allow_duplicates)
                .into_iter()
                .map(|fault| fault.below(&element)),
        );
    }
    faults
}

/// All fields that a value mentions.
pub(super) fn field_set(ty: Type<'_>, value: &Value) -> FieldSet {
    fields_at(ty, value).children
}

fn fields_at(ty: Type<'_>, value: &Value) -> Subset {
    match (ty.form(value), value) {
        (Form::Scalar, _) => Subset::leaf(),
        (Form::Map, _) if ty.whole_map() => Subset::leaf(),
        (Form::List, _) if ty.whole_list() => Subset::leaf(),
        (Form::Map, Value::Object(fields)) => {
            let mut subset = Subset::default();
            for (name, value) in fields {
                let declared = ty.declared(name);
                let mut below = fields_at(declared.unwrap_or_else(|| ty.element()), value);
                let says_nothing = value.is_null() || value.as_object().is_some_and(Map::is_empty);
                below.member |= says_nothing || declared.is_none();
                subset.children.push(PathElement::Field(name.clone()), below);
            }
            subset
        }
        (Form::List, Value::Array(items)) => fields_of_list(ty, items),
        _ => Subset::default(),
    }
}

fn fields_of_list(ty: Type<'_>, items: &[Value]) -> Subset {
    let elements: Vec<Option<PathElement>> = items.iter().map(|item| ty.item_element(item).ok()).collect();
    let (mut seen, mut duplicated) = (FieldSet::default(), FieldSet::default());
    for element in elements.iter().flatten() {
        let set = if seen.get(element).is_some() {
            &mut duplicated
        } else {
            &mut seen
        };
        set.push(element.clone(), Subset::leaf());
    }
    let mut subset = Subset {
        member: false,
        children: duplicated.clone(),
    };
    for (item, element) in items.iter().zip(elements) {
        if let Some(element) = element
            && duplicated.get(&element).is_none()
        {
            let mut below = fields_at(ty.item(), item);
            below.member = true;
            subset.children.push(element, below);
        }
    }
    subset
}

/// The value without the fields and items of a set; `None` when nothing is left.
pub(super) fn remove_items(ty: Type<'_>, value: &Value, items: &FieldSet) -> Option<Value> {
    match (ty.form(value), value) {
        (Form::Scalar, value) => Some(value.clone()),
        (Form::List, Value::Array(list)) if !list.is_empty() && !ty.whole_list() => {
            let kept: Vec<Value> = list.iter().filter_map(|item| kept_item(ty, item, items)).collect();
            if kept.is_empty() {
                None
            } else {
                Some(Value::Array(kept))
            }
        }
        (Form::Map, Value::Object(map)) if !map.is_empty() && !ty.whole_map() => {
            let mut kept = Map::new();
            for (name, value) in map {
                let value = match items.field(name) {
                    None => value.clone(),
                    Some(subset) if subset.member => continue,
                    Some(subset) => remove_items(ty.field(name), value, &subset.children).unwrap_or(Value::Null),
                };
                kept.insert(name.clone(), value);
            }
            if kept.is_empty() {
                None
            } else {
                Some(Value::Object(kept))
            }
        }
        _ => None,
    }
}

fn kept_item(ty: Type<'_>, item: &Value, items: &FieldSet) -> Option<Value> {
    let subset = ty
        .item_element(item)
        .ok()
        .and_then(|element| items.get(&element).cloned());
    match subset {
        None => Some(item.clone()),
        Some(subset) if subset.member => None,
        Some(subset) => Some(remove_items(ty.item(), item, &subset.children).unwrap_or(Value::Null)),
    }
}

/// The set with all declared fields above its members as members too: they go when they are left empty.
pub(super) fn with_named_fields(ty: Option<Type<'_>>, set: &FieldSet) -> FieldSet {
    let mut out = FieldSet::default();
    for (element, subset) in &set.nodes {
        let (below, declared) = match (element, ty) {
            (PathElement::Field(name), Some(ty)) if ty.could_be(Form::Map) => match ty.declared(name) {
                Some(field) => (Some(field), !subset.children.is_empty()),
                None => (Some(ty.element()), false),
            },
            (PathElement::Key(_), Some(ty)) if ty.could_be(Form::List) => (Some(ty.item()), false),
            _ => (None, false),
        };
        let whole = Subset {
            member: subset.member || declared,
            children: with_named_fields(below, &subset.children),
        };
        out.push(element.clone(), whole);
    }
    out
}

/// Brings a set that was written under another schema in line with this one: where something is now owned as a whole,
/// the owner of a part becomes the owner of the whole.
pub(super) fn reconcile(ty: Type<'_>, set: &FieldSet) -> FieldSet {
    reconcile_at(
        ty,
        &Subset {
            member: false,
            children: set.clone(),
        },
    )
    .children
}

fn reconcile_at(ty: Type<'_>, subset: &Subset) -> Subset {
    let was_whole = subset.member && subset.children.is_empty();
    let form = [Form::Map, Form::Scalar, Form::List]
        .into_iter()
        .find(|form| ty.could_be(*form));
    match form {
        Some(Form::Map) if ty.untyped_map() => subset.clone(),
        Some(Form::Map) if !was_whole && ty.whole_map() => {
            if subset.children.is_empty() {
                subset.clone()
            } else {
                Subset::leaf()
            }
        }
        Some(Form::List) if !was_whole && ty.whole_list() => Subset::leaf(),
        Some(Form::Map | Form::List) => {
            let mut out = Subset {
                member: subset.member,
                children: FieldSet::default(),
            };
            for (element, below) in &subset.children.nodes {
                let child = match (form, element) {
                    (Some(Form::Map), PathElement::Field(name)) => ty.field(name),
                    (Some(Form::Map), _) => ty.element(),
                    _ => ty.item(),
                };
                let kept = if matches!(child, Type::Undeclared) {
                    below.clone()
                } else {
                    reconcile_at(child, below)
                };
                out.children.push(element.clone(), kept);
            }
            out
        }
        _ => subset.clone(),
    }
}

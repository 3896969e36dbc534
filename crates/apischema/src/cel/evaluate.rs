//! Running compiled rules over an object: which old value each part is compared with, which failures are forgiven, and
//! what the rest reads like.

use std::sync::Arc;

use kube_cel::cel::common::ast::{Expr, IdedExpr};
use kube_cel::cel::objects::OptionalValue;
use kube_cel::cel::{Context, ExecutionError, Value as CelValue};
use serde_json::Value;

use super::held::Mark;
use super::value::{to_cel, with_functions};
use super::{CelRules, CompiledRule};
use crate::field_error::{ErrorKind, FieldError, Path};
use crate::schema::{JsonType, SchemaRef, TypeSchema};
use crate::structural::{correlated_equal, correlated_item};

/// Upstream's limit for the result of a `messageExpression`.
const MESSAGE_LIMIT: usize = 5 * 1024;

/// What the rules say about an object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Evaluation {
    pub errors: Vec<FieldError>,
    /// Failures in parts that have not changed, which clients get as warnings.
    pub warnings: Vec<String>,
}

impl CelRules {
    /// Evaluates all rules of `schema`, the one these rules were compiled from.
    pub fn evaluate(&self, schema: &TypeSchema, value: &Value, old: Option<&Value>) -> Evaluation {
        let mut evaluation = Evaluation::default();
        if self.is_empty() {
            return evaluation;
        }
        let root = schema.root();
        let part = Part {
            from: root,
            typed: root,
            value,
            old,
            correlation: Correlation {
                current: old.map(|old| (value, old, root)),
                parent: None,
            },
            is_resource: true,
        };
        with_functions(|functions| self.visit(&part, &Path::root(), functions, &mut evaluation));
        evaluation
    }

    fn visit(&self, part: &Part<'_>, path: &Path, functions: &Context<'static>, evaluation: &mut Evaluation) {
        if !self.leading.contains(&part.from.id()) || part.value.is_null() {
            return;
        }
        if let Some(rules) = self.compiled.get(&part.from.id()) {
            self.judge(rules, part, path, functions, evaluation);
        }
        for id in &part.from.node().all_of {
            // What stands in an allOf is not forgiven for being unchanged by itself, only within an unchanged parent.
            let correlation = Correlation {
                current: None,
                parent: part.correlation.parent,
            };
            let nested = Part {
                from: part.from.child(*id),
                correlation,
                ..*part
            };
            self.visit(&nested, path, functions, evaluation);
        }
        match part.value {
            Value::Array(items) => {
                let (Some(from), Some(typed)) = (part.from.items(), part.typed.items()) else {
                    return;
                };
                let old_items = part.old.and_then(Value::as_array);
                for (index, item) in items.iter().enumerate() {
                    let old = old_items.and_then(|old_items| correlated_item(part.typed, old_items, item));
                    self.visit(
                        &part.child(from, typed, item, old),
                        &path.index(index),
                        functions,
                        evaluation,
                    );
                }
            }
            Value::Object(fields) => {
                for (name, child) in fields {
                    let old = part.old.and_then(|old| old.get(name));
                    let declared = part.from.node().properties.get(name).map(|id| part.from.child(*id));
                    let (from, at) = match (declared, part.from.additional()) {
                        (Some(from), _) => (from, path.child(name)),
                        (None, Some(from)) => (from, path.key(name)),
                        (None, None) => continue,
                    };
                    let Some(typed) = part.typed.property(name) else {
                        continue;
                    };
                    let mut nested = part.child(from, typed, child, old);
                    if part.correlation.parent.is_none() && matches!(name.as_str(), "apiVersion" | "kind") {
                        nested.correlation = Correlation::default();
                    }
                    self.visit(&nested, &at, functions, evaluation);
                }
            }
            _ => {}
        }
    }

    /// Runs the rules of one part, unless they have held for the same part before: most of an object is as it was when it is
    /// written again.
    fn judge(
        &self,
        rules: &[CompiledRule],
        part: &Part<'_>,
        path: &Path,
        functions: &Context<'static>,
        evaluation: &mut Evaluation,
    ) {
        let before = part.old.filter(|_| rules.iter().any(|rule| rule.uses_old));
        let before = match before {
            None => Before::Unasked,
            Some(old) if old == part.value => Before::Same,
            Some(old) => Before::Other(old),
        };
        let part_of = (part.from.id(), part.typed.id(), part.is_resource);
        let mark = Mark::of(&(part_of, part.value, before));
        if self.held.contains(mark) {
            return;
        }
        let complaints = evaluation.errors.len() + evaluation.warnings.len();
        run_rules(rules, part, path, functions, evaluation);
        if evaluation.errors.len() + evaluation.warnings.len() == complaints {
            self.held.remember(mark);
        }
    }
}

/// What the rules of a part see of its old value. Mostly it is the new one, which need not be marked twice.
#[derive(Hash)]
enum Before<'v> {
    /// There is none, or no rule asks for it.
    Unasked,
    Same,
    Other(&'v Value),
}

type Pair<'v> = (&'v Value, &'v Value, SchemaRef<'v>);

/// The nearest parts of new and old object that can be compared.
#[derive(Clone, Copy, Default)]
struct Correlation<'v> {
    current: Option<Pair<'v>>,
    parent: Option<Pair<'v>>,
}

impl Correlation<'_> {
    fn is_unchanged(self) -> bool {
        self.current
            .or(self.parent)
            .is_some_and(|(value, old, schema)| correlated_equal(value, old, schema))
    }
}

/// A part of the object with the schema that has the rules and the one that has the types; they differ within `allOf`.
#[derive(Clone, Copy)]
struct Part<'v> {
    from: SchemaRef<'v>,
    typed: SchemaRef<'v>,
    value: &'v Value,
    old: Option<&'v Value>,
    correlation: Correlation<'v>,
    is_resource: bool,
}

impl<'v> Part<'v> {
    fn child(&self, from: SchemaRef<'v>, typed: SchemaRef<'v>, value: &'v Value, old: Option<&'v Value>) -> Part<'v> {
        let correlation = match self.correlation.current {
            None => self.correlation,
            Some(current) => Correlation {
                current: old.map(|old| (value, old, typed)),
                parent: Some(current),
            },
        };
        Part {
            from,
            typed,
            value,
            old,
            correlation,
            is_resource: typed.embedded_resource,
        }
    }
}

fn type_word(schema: SchemaRef<'_>) -> &'static str {
    match schema.json_type {
        JsonType::Object => "object",
        JsonType::Array => "array",
        JsonType::String => "string",
        JsonType::Integer => "integer",
        JsonType::Number => "number",
        JsonType::Boolean => "boolean",
        JsonType::IntOrString | JsonType::Any => "",
    }
}

fn run_rules(
    rules: &[CompiledRule],
    part: &Part<'_>,
    path: &Path,
    functions: &Context<'static>,
    evaluation: &mut Evaluation,
) {
    let old = part.old.filter(|old| !old.is_null());
    let mut scope = functions.new_inner_scope();
    scope.add_variable_from_value("self", to_cel(part.value, Some(part.typed), part.is_resource));
    let old_value = if rules.iter().any(|rule| rule.uses_old) {
        old.map(|old| to_cel(old, Some(part.typed), part.is_resource))
    } else {
        None
    };
    if let Some(old_value) = &old_value {
        scope.add_variable_from_value("oldSelf", old_value.clone());
    }
    for rule in rules {
        if rule.uses_old && old.is_none() && !rule.rule.optional_old_self {
            continue;
        }
        let program = match &rule.program {
            Ok(program) => program,
            Err(complaint) => {
                let detail = format!("rule compile error: compilation failed: {complaint}");
                evaluation
                    .errors
                    .push(FieldError::invalid(path, type_word(part.typed), detail));
                continue;
            }
        };
        let result = if rule.rule.optional_old_self {
            let optional = old_value.clone().map_or_else(OptionalValue::none, OptionalValue::of);
            let mut inner = scope.new_inner_scope();
            inner.add_variable_from_value("oldSelf", CelValue::Opaque(Arc::new(optional)));
            program.execute(&inner)
        } else {
            program.execute(&scope)
        };
        match result {
            Ok(CelValue::Bool(true)) => {}
            Ok(_) => {
                let error = failure(rule, part, path, &scope);
                if !rule.uses_old && part.correlation.is_unchanged() {
                    evaluation.warnings.push(error.to_string());
                } else {
                    evaluation.errors.push(error);
                }
            }
            Err(error) => {
                let missing = || missing_key(program.expression(), &scope);
                let detail = execution_text(&error, rule.shown(), missing);
                evaluation
                    .errors
                    .push(FieldError::invalid(path, type_word(part.typed), detail));
            }
        }
    }
}

fn failure(rule: &CompiledRule, part: &Part<'_>, path: &Path, scope: &Context<'_>) -> FieldError {
    let path = rule
        .field_path
        .as_ref()
        .map_or_else(|| path.clone(), |below| path.child(below));
    let detail = own_message(rule, scope).unwrap_or_else(|| rule.default_message());
    let value = match part.typed.json_type {
        JsonType::Object | JsonType::Array => None,
        _ => Some(part.value.clone()),
    };
    match rule.rule.reason.as_deref() {
        Some("FieldValueForbidden") => FieldError::forbidden(&path, detail),
        Some("FieldValueRequired") => FieldError::required(&path, detail),
        Some("FieldValueDuplicate") => FieldError::new(ErrorKind::Duplicate, &path, value, ""),
        _ => FieldError::new(ErrorKind::Invalid, &path, value, detail),
    }
}

/// The result of `messageExpression`, unless it fails or gives something that upstream would not print.
fn own_message(rule: &CompiledRule, scope: &Context<'_>) -> Option<String> {
    let Ok(CelValue::String(text)) = rule.message.as_ref()?.execute(scope) else {
        return None;
    };
    let text = text.trim();
    let fits = !text.is_empty() && text.len() <= MESSAGE_LIMIT && !text.contains('\n');
    fits.then(|| text.to_owned())
}

fn execution_text(error: &ExecutionError, rule: &str, missing: impl Fn() -> Option<String>) -> String {
    match error {
        ExecutionError::NoSuchKey(key) => format!("no such key: {key} evaluating rule: {rule}"),
        // The engine forgets why an argument could not be had; a field that is not there is the reason that exists.
        ExecutionError::MissingArgumentOrTarget => match missing() {
            Some(key) => format!("no such key: {key} evaluating rule: {rule}"),
            None => format!("{error} evaluating rule: {rule}"),
        },
        ExecutionError::NoSuchOverload
        | ExecutionError::ValuesNotComparable(..)
        | ExecutionError::UnsupportedBinaryOperator(..)
        | ExecutionError::UnsupportedUnaryOperator(..)
        | ExecutionError::UnexpectedType { .. }
        | ExecutionError::UnsupportedTargetType { .. } => format!(
            "'no such overload': call arguments did not match a supported operator, function or macro signature for \
             rule: {rule}"
        ),
        ExecutionError::DivisionByZero(_) => format!("division by zero evaluating rule: {rule}"),
        other => format!("{other} evaluating rule: {rule}"),
    }
}

/// The first field that an expression selects although the object does not have it.
fn missing_key(expression: &IdedExpr, scope: &Context<'_>) -> Option<String> {
    let below = |children: &[&IdedExpr]| children.iter().find_map(|child| missing_key(child, scope));
    match &expression.expr {
        Expr::Select(select) if !select.test => below(&[&select.operand]).or_else(|| {
            let failed = scope.resolve(expression);
            matches!(failed, Err(ExecutionError::NoSuchKey(_))).then(|| select.field.clone())
        }),
        Expr::Call(call) => {
            let parts: Vec<&IdedExpr> = call.target.as_deref().into_iter().chain(&call.args).collect();
            below(&parts)
        }
        Expr::Comprehension(comprehension) => below(&[&comprehension.iter_range]),
        _ => None,
    }
}

//! What can be told about a rule before any object comes: syntax, names that nothing declares, types that cannot be
//! compared, results of the wrong type. Upstream has a full type checker; this one follows fields and literals, and
//! says nothing where it does not know.

use kube_cel::cel::Program;
use kube_cel::cel::common::ast::{EntryExpr, Expr, IdedExpr, LiteralValue};
use serde_json::Value;

use super::value::escape;
use crate::field_error::{ErrorKind, FieldError, Path, go_json};
use crate::schema::{JsonType, SchemaRef};

const REASONS: [&str; 4] = [
    "FieldValueDuplicate",
    "FieldValueForbidden",
    "FieldValueInvalid",
    "FieldValueRequired",
];

/// Names that are neither variables nor fields: types, and the namespaces of functions.
const GLOBALS: [&str; 24] = [
    "int",
    "uint",
    "double",
    "bool",
    "string",
    "bytes",
    "list",
    "map",
    "null_type",
    "type",
    "dyn",
    "math",
    "sets",
    "strings",
    "lists",
    "base64",
    "optional",
    "cel",
    "ip",
    "cidr",
    "url",
    "quantity",
    "semver",
    "format",
];

/// Checks the rules at one node. `uncorrelatable` is the place of the list above whose items cannot be followed from the
/// old object to the new.
pub fn check_rules(
    rules: &[Value],
    schema: SchemaRef<'_>,
    is_resource: bool,
    uncorrelatable: Option<&Path>,
    path: &Path,
) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (index, rule) in rules.iter().enumerate() {
        let at = path.child("x-kubernetes-validations").index(index);
        check_words(rule, schema, &at, &mut errors);
        let text = field(rule, "rule");
        if text.trim().is_empty() {
            continue;
        }
        let scope = Scope {
            schema,
            is_resource,
            optional_old: rule.get("optionalOldSelf") == Some(&Value::Bool(true)),
        };
        match compile(
            text,
            "compilation failed",
            "cel expression must evaluate to a bool",
            "bool",
            &scope,
        ) {
            Err(complaint) => errors.push(about_rule(rule, &at.child("rule"), &complaint)),
            Ok(program) => check_old_self(&program, rule, &scope, uncorrelatable, &at, &mut errors),
        }
        let message = field(rule, "messageExpression");
        if !message.trim().is_empty()
            && let Err(complaint) = compile(
                message,
                "messageExpression compilation failed",
                "messageExpression must evaluate to a string",
                "string",
                &scope,
            )
        {
            errors.push(about_rule(rule, &at.child("messageExpression"), &complaint));
        }
    }
    errors
}

fn field<'a>(rule: &'a Value, name: &str) -> &'a str {
    rule.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// Everything about a rule that needs no CEL.
fn check_words(rule: &Value, schema: SchemaRef<'_>, at: &Path, errors: &mut Vec<FieldError>) {
    let text = field(rule, "rule");
    let message = field(rule, "message");
    if text.trim().is_empty() {
        errors.push(FieldError::required(&at.child("rule"), "rule is not specified"));
    } else if !message.is_empty() && message.trim().is_empty() {
        errors.push(FieldError::invalid(
            &at.child("message"),
            message,
            "must be non-empty if specified",
        ));
    } else if message.trim().contains('\n') {
        errors.push(FieldError::invalid(
            &at.child("message"),
            message,
            "must not contain line breaks",
        ));
    } else if text.trim().contains('\n') && message.is_empty() {
        errors.push(FieldError::required(
            &at.child("message"),
            "message must be specified if rule contains line breaks",
        ));
    }
    if let Some(expression) = rule.get("messageExpression").and_then(Value::as_str)
        && !expression.is_empty()
        && expression.trim().is_empty()
    {
        let detail = "messageExpression must be non-empty if specified";
        errors.push(FieldError::required(&at.child("messageExpression"), detail));
    }
    if let Some(reason) = rule.get("reason").and_then(Value::as_str)
        && !REASONS.contains(&reason)
    {
        errors.push(FieldError::not_supported(&at.child("reason"), reason, &REASONS));
    }
    if let Some(below) = rule
        .get("fieldPath")
        .and_then(Value::as_str)
        .filter(|below| !below.is_empty())
    {
        if below.contains('\n') {
            errors.push(FieldError::invalid(
                &at.child("fieldPath"),
                below,
                "must not contain line breaks",
            ));
        } else if normal_field_path(below, schema).is_err() {
            errors.push(FieldError::invalid(
                &at.child("fieldPath"),
                below,
                "must be a valid path",
            ));
        }
    }
}

fn check_old_self(
    program: &Program,
    rule: &Value,
    scope: &Scope<'_>,
    uncorrelatable: Option<&Path>,
    at: &Path,
    errors: &mut Vec<FieldError>,
) {
    let uses_old = program.references().has_variable("oldSelf");
    if uses_old && let Some(list) = uncorrelatable {
        let detail = format!("oldSelf cannot be used on the uncorrelatable portion of the schema within {list}");
        errors.push(FieldError::invalid(&at.child("rule"), field(rule, "rule"), detail));
    }
    if scope.optional_old && !uses_old {
        let detail = "may not be set if oldSelf is not used in rule";
        errors.push(FieldError::invalid(&at.child("optionalOldSelf"), true, detail));
    }
}

/// Upstream prints the whole rule in the order of its struct; a JSON object here would sort the names.
fn about_rule(rule: &Value, at: &Path, complaint: &str) -> FieldError {
    let text = |name: &str| go_json(&Value::from(field(rule, name)));
    let other = |name: &str| go_json(rule.get(name).unwrap_or(&Value::Null));
    let shown = format!(
        "{{\"Rule\":{},\"Message\":{},\"MessageExpression\":{},\"Reason\":{},\"FieldPath\":{},\"OptionalOldSelf\":{}}}",
        text("rule"),
        text("message"),
        text("messageExpression"),
        other("reason"),
        text("fieldPath"),
        other("optionalOldSelf"),
    );
    FieldError::new(ErrorKind::Invalid, at, None, format!("{shown}: {complaint}"))
}

fn compile(text: &str, failed: &str, wrong_type: &str, wanted: &str, scope: &Scope<'_>) -> Result<Program, String> {
    let program =
        Program::compile(text).map_err(|error| format!("{failed}: {}", error.to_string().replace("\n| ", "\n | ")))?;
    let mut checker = Checker {
        scope,
        variables: Vec::new(),
        complaint: None,
    };
    let found = checker.infer(program.expression());
    match (checker.complaint, found) {
        (Some(complaint), _) => Err(format!("{failed}: {}", complaint.shown(text))),
        (None, Kind::Plain(found)) if found != wanted => Err(wrong_type.to_owned()),
        (None, Kind::Schema(schema)) if plain(schema).is_some_and(|found| found != wanted) => {
            Err(wrong_type.to_owned())
        }
        (None, Kind::Schema(schema)) if matches!(schema.json_type, JsonType::Object | JsonType::Array) => {
            Err(wrong_type.to_owned())
        }
        _ => Ok(program),
    }
}

struct Scope<'s> {
    schema: SchemaRef<'s>,
    is_resource: bool,
    optional_old: bool,
}

/// What is known about the value of an expression.
#[derive(Clone, Copy)]
enum Kind<'s> {
    Schema(SchemaRef<'s>),
    /// A resource of this schema: it has a type and metadata beside its fields.
    Resource(SchemaRef<'s>),
    Metadata,
    Plain(&'static str),
    Unknown,
}

/// A complaint and the piece of the rule it points at; positions are those of the piece's first appearance.
struct Complaint {
    piece: String,
    text: String,
}

impl Complaint {
    fn shown(&self, rule: &str) -> String {
        let offset = rule.find(&self.piece).unwrap_or_default();
        let before = &rule[..offset];
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        let column = before[line_start..].chars().count();
        let line = rule[line_start..].lines().next().unwrap_or_default();
        let number = before.matches('\n').count() + 1;
        format!(
            "ERROR: <input>:{number}:{}: {}\n | {line}\n | {}^",
            column + 1,
            self.text,
            ".".repeat(column)
        )
    }
}

struct Checker<'c, 's> {
    scope: &'c Scope<'s>,
    variables: Vec<(String, Kind<'s>)>,
    complaint: Option<Complaint>,
}

impl<'s> Checker<'_, 's> {
    fn complain(&mut self, piece: String, text: String) {
        self.complaint.get_or_insert(Complaint { piece, text });
    }

    fn root(&self) -> Kind<'s> {
        if self.scope.is_resource {
            Kind::Resource(self.scope.schema)
        } else {
            Kind::Schema(self.scope.schema)
        }
    }

    fn infer(&mut self, expression: &IdedExpr) -> Kind<'s> {
        match &expression.expr {
            Expr::Ident(name) => self.ident(name),
            Expr::Select(select) => {
                let operand = self.infer(&select.operand);
                let found = self.select(operand, &select.field);
                if select.test { Kind::Plain("bool") } else { found }
            }
            Expr::Literal(literal) => Kind::Plain(match literal {
                LiteralValue::Boolean(_) => "bool",
                LiteralValue::Bytes(_) => "bytes",
                LiteralValue::Double(_) => "double",
                LiteralValue::Int(_) => "int",
                LiteralValue::Null => "null",
                LiteralValue::String(_) => "string",
                LiteralValue::UInt(_) => "uint",
            }),
            Expr::Call(call) => {
                let target = call.target.as_ref().map(|target| self.infer(target));
                let arguments: Vec<Kind<'s>> = call.args.iter().map(|argument| self.infer(argument)).collect();
                self.call(&call.func_name, target, &arguments)
            }
            Expr::Comprehension(comprehension) => {
                let range = self.infer(&comprehension.iter_range);
                let item = match range {
                    Kind::Schema(schema) if schema.json_type == JsonType::Array => {
                        schema.items().map_or(Kind::Unknown, Kind::Schema)
                    }
                    _ => Kind::Unknown,
                };
                let start = self.infer(&comprehension.accu_init);
                let depth = self.variables.len();
                self.variables.push((comprehension.iter_var.clone(), item));
                if let Some(second) = &comprehension.iter_var2 {
                    self.variables.push((second.clone(), Kind::Unknown));
                }
                let accumulated = if matches!(start, Kind::Plain("bool")) {
                    start
                } else {
                    Kind::Unknown
                };
                self.variables.push((comprehension.accu_var.clone(), accumulated));
                self.infer(&comprehension.loop_cond);
                self.infer(&comprehension.loop_step);
                let result = self.infer(&comprehension.result);
                self.variables.truncate(depth);
                result
            }
            Expr::List(list) => {
                list.elements.iter().for_each(|element| {
                    self.infer(element);
                });
                Kind::Unknown
            }
            Expr::Map(map) => {
                for entry in &map.entries {
                    if let EntryExpr::MapEntry(entry) = &entry.expr {
                        self.infer(&entry.key);
                        self.infer(&entry.value);
                    }
                }
                Kind::Unknown
            }
            Expr::Struct(_) | Expr::Unspecified => Kind::Unknown,
        }
    }

    fn ident(&mut self, name: &str) -> Kind<'s> {
        if let Some((_, kind)) = self.variables.iter().rev().find(|(known, _)| known == name) {
            return *kind;
        }
        match name {
            "oldSelf" if self.scope.optional_old => Kind::Unknown,
            "self" | "oldSelf" => self.root(),
            _ if GLOBALS.contains(&name) => Kind::Unknown,
            _ => {
                self.complain(
                    name.to_owned(),
                    format!("undeclared reference to '{name}' (in container '')"),
                );
                Kind::Unknown
            }
        }
    }

    fn select(&mut self, operand: Kind<'s>, field: &str) -> Kind<'s> {
        let (schema, is_resource) = match operand {
            Kind::Schema(schema) => (schema, schema.embedded_resource),
            Kind::Resource(schema) => (schema, true),
            Kind::Metadata if matches!(field, "name" | "generateName") => return Kind::Plain("string"),
            Kind::Metadata => {
                self.complain(format!(".{field}"), format!("undefined field '{field}'"));
                return Kind::Unknown;
            }
            Kind::Plain(_) | Kind::Unknown => return Kind::Unknown,
        };
        if is_resource {
            match field {
                "apiVersion" | "kind" => return Kind::Plain("string"),
                "metadata" => return Kind::Metadata,
                _ => {}
            }
        }
        if schema.json_type != JsonType::Object {
            if let Some(found) = plain(schema) {
                self.complain(
                    format!(".{field}"),
                    format!("type '{found}' does not support field selection"),
                );
            }
            return Kind::Unknown;
        }
        let declared = schema.node().properties.iter().find(|(name, _)| escape(name) == field);
        if let Some((_, id)) = declared {
            return Kind::Schema(schema.child(*id));
        }
        if let Some(additional) = schema.additional() {
            return Kind::Schema(additional);
        }
        if !schema.preserve_unknown {
            self.complain(format!(".{field}"), format!("undefined field '{field}'"));
        }
        Kind::Unknown
    }

    fn call(&mut self, function: &str, target: Option<Kind<'s>>, arguments: &[Kind<'s>]) -> Kind<'s> {
        let shown = |kind: &Kind<'s>| match kind {
            Kind::Plain(name) => Some(*name),
            Kind::Schema(schema) => plain(*schema),
            _ => None,
        };
        match (function, arguments) {
            ("_==_" | "_!=_" | "_<_" | "_<=_" | "_>_" | "_>=_", [left, right]) => {
                if let (Some(left), Some(right)) = (shown(left), shown(right))
                    && !comparable(left, right, function)
                {
                    let sign = function.trim_matches('_').to_owned();
                    let text = format!("found no matching overload for '{function}' applied to '({left}, {right})'");
                    self.complain(sign, text);
                }
                Kind::Plain("bool")
            }
            ("_+_" | "_-_" | "_*_" | "_/_" | "_%_", [left, right]) => match (shown(left), shown(right)) {
                (Some(left), Some(right)) if left == right => Kind::Plain(left),
                _ => Kind::Unknown,
            },
            ("_&&_" | "_||_" | "!_" | "@in" | "_in_", _) => Kind::Plain("bool"),
            ("startsWith" | "endsWith" | "contains" | "matches" | "exists_one" | "hasValue", _) if target.is_some() => {
                Kind::Plain("bool")
            }
            ("size", _) => Kind::Plain("int"),
            ("string", [_]) if target.is_none() => Kind::Plain("string"),
            ("_[_]", [Kind::Schema(schema), _]) => match schema.json_type {
                JsonType::Array => schema.items().map_or(Kind::Unknown, Kind::Schema),
                JsonType::Object => schema.additional().map_or(Kind::Unknown, Kind::Schema),
                _ => Kind::Unknown,
            },
            ("_?_:_", [_, Kind::Plain(left), Kind::Plain(right)]) if left == right => Kind::Plain(left),
            _ => Kind::Unknown,
        }
    }
}

fn comparable(left: &str, right: &str, function: &str) -> bool {
    let numeric = |name: &str| matches!(name, "int" | "uint" | "double");
    // Numbers of different types have an order, but no equality; null is equal to nothing plain.
    left == right || (!matches!(function, "_==_" | "_!=_") && numeric(left) && numeric(right))
}

/// The CEL type of a scalar schema, where it is sure.
fn plain(schema: SchemaRef<'_>) -> Option<&'static str> {
    if schema.nullable || !schema.enum_values.is_empty() && schema.json_type == JsonType::Any {
        return None;
    }
    match schema.json_type {
        JsonType::Boolean => Some("bool"),
        JsonType::Integer => Some("int"),
        JsonType::Number => Some("double"),
        JsonType::String => match schema.node().format.as_deref() {
            Some("byte" | "date" | "date-time" | "duration") => None,
            _ => Some("string"),
        },
        _ => None,
    }
}

/// `fieldPath` (a path of `.name` and `['name']`) in the form of error messages; an error when it leads nowhere.
pub fn normal_field_path(path: &str, schema: SchemaRef<'_>) -> Result<String, String> {
    let mut normal = Path::root();
    let mut schema = schema;
    let mut rest = path;
    while !rest.is_empty() {
        let name;
        if let Some(after) = rest.strip_prefix("['") {
            let Some((quoted, after)) = after.split_once("']") else {
                return Err("unexpected end of JSON path".to_owned());
            };
            name = quoted.replace("\\'", "'").replace("\\\\", "\\");
            rest = after;
        } else if let Some(after) = rest.strip_prefix('.') {
            let end = after.find(['.', '[']).unwrap_or(after.len());
            if end == 0 {
                return Err("unexpected end of JSON path".to_owned());
            }
            name = after[..end].to_owned();
            rest = &after[end..];
        } else {
            let end = rest.find(['.', '[', ']']).unwrap_or(rest.len()).max(1);
            return Err(format!("expected [ or . but got: {}", rest.get(..end).unwrap_or(rest)));
        }
        let missing = || "does not refer to a valid field".to_owned();
        if schema.node().properties.is_empty() {
            normal = normal.key(&name);
            schema = schema.additional().ok_or_else(missing)?;
        } else {
            normal = normal.child(&name);
            let id = schema.node().properties.get(&name).ok_or_else(missing)?;
            schema = schema.child(*id);
        }
    }
    Ok(normal.to_string())
}

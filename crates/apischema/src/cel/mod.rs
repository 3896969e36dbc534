//! `x-kubernetes-validations`: rules in CEL, compiled once when a custom resource is installed and evaluated on every
//! write, with the messages, the forgiveness for what has not changed, and the correlation of old values that the API
//! server has. The language itself and its functions come from `kube-cel`; cost limits are not modelled.

mod check;
mod evaluate;
mod held;
mod value;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use kube_cel::cel::Program;

pub use check::{check_rules, normal_field_path};
pub use evaluate::Evaluation;

use crate::schema::{CelRule, SchemaId, SchemaRef, TypeSchema};

/// The compiled rules of one version of a custom resource.
#[derive(Default)]
pub struct CelRules {
    compiled: BTreeMap<SchemaId, Vec<CompiledRule>>,
    /// Nodes with a rule at them or somewhere below: all others need not be visited.
    leading: BTreeSet<SchemaId>,
    held: held::Held,
}

struct CompiledRule {
    rule: CelRule,
    program: Result<Program, String>,
    message: Option<Program>,
    uses_old: bool,
    /// `fieldPath` in the form of the messages.
    field_path: Option<String>,
}

impl fmt::Debug for CelRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rules = self.compiled.values().flatten().map(|compiled| &compiled.rule.rule);
        f.debug_list().entries(rules).finish()
    }
}

impl CelRules {
    /// Compiles every rule of a schema. A rule that does not compile refuses every object, as upstream's does; CRDs with
    /// such rules are refused by [`check_rules`] before.
    pub fn compile(schema: &TypeSchema) -> Self {
        let mut rules = Self::default();
        rules.add(schema.root(), &mut BTreeSet::new());
        rules
    }

    pub fn is_empty(&self) -> bool {
        self.compiled.is_empty()
    }

    /// Compiles below a node and tells whether there was anything to compile. Nodes on the way are not entered again,
    /// for schemas that contain themselves.
    fn add(&mut self, schema: SchemaRef<'_>, entered: &mut BTreeSet<SchemaId>) -> bool {
        if !entered.insert(schema.id()) {
            return self.leading.contains(&schema.id());
        }
        let node = schema.node();
        let mut leads = !node.cel.is_empty();
        if leads {
            let compiled = node.cel.iter().map(|rule| CompiledRule::new(rule, schema)).collect();
            self.compiled.insert(schema.id(), compiled);
        }
        let children = node
            .properties
            .values()
            .chain(&node.additional)
            .chain(&node.items)
            .chain(&node.all_of);
        for child in children {
            leads |= self.add(schema.child(*child), entered);
        }
        if leads {
            self.leading.insert(schema.id());
        }
        leads
    }
}

impl CompiledRule {
    fn new(rule: &CelRule, schema: SchemaRef<'_>) -> Self {
        let program = Program::compile(&rule.rule).map_err(|error| error.to_string());
        let uses_old = program
            .as_ref()
            .is_ok_and(|program| program.references().has_variable("oldSelf"));
        let message = rule
            .message_expression
            .as_deref()
            .and_then(|expression| Program::compile(expression).ok());
        let field_path = rule
            .field_path
            .as_deref()
            .and_then(|path| normal_field_path(path, schema).ok());
        Self {
            rule: rule.clone(),
            program,
            message,
            uses_old,
            field_path,
        }
    }

    /// How errors name the rule.
    fn shown(&self) -> &str {
        let message = self.rule.message.as_deref().filter(|message| !message.is_empty());
        message.unwrap_or(&self.rule.rule).trim()
    }

    fn default_message(&self) -> String {
        match self.rule.message.as_deref().filter(|message| !message.is_empty()) {
            Some(message) => message.trim().to_owned(),
            None => format!("failed rule: {}", self.shown()),
        }
    }
}

#[cfg(test)]
mod tests;

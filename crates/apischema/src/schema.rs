//! The one schema form: built-in kinds (OpenAPI v3 with `$ref`s, some of them recursive) and custom resources
//! (inline structural schemas) both become nodes of an arena, so that pruning, defaulting, validation, patches and
//! server-side apply are written once. What the nodes *mean* for a value lives in the sibling modules.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;

use serde_json::{Map, Value};

/// Index of a node within its [`SchemaSet`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SchemaId(u32);

/// All nodes that belong together: one OpenAPI document, or one version of a custom resource.
#[derive(Debug, Default)]
pub struct SchemaSet {
    nodes: Vec<Node>,
    names: BTreeMap<String, SchemaId>,
}

/// The JSON type that a node asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JsonType {
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
    /// `x-kubernetes-int-or-string`, `format: int-or-string`.
    IntOrString,
    /// No type given: any value.
    #[default]
    Any,
}

/// How server-side apply sees a list (`x-kubernetes-list-type`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ListType {
    #[default]
    Atomic,
    Set,
    Map(Vec<String>),
}

/// How a strategic merge patch sees a list or map (`x-kubernetes-patch-*`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PatchStrategy {
    pub merge: bool,
    pub replace: bool,
    pub retain_keys: bool,
    pub merge_key: Option<String>,
}

/// One rule of `x-kubernetes-validations`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CelRule {
    pub rule: String,
    pub message: Option<String>,
    pub message_expression: Option<String>,
    pub reason: Option<String>,
    pub field_path: Option<String>,
    pub optional_old_self: bool,
}

/// Bounds on a value; absent means unbounded.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Limits {
    pub minimum: Option<f64>,
    pub exclusive_minimum: bool,
    pub maximum: Option<f64>,
    pub exclusive_maximum: bool,
    pub multiple_of: Option<f64>,
    pub min_length: Option<u64>,
    pub max_length: Option<u64>,
    pub min_items: Option<u64>,
    pub max_items: Option<u64>,
    pub unique_items: bool,
    pub min_properties: Option<u64>,
    pub max_properties: Option<u64>,
    pub pattern: Option<String>,
}

/// One schema node.
#[expect(
    clippy::struct_excessive_bools,
    reason = "a schema has this many yes-or-no words, each on its own"
)]
#[derive(Clone, Debug, Default)]
pub struct Node {
    /// The OpenAPI component this node was declared as, when it has a name of its own.
    pub name: Option<Arc<str>>,
    pub json_type: JsonType,
    pub nullable: bool,
    pub description: Option<Arc<str>>,
    pub format: Option<Arc<str>>,
    pub properties: BTreeMap<String, SchemaId>,
    pub required: Vec<String>,
    pub additional: Option<SchemaId>,
    pub items: Option<SchemaId>,
    pub default: Option<Value>,
    pub enum_values: Vec<Value>,
    pub limits: Limits,
    pub list_type: ListType,
    /// `x-kubernetes-map-type: atomic`: a map or struct that is owned as a whole.
    pub atomic_map: bool,
    /// `x-kubernetes-map-type: granular`: said beside a reference, it undoes the component's `atomic`.
    pub granular_map: bool,
    pub patch: PatchStrategy,
    pub preserve_unknown: bool,
    pub embedded_resource: bool,
    pub cel: Vec<CelRule>,
    pub all_of: Vec<SchemaId>,
    pub any_of: Vec<SchemaId>,
    pub one_of: Vec<SchemaId>,
    pub not: Option<SchemaId>,
    /// The component that this node repeats, until the set is read whole.
    extends: Option<SchemaId>,
}

/// A node together with the set that resolves its children; cheap to copy.
#[derive(Clone, Copy, Debug)]
pub struct SchemaRef<'a> {
    set: &'a SchemaSet,
    id: SchemaId,
}

/// An owned entry point into a set: the schema of one kind.
#[derive(Clone, Debug)]
pub struct TypeSchema {
    set: Arc<SchemaSet>,
    root: SchemaId,
}

impl TypeSchema {
    /// The schema of a custom resource version, from its `openAPIV3Schema`.
    pub fn from_inline(schema: &Value) -> Self {
        let mut set = SchemaSet::default();
        let root = set.add(schema);
        Self {
            set: Arc::new(set),
            root,
        }
    }

    pub fn new(set: Arc<SchemaSet>, root: SchemaId) -> Self {
        Self { set, root }
    }

    /// A schema that accepts and keeps anything, for kinds without one.
    pub fn anything() -> Self {
        Self::from_inline(&serde_json::json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}))
    }

    pub fn root(&self) -> SchemaRef<'_> {
        SchemaRef {
            set: &self.set,
            id: self.root,
        }
    }

    pub fn set(&self) -> &Arc<SchemaSet> {
        &self.set
    }
}

impl SchemaSet {
    /// Reads the `components.schemas` of an OpenAPI v3 document.
    pub fn from_components(components: &Map<String, Value>) -> Self {
        let mut set = Self::default();
        // Names first: components refer to each other in any order, and to themselves.
        for name in components.keys() {
            let id = set.push(Node {
                name: Some(Arc::from(name.as_str())),
                ..Node::default()
            });
            set.names.insert(name.clone(), id);
        }
        for (name, schema) in components {
            let id = set.names[name];
            let mut node = set.read(schema);
            node.name = Some(Arc::from(name.as_str()));
            set.nodes[id.0 as usize] = node;
        }
        set.overlay_references();
        set
    }

    /// Makes nodes that refer to a component *and* say something of their own (a patch strategy beside the reference)
    /// whole: the component's node with the own words on top. Only now are all components read.
    fn overlay_references(&mut self) {
        for index in 0..self.nodes.len() {
            let Some(target) = self.nodes[index].extends.take() else {
                continue;
            };
            let own = std::mem::take(&mut self.nodes[index]);
            let base = self.nodes[target.0 as usize].clone();
            self.nodes[index] = Node {
                description: own.description.or(base.description),
                default: own.default.or(base.default),
                atomic_map: own.atomic_map || (base.atomic_map && !own.granular_map),
                patch: if own.patch == PatchStrategy::default() {
                    base.patch
                } else {
                    own.patch
                },
                ..base
            };
        }
    }

    pub fn named(&self, name: &str) -> Option<SchemaId> {
        self.names.get(name).copied()
    }

    pub fn names(&self) -> impl Iterator<Item = (&str, SchemaRef<'_>)> {
        self.names
            .iter()
            .map(|(name, id)| (name.as_str(), SchemaRef { set: self, id: *id }))
    }

    pub fn get(&self, id: SchemaId) -> SchemaRef<'_> {
        SchemaRef { set: self, id }
    }

    fn push(&mut self, node: Node) -> SchemaId {
        let id = SchemaId(u32::try_from(self.nodes.len()).unwrap_or(u32::MAX));
        self.nodes.push(node);
        id
    }

    /// Adds a schema with all its children and gives its id.
    pub fn add(&mut self, schema: &Value) -> SchemaId {
        let target = reference(schema).and_then(|target| self.names.get(target)).copied();
        if let Some(id) = target
            && schema.as_object().is_some_and(|fields| fields.len() == 1)
        {
            return id;
        }
        let node = self.read(schema);
        self.push(node)
    }

    fn read(&mut self, schema: &Value) -> Node {
        let Some(fields) = schema.as_object() else {
            return Node::default();
        };
        let extends = reference(schema).and_then(|target| self.names.get(target)).copied();
        let mut node = Node {
            json_type: json_type(fields),
            nullable: flag(fields, "nullable"),
            description: text(fields, "description").map(Arc::from),
            format: text(fields, "format").map(Arc::from),
            required: strings(fields.get("required")),
            default: fields.get("default").cloned(),
            enum_values: fields
                .get("enum")
                .and_then(Value::as_array)
                .cloned()
                .unwrap_or_default(),
            limits: limits(fields),
            list_type: list_type(fields),
            atomic_map: text(fields, "x-kubernetes-map-type") == Some("atomic"),
            granular_map: text(fields, "x-kubernetes-map-type") == Some("granular"),
            patch: patch_strategy(fields),
            preserve_unknown: flag(fields, "x-kubernetes-preserve-unknown-fields"),
            embedded_resource: flag(fields, "x-kubernetes-embedded-resource"),
            cel: cel_rules(fields),
            extends,
            ..Node::default()
        };
        if let Some(properties) = fields.get("properties").and_then(Value::as_object) {
            node.properties = properties
                .iter()
                .map(|(name, child)| (name.clone(), self.add(child)))
                .collect();
        }
        node.items = fields.get("items").map(|items| self.add(items));
        node.additional = match fields.get("additionalProperties") {
            Some(Value::Bool(true)) => Some(self.add(&Value::Bool(true))),
            Some(Value::Object(child)) => Some(self.add(&Value::Object(child.clone()))),
            _ => None,
        };
        if extends.is_some() {
            return node;
        }
        for (key, list) in [
            ("allOf", &mut node.all_of),
            ("anyOf", &mut node.any_of),
            ("oneOf", &mut node.one_of),
        ] {
            for child in fields.get(key).and_then(Value::as_array).into_iter().flatten() {
                list.push(self.add(child));
            }
        }
        node.not = fields.get("not").map(|child| self.add(child));
        node
    }
}

impl Deref for SchemaRef<'_> {
    type Target = Node;

    fn deref(&self) -> &Node {
        &self.set.nodes[self.id.0 as usize]
    }
}

impl<'a> SchemaRef<'a> {
    pub fn id(self) -> SchemaId {
        self.id
    }

    /// The node with the lifetime of the set (what `Deref` cannot give).
    pub fn node(self) -> &'a Node {
        &self.set.nodes[self.id.0 as usize]
    }

    #[must_use]
    pub fn child(self, id: SchemaId) -> SchemaRef<'a> {
        SchemaRef { set: self.set, id }
    }

    /// The schema of a declared property, else of any additional one.
    pub fn property(self, name: &str) -> Option<SchemaRef<'a>> {
        self.node()
            .properties
            .get(name)
            .or(self.node().additional.as_ref())
            .map(|id| self.child(*id))
    }

    pub fn items(self) -> Option<SchemaRef<'a>> {
        self.node().items.map(|id| self.child(id))
    }

    pub fn additional(self) -> Option<SchemaRef<'a>> {
        self.node().additional.map(|id| self.child(id))
    }
}

/// The component that a schema refers to: `{"$ref": …}`, also in the `allOf` wrapper that the API server uses to put a
/// default or a description beside a reference.
fn reference(schema: &Value) -> Option<&str> {
    let direct = schema.get("$ref").and_then(Value::as_str);
    let wrapped = || match schema.get("allOf").and_then(Value::as_array).map(Vec::as_slice) {
        Some([only]) => only.get("$ref").and_then(Value::as_str),
        _ => None,
    };
    direct.or_else(wrapped).and_then(|target| target.rsplit('/').next())
}

fn flag(fields: &Map<String, Value>, key: &str) -> bool {
    fields.get(key).and_then(Value::as_bool).unwrap_or(false)
}

fn text<'a>(fields: &'a Map<String, Value>, key: &str) -> Option<&'a str> {
    fields.get(key).and_then(Value::as_str)
}

fn strings(list: Option<&Value>) -> Vec<String> {
    list.and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(|item| item.as_str().map(str::to_owned))
        .collect()
}

fn json_type(fields: &Map<String, Value>) -> JsonType {
    if flag(fields, "x-kubernetes-int-or-string") || text(fields, "format") == Some("int-or-string") {
        return JsonType::IntOrString;
    }
    match text(fields, "type") {
        Some("object") => JsonType::Object,
        Some("array") => JsonType::Array,
        Some("string") => JsonType::String,
        Some("integer") => JsonType::Integer,
        Some("number") => JsonType::Number,
        Some("boolean") => JsonType::Boolean,
        _ => JsonType::Any,
    }
}

fn limits(fields: &Map<String, Value>) -> Limits {
    let float = |key: &str| fields.get(key).and_then(Value::as_f64);
    let count = |key: &str| fields.get(key).and_then(Value::as_u64);
    Limits {
        minimum: float("minimum"),
        exclusive_minimum: flag(fields, "exclusiveMinimum"),
        maximum: float("maximum"),
        exclusive_maximum: flag(fields, "exclusiveMaximum"),
        multiple_of: float("multipleOf"),
        min_length: count("minLength"),
        max_length: count("maxLength"),
        min_items: count("minItems"),
        max_items: count("maxItems"),
        unique_items: flag(fields, "uniqueItems"),
        min_properties: count("minProperties"),
        max_properties: count("maxProperties"),
        pattern: text(fields, "pattern").map(str::to_owned),
    }
}

fn list_type(fields: &Map<String, Value>) -> ListType {
    match text(fields, "x-kubernetes-list-type") {
        Some("set") => ListType::Set,
        Some("map") => ListType::Map(strings(fields.get("x-kubernetes-list-map-keys"))),
        _ => ListType::Atomic,
    }
}

fn patch_strategy(fields: &Map<String, Value>) -> PatchStrategy {
    let strategies = text(fields, "x-kubernetes-patch-strategy").unwrap_or_default();
    let has = |wanted: &str| strategies.split(',').any(|strategy| strategy == wanted);
    PatchStrategy {
        merge: has("merge"),
        replace: has("replace"),
        retain_keys: has("retainKeys"),
        merge_key: text(fields, "x-kubernetes-patch-merge-key").map(str::to_owned),
    }
}

fn cel_rules(fields: &Map<String, Value>) -> Vec<CelRule> {
    let rules = fields.get("x-kubernetes-validations").and_then(Value::as_array);
    rules
        .into_iter()
        .flatten()
        .filter_map(Value::as_object)
        .map(|rule| CelRule {
            rule: text(rule, "rule").unwrap_or_default().to_owned(),
            message: text(rule, "message").map(str::to_owned),
            message_expression: text(rule, "messageExpression").map(str::to_owned),
            reason: text(rule, "reason").map(str::to_owned),
            field_path: text(rule, "fieldPath").map(str::to_owned),
            optional_old_self: flag(rule, "optionalOldSelf"),
        })
        .collect()
}

//! Sets of field paths, the currency of field ownership: what a manager owns, what changed, what a strategy resets.
//! Holds the set algebra; the `FieldsV1` notation is in the sibling module, and nothing here knows about schemas.

use std::cmp::Ordering;
use std::fmt;

use serde_json::Value;

use super::gofmt;

/// One step of a path. The order of the variants is upstream's order of path elements.
#[derive(Clone, Debug)]
pub enum PathElement {
    /// A field of a map or struct (`f:`).
    Field(String),
    /// An item of a keyed list, by its key fields in alphabetical order (`k:`).
    Key(Vec<(String, Value)>),
    /// An item of a set, by its value (`v:`).
    Value(Value),
    /// An item by position (`i:`).
    Index(i64),
}

impl PathElement {
    fn rank(&self) -> u8 {
        match self {
            Self::Field(_) => 0,
            Self::Key(_) => 1,
            Self::Value(_) => 2,
            Self::Index(_) => 3,
        }
    }
}

impl Ord for PathElement {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Field(left), Self::Field(right)) => left.cmp(right),
            (Self::Key(left), Self::Key(right)) => compare_keys(left, right),
            (Self::Value(left), Self::Value(right)) => compare_values(left, right),
            (Self::Index(left), Self::Index(right)) => left.cmp(right),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl PartialOrd for PathElement {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for PathElement {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for PathElement {}

impl fmt::Display for PathElement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(f, ".{name}"),
            Self::Key(fields) => {
                f.write_str("[")?;
                for (position, (name, value)) in fields.iter().enumerate() {
                    let comma = if position > 0 { "," } else { "" };
                    write!(f, "{comma}{name}={}", gofmt::path_value(value))?;
                }
                f.write_str("]")
            }
            Self::Value(value) => write!(f, "[={}]", gofmt::path_value(value)),
            Self::Index(index) => write!(f, "[{index}]"),
        }
    }
}

fn compare_keys(left: &[(String, Value)], right: &[(String, Value)]) -> Ordering {
    for ((left_name, left_value), (right_name, right_value)) in left.iter().zip(right) {
        let order = left_name
            .cmp(right_name)
            .then_with(|| compare_values(left_value, right_value));
        if order != Ordering::Equal {
            return order;
        }
    }
    left.len().cmp(&right.len())
}

/// Upstream's total order of values: numbers, strings, booleans, lists, maps, null; numbers numerically.
pub(super) fn compare_values(left: &Value, right: &Value) -> Ordering {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => match (left.as_i64(), right.as_i64()) {
            (Some(left), Some(right)) => left.cmp(&right),
            _ => left.as_f64().unwrap_or(0.0).total_cmp(&right.as_f64().unwrap_or(0.0)),
        },
        (Value::String(left), Value::String(right)) => left.cmp(right),
        (Value::Bool(left), Value::Bool(right)) => left.cmp(right),
        (Value::Array(left), Value::Array(right)) => {
            let differing = left
                .iter()
                .zip(right)
                .map(|(l, r)| compare_values(l, r))
                .find(|order| *order != Ordering::Equal);
            differing.unwrap_or_else(|| left.len().cmp(&right.len()))
        }
        (Value::Object(left), Value::Object(right)) => {
            let differing = left
                .iter()
                .zip(right)
                .map(|((ln, lv), (rn, rv))| ln.cmp(rn).then_with(|| compare_values(lv, rv)))
                .find(|order| *order != Ordering::Equal);
            differing.unwrap_or_else(|| left.len().cmp(&right.len()))
        }
        _ => value_rank(left).cmp(&value_rank(right)),
    }
}

fn value_rank(value: &Value) -> u8 {
    match value {
        Value::Number(_) => 0,
        Value::String(_) => 1,
        Value::Bool(_) => 2,
        Value::Array(_) => 3,
        Value::Object(_) => 4,
        Value::Null => 5,
    }
}

/// What a set says about one path element: whether the path itself is in it, and what below.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Subset {
    pub member: bool,
    pub children: FieldSet,
}

impl Subset {
    pub fn leaf() -> Self {
        Self {
            member: true,
            children: FieldSet::default(),
        }
    }

    pub fn is_empty(&self) -> bool {
        !self.member && self.children.is_empty()
    }

    pub fn absorb(&mut self, other: Self) {
        self.member |= other.member;
        self.children = if self.children.is_empty() {
            other.children
        } else {
            self.children.union(&other.children)
        };
    }
}

/// A set of field paths: a tree whose nodes are sorted by path element and never empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct FieldSet {
    pub(super) nodes: Vec<(PathElement, Subset)>,
}

impl FieldSet {
    pub const EMPTY: Self = Self { nodes: Vec::new() };

    /// A set of plain field paths, written with dots: `status`, `metadata.labels`.
    pub fn from_paths(paths: &[&str]) -> Self {
        let mut set = Self::default();
        for path in paths {
            let elements: Vec<PathElement> = path
                .split('.')
                .map(|name| PathElement::Field(name.to_owned()))
                .collect();
            set.insert(&elements);
        }
        set
    }

    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Adds a path; its parents do not become members. The empty path is nobody's and changes nothing.
    pub fn insert(&mut self, path: &[PathElement]) {
        let Some((first, rest)) = path.split_first() else {
            return;
        };
        let at = match self.find(first) {
            Ok(at) => at,
            Err(at) => {
                self.nodes.insert(at, (first.clone(), Subset::default()));
                at
            }
        };
        let subset = &mut self.nodes[at].1;
        if rest.is_empty() {
            subset.member = true;
        } else {
            subset.children.insert(rest);
        }
    }

    pub fn has(&self, path: &[PathElement]) -> bool {
        let Some((first, rest)) = path.split_first() else {
            return false;
        };
        self.get(first).is_some_and(|subset| {
            if rest.is_empty() {
                subset.member
            } else {
                subset.children.has(rest)
            }
        })
    }

    /// Adds what a walk found at `element`. Walks mostly come in order, so that this is an append.
    pub(super) fn push(&mut self, element: PathElement, subset: Subset) {
        if subset.is_empty() {
            return;
        }
        if self.nodes.last().is_none_or(|(last, _)| *last < element) {
            self.nodes.push((element, subset));
            return;
        }
        match self.find(&element) {
            Ok(at) => self.nodes[at].1.absorb(subset),
            Err(at) => self.nodes.insert(at, (element, subset)),
        }
    }

    fn find(&self, element: &PathElement) -> Result<usize, usize> {
        self.nodes.binary_search_by(|(own, _)| own.cmp(element))
    }

    pub(super) fn get(&self, element: &PathElement) -> Option<&Subset> {
        self.find(element).ok().map(|at| &self.nodes[at].1)
    }

    pub(super) fn field(&self, name: &str) -> Option<&Subset> {
        let order = |own: &PathElement| match own {
            PathElement::Field(own) => own.as_str().cmp(name),
            _ => Ordering::Greater,
        };
        self.nodes
            .binary_search_by(|(own, _)| order(own))
            .ok()
            .map(|at| &self.nodes[at].1)
    }

    /// Lets `change` edit what the set says about fields of this level; what it leaves empty goes.
    pub(super) fn retain_fields(&mut self, change: impl Fn(&str, &mut Subset)) {
        self.nodes.retain_mut(|(element, subset)| {
            if let PathElement::Field(name) = element {
                change(name, subset);
            }
            !subset.is_empty()
        });
    }

    pub fn union(&self, other: &Self) -> Self {
        let mut out = Self {
            nodes: Vec::with_capacity(self.nodes.len().max(other.nodes.len())),
        };
        let (mut left, mut right) = (self.nodes.iter().peekable(), other.nodes.iter().peekable());
        loop {
            let order = match (left.peek(), right.peek()) {
                (Some((l, _)), Some((r, _))) => l.cmp(r),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (None, None) => return out,
            };
            match order {
                Ordering::Less => out.nodes.extend(left.next().cloned()),
                Ordering::Greater => out.nodes.extend(right.next().cloned()),
                Ordering::Equal => {
                    if let (Some((element, l)), Some((_, r))) = (left.next(), right.next()) {
                        let both = Subset {
                            member: l.member || r.member,
                            children: l.children.union(&r.children),
                        };
                        out.nodes.push((element.clone(), both));
                    }
                }
            }
        }
    }

    pub fn intersection(&self, other: &Self) -> Self {
        let mut out = Self::default();
        for (element, own) in &self.nodes {
            if let Some(theirs) = other.get(element) {
                let both = Subset {
                    member: own.member && theirs.member,
                    children: own.children.intersection(&theirs.children),
                };
                out.push(element.clone(), both);
            }
        }
        out
    }

    /// The members that `other` does not have. A parent in `other` does not take its children along.
    pub fn difference(&self, other: &Self) -> Self {
        self.without(other, false)
    }

    /// Like [`FieldSet::difference`], but a member of `other` takes everything below it along.
    pub fn recursive_difference(&self, other: &Self) -> Self {
        self.without(other, true)
    }

    fn without(&self, other: &Self, recursive: bool) -> Self {
        let mut out = Self::default();
        for (element, own) in &self.nodes {
            match other.get(element) {
                None => out.nodes.push((element.clone(), own.clone())),
                Some(theirs) if recursive && theirs.member => {}
                Some(theirs) => {
                    let rest = Subset {
                        member: own.member && !theirs.member,
                        children: own.children.without(&theirs.children, recursive),
                    };
                    out.push(element.clone(), rest);
                }
            }
        }
        out
    }

    /// The members that have nothing below them.
    pub fn leaves(&self) -> Self {
        let mut out = Self::default();
        for (element, own) in &self.nodes {
            let leaf = Subset {
                member: own.member && own.children.is_empty(),
                children: own.children.leaves(),
            };
            out.push(element.clone(), leaf);
        }
        out
    }

    /// All members: upstream's order, which lists the members of a level before going deeper.
    pub fn paths(&self) -> Vec<Vec<PathElement>> {
        let mut found = Vec::new();
        self.collect_paths(&mut Vec::new(), &mut found);
        found
    }

    fn collect_paths(&self, prefix: &mut Vec<PathElement>, found: &mut Vec<Vec<PathElement>>) {
        for (element, _) in self.nodes.iter().filter(|(_, subset)| subset.member) {
            let mut path = prefix.clone();
            path.push(element.clone());
            found.push(path);
        }
        for (element, subset) in &self.nodes {
            if !subset.children.is_empty() {
                prefix.push(element.clone());
                subset.children.collect_paths(prefix, found);
                prefix.pop();
            }
        }
    }
}

/// A path as messages show it: `.spec.ports[port=80,protocol="TCP"].name`.
pub fn path_string(path: &[PathElement]) -> String {
    path.iter().map(ToString::to_string).collect()
}

//! What a scheduler looks at: resources, labels, taints, affinity, spread, volumes. Plain data, shared between the pods of
//! one template; the judgement is in [`crate::capacity`].

use std::collections::BTreeMap;
use std::sync::Arc;

pub type Labels = BTreeMap<Arc<str>, Arc<str>>;

/// Amounts of resources (of a pod: `pods` is 1): processor in thousandths, memory and storage in bytes, all others as they are counted.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Resources {
    pub cpu_milli: i64,
    pub memory: i64,
    pub pods: i64,
    pub others: BTreeMap<Arc<str>, i64>,
}

impl Resources {
    pub fn add(&mut self, other: &Self) {
        self.change(other, 1);
    }

    pub fn subtract(&mut self, other: &Self) {
        self.change(other, -1);
    }

    fn change(&mut self, other: &Self, sign: i64) {
        self.cpu_milli = self.cpu_milli.saturating_add(sign * other.cpu_milli);
        self.memory = self.memory.saturating_add(sign * other.memory);
        self.pods = self.pods.saturating_add(sign * other.pods);
        for (name, amount) in &other.others {
            let entry = self.others.entry(Arc::clone(name)).or_default();
            *entry = entry.saturating_add(sign * amount);
        }
    }
}

#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum TaintEffect {
    NoSchedule,
    PreferNoSchedule,
    NoExecute,
}

#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Taint {
    pub key: Arc<str>,
    pub value: Arc<str>,
    pub effect: TaintEffect,
}

/// Tolerates a taint. No key: any key. No value: the key existing is enough. No effect: any effect.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Toleration {
    pub key: Option<Arc<str>>,
    pub value: Option<Arc<str>>,
    pub effect: Option<TaintEffect>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
    Gt,
    Lt,
}

/// One requirement on labels. Values are sorted.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Requirement {
    pub key: Arc<str>,
    pub operator: Operator,
    pub values: Vec<Arc<str>>,
}

/// All requirements must hold; none at all selects everything.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Selector {
    pub requirements: Vec<Requirement>,
}

impl Selector {
    pub fn matches(&self, labels: &Labels) -> bool {
        self.requirements.iter().all(|requirement| requirement.matches(labels))
    }
}

impl Requirement {
    pub fn matches(&self, labels: &Labels) -> bool {
        let value = labels.get(&*self.key);
        let number = |text: &Arc<str>| text.parse::<i64>().ok();
        let bound = || self.values.first().and_then(number);
        match self.operator {
            Operator::In => value.is_some_and(|value| self.values.contains(value)),
            Operator::NotIn => value.is_none_or(|value| !self.values.contains(value)),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::Gt => value
                .and_then(number)
                .zip(bound())
                .is_some_and(|(value, bound)| value > bound),
            Operator::Lt => value
                .and_then(number)
                .zip(bound())
                .is_some_and(|(value, bound)| value < bound),
        }
    }
}

impl PodTerm {
    /// Whether it looks into the namespace of its own pod, and nowhere else.
    pub fn is_local(&self) -> bool {
        self.namespaces.is_empty() && self.namespace_selector.is_none()
    }

    /// Whether a term of a pod in namespace `of` looks into another, with the labels that one has.
    pub fn looks_into(&self, of: &Arc<str>, namespace: &Arc<str>, namespaces: &BTreeMap<Arc<str>, Labels>) -> bool {
        if self.is_local() {
            return of == namespace;
        }
        let selected = |selector: &Selector| match namespaces.get(namespace) {
            Some(labels) => selector.matches(labels),
            // Not seen, it is one without labels, as it is to the scheduler.
            None => selector.matches(&Labels::new()),
        };
        self.namespaces.contains(namespace) || self.namespace_selector.as_ref().is_some_and(selected)
    }
}

/// One term of a required pod (anti-)affinity.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PodTerm {
    pub selector: Selector,
    /// Namespaces the term looks into by name, beside those that `namespace_selector` selects; the pod's own where neither says any.
    pub namespaces: Vec<Arc<str>>,
    /// Namespaces the term looks into by their labels; an empty one selects all.
    pub namespace_selector: Option<Selector>,
    pub topology_key: Arc<str>,
}

/// A hard spread constraint (`DoNotSchedule`).
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Spread {
    pub max_skew: i64,
    /// With fewer domains than these, one that has nobody counts beside them.
    pub min_domains: usize,
    pub topology_key: Arc<str>,
    pub selector: Selector,
}

/// Who would bring a pod back.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Owner {
    pub kind: Arc<str>,
    pub name: Arc<str>,
    pub uid: super::ids::Uid,
}

/// What the pods of one template have in common; they share one value.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct PodShape {
    pub labels: Labels,
    pub owner: Option<Owner>,
    pub requests: Resources,
    pub node_selector: Labels,
    /// Required node affinity: one of the terms must hold; empty where there is none.
    pub node_affinity: Vec<Selector>,
    pub pod_affinity: Vec<PodTerm>,
    pub pod_anti_affinity: Vec<PodTerm>,
    pub spread: Vec<Spread>,
    pub tolerations: Vec<Toleration>,
    /// Host ports, as `TCP/80`.
    pub host_ports: Vec<Arc<str>>,
    /// Names of PersistentVolumeClaims.
    pub claims: Vec<Arc<str>>,
    /// Has an `emptyDir` that an eviction loses (memory-backed ones included, as kubectl counts them).
    pub local_data: bool,
    pub priority: i32,
}

/// A PersistentVolumeClaim and where its volume can be used.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Claim {
    /// Name of the bound PersistentVolume.
    pub volume: Option<Arc<str>>,
    /// The volume can be used where one of these holds; anywhere where empty.
    pub node_affinity: Vec<Selector>,
}

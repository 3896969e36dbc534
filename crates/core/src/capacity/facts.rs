//! What pods elsewhere mean for pods of one shape: whom they want to be near, whom they keep apart from, who keeps apart
//! from them, how they are spread. Counted once by topology domain and kept up as pods are moved in thought.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Blocker;
use super::filter::selects;
use crate::view::{Key, Labels, Node, Pod, PodShape, PodTerm, View};

/// How many pods there are in each domain.
type Counts = BTreeMap<Arc<str>, i64>;
type Domains = BTreeSet<Arc<str>>;

/// What facts of several shapes have in common, counted once.
#[derive(Default)]
pub(super) struct Shared<'a> {
    /// The pods whose anti-affinity is not about their own namespace alone.
    afar: Option<Vec<&'a Arc<Pod>>>,
    /// All domains by topology key, for shapes that may go to any node.
    domains: BTreeMap<Arc<str>, Arc<Domains>>,
}

impl<'a> Shared<'a> {
    fn afar(&mut self, view: &'a View) -> &[&'a Arc<Pod>] {
        self.afar.get_or_insert_with(|| {
            let named = |pod: &&Arc<Pod>| {
                let mut terms = pod.shape.pod_anti_affinity.iter();
                terms.any(|term| !term.is_local())
            };
            view.repelling().values().filter(named).collect()
        })
    }

    /// The domains that count for a shape's spread. Cordoned nodes and those that are away count too (`nodeTaintsPolicy: Ignore`,
    /// the default): a drained node is a domain with nobody in it, and may so keep the pod from every other.
    fn domains(&mut self, view: &View, shape: &PodShape) -> Vec<Arc<Domains>> {
        if let [constraint] = shape.spread.as_slice()
            && shape.node_selector.is_empty()
            && shape.node_affinity.is_empty()
        {
            let known = self.domains.entry(Arc::clone(&constraint.topology_key));
            return vec![Arc::clone(
                known.or_insert_with(|| domains(view, shape, &constraint.topology_key)),
            )];
        }
        let keys = shape.spread.iter().map(|constraint| &constraint.topology_key);
        keys.map(|key| domains(view, shape, key)).collect()
    }
}

pub(super) struct Facts<'a> {
    /// Labels of all namespaces.
    namespaces: &'a BTreeMap<Arc<str>, Labels>,
    namespace: &'a Arc<str>,
    shape: &'a PodShape,
    /// By term of the shape's own affinity, anti-affinity and spread: the pods it matches.
    near: Vec<Counts>,
    apart: Vec<Counts>,
    spread: Vec<Counts>,
    /// By topology key: the pods elsewhere whose anti-affinity matches this shape.
    repelled: BTreeMap<Arc<str>, Counts>,
    /// By spread constraint: the domains that count, with or without a pod, and the fewest pods that one of them has.
    domains: Vec<Arc<Domains>>,
    fewest: Vec<i64>,
}

impl<'a> Facts<'a> {
    /// Whether pods elsewhere mean anything to this shape; as a rule they do not.
    pub(super) fn needed(view: &View, shape: &PodShape) -> bool {
        !view.repelling().is_empty()
            || !shape.pod_affinity.is_empty()
            || !shape.pod_anti_affinity.is_empty()
            || !shape.spread.is_empty()
    }

    pub(super) fn gather(
        view: &'a View,
        namespace: &'a Arc<str>,
        shape: &'a PodShape,
        shared: &mut Shared<'a>,
    ) -> Self {
        let mut facts = Self {
            namespaces: &view.namespaces,
            namespace,
            shape,
            near: vec![Counts::new(); shape.pod_affinity.len()],
            apart: vec![Counts::new(); shape.pod_anti_affinity.len()],
            spread: vec![Counts::new(); shape.spread.len()],
            repelled: BTreeMap::new(),
            domains: shared.domains(view, shape),
            fewest: Vec::new(),
        };
        for looked_into in facts.looked_into() {
            // To look a node up costs more than to see that a pod does not matter.
            for pod in view
                .pods_in(&looked_into)
                .filter(|pod| facts.matters(pod))
                .collect::<Vec<_>>()
            {
                if let Some(node) = running_on(view, pod) {
                    facts.count_wanted(pod, node, 1);
                }
            }
        }
        let repelled = |pod: &&Arc<Pod>| {
            let mut terms = pod.shape.pod_anti_affinity.iter();
            terms.any(|term| facts.is_about(term, &pod.key.namespace, namespace, &shape.labels))
        };
        let repelling: Vec<_> = repelling_near(view, namespace, shared.afar(view))
            .filter(repelled)
            .collect();
        for pod in repelling {
            if let Some(node) = running_on(view, pod) {
                facts.count_repelled(pod, node, 1);
            }
        }
        facts
    }

    /// Whether one of the shape's own terms is about a pod, as far as its labels say.
    fn matters(&self, pod: &Pod) -> bool {
        let mut terms = self.shape.pod_affinity.iter().chain(&self.shape.pod_anti_affinity);
        let mut spread = self.shape.spread.iter();
        let labels = &pod.shape.labels;
        terms.any(|term| term.selector.matches(labels)) || spread.any(|constraint| constraint.selector.matches(labels))
    }

    /// A pod comes to a node (1) or leaves it (-1).
    pub(super) fn note(&mut self, pod: &Pod, node: &Node, change: i64) {
        self.count_wanted(pod, node, change);
        self.count_repelled(pod, node, change);
    }

    /// The namespaces whose pods the shape's own terms look at.
    fn looked_into(&self) -> BTreeSet<Arc<str>> {
        let terms = || self.shape.pod_affinity.iter().chain(&self.shape.pod_anti_affinity);
        let own = !self.shape.spread.is_empty() || terms().any(PodTerm::is_local);
        let named = terms().flat_map(|term| term.namespaces.iter());
        let selected = terms()
            .filter(|term| term.namespace_selector.is_some())
            .flat_map(|term| {
                let all = self.namespaces.keys();
                all.filter(move |namespace| term.looks_into(self.namespace, namespace, self.namespaces))
            });
        let looked_into = named.chain(selected).chain(own.then_some(self.namespace));
        looked_into.cloned().collect()
    }

    /// Whether a term of a pod in namespace `of` is about a pod with these labels in another.
    fn is_about(&self, term: &PodTerm, of: &Arc<str>, namespace: &Arc<str>, labels: &Labels) -> bool {
        term.looks_into(of, namespace, self.namespaces) && term.selector.matches(labels)
    }

    fn count_wanted(&mut self, pod: &Pod, node: &Node, change: i64) {
        let labels = &pod.shape.labels;
        let terms = self.shape.pod_affinity.iter().zip(&mut self.near);
        let terms = terms.chain(self.shape.pod_anti_affinity.iter().zip(&mut self.apart));
        for (term, counts) in terms {
            if term.looks_into(self.namespace, &pod.key.namespace, self.namespaces) && term.selector.matches(labels) {
                count(counts, node, &term.topology_key, change);
            }
        }
        // The scheduler leaves pods that are ending, and nodes the pod may not use, out of the spread.
        if self.shape.spread.is_empty()
            || pod.key.namespace != *self.namespace
            || pod.ending.is_some()
            || !selects(self.shape, node)
        {
            return;
        }
        for (constraint, counts) in self.shape.spread.iter().zip(&mut self.spread) {
            if constraint.selector.matches(labels) {
                count(counts, node, &constraint.topology_key, change);
            }
        }
    }

    fn count_repelled(&mut self, pod: &Pod, node: &Node, change: i64) {
        for term in &pod.shape.pod_anti_affinity {
            if self.is_about(term, &pod.key.namespace, self.namespace, &self.shape.labels) {
                let counts = self.repelled.entry(Arc::clone(&term.topology_key)).or_default();
                count(counts, node, &term.topology_key, change);
            }
        }
    }

    /// Counts what all nodes have in common; to be called after pods moved and before nodes are looked at.
    pub(super) fn settle(&mut self) {
        let counted = self.shape.spread.iter().zip(&self.spread).zip(&self.domains);
        self.fewest = counted
            .map(|((constraint, counts), domains)| {
                // Somewhere nobody is: no need to look further, as with one domain a node.
                if domains.len() > counts.len() || domains.len() < constraint.min_domains {
                    return 0;
                }
                domains.iter().map(|domain| number(counts, domain)).min().unwrap_or(0)
            })
            .collect();
    }

    /// What keeps one more pod of this shape from a node.
    pub(super) fn blocker(&self, node: &Node) -> Option<Blocker> {
        let occupied = |counts: &Counts, key: &Arc<str>| {
            let domain = node.labels.get(key);
            domain.is_some_and(|domain| number(counts, domain) > 0)
        };
        let mut apart = self.shape.pod_anti_affinity.iter().zip(&self.apart);
        if apart.any(|(term, counts)| occupied(counts, &term.topology_key))
            || self.repelled.iter().any(|(key, counts)| occupied(counts, key))
        {
            return Some(Blocker::AntiAffinity);
        }
        if !self.near_enough(node) {
            return Some(Blocker::Affinity);
        }
        if !self.spread_enough(node) {
            return Some(Blocker::Spread);
        }
        None
    }

    fn near_enough(&self, node: &Node) -> bool {
        let terms = &self.shape.pod_affinity;
        if terms.iter().any(|term| !node.labels.contains_key(&term.topology_key)) {
            return false;
        }
        let met = terms.iter().zip(&self.near).all(|(term, counts)| {
            let domain = node.labels.get(&term.topology_key);
            domain.is_some_and(|domain| number(counts, domain) > 0)
        });
        // The first of a group that wants to be together has nobody to join: it may go anywhere.
        let alone = || self.near.iter().all(|counts| counts.values().all(|count| *count <= 0));
        let own = || {
            terms
                .iter()
                .all(|term| self.is_about(term, self.namespace, self.namespace, &self.shape.labels))
        };
        met || (alone() && own())
    }

    fn spread_enough(&self, node: &Node) -> bool {
        let mut constraints = self.shape.spread.iter().zip(&self.spread).zip(&self.fewest);
        constraints.all(|((constraint, counts), fewest)| {
            let Some(domain) = node.labels.get(&constraint.topology_key) else {
                return false;
            };
            let own = i64::from(constraint.selector.matches(&self.shape.labels));
            number(counts, domain) + own - fewest <= constraint.max_skew
        })
    }
}

fn domains(view: &View, shape: &PodShape, topology_key: &Arc<str>) -> Arc<Domains> {
    let complete = |node: &Node| {
        let mut constraints = shape.spread.iter();
        constraints.all(|constraint| node.labels.contains_key(&constraint.topology_key))
    };
    let nodes = view
        .nodes
        .values()
        .filter(|node| selects(shape, node) && complete(node));
    Arc::new(
        nodes
            .filter_map(|node| node.labels.get(topology_key).cloned())
            .collect(),
    )
}

/// The pods with anti-affinity that may be about a namespace: its own, and those elsewhere that name it.
fn repelling_near<'a>(
    view: &'a View,
    namespace: &'a Arc<str>,
    afar: &[&'a Arc<Pod>],
) -> impl Iterator<Item = &'a Arc<Pod>> {
    let first = Key {
        namespace: Arc::clone(namespace),
        name: Arc::from(""),
    };
    let own = view.repelling().range(first..).map(|(_, pod)| pod);
    let own = own.take_while(move |pod| pod.key.namespace == *namespace);
    own.chain(afar.iter().copied().filter(move |pod| pod.key.namespace != *namespace))
}

fn running_on<'a>(view: &'a View, pod: &Pod) -> Option<&'a Arc<Node>> {
    let node = pod.node.as_ref().filter(|_| !pod.phase.finished())?;
    view.nodes.get(node)
}

fn count(counts: &mut Counts, node: &Node, topology_key: &Arc<str>, change: i64) {
    if let Some(domain) = node.labels.get(topology_key) {
        *counts.entry(Arc::clone(domain)).or_default() += change;
    }
}

fn number(counts: &Counts, domain: &Arc<str>) -> i64 {
    counts.get(domain).copied().unwrap_or_default()
}

//! The free places of a cluster, and pods put into them in thought: first fit, the demanding ones first. It is no proof that
//! there is no other way to pack them, but what it finds is a way the scheduler could take. Only the pods of nodes that go are
//! looked at; the view is never copied.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::facts::{Facts, Shared};
use super::filter::standing_blocker;
use super::{Blocker, CounterExample, Fit, Tightest, must_move, workload_of};
use crate::preflight::accept_word;
use crate::view::{Key, Node, NodeName, Pod, PodShape, Resources, View};

/// How often packing is begun anew with the pod first that found no place.
const TRIES: usize = 4;
/// How many shapes are remembered; more would cost more at each move than to count them again.
const MOST_FACTS: usize = 64;
/// Up to how many pods beside the failing one a smallest set is looked for.
const MOST_BESIDE: usize = 40;

/// Free places, with the nodes that were taken away so far.
pub struct Room<'a> {
    view: &'a View,
    accepted: &'a BTreeSet<String>,
    /// The nodes a scheduler would use, by name.
    spots: Vec<Spot<'a>>,
    /// What was put onto spots of resources that few pods ask for.
    others: BTreeMap<(usize, Arc<str>), i64>,
    away: BTreeSet<NodeName>,
    lifted: BTreeMap<&'a Key, (&'a Pod, &'a Node)>,
    placed: BTreeMap<&'a Key, (&'a Pod, usize)>,
    waiting: BTreeSet<&'a Key>,
    facts: BTreeMap<ShapeId<'a>, Facts<'a>>,
    /// From which spot on a shape has to be tried: before it there was no room, and it only becomes less.
    tried: BTreeMap<usize, usize>,
    shared: Shared<'a>,
}

type ShapeId<'a> = (&'a Arc<str>, usize);

struct Spot<'a> {
    node: &'a Node,
    cpu_milli: i64,
    memory: i64,
    pods: i64,
    open: bool,
}

impl<'a> Room<'a> {
    /// The room there is now. A pod without a place does not count where a person accepted that for its workload
    /// (`deploy/shop/checkout:NoCapacity`): it waits until its node is back.
    pub fn new(view: &'a View, accepted: &'a BTreeSet<String>) -> Self {
        let mut used = view.used().peekable();
        let mut spots = Vec::with_capacity(view.nodes.len());
        for (name, node) in &view.nodes {
            // Both are in the order of names: one walk instead of a search for each node.
            while used.next_if(|(other, _)| *other < name).is_some() {}
            let taken = used.next_if(|(other, _)| *other == name).map(|(_, taken)| taken);
            if !node.available() {
                continue;
            }
            let free = |there: i64, taken: Option<i64>| there - taken.unwrap_or(0);
            spots.push(Spot {
                node,
                cpu_milli: free(node.allocatable.cpu_milli, taken.map(|taken| taken.cpu_milli)),
                memory: free(node.allocatable.memory, taken.map(|taken| taken.memory)),
                pods: free(node.allocatable.pods, taken.map(|taken| taken.pods)),
                open: true,
            });
        }
        Self {
            view,
            accepted,
            spots,
            others: BTreeMap::new(),
            away: BTreeSet::new(),
            lifted: BTreeMap::new(),
            placed: BTreeMap::new(),
            waiting: BTreeSet::new(),
            facts: BTreeMap::new(),
            tried: BTreeMap::new(),
            shared: Shared::default(),
        }
    }

    /// Takes one more node away; where its pods do not fit, nothing is changed.
    pub fn take(&mut self, node: &NodeName) -> Result<(), Box<CounterExample>> {
        self.take_together(&BTreeSet::from([node.clone()]))
    }

    /// Takes nodes away at once, all or none.
    pub fn take_together(&mut self, nodes: &BTreeSet<NodeName>) -> Result<(), Box<CounterExample>> {
        let fresh: Vec<NodeName> = nodes.difference(&self.away).cloned().collect();
        self.try_without(&fresh, true)
    }

    /// Takes nodes away that go whatever there is room for: what finds no place waits.
    pub fn without(&mut self, nodes: impl Iterator<Item = NodeName>) {
        let fresh: Vec<NodeName> = nodes.filter(|name| !self.away.contains(name)).collect();
        let moved = self.empty(&fresh);
        let mut pods: Vec<&'a Pod> = moved.iter().map(|(pod, _)| *pod).collect();
        self.sort(&mut pods);
        for pod in pods {
            match self.find(pod) {
                Some(spot) => self.put(pod, spot, 1),
                None => {
                    self.waiting.insert(&pod.key);
                }
            }
        }
        self.away.extend(fresh);
    }

    /// Whether a node could be taken too; nothing is changed.
    pub fn could_take(&mut self, node: &NodeName) -> Result<(), Box<CounterExample>> {
        if self.away.contains(node) {
            return Ok(());
        }
        self.try_without(std::slice::from_ref(node), false)
    }

    fn try_without(&mut self, fresh: &[NodeName], keep: bool) -> Result<(), Box<CounterExample>> {
        let before = self.waiting.clone();
        let moved = self.empty(fresh);
        let mut pods: Vec<&'a Pod> = moved.iter().map(|(pod, _)| *pod).collect();
        self.sort(&mut pods);
        let result = if self.nowhere_to_go(fresh) {
            self.waiting.extend(pods.iter().map(|pod| &pod.key));
            Ok(())
        } else {
            self.pack(&mut pods)
        };
        if result.is_ok() && keep {
            self.away.extend(fresh.iter().cloned());
            return Ok(());
        }
        self.take_off(&pods);
        self.waiting = before;
        self.refill(fresh, moved);
        result
    }

    /// A node that is alone is not drained: its pods wait for it.
    fn nowhere_to_go(&self, fresh: &[NodeName]) -> bool {
        let mut others = self.view.nodes.values().filter(|node| !fresh.contains(&node.name));
        fresh.len() == 1 && others.all(|node| node.deleting)
    }

    /// Lifts what must move off the nodes and closes them; says for each pod the spot it had only in thought.
    fn empty(&mut self, nodes: &[NodeName]) -> Vec<(&'a Pod, Option<usize>)> {
        let mut moved = Vec::new();
        for name in nodes {
            if let Some(spot) = self.spot(name) {
                self.spots[spot].open = false;
                let guests: Vec<_> = self.placed.values().copied().filter(|(_, at)| *at == spot).collect();
                for (pod, at) in guests {
                    self.put(pod, at, -1);
                    moved.push((pod, Some(at)));
                }
            }
            let Some(node) = self.view.nodes.get(name) else {
                continue;
            };
            for pod in self.view.pods_on(name).filter(|pod| must_move(pod)) {
                self.lifted.insert(&pod.key, (pod, node));
                self.note(pod, node, -1);
                moved.push((pod, None));
            }
        }
        moved
    }

    /// Undoes [`Self::empty`].
    fn refill(&mut self, nodes: &[NodeName], moved: Vec<(&'a Pod, Option<usize>)>) {
        for (pod, spot) in moved {
            if let Some(spot) = spot {
                self.put(pod, spot, 1);
            } else if let Some((pod, node)) = self.lifted.remove(&pod.key) {
                self.note(pod, node, 1);
            }
        }
        for name in nodes {
            if let Some(spot) = self.spot(name) {
                self.spots[spot].open = true;
            }
        }
        self.tried.clear();
    }

    fn spot(&self, name: &NodeName) -> Option<usize> {
        self.spots.binary_search_by(|spot| spot.node.name.cmp(name)).ok()
    }

    /// The demanding ones first: those with conditions, then by size.
    fn sort(&self, pods: &mut [&'a Pod]) {
        let largest = |of: fn(&Resources) -> i64| {
            let all = self.spots.iter().map(|spot| of(&spot.node.allocatable));
            all.max().unwrap_or(0).max(1)
        };
        let (cpu, memory) = (largest(|there| there.cpu_milli), largest(|there| there.memory));
        let share = |asked: i64, of: i64| asked.saturating_mul(1000) / of;
        pods.sort_by_cached_key(|pod| {
            let asks = &pod.shape.requests;
            let size = share(asks.cpu_milli, cpu).max(share(asks.memory / 1024, memory / 1024 + 1));
            (Reverse(demanding(&pod.shape)), Reverse(size), &pod.key)
        });
    }

    /// Places all of them, or none.
    fn pack(&mut self, pods: &mut [&'a Pod]) -> Result<(), Box<CounterExample>> {
        for tries_left in (0..TRIES).rev() {
            let Err((failed, why)) = self.pack_once(pods) else {
                return Ok(());
            };
            // At the front already: it fits nowhere by itself.
            if tries_left == 0 || failed == 0 {
                return Err(why);
            }
            pods[..=failed].rotate_right(1);
        }
        Ok(())
    }

    fn pack_once(&mut self, pods: &[&'a Pod]) -> Result<(), (usize, Box<CounterExample>)> {
        let before = self.waiting.clone();
        for (index, pod) in pods.iter().copied().enumerate() {
            if let Some(spot) = self.find(pod) {
                self.put(pod, spot, 1);
            } else if self.may_wait(pod) {
                self.waiting.insert(&pod.key);
            } else {
                let why = self.why(pod, &pods[..index]);
                self.take_off(&pods[..index]);
                self.waiting = before;
                return Err((index, why));
            }
        }
        Ok(())
    }

    /// Lifts what was put in thought off again.
    fn take_off(&mut self, pods: &[&'a Pod]) {
        for pod in pods {
            if let Some((pod, spot)) = self.placed.get(&pod.key).copied() {
                self.put(pod, spot, -1);
            }
        }
        self.tried.clear();
    }

    fn may_wait(&self, pod: &Pod) -> bool {
        let workload = workload_of(self.view, pod);
        !self.accepted.is_empty()
            && self
                .accepted
                .contains(&accept_word(&workload, afloat_api::Reason::NoCapacity))
    }

    /// Puts a pod onto a spot (1) or lifts it off again (-1).
    fn put(&mut self, pod: &'a Pod, at: usize, change: i64) {
        let asks = &pod.shape.requests;
        let spot = &mut self.spots[at];
        spot.cpu_milli -= change * asks.cpu_milli;
        spot.memory -= change * asks.memory;
        spot.pods -= change * asks.pods;
        let node = spot.node;
        for (name, amount) in &asks.others {
            *self.others.entry((at, Arc::clone(name))).or_default() += change * amount;
        }
        if change > 0 {
            self.placed.insert(&pod.key, (pod, at));
        } else {
            self.placed.remove(&pod.key);
        }
        self.note(pod, node, change);
    }

    fn note(&mut self, pod: &Pod, node: &Node, change: i64) {
        for facts in self.facts.values_mut() {
            facts.note(pod, node, change);
        }
    }

    fn find(&mut self, pod: &'a Pod) -> Option<usize> {
        let shape = std::ptr::from_ref::<PodShape>(&pod.shape) as usize;
        let gathered = self.gather(pod);
        let facts = gathered.and_then(|id| self.facts.get(&id));
        let steady = facts.is_none() && pod.shape.host_ports.is_empty();
        let first = if steady { self.tried.get(&shape).copied() } else { None };
        let found = (first.unwrap_or(0)..self.spots.len()).find(|at| {
            self.spots[*at].open && self.short_of(pod, *at).is_none() && self.rule(pod, *at, facts).is_none()
        });
        if steady {
            self.tried.insert(shape, found.unwrap_or(self.spots.len()));
        }
        found
    }

    /// Counts what pods elsewhere mean for this one, where they mean something.
    fn gather(&mut self, pod: &'a Pod) -> Option<ShapeId<'a>> {
        if !Facts::needed(self.view, &pod.shape) {
            return None;
        }
        let id = (&pod.key.namespace, std::ptr::from_ref::<PodShape>(&pod.shape) as usize);
        if !self.facts.contains_key(&id) {
            let mut facts = Facts::gather(self.view, &pod.key.namespace, &pod.shape, &mut self.shared);
            for (pod, node) in self.lifted.values() {
                facts.note(pod, node, -1);
            }
            for (pod, at) in self.placed.values() {
                facts.note(pod, self.spots[*at].node, 1);
            }
            if self.facts.len() >= MOST_FACTS {
                self.facts.clear();
            }
            self.facts.insert(id, facts);
        }
        self.facts.get_mut(&id).map(Facts::settle);
        Some(id)
    }

    /// The first resource a spot has too little of.
    fn short_of(&self, pod: &Pod, at: usize) -> Option<Blocker> {
        let (asks, spot) = (&pod.shape.requests, &self.spots[at]);
        // As the scheduler does: what is not asked for is not looked at, also on a node that has too little already.
        let short = |asked: i64, free: i64| asked > 0 && asked > free;
        if short(asks.cpu_milli, spot.cpu_milli) {
            return Some(Blocker::Cpu);
        }
        if short(asks.memory, spot.memory) {
            return Some(Blocker::Memory);
        }
        if short(asks.pods, spot.pods) {
            return Some(Blocker::Pods);
        }
        let lacking = asks.others.iter().find(|(name, asked)| {
            let there = spot.node.allocatable.others.get(*name).copied().unwrap_or(0);
            let used = self.view.used_on(&spot.node.name);
            let used = used.and_then(|used| used.others.get(*name)).copied().unwrap_or(0);
            let put = self.others.get(&(at, Arc::clone(name))).copied().unwrap_or(0);
            short(**asked, there - used - put)
        });
        lacking.map(|(name, _)| Blocker::Other(Arc::clone(name)))
    }

    /// What else keeps a pod from a spot.
    fn rule(&self, pod: &Pod, at: usize, facts: Option<&Facts<'a>>) -> Option<Blocker> {
        let node = self.spots[at].node;
        standing_blocker(self.view, &pod.key.namespace, &pod.shape, node)
            .or_else(|| self.port_taken(pod, at).then_some(Blocker::HostPort))
            .or_else(|| facts.and_then(|facts| facts.blocker(node)))
    }

    fn port_taken(&self, pod: &Pod, at: usize) -> bool {
        let ports = &pod.shape.host_ports;
        if ports.is_empty() {
            return false;
        }
        let clash = |other: &Pod| other.shape.host_ports.iter().any(|port| ports.contains(port));
        let there = self.view.pods_on(&self.spots[at].node.name);
        let there = there.filter(|other| !other.phase.finished() && !self.lifted.contains_key(&other.key));
        let mut put = self.placed.values().filter(|(_, spot)| *spot == at);
        there.into_iter().any(|other| clash(other)) || put.any(|(other, _)| clash(other))
    }

    fn why(&mut self, pod: &'a Pod, beside: &[&Pod]) -> Box<CounterExample> {
        let gathered = self.gather(pod);
        let facts = gathered.and_then(|id| self.facts.get(&id));
        let mut blockers: BTreeMap<Blocker, usize> = BTreeMap::new();
        let open = (0..self.spots.len()).filter(|at| self.spots[*at].open);
        let mut nodes = 0;
        for at in open {
            nodes += 1;
            let node = self.spots[at].node;
            let blocker = standing_blocker(self.view, &pod.key.namespace, &pod.shape, node)
                .or_else(|| self.short_of(pod, at))
                .or_else(|| self.rule(pod, at, facts));
            if let Some(blocker) = blocker {
                *blockers.entry(blocker).or_default() += 1;
            }
        }
        let mut blockers: Vec<_> = blockers.into_iter().collect();
        blockers.sort_by_key(|(_, nodes)| Reverse(*nodes));
        let node = pod.node.as_ref().map_or("", NodeName::as_str);
        Box::new(CounterExample {
            pod: pod.key.clone(),
            workload: workload_of(self.view, pod),
            node: node.into(),
            asks: pod.shape.requests.clone(),
            nodes,
            blockers,
            beside: beside.iter().map(|pod| pod.key.clone()).collect(),
        })
    }

    /// Leaves pods out of a counter-example as long as it stays one.
    pub(super) fn shrink(&mut self, found: CounterExample, away: &BTreeSet<NodeName>) -> Box<CounterExample> {
        let fresh: Vec<NodeName> = away.difference(&self.away).cloned().collect();
        let moved = self.empty(&fresh);
        let mut best = Box::new(found);
        let mut index = 0;
        while index < best.beside.len() && best.beside.len() <= MOST_BESIDE {
            let mut keys = best.beside.clone();
            keys.remove(index);
            keys.push(best.pod.clone());
            let mut pods: Vec<&'a Pod> = keys
                .iter()
                .filter_map(|key| moved.iter().find(|(pod, _)| pod.key == *key))
                .map(|(pod, _)| *pod)
                .collect();
            match self.pack(&mut pods) {
                Err(smaller) if smaller.beside.len() < best.beside.len() => {
                    best = smaller;
                    index = 0;
                }
                Err(_) => index += 1,
                Ok(()) => {
                    self.take_off(&pods);
                    index += 1;
                }
            }
        }
        self.refill(&fresh, moved);
        best
    }

    /// How tight it is with what was taken away.
    pub fn fit(&self) -> Fit {
        let (mut asked, mut there) = (Resources::default(), Resources::default());
        let mut tightest: Option<Tightest> = None;
        for spot in self.spots.iter().filter(|spot| spot.open) {
            let all = &spot.node.allocatable;
            let amounts = [
                ("CPU", all.cpu_milli - spot.cpu_milli, all.cpu_milli),
                ("memory", all.memory - spot.memory, all.memory),
                ("pods", all.pods - spot.pods, all.pods),
            ];
            for (total, part) in [&mut asked.cpu_milli, &mut asked.memory, &mut asked.pods]
                .into_iter()
                .zip(amounts)
            {
                *total += part.1;
            }
            there.cpu_milli += all.cpu_milli;
            there.memory += all.memory;
            there.pods += all.pods;
            for (resource, used, of) in amounts.into_iter().filter(|(_, _, of)| *of > 0) {
                let percent = i64::try_from(i128::from(used) * 100 / i128::from(of)).unwrap_or(i64::MAX);
                if tightest.as_ref().is_none_or(|found| found.percent < percent) {
                    tightest = Some(Tightest {
                        node: spot.node.name.clone(),
                        resource,
                        percent,
                    });
                }
            }
        }
        Fit {
            away: self.away.iter().cloned().collect(),
            moved: self.placed.len(),
            waiting: self.waiting.iter().map(|key| (*key).clone()).collect(),
            asked,
            there,
            tightest,
        }
    }
}

fn demanding(shape: &PodShape) -> bool {
    !shape.node_selector.is_empty()
        || !shape.node_affinity.is_empty()
        || !shape.pod_affinity.is_empty()
        || !shape.pod_anti_affinity.is_empty()
        || !shape.spread.is_empty()
        || !shape.host_ports.is_empty()
        || !shape.claims.is_empty()
}

//! What the core sees of a cluster: typed, reduced, in a fixed order. Whoever keeps it up to date (the operator by its
//! watches, the simulator by its storage) puts objects in and takes them out; the core only reads.

mod ids;
mod node;
mod pod;
mod scheduling;
mod workload;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use afloat_api::{ClusterUpgrade, ControlPlaneKubeadmUpgrade, NodeKubeadmUpgrade, WorkersKubeadmUpgrade};
use jiff::SignedDuration;

pub use ids::{Key, NodeName, Revision, Target, Uid};
pub use node::{ControlPlaneHealth, EtcdMember, Health, Node, Ready, Wish};
pub use pod::{Component, ContainerEnd, ContainerReport, Ending, Pod, PodPhase, StaticPart, TaskReport};
pub use scheduling::{
    Claim, Labels, Operator, Owner, PodShape, PodTerm, Requirement, Resources, Selector, Spread, Taint, TaintEffect,
    Toleration,
};
pub use workload::{GateState, PodBudget, Workload, WorkloadKind};

/// How soon a view that is behind is looked at again: the news that brings it up to date may change nothing else, and wakes nobody then.
pub const UNTIL_SEEN: SignedDuration = SignedDuration::from_secs(5);

/// A cluster at some moment; different kinds may be of different moments, as caches are.
#[derive(Clone, Debug, Default)]
pub struct View {
    pub nodes: BTreeMap<NodeName, Arc<Node>>,
    pods: BTreeMap<Key, Arc<Pod>>,
    pods_by_node: BTreeMap<NodeName, OnNode>,
    /// The pods with a required anti-affinity: they keep others away, wherever those would go.
    repelling: BTreeMap<Key, Arc<Pod>>,
    pub budgets: BTreeMap<Key, Arc<PodBudget>>,
    pub workloads: BTreeMap<(WorkloadKind, Key), Arc<Workload>>,
    pub claims: BTreeMap<Key, Arc<Claim>>,
    /// Labels of namespaces, by which pods say with whose pods they want to be, or not to be.
    pub namespaces: BTreeMap<Arc<str>, Labels>,

    pub upgrades: BTreeMap<Key, Arc<ClusterUpgrade>>,
    pub control_planes: BTreeMap<Key, Arc<ControlPlaneKubeadmUpgrade>>,
    pub workers: BTreeMap<Key, Arc<WorkersKubeadmUpgrade>>,
    node_upgrades: BTreeMap<Key, Arc<NodeKubeadmUpgrade>>,
    node_upgrades_by_node: BTreeMap<NodeName, BTreeSet<Key>>,

    /// The revision up to which the nodes were seen. That one is missing says something only about moments before it.
    pub nodes_as_of: Revision,
    /// The same for the upgrades of single nodes.
    pub node_upgrades_as_of: Revision,
    /// The lease `afloat-upgrade` in the operator's namespace: which upgrade may work on the cluster.
    pub lock: Option<Lock>,
    /// Probed and told, not read from an API object.
    pub health: Health,
    /// The node that holds the virtual address of the API server, where there is one.
    pub vip_holder: Option<NodeName>,
    /// Custom gates of upgrades, by their name.
    pub gates: BTreeMap<(Key, Arc<str>), GateState>,
    /// Upgrader images by version, as the ConfigMap `afloat-upgrader-images` says.
    pub images: BTreeMap<crate::version::KubernetesVersion, Arc<str>>,
    /// kubeadm's `ClusterConfiguration` (ConfigMap `kubeadm-config`), as YAML.
    pub kubeadm_config: Option<Arc<str>>,
    /// The namespace the operator runs in: ClusterUpgrades without `clusterRef` are heeded only there, and its pods are made there.
    pub home: Arc<str>,
    /// Harvester's front door and what stands behind it.
    pub hci: crate::hci::view::Hci,
}

/// What is on a node, kept as pods come and go: decisions ask for it again and again.
#[derive(Clone, Debug, Default)]
struct OnNode {
    pods: BTreeMap<Key, Arc<Pod>>,
    /// Those of them that are static parts of a control plane.
    parts: BTreeMap<Key, Arc<Pod>>,
    /// Those that are Afloat's.
    tasks: BTreeMap<Key, Arc<Pod>>,
    /// What the pods ask for together, finished ones left out.
    used: Resources,
}

impl OnNode {
    fn come(&mut self, pod: &Arc<Pod>) {
        let entry = || (pod.key.clone(), Arc::clone(pod));
        self.pods.extend([entry()]);
        self.parts.extend(pod.static_part.is_some().then(entry));
        self.tasks.extend(pod.task.is_some().then(entry));
        if !pod.phase.finished() {
            self.used.add(&pod.shape.requests);
        }
    }

    /// A pod as it is now takes the place of what it was.
    fn change(&mut self, before: &Pod, pod: &Arc<Pod>) {
        for there in [&mut self.pods, &mut self.parts, &mut self.tasks] {
            if let Some(place) = there.get_mut(&pod.key) {
                *place = Arc::clone(pod);
            }
        }
        if !before.phase.finished() {
            self.used.subtract(&before.shape.requests);
        }
        if !pod.phase.finished() {
            self.used.add(&pod.shape.requests);
        }
    }

    fn leave(&mut self, pod: &Pod) {
        self.pods.remove(&pod.key);
        self.parts.remove(&pod.key);
        self.tasks.remove(&pod.key);
        if !pod.phase.finished() {
            self.used.subtract(&pod.shape.requests);
        }
    }
}

/// Whose turn it is on the cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct Lock {
    pub target: Target,
    /// Uid of the ClusterUpgrade, or of the group that stands alone (`spec.holderIdentity`).
    pub holder: Uid,
}

impl View {
    pub fn put_pod(&mut self, pod: Arc<Pod>) {
        // Most that is heard of a pod changes neither where it is nor what it is there.
        let is_there = |pod: &Pod| (pod.node.clone(), pod.static_part.is_some(), pod.task.is_some());
        if let Some(before) = self.pods.get_mut(&pod.key)
            && is_there(before) == is_there(&pod)
            && before.shape.pod_anti_affinity.is_empty()
            && pod.shape.pod_anti_affinity.is_empty()
        {
            let before = std::mem::replace(before, Arc::clone(&pod));
            let there = pod.node.as_ref().and_then(|node| self.pods_by_node.get_mut(node));
            if let Some(there) = there {
                there.change(&before, &pod);
            }
            return;
        }
        self.remove_pod(&pod.key);
        if let Some(node) = &pod.node {
            self.pods_by_node.entry(node.clone()).or_default().come(&pod);
        }
        if !pod.shape.pod_anti_affinity.is_empty() {
            self.repelling.insert(pod.key.clone(), Arc::clone(&pod));
        }
        self.pods.insert(pod.key.clone(), pod);
    }

    /// Takes in all pods at once, where none is known yet.
    pub fn put_all_pods(&mut self, pods: BTreeMap<Key, Arc<Pod>>) {
        for pod in pods.values() {
            if let Some(node) = &pod.node {
                self.pods_by_node.entry(node.clone()).or_default().come(pod);
            }
            if !pod.shape.pod_anti_affinity.is_empty() {
                self.repelling.insert(pod.key.clone(), Arc::clone(pod));
            }
        }
        self.pods = pods;
    }

    pub fn remove_pod(&mut self, key: &Key) -> Option<Arc<Pod>> {
        let pod = self.pods.remove(key)?;
        if !pod.shape.pod_anti_affinity.is_empty() {
            self.repelling.remove(key);
        }
        if let Some(node) = &pod.node
            && let Some(there) = self.pods_by_node.get_mut(node)
        {
            there.leave(&pod);
            if there.pods.is_empty() {
                self.pods_by_node.remove(node);
            }
        }
        Some(pod)
    }

    /// What the pods of a node ask for together, finished ones left out.
    pub fn used_on(&self, node: &NodeName) -> Option<&Resources> {
        self.pods_by_node.get(node).map(|there| &there.used)
    }

    /// The same for all nodes that have pods.
    pub fn used(&self) -> impl Iterator<Item = (&NodeName, &Resources)> {
        self.pods_by_node.iter().map(|(node, there)| (node, &there.used))
    }

    /// The pods with a required anti-affinity, by namespace and name.
    pub fn repelling(&self) -> &BTreeMap<Key, Arc<Pod>> {
        &self.repelling
    }

    /// The pods of a namespace, by name.
    pub fn pods_in<'a>(&'a self, namespace: &'a Arc<str>) -> impl Iterator<Item = &'a Arc<Pod>> {
        let first = Key {
            namespace: Arc::clone(namespace),
            name: Arc::from(""),
        };
        self.pods
            .range(first..)
            .map(|(_, pod)| pod)
            .take_while(move |pod| pod.key.namespace == *namespace)
    }

    /// Takes in the upgrade of a node, and gives back what was known of it.
    pub fn put_node_upgrade(&mut self, key: Key, upgrade: Arc<NodeKubeadmUpgrade>) -> Option<Arc<NodeKubeadmUpgrade>> {
        // The node of an upgrade never changes: its CRD sees to it. A namesake made anew may be of another.
        if let Some(known) = self.node_upgrades.get_mut(&key)
            && known.spec.node.name == upgrade.spec.node.name
        {
            return Some(std::mem::replace(known, upgrade));
        }
        let before = self.remove_node_upgrade(&key);
        self.node_upgrades_by_node
            .entry(NodeName::from(upgrade.spec.node.name.as_str()))
            .or_default()
            .insert(key.clone());
        self.node_upgrades.insert(key, upgrade);
        before
    }

    pub fn remove_node_upgrade(&mut self, key: &Key) -> Option<Arc<NodeKubeadmUpgrade>> {
        let upgrade = self.node_upgrades.remove(key)?;
        if let Some(keys) = self.node_upgrades_by_node.get_mut(upgrade.spec.node.name.as_str()) {
            keys.remove(key);
        }
        Some(upgrade)
    }

    /// All upgrades of nodes, by namespace and name.
    pub fn node_upgrades(&self) -> &BTreeMap<Key, Arc<NodeKubeadmUpgrade>> {
        &self.node_upgrades
    }

    pub fn node_upgrade(&self, key: &Key) -> Option<&Arc<NodeKubeadmUpgrade>> {
        self.node_upgrades.get(key)
    }

    /// The upgrades of one node, of whatever group.
    pub fn node_upgrades_of(&self, node: &str) -> impl Iterator<Item = (&Key, &Arc<NodeKubeadmUpgrade>)> {
        self.node_upgrades_by_node
            .get(node)
            .into_iter()
            .flatten()
            .filter_map(|key| self.node_upgrades.get_key_value(key))
    }

    pub fn pod(&self, key: &Key) -> Option<&Arc<Pod>> {
        self.pods.get(key)
    }

    /// All pods, by namespace and name.
    pub fn pods(&self) -> impl ExactSizeIterator<Item = &Arc<Pod>> {
        self.pods.values()
    }

    /// The pods of one node, by namespace and name.
    pub fn pods_on<'a>(&'a self, node: &NodeName) -> impl Iterator<Item = &'a Arc<Pod>> {
        self.on(node.as_str(), |there| &there.pods)
    }

    /// Afloat's own pods on one node.
    pub fn tasks_on<'a>(&'a self, node: &str) -> impl Iterator<Item = &'a Arc<Pod>> {
        self.on(node, |there| &there.tasks)
    }

    fn on<'a>(
        &'a self,
        node: &str,
        which: fn(&OnNode) -> &BTreeMap<Key, Arc<Pod>>,
    ) -> impl Iterator<Item = &'a Arc<Pod>> + use<'a> {
        let there = self.pods_by_node.get(node);
        there.into_iter().flat_map(move |there| which(there).values())
    }

    /// The budgets that count for a pod.
    pub fn budgets_of(&self, pod: &Pod) -> impl Iterator<Item = &Arc<PodBudget>> {
        let namespace = Arc::clone(&pod.key.namespace);
        let first = Key {
            namespace: Arc::clone(&namespace),
            name: Arc::from(""),
        };
        self.budgets
            .range(first..)
            .map(|(_, budget)| budget)
            .take_while(move |budget| budget.key.namespace == namespace)
            .filter(|budget| budget.selector.matches(&pod.shape.labels))
    }

    pub fn control_plane_nodes(&self) -> impl Iterator<Item = &Arc<Node>> {
        self.nodes.values().filter(|node| node.control_plane)
    }

    pub fn worker_nodes(&self) -> impl Iterator<Item = &Arc<Node>> {
        self.nodes.values().filter(|node| !node.control_plane)
    }

    /// The static parts of a node.
    pub fn static_parts<'a>(&'a self, node: &NodeName) -> impl Iterator<Item = (&'a Arc<Pod>, &'a StaticPart)> {
        self.on(node.as_str(), |there| &there.parts)
            .filter_map(|pod| pod.static_part.as_ref().map(|part| (pod, part)))
    }
}

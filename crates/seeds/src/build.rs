//! A cluster as it is before its upgrade, put into the world at once: nodes, workloads with their pods placed and ready,
//! budgets counted. No boot is simulated.

use std::collections::BTreeMap;
use std::sync::Arc;

use afloat_api::labels;
use afloat_core::KubernetesVersion;
use afloat_core::view::{
    Key, Labels, Node, NodeName, Operator, Pod, PodBudget, PodPhase, PodShape, PodTerm, Ready, Requirement, Resources,
    Revision, Selector, Toleration,
};

use super::machine::{Machine, Place};
use super::store::{BudgetSpec, Meant, Writer};
use super::time::{SECOND, stamp};
use super::world::{KeeperKind, World};

/// A workload and its budget.
pub struct WorkloadPlan {
    pub kind: KeeperKind,
    pub name: &'static str,
    pub replicas: usize,
    pub cpu_milli: i64,
    pub budget: Option<BudgetSpec>,
    pub apart: bool,
}

pub const NAMESPACE: &str = "shop";

impl World {
    /// Adds a node, its machine, and tells the API server of both.
    pub fn add_node(
        &mut self,
        name: &str,
        control_plane: bool,
        zone: &str,
        version: &KubernetesVersion,
        writer: Writer,
    ) -> Arc<Node> {
        let uid = self.store.new_uid();
        let node_name = NodeName::from(name);
        let mut node_labels: Labels = BTreeMap::from([
            (Arc::from("kubernetes.io/hostname"), Arc::from(name)),
            (Arc::from(labels::ZONE), Arc::from(zone)),
        ]);
        if control_plane {
            node_labels.insert(Arc::from(labels::CONTROL_PLANE_NODE), Arc::from(""));
        }
        let address = format!("10.0.0.{}", self.machines.len() + 1);
        let place = Place {
            address: address.clone(),
            shared: self.shared.clone(),
            now: self.now,
            far: self.far,
        };
        let machine = Machine::new(node_name.clone(), uid.clone(), control_plane, version, place);
        let node = Node {
            name: node_name.clone(),
            uid,
            revision: Revision(0),
            created_at: stamp(self.now),
            labels: Arc::new(node_labels),
            control_plane,
            taints: if control_plane {
                vec![Self::control_plane_taint()]
            } else {
                Vec::new()
            },
            ready: Ready {
                ready: true,
                since: stamp(self.now),
            },
            kubelet_version: Some(version.clone()),
            container_runtime_version: Arc::clone(&machine.facts.runtime_version),
            os_image: Arc::from("Debian GNU/Linux 13 (trixie)"),
            internal_ip: Some(Arc::from(address)),
            allocatable: Resources {
                cpu_milli: 4000,
                memory: 16 << 30,
                pods: 110,
                others: BTreeMap::new(),
            },
            ..Node::default()
        };
        self.machines.insert(node_name.clone(), machine);
        let node = self.store.put(writer, "create", node);
        self.settle();
        self.tell(&node_name);
        self.settle();
        node
    }

    /// The oldest kubelet there is: what a machine that joins now has as well, or the way back would be closed.
    pub fn oldest_kubelet(&self) -> KubernetesVersion {
        let versions = self.machines.values().map(|machine| &machine.facts.kubelet_version);
        versions.min().cloned().unwrap_or_else(default_version)
    }

    /// Adds a workload with its pods placed and ready, and its budget.
    pub fn add_workload(&mut self, plan: &WorkloadPlan) -> usize {
        let pod_labels: Labels = BTreeMap::from([(Arc::from("app"), Arc::from(plan.name))]);
        let selector = Selector {
            requirements: vec![Requirement {
                key: Arc::from("app"),
                operator: Operator::In,
                values: vec![Arc::from(plan.name)],
            }],
        };
        let daemon = plan.kind == KeeperKind::DaemonSet;
        let shape = PodShape {
            labels: pod_labels,
            requests: Resources {
                cpu_milli: plan.cpu_milli,
                memory: 64 << 20,
                pods: 1,
                others: BTreeMap::new(),
            },
            pod_anti_affinity: if plan.apart {
                vec![PodTerm {
                    selector: selector.clone(),
                    namespaces: Vec::new(),
                    namespace_selector: None,
                    topology_key: Arc::from("kubernetes.io/hostname"),
                }]
            } else {
                Vec::new()
            },
            tolerations: if daemon {
                vec![Toleration {
                    key: None,
                    value: None,
                    effect: None,
                }]
            } else {
                Vec::new()
            },
            ..PodShape::default()
        };
        let key = Key::new(NAMESPACE, plan.name);
        let keeper = self.add_keeper(plan.kind, key.clone(), plan.replicas, shape, (5 * SECOND, 2 * SECOND));
        if let Some(spec) = plan.budget {
            let uid = self.store.new_uid();
            self.store.budget_specs.insert(key.clone(), spec);
            let budget = PodBudget {
                key,
                uid,
                revision: Revision(0),
                selector,
                up_to_date: true,
                disruptions_allowed: 0,
                current_healthy: 0,
                desired_healthy: 0,
                expected_pods: 0,
                unhealthy_may_go: false,
            };
            self.store.put(Writer::Setup, "create", budget);
        }
        self.settle();
        keeper
    }

    /// Lets every workload make its pods, places them and makes them ready, in no time.
    pub fn fill(&mut self) {
        for _ in 0..8 {
            for index in 0..self.keepers.len() {
                self.keep(index);
                self.settle();
            }
            self.schedule();
            self.settle();
        }
        let keys: Vec<Key> = self.store.pods.iter().map(|(key, _)| key.clone()).collect();
        let now = stamp(self.now);
        for key in keys {
            let _ = self
                .store
                .update::<Pod>(Writer::Setup, "ready", &Meant::named(&key), |pod| {
                    if pod.node.is_some() && pod.static_part.is_none() {
                        pod.phase = PodPhase::Running;
                        pod.ready = true;
                        pod.started_at = Some(now);
                    }
                });
        }
        self.settle();
        for index in 0..self.keepers.len() {
            self.keep(index);
        }
        self.count_budgets();
        self.settle();
    }
}

/// The version a cluster starts with unless told otherwise.
pub fn default_version() -> KubernetesVersion {
    version("v1.35.4")
}

/// A version that is known to be one.
pub fn version(text: &str) -> KubernetesVersion {
    match text.parse() {
        Ok(version) => version,
        // Only this crate's own constants come here.
        Err(_) => default_version(),
    }
}

//! Rancher's planner: takes one node after the other through the drain and the new version of RKE2, and asks before and after each drain
//! through the machine's plan secret. Which node is next is its own decision, in the order of names. It may be restarted, and then
//! begins anew what it was at.

use std::sync::Arc;

use afloat_api::foreign::rancher::{LOCAL_CLUSTER, LOCAL_NAMESPACE, MachinePlan};
use afloat_core::KubernetesVersion;
use afloat_core::hci::view::{HciObject, LocalCluster, Seen};
use afloat_core::view::{Key, Node, NodeName, Pod};

use super::world::{Look, World};
use crate::store::{Meant, Writer};
use crate::time::{MINUTE, Millis, SECOND};

/// Drain and the new RKE2 on one node.
const RKE2: Millis = 4 * MINUTE;
/// How long a pod that cannot be evicted is left alone.
const EVICT_AGAIN: Millis = 20 * SECOND;
/// The work of bringing a new version, on a node.
const NEW_VERSION: u8 = 1;

/// The plan secret of a node.
pub fn plan_key(node: &str) -> Key {
    Key::new(LOCAL_NAMESPACE, &format!("custom-{node}-machine-plan"))
}

type PlanSeen = Arc<Seen<MachinePlan>>;

impl World {
    /// It ends, and is away for a while; what it was at begins anew.
    pub(super) fn restart_rancher(&mut self, away: Millis) {
        self.rancher_away = self.rancher_away.max(self.now + away);
        let nodes: Vec<NodeName> = self.machines.keys().cloned().collect();
        for node in nodes {
            self.forget(&(Look::Rancher, number(&node)));
        }
        self.look_at(self.rancher_away, Look::Rancher);
    }

    pub(super) fn rancher(&mut self) {
        let restarts = &self.script.trouble.rancher_restarts;
        if let Some(index) = restarts.iter().position(|(when, _)| self.has_come(*when)) {
            let (_, away) = self.script.trouble.rancher_restarts.remove(index);
            self.restart_rancher(super::longhorn::millis(away));
        }
        if self.rancher_away > self.now {
            return self.look_at(self.rancher_away, Look::Rancher);
        }
        let key = Key::new(LOCAL_NAMESPACE, LOCAL_CLUSTER);
        let Some(cluster) = self.store.hci.clusters.get(&key).cloned() else {
            return;
        };
        if self.uncordons() {
            return;
        }
        let wanted = Arc::clone(&cluster.kubernetes_version);
        let hooks = &cluster.strategy["workerDrainOptions"]["preDrainHooks"];
        if hooks.as_array().is_none_or(Vec::is_empty) {
            if !self.takes_alone(&wanted) {
                self.calls_off(&wanted);
                self.tell(&cluster, None);
            }
            return;
        }
        let token = format!("drain-{}", cluster.provision_generation);
        let nodes: Vec<Arc<Node>> = self.store.base.nodes.values().cloned().collect();
        let most = if self.script.trouble.rancher_hurries { 2 } else { 1 };
        let mut busy: Vec<NodeName> = Vec::new();
        for node in nodes {
            if busy.len() == most {
                break;
            }
            let Some(plan) = self.store.hci.plans.get(&plan_key(node.name.as_str())).cloned() else {
                continue;
            };
            if self.takes_along(&node, &plan, &wanted, &token) {
                busy.push(node.name.clone());
            }
        }
        self.tell(&cluster, busy.first());
    }

    /// The only node of a cluster gets its new version without a drain, and without a question.
    fn takes_alone(&mut self, wanted: &str) -> bool {
        let nodes: Vec<Arc<Node>> = self.store.base.nodes.values().take(2).cloned().collect();
        let [only] = nodes.as_slice() else { return false };
        let behind = kubelet(only) != wanted;
        if behind {
            self.new_version(only, wanted);
        }
        behind
    }

    fn new_version(&mut self, node: &Node, wanted: &str) {
        if !self.takes(&(Look::Rancher, number(&node.name)), RKE2) {
            return;
        }
        let version: Option<KubernetesVersion> = wanted.parse().ok();
        self.change_node(Writer::Rancher, "new-version", &node.name, |node| {
            node.kubelet_version = version;
        });
    }

    /// What is next for a node; whether it is not done.
    fn takes_along(&mut self, node: &Node, plan: &PlanSeen, wanted: &str, token: &str) -> bool {
        let says = |text: &Option<String>| text.as_deref() == Some(token);
        let at_version = kubelet(node) == wanted;
        if !says(&plan.pre_drain) {
            if at_version {
                return false;
            }
            self.change_node(Writer::Rancher, "cordon", &node.name, |node| node.unschedulable = true);
            self.change(Writer::Rancher, HciObject::Plan, plan, |plan| {
                plan.pre_drain = Some(token.to_owned());
            });
            return true;
        }
        if !says(&plan.pre_hook) {
            return true;
        }
        if !at_version {
            if self.evicts(&node.name) {
                self.look_at(self.now + EVICT_AGAIN, Look::Rancher);
            } else {
                self.new_version(node, wanted);
            }
            return true;
        }
        if !says(&plan.post_drain) {
            self.change(Writer::Rancher, HciObject::Plan, plan, |plan| {
                plan.post_drain = Some(token.to_owned());
            });
            return true;
        }
        !says(&plan.post_hook)
    }

    /// Everything that leaves a node in a drain is evicted, as its budgets allow. Whether anything was there.
    fn evicts(&mut self, node: &NodeName) -> bool {
        let pods: Vec<Arc<Pod>> = self.store.base.pods_on(node).cloned().collect();
        for pod in &pods {
            // One that cannot go now is asked again.
            let _refused = self.store.base.evict(Writer::Rancher, &Meant::named(&pod.key), Some(0));
        }
        self.settle();
        !pods.is_empty()
    }

    /// Nobody wants the nodes changed any more that it had asked about: they come back, and the questions go.
    fn calls_off(&mut self, wanted: &str) {
        let asked = self.store.base.nodes.values().find_map(|node| {
            let plan = self.store.hci.plans.get(&plan_key(node.name.as_str()))?;
            let open = plan.pre_drain.is_some() && plan.pre_hook != plan.pre_drain;
            (open && kubelet(node) == wanted).then(|| (node.name.clone(), Arc::clone(plan)))
        });
        if let Some((node, plan)) = asked {
            self.change_node(Writer::Rancher, "uncordon", &node, |node| node.unschedulable = false);
            self.change(Writer::Rancher, HciObject::Plan, &plan, |plan| plan.pre_drain = None);
        }
    }

    /// A node whose last question was answered comes back, also when the upgrade is over by then.
    fn uncordons(&mut self) -> bool {
        let done = |node: &&Arc<Node>| {
            let plan = self.store.hci.plans.get(&plan_key(node.name.as_str()));
            node.unschedulable && plan.is_some_and(|plan| plan.pre_drain.is_some() && plan.post_hook == plan.pre_drain)
        };
        let node = self.store.base.nodes.values().find(done).map(|node| node.name.clone());
        if let Some(node) = &node {
            self.change_node(Writer::Rancher, "uncordon", node, |node| node.unschedulable = false);
        }
        node.is_some()
    }

    /// Rancher's own words about where it is (H50).
    fn tell(&mut self, cluster: &Arc<Seen<LocalCluster>>, at: Option<&NodeName>) {
        let said = at.map(|node| {
            Arc::from(format!(
                "configuring bootstrap node(s) custom-{node}: waiting for plan to be applied"
            ))
        });
        if cluster.checkpoint != said {
            self.change(Writer::Rancher, HciObject::Cluster, cluster, |cluster| {
                cluster.checkpoint = said;
            });
        }
    }
}

fn kubelet(node: &Node) -> String {
    node.kubelet_version
        .as_ref()
        .map(ToString::to_string)
        .unwrap_or_default()
}

/// Tells the work on one node from that on another.
fn number(node: &NodeName) -> u8 {
    let digits = node
        .as_str()
        .rsplit('-')
        .next()
        .and_then(|text| text.parse::<u8>().ok());
    digits.unwrap_or_default().wrapping_add(NEW_VERSION)
}

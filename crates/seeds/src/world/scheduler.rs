//! The scheduler, reduced: nodes that are ready and take new pods, taints, node selectors, processor and pod count, and
//! anti-affinity by topology; the emptiest node wins.

use std::sync::Arc;

use afloat_core::view::{Node, NodeName, Pod, TaintEffect};

use super::World;
use crate::store::{Meant, Writer};

impl World {
    pub(super) fn count_pod(&mut self, before: Option<&Arc<Pod>>, after: Option<&Arc<Pod>>) {
        for (pod, sign) in [(before, -1), (after, 1)] {
            let Some(pod) = pod else { continue };
            let Some(node) = &pod.node else { continue };
            if pod.phase.finished() {
                continue;
            }
            let used = self.used.entry(node.clone()).or_default();
            used.0 += sign * pod.shape.requests.cpu_milli;
            used.1 += sign;
        }
    }

    pub(crate) fn schedule(&mut self) {
        self.schedule_planned = false;
        let pending: Vec<_> = self.pending.iter().cloned().collect();
        for key in pending {
            let Some(pod) = self.store.pods.get(&key).cloned() else {
                continue;
            };
            let Some(node) = self.place_for(&pod) else { continue };
            let bound = self
                .store
                .update::<Pod>(Writer::Scheduler, "bind", &Meant::named(&key), |pod| {
                    pod.node = Some(node);
                });
            if bound.is_ok() {
                // Counted at once: the next pod of this round sees it.
                self.settle();
            }
        }
    }

    fn place_for(&self, pod: &Pod) -> Option<NodeName> {
        let mut best: Option<(i64, &NodeName)> = None;
        for node in self.store.nodes.values() {
            if !self.fits(pod, node) {
                continue;
            }
            let used = self.used.get(&node.name).map_or(0, |used| used.0);
            if best.is_none_or(|(least, _)| used < least) {
                best = Some((used, &node.name));
            }
        }
        best.map(|(_, name)| name.clone())
    }

    fn fits(&self, pod: &Pod, node: &Node) -> bool {
        let used = self.used.get(&node.name).copied().unwrap_or_default();
        node.available()
            && used.0 + pod.shape.requests.cpu_milli <= node.allocatable.cpu_milli
            && used.1 < node.allocatable.pods
            && node.taints.iter().all(|taint| {
                taint.effect == TaintEffect::PreferNoSchedule
                    || pod.shape.tolerations.iter().any(|toleration| {
                        toleration.key.as_ref().is_none_or(|key| *key == taint.key)
                            && toleration.effect.is_none_or(|effect| effect == taint.effect)
                    })
            })
            && pod
                .shape
                .node_selector
                .iter()
                .all(|(key, value)| node.labels.get(key) == Some(value))
            && self.apart(pod, node)
    }

    /// Anti-affinity within the pod's own namespace.
    fn apart(&self, pod: &Pod, node: &Node) -> bool {
        pod.shape.pod_anti_affinity.iter().all(|term| {
            let Some(domain) = node.labels.get(&term.topology_key) else {
                return true;
            };
            let neighbours = self
                .store
                .nodes
                .values()
                .filter(|other| other.labels.get(&term.topology_key) == Some(domain));
            !neighbours
                .flat_map(|other| self.store.pods_on(&other.name))
                .any(|other| {
                    other.key.namespace == pod.key.namespace
                        && !other.phase.finished()
                        && term.selector.matches(&other.shape.labels)
                })
        })
    }
}

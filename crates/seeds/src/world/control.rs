//! The controllers that only tidy up: disruption budgets are counted, dependents of removed owners collected, pods of
//! removed nodes removed, nodes that no longer report marked and in the end emptied.

use std::sync::Arc;

use afloat_core::view::{Key, Lock, Node, NodeName, Pod, PodBudget, Ready, Taint, TaintEffect, Uid};

use super::{Event, World};
use crate::store::{BudgetSpec, Custom, Kind as _, KindName, Meant, Writer};
use crate::time::{MINUTE, Millis, SECOND, stamp};

/// How long a pod whose eviction was allowed counts as gone while nobody sees it going.
const DISRUPTED_FOR: Millis = 2 * MINUTE;

impl World {
    /// The disruption controller looks at every budget.
    pub(crate) fn count_budgets(&mut self) {
        self.budgets_planned = false;
        let budgets: Vec<Arc<PodBudget>> = self.store.budgets.values().cloned().collect();
        for budget in budgets {
            if self.frozen_budgets.contains(&budget.key) {
                continue;
            }
            let Some(spec) = self.store.budget_specs.get(&budget.key).copied() else {
                continue;
            };
            let after = self.counted(&budget, spec);
            let _ =
                self.store
                    .update::<PodBudget>(Writer::Disruption, "status", &Meant::named(&budget.key), |budget| {
                        *budget = PodBudget {
                            revision: budget.revision,
                            ..after
                        };
                    });
        }
    }

    fn counted(&mut self, budget: &PodBudget, spec: BudgetSpec) -> PodBudget {
        let now = self.now;
        let (mut healthy, mut expected) = (0, 0);
        let mut keepers = std::collections::BTreeSet::new();
        let mut disrupted = self.store.disrupted.remove(&budget.key).unwrap_or_default();
        let mut still = std::collections::BTreeMap::new();
        for pod in self.store.pods.values() {
            if pod.key.namespace != budget.key.namespace || !budget.selector.matches(&pod.shape.labels) {
                continue;
            }
            if let Some(keeper) = self.keeper_of_pod(pod) {
                keepers.insert(keeper);
            } else {
                expected += 1;
            }
            let allowed = disrupted.remove(&pod.uid).filter(|at| at + DISRUPTED_FOR > now);
            if pod.ending.is_none()
                && let Some(at) = allowed
            {
                still.insert(pod.uid.clone(), at);
                continue;
            }
            healthy += i64::from(pod.ready && pod.ending.is_none());
        }
        if !still.is_empty() {
            self.later(DISRUPTED_FOR + SECOND, Event::Budgets);
            self.store.disrupted.insert(budget.key.clone(), still);
        }
        let kept: usize = keepers.iter().map(|keeper| self.keepers[*keeper].replicas).sum();
        let expected = expected + i64::try_from(kept).unwrap_or_default();
        let desired = match spec {
            BudgetSpec::MinAvailable(least) => least,
            BudgetSpec::MaxUnavailable(most) => (expected - most).max(0),
        };
        PodBudget {
            up_to_date: true,
            disruptions_allowed: (healthy - desired).max(0),
            current_healthy: healthy,
            desired_healthy: desired,
            expected_pods: expected,
            ..budget.clone()
        }
    }

    /// The collector deletes what an owner leaves behind.
    pub(super) fn collect(&mut self, kind: KindName, owner: &Uid) {
        match kind {
            KindName::Upgrade => {
                self.collect_children::<afloat_api::ControlPlaneKubeadmUpgrade>(owner);
                self.collect_children::<afloat_api::WorkersKubeadmUpgrade>(owner);
                self.collect_locks(owner);
            }
            KindName::ControlPlane | KindName::Workers => {
                self.collect_children::<afloat_api::NodeKubeadmUpgrade>(owner);
                self.collect_locks(owner);
            }
            KindName::NodeUpgrade => {
                self.collect_locks(owner);
                let pods: Vec<Key> = self
                    .store
                    .pods
                    .values()
                    .filter(|pod| {
                        self.store.pods_more.get(&pod.uid).and_then(|more| more.owner.as_ref()) == Some(owner)
                    })
                    .map(|pod| pod.key.clone())
                    .collect();
                for key in pods {
                    let _ = self
                        .store
                        .delete_pod(Writer::Collector, "delete", &Meant::named(&key), None);
                }
            }
            _ => {}
        }
    }

    fn collect_locks(&mut self, owner: &Uid) {
        let locks = self.store.locks.values();
        let held: Vec<Key> = locks
            .filter(|lock| lock.holder == *owner)
            .map(|lock| lock.target.key.clone())
            .collect();
        for key in held {
            self.store.remove::<Lock>(Writer::Collector, &key);
        }
    }

    fn collect_children<T: Custom>(&mut self, owner: &Uid) {
        let keys: Vec<Key> = T::table(&self.store)
            .values()
            .filter(|child| {
                let owners = child.meta().owner_references.as_deref().unwrap_or_default();
                owners.iter().any(|reference| reference.uid == owner.as_str())
            })
            .map(|child| child.key())
            .collect();
        for key in keys {
            let _ = self.store.delete_custom::<T>(Writer::Collector, &Meant::named(&key));
        }
    }

    /// A lock whose owner is not there (any more) is collected: an operator with an old view may have taken it.
    pub(super) fn lock_changed(&mut self, index: usize) {
        let Some(lock) = self.store.locks.changes()[index].after.clone() else {
            return;
        };
        let holder = lock.holder.as_str();
        let held = self.store.upgrades.values().any(|upgrade| upgrade.uid() == holder)
            || self.store.control_planes.values().any(|group| group.uid() == holder)
            || self.store.workers.values().any(|group| group.uid() == holder)
            || self.store.node_upgrades.values().any(|upgrade| upgrade.uid() == holder);
        if !held {
            let after = self.some(100, 3 * SECOND);
            self.later(after, Event::Collect(KindName::Upgrade, lock.holder.clone()));
        }
    }

    pub(super) fn node_changed(&mut self, index: usize) {
        let change = self.store.nodes.changes()[index].clone();
        if change.after.is_none() {
            let after = self.some(5 * SECOND, 40 * SECOND);
            self.later(after, Event::Orphans(change.key.clone()));
        }
        if change.before.is_none() {
            for index in 0..self.keepers.len() {
                self.plan_keep(index);
            }
        }
        self.plan_schedule();
    }

    pub(super) fn remove_orphans(&mut self, node: &NodeName) {
        if self.store.nodes.get(node).is_some() {
            return;
        }
        let keys: Vec<Key> = self.store.pods_on(node).map(|pod| pod.key.clone()).collect();
        for key in keys {
            self.store.remove_pod(Writer::Collector, &key);
        }
    }

    /// A node has not reported for a while.
    pub(super) fn node_is_lost(&mut self, name: &NodeName, epoch: u32) {
        let Some(machine) = self.machines.get(name) else { return };
        if machine.facts.kubelet {
            return;
        }
        let now = stamp(self.now);
        let uid = machine.node_uid.clone();
        let meant = Meant {
            key: name,
            uid: Some(uid.as_str()),
            revision: None,
        };
        let Ok(before) = self.store.meant::<Node>(&meant).cloned() else {
            return;
        };
        if before.ready.ready {
            let _ = self
                .store
                .update::<Node>(Writer::NodeLifecycle, "not-ready", &meant, |node| {
                    node.ready = Ready {
                        ready: false,
                        since: now,
                    };
                });
            self.told.remove(name);
            self.unready_pods(name);
            // Tolerated for five minutes by every pod, then they are told to go.
            self.later(5 * MINUTE, Event::NodeLost(name.clone(), epoch));
            return;
        }
        let keys: Vec<Key> = self
            .store
            .pods_on(name)
            .filter(|pod| pod.static_part.is_none() && pod.ending.is_none() && !daemon(pod))
            .filter(|pod| {
                self.store
                    .pods_more
                    .get(&pod.uid)
                    .is_some_and(|more| more.task.is_none())
            })
            .map(|pod| pod.key.clone())
            .collect();
        for key in keys {
            let _ = self
                .store
                .delete_pod(Writer::NodeLifecycle, "taint-evict", &Meant::named(&key), None);
        }
    }

    fn unready_pods(&mut self, node: &NodeName) {
        let keys: Vec<Key> = self
            .store
            .pods_on(node)
            .filter(|pod| pod.ready)
            .map(|pod| pod.key.clone())
            .collect();
        for key in keys {
            let _ = self
                .store
                .update::<Pod>(Writer::NodeLifecycle, "not-ready", &Meant::named(&key), |pod| {
                    pod.ready = false;
                });
        }
    }

    /// The taint that keeps ordinary pods off control planes.
    pub fn control_plane_taint() -> Taint {
        Taint {
            key: Arc::from(afloat_api::labels::CONTROL_PLANE_NODE),
            value: Arc::from(""),
            effect: TaintEffect::NoSchedule,
        }
    }
}

fn daemon(pod: &Pod) -> bool {
    pod.shape
        .owner
        .as_ref()
        .is_some_and(|owner| &*owner.kind == "DaemonSet")
}

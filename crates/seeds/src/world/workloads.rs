//! Workload controllers, reduced to what an upgrade meets: a pod that goes is replaced, at once or when its name is free
//! again; a DaemonSet has a pod on every node.

use std::sync::Arc;

use afloat_core::view::{Key, Owner, Pod, PodPhase, PodShape, Revision, Uid, Workload};

use super::{Event, Keeper, KeeperKind, World};
use crate::store::{Meant, PodMore, Writer};
use crate::time::Millis;

impl World {
    /// Puts a workload into the world; its pods come by the first look at it.
    pub fn add_keeper(
        &mut self,
        kind: KeeperKind,
        key: Key,
        replicas: usize,
        shape: PodShape,
        times: (Millis, Millis),
    ) -> usize {
        let uid = self.store.new_uid();
        let owner = Owner {
            kind: Arc::from(kind.word()),
            name: Arc::clone(&key.name),
            uid: uid.clone(),
        };
        let index = self.keepers.len();
        self.keepers.push(Keeper {
            kind,
            key: key.clone(),
            uid: uid.clone(),
            replicas,
            shape: Arc::new(PodShape {
                owner: Some(owner),
                ..shape
            }),
            grace: times.0,
            start: times.1,
            made: 0,
            pods: std::collections::BTreeSet::new(),
            planned: false,
        });
        self.keeper_of.insert(uid.clone(), index);
        if let Some(kind) = kind.workload() {
            let workload = Workload {
                kind,
                key,
                uid,
                revision: Revision(0),
                replicas: i64::try_from(replicas).unwrap_or_default(),
                ready: 0,
                owner: None,
            };
            self.store.put(Writer::Setup, "create", workload);
        }
        index
    }

    pub(super) fn keeper_of_pod(&self, pod: &Pod) -> Option<usize> {
        let owner = pod.shape.owner.as_ref()?;
        self.keeper_of.get(&owner.uid).copied()
    }

    pub(super) fn plan_keep(&mut self, index: usize) {
        if !self.keepers[index].planned {
            self.keepers[index].planned = true;
            let after = self.some(20, 400);
            self.later(after, Event::Workload(index));
        }
    }

    pub(super) fn pod_changed(&mut self, index: usize) {
        let change = self.store.pods.changes()[index].clone();
        self.count_pod(change.before.as_ref(), change.after.as_ref());
        let pod = change.after.as_ref().or(change.before.as_ref());
        if let Some(pod) = pod {
            if let Some(keeper) = self.keeper_of_pod(pod) {
                if change.after.is_some() {
                    self.keepers[keeper].pods.insert(pod.key.clone());
                } else {
                    self.keepers[keeper].pods.remove(&pod.key);
                }
                self.plan_keep(keeper);
                if Some(keeper) == self.operator_keeper {
                    self.operator_pod_changed(change.before.as_ref(), change.after.as_ref());
                }
            }
            if pod.static_part.is_none() && pod.task.is_none() {
                self.plan_budgets();
            }
        }
        match &change.after {
            Some(pod) => {
                if pod.node.is_none() && pod.ending.is_none() {
                    self.pending.insert(pod.key.clone());
                } else {
                    self.pending.remove(&pod.key);
                }
                self.kubelet_sees(pod, change.before.as_ref());
            }
            None => {
                self.pending.remove(&change.key);
            }
        }
        self.plan_schedule();
    }

    /// Looks at one workload: makes what lacks, and says how many are ready.
    pub(crate) fn keep(&mut self, index: usize) {
        self.keepers[index].planned = false;
        if self.keepers[index].kind == KeeperKind::DaemonSet {
            self.keep_daemons(index);
            return;
        }
        let keeper = &self.keepers[index];
        let (kind, replicas) = (keeper.kind, keeper.replicas);
        let pods: Vec<Arc<Pod>> = keeper
            .pods
            .iter()
            .filter_map(|key| self.store.pods.get(key))
            .cloned()
            .collect();
        let living = pods
            .iter()
            .filter(|pod| !pod.phase.finished() && (pod.ending.is_none() || kind == KeeperKind::StatefulSet))
            .count();
        for _ in living..replicas {
            let keeper = &mut self.keepers[index];
            let name = if kind == KeeperKind::StatefulSet {
                let free = (0..replicas)
                    .map(|ordinal| format!("{}-{ordinal}", keeper.key.name))
                    .find(|name| !pods.iter().any(|pod| &*pod.key.name == name.as_str()));
                let Some(name) = free else { break };
                name
            } else {
                keeper.made += 1;
                format!("{}-{:03}", keeper.key.name, keeper.made)
            };
            self.make_pod(index, &name, None);
            if kind == KeeperKind::StatefulSet {
                // One after the other: the next look makes the next one.
                self.plan_keep(index);
                break;
            }
        }
        let ready = pods.iter().filter(|pod| pod.ready && pod.ending.is_none()).count();
        let keeper = &self.keepers[index];
        if let Some(kind) = keeper.kind.workload() {
            let key = (kind, keeper.key.clone());
            let ready = i64::try_from(ready).unwrap_or_default();
            let _ = self
                .store
                .update::<Workload>(Writer::Workloads, "status", &Meant::named(&key), |workload| {
                    workload.ready = ready;
                });
        }
    }

    fn keep_daemons(&mut self, index: usize) {
        let nodes: Vec<_> = self
            .store
            .nodes
            .values()
            .filter(|node| !node.deleting)
            .cloned()
            .collect();
        for node in nodes {
            let name = format!("{}-{}", self.keepers[index].key.name, node.name);
            let key = Key {
                namespace: Arc::clone(&self.keepers[index].key.namespace),
                name: Arc::from(name.as_str()),
            };
            if self.store.pods.get(&key).is_none() {
                self.make_pod(index, &name, Some(node.name.clone()));
            }
        }
    }

    pub(super) fn make_pod(
        &mut self,
        index: usize,
        name: &str,
        node: Option<afloat_core::view::NodeName>,
    ) -> Option<Uid> {
        let uid = self.store.new_uid();
        let keeper = &self.keepers[index];
        let key = Key {
            namespace: Arc::clone(&keeper.key.namespace),
            name: Arc::from(name),
        };
        let more = PodMore {
            task: None,
            grace: keeper.grace,
            owner: Some(keeper.uid.clone()),
        };
        let pod = Pod {
            key,
            uid: uid.clone(),
            revision: Revision(0),
            node,
            phase: PodPhase::Pending,
            ready: false,
            started_at: None,
            ending: None,
            shape: Arc::clone(&keeper.shape),
            static_part: None,
            task: None,
        };
        self.store.create(Writer::Workloads, "create", pod).ok()?;
        self.store.pods_more.insert(uid.clone(), more);
        Some(uid)
    }
}

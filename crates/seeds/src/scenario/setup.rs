//! The words scenarios are written in.

use std::sync::Arc;

use afloat_api::clusterupgrade::{Budget, DrainOption};
use afloat_api::{ClusterUpgrade, ClusterUpgradeSpec, NodeState};
use afloat_core::view::{Key, NodeName};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::build::{NAMESPACE, WorkloadPlan, version};
use crate::store::{BudgetSpec, Writer};
use crate::time::Millis;
use crate::world::{Act, KeeperKind, PlannedAct, When, World};

/// The version clusters start with, and where they go.
pub const FROM: &str = "v1.35.4";
pub const TO: &str = "v1.36.3";
const UPGRADE: &str = "up";

/// A cluster that is being set up.
pub struct Setup<'a> {
    pub world: &'a mut World,
    upgrades: Vec<Key>,
    workers: Vec<NodeName>,
    frozen: Vec<Key>,
}

impl<'a> Setup<'a> {
    pub fn new(world: &'a mut World) -> Self {
        for text in ["v1.34.4", "v1.35.4", "v1.36.1", "v1.36.3", "v1.37.2", "v1.38.1"] {
            let image: Arc<str> = Arc::from(format!("afloat/upgrader:{text}"));
            world.images.insert(version(text), image);
        }
        Self {
            world,
            upgrades: Vec::new(),
            workers: Vec::new(),
            frozen: Vec::new(),
        }
    }

    /// Control planes and workers of one version.
    pub fn cluster(&mut self, control_planes: usize, workers: usize, from: &str) {
        self.cluster_of((control_planes, from), (workers, from));
    }

    /// Control planes and workers, three zones.
    pub fn cluster_of(&mut self, planes: (usize, &str), workers: (usize, &str)) {
        let (control_planes, workers, from, workers_from) =
            (planes.0, workers.0, version(planes.1), version(workers.1));
        self.world.shared.get().set_version(&from.to_string());
        let zones = ["zone-a", "zone-b", "zone-c"];
        for nth in 0..control_planes {
            let name = format!("cp-{}", nth + 1);
            self.world.add_node(&name, true, zones[nth % 3], &from, Writer::Setup);
        }
        for nth in 0..workers {
            let name = format!("w-{}", nth + 1);
            self.world
                .add_node(&name, false, zones[nth % 3], &workers_from, Writer::Setup);
            self.workers.push(NodeName::from(name));
        }
        self.world.members_hear();
        self.world.vip_holder = (control_planes > 1).then(|| NodeName::from("cp-1"));
    }

    /// The usual workloads: one with spare, one with a tight budget, one stateful, one without a budget, one on every node.
    pub fn workloads(&mut self) {
        let plans = [
            workload(KeeperKind::ReplicaSet, "web", 5, Some(BudgetSpec::MaxUnavailable(2))),
            workload(KeeperKind::ReplicaSet, "api", 3, Some(BudgetSpec::MinAvailable(2))),
            workload(KeeperKind::StatefulSet, "db", 3, Some(BudgetSpec::MaxUnavailable(1))),
            workload(KeeperKind::ReplicaSet, "cache", 4, None),
            workload(KeeperKind::DaemonSet, "net", 0, None),
        ];
        for plan in &plans {
            self.world.add_workload(plan);
        }
    }

    /// One workload more.
    pub fn workload(&mut self, plan: &WorkloadPlan) -> usize {
        self.world.add_workload(plan)
    }

    /// The upgrade most scenarios have.
    pub fn upgrade(&mut self, to: &str, change: impl FnOnce(&mut ClusterUpgradeSpec)) -> Key {
        self.upgrade_named(UPGRADE, to, 0, change)
    }

    /// An upgrade that is created at a moment.
    pub fn upgrade_named(
        &mut self,
        name: &str,
        to: &str,
        at: Millis,
        change: impl FnOnce(&mut ClusterUpgradeSpec),
    ) -> Key {
        let mut spec = ClusterUpgradeSpec {
            kubernetes_version: to.to_owned(),
            ..ClusterUpgradeSpec::default()
        };
        change(&mut spec);
        let mut upgrade = ClusterUpgrade::new(name, spec);
        upgrade.metadata.namespace = Some(self.world.home.to_string());
        let key = Key::new(&self.world.home, name);
        self.upgrades.push(key.clone());
        self.at(at, Act::Create(Box::new(upgrade)));
        key
    }

    /// From now on nobody counts this budget.
    pub fn freeze(&mut self, budget: Key) {
        self.frozen.push(budget);
    }

    pub fn at(&mut self, at: Millis, act: Act) {
        self.world.acts.push(PlannedAct::new(When::At(at), act));
    }

    /// When a node, or any, comes into a state.
    pub fn when(&mut self, state: NodeState, node: Option<&str>, after: Millis, act: Act) {
        let when = When::State(state, node.map(NodeName::from), after);
        self.world.acts.push(PlannedAct::new(when, act));
    }

    /// The cluster is whole: workloads come up, and what was set up is written.
    pub fn finish(self) -> (Vec<Key>, Vec<NodeName>) {
        self.world.fill();
        self.world.frozen_budgets.extend(self.frozen);
        (self.upgrades, self.workers)
    }
}

pub fn workload(kind: KeeperKind, name: &'static str, replicas: usize, budget: Option<BudgetSpec>) -> WorkloadPlan {
    WorkloadPlan {
        kind,
        name,
        replicas,
        cpu_milli: 100,
        budget,
        apart: false,
    }
}

pub fn node(name: &str) -> NodeName {
    NodeName::from(name)
}

pub fn budget_key(name: &str) -> Key {
    Key::new(NAMESPACE, name)
}

/// So many workers at once.
pub fn at_once(count: i32) -> impl FnOnce(&mut ClusterUpgradeSpec) {
    move |spec| {
        spec.budget = Some(Budget {
            max_unavailable: Some(IntOrString::Int(count)),
            ..Budget::default()
        });
    }
}

/// Drains that give up after a while.
pub fn drain_for(seconds: i32) -> DrainOption {
    DrainOption {
        timeout_seconds: Some(seconds),
        ..DrainOption::default()
    }
}

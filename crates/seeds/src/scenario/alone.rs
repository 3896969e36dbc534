//! Upgrades of parts of a cluster without a ClusterUpgrade above them, and budgets that overlap.

use std::collections::BTreeMap;
use std::sync::Arc;

use afloat_api::kubeadm::{
    ControlPlaneKubeadmUpgradeSpec, DesiredNodeState, NodeKubeadmUpgradeSpec, WorkersKubeadmUpgradeSpec,
};
use afloat_api::node::{NodePlan, steps};
use afloat_api::{
    ControlPlaneKubeadmUpgrade, NodeKubeadmUpgrade, NodeRef, NodeRole, ObjectRef, StepContainer, WorkersKubeadmUpgrade,
    labels, names,
};
use afloat_core::view::{Key, Node, NodeName, PodBudget, Revision};

use super::Setup;
use super::setup::budget_key;
use crate::build::version;
use crate::store::{BudgetSpec, Kind as _, KindName, Writer};

impl Setup<'_> {
    /// Nobody has published the bundle of a version.
    pub fn withdraw(&mut self, text: &str) {
        self.world.images.remove(&version(text));
    }

    fn machines(&self, control_planes: bool) -> Vec<ObjectRef> {
        let nodes = self.world.store.nodes.values();
        nodes
            .filter(|node| node.control_plane == control_planes)
            .map(|node| ObjectRef {
                api_version: Some("v1".to_owned()),
                kind: "Node".to_owned(),
                namespace: None,
                name: node.name.as_str().to_owned(),
                uid: Some(node.uid.as_str().to_owned()),
            })
            .collect()
    }

    /// A ControlPlaneKubeadmUpgrade that nobody owns, over all control planes.
    pub fn control_plane_alone(&mut self, to: &str) {
        let spec = ControlPlaneKubeadmUpgradeSpec {
            machines_require_upgrade: self.machines(true),
            kubernetes_version: to.to_owned(),
            kubelet_version: to.to_owned(),
            kubeadm_cluster_config: "clusterName: sim\n".to_owned(),
            ..ControlPlaneKubeadmUpgradeSpec::default()
        };
        let mut group = ControlPlaneKubeadmUpgrade::new("alone", spec);
        group.metadata.namespace = Some(self.world.home.to_string());
        let made = self.world.store.create_custom(Writer::Person, "create", group);
        self.world
            .alone
            .extend(made.map(|group| (KindName::ControlPlane, group.key())));
    }

    /// A WorkersKubeadmUpgrade that nobody owns, over all workers.
    pub fn workers_alone(&mut self, to: &str) {
        let machines = self.machines(false);
        self.some_workers_alone("alone", machines, to);
    }

    /// Two of them, one over the first half of the workers, one over the others.
    pub fn workers_in_two_groups_alone(&mut self, to: &str) {
        let mut first = self.machines(false);
        let second = first.split_off(first.len() / 2);
        self.some_workers_alone("alone-a", first, to);
        self.some_workers_alone("alone-b", second, to);
    }

    fn some_workers_alone(&mut self, name: &str, machines: Vec<ObjectRef>, to: &str) {
        let spec = WorkersKubeadmUpgradeSpec {
            machines_require_upgrade: machines,
            kubernetes_version: to.to_owned(),
            kubelet_version: to.to_owned(),
            ..WorkersKubeadmUpgradeSpec::default()
        };
        let mut group = WorkersKubeadmUpgrade::new(name, spec);
        group.metadata.namespace = Some(self.world.home.to_string());
        let made = self.world.store.create_custom(Writer::Person, "create", group);
        self.world
            .alone
            .extend(made.map(|group| (KindName::Workers, group.key())));
    }

    /// The name of the group of control planes that nobody owns.
    pub fn alone_key(&self) -> Key {
        Key::new(&self.world.home, "alone")
    }

    /// A NodeKubeadmUpgrade that nobody owns.
    pub fn node_alone(&mut self, name: &str, role: NodeRole, to: &str) {
        let Some(node) = self.world.store.nodes.get(&NodeName::from(name)).cloned() else {
            return;
        };
        let is_peer = |other: &&Arc<Node>| role != NodeRole::Worker && other.control_plane && other.name != node.name;
        let peers = self.world.store.nodes.values().filter(is_peer);
        let object = format!("alone-{name}");
        let plan = NodePlan {
            upgrade: object.clone(),
            attempt: 1,
            node: name.to_owned(),
            role,
            kubernetes_version: to.to_owned(),
            kubelet_version: to.to_owned(),
            via: vec![to.to_owned()],
            method: None,
            peers: peers
                .filter_map(|peer| peer.internal_ip.as_deref().map(str::to_owned))
                .collect(),
            etcd_version: None,
            core_dns_version: None,
            undo_after_seconds: 900,
            bundle_key: None,
        };
        let mut words = vec![steps::CONTAINERD, steps::CNI, steps::KUBEADM, steps::KUBELET];
        if !plan.peers.is_empty() {
            words.insert(0, steps::STAND_ASIDE);
            words.push(steps::COME_BACK);
        }
        let spec = NodeKubeadmUpgradeSpec {
            cluster: None,
            machine: None,
            node: NodeRef {
                name: name.to_owned(),
                uid: node.uid.as_str().to_owned(),
            },
            role,
            kubernetes_version: to.to_owned(),
            kubelet_version: to.to_owned(),
            etcd_version: None,
            stage: Some(Arc::new(step(steps::STAGE, &plan))),
            steps: Arc::new(words.into_iter().map(|name| step(name, &plan)).collect()),
            attempt: 1,
            desired: DesiredNodeState::Upgraded,
            undo_after_seconds: None,
        };
        let mut upgrade = NodeKubeadmUpgrade::new(&object, spec);
        upgrade.metadata.namespace = Some(self.world.home.to_string());
        upgrade.metadata.finalizers = Some(vec![names::FINALIZER.to_owned()]);
        upgrade.metadata.labels = Some(BTreeMap::from([(labels::NODE.to_owned(), name.to_owned())]));
        let _ = self.world.store.create_custom(Writer::Person, "create", upgrade);
    }

    /// A second budget over the pods of a workload.
    pub fn second_budget(&mut self, workload: &str) {
        let Some(first) = self.world.store.budgets.get(&budget_key(workload)).cloned() else {
            return;
        };
        let key = Key::new(&first.key.namespace, &format!("{workload}-too"));
        let uid = self.world.store.new_uid();
        self.world
            .store
            .budget_specs
            .insert(key.clone(), BudgetSpec::MaxUnavailable(1));
        let budget = PodBudget {
            key,
            uid,
            revision: Revision(0),
            ..PodBudget::clone(&first)
        };
        self.world.store.put(Writer::Setup, "create", budget);
    }
}

/// A step container as the operator makes them.
fn step(name: &str, plan: &NodePlan) -> StepContainer {
    StepContainer {
        name: name.to_owned(),
        image: "afloat/upgrader".to_owned(),
        args: vec!["node".to_owned(), name.to_owned()],
        env: Arc::new(
            plan.to_env()
                .into_iter()
                .map(|(name, value)| afloat_api::common::StepEnv {
                    name: name.to_owned(),
                    value,
                })
                .collect(),
        ),
        ..StepContainer::default()
    }
}

//! Who belongs to an upgrade: its groups, their nodes and how each stands. Read from the view anew at every turn; nothing
//! is remembered between turns but what the objects themselves say.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use afloat_api::clusterupgrade::Slot;
use afloat_api::{
    ControlPlaneKubeadmUpgrade, GroupUpgradeStatus, NodeKubeadmUpgrade, ObjectRef, WorkersKubeadmUpgrade,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::objects::{Standing, owned_by, target_of};
use crate::plan::{Stage, StageKind};
use crate::settings::controller;
use crate::view::{Node, Target, View};

/// One group object, of either kind.
#[derive(Clone, Copy, Debug)]
pub enum Group<'a> {
    ControlPlane(&'a ControlPlaneKubeadmUpgrade),
    Workers(&'a WorkersKubeadmUpgrade),
}

impl<'a> Group<'a> {
    pub fn meta(self) -> &'a ObjectMeta {
        match self {
            Self::ControlPlane(group) => &group.metadata,
            Self::Workers(group) => &group.metadata,
        }
    }

    pub fn uid(self) -> &'a str {
        self.meta().uid.as_deref().unwrap_or_default()
    }

    pub fn target(self) -> Target {
        target_of(self.meta())
    }

    pub fn kind(self) -> StageKind {
        match self {
            Self::ControlPlane(_) => StageKind::ControlPlane,
            Self::Workers(_) => StageKind::Workers,
        }
    }

    /// The version its nodes arrive at.
    pub fn version(self) -> &'a str {
        match self {
            Self::ControlPlane(group) => &group.spec.kubelet_version,
            Self::Workers(group) => &group.spec.kubelet_version,
        }
    }

    pub fn kubernetes_version(self) -> &'a str {
        match self {
            Self::ControlPlane(group) => &group.spec.kubernetes_version,
            Self::Workers(group) => &group.spec.kubernetes_version,
        }
    }

    pub fn machines(self) -> &'a [ObjectRef] {
        match self {
            Self::ControlPlane(group) => &group.spec.machines_require_upgrade,
            Self::Workers(group) => &group.spec.machines_require_upgrade,
        }
    }

    pub fn paused(self) -> bool {
        let paused = match self {
            Self::ControlPlane(group) => group.spec.paused,
            Self::Workers(group) => group.spec.paused,
        };
        paused == Some(true)
    }

    pub fn status(self) -> Option<&'a GroupUpgradeStatus> {
        match self {
            Self::ControlPlane(group) => group.status.as_ref(),
            Self::Workers(group) => group.status.as_ref(),
        }
    }

    /// Whether this is a group of `stage`.
    pub fn serves(self, stage: &Stage) -> bool {
        self.kind() == stage.kind && stage.version.is_written(self.version())
    }
}

/// A group and its nodes' upgrades, by the name of the node.
#[derive(Debug)]
pub struct Members<'a> {
    pub group: Group<'a>,
    pub nodes: BTreeMap<&'a str, Standing<'a>>,
}

/// All groups of one upgrade.
#[derive(Debug, Default)]
pub struct Roster<'a> {
    pub groups: Vec<Members<'a>>,
}

impl<'a> Roster<'a> {
    /// The groups that belong to the ClusterUpgrade with this uid.
    pub fn of_upgrade(view: &'a View, uid: &str) -> Self {
        let control_planes = view.control_planes.values().map(Arc::as_ref).map(Group::ControlPlane);
        let workers = view.workers.values().map(Arc::as_ref).map(Group::Workers);
        let groups: Vec<_> = control_planes
            .chain(workers)
            .filter(|group| owned_by(group.meta(), uid))
            .collect();
        Self::of_groups(view, groups)
    }

    pub fn of_groups(view: &'a View, groups: Vec<Group<'a>>) -> Self {
        let mut members: BTreeMap<&str, Members<'a>> = groups
            .into_iter()
            .map(|group| {
                let nodes = BTreeMap::new();
                (group.uid(), Members { group, nodes })
            })
            .collect();
        for upgrade in view.node_upgrades().values() {
            let owner = controller(upgrade.metadata.owner_references.as_deref());
            if let Some(group) = owner.and_then(|owner| members.get_mut(owner.uid.as_str())) {
                group.add(view, upgrade);
            }
        }
        let mut groups: Vec<_> = members.into_values().collect();
        groups.sort_by(|one, other| one.group.meta().name.cmp(&other.group.meta().name));
        Self { groups }
    }

    pub fn serving(&self, stage: &Stage) -> impl Iterator<Item = &Members<'a>> {
        self.groups.iter().filter(move |members| members.group.serves(stage))
    }

    /// How a node stands in a stage, where it has begun.
    pub fn standing(&self, stage: &Stage, node: &Node) -> Option<Standing<'a>> {
        self.serving(stage)
            .find_map(|members| members.nodes.get(node.name.as_str()).copied())
            .filter(|standing| standing.node_uid() == node.uid.as_str())
    }

    /// The upgrades of nodes, of all groups.
    pub fn standings(&self) -> impl Iterator<Item = (Group<'a>, Standing<'a>)> {
        self.groups
            .iter()
            .flat_map(|members| members.nodes.values().map(|standing| (members.group, *standing)))
    }

    /// The machines that groups of a stage list, by name and uid.
    pub fn listed(&self, stage: &Stage) -> BTreeSet<(&'a str, &'a str)> {
        let machines = self.serving(stage).flat_map(|members| members.group.machines());
        machines
            .filter_map(|machine| Some((machine.name.as_str(), machine.uid.as_deref()?)))
            .collect()
    }

    /// The upgrade of a node that an entry of the ledger is about: of the hops of one node the one the entry names.
    pub fn holder(&self, slot: &Slot) -> Option<Standing<'a>> {
        self.groups
            .iter()
            .filter_map(|members| members.nodes.get(slot.node.as_str()).copied())
            .find(|standing| standing.is_meant_by(slot))
    }
}

impl<'a> Members<'a> {
    /// Of two upgrades under one node name the one of the machine that is there counts.
    fn add(&mut self, view: &View, upgrade: &'a NodeKubeadmUpgrade) {
        let standing = Standing::of(upgrade);
        let current = view
            .nodes
            .get(standing.node())
            .is_some_and(|node| node.uid.as_str() == standing.node_uid());
        if current || !self.nodes.contains_key(standing.node()) {
            self.nodes.insert(standing.node(), standing);
        }
    }
}

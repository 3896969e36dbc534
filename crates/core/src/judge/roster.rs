//! Who belongs to an upgrade: its groups, their nodes and how each stands. Read from the view anew at every turn; nothing
//! is remembered between turns but what the objects themselves say.

use std::sync::Arc;

use afloat_api::clusterupgrade::Slot;
use afloat_api::{ControlPlaneKubeadmUpgrade, GroupUpgradeStatus, ObjectRef, WorkersKubeadmUpgrade};
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

    /// Its kind, as the API server has it.
    pub fn word(self) -> &'static str {
        match self {
            Self::ControlPlane(_) => "ControlPlaneKubeadmUpgrade",
            Self::Workers(_) => "WorkersKubeadmUpgrade",
        }
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

    /// Whether kubeadm's configuration is to name other images. That is the first control plane's part, and those that are at the version
    /// already have not done it.
    pub fn names_images(self) -> bool {
        self.image_tags() != (None, None)
    }

    /// The tags that a person wants etcd and CoreDNS to have.
    pub fn image_tags(self) -> (Option<&'a String>, Option<&'a String>) {
        match self {
            Self::ControlPlane(group) => (group.spec.etcd_version.as_ref(), group.spec.core_dns_version.as_ref()),
            Self::Workers(_) => (None, None),
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

/// A group and its nodes' upgrades.
#[derive(Debug)]
pub struct Members<'a> {
    pub group: Group<'a>,
    pub nodes: Standings<'a>,
}

/// Upgrades of nodes, one of each, with the nodes' names and in their order. Made anew in every turn and asked a few times: a list that is
/// searched costs a third of a map there. The names stand in it, since every other look would be at another place of the memory.
#[derive(Debug, Default)]
pub struct Standings<'a>(Vec<(&'a str, Standing<'a>)>);

impl<'a> Standings<'a> {
    /// Of two upgrades under one name `better` says whether the second is the one that counts.
    pub fn sorted(mut all: Vec<(&'a str, Standing<'a>)>, better: impl Fn(Standing<'a>, Standing<'a>) -> bool) -> Self {
        all.sort_by_key(|(name, _)| *name);
        all.dedup_by(|(next_name, next), (name, kept)| {
            let same = next_name == name;
            if same && better(*next, *kept) {
                *kept = *next;
            }
            same
        });
        Self(all)
    }

    pub fn get(&self, node: &str) -> Option<Standing<'a>> {
        let Self(all) = self;
        let place = all.binary_search_by_key(&node, |(name, _)| name).ok()?;
        all.get(place).map(|(_, standing)| *standing)
    }

    pub fn iter(&self) -> impl Iterator<Item = Standing<'a>> {
        self.0.iter().map(|(_, standing)| *standing)
    }

    /// Each with the node of its name: nodes are in the same order, and found by going on.
    pub fn with_nodes<'v>(&self, view: &'v View) -> Vec<(Standing<'a>, Option<&'v Node>)> {
        let mut nodes = view.nodes.iter().peekable();
        let found = self.0.iter().map(|(name, standing)| {
            while nodes.next_if(|(node, _)| node.as_str() < *name).is_some() {}
            let node = nodes.peek().copied().filter(|(node, _)| node.as_str() == *name);
            (*standing, node.map(|(_, node)| node.as_ref()))
        });
        found.collect()
    }

    /// Each node with its own upgrade, in the order of names.
    pub fn of_nodes<'v>(&self, view: &'v View) -> impl Iterator<Item = (&'v Node, Option<Standing<'a>>)> {
        let mut standings = self.0.iter().peekable();
        view.nodes.iter().map(move |(name, node)| {
            while standings.next_if(|(other, _)| *other < name.as_str()).is_some() {}
            let standing = standings.peek().copied().filter(|(other, _)| *other == name.as_str());
            let own = standing.filter(|(_, standing)| standing.node_uid() == node.uid.as_str());
            (node.as_ref(), own.map(|(_, standing)| *standing))
        })
    }
}

/// Whether the machine of an upgrade is in the cluster.
pub fn is_there(view: &View, standing: Standing<'_>) -> bool {
    let node = view.nodes.get(standing.node());
    node.is_some_and(|node| node.uid.as_str() == standing.node_uid())
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
        let mut groups: Vec<(Group<'a>, Vec<(&'a str, Standing<'a>)>)> =
            groups.into_iter().map(|group| (group, Vec::new())).collect();
        groups.sort_by_key(|(group, _)| group.uid());
        let mut last = 0;
        for upgrade in view.node_upgrades().values() {
            let Some(owner) = controller(upgrade.metadata.owner_references.as_deref()) else {
                continue;
            };
            // Neighbours mostly belong together.
            if groups.get(last).is_none_or(|(group, _)| group.uid() != owner.uid) {
                match groups.binary_search_by(|(group, _)| group.uid().cmp(&owner.uid)) {
                    Ok(place) => last = place,
                    Err(_) => continue,
                }
            }
            if let Some((_, standings)) = groups.get_mut(last) {
                let standing = Standing::of(upgrade);
                standings.push((standing.node(), standing));
            }
        }
        groups.sort_by(|(one, _), (other, _)| one.meta().name.cmp(&other.meta().name));
        let members = groups.into_iter().map(|(group, standings)| Members {
            group,
            // The one of the machine that is there.
            nodes: Standings::sorted(standings, |next, _| is_there(view, next)),
        });
        Self {
            groups: members.collect(),
        }
    }

    pub fn serving(&self, stage: &Stage) -> impl Iterator<Item = &Members<'a>> {
        self.groups.iter().filter(move |members| members.group.serves(stage))
    }

    /// How a node stands in a stage, where it has begun.
    pub fn standing(&self, stage: &Stage, node: &Node) -> Option<Standing<'a>> {
        self.serving(stage)
            .find_map(|members| members.nodes.get(node.name.as_str()))
            .filter(|standing| standing.node_uid() == node.uid.as_str())
    }

    /// The upgrades of nodes, of all groups.
    pub fn standings(&self) -> impl Iterator<Item = (Group<'a>, Standing<'a>)> {
        self.groups
            .iter()
            .flat_map(|members| members.nodes.iter().map(|standing| (members.group, standing)))
    }

    /// The upgrades of nodes in a stage: of the first of its groups that has one.
    pub fn of_stage(&self, stage: &Stage) -> Standings<'a> {
        let all = self.serving(stage).flat_map(|members| members.nodes.0.iter().copied());
        Standings::sorted(all.collect(), |_, _| false)
    }

    /// The machines that groups of a stage list, by name and uid, sorted.
    pub fn listed(&self, stage: &Stage) -> Vec<(&'a str, &'a str)> {
        let machines = self.serving(stage).flat_map(|members| members.group.machines());
        let mut listed: Vec<_> = machines
            .filter_map(|machine| Some((machine.name.as_str(), machine.uid.as_deref()?)))
            .collect();
        listed.sort_unstable();
        listed
    }

    /// The upgrade of a node that an entry of the ledger is about: of the hops of one node the one the entry names.
    pub fn holder(&self, slot: &Slot) -> Option<Standing<'a>> {
        self.groups
            .iter()
            .filter_map(|members| members.nodes.get(slot.node.as_str()))
            .find(|standing| standing.is_meant_by(slot))
    }
}

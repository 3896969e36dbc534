//! What is still to be done, and what ends it early: the stages of the way that some node has not behind it, and the failures
//! after which no further node starts. The way itself is found in [`crate::plan`].

use std::collections::BTreeSet;
use std::sync::Arc;

use afloat_api::clusterupgrade::Phase;
use afloat_api::{ConditionType, NodeKubeadmUpgrade, NodeRole, ObjectRef, Reason};

use super::roster::Group;
use super::{Turn, children, report};
use crate::gates::Closed;
use crate::objects::Standing;
use crate::plan::{self, Stage, StageKind};
use crate::settings::Settings;
use crate::version::{KubeletSkew, KubernetesVersion};
use crate::view::{Node, Revision};

impl Turn<'_> {
    /// What is still to be done: stages that every node has behind it, or was set aside in, are left out. Versions on the
    /// way stay those the upgrade began with, whatever images come meanwhile.
    pub(super) fn stages(&self, settings: &Settings) -> Result<Vec<Stage>, plan::PathError> {
        let mut stages = plan::path(self.view, settings)?;
        for stage in &mut stages {
            let pinned = self
                .status
                .version_path
                .iter()
                .filter_map(|text| text.parse().ok())
                .find(|version: &KubernetesVersion| version.minor_version() == stage.version.minor_version());
            if let Some(pinned) = pinned {
                stage.version = pinned;
            }
        }
        stages.retain(|stage| !self.complete(stage));
        Ok(stages)
    }

    pub(super) fn complete(&self, stage: &Stage) -> bool {
        self.nodes_of(stage.kind).all(|node| self.past(stage, node))
    }

    /// What keeps an upgrade from its end although all that is seen is done: a machine that a group lists is not there. It has
    /// left, and another may have joined in its place since; or it has joined itself a moment ago. So the upgrade says that it
    /// looks once more, and ends when nodes are seen as they were after that: who joined before is not left behind.
    pub(super) fn looks_once_more(&self) -> Option<Closed> {
        let groups = self.roster.groups.iter().map(|members| members.group);
        let listed = groups.flat_map(|group| group.machines().iter().map(move |machine| (group, machine)));
        let away: Vec<(Group<'_>, &ObjectRef)> = listed.filter(|(_, machine)| !self.is_there(machine)).collect();
        let names: BTreeSet<&str> = away.iter().map(|(_, machine)| machine.name.as_str()).collect();
        let first = names.first()?;
        let more = match names.len() - 1 {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let closed = Closed {
            reason: Reason::WaitingForNode,
            message: format!("every node that is seen is done, but {first}{more} left: looks once more who has joined"),
            blocked_by: None,
            until: None,
        };
        let seen_as_of = self.view.nodes_as_of;
        let said = self.upgrade.status.as_ref().is_some_and(|status| {
            let ready = ConditionType::Ready.to_string();
            let mut conditions = status.conditions.iter();
            conditions.any(|condition| condition.type_ == ready && condition.message == closed.message)
        });
        let looked =
            seen_as_of >= self.target.revision && away.iter().all(|(group, _)| seen_as_of >= group.target().revision);
        (!said || !looked).then_some(closed)
    }

    /// When the upgrade or one of its groups was last written.
    pub(super) fn newest_list(&self) -> Revision {
        let groups = self.roster.groups.iter().map(|members| members.group.target().revision);
        groups.fold(self.target.revision, Revision::max)
    }

    /// Whether a node is known in a newer state than its watch has told of: by the answer to an own write, as a rule the one that
    /// gave the last node back. Who joined before that write is not seen yet, and will be, at the latest with the write itself.
    pub(super) fn nodes_are_behind(&self) -> bool {
        let mut nodes = self.view.nodes.values();
        nodes.any(|node| node.revision > self.view.nodes_as_of)
    }

    /// Whether a machine is seen, and nobody who saw more has seen it leave.
    fn is_there(&self, machine: &ObjectRef) -> bool {
        let uid = machine.uid.as_deref().unwrap_or_default();
        let node = self.view.nodes.get(machine.name.as_str());
        let left = |upgrade: &NodeKubeadmUpgrade| upgrade.spec.node.uid == uid && Standing::of(upgrade).lost_its_node();
        let mut upgrades = self.view.node_upgrades_of(&machine.name);
        node.is_some_and(|node| node.uid.as_str() == uid) && !upgrades.any(|(_, upgrade)| left(upgrade))
    }

    pub(super) fn nodes_of(&self, kind: StageKind) -> impl Iterator<Item = &Arc<Node>> {
        self.view
            .nodes
            .values()
            .filter(move |node| node.control_plane == (kind == StageKind::ControlPlane) && !node.deleting)
    }

    /// Whether a node has nothing more to do in a stage.
    pub(super) fn past(&self, stage: &Stage, node: &Node) -> bool {
        match self.roster.standing(stage, node) {
            Some(standing) => standing.succeeded() && standing.ended() || standing.set_aside(),
            None => !plan::needs(self.view, node, stage, self.bundle_is_new()),
        }
    }

    /// The same version with other contents is an upgrade too (P46): only a node's own upgrade says that it has them.
    pub(super) fn bundle_is_new(&self) -> bool {
        self.upgrade.spec.bundle.is_some()
            && self.status.from_version.as_ref() == Some(&self.upgrade.spec.kubernetes_version)
    }

    /// Whether a control plane is being upgraded or undone.
    pub(super) fn holds_control_plane(&self) -> bool {
        self.status.slots.iter().any(|slot| slot.role != NodeRole::Worker)
    }

    /// Whether a control plane is still at work in another hop than this one.
    pub(super) fn is_in_hop_before(&self, stage: &Stage) -> bool {
        let version = stage.version.to_string();
        let mut slots = self.status.slots.iter();
        slots.any(|slot| slot.role != NodeRole::Worker && slot.version != version)
    }

    /// The last sentence of an upgrade that went well, with whom it left behind.
    pub(super) fn arrived(&self, settings: &Settings) -> String {
        let aside = self.roster.standings().map(|(_, standing)| standing);
        let aside: BTreeSet<&str> = aside
            .filter(|standing| standing.set_aside() && !standing.lost_its_node())
            .map(Standing::node)
            .collect();
        let to = &settings.to;
        if aside.is_empty() {
            return format!("every node is at {to}");
        }
        let names: Vec<&str> = aside.into_iter().collect();
        format!(
            "every node is at {to} but those that failed and were put back: {}",
            names.join(", ")
        )
    }

    /// Why no further node may start, once those in flight have ended.
    pub(super) fn stop(&self, settings: &Settings) -> Option<(Reason, String)> {
        let failed: Vec<Standing<'_>> = self
            .roster
            .standings()
            .map(|(_, standing)| standing)
            .filter(|standing| standing.failed())
            .collect();
        let control_plane = self
            .roster
            .standings()
            .map(|(_, standing)| standing)
            .filter(|standing| standing.set_aside())
            .find(|standing| match standing.upgrade.spec.role {
                NodeRole::Worker => false,
                // The others were told that they follow it.
                NodeRole::FirstControlPlane => true,
                NodeRole::ControlPlane => !standing.lost_its_node(),
            });
        if let Some(standing) = control_plane {
            let (node, why) = (standing.node(), report::failure_text(standing));
            let message = if standing.lost_its_node() {
                format!("control plane {node}, which was to go first, left the cluster: create another ClusterUpgrade")
            } else {
                format!("control plane {node} was put back: {why}")
            };
            return Some((Reason::ControlPlaneFailed, message));
        }
        (failed.len() > settings.max_failed).then(|| {
            let last = failed
                .first()
                .map(|standing| format!("{}: {}", standing.node(), report::failure_text(*standing)));
            let message = format!(
                "{} of at most {} workers failed ({})",
                failed.len(),
                settings.max_failed,
                last.unwrap_or_default()
            );
            (Reason::TooManyFailures, message)
        })
    }

    /// A worker that was set aside must not be left further behind than the skew policy allows.
    pub(super) fn skew_stops(&self, stage: &Stage) -> Option<String> {
        if stage.kind != StageKind::ControlPlane {
            return None;
        }
        let behind = self.view.worker_nodes().find(|node| {
            node.kubelet_version
                .as_ref()
                .is_some_and(|kubelet| kubelet.kubelet_skew(&stage.version) != KubeletSkew::Allowed)
        })?;
        Some(format!(
            "{} was set aside and would be too far behind a control plane at {}: repair it, then create another ClusterUpgrade",
            behind.name, stage.version
        ))
    }

    /// Who is still without what the next ones need on all of them, unless it cannot be brought there. Before the first one goes the
    /// workers need it too; later they need it only when it is their turn, and each for itself.
    pub(super) fn unprepared(&self, stages: &[Stage]) -> Option<Closed> {
        let ahead = self.phase() == Phase::Prepare;
        let first = stages
            .first()
            .filter(|stage| ahead || stage.kind == StageKind::ControlPlane);
        let workers = stages.iter().find(|stage| ahead && stage.kind == StageKind::Workers);
        first.into_iter().chain(workers).find_map(|stage| {
            let has_it = |standing: Standing<'_>| standing.ready_to_go() || standing.in_flight() || standing.ended();
            let without = |node: &&Arc<Node>| {
                let standing = self.roster.standing(stage, node);
                !self.past(stage, node) && node.ready.ready && !standing.is_some_and(has_it)
            };
            let node = self.nodes_of(stage.kind).find(without)?;
            Some(Closed {
                reason: Reason::WaitingForStaging,
                message: format!(
                    "{} is brought to {} before the next node goes",
                    stage.version, node.name
                ),
                blocked_by: Some(children::machine(node)),
                until: None,
            })
        })
    }
}

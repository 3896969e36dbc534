//! The groups an upgrade makes: which nodes of a stage are in none yet, and the objects that take them in.

use std::collections::BTreeMap;

use afloat_api::{ObjectRef, labels};

use super::{Turn, children};
use crate::action::Action;
use crate::plan::{self, Stage, StageKind};
use crate::settings::Settings;
use crate::view::Node;

/// Machines in one group object: far below etcd's limit for an object.
const GROUP_SIZE: usize = 1000;

impl Turn<'_> {
    pub(super) fn ensure_groups(&mut self, stage: &Stage, settings: &Settings) {
        let view = self.view;
        // Whoever has an upgrade of its own is in a group: the lists need not be looked at for most.
        let kind = stage.kind;
        let of_stage = self.roster.of_stage(stage);
        let mut nodes = of_stage
            .of_nodes(view)
            .filter(|(node, _)| kind.takes(node) && !node.deleting);
        if !nodes.any(|(node, standing)| standing.is_none() && !self.past(stage, node)) {
            return;
        }
        let in_none = |node: &Node| self.roster.standing(stage, node).is_none() && !self.past(stage, node);
        let listed = self.roster.listed(stage);
        let is_listed = |node: &Node| listed.binary_search(&(node.name.as_str(), node.uid.as_str())).is_ok();
        let missed = |node: &Node| in_none(node) && !is_listed(node);
        if !self.nodes_of(stage.kind).any(|node| missed(node)) {
            return;
        }
        let nodes = view
            .nodes
            .values()
            .map(AsRef::as_ref)
            .filter(|node: &&Node| !node.deleting);
        let mut missing = plan::order(view, nodes, stage.kind, settings);
        missing.retain(|node| missed(node));
        match stage.kind {
            StageKind::ControlPlane => self.add_control_planes(stage, &missing),
            StageKind::Workers => self.add_workers(stage, &missing, settings),
        }
    }

    fn add_control_planes(&mut self, stage: &Stage, missing: &[&Node]) {
        let mut machines: Vec<ObjectRef> = missing.iter().map(|node| children::machine(node)).collect();
        let existing = self.roster.serving(stage).next().map(|members| members.group);
        let action = if let Some(group) = existing {
            let mut all = group.machines().to_vec();
            all.retain(|old| machines.iter().all(|new| new.name != old.name));
            all.append(&mut machines);
            Action::SetControlPlaneMachines {
                target: group.target(),
                machines: all,
            }
        } else {
            Action::CreateControlPlaneUpgrade(Box::new(children::control_plane(
                self.view,
                self.upgrade,
                stage,
                machines,
            )))
        };
        self.after.push(action);
    }

    fn add_workers(&mut self, stage: &Stage, missing: &[&Node], settings: &Settings) {
        let total = self.view.worker_nodes().count();
        let concurrent = settings.max_unavailable.of(total);
        let mut by_group: BTreeMap<&str, Vec<ObjectRef>> = BTreeMap::new();
        for node in missing {
            by_group
                .entry(plan::group_of(node))
                .or_default()
                .push(children::machine(node));
        }
        for (name, machines) in by_group {
            let existing: Vec<_> = self
                .roster
                .serving(stage)
                .map(|members| members.group)
                .filter(|group| {
                    let labels = group.meta().labels.as_ref();
                    let label = labels.and_then(|labels| labels.get(labels::GROUP));
                    label.is_some_and(|label| label == name || label.starts_with(&format!("{name}-part-")))
                })
                .collect();
            let open = existing
                .iter()
                .find(|group| group.machines().len() + machines.len() <= GROUP_SIZE);
            if let Some(group) = open {
                let mut all = group.machines().to_vec();
                all.retain(|old| machines.iter().all(|new| new.name != old.name));
                all.extend(machines);
                self.after.push(Action::SetWorkersMachines {
                    target: group.target(),
                    machines: all,
                });
                continue;
            }
            for (index, part) in machines.chunks(GROUP_SIZE).enumerate() {
                let number = existing.len() + index;
                let part_name = if number == 0 {
                    name.to_owned()
                } else {
                    format!("{name}-part-{}", number + 1)
                };
                let group = children::workers(self.upgrade, stage, &part_name, part.to_vec(), concurrent);
                self.after.push(Action::CreateWorkersUpgrade(Box::new(group)));
            }
        }
    }
}

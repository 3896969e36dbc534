//! Which node after which. The order is a function of the nodes alone, so that it is the same in every turn and after every
//! restart of the operator; what a person deferred or paused is left to the judge.

use std::collections::BTreeMap;

use super::{StageKind, group_of};
use crate::settings::Settings;
use crate::view::{Node, NodeName, View};

/// The nodes of a stage in the order in which they go. Hand in all of them, the ones that are done too: the order of what
/// remains is then the same from the first to the last.
///
/// Control planes go by name, the holder of the virtual address last: it then moves once, onto a node that is done. Workers go
/// group by group and within a group in turn through the failure domains, so that neighbours in the order can go together
/// where the budget counts by domain.
pub fn order<'a>(
    view: &View,
    nodes: impl Iterator<Item = &'a Node>,
    kind: StageKind,
    settings: &Settings,
) -> Vec<NodeName> {
    let nodes = nodes.filter(|node| kind.takes(node));
    match kind {
        StageKind::ControlPlane => control_planes(view, nodes),
        StageKind::Workers => workers(nodes, &settings.failure_domain_label),
    }
}

/// The control plane that goes first: what the cluster shares is changed there.
pub fn first_control_plane(view: &View) -> Option<NodeName> {
    control_planes(view, view.control_plane_nodes().map(AsRef::as_ref))
        .into_iter()
        .next()
}

fn control_planes<'a>(view: &View, nodes: impl Iterator<Item = &'a Node>) -> Vec<NodeName> {
    let mut names: Vec<NodeName> = nodes.map(|node| node.name.clone()).collect();
    names.sort_by(|left, right| {
        let holds = |name: &NodeName| view.vip_holder.as_ref() == Some(name);
        (holds(left), left).cmp(&(holds(right), right))
    });
    names
}

fn workers<'a>(nodes: impl Iterator<Item = &'a Node>, domain_label: &str) -> Vec<NodeName> {
    let mut domains: BTreeMap<(&str, Option<&str>), Vec<&NodeName>> = BTreeMap::new();
    for node in nodes {
        let domain = (group_of(node), node.failure_domain(domain_label));
        domains.entry(domain).or_default().push(&node.name);
    }
    let mut places = Vec::new();
    for ((group, domain), mut names) in domains {
        names.sort();
        for (round, name) in names.into_iter().enumerate() {
            places.push((group, round, domain, name));
        }
    }
    places.sort();
    places.into_iter().map(|(_, _, _, name)| name.clone()).collect()
}

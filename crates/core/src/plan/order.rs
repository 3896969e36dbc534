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
) -> Vec<&'a Node> {
    let nodes = nodes.filter(|node| kind.takes(node));
    match kind {
        StageKind::ControlPlane => control_planes(view, nodes),
        StageKind::Workers => workers(nodes, &settings.failure_domain_label),
    }
}

/// The control plane that goes first: what the cluster shares is changed there.
pub fn first_control_plane(view: &View) -> Option<NodeName> {
    control_planes(view, view.control_plane_nodes().map(AsRef::as_ref))
        .first()
        .map(|node| node.name.clone())
}

fn control_planes<'a>(view: &View, nodes: impl Iterator<Item = &'a Node>) -> Vec<&'a Node> {
    let mut nodes: Vec<&Node> = nodes.collect();
    nodes.sort_by(|left, right| {
        let holds = |node: &Node| view.vip_holder.as_ref() == Some(&node.name);
        (holds(left), &left.name).cmp(&(holds(right), &right.name))
    });
    nodes
}

fn workers<'a>(nodes: impl Iterator<Item = &'a Node>, domain_label: &str) -> Vec<&'a Node> {
    let mut domains: BTreeMap<(&str, Option<&str>), Vec<&'a Node>> = BTreeMap::new();
    for node in nodes {
        let domain = (group_of(node), node.failure_domain(domain_label));
        domains.entry(domain).or_default().push(node);
    }
    let mut places = Vec::new();
    for ((group, domain), mut nodes) in domains {
        nodes.sort_by(|left, right| left.name.cmp(&right.name));
        for (round, node) in nodes.into_iter().enumerate() {
            places.push((group, round, domain, node));
        }
    }
    // Of one group, round and domain there is one.
    places.sort_by_key(|(group, round, domain, _)| (*group, *round, *domain));
    places.into_iter().map(|(_, _, _, node)| node).collect()
}

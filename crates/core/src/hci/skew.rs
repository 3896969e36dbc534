//! Rule 3: which Kubernetes the nodes may be brought to. Releases of Harvester are compared elsewhere; a development build, or a person who skips that, says
//! nothing about the Kubernetes in it. Candidates of a release count as that release, and builds of a distribution as one version.

use std::sync::Arc;

use super::waits::without_candidate;
use crate::KubernetesVersion;
use crate::version::MinorVersion;
use crate::view::{Node, View};

fn number(version: &str) -> Option<(MinorVersion, u64)> {
    let version: KubernetesVersion = without_candidate(version).parse().ok()?;
    Some((version.minor_version(), version.patch()))
}

fn kubelet(node: &Node) -> Option<(MinorVersion, u64)> {
    number(&node.kubelet_version.as_ref()?.to_string())
}

/// A node that has got a newer Kubernetes than this.
fn newer<'a>(view: &'a View, version: &str) -> Option<&'a Arc<Node>> {
    let version = number(version)?;
    let mut nodes = view.nodes.values();
    nodes.find(|node| kubelet(node).is_some_and(|kubelet| kubelet > version))
}

/// A node that Rancher has brought to `to`, where it is told to go back to `back`. One that was ahead of both before is none.
pub fn brought<'a>(view: &'a View, to: &str, back: &str) -> Option<&'a Arc<Node>> {
    let (to, back) = (number(to)?, number(back)?);
    let mut nodes = view.nodes.values().filter(|_| back < to);
    nodes.find(|node| kubelet(node).is_some_and(|kubelet| kubelet >= to))
}

/// Whether every node may be brought to this version, one minor version at a time and never back; or why not.
pub fn allows(view: &View, version: &str) -> Result<(), String> {
    let has = |node: &Node| {
        node.kubelet_version
            .as_ref()
            .map(ToString::to_string)
            .unwrap_or_default()
    };
    if let Some(node) = newer(view, version) {
        return Err(format!(
            "Kubernetes {version} would be a downgrade: node {} has {}; name a release with that or a newer one",
            node.name,
            has(node)
        ));
    }
    let Some((to, _)) = number(version) else {
        return Ok(());
    };
    let oldest = view
        .nodes
        .values()
        .filter_map(|node| Some((kubelet(node)?, node)))
        .min_by_key(|(kubelet, _)| *kubelet);
    let Some(((from, _), node)) = oldest else {
        return Ok(());
    };
    if from.major == to.major && to.minor <= from.minor + 1 {
        return Ok(());
    }
    Err(format!(
        "Kubernetes {version} is too far from node {}, which has {}: control planes go one minor version at a time; upgrade to a release with v{}.{} first",
        node.name,
        has(node),
        from.major,
        from.minor + 1
    ))
}
